"""UKGE (Chen et al., 2019): DistMult whose scores are mapped to the confidence of a fact.

f(h, r, t) = w Σ hᵢ rᵢ tᵢ + b         w and b are learnt, one of each for the whole graph
φ(f)       = 1 / (1 + e^−f)           logistic, `ukge-logi`
φ(f)       = min(max(f, 0), 1)        bounded rectifier, `ukge-rect`; training sees it without bounds

Ranks go by f, which orders as φ does but has no ties at 0 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from focuse.models.distmult import DistMult
from focuse.models.logistic import Logistic


class UkgeLogi(Logistic, DistMult):
    """Confidence by the logistic function."""

    name = "ukge-logi"


class UkgeRect(UkgeLogi):
    """Confidence by the bounded rectifier, with L2 on the embeddings of the batch."""

    name = "ukge-rect"
    curve = "linear"
    # The original's λ = 5e-4 stands before ½Σx²; its mean over the batch and our sum give Adam the same steps.
    defaults: ClassVar[Mapping[str, Any]] = {**UkgeLogi.defaults, "regularizer": "l2:2.5e-4", "regularize": "rows"}

    def trained(self, score: Tensor) -> Tensor:
        return score
