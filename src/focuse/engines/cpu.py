"""The engine for a CPU: the reference's step in loops of C++ (native/), all cores, no copies of rows.

The same numbers as the reference up to rounding, and the same bits whenever the same step is computed again. Each
positive's own corruptions are scored, judged and sent back in one loop; a pool that a batch shares meets it in
products of matrices, block by block. Gradients are gathered row by row and stepped on at once: there is no table of
gradients, and an optimiser of rows touches the batch's rows alone.

Of a model that is `plain()` the loops also make the queries. Any other that compares plainly makes them by torch, which
takes their gradients back to the batch's rows and to dense tensors before anything moves.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Mapping

import torch
from torch import Tensor

from focuse.engines.base import (
    FORM_CODES,
    LOSS_CODES,
    NONLINEARITY_CODES,
    TURN_CODES,
    Batch,
    Corruptions,
    Hints,
    ObjectiveFunction,
    OpenOptimiser,
    Penalty,
    Recipe,
    TableOptimiser,
    recipe_of,
    unlike,
)
from focuse.engines.native import SWITCH, address, library
from focuse.engines.native.layout import (
    LONG,
    ObjectiveLayout,
    OptimiserLayout,
    PoolLayout,
    StepLayout,
    TableLayout,
    checked,
)
from focuse.engines.queries import Queries
from focuse.engines.reference import ReferenceEngine
from focuse.models import Model, Reciprocal

METHODS = {"adam": 0, "adagrad": 1}
SCOPES = {"tables": 0, "touched": 1, "rows": 2}
# Groups of positives, at most as many threads work on them, and each sums a gradient of the whole pool: a number of the
# machine, so that how many threads there are changes no sum. Fewer, where that would be more than 1 GB.
GROUPS = min(16, os.cpu_count() or 1)
POOL_ROOM = 1 << 28
PIECE = 1 << 16  # columns of a pool at once; the products of a larger one are computed twice
PARTS = 64  # of a batch, as steps.cpp sums the gradients of few relations
# What the second walk reads in random order comes in blocks of columns that fit into a core's own cache.
CACHE = 5 << 18
STRIPS = (48, 40, 32, 24, 16)  # columns of a block that steps.cpp knows
GIVEN = 3  # the turn of queries that the loops do not make
TABLES = ("entity", "relation")
ALONE = 4096  # comparisons in a step below which a second thread costs more than it saves


class CpuEngine(ReferenceEngine):
    """Owns tables in main memory and trains them by native loops."""

    optimiser: OpenOptimiser

    def __init__(
        self,
        model: Model,
        entity: Tensor,
        relation: Tensor,
        optimiser: OpenOptimiser,
        dense: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__(model, entity, relation, optimiser, dense)
        self.turn = TURN_CODES[model.turn] if model.plain() else GIVEN
        self._room: dict[str, Tensor] = {}

    @staticmethod
    def lacks(model: Model, device: torch.device, optimiser: TableOptimiser) -> str:
        """Why it cannot serve, '' if it can."""
        if device.type != "cpu":
            return "its loops are for a CPU"
        if library() is None:
            return f"its loops were not built (install a C++ compiler, then focuse again), or {SWITCH} is off"
        if not model.compares_plainly() or model.encodes or _adds(model):
            return unlike(model)
        return (
            "" if isinstance(optimiser, OpenOptimiser) else "it needs the optimizer 'row-adam', 'adam' or 'row-adagrad'"
        )

    def step(
        self,
        batch: Batch,
        corruptions: list[Corruptions],
        objective: ObjectiveFunction,
        beta: float | Tensor,
        penalty: Penalty | None = None,
        scale: float = 1.0,
        hints: Hints | None = None,
        key: int | None = 0,
    ) -> float | Tensor:
        """As the reference's."""
        recipe = recipe_of(objective)
        own = [group for group in corruptions if group.side == "both"]
        # What rules infer is asked for tails in the loops: with two scores a triple that is but half of it.
        unknown = hints is not None and (recipe is None or recipe.loss != "squared-error" or self.model.sided)
        unknown |= any(self.numbers(penalty, table) is None for table in TABLES)
        if recipe is None or unknown or len(own) not in (0, len(corruptions)) or len(own) > 1:
            return super().step(batch, corruptions, objective, beta, penalty, scale, hints, key)
        step = _Step(self, batch, recipe, float(beta), penalty, scale, hints, len(corruptions), key)
        if own:
            step.own(own[0])
        else:
            step.pools(corruptions)
        self.changed()
        return step.update()

    def numbers(self, penalty: Penalty | None, table: str) -> tuple[int, int] | None:
        """Columns that make a number whose size is penalised, and spans of a row that hold such; None: unlike that."""
        if penalty is None or not penalty.moduli:
            return 1, 1
        model = self.model.inner if isinstance(self.model, Reciprocal) else self.model
        spans = 2 if model is not self.model and table == "relation" else 1
        usual = type(model).moduli is Model.moduli and penalty.power == 3
        return (model.parts, spans) if usual and self.tables[table].shape[1] % (model.parts * spans) == 0 else None

    def room(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Memory kept from step to step."""
        size = 1
        for extent in shape:
            size *= extent
        held = self._room.get(name)
        if held is None or len(held) < size:
            held = self._room[name] = torch.empty(size, dtype=dtype)
        return held[:size].view(shape)


class _Step:
    """One step: what the loops read and write, and the order in which they run."""

    def __init__(
        self,
        engine: CpuEngine,
        batch: Batch,
        recipe: Recipe,
        beta: float,
        penalty: Penalty | None,
        scale: float,
        hints: Hints | None,
        groups: int,
        key: int | None = 0,
    ) -> None:
        self.engine, self.count = engine, len(batch)
        self.keep: list[Tensor] = []  # what the loops point at must outlive them
        further = len(hints.batch) if hints is not None else 0
        self.all = self.count + further
        layout = self.layout = StepLayout()
        layout.entity, layout.relation = (self._table(name, penalty) for name in TABLES)
        for name in ("head", "kind", "tail", "weight"):
            source = "relation" if name == "kind" else name
            values = getattr(batch, source)
            if hints is not None:
                values = torch.cat([values, getattr(hints.batch, source)])
            setattr(layout, name, self._held(values))
        layout.positives, layout.hints = self.count, further
        layout.hint_weight = recipe.share * self.count * groups / further if further else 0.0
        layout.turn, layout.form, layout.sided = engine.turn, FORM_CODES[engine.model.form], engine.model.sided
        self.scaled = _scaled(engine.model)
        layout.objective = _objective(recipe, beta, scale, engine.model.dense["scale"] if self.scaled else None)
        layout.optimiser = _optimiser(engine.optimiser)
        width = self.width = engine.tables["entity"].shape[1]
        columns = layout.columns = _columns(width, 2 * self.all)
        self.blocks, room = -(-width // columns), engine.room
        self.loss = room("loss", self.all, dtype=torch.float64)
        layout.loss = address(self.loss)
        layout.comparison = address(room("comparison", 2, self.all))
        self.queries = None if engine.turn != GIVEN else Queries(engine.model, engine.tables, batch, hints, key)
        if self.queries is None:
            layout.of_end = address(room("of_end", self.blocks, 2 * self.all, columns))
            relations = len(engine.tables["relation"])
            layout.summed = PARTS * relations < self.count
            rows = PARTS * relations + further if layout.summed else self.all
            layout.of_relation = address(room("of_relation", rows, width))
        else:
            layout.given = self._held(self.queries.values)
            layout.of_query = address(room("of_query", 2, self.all, width))
            # Blocks of columns are read of whole rows: what is read behind the last one counts for nothing.
            layout.of_end = address(room("of_end", 2 * self.all * width + columns))
        layout.of_scale = address(room("of_scale", self.all, 2))
        layout.threads = torch.get_num_threads()

    def _held(self, tensor: Tensor) -> int | None:
        self.keep.append(tensor.contiguous())
        return address(self.keep[-1])

    def _table(self, name: str, penalty: Penalty | None) -> TableLayout:
        table, optimiser = self.engine.tables[name], self.engine.optimiser
        first, second, _ = optimiser.moments(name)
        power, scope, strength = (
            (0, 0, 0.0) if penalty is None else (penalty.power, SCOPES[penalty.scope], penalty.strength)
        )
        parts, spans = self.engine.numbers(penalty, name) or (1, 1)
        values = (address(part) for part in (table, first, second))
        return TableLayout(*values, *table.shape, power, scope, parts, spans, strength)

    def _call(self, function: str, *more: object) -> None:
        checked()[function](ctypes.byref(self.layout), *more)

    def own(self, group: Corruptions) -> None:
        """Each positive's own corruptions."""
        if group.entities is None or group.tails is None:
            raise ValueError("corruptions of both sides need their entities and sides")
        layout, shape = self.layout, group.entities.shape
        layout.corruptions, layout.count = self._held(group.entities), shape[1]
        layout.tails = self._held(group.tails)
        layout.mask = None if group.mask is None else self._held(group.mask)
        layout.slope = address(self.engine.room("slope", *shape))
        layout.query = address(self.engine.room("query", self.blocks, 2 * self.count, layout.columns))
        if shape.numel() < ALONE:
            layout.threads = 1
        self._call("own_corruptions")

    def pools(self, groups: list[Corruptions]) -> None:
        """Corruptions that the whole batch shares: products of matrices, the objective between them."""
        layout, entities = self.layout, len(self.engine.tables["entity"])
        layout.piece = PIECE
        ids = [group.entities for group in groups]
        shared = [place > 0 and ids[place] is ids[place - 1] for place in range(len(ids))]
        sizes = [entities if pool is None else len(pool) for pool in ids]
        total = sum(size for size, same in zip(sizes, shared, strict=True) if not same)
        gradient = self.engine.room("pool_gradient", total, self.width)
        pools, row = (PoolLayout * len(groups))(), 0
        for pool, group, size, same in zip(pools, groups, sizes, shared, strict=True):
            pool.entities = None if group.entities is None else self._held(group.entities)
            pool.size, pool.tails, pool.shares = size, group.side == "tail", same
            pool.target = None if group.target is None else self._held(group.target)
            pool.mask = None if group.mask is None else self._held(group.mask)
            if group.facts is not None:
                pool.fact_rows, pool.facts = (self._held(part) for part in group.facts)
                pool.known = len(group.facts[0])
            pool.gradient = address(gradient[row:])
            row += 0 if same else size
        if total > entities or ids[0] is not None:
            every = torch.arange(entities)
            parts = [every if pool is None else pool for pool, same in zip(ids, shared, strict=True) if not same]
            layout.pool, layout.pooled = self._held(torch.cat(parts)), total
        layout.pool_gradient = address(gradient)
        asked = pools, ctypes.c_int64(len(groups))
        layout.groups = GROUPS
        threads, layout.threads = layout.threads, 0  # a matter of groups alone: threads must change no sum
        while layout.groups > 1 and self._room_of(*asked) > POOL_ROOM:
            layout.groups -= 1
        layout.threads = threads
        size = self._room_of(*asked)
        self._call("pool_corruptions", *asked, ctypes.c_void_p(address(self.engine.room("pools", size))))

    def _room_of(self, *asked: object) -> int:
        return int(checked()["room_of_pools"](ctypes.byref(self.layout), *asked))

    def update(self) -> float:
        """The optimiser's step; the loss."""
        if self.layout.hints:
            self._call("hints")
        loss = float(self.loss.sum())
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss}")
        entries = 2 * self.all + self.layout.pooled + (self.count * self.layout.count if self.layout.corruptions else 0)
        if entries >= 2**32:
            raise ValueError(f"{entries:,} corruptions in one batch are too many; lower the batch size")
        dense = self._back()
        for counter in self.engine.optimiser.counters():
            counter += 1
        self.layout.optimiser = _optimiser(self.engine.optimiser)
        room = self.engine.room("sorted", 7 * entries + 6 * self.all, dtype=torch.int32)
        self.layout.sorted = address(room)
        self._call("update")
        for name, gradient in dense.items():
            values = self.engine.tables[name]
            held = [values, *self.engine.optimiser.moments(name)[:2], gradient]
            self._call("update_dense", *(ctypes.c_void_p(address(part)) for part in held), LONG(values.numel()))
        return loss

    def _back(self) -> dict[str, Tensor]:
        """The way back to what queries were made of; gradients of dense tensors."""
        engine = self.engine
        dense: dict[str, Tensor] = {}
        if self.queries is not None:
            shape = 2, self.all, self.width
            of_ends = engine.room("of_end", 2 * self.all * self.width).view(shape)
            of_relation, dense = self.queries.back(engine.room("of_query", *shape), of_ends)
            self.layout.of_relation = self._held(of_relation)
        if self.scaled:
            total = dense.get("scale", torch.zeros_like(engine.tables["scale"])).contiguous()
            self._call("add_scale", ctypes.c_void_p(address(total)))
            dense["scale"] = total
        return {name: gradient.contiguous() for name, gradient in dense.items()}


def _adds(model: Model) -> bool:
    """Whether a model has a loss of its own beside the objective."""
    inner = model.inner if isinstance(model, Reciprocal) else model
    return type(inner).extra is not Model.extra


def _scaled(model: Model) -> bool:
    """Whether `finish` applies the dense `scale`; where a model compares plainly, it else leaves numbers alone."""
    probe = torch.zeros(1)
    return model.finish(probe) is not probe


def _columns(width: int, rows: int) -> int:
    """Of a block: as many as the cache holds of so many rows, but at least 32; then as few as give as many blocks."""
    most = next((columns for columns in STRIPS if 4 * columns * rows <= CACHE), 32)
    blocks = -(-width // max(most, 32))
    return min(columns for columns in STRIPS if blocks * columns >= width)


def _objective(recipe: Recipe, beta: float, scale: float, affine: Tensor | None) -> ObjectiveLayout:
    slope, offset = (1.0, 0.0) if affine is None else affine.tolist()
    return ObjectiveLayout(
        loss=LOSS_CODES[recipe.loss],
        nonlinearity=NONLINEARITY_CODES[recipe.nonlinearity],
        shift=recipe.shift,
        margin=recipe.margin,
        temperature=recipe.temperature,
        beta=beta if recipe.focused else 1.0,
        scale=scale,
        slope=slope,
        offset=offset,
    )


def _optimiser(optimiser: OpenOptimiser) -> OptimiserLayout:
    rule, steps = optimiser.rule, float(optimiser.counters()[0])
    return OptimiserLayout(
        method=METHODS[rule.method],
        whole=rule.whole,
        lr=rule.lr,
        first=rule.betas[0],
        second=rule.betas[1],
        tiny=rule.eps,
        first_bias=1.0 - rule.betas[0] ** steps,
        second_bias=1.0 - rule.betas[1] ** steps,
    )
