"""SimplE (Kazemi and Poole, 2018): CP whose two roles of an entity learn from each other by inverse relations.

    f(h, r, t) = ½ (Σ hᵢ rᵢ t′ᵢ + Σ tᵢ r′ᵢ h′ᵢ)

An entity's row holds what it is as a head (h) and then as a tail (h′), a relation's row r and then its inverse r′.
"""

from __future__ import annotations

import torch
from torch import Tensor

from focuse.models.base import Model, Side


class SimplE(Model):
    """f = ½(⟨h, r, t′⟩ + ⟨t, r′, h′⟩)."""

    name = "simple"
    form = "dot"

    def entity_width(self, dim: int) -> int:
        return 2 * dim

    def relation_width(self, dim: int) -> int:
        return 2 * dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        (as_head, as_tail), (forth, back) = known.chunk(2, -1), relation.chunk(2, -1)
        if side == "head":
            forth, back = back, forth
        return torch.cat([as_tail * back, as_head * forth], dim=-1) / 2
