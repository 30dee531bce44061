"""Corruptions: what a positive is compared with.

Negatives are a pure function of (seed, epoch, batch): engines can be compared, and a resumed run meets the
same ones. Three kinds: each positive's own (the paper's), one pool for the whole batch, every entity. Entities are
drawn uniformly and sides by a fair coin, or by the chances of chances.py.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from focuse.engines.base import Batch, Corruptions, has_kernels
from focuse.engines.native import address, library
from focuse.errors import FocuseError, choose
from focuse.evaluation.known import Known
from focuse.models import Side
from focuse.training.chances import RANGE, Chances, check_chances

SAMPLINGS = ("independent", "shared", "all")
# (seed, epoch, batch number), or the key that stands for it, also as an int64 tensor [].
Place = tuple[int, int, int] | int | Tensor


def generator(*place: int) -> torch.Generator:
    """A random generator that depends on nothing but `place`, for example (seed, epoch, batch)."""
    return torch.Generator().manual_seed(key_of(*place))


def key_of(*place: int) -> int:
    """One number in [0, 2⁶³) for a place."""
    return int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0]) >> 1


def draw(place: Place, shape: tuple[int, ...], below: int, device: torch.device) -> Tensor:
    """Whole numbers in [0, below) as a pure function of `place`: int64 of `shape`, the same on every device.

    Number i is the i-th output of SplitMix64 (Steele, Lea and Flood, 2014) started at the place's key. Each is
    computed by itself, so a GPU draws its own and nothing has to be carried there.
    """
    key = key_of(*place) if isinstance(place, tuple) else place
    if has_kernels(device):
        from focuse.engines.triton.draw import draw as draw_there

        return draw_there(key, math.prod(shape), below, device).view(shape)
    bits = torch.arange(1, math.prod(shape) + 1, device=device) * _GOLDEN + key
    for shift, factor in ((30, _MIX[0]), (27, _MIX[1])):
        bits ^= _shifted(bits, shift)
        bits *= factor
    bits ^= _shifted(bits, 31)
    # The upper 31 bits as a fraction of `below`: no slow remainder, and uneven by less than below / 2³¹.
    return (_shifted(bits, 33) * below >> 31).view(shape)


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


_GOLDEN, *_MIX = (_signed(bits) for bits in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def _shifted(bits: Tensor, count: int) -> Tensor:
    """A shift to the right that brings in zeros; torch's own brings in the sign."""
    return (bits >> count).bitwise_and_((1 << (64 - count)) - 1)


@dataclass(frozen=True)
class Sampler:
    """Draws the corruptions of a batch.

    `kind` is one of SAMPLINGS, `count` the negatives a positive (or the size of the pool), `known` the facts of
    train that are left out of the negatives (None: false negatives stay in, as in the paper). `chances` say who
    is drawn and on which side (None: a uniform entity, a fair coin).
    """

    kind: str
    count: int
    entities: int
    known: Known | None = None
    chances: Chances | None = None

    def __post_init__(self) -> None:
        choose("sampling", self.kind, SAMPLINGS)
        if self.count < 1:
            raise FocuseError(f"negatives {self.count}: give at least 1")
        if self.chances is not None:
            check_chances(self.kind, self.chances.corrupt, self.chances.coin)

    def __call__(self, batch: Batch, place: Place) -> list[Corruptions]:
        """The corruptions of `batch` at `place`."""
        corrupt: Callable[[Batch, Place], list[Corruptions]] = {
            "independent": self._independent,
            "shared": self._shared,
            "all": self._all,
        }[self.kind]
        return corrupt(batch, place)

    def _independent(self, batch: Batch, place: Place) -> list[Corruptions]:
        """A coin for the side, then an entity; [B, N]."""
        shape, device = (len(batch), self.count), batch.head.device
        if self.chances is None:
            entities, tails = _entities_and_sides(place, shape, self.entities, device)
        else:
            coins, bits = draw(place, (2, *shape), 1 << RANGE, device).unbind()
            entities, tails = self.chances.own(coins, bits, batch)
        mask = None
        if self.known is not None:
            head = torch.where(tails, batch.head[:, None], entities)
            tail = torch.where(tails, entities, batch.tail[:, None])
            mask = ~self.known.contains(head, batch.relation[:, None].expand(shape), tail)
        return [Corruptions("both", entities, tails, mask)]

    def _shared(self, batch: Batch, place: Place) -> list[Corruptions]:
        """One pool [P] for both sides of every positive; the positive itself does not count where it was drawn."""
        below = self.entities if self.chances is None else 1 << RANGE
        pool = draw(place, (self.count,), below, batch.head.device)
        pool = pool if self.chances is None else self.chances.pool(pool)
        shape = (len(batch), self.count)
        result = []
        for side, given, target in _sides(batch):
            mask = None
            if self.known is not None:
                ends = (given[:, None].expand(shape), pool.expand(shape))
                head, tail = ends if side == "tail" else ends[::-1]
                mask = ~self.known.contains(head, batch.relation[:, None].expand(shape), tail)
            result.append(Corruptions(side, pool, None, mask, target))
        return result

    def _all(self, batch: Batch, place: Place) -> list[Corruptions]:
        """Every entity but the positive's own, on both sides; [B, E]."""
        result = []
        for side, given, target in _sides(batch):
            facts = None if self.known is None else self.known.others(given, batch.relation, side)
            result.append(Corruptions(side, None, target=target, facts=facts))
        return result


def _entities_and_sides(
    place: Place, shape: tuple[int, int], entities: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """One draw for both, int64 and bool: the lowest bit is the coin, the rest the entity."""
    if has_kernels(device):
        from focuse.engines.triton.draw import corruptions

        return corruptions(key_of(*place) if isinstance(place, tuple) else place, shape, entities, device)
    native = library() if device.type == "cpu" else None
    key = key_of(*place) if isinstance(place, tuple) else place
    if native is not None and not isinstance(key, Tensor):
        found, tails = torch.empty(shape, dtype=torch.int64), torch.empty(shape, dtype=torch.bool)
        numbers = (ctypes.c_uint64(key), ctypes.c_int64(found.numel()), ctypes.c_uint64(2 * entities))
        native.draw_corruptions(*numbers, *(ctypes.c_void_p(address(part)) for part in (found, tails)))
        return found, tails
    both = draw(place, shape, 2 * entities, device)
    return both >> 1, (both & 1).bool()


def _sides(batch: Batch) -> list[tuple[Side, Tensor, Tensor]]:
    """Each side to corrupt, the entity that stays and the one that goes."""
    return [("tail", batch.head, batch.tail), ("head", batch.tail, batch.head)]
