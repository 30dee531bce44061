"""The reference's step on a GPU, replayed as CUDA graphs: any model, without waiting for the host.

A step of torch is a hundred small launches, and a GPU waits between them longer than it works. Nothing in the step may
depend on numbers that only the GPU has: rows have a fixed place (places.py), and the loss is not looked at. What cannot
be recorded runs as it is: a model that draws in training, or one that waits for numbers.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from focuse.engines.base import Batch, Corruptions, Hints, ObjectiveFunction, OpenOptimiser, Penalty, Step, Steps
from focuse.engines.places import FixedPlace
from focuse.engines.reference import ReferenceEngine
from focuse.models import KeyWithheldError, Model

TOGETHER = 16  # steps recorded as one
WARM_UP = 3  # steps before a graph is recorded: kernels compile, memory finds its place


class RecordedEngine(ReferenceEngine):
    """Owns tables on a GPU, and nobody waits for the loss of a step."""

    together = TOGETHER
    place = FixedPlace

    def __init__(
        self,
        model: Model,
        entity: Tensor,
        relation: Tensor,
        optimiser: OpenOptimiser,
        dense: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__(model, entity, relation, optimiser, dense)
        optimiser.repeated = True
        self.recordable = True

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
    ) -> Tensor:
        """As the reference's, but the loss comes as a tensor [] and is not looked at."""
        # Known facts are pairs, and how many there are is known only when they were counted: no graph can hold that.
        self.recordable = all(group.facts is None for group in corruptions)
        loss, total, places = self.minimised(batch, corruptions, objective, beta, penalty, scale, hints, key)
        self.descend(total, places)
        return loss.detach().double()

    def prepare(self, compute: Step) -> Steps:
        """`compute` recorded as a CUDA graph once warm, several steps in one: hundreds of launches become one."""
        return Replayed(compute, self)


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


class Replayed:
    """Steps as CUDA graphs, one for each number of batches and of their rows; the first of each run as they are.

    Several steps are one graph: between two launches a GPU would wait for the host longer than a step takes.
    """

    def __init__(self, compute: Step, engine: RecordedEngine) -> None:
        self.compute, self.engine = compute, engine
        self.refused = False  # whether this model's steps cannot be recorded
        self.warm: dict[int, int] = {}
        self.graphs: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Tensor]] = {}
        self.beta = torch.zeros((), dtype=torch.float64, device=engine.device)
        self.keys = torch.zeros(engine.together, dtype=torch.int64, device=engine.device)
        self.last_beta: float | None = None

    def __call__(self, rows: Sequence[Tensor], beta: float, keys: Sequence[int]) -> float | Tensor:
        if not self.refused:
            try:
                return self._recorded(rows, beta, keys)
            except KeyWithheldError:  # in its very first step, before anything moved
                self.refused = True
        return sum(self.compute(batch, beta, key) for batch, key in zip(rows, keys, strict=True))

    def _recorded(self, rows: Sequence[Tensor], beta: float, keys: Sequence[int]) -> Tensor:
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
        if self.warm.get(size, 0) < WARM_UP or not self.engine.recordable or self.refused:
            return self._one_by_one(rows, keys)
        shape = len(rows), size
        if shape not in self.graphs:
            try:
                self.graphs[shape] = self._record(torch.stack(rows), keys.clone())
            except RuntimeError:  # the model waits for the GPU: nothing was run, nothing moved
                self.refused = True
                return self._one_by_one(rows, keys)
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
