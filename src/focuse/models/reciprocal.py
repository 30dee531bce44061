"""Reciprocal relations (Lacroix et al., 2018; Kazemi and Poole, 2018): who asks for a head asks another relation.

f(?, r, t) = f(t, r⁻¹, ?)

r⁻¹ has an embedding of its own, so that a model needs to know but one direction. A relation's row holds r, then r⁻¹.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor

from focuse.models.base import Context, Model, Side

SAME = (
    "name", "form", "distance", "confident", "structured", "curve", "spread", "parts", "dear", "encodes", "rowwise",
    "wants", "kept", "share",
    "largest_batch",
)  # fmt: skip


class Reciprocal(Model):
    """Another model with two rows a relation, always asked for tails."""

    sided = True

    def __init__(self, inner: Model) -> None:
        self.inner = inner
        for name in SAME:
            setattr(self, name, getattr(inner, name))
        self.dense = inner.dense

    def check(self, dim: int) -> None:
        self.inner.check(dim)

    def entity_width(self, dim: int) -> int:
        return self.inner.entity_width(dim)

    def relation_width(self, dim: int) -> int:
        return 2 * self.inner.relation_width(dim)

    def dense_start(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return self.inner.dense_start(dim, random)

    def table_start(self, table: str, values: Tensor) -> Tensor:
        if table == "entity":
            return self.inner.table_start(table, values)
        return torch.cat([self.inner.table_start(table, half) for half in values.chunk(2, -1)], dim=-1)

    def with_dense(self, dense: Mapping[str, Tensor]) -> Self:
        return self._over(self.inner.with_dense(dense), super().with_dense(dense))

    def with_context(self, context: Context) -> Self:
        return self._over(self.inner.with_context(context), super().with_context(context))

    def in_training(self, key: int | None) -> Self:
        return self._over(self.inner.in_training(key), super().in_training(key))

    def _over(self, inner: Model, bound: Self) -> Self:
        bound.inner = inner
        return bound

    def encode(self, entity: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """As if there were twice as many relations; facts have the first half of them."""
        made, both = self.inner.encode(entity, torch.cat(relation.chunk(2, -1)))
        return made, torch.cat(both.chunk(2), dim=-1)

    def extra(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor | None:
        return self.inner.extra(head, _half(relation, "tail"), tail)

    def moduli(self, table: str, rows: Tensor) -> Tensor:
        if table == "entity":
            return self.inner.moduli(table, rows)
        return torch.cat([self.inner.moduli(table, half) for half in rows.chunk(2, -1)], dim=-1)

    def finish(self, product: Tensor) -> Tensor:
        return self.inner.finish(product)

    def trained(self, score: Tensor) -> Tensor:
        return self.inner.trained(score)

    def confidence(self, score: Tensor) -> Tensor:
        return self.inner.confidence(score)

    def structure(self, score: Tensor) -> Tensor:
        return self.inner.structure(score)

    def known_curve(self) -> str:
        return self.inner.known_curve()

    def compares_plainly(self) -> bool:
        return self.inner.compares_plainly()

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return self.inner.query(known, _half(relation, side), "tail")

    def queries(self, head: Tensor, relation: Tensor, tail: Tensor) -> dict[Side, Tensor]:
        """Both sides as one batch: what normalises by batches is to see what it will rank with, tails and heads."""
        known, kinds = torch.cat([head, tail]), torch.cat(relation.chunk(2, -1))
        of_tail, of_head = self.inner.query(known, kinds, "tail").chunk(2)
        return {"tail": of_tail, "head": of_head}

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        return self.inner.candidates(rows, _half(relation, side), "tail")

    def compare(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        return self.inner.compare(query, candidates, "tail")

    def score(self, head: Tensor, relation: Tensor, tail: Tensor, side: Side = "tail") -> Tensor:
        known, other = (head, tail) if side == "tail" else (tail, head)
        return self.inner.score(known, _half(relation, side), other)

    def answer(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        return self.inner.answer(query, _half(relation, side), rows, "tail")

    def own(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        return self.inner.own(query, _half(relation, side), rows, "tail")

    def pooled(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        return self.inner.pooled(query, _half(relation, side), rows, "tail")

    def product(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        return self.inner.product(query, candidates, "tail")


def _half(relation: Tensor, side: Side) -> Tensor:
    return relation.chunk(2, -1)[0 if side == "tail" else 1]
