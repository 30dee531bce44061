"""What makes a model of scores one of confidences, by the logistic function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from focuse.models.base import Model


class Logistic(Model):
    """What a score f becomes: w f + b, whose logistic is a confidence. Goes before a model of scores."""

    confident = True
    curve = "sigmoid"
    spread = 0.3
    largest_batch = 512
    dense: Mapping[str, Tensor] = {"scale": torch.tensor([1.0, 0.0])}  # w, b
    scales = True  # `finish` is w·f + b and no more
    defaults: ClassVar[Mapping[str, Any]] = {
        "dim": 128, "epochs": 100, "sampling": "independent", "negatives": 20, "focus": "off", "loss": "squared-error",
        "optimizer": "adam", "regularizer": "none", "normalize": "none",
    }  # fmt: skip

    def finish(self, product: Tensor) -> Tensor:
        slope, offset = self.dense["scale"].unbind()
        return slope * product + offset

    def trained(self, score: Tensor) -> Tensor:
        return torch.sigmoid(score)

    def confidence(self, score: Tensor) -> Tensor:
        return self.trained(score).clamp(0.0, 1.0)


# Quicker where no fused engine serves: corruptions that a batch shares, and steps of its rows alone.
POOLED: Mapping[str, Any] = {
    **Logistic.defaults, "sampling": "shared", "negatives": 64, "optimizer": "row-adam", "lr": 1e-2,
}  # fmt: skip
