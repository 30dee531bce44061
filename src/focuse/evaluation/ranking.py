"""Filtered ranks of triples among all entities, or among a random sample of them.

For each triple and side only four numbers are kept: the competitors that score higher and those that score equal, among
all entities (raw) and among entities that do not form a known triple (filtered). All tie rules and protocols use these.

Models that are too expensive to rank against all entities are ranked against a sample: the competitors of a query are
`candidates` random entities, which are always the same for the same query. Known triples are left out of the filtered
ranks as usual. A sample contains on average candidates / entities of all competitors, so sampled ranks are smaller, and
a sampled MRR is higher than a full one; the two must not be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.data.graph import Graph
from focuse.data.triple_index import TripleIndex, id_tensors
from focuse.engines.base import Scorer
from focuse.engines.scorer import StrengthScorer, Targets, compare_with_target, count_competitors
from focuse.engines.sharded import ShardedScorer
from focuse.errors import FocuseError
from focuse.evaluation.metrics import SIDES
from focuse.models.base import Side
from focuse.option_strings import check_count, choose

TIES = {"worst": 1.0, "mean": 0.5, "best": 0.0}  # the fraction of equal candidates that rank before the true entity
PROTOCOLS = ("per-side", "combined")
MAX_SCORES = 1 << 25  # scores in memory at once: 32 million float32 are 128 MB
MAX_SCORES_PER_THREAD = 1 << 21  # 8 MB, which fit in the caches of a CPU core
DIVERGED = "the model gives scores that are not finite: training diverged; lower the learning rate"
Map = Callable[..., Iterator[None]]


@dataclass(frozen=True)
class CompetitorCounts:
    """The numbers of candidates that score higher than or equal to the true entity: int64 [n, 2] for tail and head."""

    higher: npt.NDArray[np.int64]
    equal: npt.NDArray[np.int64]

    def ranks(self, ties: str = "worst", protocol: str = "per-side") -> npt.NDArray[np.float64]:
        """Return ranks from 1: [n, 2] with each side separately, [n, 1] with both sides as one list ("combined").

        `ties` is the rule for candidates with the score of the true entity, which is ranked after them ("worst"), in
        the middle ("mean") or before them ("best").
        """
        choose("tie rule", ties, TIES)
        choose("protocol", protocol, PROTOCOLS)
        higher, equal = self.higher, self.equal
        if protocol == "combined":
            higher, equal = higher.sum(1, keepdims=True), equal.sum(1, keepdims=True)
        return np.asarray(1.0 + higher + TIES[ties] * equal, np.float64)


@dataclass(frozen=True)
class Ranking:
    """The competitors of n triples, raw and filtered, and the triples' own scores [n].

    `tail_score` and `head_score` are computed together with the scores of all tails and of all heads, so that ties on a
    side are exact. For most models they are equal up to rounding; for a `side_dependent` scorer they differ.
    """

    raw: CompetitorCounts
    filtered: CompetitorCounts
    tail_score: npt.NDArray[np.float32]
    head_score: npt.NDArray[np.float32]
    side_dependent: bool = False

    @classmethod
    def from_counts(cls, sides: list[tuple[Tensor, Tensor]], side_dependent: bool) -> Ranking:
        """Combine counts int64 [n, 4] from `count_competitors` and scores [n] of tails and of heads."""
        table = torch.stack([counts for counts, _ in sides], dim=1).cpu().numpy()  # [n, sides, 4]
        if (table < 0).any():
            raise FocuseError(DIVERGED)
        raw, filtered = (CompetitorCounts(table[..., i], table[..., i + 1]) for i in (0, 2))
        scores = [score.cpu().numpy() for _, score in sides]
        return cls(raw, filtered, scores[0], scores[-1], side_dependent)

    @property
    def score(self) -> npt.NDArray[np.float32]:
        """The score of each triple [n]; for a side-dependent scorer, the mean of both sides."""
        return (self.tail_score + self.head_score) / np.float32(2) if self.side_dependent else self.tail_score


def rank_graph(scorer: Scorer, graph: Graph, known: TripleIndex, sample_candidates: int | None = None) -> Ranking:
    """Rank all edges of a graph in train's ids against all entities, or against a sample (see `sample_size`)."""
    sample = sample_size(scorer, sample_candidates, known.entities)
    return rank(scorer, *id_tensors(graph), known, candidates=sample)


@torch.no_grad()
def rank(
    scorer: Scorer,
    head: Tensor,
    relation: Tensor,
    tail: Tensor,
    known: TripleIndex,
    max_scores: int | None = None,
    *,
    candidates: int | None = None,
    sides: Sequence[Side] = SIDES,
) -> Ranking:
    """Rank the tail and the head of each triple (ids int64 [n]) among entities; see `rank_many`."""
    return rank_many([scorer], head, relation, tail, known, max_scores, candidates=candidates, sides=sides)[0]


@torch.no_grad()
def rank_many(
    scorers: Sequence[Scorer],
    head: Tensor,
    relation: Tensor,
    tail: Tensor,
    known: TripleIndex,
    max_scores: int | None = None,
    *,
    candidates: int | None = None,
    sides: Sequence[Side] = SIDES,
) -> list[Ranking]:
    """Rank the tail and the head of each triple (ids int64 [n]) by each of the scorers.

    Scorers of the same tables that differ in the exponent of the weight share their matrix products, unless candidates
    are sampled or several processes hold the tables.

    Parameters
    ----------
    known
        Known triples, which are not candidates in filtered ranks.
    max_scores
        The number of scores in memory at once, by default as many as fit in the caches of a CPU or in 128 MB.
    candidates
        The number of sampled entities to rank against, instead of all.
    sides
        The sides to rank; the counts of one side have the shape [n, 1].

    On a CPU, several threads call the scorer.
    """
    scorer = scorers[0]
    h, r, t = (ids.to(scorer.device) for ids in (head, relation, tail))
    ids_of: dict[Side, tuple[Tensor, Tensor, Tensor]] = {"tail": (h, r, t), "head": (t, r, h)}
    if candidates is not None:
        each = [[_count_sampled(one, *ids_of[side], side, known, candidates) for side in sides] for one in scorers]
        return [Ranking.from_counts(counts, scorer.side_dependent) for counts in each]
    with _workers(scorer) as (threads, thread_map):
        in_caches = threads * MAX_SCORES_PER_THREAD if scorer.device.type == "cpu" else MAX_SCORES
        processes = scorer.group.size if isinstance(scorer, ShardedScorer) else 1
        local_entities = max(-(-known.entities // processes), 1)
        size = max(1, (max_scores or min(in_caches, MAX_SCORES)) // threads // local_entities)
        by_side = [_count_all(scorers, *ids_of[side], side, known, size, thread_map) for side in sides]
    return [Ranking.from_counts(list(counts), scorer.side_dependent) for counts in zip(*by_side, strict=True)]


# ---- all entities -------------------------------------------------------------------------------------------------


def _count_all(
    scorers: Sequence[Scorer],
    given: Tensor,
    relation: Tensor,
    target: Tensor,
    side: Side,
    known: TripleIndex,
    size: int,
    thread_map: Map,
) -> list[tuple[Tensor, Tensor]]:
    """Return for each scorer four counts per target, int64 [n, 4], and the targets' scores [n].

    `size` queries are scored at once.

    Triples with the same query share its scores, so that a query is scored once. A target's score is one of these
    scores, because rounding of a separate score would break ties.
    """
    ordered, order = torch.sort(known.query_key(given, relation), stable=True)
    query, which, times = torch.unique_consecutive(ordered, return_inverse=True, return_counts=True)
    target = target[order]
    first = F.pad(times.cumsum(0), (1, 0))  # query q has the targets first[q] to first[q + 1]
    start, stop = known.answer_ranges(query, side)
    # Results are allocated once, because separate ones would fragment the memory that the next block needs.
    results = [(target.new_empty(len(target), 4), torch.empty(len(target), device=target.device)) for _ in scorers]

    @torch.no_grad()  # the decorator of `rank_many` affects its own thread only
    def count_block(queries: tuple[int, int], rows: tuple[int, int]) -> None:
        (begin, end), (left, right) = queries, rows
        keys, targets, triple = query[begin:end], target[left:right], order[left:right]
        asked = keys // known.relations, keys % known.relations, side
        block = Targets(first[begin : end + 1] - left, targets, start[begin:end], stop[begin:end], known.keys[side])
        for (counts, score), scores in zip(results, _scores_of_all(scorers, *asked), strict=True):
            if isinstance(scores, ShardedScorer):
                counts[triple], score[triple] = scores.count_competitors(*asked, block)
                continue
            counts[triple] = count_competitors(scores, block)
            score[triple] = scores[which[left:right] - begin, targets].float()

    cuts = [*range(0, len(query), size), len(query)]
    bounds = first[torch.tensor(cuts, device=first.device)].tolist()
    for _ in thread_map(count_block, pairwise(cuts), pairwise(bounds)):
        pass
    return results


def _scores_of_all(
    scorers: Sequence[Scorer], known: Tensor, relation: Tensor, side: Side
) -> Iterator[Tensor | ShardedScorer]:
    """Yield the scores [B, E] of each scorer, or the scorer itself if processes share its tables."""
    cache: dict[int, Tensor] = {}

    def once(scorer: Scorer, compute: Callable[[Tensor, Tensor, Side], Tensor]) -> Tensor:
        if id(scorer) not in cache:
            cache[id(scorer)] = compute(known, relation, side)
        return cache[id(scorer)]

    for scorer in scorers:
        if isinstance(scorer, ShardedScorer):
            yield scorer
        elif isinstance(scorer, StrengthScorer):
            score = once(scorer.likely, scorer.likely.score_all)
            yield scorer.join(score, once(scorer.weights, scorer.log_weights))
        else:
            yield once(scorer, scorer.score_all)


@contextmanager
def _workers(scorer: Scorer) -> Iterator[tuple[int, Map]]:
    """Yield the number of threads and a `map` over them.

    A GPU uses one thread, and so do several processes, which must communicate in one order. On a CPU each thread
    computes whole blocks with one torch thread, because torch's own threads synchronize after every operation and, if
    other programs use the cores as well, spend most of their time waiting.
    """
    threads = torch.get_num_threads()
    if threads == 1 or scorer.device.type != "cpu" or isinstance(scorer, ShardedScorer):
        yield 1, map
        return
    torch.set_num_threads(1)  # new threads start with the same number
    try:
        with ThreadPoolExecutor(threads) as pool:
            yield threads, pool.map
    finally:
        torch.set_num_threads(threads)


# ---- a sample of entities -----------------------------------------------------------------------------------------

DEFAULT_CANDIDATES = 500  # for models that are expensive to rank
MAX_SAMPLED_SCORES = 1 << 16  # lower than MAX_SCORES, because the rows of candidates are in memory as well
SEEDS: dict[Side, int] = {"tail": 0x7A11, "head": 0x4EAD}
HASH_FACTOR = -0x61C8864680B583EB  # 2⁶⁴ / golden ratio as a signed number, which separates neighboring queries


def sample_size(scorer: Scorer, sample_candidates: int | None, entities: int) -> int | None:
    """Return the number of entities to rank against, or None for all.

    It is `sample_candidates` if given, else DEFAULT_CANDIDATES for a scorer that is expensive to rank.
    """
    if sample_candidates is not None:
        check_count("sample_candidates", sample_candidates)
    size = DEFAULT_CANDIDATES if sample_candidates is None and scorer.expensive_to_rank else sample_candidates
    return None if size is None or size >= entities else size


class CandidateSampler:
    """A sampler of `count` different entities per query (given, relation) of a side: a window of one random order.

    >>> known = TripleIndex(*[torch.tensor([0])] * 3, 10, 2)
    >>> CandidateSampler("tail", 3, known)(torch.tensor([4]), torch.tensor([1])).shape
    torch.Size([1, 3])
    """

    def __init__(self, side: Side, count: int, known: TripleIndex, device: torch.device | str = "cpu") -> None:
        self.count, self.known = count, known
        random = torch.Generator().manual_seed(SEEDS[side])
        self.order = torch.randperm(known.entities, generator=random).to(device)

    def __call__(self, given: Tensor, relation: Tensor) -> Tensor:
        """Return the sample of each query, which is a pure function of the query: ids int64 [B] -> [B, count]."""
        first = (self.known.query_key(given, relation) + 1) * HASH_FACTOR >> 24
        positions = first[:, None] + torch.arange(self.count, device=given.device)
        return self.order[positions % self.known.entities]


def _count_sampled(
    scorer: Scorer, given: Tensor, relation: Tensor, target: Tensor, side: Side, known: TripleIndex, candidates: int
) -> tuple[Tensor, Tensor]:
    """Return counts as in `count_competitors`, but among a sample, int64 [n, 4], and the targets' scores [n]."""
    sample = CandidateSampler(side, candidates, known, scorer.device)
    counts, target_scores = target.new_empty(len(target), 4), torch.empty(len(target), device=target.device)
    size = max(1, MAX_SAMPLED_SCORES // (candidates + 1))
    for start in range(0, len(target), size):
        rows = slice(start, start + size)
        query, relations, true = given[rows], relation[rows], target[rows, None]
        sampled = sample(query, relations)
        # The target is scored together with its competitors, because rounding of a separate score would break ties.
        scores = scorer.score_some(query, relations, torch.cat([true, sampled], dim=1), side)
        if not torch.isfinite(scores).all():
            raise FocuseError(DIVERGED)
        queries, relations = query[:, None].expand_as(sampled), relations[:, None].expand_as(sampled)
        ends = (queries, sampled) if side == "tail" else (sampled, queries)
        competitor = sampled != true
        unknown = competitor & ~known.contains(ends[0], relations, ends[1])
        target_scores[rows] = scores[:, 0].float()
        pairs = (compare_with_target(scores[:, 1:], scores[:, 0], mask) for mask in (competitor, unknown))
        counts[rows] = torch.stack([count for pair in pairs for count in pair], dim=1)
    return counts, target_scores
