"""What the kernels compute with: non-linearities, losses, optimisers, number by number.

The same mathematics as focus.py, training/losses.py and training/optimisers.py, written with its slopes.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from focuse.engines.base import FORM_CODES, LOSS_CODES, NONLINEARITY_CODES, TURN_CODES

DOT, L1, L2 = (tl.constexpr(FORM_CODES[name]) for name in ("dot", "l1", "l2"))
COMPLEX, SUM = (tl.constexpr(TURN_CODES[name]) for name in ("complex", "sum"))
SOFTPLUS, SIGMOID, TANH = (tl.constexpr(NONLINEARITY_CODES[name]) for name in ("softplus", "sigmoid", "tanh"))
MULTICLASS, PAIRWISE, NLL, BCE, MARGIN, ADVERSARIAL, SQUARED, LABEL = (
    tl.constexpr(LOSS_CODES[name])
    for name in (
        "multiclass-nll",
        "pairwise-nll",
        "nll",
        "bce",
        "margin",
        "self-adversarial",
        "squared-error",
        "soft-label",
    )
)
ADAGRAD = tl.constexpr(1)  # 0 is Adam


@triton.jit
def sign(x):
    return tl.where(x > 0, 1.0, 0.0) - tl.where(x < 0, 1.0, 0.0)


@triton.jit
def logistic(x):
    """1 / (1 + e^−x) without overflow."""
    small = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, small) / (1.0 + small)


@triton.jit
def softplus(x):
    """ln(1 + eˣ); small values keep their digits."""
    small = tl.exp(-tl.abs(x))
    one = 1.0 + small
    # ln(1 + s) loses the digits that 1 + s has lost; the same loss in (1 + s) − 1 brings them back.
    rest = tl.where(one == 1.0, small, tl.log(one) * (small / tl.where(one == 1.0, 1.0, one - 1.0)))
    return tl.maximum(x, 0.0) + rest


@triton.jit
def curved(score, shift, curve: tl.constexpr):
    """g(f) = curve(f + shift) and its slope."""
    x = score + shift
    if curve == SOFTPLUS:
        value, slope = softplus(x), logistic(x)
    elif curve == SIGMOID:
        value = logistic(x)
        slope = value * (1.0 - value)
    elif curve == TANH:
        small = tl.exp(-2.0 * tl.abs(x))
        value = sign(x) * (1.0 - small) / (1.0 + small)
        slope = 1.0 - value * value
    else:
        value, slope = x, x * 0.0 + 1.0
    return value, slope


@triton.jit
def running(level, counts, most, mass, temperature, loss: tl.constexpr):
    """Maximum and mass Σ e^(t·h − maximum) of negatives met so far, these [N] added."""
    if loss == MULTICLASS or loss == ADVERSARIAL or loss == LABEL:  # noqa: SIM109 (kernels know no `in`)
        heat = level * temperature if loss == ADVERSARIAL else level
        higher = tl.maximum(most, tl.max(tl.where(counts, heat, -float("inf")), axis=0))
        base = tl.where(higher == -float("inf"), 0.0, higher)
        mass = mass * tl.exp(most - base) + tl.sum(tl.exp(tl.where(counts, heat - base, -float("inf"))), axis=0)
        most = higher
    return most, mass


@triton.jit
def excess(positive, most, mass):
    """ln Σ e^h⁻ − h⁺; −∞ where no negative counts."""
    found = tl.log(tl.where(mass > 0, mass, 1.0)) + tl.where(mass > 0, most, 0.0) - positive
    return tl.where(mass > 0, found, -float("inf"))


@triton.jit
def exceeded(positive, label, cells, most, mass, margin, loss: tl.constexpr):
    """A softmax's loss and its slope, by how far the corruptions, of which `cells` count, exceed the positive."""
    beyond = excess(positive, most, mass)
    if loss == LABEL:
        some = mass > 0
        beyond = tl.where(some, beyond, 0.0) + tl.where(label < 0, -tl.log(tl.maximum(cells, 1.0)), margin)
        label = tl.maximum(label, 0.0)
        rest = 1.0 - label
        value = tl.where(some, label * softplus(beyond) + rest * softplus(-beyond), 0.0)
        slope = tl.where(some, label * logistic(beyond) - rest * logistic(-beyond), 0.0)
    else:
        value, slope = softplus(beyond), logistic(beyond)
    return value, slope


@triton.jit
def of_negatives(level, counts, positive, label, cells, most, mass, margin, temperature, loss: tl.constexpr):
    """Each negative's part of the loss and its slope by h⁻, [N] from h⁻ [N]; of a softmax the slope alone.

    `cells` is how many negatives count; `most` and `mass` are those of `running`.
    """
    value, slope = level * 0.0, level * 0.0
    if loss == MULTICLASS or loss == ADVERSARIAL or loss == LABEL:  # noqa: SIM109 (kernels know no `in`)
        heat = level * temperature if loss == ADVERSARIAL else level
        base = tl.where(mass > 0, most, 0.0)
        share = tl.exp(tl.where(counts, heat - base, -float("inf"))) / tl.where(mass > 0, mass, 1.0)
        if loss == ADVERSARIAL:
            value, slope = share * softplus(level + margin), share * logistic(level + margin)
        else:
            _value, by_excess = exceeded(positive, label, cells, most, mass, margin, loss)
            slope = share * by_excess
    elif loss == PAIRWISE:
        value, slope = softplus(level - positive), logistic(level - positive)
    elif loss == MARGIN:
        value = tl.maximum(margin + level - positive, 0.0)
        slope = tl.where(value > 0, 1.0, 0.0)
    elif loss == SQUARED:
        fewest = tl.maximum(cells, 1.0)
        value, slope = level * level / fewest, 2.0 * level / fewest
    else:
        value, slope = softplus(level), logistic(level)
        if loss == BCE:
            value, slope = value / (1.0 + cells), slope / (1.0 + cells)
    return tl.where(counts, value, 0.0), tl.where(counts, slope, 0.0)


@triton.jit
def of_positive(positive, weight, cells, most, mass, value, slope, margin, loss: tl.constexpr):
    """The whole loss and its slope by h⁺; `value` and `slope` are the sums of what `of_negatives` gives."""
    if loss == MULTICLASS or loss == LABEL:  # noqa: SIM109
        value, by_excess = exceeded(positive, weight, cells, most, mass, margin, loss)
        slope = -by_excess
    elif loss == PAIRWISE or loss == MARGIN:  # noqa: SIM109
        slope = -slope
    elif loss == ADVERSARIAL:
        value, slope = value + softplus(-(margin + positive)), -logistic(-(margin + positive))
    elif loss == SQUARED:
        wrong = positive - weight
        value, slope = value + wrong * wrong, 2.0 * wrong
    else:
        share = 1.0 + cells if loss == BCE else 1.0
        value, slope = value + softplus(-positive) / share, -logistic(-positive) / share
    return value, slope


@triton.jit
def penalised(x, strength, power: tl.constexpr):
    """The slope of strength · |x|ᵖ."""
    if power == 1:
        pull = strength * sign(x)
    elif power == 2:
        pull = strength * 2.0 * x
    else:
        pull = strength * 3.0 * x * tl.abs(x)
    return pull


@triton.jit
def moved(x, g, m, v, lr, eps, fading, fadings, kind: tl.constexpr, first: tl.constexpr, second: tl.constexpr):
    """x, mean and square after one step along g; `fading` and `fadings` are 1 − βᵗ. Adagrad keeps all in `v`."""
    if kind == ADAGRAD:
        v += g * g
        x -= lr * g / (tl.sqrt(v) + eps)
    else:
        m += (1.0 - first) * (g - m)
        v += (1.0 - second) * (g * g - v)
        x -= lr * (m / fading) / (tl.sqrt(v / fadings) + eps)
    return x, m, v
