"""The loss of a run as a function of one or two entities' rows, all else held still.

What a training minimizes in one epoch is a sum over facts. Only those that touch an entity pull its row (what else
moves it, being drawn as a corruption of others' facts, is taken for a constant force). So a fact's removal can be
followed without training anew: in the rows of the asked entities, with the run's own objective, weights and all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.config import Config
from focuse.data.graph import Graph
from focuse.data.splits import Splits
from focuse.data.weights import Normalizer
from focuse.engines.autograd import TripleEmbeddings, add_auxiliary_loss, score_with_negatives
from focuse.engines.scorer import TableScorer, score_both_sides
from focuse.models.base import moduli
from focuse.objective.losses import ModelObjective
from focuse.objective.negatives import Batch
from focuse.training.problem import TrainingProblem

Floats = npt.NDArray[np.float64]
POOL = 512  # most corruptions a fact is held against here
EVERY = 2048  # so many entities are all taken where training took all
SNAPSHOTS = 5  # epochs of a training whose β falls; the objective is their mean
PLACE = (0, 0, 0xE791A)  # of the random stream that corruptions here come from


@dataclass(frozen=True, eq=False)
class TrainedObjective:
    """The training problem of a run with few enough negatives to differentiate it quickly; built once per run.

    `snapshots` are (weights float [n], β) of some epochs; `shift` is added to the scores of negatives.
    """

    problem: TrainingProblem
    batch: Batch
    snapshots: list[tuple[Tensor, float]]
    shift: float

    @classmethod
    def build(
        cls, config: Config, splits: Splits, normalizer: Normalizer, epochs: int, device: torch.device
    ) -> TrainedObjective:
        entities = len(splits.train.entities)
        bounded = replace(_bounded(config, entities), device=str(device))
        problem = TrainingProblem.build(bounded, splits, normalizer)
        labels, triples, batch = problem.labels, problem.triples, problem.triple_store
        if not isinstance(batch, Batch):
            raise TypeError("explanations need the training triples in memory")
        # While β falls, high-weight triples cease to pull, but what they taught stays: all of training counts.
        falling = triples.weights_change or problem.beta(0) != problem.beta(epochs)
        snapshots = []
        for epoch in np.unique(np.linspace(0, max(epochs - 1, 0), SNAPSHOTS if falling else 1, dtype=int)):
            weight, beta = triples.weights_at(int(epoch))
            weights = torch.from_numpy(weight).to(device)
            beta = problem.beta(int(epoch)) if beta is None else beta
            snapshots.append((weights if labels is None else labels(weights), beta))
        # Where a pool stands for all entities, a softmax over it is to weigh as much as one over all.
        sampled = bounded.negative_sampling != config.negative_sampling and (labels is None or labels.exponent == 0)
        return cls(problem, batch, snapshots, math.log(entities / POOL) if sampled else 0.0)

    @cached_property
    def graph(self) -> Graph:
        """The training triples, then the known negatives."""
        return self.problem.triples.graph

    @property
    def facts(self) -> int:
        """Number of training triples, which come first in `graph`."""
        return len(self.problem.splits.train)

    @cached_property
    def unit_weights(self) -> Floats:
        """Weights in [0, 1], 0 for known negatives; float64 [n]."""
        return np.clip(self.problem.triples.weight, 0.0, 1.0).astype(np.float64)

    @property
    def batch_size(self) -> int:
        return self.problem.config.batch_size or len(self.batch)

    @property
    def steps(self) -> int:
        """Batches per epoch."""
        return -(-len(self.batch) // self.batch_size)

    @property
    def scale(self) -> float:
        return 1.0 / self.batch_size if self.problem.config.reduction == "mean" else 1.0

    def touching(self, entities: list[int]) -> npt.NDArray[np.int64]:
        """Rows of `graph` that touch one of these entities; int64 [m]."""
        return np.flatnonzero(np.isin(self.graph.head, entities) | np.isin(self.graph.tail, entities))


def _bounded(config: Config, entities: int) -> Config:
    """The same with few enough negatives to compute at once."""
    if config.negative_sampling == "all":
        return config if entities <= EVERY else replace(config, negative_sampling="shared", num_negatives=POOL)
    return replace(config, num_negatives=min(config.num_negatives or 1, POOL))


class LocalLoss:
    """Losses of some facts [n] and their gradients by the rows θ [k, d] of `free` entities, k being 1 or 2."""

    def __init__(self, trained: TrainedObjective, scorer: TableScorer, free: list[int], rows: Tensor) -> None:
        """`rows` int64 [n] are those of `trained.graph`."""
        self.trained, self.scorer, self.model = trained, scorer, scorer.model
        self.free = torch.tensor(free, device=scorer.device)
        rows = rows.to(scorer.device)
        self.batch = trained.batch.take(rows)
        self.snapshots = [(weight[rows], beta) for weight, beta in trained.snapshots]
        self.groups = trained.problem.negative_sampler(self.batch, PLACE)
        finished = scorer.encoded_tables()
        self.entity, self.relation = finished["entity"], finished["relation"][self.batch.relation]
        offset = scorer.inverse_offset
        self.inverse = None if offset is None else finished["relation"][self.batch.relation + offset]
        # Which of the free rows stands at each end, -1 for neither.
        self.slots = {"head": self._slot(self.batch.head), "tail": self._slot(self.batch.tail)}
        self.raw = self.model.encoder is None or self.model.encoder.rowwise
        self.columns = self.model.context.attribute_columns() if self.raw else None
        self.start = (scorer.tables["entity"] if self.raw else self.entity)[self.free].clone()

    def _slot(self, ids: Tensor) -> Tensor:
        same = ids[:, None] == self.free
        return torch.where(same.any(1), same.long().argmax(1), -1)

    def made(self, rows: Tensor, slots: Tensor) -> Tensor:
        """Rows as the model takes them, of raw ones [n, d] that belong to the free entities `slots` [n]."""
        if self.columns is not None:
            rows = torch.cat([rows, self.columns[self.free[slots]]], dim=1)
        if self.model.encoder is not None and self.raw:
            rows = self.model.encoder.encode(self.model, rows, self.scorer.tables["relation"])[0]
        return rows

    def gradients(self, theta: Tensor) -> Tensor:
        """That of each fact's loss by each free row: θ [k, d] -> [n, k, d]."""
        leaves, ends = {}, {}
        for side, ids in (("head", self.batch.head), ("tail", self.batch.tail)):
            slot = self.slots[side]
            leaves[side] = theta.detach()[slot.clamp(min=0)].requires_grad_()
            moving = self.made(leaves[side], slot.clamp(min=0))
            ends[side] = torch.where((slot >= 0)[:, None], moving, self.entity[ids])
        loss = self._losses(ends["head"], ends["tail"]).sum() * self.trained.scale
        found = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        result = theta.new_zeros(len(self.batch), *theta.shape)
        every = torch.arange(len(self.batch), device=theta.device)
        for side, slot in self.slots.items():
            here = slot >= 0
            result[every[here], slot[here]] += found[side][here]
        return result

    def _losses(self, head: Tensor, tail: Tensor) -> Tensor:
        """The objective of each triple: rows [n, d] -> [n]."""
        objective = self.trained.problem.objective
        if isinstance(objective, ModelObjective):
            objective = objective.for_model(self.model)
        triples = TripleEmbeddings(head, self.relation, tail, self.inverse)
        total = head.new_zeros(len(head))
        for group in score_with_negatives(self.model, triples, self.groups, self._candidates, len(self.entity)):
            negative = group.negative + self.trained.shift
            for weight, beta in self.snapshots:
                part = objective(group.positive, negative, weight, group.mask, beta)
                total = total + part / len(self.snapshots)
        return add_auxiliary_loss(self.model, triples, total)

    def _candidates(self, ids: Tensor | None) -> Tensor:
        return self.entity if ids is None else self.entity[ids]

    # ---- what is asked about, and what holds rows in place --------------------------------------------------------

    def score(self, theta: Tensor, head: int, relation: int, tail: int) -> Tensor:
        """The score of one triple over θ [k, d]; [] with a gradient, the mean of both sides' where those differ."""
        place = {int(entity): slot for slot, entity in enumerate(self.free.tolist())}
        ends = []
        for entity in (head, tail):
            slot = torch.tensor([place[entity]], device=theta.device)
            ends.append(self.made(theta[slot], slot))
        relations, offset = self.scorer.encoded_tables()["relation"], self.scorer.inverse_offset
        inverse = None if offset is None else relations[[relation + offset]]
        return score_both_sides(self.model, ends[0], relations[[relation]], ends[1], inverse)[0]

    def pull(self, theta: Tensor) -> Tensor:
        """The gradient of what an epoch's penalties take of the free rows, [k, d]."""
        penalty = self.trained.problem.regularizer
        if penalty is None or not self.raw:
            return torch.zeros_like(theta)
        leaf = theta.detach().requires_grad_()
        sizes = moduli(self.model, "entity", leaf) if penalty.moduli else leaf
        total = sum(times * penalty([row]) for times, row in zip(self._times(), sizes, strict=True))
        return torch.autograd.grad(total, leaf)[0]  # type: ignore[arg-type]

    def _times(self) -> list[float]:
        """How often per epoch each free row is regularized."""
        trained, graph = self.trained, self.trained.graph
        regularizer, sampler = trained.problem.regularizer, trained.problem.negative_sampler
        facts = [int(((graph.head == one) | (graph.tail == one)).sum()) for one in self.free.tolist()]
        if regularizer is None or regularizer.scope == "tables":
            return [float(trained.steps)] * len(facts)
        if regularizer.scope == "rows":
            return [float(count) for count in facts]
        per_triple = sampler.sampling == "per-triple"
        drawn = sampler.count * (len(trained.batch) / trained.steps if per_triple else 1)
        chance = 1.0 if sampler.sampling == "all" else min(1.0, drawn / len(self.entity))
        return [min(float(trained.steps), count + trained.steps * chance) for count in facts]
