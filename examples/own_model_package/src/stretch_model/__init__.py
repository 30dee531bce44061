"""TransE whose relations also say how much each dimension counts.

f(h, r, t) = −Σ |(1 + aᵢ) (hᵢ + bᵢ − tᵢ)|   with r = (a, b)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from focuse.models import Model, Side


class Stretch(Model):
    """f = −‖(1 + a) ∘ (h + b) − (1 + a) ∘ t‖₁, as a query and candidates: ranks all entities at once."""

    name = "stretch"
    similarity = "l1"
    defaults: ClassVar[Mapping[str, Any]] = {"negative_sampling": "per-triple", "optimizer": "sparse-adam"}

    def widths(self, dim: int) -> tuple[int, int]:
        return dim, 2 * dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        scale, step = relation.chunk(2, -1)
        return (1 + scale) * (known + step if side == "tail" else known - step)

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        return rows * (1 + relation.chunk(2, -1)[0])
