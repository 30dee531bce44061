"""RESCAL (Nickel et al., 2011): a relation is a whole matrix, every coordinate of the head meets every one of the tail.

    f(h, r, t) = hᵀ Wᵣ t = Σ hᵢ Wᵣᵢⱼ tⱼ

A relation's row holds its matrix of k × k numbers, row by row.
"""

from __future__ import annotations

from torch import Tensor

from focuse.models.base import Model, Side


class Rescal(Model):
    """f = hᵀ W t."""

    name = "rescal"
    form = "dot"

    def relation_width(self, dim: int) -> int:
        return dim * dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        matrix = relation.reshape(*known.shape, known.shape[-1])
        if side == "head":
            matrix = matrix.mT
        query: Tensor = known.unsqueeze(-2) @ matrix
        return query.squeeze(-2)
