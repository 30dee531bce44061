"""The training loss of a run as a function of the embeddings of one or two entities; everything else is fixed.

The loss of an epoch is a sum over the training triples. Only the triples at an entity move its embedding, if the
gradients that it gets as a negative of other triples are taken as constant. Therefore the removal of a triple can be
followed without retraining: in the embeddings of head and tail, with the run's own objective, weights and regularizer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.config import Config
from focuse.data.graph import Graph
from focuse.engines.autograd import TripleEmbeddings, add_auxiliary_loss, score_with_negatives
from focuse.engines.scorer import TableScorer, score_both_sides
from focuse.models.base import moduli
from focuse.objective.losses import SquaredError
from focuse.objective.negatives import Batch
from focuse.training.problem import TrainingProblem

if TYPE_CHECKING:
    from focuse.api import Run

Floats = npt.NDArray[np.float64]
MAX_NEGATIVES = 512  # per triple
MAX_ENTITIES = 2048  # up to which all entities are negatives if they were in training
SNAPSHOTS = 5  # epochs whose mean is the objective of a training in which β falls
NEGATIVES_STREAM = (0, 0, 0xE791A)  # of random numbers; no training uses it


@dataclass(frozen=True, eq=False)
class TrainedObjective:
    """The training problem of a run, with few enough negatives to differentiate it quickly; built once per run.

    `snapshots` are (weights float [n], β) of some epochs; `shift` is added to the scores of negatives.
    """

    problem: TrainingProblem
    batch: Batch
    snapshots: list[tuple[Tensor, float]]
    shift: float

    @classmethod
    def build(cls, run: Run) -> TrainedObjective:
        """Return the objective that a run was trained with."""
        config, device, epochs = run.settings, run.scorer.device, len(run.history)
        entities = len(run.graph.entities)
        bounded = replace(_limit_negatives(config, entities), device=str(device))
        problem = TrainingProblem.build(bounded, run.splits, run.normalizer)
        labels, triples, batch = problem.labels, problem.triples, problem.triple_store
        if not isinstance(batch, Batch):
            raise TypeError("explanations need the training triples in memory")
        # High-weight triples lose their gradients while β falls, but the embeddings keep what was learned from them.
        falling = triples.weights_change or problem.beta(0) != problem.beta(epochs)
        snapshots = []
        for epoch in np.unique(np.linspace(0, max(epochs - 1, 0), SNAPSHOTS if falling else 1, dtype=int)):
            weight, beta = triples.weights_at(int(epoch))
            weights = torch.from_numpy(weight).to(device)
            beta = problem.beta(int(epoch)) if beta is None else beta
            snapshots.append((weights if labels is None else labels(weights), beta))
        # A softmax over a sample of the entities gets the size of one over all entities.
        sampled = bounded.negative_sampling != config.negative_sampling and (labels is None or labels.exponent == 0)
        return cls(problem, batch, snapshots, math.log(entities / MAX_NEGATIVES) if sampled else 0.0)

    @cached_property
    def graph(self) -> Graph:
        """The training triples, then the known negatives."""
        return self.problem.triples.graph

    @property
    def num_positives(self) -> int:
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
        """The factor of the loss of one triple."""
        return 1.0 / self.batch_size if self.problem.config.reduction == "mean" else 1.0

    def triples_at(self, entities: list[int]) -> npt.NDArray[np.int64]:
        """Return the rows of `graph` whose head or tail is one of these entities; int64 [m]."""
        return np.flatnonzero(np.isin(self.graph.head, entities) | np.isin(self.graph.tail, entities))


def _limit_negatives(config: Config, entities: int) -> Config:
    """Return the settings with few enough negatives to compute all scores at once."""
    if config.negative_sampling == "all":
        return (
            config
            if entities <= MAX_ENTITIES
            else replace(config, negative_sampling="shared", num_negatives=MAX_NEGATIVES)
        )
    return replace(config, num_negatives=min(config.num_negatives or 1, MAX_NEGATIVES))


class LocalLoss:
    """The losses of some triples [n] and their gradients by the embeddings θ [k, d] of k = 1 or 2 free entities."""

    def __init__(self, trained: TrainedObjective, scorer: TableScorer, free: list[int], rows: Tensor) -> None:
        """`rows` int64 [n] are rows of `trained.graph`."""
        self.trained, self.scorer, self.model = trained, scorer, scorer.model
        self.free = torch.tensor(free, device=scorer.device)
        rows = rows.to(scorer.device)
        self.batch = trained.batch.take(rows)
        self.snapshots = [(weight[rows], beta) for weight, beta in trained.snapshots]
        self.groups = trained.problem.negative_sampler(self.batch, NEGATIVES_STREAM)
        encoded = scorer.encoded_tables()
        self.entity, self.relation = encoded["entity"], encoded["relation"][self.batch.relation]
        offset = scorer.inverse_offset
        self.inverse = None if offset is None else encoded["relation"][self.batch.relation + offset]
        # Which of the free entities is at each end of a triple, -1 for neither.
        self.slots = {"head": self._slot(self.batch.head), "tail": self._slot(self.batch.tail)}
        self.raw = self.model.encoder is None or self.model.encoder.rowwise
        self.columns = self.model.context.attribute_columns() if self.raw else None
        self.start = (scorer.tables["entity"] if self.raw else self.entity)[self.free].clone()

    def _slot(self, ids: Tensor) -> Tensor:
        same = ids[:, None] == self.free
        return torch.where(same.any(1), same.long().argmax(1), -1)

    def encode(self, rows: Tensor, slots: Tensor) -> Tensor:
        """Return the encoded embeddings of raw ones [n, d] that belong to the free entities `slots` [n]."""
        if self.columns is not None:
            rows = torch.cat([rows, self.columns[self.free[slots]]], dim=1)
        if self.model.encoder is not None and self.raw:
            rows = self.model.encoder.encode(self.model, rows, self.scorer.tables["relation"])[0]
        return rows

    def gradients(self, theta: Tensor) -> Tensor:
        """Return the gradient of each triple's loss by each free embedding: θ [k, d] -> [n, k, d]."""
        leaves, ends = {}, {}
        for side, ids in (("head", self.batch.head), ("tail", self.batch.tail)):
            slot = self.slots[side]
            leaves[side] = theta.detach()[slot.clamp(min=0)].requires_grad_()
            moving = self.encode(leaves[side], slot.clamp(min=0))
            ends[side] = torch.where((slot >= 0)[:, None], moving, self.entity[ids])
        loss = self._losses(ends["head"], ends["tail"]).sum() * self.trained.scale
        gradients = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        result = theta.new_zeros(len(self.batch), *theta.shape)
        every = torch.arange(len(self.batch), device=theta.device)
        for side, slot in self.slots.items():
            here = slot >= 0
            result[every[here], slot[here]] += gradients[side][here]
        return result

    def _losses(self, head: Tensor, tail: Tensor) -> Tensor:
        """Return the objective of each triple: embeddings [n, d] -> [n]."""
        objective = self.trained.problem.objective
        if isinstance(objective, SquaredError):
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

    def score(self, theta: Tensor, head: int, relation: int, tail: int) -> Tensor:
        """Return the score of one triple over θ [k, d] as a scalar with a gradient; the mean if the sides differ."""
        slot_of = {int(entity): slot for slot, entity in enumerate(self.free.tolist())}
        ends = []
        for entity in (head, tail):
            slot = torch.tensor([slot_of[entity]], device=theta.device)
            ends.append(self.encode(theta[slot], slot))
        relations, offset = self.scorer.encoded_tables()["relation"], self.scorer.inverse_offset
        inverse = None if offset is None else relations[[relation + offset]]
        return score_both_sides(self.model, ends[0], relations[[relation]], ends[1], inverse)[0]

    def regularizer_gradient(self, theta: Tensor) -> Tensor:
        """Return the gradient of an epoch's regularization of the free embeddings, [k, d]."""
        penalty = self.trained.problem.regularizer
        if penalty is None or not self.raw:
            return torch.zeros_like(theta)
        leaf = theta.detach().requires_grad_()
        sizes = moduli(self.model, "entity", leaf) if penalty.moduli else leaf
        total = sum(times * penalty([row]) for times, row in zip(self._regularized_times(), sizes, strict=True))
        return torch.autograd.grad(total, leaf)[0]  # type: ignore[arg-type]

    def _regularized_times(self) -> list[float]:
        """Return how often per epoch each free embedding is regularized."""
        trained, graph = self.trained, self.trained.graph
        regularizer, sampler = trained.problem.regularizer, trained.problem.negative_sampler
        degrees = [int(((graph.head == one) | (graph.tail == one)).sum()) for one in self.free.tolist()]
        if regularizer is None or regularizer.scope == "tables":
            return [float(trained.steps)] * len(degrees)
        if regularizer.scope == "rows":
            return [float(count) for count in degrees]
        per_triple = sampler.sampling == "per-triple"
        drawn = sampler.count * (len(trained.batch) / trained.steps if per_triple else 1)
        probability = 1.0 if sampler.sampling == "all" else min(1.0, drawn / len(self.entity))
        return [min(float(trained.steps), count + trained.steps * probability) for count in degrees]
