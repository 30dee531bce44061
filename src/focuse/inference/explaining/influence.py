"""Which facts a score rests on: how it would change if a fact had not been in train.

At the end of training the pulls on an entity's row balance. Without fact i the row moves until they balance again. To
first order, with H the curvature of the local loss, g the gradient of fact i's loss and s that of the asked score,

    Δθ = (H + λ)⁻¹ g        Δscore = s · Δθ = v · g    with  (H + λ) v = s

so one system is solved for v, by conjugate gradients, and every fact costs a dot product. λ keeps rows near where they
are: training stops long before everything is balanced, and directions that no fact pulls in must not matter. After a
short training the loss may even bend down; λ is raised until it outweighs that, or a change would be anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.engines.scorer import TableScorer
from focuse.inference.explaining.local import LocalLoss, TrainedObjective

CURVED = 256  # facts that the curvature is taken from; more of an entity are sampled
CHUNK = 512  # facts whose gradients are computed at once
STEPS = 20  # of conjugate gradients
RAISES = 12  # times that λ is doubled at most
DAMPING = (
    2.0  # λ, in mean curvatures; chosen by retraining (benchmarks/explain.py), with it estimates have the right size
)
TINY = 1e-6  # added to λ, should nothing bend
STRIDE = 1e-2  # of finite differences, as a share of a row's length

Floats = npt.NDArray[np.float64]


class Influence:
    """How the score of one triple depends on the facts that touch its ends."""

    def __init__(self, learnt: TrainedObjective, scorer: TableScorer, head: int, relation: int, tail: int) -> None:
        self.learnt, self.scorer, self.asked = learnt, scorer, (head, relation, tail)
        self.free = list(dict.fromkeys([head, tail]))
        self.rows = learnt.touching(self.free)
        chosen = self.rows
        if len(chosen) > CURVED:
            chosen = np.sort(np.random.default_rng(0).choice(chosen, CURVED, replace=False))
        self.more = len(self.rows) / max(len(chosen), 1)
        self.local = LocalLoss(learnt, scorer, self.free, torch.from_numpy(chosen))
        self.theta = self.local.start
        self.slope = self._slope(self.theta)

    @property
    def method(self) -> str:
        """How it is computed, in words."""
        if not self.local.raw:
            return "influence over the entities' encoded rows"
        return "influence over the entities' rows"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the figures should know."""
        if self.local.raw:
            return ()
        name = self.learnt.problem.config.model
        return (
            f"{name} makes an entity's row of its neighbours' rows; changes are followed in the finished rows of the "
            "two entities, not through their neighbours",
        )

    def _slope(self, theta: Tensor) -> Tensor:
        leaf = theta.detach().requires_grad_()
        return torch.autograd.grad(self.local.score(leaf, *self.asked), leaf)[0]

    def force(self, theta: Tensor) -> Tensor:
        """The gradient of the local loss: [k, d]."""
        return self.local.gradients(theta).sum(0) * self.more + self.local.pull(theta)

    def curvature(self, direction: Tensor) -> Tensor:
        """H · direction, [k, d], by central differences."""
        size = direction.norm()
        if not size > 0:
            return torch.zeros_like(direction)
        stride = STRIDE * self.theta.norm() / size
        ahead, behind = self.force(self.theta + stride * direction), self.force(self.theta - stride * direction)
        bent: Tensor = (ahead - behind) / (2 * stride)
        return bent

    def fact_gradients(self) -> Tensor:
        """Those of all touching facts' losses, [m, k, d]."""
        parts = torch.split(torch.from_numpy(self.rows), CHUNK)
        return torch.cat([LocalLoss(self.learnt, self.scorer, self.free, part).gradients(self.theta) for part in parts])

    def changes(self) -> tuple[npt.NDArray[np.int64], Floats]:
        """Distinct facts at the ends, as rows of `TrainedObjective.graph`, and the change of the score without each.

        Triples that repeat are one fact: all their rows would be gone. int64 [u], float64 [u].
        """
        if not len(self.rows):
            return self.rows, np.empty(0)
        direction = self.solved(self.slope, self.damping())
        change = (self.fact_gradients() * direction).sum((1, 2)).double().cpu().numpy()
        graph = self.learnt.graph
        keys = graph.keys_of(graph.head[self.rows], graph.relation[self.rows], graph.tail[self.rows])
        _, first, group = np.unique(keys, return_index=True, return_inverse=True)
        return self.rows[first], np.bincount(group, weights=change, minlength=len(first)).astype(np.float64)

    def solved(self, right: Tensor, damping: float, steps: int = STEPS) -> Tensor:
        """(H + λ)⁻¹ right, [k, d]; λ is doubled while H bends down by more than half of it somewhere on the way."""
        for _ in range(RAISES):
            found, least = self._solved(right, damping, steps)
            if least >= -damping / 2:
                break
            damping *= 2
        return found

    def _solved(self, right: Tensor, damping: float, steps: int) -> tuple[Tensor, float]:
        """The same for this λ, and the least that H bends along the directions that were tried."""
        bends = [math.inf]

        def product(direction: Tensor) -> Tensor:
            bent = self.curvature(direction)
            bends.append(float((direction * bent).sum() / (direction * direction).sum()))
            return bent + damping * direction

        return conjugate_gradients(product, right, steps), min(bends)

    def damping(self) -> float:
        """λ; also where a loss bends down (few models' do, at the end of a short training) it holds rows in place."""
        return DAMPING * abs(self.mean_curvature()) + TINY

    def mean_curvature(self, probes: int = 4) -> float:
        """The mean of H's diagonal, by random signs (Hutchinson's estimate)."""
        random = torch.Generator().manual_seed(0)
        found = []
        for _ in range(probes):
            signs = (torch.randint(0, 2, self.theta.shape, generator=random) * 2.0 - 1.0).to(self.theta)
            found.append(float((signs * self.curvature(signs)).mean()))
        return sum(found) / len(found)


def conjugate_gradients(product: Callable[[Tensor], Tensor], right: Tensor, steps: int) -> Tensor:
    """Solve A x = right for a symmetric A given by its products; stops where A bends down or nothing is left.

    Where it bends down at once, the answer is a step along `right`, as long as the bend is strong.

    >>> matrix = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    >>> conjugate_gradients(lambda x: matrix @ x, torch.tensor([3.0, 4.0]), 5).round(decimals=3)
    tensor([1., 1.])
    """
    x, rest = torch.zeros_like(right), right.clone()
    direction, size = rest.clone(), float((rest * rest).sum())
    first = size
    for _ in range(steps):
        if not size > 1e-8 * first:
            break
        turned = product(direction)
        bend = float((direction * turned).sum())
        if bend <= 0:
            return x if x.any() else right * (size / -bend if bend else 1.0)
        step = size / bend
        x, rest = x + step * direction, rest - step * turned
        new = float((rest * rest).sum())
        direction, size = rest + new / size * direction, new
    return x
