"""Comparisons a piece at a time: what is larger than its result never stands in memory as a whole."""

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

# Numbers of one tensor in between: 4 MB of float32 stay in a core's caches, 64 MB keep a GPU busy.
ON_CPU, ON_GPU = 1 << 20, 1 << 24


class Chunk(NamedTuple):
    """Which piece is computed; `again`: on the way back, where it must come out as it did before."""

    number: int = 0
    again: bool = False


CURRENT_CHUNK: ContextVar[Chunk] = ContextVar("PIECE", default=Chunk())  # noqa: B039 - nothing can be changed in it


def in_chunks(
    compare: Callable[[Tensor, Tensor, Tensor], Tensor], query: Tensor, relation: Tensor, rows: Tensor, width: int
) -> Tensor:
    """`compare(query, relation, rows)`, some queries and some rows at once.

    [B, q], [B, r] and a pool [P, d] or own rows [B, P, d] -> [B, P], where one comparison holds `width` numbers in
    between. Where gradients are asked for, these are computed again on the way back instead of kept.

    >>> query, rows = torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [5.0]])
    >>> in_chunks(lambda q, r, x: (q[:, None] - x).abs().sum(-1), query, query, rows, width=1 << 24).tolist()
    [[0.0, 4.0], [1.0, 3.0]]
    """
    most = ON_GPU if query.is_cuda else ON_CPU
    columns = min(max(1, most // max(width, 1)), max(1, rows.shape[-2]))
    size = max(1, most // (max(width, 1) * columns))
    if len(query) <= size and rows.shape[-2] <= columns:
        return compare(query, relation, rows)
    own = torch.split(rows, size) if rows.dim() == 3 else repeat(rows)
    parts = list(zip(torch.split(query, size), torch.split(relation, size), own, strict=False))
    if torch.is_grad_enabled():
        again, number = partial(checkpoint, use_reentrant=False, preserve_rng_state=False), count(1)
        found = [
            [again(_piece(compare, next(number)), q, r, x) for x in torch.split(each, columns, -2)]
            for q, r, each in parts
        ]
        return torch.cat([torch.cat(row, 1) for row in found])
    # Results written side by side: kept apart they would lie between the pieces' memory, and none be used again.
    scores = query.new_empty(len(query), rows.shape[-2])
    for (q, r, each), target in zip(parts, torch.split(scores, size), strict=True):
        for x, place in zip(torch.split(each, columns, -2), torch.split(target, columns, 1), strict=True):
            place.copy_(compare(q, r, x))
    return scores


def _piece(compare: Callable[..., Tensor], number: int) -> Callable[..., Tensor]:
    """`compare`, which can look up what it computes: a second call is the one for gradients."""
    calls = count()

    def known(*parts: Tensor) -> Tensor:
        token = CURRENT_CHUNK.set(Chunk(number, next(calls) > 0))
        try:
            return compare(*parts)
        finally:
            CURRENT_CHUNK.reset(token)

    return known


def broadcast_in_chunks(function: Callable[..., Tensor], rows: Sequence[Tensor], width: int) -> Tensor:
    """`function(*rows)`, [..., d] each -> [...], where leading sizes broadcast and one cell holds `width` numbers.

    For models that hold more than rows in between, whatever they are used for; `in_chunks` does not part them again.
    """
    shape = torch.broadcast_shapes(*(part.shape[:-1] for part in rows))  # type: ignore[no-untyped-call]
    rows = [part.reshape(*[1] * (len(shape) + 1 - part.dim()), *part.shape) for part in rows]
    if prod(shape) * width <= (ON_GPU if rows[0].is_cuda else ON_CPU) or prod(shape) <= 1:
        if not torch.is_grad_enabled():
            return function(*rows)
        found: Tensor = checkpoint(function, *rows, use_reentrant=False, preserve_rng_state=False)
        return found
    axis = max(range(len(shape)), key=lambda place: shape[place])
    half = shape[axis] // 2
    parts = ([_part(part, axis, begin, end) for part in rows] for begin, end in ((0, half), (half, shape[axis])))
    return torch.cat([broadcast_in_chunks(function, part, width) for part in parts], dim=axis)


def _part(rows: Tensor, axis: int, begin: int, end: int) -> Tensor:
    return rows if rows.shape[axis] == 1 else rows.narrow(axis, begin, end - begin)
