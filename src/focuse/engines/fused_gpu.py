"""The fused GPU engine: a step consists of a few Triton kernels, which are replayed as one CUDA graph.

It computes the same numbers as the autograd engine up to rounding. Its results are bitwise reproducible, because rows
are summed in a sorted order. It supports models whose fused form names a query, objectives with a fused form, and
fusable optimizers; CudaGraphEngine trains all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from focuse.engines.base import FusableOptimizer, Step, TableOptimizer, fused_objective, unsupported_model
from focuse.engines.cuda_graphs import CudaGraphEngine
from focuse.models.base import Model
from focuse.objective.losses import FusedObjective

if TYPE_CHECKING:
    from focuse.engines.triton.step import Tuning


class FusedGpuEngine(CudaGraphEngine):
    """An engine that holds its tables on a GPU and computes a step with Triton kernels.

    Each step reads the embeddings and sums the gradients once; the host does not wait for the loss.
    """

    optimizer: FusableOptimizer

    def __init__(
        self,
        model: Model,
        entity: Tensor,
        relation: Tensor,
        optimizer: FusableOptimizer,
        parameters: Mapping[str, Tensor] | None = None,
        inverse_relations: bool = False,
        tuning: Tuning | None = None,
    ) -> None:
        super().__init__(model, entity, relation, optimizer, parameters, inverse_relations)
        self.tuning = tuning

    @staticmethod
    def unsupported_reason(
        model: Model, device: torch.device, optimizer: TableOptimizer, inverse_relations: bool = False
    ) -> str:
        """Return why this engine does not support the training, or '' if it does."""
        if device.type != "cuda":
            return "it needs an NVIDIA GPU (--device cuda)"
        if find_spec("triton") is None:
            return "it needs the package triton"
        if model.fused is None or model.fused.query is None or inverse_relations:
            return unsupported_model(model, inverse_relations)
        needed = "it needs the optimizer adam, sparse-adam or sparse-adagrad"
        return "" if isinstance(optimizer, FusableOptimizer) else needed

    def step(self, step: Step) -> Tensor:
        """Take one step with Triton kernels if they support it, otherwise with autograd."""
        fused = fused_objective(step.objective)
        complex_sizes = step.regularizer is not None and step.regularizer.moduli and self.model.components != 1
        if fused is None or complex_sizes or not _supported(fused, step):
            return super().step(step)
        self.capturable = all(group.known is None for group in step.negatives)
        self.scorer.invalidate()
        from focuse.engines.triton.per_triple import per_triple_step
        from focuse.engines.triton.shared_pool import shared_pool_step
        from focuse.engines.triton.step import StepTask, Tuning

        beta = torch.as_tensor(step.beta, dtype=torch.float64, device=self.device)
        tuning = self.tuning or Tuning.of(str(self.model.similarity))
        auxiliary = None if step.auxiliary is None else step.auxiliary.batch
        task = StepTask(
            self.model, self.tables, self.optimizer, tuning, fused, step.positives, beta, step.regularizer, step.scale,
            auxiliary, len(step.negatives),
        )  # fmt: skip
        first = step.negatives[0]
        return per_triple_step(task, first) if first.side == "both" else shared_pool_step(task, step.negatives)


def _supported(fused: FusedObjective, step: Step) -> bool:
    """Return whether the kernels support the groups of negatives and the loss of the auxiliary triples."""
    negatives, auxiliary = step.negatives, step.auxiliary
    own_loss = auxiliary is not None and getattr(auxiliary.loss, "__self__", None) == step.objective
    if auxiliary is not None and (fused.loss != "squared-error" or not own_loss):
        return False
    sides = {group.side for group in negatives}
    if len(negatives) == 1 and sides == {"both"}:
        return negatives[0].target is None
    listed = any(group.known is not None and group.entities is not None for group in negatives)
    return bool(sides) and "both" not in sides and not listed
