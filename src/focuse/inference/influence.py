"""Influence functions: how the score of a triple would change if a training triple had been left out.

At the end of training the gradients at an entity's embedding sum to zero. Without triple i the embedding moves until
they do so again. To first order, with the Hessian H of the local loss, the gradient g of the loss of triple i and the
gradient s of the explained score,

    Δθ = (H + λ)⁻¹ g        Δscore = s · Δθ = v · g    with  (H + λ) v = s

One system is solved for v by conjugate gradients, and then every triple costs one dot product. The damping λ keeps the
embeddings near their values, because training stops before all gradients vanish and directions without any gradient
must not matter. After a short training H can have negative eigenvalues; λ is raised until it outweighs them. This is
the influence function of Koh and Liang (2017), restricted to two embeddings as in CRIAGE (Pezeshkpour et al., 2019).

The local loss is the training loss of a run as a function of the embeddings of head and tail; everything else is fixed.
The loss of an epoch is a sum over the training triples. Only the triples at an entity move its embedding, if the
gradients that it gets as a negative of other triples are taken as constant. Therefore the removal of a triple can be
followed without retraining, with the run's own objective, weights and regularizer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
MAX_HESSIAN_TRIPLES = 256  # from which the Hessian is computed; more triples of an entity are sampled
CHUNK = 512  # triples whose gradients are computed at once
CG_STEPS = 20
MAX_RAISES = 12  # of λ, each by a factor of 2
# λ as a multiple of the mean curvature, chosen by retraining (benchmarks/explain.py) for changes of the right size.
DAMPING = 2.0
MIN_DAMPING = 1e-6
STRIDE = 1e-2  # of finite differences, as a fraction of the length of the embeddings


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
        labels, batch = problem.labels, problem.triple_store
        if not isinstance(batch, Batch):
            raise TypeError("explanations need the training triples in memory")
        # High-weight triples lose their gradients while β falls, but the embeddings keep what was learned from them.
        falling = problem.beta(0) != problem.beta(epochs)
        sampled_epochs = np.unique(np.linspace(0, max(epochs - 1, 0), SNAPSHOTS if falling else 1, dtype=int))
        snapshots = [(batch.weight, problem.beta(int(epoch))) for epoch in sampled_epochs]
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
    def steps(self) -> int:
        """Batches per epoch."""
        return -(-len(self.batch) // (self.problem.config.batch_size or len(self.batch)))

    @property
    def scale(self) -> float:
        """The factor of the loss of one triple."""
        config = self.problem.config
        return 1.0 / (config.batch_size or len(self.batch)) if config.reduction == "mean" else 1.0

    def triples_at(self, entities: list[int]) -> npt.NDArray[np.int64]:
        """Return the rows of `graph` whose head or tail is one of these entities; int64 [m]."""
        return np.flatnonzero(np.isin(self.graph.head, entities) | np.isin(self.graph.tail, entities))


def _limit_negatives(config: Config, entities: int) -> Config:
    """Return the settings with few enough negatives to compute all scores at once."""
    if config.negative_sampling == "all":
        if entities <= MAX_ENTITIES:
            return config
        return replace(config, negative_sampling="shared", num_negatives=MAX_NEGATIVES)
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

        def candidates(ids: Tensor | None) -> Tensor:
            return self.entity if ids is None else self.entity[ids]

        for group in score_with_negatives(self.model, triples, self.groups, candidates, len(self.entity)):
            negative = group.negative + self.trained.shift
            for weight, beta in self.snapshots:
                part = objective(group.positive, negative, weight, group.mask, beta)
                total = total + part / len(self.snapshots)
        return add_auxiliary_loss(self.model, triples, total)

    def score(self, theta: Tensor, head: int, relation: int, tail: int) -> Tensor:
        """Return the score of one triple over θ [k, d] as a scalar with a gradient; the mean if the sides differ."""
        slots = self._slot(torch.tensor([head, tail], device=theta.device))
        ends = self.encode(theta[slots], slots)
        relations, offset = self.scorer.encoded_tables()["relation"], self.scorer.inverse_offset
        inverse = None if offset is None else relations[[relation + offset]]
        return score_both_sides(self.model, ends[:1], relations[[relation]], ends[1:], inverse)[0]

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


class Influence:
    """The dependence of the score of one triple on the training triples at its head and tail."""

    def __init__(self, trained: TrainedObjective, scorer: TableScorer, head: int, relation: int, tail: int) -> None:
        self.trained, self.scorer, self.triple = trained, scorer, (head, relation, tail)
        self.free = list(dict.fromkeys([head, tail]))
        self.rows = trained.triples_at(self.free)
        chosen = self.rows
        if len(chosen) > MAX_HESSIAN_TRIPLES:
            chosen = np.sort(np.random.default_rng(0).choice(chosen, MAX_HESSIAN_TRIPLES, replace=False))
        self.sampling_factor = len(self.rows) / max(len(chosen), 1)
        self.local = LocalLoss(trained, scorer, self.free, torch.from_numpy(chosen))
        self.theta = self.local.start
        leaf = self.theta.detach().requires_grad_()
        self.score_gradient = torch.autograd.grad(self.local.score(leaf, *self.triple), leaf)[0]

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on how the changes were estimated."""
        if self.local.raw:
            return ()
        name = self.trained.problem.config.model
        return (
            f"{name} computes the embedding of an entity from its neighbors; changes are estimated in the encoded "
            "embeddings of the two entities, not through their neighbors",
        )

    def gradient(self, theta: Tensor) -> Tensor:
        """Return the gradient of the local loss, [k, d]."""
        return self.local.gradients(theta).sum(0) * self.sampling_factor + self.local.regularizer_gradient(theta)

    def hessian_product(self, direction: Tensor) -> Tensor:
        """Return H · direction, [k, d], by central differences."""
        size = direction.norm()
        if not size > 0:
            return torch.zeros_like(direction)
        stride = STRIDE * self.theta.norm() / size
        ahead, behind = self.gradient(self.theta + stride * direction), self.gradient(self.theta - stride * direction)
        product: Tensor = (ahead - behind) / (2 * stride)
        return product

    def triple_gradients(self) -> Tensor:
        """Return the gradients of the losses of all triples at head and tail, [m, k, d]."""
        parts = torch.split(torch.from_numpy(self.rows), CHUNK)
        return torch.cat(
            [LocalLoss(self.trained, self.scorer, self.free, part).gradients(self.theta) for part in parts]
        )

    def changes(self) -> tuple[npt.NDArray[np.int64], Floats]:
        """Return the distinct triples at head and tail, and the change of the score without each of them.

        Triples are rows of `TrainedObjective.graph`, int64 [u]; changes are float64 [u]. A duplicate triple is removed
        with all its rows.
        """
        if not len(self.rows):
            return self.rows, np.empty(0)
        direction = self.solve(self.score_gradient, self.damping())
        change = (self.triple_gradients() * direction).sum((1, 2)).double().cpu().numpy()
        graph = self.trained.graph
        keys = graph.keys_of(graph.head[self.rows], graph.relation[self.rows], graph.tail[self.rows])
        _, first, group = np.unique(keys, return_index=True, return_inverse=True)
        return self.rows[first], np.bincount(group, weights=change, minlength=len(first)).astype(np.float64)

    def solve(self, right: Tensor, damping: float, steps: int = CG_STEPS) -> Tensor:
        """Return (H + λ)⁻¹ right, [k, d]; λ is doubled while H has a curvature below -λ / 2 on the way."""
        for _ in range(MAX_RAISES):
            solution, smallest = self._solve(right, damping, steps)
            if smallest >= -damping / 2:
                break
            damping *= 2
        return solution

    def _solve(self, right: Tensor, damping: float, steps: int) -> tuple[Tensor, float]:
        """Return the solution for this λ, and the smallest curvature of H along the directions of the search."""
        curvatures = [math.inf]

        def product(direction: Tensor) -> Tensor:
            curved = self.hessian_product(direction)
            curvatures.append(float((direction * curved).sum() / (direction * direction).sum()))
            return curved + damping * direction

        return conjugate_gradients(product, right, steps), min(curvatures)

    def damping(self) -> float:
        """Return the initial λ."""
        return DAMPING * abs(self.mean_curvature()) + MIN_DAMPING

    def mean_curvature(self, probes: int = 4) -> float:
        """Return the mean of H's diagonal, by Hutchinson's estimate with random signs."""
        random = torch.Generator().manual_seed(0)
        estimates = []
        for _ in range(probes):
            signs = (torch.randint(0, 2, self.theta.shape, generator=random) * 2.0 - 1.0).to(self.theta)
            estimates.append(float((signs * self.hessian_product(signs)).mean()))
        return sum(estimates) / len(estimates)


def conjugate_gradients(product: Callable[[Tensor], Tensor], right: Tensor, steps: int) -> Tensor:
    """Solve A x = right for a symmetric A given by its products; stop at negative curvature or a small residual.

    If the first direction has negative curvature, the result is a step along `right`, scaled by that curvature.

    >>> matrix = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    >>> conjugate_gradients(lambda x: matrix @ x, torch.tensor([3.0, 4.0]), 5).round(decimals=3)
    tensor([1., 1.])
    """
    x, residual = torch.zeros_like(right), right.clone()
    direction, size = residual.clone(), float((residual * residual).sum())
    first = size
    for _ in range(steps):
        if not size > 1e-8 * first:
            break
        image = product(direction)
        curvature = float((direction * image).sum())
        if curvature <= 0:
            return x if x.any() else right * (size / -curvature if curvature else 1.0)
        step = size / curvature
        x, residual = x + step * direction, residual - step * image
        new = float((residual * residual).sum())
        direction, size = residual + new / size * direction, new
    return x
