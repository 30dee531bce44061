"""The engine for a GPU: a step is a handful of Triton kernels, replayed as one CUDA graph.

The same numbers as the reference up to rounding, and the same bits in every run: rows are summed in a sorted order.
It serves models that `plain()` describes, objectives that have a recipe, and optimisers that are open; the reference
serves all others.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from focuse.engines.base import (
    Batch,
    Corruptions,
    Hints,
    ObjectiveFunction,
    OpenOptimiser,
    Penalty,
    Recipe,
    Step,
    Steps,
    TableOptimiser,
    recipe_of,
    unlike,
)
from focuse.engines.reference import ReferenceEngine
from focuse.models import Model

if TYPE_CHECKING:
    from focuse.engines.triton.step import Tuning

TOGETHER = 16  # steps recorded as one
WARM_UP = 3  # steps before a graph is recorded: kernels compile, memory finds its place


class GpuEngine(ReferenceEngine):
    """Owns tables on a GPU; embeddings are read and gradients summed once a step, and nobody waits for its loss."""

    optimiser: OpenOptimiser
    together = TOGETHER

    def __init__(
        self,
        model: Model,
        entity: Tensor,
        relation: Tensor,
        optimiser: OpenOptimiser,
        dense: Mapping[str, Tensor] | None = None,
        tuning: Tuning | None = None,
    ) -> None:
        super().__init__(model, entity, relation, optimiser, dense)
        self.tuning = tuning
        self.recordable = True

    @staticmethod
    def lacks(model: Model, device: torch.device, optimiser: TableOptimiser) -> str:
        """Why it cannot serve, '' if it can."""
        if device.type != "cuda":
            return "it needs an NVIDIA GPU (--device cuda)"
        if find_spec("triton") is None:
            return "it needs the package triton"
        if not model.plain():
            return unlike(model)
        return "" if isinstance(optimiser, OpenOptimiser) else "it needs the optimizer adam, row-adam or row-adagrad"

    def step(  # type: ignore[override]  # a tensor that nobody waits for
        self,
        batch: Batch,
        corruptions: list[Corruptions],
        objective: ObjectiveFunction,
        beta: float | Tensor,
        penalty: Penalty | None = None,
        scale: float = 1.0,
        hints: Hints | None = None,
        key: int = 0,
    ) -> Tensor:
        """As the reference's, but the loss comes as a tensor [] and is not looked at."""
        self.changed()
        recipe = recipe_of(objective)
        # Known facts are pairs, and how many there are is known only when they were counted: no graph can hold that.
        self.recordable = all(group.facts is None for group in corruptions)
        complex_sizes = penalty is not None and penalty.moduli and self.model.parts > 1
        if recipe is None or complex_sizes or not _served(recipe, corruptions, objective, hints):
            self.recordable = False
            value = super().step(batch, corruptions, objective, beta, penalty, scale, hints, key)
            return torch.tensor(value, dtype=torch.float64, device=self.device)
        from focuse.engines.triton.pools import pool_step
        from focuse.engines.triton.step import Task, Tuning, own_step

        more = None if hints is None else hints.batch
        share = torch.as_tensor(beta, dtype=torch.float64, device=self.device)
        tuning = self.tuning or Tuning.of(self.model.form)
        task = Task(
            self.model, self.tables, self.optimiser, tuning, recipe, batch, share, penalty, scale,
            more, len(corruptions),
        )  # fmt: skip
        return own_step(task, corruptions[0]) if corruptions[0].side == "both" else pool_step(task, corruptions)

    def prepare(self, compute: Step) -> Steps:
        """`compute` recorded as a CUDA graph once warm, several steps in one: hundreds of launches become one."""
        return _Replayed(compute, self)


def _served(recipe: Recipe, corruptions: list[Corruptions], objective: ObjectiveFunction, hints: Hints | None) -> bool:
    """Whether kernels know this mixture of corruptions, and the hints' loss is the recipe's own."""
    if hints is not None and (recipe.loss != "squared-error" or getattr(hints.loss, "__self__", None) != objective):
        return False
    sides = {group.side for group in corruptions}
    if len(corruptions) == 1 and sides == {"both"}:
        return corruptions[0].target is None
    listed = any(group.facts is not None and group.entities is not None for group in corruptions)
    return bool(sides) and "both" not in sides and not listed


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """No garbage is collected meanwhile: freeing an older training's graphs would spoil the one being recorded."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class _Replayed:
    """Steps as CUDA graphs, one for each number of batches and of their rows; the first of each run as they are.

    Several steps are one graph: between two launches a GPU would wait for the host longer than a step takes.
    """

    def __init__(self, compute: Step, engine: GpuEngine) -> None:
        self.compute, self.engine = compute, engine
        self.warm: dict[int, int] = {}
        self.graphs: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Tensor]] = {}
        self.beta = torch.zeros((), dtype=torch.float64, device=engine.device)
        self.keys = torch.zeros(engine.together, dtype=torch.int64, device=engine.device)
        self.last_beta: float | None = None

    def __call__(self, rows: Sequence[Tensor], beta: float, keys: Sequence[int]) -> Tensor:
        if beta != self.last_beta:
            self.beta.fill_(beta)
            self.last_beta = beta
        self.keys[: len(keys)] = torch.tensor(keys, dtype=torch.int64)
        self.engine.changed()
        loss = torch.zeros((), dtype=torch.float64, device=self.beta.device)
        start = 0
        for size, some in itertools.groupby(rows, len):  # an epoch's last batch is smaller
            batches = list(some)
            loss += self._run(size, batches, self.keys[start : start + len(batches)])
            start += len(batches)
        return loss

    def _run(self, size: int, rows: list[Tensor], keys: Tensor) -> Tensor:
        if self.warm.get(size, 0) < WARM_UP or not self.engine.recordable:
            return self._one_by_one(rows, keys)
        shape = len(rows), size
        if shape not in self.graphs:
            self.graphs[shape] = self._record(torch.stack(rows), keys.clone())
        graph, held, held_keys, loss = self.graphs[shape]
        torch.stack(rows, out=held)
        held_keys.copy_(keys)
        graph.replay()
        return loss

    def _record(self, held: Tensor, keys: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Tensor]:
        graph = torch.cuda.CUDAGraph()
        with _nothing_collected(), torch.cuda.graph(graph):
            loss = torch.zeros((), dtype=torch.float64, device=held.device)
            for place, batch in enumerate(held):
                loss += self.compute(batch, self.beta, keys[place])
        return graph, held, keys, loss

    def _one_by_one(self, rows: list[Tensor], keys: Tensor) -> Tensor:
        """On a stream of its own, as recording wants its warm-up."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            loss = torch.zeros((), dtype=torch.float64, device=self.beta.device)
            for place, batch in enumerate(rows):
                loss += self.compute(batch, self.beta, keys[place])
                self.warm[len(batch)] = self.warm.get(len(batch), 0) + 1
        torch.cuda.current_stream().wait_stream(stream)
        return loss
