"""Triton kernels of the GPU engine: what a step spends its time on, without copies of the rows it reads.

A positive has two queries, one for each side, and N corruptions of its own. Plain autograd copies their rows
[B, N, d] and sorts them for the backward pass; here a row is read where it lies, and its gradient is added where
it belongs.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

FORMS = {"dot": 0, "l1": 1, "l2": 2}
DOT = tl.constexpr(0)
L1 = tl.constexpr(1)
CORRUPTIONS = 32  # of one positive at a time
COLUMNS = 128  # of an embedding at a time


@triton.jit
def _score_kernel(
    queries,
    table,
    ids,
    tails,
    scores,
    count: tl.constexpr,
    width: tl.constexpr,
    form: tl.constexpr,
    corruptions: tl.constexpr,
    columns: tl.constexpr,
) -> None:
    """One program: up to `corruptions` of one positive."""
    positive = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * corruptions + tl.arange(0, corruptions)
    inside = n < count
    entity = tl.load(ids + positive * count + n, mask=inside, other=0)
    of_tail = tl.load(tails + positive * count + n, mask=inside, other=0) != 0
    total = tl.zeros([corruptions], dtype=tl.float32)
    for start in range(0, width, columns):
        d = start + tl.arange(0, columns)
        within = d < width
        for_tail = tl.load(queries + positive * 2 * width + d, mask=within, other=0.0)
        for_head = tl.load(queries + (positive * 2 + 1) * width + d, mask=within, other=0.0)
        query = tl.where(of_tail[:, None], for_tail[None, :], for_head[None, :])
        rows = tl.load(table + entity[:, None] * width + d[None, :], mask=inside[:, None] & within[None, :], other=0.0)
        if form == DOT:
            total += tl.sum(query * rows, axis=1)
        elif form == L1:
            # Beyond the width both are 0; beyond the count nothing is stored.
            total -= tl.sum(tl.abs(query - rows), axis=1)
        else:
            total += tl.sum((query - rows) * (query - rows), axis=1)
    if form != DOT and form != L1:
        total = -tl.sqrt(total)
    tl.store(scores + positive * count + n, total, mask=inside)


@triton.jit
def _gradient_kernel(
    queries,
    table,
    ids,
    tails,
    scores,
    gradient,
    of_queries,
    of_table,
    count: tl.constexpr,
    width: tl.constexpr,
    form: tl.constexpr,
    corruptions: tl.constexpr,
    columns: tl.constexpr,
) -> None:
    """One program: some columns of one positive, all its corruptions."""
    positive = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * columns + tl.arange(0, columns)
    within = d < width
    for_tail = tl.load(queries + positive * 2 * width + d, mask=within, other=0.0)
    for_head = tl.load(queries + (positive * 2 + 1) * width + d, mask=within, other=0.0)
    of_tail_query = tl.zeros([columns], dtype=tl.float32)
    of_head_query = tl.zeros([columns], dtype=tl.float32)
    for start in range(0, count, corruptions):
        n = start + tl.arange(0, corruptions)
        inside = n < count
        both = inside[:, None] & within[None, :]
        entity = tl.load(ids + positive * count + n, mask=inside, other=0)
        of_tail = tl.load(tails + positive * count + n, mask=inside, other=0) != 0
        slope = tl.load(gradient + positive * count + n, mask=inside, other=0.0)
        query = tl.where(of_tail[:, None], for_tail[None, :], for_head[None, :])
        rows = tl.load(table + entity[:, None] * width + d[None, :], mask=both, other=0.0)
        if form == DOT:
            of_query = slope[:, None] * rows
            of_rows = slope[:, None] * query
        else:
            step = query - rows
            if form == L1:
                step = tl.where(step > 0, 1.0, 0.0) - tl.where(step < 0, 1.0, 0.0)
            else:
                distance = -tl.load(scores + positive * count + n, mask=inside, other=-1.0)
                # As torch has it, a distance of 0 pulls nowhere.
                step = step * tl.where(distance > 0, 1.0 / tl.where(distance > 0, distance, 1.0), 0.0)[:, None]
            of_rows = slope[:, None] * step
            of_query = -of_rows
        of_tail_query += tl.sum(tl.where(of_tail[:, None], of_query, 0.0), axis=0)
        of_head_query += tl.sum(tl.where(of_tail[:, None], 0.0, of_query), axis=0)
        tl.atomic_add(of_table + entity[:, None] * width + d[None, :], of_rows, mask=both, sem="relaxed")
    tl.store(of_queries + positive * 2 * width + d, of_tail_query, mask=within)
    tl.store(of_queries + (positive * 2 + 1) * width + d, of_head_query, mask=within)


@triton.jit
def _adam_kernel(
    table,
    gradient,
    mean,
    square,
    steps,
    size,
    lr,
    strength,
    power: tl.constexpr,
    first: tl.constexpr,
    second: tl.constexpr,
    tiny: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Adam with the gradient of γ Σ|x|ᵖ added on the way, and the gradient set back to 0."""
    i = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = i < size
    x = tl.load(table + i, mask=inside, other=0.0)
    g = tl.load(gradient + i, mask=inside, other=0.0)
    if power == 1:
        g += strength * (tl.where(x > 0, 1.0, 0.0) - tl.where(x < 0, 1.0, 0.0))
    elif power == 2:
        g += strength * 2.0 * x
    elif power == 3:
        g += strength * 3.0 * x * tl.abs(x)
    m = tl.load(mean + i, mask=inside, other=0.0)
    v = tl.load(square + i, mask=inside, other=0.0)
    m += (1.0 - first) * (g - m)
    v += (1.0 - second) * (g * g - v)
    count = tl.load(steps)
    unbiased_mean = m / (1.0 - tl.exp(count * tl.log(first + 0.0 * count)))
    unbiased_square = v / (1.0 - tl.exp(count * tl.log(second + 0.0 * count)))
    tl.store(table + i, x - lr * unbiased_mean / (tl.sqrt(unbiased_square) + tiny), mask=inside)
    tl.store(mean + i, m, mask=inside)
    tl.store(square + i, v, mask=inside)
    tl.store(gradient + i, tl.zeros([block], dtype=tl.float32), mask=inside)


def own_scores(queries: Tensor, table: Tensor, ids: Tensor, tails: Tensor, form: str) -> Tensor:
    """Each positive's queries against its own corruptions: [B, 2, d], [E, d], ids [B, N], sides [B, N] -> [B, N].

    Query 0 looks for tails and serves where `tails` is True, query 1 for heads.
    """
    positives, count = ids.shape
    scores = torch.empty(ids.shape, dtype=torch.float32, device=ids.device)
    grid = (positives, triton.cdiv(count, CORRUPTIONS))
    _score_kernel[grid](
        queries, table, ids, tails.view(torch.uint8), scores, count, table.shape[1], FORMS[form], CORRUPTIONS, COLUMNS,
        num_warps=4,
    )  # fmt: skip
    return scores


def own_gradients(
    queries: Tensor,
    table: Tensor,
    ids: Tensor,
    tails: Tensor,
    form: str,
    scores: Tensor,
    gradient: Tensor,
    of_table: Tensor,
) -> Tensor:
    """From the scores' gradient [B, N] that of the queries [B, 2, d]; the rows' is added to `of_table` [E, d]."""
    positives, count = ids.shape
    of_queries = torch.empty_like(queries)
    grid = (positives, triton.cdiv(table.shape[1], COLUMNS))
    _gradient_kernel[grid](
        queries, table, ids, tails.view(torch.uint8), scores, gradient.contiguous(), of_queries, of_table,
        count, table.shape[1], FORMS[form], CORRUPTIONS, COLUMNS, num_warps=4,
    )  # fmt: skip
    return of_queries


def adam(
    table: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    steps: Tensor,
    lr: float,
    power: int = 0,
    strength: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
    tiny: float = 1e-8,
) -> None:
    """One step of Adam in place, penalty included; `steps` float [] counts this one already. Clears `gradient`."""
    size, block = table.numel(), 1024
    _adam_kernel[(triton.cdiv(size, block),)](
        table, gradient, mean, square, steps, size, lr, strength, power, *betas, tiny, block, num_warps=4
    )
