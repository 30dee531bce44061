"""Ranks among a sample of entities, for models that are too dear to rank against all of them.

A query's rivals are `candidates` entities drawn by chance, the same ones whenever it is asked; the true entity stands
among them, and known facts are left out of the filtered ranks as ever. On average candidates / entities of all rivals
are met, so sampled ranks are smaller and a sampled MRR is higher than a full one: the two must not be compared.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from focuse.errors import FocuseError
from focuse.evaluation.known import Known
from focuse.evaluation.ranking import DIVERGED, Ranking, Rivals, Scorer
from focuse.models import Side

USUAL = 500  # candidates of a dear model
SCORES_AT_ONCE = 1 << 16  # rows of candidates are held beside them
SEEDS: dict[Side, int] = {"tail": 0x7A11, "head": 0x4EAD}
GOLDEN = -0x61C8864680B583EB  # 2⁶⁴ / golden ratio, as a signed number: neighbouring queries end up far apart


@runtime_checkable
class SomeScorer(Protocol):
    """What sampled ranking needs of an engine."""

    @property
    def device(self) -> torch.device: ...

    def score_some(self, known: Tensor, relation: Tensor, entities: Tensor, side: Side) -> Tensor: ...


def sample_size(scorer: Scorer, candidates: int | None, entities: int) -> int | None:
    """How many entities to rank against, None for all: those asked for, or what is usual where all are too dear."""
    if candidates is not None and candidates < 1:
        raise FocuseError(f"candidates {candidates}: give at least 1, or leave it out")
    asked = USUAL if candidates is None and getattr(scorer, "dear", False) else candidates
    return None if asked is None or asked >= entities else asked


class Sample:
    """`count` different entities for each query (given, relation) of a side: a window of one random order.

    >>> drawn = Sample("tail", 3, Known(*[torch.tensor([0])] * 3, 10, 2))
    >>> drawn(torch.tensor([4]), torch.tensor([1])).shape
    torch.Size([1, 3])
    """

    def __init__(self, side: Side, count: int, known: Known, device: torch.device | str = "cpu") -> None:
        self.count, self.known = count, known
        random = torch.Generator().manual_seed(SEEDS[side])
        self.order = torch.randperm(known.entities, generator=random).to(device)

    def __call__(self, given: Tensor, relation: Tensor) -> Tensor:
        """Ids int64 [B] -> [B, count], a pure function of each query."""
        first = (self.known.query(given, relation) + 1) * GOLDEN >> 24
        places = first[:, None] + torch.arange(self.count, device=given.device)
        return self.order[places % self.known.entities]


@torch.no_grad()
def rank_sampled(
    scorer: SomeScorer, head: Tensor, relation: Tensor, tail: Tensor, known: Known, candidates: int
) -> Ranking:
    """Rank triples (ids int64 [n]) against `candidates` sampled entities on both sides."""
    h, r, t = (ids.to(scorer.device) for ids in (head, relation, tail))
    sides = [_side(scorer, h, r, t, "tail", known, candidates), _side(scorer, t, r, h, "head", known, candidates)]
    table = np.stack([counts.cpu().numpy() for counts, _ in sides], axis=1)  # [n, sides, 4]
    raw, filtered = (Rivals(table[..., i], table[..., i + 1]) for i in (0, 2))
    of_tail, of_head = (score.cpu().numpy() for _, score in sides)
    return Ranking(raw, filtered, of_tail, of_head, getattr(scorer, "sided", False))


def _side(
    scorer: SomeScorer, given: Tensor, relation: Tensor, target: Tensor, side: Side, known: Known, candidates: int
) -> tuple[Tensor, Tensor]:
    """Higher and same among the sample, then among those of it that are not known; int64 [n, 4], and scores [n]."""
    drawn = Sample(side, candidates, known, scorer.device)
    counts, own = target.new_empty(len(target), 4), torch.empty(len(target), device=target.device)
    size = max(1, SCORES_AT_ONCE // (candidates + 1))
    for start in range(0, len(target), size):
        rows = slice(start, start + size)
        asked, kind, true = given[rows], relation[rows], target[rows, None]
        sample = drawn(asked, kind)
        # The target's score comes out of the same comparison as its rivals', else rounding would break ties.
        scores = scorer.score_some(asked, kind, torch.cat([true, sample], dim=1), side)
        if not torch.isfinite(scores).all():
            raise FocuseError(DIVERGED)
        known_end, kinds = asked[:, None].expand_as(sample), kind[:, None].expand_as(sample)
        ends = (known_end, sample) if side == "tail" else (sample, known_end)
        other = sample != true
        new = other & ~known.contains(ends[0], kinds, ends[1])
        mine, rivals = scores[:, :1], scores[:, 1:]
        higher, same = rivals > mine, rivals == mine
        counts[rows] = torch.stack([(part & some).sum(1) for some in (other, new) for part in (higher, same)], dim=1)
        own[rows] = scores[:, 0].float()
    return counts, own
