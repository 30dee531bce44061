"""DistMult (Yang et al., 2014): a relation weighs each coordinate of a symmetric product.

f(h, r, t) = Σ hᵢ rᵢ tᵢ
"""

from __future__ import annotations

from torch import Tensor

from focuse.models.base import Model, Side


class DistMult(Model):
    """f = ⟨h, r, t⟩, the same in both directions."""

    name = "distmult"
    form = "dot"
    turn = "product"

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known * relation
