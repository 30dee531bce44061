"""Queries that torch computes, for an engine that compares them in loops of its own."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.engines.base import Batch, Hints
from focuse.models import Model


class Queries:
    """What is looked for on both sides of B positives and S hints, and the way back to what it was made of.

    `values` [2, B + S, d] are the queries for tails, then for heads (hints have none for heads: 0), of the model as it
    is in training with `key`. Of the tables only the batch's rows are taken.
    """

    def __init__(
        self, model: Model, tables: Mapping[str, Tensor], batch: Batch, hints: Hints | None, key: int | None
    ) -> None:
        self.dense = {name: _leaf(table) for name, table in model.dense.items() if name not in model.kept}
        model = model.with_dense({**model.dense, **self.dense}).in_training(key)
        self.rows = [
            _leaf(F.embedding(batch.head, tables["entity"])),
            _leaf(F.embedding(batch.relation, tables["relation"])),
            _leaf(F.embedding(batch.tail, tables["entity"])),
        ]
        head, kind, tail = self.rows
        asked = model.queries(head, kind, tail)
        self.asked = [asked["tail"], asked["head"]]
        if hints is not None:
            known = _leaf(F.embedding(hints.batch.head, tables["entity"]))
            kind = _leaf(F.embedding(hints.batch.relation, tables["relation"]))
            self.rows += [known, kind]
            self.asked.append(model.query(known, kind, "tail"))
        self.count = len(batch)
        self.values = torch.zeros(2, sum(map(len, self.asked[::2])), tables["entity"].shape[1])
        for query, place in zip(self.asked, self._places(self.values), strict=True):
            if query.shape != place.shape:
                raise ValueError(f"{model.name}: queries {tuple(query.shape)}, where {tuple(place.shape)} are needed")
            place.copy_(query.detach())

    def _places(self, both: Tensor) -> list[Tensor]:
        """Where in [2, B + S, d] each query stands."""
        return [both[0, : self.count], both[1, : self.count], both[0, self.count :]][: len(self.asked)]

    def back(self, gradient: Tensor, of_ends: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """From the gradient of `values` to those of each triple's relation [B + S, r] and of dense tensors.

        Those of heads and tails are added to `of_ends` [2, B + S, d].
        """
        leaves, count = [*self.rows, *self.dense.values()], self.count
        found = torch.autograd.grad(self.asked, leaves, self._places(gradient), allow_unused=True)
        whole = [torch.zeros_like(leaf) if part is None else part for leaf, part in zip(leaves, found, strict=True)]
        head, kind, tail = whole[:3]
        of_ends[0, :count] += head
        of_ends[1, :count] += tail
        if len(self.rows) > 3:
            of_ends[0, count:] += whole[3]
            kind = torch.cat([kind, whole[4]])
        return kind, dict(zip(self.dense, whole[len(self.rows) :], strict=True))


def _leaf(values: Tensor) -> Tensor:
    return values.detach().requires_grad_()
