"""CP (Hitchcock, 1927; of knowledge graphs Lacroix et al., 2018): as a head an entity is not what it is as a tail.

    f(h, r, t) = Σ hᵢ rᵢ t′ᵢ

An entity's row holds what it is as a head (h) and then as a tail (h′). The two learn nothing from each other unless
relations are reciprocal, as Lacroix et al. have them; so they are by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from focuse.models.base import Model, Side


class CP(Model):
    """f = ⟨h, r, t′⟩."""

    name = "cp"
    form = "dot"
    defaults: ClassVar[Mapping[str, Any]] = {"reciprocal": True}

    def entity_width(self, dim: int) -> int:
        return 2 * dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        as_head, as_tail = known.chunk(2, -1)
        return relation * (as_head if side == "tail" else as_tail)

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        as_head, as_tail = rows.chunk(2, -1)
        return as_tail if side == "tail" else as_head
