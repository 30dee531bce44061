"""The gradient of one row and its update in one program: no table of gradients is ever kept.

What moves a row are the `entries` of a step, sorted by row: the corruptions, B·N of them (entry j is number j % N of
positive j // N: a coefficient and that positive's query), and rows of gradients that are added as they are. Both lie
in `sources`, the queries first. Relations come before entities, so that their few long segments start first. Sums go
in the sorted order, which is stable: two runs give the same bits.

A segment that owns very many entries would keep one program busy while all others are done. So `chunk` sorted entries
that belong to one row of more than 2·chunk entries are summed beforehand by programs of their own.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from focuse.engines.triton.maths import ADAGRAD, DOT, moved, penalised
from focuse.engines.triton.pieces import pulled


@triton.jit
def key_kernel(
    ids, heads, tails, kinds, pool, steps, keys, fadings,
    negatives, triples, pooled, relations,
    first: tl.constexpr, second: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """Each entry's row, relations first; and 1 − βᵗ of the step that is being made, for Adam."""
    i = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    key = tl.load(ids + i, mask=i < negatives, other=0).to(tl.int64) + relations
    i -= negatives
    key = tl.where(i < 0, key, tl.load(heads + i, mask=(i >= 0) & (i < triples), other=0).to(tl.int64) + relations)
    i -= triples
    key = tl.where(i < 0, key, tl.load(tails + i, mask=(i >= 0) & (i < triples), other=0).to(tl.int64) + relations)
    i -= triples
    key = tl.where(i < 0, key, tl.load(kinds + i, mask=(i >= 0) & (i < triples), other=0).to(tl.int64))
    i -= triples
    key = tl.where(i < 0, key, tl.load(pool + i, mask=(i >= 0) & (i < pooled), other=0).to(tl.int64) + relations)
    place = i + negatives + 3 * triples
    tl.store(keys + place, key.to(keys.dtype.element_ty), mask=i < pooled)
    if tl.program_id(0) == 0:
        # In float64: 1 − 0.999 has lost four of float32's seven digits.
        count = tl.load(steps).to(tl.float64) + 1.0
        tl.store(fadings, (1.0 - tl.exp(count * tl.log(first + 0.0 * count))).to(tl.float32))
        tl.store(fadings + 1, (1.0 - tl.exp(count * tl.log(second + 0.0 * count))).to(tl.float32))


@triton.jit
def place_kernel(order, sides, numbers, places, positives, negatives, total, count: tl.constexpr, block: tl.constexpr):
    """Where each sorted entry's row lies: a positive's queries come first, two by two, then the pieces."""
    i = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    j = tl.load(order + i, mask=i < total, other=0).to(tl.int32)
    place = j - negatives + 2 * positives
    if count > 0:
        of_head = tl.load(sides + j, mask=(i < total) & (j < negatives), other=1) == 0
        place = tl.where(j < negatives, j // count * 2 + of_head.to(tl.int32), place)
    tl.store(numbers + i, j, mask=i < total)
    tl.store(places + i, place, mask=i < total)


@triton.jit
def found(numbers, places, coefficients, i, there, queries, count: tl.constexpr):
    """Entries i: where their rows lie and what these count; 0 beyond the last entry."""
    place = tl.load(places + i, mask=there, other=0)
    coefficient = tl.where(there, 1.0, 0.0)
    if count > 0:
        number = tl.load(numbers + i, mask=there, other=0)
        own = there & (place < queries)
        coefficient = tl.where(place < queries, tl.load(coefficients + number, mask=own, other=0.0), coefficient)
    return place, coefficient


@triton.jit
def summed(
    sources, numbers, places, coefficients, row, start, gap_start, gap_end, end, d, within, queries,
    count: tl.constexpr, width: tl.constexpr, form: tl.constexpr, entries: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """The sum of the sorted entries [start, end) without [gap_start, gap_end), columns d: [columns]."""
    total = tl.zeros([columns], dtype=tl.float32)
    gap = gap_end - gap_start
    length = end - start - gap
    n = tl.arange(0, entries)
    i = tl.where(start + n < gap_start, start + n, start + n + gap)
    place, coefficient = found(numbers, places, coefficients, i, n < length, queries, count)
    for begin in range(0, length, entries):
        both = (begin + n < length)[:, None] & within[None, :]
        values = tl.load(sources + place.to(tl.int64)[:, None] * width + d[None, :], mask=both, other=0.0)
        # Where the next rows lie is looked up while these are on their way.
        after = begin + entries + n
        i = tl.where(start + after < gap_start, start + after, start + after + gap)
        next_place, next_coefficient = found(numbers, places, coefficients, i, after < length, queries, count)
        if form == DOT or count == 0:
            part = coefficient[:, None] * values
        else:
            part = pulled(values, row[None, :], coefficient[:, None], form)
            part = tl.where((place < queries)[:, None], part, values)  # a piece is added as it is
        total += tl.sum(part, axis=0)
        place, coefficient = next_place, next_coefficient
    return total


@triton.jit
def chunk_kernel(
    entity, sources, numbers, places, coefficients, keys, starts, partial, relations, queries, total,
    count: tl.constexpr, width: tl.constexpr, form: tl.constexpr, chunk: tl.constexpr, entries: tl.constexpr,
    columns: tl.constexpr,
) -> None:  # fmt: skip
    """One program: a chunk of sorted entries if it lies within one long segment, some columns."""
    c = tl.program_id(0)
    if (c + 1) * chunk <= total:
        key = tl.load(keys + c * chunk).to(tl.int64)
        start, end = tl.load(starts + key), tl.load(starts + key + 1)
        if (end - start > 2 * chunk) & ((c + 1) * chunk <= end) & (c * chunk >= start):
            d = tl.program_id(1) * columns + tl.arange(0, columns)
            within = d < width
            row = tl.zeros([columns], dtype=tl.float32)
            if form != DOT:
                row = tl.load(entity + (key - relations) * width + d, mask=within & (key >= relations), other=0.0)
            sum_of_chunk = summed(
                sources, numbers, places, coefficients, row, c * chunk, (c + 1) * chunk, (c + 1) * chunk,
                (c + 1) * chunk, d, within, queries, count, width, form, entries, columns,
            )  # fmt: skip
            tl.store(partial + c.to(tl.int64) * width + d, sum_of_chunk, mask=within)


@triton.jit
def gathered(
    sources, numbers, places, coefficients, partial, row, start, end, d, within, queries,
    count: tl.constexpr, width: tl.constexpr, form: tl.constexpr, chunk: tl.constexpr, entries: tl.constexpr,
    columns: tl.constexpr,
):  # fmt: skip
    """The gradient of one row from all its entries, columns d."""
    gap_start, gap_end = end, end
    if end - start > 2 * chunk:
        gap_start, gap_end = (start + chunk - 1) // chunk * chunk, end // chunk * chunk
    total = summed(
        sources, numbers, places, coefficients, row, start, gap_start, gap_end, end, d, within, queries,
        count, width, form, entries, columns,
    )  # fmt: skip
    for c in range(gap_start // chunk, gap_end // chunk, entries):
        i = c + tl.arange(0, entries)
        both = (i < gap_end // chunk)[:, None] & within[None, :]
        total += tl.sum(tl.load(partial + i.to(tl.int64)[:, None] * width + d[None, :], mask=both, other=0.0), axis=0)
    return total


@triton.jit
def row_kernel(
    entity, entity_mean, entity_square, relation, relation_mean, relation_square,
    sources, numbers, places, coefficients, starts, partial, addend, fadings,
    relations, queries, lr, eps, strength,
    count: tl.constexpr, width: tl.constexpr, form: tl.constexpr, chunk: tl.constexpr, entries: tl.constexpr,
    columns: tl.constexpr, kind: tl.constexpr, first: tl.constexpr, second: tl.constexpr, power: tl.constexpr,
    rows_only: tl.constexpr, added: tl.constexpr,
) -> None:  # fmt: skip
    """One program: one row of a table, some columns: its gradient, its penalty, its step."""
    key = tl.program_id(0).to(tl.int64)
    start, end = tl.load(starts + key), tl.load(starts + key + 1)
    of_entity = key >= relations
    needed = end > start
    if added:
        needed = needed | of_entity
    if not rows_only or needed:
        d = tl.program_id(1) * columns + tl.arange(0, columns)
        within = d < width
        i = tl.where(of_entity, key - relations, key) * width + d
        table = tl.where(of_entity, entity, relation)
        square = tl.where(of_entity, entity_square, relation_square)
        mean = tl.where(of_entity, entity_mean, relation_mean)
        x = tl.load(table + i, mask=within, other=0.0)
        v = tl.load(square + i, mask=within, other=0.0)
        m = x if kind == ADAGRAD else tl.load(mean + i, mask=within, other=0.0)
        g = gathered(
            sources, numbers, places, coefficients, partial, x, start, end, d, within, queries,
            count, width, form, chunk, entries, columns,
        )  # fmt: skip
        if added:
            g += tl.load(addend + i, mask=within & of_entity, other=0.0)
        if power > 0:
            g += penalised(x, strength, power)
        x, m, v = moved(x, g, m, v, lr, eps, tl.load(fadings), tl.load(fadings + 1), kind, first, second)
        tl.store(table + i, x, mask=within)
        tl.store(square + i, v, mask=within)
        if kind != ADAGRAD:
            tl.store(mean + i, m, mask=within)


@triton.jit
def end_kernel(
    losses, loss, of_scale, scale, scale_mean, scale_square, fadings, first_counter, second_counter, third_counter,
    triples, lr, eps, scaled: tl.constexpr, kind: tl.constexpr, first: tl.constexpr, second: tl.constexpr,
    counts: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """One program: the sum of the losses, the step of `scale`, and 1 added to the `counts` counters."""
    total = tl.zeros([block], dtype=tl.float64)
    of_both = tl.zeros([block, 2], dtype=tl.float32)
    two = tl.arange(0, 2)
    for start in range(0, triples, block):
        i = start + tl.arange(0, block)
        total += tl.load(losses + i, mask=i < triples, other=0.0).to(tl.float64)
        if scaled:
            of_both += tl.load(of_scale + i[:, None] * 2 + two[None, :], mask=(i < triples)[:, None], other=0.0)
    tl.store(loss, tl.sum(total, axis=0))
    if scaled:
        g = tl.sum(of_both, axis=0)
        x, v = tl.load(scale + two), tl.load(scale_square + two)
        m = x if kind == ADAGRAD else tl.load(scale_mean + two)
        x, m, v = moved(x, g, m, v, lr, eps, tl.load(fadings), tl.load(fadings + 1), kind, first, second)
        tl.store(scale + two, x)
        tl.store(scale_square + two, v)
        if kind != ADAGRAD:
            tl.store(scale_mean + two, m)
    tl.store(first_counter, tl.load(first_counter) + 1)
    if counts > 1:
        tl.store(second_counter, tl.load(second_counter) + 1)
    if counts > 2:
        tl.store(third_counter, tl.load(third_counter) + 1)
