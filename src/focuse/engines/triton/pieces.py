"""Pieces of rows: how a query is made of two of them, compared with others, and how gradients go back.

Of complex rows a piece is `columns` real parts and as many imaginary ones; for other rows the imaginary part is the
real one again and nobody looks at it.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from focuse.engines.triton.maths import COMPLEX, DOT, L1, L2, SUM, curved, of_positive, penalised, sign


@triton.jit
def turned(known, known_i, kind, kind_i, turn: tl.constexpr, of_head: tl.constexpr):
    """A query's piece, real and imaginary part; where there is no imaginary part, the real one stands in."""
    if turn == COMPLEX:
        if of_head:
            real, imaginary = known * kind + known_i * kind_i, known_i * kind - known * kind_i
        else:
            real, imaginary = known * kind - known_i * kind_i, known * kind_i + known_i * kind
    elif turn == SUM:
        real = known - kind if of_head else known + kind
        imaginary = real
    else:
        real = known * kind
        imaginary = real
    return real, imaginary


@triton.jit
def turned_back(q, q_i, known, known_i, kind, kind_i, turn: tl.constexpr, of_head: tl.constexpr):
    """From a query's gradient those of the known entity and of the relation: four pieces."""
    if turn == COMPLEX:
        if of_head:
            to_known, to_known_i = q * kind - q_i * kind_i, q * kind_i + q_i * kind
            to_kind, to_kind_i = q * known + q_i * known_i, q * known_i - q_i * known
        else:
            to_known, to_known_i = q * kind + q_i * kind_i, q_i * kind - q * kind_i
            to_kind, to_kind_i = q * known + q_i * known_i, q_i * known - q * known_i
    elif turn == SUM:
        to_known, to_known_i = q, q
        to_kind = -q if of_head else q
        to_kind_i = to_kind
    else:
        to_known, to_known_i = q * kind, q
        to_kind, to_kind_i = q * known, q
    return to_known, to_known_i, to_kind, to_kind_i


@triton.jit
def piece(row, d, half: tl.constexpr, turn: tl.constexpr):
    """Columns `d` of the row at `row`, real and imaginary."""
    real = tl.load(row + d, mask=d < half, other=0.0)
    imaginary = real
    if turn == COMPLEX:
        imaginary = tl.load(row + half + d, mask=d < half, other=0.0)
    return real, imaginary


@triton.jit
def pieces(table, entity, inside, d, width: tl.constexpr, half: tl.constexpr, turn: tl.constexpr):
    """The same of many rows, [N, columns]."""
    there = inside[:, None] & (d < half)[None, :]
    places = table + entity[:, None] * width + d[None, :]
    real = tl.load(places, mask=there, other=0.0)
    imaginary = real
    if turn == COMPLEX:
        imaginary = tl.load(places + half, mask=there, other=0.0)
    return real, imaginary


@triton.jit
def put(row, d, real, imaginary, half: tl.constexpr, turn: tl.constexpr):
    tl.store(row + d, real, mask=d < half)
    if turn == COMPLEX:
        tl.store(row + half + d, imaginary, mask=d < half)


@triton.jit
def compared(q, q_i, x, x_i, form: tl.constexpr, turn: tl.constexpr):
    """What each pair of columns adds to a comparison, before `compared_end`."""
    if form == DOT:
        part = q * x
        if turn == COMPLEX:
            part += q_i * x_i
    elif form == L1:
        part = tl.abs(q - x)
    else:
        part = (q - x) * (q - x)
    return part


@triton.jit
def compared_end(total, form: tl.constexpr):
    if form == L1:
        total = -total
    elif form == L2:
        total = -tl.sqrt(total)
    return total


@triton.jit
def per_distance(slope, product, form: tl.constexpr):
    """The coefficient of q − x in the gradient; as torch has it, a distance of 0 pulls nowhere."""
    if form == L2:
        slope = tl.where(product < 0, slope / tl.where(product < 0, -product, 1.0), 0.0)
    return slope


@triton.jit
def pulled(q, x, coefficient, form: tl.constexpr):
    """What x's gradient gets from one comparison with the query q; q's is the negative of it, or for DOT its own."""
    if form == DOT:
        part = coefficient * q
    elif form == L1:
        part = coefficient * sign(q - x)
    else:
        part = coefficient * (q - x)
    return part


@triton.jit
def asked(entity, relation, heads, kinds, tails, b, width: tl.constexpr):
    """Where the rows of positive b lie."""
    head = entity + tl.load(heads + b).to(tl.int64) * width
    kind = relation + tl.load(kinds + b).to(tl.int64) * width
    tail = entity + tl.load(tails + b).to(tl.int64) * width
    return head, kind, tail


@triton.jit
def sent_to_rows(
    head, kind, tail, d, to_q, to_q_i, to_back, to_back_i, own, out, b, triples, strength,
    half: tl.constexpr, width: tl.constexpr, turn: tl.constexpr, form: tl.constexpr, power: tl.constexpr,
):  # fmt: skip
    """From the queries' gradients, columns d, and the positive's coefficient `own` those of its three rows."""
    h, h_i = piece(head, d, half, turn)
    r, r_i = piece(kind, d, half, turn)
    t, t_i = piece(tail, d, half, turn)
    q, q_i = turned(h, h_i, r, r_i, turn, False)
    to_tail = pulled(q, t, own, form)
    to_tail_i = to_tail
    if form == DOT:
        to_q += own * t
        if turn == COMPLEX:
            to_tail_i = own * q_i
            to_q_i += own * t_i
    else:
        to_q -= to_tail
    to_head, to_head_i, to_kind, to_kind_i = turned_back(to_q, to_q_i, h, h_i, r, r_i, turn, False)
    more, more_i, kind_more, kind_more_i = turned_back(to_back, to_back_i, t, t_i, r, r_i, turn, True)
    to_tail, to_tail_i = to_tail + more, to_tail_i + more_i
    to_kind, to_kind_i = to_kind + kind_more, to_kind_i + kind_more_i
    if power > 0:
        to_head, to_head_i = to_head + penalised(h, strength, power), to_head_i + penalised(h_i, strength, power)
        to_tail, to_tail_i = to_tail + penalised(t, strength, power), to_tail_i + penalised(t_i, strength, power)
        to_kind, to_kind_i = to_kind + penalised(r, strength, power), to_kind_i + penalised(r_i, strength, power)
    put(out + b * width, d, to_head, to_head_i, half, turn)
    put(out + (b + triples) * width, d, to_tail, to_tail_i, half, turn)
    put(out + (b + 2 * triples) * width, d, to_kind, to_kind_i, half, turn)


@triton.jit
def leveled(product, gain, offset, alpha, shift, curve: tl.constexpr):
    """h = α·g(gain·product + offset) and its slope by the score."""
    value, slope = curved(gain * product + offset, shift, curve)
    return alpha * value, alpha * slope


@triton.jit
def alphas(weights, beta, scale, b, focused: tl.constexpr, scaled: tl.constexpr):
    """α⁺ and α⁻ of positive b, and what turns comparisons into scores."""
    alpha, alpha_other, gain, offset = 1.0, 1.0, 1.0, 0.0
    if focused:
        share = tl.load(beta)
        rest = (1.0 - share).to(tl.float32)
        weight = tl.load(weights + b)
        alpha, alpha_other = share.to(tl.float32) + (1.0 - weight) * rest, share.to(tl.float32) + weight * rest
    if scaled:
        gain, offset = tl.load(scale), tl.load(scale + 1)
    return alpha, alpha_other, gain, offset


@triton.jit
def settled(
    weights, losses, of_scale, b, own, most, mass, cells, value, slope, of_gain, of_offset,
    gain, offset, alpha, factor, shift, margin,
    form: tl.constexpr, loss: tl.constexpr, curve: tl.constexpr, scaled: tl.constexpr,
):  # fmt: skip
    """Writes down positive b's loss and the gradient of `scale`; returns the positive's own coefficient."""
    positive, bend = leveled(own, gain, offset, alpha, shift, curve)
    value, slope = of_positive(positive, tl.load(weights + b), cells, most, mass, value, slope, margin, loss)
    tl.store(losses + b, value)
    by_score = slope * bend * factor
    if scaled:
        tl.store(of_scale + b * 2, of_gain + by_score * own)
        tl.store(of_scale + b * 2 + 1, of_offset + by_score)
    return per_distance(by_score * gain, own, form)
