"""LiteralE (Kristiadi et al., 2019): a gate mixes an entity's numbers into its embedding.

g(e, l) = z ∘ h + (1 − z) ∘ e      z = σ(Wᶻᵉ e + Wᶻˡ l + b)      h = tanh(Wʰ [e, l])

g(e, l) then stands for e in DistMult, or in ComplEx, where real and imaginary parts have a gate each. l holds the
standardised numbers, 0 where one is missing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from focuse.models.complex import ComplEx
from focuse.models.distmult import DistMult
from focuse.models.numbered import Numbered


class _Gated(Numbered):
    """Encodes row by row; what it encodes is compared as the model beneath does."""

    encodes = True
    rowwise = True

    def dense_start(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        """For each of P parts the gate [P, d, d + A], its offset [P, 1, d] and the candidate [P, d, d + A]."""
        shape = (self.parts, dim, dim + self.attributes)
        spread = (2.0 / sum(shape[1:])) ** 0.5
        gate, candidate = (torch.randn(shape, generator=random) * spread for _ in range(2))
        return {"gate": gate, "gate_offset": torch.zeros(self.parts, 1, dim), "candidate": candidate}

    def encode(self, entity: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        embedding, values, _ = self.apart(entity)
        parts = torch.stack(embedding.chunk(self.parts, -1))  # [P, n, d]
        both = torch.cat([parts, values.expand(self.parts, *values.shape)], dim=-1)
        gate = torch.sigmoid(both @ self.dense["gate"].mT + self.dense["gate_offset"])
        candidate = torch.tanh(both @ self.dense["candidate"].mT)
        return torch.cat(list(gate * candidate + (1 - gate) * parts), dim=-1), relation


class LiteralEDistMult(_Gated, DistMult):
    """f = ⟨g(h), r, g(t)⟩."""

    name = "literale-distmult"


class LiteralEComplEx(_Gated, ComplEx):
    """f = Re⟨g(h), r, conj(g(t))⟩."""

    name = "literale-complex"
