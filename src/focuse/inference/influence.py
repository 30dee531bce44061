"""Influence functions: how the score of a triple would change if a training triple had been left out.

At the end of training the gradients at an entity's embedding sum to zero. Without triple i the embedding moves until
they do so again. To first order, with the Hessian H of the local loss, the gradient g of the loss of triple i and the
gradient s of the explained score,

    Δθ = (H + λ)⁻¹ g        Δscore = s · Δθ = v · g    with  (H + λ) v = s

One system is solved for v by conjugate gradients, and then every triple costs one dot product. The damping λ keeps the
embeddings near their values, because training stops before all gradients vanish and directions without any gradient
must not matter. After a short training H can have negative eigenvalues; λ is raised until it outweighs them. This is
the influence function of Koh and Liang (2017), restricted to two embeddings as in CRIAGE (Pezeshkpour et al., 2019).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.engines.scorer import TableScorer
from focuse.inference.local_loss import LocalLoss, TrainedObjective

MAX_HESSIAN_TRIPLES = 256  # from which the Hessian is computed; more triples of an entity are sampled
CHUNK = 512  # triples whose gradients are computed at once
CG_STEPS = 20
MAX_RAISES = 12  # of λ, each by a factor of 2
# λ as a multiple of the mean curvature, chosen by retraining (benchmarks/explain.py) for changes of the right size.
DAMPING = 2.0
MIN_DAMPING = 1e-6
STRIDE = 1e-2  # of finite differences, as a fraction of the length of the embeddings

Floats = npt.NDArray[np.float64]


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
