"""The numbers behind the manual's pictures of the layer, all of them from focuse's own code.

Only weights and β vary: a positive has the score 1, its 30 corruptions scores that are drawn once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from focuse.objective.focuse import FocusELayer, SoftLabels, make_nonlinearity
from focuse.objective.losses import FocusedLoss, SoftLabelLoss, make_loss

Floats = npt.NDArray[np.float64]
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
BETAS = (1.0, 0.75, 0.5, 0.25, 0.0)
LABEL_EXPONENTS = (0.0, 0.5, 1.0, 2.0, 4.0, 16.0)
CORRUPTIONS = 30
DECAY = 100
KINDS = ("plain", "paper", "label")


def rivals() -> torch.Tensor:
    """Scores of the corruptions, [1, N]."""
    return torch.randn(1, CORRUPTIONS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def softplus(scores: Floats) -> dict[str, Floats]:
    """g of scores [n]: the paper's, the authors' and none."""
    given = torch.from_numpy(scores)
    return {name: make_nonlinearity(name)(given).numpy() for name in ("softplus", "shifted-softplus", "linear")}


def factors(weight: Floats, beta: float) -> tuple[Floats, Floats]:
    """α⁺ and α⁻ of weights [n]: what the layer makes of scores whose g is 1."""
    one = torch.full((len(weight),), float(np.log(np.e - 1)), dtype=torch.float64)  # softplus of it is 1
    positive, negative = FocusELayer()(one, one[:, None], torch.from_numpy(weight), beta)
    return positive.numpy(), negative[:, 0].numpy()


def objective(kind: str, label_exponent: float = 1.0) -> tuple[FocusedLoss | SoftLabelLoss, SoftLabels | None]:
    """What a training of this kind minimizes, and how it reads a weight."""
    if kind == "label":
        return SoftLabelLoss(), SoftLabels(label_exponent)
    return FocusedLoss(
        make_loss("multiclass-nll"), FocusELayer(beta_decay_epochs=DECAY) if kind == "paper" else None
    ), None


def pulls(weights: tuple[float, ...], epochs: int, kind: str = "paper") -> tuple[Floats, Floats]:
    """How hard a step pulls the positive up and pushes its corruptions down, by epoch and weight; [epochs, W] each."""
    made, label = objective(kind)
    given = torch.tensor(weights, dtype=torch.float64)
    given = given if label is None else label(given)
    up, down = [], []
    for epoch in range(epochs):
        positive = torch.ones(len(weights), dtype=torch.float64, requires_grad=True)
        negative = rivals().expand(len(weights), -1).clone().requires_grad_()
        made(positive, negative, given, None, FocusELayer(beta_decay_epochs=DECAY).beta(epoch)).sum().backward()
        assert positive.grad is not None
        assert negative.grad is not None
        up.append(-positive.grad.numpy())
        down.append(negative.grad.sum(1).numpy())
    return np.stack(up), np.stack(down)


def followed(weights: tuple[float, ...], steps: int, kind: str, rate: float = 0.5) -> Floats:
    """The share p of positives among their corruptions while gradient steps move their scores; [steps, W].

    A step an epoch of the schedule; corruptions stay where they are, as they are corruptions of many other facts too.
    """
    made, label = objective(kind)
    given = torch.tensor(weights, dtype=torch.float64)
    given = given if label is None else label(given)
    positive = torch.zeros(len(weights), dtype=torch.float64, requires_grad=True)
    negative = rivals().expand(len(weights), -1)
    shares = []
    for step in range(steps):
        shares.append(torch.sigmoid(positive.detach() - negative.logsumexp(1)).numpy())
        (slope,) = torch.autograd.grad(
            made(positive, negative, given, None, FocusELayer(beta_decay_epochs=DECAY).beta(step)).sum(), positive
        )
        positive = (positive - rate * slope).detach().requires_grad_()
    return np.stack(shares)


def labels(weight: Floats) -> dict[float, Floats]:
    """q of weights [n] for each label exponent."""
    return {
        label_exponent: SoftLabels(label_exponent)(torch.from_numpy(weight)).numpy()
        for label_exponent in LABEL_EXPONENTS
    }


def slopes(scores: Floats, weights: tuple[float, ...]) -> Floats:
    """∂L/∂f⁺ of labels with a label exponent of 1, by score and weight; [n, W]."""
    made, _ = objective("label")
    columns = []
    for weight in weights:
        positive = torch.from_numpy(scores.copy()).requires_grad_()
        value = made(positive, rivals().expand(len(scores), -1), torch.full_like(positive, weight), None, 0.0)
        value.sum().backward()
        assert positive.grad is not None
        columns.append(positive.grad.numpy())
    return np.stack(columns, axis=1)
