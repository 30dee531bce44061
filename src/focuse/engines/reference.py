"""The reference engine: plain autograd, as simple as it can be right. Other engines are checked against it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.engines.base import Batch, Corruptions, Hints, ObjectiveFunction, Penalty, Step, Steps, TableOptimiser
from focuse.engines.ranking import distances
from focuse.models import Model, Side


class ReferenceEngine:
    """Owns the tables of entities [E, d] and relations [R, r] and what is `dense`, and computes with them.

    For ranking and prediction no optimiser is needed. `together` is how many steps it likes to be given at once.
    """

    together = 1
    instead = ""  # why it serves in place of a fused one, if it does

    def __init__(
        self,
        model: Model,
        entity: Tensor,
        relation: Tensor,
        optimiser: TableOptimiser | None = None,
        dense: Mapping[str, Tensor] | None = None,
    ) -> None:
        dense = dict(model.dense_start() if dense is None else dense)
        self.model = model.with_dense(dense)  # it is trained in place, so the model always sees it as it is
        self.tables = {"entity": entity, "relation": relation, **dense}
        self.optimiser = optimiser
        self._known_twins: tuple[Tensor | None] | None = None

    @property
    def device(self) -> torch.device:
        return self.tables["entity"].device

    def rows(self, table: str, ids: Tensor) -> Tensor:
        """Embeddings of `ids`: [...] -> [..., d]."""
        return F.embedding(ids, self.tables[table])

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """The entity table in pieces, (first id, rows); here in one."""
        yield 0, self.tables["entity"]

    # ---- scoring, without gradients -------------------------------------------------------------------------------

    @torch.no_grad()
    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """One score a triple: ids [B] -> [B]."""
        return self.model.score(self.rows("entity", head), self.rows("relation", relation), self.rows("entity", tail))

    @torch.no_grad()
    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Every entity on `side`: ids [B] -> [B, E]."""
        kind = self.rows("relation", relation)
        query = self.model.query(self.rows("entity", known), kind, side)
        tied = self._distances(query)
        if tied is not None:
            return self.model.finish(tied)
        scores = _beside([self.model.shared(query, kind, block) for _, block in self.blocks()])
        # A matrix product rounds its last columns in another order, so entities with equal rows would not tie.
        twins = self._twins()
        return scores if twins is None else scores[:, twins]

    def _distances(self, query: Tensor) -> Tensor | None:
        """The model's comparisons by kernels whose ties are exact, if it measures distances: [B, d] -> [B, E]."""
        if not type(self.model).plain() or self.model.form == "dot":
            return None
        found = [distances(query, block, self.model.form, sign=-1.0) for _, block in self.blocks()]
        return None if any(part is None for part in found) else _beside([part for part in found if part is not None])

    def _twins(self) -> Tensor | None:
        """Which entities have equal rows; looked for once between two training steps."""
        if self._known_twins is None:
            self._known_twins = (_twins(self.tables["entity"]),)
        return self._known_twins[0]

    # ---- one training step ----------------------------------------------------------------------------------------

    def step(
        self,
        batch: Batch,
        corruptions: list[Corruptions],
        objective: ObjectiveFunction,
        beta: float | Tensor,
        penalty: Penalty | None = None,
        scale: float = 1.0,
        hints: Hints | None = None,
    ) -> float:
        """Score, focus, loss, gradients, update. Minimises loss · `scale` + penalty; returns the loss alone."""
        if self.optimiser is None:
            raise ValueError("an engine without optimiser cannot train")
        places = {name: _Place(table) for name, table in self.tables.items()}
        if self.optimiser.rows_only:
            places["entity"].restrict(_entities_of(batch, corruptions, hints))
            places["relation"].restrict(_relations_of(batch, hints))
        entity, relation = places["entity"], places["relation"]
        model = self.model.with_dense({name: places[name].leaf for name in self.model.dense})
        head, kind, tail = entity.rows(batch.head), relation.rows(batch.relation), entity.rows(batch.tail)
        positive = model.score(head, kind, tail)
        parts = []
        for group in corruptions:
            negative = _negatives(model, head, kind, tail, group, entity)
            parts.append(
                objective(positive, negative, batch.weight, group.counted(len(self.tables["entity"])), beta).sum()
            )
        if hints is not None:
            more = hints.batch
            score = model.score(entity.rows(more.head), relation.rows(more.relation), entity.rows(more.tail))
            parts.append(hints.loss(score, more.weight) * (len(batch) * len(corruptions)))
        loss = torch.stack(parts).sum()
        total = loss * scale
        if penalty is not None:
            # A leaf holds the rows that the step touches, or the whole table for an optimiser of whole tables.
            each = penalty.scope != "rows"
            total = total + penalty([entity.leaf, relation.leaf] if each else [head, kind, tail])
        value, minimised = torch.stack([loss, total]).tolist()
        if not math.isfinite(minimised):
            raise FloatingPointError(f"the loss is {minimised}")
        total.backward()  # type: ignore[no-untyped-call]
        self.optimiser.update({name: (place.ids, place.gradient()) for name, place in places.items()})
        self._known_twins = None
        return float(value)

    def prepare(self, compute: Step) -> Steps:
        """Whole steps (batch, corruptions, `step`) as this engine likes them best; here one after the other."""

        def steps(rows: Sequence[Tensor], beta: float, keys: Sequence[int]) -> float | Tensor:
            return sum(compute(batch, beta, key) for batch, key in zip(rows, keys, strict=True))

        return steps


def _negatives(model: Model, head: Tensor, kind: Tensor, tail: Tensor, group: Corruptions, entity: _Place) -> Tensor:
    """Scores of one group of corruptions, [B, N]."""
    if group.side == "both":
        if group.entities is None or group.tails is None:
            raise ValueError("corruptions of both sides need their entities and sides")
        queries = torch.stack([model.query(head, kind, "tail"), model.query(tail, kind, "head")], dim=1)
        of_tail, of_head = model.own(queries, kind, entity.rows(group.entities)).unbind(1)
        return torch.where(group.tails, of_tail, of_head)
    known = head if group.side == "tail" else tail
    pool = entity.leaf if group.entities is None else entity.rows(group.entities)
    return model.shared(model.query(known, kind, group.side), kind, pool)


class _Place:
    """A table as one step sees it: all of it, or only the rows that the batch needs."""

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.ids: Tensor | None = None
        self.leaf = table.detach().requires_grad_()

    def restrict(self, ids: Tensor | None) -> None:
        """Keep to these ids (None: every row is needed)."""
        if ids is not None:
            self.ids = torch.unique(ids)
            self.leaf = F.embedding(self.ids, self.table).requires_grad_()

    def rows(self, ids: Tensor) -> Tensor:
        place = ids if self.ids is None else torch.searchsorted(self.ids, ids)
        return F.embedding(place, self.leaf)

    def gradient(self) -> Tensor:
        return self.leaf.grad if self.leaf.grad is not None else torch.zeros_like(self.leaf)


def _entities_of(batch: Batch, corruptions: list[Corruptions], hints: Hints | None) -> Tensor | None:
    """All entity ids that a step touches, or None for every one."""
    ids = [batch.head, batch.tail]
    if hints is not None:
        ids += [hints.batch.head, hints.batch.tail]
    for group in corruptions:
        if group.entities is None:
            return None
        ids.append(group.entities.flatten())
    return torch.cat(ids)


def _relations_of(batch: Batch, hints: Hints | None) -> Tensor:
    return batch.relation if hints is None else torch.cat([batch.relation, hints.batch.relation])


def _beside(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _twins(rows: Tensor) -> Tensor | None:
    """For each row the first one equal to it, number for number: [E, d] -> [E]; None if all differ."""
    # Sums of the bits as integers: unlike sums of floats, exact in any order. They only propose, rows decide.
    keys = rows.view(torch.int32).sum(1, dtype=torch.int32)
    distinct, group = torch.unique(keys, return_inverse=True)
    if len(distinct) == len(rows):
        return None
    every = torch.arange(len(rows), device=rows.device)
    first = torch.full_like(every, len(rows)).scatter_reduce_(0, group, every, "amin")[group]
    later = torch.nonzero(first != every)[:, 0]
    equal = later[(rows[later] == rows[first[later]]).all(1)]
    return every.index_copy(0, equal, first[equal])
