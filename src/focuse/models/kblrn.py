"""KBLRN (García-Durán and Niepert, 2018): experts on embeddings and on differences of numbers, multiplied.

f(h, r, t) = Σ hᵢ rᵢ tᵢ + Σ wʳₐₖ exp(−((xₐʰ − xₐᵗ − cₐₖ) / σₐₖ)²)      over the attributes a that both ends have

The logarithm of a product: DistMult's expert, and one on numbers. Where the K bumps of an attribute lie, and how wide
they are, follows from the differences along train's edges; a relation learns how much each counts. The third expert,
on observed paths, is left out: the authors call the rest KBLN.
"""

from __future__ import annotations

import torch
from torch import Tensor

from focuse.models.base import Side
from focuse.models.bumps import BUMPS, bumps_of, weighed_bumps
from focuse.models.numbered import Numbered


class KBLRN(Numbered):
    """f = ⟨h, r, t⟩ and bumps over differences of numbers; a relation's row holds r [d], then their weights [A · K]."""

    name = "kblrn"
    form = "other"
    wants = frozenset({"numbers", "edges"})
    kept = frozenset({"centres", "widths"})
    largest_batch = 512

    def relation_width(self, dim: int) -> int:
        return dim + self.attributes * BUMPS

    def dense_start(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return dict(zip(("centres", "widths"), bumps_of(self.context), strict=True))  # [A, K] each

    def table_start(self, table: str, values: Tensor) -> Tensor:
        if table == "relation":  # numbers tell nothing until it is learnt what
            values[:, values.shape[1] - self.attributes * BUMPS :] = 0.0
        return values

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        embedding, values, marks = self.apart(known)
        dim = embedding.shape[-1]
        return torch.cat([embedding * relation[..., :dim], values, marks, relation[..., dim:]], dim=-1)

    def compare(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        asked, rows, expert = self._experts(query, candidates, side)
        return (asked * rows).sum(-1) + expert

    def product(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        asked, rows, expert = self._experts(query.unsqueeze(-2), candidates.unsqueeze(-3), side)
        return asked.squeeze(-2) @ rows.squeeze(-3).mT + expert

    def _experts(self, query: Tensor, candidates: Tensor, side: Side) -> tuple[Tensor, Tensor, Tensor]:
        """Both factors of DistMult's expert, and what the other one says: [..., d], [..., d], [...]."""
        rows, *theirs = self.apart(candidates)
        size = self.attributes
        asked, *mine = query.split_with_sizes([rows.shape[-1], size, size, size * BUMPS], dim=-1)
        return asked, rows, weighed_bumps(mine, theirs, self.dense["centres"], self.dense["widths"], side)
