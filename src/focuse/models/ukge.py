"""UKGE (Chen et al., 2019): DistMult whose scores are mapped to the confidence of a fact.

f(h, r, t) = w Σ hᵢ rᵢ tᵢ + b         w and b are learnt, one of each for the whole graph
φ(f)       = 1 / (1 + e^−f)           logistic, `ukge-logi`
φ(f)       = min(max(f, 0), 1)        bounded rectifier, `ukge-rect`; training sees it without bounds

Ranks go by f, which orders as φ does but has no ties at 0 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from focuse.models.distmult import DistMult


class UkgeLogi(DistMult):
    """Confidence by the logistic function."""

    name = "ukge-logi"
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


class UkgeRect(UkgeLogi):
    """Confidence by the bounded rectifier, with L2 on the embeddings of the batch."""

    name = "ukge-rect"
    curve = "linear"
    # The original's λ = 5e-4 stands before ½Σx²; its mean over the batch and our sum give Adam the same steps.
    defaults: ClassVar[Mapping[str, Any]] = {**UkgeLogi.defaults, "regularizer": "l2:2.5e-4", "regularize": "rows"}

    def trained(self, score: Tensor) -> Tensor:
        return score
