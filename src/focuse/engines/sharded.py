"""The engine of several processes: the table of entities lies in pieces, one a process, the rest everywhere.

Each process takes its share of every batch, asks the owners for the rows that it needs and sends their gradients back;
gradients of relations and of what all triples share are summed, and everyone takes the same step. So a step is the
reference's, up to rounding, whatever the number of processes. Ranking scores each process's own rows: of a query only
its own row, its target's score and counts of rivals cross the network.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.engines.base import (
    Batch,
    Corruptions,
    Hints,
    ObjectiveFunction,
    Penalty,
    TableOptimiser,
)
from focuse.engines.company import Company, part
from focuse.engines.exchange import Exchange
from focuse.engines.places import Place
from focuse.engines.ranking import count_apart
from focuse.engines.reference import ReferenceEngine
from focuse.engines.torchrec import TorchRecExchange
from focuse.engines.torchrec import lacks as torchrec_lacks
from focuse.errors import FocuseError
from focuse.models import Model, Side

PIECE = 1 << 28  # numbers of a table that are brought to a GPU at once, 1 GB
SHARDED = ("sharded", "sharded:torchrec", "sharded:plain", "sharded:host")


class BorrowedPlace(Place):
    """Rows of the entities of this process's share of a batch, of whoever owns them."""

    def __init__(self, exchange: Exchange, once: bool) -> None:
        super().__init__(exchange.rows)
        self.exchange, self.once = exchange, once

    def restrict(self, ids: Tensor | None) -> None:
        if ids is None:
            raise ValueError("no step of the sharded engine can touch every entity")
        self.ids = torch.unique(ids)
        self.leaf = self.values = self.exchange.borrow(self.ids).requires_grad_()
        self.counted = self.exchange.counted(self.ids) if self.once else None

    def touched(self) -> Tensor:
        """Each row with one process, though several have touched it."""
        return self.leaf if self.counted is None else self.leaf[self.counted]


class SharedPlace(Place):
    """Rows that the whole batch touches, of a table that everyone has; the first process answers for penalties."""

    def __init__(self, table: Tensor, ids: Tensor, leads: bool) -> None:
        super().__init__(table)
        self.wanted, self.leads = ids, leads

    def restrict(self, ids: Tensor | None) -> None:
        super().restrict(self.wanted)

    def touched(self) -> Tensor:
        return self.leaf if self.leads else self.leaf[:0]


class ShardedEngine(ReferenceEngine):
    """Owns this process's rows of the entities, `entity` [n, d] of `entities`, and whole tables of all else."""

    title = "rows are exchanged by torch.distributed; TorchRec could do it"

    command = "torchrun … -m focuse"

    def __init__(
        self,
        model: Model,
        entity: Tensor,
        relation: Tensor,
        optimiser: TableOptimiser | None,
        dense: Mapping[str, Tensor],
        company: Company,
        entities: int,
        by: str = "sharded",
    ) -> None:
        super().__init__(model, entity, relation, optimiser, dense)
        self.company, self.count = company, entities
        asked = optimiser is not None and by in ("sharded", "sharded:torchrec")
        lacking = self._lacking(optimiser) if asked else ""
        if by == "sharded:torchrec" and lacking:
            raise FocuseError(f"engine {by!r}: {lacking}; use the engine 'sharded:plain'")
        if lacking or not asked:
            self.exchange = Exchange(entity, entities, company)
            self.instead = lacking
        else:
            self.exchange = TorchRecExchange(entity, entities, company, optimiser)
            self.tables["entity"] = self.exchange.rows
        self._touched = relation.new_empty(0, dtype=torch.int64)
        self._once = False

    def _lacking(self, optimiser: TableOptimiser | None) -> str:
        """Why TorchRec cannot serve, '' if it can; where one process says so, all do without."""
        lacking = torchrec_lacks(optimiser)
        if part(self.count, self.company.count - 1, self.company.count) == slice(self.count, self.count):
            lacking = lacking or f"TorchRec needs a row for each of the {self.company.count} processes"
        elsewhere = self.company.agreed(bool(lacking))
        return lacking or ("TorchRec cannot serve in another process" if elsewhere else "")

    @staticmethod
    def lacks(model: Model) -> str:
        """Why it cannot serve, '' if it can."""
        if model.encodes and not model.rowwise:
            return f"{model.name} makes its entities of the whole table"
        if any(name.startswith("seen_") for name in model.kept):
            return f"{model.name} normalises by the whole batch"
        return "models of PyKEEN are not known well enough" if model.name.startswith("pykeen:") else ""

    @property
    def device(self) -> torch.device:
        return self.company.device

    @property
    def entities(self) -> int:
        return self.count

    @property
    def processes(self) -> int:
        return self.company.count

    def agreed(self, wish: bool) -> bool:
        return self.company.agreed(wish)

    def scorer(self, model: Model, tables: Mapping[str, Tensor]) -> ShardedEngine:
        return sharded_scorer(model, tables, self.count, self.company)

    # ---- scoring, without gradients -------------------------------------------------------------------------------

    @torch.no_grad()
    def rows(self, table: str, ids: Tensor) -> Tensor:
        """Embeddings of `ids`, as the model takes them: [...] -> [..., d]."""
        if table != "entity":
            return super().rows(table, ids)
        distinct, place = torch.unique(ids, return_inverse=True)
        found = self.exchange.fetch(distinct)
        if self._columns is not None or self.model.encodes:
            found = self._encoded(self.model, found, self.tables["relation"], distinct)[0]
        return F.embedding(place, found)

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """The own rows in pieces; those in main memory come to the GPU piece by piece."""
        for first, rows in super().blocks():
            size = len(rows) if rows.device == self.device else max(1, PIECE // rows.shape[1])
            for start in range(0, max(len(rows), 1), max(size, 1)):
                yield first + start, rows[start : start + size].to(self.device)

    def _twins(self) -> Tensor | None:
        found = super()._twins()
        return None if found is None else found.to(self.device)

    def _held(self) -> Tensor:
        return torch.arange(self.exchange.first, self.exchange.last, device=self.device)

    @torch.no_grad()
    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """As the reference's; each process computes its share."""
        mine = self.company.part(len(head))
        return self.company.gathered(super().score(head[mine], relation[mine], tail[mine]), len(head))

    @torch.no_grad()
    def score_some(self, known: Tensor, relation: Tensor, entities: Tensor, side: Side) -> Tensor:
        mine = self.company.part(len(known))
        found = super().score_some(known[mine], relation[mine], entities[mine], side)
        return self.company.gathered(found, len(known))

    @torch.no_grad()
    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Every entity on `side`: ids [B] -> [B, E], which every process gets: for a few queries only."""
        found = super().score_all(known, relation, side)
        return self.company.gathered(found.T.contiguous(), self.count).T

    @torch.no_grad()
    def rivals(
        self,
        known: Tensor,
        relation: Tensor,
        side: Side,
        first: Tensor,
        target: Tensor,
        start: Tensor,
        stop: Tensor,
        facts: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Rivals of each target, as `count_rivals` counts them, int64 [n, 4], and the targets' scores [n]."""
        scores = super().score_all(known, relation, side)  # of the own rows
        query = torch.repeat_interleave(first.diff())
        place = target - self.exchange.first
        mine = (place >= 0) & (place < scores.shape[1])
        own = scores.new_zeros(len(target))
        own[mine] = scores[query[mine], place[mine]]
        self.company.sum(own)
        counts = count_apart(scores, own, query, target, start, stop, facts, self.exchange.first, self.count)
        whole = torch.isfinite(scores).all(1)[query]
        table = self.company.sum(torch.cat([counts, (~whole).long()[:, None]], dim=1))
        table[table[:, 4] > 0] = -1
        return table[:, :4], own

    # ---- one training step ----------------------------------------------------------------------------------------

    def seen(self, name: str) -> Place:
        if name == "entity":
            return BorrowedPlace(self.exchange, self._once)
        if name == "relation":
            return SharedPlace(self.tables[name], self._touched, self.company.leads)
        return super().seen(name)

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
    ) -> float:
        """The reference's step: everyone is given the whole batch and takes a share of it."""
        mine = self.company.part(len(batch))
        more = batch.relation if hints is None else torch.cat([batch.relation, hints.batch.relation])
        self._touched = more
        self._once = penalty is not None and penalty.scope != "rows"
        if mine.start < mine.stop:
            share = Batch(*(column[mine] for column in (batch.head, batch.relation, batch.tail, batch.weight)))
            groups = [_share(group, mine) for group in corruptions]
            loss, total, places = self.minimised(share, groups, objective, beta, penalty, scale, hints, key)
            total.backward()  # type: ignore[no-untyped-call]
            said = torch.stack([loss, total]).detach()
        else:  # fewer triples than processes: nothing to add, but everyone has to be there
            places = {name: self.seen(name) for name in self.tables if name not in self.model.kept}
            for name in ("entity", "relation"):
                places[name].restrict(more[:0])
            said = places["entity"].leaf.new_zeros(2)
        return self._descend(said, places)

    def _descend(self, said: Tensor, places: Mapping[str, Place]) -> float:
        """One step against everyone's gradients; `said` are the loss and what is minimised, of the own share."""
        if self.optimiser is None:
            raise ValueError("an engine without optimiser cannot train")
        gradients = {name: place.gradient() for name, place in places.items()}
        of_entities = gradients.pop("entity")
        flat = self.company.sum(torch.cat([said, *(part.flatten() for part in gradients.values())]))
        loss, minimised = flat[:2].tolist()
        if not math.isfinite(minimised):
            raise FloatingPointError(f"the loss is {minimised}")
        summed = torch.split(flat[2:], [part.numel() for part in gradients.values()])
        of_all = {
            name: (places[name].ids, total.view(part.shape))
            for (name, part), total in zip(gradients.items(), summed, strict=True)
        }
        self.optimiser.update({**self.exchange.give_back(of_entities), **of_all})
        self.changed()
        return float(loss)


def sharded_scorer(model: Model, tables: Mapping[str, Tensor], entities: int, company: Company) -> ShardedEngine:
    """An engine that scores with finished tables, of whose `entities` this process has its own rows."""
    dense = {name: table for name, table in tables.items() if name not in ("entity", "relation")}
    own = tables["entity"], tables["relation"]
    return ShardedEngine(model, *own, None, dense, company, entities, "sharded:plain")


def _share(group: Corruptions, mine: slice) -> Corruptions:
    """The corruptions of a share of the batch; a pool is everyone's."""
    entities = group.entities
    if entities is None:
        raise ValueError("no step of the sharded engine can touch every entity")
    facts = group.facts
    if facts is not None:
        inside = (facts[0] >= mine.start) & (facts[0] < mine.stop)
        facts = facts[0][inside] - mine.start, facts[1][inside]
    return replace(
        group,
        entities=entities if entities.dim() == 1 else entities[mine],
        tails=None if group.tails is None else group.tails[mine],
        mask=None if group.mask is None else group.mask[mine],
        target=None if group.target is None else group.target[mine],
        facts=facts,
    )
