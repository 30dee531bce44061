"""The common parts of a training step on a GPU: task, buffers, sorted entries and row updates.

A step consists of a few kernel launches. The gradients of the rows of the positives are computed (per_triple.py,
shared_pool.py) while the entries are sorted by the row that they update. Then one program per row sums its gradient and
updates it, the losses are summed and the step counters are increased. No gradient table is stored.

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

import torch
import triton
import triton.language as tl
from torch import Tensor

from focuse.engines.base import QUERY_CODES, SIMILARITY_CODES, FusableOptimizer
from focuse.engines.triton.device_math import ADAGRAD, DOT, optimizer_step, penalty_gradient, row_gradient
from focuse.models.base import Model
from focuse.objective.losses import FusedObjective, Regularizer
from focuse.objective.negatives import Batch


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
    method = {"adam": 0, "adagrad": 1}[spec.method]
    how = {"method": method, "beta1": spec.betas[0], "beta2": spec.betas[1]}
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
