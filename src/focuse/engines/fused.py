"""The engine for a GPU: the reference's step with Triton kernels, replayed as one CUDA graph.

The same numbers as the reference up to rounding; sums over rows go by atomic additions, so two runs differ in
their last bits. It serves models that compare by a product or a distance, trained by Adam over whole tables;
the reference serves all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec

import torch
from torch import Tensor

from focuse.engines.base import (
    AdamOptimiser,
    Batch,
    Corruptions,
    Hints,
    ObjectiveFunction,
    Penalty,
    Step,
    TableOptimiser,
)
from focuse.engines.reference import ReferenceEngine
from focuse.models import Model

WARM_UP = 3  # steps before a graph is recorded: kernels compile, memory finds its place


class FusedEngine(ReferenceEngine):
    """Owns tables on a GPU; a step never copies the corruptions' rows and never waits for its own result."""

    optimiser: AdamOptimiser

    def __init__(
        self,
        model: Model,
        entity: Tensor,
        relation: Tensor,
        optimiser: AdamOptimiser,
        dense: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__(model, entity, relation, optimiser, dense)
        self.gradients = {name: torch.zeros_like(table) for name, table in self.tables.items()}

    @staticmethod
    def lacks(model: Model, device: torch.device, optimiser: TableOptimiser) -> str:
        """Why it cannot serve, '' if it can."""
        if device.type != "cuda":
            return "it needs an NVIDIA GPU (--device cuda)"
        if find_spec("triton") is None:
            return "it needs the package triton"
        if model.form == "other" or type(model).candidates is not Model.candidates:
            return f"it cannot compare as {model.name} does"
        return "" if isinstance(optimiser, AdamOptimiser) else "it needs the optimizer 'adam'"

    def step(  # type: ignore[override]  # a tensor that nobody waits for
        self,
        batch: Batch,
        corruptions: list[Corruptions],
        objective: ObjectiveFunction,
        beta: float | Tensor,
        penalty: Penalty | None = None,
        scale: float = 1.0,
        hints: Hints | None = None,
    ) -> Tensor:
        """As the reference's, but the loss comes as a tensor [] and is not looked at."""
        dense = {name: self.tables[name].detach().requires_grad_() for name in self.model.dense}
        model = self.model.with_dense(dense)
        rows = _Rows(self, batch)
        query = model.query(rows.head, rows.kind, "tail")
        positive = model.compare(query, rows.tail)
        groups = [_group(self, model, group, rows, query) for group in corruptions]

        # The kernels' comparisons are where autograd is cut in two: from here to the loss, then back to the rows.
        products = [part.detach().requires_grad_() for part in (positive, *(group.products for group in groups))]
        found, *others = (model.finish(part) for part in products)
        parts = [
            objective(found, negative, batch.weight, group.counted(len(self.tables["entity"])), beta).sum()
            for negative, group in zip(others, corruptions, strict=True)
        ]
        more = None
        if hints is not None:
            more = _Rows(self, hints.batch)
            score = model.score(more.head, more.kind, more.tail)
            parts.append(hints.loss(score, hints.batch.weight) * (len(batch) * len(corruptions)))
        loss = torch.stack(parts).sum()
        (loss * scale).backward()  # type: ignore[no-untyped-call]
        slopes = [_gradient(part) for part in products]

        outputs, gradients = [positive], [slopes[0]]
        for group, slope in zip(groups, slopes[1:], strict=True):
            outputs.append(group.output)
            gradients.append(group.back(slope))
        if penalty is not None and penalty.scope == "rows":
            outputs.append(torch.as_tensor(penalty([rows.head, rows.kind, rows.tail])))
            gradients.append(torch.ones_like(outputs[-1]))
        torch.autograd.backward(outputs, gradients)
        for part in (rows, *groups, *([] if more is None else [more])):
            part.collect()
        for name, leaf in dense.items():
            self.gradients[name] += _gradient(leaf)
        self._update(penalty)
        return loss.detach().double()

    def _update(self, penalty: Penalty | None) -> None:
        from focuse.engines.kernels import adam

        power, strength = 0, 0.0
        if penalty is not None and penalty.scope == "tables":
            power, strength = penalty.power, penalty.strength
        for name, table in self.tables.items():
            if name in self.model.dense:
                power, strength = 0, 0.0  # they come last, and no penalty lies on them
            mean, square, steps = self.optimiser.moments(name)
            steps += 1
            adam(table, self.gradients[name], mean, square, steps, self.optimiser.lr, power, strength)

    def prepare(self, compute: Step) -> Step:
        """`compute` recorded as a CUDA graph once warm: hundreds of launches become one."""
        return _Replayed(compute, self._changed)

    def _changed(self) -> None:
        self._known_twins = None


class _Rows:
    """The rows of some triples, and where their gradients go."""

    def __init__(self, engine: FusedEngine, batch: Batch) -> None:
        self.batch, self.into = batch, engine.gradients
        entity = engine.tables["entity"]
        self.head, self.tail = _leaf(entity, batch.head), _leaf(entity, batch.tail)
        self.kind = _leaf(engine.tables["relation"], batch.relation)

    def collect(self) -> None:
        self.into["entity"].index_add_(0, self.batch.head, _gradient(self.head))
        self.into["entity"].index_add_(0, self.batch.tail, _gradient(self.tail))
        self.into["relation"].index_add_(0, self.batch.relation, _gradient(self.kind))


def _group(engine: FusedEngine, model: Model, group: Corruptions, rows: _Rows, query: Tensor) -> _Own | _Pool:
    if group.side != "both":
        known = query if group.side == "tail" else model.query(rows.tail, rows.kind, "head")
        return _Pool(engine, model, group, known, rows.kind)
    queries = torch.stack([query, model.query(rows.tail, rows.kind, "head")], dim=1)
    return _Own(engine, group, queries)


class _Own:
    """Each positive's own corruptions, scored and sent back by kernels."""

    def __init__(self, engine: FusedEngine, group: Corruptions, queries: Tensor) -> None:
        from focuse.engines.kernels import own_scores

        if group.entities is None or group.tails is None:
            raise ValueError("corruptions of both sides need their entities and sides")
        self.engine, self.output = engine, queries
        self.asked = (queries.detach(), engine.tables["entity"], group.entities, group.tails, engine.model.form)
        self.products = own_scores(*self.asked)

    def back(self, slope: Tensor) -> Tensor:
        from focuse.engines.kernels import own_gradients

        return own_gradients(*self.asked, self.products, slope, self.engine.gradients["entity"])

    def collect(self) -> None:
        """Nothing is left to do: the kernel has added the rows' gradients."""


class _Pool:
    """One pool for all positives, or every entity: a matrix product, which autograd does well."""

    def __init__(self, engine: FusedEngine, model: Model, group: Corruptions, query: Tensor, kind: Tensor) -> None:
        entity = engine.tables["entity"]
        self.ids, self.into = group.entities, engine.gradients["entity"]
        self.rows = entity.detach().requires_grad_() if self.ids is None else _leaf(entity, self.ids)
        self.products = self.output = model.pooled(query, kind, self.rows)

    def back(self, slope: Tensor) -> Tensor:
        return slope

    def collect(self) -> None:
        if self.ids is None:
            self.into += _gradient(self.rows)
        else:
            self.into.index_add_(0, self.ids, _gradient(self.rows))


class _Replayed:
    """A step as a CUDA graph, one for each number of rows; the first steps of each run as they are."""

    def __init__(self, compute: Step, changed: Callable[[], None]) -> None:
        self.compute, self.changed = compute, changed
        self.warm: dict[int, int] = {}
        self.graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self.beta: Tensor | None = None
        self.key: Tensor | None = None

    def __call__(self, rows: Tensor, beta: float | Tensor, key: int | Tensor) -> Tensor:
        if self.beta is None or self.key is None:
            self.beta = torch.zeros((), dtype=torch.float64, device=rows.device)
            self.key = torch.zeros((), dtype=torch.int64, device=rows.device)
        self.beta.fill_(beta)
        self.key.fill_(key)
        self.changed()
        size = len(rows)
        self.warm[size] = self.warm.get(size, 0) + 1
        if self.warm[size] <= WARM_UP:
            return self._aside(rows, self.beta, self.key)
        if size not in self.graphs:
            held = rows.clone()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                loss = self.compute(held, self.beta, self.key)
            self.graphs[size] = graph, held, torch.as_tensor(loss)
        graph, held, loss = self.graphs[size]
        held.copy_(rows)
        graph.replay()
        return loss.clone()  # the next replay writes over it

    def _aside(self, *inputs: Tensor) -> Tensor:
        """On a stream of its own, as recording wants its warm-up."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            loss = self.compute(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        return torch.as_tensor(loss)


def _leaf(table: Tensor, ids: Tensor) -> Tensor:
    """Rows of a table from where gradients are collected: [B] -> [B, d]."""
    return table.index_select(0, ids).requires_grad_()


def _gradient(rows: Tensor) -> Tensor:
    return rows.grad if rows.grad is not None else torch.zeros_like(rows)
