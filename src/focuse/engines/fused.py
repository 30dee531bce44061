"""The engine for a GPU: the reference's step with Triton kernels, replayed as one CUDA graph.

The same numbers as the reference up to rounding; sums over rows go by atomic additions, so two runs differ in
their last bits. It serves models that compare by a product or a distance, trained by Adam over whole tables;
the reference serves all others.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor

from focuse.engines.base import AdamOptimiser, Batch, Corruptions, ObjectiveFunction, Penalty, Step, TableOptimiser
from focuse.engines.reference import ReferenceEngine
from focuse.models import Model

WARM_UP = 3  # steps before a graph is recorded: kernels compile, memory finds its place


class FusedEngine(ReferenceEngine):
    """Owns tables on a GPU; a step never copies the corruptions' rows and never waits for its own result."""

    optimiser: AdamOptimiser

    def __init__(self, model: Model, entity: Tensor, relation: Tensor, optimiser: AdamOptimiser) -> None:
        super().__init__(model, entity, relation, optimiser)
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
    ) -> Tensor:
        """As the reference's, but the loss comes as a tensor [] and is not looked at."""
        head, tail = (_leaf(self.tables["entity"], ids) for ids in (batch.head, batch.tail))
        kind = _leaf(self.tables["relation"], batch.relation)
        query = self.model.query(head, kind, "tail")
        positive = self.model.compare(query, tail)
        groups = [self._group(group, head, kind, tail, query) for group in corruptions]

        scores = [part.detach().requires_grad_() for part in (positive, *(group.scores for group in groups))]
        parts = [
            objective(scores[0], negative, batch.weight, group.mask, beta).sum()
            for negative, group in zip(scores[1:], corruptions, strict=True)
        ]
        loss = torch.stack(parts).sum()
        (loss * scale).backward()  # type: ignore[no-untyped-call]
        slopes = [part.grad if part.grad is not None else torch.zeros_like(part) for part in scores]

        # From the scores back to the rows, and from the rows to the places where they lie.
        outputs, gradients = [positive], [slopes[0]]
        for group, slope in zip(groups, slopes[1:], strict=True):
            outputs.append(group.output)
            gradients.append(group.back(slope))
        if penalty is not None and penalty.scope == "rows":
            outputs.append(torch.as_tensor(penalty([head, kind, tail])))
            gradients.append(torch.ones_like(outputs[-1]))
        torch.autograd.backward(outputs, gradients)
        for table, ids, rows in (
            ("entity", batch.head, head),
            ("entity", batch.tail, tail),
            ("relation", batch.relation, kind),
        ):
            self.gradients[table].index_add_(0, ids, _gradient(rows))
        for group in groups:
            group.finish()
        self._update(penalty)
        return loss.detach().double()

    def _group(self, group: Corruptions, head: Tensor, kind: Tensor, tail: Tensor, query: Tensor) -> _Own | _Pool:
        if group.side != "both":
            known = query if group.side == "tail" else self.model.query(tail, kind, "head")
            return _Pool(self, group, known, kind)
        queries = torch.stack([query, self.model.query(tail, kind, "head")], dim=1)
        return _Own(self, group, queries)

    def _update(self, penalty: Penalty | None) -> None:
        from focuse.engines.kernels import adam

        whole = penalty if penalty is not None and penalty.scope == "tables" else None
        power, strength = (whole.power, whole.strength) if whole is not None else (0, 0.0)
        for name, table in self.tables.items():
            mean, square, steps = self.optimiser.moments(name)
            steps += 1
            adam(table, self.gradients[name], mean, square, steps, self.optimiser.lr, power, strength)

    def prepare(self, compute: Step) -> Step:
        """`compute` recorded as a CUDA graph once warm: hundreds of launches become one."""
        return _Replayed(compute, self._changed)

    def _changed(self) -> None:
        self._known_twins = None


class _Own:
    """Each positive's own corruptions, scored and sent back by kernels."""

    def __init__(self, engine: FusedEngine, group: Corruptions, queries: Tensor) -> None:
        from focuse.engines.kernels import own_scores

        if group.entities is None or group.tails is None:
            raise ValueError("corruptions of both sides need their entities and sides")
        self.engine, self.output = engine, queries
        self.asked = (queries.detach(), engine.tables["entity"], group.entities, group.tails, engine.model.form)
        self.scores = own_scores(*self.asked)

    def back(self, slope: Tensor) -> Tensor:
        from focuse.engines.kernels import own_gradients

        return own_gradients(*self.asked, self.scores, slope, self.engine.gradients["entity"])

    def finish(self) -> None:
        """Nothing is left to do: the kernel has added the rows' gradients."""


class _Pool:
    """One pool for all positives, or every entity: a matrix product, which autograd does well."""

    def __init__(self, engine: FusedEngine, group: Corruptions, query: Tensor, kind: Tensor) -> None:
        entity = engine.tables["entity"]
        self.ids, self.into = group.entities, engine.gradients["entity"]
        self.rows = entity.detach().requires_grad_() if self.ids is None else _leaf(entity, self.ids)
        self.scores = self.output = engine.model.shared(query, kind, self.rows)

    def back(self, slope: Tensor) -> Tensor:
        return slope

    def finish(self) -> None:
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
