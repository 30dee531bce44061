"""Random corruptions drawn by one kernel, number for number those of `focuse.training.negatives.draw`; and gathers."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def splitmix(key, i):
    """The upper 31 bits of the i-th output of SplitMix64 started at `key`."""
    bits = (i + 1).to(tl.uint64) * 0x9E3779B97F4A7C15 + key.to(tl.uint64)
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB
    bits = bits ^ (bits >> 31)
    return (bits >> 33).to(tl.int64)


@triton.jit
def draw_kernel(key, out, size, below, block: tl.constexpr) -> None:
    i = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    tl.store(out + i, splitmix(tl.load(key), i) * below >> 31, mask=i < size)


@triton.jit
def corruption_kernel(key, entities, tails, size, below, block: tl.constexpr) -> None:
    """An entity and a coin for its side out of each number."""
    i = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    both = splitmix(tl.load(key), i) * (2 * below) >> 31
    tl.store(entities + i, both >> 1, mask=i < size)
    tl.store(tails + i, (both & 1).to(tl.uint8), mask=i < size)


@triton.jit
def take_kernel(rows, head, kind, tail, weight, heads, kinds, tails, weights, size, block: tl.constexpr) -> None:
    i = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    row = tl.load(rows + i, mask=i < size, other=0)
    tl.store(heads + i, tl.load(head + row, mask=i < size, other=0), mask=i < size)
    tl.store(kinds + i, tl.load(kind + row, mask=i < size, other=0), mask=i < size)
    tl.store(tails + i, tl.load(tail + row, mask=i < size, other=0), mask=i < size)
    tl.store(weights + i, tl.load(weight + row, mask=i < size, other=0.0), mask=i < size)


def draw(key: int | Tensor, size: int, below: int, device: torch.device) -> Tensor:
    """Whole numbers in [0, below): int64 [size]."""
    out = torch.empty(size, dtype=torch.int64, device=device)
    if size:
        draw_kernel[(triton.cdiv(size, BLOCK),)](_held(key, device), out, size, below, BLOCK)
    return out


def corruptions(key: int | Tensor, shape: tuple[int, int], below: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Entities in [0, below), int64, and whether each replaces the tail, bool, of `shape`."""
    size = shape[0] * shape[1]
    entities = torch.empty(shape, dtype=torch.int64, device=device)
    tails = torch.empty(shape, dtype=torch.bool, device=device)
    if size:
        corruption_kernel[(triton.cdiv(size, BLOCK),)](
            _held(key, device), entities, tails.view(torch.uint8), size, below, BLOCK
        )
    return entities, tails


def take(columns: tuple[Tensor, Tensor, Tensor, Tensor], rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of a batch's four columns: [n] each, int64 [B] -> [B] each."""
    head, kind, tail, weight = (torch.empty(len(rows), dtype=c.dtype, device=c.device) for c in columns)
    if len(rows):
        block = 256
        take_kernel[(triton.cdiv(len(rows), block),)](rows, *columns, head, kind, tail, weight, len(rows), block)
    return head, kind, tail, weight


def _held(key: int | Tensor, device: torch.device) -> Tensor:
    """The key where a kernel finds it; while a graph is recorded it is there already."""
    return key if isinstance(key, Tensor) else torch.tensor(key, dtype=torch.int64, device=device)
