"""Scoring in chunks: intermediate tensors that are larger than the scores are never in memory as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from itertools import count, repeat
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

# These limit the numbers of an intermediate tensor: 4 MB of float32 fit in a core's caches, 64 MB keep a GPU busy.
CHUNK_NUMBERS_CPU, CHUNK_NUMBERS_GPU = 1 << 20, 1 << 24


class Chunk(NamedTuple):
    """The chunk that is computed; `recomputed` is True in the backward pass, where the result must be the same."""

    number: int = 0
    recomputed: bool = False


CURRENT_CHUNK: ContextVar[Chunk] = ContextVar("CHUNK", default=Chunk())  # noqa: B039 - a Chunk is immutable


def in_chunks(
    compare: Callable[[Tensor, Tensor, Tensor], Tensor], query: Tensor, relation: Tensor, rows: Tensor, width: int
) -> Tensor:
    """Return compare(query, relation, rows), computed in chunks of queries and rows.

    The shapes are [B, q], [B, r] and a pool [P, d] or one set of rows per query [B, P, d] -> [B, P]. One comparison
    needs `width` intermediate numbers. If gradients are enabled, these are recomputed in the backward pass instead of
    stored.

    >>> query, rows = torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [5.0]])
    >>> in_chunks(lambda q, r, x: (q[:, None] - x).abs().sum(-1), query, query, rows, width=1 << 24).tolist()
    [[0.0, 4.0], [1.0, 3.0]]
    """
    limit = CHUNK_NUMBERS_GPU if query.is_cuda else CHUNK_NUMBERS_CPU
    columns = min(max(1, limit // max(width, 1)), max(1, rows.shape[-2]))
    size = max(1, limit // (max(width, 1) * columns))
    if len(query) <= size and rows.shape[-2] <= columns:
        return compare(query, relation, rows)
    rows_by_query = torch.split(rows, size) if rows.dim() == 3 else repeat(rows)
    chunks = list(zip(torch.split(query, size), torch.split(relation, size), rows_by_query, strict=False))
    if torch.is_grad_enabled():
        recompute, number = partial(checkpoint, use_reentrant=False, preserve_rng_state=False), count(1)
        grid = [
            [recompute(_with_current_chunk(compare, next(number)), q, r, x) for x in torch.split(some, columns, -2)]
            for q, r, some in chunks
        ]
        return torch.cat([torch.cat(line, 1) for line in grid])
    # Results are written to one tensor. Separate ones would lie between the chunks' memory and prevent its reuse.
    scores = query.new_empty(len(query), rows.shape[-2])
    for (q, r, some), target in zip(chunks, torch.split(scores, size), strict=True):
        for x, block in zip(torch.split(some, columns, -2), torch.split(target, columns, 1), strict=True):
            block.copy_(compare(q, r, x))
    return scores


def _with_current_chunk(compare: Callable[..., Tensor], number: int) -> Callable[..., Tensor]:
    """Return `compare` with CURRENT_CHUNK set; its second call is the one of the backward pass."""
    calls = count()

    def compare_chunk(*parts: Tensor) -> Tensor:
        token = CURRENT_CHUNK.set(Chunk(number, next(calls) > 0))
        try:
            return compare(*parts)
        finally:
            CURRENT_CHUNK.reset(token)

    return compare_chunk


def broadcast_in_chunks(function: Callable[..., Tensor], rows: Sequence[Tensor], width: int) -> Tensor:
    """Return function(*rows), [..., d] each -> [...], computed in chunks, where leading sizes broadcast.

    One result needs `width` intermediate numbers. This is for models whose intermediate tensors are larger than rows
    in every use; it replaces `in_chunks`.
    """
    shape = torch.broadcast_shapes(*(part.shape[:-1] for part in rows))  # type: ignore[no-untyped-call]
    rows = [part.reshape(*[1] * (len(shape) + 1 - part.dim()), *part.shape) for part in rows]
    if prod(shape) * width <= (CHUNK_NUMBERS_GPU if rows[0].is_cuda else CHUNK_NUMBERS_CPU) or prod(shape) <= 1:
        if not torch.is_grad_enabled():
            return function(*rows)
        result: Tensor = checkpoint(function, *rows, use_reentrant=False, preserve_rng_state=False)
        return result
    axis = max(range(len(shape)), key=lambda index: shape[index])
    half = shape[axis] // 2
    halves = ([_narrow(part, axis, start, stop) for part in rows] for start, stop in ((0, half), (half, shape[axis])))
    return torch.cat([broadcast_in_chunks(function, part, width) for part in halves], dim=axis)


def _narrow(rows: Tensor, axis: int, begin: int, end: int) -> Tensor:
    """Return a range of rows along an axis, or all rows if they broadcast along it."""
    return rows if rows.shape[axis] == 1 else rows.narrow(axis, begin, end - begin)
