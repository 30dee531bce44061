"""PairRE (Chao et al., 2021): a relation weighs its head by one vector and its tail by another.

    f(h, r, t) = −‖h ∘ r − t ∘ r′‖₁      with h and t of length 1

A relation's row holds r, for heads, and then r′, for tails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor
from torch.nn.functional import normalize

from focuse.models.base import Model, Side


class PairRE(Model):
    """f = −‖h∘r − t∘r′‖₁ over entities of length 1. Scores are never above 0."""

    name = "pairre"
    form = "l1"
    # No regulariser: the lengths of entities count for nothing, and those of relations are what scores grow by.
    defaults: ClassVar[Mapping[str, Any]] = {
        "sampling": "independent", "optimizer": "row-adam", "lr": 1e-2, "regularizer": "none",
    }  # fmt: skip

    def relation_width(self, dim: int) -> int:
        return 2 * dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        of_head, of_tail = relation.chunk(2, -1)
        return normalize(known, dim=-1) * (of_head if side == "tail" else of_tail)

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        of_head, of_tail = relation.chunk(2, -1)
        return normalize(rows, dim=-1) * (of_tail if side == "tail" else of_head)
