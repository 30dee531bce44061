"""A training step on a GPU: task, buffers, the two ways to compute gradients, sorted entries and row updates.

A step consists of a few kernel launches. The gradients of the rows of the positives are computed (`per_triple_step`,
`shared_pool_step`) while the entries are sorted by the row that they update. Then one program per row sums its gradient
and updates it, the losses are summed and the step counters are increased. No gradient table is stored.

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

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from focuse.engines.base import (
    LOSS_CODES,
    METHOD_CODES,
    NONLINEARITY_CODES,
    QUERY_CODES,
    SIMILARITY_CODES,
    FusableOptimizer,
)
from focuse.engines.triton.device_math import (
    ADAGRAD,
    COMPLEX,
    DOT,
    L1,
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
    optimizer_step,
    penalty_gradient,
    positive_loss,
    row_gradient,
    sign,
    similarity_of_sum,
    similarity_terms,
    store_row,
    triple_rows,
)
from focuse.models.base import Model
from focuse.objective.losses import FusedObjective, Regularizer
from focuse.objective.negatives import Batch, Negatives


@dataclass(frozen=True)
class Tuning:
    """Tile sizes of the kernels, compared by `benchmarks/engines.py --sweep`; they change results by rounding only."""

    block: int = 32  # negatives of a positive at a time
    columns: int = 64  # columns of a row at a time, in a positive's program
    warps: int = 1  # with one warp, sums need no barrier, which would cost more than the work itself
    entries: int = 4  # entries of a row at a time
    row_columns: int = 256  # columns of a row, in a row's program
    row_warps: int = 1
    chunk: int = 64  # entries of a long segment that a separate program sums first
    overlap_sort: bool = True  # whether entries are sorted while the positives' programs run

    @classmethod
    def of(cls, similarity: str) -> Tuning:
        """Return the sizes that were fastest on an H200 for rows of 400 and 800 floats."""
        return cls() if similarity == "dot" else cls(columns=32, row_columns=64)


@dataclass(frozen=True)
class StepTask:
    """The inputs of one step and the tables that it updates; `beta` is a float64 tensor []."""

    model: Model
    tables: dict[str, Tensor]
    optimizer: FusableOptimizer
    tuning: Tuning
    objective: FusedObjective
    batch: Batch
    beta: Tensor
    regularizer: Regularizer | None
    scale: float

    @property
    def width(self) -> int:
        """Number of columns of a row."""
        return self.tables["entity"].shape[1]

    @property
    def scaled(self) -> bool:
        """Whether the model has a trained gain and offset for all scores."""
        return "scale" in self.model.parameters

    @property
    def scale_table(self) -> Tensor:
        """Gain and offset [2]; without them, a placeholder that the kernels do not read."""
        return self.tables["scale" if self.scaled else "entity"]

    def penalty(self, per_triple: bool) -> tuple[int, float]:
        """Return the power and strength of the regularizer, or (0, 0) if it has another scope.

        The scope is 'rows' if `per_triple` is True, otherwise 'tables' or 'touched'.
        """
        if self.regularizer is None or (self.regularizer.scope == "rows") != per_triple:
            return 0, 0.0
        return self.regularizer.power, self.regularizer.strength

    def layout(self) -> dict[str, int]:
        """Return the widths of rows and the codes of query operation and similarity, for kernels that read rows."""
        query = self.model.fused.query if self.model.fused is not None else None
        operation = QUERY_CODES[query or "hadamard"]
        half = self.width // 2 if query == "complex" else self.width
        similarity = SIMILARITY_CODES[self.model.similarity]
        return {"half": half, "width": self.width, "operation": operation, "similarity": similarity}

    def columns(self, most: int) -> int:
        """Return the number of columns that a program reads at a time: a power of two, at most `most`."""
        return min(most, int(triton.next_power_of_2(self.layout()["half"])))


class StepBuffers:
    """The buffers that kernels fill and that `update_rows` sums.

    `sources` holds the two queries of each positive, followed by `gradients`, the gradients of heads, tails, relations
    and rows of the pool.
    """

    def __init__(self, task: StepTask, count: int = 0, pool_size: int = 0) -> None:
        """Allocate the buffers for `count` negatives per positive and a pool of `pool_size` rows."""
        batch, device = task.batch, task.tables["entity"].device
        self.task, self.count, self.pool_size = task, count, pool_size
        self.negatives = len(batch) * count
        self.entries = self.negatives + 3 * len(batch) + pool_size
        self.queries = 2 * len(batch)
        floats = {"dtype": torch.float32, "device": device}
        rows = self.queries + 3 * len(batch) + pool_size
        self.sources = torch.empty(rows, task.width, **floats)  # type: ignore[call-overload]
        self.gradients = self.sources[self.queries :]
        self.coefficients = torch.empty(max(self.negatives, 1), **floats)  # type: ignore[call-overload]
        self.losses = torch.empty(len(batch), **floats)  # type: ignore[call-overload]
        self.scale_gradient = torch.empty(len(batch) if task.scaled else 1, 2, **floats)  # type: ignore[call-overload]


# ---- kernels that sum the gradient of a row and update the row ----------------------------------------------------


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


# ---- launching them ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SortedEntries:
    """The entries, sorted by the row that they update.

    `keys`, `entries` and `places` (rows of the buffers' `sources`) are [n]; `starts` [rows + 1] holds the index of the
    first entry of each row; `bias` [2] holds 1 − βᵗ for Adam's bias correction.
    """

    keys: Tensor
    entries: Tensor
    places: Tensor
    starts: Tensor
    bias: Tensor


def sort_entries(buffers: StepBuffers, ids: Tensor, sides: Tensor, pool: Tensor) -> SortedEntries:
    """Sort the entries of a step; `ids` and `sides` belong to the negatives, and `pool` holds the ids of the pool."""
    task = buffers.task
    relation_count = len(task.tables["relation"])
    rows = len(task.tables["entity"]) + relation_count
    # The time of a radix sort is proportional to the number of bits of its keys.
    dtype = torch.int16 if rows < 2**15 else torch.int32
    keys = torch.empty(buffers.entries, dtype=dtype, device=ids.device)
    bias = torch.empty(2, device=ids.device)
    block = 1024
    key_kernel[(triton.cdiv(buffers.entries, block),)](
        ids, task.batch.head, task.batch.tail, task.batch.relation, pool, task.optimizer.counters()[0], keys, bias,
        buffers.negatives, len(task.batch), buffers.pool_size, relation_count, *task.optimizer.spec.betas, block,
    )  # fmt: skip
    ordered, order = torch.sort(keys, stable=True)
    bounds = torch.arange(rows + 1, dtype=dtype, device=ids.device)
    starts = torch.searchsorted(ordered, bounds, out_int32=True)
    entries, places = (torch.empty(buffers.entries, dtype=torch.int32, device=ids.device) for _ in range(2))
    source_kernel[(triton.cdiv(buffers.entries, block),)](
        order, sides, entries, places, len(task.batch), buffers.negatives, buffers.entries, buffers.count, block
    )
    return SortedEntries(ordered, entries, places, starts, bias)


def update_rows(buffers: StepBuffers, entries: SortedEntries, addend: Tensor | None = None) -> Tensor:
    """Sum the entries, update every row and return the loss, float64 []. `addend` [E, d] is an additional gradient."""
    task, spec, tuning = buffers.task, buffers.task.optimizer.spec, buffers.task.tuning
    tables, optimizer = task.tables, task.optimizer
    relation_count = len(tables["relation"])
    chunks = triton.cdiv(buffers.entries, tuning.chunk)
    chunk_sums = torch.empty(chunks, task.width, device=buffers.sources.device)
    columns = min(tuning.row_columns, triton.next_power_of_2(task.width))
    sizes = {"count": buffers.count, "width": task.width, "similarity": SIMILARITY_CODES[task.model.similarity],
             "chunk": tuning.chunk, "at_once": tuning.entries, "columns": columns,
             "num_warps": max(1, min(tuning.row_warps, columns // 128))}  # fmt: skip
    pieces = triton.cdiv(task.width, columns)
    chunk_kernel[(chunks, pieces)](
        tables["entity"], buffers.sources, entries.entries, entries.places, buffers.coefficients, entries.keys,
        entries.starts, chunk_sums, relation_count, buffers.queries, buffers.entries, **sizes,
    )  # fmt: skip
    power, strength = task.penalty(per_triple=False)
    how = {"method": METHOD_CODES[spec.method], "beta1": spec.betas[0], "beta2": spec.betas[1]}
    update_kernel[(relation_count + len(tables["entity"]), pieces)](
        tables["entity"], *optimizer.moments("entity")[:2], tables["relation"], *optimizer.moments("relation")[:2],
        buffers.sources, entries.entries, entries.places, buffers.coefficients, entries.starts, chunk_sums,
        chunk_sums if addend is None else addend, entries.bias, relation_count, buffers.queries, spec.lr, spec.eps,
        strength, power=power, rows_only=not spec.whole, added=addend is not None, **how, **sizes,
    )  # fmt: skip
    loss = torch.empty((), dtype=torch.float64, device=chunk_sums.device)
    dense = (task.scale_table, *optimizer.moments("scale" if task.scaled else "entity")[:2])
    counters = optimizer.counters()
    finish_kernel[(1,)](
        buffers.losses, loss, buffers.scale_gradient, *dense, entries.bias, *(counters * 3)[:3], len(task.batch),
        spec.lr, spec.eps, scaled=task.scaled, counters=len(counters), block=1024, **how,
    )  # fmt: skip
    return loss


_streams: dict[torch.device, torch.cuda.Stream] = {}


@contextmanager
def side_stream(device: torch.device, overlap: bool) -> Iterator[None]:
    """Launch the kernels of the block on a side stream, which runs in parallel until `join_side_stream`."""
    if device.type != "cuda" or not overlap:
        yield
        return
    stream = _streams.setdefault(device, torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield


def join_side_stream(device: torch.device, overlap: bool) -> None:
    """Let the current stream wait for the side stream."""
    if device.type == "cuda" and overlap:
        torch.cuda.current_stream(device).wait_stream(_streams[device])


# ---- per-triple negatives: one program per positive ------------------------------------------------------------------
# A program computes the scores, the FocusE layer, the loss and the gradients of the three rows of the positive. The
# gradients of the rows of the negatives are computed by `update_rows` from the stored queries and coefficients. A
# program reads each row twice, in pieces of `columns`: once for the scores and once for the gradients. The second read
# mostly hits the L1 cache (32 rows of 800 floats are 100 kB).


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
    task, objective, batch, tuning = buffers.task, buffers.task.objective, buffers.task.batch, buffers.task.tuning
    entities, replaces_tail = group.per_triple()
    ids, sides = entities.contiguous(), replaces_tail.contiguous().view(torch.uint8)
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
    entities, replaces_tail = group.per_triple()
    device = entities.device
    buffers = StepBuffers(task, count=entities.shape[1])
    sides = replaces_tail.contiguous().view(torch.uint8)
    with side_stream(device, task.tuning.overlap_sort):
        entries = sort_entries(buffers, entities.contiguous(), sides, entities)
    differentiate(buffers, group)
    join_side_stream(device, task.tuning.overlap_sort)
    return update_rows(buffers, entries)


# ---- shared negatives: one pool for all positives, or every entity ---------------------------------------------------
# The matrix of raw scores, positives × pool, is computed in blocks of columns. If there is more than one block, every
# block is computed twice, because the softmax of a positive needs all of its scores before any gradient. A block [B, C]
# first holds raw scores, which are then overwritten by the coefficients of the gradients. For a dot product, matrix
# products compute and use the block; for a distance, `distance_kernel` and `distance_gradient_kernel` do. Its rows are
# `stride` floats long, a multiple of the tile size, and padded with zeros beyond C, so that tiles need no masks.

BLOCK_SCORES = 1 << 24  # maximum number of scores per block, 64 MB
PRODUCT_PRECISION = "tf32"  # precision of the inputs of matrix products in training; ranking always uses float32
TILE = 64  # rows and columns of a tile of distances


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
    similarity: tl.constexpr, loss: tl.constexpr, nonlinearity: tl.constexpr, focused: tl.constexpr,
    scaled: tl.constexpr, listed: tl.constexpr, targeted: tl.constexpr, masked: tl.constexpr, filtered: tl.constexpr,
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
        tl.store(scores + b * stride + c, divide_by_distance(by_score * gain, raw, similarity), mask=c < stride)
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
    similarity: tl.constexpr, loss: tl.constexpr, nonlinearity: tl.constexpr, focused: tl.constexpr,
    scaled: tl.constexpr, fresh: tl.constexpr, block: tl.constexpr,
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
    coefficient = divide_by_distance(by_score * gain, raw, similarity)
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


@triton.jit
def distance_kernel(
    queries, rows, scores, count, query_stride, stride,
    width: tl.constexpr, similarity: tl.constexpr, tile_rows: tl.constexpr, tile_columns: tl.constexpr,
) -> None:  # fmt: skip
    """Compute one tile of the scores −‖q − x‖ [count, stride].

    Both inputs are stored transposed: `queries` [width, query_stride], `rows` [width, stride].
    """
    b = tl.program_id(0).to(tl.int64) * tile_rows + tl.arange(0, tile_rows)
    c = tl.program_id(1).to(tl.int64) * tile_columns + tl.arange(0, tile_columns)
    total = tl.zeros([tile_rows, tile_columns], dtype=tl.float32)
    query, row = queries + b, rows + c
    for _d in range(width):
        difference = tl.load(query)[:, None] - tl.load(row)[None, :]
        total += tl.abs(difference) if similarity == L1 else difference * difference
        query += query_stride
        row += stride
    if similarity != L1:
        total = tl.sqrt(total)
    # Columns beyond the width of the block are not used.
    tl.store(scores + b[:, None] * stride + c[None, :], -total, mask=(b < count)[:, None])


@triton.jit
def distance_gradient_kernel(
    own, others, coefficients, out, own_count, other_count, own_stride, other_stride, coefficient_stride, out_stride,
    width: tl.constexpr, similarity: tl.constexpr, added: tl.constexpr, tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
) -> None:  # fmt: skip
    """Compute one tile of the gradients of the rows `own` [own_count, width], summed over all rows `others`.

    `coefficients` is [other_count, coefficient_stride]. If `added` is True, the sum is added to `out`.
    """
    b = tl.program_id(0).to(tl.int64) * tile_rows + tl.arange(0, tile_rows)
    d = tl.program_id(1).to(tl.int64) * tile_columns + tl.arange(0, tile_columns)
    there = (b < own_count)[:, None] & (d < width)[None, :]
    x = tl.load(own + b[:, None] * own_stride + d[None, :], mask=there, other=0.0)
    total = tl.zeros([tile_rows, tile_columns], dtype=tl.float32)
    coefficient, other = coefficients + b, others + d
    for _c in range(other_count):
        difference = tl.load(other, mask=d < width, other=0.0)[None, :] - x
        direction = sign(difference) if similarity == L1 else difference
        total += tl.load(coefficient)[:, None] * direction
        coefficient += coefficient_stride
        other += other_stride
    if added:
        total += tl.load(out + b[:, None] * out_stride + d[None, :], mask=there, other=0.0)
    tl.store(out + b[:, None] * out_stride + d[None, :], total, mask=there)


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
            more = {"positives": self.positives, "sums": self.sums, "factor": task.scale, "margin": objective.margin,
                    "similarity": task.layout()["similarity"]}  # fmt: skip
            self._launch(score_gradient_kernel, group, scores, start, len(block), len(rows), start == 0, more)
            self._backpropagate(queries, query_gradients, block, scores, into[start : start + wide], added)
        positive_kernel[(triton.cdiv(count, 128),)](
            task.scale_table, task.batch.weight, task.beta, self.positives, self.softmax, self.sums,
            self.buffers.losses, self.coefficients, self.buffers.scale_gradient, count, task.scale, objective.shift,
            objective.margin, similarity=task.layout()["similarity"], loss=LOSS_CODES[objective.loss],
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
        task, wide = self.task, len(rows)
        if task.model.similarity == "dot":
            torch.mm(queries, rows.t(), out=scores[:, :wide])
        else:
            grid = (triton.cdiv(len(queries), TILE), triton.cdiv(wide, TILE))
            distance_kernel[grid](
                _transposed(queries), _transposed(rows, scores.shape[1]), scores, len(queries),
                _round_up(len(queries)), scores.shape[1], width=task.width, similarity=task.layout()["similarity"],
                tile_rows=TILE, tile_columns=TILE, num_warps=4,
            )  # fmt: skip
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
        if self.task.model.similarity == "dot":
            query_gradients.addmm_(coefficients, rows)
            into.addmm_(coefficients.t(), queries, beta=float(added))
            return
        similarity, width = self.task.layout()["similarity"], self.task.width
        sums = (
            (queries, rows, _transposed(coefficients), query_gradients, True),
            (rows, queries, coefficients, into, added),
        )
        for own, others, factors, out, more in sums:
            grid = (triton.cdiv(len(own), TILE), triton.cdiv(width, TILE))
            distance_gradient_kernel[grid](
                own, others, factors, out, len(own), len(others), own.stride(0), others.stride(0), factors.stride(0),
                out.stride(0), width=width, similarity=similarity, added=more, tile_rows=TILE, tile_columns=TILE,
                num_warps=4,
            )  # fmt: skip


def _round_up(size: int) -> int:
    return -(-size // TILE) * TILE


def _transposed(x: Tensor, wide: int = 0) -> Tensor:
    """Transpose [n, m] -> [m, n'], padded with zeros to a multiple of the tile size, or to `wide` columns."""
    out = torch.zeros(x.shape[1], wide or _round_up(len(x)), device=x.device)
    out[:, : len(x)] = x.t()
    return out


@contextmanager
def product_precision() -> Iterator[None]:
    """Set the input precision of matrix products to PRODUCT_PRECISION for tensor cores; sums are in float32."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = PRODUCT_PRECISION
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
