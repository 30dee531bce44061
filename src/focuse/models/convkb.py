"""ConvKB (Nguyen et al., 2018): filters of 1 × 3 over the matrix whose columns are head, relation and tail.

f(h, r, t) = Σᵢ Σ_f w_fi relu(ω_f · (hᵢ, rᵢ, tᵢ) + b_f)      50 filters ω, which begin near (1, 1, −1): as TransE

Its dropout, whose best share in the paper is none, is left out. The paper begins with the embeddings of TransE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from focuse.models.base import TripleModel
from focuse.models.pieces import broadcast_in_pieces

FILTERS = 50


class ConvKB(TripleModel):
    """f = Σᵢ Σ_f w_fi relu(ω_f · (hᵢ, rᵢ, tᵢ) + b_f). To rank against every entity is dear."""

    name = "convkb"
    dear = True
    parted = True
    largest_batch = 512
    defaults: ClassVar[Mapping[str, Any]] = {
        "sampling": "independent", "negatives": 10, "optimizer": "adam", "regularizer": "none",
    }  # fmt: skip

    def dense_start(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        step = torch.tensor([[1.0], [1.0], [-1.0]])
        filters = step + 0.1 * torch.randn(3, FILTERS, generator=random)
        weights = torch.randn(dim, FILTERS, generator=random) * (2 / (dim * FILTERS + 1)) ** 0.5
        return {"filters": filters, "offsets": torch.zeros(FILTERS), "weights": weights}

    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return broadcast_in_pieces(self._all_filters, (head, relation, tail), self.dense["weights"].numel())

    def _all_filters(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Scores of one piece: [..., d] each -> [...]."""
        of_head, of_relation, of_tail = self.dense["filters"]
        given = head[..., None] * of_head + self.dense["offsets"]
        seen = (given + relation[..., None] * of_relation) + tail[..., None] * of_tail
        score: Tensor = seen.relu().flatten(-2) @ self.dense["weights"].flatten()
        return score
