"""The training step of positives with per-triple negatives: one program per positive.

A program computes the scores, the FocusE layer, the loss and the gradients of the three rows of the positive. The
gradients of the rows of the negatives are computed in step.py from the stored queries and coefficients. A
program reads each row twice, in pieces of `columns`: once for the scores and once for the gradients. The second read
mostly hits the L1 cache (32 rows of 800 floats are 100 kB).
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from focuse.engines.base import LOSS_CODES, NONLINEARITY_CODES
from focuse.engines.triton.device_math import (
    COMPLEX,
    DOT,
    accumulate_softmax,
    backpropagate_triple,
    divide_by_distance,
    finish_positive,
    focus_parameters,
    focused_score,
    load_row,
    load_rows,
    make_query,
    negative_losses,
    row_gradient,
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


@triton.jit
def load_negatives(ids, sides, b, n, count: tl.constexpr):
    """Return the entities of negatives n of positive b [block], and whether they replace the tail [block, 1]."""
    entities = tl.load(ids + b * count + n, mask=n < count, other=0).to(tl.int64)
    replaces_tail = tl.load(sides + b * count + n, mask=n < count, other=0) != 0
    return entities, replaces_tail[:, None]


@triton.jit
def compute_scores(
    entity_table, head, relation, tail, queries, ids, sides, b, n,
    count: tl.constexpr, half: tl.constexpr, width: tl.constexpr, operation: tl.constexpr, similarity: tl.constexpr,
    block: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Return the raw scores of the positive [] and of its negatives n [block], and store both queries."""
    inside = n < count
    entities, replaces_tail = load_negatives(ids, sides, b, n, count)
    positive = tl.zeros([columns], dtype=tl.float32)
    total = tl.zeros([block, columns], dtype=tl.float32)
    for start in range(0, half, columns):
        d = start + tl.arange(0, columns)
        h, h_i = load_row(head, d, half, operation)
        r, r_i = load_row(relation, d, half, operation)
        t, t_i = load_row(tail, d, half, operation)
        tail_query, tail_query_i = make_query(h, h_i, r, r_i, operation, False)
        head_query, head_query_i = make_query(t, t_i, r, r_i, operation, True)
        store_row(queries + b * 2 * width, d, tail_query, tail_query_i, half, operation)
        store_row(queries + (b * 2 + 1) * width, d, head_query, head_query_i, half, operation)
        positive += similarity_terms(tail_query, tail_query_i, t, t_i, similarity, operation)
        x, x_i = load_rows(entity_table, entities, inside, d, width, half, operation)
        query = tl.where(replaces_tail, tail_query[None, :], head_query[None, :])
        query_i = query
        if operation == COMPLEX:
            query_i = tl.where(replaces_tail, tail_query_i[None, :], head_query_i[None, :])
        # Values beyond the width are 0, and scores beyond the count are not used.
        total += similarity_terms(query, query_i, x, x_i, similarity, operation)
    return similarity_of_sum(tl.sum(positive, axis=0), similarity), similarity_of_sum(tl.sum(total, axis=1), similarity)


@triton.jit
def query_gradients(
    entity_table, tail_query, tail_query_i, head_query, head_query_i, entities, replaces_tail, coefficient, inside, d,
    half: tl.constexpr, width: tl.constexpr, operation: tl.constexpr, similarity: tl.constexpr,
):  # fmt: skip
    """Return the gradients of both queries from some negatives in columns d, real and imaginary parts each."""
    x, x_i = load_rows(entity_table, entities, inside, d, width, half, operation)
    if similarity == DOT:
        term = coefficient[:, None] * x
    else:
        query = tl.where(replaces_tail, tail_query[None, :], head_query[None, :])
        term = -row_gradient(query, x, coefficient[:, None], similarity)
    tail_grad = tl.sum(tl.where(replaces_tail, term, 0.0), axis=0)
    head_grad = tl.sum(tl.where(replaces_tail, 0.0, term), axis=0)
    tail_grad_i, head_grad_i = tail_grad, head_grad
    if operation == COMPLEX:
        term = coefficient[:, None] * x_i
        tail_grad_i = tl.sum(tl.where(replaces_tail, term, 0.0), axis=0)
        head_grad_i = tl.sum(tl.where(replaces_tail, 0.0, term), axis=0)
    return tail_grad, tail_grad_i, head_grad, head_grad_i


@triton.jit
def valid_negatives(mask, b, n, count: tl.constexpr, masked: tl.constexpr):
    """Return which of the negatives n count."""
    valid = n < count
    if masked:
        valid = valid & (tl.load(mask + b * count + n, mask=valid, other=0) != 0)
    return valid


@triton.jit
def score_gradients(
    raw, valid, positive, label, number, max_logit, exp_sum, gain, offset, alpha, factor, shift, margin, temperature,
    similarity: tl.constexpr, loss: tl.constexpr, nonlinearity: tl.constexpr,
):  # fmt: skip
    """Return the coefficients of the gradients of the negatives, and four sums over them.

    The sums are: losses, derivatives with respect to h, gradients of the gain and gradients of the offset.
    """
    focused, by_raw = focused_score(raw, gain, offset, alpha, shift, nonlinearity)
    value, slope = negative_losses(
        focused, valid, positive, label, number, max_logit, exp_sum, margin, temperature, loss
    )  # fmt: skip
    by_score = slope * by_raw * factor
    coefficient = divide_by_distance(by_score * gain, raw, similarity)
    gain_gradient = tl.sum(tl.where(valid, by_score * raw, 0.0), axis=0)
    return coefficient, tl.sum(value, axis=0), tl.sum(slope, axis=0), gain_gradient, tl.sum(by_score, axis=0)


@triton.jit
def score_gradients_in_blocks(
    mask, coefficients, positive_raw, label, b, gain, offset, alpha, negative_alpha, factor, shift, margin, temperature,
    count: tl.constexpr, similarity: tl.constexpr, loss: tl.constexpr, nonlinearity: tl.constexpr,
    masked: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Compute `score_gradients` in blocks; the coefficients overwrite the raw scores in `coefficients`."""
    max_logit, exp_sum, number, value, slope = -float("inf"), 0.0, 0.0, 0.0, 0.0
    gain_gradient, offset_gradient = 0.0, 0.0
    positive, _by_raw = focused_score(positive_raw, gain, offset, alpha, shift, nonlinearity)
    for start in range(0, count, block):
        n = start + tl.arange(0, block)
        valid = valid_negatives(mask, b, n, count, masked)
        raw = tl.load(coefficients + b * count + n, mask=n < count, other=0.0)
        focused, _slope = focused_score(raw, gain, offset, negative_alpha, shift, nonlinearity)
        max_logit, exp_sum = accumulate_softmax(focused, valid, max_logit, exp_sum, temperature, loss)
        number += tl.sum(valid.to(tl.float32), axis=0)
    for start in range(0, count, block):
        n = start + tl.arange(0, block)
        valid = valid_negatives(mask, b, n, count, masked)
        raw = tl.load(coefficients + b * count + n, mask=n < count, other=0.0)
        coefficient, values, slopes, gain_gradients, offset_gradients = score_gradients(
            raw, valid, positive, label, number, max_logit, exp_sum, gain, offset, negative_alpha, factor, shift,
            margin, temperature, similarity, loss, nonlinearity,
        )  # fmt: skip
        tl.debug_barrier()  # several threads may hold the same value; all must read it before it is overwritten
        tl.store(coefficients + b * count + n, coefficient, mask=n < count)
        value, slope = value + values, slope + slopes
        gain_gradient, offset_gradient = gain_gradient + gain_gradients, offset_gradient + offset_gradients
    return max_logit, exp_sum, number, value, slope, gain_gradient, offset_gradient


@triton.jit
def backpropagate(
    entity_table, head, relation, tail, ids, sides, coefficients, coefficient, positive_coefficient, out, b, triples,
    strength,
    count: tl.constexpr, half: tl.constexpr, width: tl.constexpr, operation: tl.constexpr, similarity: tl.constexpr,
    power: tl.constexpr, block: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of the queries and backpropagate them to the rows of the positive.

    This reads all rows a second time.
    """
    m = tl.arange(0, block)
    entities, replaces_tail = load_negatives(ids, sides, b, m, count)
    for start in range(0, half, columns):
        d = start + tl.arange(0, columns)
        h, h_i = load_row(head, d, half, operation)
        r, r_i = load_row(relation, d, half, operation)
        t, t_i = load_row(tail, d, half, operation)
        tail_query, tail_query_i = make_query(h, h_i, r, r_i, operation, False)
        head_query, head_query_i = make_query(t, t_i, r, r_i, operation, True)
        if count <= block:
            tail_grad, tail_grad_i, head_grad, head_grad_i = query_gradients(
                entity_table, tail_query, tail_query_i, head_query, head_query_i, entities, replaces_tail,
                coefficient, m < count, d, half, width, operation, similarity,
            )  # fmt: skip
        else:
            tail_grad = tl.zeros([columns], dtype=tl.float32)
            tail_grad_i, head_grad, head_grad_i = tail_grad, tail_grad, tail_grad
            for first in range(0, count, block):
                n = first + m
                entities, replaces_tail = load_negatives(ids, sides, b, n, count)
                some = tl.load(coefficients + b * count + n, mask=n < count, other=0.0)
                tail_more, tail_more_i, head_more, head_more_i = query_gradients(
                    entity_table, tail_query, tail_query_i, head_query, head_query_i, entities, replaces_tail,
                    some, n < count, d, half, width, operation, similarity,
                )  # fmt: skip
                tail_grad, tail_grad_i = tail_grad + tail_more, tail_grad_i + tail_more_i
                head_grad, head_grad_i = head_grad + head_more, head_grad_i + head_more_i
        backpropagate_triple(
            head, relation, tail, d, tail_grad, tail_grad_i, head_grad, head_grad_i, positive_coefficient,
            out, b, triples, strength, half, width, operation, similarity, power,
        )  # fmt: skip


@triton.jit
def per_triple_kernel(
    entity_table, relation_table, scale, heads, relations, tails, weights, beta, ids, sides, mask,
    queries, coefficients, out, losses, scale_gradient,
    triples, factor, strength, shift, margin, temperature,
    count: tl.constexpr, half: tl.constexpr, width: tl.constexpr, operation: tl.constexpr, similarity: tl.constexpr,
    loss: tl.constexpr, nonlinearity: tl.constexpr, focused: tl.constexpr, scaled: tl.constexpr, masked: tl.constexpr,
    power: tl.constexpr, block: tl.constexpr, columns: tl.constexpr,
) -> None:  # fmt: skip
    """Compute the loss and gradients of one positive with all its negatives; one program per positive."""
    b = tl.program_id(0).to(tl.int64)
    head, relation, tail = triple_rows(entity_table, relation_table, heads, relations, tails, b, width)
    alpha, negative_alpha, gain, offset = focus_parameters(weights, beta, scale, b, focused, scaled)
    label = tl.load(weights + b)
    coefficient = tl.zeros([block], dtype=tl.float32)
    n = tl.arange(0, block)
    if count <= block:
        positive_raw, raw = compute_scores(
            entity_table, head, relation, tail, queries, ids, sides, b, n,
            count, half, width, operation, similarity, block, columns,
        )  # fmt: skip
        valid = valid_negatives(mask, b, n, count, masked)
        number = tl.sum(valid.to(tl.float32), axis=0)
        negative, _slope = focused_score(raw, gain, offset, negative_alpha, shift, nonlinearity)
        max_logit, exp_sum = accumulate_softmax(negative, valid, -float("inf"), 0.0, temperature, loss)
        positive, _by_raw = focused_score(positive_raw, gain, offset, alpha, shift, nonlinearity)
        coefficient, value, slope, gain_gradient, offset_gradient = score_gradients(
            raw, valid, positive, label, number, max_logit, exp_sum, gain, offset, negative_alpha, factor, shift,
            margin, temperature, similarity, loss, nonlinearity,
        )  # fmt: skip
        tl.store(coefficients + b * count + n, coefficient, mask=n < count)
    else:
        positive_raw = 0.0
        for start in range(0, count, block):
            m = start + n
            positive_raw, raw = compute_scores(
                entity_table, head, relation, tail, queries, ids, sides, b, m,
                count, half, width, operation, similarity, block, columns,
            )  # fmt: skip
            tl.store(coefficients + b * count + m, raw, mask=m < count)
        tl.debug_barrier()
        max_logit, exp_sum, number, value, slope, gain_gradient, offset_gradient = score_gradients_in_blocks(
            mask, coefficients, positive_raw, label, b, gain, offset, alpha, negative_alpha, factor, shift, margin,
            temperature, count, similarity, loss, nonlinearity, masked, block,
        )  # fmt: skip
        tl.debug_barrier()
    positive_coefficient = finish_positive(
        weights, losses, scale_gradient, b, positive_raw, max_logit, exp_sum, number, value, slope, gain_gradient,
        offset_gradient, gain, offset, alpha, factor, shift, margin, similarity, loss, nonlinearity, scaled,
    )  # fmt: skip
    backpropagate(
        entity_table, head, relation, tail, ids, sides, coefficients, coefficient, positive_coefficient, out, b,
        triples, strength, count, half, width, operation, similarity, power, block, columns,
    )  # fmt: skip


def differentiate(buffers: StepBuffers, group: Negatives) -> None:
    """Compute the losses and gradients of positives with per-triple negatives; `update_rows` sums the gradients."""
    if group.entities is None or group.replaces_tail is None:
        raise ValueError("negatives with side 'both' need entities and replaces_tail")
    task, objective, batch = buffers.task, buffers.task.objective, buffers.task.batch
    tuning = task.tuning
    ids, sides = group.entities.contiguous(), group.replaces_tail.contiguous().view(torch.uint8)
    power, strength = task.penalty(per_triple=True)
    mask = sides if group.mask is None else group.mask.contiguous().view(torch.uint8)
    per_triple_kernel[(len(batch),)](
        task.tables["entity"], task.tables["relation"], task.scale_table, batch.head, batch.relation, batch.tail,
        batch.weight, task.beta, ids, sides, mask, buffers.sources, buffers.coefficients, buffers.gradients,
        buffers.losses, buffers.scale_gradient, len(batch), task.scale, strength, objective.shift, objective.margin,
        objective.temperature, count=buffers.count, **task.layout(), loss=LOSS_CODES[objective.loss],
        nonlinearity=NONLINEARITY_CODES[objective.nonlinearity], focused=objective.focused, scaled=task.scaled,
        masked=group.mask is not None, power=power, block=min(tuning.block, triton.next_power_of_2(buffers.count)),
        columns=task.columns(tuning.columns), num_warps=tuning.warps,
    )  # fmt: skip


def per_triple_step(task: StepTask, group: Negatives) -> Tensor:
    """Take the training step and return the loss, float64 []."""
    if group.entities is None or group.replaces_tail is None:
        raise ValueError("negatives with side 'both' need entities and replaces_tail")
    device = group.entities.device
    buffers = StepBuffers(task, count=group.entities.shape[1])
    sides = group.replaces_tail.contiguous().view(torch.uint8)
    with side_stream(device, task.tuning.overlap_sort):
        entries = sort_entries(buffers, group.entities.contiguous(), sides, group.entities)
    differentiate(buffers, group)
    join_side_stream(device, task.tuning.overlap_sort)
    return update_rows(buffers, entries)
