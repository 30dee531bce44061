"""The engine for a GPU: a step is a handful of Triton kernels, replayed as one CUDA graph.

The same numbers as the reference up to rounding, and the same bits in every run: rows are summed in a sorted order.
It serves models that `plain()` describes, objectives that have a recipe, and optimisers that are open; the recorded
reference serves all others.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    TableOptimiser,
    recipe_of,
    unlike,
)
from focuse.engines.recorded import RecordedEngine
from focuse.models import Model

if TYPE_CHECKING:
    from focuse.engines.triton.step import Tuning


class GpuEngine(RecordedEngine):
    """Owns tables on a GPU; embeddings are read and gradients summed once a step, and nobody waits for its loss."""

    optimiser: OpenOptimiser

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
        """By kernels where they know what is asked, else as torch computes it."""
        recipe = recipe_of(objective)
        complex_sizes = penalty is not None and penalty.moduli and self.model.parts > 1
        if recipe is None or complex_sizes or not _served(recipe, corruptions, objective, hints):
            return super().step(batch, corruptions, objective, beta, penalty, scale, hints, key)
        self.recordable = all(group.facts is None for group in corruptions)
        self.changed()
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


def _served(recipe: Recipe, corruptions: list[Corruptions], objective: ObjectiveFunction, hints: Hints | None) -> bool:
    """Whether kernels know this mixture of corruptions, and the hints' loss is the recipe's own."""
    if hints is not None and (recipe.loss != "squared-error" or getattr(hints.loss, "__self__", None) != objective):
        return False
    sides = {group.side for group in corruptions}
    if len(corruptions) == 1 and sides == {"both"}:
        return corruptions[0].target is None
    listed = any(group.facts is not None and group.entities is not None for group in corruptions)
    return bool(sides) and "both" not in sides and not listed
