"""How an edge's weight decides what training focuses on: the paper's layer, and the weight as a label.

FocusE is the layer between a model's scores and its loss (Pai and Costabello, IJCAI 2021, section 4).

For a positive triple t with weight w ∈ [0, 1] and its corruptions t⁻:

    g(t)  = σ(f(t)) = ln(1 + e^f(t))                 softplus makes scores non-negative
    α⁺    = β + (1 − w)(1 − β)                       for the positive
    α⁻    = β + w (1 − β)                            for each corruption, with its positive's w
    h(t)  = α g(t)                                   what the loss sees instead of f(t)

β, the structural influence, falls linearly from 1 (weights are ignored) to 0 (they count in full) over λ
epochs. A heavy positive gets a small α⁺ while its corruptions keep their full score, so its loss is larger
and training works on it longer. The layer has no parameters, knows neither model nor loss, and exists in
training only: ranking and prediction use f(t).

As β falls, α⁺ of the heaviest facts goes to 0 and they pull no longer; `Label` is the way around that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.errors import FocuseError, choose
from focuse.models import Model

# The authors' experiment code computes ln(1 + 9999·eˣ), that is softplus(x + ln 9999): a hidden margin of 9.2.
# Scores of distance models are ≤ 0, where a plain softplus never exceeds ln 2; they need it.
AUTHORS_SHIFT = math.log(9999.0)

Nonlinearity = Callable[[Tensor], Tensor]
NONLINEARITIES: dict[str, Nonlinearity] = {
    "softplus": F.softplus,
    "shifted-softplus": lambda score: F.softplus(score + AUTHORS_SHIFT),
    "linear": lambda score: score,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def make_nonlinearity(text: str) -> Nonlinearity:
    """The one called `text`; 'shifted-softplus:24' has a margin of its own.

    >>> round(make_nonlinearity("shifted-softplus:24")(torch.tensor(-4.0)).item(), 3)
    20.0
    """
    kind, shift = parse_nonlinearity(text)
    return (lambda score: F.softplus(score + shift)) if shift else NONLINEARITIES[kind]


def parse_nonlinearity(text: str) -> tuple[str, float]:
    """Its kind and what is added to a score before.

    >>> parse_nonlinearity("shifted-softplus:24"), parse_nonlinearity("tanh")
    (('softplus', 24.0), ('tanh', 0.0))
    """
    name, colon, margin = text.partition(":")
    choose("non-linearity", name, NONLINEARITIES)
    if not colon:
        return ("softplus", AUTHORS_SHIFT) if name == "shifted-softplus" else (name, 0.0)
    try:
        shift = float(margin)
    except ValueError:
        shift = math.nan
    if name != "shifted-softplus" or not math.isfinite(shift):
        raise FocuseError(f"non-linearity {text!r}: only shifted-softplus takes a number, like 'shifted-softplus:24'")
    return "softplus", shift


@dataclass(frozen=True)
class Focus:
    """The layer and its schedule.

    `decay` is λ in epochs (0: β = 0 from the start), `floor` keeps β from falling below it, and `fixed` sets
    one β for all of training instead of the schedule.
    """

    nonlinearity: str = "softplus"
    decay: int = 100
    floor: float = 0.0
    fixed: float | None = None

    def __post_init__(self) -> None:
        make_nonlinearity(self.nonlinearity)
        if self.decay < 0:
            raise FocuseError(f"decay {self.decay} is negative; give the number of epochs over which β falls to 0")
        for name, value in (("floor of β", self.floor), ("fixed β", self.fixed)):
            if value is not None and not 0.0 <= value <= 1.0:
                raise FocuseError(f"{name} {value:g} is out of range; β lies in [0, 1]")

    def beta(self, epoch: int) -> float:
        """β in the epoch counted from 0: max(1 − epoch/λ, floor), or the fixed value.

        >>> [Focus(decay=4).beta(epoch) for epoch in range(6)]
        [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
        """
        if self.fixed is not None:
            return self.fixed
        falling = 1.0 - epoch / self.decay if self.decay else 0.0
        return max(falling, self.floor)

    def __call__(
        self, positive: Tensor, negative: Tensor, weight: Tensor, beta: float | Tensor
    ) -> tuple[Tensor, Tensor]:
        """Scores in, focused scores out: [B], [B, N], w [B] in [0, 1], β -> [B], [B, N]."""
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
class Label:
    """The weight as a label: how far a fact is to win against what could stand in its place.

    Let p be the share of a positive in a softmax over it and its corruptions, and q = w^γ its label. Training minimises

        −[q ln p + (1 − q) ln(1 − p)]              whose slope by the score is p − q

    so a fact is pulled up to its own label and no further, and pushed down where it stands above it. A fact of weight 1
    is trained as in a plain model: nothing switches off. γ, the sharpness, is the one dial: 0 is the plain model (every
    fact is to win), 1 takes weights at their word, and the larger it is, the fewer facts are worth winning.
    """

    sharpness: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.sharpness <= 100.0:
            raise FocuseError(f"sharpness {self.sharpness:g} is out of range; give 0 (plain) to 100, 1 is faithful")

    def __call__(self, weight: Tensor) -> Tensor:
        """q of weights [n] in [0, 1]; a weight below 0 says that a triple is false, and stays as it is.

        >>> Label(2.0)(torch.tensor([1.0, 0.5, 0.0, -1.0])).tolist()
        [1.0, 0.25, 0.0, -1.0]
        """
        return torch.where(weight < 0, weight, weight.clamp(min=0.0) ** self.sharpness)


def default_nonlinearity(model: Model | type[Model]) -> str:
    """The paper's softplus, or the authors' shifted one for models of distances (scores ≤ 0).

    >>> from focuse.models import kind_of
    >>> default_nonlinearity(kind_of("complex")), default_nonlinearity(kind_of("rotate"))
    ('softplus', 'shifted-softplus')
    """
    return "shifted-softplus" if model.distance or model.form in ("l1", "l2") else "softplus"
