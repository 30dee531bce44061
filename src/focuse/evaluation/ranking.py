"""Ranks of true triples among all entities, both sides, as matrix products or tables of distances.

For each triple and side only four numbers are kept: how many rivals score higher and how many the same, among
all entities (raw) and among those not known to be true (filtered). Tie rules and protocols follow from these.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

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
# On a CPU so few that they stay in its caches: 16 MB.
SCORES_IN_CACHE = 1 << 22


class Scorer(Protocol):
    """What ranking needs of an engine."""

    @property
    def device(self) -> torch.device: ...

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor: ...

    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor: ...


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
    """Rivals of n triples, raw and filtered, and the triples' own scores [n]."""

    raw: Rivals
    filtered: Rivals
    score: npt.NDArray[np.float32]


@torch.no_grad()
def rank(
    scorer: Scorer, head: Tensor, relation: Tensor, tail: Tensor, known: Known, at_once: int | None = None
) -> Ranking:
    """Rank triples (ids int64 [n]) against every entity on both sides.

    `known` holds the facts that the filtered ranks leave out. Memory is bounded by `at_once` scores.
    """
    if not len(head):
        none = np.empty((0, 2), np.int64)
        return Ranking(Rivals(none, none), Rivals(none, none), np.empty(0, np.float32))
    h, r, t = (ids.to(scorer.device) for ids in (head, relation, tail))
    if at_once is None:
        at_once = SCORES_IN_CACHE if scorer.device.type == "cpu" else SCORES_AT_ONCE
    size = max(1, at_once // max(known.entities, 1))
    tails, score = _count(scorer, h, r, t, "tail", known, size)
    heads, _ = _count(scorer, t, r, h, "head", known, size)
    table = torch.stack([tails, heads], dim=1).cpu().numpy()  # [n, sides, 4]
    if (table < 0).any():
        raise FocuseError("the model gives scores that are not finite: training diverged; lower the learning rate")
    raw, filtered = (Rivals(table[..., i], table[..., i + 1]) for i in (0, 2))
    return Ranking(raw, filtered, score.cpu().numpy())


def _count(
    scorer: Scorer, given: Tensor, relation: Tensor, target: Tensor, side: Side, known: Known, size: int
) -> tuple[Tensor, Tensor]:
    """The four counts of each triple's target on one side, int64 [n, 4], and its score [n]; `size` queries at once.

    Triples that ask the same share their scores, so a query is scored but once. The target's score is one of them,
    else rounding would break ties.
    """
    ordered, order = torch.sort(known.query(given, relation), stable=True)
    query, which, times = torch.unique_consecutive(ordered, return_inverse=True, return_counts=True)
    first = F.pad(times.cumsum(0), (1, 0))
    start, stop = known.answers(query, side)
    cuts = [*range(0, len(query), size), len(query)]
    places = first[torch.tensor(cuts, device=first.device)].tolist()
    target, counts, owns = target[order], [], []
    for (begin, end), (left, right) in zip(pairwise(cuts), pairwise(places), strict=True):
        asked, targets = query[begin:end], target[left:right]
        scores = scorer.score_all(asked // known.relations, asked % known.relations, side)
        facts = start[begin:end], stop[begin:end], known.by_side[side]
        counts.append(count_rivals(scores, first[begin : end + 1] - left, targets, *facts))
        owns.append(scores[which[left:right] - begin, targets])
    back = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=order.device))
    return torch.cat(counts)[back], torch.cat(owns)[back]
