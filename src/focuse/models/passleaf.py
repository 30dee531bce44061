"""PASSLEAF (Chen, Yeh and Kuo, 2021): UKGE's logistic confidence over other scores, with a pool of own estimates.

φ = 1 / (1 + e^−(w f + b)), w and b learnt
f = Re Σ hᵢ rᵢ conj(tᵢ)                      `passleaf-complex`
f = 2 − (1/k) Σ |hᵢ e^(i rᵢ) − tᵢ|²          `passleaf-rotate`: a relation turns each complex number by an angle

The pool is a matter of training (training/semisupervised.py) and serves every model of a confidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from focuse.models.base import Model, Side
from focuse.models.complex import ComplEx
from focuse.models.logistic import Logistic

DEFAULTS: Mapping[str, Any] = {**Logistic.defaults, "semi_supervised": "pool"}


class PassleafComplEx(Logistic, ComplEx):
    """Confidence by ComplEx."""

    name = "passleaf-complex"
    defaults = DEFAULTS


class PassleafRotatE(Logistic, Model):
    """Confidence by the squared distance of RotatE: k complex numbers an entity, k angles a relation."""

    name = "passleaf-rotate"
    form = "l2"
    scales = False  # `finish` squares first
    defaults = DEFAULTS

    def entity_width(self, dim: int) -> int:
        return 2 * dim

    def table_start(self, table: str, values: Tensor) -> Tensor:
        return values if table == "entity" else math.pi * torch.erf(values / (self.spread or 1.0) / math.sqrt(2))

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        angle = relation if side == "tail" else -relation
        real, imaginary = known.chunk(2, -1)
        cosine, sine = angle.cos(), angle.sin()
        turned = torch.cat([real * cosine - imaginary * sine, real * sine + imaginary * cosine], dim=-1)
        return self.candidates(turned, relation, side)

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        return rows / math.sqrt(rows.shape[-1] / 2)  # squared distances are then means over k

    def finish(self, product: Tensor) -> Tensor:
        return super().finish(2.0 - product.square())
