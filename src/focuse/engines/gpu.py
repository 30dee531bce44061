"""The engines on a GPU, whose steps are captured and replayed as CUDA graphs.

A step of `CudaGraphEngine` in torch consists of about a hundred small kernel launches, and the GPU idles between them
longer than it works. A captured step must not depend on values that only the GPU has: views of tables have a fixed
size, and the loss is not read. Steps that cannot be captured run eagerly, such as those of a model that draws random
numbers in training or that synchronizes with the GPU.

A step of `FusedGpuEngine` consists of a few Triton kernels (focuse.engines.triton). It computes the same numbers as the
autograd engine up to rounding, and its results are bitwise reproducible, because rows are summed in a sorted order. It
supports models whose fused form names a query, objectives with a fused form, and fusable optimizers; it does not
support auxiliary triples, for which it takes the step of `CudaGraphEngine`.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from focuse.engines.autograd import AutogradEngine, FixedSizeTableView
from focuse.engines.base import (
    OPTIMIZER_NEEDED,
    FusableOptimizer,
    Step,
    TableOptimizer,
    TrainBatch,
    TrainBatches,
    fused_objective,
    has_triton,
    unsupported_model,
)
from focuse.models.base import Model, RandomnessUnavailableError

if TYPE_CHECKING:
    from focuse.engines.triton.step import Tuning

STEPS_PER_GRAPH = 16  # steps captured in one graph
WARM_UP_STEPS = 3  # steps before a graph is captured, in which kernels are compiled and memory is allocated


class CudaGraphEngine(AutogradEngine):
    """An autograd engine on a GPU whose steps are captured as CUDA graphs; the host does not wait for the loss."""

    steps_per_call = STEPS_PER_GRAPH
    view = FixedSizeTableView
    capturable = True  # whether the last step can be captured

    def step(self, step: Step) -> Tensor:
        """Take one step of the autograd engine; the returned loss is a tensor [] that stays on the GPU."""
        # The number of known triples among the negatives varies and is known on the GPU only, so it cannot be captured.
        self.capturable = all(group.known is None for group in step.negatives)
        loss, total, views = self.compute_loss(step)
        self.backward_and_update(total, views)
        return loss.detach().double()

    def make_batch_runner(self, train_batch: TrainBatch, capture: bool = True) -> TrainBatches:
        """Return a function that captures several steps of `train_batch` in one CUDA graph after a warm-up."""
        return CudaGraphRunner(train_batch, self) if capture else super().make_batch_runner(train_batch)


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


class CudaGraphRunner:
    """Runs steps as CUDA graphs, one graph per number of batches and batch size; the first steps run eagerly.

    A graph contains several steps, because the GPU would otherwise wait for the host longer than a step takes.
    """

    def __init__(self, train_batch: TrainBatch, engine: CudaGraphEngine) -> None:
        self.train_batch, self.engine = train_batch, engine
        self.capture_failed = False  # whether the steps of this model cannot be captured
        self.warm_up_steps: dict[int, int] = {}
        self.graphs: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Tensor]] = {}
        self.beta = torch.zeros((), dtype=torch.float64, device=engine.device)
        self.seeds = torch.zeros(engine.steps_per_call, dtype=torch.int64, device=engine.device)
        self.last_beta: float | None = None

    def __call__(self, rows: Sequence[Tensor], beta: float, seeds: Sequence[int]) -> float | Tensor:
        if not self.capture_failed:
            try:
                return self._run_captured(rows, beta, seeds)
            except RandomnessUnavailableError:  # raised in the first step, before any table has changed
                self.capture_failed = True
        return sum(self.train_batch(batch, beta, seed) for batch, seed in zip(rows, seeds, strict=True))

    def _run_captured(self, rows: Sequence[Tensor], beta: float, seeds: Sequence[int]) -> Tensor:
        if beta != self.last_beta:
            self.beta.fill_(beta)
            self.last_beta = beta
        self.seeds[: len(seeds)] = torch.tensor(seeds, dtype=torch.int64)
        self.engine.scorer.invalidate()
        loss = torch.zeros((), dtype=torch.float64, device=self.beta.device)
        start = 0
        for size, some in itertools.groupby(rows, len):  # the last batch of an epoch is smaller
            batches = list(some)
            loss += self._run(size, batches, self.seeds[start : start + len(batches)])
            start += len(batches)
        return loss

    def _run(self, size: int, rows: list[Tensor], seeds: Tensor) -> Tensor:
        if self.warm_up_steps.get(size, 0) < WARM_UP_STEPS or not self.engine.capturable or self.capture_failed:
            return self._run_eagerly(rows, seeds)
        shape = len(rows), size
        if shape not in self.graphs:
            try:
                self.graphs[shape] = self._capture(torch.stack(rows), seeds.clone())
            except RuntimeError:  # the model synchronizes with the GPU; nothing was run, and no table has changed
                self.capture_failed = True
                return self._run_eagerly(rows, seeds)
        graph, held, held_seeds, loss = self.graphs[shape]
        torch.stack(rows, out=held)
        held_seeds.copy_(seeds)
        graph.replay()
        return loss

    def _capture(self, held: Tensor, seeds: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Tensor]:
        graph = torch.cuda.CUDAGraph()
        with _no_garbage_collection(), torch.cuda.graph(graph):
            loss = torch.zeros((), dtype=torch.float64, device=held.device)
            for place, batch in enumerate(held):
                loss += self.train_batch(batch, self.beta, seeds[place])
        return graph, held, seeds, loss

    def _run_eagerly(self, rows: list[Tensor], seeds: Tensor) -> Tensor:
        """Run the batches eagerly on a side stream, as the warm-up before a capture requires."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            loss = torch.zeros((), dtype=torch.float64, device=self.beta.device)
            for place, batch in enumerate(rows):
                loss += self.train_batch(batch, self.beta, seeds[place])
                self.warm_up_steps[len(batch)] = self.warm_up_steps.get(len(batch), 0) + 1
        torch.cuda.current_stream().wait_stream(stream)
        return loss


class FusedGpuEngine(CudaGraphEngine):
    """An engine that holds its tables on a GPU and computes a step with Triton kernels.

    Each step reads the embeddings and sums the gradients once; the host does not wait for the loss.
    """

    optimizer: FusableOptimizer
    tuning: Tuning | None = None  # None: the sizes that were fastest for the model's similarity

    @staticmethod
    def unsupported_reason(
        model: Model, device: torch.device, optimizer: TableOptimizer, inverse_relations: bool = False
    ) -> str:
        """Return why this engine does not support the training, or '' if it does."""
        if device.type != "cuda":
            return "it needs an NVIDIA GPU (device 'cuda')"
        if not has_triton():
            return "it needs the package triton"
        if model.fused is None or model.fused.query is None or inverse_relations:
            return unsupported_model(model, inverse_relations)
        return "" if isinstance(optimizer, FusableOptimizer) else OPTIMIZER_NEEDED

    def step(self, step: Step) -> Tensor:
        """Take one step with Triton kernels if they support it, otherwise with autograd."""
        fused = fused_objective(step.objective)
        complex_sizes = step.regularizer is not None and step.regularizer.moduli and self.model.components != 1
        if fused is None or complex_sizes or not self._supports(step):
            return super().step(step)
        self.capturable = all(group.known is None for group in step.negatives)
        self.scorer.invalidate()
        from focuse.engines.triton.step import StepTask, Tuning, per_triple_step, shared_pool_step

        beta = torch.as_tensor(step.beta, dtype=torch.float64, device=self.device)
        tuning = self.tuning or Tuning.of(str(self.model.similarity))
        task = StepTask(
            self.model, self.tables, self.optimizer, tuning, fused, step.positives, beta, step.regularizer, step.scale
        )
        first = step.negatives[0]
        return per_triple_step(task, first) if first.side == "both" else shared_pool_step(task, step.negatives)

    def _supports(self, step: Step) -> bool:
        """Return whether the kernels support the groups of negatives of a step."""
        negatives, sides = step.negatives, {group.side for group in step.negatives}
        if step.auxiliary is not None or not sides:
            return False
        if sides == {"both"}:
            entities = negatives[0].entities
            return len(negatives) == 1 and negatives[0].target is None and entities is not None and entities.numel() > 0
        listed = any(group.known is not None and group.entities is not None for group in negatives)
        return "both" not in sides and not listed
