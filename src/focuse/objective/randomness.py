"""Random numbers as pure functions of a stream key, and the shuffled order of an epoch.

A stream key is (seed, epoch, number), where the number is a batch or a `focuse.random_streams.RandomStream`. Nothing
depends on what was drawn before, so a training can stop and resume anywhere, and every engine sees the same numbers.
The order of an epoch with many rows is computed batch by batch and never in memory as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# (seed, epoch, number), or its `stream_seed`; the seed may be an int64 tensor [] while a CUDA graph is recorded.
StreamKey = tuple[int, int, int] | int | Tensor


def stream_seed(*key: int) -> int:
    """Hash a stream key to one number in [0, 2⁶³)."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0]) >> 1


def as_seed(key: StreamKey) -> int | Tensor:
    """Return the seed of a stream key that may be hashed already."""
    return stream_seed(*key) if isinstance(key, tuple) else key


def generator(*key: int) -> torch.Generator:
    """Return torch's random generator, seeded with a stream key."""
    return torch.Generator().manual_seed(stream_seed(*key))


# ---- kernels ------------------------------------------------------------------------------------------------------

# Fast versions of a function by its name and device type. Engines register theirs (`engines.base`), so that
# this package does not depend on them; results are equal to the last bit. One that cannot serve returns None.
_KERNELS: dict[tuple[str, str], Callable[..., Any]] = {}


def register_kernel(name: str, device_type: str, kernel: Callable[..., Any]) -> None:
    """Use `kernel` for the function `name` on devices of a type such as "cpu" or "cuda"."""
    _KERNELS[name, device_type] = kernel


def run_kernel(name: str, device: torch.device, *arguments: Any) -> Any:
    """Return what the registered kernel computes, or None if there is none for this device."""
    kernel = _KERNELS.get((name, device.type))
    return None if kernel is None else kernel(*arguments)


# ---- whole numbers ------------------------------------------------------------------------------------------------


def draw_integers(key: StreamKey, shape: tuple[int, ...], below: int, device: torch.device) -> Tensor:
    """Draw whole numbers in [0, below): int64 of `shape`, the same on every device.

    Number i is the i-th output of SplitMix64 (Steele, Lea and Flood, 2014) started at the key's seed. Each is computed
    independently of the others, so a GPU draws its own and nothing has to be copied there.

    >>> draw_integers((0, 0, 0), (4,), 10, torch.device("cpu")).tolist()
    [6, 3, 9, 0]
    """
    seed = as_seed(key)
    drawn: Tensor | None = run_kernel("draw_integers", device, seed, math.prod(shape), below, device)
    if drawn is not None:
        return drawn.view(shape)
    bits = torch.arange(1, math.prod(shape) + 1, device=device) * _GOLDEN + seed
    for shift, factor in ((30, _FACTORS[0]), (27, _FACTORS[1])):
        bits ^= _shift_right(bits, shift)
        bits *= factor
    bits ^= _shift_right(bits, 31)
    # The upper 31 bits as a fraction of `below`: no slow remainder, and uneven by less than below / 2³¹.
    return (_shift_right(bits, 33) * below >> 31).view(shape)


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


_GOLDEN, *_FACTORS = (_signed(bits) for bits in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def _shift_right(bits: Tensor, count: int) -> Tensor:
    """Shift to the right and fill with zeros; torch's own shift fills with the sign."""
    return (bits >> count).bitwise_and_((1 << (64 - count)) - 1)


# ---- the order of an epoch ----------------------------------------------------------------------------------------

LARGE = 1 << 22  # rows from which on an order is computed batch by batch: in memory it takes 8 bytes per row
BLOCK = 1 << 20  # rows computed together
ROUNDS = 6
MIX = tuple(map(np.uint64, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)))  # the factors of SplitMix64
Numbers = npt.NDArray[np.uint64]


class Permutation:
    """A random permutation of the numbers below `size`, any part of which can be computed without the rest.

    A Feistel network shuffles the numbers below the next power of two; where that leads beyond `size` it is applied
    again until it leads back (Black and Rogaway, 2002, "Ciphers with arbitrary finite domains").

    >>> sorted(Permutation(10, key=1)(np.arange(10)).tolist()) == list(range(10))
    True
    """

    def __init__(self, size: int, key: int) -> None:
        bits = max((size - 1).bit_length(), 2)
        self.size, self.widths = np.uint64(size), (bits - bits // 2, bits // 2)  # of the upper and of the lower half
        self.keys = np.random.SeedSequence(key).generate_state(ROUNDS, np.uint64)

    def __call__(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the numbers at positions in [0, size): int64 [n] -> int64 [n]."""
        found = self._once(positions.astype(np.uint64))
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
            upper ^= _hash_bits(lower, first, above)
            lower ^= _hash_bits(upper, second, below)
        return upper << shift | lower


def _hash_bits(numbers: Numbers, key: np.uint64, bits: int) -> Numbers:
    """Return the upper `bits` of each number's hash."""
    found = (numbers + key) * MIX[0]
    found ^= found >> np.uint64(29)
    found *= MIX[1]
    found >>= np.uint64(64 - bits)
    return found


class ComputedBatches(Sequence[Tensor]):
    """The batches of a permutation, int64 [size] each but the last; a block of them is computed and kept at a time.

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
            positions = np.arange(first * self.size, min((first + self.together) * self.size, self.rows))
            self.first, self.block = first, torch.from_numpy(self.permutation(positions))
        start = (at - first) * self.size
        return self.block[start : start + self.size]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[number] for number in range(len(self)))


@dataclass(frozen=True)
class EpochOrder:
    """The `batches` of an epoch as int64 row numbers, and the number of all `rows`."""

    batches: Sequence[Tensor]
    rows: int


def epoch_order(
    count: int, size: int, key: int, device: torch.device | str = "cpu", rows: npt.NDArray[np.int64] | None = None
) -> EpochOrder:
    """Shuffle `count` rows, or the given `rows` [count], and cut them into batches of `size` on a device.

    The order is the same for every engine. Only on a CPU is the order of many rows computed batch by batch: a GPU keeps
    working while the order of its next epoch is made.
    """
    if count < LARGE:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(key))
    elif rows is None and torch.device(device).type == "cpu":
        return EpochOrder(ComputedBatches(count, size, key), count)
    else:
        order = torch.cat(list(ComputedBatches(count, BLOCK, key)))
    order = order if rows is None else torch.from_numpy(rows)[order]
    return EpochOrder(torch.split(order.to(device), size), count)
