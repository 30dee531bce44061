"""TransEA (Wu and Wang, 2018): TransE whose embeddings also have to tell an entity's numbers.

f(h, r, t) = −‖h + r − t‖₁
L          = (1 − α) L_structure + α Σ |aᵢ · e + bᵢ − vᵢ|      over the known numbers of the positives' entities

A vector aᵢ and an offset bᵢ for each attribute regress its standardised values from embeddings; α is `share`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from focuse.models.base import Side
from focuse.models.numbered import Numbered
from focuse.models.transe import TransE


class TransEA(Numbered, TransE):
    """TransE and a linear regression of numbers; ranks by the distance alone."""

    name = "transea"
    share = 0.3
    defaults: ClassVar[Mapping[str, Any]] = {**TransE.defaults, "attribute_share": share}

    def dense_start(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return {"slope": torch.zeros(self.attributes, dim), "offset": torch.zeros(self.attributes)}

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return super().query(self.apart(known)[0], relation, side)

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        return self.apart(rows)[0]

    def regressed(self, rows: Tensor) -> Tensor:
        """The standardised numbers that rows of entities tell: [..., d + 2A] -> [..., A]."""
        return self.apart(rows)[0] @ self.dense["slope"].mT + self.dense["offset"]

    def extra(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        rows = torch.stack([head, tail])
        _, values, known = self.apart(rows)
        errors: Tensor = ((self.regressed(rows) - values).abs() * known).sum((0, -1))
        return errors
