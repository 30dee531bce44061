"""The order of an epoch's rows, a pure function of a key: of many rows it is computed batch by batch, never held."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

LARGE = 1 << 22  # rows from which on an order is computed: one in memory takes 8 bytes a row
BLOCK = 1 << 20  # rows computed together
ROUNDS = 6
MIX = tuple(map(np.uint64, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)))  # the factors of SplitMix64
Numbers = npt.NDArray[np.uint64]


class Permutation:
    """The numbers below `size` in an order by chance, each place computed by itself.

    A Feistel network shuffles the numbers below the next power of two; where that leads beyond `size` it is followed
    on until it leads back (Black and Rogaway, 2002, "Ciphers with arbitrary finite domains").

    >>> sorted(Permutation(10, key=1)(np.arange(10)).tolist()) == list(range(10))
    True
    """

    def __init__(self, size: int, key: int) -> None:
        bits = max((size - 1).bit_length(), 2)
        self.size, self.widths = np.uint64(size), (bits - bits // 2, bits // 2)  # of the upper and of the lower half
        self.keys = np.random.SeedSequence(key).generate_state(ROUNDS, np.uint64)

    def __call__(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """What stands at places in [0, size): int64 [n] -> int64 [n]."""
        found = self._once(places.astype(np.uint64))
        outside = np.flatnonzero(found >= self.size)
        while len(outside):
            found[outside] = self._once(found[outside])
            outside = outside[found[outside] >= self.size]
        return found.view(np.int64)

    def _once(self, numbers: Numbers) -> Numbers:
        above, below = self.widths
        shift = np.uint64(below)
        upper, lower = numbers >> shift, numbers & np.uint64((1 << below) - 1)
        for first, second in self.keys.reshape(-1, 2):
            upper ^= _mixed(lower, first, above)
            lower ^= _mixed(upper, second, below)
        return upper << shift | lower


def _mixed(numbers: Numbers, key: np.uint64, bits: int) -> Numbers:
    """So many bits of each number's hash."""
    found = (numbers + key) * MIX[0]
    found ^= found >> np.uint64(29)
    found *= MIX[1]
    found >>= np.uint64(64 - bits)
    return found


class ComputedBatches(Sequence[Tensor]):
    """The batches of a permutation, int64 [size] each but the last; some are computed together and kept till the next.

    >>> [len(batch) for batch in ComputedBatches(10, 4, key=1)]
    [4, 4, 2]
    """

    def __init__(self, rows: int, size: int, key: int) -> None:
        self.rows, self.size, self.permutation = rows, size, Permutation(rows, key)
        self.together = max(1, BLOCK // size)
        self.first, self.block = -1, torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    @overload
    def __getitem__(self, at: int) -> Tensor: ...
    @overload
    def __getitem__(self, at: slice) -> list[Tensor]: ...
    def __getitem__(self, at: int | slice) -> Tensor | list[Tensor]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(at)
        first = at // self.together * self.together
        if first != self.first:
            places = np.arange(first * self.size, min((first + self.together) * self.size, self.rows))
            self.first, self.block = first, torch.from_numpy(self.permutation(places))
        start = (at - first) * self.size
        return self.block[start : start + self.size]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[number] for number in range(len(self)))


@dataclass(frozen=True)
class Order:
    """An epoch's `batches` of int64 row numbers, which are `rows` together."""

    batches: Sequence[Tensor]
    rows: int


def order_of(
    count: int, size: int, key: int, device: torch.device | str = "cpu", rows: npt.NDArray[np.int64] | None = None
) -> Order:
    """All `count` rows shuffled, or those of `rows` [count], in batches of `size` on a device.

    The same for every engine. Only on a CPU is the order of many rows left to be computed when it is asked for: a GPU
    works on while that of its next epoch is made.
    """
    if count < LARGE:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(key))
    elif rows is None and torch.device(device).type == "cpu":
        return Order(ComputedBatches(count, size, key), count)
    else:
        order = torch.cat(list(ComputedBatches(count, BLOCK, key)))
    order = order if rows is None else torch.from_numpy(rows)[order]
    return Order(torch.split(order.to(device), size), count)
