"""RotatE (Sun et al., 2019): a relation turns the complex numbers of its head into those of its tail.

    f(h, r, t) = −Σ |hᵢ e^(iθᵢ) − tᵢ|

An entity's row holds k real parts and then k imaginary parts, a relation's the k angles θ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from focuse.models.base import Model, Side

TINY = 1e-30  # far below any square that counts: where two numbers coincide, the slope is 0 and not NaN


class RotatE(Model):
    """f = −Σ|h·e^(iθ) − t|, sizes of complex numbers summed. Scores are never above 0."""

    name = "rotate"
    form = "other"
    distance = True
    parts = 2
    # No regulariser: it would pull angles to 0 as if that were small.
    defaults: ClassVar[Mapping[str, Any]] = {
        "sampling": "independent", "optimizer": "row-adam", "lr": 1e-2, "regularizer": "none",
    }  # fmt: skip

    def entity_width(self, dim: int) -> int:
        return 2 * dim

    def table_start(self, table: str, values: Tensor) -> Tensor:
        """Angles are uniform in [−π, π] at first: the share of a normal distribution below each value, spread out."""
        if table == "entity":
            return values
        deviation = values.square().mean().sqrt()
        return math.pi * torch.erf(values / deviation / math.sqrt(2.0))

    def moduli(self, table: str, rows: Tensor) -> Tensor:
        """A relation's numbers e^(iθ) all have size 1, whatever the angles."""
        return super().moduli(table, rows) if table == "entity" else torch.ones_like(rows)

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        real, imaginary = known.chunk(2, -1)
        angle = relation if side == "tail" else -relation  # |h·e^(iθ) − t| = |h − t·e^(−iθ)|
        cosine, sine = angle.cos(), angle.sin()
        return torch.cat([real * cosine - imaginary * sine, real * sine + imaginary * cosine], dim=-1)

    def compare(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        (real, imaginary), (its_real, its_imaginary) = query.chunk(2, -1), candidates.chunk(2, -1)
        squares = (real - its_real).square() + (imaginary - its_imaginary).square()
        return -squares.clamp_min(TINY).sqrt().sum(-1)
