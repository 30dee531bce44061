"""Losses on (focused) scores: [B] positives, [B, N] negatives -> [B], one number a positive.

`mask` is True where a negative counts; None means all do. All are written with softplus and log-sum-exp, so
that large scores neither overflow nor lose digits.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.engines.base import Recipe
from focuse.errors import FocuseError, choose
from focuse.focus import Focus, parse_nonlinearity
from focuse.models import Model
from focuse.training.specs import parse_spec

Mask = Tensor | None
Loss = Callable[[Tensor, Tensor, Mask], Tensor]


def multiclass_nll(positive: Tensor, negative: Tensor, mask: Mask) -> Tensor:
    """−log( e^h⁺ / (e^h⁺ + Σ e^h⁻) ): equation 5 as one softmax over a positive and its corruptions."""
    if mask is not None:
        negative = negative.masked_fill(~mask, -torch.inf)
    # The same as ln(1 + Σ e^(h⁻ − h⁺)): small losses keep their digits, and the positive enters once, so that its
    # gradient adds up in the same order with and without focus.
    return F.softplus(torch.logsumexp(negative, dim=1) - positive)


def pairwise_nll(positive: Tensor, negative: Tensor, mask: Mask) -> Tensor:
    """Σ −log( e^h⁺ / (e^h⁺ + e^h⁻) ): equation 5 as a sum over pairs."""
    return _count(F.softplus(negative - positive[:, None]), mask)


def nll(positive: Tensor, negative: Tensor, mask: Mask) -> Tensor:
    """−log s(h⁺) − Σ log s(−h⁻) with the logistic s: every triple judged by itself."""
    return F.softplus(-positive) + _count(F.softplus(negative), mask)


def bce(positive: Tensor, negative: Tensor, mask: Mask) -> Tensor:
    """Binary cross-entropy of the labels 1, 0, …, 0, averaged over a positive and its corruptions."""
    cells = 1 + (negative.shape[1] if mask is None else mask.sum(1))
    return nll(positive, negative, mask) / cells


def margin(positive: Tensor, negative: Tensor, mask: Mask, margin: float = 1.0) -> Tensor:
    """Σ max(0, margin + h⁻ − h⁺): a positive must win by a margin."""
    return _count(F.relu(margin + negative - positive[:, None]), mask)


def self_adversarial(
    positive: Tensor, negative: Tensor, mask: Mask, margin: float = 3.0, temperature: float = 0.5
) -> Tensor:
    """−log s(m + h⁺) − Σ p log s(−h⁻ − m), p the softmax of the negatives' own scores, held constant."""
    scaled = temperature * negative.detach()
    if mask is not None:
        scaled = scaled.masked_fill(~mask, -torch.inf)
    share = torch.softmax(scaled, dim=1).nan_to_num()  # a row without any negative has no shares
    return F.softplus(-(margin + positive)) + _count(share * F.softplus(negative + margin), mask)


def confidence_margin(
    positive: Tensor, negative: Tensor, mask: Mask, weight: Tensor, margin: float = 1.0, power: float = 1.0
) -> Tensor:
    """Σ max(0, wᵖ·margin + h⁻ − h⁺): a positive must win by the more the heavier it is (GTransE, 2019)."""
    return _count(F.relu(negative + (margin * weight.pow(power) - positive)[:, None]), mask)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "multiclass-nll": multiclass_nll,
    "pairwise-nll": pairwise_nll,
    "nll": nll,
    "bce": bce,
    "margin": margin,
    "self-adversarial": self_adversarial,
}
WEIGHTED: dict[str, Callable[..., Tensor]] = {"confidence-margin": confidence_margin}  # they take the weights as well


def make_loss(text: str) -> Loss:
    """The loss written as 'name' or 'name:parameter=value,…', for example 'margin:margin=2'."""
    name, plain, named = parse_spec(text, "loss")
    loss = (LOSSES | WEIGHTED)[choose("loss", name, LOSSES | WEIGHTED)]
    options = list(inspect.signature(loss).parameters)[4 if name in WEIGHTED else 3 :]
    if len(plain) > len(options) or not set(named) <= set(options):
        known = f"it takes {', '.join(options)}" if options else "it takes no numbers"
        raise FocuseError(f"loss {text!r}: {known}")
    if named.get("temperature", 0.0) < 0 or (plain[1:2] and plain[1] < 0):
        raise FocuseError(f"loss {text!r}: give a temperature of at least 0")
    if name in WEIGHTED and min([*named.values(), *plain], default=0.0) < 0:
        raise FocuseError(f"loss {text!r}: give numbers of at least 0")
    defaults = {option: inspect.signature(loss).parameters[option].default for option in options}
    return NamedLoss(name, defaults | dict(zip(options, plain, strict=False)) | named)


@dataclass(frozen=True)
class NamedLoss:
    """A loss with its numbers."""

    name: str
    numbers: dict[str, float]

    @property
    def weighted(self) -> bool:
        """Whether it takes the weights as well."""
        return self.name in WEIGHTED

    def __call__(self, positive: Tensor, negative: Tensor, mask: Mask, *weight: Tensor) -> Tensor:
        return (LOSSES | WEIGHTED)[self.name](positive, negative, mask, *weight, **self.numbers)


@dataclass(frozen=True)
class Objective:
    """Focus, then loss: what an engine minimises.

    positive [B], negative [B, N], weight [B], mask [B, N] or None, β -> [B].
    """

    loss: Loss
    focus: Focus | None = None

    @property
    def recipe(self) -> Recipe | None:
        """The same in words, None for a loss that is not one of LOSSES or takes weights."""
        if not isinstance(self.loss, NamedLoss) or self.loss.weighted:
            return None
        kind, shift = parse_nonlinearity(self.focus.nonlinearity) if self.focus else ("linear", 0.0)
        return Recipe(self.loss.name, kind, shift, self.focus is not None, **self.loss.numbers)

    def __call__(self, positive: Tensor, negative: Tensor, weight: Tensor, mask: Mask, beta: float | Tensor) -> Tensor:
        _fitting(positive, negative, mask)
        if self.focus is not None:
            positive, negative = self.focus(positive, negative, weight, beta)
        if isinstance(self.loss, NamedLoss) and self.loss.weighted:
            return self.loss(positive, negative, mask, weight)
        return self.loss(positive, negative, mask)


@dataclass(frozen=True)
class SoftLabel:
    """The cross-entropy of a positive's share p in a softmax over it and its corruptions, with the weight as label.

    With z = ln Σ e^f⁻ − f⁺, the log-odds against it: q·ln(1 + e^z) + (1 − q)·ln(1 + e^−z). `missing` is added to z
    where corruptions are a sample: ln(rivals there are / corruptions drawn), so that p estimates the share among all.

    A label below 0 says that the triple is false. Among many rivals its share is small already, which is little to
    learn from; so it is held against one, their mean: ln(1 + e^(f⁺ − ln mean e^f⁻)).
    Without any corruption there is nothing to win against, and no loss. β has no part in it.
    """

    missing: float = 0.0

    @property
    def recipe(self) -> Recipe:
        """The same in words."""
        return Recipe("soft-label", margin=self.missing)

    def __call__(self, positive: Tensor, negative: Tensor, weight: Tensor, mask: Mask, beta: float | Tensor) -> Tensor:
        _fitting(positive, negative, mask)
        some = None
        if mask is not None:
            some = mask.any(1)
            # A row without any would be −∞ − …, whose gradient is not a number even where it is not used.
            negative = negative.masked_fill(~mask & some[:, None], -torch.inf)
        odds = torch.logsumexp(negative, dim=1) - positive
        rivals = math.log(max(negative.shape[1], 1)) if mask is None else mask.sum(1).clamp(min=1).to(odds).log()
        odds = torch.where(weight < 0, odds - rivals, odds + self.missing)
        label = weight.clamp(min=0.0)
        value = label * F.softplus(odds) + (1 - label) * F.softplus(-odds)
        return value if some is None else torch.where(some, value, 0.0)


@dataclass(frozen=True)
class SquaredError:
    """UKGE's objective: how far a confidence lies from the weight, and that of corruptions from 0.

    (φ(f⁺) − w)² + mean φ(f⁻)², and for a triple that rules infer with confidence s only its shortfall:
    p · max(0, s − φ(f))², `share` being p. β has no part in it.
    """

    phi: Callable[[Tensor], Tensor]
    share: float = 0.2
    curve: str = "other"  # what φ is called in focus.py

    @property
    def recipe(self) -> Recipe:
        """The same in words."""
        return Recipe("squared-error", self.curve, share=self.share)

    def over(self, model: Model) -> SquaredError:
        """The same for what `model` makes of a score: φ may have dense tensors that are trained."""
        return replace(self, phi=model.trained) if model.confident else self

    def __call__(self, positive: Tensor, negative: Tensor, weight: Tensor, mask: Mask, beta: float | Tensor) -> Tensor:
        _fitting(positive, negative, mask)
        counted = negative.shape[1] if mask is None else mask.sum(1).clamp(min=1)
        wrong = _count(self.phi(negative).square(), mask) / counted
        return (self.phi(positive) - weight).square() + wrong

    def shortfall(self, score: Tensor, bound: Tensor) -> Tensor:
        """The rules' part: scores [S], inferred confidences [S] -> []."""
        return self.share * F.relu(bound - self.phi(score)).square().mean()


@dataclass(frozen=True)
class TwoEvaluators:
    """SUKE's objective: beside the squared error of φ that of a structure s, which is 1 for facts and 0 for others.

    (φ(f⁺) − w)² + mean φ(f⁻)² + (s(f⁺) − 1)² + mean s(f⁻)². Both are of the model as a step sees it (`over`).
    """

    phi: Callable[[Tensor], Tensor]
    structure: Callable[[Tensor], Tensor]
    share: float = 0.2

    def over(self, model: Model) -> TwoEvaluators:
        """The same for what `model` makes of a score."""
        return replace(self, phi=model.trained, structure=model.structure)

    def __call__(self, positive: Tensor, negative: Tensor, weight: Tensor, mask: Mask, beta: float | Tensor) -> Tensor:
        of_facts = SquaredError(self.structure)(positive, negative, torch.ones_like(weight), mask, beta)
        return SquaredError(self.phi)(positive, negative, weight, mask, beta) + of_facts

    def shortfall(self, score: Tensor, bound: Tensor) -> Tensor:
        """The rules' part: scores [S], inferred confidences [S] -> []."""
        return SquaredError(self.phi, self.share).shortfall(score, bound)


def _fitting(positive: Tensor, negative: Tensor, mask: Mask) -> None:
    if negative.dim() != 2 or negative.shape[:1] != positive.shape:
        raise ValueError(f"positives {tuple(positive.shape)} do not fit negatives {tuple(negative.shape)}")
    if mask is not None and mask.shape != negative.shape:
        raise ValueError(f"mask {tuple(mask.shape)} does not fit negatives {tuple(negative.shape)}")


def _count(values: Tensor, mask: Mask) -> Tensor:
    """The sum over the negatives that count: [B, N] -> [B]."""
    return values.sum(1) if mask is None else values.masked_fill(~mask, 0.0).sum(1)
