"""The fused CPU engine, which computes a training step in C++.

It computes the same numbers as the autograd engine up to rounding, uses all cores and does not copy embedding rows. Its
results are bitwise reproducible. With per-triple negatives, the scores, the loss and the gradients of a positive are
computed in one loop; with shared negatives, they are computed by blocked matrix products. The gradient of each row is
gathered and applied at once, so no gradient table is stored, and a row-wise optimizer touches only the rows of the
batch.

If the fused form of a model names a query, C++ also computes the queries. For all other models with a fused form,
torch computes the queries (`AutogradQueries`) and backpropagates their gradients to the rows of the batch and to the
shared parameters before the update.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Mapping
from functools import cached_property

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.engines.autograd import AutogradEngine
from focuse.engines.base import (
    LOSS_CODES,
    METHOD_CODES,
    NONLINEARITY_CODES,
    OPTIMIZER_NEEDED,
    QUERY_CODES,
    SIMILARITY_CODES,
    FusableOptimizer,
    Step,
    TableOptimizer,
    address,
    fused_objective,
    unsupported_model,
)
from focuse.engines.native import (
    LONG,
    SWITCH,
    ObjectiveStruct,
    OptimizerStruct,
    PoolStruct,
    StepStruct,
    TableStruct,
    library,
)
from focuse.models.base import Model, components_of
from focuse.objective.losses import FusedObjective, Regularizer
from focuse.objective.negatives import Negatives


class AutogradQueries:
    """The queries of B positives on both sides and of S auxiliary triples, computed by torch, and their backward pass.

    `values` [2, B + S, d] holds the tail queries, then the head queries (0 for auxiliary triples) of the model in
    training mode. Only the rows of the batch are gathered from the tables. If `inverse` is given, relation
    r + `inverse` is the inverse of relation r, and there are no auxiliary triples.
    """

    def __init__(self, model: Model, tables: Mapping[str, Tensor], step: Step, inverse: int | None = None) -> None:
        batch, auxiliary = step.positives, step.auxiliary
        self.parameters = {name: _leaf(table) for name, table in model.parameters.items() if name not in model.buffers}
        model = model.bind({**model.parameters, **self.parameters}, model.context.in_training(step.seed))
        relations = batch.relation if inverse is None else torch.cat([batch.relation, batch.relation + inverse])
        self.rows = [
            _leaf(F.embedding(batch.head, tables["entity"])),
            _leaf(F.embedding(relations, tables["relation"])),
            _leaf(F.embedding(batch.tail, tables["entity"])),
        ]
        head, relation, tail = self.rows
        if inverse is None:
            self.asked = [model.query(head, relation, "tail"), model.query(tail, relation, "head")]
        else:  # one batch for both sides, so that batch normalization sees the same kind of batch as in ranking
            self.asked = list(model.query(torch.cat([head, tail]), relation, "tail").chunk(2))
        if auxiliary is not None:
            known = _leaf(F.embedding(auxiliary.head, tables["entity"]))
            relation = _leaf(F.embedding(auxiliary.relation, tables["relation"]))
            self.rows += [known, relation]
            self.asked.append(model.query(known, relation, "tail"))
        self.count = len(batch)
        self.values = torch.zeros(2, sum(map(len, self.asked[::2])), tables["entity"].shape[1])
        for query, place in zip(self.asked, self._places(self.values), strict=True):
            if query.shape != place.shape:
                raise ValueError(f"{model.name}: expected queries {tuple(place.shape)}, found {tuple(query.shape)}")
            place.copy_(query.detach())

    def _places(self, both: Tensor) -> list[Tensor]:
        """Return the part of a tensor [2, B + S, d] that belongs to each tensor of queries."""
        return [both[0, : self.count], both[1, : self.count], both[0, self.count :]][: len(self.asked)]

    def back(self, gradient: Tensor, of_ends: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Backpropagate the gradient of `values` to the relation of each triple [B + S, r] and to the parameters.

        Inverse relations follow all others. The gradients of heads and tails are added to `of_ends` [2, B + S, d].
        """
        leaves, count = [*self.rows, *self.parameters.values()], self.count
        found = torch.autograd.grad(self.asked, leaves, self._places(gradient), allow_unused=True)
        whole = [torch.zeros_like(leaf) if part is None else part for leaf, part in zip(leaves, found, strict=True)]
        head, relation, tail = whole[:3]
        of_ends[0, :count] += head
        of_ends[1, :count] += tail
        if len(self.rows) > 3:
            of_ends[0, count:] += whole[3]
            relation = torch.cat([relation, whole[4]])
        return relation, dict(zip(self.parameters, whole[len(self.rows) :], strict=True))


def _leaf(values: Tensor) -> Tensor:
    return values.detach().requires_grad_()


SCOPE_CODES = {"tables": 0, "touched": 1, "rows": 2}
# Positives are divided into groups, and at most one thread works on each group. Each group has its own sum of the
# gradient of the whole pool. The number of groups depends only on the machine, so that the number of threads does not
# change the sums; if the sums would take more than 1 GB, there are fewer groups.
GROUPS = min(16, os.cpu_count() or 1)
MAX_POOL_WORKSPACE = 1 << 28  # floats
POOL_PIECE = 1 << 16  # entities of a pool that are scored together; the scores of a larger pool are computed twice
PARTS = 64  # parts of a batch, as in step.hpp: if there are few relations, their gradients are summed per part
# Rows that `update` reads in random order are stored in blocks of columns that fit into the private cache of a core.
CACHE_BYTES = 5 << 18
BLOCK_COLUMNS = (48, 40, 32, 24, 16)  # the block widths that step.hpp supports
PRECOMPUTED = 3  # the query operation of models whose queries AutogradQueries computes
TABLES = ("entity", "relation")
MIN_PARALLEL_SCORES = 4096  # for fewer scores per step, one thread is faster than several


class FusedCpuEngine(AutogradEngine):
    """An engine that holds its tables in main memory and computes a step in C++."""

    optimizer: FusableOptimizer

    @cached_property
    def query_operation(self) -> int:
        """The code of the operation by which C++ computes queries."""
        query = None if self.model.fused is None else self.model.fused.query
        return PRECOMPUTED if query is None else QUERY_CODES[query]

    @cached_property
    def _buffers(self) -> dict[str, Tensor]:
        return {}

    @staticmethod
    def unsupported_reason(
        model: Model, device: torch.device, optimizer: TableOptimizer, inverse_relations: bool = False
    ) -> str:
        """Return why this engine does not support the training, or '' if it does."""
        if device.type != "cpu":
            return "its C++ kernels need a CPU"
        if library() is None:
            return f"its C++ kernels were not built (install a C++ compiler, then reinstall focuse), or {SWITCH} is off"
        if model.fused is None:
            return unsupported_model(model)
        return "" if isinstance(optimizer, FusableOptimizer) else OPTIMIZER_NEEDED

    def step(self, step: Step) -> float | Tensor:
        """Take one step in C++ if it is supported, otherwise with autograd."""
        fused = fused_objective(step.objective)
        per_triple = [group for group in step.negatives if group.side == "both"]
        # C++ scores auxiliary triples on the tail side only; with inverse relations, the head side would be missing.
        unknown_loss = fused is None or fused.loss != "squared-error" or self.inverse_relations
        unsupported = step.auxiliary is not None and unknown_loss
        unsupported |= any(self.modulus_components(step.regularizer, table) is None for table in TABLES)
        if fused is None or unsupported or len(per_triple) not in (0, len(step.negatives)) or len(per_triple) > 1:
            return super().step(step)
        native = _NativeStep(self, step, fused)
        if per_triple:
            native.per_triple_negatives(per_triple[0])
        else:
            native.shared_negatives(step.negatives)
        self.scorer.invalidate()
        return native.update()

    def modulus_components(self, regularizer: Regularizer | None, table: str) -> int | None:
        """Return the number of components of the numbers in `table` whose moduli are regularized.

        A complex number has two components. Without a regularizer of moduli the result is 1. None means that the C++
        library does not support the table.
        """
        if regularizer is None or not regularizer.moduli:
            return 1
        components = components_of(self.model)[TABLES.index(table)]
        unsupported = regularizer.power != 3 or components == 0 or self.tables[table].shape[1] % components
        return None if unsupported else components

    def buffer(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return an uninitialized tensor of the given shape, whose memory is reused in every step."""
        size = math.prod(shape)
        kept = self._buffers.get(name)
        if kept is None or len(kept) < size:
            kept = self._buffers[name] = torch.empty(size, dtype=dtype)
        return kept[:size].view(shape)


class _NativeStep:
    """Computes one step with the C++ library: it fills the `Step` structure and calls the library's functions."""

    def __init__(self, engine: FusedCpuEngine, step: Step, fused: FusedObjective) -> None:
        batch, auxiliary, regularizer = step.positives, step.auxiliary, step.regularizer
        self.engine, self.positives = engine, len(batch)
        self.kept_alive: list[Tensor] = []  # tensors to which the structure points
        extra = len(auxiliary) if auxiliary is not None else 0
        self.triples = self.positives + extra
        struct = self.struct = StepStruct()
        struct.entities, struct.relations = (self._table(name, regularizer) for name in TABLES)
        for name in ("head", "relation", "tail", "weight"):
            values = getattr(batch, name)
            if auxiliary is not None:
                values = torch.cat([values, getattr(auxiliary, name)])
            setattr(struct, name, self._pointer(values))
        struct.positives, struct.auxiliary = self.positives, extra
        struct.auxiliary_weight = fused.rule_weight * self.positives * len(step.negatives) / extra if extra else 0.0
        struct.query_operation = engine.query_operation
        struct.similarity = SIMILARITY_CODES[engine.model.similarity]
        inverse_offset = engine.scorer.inverse_offset
        struct.inverse_offset = inverse_offset or 0
        self.relation_entries = self.triples + (0 if inverse_offset is None else self.positives)
        struct.objective = _objective(fused, float(step.beta), step.scale, engine.model.parameters.get("scale"))
        struct.optimizer = _optimizer(engine.optimizer)
        width = self.width = engine.tables["entity"].shape[1]
        columns = struct.block_columns = _block_columns(width, 2 * self.triples)
        self.blocks, buffer = -(-width // columns), engine.buffer
        self.loss = buffer("loss", self.triples, dtype=torch.float64)
        struct.loss = address(self.loss)
        struct.raw_score = address(buffer("raw_score", 2, self.triples))
        self.queries = None
        if engine.query_operation == PRECOMPUTED:
            self.queries = AutogradQueries(engine.model, engine.tables, step, inverse_offset)
            struct.precomputed_queries = self._pointer(self.queries.values)
            struct.query_gradient = address(buffer("query_gradient", 2, self.triples, width))
            # Whole rows are read in blocks of columns; values that are read beyond the last row are not used.
            struct.entity_gradient = address(buffer("entity_gradient", 2 * self.triples * width + columns))
        else:
            struct.entity_gradient = address(buffer("entity_gradient", self.blocks, 2 * self.triples, columns))
            relations = len(engine.tables["relation"])
            struct.sum_relations = PARTS * relations < self.positives
            rows = PARTS * relations + extra if struct.sum_relations else self.relation_entries
            struct.relation_gradient = address(buffer("relation_gradient", rows, width))
        struct.scale_gradient = address(buffer("scale_gradient", self.triples, 2))
        struct.threads = torch.get_num_threads()

    def _pointer(self, tensor: Tensor) -> int | None:
        self.kept_alive.append(tensor.contiguous())
        return address(self.kept_alive[-1])

    def _table(self, name: str, regularizer: Regularizer | None) -> TableStruct:
        table, optimizer = self.engine.tables[name], self.engine.optimizer
        moment1, moment2, _ = optimizer.moments(name)
        power, scope, strength = 0, 0, 0.0
        if regularizer is not None:
            power, scope, strength = regularizer.power, SCOPE_CODES[regularizer.scope], regularizer.strength
        components = self.engine.modulus_components(regularizer, name) or 1
        pointers = (address(part) for part in (table, moment1, moment2))
        return TableStruct(*pointers, *table.shape, power, scope, components, 1, strength)

    def _call(self, function: str, *more: object) -> int:
        return int(getattr(library(), function)(ctypes.byref(self.struct), *more))

    def per_triple_negatives(self, group: Negatives) -> None:
        """Compute the losses and gradients of positives with per-triple negatives."""
        entities, replaces_tail = group.per_triple()
        struct, shape = self.struct, entities.shape
        struct.negatives, struct.negatives_per_positive = self._pointer(entities) if shape[1] else None, shape[1]
        struct.replaces_tail = self._pointer(replaces_tail)
        struct.mask = None if group.mask is None else self._pointer(group.mask)
        struct.negative_gradient = address(self.engine.buffer("negative_gradient", *shape))
        struct.queries = address(self.engine.buffer("queries", self.blocks, 2 * self.positives, struct.block_columns))
        if shape[0] * (shape[1] + 1) < MIN_PARALLEL_SCORES:
            struct.threads = 1
        self._call("per_triple_negatives")

    def shared_negatives(self, groups: list[Negatives]) -> None:
        """Compute the losses and gradients of positives with shared negatives, by matrix products."""
        struct, entities = self.struct, len(self.engine.tables["entity"])
        struct.pool_piece = POOL_PIECE
        ids = [group.entities for group in groups]
        repeated = [number > 0 and ids[number] is ids[number - 1] for number in range(len(ids))]
        sizes = [entities if pool is None else len(pool) for pool in ids]
        total = sum(size for size, same in zip(sizes, repeated, strict=True) if not same)
        gradient = self.engine.buffer("pool_gradient", total, self.width)
        pools, row = (PoolStruct * len(groups))(), 0
        for pool, group, size, same in zip(pools, groups, sizes, repeated, strict=True):
            pool.entities = None if group.entities is None else self._pointer(group.entities)
            pool.size, pool.replaces_tail, pool.same_as_previous = size, group.side == "tail", same
            pool.target = None if group.target is None else self._pointer(group.target)
            pool.mask = None if group.mask is None else self._pointer(group.mask)
            if group.known is not None:
                pool.known_rows, pool.known_entities = (self._pointer(part) for part in group.known)
                pool.known_count = len(group.known[0])
            pool.gradient = address(gradient[row:])
            row += 0 if same else size
        if total > entities or ids[0] is not None:
            every = torch.arange(entities)
            parts = [every if pool is None else pool for pool, same in zip(ids, repeated, strict=True) if not same]
            struct.pool, struct.pool_size = self._pointer(torch.cat(parts)), total
        struct.pool_gradient = address(gradient)
        arguments = pools, ctypes.c_int64(len(groups))
        struct.groups = GROUPS
        threads, struct.threads = struct.threads, 0  # the number of groups must not depend on the number of threads
        while struct.groups > 1 and self._call("pool_workspace_size", *arguments) > MAX_POOL_WORKSPACE:
            struct.groups -= 1
        struct.threads = threads
        workspace = self.engine.buffer("pool_workspace", self._call("pool_workspace_size", *arguments))
        self._call("shared_negatives", *arguments, ctypes.c_void_p(address(workspace)))

    def update(self) -> float:
        """Take the optimizer step and return the loss."""
        struct = self.struct
        if struct.auxiliary:
            self._call("auxiliary_triples")
        loss = float(self.loss.sum())
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss}")
        negatives = self.positives * struct.negatives_per_positive if struct.negatives else 0
        entries = 2 * self.triples + struct.pool_size + negatives
        if entries >= 2**32:
            raise ValueError(f"{entries:,} gradient rows in one batch are too many; lower the batch size")
        dense = self._dense_gradients()
        for counter in self.engine.optimizer.counters():
            counter += 1
        struct.optimizer = _optimizer(self.engine.optimizer)
        sort_buffer = self.engine.buffer("sort_buffer", 7 * entries + 6 * self.relation_entries, dtype=torch.int32)
        struct.sort_buffer = address(sort_buffer)
        self._call("update")
        for name, gradient in dense.items():
            values = self.engine.tables[name]
            tensors = [values, *self.engine.optimizer.moments(name)[:2], gradient]
            self._call("update_dense", *(ctypes.c_void_p(address(part)) for part in tensors), LONG(values.numel()))
        return loss

    def _dense_gradients(self) -> dict[str, Tensor]:
        """Return the gradients of the shared parameters, after backpropagating those of precomputed queries."""
        engine = self.engine
        dense: dict[str, Tensor] = {}
        if self.queries is not None:
            shape = 2, self.triples, self.width
            entity_gradient = engine.buffer("entity_gradient", 2 * self.triples * self.width).view(shape)
            relation_gradient, dense = self.queries.back(engine.buffer("query_gradient", *shape), entity_gradient)
            self.struct.relation_gradient = self._pointer(relation_gradient)
        if "scale" in engine.model.parameters:
            total = dense.get("scale", torch.zeros_like(engine.tables["scale"])).contiguous()
            self._call("add_scale_gradient", ctypes.c_void_p(address(total)))
            dense["scale"] = total
        return {name: gradient.contiguous() for name, gradient in dense.items()}


def _block_columns(width: int, rows: int) -> int:
    """Return the number of columns per block.

    It is the largest width at which `rows` rows fit into the cache, but at least 32, reduced to the smallest width that
    needs the same number of blocks.
    """
    most = next((columns for columns in BLOCK_COLUMNS if 4 * columns * rows <= CACHE_BYTES), 32)
    blocks = -(-width // max(most, 32))
    return min(columns for columns in BLOCK_COLUMNS if blocks * columns >= width)


def _objective(fused: FusedObjective, beta: float, scale: float, affine: Tensor | None) -> ObjectiveStruct:
    gain, offset = (1.0, 0.0) if affine is None else affine.tolist()
    return ObjectiveStruct(
        loss=LOSS_CODES[fused.loss],
        nonlinearity=NONLINEARITY_CODES[fused.nonlinearity],
        shift=fused.shift,
        margin=fused.margin,
        temperature=fused.temperature,
        beta=beta if fused.focused else 1.0,
        scale=scale,
        gain=gain,
        offset=offset,
    )


def _optimizer(optimizer: FusableOptimizer) -> OptimizerStruct:
    spec, steps = optimizer.spec, float(optimizer.counters()[0])
    (beta1, beta2), method = spec.betas, METHOD_CODES[spec.method]
    biases = {"bias1": 1.0 - beta1**steps, "bias2": 1.0 - beta2**steps}
    return OptimizerStruct(
        method=method, whole=spec.whole, lr=spec.lr, beta1=beta1, beta2=beta2, eps=spec.eps, **biases
    )
