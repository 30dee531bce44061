"""The search for missing links: which links are candidates, their scores, and the best of each relation.

Links are scored in blocks of heads by tails, a matrix product or a table of distances each. Only the best `size` links
of each relation by score are kept, and known triples are found in sorted keys, so that nothing as large as all scores
is ever in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.data.graph import Graph, Side
from focuse.data.triple_index import TripleIndex
from focuse.engines.scorer import StrengthScorer, TableScorer, distance_scores
from focuse.errors import FocuseError
from focuse.evaluation.ranking import DIVERGED
from focuse.option_strings import check_count, check_seed, choose
from focuse.system import chunks
from focuse.training.callbacks import Progress

STRATEGIES = ("exhaustive", "popular", "sampled")
SAMPLE_SIZE = 1000
CPU_BLOCK_SCORES = 1 << 21  # 8 MB, which fit in the cache
GPU_BLOCK_SCORES = 1 << 25  # 128 MB
BLOCK_TAILS = 1 << 14  # the queries of this many tails are kept if a model scores both sides
QUERIES_AT_ONCE = 4096  # more queries of an expensive model (ConvE) would not fit in the cache
EXCLUDED = float("-inf")  # the score of known triples and of entities that are not candidates
LOOP_SHARE = 0.001  # of the edges of a relation, above which self-loops are candidates of new links
LOWEST_SCORE = torch.finfo(torch.float32).min


Ids = npt.NDArray[np.int64]


# ---- candidates -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CandidateSpace:
    """The heads and tails of each of `relations` between which links are searched.

    Attributes
    ----------
    heads, tails : sorted ids, or None for all entities
    any_type : bool
        By default, an entity is a candidate only where it is plausible, see `plausible_keys`. If True, every entity is
        a candidate on both sides of every relation.
    strategy : str
        'exhaustive' takes all these entities, 'popular' and 'sampled' take `sample_size` of them per relation and
        side: those with the most edges, or a random sample.
    entities_by_relation : dict
        A cache of sorted keys, which the candidate spaces of one run share.
    """

    train: Graph
    relations: Ids
    heads: Ids | None = None
    tails: Ids | None = None
    any_type: bool = False
    strategy: str = "exhaustive"
    sample_size: int = SAMPLE_SIZE
    seed: int = 0
    entities_by_relation: dict[str, Ids] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        choose("strategy", self.strategy, STRATEGIES)
        check_count("sample_size", self.sample_size)
        check_seed(self.seed)

    def ends(self, relation: int) -> tuple[Ids, Ids]:
        """Return the heads [H] and the tails [N] of one relation, ascending."""
        return self._side(relation, "head", self.heads), self._side(relation, "tail", self.tails)

    @cached_property
    def num_pairs(self) -> int:
        """The number of pairs of head and tail, over all relations."""
        return sum(len(heads) * len(tails) for heads, tails in map(self.ends, self.relations.tolist()))

    @cached_property
    def has_self_loops(self) -> npt.NDArray[np.bool_]:
        """Whether a relation links entities to themselves, bool [R]; elsewhere, self-loops are not candidates."""
        return has_self_loops(self.train)

    @cached_property
    def degree(self) -> Ids:
        """The number of training edges of each entity, [E]."""
        ends = np.concatenate([self.train.head, self.train.tail])
        return np.bincount(ends, minlength=len(self.train.entities))

    def _side(self, relation: int, side: Side, wanted: Ids | None) -> Ids:
        if self.any_type:
            found = np.arange(len(self.train.entities)) if wanted is None else wanted
        else:
            found = self.plausible(relation, side)
            found = found if wanted is None else found[np.isin(found, wanted)]
        if self.strategy == "exhaustive" or len(found) <= self.sample_size:
            return found
        if self.strategy == "sampled":
            random = np.random.default_rng([self.seed, relation, side == "tail"])
            return np.sort(random.choice(found, self.sample_size, replace=False))
        return np.sort(found[np.argsort(-self.degree[found], kind="stable")[: self.sample_size]])

    def plausible(self, relation: int, side: Side) -> Ids:
        """Return the entities that are plausible on a side of a relation, ascending."""
        entities, keys = max(len(self.train.entities), 1), self.keys(side)
        start, stop = np.searchsorted(keys, [relation * entities, (relation + 1) * entities])
        return keys[start:stop] - relation * entities

    def keys(self, side: Side) -> Ids:
        """Return the sorted keys, relation · E + entity, of all entities that are plausible on a side."""
        if side not in self.entities_by_relation:
            self.entities_by_relation.update(plausible_keys(self.train))
        return self.entities_by_relation[side]


SAME_TYPE = 0.5  # share of the entities of another side that make all of them plausible
MAX_PAIRS_OF_SIDES = 5e7  # pairs of sides with a common entity; a graph with more of them has no other sides compared


def plausible_keys(train: Graph) -> dict[str, Ids]:
    """Return the sorted keys, relation · E + entity, of the entities that are plausible as heads and as tails.

    These are the entities that train has on that side of the relation, and all entities of another side (of this or of
    another relation) of which at least half, and two, are also there.

    >>> from focuse.data.readers import read
    >>> rows = [("ada", "knows", "bob"), ("ada", "likes", "tea"), ("bob", "likes", "tea"), ("eve", "likes", "jam")]
    >>> train, heads = read(rows), plausible_keys(read(rows))["head"].tolist()
    >>> [(train.relations[key // 5], train.entities[key % 5]) for key in heads]
    [('knows', 'ada'), ('likes', 'ada'), ('likes', 'bob'), ('likes', 'eve')]
    """
    from scipy import sparse  # type: ignore[import-untyped, unused-ignore]

    entities, sides = max(len(train.entities), 1), 2 * len(train.relations)
    ids = np.concatenate([train.head, train.tail]).astype(np.int64)
    side = np.concatenate([2 * train.relation.astype(np.int64), 2 * train.relation.astype(np.int64) + 1])
    side, ids = np.divmod(np.unique(side * entities + ids), entities)
    if (np.bincount(ids).astype(np.float64) ** 2).sum() <= MAX_PAIRS_OF_SIDES:
        there = sparse.csr_matrix((np.ones(len(ids), np.int32), (ids, side)), shape=(entities, sides))
        common = (there.T @ there).tocoo()
        size = np.bincount(side, minlength=sides)
        alike = (common.data >= SAME_TYPE * size[common.row]) & (common.data >= 2) | (common.row == common.col)
        added = sparse.csr_matrix(
            (np.ones(alike.sum(), np.int32), (common.row[alike], common.col[alike])), (sides, sides)
        )
        found = (there @ added).tocoo()
        side, ids = found.col.astype(np.int64), found.row.astype(np.int64)
    keys = {name: np.sort((side[rows] // 2) * entities + ids[rows]) for name, rows in _by_side(side)}
    return keys


def _by_side(side: Ids) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    return [("head", side % 2 == 0), ("tail", side % 2 == 1)]


def has_self_loops(train: Graph) -> npt.NDArray[np.bool_]:
    """Return whether a relation links entities to themselves, bool [R].

    A few loops among thousands of edges are faults of the data.
    """
    size = len(train.relations)
    loops = np.bincount(train.relation[train.head == train.tail], minlength=size)
    return loops > LOOP_SHARE * np.bincount(train.relation, minlength=size)


def check_finite(highest: Tensor) -> None:
    """Raise FocuseError if one of the highest scores [n] is not a number; −∞ marks a row without candidates."""
    if torch.isnan(highest).any() or torch.isposinf(highest).any():
        raise FocuseError(DIVERGED)


# ---- the best links -------------------------------------------------------------------------------------------------


class TopLinks:
    """The `size` links with the highest scores of all that were added; of equal scores, those with smaller keys.

    At most about twice as many links are in memory.

    >>> top = TopLinks(2)
    >>> top.add(torch.tensor([0.5, 0.9, 0.1]), torch.tensor([7, 8, 9]))
    >>> top.add(torch.tensor([0.9]), torch.tensor([3]))
    >>> top.best()[1].tolist()
    [3, 8]
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.threshold = EXCLUDED  # a link with a lower score is not among the best
        self._parts = [(torch.empty(0), torch.empty(0, dtype=torch.int64))]
        self._count = 0

    def add(self, scores: Tensor, keys: Tensor) -> None:
        """Add links: scores [n] and distinct keys, int64 [n]."""
        if len(scores):
            self._parts.append((scores, keys))
            self._count += len(scores)
        if self._count >= 2 * self.size:
            self._select()

    def best(self) -> tuple[Tensor, Tensor]:
        """Return scores and keys, best first; [n] each, n at most `size`."""
        self._select()
        return self._parts[0]

    def _select(self) -> None:
        device = self._parts[-1][0].device
        scores, keys = (torch.cat([part.to(device) for part in column]) for column in zip(*self._parts, strict=True))
        if len(scores) > 4 * self.size:
            keep = scores >= torch.topk(scores, self.size).values[-1]
            scores, keys = scores[keep], keys[keep]
        by_key = torch.argsort(keys)
        order = by_key[torch.argsort(scores[by_key], descending=True, stable=True)][: self.size]
        self._parts, self._count = [(scores[order], keys[order])], len(order)
        if len(order) == self.size:
            self.threshold = float(scores[order[-1]])


@dataclass(frozen=True)
class FoundLinks:
    """The best links of each relation by score: ids, int64 [n] each, and how many links were scored."""

    head: Ids
    relation: Ids
    tail: Ids
    scored: int

    @classmethod
    def from_top(cls, top: dict[int, TopLinks], entities: int, scored: int) -> FoundLinks:
        keys = {relation: links.best()[1].cpu().numpy() for relation, links in top.items()}
        relations = np.repeat(np.array(list(keys), np.int64), [len(found) for found in keys.values()])
        found = np.concatenate([np.empty(0, np.int64), *keys.values()])
        return cls(found // entities, relations, found % entities, scored)


class RelationScorer:
    """Scores of the links of one relation to `tails` [N].

    If a model has one score per side (inverse relations), the score of a link is the mean of both, as everywhere.
    """

    def __init__(self, scorer: TableScorer, relation: int, tails: Tensor) -> None:
        self.scorer, self.relation = scorer, relation
        self.rows = scorer.rows("entity", tails)
        self.tail_queries = self._queries(tails, "head") if scorer.side_dependent else None

    @torch.no_grad()
    def scores(self, heads: Tensor) -> Tensor:
        """Return the scores of all links of some heads: ids [B] -> [B, N]."""
        found = self._compare(self._queries(heads, "tail"), self.rows, "tail")
        if self.tail_queries is None:
            return found
        return (found + self._compare(self.tail_queries, self.scorer.rows("entity", heads), "head").T) / 2

    def _queries(self, known: Tensor, side: Side) -> Tensor:
        parts = []
        for part in chunks(len(known), QUERIES_AT_ONCE):
            parts.append(self.scorer.query(known[part], torch.full_like(known[part], self.relation), side)[0])
        return torch.cat(parts)

    def _compare(self, query: Tensor, rows: Tensor, side: Side) -> Tensor:
        """Return the scores of queries [B, q] and entity rows [N, d]: [B, N]."""
        exact = distance_scores(self.scorer.model, query, rows)
        if exact is not None:
            return exact
        relation, side = self.scorer.directed(torch.full((len(query),), self.relation, device=query.device), side)
        return self.scorer.model.score_pool(query, self.scorer.rows("relation", relation), rows, side)


class RelationStrengthScorer:
    """The same by likely and strong links: f + c · ln ŵ."""

    def __init__(self, scorer: StrengthScorer, relation: int, tails: Tensor) -> None:
        self.join = scorer.join
        self.likely, self.weights = (RelationScorer(part, relation, tails) for part in (scorer.likely, scorer.weights))

    @torch.no_grad()
    def scores(self, heads: Tensor) -> Tensor:
        """Return the scores of all links of some heads: ids [B] -> [B, N]."""
        return self.join(self.likely.scores(heads), F.logsigmoid(self.weights.scores(heads)))


@torch.no_grad()
def search_all(
    scorer: TableScorer | StrengthScorer,
    space: CandidateSpace,
    known: TripleIndex,
    size: int,
    progress: Progress,
    per_head: int | None,
) -> FoundLinks:
    """Score every pair of the space; keep the `size` best links of each relation, at most `per_head` of a head."""
    block_scores = CPU_BLOCK_SCORES if scorer.device.type == "cpu" else GPU_BLOCK_SCORES
    top = {relation: TopLinks(size) for relation in space.relations.tolist()}
    scored = 0
    for relation, best in top.items():
        heads, all_tails = (torch.from_numpy(ids).to(scorer.device) for ids in space.ends(relation))
        for part in chunks(len(all_tails), BLOCK_TAILS):
            tails = all_tails[part]
            kind = RelationStrengthScorer if isinstance(scorer, StrengthScorer) else RelationScorer
            relation_scorer = kind(scorer, relation, tails)  # type: ignore[arg-type]
            column = torch.full((known.entities,), -1, dtype=torch.int64, device=scorer.device)
            column[tails] = torch.arange(len(tails), device=scorer.device)
            for rows_of_block in chunks(len(heads), max(1, block_scores // len(tails))):
                if progress.stopped:
                    return FoundLinks.from_top(top, known.entities, scored)
                block = heads[rows_of_block]
                scores = relation_scorer.scores(block)
                rows, known_tails = known.known_answers(block, torch.full_like(block, relation), "tail")
                _exclude(scores, rows, column[known_tails])
                if not space.has_self_loops[relation]:
                    _exclude(scores, torch.arange(len(block), device=scorer.device), column[block])
                _keep_best(best, scores, block, tails, known.entities, per_head)
                scored += scores.numel()
                progress.advance(scores.numel())
    return FoundLinks.from_top(top, known.entities, scored)


def _exclude(scores: Tensor, rows: Tensor, columns: Tensor) -> None:
    """Exclude cells of a block; column −1 is outside of the block."""
    inside = columns >= 0
    scores[rows[inside], columns[inside]] = EXCLUDED


def _keep_best(
    best: TopLinks, scores: Tensor, heads: Tensor, tails: Tensor, entities: int, per_head: int | None
) -> None:
    """Add the links of a block [B, N] that may be among the best."""
    highest = scores.amax(1)
    check_finite(highest)
    threshold = max(best.threshold, LOWEST_SCORE)
    rows = torch.nonzero(highest >= threshold)[:, 0]  # after the first blocks, these are few
    if not len(rows):
        return
    scores = scores if len(rows) == len(scores) else scores.index_select(0, rows)
    columns = None
    if per_head is not None and per_head < len(tails):
        scores, columns = torch.topk(scores, per_head, dim=1)
    if best.threshold == EXCLUDED and scores.numel() > 4 * best.size:  # most of the first block is not among the best
        threshold = max(threshold, float(torch.topk(scores.flatten(), best.size).values[-1]))
    mask = (scores >= threshold).flatten()
    # NumPy finds the cells eight times as fast as torch on a CPU.
    cells = torch.nonzero(mask)[:, 0] if mask.is_cuda else torch.from_numpy(np.flatnonzero(mask.numpy()))
    row, column = cells // scores.shape[1], cells % scores.shape[1]
    tail = tails[column if columns is None else columns[row, column]]
    best.add(scores[row, column], heads[rows[row]] * entities + tail)
