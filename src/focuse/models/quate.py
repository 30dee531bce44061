"""QuatE (Zhang et al., 2019): a relation turns the quaternions of its head, which are then held against its tail's.

    f(h, r, t) = (h ⊗ r/|r|) · t      ⊗ is Hamilton's product, number by number; · sums over all parts

A row holds k quaternions a + bi + cj + dk: first all k numbers a, then all b, all c, all d.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from focuse.models.base import Model, Side


class QuatE(Model):
    """f = (h ⊗ r/|r|) · t with k quaternions a row."""

    name = "quate"
    form = "dot"
    parts = 4

    def entity_width(self, dim: int) -> int:
        return 4 * dim

    def relation_width(self, dim: int) -> int:
        return 4 * dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        a, b, c, d = known.chunk(4, -1)
        p, q, u, v = normalize(torch.stack(relation.chunk(4, -1)), dim=0)
        if side == "head":  # (h ⊗ r) · t = h · (t ⊗ r̄): the head's query turns back
            q, u, v = -q, -u, -v
        turned = (
            a * p - b * q - c * u - d * v,
            a * q + b * p + c * v - d * u,
            a * u - b * v + c * p + d * q,
            a * v + b * u - c * q + d * p,
        )
        return torch.cat(turned, dim=-1)
