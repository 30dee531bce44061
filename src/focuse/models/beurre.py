"""BEUrRE (Chen, Boratko et al., 2021): an entity is a box, a relation moves and stretches the boxes of both its ends.

φ(h, r, t) = vol(H ∩ T) / vol(T)        H and T: the boxes of h and t as r's two affine maps leave them
vol(box)   = Π ln(1 + e^(high − low − 2γβ))
H ∩ T      = from β ln(e^(H.low/β) + e^(T.low/β)) to −β ln(e^(−H.high/β) + e^(−T.high/β))

Corners are Gumbel variables of scale β: boxes apart overlap a little, and learn. The score is ln φ, never above 0.
Volumes are those of the authors' code (in their paper β is also softplus's temperature). Constraints on relations
(transitive, composed) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from focuse.models.base import Form, Model, Side
from focuse.models.boxes import box, first_boxes, first_maps, intersection, log_volume
from focuse.models.logistic import POOLED

BETA = 0.01


class Beurre(Model):
    """Confidence as the share of the tail's box in the head's. Rows: low corners, log extents; both ends' maps."""

    name = "beurre"
    form: ClassVar[Form] = "other"
    confident = True
    spread = 1.0
    largest_batch = 512
    defaults: ClassVar[Mapping[str, Any]] = {**POOLED, "dim": 64, "negatives": 10, "lr": 3e-3}

    def entity_width(self, dim: int) -> int:
        return 2 * dim

    def relation_width(self, dim: int) -> int:
        return 4 * dim

    def table_start(self, table: str, values: Tensor) -> Tensor:
        return (first_maps if table == "relation" else first_boxes)(values / values.square().mean().sqrt())

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return box(known, relation.chunk(2, -1)[0 if side == "tail" else 1])

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        return box(rows, relation.chunk(2, -1)[1 if side == "tail" else 0])

    def compare(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        shared = log_volume(intersection(query, candidates, BETA), BETA)
        return shared - log_volume(candidates if side == "tail" else query, BETA)

    def trained(self, score: Tensor) -> Tensor:
        return score.exp()

    def confidence(self, score: Tensor) -> Tensor:
        return score.clamp(max=0.0).exp()
