"""FocusE and soft labels: the two ways in which the weight of an edge enters the loss.

**FocusE** is a layer between the scores of a model and its loss (Pai and Costabello, IJCAI 2021, section 4). For a
positive triple t⁺ with weight w ∈ [0, 1] and its negatives t⁻, with scores f (the numbers are the paper's):

    g(t)  = σ(f(t)) = ln(1 + e^f(t))                 softplus makes scores non-negative          (2)
    α⁺    = β + (1 − w)(1 − β)                       for the positive                            (3)
    α⁻    = β + w (1 − β)                            for each of its negatives                   (3)
    h(t)  = α g(t)                                   the input of the loss, instead of f(t)      (4)

β, the structural influence, falls linearly from 1 (weights are ignored) to 0 (they count in full) over λ epochs. A
high-weight positive gets a small α⁺ while its negatives keep their full score, so its loss is larger and training
works on it longer. The layer has no parameters, is independent of the model and of the loss, and is used in training
only: ranking and prediction use f(t). As β falls, α⁺ of the highest weights goes to 0, and the scores of those
positives are no longer increased.

**Soft labels** avoid that. With p⁺ = e^f(t⁺) / (e^f(t⁺) + Σ e^f(t⁻)), the softmax of a positive among its negatives,
the label and the loss are

    q     = w^γ                                                                                 (S1)
    loss  = −q ln p⁺ − (1 − q) ln(1 − p⁺)            whose slope by f(t⁺) is p⁺ − q             (S2)

so the score of a positive increases until p⁺ reaches its label, and decreases where p⁺ is above it. The label exponent
γ is the only parameter: with γ = 0 every label is 1 (a model without weights), with γ = 1 weights are used as
probabilities, and the larger γ is, the fewer triples have labels far from 0. `focuse.objective.losses.SoftLabelLoss`
computes (S2).

This module implements equations 2 to 4 and S1 for one weight per triple; several weight columns are merged before. The
C++ and Triton kernels repeat equations 2 to 4 and S2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.errors import FocuseError
from focuse.models.base import Model
from focuse.option_strings import choose

# The authors' experiment code computes ln(1 + 9999·eˣ), that is softplus(x + ln 9999): a hidden margin of 9.2.
# Scores of distance models are ≤ 0, where a plain softplus never exceeds ln 2, so these models need the shift.
AUTHORS_SHIFT = math.log(9999.0)

Nonlinearity = Callable[[Tensor], Tensor]
NONLINEARITIES: dict[str, Nonlinearity] = {
    "softplus": F.softplus,
    "shifted-softplus": lambda score: F.softplus(score + AUTHORS_SHIFT),
    "linear": lambda score: score,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


@dataclass(frozen=True)
class FocusELayer:
    """The FocusE layer (equations 2 to 4) with the schedule of β.

    Parameters
    ----------
    nonlinearity
        The function g: one of NONLINEARITIES, or 'shifted-softplus:24' for another shift.
    beta_decay_epochs
        The number of epochs λ; 0 means that β is 0 from the start.
    beta_min
        The lowest value of β.
    fixed_beta
        A constant β that replaces the schedule.

    Examples
    --------
    >>> layer = FocusELayer()
    >>> positive, negative, weight = torch.zeros(1), torch.zeros(1, 2), torch.ones(1)
    >>> layer(positive, negative, weight, beta=0.5)
    (tensor([0.3466]), tensor([[0.6931, 0.6931]]))
    """

    nonlinearity: str = "softplus"
    beta_decay_epochs: int = 100
    beta_min: float = 0.0
    fixed_beta: float | None = None

    def __post_init__(self) -> None:
        make_nonlinearity(self.nonlinearity)
        if self.beta_decay_epochs < 0:
            raise FocuseError(
                f"beta_decay_epochs {self.beta_decay_epochs} is negative; give the epochs over which β falls to 0"
            )
        for name, value in (("beta_min", self.beta_min), ("beta", self.fixed_beta)):
            if value is not None and not 0.0 <= value <= 1.0:
                raise FocuseError(f"{name} {value:g} is out of range; β lies in [0, 1]")

    def beta(self, epoch: int) -> float:
        """Return β in an epoch counted from 0: max(1 − epoch/λ, beta_min), or the fixed value.

        >>> [FocusELayer(beta_decay_epochs=4).beta(epoch) for epoch in range(6)]
        [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
        """
        if self.fixed_beta is not None:
            return self.fixed_beta
        falling = 1.0 - epoch / self.beta_decay_epochs if self.beta_decay_epochs else 0.0
        return max(falling, self.beta_min)

    def __call__(
        self, positive: Tensor, negative: Tensor, weight: Tensor, beta: float | Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return h of the scores f: positives [B], negatives [B, N], weights [B] in [0, 1] -> [B], [B, N]."""
        if positive.shape != weight.shape or negative.dim() != 2 or negative.shape[:1] != positive.shape:
            raise ValueError(
                f"shapes do not fit: positive {tuple(positive.shape)}, negative {tuple(negative.shape)}, "
                f"weight {tuple(weight.shape)}"
            )
        g = make_nonlinearity(self.nonlinearity)
        alpha_positive = beta + (1 - weight) * (1 - beta)
        alpha_negative = beta + weight * (1 - beta)
        return alpha_positive * g(positive), alpha_negative[:, None] * g(negative)


@dataclass(frozen=True)
class SoftLabels:
    """The map from weights to soft labels q = w^γ (equation S1), where γ is `exponent`."""

    exponent: float = 1.0

    def __call__(self, weight: Tensor) -> Tensor:
        """Return the labels of weights [n] in [0, 1]; a negative weight marks a known negative and stays as it is.

        >>> SoftLabels(2.0)(torch.tensor([1.0, 0.5, 0.0, -1.0])).tolist()
        [1.0, 0.25, 0.0, -1.0]
        """
        return torch.where(weight < 0, weight, weight.clamp(min=0.0) ** self.exponent)


def make_nonlinearity(text: str) -> Nonlinearity:
    """Return the function g of this name; 'shifted-softplus:24' shifts by 24 instead of the authors' ln 9999.

    >>> round(make_nonlinearity("shifted-softplus:24")(torch.tensor(-4.0)).item(), 3)
    20.0
    """
    name, shift = parse_nonlinearity(text)
    return (lambda score: F.softplus(score + shift)) if shift else NONLINEARITIES[name]


def parse_nonlinearity(text: str) -> tuple[str, float]:
    """Return the name of the unshifted function g, and the shift that is added to a score before g is applied.

    >>> parse_nonlinearity("shifted-softplus:24"), parse_nonlinearity("tanh")
    (('softplus', 24.0), ('tanh', 0.0))
    """
    name, colon, margin = text.partition(":")
    choose("nonlinearity", name, NONLINEARITIES)
    if not colon:
        return ("softplus", AUTHORS_SHIFT) if name == "shifted-softplus" else (name, 0.0)
    try:
        shift = float(margin)
    except ValueError:
        shift = math.nan
    if name != "shifted-softplus" or not math.isfinite(shift):
        raise FocuseError(f"nonlinearity {text!r}: only shifted-softplus takes a number, like 'shifted-softplus:24'")
    return "softplus", shift


def default_nonlinearity(model: Model | type[Model]) -> str:
    """Return the model's default nonlinearity: softplus, or shifted softplus for distance models (scores ≤ 0).

    A model's own `defaults` take precedence.

    >>> from focuse.models.registry import model_class
    >>> default_nonlinearity(model_class("complex")), default_nonlinearity(model_class("rotate"))
    ('softplus', 'shifted-softplus')
    """
    default = "shifted-softplus" if model.similarity in ("l1", "l2") else "softplus"
    return str(model.defaults.get("nonlinearity", default))
