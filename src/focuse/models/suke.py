"""SUKE (Wang et al., 2021): one score, two evaluators; structure says whether, uncertainty how surely.

f = Σ hᵢ rᵢ tᵢ
s = 1 / (1 + e^−(w₁ f + b₁))     of structure: 1 for facts, 0 for corruptions, whatever their weight
u = 1 / (1 + e^−(w₂ f + b₂))     of uncertainty
φ = s u                          the confidence: the weight of facts, 0 for corruptions

w and b are learnt. The loss is the squared error of φ and, beside it, that of s. Ranks go by f. This is our reading of
the paper's abstract: how it joins the two evaluators was not at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from focuse.models.distmult import DistMult
from focuse.models.logistic import POOLED


class Suke(DistMult):
    """Confidence as the product of two evaluators of DistMult's score."""

    name = "suke"
    confident = True
    structured = True
    spread = 0.3
    largest_batch = 512
    dense: Mapping[str, Tensor] = {"evaluators": torch.tensor([[1.0, 0.0], [1.0, 0.0]])}  # w, b of each
    defaults: ClassVar[Mapping[str, Any]] = POOLED

    def structure(self, score: Tensor) -> Tensor:
        return self._evaluate(score, 0)

    def trained(self, score: Tensor) -> Tensor:
        return self.structure(score) * self._evaluate(score, 1)

    def confidence(self, score: Tensor) -> Tensor:
        return self.trained(score).clamp(0.0, 1.0)

    def _evaluate(self, score: Tensor, which: int) -> Tensor:
        slope, offset = self.dense["evaluators"][which].unbind()
        return torch.sigmoid(slope * score + offset)
