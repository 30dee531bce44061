"""The loss of a run as a function of one or two entities' rows, all else held still.

What a training minimises in one epoch is a sum over facts. Only those that touch an entity pull its row (what else
moves it, being drawn as a corruption of others' facts, is taken for a constant force). So a fact's removal can be
followed without training anew: in the rows of the asked entities, with the run's own objective, weights and all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.engines import Batch, ReferenceEngine
from focuse.engines.base import Corruptions, ModelObjective, ObjectiveFunction
from focuse.evaluation.evaluate import ids_of, known_facts
from focuse.graph.graph import Graph
from focuse.graph.splits import Splits
from focuse.graph.weights import Normaliser
from focuse.models import Side
from focuse.training.chances import make_chances
from focuse.training.columns import TrainingRows
from focuse.training.loop import label_of, make_objective, missing_rivals
from focuse.training.negatives import Sampler
from focuse.training.regularisers import Regulariser, make_regulariser
from focuse.training.settings import Settings

Floats = npt.NDArray[np.float64]
POOL = 512  # most corruptions a fact is held against here
EVERY = 2048  # so many entities are all taken where training took all
MOMENTS = 5  # of a training whose β falls, the objective is the mean of so many
PLACE = (0, 0, 0xE791A)  # of the random stream that corruptions here come from


@dataclass(frozen=True, eq=False)
class Learnt:
    """What a run was trained on and what it minimised, made once a run.

    `moments` are (weights float [n], β) of some epochs; `scale` multiplies losses, `steps` is batches an epoch;
    `shares` float64 [n] are weights in [0, 1], 0 for what is false.
    """

    graph: Graph
    facts: int
    batch: Batch
    moments: list[tuple[Tensor, float]]
    objective: ObjectiveFunction
    shift: float
    sampler: Sampler
    penalty: Regulariser | None
    scale: float
    steps: int
    settings: Settings
    shares: Floats

    @classmethod
    def of(
        cls, settings: Settings, splits: Splits, normaliser: Normaliser, epochs: int, engine: ReferenceEngine
    ) -> Learnt:
        rows, device = TrainingRows.of(settings, splits, normaliser), engine.device
        focus, label = settings.make_focus(), label_of(settings, splits)
        # While β falls the heaviest facts cease to pull, but what they taught stays: all of training counts.
        falling = rows.moving or (focus is not None and focus.beta(0) != focus.beta(epochs))
        moments = []
        for epoch in np.unique(np.linspace(0, max(epochs - 1, 0), MOMENTS if falling else 1, dtype=int)):
            weight, beta = rows.weights_at(int(epoch))
            made = torch.from_numpy(weight).to(device)
            beta = beta if beta is not None else focus.beta(int(epoch)) if focus else 1.0
            moments.append((made if label is None else label(made), beta))
        columns = [column.to(device) for column in ids_of(rows.graph)]
        batch = Batch(columns[0], columns[1], columns[2], moments[0][0])
        facts, entities = len(splits.train), len(splits.train.entities)
        bounded = _bounded(settings, entities)
        known = known_facts([splits.train], device) if settings.filter_negatives else None
        chances = make_chances(settings.corrupt, settings.coin, batch.first(facts), entities, len(rows.graph.relations))
        sampler = Sampler(bounded.sampling, bounded.negatives or 1, entities, known, chances)
        missing = None if label is None else missing_rivals(bounded, label, sampler, batch.first(facts))
        size = settings.batch_size or len(batch)
        # Where a pool stands for all entities, a softmax over it is to weigh as much as one over all.
        fewer = bounded.sampling != settings.sampling and (label is None or label.sharpness == 0)
        return cls(
            rows.graph,
            facts,
            batch,
            moments,
            make_objective(settings, focus, missing),
            math.log(entities / POOL) if fewer else 0.0,
            sampler,
            make_regulariser(settings.regularizer, settings.regularize or "tables"),
            1.0 / size if settings.reduction == "mean" else 1.0,
            -(-len(batch) // size),
            settings,
            np.clip(rows.weight, 0.0, 1.0).astype(np.float64),
        )

    def touching(self, entities: list[int]) -> npt.NDArray[np.int64]:
        """Rows of `graph` that touch one of these entities; int64 [m]."""
        return np.flatnonzero(np.isin(self.graph.head, entities) | np.isin(self.graph.tail, entities))


def _bounded(settings: Settings, entities: int) -> Settings:
    """The same with few enough corruptions to compute in no time."""
    if settings.sampling == "all":
        return settings if entities <= EVERY else replace(settings, sampling="shared", negatives=POOL)
    return replace(settings, negatives=min(settings.negatives or 1, POOL))


class LocalLoss:
    """Losses of some facts [n] and their gradients by the rows θ [k, d] of `free` entities, k being 1 or 2."""

    def __init__(self, learnt: Learnt, engine: ReferenceEngine, free: list[int], rows: Tensor) -> None:
        """`rows` int64 [n] are those of `learnt.graph`."""
        self.learnt, self.engine, self.model = learnt, engine, engine.model
        self.free = torch.tensor(free, device=engine.device)
        rows = rows.to(engine.device)
        self.batch = learnt.batch.take(rows)
        self.moments = [(weight[rows], beta) for weight, beta in learnt.moments]
        self.groups = learnt.sampler(self.batch, PLACE)
        finished = engine.finished()
        self.entity, self.kind = finished["entity"], finished["relation"][self.batch.relation]
        # Which of the free rows stands at each end, -1 for neither.
        self.slots = {"head": self._slot(self.batch.head), "tail": self._slot(self.batch.tail)}
        self.raw = not self.model.encodes or self.model.rowwise
        self.columns = self.model.context.columns() if self.raw else None
        self.start = (engine.tables["entity"] if self.raw else self.entity)[self.free].clone()

    def _slot(self, ids: Tensor) -> Tensor:
        same = ids[:, None] == self.free
        return torch.where(same.any(1), same.long().argmax(1), -1)

    def made(self, rows: Tensor, slots: Tensor) -> Tensor:
        """Rows as the model takes them, of raw ones [n, d] that belong to the free entities `slots` [n]."""
        if self.columns is not None:
            rows = torch.cat([rows, self.columns[self.free[slots]]], dim=1)
        if self.model.encodes and self.raw:
            rows = self.model.encode(rows, self.engine.tables["relation"])[0]
        return rows

    def gradients(self, theta: Tensor) -> Tensor:
        """That of each fact's loss by each free row: θ [k, d] -> [n, k, d]."""
        leaves, ends = {}, {}
        for side, ids in (("head", self.batch.head), ("tail", self.batch.tail)):
            slot = self.slots[side]
            leaves[side] = theta.detach()[slot.clamp(min=0)].requires_grad_()
            moving = self.made(leaves[side], slot.clamp(min=0))
            ends[side] = torch.where((slot >= 0)[:, None], moving, self.entity[ids])
        loss = self._losses(ends["head"], ends["tail"]).sum() * self.learnt.scale
        found = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        result = theta.new_zeros(len(self.batch), *theta.shape)
        every = torch.arange(len(self.batch), device=theta.device)
        for side, slot in self.slots.items():
            here = slot >= 0
            result[every[here], slot[here]] += found[side][here]
        return result

    def _losses(self, head: Tensor, tail: Tensor) -> Tensor:
        """The objective of each fact, rows [n, d] -> [n]."""
        objective = self.learnt.objective
        if isinstance(objective, ModelObjective):
            objective = objective.over(self.model)
        total = head.new_zeros(len(head))
        for positive, negative, mask in self._terms(head, tail):
            for weight, beta in self.moments:
                part = objective(positive, negative + self.learnt.shift, weight, mask, beta)
                total = total + part / len(self.moments)
        extra = self.model.extra(head, self.kind, tail)
        return total if extra is None else (1 - self.model.share) * total + self.model.share * extra

    def _terms(self, head: Tensor, tail: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Scores of the facts [n], of their corruptions [n, N], and which of those count; a term of the loss each."""
        sided, kind = self.model.sided, self.kind
        sides: tuple[Side, ...] = ("tail", "head") if sided else ("tail",)
        positive = {side: self.model.score(head, kind, tail, side) for side in sides}
        for group in self.groups:
            mask = group.counted(len(self.entity))
            if group.side != "both":
                yield positive[group.side if sided else "tail"], self._negatives(group, group.side, head, tail), mask
                continue
            of_tail, of_head = (self._negatives(group, side, head, tail) for side in ("tail", "head"))
            if group.tails is None:
                raise ValueError("corruptions of both sides need their sides")
            if not sided:
                yield positive["tail"], torch.where(group.tails, of_tail, of_head), mask
                continue
            for side, mine, negative in (("tail", group.tails, of_tail), ("head", ~group.tails, of_head)):
                yield positive[side], negative, mine if mask is None else mine & mask  # type: ignore[index]

    def _negatives(self, group: Corruptions, side: Side, head: Tensor, tail: Tensor) -> Tensor:
        query = self.model.query(head if side == "tail" else tail, self.kind, side)
        pool = self.entity if group.entities is None else self.entity[group.entities]
        way = self.model.own if pool.dim() == 3 else self.model.shared
        return way(query, self.kind, pool, side)

    # ---- what is asked about, and what holds rows in place --------------------------------------------------------

    def score(self, theta: Tensor, head: int, relation: int, tail: int) -> Tensor:
        """The score of one triple over θ [k, d]; [] with a gradient, the mean of both sides' where those differ."""
        place = {int(entity): slot for slot, entity in enumerate(self.free.tolist())}
        ends = []
        for entity in (head, tail):
            slot = torch.tensor([place[entity]], device=theta.device)
            ends.append(self.made(theta[slot], slot))
        kind = self.engine.finished()["relation"][[relation]]
        found = self.model.score(ends[0], kind, ends[1], "tail")
        return (found if not self.model.sided else (found + self.model.score(ends[0], kind, ends[1], "head")) / 2)[0]

    def pull(self, theta: Tensor) -> Tensor:
        """The gradient of what an epoch's penalties take of the free rows, [k, d]."""
        penalty = self.learnt.penalty
        if penalty is None or not self.raw:
            return torch.zeros_like(theta)
        leaf = theta.detach().requires_grad_()
        sizes = self.model.moduli("entity", leaf) if penalty.moduli else leaf
        total = sum(times * penalty([row]) for times, row in zip(self._times(), sizes, strict=True))
        return torch.autograd.grad(total, leaf)[0]  # type: ignore[arg-type]

    def _times(self) -> list[float]:
        """How often in an epoch each free row is penalised."""
        learnt, graph = self.learnt, self.learnt.graph
        facts = [int(((graph.head == one) | (graph.tail == one)).sum()) for one in self.free.tolist()]
        if learnt.penalty is None or learnt.penalty.scope == "tables":
            return [float(learnt.steps)] * len(facts)
        if learnt.penalty.scope == "rows":
            return [float(count) for count in facts]
        drawn = learnt.sampler.count * (
            len(self.learnt.batch) / learnt.steps if learnt.sampler.kind == "independent" else 1
        )
        chance = 1.0 if learnt.sampler.kind == "all" else min(1.0, drawn / len(self.entity))
        return [min(float(learnt.steps), count + learnt.steps * chance) for count in facts]
