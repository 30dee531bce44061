"""KBGAT (Nathani et al., 2019): a step from head to tail, between entities that attend to the facts around them.

f(h, r, t) = −‖h″ + r′ − t″‖₁                  h″ = W^E h + h′ at length 1, r′ = W^R r

h′ is graph attention over the facts that lead to an entity: two heads side by side, then one layer over what they heard
(`attend` has the equations). The facts are those of train alone. Paths of several steps, which the paper adds as
further neighbours, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.models.base import Context
from focuse.models.layers import Edges, attend, dropped
from focuse.models.transe import TransE


class KBGAT(TransE):
    """f = −‖h″ + r′ − t″‖₁, made by attention to train's facts. A step encodes the whole graph: batches are large."""

    name = "kbgat"
    encodes = True
    multiple = 2
    wants = frozenset({"edges"})
    facts: Edges
    defaults: ClassVar[Mapping[str, Any]] = {
        "batch_size": 8192, "sampling": "shared", "optimizer": "adam", "lr": 5e-3, "regularizer": "none",
    }  # fmt: skip

    def dense_start(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        shapes = {"mix": (2, 3, dim, dim // 2), "look": (2, dim // 2), "last_mix": (3, dim, dim), "last_look": (dim,)}
        shapes |= {"entities": (dim, dim), "relations": (dim, dim)}
        return {name: torch.randn(shape, generator=random) * dim**-0.5 for name, shape in shapes.items()}

    def with_context(self, context: Context) -> Self:
        """Each fact of train once, sorted by the entity that it leads to."""
        bound = super().with_context(context)
        if context.edges is not None:
            target, kind, source = torch.unique(torch.stack(context.edges[::-1]), dim=1).contiguous()
            bound.facts = target, kind, source
        return bound

    def encode(self, entity: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        dense, heads = self.dense, zip(self.dense["mix"], self.dense["look"], strict=True)
        heard = [attend(entity, relation, self.facts, *head, self._drop(place)) for place, head in enumerate(heads)]
        both, steps = F.elu(torch.cat(heard, 1)), relation @ dense["relations"]
        last = attend(both, steps, self.facts, dense["last_mix"], dense["last_look"], self._drop(2))
        return F.normalize(entity @ dense["entities"] + F.elu(last)), steps

    def _drop(self, place: int) -> partial[Tensor]:
        return partial(dropped, share=0.3, key=self.key, place=place)
