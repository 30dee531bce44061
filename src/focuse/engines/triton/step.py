"""The common parts of a training step on a GPU: task, buffers, sorted entries, auxiliary triples and row updates.

A step consists of a few kernel launches. The gradients of the rows of the positives are computed (per_triple.py,
shared_pool.py) while the entries are sorted by the row that they update. Then the gradient of every row is summed and
the row is updated (update_kernels.py), the losses are summed and the step counters are increased.
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

from focuse.engines.base import NONLINEARITY_CODES, QUERY_CODES, SIMILARITY_CODES, FusableOptimizer
from focuse.engines.triton.device_math import (
    backpropagate_triple,
    divide_by_distance,
    focused_score,
    load_row,
    make_query,
    similarity_of_sum,
    similarity_terms,
    triple_rows,
)
from focuse.engines.triton.update_kernels import chunk_kernel, finish_kernel, key_kernel, source_kernel, update_kernel
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
    """The inputs of one step and the tables that it updates.

    `beta` is a float64 tensor []; `auxiliary` triples have no negatives; `groups` is the number of groups of negatives.
    """

    model: Model
    tables: dict[str, Tensor]
    optimizer: FusableOptimizer
    tuning: Tuning
    objective: FusedObjective
    batch: Batch
    beta: Tensor
    regularizer: Regularizer | None
    scale: float
    auxiliary: Batch | None
    groups: int

    @property
    def width(self) -> int:
        """Number of columns of a row."""
        return self.tables["entity"].shape[1]

    @property
    def triples(self) -> int:
        """Number of positives and auxiliary triples."""
        return len(self.batch) + (len(self.auxiliary) if self.auxiliary else 0)

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
        self.entries = self.negatives + 3 * task.triples + pool_size
        self.queries = 2 * len(batch)
        floats = {"dtype": torch.float32, "device": device}
        rows = self.queries + 3 * task.triples + pool_size
        self.sources = torch.empty(rows, task.width, **floats)  # type: ignore[call-overload]
        self.gradients = self.sources[self.queries :]
        self.coefficients = torch.empty(max(self.negatives, 1), **floats)  # type: ignore[call-overload]
        self.losses = torch.empty(task.triples, **floats)  # type: ignore[call-overload]
        self.scale_gradient = torch.empty(task.triples if task.scaled else 1, 2, **floats)  # type: ignore[call-overload]
        self.head, self.relation, self.tail = batch.head, batch.relation, batch.tail
        if task.auxiliary is not None:
            self.head = torch.cat([batch.head, task.auxiliary.head])
            self.relation = torch.cat([batch.relation, task.auxiliary.relation])
            self.tail = torch.cat([batch.tail, task.auxiliary.tail])


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
        ids, buffers.head, buffers.tail, buffers.relation, pool, task.optimizer.counters()[0], keys, bias,
        buffers.negatives, task.triples, buffers.pool_size, relation_count, *task.optimizer.spec.betas, block,
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
        buffers.losses, loss, buffers.scale_gradient, *dense, entries.bias, *(counters * 3)[:3], task.triples,
        spec.lr, spec.eps, scaled=task.scaled, counters=len(counters), block=1024, **how,
    )  # fmt: skip
    return loss


@triton.jit
def auxiliary_kernel(
    entity_table, relation_table, scale, heads, relations, tails, confidences, out, losses, scale_gradient,
    positives, triples, factor, share,
    half: tl.constexpr, width: tl.constexpr, operation: tl.constexpr, similarity: tl.constexpr,
    nonlinearity: tl.constexpr, scaled: tl.constexpr, columns: tl.constexpr,
) -> None:  # fmt: skip
    """Compute the loss share · max(0, c − φ(f))² and the gradients of one auxiliary triple with confidence c.

    One program computes one triple. In the buffers, the auxiliary triples follow the `positives`.
    """
    s = tl.program_id(0).to(tl.int64)
    b = positives + s
    head, relation, tail = triple_rows(entity_table, relation_table, heads, relations, tails, s, width)
    gain, offset = 1.0, 0.0
    if scaled:
        gain, offset = tl.load(scale), tl.load(scale + 1)
    total = tl.zeros([columns], dtype=tl.float32)
    for start in range(0, half, columns):
        d = start + tl.arange(0, columns)
        h, h_i = load_row(head, d, half, operation)
        r, r_i = load_row(relation, d, half, operation)
        t, t_i = load_row(tail, d, half, operation)
        query, query_i = make_query(h, h_i, r, r_i, operation, False)
        total += similarity_terms(query, query_i, t, t_i, similarity, operation)
    raw = similarity_of_sum(tl.sum(total, axis=0), similarity)
    plausibility, slope = focused_score(raw, gain, offset, 1.0, 0.0, nonlinearity)
    shortfall = tl.maximum(tl.load(confidences + s) - plausibility, 0.0)
    tl.store(losses + b, share * shortfall * shortfall)
    by_score = -2.0 * share * factor * shortfall * slope
    if scaled:
        tl.store(scale_gradient + b * 2, by_score * raw)
        tl.store(scale_gradient + b * 2 + 1, by_score)
    coefficient = divide_by_distance(by_score * gain, raw, similarity)
    for start in range(0, half, columns):
        d = start + tl.arange(0, columns)
        none = tl.zeros([columns], dtype=tl.float32)
        backpropagate_triple(
            head, relation, tail, d, none, none, none, none, coefficient, out, b, triples, 0.0,
            half, width, operation, similarity, 0,
        )  # fmt: skip


def auxiliary_losses(buffers: StepBuffers) -> None:
    """Compute the losses and gradients of the auxiliary triples, weighted by the `rule_weight` of the objective."""
    task = buffers.task
    if task.auxiliary is None:
        return
    share = task.objective.rule_weight * len(task.batch) * task.groups / len(task.auxiliary)
    auxiliary_kernel[(len(task.auxiliary),)](
        task.tables["entity"], task.tables["relation"], task.scale_table, task.auxiliary.head,
        task.auxiliary.relation, task.auxiliary.tail, task.auxiliary.weight, buffers.gradients, buffers.losses,
        buffers.scale_gradient, len(task.batch), task.triples, task.scale, share, **task.layout(),
        nonlinearity=NONLINEARITY_CODES[task.objective.nonlinearity], scaled=task.scaled, columns=task.columns(512),
        num_warps=4,
    )  # fmt: skip


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
