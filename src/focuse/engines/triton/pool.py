"""Kernels of a pool of corruptions that all positives share, or of every entity: blocks of a matrix of comparisons.

A block [B, C] holds comparisons, then in their place the coefficients of the gradients. Products of matrices make
and use it where comparisons are products; `distance_kernel` and `pull_kernel` do where they are distances. Its rows
are `apart` floats long, a multiple of a tile: beyond C they end in zeros, so that tiles are read without a look.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from focuse.engines.triton.maths import L1, of_negatives, of_positive, running, sign
from focuse.engines.triton.pieces import (
    alphas,
    asked,
    compared,
    compared_end,
    leveled,
    per_distance,
    piece,
    put,
    sent_to_rows,
    turned,
)


@triton.jit
def ask_kernel(
    entity, relation, heads, kinds, tails, queries, products,
    half: tl.constexpr, width: tl.constexpr, turn: tl.constexpr, form: tl.constexpr, columns: tl.constexpr,
) -> None:  # fmt: skip
    """One program: a positive's two queries and its own comparison."""
    b = tl.program_id(0).to(tl.int64)
    head, kind, tail = asked(entity, relation, heads, kinds, tails, b, width)
    total = tl.zeros([columns], dtype=tl.float32)
    for start in range(0, half, columns):
        d = start + tl.arange(0, columns)
        h, h_i = piece(head, d, half, turn)
        r, r_i = piece(kind, d, half, turn)
        t, t_i = piece(tail, d, half, turn)
        q, q_i = turned(h, h_i, r, r_i, turn, False)
        back, back_i = turned(t, t_i, r, r_i, turn, True)
        put(queries + b * 2 * width, d, q, q_i, half, turn)
        put(queries + (b * 2 + 1) * width, d, back, back_i, half, turn)
        total += compared(q, q_i, t, t_i, form, turn)
    tl.store(products + b, compared_end(tl.sum(total, axis=0), form))


@triton.jit
def answer_kernel(
    entity, relation, heads, kinds, tails, to_queries, own, out, triples, strength,
    half: tl.constexpr, width: tl.constexpr, turn: tl.constexpr, form: tl.constexpr, power: tl.constexpr,
    columns: tl.constexpr,
) -> None:  # fmt: skip
    """One program: from the gradients of a positive's queries those of its rows."""
    b = tl.program_id(0).to(tl.int64)
    head, kind, tail = asked(entity, relation, heads, kinds, tails, b, width)
    coefficient = tl.load(own + b)
    for start in range(0, half, columns):
        d = start + tl.arange(0, columns)
        to_q, to_q_i = piece(to_queries + b * 2 * width, d, half, turn)
        to_back, to_back_i = piece(to_queries + (b * 2 + 1) * width, d, half, turn)
        sent_to_rows(
            head, kind, tail, d, to_q, to_q_i, to_back, to_back_i, coefficient, out, b, triples, strength,
            half, width, turn, form, power,
        )  # fmt: skip


@triton.jit
def forget_kernel(cells, rows, entities, facts, first, wide, apart, block: tl.constexpr) -> None:
    """Known facts do not count: their comparisons in the block of entities [first, first + wide) become NaN."""
    i = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    row = tl.load(rows + i, mask=i < facts, other=0)
    column = tl.load(entities + i, mask=i < facts, other=-1) - first
    tl.store(cells + row * apart + column, float("nan"), mask=(i < facts) & (column >= 0) & (column < wide))


@triton.jit
def counted_there(
    product, c, b, first, wide, pool, target, mask, size,
    listed: tl.constexpr, targeted: tl.constexpr, masked: tl.constexpr, marked: tl.constexpr,
):  # fmt: skip
    """Which of the columns c of the block count for positive b."""
    counts = c < wide
    if targeted:
        other = first + c
        if listed:
            other = tl.load(pool + first + c, mask=c < wide, other=0)
        counts = counts & (other != tl.load(target + b))
    if masked:
        counts = counts & (tl.load(mask + b * size + first + c, mask=c < wide, other=0) != 0)
    if marked:
        counts = counts & (product == product)
    return counts


@triton.jit
def weigh_kernel(
    cells, scale, weights, beta, pool, target, mask, masses, first, wide, apart, size, shift, temperature,
    loss: tl.constexpr, curve: tl.constexpr, focused: tl.constexpr, scaled: tl.constexpr, listed: tl.constexpr,
    targeted: tl.constexpr, masked: tl.constexpr, marked: tl.constexpr, fresh: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """One program: a positive's `running` maximum and mass and how many count, this block added; [B, 3]."""
    b = tl.program_id(0).to(tl.int64)
    _alpha, alpha_other, gain, offset = alphas(weights, beta, scale, b, focused, scaled)
    most, mass, number = -float("inf"), 0.0, 0.0
    if not fresh:
        most, mass = tl.load(masses + b * 3), tl.load(masses + b * 3 + 1)
        number = tl.load(masses + b * 3 + 2)
    for start in range(0, wide, block):
        c = start + tl.arange(0, block)
        product = tl.where(c < wide, tl.load(cells + b * apart + c, mask=c < apart, other=0.0), 0.0)
        counts = counted_there(product, c, b, first, wide, pool, target, mask, size, listed, targeted, masked, marked)
        level, _bend = leveled(product, gain, offset, alpha_other, shift, curve)
        most, mass = running(level, counts, most, mass, temperature, loss)
        number += tl.sum(counts.to(tl.float32), axis=0)
    tl.store(masses + b * 3, most)
    tl.store(masses + b * 3 + 1, mass)
    tl.store(masses + b * 3 + 2, number)


@triton.jit
def bend_kernel(
    cells, scale, weights, beta, pool, target, mask, products, masses, sums, first, wide, apart, size,
    factor, shift, margin, temperature,
    form: tl.constexpr, loss: tl.constexpr, curve: tl.constexpr, focused: tl.constexpr, scaled: tl.constexpr,
    listed: tl.constexpr, targeted: tl.constexpr, masked: tl.constexpr, marked: tl.constexpr, fresh: tl.constexpr,
    block: tl.constexpr,
) -> None:  # fmt: skip
    """One program: a positive's comparisons become coefficients; their sums (see `judged` in own.py) go to [B, 4]."""
    b = tl.program_id(0).to(tl.int64)
    alpha, alpha_other, gain, offset = alphas(weights, beta, scale, b, focused, scaled)
    most, mass, number = tl.load(masses + b * 3), tl.load(masses + b * 3 + 1), tl.load(masses + b * 3 + 2)
    positive, _own_bend = leveled(tl.load(products + b), gain, offset, alpha, shift, curve)
    label = tl.load(weights + b)
    value, slope, of_gain, of_offset = 0.0, 0.0, 0.0, 0.0
    if not fresh:
        value, slope = tl.load(sums + b * 4), tl.load(sums + b * 4 + 1)
        of_gain, of_offset = tl.load(sums + b * 4 + 2), tl.load(sums + b * 4 + 3)
    for start in range(0, wide, block):
        c = start + tl.arange(0, block)
        product = tl.where(c < wide, tl.load(cells + b * apart + c, mask=c < apart, other=0.0), 0.0)
        counts = counted_there(product, c, b, first, wide, pool, target, mask, size, listed, targeted, masked, marked)
        level, bend = leveled(product, gain, offset, alpha_other, shift, curve)
        values, slopes = of_negatives(level, counts, positive, label, number, most, mass, margin, temperature, loss)
        by_score = tl.where(counts, slopes * bend * factor, 0.0)
        tl.debug_barrier()  # several threads may hold one number: all have read it before it is written over
        tl.store(cells + b * apart + c, per_distance(by_score * gain, product, form), mask=c < apart)
        value += tl.sum(values, axis=0)
        slope += tl.sum(slopes, axis=0)
        of_gain += tl.sum(tl.where(counts, by_score * product, 0.0), axis=0)
        of_offset += tl.sum(by_score, axis=0)
    tl.store(sums + b * 4, value)
    tl.store(sums + b * 4 + 1, slope)
    tl.store(sums + b * 4 + 2, of_gain)
    tl.store(sums + b * 4 + 3, of_offset)


@triton.jit
def settle_kernel(
    scale, weights, beta, products, masses, sums, losses, own, of_scale, positives, factor, shift, margin,
    form: tl.constexpr, loss: tl.constexpr, curve: tl.constexpr, focused: tl.constexpr, scaled: tl.constexpr,
    fresh: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """Losses, own coefficients and gradients of `scale` of some positives; those of later groups are added."""
    b = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    there = b < positives
    b = tl.where(there, b, 0)
    alpha, _alpha_other, gain, offset = alphas(weights, beta, scale, b, focused, scaled)
    product = tl.load(products + b)
    positive, bend = leveled(product, gain, offset, alpha, shift, curve)
    most, mass, number = tl.load(masses + b * 3), tl.load(masses + b * 3 + 1), tl.load(masses + b * 3 + 2)
    value, slope = tl.load(sums + b * 4), tl.load(sums + b * 4 + 1)
    value, slope = of_positive(positive, tl.load(weights + b), number, most, mass, value, slope, margin, loss)
    by_score = slope * bend * factor
    of_gain, of_offset = tl.load(sums + b * 4 + 2) + by_score * product, tl.load(sums + b * 4 + 3) + by_score
    coefficient = per_distance(by_score * gain, product, form)
    if not fresh:
        value += tl.load(losses + b)
        coefficient += tl.load(own + b)
        if scaled:
            of_gain += tl.load(of_scale + b * 2)
            of_offset += tl.load(of_scale + b * 2 + 1)
    tl.store(losses + b, value, mask=there)
    tl.store(own + b, coefficient, mask=there)
    if scaled:
        tl.store(of_scale + b * 2, of_gain, mask=there)
        tl.store(of_scale + b * 2 + 1, of_offset, mask=there)


@triton.jit
def distance_kernel(
    queries, others, cells, rows, rows_apart, apart,
    width: tl.constexpr, form: tl.constexpr, high: tl.constexpr, broad: tl.constexpr,
) -> None:  # fmt: skip
    """One program: a tile of −‖q − x‖ [rows, apart]; both sides lie transposed, [width, rows_apart], [width, apart]."""
    b = tl.program_id(0).to(tl.int64) * high + tl.arange(0, high)
    c = tl.program_id(1).to(tl.int64) * broad + tl.arange(0, broad)
    total = tl.zeros([high, broad], dtype=tl.float32)
    query, other = queries + b, others + c
    for _d in range(width):
        step = tl.load(query)[:, None] - tl.load(other)[None, :]
        total += tl.abs(step) if form == L1 else step * step
        query += rows_apart
        other += apart
    if form != L1:
        total = tl.sqrt(total)
    tl.store(cells + b[:, None] * apart + c[None, :], -total, mask=(b < rows)[:, None])  # beyond `wide` nobody looks


@triton.jit
def pull_kernel(
    mine, others, coefficients, out, rows, wide, mine_apart, others_apart, coefficients_apart, out_apart,
    width: tl.constexpr, form: tl.constexpr, added: tl.constexpr, high: tl.constexpr, broad: tl.constexpr,
) -> None:  # fmt: skip
    """One program: a tile of Σ coefficient · pull(other − mine) [rows, width] over `wide` others.

    Coefficients are [wide, coefficients_apart]; `added`: the sum is added to what stands there.
    """
    b = tl.program_id(0).to(tl.int64) * high + tl.arange(0, high)
    d = tl.program_id(1).to(tl.int64) * broad + tl.arange(0, broad)
    there = (b < rows)[:, None] & (d < width)[None, :]
    x = tl.load(mine + b[:, None] * mine_apart + d[None, :], mask=there, other=0.0)
    total = tl.zeros([high, broad], dtype=tl.float32)
    coefficient, other = coefficients + b, others + d
    for _c in range(wide):
        step = tl.load(other, mask=d < width, other=0.0)[None, :] - x
        pull = sign(step) if form == L1 else step
        total += tl.load(coefficient)[:, None] * pull
        coefficient += coefficients_apart
        other += others_apart
    if added:
        total += tl.load(out + b[:, None] * out_apart + d[None, :], mask=there, other=0.0)
    tl.store(out + b[:, None] * out_apart + d[None, :], total, mask=there)
