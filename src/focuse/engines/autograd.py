"""The autograd engine: the reference implementation that the other engines are checked against."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.engines.base import Step, TableOptimizer, TrainBatch, TrainBatches
from focuse.engines.scorer import TableScorer
from focuse.models.base import Model, Side, Table, moduli, score_triples
from focuse.objective.losses import SquaredError
from focuse.objective.negatives import Batch, Negatives


class TableView:
    """A table as one step accesses it: the whole table, or only the rows that the batch needs.

    Gradients are computed with respect to `leaf`. A model takes `values`, which equal `leaf` unless they were encoded.
    """

    may_repeat_ids = False  # whether `ids` may contain duplicates, whose gradients are equal

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.ids: Tensor | None = None
        self.leaf = self.values = table.detach().requires_grad_()

    def gather(self, ids: Tensor | None) -> None:
        """Gather only the rows of `ids`; None keeps the whole table."""
        if ids is not None:
            self.ids = torch.unique(ids)
            self.leaf = self.values = F.embedding(self.ids, self.table).requires_grad_()

    def rows(self, ids: Tensor) -> Tensor:
        """Return the rows of `ids`: [...] -> [..., d]."""
        place = ids if self.ids is None else torch.searchsorted(self.ids, ids)
        return F.embedding(place, self.values)

    def candidates(self, ids: Tensor | None) -> Tensor:
        """Return the rows of `ids`, or of all entities if it is None."""
        return self.values if ids is None else self.rows(ids)

    def touched(self) -> Tensor:
        """Return the rows to which a regularizer with scope 'touched' or 'tables' applies."""
        return self.leaf

    def gradient(self) -> Tensor:
        """Return the gradient of `leaf` after the backward pass."""
        return self.leaf.grad if self.leaf.grad is not None else torch.zeros_like(self.leaf)


class FixedSizeTableView(TableView):
    """A view with as many rows as there are ids (at most the whole table), whatever the number of distinct ids.

    So no size has to be read from the GPU. Unused rows repeat the first row and its gradient, so that writing them back
    changes nothing.
    """

    may_repeat_ids = True

    def gather(self, ids: Tensor | None) -> None:
        if ids is None:
            return
        ordered = ids.sort().values
        places = torch.cat([ordered.new_zeros(1), (ordered[1:] != ordered[:-1]).long()]).cumsum(0)
        size = min(len(ids), len(self.table))
        # Padding is larger than every id, so that the search never finds it.
        self.distinct = ordered.new_full((size,), len(self.table)).scatter_(0, places, ordered)
        self.there = self.distinct < len(self.table)
        self.ids = torch.where(self.there, self.distinct, self.distinct[0])
        self.leaf = self.values = F.embedding(self.ids, self.table).requires_grad_()

    def rows(self, ids: Tensor) -> Tensor:
        place = ids if self.ids is None else torch.searchsorted(self.distinct, ids)
        return F.embedding(place, self.values)

    def touched(self) -> Tensor:
        return self.leaf if self.ids is None else torch.where(self.there[:, None], self.leaf, 0.0)

    def gradient(self) -> Tensor:
        found = super().gradient()
        return found if self.ids is None else torch.where(self.there[:, None], found, found[0])


class AutogradEngine:
    """An engine that holds `tables`: the entity table [E, d], the relation table [R, r] and the shared parameters.

    All other engines derive from it. With `inverse_relations` the relation table has 2R rows, and row r + R is the
    inverse of relation r. A triple then has two scores: one as an answer to (h, r, ?) and one as an answer to
    (t, r + R, ?).
    """

    steps_per_call = 1  # number of steps per call that is fastest for this engine
    fallback_message = "training uses torch operations; a faster engine is available"
    fallback_reason = ""  # why a faster engine cannot be used; empty if this engine was requested
    view: type[TableView] = TableView  # the class of the views through which a step accesses tables

    def __init__(
        self, model: Model, tables: Mapping[str, Tensor], optimizer: TableOptimizer, inverse_relations: bool = False
    ) -> None:
        self.tables = dict(tables)
        self.inverse_relations = inverse_relations
        self.scorer = self.make_scorer(model, self.tables)
        self.model = self.scorer.model
        self.optimizer = optimizer
        optimizer.allow_duplicate_ids = self.view.may_repeat_ids

    @property
    def device(self) -> torch.device:
        return self.scorer.device

    @property
    def entities(self) -> int:
        """Number of entities; a sharded engine holds only the rows of its shard."""
        return self.scorer.entities

    def make_scorer(self, model: Model, tables: Mapping[str, Tensor]) -> TableScorer:
        """Return a scorer over tables that are stored like the tables of this engine."""
        return TableScorer(model, tables, self.inverse_relations)

    def step(self, step: Step) -> float | Tensor:
        """Compute the loss and its gradient and update the tables; return the loss without the regularizer."""
        loss, total, views = self.compute_loss(step)
        value, minimized = torch.stack([loss, total]).tolist()
        if not math.isfinite(minimized):
            raise FloatingPointError(f"the loss is {minimized}")
        self.backward_and_update(total, views)
        return float(value)

    def compute_loss(self, step: Step) -> tuple[Tensor, Tensor, dict[str, TableView]]:
        """Return the loss [], the minimized total [], and the views of the tables that both depend on."""
        batch, auxiliary, regularizer = step.positives, step.auxiliary, step.regularizer
        model = self.model
        views = {name: self.table_view(name) for name in self.tables if name not in model.buffers}
        if self.optimizer.rows_only and (model.encoder is None or model.encoder.rowwise):
            views["entity"].gather(_entity_ids(batch, step.negatives, auxiliary))
            views["relation"].gather(self.relation_ids(step))
        entity, relation = views["entity"], views["relation"]
        parameters = {name: views[name].leaf if name in views else self.tables[name] for name in model.parameters}
        model = model.bind(parameters, model.context.in_training(step.seed))
        own = triples = self.triple_embeddings(batch, entity, relation)
        if model.encoder is not None or self.scorer.has_attributes:
            entity.values, relation.values = self.scorer.encode(model, entity.leaf, relation.leaf, entity.ids)
            triples = self.triple_embeddings(batch, entity, relation)
        objective = step.objective
        if isinstance(objective, SquaredError):
            objective = objective.for_model(model)
        parts, sides = [], []
        for terms in score_with_negatives(model, triples, step.negatives, entity.candidates, self.entities):
            parts.append(objective(terms.positive, terms.negative, batch.weight, terms.mask, step.beta).sum())
            sides.append(terms.side)
        if auxiliary is not None and isinstance(objective, SquaredError):
            inferred = self.triple_embeddings(auxiliary, entity, relation)
            found = inferred.scores(model, inferred.queries(model))
            # Auxiliary triples count once per group of negatives, as an answer on the side of that group.
            losses = [objective.rule_loss(found[side], auxiliary.weight) for side in sides]
            parts.append(torch.stack(losses).sum() * len(batch))
        loss = add_auxiliary_loss(model, triples, torch.stack(parts).sum())
        total = loss * step.scale
        if regularizer is not None:
            # A leaf holds the rows that the step touches, or the whole table if the optimizer updates whole tables.
            regularized: list[tuple[Table, Tensor]] = [("entity", entity.touched()), ("relation", relation.touched())]
            if regularizer.scope == "rows":
                regularized = own.regularized()  # embeddings, neither encoded nor with attributes
            parts = [moduli(model, *part) if regularizer.moduli else part[1] for part in regularized]
            total = total + regularizer(parts)
        return loss, total, views

    def relation_ids(self, step: Step) -> Tensor:
        """Return all relation ids that a step touches, including those of inverse relations."""
        ids = step.positives.relation
        if step.auxiliary is not None:
            ids = torch.cat([ids, step.auxiliary.relation])
        offset = self.scorer.inverse_offset
        return ids if offset is None else torch.cat([ids, ids + offset])

    def triple_embeddings(self, batch: Batch, entity: TableView, relation: TableView) -> TripleEmbeddings:
        offset = self.scorer.inverse_offset
        inverse = None if offset is None else relation.rows(batch.relation + offset)
        return TripleEmbeddings(
            entity.rows(batch.head), relation.rows(batch.relation), entity.rows(batch.tail), inverse
        )

    def table_view(self, name: str) -> TableView:
        """Return the view through which a step accesses a table."""
        return self.view(self.tables[name])

    def backward_and_update(self, total: Tensor, views: Mapping[str, TableView]) -> None:
        """Backpropagate `total` and take one optimizer step."""
        total.backward()  # type: ignore[no-untyped-call]
        self.optimizer.update({name: (view.ids, view.gradient()) for name, view in views.items()})
        self.scorer.invalidate()

    def make_batch_runner(self, train_batch: TrainBatch, capture: bool = True) -> TrainBatches:
        """Return a function that runs `train_batch` for several batches in the fastest way for this engine.

        `capture` must be False if steps differ by more than their data, because such steps cannot be replayed.
        """

        def train_batches(rows: Sequence[Tensor], beta: float, seeds: Sequence[int]) -> float | Tensor:
            return sum(train_batch(batch, beta, seed) for batch, seed in zip(rows, seeds, strict=True))

        return train_batches


@dataclass(frozen=True)
class TripleEmbeddings:
    """The embedding rows of B triples; `inverse` holds the rows of the inverse relations, if there are any."""

    head: Tensor
    relation: Tensor
    tail: Tensor
    inverse: Tensor | None

    def queries(self, model: Model) -> dict[Side, Tensor]:
        """Return the queries of both sides [B, q] if there are inverse relations, else an empty dict.

        Positives and negatives share these queries. Both sides are computed as one batch, so that a model with batch
        normalization sees the same kind of batch as in ranking.
        """
        if self.inverse is None:
            return {}
        known, relation = torch.cat([self.head, self.tail]), torch.cat([self.relation, self.inverse])
        of_tail, of_head = model.query(known, relation, "tail").chunk(2)
        return {"tail": of_tail, "head": of_head}

    def scores(self, model: Model, queries: Mapping[Side, Tensor]) -> dict[Side, Tensor]:
        """Return the scores of the triples [B] per predicted side; without inverse relations both are the same."""
        if self.inverse is None:
            found = score_triples(model, self.head, self.relation, self.tail)
            return {"tail": found, "head": found}
        of_tail = model.score(queries["tail"], self.relation, self.tail, "tail")
        return {"tail": of_tail, "head": model.score(queries["head"], self.inverse, self.head, "tail")}

    def regularized(self) -> list[tuple[Table, Tensor]]:
        """Return the rows to which a regularizer with scope 'rows' applies."""
        relations: list[tuple[Table, Tensor]] = [("relation", self.relation)]
        if self.inverse is not None:
            relations.append(("relation", self.inverse))
        return [("entity", self.head), *relations, ("entity", self.tail)]


@dataclass(frozen=True)
class ScoredGroup:
    """The scores of positives [B] as answers on one side, the scores of their negatives [B, N] and the mask."""

    side: Side
    positive: Tensor
    negative: Tensor
    mask: Tensor | None


def score_with_negatives(
    model: Model,
    triples: TripleEmbeddings,
    negatives: list[Negatives],
    candidates: Callable[[Tensor | None], Tensor],
    num_entities: int,
) -> Iterator[ScoredGroup]:
    """Score a batch and its negatives: the forward pass of every loss that is differentiated by autograd.

    Parameters
    ----------
    triples
        Embeddings of the B positives.
    negatives
        Groups of negatives. With inverse relations, a group of both sides becomes two.
    candidates
        Returns the embeddings of entity ids [...] as [..., d], or those of all entities for None.
    """
    queries = triples.queries(model)
    positive = triples.scores(model, queries)
    for group in negatives if triples.inverse is None else _split_sides(negatives):
        side: Side = "head" if group.side == "head" else "tail"
        scores = _score_negatives(model, triples, group, candidates(group.entities), queries)
        yield ScoredGroup(side, positive[side], scores, group.valid_mask(num_entities))


def add_auxiliary_loss(model: Model, triples: TripleEmbeddings, loss: Tensor) -> Tensor:
    """Return the weighted mean of a loss and the model's auxiliary loss, if any: per triple [B], or summed []."""
    if model.auxiliary_loss is None:
        return loss
    weight = model.auxiliary_loss.weight
    own = model.auxiliary_loss.loss(model, triples.head, triples.relation, triples.tail)
    return (1 - weight) * loss + weight * (own if loss.dim() else own.sum())


def _split_sides(negatives: list[Negatives]) -> list[Negatives]:
    """Split negatives of both sides into one group per side.

    With inverse relations, a positive has one score per side.
    """
    found = []
    for group in negatives:
        if group.side != "both" or group.replaces_tail is None:
            found.append(group)
            continue
        for side, mine in (("tail", group.replaces_tail), ("head", ~group.replaces_tail)):
            mask = mine if group.mask is None else mine & group.mask
            found.append(replace(group, side=side, replaces_tail=None, mask=mask))  # type: ignore[arg-type]
    return found


def _score_negatives(
    model: Model, triples: TripleEmbeddings, group: Negatives, candidates: Tensor, queries: Mapping[Side, Tensor]
) -> Tensor:
    """Return the scores [B, N] of one group of negatives, whose embeddings are `candidates`."""
    head, relation, tail = triples.head, triples.relation, triples.tail
    if group.side == "both":
        _, replaces_tail = group.per_triple()
        of_tail = model.score_negatives(model.query(head, relation, "tail"), relation, candidates, "tail")
        of_head = model.score_negatives(model.query(tail, relation, "head"), relation, candidates, "head")
        return torch.where(replaces_tail, of_tail, of_head)
    side: Side = group.side
    if triples.inverse is None:
        query = model.query(head if side == "tail" else tail, relation, side)
    else:
        query, relation = queries[side], relation if side == "tail" else triples.inverse
        side = "tail"
    return (model.score_negatives if candidates.dim() == 3 else model.score_pool)(query, relation, candidates, side)


def _entity_ids(batch: Batch, negatives: list[Negatives], auxiliary: Batch | None) -> Tensor | None:
    """Return all entity ids that a step touches, or None if it touches every entity."""
    ids = [batch.head, batch.tail]
    if auxiliary is not None:
        ids += [auxiliary.head, auxiliary.tail]
    for group in negatives:
        if group.entities is None:
            return None
        ids.append(group.entities.flatten())
    return torch.cat(ids)
