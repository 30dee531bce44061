"""Corruptions: what a positive is compared with.

Negatives are a pure function of (seed, epoch, batch): engines can be compared, and a resumed run meets the
same ones. Three kinds: each positive's own (the paper's), one pool for the whole batch, every entity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from focuse.engines.base import Batch, Corruptions
from focuse.errors import FocuseError, choose
from focuse.evaluation.known import Known
from focuse.models import Side

SAMPLINGS = ("independent", "shared", "all")


def generator(*place: int) -> torch.Generator:
    """A random generator that depends on nothing but `place`, for example (seed, epoch, batch)."""
    seed = int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0])
    return torch.Generator().manual_seed(seed >> 1)


@dataclass(frozen=True)
class Sampler:
    """Draws the corruptions of a batch.

    `kind` is one of SAMPLINGS, `count` the negatives a positive (or the size of the pool), `known` the facts of
    train that are left out of the negatives (None: false negatives stay in, as in the paper).
    """

    kind: str
    count: int
    entities: int
    known: Known | None = None

    def __post_init__(self) -> None:
        choose("sampling", self.kind, SAMPLINGS)
        if self.count < 1:
            raise FocuseError(f"negatives {self.count}: give at least 1")

    def __call__(self, batch: Batch, place: tuple[int, int, int]) -> list[Corruptions]:
        """The corruptions of `batch` at `place` = (seed, epoch, batch number)."""
        draw: Callable[[Batch, tuple[int, int, int]], list[Corruptions]] = {
            "independent": self._independent,
            "shared": self._shared,
            "all": self._all,
        }[self.kind]
        return draw(batch, place)

    def _independent(self, batch: Batch, place: tuple[int, int, int]) -> list[Corruptions]:
        """A fair coin for the side, then a uniform entity; [B, N]."""
        shape = (len(batch), self.count)
        # One draw for both: the lowest bit is the coin, the rest the entity.
        draw = torch.randint(2 * self.entities, shape, generator=generator(*place)).to(batch.head.device)
        entities, tails = draw >> 1, (draw & 1).bool()
        mask = None
        if self.known is not None:
            head = torch.where(tails, batch.head[:, None], entities)
            tail = torch.where(tails, entities, batch.tail[:, None])
            mask = ~self.known.contains(head, batch.relation[:, None].expand(shape), tail)
        return [Corruptions("both", entities, tails, mask)]

    def _shared(self, batch: Batch, place: tuple[int, int, int]) -> list[Corruptions]:
        """One pool [P] for both sides of every positive; the positive itself is masked where it was drawn."""
        pool = torch.randint(self.entities, (self.count,), generator=generator(*place)).to(batch.head.device)
        shape = (len(batch), self.count)
        result = []
        for side, given, target in _sides(batch):
            mask = pool[None] != target[:, None]
            if self.known is not None:
                ends = (given[:, None].expand(shape), pool.expand(shape))
                head, tail = ends if side == "tail" else ends[::-1]
                mask &= ~self.known.contains(head, batch.relation[:, None].expand(shape), tail)
            result.append(Corruptions(side, pool, None, mask))
        return result

    def _all(self, batch: Batch, place: tuple[int, int, int]) -> list[Corruptions]:
        """Every entity but the positive's own, on both sides; [B, E]."""
        result = []
        for side, given, target in _sides(batch):
            mask = torch.ones(len(batch), self.entities, dtype=torch.bool, device=target.device)
            mask.scatter_(1, target[:, None], False)
            if self.known is not None:
                rows, others = self.known.others(given, batch.relation, side)
                mask[rows, others] = False
            result.append(Corruptions(side, None, None, mask))
        return result


def _sides(batch: Batch) -> list[tuple[Side, Tensor, Tensor]]:
    """Each side to corrupt, the entity that stays and the one that goes."""
    return [("tail", batch.head, batch.tail), ("head", batch.tail, batch.head)]
