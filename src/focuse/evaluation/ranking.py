"""Ranks of true triples among all entities, both sides, as matrix products.

For each triple and side only four numbers are kept: how many rivals score higher and how many the same, among
all entities (raw) and among those not known to be true (filtered). Tie rules and protocols follow from these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.errors import FocuseError, choose
from focuse.evaluation.known import Known
from focuse.models import Side

TIES = ("worst", "mean", "best")
PROTOCOLS = ("sides", "joint")
SIDES: tuple[Side, Side] = ("tail", "head")
# Scores held at once: 32 million float32 are 128 MB, whatever the number of entities.
SCORES_AT_ONCE = 1 << 25


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
    scorer: Scorer, head: Tensor, relation: Tensor, tail: Tensor, known: Known, at_once: int = SCORES_AT_ONCE
) -> Ranking:
    """Rank triples (ids int64 [n]) against every entity on both sides.

    `known` holds the facts that the filtered ranks leave out. Memory is bounded by `at_once` scores.
    """
    size = max(1, at_once // max(known.entities, 1))
    counts: dict[str, list[Any]] = {side: [] for side in SIDES}
    scores = []
    for start in range(0, len(head), size):
        h, r, t = (ids[start : start + size].to(scorer.device) for ids in (head, relation, tail))
        scores.append(scorer.score(h, r, t).cpu())
        for side in SIDES:
            given, target = (h, t) if side == "tail" else (t, h)
            counts[side].append(_count(scorer, given, r, target, side, known).cpu())
    if not scores:
        none = np.empty((0, 2), np.int64)
        return Ranking(Rivals(none, none), Rivals(none, none), np.empty(0, np.float32))
    # [sides, 4, n] -> for each of the four counts [n, sides]
    table = np.stack([torch.cat(counts[side], dim=1).numpy() for side in SIDES]).transpose(1, 2, 0)
    return Ranking(Rivals(table[0], table[1]), Rivals(table[2], table[3]), torch.cat(scores).numpy())


def _count(scorer: Scorer, given: Tensor, relation: Tensor, target: Tensor, side: Side, known: Known) -> Tensor:
    """Raw higher and same, filtered higher and same: int64 [4, B]."""
    scores = scorer.score_all(given, relation, side)
    # The target's score comes out of the same product as its rivals', else rounding would break ties.
    own = scores.gather(1, target[:, None])
    if not torch.isfinite(scores).all():
        raise FocuseError("the model gives scores that are not finite: training diverged; lower the learning rate")
    higher = (scores > own).sum(1)
    same = (scores == own).sum(1) - 1
    rows, others = known.others(given, relation, side)
    rival = others != target[rows]
    rows, others = rows[rival], others[rival]
    facts, owns = scores[rows, others], own[rows, 0]
    return torch.stack(
        [
            higher,
            same,
            higher - torch.zeros_like(higher).index_add_(0, rows, (facts > owns).long()),
            same - torch.zeros_like(same).index_add_(0, rows, (facts == owns).long()),
        ]
    )
