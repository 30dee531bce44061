"""Losses and regularizers.

A loss maps scores of positives [B] and of their negatives [B, N] to one number per positive [B].

`mask` is True where a negative counts; None means all do. All are written with softplus and log-sum-exp, so that large
scores neither overflow nor lose digits. h⁺ and h⁻ are the scores after the FocusE layer, or as the model gives them.

A training minimizes an *objective*, which also sees weights and β: `FocusedLoss` (FocusE, then one of LOSSES),
`SoftLabelLoss`, `SquaredError` or `TwoHeadedSquaredError`. `FusedObjective` describes one to C++ and Triton kernels.

A regularizer adds strength · Σ|x|ᵖ over embeddings to the loss of every batch. For n3, |x| is the modulus of a complex
number (Lacroix et al., 2018). It covers one of SCOPES: whole `tables` (as in the paper); the rows that the batch has
`touched`, negatives included, once each, which is the same if a batch touches every row and cheaper where it does not;
or the `rows` of the batch's triples, as often as they occur.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.errors import FocuseError
from focuse.models.base import Model
from focuse.objective.focuse import FocusELayer, parse_nonlinearity
from focuse.option_strings import choose, parse_option_string

Mask = Tensor | None
Loss = Callable[[Tensor, Tensor, Mask], Tensor]


def multiclass_nll(positive: Tensor, negative: Tensor, mask: Mask) -> Tensor:
    """−log( e^h⁺ / (e^h⁺ + Σ e^h⁻) ): the paper's equation 5 as one softmax over a positive and its negatives."""
    if mask is not None:
        negative = negative.masked_fill(~mask, -torch.inf)
    # The same as ln(1 + Σ e^(h⁻ − h⁺)): small losses keep their digits, and the positive enters once, so that its
    # gradient adds up in the same order with and without weights.
    return F.softplus(torch.logsumexp(negative, dim=1) - positive)


def pairwise_nll(positive: Tensor, negative: Tensor, mask: Mask) -> Tensor:
    """Σ −log( e^h⁺ / (e^h⁺ + e^h⁻) ): the paper's equation 5 as a sum over pairs."""
    return _masked_sum(F.softplus(negative - positive[:, None]), mask)


def nll(positive: Tensor, negative: Tensor, mask: Mask) -> Tensor:
    """−log s(h⁺) − Σ log s(−h⁻) with the logistic s: every triple is classified independently."""
    return F.softplus(-positive) + _masked_sum(F.softplus(negative), mask)


def bce(positive: Tensor, negative: Tensor, mask: Mask) -> Tensor:
    """Binary cross-entropy of the labels 1, 0, …, 0, averaged over a positive and its negatives."""
    cells = 1 + (negative.shape[1] if mask is None else mask.sum(1))
    return nll(positive, negative, mask) / cells


def margin(positive: Tensor, negative: Tensor, mask: Mask, margin: float = 1.0) -> Tensor:
    """Σ max(0, margin + h⁻ − h⁺): a positive must win by a margin."""
    return _masked_sum(F.relu(margin + negative - positive[:, None]), mask)


def self_adversarial(
    positive: Tensor, negative: Tensor, mask: Mask, margin: float = 3.0, temperature: float = 0.5
) -> Tensor:
    """−log s(m + h⁺) − Σ p log s(−h⁻ − m), p the softmax of the negatives' own scores, held constant."""
    scaled = temperature * negative.detach()
    if mask is not None:
        scaled = scaled.masked_fill(~mask, -torch.inf)
    share = torch.softmax(scaled, dim=1).nan_to_num()  # a row without any negative has no shares
    return F.softplus(-(margin + positive)) + _masked_sum(share * F.softplus(negative + margin), mask)


def confidence_margin(
    positive: Tensor, negative: Tensor, mask: Mask, weight: Tensor, margin: float = 1.0, power: float = 1.0
) -> Tensor:
    """Σ max(0, wᵖ·margin + h⁻ − h⁺): the higher its weight, the more a positive must win by (GTransE, 2019)."""
    return _masked_sum(F.relu(negative + (margin * weight.pow(power) - positive)[:, None]), mask)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "multiclass-nll": multiclass_nll,
    "pairwise-nll": pairwise_nll,
    "nll": nll,
    "bce": bce,
    "margin": margin,
    "self-adversarial": self_adversarial,
}
WEIGHTED: dict[str, Callable[..., Tensor]] = {"confidence-margin": confidence_margin}  # losses that take weights


def make_loss(text: str) -> Loss:
    """Return the loss written as 'name' or 'name:parameter=value,…', for example 'margin:margin=2'."""
    name, plain, named = parse_option_string(text, "loss")
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
    """One of LOSSES or WEIGHTED with its parameters."""

    name: str
    parameters: dict[str, float]

    @property
    def weighted(self) -> bool:
        """Whether the loss takes the weights of the positives."""
        return self.name in WEIGHTED

    def __call__(self, positive: Tensor, negative: Tensor, mask: Mask, *weight: Tensor) -> Tensor:
        return (LOSSES | WEIGHTED)[self.name](positive, negative, mask, *weight, **self.parameters)


@dataclass(frozen=True)
class FocusedLoss:
    """The FocusE layer, if there is one, and then a loss."""

    loss: Loss
    layer: FocusELayer | None = None

    @property
    def fused(self) -> FusedObjective | None:
        """The objective as kernels take it; None for a loss that is not one of LOSSES or takes weights."""
        if not isinstance(self.loss, NamedLoss) or self.loss.weighted:
            return None
        name, shift = parse_nonlinearity(self.layer.nonlinearity) if self.layer else ("linear", 0.0)
        return FusedObjective(self.loss.name, name, shift, self.layer is not None, **self.loss.parameters)

    def __call__(self, positive: Tensor, negative: Tensor, weight: Tensor, mask: Mask, beta: float | Tensor) -> Tensor:
        _check_shapes(positive, negative, mask)
        if self.layer is not None:
            positive, negative = self.layer(positive, negative, weight, beta)
        if isinstance(self.loss, NamedLoss) and self.loss.weighted:
            return self.loss(positive, negative, mask, weight)
        return self.loss(positive, negative, mask)


@dataclass(frozen=True)
class SoftLabelLoss:
    """Cross-entropy between a soft label q and the softmax p of a positive among its negatives.

    With the log-odds z = ln Σ e^f⁻ − f⁺ against the positive, the loss is q·ln(1 + e^z) + (1 − q)·ln(1 + e^−z).
    `log_correction`, ln(possible negatives / negatives drawn), is added to z where negatives are a sample, so that p
    estimates the softmax among all entities.

    A label below 0 says that the triple is false. Among many negatives its p is small already, which teaches little; so
    it is compared with one, their mean: ln(1 + e^(f⁺ − ln mean e^f⁻)). A positive without any negative has no loss. β
    is not used.
    """

    log_correction: float = 0.0

    @property
    def fused(self) -> FusedObjective:
        """The objective as kernels take it."""
        return FusedObjective("soft-label", margin=self.log_correction)

    def __call__(self, positive: Tensor, negative: Tensor, weight: Tensor, mask: Mask, beta: float | Tensor) -> Tensor:
        _check_shapes(positive, negative, mask)
        has_negatives = None
        if mask is not None:
            has_negatives = mask.any(1)
            # A row without any would be −∞ − …, whose gradient is not a number even where it is not used.
            negative = negative.masked_fill(~mask & has_negatives[:, None], -torch.inf)
        odds = torch.logsumexp(negative, dim=1) - positive
        log_count = math.log(max(negative.shape[1], 1)) if mask is None else mask.sum(1).clamp(min=1).to(odds).log()
        odds = torch.where(weight < 0, odds - log_count, odds + self.log_correction)
        label = weight.clamp(min=0.0)
        value = label * F.softplus(odds) + (1 - label) * F.softplus(-odds)
        return value if has_negatives is None else torch.where(has_negatives, value, 0.0)


@dataclass(frozen=True)
class SquaredError:
    """UKGE's objective: squared distance of a confidence φ(f) from the weight, and from 0 for negatives.

    (φ(f⁺) − w)² + mean φ(f⁻)². A triple that rules infer with confidence s adds only its shortfall,
    `rule_weight` · max(0, s − φ(f))². `activation` names φ for kernels. β is not used.
    """

    phi: Callable[[Tensor], Tensor]
    rule_weight: float = 0.2
    activation: str = "other"

    @property
    def fused(self) -> FusedObjective:
        """The objective as kernels take it."""
        return FusedObjective("squared-error", self.activation, rule_weight=self.rule_weight)

    def for_model(self, model: Model) -> SquaredError:
        """Return the objective with the φ of `model`, which may have trained parameters."""
        head = model.confidence_head
        return self if head is None else replace(self, phi=partial(head.unclipped, parameters=model.parameters))

    def __call__(self, positive: Tensor, negative: Tensor, weight: Tensor, mask: Mask, beta: float | Tensor) -> Tensor:
        _check_shapes(positive, negative, mask)
        count = negative.shape[1] if mask is None else mask.sum(1).clamp(min=1)
        error = _masked_sum(self.phi(negative).square(), mask) / count
        return (self.phi(positive) - weight).square() + error

    def shortfall(self, score: Tensor, bound: Tensor) -> Tensor:
        """Return the loss of inferred triples: scores [S], inferred confidences [S] -> []."""
        return self.rule_weight * F.relu(bound - self.phi(score)).square().mean()


@dataclass(frozen=True)
class TwoHeadedSquaredError:
    """SUKE's objective: the squared error of the confidence φ and that of the plausibility s.

    (φ(f⁺) − w)² + mean φ(f⁻)² + (s(f⁺) − 1)² + mean s(f⁻)²: the plausibility of a triple is 1, that of a negative 0.
    """

    phi: Callable[[Tensor], Tensor]
    plausibility: Callable[[Tensor], Tensor]
    rule_weight: float = 0.2

    def for_model(self, model: Model) -> TwoHeadedSquaredError:
        """Return the objective with the φ and s of `model`."""
        head = model.confidence_head
        if head is None:
            return self
        phi, plausibility = (partial(part, parameters=model.parameters) for part in (head.unclipped, head.plausibility))
        return replace(self, phi=phi, plausibility=plausibility)

    def __call__(self, positive: Tensor, negative: Tensor, weight: Tensor, mask: Mask, beta: float | Tensor) -> Tensor:
        plausible = SquaredError(self.plausibility)(positive, negative, torch.ones_like(weight), mask, beta)
        return SquaredError(self.phi)(positive, negative, weight, mask, beta) + plausible

    def shortfall(self, score: Tensor, bound: Tensor) -> Tensor:
        """Return the loss of inferred triples: scores [S], inferred confidences [S] -> []."""
        return SquaredError(self.phi, self.rule_weight).shortfall(score, bound)


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

    h = α·g(f) with g(f) = `nonlinearity`(f + `shift`), then `loss` over h; without FocusE (`focused`) α is 1.
    For the loss 'squared-error' g is the confidence φ, and `rule_weight` scales the loss of inferred triples. For
    'soft-label' `margin` is the log correction of sampled negatives.
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


@runtime_checkable
class ModelObjective(Protocol):
    """An objective that uses what the model makes of a score; every step binds it to the model as it is."""

    def for_model(self, model: Model) -> ModelObjective: ...

    def shortfall(self, score: Tensor, bound: Tensor) -> Tensor:
        """Return the loss of inferred triples: scores [S], inferred confidences [S] -> []."""

    def __call__(
        self, positive: Tensor, negative: Tensor, weight: Tensor, mask: Tensor | None, beta: float | Tensor
    ) -> Tensor: ...


POWERS = {"l1": 1, "l2": 2, "l3": 3, "n3": 3}
SCOPES = ("tables", "touched", "rows")


@dataclass(frozen=True)
class Regularizer:
    """`strength` · Σ|x|ᵖ with p = `power`, over the tables or rows that `scope` names.

    With `moduli`, |x| of a model with complex numbers is their modulus.
    """

    power: int
    strength: float
    scope: str = "tables"
    moduli: bool = False

    def __call__(self, parts: Iterable[Tensor]) -> Tensor | float:
        """Return the penalty of the given tables or rows, a sum over all their numbers."""
        return self.strength * sum(_power(part, self.power).sum() for part in parts)


def _power(x: Tensor, power: int) -> Tensor:
    if power == 1:
        return x.abs()
    return x * x if power == 2 else x * x * x.abs()


def make_regularizer(text: str, scope: str = "tables") -> Regularizer | None:
    """Return the regularizer written as 'l3:1e-3' or 'n3:1e-3' (or 'none'), over 'tables', 'touched' or 'rows'."""
    name, plain, named = parse_option_string(text, "regularizer")
    choose("regularizer", name, ["none", *POWERS])
    choose("scope of the regularizer", scope, SCOPES)
    if name == "none":
        return None
    if len(plain) != 1 or named or plain[0] < 0:
        raise FocuseError(f"regularizer {text!r}: write its strength behind a colon, for example 'l3:1e-3'")
    return Regularizer(POWERS[name], plain[0], scope, name == "n3") if plain[0] else None
