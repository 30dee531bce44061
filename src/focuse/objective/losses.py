"""Losses and regularizers.

A loss maps scores of positives [B] and of their negatives [B, N] to one number per positive [B].

`mask` is True where a negative counts; None means that all of them count. All losses use softplus and log-sum-exp, so
that large scores neither overflow nor lose digits. h⁺ and h⁻ are the scores after the FocusE layer, or the model's own
scores if there is no layer.

Training minimizes an *objective*, which also depends on weights and β: `FocusedLoss` (FocusE, then one of LOSSES),
`SoftLabelLoss`, `SquaredError` or `WeightCrossEntropy`. A `FusedObjective` describes an objective to the C++ and
Triton kernels.

A regularizer adds strength · Σ|x|ᵖ over embeddings to the loss of every batch. For n3, |x| is the modulus of a complex
number (Lacroix et al., 2018). The scope of the sum is one of:

    tables   the whole tables, as in the paper
    touched  each row that the batch uses, negatives included, once; equal to `tables` if a batch uses every row, and
             cheaper otherwise
    rows     the rows of the batch's triples, as often as they occur
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.errors import FocuseError
from focuse.models.base import ConfidenceHead, Model
from focuse.objective.focuse import FocusELayer, parse_nonlinearity
from focuse.option_strings import choose, parse_option_string

Mask = Tensor | None


def multiclass_nll(positive: Tensor, negative: Tensor, mask: Mask) -> Tensor:
    """Return −log( e^h⁺ / (e^h⁺ + Σ e^h⁻) ), the paper's equation 5 as one softmax of a positive and its negatives."""
    if mask is not None:
        negative = negative.masked_fill(~mask, -torch.inf)
    # This equals ln(1 + Σ e^(h⁻ − h⁺)). Small losses keep their digits, and the positive occurs once, so that its
    # gradient is summed in the same order with and without the FocusE layer.
    return F.softplus(torch.logsumexp(negative, dim=1) - positive)


def pairwise_nll(positive: Tensor, negative: Tensor, mask: Mask) -> Tensor:
    """Return Σ −log( e^h⁺ / (e^h⁺ + e^h⁻) ), the paper's equation 5 as a sum over pairs."""
    return _masked_sum(F.softplus(negative - positive[:, None]), mask)


def nll(positive: Tensor, negative: Tensor, mask: Mask) -> Tensor:
    """Return −log s(h⁺) − Σ log s(−h⁻) with the logistic function s, which classifies each triple independently."""
    return F.softplus(-positive) + _masked_sum(F.softplus(negative), mask)


def bce(positive: Tensor, negative: Tensor, mask: Mask) -> Tensor:
    """Return the binary cross-entropy of the labels 1, 0, …, 0, averaged over a positive and its negatives."""
    labels = 1 + (negative.shape[1] if mask is None else mask.sum(1))
    return nll(positive, negative, mask) / labels


def margin(positive: Tensor, negative: Tensor, mask: Mask, margin: float = 1.0) -> Tensor:
    """Return Σ max(0, margin + h⁻ − h⁺), which is 0 if the positive exceeds every negative by the margin."""
    return _masked_sum(F.relu(margin + negative - positive[:, None]), mask)


def self_adversarial(
    positive: Tensor, negative: Tensor, mask: Mask, margin: float = 3.0, temperature: float = 0.5
) -> Tensor:
    """Return −log s(m + h⁺) − Σ p log s(−h⁻ − m), where p is the softmax of the negatives' scores without gradient."""
    scaled = temperature * negative.detach()
    if mask is not None:
        scaled = scaled.masked_fill(~mask, -torch.inf)
    probability = torch.softmax(scaled, dim=1).nan_to_num()  # the softmax of a row without negatives is NaN
    return F.softplus(-(margin + positive)) + _masked_sum(probability * F.softplus(negative + margin), mask)


def confidence_margin(
    positive: Tensor, negative: Tensor, mask: Mask, weight: Tensor, margin: float = 1.0, power: float = 1.0
) -> Tensor:
    """Return Σ max(0, wᵖ·margin + h⁻ − h⁺), whose margin grows with the positive's weight (GTransE, 2019)."""
    return _masked_sum(F.relu(negative + (margin * weight.pow(power) - positive)[:, None]), mask)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "multiclass-nll": multiclass_nll,
    "pairwise-nll": pairwise_nll,
    "nll": nll,
    "bce": bce,
    "margin": margin,
    "self-adversarial": self_adversarial,
}
LOSSES_WITH_WEIGHTS: dict[str, Callable[..., Tensor]] = {"confidence-margin": confidence_margin}


def make_loss(text: str) -> NamedLoss:
    """Return the loss that is written as 'name' or 'name:parameter=value,…', for example 'margin:margin=2'."""
    name, positional, named = parse_option_string(text, "loss")
    losses = LOSSES | LOSSES_WITH_WEIGHTS
    choose("loss", name, [*losses, "squared-error", "cross-entropy"])
    parameters = inspect.signature(losses[name]).parameters.values() if name in losses else ()
    options = {option.name: option.default for option in parameters if option.default is not option.empty}
    if name not in losses or len(positional) > len(options) or not set(named) <= set(options):
        expected = f"it takes {', '.join(options)}" if options else "it takes no numbers"
        raise FocuseError(f"loss {text!r}: {expected}")
    first = dict(zip(options, positional, strict=False))
    if twice := first.keys() & named:
        raise FocuseError(f"loss {text!r}: {min(twice)} is given twice")
    options |= first | named
    if options.get("temperature", 0.0) < 0:
        raise FocuseError(f"loss {text!r}: give a temperature of at least 0")
    if name in LOSSES_WITH_WEIGHTS and min(options.values()) < 0:
        raise FocuseError(f"loss {text!r}: give numbers of at least 0")
    return NamedLoss(name, options)


def takes_weights(loss: str) -> bool:
    """Return whether a loss uses the weights itself.

    >>> takes_weights("confidence-margin:margin=2"), takes_weights("margin:2")
    (True, False)
    """
    return loss.partition(":")[0].strip() in LOSSES_WITH_WEIGHTS


@dataclass(frozen=True)
class NamedLoss:
    """One of LOSSES or LOSSES_WITH_WEIGHTS, with its parameters; the latter also take the weights of the positives."""

    name: str
    parameters: dict[str, float]

    def __call__(self, positive: Tensor, negative: Tensor, mask: Mask, *weight: Tensor) -> Tensor:
        return (LOSSES | LOSSES_WITH_WEIGHTS)[self.name](positive, negative, mask, *weight, **self.parameters)


@dataclass(frozen=True)
class FocusedLoss:
    """An objective that applies the FocusE layer, if there is one, and then a loss."""

    loss: NamedLoss
    layer: FocusELayer | None = None

    @property
    def fused(self) -> FusedObjective | None:
        """The objective as data for kernels; None if the loss takes weights."""
        if takes_weights(self.loss.name):
            return None
        name, shift = parse_nonlinearity(self.layer.nonlinearity) if self.layer else ("linear", 0.0)
        return FusedObjective(self.loss.name, name, shift, self.layer is not None, **self.loss.parameters)

    def __call__(self, positive: Tensor, negative: Tensor, weight: Tensor, mask: Mask, beta: float | Tensor) -> Tensor:
        _check_shapes(positive, negative, mask)
        if self.layer is not None:
            positive, negative = self.layer(positive, negative, weight, beta)
        if takes_weights(self.loss.name):
            return self.loss(positive, negative, mask, weight)
        return self.loss(positive, negative, mask)


@dataclass(frozen=True)
class SoftLabelLoss:
    """The cross-entropy between a soft label q and the softmax p of a positive among its negatives.

    With the log-odds z = ln Σ e^f⁻ − f⁺ against the positive, the loss is q·ln(1 + e^z) + (1 − q)·ln(1 + e^−z). If
    negatives are sampled, `log_correction`, ln(possible negatives / sampled negatives), is added to z, so that p
    estimates the softmax over all entities.

    A label below 0 marks a known negative. Its p among many sampled negatives is small already, which gives little
    gradient, so it is compared with their mean only: ln(1 + e^(f⁺ − ln mean e^f⁻)). The loss of a positive without
    negatives is 0. β is not used.
    """

    log_correction: float = 0.0

    @property
    def fused(self) -> FusedObjective:
        """The objective as data for kernels."""
        return FusedObjective("soft-label", margin=self.log_correction)

    def __call__(self, positive: Tensor, negative: Tensor, weight: Tensor, mask: Mask, beta: float | Tensor) -> Tensor:
        _check_shapes(positive, negative, mask)
        has_negatives = None
        if mask is not None:
            has_negatives = mask.any(1)
            # A row without negatives would be −∞ everywhere, and its gradient NaN even though the value is not used.
            negative = negative.masked_fill(~mask & has_negatives[:, None], -torch.inf)
        odds = torch.logsumexp(negative, dim=1) - positive
        log_count = math.log(max(negative.shape[1], 1)) if mask is None else mask.sum(1).clamp(min=1).to(odds).log()
        odds = torch.where(weight < 0, odds - log_count, odds + self.log_correction)
        label = weight.clamp(min=0.0)
        value = label * F.softplus(odds) + (1 - label) * F.softplus(-odds)
        return value if has_negatives is None else torch.where(has_negatives, value, 0.0)


@dataclass(frozen=True)
class SquaredError:
    """The squared error of a confidence φ(f), whose target is the weight, or 0 for negatives.

    UKGE's loss of a triple is (φ(f⁺) − w)² + mean φ(f⁻)². With a `plausibility` s, whose target is 1 for a triple and 0
    for a negative, SUKE's loss adds (s(f⁺) − 1)² + mean s(f⁻)². A triple that rules infer with confidence c adds
    `rule_weight` · max(0, c − φ(f))², which is 0 if its confidence is at least c. φ and s are those of `head` with the
    `parameters` of a model. β is not used.
    """

    head: ConfidenceHead
    rule_weight: float = 0.2
    parameters: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def fused(self) -> FusedObjective | None:
        """The objective as data for kernels, which cannot compute a plausibility."""
        if self.head.has_plausibility:
            return None
        return FusedObjective("squared-error", self.head.activation, rule_weight=self.rule_weight)

    def for_model(self, model: Model) -> SquaredError:
        """Return the objective with the current parameters of `model`."""
        return replace(self, parameters=model.parameters)

    def phi(self, score: Tensor) -> Tensor:
        """Return φ of scores."""
        return self.head.unclipped(score, self.parameters)

    def __call__(self, positive: Tensor, negative: Tensor, weight: Tensor, mask: Mask, beta: float | Tensor) -> Tensor:
        _check_shapes(positive, negative, mask)
        error = _squared_error(self.phi, positive, negative, weight, mask)
        if not self.head.has_plausibility:
            return error
        plausibility = partial(self.head.plausibility, parameters=self.parameters)
        return error + _squared_error(plausibility, positive, negative, 1.0, mask)

    def rule_loss(self, score: Tensor, confidence: Tensor) -> Tensor:
        """Return the loss of triples that rules infer: scores [S], inferred confidences [S] -> []."""
        return self.rule_weight * F.relu(confidence - self.phi(score)).square().mean()


@dataclass(frozen=True)
class WeightCrossEntropy:
    """The cross-entropy between the weight w of a triple and the logistic function s of its score.

    The loss is −w ln s(f) − (1 − w) ln(1 − s(f)), whose slope by f is s(f) − w, so that s(f) estimates the mean weight
    of a triple that is true. There are no negatives, and β is not used.
    """

    fused: FusedObjective = field(default_factory=lambda: FusedObjective("cross-entropy"))

    def __call__(self, positive: Tensor, negative: Tensor, weight: Tensor, mask: Mask, beta: float | Tensor) -> Tensor:
        _check_shapes(positive, negative, mask)
        return F.softplus(positive) - weight * positive


def _squared_error(
    phi: Callable[[Tensor], Tensor], positive: Tensor, negative: Tensor, target: Tensor | float, mask: Mask
) -> Tensor:
    """Return (φ(f⁺) − target)² + mean φ(f⁻)²: [B], [B, N] -> [B]."""
    count = negative.shape[1] if mask is None else mask.sum(1).clamp(min=1)
    return (phi(positive) - target).square() + _masked_sum(phi(negative).square(), mask) / count


def _check_shapes(positive: Tensor, negative: Tensor, mask: Mask) -> None:
    if negative.dim() != 2 or negative.shape[:1] != positive.shape:
        raise ValueError(f"positives {tuple(positive.shape)} do not fit negatives {tuple(negative.shape)}")
    if mask is not None and mask.shape != negative.shape:
        raise ValueError(f"mask {tuple(mask.shape)} does not fit negatives {tuple(negative.shape)}")


def _masked_sum(values: Tensor, mask: Mask) -> Tensor:
    """Return the sum over the negatives that count: [B, N] -> [B]."""
    return values.sum(1) if mask is None else values.masked_fill(~mask, 0.0).sum(1)


@dataclass(frozen=True)
class FusedObjective:
    """An objective as data, for engines that compute it in kernels instead of by autograd.

    Kernels compute h = α·g(f) with g(f) = `nonlinearity`(f + `shift`), and then `loss` of h. If `focused` is False
    (no FocusE layer), α is 1. For the loss 'squared-error', g is the confidence φ, and `rule_weight` scales the loss of
    inferred triples. For 'soft-label', `margin` holds the log correction for sampled negatives.
    """

    loss: str
    nonlinearity: str = "linear"
    shift: float = 0.0
    focused: bool = False
    margin: float = 0.0
    temperature: float = 0.0
    rule_weight: float = 0.0


# positive [B], negative [B, N], weight [B], mask [B, N] or None, β -> [B]
ObjectiveFunction = Callable[[Tensor, Tensor, Tensor, Tensor | None, float | Tensor], Tensor]


POWERS = {"l1": 1, "l2": 2, "l3": 3, "n3": 3}


@dataclass(frozen=True)
class Regularizer:
    """The penalty `strength` · Σ|x|ᵖ with p = `power`, summed over the tables or rows of `scope`.

    If `moduli` is True, |x| is the modulus of the complex numbers of a model.
    """

    power: int
    strength: float
    scope: str = "tables"
    moduli: bool = False

    def __call__(self, parts: Iterable[Tensor]) -> Tensor | float:
        """Return the penalty of the given tables or rows, summed over all their numbers."""
        return self.strength * sum(_power(part, self.power).sum() for part in parts)


def _power(x: Tensor, power: int) -> Tensor:
    if power == 1:
        return x.abs()
    return x * x if power == 2 else x * x * x.abs()


def make_regularizer(text: str, scope: str = "tables") -> Regularizer | None:
    """Return the regularizer that is written as 'l3:1e-3' or 'n3:1e-3', or None for 'none'."""
    name, positional, named = parse_option_string(text, "regularizer")
    choose("regularizer", name, ["none", *POWERS])
    if name == "none" and not positional and not named:
        return None
    if name == "none" or len(positional) != 1 or named or positional[0] < 0:
        raise FocuseError(f"regularizer {text!r}: write its strength after a colon, for example 'l3:1e-3'")
    return Regularizer(POWERS[name], positional[0], scope, name == "n3") if positional[0] else None
