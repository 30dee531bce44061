"""TuckER (Balažević et al., 2019): one core tensor says how heads, relations and tails go together.

    f(h, r, t) = W ×₁ h ×₂ r ×₃ t = Σ Wᵢⱼₗ hᵢ rⱼ tₗ

W is `dense`, learnt for the whole graph; relations have as many numbers as entities, k, so W has k³. The original also
normalises the batch and drops numbers at random at three places; here neither is done.
"""

from __future__ import annotations

import torch
from torch import Tensor

from focuse.models.base import Model, Side


class TuckER(Model):
    """f = Σ Wᵢⱼₗ hᵢ rⱼ tₗ."""

    name = "tucker"
    form = "dot"

    def dense_start(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        """The core, uniform in [−1, 1] as in the authors' code."""
        return {"core": 2 * torch.rand(dim, dim, dim, generator=random) - 1}

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        core = self.dense["core"]
        # The relation first: [B, k] × [k, k²] is one large matrix product.
        matrix = (relation @ core.transpose(0, 1).flatten(1)).reshape(*known.shape, known.shape[-1])
        if side == "head":
            matrix = matrix.mT
        query: Tensor = known.unsqueeze(-2) @ matrix
        return query.squeeze(-2)
