"""The step of the autograd engine on a GPU, captured and replayed as CUDA graphs.

A step in torch consists of about a hundred small kernel launches, and the GPU idles between them longer than it works.
A captured step must not depend on values that only the GPU has: views of tables have a fixed size, and the loss is not
read. Steps that cannot be captured run eagerly, such as those of a model that draws random numbers in training or that
synchronizes with the GPU.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from focuse.engines.autograd import AutogradEngine, FixedTableView
from focuse.engines.base import FusableOptimizer, Step, TrainBatch, TrainBatches
from focuse.models.base import Model, RandomnessUnavailableError

STEPS_PER_GRAPH = 16  # steps captured in one graph
WARM_UP = 3  # steps before a graph is captured, in which kernels are compiled and memory is allocated


class CudaGraphEngine(AutogradEngine):
    """An autograd engine on a GPU whose steps are captured as CUDA graphs; the host does not wait for the loss."""

    steps_per_call = STEPS_PER_GRAPH
    view = FixedTableView

    def __init__(
        self,
        model: Model,
        entity: Tensor,
        relation: Tensor,
        optimizer: FusableOptimizer,
        parameters: Mapping[str, Tensor] | None = None,
        inverse_relations: bool = False,
    ) -> None:
        super().__init__(model, entity, relation, optimizer, parameters, inverse_relations)
        optimizer.repeated = True
        self.recordable = True

    def step(self, step: Step) -> Tensor:
        """Take one step of the autograd engine; the returned loss is a tensor [] that stays on the GPU."""
        # The number of known triples among the negatives varies and is known on the GPU only, so it cannot be captured.
        self.recordable = all(group.known is None for group in step.negatives)
        loss, total, views = self.compute_loss(step)
        self.backward_and_update(total, views)
        return loss.detach().double()

    def batch_runner(self, train_batch: TrainBatch, capture: bool = True) -> TrainBatches:
        """Return a function that replays `train_batch` as a CUDA graph of several steps, after some ordinary ones."""
        return Replayed(train_batch, self) if capture else super().batch_runner(train_batch)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disable garbage collection, because freeing the graphs of an earlier training would break the capture."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class Replayed:
    """Runs steps as CUDA graphs, one graph per number of batches and batch size; the first steps run eagerly.

    A graph contains several steps, because the GPU would otherwise wait for the host longer than a step takes.
    """

    def __init__(self, train_batch: TrainBatch, engine: CudaGraphEngine) -> None:
        self.train_batch, self.engine = train_batch, engine
        self.refused = False  # whether the steps of this model cannot be captured
        self.warm: dict[int, int] = {}
        self.graphs: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Tensor]] = {}
        self.beta = torch.zeros((), dtype=torch.float64, device=engine.device)
        self.keys = torch.zeros(engine.steps_per_call, dtype=torch.int64, device=engine.device)
        self.last_beta: float | None = None

    def __call__(self, rows: Sequence[Tensor], beta: float, keys: Sequence[int]) -> float | Tensor:
        if not self.refused:
            try:
                return self._recorded(rows, beta, keys)
            except RandomnessUnavailableError:  # raised in the first step, before any table has changed
                self.refused = True
        return sum(self.train_batch(batch, beta, key) for batch, key in zip(rows, keys, strict=True))

    def _recorded(self, rows: Sequence[Tensor], beta: float, keys: Sequence[int]) -> Tensor:
        if beta != self.last_beta:
            self.beta.fill_(beta)
            self.last_beta = beta
        self.keys[: len(keys)] = torch.tensor(keys, dtype=torch.int64)
        self.engine.scorer.invalidate()
        loss = torch.zeros((), dtype=torch.float64, device=self.beta.device)
        start = 0
        for size, some in itertools.groupby(rows, len):  # the last batch of an epoch is smaller
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
            except RuntimeError:  # the model synchronizes with the GPU; nothing was run, and no table has changed
                self.refused = True
                return self._one_by_one(rows, keys)
        graph, held, held_keys, loss = self.graphs[shape]
        torch.stack(rows, out=held)
        held_keys.copy_(keys)
        graph.replay()
        return loss

    def _record(self, held: Tensor, keys: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Tensor]:
        graph = torch.cuda.CUDAGraph()
        with _no_garbage_collection(), torch.cuda.graph(graph):
            loss = torch.zeros((), dtype=torch.float64, device=held.device)
            for place, batch in enumerate(held):
                loss += self.train_batch(batch, self.beta, keys[place])
        return graph, held, keys, loss

    def _one_by_one(self, rows: list[Tensor], keys: Tensor) -> Tensor:
        """Run the batches eagerly on a side stream, as the warm-up before a capture requires."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            loss = torch.zeros((), dtype=torch.float64, device=self.beta.device)
            for place, batch in enumerate(rows):
                loss += self.train_batch(batch, self.beta, keys[place])
                self.warm[len(batch)] = self.warm.get(len(batch), 0) + 1
        torch.cuda.current_stream().wait_stream(stream)
        return loss
