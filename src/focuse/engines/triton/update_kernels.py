"""Kernels that sum the gradient of a row and update the row in one program; no gradient table is stored.

The gradient of a row is the sum of its `entries`, which are sorted by row. The entries are the B·N negatives and the
rows of gradients. Negative j is negative j % N of positive j // N; it adds its coefficient times the query of that
positive. A row of gradients is added unchanged. Both are stored in `sources`, the queries first. Relations come before
entities, so that their few long segments start first. The sums follow the sorted order, and the sort is stable, so the
results are bitwise reproducible.

A row with very many entries would keep one program busy after all others have finished. Therefore separate programs
first sum the chunks of `chunk` sorted entries that belong to one row with more than 2·chunk entries.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl

from focuse.engines.triton.device_math import ADAGRAD, DOT, optimizer_step, penalty_gradient, row_gradient


@triton.jit
def key_kernel(
    ids, heads, tails, relations, pool, counter, keys, bias,
    negatives, triples, pool_size, relation_count,
    beta1: tl.constexpr, beta2: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """Compute the row of each entry, with relations before entities, and 1 − βᵗ of the current step for Adam."""
    i = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    key = tl.load(ids + i, mask=i < negatives, other=0).to(tl.int64) + relation_count
    i -= negatives
    head = tl.load(heads + i, mask=(i >= 0) & (i < triples), other=0).to(tl.int64) + relation_count
    key = tl.where(i < 0, key, head)
    i -= triples
    tail = tl.load(tails + i, mask=(i >= 0) & (i < triples), other=0).to(tl.int64) + relation_count
    key = tl.where(i < 0, key, tail)
    i -= triples
    key = tl.where(i < 0, key, tl.load(relations + i, mask=(i >= 0) & (i < triples), other=0).to(tl.int64))
    i -= triples
    pooled = tl.load(pool + i, mask=(i >= 0) & (i < pool_size), other=0).to(tl.int64) + relation_count
    key = tl.where(i < 0, key, pooled)
    entry = i + negatives + 3 * triples
    tl.store(keys + entry, key.to(keys.dtype.element_ty), mask=i < pool_size)
    if tl.program_id(0) == 0:
        # In float64, because 1 − 0.999 loses three to four of the seven digits of float32.
        count = tl.load(counter).to(tl.float64) + 1.0
        tl.store(bias, (1.0 - tl.exp(count * tl.log(beta1 + 0.0 * count))).to(tl.float32))
        tl.store(bias + 1, (1.0 - tl.exp(count * tl.log(beta2 + 0.0 * count))).to(tl.float32))


@triton.jit
def source_kernel(
    order, sides, entries, places, positives, negatives, total, count: tl.constexpr, block: tl.constexpr
) -> None:  # fmt: skip
    """Compute the row in `sources` of each sorted entry; the two queries of each positive precede the gradients."""
    i = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    j = tl.load(order + i, mask=i < total, other=0).to(tl.int32)
    place = j - negatives + 2 * positives
    if count > 0:
        replaces_head = tl.load(sides + j, mask=(i < total) & (j < negatives), other=1) == 0
        place = tl.where(j < negatives, j // count * 2 + replaces_head.to(tl.int32), place)
    tl.store(entries + i, j, mask=i < total)
    tl.store(places + i, place, mask=i < total)


@triton.jit
def load_entries(entries, places, coefficients, i, there, queries, count: tl.constexpr):
    """Return the source rows and coefficients of the sorted entries i; the coefficient is 0 where not `there`."""
    place = tl.load(places + i, mask=there, other=0)
    coefficient = tl.where(there, 1.0, 0.0)
    if count > 0:
        entry = tl.load(entries + i, mask=there, other=0)
        is_negative = there & (place < queries)
        found = tl.load(coefficients + entry, mask=is_negative, other=0.0)
        coefficient = tl.where(place < queries, found, coefficient)
    return place, coefficient


@triton.jit
def sum_entries(
    sources, entries, places, coefficients, row, start, gap_start, gap_end, end, d, within, queries,
    count: tl.constexpr, width: tl.constexpr, similarity: tl.constexpr, at_once: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Return the sum of the sorted entries [start, end) without [gap_start, gap_end) in columns d: [columns]."""
    total = tl.zeros([columns], dtype=tl.float32)
    gap = gap_end - gap_start
    length = end - start - gap
    n = tl.arange(0, at_once)
    i = tl.where(start + n < gap_start, start + n, start + n + gap)
    place, coefficient = load_entries(entries, places, coefficients, i, n < length, queries, count)
    for begin in range(0, length, at_once):
        both = (begin + n < length)[:, None] & within[None, :]
        values = tl.load(sources + place.to(tl.int64)[:, None] * width + d[None, :], mask=both, other=0.0)
        # The source rows of the next entries are looked up while these values are being loaded.
        after = begin + at_once + n
        i = tl.where(start + after < gap_start, start + after, start + after + gap)
        next_place, next_coefficient = load_entries(entries, places, coefficients, i, after < length, queries, count)
        if similarity == DOT or count == 0:
            term = coefficient[:, None] * values
        else:
            term = row_gradient(values, row[None, :], coefficient[:, None], similarity)
            term = tl.where((place < queries)[:, None], term, values)  # a row of gradients is added unchanged
        total += tl.sum(term, axis=0)
        place, coefficient = next_place, next_coefficient
    return total


@triton.jit
def chunk_kernel(
    entity_table, sources, entries, places, coefficients, keys, starts, chunk_sums, relation_count, queries, total,
    count: tl.constexpr, width: tl.constexpr, similarity: tl.constexpr, chunk: tl.constexpr, at_once: tl.constexpr,
    columns: tl.constexpr,
) -> None:  # fmt: skip
    """Sum some columns of a chunk of sorted entries, if the chunk belongs to one long segment."""
    c = tl.program_id(0)
    if (c + 1) * chunk <= total:
        key = tl.load(keys + c * chunk).to(tl.int64)
        start, end = tl.load(starts + key), tl.load(starts + key + 1)
        if (end - start > 2 * chunk) & ((c + 1) * chunk <= end) & (c * chunk >= start):
            d = tl.program_id(1) * columns + tl.arange(0, columns)
            within = d < width
            row = tl.zeros([columns], dtype=tl.float32)
            if similarity != DOT:
                is_entity = key >= relation_count
                row = tl.load(entity_table + (key - relation_count) * width + d, mask=within & is_entity, other=0.0)
            chunk_sum = sum_entries(
                sources, entries, places, coefficients, row, c * chunk, (c + 1) * chunk, (c + 1) * chunk,
                (c + 1) * chunk, d, within, queries, count, width, similarity, at_once, columns,
            )  # fmt: skip
            tl.store(chunk_sums + c.to(tl.int64) * width + d, chunk_sum, mask=within)


@triton.jit
def gather_gradient(
    sources, entries, places, coefficients, chunk_sums, row, start, end, d, within, queries,
    count: tl.constexpr, width: tl.constexpr, similarity: tl.constexpr, chunk: tl.constexpr, at_once: tl.constexpr,
    columns: tl.constexpr,
):  # fmt: skip
    """Return the gradient of one row from all its entries in columns d."""
    gap_start, gap_end = end, end
    if end - start > 2 * chunk:
        gap_start, gap_end = (start + chunk - 1) // chunk * chunk, end // chunk * chunk
    total = sum_entries(
        sources, entries, places, coefficients, row, start, gap_start, gap_end, end, d, within, queries,
        count, width, similarity, at_once, columns,
    )  # fmt: skip
    for c in range(gap_start // chunk, gap_end // chunk, at_once):
        i = c + tl.arange(0, at_once)
        both = (i < gap_end // chunk)[:, None] & within[None, :]
        some = tl.load(chunk_sums + i.to(tl.int64)[:, None] * width + d[None, :], mask=both, other=0.0)
        total += tl.sum(some, axis=0)
    return total


@triton.jit
def update_kernel(
    entity_table, entity_moment1, entity_moment2, relation_table, relation_moment1, relation_moment2,
    sources, entries, places, coefficients, starts, chunk_sums, addend, bias,
    relation_count, queries, lr, eps, strength,
    count: tl.constexpr, width: tl.constexpr, similarity: tl.constexpr, chunk: tl.constexpr, at_once: tl.constexpr,
    columns: tl.constexpr, method: tl.constexpr, beta1: tl.constexpr, beta2: tl.constexpr, power: tl.constexpr,
    rows_only: tl.constexpr, added: tl.constexpr,
) -> None:  # fmt: skip
    """Update some columns of one row of a table by its gradient and the gradient of the regularizer."""
    key = tl.program_id(0).to(tl.int64)
    start, end = tl.load(starts + key), tl.load(starts + key + 1)
    is_entity = key >= relation_count
    needed = end > start
    if added:
        needed = needed | is_entity
    if not rows_only or needed:
        d = tl.program_id(1) * columns + tl.arange(0, columns)
        within = d < width
        i = tl.where(is_entity, key - relation_count, key) * width + d
        table = tl.where(is_entity, entity_table, relation_table)
        moments2 = tl.where(is_entity, entity_moment2, relation_moment2)
        moments1 = tl.where(is_entity, entity_moment1, relation_moment1)
        x = tl.load(table + i, mask=within, other=0.0)
        moment2 = tl.load(moments2 + i, mask=within, other=0.0)
        moment1 = x if method == ADAGRAD else tl.load(moments1 + i, mask=within, other=0.0)
        gradient = gather_gradient(
            sources, entries, places, coefficients, chunk_sums, x, start, end, d, within, queries,
            count, width, similarity, chunk, at_once, columns,
        )  # fmt: skip
        if added:
            gradient += tl.load(addend + i, mask=within & is_entity, other=0.0)
        if power > 0:
            gradient += penalty_gradient(x, strength, power)
        x, moment1, moment2 = optimizer_step(
            x, gradient, moment1, moment2, lr, eps, tl.load(bias), tl.load(bias + 1), method, beta1, beta2
        )
        tl.store(table + i, x, mask=within)
        tl.store(moments2 + i, moment2, mask=within)
        if method != ADAGRAD:
            tl.store(moments1 + i, moment1, mask=within)


@triton.jit
def finish_kernel(
    losses, loss, scale_gradient, scale, scale_moment1, scale_moment2, bias, counter1, counter2, counter3,
    triples, lr, eps, scaled: tl.constexpr, method: tl.constexpr, beta1: tl.constexpr, beta2: tl.constexpr,
    counters: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """Sum the losses, update `scale` and add 1 to the counters of the optimizer, all in one program."""
    total = tl.zeros([block], dtype=tl.float64)
    gradients = tl.zeros([block, 2], dtype=tl.float32)
    two = tl.arange(0, 2)
    for start in range(0, triples, block):
        i = start + tl.arange(0, block)
        total += tl.load(losses + i, mask=i < triples, other=0.0).to(tl.float64)
        if scaled:
            there = (i < triples)[:, None]
            gradients += tl.load(scale_gradient + i[:, None] * 2 + two[None, :], mask=there, other=0.0)
    tl.store(loss, tl.sum(total, axis=0))
    if scaled:
        gradient = tl.sum(gradients, axis=0)
        x, moment2 = tl.load(scale + two), tl.load(scale_moment2 + two)
        moment1 = x if method == ADAGRAD else tl.load(scale_moment1 + two)
        x, moment1, moment2 = optimizer_step(
            x, gradient, moment1, moment2, lr, eps, tl.load(bias), tl.load(bias + 1), method, beta1, beta2
        )
        tl.store(scale + two, x)
        tl.store(scale_moment2 + two, moment2)
        if method != ADAGRAD:
            tl.store(scale_moment1 + two, moment1)
    tl.store(counter1, tl.load(counter1) + 1)
    if counters > 1:
        tl.store(counter2, tl.load(counter2) + 1)
    if counters > 2:
        tl.store(counter3, tl.load(counter3) + 1)
