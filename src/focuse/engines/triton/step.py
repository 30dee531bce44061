"""One training step as a handful of launches: `Task` says what is asked, `own_step` does it.

The gradients of the positives' rows are computed (own.py) while the entries are sorted by the row they move; then
every row is summed and updated (rows.py), the losses are summed and the step is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from focuse.engines.base import (
    FORM_CODES,
    LOSS_CODES,
    NONLINEARITY_CODES,
    TURN_CODES,
    Batch,
    Corruptions,
    OpenOptimiser,
    Penalty,
    Recipe,
)
from focuse.engines.triton.own import hint_kernel, own_kernel
from focuse.engines.triton.rows import chunk_kernel, end_kernel, key_kernel, place_kernel, row_kernel
from focuse.models import Model


@dataclass(frozen=True)
class Tuning:
    """What `benchmarks/engines.py --sweep` tries: sizes of the programs; results differ by rounding only."""

    block: int = 32  # corruptions of a positive at a time
    columns: int = 64  # of a row at a time, in a positive's program
    warps: int = 1  # one: sums within a warp need no barrier, which cost more than the work
    entries: int = 4  # of a row's entries at a time
    row_columns: int = 256  # of a row, in a row's program
    row_warps: int = 1
    chunk: int = 64  # entries of a long segment that are summed beforehand
    aside: bool = True  # whether sorting goes on beside the positives' programs

    @classmethod
    def of(cls, form: str) -> Tuning:
        """What was fastest on an H200 for rows of 400 and 800 numbers."""
        return cls() if form == "dot" else cls(columns=32, row_columns=64)


@dataclass(frozen=True)
class Task:
    """One step: what to compute, on which tables; `beta` float64 [], `hints` further triples without corruptions."""

    model: Model
    tables: dict[str, Tensor]
    optimiser: OpenOptimiser
    tuning: Tuning
    recipe: Recipe
    batch: Batch
    beta: Tensor
    penalty: Penalty | None
    scale: float
    hints: Batch | None
    groups: int

    @property
    def width(self) -> int:
        return self.tables["entity"].shape[1]

    @property
    def triples(self) -> int:
        return len(self.batch) + (len(self.hints) if self.hints else 0)

    @property
    def scaled(self) -> bool:
        return "scale" in self.model.dense

    @property
    def scale_table(self) -> Tensor:
        """The dense tensor, or any other for kernels that do not look at it."""
        return self.tables["scale" if self.scaled else "entity"]

    def penalised(self, of_rows: bool) -> tuple[int, float]:
        """Power and strength of the penalty if it is one of the triples' rows (or one of tables), else (0, 0)."""
        if self.penalty is None or (self.penalty.scope == "rows") != of_rows:
            return 0, 0.0
        return self.penalty.power, self.penalty.strength

    def shape(self) -> dict[str, int]:
        """How wide rows are, what queries and comparisons do: what all kernels over pieces of rows need to know."""
        turn = TURN_CODES[self.model.turn]
        half = self.width // 2 if self.model.turn == "complex" else self.width
        return {"half": half, "width": self.width, "turn": turn, "form": FORM_CODES[self.model.form]}

    def columns(self, most: int) -> int:
        """Columns of a piece: a power of two."""
        return min(most, int(triton.next_power_of_2(self.shape()["half"])))


class Sources:
    """What a step's entries are made of: buffers that kernels fill and `move` sums up."""

    def __init__(self, task: Task, count: int = 0, pooled: int = 0) -> None:
        """For `count` corruptions a positive, and a pool of `pooled` rows."""
        batch, device = task.batch, task.tables["entity"].device
        self.task, self.count, self.pooled = task, count, pooled
        self.negatives = len(batch) * count
        self.entries = self.negatives + 3 * task.triples + pooled
        self.queries = 2 * len(batch)
        floats = {"dtype": torch.float32, "device": device}
        rows = self.queries + 3 * task.triples + pooled
        self.rows = torch.empty(rows, task.width, **floats)  # type: ignore[call-overload]
        self.pieces = self.rows[self.queries :]
        self.coefficients = torch.empty(max(self.negatives, 1), **floats)  # type: ignore[call-overload]
        self.losses = torch.empty(task.triples, **floats)  # type: ignore[call-overload]
        self.of_scale = torch.empty(task.triples if task.scaled else 1, 2, **floats)  # type: ignore[call-overload]
        self.head, self.relation, self.tail = batch.head, batch.relation, batch.tail
        if task.hints is not None:
            self.head = torch.cat([batch.head, task.hints.head])
            self.relation = torch.cat([batch.relation, task.hints.relation])
            self.tail = torch.cat([batch.tail, task.hints.tail])


@dataclass(frozen=True)
class Order:
    """Entries sorted by the row they move: keys, numbers and places [n], where each row's begin [rows + 1]."""

    keys: Tensor
    numbers: Tensor
    places: Tensor
    starts: Tensor
    fadings: Tensor


def sort(sources: Sources, ids: Tensor, sides: Tensor, pool: Tensor) -> Order:
    """The order of a step's entries; `ids` and `sides` are the corruptions', `pool` the pool's ids."""
    task = sources.task
    relations = len(task.tables["relation"])
    rows = len(task.tables["entity"]) + relations
    # A radix sort's time goes with the bits of its keys.
    dtype = torch.int16 if rows < 2**15 else torch.int32
    keys = torch.empty(sources.entries, dtype=dtype, device=ids.device)
    fadings = torch.empty(2, device=ids.device)
    block = 1024
    key_kernel[(triton.cdiv(sources.entries, block),)](
        ids, sources.head, sources.tail, sources.relation, pool, task.optimiser.counters()[0], keys, fadings,
        sources.negatives, task.triples, sources.pooled, relations, *task.optimiser.rule.betas, block,
    )  # fmt: skip
    ordered, order = torch.sort(keys, stable=True)
    bounds = torch.arange(rows + 1, dtype=dtype, device=ids.device)
    starts = torch.searchsorted(ordered, bounds, out_int32=True)
    numbers, places = (torch.empty(sources.entries, dtype=torch.int32, device=ids.device) for _ in range(2))
    place_kernel[(triton.cdiv(sources.entries, block),)](
        order, sides, numbers, places, len(task.batch), sources.negatives, sources.entries, sources.count, block
    )
    return Order(ordered, numbers, places, starts, fadings)


def move(sources: Sources, order: Order, addend: Tensor | None = None) -> Tensor:
    """Sums the entries and moves every row; the loss, float64 []. `addend` [E, d] is a further gradient."""
    task, rule, tuning = sources.task, sources.task.optimiser.rule, sources.task.tuning
    tables, optimiser = task.tables, task.optimiser
    relations = len(tables["relation"])
    chunks = triton.cdiv(sources.entries, tuning.chunk)
    partial = torch.empty(chunks, task.width, device=sources.pieces.device)
    columns = min(tuning.row_columns, triton.next_power_of_2(task.width))
    shape = {"count": sources.count, "width": task.width, "form": FORM_CODES[task.model.form], "chunk": tuning.chunk,
             "entries": tuning.entries, "columns": columns,
             "num_warps": max(1, min(tuning.row_warps, columns // 128))}  # fmt: skip
    parts = triton.cdiv(task.width, columns)
    chunk_kernel[(chunks, parts)](
        tables["entity"], sources.rows, order.numbers, order.places, sources.coefficients, order.keys, order.starts,
        partial, relations, sources.queries, sources.entries, **shape,
    )  # fmt: skip
    power, strength = task.penalised(of_rows=False)
    kind = {"adam": 0, "adagrad": 1}[rule.method]
    steps = {"kind": kind, "first": rule.betas[0], "second": rule.betas[1]}
    row_kernel[(relations + len(tables["entity"]), parts)](
        tables["entity"], *optimiser.moments("entity")[:2], tables["relation"], *optimiser.moments("relation")[:2],
        sources.rows, order.numbers, order.places, sources.coefficients, order.starts, partial,
        partial if addend is None else addend, order.fadings, relations, sources.queries, rule.lr, rule.eps,
        strength, power=power, rows_only=not rule.whole, added=addend is not None, **steps, **shape,
    )  # fmt: skip
    loss = torch.empty((), dtype=torch.float64, device=partial.device)
    dense = (task.scale_table, *optimiser.moments("scale" if task.scaled else "entity")[:2])
    counters = optimiser.counters()
    end_kernel[(1,)](
        sources.losses, loss, sources.of_scale, *dense, order.fadings, *(counters * 3)[:3], task.triples,
        rule.lr, rule.eps, scaled=task.scaled, counts=len(counters), block=1024, **steps,
    )  # fmt: skip
    return loss


def infer(sources: Sources) -> None:
    """The part of the triples that rules infer; each counts as often as there are positives and groups."""
    task = sources.task
    if task.hints is None:
        return
    share = task.recipe.share * len(task.batch) * task.groups / len(task.hints)
    hint_kernel[(len(task.hints),)](
        task.tables["entity"], task.tables["relation"], task.scale_table, task.hints.head, task.hints.relation,
        task.hints.tail, task.hints.weight, sources.pieces, sources.losses, sources.of_scale,
        len(task.batch), task.triples, task.scale, share, **task.shape(),
        curve=NONLINEARITY_CODES[task.recipe.nonlinearity], scaled=task.scaled, columns=task.columns(512), num_warps=4,
    )  # fmt: skip


def judge(sources: Sources, group: Corruptions) -> None:
    """Scores, losses and gradients of positives with corruptions of their own: fills what `move` sums up."""
    if group.entities is None or group.tails is None:
        raise ValueError("corruptions of both sides need their entities and sides")
    task, recipe, batch, tuning = sources.task, sources.task.recipe, sources.task.batch, sources.task.tuning
    ids, sides = group.entities.contiguous(), group.tails.contiguous().view(torch.uint8)
    power, strength = task.penalised(of_rows=True)
    mask = sides if group.mask is None else group.mask.contiguous().view(torch.uint8)
    own_kernel[(len(batch),)](
        task.tables["entity"], task.tables["relation"], task.scale_table, batch.head, batch.relation, batch.tail,
        batch.weight, task.beta, ids, sides, mask, sources.rows, sources.coefficients, sources.pieces,
        sources.losses, sources.of_scale, task.triples, task.scale, strength, recipe.shift, recipe.margin,
        recipe.temperature, count=sources.count, **task.shape(), loss=LOSS_CODES[recipe.loss],
        curve=NONLINEARITY_CODES[recipe.nonlinearity], focused=recipe.focused, scaled=task.scaled,
        masked=group.mask is not None, power=power, block=min(tuning.block, triton.next_power_of_2(sources.count)),
        columns=task.columns(tuning.columns), num_warps=tuning.warps,
    )  # fmt: skip


def own_step(task: Task, group: Corruptions) -> Tensor:
    """The step of positives with corruptions of their own; the loss, float64 []."""
    if group.entities is None or group.tails is None:
        raise ValueError("corruptions of both sides need their entities and sides")
    device = group.entities.device
    sources = Sources(task, count=group.entities.shape[1])
    with beside(device, task.tuning.aside):
        order = sort(sources, group.entities.contiguous(), group.tails.contiguous().view(torch.uint8), group.entities)
    judge(sources, group)
    infer(sources)
    joined(device, task.tuning.aside)
    return move(sources, order)


_streams: dict[torch.device, torch.cuda.Stream] = {}


@contextmanager
def beside(device: torch.device, aside: bool) -> Iterator[None]:
    """Launches go to a stream of their own, beside what comes next, until `joined`."""
    if device.type != "cuda" or not aside:
        yield
        return
    stream = _streams.setdefault(device, torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield


def joined(device: torch.device, aside: bool) -> None:
    if device.type == "cuda" and aside:
        torch.cuda.current_stream(device).wait_stream(_streams[device])
