"""A positive and its own corruptions in one program: scores, focus, loss, and the gradients of its three rows.

Only the corruptions' rows are not sent back here: what `rows.py` needs for that, queries and coefficients, is left
behind. A row is walked through in pieces of `columns`, twice: once for the scores, once for the gradients. The second
walk finds most of it in the first-level cache (32 rows of 800 floats are 100 kB).
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from focuse.engines.triton.maths import COMPLEX, DOT, of_negatives, running
from focuse.engines.triton.pieces import (
    alphas,
    asked,
    compared,
    compared_end,
    leveled,
    per_distance,
    piece,
    pieces,
    pulled,
    put,
    sent_to_rows,
    settled,
    turned,
)


@triton.jit
def others_of(ids, sides, b, n, count: tl.constexpr):
    """The corruptions n of positive b, and whether they replace the tail, [block, 1]."""
    others = tl.load(ids + b * count + n, mask=n < count, other=0).to(tl.int64)
    of_tail = tl.load(sides + b * count + n, mask=n < count, other=0) != 0
    return others, of_tail[:, None]


@triton.jit
def scored(
    table, head, kind, tail, queries, ids, sides, b, n,
    count: tl.constexpr, half: tl.constexpr, width: tl.constexpr, turn: tl.constexpr, form: tl.constexpr,
    block: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Comparisons of the positive [] and of its corruptions n [block]; the queries are written down on the way."""
    inside = n < count
    others, of_tail = others_of(ids, sides, b, n, count)
    own = tl.zeros([columns], dtype=tl.float32)
    total = tl.zeros([block, columns], dtype=tl.float32)
    for start in range(0, half, columns):
        d = start + tl.arange(0, columns)
        h, h_i = piece(head, d, half, turn)
        r, r_i = piece(kind, d, half, turn)
        t, t_i = piece(tail, d, half, turn)
        q, q_i = turned(h, h_i, r, r_i, turn, False)
        back, back_i = turned(t, t_i, r, r_i, turn, True)
        put(queries + b * 2 * width, d, q, q_i, half, turn)
        put(queries + (b * 2 + 1) * width, d, back, back_i, half, turn)
        own += compared(q, q_i, t, t_i, form, turn)
        x, x_i = pieces(table, others, inside, d, width, half, turn)
        mine = tl.where(of_tail, q[None, :], back[None, :])
        mine_i = mine
        if turn == COMPLEX:
            mine_i = tl.where(of_tail, q_i[None, :], back_i[None, :])
        # Beyond the width all are 0; beyond the count nothing is used.
        total += compared(mine, mine_i, x, x_i, form, turn)
    return compared_end(tl.sum(own, axis=0), form), compared_end(tl.sum(total, axis=1), form)


@triton.jit
def sent_to_queries(
    table, q, q_i, back, back_i, others, of_tail, coefficient, inside, d,
    half: tl.constexpr, width: tl.constexpr, turn: tl.constexpr, form: tl.constexpr,
):  # fmt: skip
    """The queries' gradients from some corruptions, columns d: four pieces."""
    x, x_i = pieces(table, others, inside, d, width, half, turn)
    if form == DOT:
        part = coefficient[:, None] * x
    else:
        mine = tl.where(of_tail, q[None, :], back[None, :])
        part = -pulled(mine, x, coefficient[:, None], form)
    to_q, to_back = tl.sum(tl.where(of_tail, part, 0.0), axis=0), tl.sum(tl.where(of_tail, 0.0, part), axis=0)
    to_q_i, to_back_i = to_q, to_back
    if turn == COMPLEX:
        part = coefficient[:, None] * x_i
        to_q_i = tl.sum(tl.where(of_tail, part, 0.0), axis=0)
        to_back_i = tl.sum(tl.where(of_tail, 0.0, part), axis=0)
    return to_q, to_q_i, to_back, to_back_i


@triton.jit
def counted(mask, b, n, count: tl.constexpr, masked: tl.constexpr):
    """Which of the corruptions n count."""
    counts = n < count
    if masked:
        counts = counts & (tl.load(mask + b * count + n, mask=counts, other=0) != 0)
    return counts


@triton.jit
def judged(
    products, counts, positive, label, cells, most, mass, gain, offset, alpha, factor, shift, margin, temperature,
    form: tl.constexpr, loss: tl.constexpr, curve: tl.constexpr,
):  # fmt: skip
    """Coefficients of corruptions, and sums of their losses, slopes by h, and slopes by `gain` and `offset`."""
    level, bend = leveled(products, gain, offset, alpha, shift, curve)
    value, slope = of_negatives(level, counts, positive, label, cells, most, mass, margin, temperature, loss)
    by_score = slope * bend * factor
    coefficient = per_distance(by_score * gain, products, form)
    of_gain = tl.sum(tl.where(counts, by_score * products, 0.0), axis=0)
    return coefficient, tl.sum(value, axis=0), tl.sum(slope, axis=0), of_gain, tl.sum(by_score, axis=0)


@triton.jit
def judged_in_blocks(
    mask, coefficients, own, label, b, gain, offset, alpha, alpha_other, factor, shift, margin, temperature,
    count: tl.constexpr, form: tl.constexpr, loss: tl.constexpr, curve: tl.constexpr, masked: tl.constexpr,
    block: tl.constexpr,
):  # fmt: skip
    """`judged` of more corruptions than a program holds: their comparisons lie where their coefficients will."""
    most, mass, cells, value, slope, of_gain, of_offset = -float("inf"), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    positive, _own_bend = leveled(own, gain, offset, alpha, shift, curve)
    for start in range(0, count, block):
        n = start + tl.arange(0, block)
        counts = counted(mask, b, n, count, masked)
        products = tl.load(coefficients + b * count + n, mask=n < count, other=0.0)
        level, _bend = leveled(products, gain, offset, alpha_other, shift, curve)
        most, mass = running(level, counts, most, mass, temperature, loss)
        cells += tl.sum(counts.to(tl.float32), axis=0)
    for start in range(0, count, block):
        n = start + tl.arange(0, block)
        counts = counted(mask, b, n, count, masked)
        products = tl.load(coefficients + b * count + n, mask=n < count, other=0.0)
        coefficient, values, slopes, of_gains, of_offsets = judged(
            products, counts, positive, label, cells, most, mass, gain, offset, alpha_other, factor, shift, margin,
            temperature, form, loss, curve,
        )  # fmt: skip
        tl.debug_barrier()  # several threads may hold one number: all have read it before it is written over
        tl.store(coefficients + b * count + n, coefficient, mask=n < count)
        value, slope, of_gain, of_offset = value + values, slope + slopes, of_gain + of_gains, of_offset + of_offsets
    return most, mass, cells, value, slope, of_gain, of_offset


@triton.jit
def sent_back(
    entity, head, kind, tail, ids, sides, coefficients, coefficient, own, out, b, triples, strength,
    count: tl.constexpr, half: tl.constexpr, width: tl.constexpr, turn: tl.constexpr, form: tl.constexpr,
    power: tl.constexpr, block: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """The second walk: gradients of the queries, and from them of the positive's rows."""
    m = tl.arange(0, block)
    others, of_tail = others_of(ids, sides, b, m, count)
    for start in range(0, half, columns):
        d = start + tl.arange(0, columns)
        h, h_i = piece(head, d, half, turn)
        r, r_i = piece(kind, d, half, turn)
        t, t_i = piece(tail, d, half, turn)
        q, q_i = turned(h, h_i, r, r_i, turn, False)
        back, back_i = turned(t, t_i, r, r_i, turn, True)
        if count <= block:
            to_q, to_q_i, to_back, to_back_i = sent_to_queries(
                entity, q, q_i, back, back_i, others, of_tail, coefficient, m < count, d, half, width, turn, form,
            )  # fmt: skip
        else:
            to_q = tl.zeros([columns], dtype=tl.float32)
            to_q_i, to_back, to_back_i = to_q, to_q, to_q
            for first in range(0, count, block):
                n = first + m
                others, of_tail = others_of(ids, sides, b, n, count)
                some = tl.load(coefficients + b * count + n, mask=n < count, other=0.0)
                more, more_i, less, less_i = sent_to_queries(
                    entity, q, q_i, back, back_i, others, of_tail, some, n < count, d, half, width, turn, form
                )
                to_q, to_q_i, to_back, to_back_i = to_q + more, to_q_i + more_i, to_back + less, to_back_i + less_i
        sent_to_rows(
            head, kind, tail, d, to_q, to_q_i, to_back, to_back_i, own, out, b, triples, strength,
            half, width, turn, form, power,
        )  # fmt: skip


@triton.jit
def own_kernel(
    entity, relation, scale, heads, kinds, tails, weights, beta, ids, sides, mask,
    queries, coefficients, out, losses, of_scale,
    triples, factor, strength, shift, margin, temperature,
    count: tl.constexpr, half: tl.constexpr, width: tl.constexpr, turn: tl.constexpr, form: tl.constexpr,
    loss: tl.constexpr, curve: tl.constexpr, focused: tl.constexpr, scaled: tl.constexpr, masked: tl.constexpr,
    power: tl.constexpr, block: tl.constexpr, columns: tl.constexpr,
) -> None:  # fmt: skip
    """One program: one positive, all its corruptions."""
    b = tl.program_id(0).to(tl.int64)
    head, kind, tail = asked(entity, relation, heads, kinds, tails, b, width)
    alpha, alpha_other, gain, offset = alphas(weights, beta, scale, b, focused, scaled)
    label = tl.load(weights + b)
    coefficient = tl.zeros([block], dtype=tl.float32)
    n = tl.arange(0, block)
    if count <= block:
        own, products = scored(
            entity, head, kind, tail, queries, ids, sides, b, n, count, half, width, turn, form, block, columns
        )
        counts = counted(mask, b, n, count, masked)
        cells = tl.sum(counts.to(tl.float32), axis=0)
        level, _bend = leveled(products, gain, offset, alpha_other, shift, curve)
        most, mass = running(level, counts, -float("inf"), 0.0, temperature, loss)
        positive, _own_bend = leveled(own, gain, offset, alpha, shift, curve)
        coefficient, value, slope, of_gain, of_offset = judged(
            products, counts, positive, label, cells, most, mass, gain, offset, alpha_other, factor, shift, margin,
            temperature, form, loss, curve,
        )  # fmt: skip
        tl.store(coefficients + b * count + n, coefficient, mask=n < count)
    else:
        own = 0.0
        for start in range(0, count, block):
            m = start + n
            own, products = scored(
                entity, head, kind, tail, queries, ids, sides, b, m, count, half, width, turn, form, block, columns
            )
            tl.store(coefficients + b * count + m, products, mask=m < count)
        tl.debug_barrier()
        most, mass, cells, value, slope, of_gain, of_offset = judged_in_blocks(
            mask, coefficients, own, label, b, gain, offset, alpha, alpha_other, factor, shift, margin, temperature,
            count, form, loss, curve, masked, block,
        )  # fmt: skip
        tl.debug_barrier()
    own_coefficient = settled(
        weights, losses, of_scale, b, own, most, mass, cells, value, slope, of_gain, of_offset,
        gain, offset, alpha, factor, shift, margin, form, loss, curve, scaled,
    )  # fmt: skip
    sent_back(
        entity, head, kind, tail, ids, sides, coefficients, coefficient, own_coefficient, out, b, triples, strength,
        count, half, width, turn, form, power, block, columns,
    )  # fmt: skip


@triton.jit
def hint_kernel(
    entity, relation, scale, heads, kinds, tails, bounds, out, losses, of_scale, first, triples, factor, share,
    half: tl.constexpr, width: tl.constexpr, turn: tl.constexpr, form: tl.constexpr, curve: tl.constexpr,
    scaled: tl.constexpr, columns: tl.constexpr,
) -> None:  # fmt: skip
    """One program: a triple that rules infer, share · max(0, bound − φ(f))²; it stands behind the `first` positives."""
    s = tl.program_id(0).to(tl.int64)
    b = first + s
    head, kind, tail = asked(entity, relation, heads, kinds, tails, s, width)
    gain, offset = 1.0, 0.0
    if scaled:
        gain, offset = tl.load(scale), tl.load(scale + 1)
    total = tl.zeros([columns], dtype=tl.float32)
    for start in range(0, half, columns):
        d = start + tl.arange(0, columns)
        h, h_i = piece(head, d, half, turn)
        r, r_i = piece(kind, d, half, turn)
        t, t_i = piece(tail, d, half, turn)
        q, q_i = turned(h, h_i, r, r_i, turn, False)
        total += compared(q, q_i, t, t_i, form, turn)
    product = compared_end(tl.sum(total, axis=0), form)
    level, bend = leveled(product, gain, offset, 1.0, 0.0, curve)
    short = tl.maximum(tl.load(bounds + s) - level, 0.0)
    tl.store(losses + b, share * short * short)
    by_score = -2.0 * share * factor * short * bend
    if scaled:
        tl.store(of_scale + b * 2, by_score * product)
        tl.store(of_scale + b * 2 + 1, by_score)
    coefficient = per_distance(by_score * gain, product, form)
    for start in range(0, half, columns):
        d = start + tl.arange(0, columns)
        none = tl.zeros([columns], dtype=tl.float32)
        sent_to_rows(
            head, kind, tail, d, none, none, none, none, coefficient, out, b, triples, 0.0,
            half, width, turn, form, 0,
        )  # fmt: skip
