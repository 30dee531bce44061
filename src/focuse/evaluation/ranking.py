"""Filtered ranks of triples among all entities, or among a random sample of them.

For each triple and side only four numbers are kept: how many competitors score higher and how many score equal, among
all entities (raw) and among those not known to be true (filtered). Tie rules and protocols follow from these.

Models that are too expensive to rank against all entities are ranked against a sample: the competitors of a query are
`candidates` entities drawn at random, the same ones whenever it is asked; known triples are left out of the filtered
ranks as always. On average candidates / entities of all competitors are met, so sampled ranks are smaller and a sampled
MRR is higher than a full one: the two must not be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.data.graph import Graph
from focuse.data.triple_index import TripleIndex, id_tensors
from focuse.engines.base import DistributedScorer, Scorer
from focuse.engines.scorer import compare_with_target, count_competitors
from focuse.errors import FocuseError
from focuse.models.base import Side
from focuse.option_strings import choose

TIES = ("worst", "mean", "best")
PROTOCOLS = ("sides", "joint")
# Scores in memory at once: 32 million float32 are 128 MB, whatever the number of entities.
SCORES_AT_ONCE = 1 << 25
# Per thread of a CPU: 8 MB, which stay in its caches.
SCORES_IN_CACHE = 1 << 21
DIVERGED = "the model gives scores that are not finite: training diverged; lower the learning rate"
Map = Callable[..., Iterator[None]]


@dataclass(frozen=True)
class CompetitorCounts:
    """How many candidates score higher than, or equal to, the true entity: int64 [n, 2], columns tail and head."""

    higher: npt.NDArray[np.int64]
    equal: npt.NDArray[np.int64]

    def ranks(self, ties: str = "worst", protocol: str = "sides") -> npt.NDArray[np.float64]:
        """Return ranks from 1: [n, 2] with each side separately, [n, 1] with both sides as one list ("joint").

        `ties` says how a true entity is ranked among candidates of equal score: after them ("worst"), in the middle
        ("mean") or before them ("best").
        """
        choose("tie rule", ties, TIES)
        choose("protocol", protocol, PROTOCOLS)
        higher, equal = self.higher, self.equal
        if protocol == "joint":
            higher, equal = higher.sum(1, keepdims=True), equal.sum(1, keepdims=True)
        share = {"worst": 1.0, "mean": 0.5, "best": 0.0}[ties]
        ranks: npt.NDArray[np.float64] = 1.0 + higher + share * equal
        return ranks


@dataclass(frozen=True)
class Ranking:
    """Competitors of n triples, raw and filtered, and the triples' own scores [n].

    `tail_score` and `head_score` come out of the products with all tails and with all heads, so that ties on a side can
    be seen. For most models they are equal but for rounding; for a `side_dependent` one they are two scores.
    """

    raw: CompetitorCounts
    filtered: CompetitorCounts
    tail_score: npt.NDArray[np.float32]
    head_score: npt.NDArray[np.float32]
    side_dependent: bool = False

    @classmethod
    def from_counts(cls, sides: list[tuple[Tensor, Tensor]], side_dependent: bool) -> Ranking:
        """Combine counts int64 [n, 4], as of `count_competitors`, and scores [n] of tails and heads."""
        table = torch.stack([counts for counts, _ in sides], dim=1).cpu().numpy()  # [n, sides, 4]
        if (table < 0).any():
            raise FocuseError(DIVERGED)
        raw, filtered = (CompetitorCounts(table[..., i], table[..., i + 1]) for i in (0, 2))
        tail_score, head_score = (score.cpu().numpy() for _, score in sides)
        return cls(raw, filtered, tail_score, head_score, side_dependent)

    @property
    def score(self) -> npt.NDArray[np.float32]:
        """One score per triple [n]: the mean of both sides for a side-dependent scorer."""
        return (self.tail_score + self.head_score) / np.float32(2) if self.side_dependent else self.tail_score

    def select(self, rows: npt.NDArray[Any]) -> Ranking:
        """Return the ranking of the triples at `rows` (indices or a mask)."""
        raw, filtered = (CompetitorCounts(part.higher[rows], part.equal[rows]) for part in (self.raw, self.filtered))
        return Ranking(raw, filtered, self.tail_score[rows], self.head_score[rows], self.side_dependent)


def rank_graph(scorer: Scorer, graph: Graph, known: TripleIndex, candidates: int | None = None) -> Ranking:
    """Rank all edges of a graph in train's ids against all entities, or against a sample (see `sample_size`)."""
    sample = sample_size(scorer, candidates, known.entities)
    if sample is None:
        return rank(scorer, *id_tensors(graph), known)
    return rank_sampled(scorer, *id_tensors(graph), known, sample)


# ---- all entities -------------------------------------------------------------------------------------------------


@torch.no_grad()
def rank(
    scorer: Scorer, head: Tensor, relation: Tensor, tail: Tensor, known: TripleIndex, at_once: int | None = None
) -> Ranking:
    """Rank the head and the tail of each triple among all entities.

    Parameters
    ----------
    scorer
        On a CPU it is called by several threads.
    head, relation, tail
        Ids int64 [n].
    known
        Known triples, which are not candidates in filtered ranks.
    at_once
        Scores in memory at once; by default what fits caches or 128 MB.
    """
    h, r, t = (ids.to(scorer.device) for ids in (head, relation, tail))
    sides = [_Side(scorer, h, r, t, "tail", known), _Side(scorer, t, r, h, "head", known)]
    _count(scorer, sides, known.entities, at_once)
    return Ranking.from_counts([(side.counts, side.score) for side in sides], scorer.side_dependent)


@torch.no_grad()
def rank_tails(
    scorer: Scorer, head: Tensor, relation: Tensor, tail: Tensor, known: TripleIndex, at_once: int | None = None
) -> CompetitorCounts:
    """Count the raw competitors of the tail of each triple among all entities: ids int64 [n] -> counts [n]."""
    h, r, t = (ids.to(scorer.device) for ids in (head, relation, tail))
    side = _Side(scorer, h, r, t, "tail", known)
    _count(scorer, [side], known.entities, at_once)
    counts = side.counts.cpu().numpy()
    if (counts < 0).any():
        raise FocuseError(DIVERGED)
    return CompetitorCounts(counts[:, 0], counts[:, 1])


def _count(scorer: Scorer, sides: list[_Side], entities: int, at_once: int | None) -> None:
    """Count the competitors of some sides, in blocks of at most `at_once` scores."""
    with _workers(scorer) as (threads, mapped):
        if at_once is None:
            in_caches = threads * SCORES_IN_CACHE if scorer.device.type == "cpu" else SCORES_AT_ONCE
            at_once = min(in_caches, SCORES_AT_ONCE)
        processes = scorer.processes if isinstance(scorer, DistributedScorer) else 1
        scored_here = -(-entities // processes)
        size = max(1, at_once // threads // max(scored_here, 1))
        for side in sides:
            side.count(size, mapped)


class _Side:
    """One side of n triples, grouped by query: each target's four `counts`, int64 [n, 4], and its `score` [n].

    Triples with the same query share its scores, so a query is scored once. A target's score is one of them; scored
    separately, rounding would break ties.
    """

    def __init__(
        self, scorer: Scorer, given: Tensor, relation: Tensor, target: Tensor, side: Side, known: TripleIndex
    ) -> None:
        self.scorer, self.side, self.known = scorer, side, known
        self.distributed = scorer if isinstance(scorer, DistributedScorer) else None
        ordered, self.order = torch.sort(known.query_key(given, relation), stable=True)
        self.query, self.which, times = torch.unique_consecutive(ordered, return_inverse=True, return_counts=True)
        self.target = target[self.order]
        self.first = F.pad(times.cumsum(0), (1, 0))  # query q has the targets first[q] to first[q + 1]
        self.start, self.stop = known.answer_ranges(self.query, side)
        # Allocated once: results kept from block to block would fragment the memory that the next block needs.
        self.counts = target.new_empty(len(target), 4)
        self.score = torch.empty(len(target), device=target.device)

    def count(self, size: int, mapped: Map) -> None:
        """Fill in the results, `size` queries at once."""
        cuts = [*range(0, len(self.query), size), len(self.query)]
        bounds = self.first[torch.tensor(cuts, device=self.first.device)].tolist()
        for _ in mapped(self._block, pairwise(cuts), pairwise(bounds)):
            pass

    @torch.no_grad()  # the decorator of `rank` holds for its own thread only
    def _block(self, queries: tuple[int, int], targets: tuple[int, int]) -> None:
        (begin, end), (left, right) = queries, targets
        keys, target, triple = self.query[begin:end], self.target[left:right], self.order[left:right]
        query = keys // self.known.relations, keys % self.known.relations, self.side
        answers = self.start[begin:end], self.stop[begin:end], self.known.keys[self.side]
        first = self.first[begin : end + 1] - left
        if self.distributed is not None:
            found = self.distributed.count_competitors(*query, first, target, *answers)
            self.counts[triple], self.score[triple] = found
            return
        scores = self.scorer.score_all(*query)
        self.counts[triple] = count_competitors(scores, first, target, *answers)
        self.score[triple] = scores[self.which[left:right] - begin, target].float()


@contextmanager
def _workers(scorer: Scorer) -> Iterator[tuple[int, Map]]:
    """Yield the number of threads and a `map` over them; a GPU needs one, and processes must communicate in one order.

    Each thread takes whole blocks with torch on one thread: torch's own threads would meet after every operation and,
    where other programs use the cores as well, spend most of their time waiting for each other.
    """
    threads = torch.get_num_threads() if scorer.device.type == "cpu" else 1
    threads = 1 if isinstance(scorer, DistributedScorer) else threads
    if threads == 1:
        yield 1, map
        return
    torch.set_num_threads(1)  # new threads start with the same number
    try:
        with ThreadPoolExecutor(threads) as pool:
            yield threads, pool.map
    finally:
        torch.set_num_threads(threads)


# ---- a sample of entities -----------------------------------------------------------------------------------------

DEFAULT_CANDIDATES = 500  # of a model that is expensive to rank
SAMPLED_SCORES_AT_ONCE = 1 << 16  # the rows of candidates are in memory as well
SEEDS: dict[Side, int] = {"tail": 0x7A11, "head": 0x4EAD}
GOLDEN = -0x61C8864680B583EB  # 2⁶⁴ / golden ratio, as a signed number: neighboring queries end up far apart


def sample_size(scorer: Scorer, candidates: int | None, entities: int) -> int | None:
    """Return how many entities to rank against, None for all.

    That is `candidates` if given, else DEFAULT_CANDIDATES for a scorer that is expensive to rank.
    """
    if candidates is not None and candidates < 1:
        raise FocuseError(f"candidates {candidates}: give at least 1, or leave it out")
    size = DEFAULT_CANDIDATES if candidates is None and scorer.expensive_to_rank else candidates
    return None if size is None or size >= entities else size


class CandidateSampler:
    """Samples `count` different entities for each query (given, relation) of a side: a window of one random order.

    >>> known = TripleIndex(*[torch.tensor([0])] * 3, 10, 2)
    >>> CandidateSampler("tail", 3, known)(torch.tensor([4]), torch.tensor([1])).shape
    torch.Size([1, 3])
    """

    def __init__(self, side: Side, count: int, known: TripleIndex, device: torch.device | str = "cpu") -> None:
        self.count, self.known = count, known
        random = torch.Generator().manual_seed(SEEDS[side])
        self.order = torch.randperm(known.entities, generator=random).to(device)

    def __call__(self, given: Tensor, relation: Tensor) -> Tensor:
        """Return the sample of each query, a pure function of it: ids int64 [B] -> [B, count]."""
        first = (self.known.query_key(given, relation) + 1) * GOLDEN >> 24
        positions = first[:, None] + torch.arange(self.count, device=given.device)
        return self.order[positions % self.known.entities]


@torch.no_grad()
def rank_sampled(
    scorer: Scorer, head: Tensor, relation: Tensor, tail: Tensor, known: TripleIndex, candidates: int
) -> Ranking:
    """Rank triples (ids int64 [n]) against `candidates` sampled entities on both sides."""
    h, r, t = (ids.to(scorer.device) for ids in (head, relation, tail))
    sides = [
        _count_sampled(scorer, h, r, t, "tail", known, candidates),
        _count_sampled(scorer, t, r, h, "head", known, candidates),
    ]
    return Ranking.from_counts(sides, scorer.side_dependent)


def _count_sampled(
    scorer: Scorer, given: Tensor, relation: Tensor, target: Tensor, side: Side, known: TripleIndex, candidates: int
) -> tuple[Tensor, Tensor]:
    """Return the counts of `count_competitors` among a sample, int64 [n, 4], and the targets' scores [n]."""
    sample = CandidateSampler(side, candidates, known, scorer.device)
    counts, own = target.new_empty(len(target), 4), torch.empty(len(target), device=target.device)
    size = max(1, SAMPLED_SCORES_AT_ONCE // (candidates + 1))
    for start in range(0, len(target), size):
        rows = slice(start, start + size)
        query, relations, true = given[rows], relation[rows], target[rows, None]
        sampled = sample(query, relations)
        # The target is scored together with its competitors; scored separately, rounding would break ties.
        scores = scorer.score_some(query, relations, torch.cat([true, sampled], dim=1), side)
        if not torch.isfinite(scores).all():
            raise FocuseError(DIVERGED)
        queries, relations = query[:, None].expand_as(sampled), relations[:, None].expand_as(sampled)
        ends = (queries, sampled) if side == "tail" else (sampled, queries)
        other = sampled != true
        unknown = other & ~known.contains(ends[0], relations, ends[1])
        own[rows] = scores[:, 0].float()
        pairs = (compare_with_target(scores[:, 1:], scores[:, 0], mask) for mask in (other, unknown))
        counts[rows] = torch.stack([count for pair in pairs for count in pair], dim=1)
    return counts, own
