"""Random numbers as pure functions of a stream key, and the shuffled order of an epoch.

A stream key is (seed, epoch, number), where the number is a batch or a `focuse.random_streams.RandomStream`. No draw
depends on earlier ones, so training can stop and resume anywhere, and every engine uses the same numbers. The order of
an epoch with many rows is computed batch by batch and is never held in memory as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
    """Return the seed of a stream key, which may already be a seed."""
    return stream_seed(*key) if isinstance(key, tuple) else key


def generator(*key: int) -> torch.Generator:
    """Return a torch random generator that is seeded with a stream key."""
    return torch.Generator().manual_seed(stream_seed(*key))


# ---- kernels ------------------------------------------------------------------------------------------------------

# Fast implementations, by function name and device type. Engines register them (`engines.base`), so that this package
# does not depend on the engines. Their results are equal to the last bit; a kernel that cannot be used returns None.
_KERNELS: dict[tuple[str, str], Callable[..., Any]] = {}


def register_kernel(name: str, device_type: str, kernel: Callable[..., Any]) -> None:
    """Use `kernel` for the function `name` on devices of a type such as "cpu" or "cuda"."""
    _KERNELS[name, device_type] = kernel


def run_kernel(name: str, device: torch.device, *arguments: Any) -> Any:
    """Return the result of the registered kernel, or None if this device has no kernel of this name."""
    kernel = _KERNELS.get((name, device.type))
    return None if kernel is None else kernel(*arguments)


# ---- integers -----------------------------------------------------------------------------------------------------


def draw_integers(key: StreamKey, shape: tuple[int, ...], bound: int, device: torch.device) -> Tensor:
    """Draw integers in [0, bound), int64 of `shape`, which are the same on every device.

    Number i is the i-th output of SplitMix64 (Steele, Lea and Flood, 2014) started at the key's seed. Each number is
    computed independently of the others, so a GPU computes them itself and nothing is copied to it.

    >>> draw_integers((0, 0, 0), (4,), 10, torch.device("cpu")).tolist()
    [6, 3, 9, 0]
    """
    seed = as_seed(key)
    drawn: Tensor | None = run_kernel("draw_integers", device, seed, math.prod(shape), bound, device)
    if drawn is not None:
        return drawn.view(shape)
    bits = torch.arange(1, math.prod(shape) + 1, device=device) * _INCREMENT + seed
    for shift, factor in ((30, _FACTORS[0]), (27, _FACTORS[1])):
        bits ^= _shift_right(bits, shift)
        bits *= factor
    bits ^= _shift_right(bits, 31)
    # The upper 31 bits are scaled to `bound`. This avoids a slow remainder, and is biased by less than bound / 2³¹.
    return (_shift_right(bits, 33) * bound >> 31).view(shape)


def _signed(bits: int) -> int:
    """Return the signed 64-bit integer with the same bits."""
    return bits - (1 << 64) if bits >> 63 else bits


_INCREMENT, *_FACTORS = (_signed(bits) for bits in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def _shift_right(bits: Tensor, count: int) -> Tensor:
    """Shift to the right and fill with zeros, because torch's own shift repeats the sign bit."""
    return (bits >> count).bitwise_and_((1 << (64 - count)) - 1)


# ---- the order of an epoch ----------------------------------------------------------------------------------------

MIN_COMPUTED_ROWS = 1 << 22  # the order of this many rows is computed batch by batch; stored, it takes 8 bytes per row
ROWS_PER_BLOCK = 1 << 20
FEISTEL_ROUNDS = 6
SPLITMIX_FACTORS = tuple(map(np.uint64, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)))
UInt64s = npt.NDArray[np.uint64]


class Permutation:
    """A random permutation of range(size), any part of which can be computed without the rest.

    A Feistel network permutes the numbers below the next power of two. It is applied repeatedly to numbers that are not
    below `size`, until they are (Black and Rogaway, 2002, "Ciphers with arbitrary finite domains").

    >>> sorted(Permutation(10, key=1)(np.arange(10)).tolist()) == list(range(10))
    True
    """

    def __init__(self, size: int, key: int) -> None:
        bits = max((size - 1).bit_length(), 2)
        self.size, self.widths = np.uint64(size), (bits - bits // 2, bits // 2)  # bits of the upper and the lower half
        self.keys = np.random.SeedSequence(key).generate_state(FEISTEL_ROUNDS, np.uint64)

    def __call__(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the numbers at positions in [0, size): int64 [n] -> int64 [n]."""
        numbers = self._encrypt(positions.astype(np.uint64))
        outside = np.flatnonzero(numbers >= self.size)
        while len(outside):
            numbers[outside] = self._encrypt(numbers[outside])
            outside = outside[numbers[outside] >= self.size]
        return numbers.view(np.int64)

    def _encrypt(self, numbers: UInt64s) -> UInt64s:
        """Apply all rounds of the Feistel network once."""
        upper_bits, lower_bits = self.widths
        shift = np.uint64(lower_bits)
        upper, lower = numbers >> shift, numbers & np.uint64((1 << lower_bits) - 1)
        for first, second in self.keys.reshape(-1, 2):
            upper ^= _hash_bits(lower, first, upper_bits)
            lower ^= _hash_bits(upper, second, lower_bits)
        return upper << shift | lower


def _hash_bits(numbers: UInt64s, key: np.uint64, bits: int) -> UInt64s:
    """Return the upper `bits` of each number's hash."""
    hashes = (numbers + key) * SPLITMIX_FACTORS[0]
    hashes ^= hashes >> np.uint64(29)
    hashes *= SPLITMIX_FACTORS[1]
    hashes >>= np.uint64(64 - bits)
    return hashes


class ComputedBatches(Sequence[Tensor]):
    """The batches of a permutation, int64 [size] except the last; one block of batches is computed and kept at a time.

    >>> [len(batch) for batch in ComputedBatches(10, 4, key=1)]
    [4, 4, 2]
    """

    def __init__(self, rows: int, size: int, key: int) -> None:
        self.rows, self.size, self.permutation = rows, size, Permutation(rows, key)
        self.batches_per_block = max(1, ROWS_PER_BLOCK // size)
        self.first_in_block, self.block = -1, torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tensor]: ...
    def __getitem__(self, index: int | slice) -> Tensor | list[Tensor]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        first = index // self.batches_per_block * self.batches_per_block
        if first != self.first_in_block:
            positions = np.arange(first * self.size, min((first + self.batches_per_block) * self.size, self.rows))
            self.first_in_block, self.block = first, torch.from_numpy(self.permutation(positions))
        start = (index - first) * self.size
        return self.block[start : start + self.size]


@dataclass(frozen=True)
class EpochOrder:
    """The batches of an epoch as int64 row numbers; `rows` is the number of rows in all of them."""

    batches: Sequence[Tensor]
    rows: int


def epoch_order(
    count: int, size: int, key: int, device: torch.device | str = "cpu", rows: npt.NDArray[np.int64] | None = None
) -> EpochOrder:
    """Shuffle `count` rows, or the given `rows` [count], and cut them into batches of `size` on a device.

    The order is the same for every engine. The order of many rows is computed batch by batch on a CPU only, because a
    GPU keeps working while the order of its next epoch is computed.
    """
    if count < MIN_COMPUTED_ROWS:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(key))
    elif rows is None and torch.device(device).type == "cpu":
        return EpochOrder(ComputedBatches(count, size, key), count)
    else:
        order = torch.cat(list(ComputedBatches(count, ROWS_PER_BLOCK, key)))
    order = order if rows is None else torch.from_numpy(rows)[order]
    return EpochOrder(torch.split(order.to(device), size), count)
