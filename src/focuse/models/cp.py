"""CP (Hitchcock, 1927; as a model of knowledge graphs Lacroix et al., 2018): an entity is one thing as head, one as tail.

    f(h, r, t) = Σ hᵢ rᵢ t′ᵢ

An entity's row holds what it is as a head (h) and then as a tail (h′). The two learn nothing from each other, but for
reciprocal relations, with which the model is best known (`reciprocal`).
"""

from __future__ import annotations

from torch import Tensor

from focuse.models.base import Model, Side


class CP(Model):
    """f = ⟨h, r, t′⟩."""

    name = "cp"
    form = "dot"

    def entity_width(self, dim: int) -> int:
        return 2 * dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        as_head, as_tail = known.chunk(2, -1)
        return relation * (as_head if side == "tail" else as_tail)

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        as_head, as_tail = rows.chunk(2, -1)
        return as_tail if side == "tail" else as_head
