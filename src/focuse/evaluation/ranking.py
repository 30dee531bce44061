"""Ranks of true triples among all entities, both sides, as matrix products or tables of distances.

For each triple and side only four numbers are kept: how many rivals score higher and how many the same, among
all entities (raw) and among those not known to be true (filtered). Tie rules and protocols follow from these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.engines.ranking import count_rivals
from focuse.errors import FocuseError, choose
from focuse.evaluation.known import Known
from focuse.models import Side

TIES = ("worst", "mean", "best")
PROTOCOLS = ("sides", "joint")
# Scores held at once: 32 million float32 are 128 MB, whatever the number of entities.
SCORES_AT_ONCE = 1 << 25
# Of one thread on a CPU; so few, 8 MB, stay in its caches.
SCORES_IN_CACHE = 1 << 21
DIVERGED = "the model gives scores that are not finite: training diverged; lower the learning rate"
Map = Callable[..., Iterator[None]]


class Scorer(Protocol):
    """What ranking needs of an engine; one whose `score_all` of the two sides differ says that it is `sided`."""

    @property
    def device(self) -> torch.device: ...

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor: ...

    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor: ...


@runtime_checkable
class RivalScorer(Protocol):
    """One that counts rivals itself, because no process has all scores of a query."""

    def rivals(
        self,
        known: Tensor,
        relation: Tensor,
        side: Side,
        first: Tensor,
        target: Tensor,
        start: Tensor,
        stop: Tensor,
        facts: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """As `count_rivals`, int64 [n, 4], and the targets' scores [n]."""


@dataclass(frozen=True)
class Rivals:
    """Rivals that score higher than, or the same as, the true entity: int64 [n, 2], columns tail and head."""

    higher: npt.NDArray[np.int64]
    same: npt.NDArray[np.int64]

    def ranks(self, ties: str = "worst", protocol: str = "sides") -> npt.NDArray[np.float64]:
        """Ranks from 1: [n, 2] with each side by itself, [n, 1] with both sides as one list."""
        choose("tie rule", ties, TIES)
        choose("protocol", protocol, PROTOCOLS)
        higher, same = self.higher, self.same
        if protocol == "joint":
            higher, same = higher.sum(1, keepdims=True), same.sum(1, keepdims=True)
        share = {"worst": 1.0, "mean": 0.5, "best": 0.0}[ties]
        ranks: npt.NDArray[np.float64] = 1.0 + higher + share * same
        return ranks


@dataclass(frozen=True)
class Ranking:
    """Rivals of n triples, raw and filtered, and the triples' own scores [n].

    `tail_score` and `head_score` come out of the products with all tails and with all heads: what a tie on that side is
    seen by. Of most models they are the same but for rounding; of a `sided` one they are two scores, and ranks on a
    side follow from that side's.
    """

    raw: Rivals
    filtered: Rivals
    tail_score: npt.NDArray[np.float32]
    head_score: npt.NDArray[np.float32]
    sided: bool = False

    @property
    def score(self) -> npt.NDArray[np.float32]:
        """One score a triple [n], as an engine gives it: the mean of both of a sided model."""
        return (self.tail_score + self.head_score) / np.float32(2) if self.sided else self.tail_score

    def select(self, rows: npt.NDArray[Any]) -> Ranking:
        """Those of `rows` (indices or a mask) alone."""
        raw, filtered = (Rivals(part.higher[rows], part.same[rows]) for part in (self.raw, self.filtered))
        return Ranking(raw, filtered, self.tail_score[rows], self.head_score[rows], self.sided)


@torch.no_grad()
def rank(
    scorer: Scorer, head: Tensor, relation: Tensor, tail: Tensor, known: Known, at_once: int | None = None
) -> Ranking:
    """Rank triples (ids int64 [n]) against every entity on both sides.

    `known` holds the facts that the filtered ranks leave out. Memory is bounded by `at_once` scores. On a CPU the
    scorer is asked by several threads.
    """
    if not len(head):
        none = np.empty((0, 2), np.int64)
        return Ranking(Rivals(none, none), Rivals(none, none), np.empty(0, np.float32), np.empty(0, np.float32))
    h, r, t = (ids.to(scorer.device) for ids in (head, relation, tail))
    with _workers(scorer) as (threads, mapped):
        if at_once is None:
            in_caches = threads * SCORES_IN_CACHE if scorer.device.type == "cpu" else SCORES_AT_ONCE
            at_once = min(in_caches, SCORES_AT_ONCE)
        held = -(-known.entities // getattr(scorer, "processes", 1))  # scored here, of all entities
        size = max(1, at_once // threads // max(held, 1))
        sides = [_Side(scorer, h, r, t, "tail", known), _Side(scorer, t, r, h, "head", known)]
        for side in sides:
            side.count(size, mapped)
    table = torch.stack([side.counts for side in sides], dim=1).cpu().numpy()  # [n, sides, 4]
    if (table < 0).any():
        raise FocuseError(DIVERGED)
    raw, filtered = (Rivals(table[..., i], table[..., i + 1]) for i in (0, 2))
    of_tail, of_head = (side.score.cpu().numpy() for side in sides)
    return Ranking(raw, filtered, of_tail, of_head, getattr(scorer, "sided", False))


class _Side:
    """One side of some triples, by the queries they ask: each target's four counts, int64 [n, 4], and score, [n].

    Triples that ask the same share their scores, so a query is scored but once. A target's score is one of them, else
    rounding would break ties.
    """

    def __init__(
        self, scorer: Scorer, given: Tensor, relation: Tensor, target: Tensor, side: Side, known: Known
    ) -> None:
        self.scorer, self.side, self.known = scorer, side, known
        ordered, self.order = torch.sort(known.query(given, relation), stable=True)
        self.query, self.which, times = torch.unique_consecutive(ordered, return_inverse=True, return_counts=True)
        self.target = target[self.order]
        self.first = F.pad(times.cumsum(0), (1, 0))  # query q has the targets first[q] to first[q + 1]
        self.start, self.stop = known.answers(self.query, side)
        # Not block by block: what stays would lie between the blocks, and no later one fit where they were.
        self.counts = target.new_empty(len(target), 4)
        self.score = torch.empty(len(target), device=target.device)

    def count(self, size: int, mapped: Map) -> None:
        """Fill in the results, `size` queries at once."""
        cuts = [*range(0, len(self.query), size), len(self.query)]
        places = self.first[torch.tensor(cuts, device=self.first.device)].tolist()
        for _ in mapped(self._block, pairwise(cuts), pairwise(places)):
            pass

    @torch.no_grad()  # once more: it holds for one thread
    def _block(self, queries: tuple[int, int], places: tuple[int, int]) -> None:
        (begin, end), (left, right) = queries, places
        asked, target, triple = self.query[begin:end], self.target[left:right], self.order[left:right]
        question = asked // self.known.relations, asked % self.known.relations, self.side
        facts = self.start[begin:end], self.stop[begin:end], self.known.by_side[self.side]
        first = self.first[begin : end + 1] - left
        if isinstance(self.scorer, RivalScorer):
            self.counts[triple], self.score[triple] = self.scorer.rivals(*question, first, target, *facts)
            return
        scores = self.scorer.score_all(*question)
        self.counts[triple] = count_rivals(scores, first, target, *facts)
        self.score[triple] = scores[self.which[left:right] - begin, target].float()


@contextmanager
def _workers(scorer: Scorer) -> Iterator[tuple[int, Map]]:
    """How many threads there are, and a `map` over them; a GPU needs but one, and processes talk in one order.

    Each takes whole blocks with torch on one thread: torch's own would meet after every operation and, where other
    programs want the cores as well, spend most of their time waiting for each other.
    """
    threads = torch.get_num_threads() if scorer.device.type == "cpu" else 1
    threads = 1 if isinstance(scorer, RivalScorer) else threads
    if threads == 1:
        yield 1, map
        return
    torch.set_num_threads(1)  # new threads begin with as many
    try:
        with ThreadPoolExecutor(threads) as pool:
            yield threads, pool.map
    finally:
        torch.set_num_threads(threads)
