"""TransE (Bordes et al., 2013): a relation is a step from head to tail.

f(h, r, t) = −‖h + r − t‖   with the L1 or the L2 norm
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from focuse.models.base import Form, Model, Side


class TransE(Model):
    """f = −‖h + r − t‖₁. Scores are never above 0."""

    name = "transe"
    form: ClassVar[Form] = "l1"
    turn = "sum"
    defaults: ClassVar[Mapping[str, Any]] = {"sampling": "independent", "optimizer": "row-adam"}

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known + relation if side == "tail" else known - relation


class TransEL2(TransE):
    """f = −‖h + r − t‖₂."""

    name = "transe-l2"
    form = "l2"
