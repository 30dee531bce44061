"""The sharded engine, in which each process holds a shard of the entity table.

Each process computes its part of every batch, requests the rows that it needs from their owners and sends their
gradients back. The gradients of relations and shared parameters are summed over all processes, which then take the same
step. So a step is equal to that of the autograd engine up to rounding, for any number of processes. In ranking, each
process scores the rows of its shard; only the row of a query's known entity, the score of its target and the counts of
competitors are communicated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.engines.autograd import AutogradEngine, TableView
from focuse.engines.base import Step, TableOptimizer
from focuse.engines.process_group import ProcessGroup, shard_slice
from focuse.engines.scorer import TableScorer, count_local_competitors
from focuse.engines.sharded.exchange import EmbeddingExchange, TorchRecExchange, torchrec_unavailable
from focuse.errors import FocuseError
from focuse.models.base import Model, Side, Table
from focuse.objective.negatives import Batch, Negatives

GPU_CHUNK = 1 << 28  # floats of a table that are copied to a GPU at once, 1 GB
SHARDED_ENGINES = ("sharded", "sharded:torchrec", "sharded:plain", "sharded:host")


class ExchangedTableView(TableView):
    """A view of the entity rows in this process's part of a batch, gathered from the processes that own them.

    If `count_once` is True, each touched row is regularized by one process only.
    """

    def __init__(self, exchange: EmbeddingExchange, count_once: bool) -> None:
        super().__init__(exchange.rows)
        self.exchange, self.count_once = exchange, count_once

    def gather(self, ids: Tensor | None) -> None:
        if ids is None:
            raise ValueError("the sharded engine does not support steps that touch every entity")
        self.ids = torch.unique(ids)
        self.leaf = self.values = self.exchange.gather_rows(self.ids).requires_grad_()
        self.counted = self.exchange.is_lowest_rank(self.ids) if self.count_once else None

    def touched(self) -> Tensor:
        """Return the rows that this process regularizes; a row that several processes touch is regularized by one."""
        return self.leaf if self.counted is None else self.leaf[self.counted]


class ReplicatedTableView(TableView):
    """A view of the rows that the whole batch touches, of a replicated table; the main process regularizes them."""

    def __init__(self, table: Tensor, batch_ids: Tensor, is_main: bool) -> None:
        super().__init__(table)
        self.batch_ids, self.is_main = batch_ids, is_main

    def gather(self, ids: Tensor | None) -> None:
        super().gather(self.batch_ids)

    def touched(self) -> Tensor:
        return self.leaf if self.is_main else self.leaf[:0]


class ShardedScorer(TableScorer):
    """A scorer over an entity table of which this process holds a shard; all processes must make every call."""

    def __init__(
        self,
        model: Model,
        tables: Mapping[str, Tensor],
        exchange: EmbeddingExchange,
        inverse_relations: bool = False,
    ) -> None:
        super().__init__(model, tables, inverse_relations)
        self.exchange, self.group, self.num_entities = exchange, exchange.group, exchange.size

    @property
    def device(self) -> torch.device:
        return self.group.device

    @property
    def entities(self) -> int:
        return self.num_entities

    @property
    def processes(self) -> int:
        return self.group.size

    @torch.no_grad()
    def rows(self, table: Table, ids: Tensor) -> Tensor:
        """Return the encoded embeddings of `ids`: [...] -> [..., d]."""
        if table != "entity":
            return super().rows(table, ids)
        distinct, place = torch.unique(ids, return_inverse=True)
        found = self.exchange.fetch(distinct)
        if self.has_attributes or self.model.encoder is not None:
            found = self.encode(self.model, found, self.tables["relation"], distinct)[0]
        return F.embedding(place, found)

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Yield this process's rows in blocks; rows in main memory are copied to the GPU block by block."""
        for first, rows in super().blocks():
            size = len(rows) if rows.device == self.device else max(1, GPU_CHUNK // rows.shape[1])
            for start in range(0, max(len(rows), 1), max(size, 1)):
                yield first + start, rows[start : start + size].to(self.device)

    def _duplicates(self) -> Tensor | None:
        found = super()._duplicates()
        return None if found is None else found.to(self.device)

    def _held_ids(self) -> Tensor:
        return torch.arange(self.exchange.first, self.exchange.last, device=self.device)

    @torch.no_grad()
    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Return one score per triple, ids [B] -> [B]; each process computes a part of them."""
        part = self.group.shard(len(head))
        return self.group.all_gather(super().score(head[part], relation[part], tail[part]), len(head))

    @torch.no_grad()
    def score_some(self, known: Tensor, relation: Tensor, entities: Tensor, side: Side) -> Tensor:
        part = self.group.shard(len(known))
        found = super().score_some(known[part], relation[part], entities[part], side)
        return self.group.all_gather(found, len(known))

    @torch.no_grad()
    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Return the scores of every entity on `side` in every process: ids [B] -> [B, E]. Use it for few queries."""
        found = super().score_all(known, relation, side)
        return self.group.all_gather(found.T.contiguous(), self.num_entities).T

    @torch.no_grad()
    def count_competitors(
        self,
        known: Tensor,
        relation: Tensor,
        side: Side,
        first: Tensor,
        target: Tensor,
        start: Tensor,
        stop: Tensor,
        answers: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the counts int64 [n, 4] of `scorer.count_competitors`, and the scores of the targets [n]."""
        scores = super().score_all(known, relation, side)  # scores of this process's rows
        query = torch.repeat_interleave(first.diff())
        row = target - self.exchange.first
        here = (row >= 0) & (row < scores.shape[1])
        target_scores = scores.new_zeros(len(target))
        target_scores[here] = scores[query[here], row[here]]
        self.group.all_reduce(target_scores)
        counts = count_local_competitors(
            scores, target_scores, query, target, start, stop, answers, self.exchange.first, self.num_entities
        )
        finite = torch.isfinite(scores).all(1)[query]
        table = self.group.all_reduce(torch.cat([counts, (~finite).long()[:, None]], dim=1))
        table[table[:, 4] > 0] = -1
        return table[:, :4], target_scores


class ShardedEngine(AutogradEngine):
    """An engine that holds this process's shard `entity` [n, d] of all `entities`, and all other tables whole."""

    fallback_message = "rows are exchanged by torch.distributed; TorchRec could exchange them"

    def __init__(
        self,
        model: Model,
        entity: Tensor,
        relation: Tensor,
        optimizer: TableOptimizer,
        parameters: Mapping[str, Tensor],
        group: ProcessGroup,
        entities: int,
        name: str = "sharded",
        inverse_relations: bool = False,
    ) -> None:
        self.group, self.num_entities = group, entities
        use_torchrec = name in ("sharded", "sharded:torchrec")
        unavailable = self._torchrec_unavailable(optimizer) if use_torchrec else ""
        if name == "sharded:torchrec" and unavailable:
            raise FocuseError(f"engine {name!r}: {unavailable}; use the engine 'sharded:plain'")
        if unavailable or not use_torchrec:
            self.exchange: EmbeddingExchange = EmbeddingExchange(entity, entities, group)
            self.fallback_reason = unavailable
        else:
            self.exchange = TorchRecExchange(entity, entities, group, optimizer)
        super().__init__(model, self.exchange.rows, relation, optimizer, parameters, inverse_relations)
        self._batch_relations = relation.new_empty(0, dtype=torch.int64)
        self._count_once = False

    def _torchrec_unavailable(self, optimizer: TableOptimizer) -> str:
        """Return why TorchRec cannot be used, or '' if it can; if one process cannot use it, no process does."""
        reason = torchrec_unavailable(optimizer)
        last = shard_slice(self.num_entities, self.group.size - 1, self.group.size)
        if last.start == last.stop:
            reason = reason or f"TorchRec needs a row for each of the {self.group.size} processes"
        elsewhere = self.group.any_rank(bool(reason))
        return reason or ("TorchRec cannot be used in another process" if elsewhere else "")

    @staticmethod
    def unsupported_reason(model: Model) -> str:
        """Return why this engine does not support the model, or '' if it does."""
        if model.encoder is not None and not model.encoder.rowwise:
            return f"{model.name} encodes entities from the whole table"
        return f"{model.name} needs the whole batch" if "whole batch" in model.requires else ""

    @property
    def entities(self) -> int:
        return self.num_entities

    def make_scorer(self, model: Model, tables: Mapping[str, Tensor]) -> ShardedScorer:
        shard = tables["entity"]
        trained = shard is self.exchange.rows
        exchange = self.exchange if trained else EmbeddingExchange(shard, self.num_entities, self.group)
        return ShardedScorer(model, tables, exchange, self.inverse_relations)

    # ---- one training step ----------------------------------------------------------------------------------------

    def table_view(self, name: str) -> TableView:
        if name == "entity":
            return ExchangedTableView(self.exchange, self._count_once)
        if name == "relation":
            return ReplicatedTableView(self.tables[name], self._batch_relations, self.group.is_main)
        return super().table_view(name)

    def step(self, step: Step) -> float:
        """Take one step; every process is given the whole batch and computes its part of it."""
        batch = step.positives
        part = self.group.shard(len(batch))
        self._batch_relations = self.relation_ids(step)
        self._count_once = step.regularizer is not None and step.regularizer.scope != "rows"
        if part.start < part.stop:
            positives = Batch(*(column[part] for column in (batch.head, batch.relation, batch.tail, batch.weight)))
            negatives = [_shard_negatives(group, part) for group in step.negatives]
            loss, total, views = self.compute_loss(replace(step, positives=positives, negatives=negatives))
            total.backward()  # type: ignore[no-untyped-call]
            losses = torch.stack([loss, total]).detach()
        else:  # fewer triples than processes: this process has no part, but must take part in the exchange
            views = {name: self.table_view(name) for name in self.tables if name not in self.model.buffers}
            for name in ("entity", "relation"):
                views[name].gather(self._batch_relations[:0])
            losses = views["entity"].leaf.new_zeros(2)
        return self._update(losses, views)

    def _update(self, losses: Tensor, views: Mapping[str, TableView]) -> float:
        """Sum the gradients over all processes and update; `losses` are this process's loss and minimized total."""
        gradients = {name: view.gradient() for name, view in views.items()}
        entity_gradient = gradients.pop("entity")
        flat = self.group.all_reduce(torch.cat([losses, *(gradient.flatten() for gradient in gradients.values())]))
        loss, minimized = flat[:2].tolist()
        if not math.isfinite(minimized):
            raise FloatingPointError(f"the loss is {minimized}")
        summed = torch.split(flat[2:], [gradient.numel() for gradient in gradients.values()])
        replicated = {
            name: (views[name].ids, total.view(gradient.shape))
            for (name, gradient), total in zip(gradients.items(), summed, strict=True)
        }
        self.optimizer.update({**self.exchange.scatter_gradients(entity_gradient), **replicated})
        self.scorer.invalidate()
        return float(loss)


def _shard_negatives(group: Negatives, part: slice) -> Negatives:
    """Return the negatives of a part of the batch; a shared pool is the same for all parts."""
    entities = group.entities
    if entities is None:
        raise ValueError("the sharded engine does not support steps that touch every entity")
    facts = group.known
    if facts is not None:
        inside = (facts[0] >= part.start) & (facts[0] < part.stop)
        facts = facts[0][inside] - part.start, facts[1][inside]
    return replace(
        group,
        entities=entities if entities.dim() == 1 else entities[part],
        replaces_tail=None if group.replaces_tail is None else group.replaces_tail[part],
        mask=None if group.mask is None else group.mask[part],
        target=None if group.target is None else group.target[part],
        known=facts,
    )
