"""The reference engine: plain autograd, as simple as it can be right. Other engines are checked against it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.engines.base import (
    Batch,
    Corruptions,
    Hints,
    ModelObjective,
    ObjectiveFunction,
    Penalty,
    Step,
    Steps,
    TableOptimiser,
)
from focuse.engines.places import Place
from focuse.engines.ranking import distances
from focuse.models import Model, Side

MANY = 1 << 22  # entities: ranking a few thousand triples against more takes many minutes


class ReferenceEngine:
    """Owns the tables of entities [E, d] and relations [R, r] and what is `dense`, and computes with them.

    For ranking and prediction no optimiser is needed. `together` is how many steps it likes to be given at once.
    """

    together = 1
    command = "focuse"  # what starts a training by it
    title = "torch takes the steps; there is a quicker engine"  # what it says where it serves in place of another
    instead = ""  # why it serves in place of a fused one, if it does
    place: type[Place] = Place  # how a step sees a table

    def __init__(
        self,
        model: Model,
        entity: Tensor,
        relation: Tensor,
        optimiser: TableOptimiser | None = None,
        dense: Mapping[str, Tensor] | None = None,
    ) -> None:
        if dense is None:  # their first values, where those are the same in every dimension
            dense = model.dense_start(entity.shape[1], torch.Generator().manual_seed(0))
        dense = dict(dense)
        self.model = model.with_dense(dense)  # it is trained in place, so the model always sees it as it is
        self.tables = {"entity": entity, "relation": relation, **dense}
        self.optimiser = optimiser
        self._columns = model.context.columns()
        self._finished: dict[str, Tensor] | None = None
        self._known_twins: tuple[Tensor | None] | None = None

    @property
    def device(self) -> torch.device:
        return self.tables["entity"].device

    @property
    def entities(self) -> int:
        """How many there are; an engine of several processes holds but some of their rows."""
        return len(self.tables["entity"])

    def agreed(self, wish: bool) -> bool:
        """Whether any process of a training wishes something; here there is one."""
        return wish

    @property
    def dear(self) -> bool:
        """Whether ranking against every entity takes too long."""
        return self.model.dear or len(self.tables["entity"]) > MANY

    @property
    def sided(self) -> bool:
        """Whether a triple has two scores, one as an answer on each side."""
        return self.model.sided

    def rows(self, table: str, ids: Tensor) -> Tensor:
        """Embeddings of `ids`, as the model takes them: [...] -> [..., d]."""
        return F.embedding(ids, self.finished()[table])

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """The entity table in pieces, (first id, rows); here in one."""
        yield 0, self.finished()["entity"]

    @torch.no_grad()
    def finished(self) -> dict[str, Tensor]:
        """Both tables as the model takes them, encoded and with the numbers of entities; made anew after a step."""
        if self._columns is None and not self.model.encodes:
            return self.tables
        if self._finished is None:
            held = self.tables["entity"], self.tables["relation"]
            entity, relation = self._encoded(self.model, *held, self._held())
            self._finished = {"entity": entity, "relation": relation}
        return self._finished

    def _encoded(
        self, model: Model, entity: Tensor, relation: Tensor, ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Rows of both tables as the model takes them; `entity` holds those of `ids`, or all."""
        if self._columns is not None:
            columns = self._columns if ids is None else F.embedding(ids, self._columns)
            entity = torch.cat([entity, columns], dim=1)
        return model.encode(entity, relation) if model.encodes else (entity, relation)

    def _held(self) -> Tensor | None:
        """Ids of the entities whose rows it holds, None for all."""
        return None

    def changed(self) -> None:
        """Forget what was computed from tables as they were."""
        self._finished = self._known_twins = None

    # ---- scoring, without gradients -------------------------------------------------------------------------------

    @torch.no_grad()
    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """One score a triple: ids [B] -> [B]; the mean of both, where asking for head and tail are not the same."""
        rows = self.rows("entity", head), self.rows("relation", relation), self.rows("entity", tail)
        if not self.model.sided:
            return self.model.score(*rows)
        return (self.model.score(*rows, "tail") + self.model.score(*rows, "head")) / 2

    @torch.no_grad()
    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Every entity on `side`: ids [B] -> [B, E]."""
        kind = self.rows("relation", relation)
        query = self.model.query(self.rows("entity", known), kind, side)
        tied = self._distances(query)
        if tied is not None:
            return self.model.finish(tied)
        scores = _beside([self.model.shared(query, kind, block, side) for _, block in self.blocks()])
        # A matrix product rounds its last columns in another order, so entities with equal rows would not tie.
        twins = self._twins()
        return scores if twins is None else scores[:, twins]

    @torch.no_grad()
    def score_some(self, known: Tensor, relation: Tensor, entities: Tensor, side: Side) -> Tensor:
        """Some entities on `side`, each query's own: ids [B], [B], [B, N] -> [B, N]."""
        kind = self.rows("relation", relation)
        query = self.model.query(self.rows("entity", known), kind, side)
        return self.model.answer(query[:, None], kind[:, None], self.rows("entity", entities), side)

    def _distances(self, query: Tensor) -> Tensor | None:
        """The model's comparisons by kernels whose ties are exact, if it measures distances: [B, d] -> [B, E]."""
        if not self.model.compares_plainly() or self.model.form == "dot":
            return None
        found = [distances(query, block, self.model.form, sign=-1.0) for _, block in self.blocks()]
        return None if any(part is None for part in found) else _beside([part for part in found if part is not None])

    def _twins(self) -> Tensor | None:
        """Which entities have equal rows; looked for once between two training steps."""
        if self._known_twins is None:
            self._known_twins = (_twins(self.finished()["entity"]),)
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
        key: int | None = 0,
    ) -> float | Tensor:
        """Score, focus, loss, gradients, update. Minimises loss · `scale` + penalty; returns the loss alone.

        What the model draws is a pure function of `key`.
        """
        loss, total, places = self.minimised(batch, corruptions, objective, beta, penalty, scale, hints, key)
        value, minimised = torch.stack([loss, total]).tolist()
        if not math.isfinite(minimised):
            raise FloatingPointError(f"the loss is {minimised}")
        self.descend(total, places)
        return float(value)

    def minimised(
        self,
        batch: Batch,
        corruptions: list[Corruptions],
        objective: ObjectiveFunction,
        beta: float | Tensor,
        penalty: Penalty | None,
        scale: float,
        hints: Hints | None,
        key: int | None,
    ) -> tuple[Tensor, Tensor, dict[str, Place]]:
        """The loss [], what a step minimises [], and the tables that it is made of."""
        if self.optimiser is None:
            raise ValueError("an engine without optimiser cannot train")
        places = {name: self.seen(name) for name in self.tables if name not in self.model.kept}
        if self.optimiser.rows_only and (self.model.rowwise or not self.model.encodes):
            places["entity"].restrict(_entities_of(batch, corruptions, hints))
            places["relation"].restrict(_relations_of(batch, hints))
        entity, relation = places["entity"], places["relation"]
        dense = {name: places[name].leaf if name in places else self.tables[name] for name in self.model.dense}
        model = self.model.with_dense(dense).in_training(key)
        if model.encodes or self._columns is not None:
            entity.values, relation.values = self._encoded(model, entity.leaf, relation.leaf, entity.ids)
        if isinstance(objective, ModelObjective):
            objective = objective.over(model)
            hints = None if hints is None else replace(hints, loss=objective.shortfall)
        ends = entity.rows(batch.head), relation.rows(batch.relation), entity.rows(batch.tail)
        queries = model.queries(*ends) if model.sided else {}  # for positives and corruptions, as it may be dear
        positive = _positives(model, *ends, queries)
        parts = []
        groups = _one_sided(corruptions) if model.sided else corruptions
        for group in groups:
            side: Side = "head" if group.side == "head" else "tail"
            negative = _negatives(model, *ends, group, entity, queries)
            mask = group.counted(self.entities)
            parts.append(objective(positive[side], negative, batch.weight, mask, beta).sum())
        if hints is not None:
            parts.append(_inferred(model, entity, relation, hints, groups) * len(batch))
        loss, extra = torch.stack(parts).sum(), model.extra(*ends)
        if extra is not None:
            loss = (1 - model.share) * loss + model.share * extra.sum()
        total = loss * scale
        if penalty is not None:
            # A leaf holds the rows that the step touches, or the whole table for an optimiser of whole tables.
            each = penalty.scope != "rows"
            parts = [entity.touched(), relation.touched()] if each else list(ends)
            total = total + penalty(_sizes(model, penalty, parts))
        return loss, total, places

    def seen(self, name: str) -> Place:
        """A table as a step sees it."""
        return self.place(self.tables[name])

    def descend(self, total: Tensor, places: Mapping[str, Place]) -> None:
        """One step of the optimiser, against the gradient of `total`."""
        if self.optimiser is None:
            raise ValueError("an engine without optimiser cannot train")
        total.backward()  # type: ignore[no-untyped-call]
        self.optimiser.update({name: (place.ids, place.gradient()) for name, place in places.items()})
        self.changed()

    def scorer(self, model: Model, tables: Mapping[str, Tensor]) -> ReferenceEngine:
        """An engine that scores with these tables, held as this one holds its own."""
        return make_scorer(model, tables)

    def prepare(self, compute: Step) -> Steps:
        """Whole steps (batch, corruptions, `step`) as this engine likes them best; here one after the other."""

        def steps(rows: Sequence[Tensor], beta: float, keys: Sequence[int]) -> float | Tensor:
            return sum(compute(batch, beta, key) for batch, key in zip(rows, keys, strict=True))

        return steps


def make_scorer(model: Model, tables: Mapping[str, Tensor]) -> ReferenceEngine:
    """An engine that scores with finished tables."""
    dense = {name: table for name, table in tables.items() if name not in ("entity", "relation")}
    return ReferenceEngine(model, tables["entity"], tables["relation"], dense=dense)


def _positives(
    model: Model, head: Tensor, kind: Tensor, tail: Tensor, queries: dict[Side, Tensor]
) -> dict[Side, Tensor]:
    """Scores of the positives [B] as who asks for each side finds them; one and the same for most models."""
    if queries:
        others: dict[Side, Tensor] = {"tail": tail, "head": head}
        return {side: model.answer(query, kind, others[side], side) for side, query in queries.items()}
    found = model.score(head, kind, tail)
    return {"tail": found, "head": found}


def _inferred(model: Model, entity: Place, relation: Place, hints: Hints, groups: list[Corruptions]) -> Tensor:
    """The loss of what rules infer, once a group of corruptions and as who asks for that group's side finds it; []."""
    more = hints.batch
    rows = entity.rows(more.head), relation.rows(more.relation), entity.rows(more.tail)
    if not model.sided:
        return hints.loss(model.score(*rows), more.weight) * len(groups)
    found = _positives(model, *rows, model.queries(*rows))
    return torch.stack([hints.loss(found["head" if g.side == "head" else "tail"], more.weight) for g in groups]).sum()


def _sizes(model: Model, penalty: Penalty, parts: list[Tensor]) -> list[Tensor]:
    """What is penalised of tables (entity, relation) or of rows (head, relation, tail)."""
    if not penalty.moduli:
        return parts
    return [model.moduli("relation" if place == 1 else "entity", part) for place, part in enumerate(parts)]


def _one_sided(corruptions: list[Corruptions]) -> list[Corruptions]:
    """Corruptions of both sides taken apart: a model with two scores a triple holds each against its own."""
    found = []
    for group in corruptions:
        if group.side != "both" or group.tails is None:
            found.append(group)
            continue
        for side, mine in (("tail", group.tails), ("head", ~group.tails)):
            mask = mine if group.mask is None else mine & group.mask
            found.append(replace(group, side=side, tails=None, mask=mask))  # type: ignore[arg-type]
    return found


def _negatives(
    model: Model,
    head: Tensor,
    kind: Tensor,
    tail: Tensor,
    group: Corruptions,
    entity: Place,
    queries: dict[Side, Tensor],
) -> Tensor:
    """Scores of one group of corruptions, [B, N]."""
    if group.side == "both":
        if group.entities is None or group.tails is None:
            raise ValueError("corruptions of both sides need their entities and sides")
        rows = entity.rows(group.entities)
        of_tail = model.own(model.query(head, kind, "tail"), kind, rows, "tail")
        of_head = model.own(model.query(tail, kind, "head"), kind, rows, "head")
        return torch.where(group.tails, of_tail, of_head)
    known = head if group.side == "tail" else tail
    query = queries[group.side] if queries else model.query(known, kind, group.side)
    pool = entity.values if group.entities is None else entity.rows(group.entities)
    return model.own(query, kind, pool, group.side) if pool.dim() == 3 else model.shared(query, kind, pool, group.side)


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
