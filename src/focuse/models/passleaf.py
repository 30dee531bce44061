"""PASSLEAF (Chen, Yeh and Kuo, 2021): UKGE's logistic confidence over other scores, with a pool of own estimates.

φ = 1 / (1 + e^−(w f + b)), w and b learnt
f = Re Σ hᵢ rᵢ conj(tᵢ)                      `passleaf-complex`
f = 2 − (1/k) Σ |hᵢ e^(i rᵢ) − tᵢ|²          `passleaf-rotate`: a relation turns each of k complex numbers by an angle

The pool is a matter of training (training/semisupervised.py) and serves every model of a confidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from focuse.models.base import Model, Side
from focuse.models.complex import ComplEx
from focuse.models.logistic import POOLED, Logistic
from focuse.models.rotate import RotatE

DEFAULTS: Mapping[str, Any] = {**POOLED, "semi_supervised": "pool"}


class PassleafComplEx(Logistic, ComplEx):
    """Confidence by ComplEx."""

    name = "passleaf-complex"
    defaults = DEFAULTS


class PassleafRotatE(Logistic, Model):
    """Confidence by RotatE's squared distance |q − c|² = |q|² + |c|² − 2 q·c: a pool is one matrix product."""

    name = "passleaf-rotate"
    form = "dot"
    parts = 2
    scales = False  # `finish` adds the 2
    defaults = DEFAULTS

    def entity_width(self, dim: int) -> int:
        return 2 * dim

    def table_start(self, table: str, values: Tensor) -> Tensor:
        return RotatE().table_start(table, values)

    def moduli(self, table: str, rows: Tensor) -> Tensor:
        return RotatE().moduli(table, rows)

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        turned, size = RotatE().query(known, relation, side), known.square().sum(-1, keepdim=True)
        return torch.cat([2 * turned, -size, -torch.ones_like(size)], dim=-1) / relation.shape[-1]

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        return torch.cat([rows, torch.ones_like(rows[..., :1]), rows.square().sum(-1, keepdim=True)], dim=-1)

    def finish(self, product: Tensor) -> Tensor:
        return super().finish(2.0 + product)
