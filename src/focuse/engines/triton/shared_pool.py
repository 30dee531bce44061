"""The training step of positives with shared negatives: one pool for all of them, or every entity.

The matrix of raw scores, positives × pool, is computed in blocks of columns. If there is more than one block, every
block is computed twice, because the softmax of a positive needs all of its scores before any gradient. A block [B, C]
first holds raw scores, which are then overwritten by the coefficients of the gradients. Matrix products compute and use
the block, so only models whose similarity is a dot product are supported. Its rows are `stride` floats long.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from focuse.engines.base import LOSS_CODES, NONLINEARITY_CODES
from focuse.engines.triton.device_math import (
    accumulate_softmax,
    backpropagate_triple,
    focus_parameters,
    focused_score,
    load_row,
    make_query,
    negative_losses,
    positive_loss,
    similarity_of_sum,
    similarity_terms,
    store_row,
    triple_rows,
)
from focuse.engines.triton.step import (
    StepBuffers,
    StepTask,
    join_side_stream,
    side_stream,
    sort_entries,
    update_rows,
)
from focuse.objective.negatives import Negatives

BLOCK_SCORES = 1 << 24  # maximum number of scores per block, 64 MB
PRODUCT_PRECISION = "tf32"  # precision of the inputs of matrix products in training; ranking always uses float32
ALIGNMENT = 64  # the length of a row of a block is a multiple of this number of floats


@triton.jit
def query_kernel(
    entity_table, relation_table, heads, relations, tails, queries, positives,
    half: tl.constexpr, width: tl.constexpr, operation: tl.constexpr, similarity: tl.constexpr, columns: tl.constexpr,
) -> None:  # fmt: skip
    """Compute the two queries and the raw score of a positive; one program per positive."""
    b = tl.program_id(0).to(tl.int64)
    head, relation, tail = triple_rows(entity_table, relation_table, heads, relations, tails, b, width)
    total = tl.zeros([columns], dtype=tl.float32)
    for start in range(0, half, columns):
        d = start + tl.arange(0, columns)
        h, h_i = load_row(head, d, half, operation)
        r, r_i = load_row(relation, d, half, operation)
        t, t_i = load_row(tail, d, half, operation)
        tail_query, tail_query_i = make_query(h, h_i, r, r_i, operation, False)
        head_query, head_query_i = make_query(t, t_i, r, r_i, operation, True)
        store_row(queries + b * 2 * width, d, tail_query, tail_query_i, half, operation)
        store_row(queries + (b * 2 + 1) * width, d, head_query, head_query_i, half, operation)
        total += similarity_terms(tail_query, tail_query_i, t, t_i, similarity, operation)
    tl.store(positives + b, similarity_of_sum(tl.sum(total, axis=0), similarity))


@triton.jit
def triple_gradient_kernel(
    entity_table, relation_table, heads, relations, tails, query_gradients, coefficients, out, triples, strength,
    half: tl.constexpr, width: tl.constexpr, operation: tl.constexpr, similarity: tl.constexpr, power: tl.constexpr,
    columns: tl.constexpr,
) -> None:  # fmt: skip
    """Backpropagate the gradients of the queries of a positive to its rows; one program per positive."""
    b = tl.program_id(0).to(tl.int64)
    head, relation, tail = triple_rows(entity_table, relation_table, heads, relations, tails, b, width)
    coefficient = tl.load(coefficients + b)
    for start in range(0, half, columns):
        d = start + tl.arange(0, columns)
        tail_grad, tail_grad_i = load_row(query_gradients + b * 2 * width, d, half, operation)
        head_grad, head_grad_i = load_row(query_gradients + (b * 2 + 1) * width, d, half, operation)
        backpropagate_triple(
            head, relation, tail, d, tail_grad, tail_grad_i, head_grad, head_grad_i, coefficient,
            out, b, triples, strength, half, width, operation, similarity, power,
        )  # fmt: skip


@triton.jit
def mask_known_kernel(scores, rows, entities, count, first, wide, stride, block: tl.constexpr) -> None:
    """Set the raw scores of known triples to NaN, in the block of entities [first, first + wide)."""
    i = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    row = tl.load(rows + i, mask=i < count, other=0)
    column = tl.load(entities + i, mask=i < count, other=-1) - first
    tl.store(scores + row * stride + column, float("nan"), mask=(i < count) & (column >= 0) & (column < wide))


@triton.jit
def valid_columns(
    raw, c, b, first, wide, pool, target, mask, size,
    listed: tl.constexpr, targeted: tl.constexpr, masked: tl.constexpr, filtered: tl.constexpr,
):  # fmt: skip
    """Return which columns c of the block count for positive b.

    If `listed` is True, `pool` holds entity ids; if `filtered` is True, scores that are NaN do not count.
    """
    valid = c < wide
    if targeted:
        entity = first + c
        if listed:
            entity = tl.load(pool + first + c, mask=c < wide, other=0)
        valid = valid & (entity != tl.load(target + b))
    if masked:
        valid = valid & (tl.load(mask + b * size + first + c, mask=c < wide, other=0) != 0)
    if filtered:
        valid = valid & (raw == raw)
    return valid


@triton.jit
def softmax_kernel(
    scores, scale, weights, beta, pool, target, mask, softmax, first, wide, stride, size, shift, temperature,
    loss: tl.constexpr, nonlinearity: tl.constexpr, focused: tl.constexpr, scaled: tl.constexpr,
    listed: tl.constexpr, targeted: tl.constexpr, masked: tl.constexpr, filtered: tl.constexpr,
    fresh: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """Add a block to the softmax statistics [B, 3] of a positive: maximum, sum, and number of valid negatives.

    `fresh` is True for the first block. One program handles one positive.
    """
    b = tl.program_id(0).to(tl.int64)
    _alpha, negative_alpha, gain, offset = focus_parameters(weights, beta, scale, b, focused, scaled)
    max_logit, exp_sum, number = -float("inf"), 0.0, 0.0
    if not fresh:
        max_logit, exp_sum = tl.load(softmax + b * 3), tl.load(softmax + b * 3 + 1)
        number = tl.load(softmax + b * 3 + 2)
    for start in range(0, wide, block):
        c = start + tl.arange(0, block)
        raw = tl.where(c < wide, tl.load(scores + b * stride + c, mask=c < stride, other=0.0), 0.0)
        valid = valid_columns(raw, c, b, first, wide, pool, target, mask, size, listed, targeted, masked, filtered)
        negative, _slope = focused_score(raw, gain, offset, negative_alpha, shift, nonlinearity)
        max_logit, exp_sum = accumulate_softmax(negative, valid, max_logit, exp_sum, temperature, loss)
        number += tl.sum(valid.to(tl.float32), axis=0)
    tl.store(softmax + b * 3, max_logit)
    tl.store(softmax + b * 3 + 1, exp_sum)
    tl.store(softmax + b * 3 + 2, number)


@triton.jit
def score_gradient_kernel(
    scores, scale, weights, beta, pool, target, mask, positives, softmax, sums, first, wide, stride, size,
    factor, shift, margin, temperature,
    loss: tl.constexpr, nonlinearity: tl.constexpr, focused: tl.constexpr, scaled: tl.constexpr,
    listed: tl.constexpr, targeted: tl.constexpr, masked: tl.constexpr, filtered: tl.constexpr,
    fresh: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """Replace the raw scores of a positive by the coefficients of their gradients; one program per positive.

    Four sums over the negatives are added to `sums` [B, 4]: losses, derivatives with respect to h, gradients of the
    gain and gradients of the offset.
    """
    b = tl.program_id(0).to(tl.int64)
    alpha, negative_alpha, gain, offset = focus_parameters(weights, beta, scale, b, focused, scaled)
    max_logit, exp_sum = tl.load(softmax + b * 3), tl.load(softmax + b * 3 + 1)
    number = tl.load(softmax + b * 3 + 2)
    positive, _by_raw = focused_score(tl.load(positives + b), gain, offset, alpha, shift, nonlinearity)
    label = tl.load(weights + b)
    value, slope, gain_gradient, offset_gradient = 0.0, 0.0, 0.0, 0.0
    if not fresh:
        value, slope = tl.load(sums + b * 4), tl.load(sums + b * 4 + 1)
        gain_gradient, offset_gradient = tl.load(sums + b * 4 + 2), tl.load(sums + b * 4 + 3)
    for start in range(0, wide, block):
        c = start + tl.arange(0, block)
        raw = tl.where(c < wide, tl.load(scores + b * stride + c, mask=c < stride, other=0.0), 0.0)
        valid = valid_columns(raw, c, b, first, wide, pool, target, mask, size, listed, targeted, masked, filtered)
        negative, by_raw = focused_score(raw, gain, offset, negative_alpha, shift, nonlinearity)
        values, slopes = negative_losses(
            negative, valid, positive, label, number, max_logit, exp_sum, margin, temperature, loss
        )  # fmt: skip
        by_score = tl.where(valid, slopes * by_raw * factor, 0.0)
        tl.debug_barrier()  # several threads may hold the same value; all must read it before it is overwritten
        tl.store(scores + b * stride + c, by_score * gain, mask=c < stride)
        value += tl.sum(values, axis=0)
        slope += tl.sum(slopes, axis=0)
        gain_gradient += tl.sum(tl.where(valid, by_score * raw, 0.0), axis=0)
        offset_gradient += tl.sum(by_score, axis=0)
    tl.store(sums + b * 4, value)
    tl.store(sums + b * 4 + 1, slope)
    tl.store(sums + b * 4 + 2, gain_gradient)
    tl.store(sums + b * 4 + 3, offset_gradient)


@triton.jit
def positive_kernel(
    scale, weights, beta, positives, softmax, sums, losses, coefficients, scale_gradient, count, factor, shift, margin,
    loss: tl.constexpr, nonlinearity: tl.constexpr, focused: tl.constexpr, scaled: tl.constexpr,
    fresh: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """Compute the losses, coefficients and gradients of `scale` of some positives.

    If `fresh` is False, they are added to the results of earlier groups of negatives.
    """
    b = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    there = b < count
    b = tl.where(there, b, 0)
    alpha, _negative_alpha, gain, offset = focus_parameters(weights, beta, scale, b, focused, scaled)
    raw = tl.load(positives + b)
    positive, by_raw = focused_score(raw, gain, offset, alpha, shift, nonlinearity)
    max_logit, exp_sum = tl.load(softmax + b * 3), tl.load(softmax + b * 3 + 1)
    number = tl.load(softmax + b * 3 + 2)
    value, slope = tl.load(sums + b * 4), tl.load(sums + b * 4 + 1)
    value, slope = positive_loss(
        positive, tl.load(weights + b), number, max_logit, exp_sum, value, slope, margin, loss
    )  # fmt: skip
    by_score = slope * by_raw * factor
    gain_gradient = tl.load(sums + b * 4 + 2) + by_score * raw
    offset_gradient = tl.load(sums + b * 4 + 3) + by_score
    coefficient = by_score * gain
    if not fresh:
        value += tl.load(losses + b)
        coefficient += tl.load(coefficients + b)
        if scaled:
            gain_gradient += tl.load(scale_gradient + b * 2)
            offset_gradient += tl.load(scale_gradient + b * 2 + 1)
    tl.store(losses + b, value, mask=there)
    tl.store(coefficients + b, coefficient, mask=there)
    if scaled:
        tl.store(scale_gradient + b * 2, gain_gradient, mask=there)
        tl.store(scale_gradient + b * 2 + 1, offset_gradient, mask=there)


def shared_pool_step(task: StepTask, groups: list[Negatives]) -> Tensor:
    """Take the training step and return the loss, float64 []."""
    batch, entity_table = task.batch, task.tables["entity"]
    pools = [group.entities for group in groups if group.entities is not None]
    ids = torch.cat(pools) if pools else batch.head
    buffers = StepBuffers(task, pool_size=len(ids) if pools else 0)
    with side_stream(ids.device, task.tuning.overlap_sort):
        entries = sort_entries(buffers, ids, ids, ids)
    pool_task = _PoolTask(task, buffers)
    layout = {**task.layout(), "columns": task.columns(512), "num_warps": 4}
    rows = (entity_table, task.tables["relation"], batch.head, batch.relation, batch.tail)
    query_kernel[(len(batch),)](*rows, buffers.sources, pool_task.positives, **layout)
    addend, begin = None, 3 * len(batch)
    for number, group in enumerate(groups):
        if group.entities is None:
            into, added = (torch.empty_like(entity_table), False) if addend is None else (addend, True)
            addend = into
        else:
            into, added = buffers.gradients[begin : begin + len(group.entities)], False
            begin += len(group.entities)
        with product_precision():
            pool_task.compute(group, into, added, fresh=number == 0)
    power, strength = task.penalty(per_triple=True)
    triple_gradient_kernel[(len(batch),)](
        *rows, pool_task.query_gradients, pool_task.coefficients, buffers.gradients, len(batch), strength,
        power=power, **layout,
    )  # fmt: skip
    join_side_stream(ids.device, task.tuning.overlap_sort)
    return update_rows(buffers, entries, addend)


class _PoolTask:
    """Computes the groups of negatives of one step, which share queries, gradients and sums."""

    def __init__(self, task: StepTask, buffers: StepBuffers) -> None:
        self.task, self.buffers = task, buffers
        count, width, device = len(task.batch), task.width, buffers.sources.device
        self.queries = buffers.sources[: buffers.queries].view(count, 2, width)
        self.query_gradients = torch.zeros(count, 2, width, device=device)
        self.positives, self.coefficients = torch.empty(count, device=device), torch.empty(count, device=device)
        self.softmax, self.sums = torch.empty(count, 3, device=device), torch.empty(count, 4, device=device)

    def compute(self, group: Negatives, into: Tensor, added: bool, fresh: bool) -> None:
        """Compute the losses of one group and the gradients of its queries, of the positives and of its rows.

        The gradients of the rows [P, d] are stored in `into`, or added to it if `added` is True. `fresh` is True for
        the first group.
        """
        task, objective = self.task, self.task.objective
        side = 0 if group.side == "tail" else 1
        queries, query_gradients = self.queries[:, side], self.query_gradients[:, side]
        entity_table = task.tables["entity"]
        rows = entity_table if group.entities is None else entity_table.index_select(0, group.entities)
        count = len(queries)
        wide = min(max(BLOCK_SCORES // count // 128 * 128, 128), len(rows))
        scores = torch.empty(count, _round_up(wide), device=rows.device)
        starts = range(0, len(rows), wide)
        for start in starts:
            self._score(group, queries, rows[start : start + wide], scores, start)
            block_width = min(wide, len(rows) - start)
            self._launch(softmax_kernel, group, scores, start, block_width, len(rows), start == 0, {})
        for start in starts:
            block = rows[start : start + wide]
            if len(starts) > 1:
                self._score(group, queries, block, scores, start)
            more = {"positives": self.positives, "sums": self.sums, "factor": task.scale, "margin": objective.margin}
            self._launch(score_gradient_kernel, group, scores, start, len(block), len(rows), start == 0, more)
            self._backpropagate(queries, query_gradients, block, scores, into[start : start + wide], added)
        positive_kernel[(triton.cdiv(count, 128),)](
            task.scale_table, task.batch.weight, task.beta, self.positives, self.softmax, self.sums,
            self.buffers.losses, self.coefficients, self.buffers.scale_gradient, count, task.scale, objective.shift,
            objective.margin, loss=LOSS_CODES[objective.loss],
            nonlinearity=NONLINEARITY_CODES[objective.nonlinearity], focused=objective.focused, scaled=task.scaled,
            fresh=fresh, block=128,
        )  # fmt: skip

    def _launch(
        self, kernel: Any, group: Negatives, scores: Tensor, first: int, wide: int, size: int, fresh: bool,
        more: dict[str, Any],
    ) -> None:  # fmt: skip
        """Launch `softmax_kernel` or `score_gradient_kernel` on a block of scores, with one program per positive."""
        task, objective, weight = self.task, self.task.objective, self.task.batch.weight
        mask = weight if group.mask is None else group.mask.contiguous().view(torch.uint8)
        kernel[(len(scores),)](
            scores=scores, scale=task.scale_table, weights=weight, beta=task.beta,
            pool=weight if group.entities is None else group.entities,
            target=weight if group.target is None else group.target, mask=mask, softmax=self.softmax,
            first=first, wide=wide, stride=scores.stride(0), size=size, shift=objective.shift,
            temperature=objective.temperature, loss=LOSS_CODES[objective.loss],
            nonlinearity=NONLINEARITY_CODES[objective.nonlinearity], focused=objective.focused, scaled=task.scaled,
            listed=group.entities is not None, targeted=group.target is not None, masked=group.mask is not None,
            filtered=group.known is not None, fresh=fresh, block=min(1024, triton.next_power_of_2(wide)), num_warps=4,
            **more,
        )  # fmt: skip

    def _score(self, group: Negatives, queries: Tensor, rows: Tensor, scores: Tensor, first: int) -> None:
        """Compute the raw scores of all queries with some rows; the scores of known triples are set to NaN."""
        wide = len(rows)
        torch.mm(queries, rows.t(), out=scores[:, :wide])
        if group.known is not None and len(group.known[0]):
            count = len(group.known[0])
            mask_known_kernel[(triton.cdiv(count, 1024),)](
                scores, *group.known, count, first, wide, scores.stride(0), 1024
            )

    def _backpropagate(
        self, queries: Tensor, query_gradients: Tensor, rows: Tensor, scores: Tensor, into: Tensor, added: bool
    ) -> None:
        """Compute the gradients of some rows from a block of coefficients, and add to the gradients of the queries."""
        coefficients = scores[:, : len(rows)]
        query_gradients.addmm_(coefficients, rows)
        into.addmm_(coefficients.t(), queries, beta=float(added))


def _round_up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


@contextmanager
def product_precision() -> Iterator[None]:
    """Set the input precision of matrix products to PRODUCT_PRECISION for tensor cores; sums are in float32."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = PRODUCT_PRECISION
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
