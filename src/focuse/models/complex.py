"""ComplEx (Trouillon et al., 2016): DistMult over complex numbers, so that direction counts.

    f(h, r, t) = Re Σ hᵢ rᵢ conj(tᵢ)

A row holds k real parts and then k imaginary parts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from focuse.models.base import Model, Side


class ComplEx(Model):
    """f = Re⟨h, r, t̄⟩ with k complex numbers a row."""

    name = "complex"
    form = "dot"
    turn = "complex"
    parts = 2

    def entity_width(self, dim: int) -> int:
        return 2 * dim

    def relation_width(self, dim: int) -> int:
        return 2 * dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        real, imaginary = known.chunk(2, -1)
        r_real, r_imaginary = relation.chunk(2, -1)
        if side == "head":  # the tail enters conjugated, so the head's query turns the other way
            r_imaginary = -r_imaginary
        return torch.cat([real * r_real - imaginary * r_imaginary, real * r_imaginary + imaginary * r_real], dim=-1)
