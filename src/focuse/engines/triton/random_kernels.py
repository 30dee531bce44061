"""Kernels that draw the random numbers of `focuse.objective.randomness.draw_integers`, and gather triples."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def splitmix(key, i):
    """Return the upper 31 bits of output i of SplitMix64 with the seed `key`."""
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
def negative_kernel(key, entities, replaces_tail, size, below, block: tl.constexpr) -> None:
    """Draw an entity and the side that it replaces from each random number."""
    i = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    both = splitmix(tl.load(key), i) * (2 * below) >> 31
    tl.store(entities + i, both >> 1, mask=i < size)
    tl.store(replaces_tail + i, (both & 1).to(tl.uint8), mask=i < size)


@triton.jit
def take_kernel(
    rows, head, relation, tail, weight, heads, relations, tails, weights, size, block: tl.constexpr
) -> None:  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    row = tl.load(rows + i, mask=i < size, other=0)
    tl.store(heads + i, tl.load(head + row, mask=i < size, other=0), mask=i < size)
    tl.store(relations + i, tl.load(relation + row, mask=i < size, other=0), mask=i < size)
    tl.store(tails + i, tl.load(tail + row, mask=i < size, other=0), mask=i < size)
    tl.store(weights + i, tl.load(weight + row, mask=i < size, other=0.0), mask=i < size)


def draw(key: int | Tensor, size: int, below: int, device: torch.device) -> Tensor:
    """Draw integers in [0, below): int64 [size]."""
    out = torch.empty(size, dtype=torch.int64, device=device)
    if size:
        draw_kernel[(triton.cdiv(size, BLOCK),)](_on_device(key, device), out, size, below, BLOCK)
    return out


def draw_negatives(
    key: int | Tensor, shape: tuple[int, ...], below: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Draw entities in [0, below), int64, and whether each replaces the tail, bool, of `shape`."""
    size = math.prod(shape)
    entities = torch.empty(shape, dtype=torch.int64, device=device)
    replaces_tail = torch.empty(shape, dtype=torch.bool, device=device)
    if size:
        negative_kernel[(triton.cdiv(size, BLOCK),)](
            _on_device(key, device), entities, replaces_tail.view(torch.uint8), size, below, BLOCK
        )
    return entities, replaces_tail


def take(columns: tuple[Tensor, Tensor, Tensor, Tensor], rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the given rows of four columns: [n] each, int64 [B] -> [B] each."""
    head, relation, tail, weight = (torch.empty(len(rows), dtype=c.dtype, device=c.device) for c in columns)
    if len(rows):
        block = 256
        take_kernel[(triton.cdiv(len(rows), block),)](rows, *columns, head, relation, tail, weight, len(rows), block)
    return head, relation, tail, weight


def _on_device(key: int | Tensor, device: torch.device) -> Tensor:
    """Return the key as a tensor; while a CUDA graph is captured, it already is one."""
    return key if isinstance(key, Tensor) else torch.tensor(key, dtype=torch.int64, device=device)
