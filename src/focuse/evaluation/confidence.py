"""Figures of predicted weights: errors, rank correlation, calibration, and telling strong facts from the rest.

Pure functions of arrays `predicted` [n] and `truth` [n]; which triples these are of is the protocol's business
(weighing.py). NaN stands for a figure that is not defined, and becomes None in `to_dict`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.errors import FocuseError

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
# UKGE calls a fact strong whose weight is above this (Chen et al. 2019).
THRESHOLDS = {"cn15k": 0.85, "nl27k": 0.85, "ppi5k": 0.70}


def finite_or_none(value: float) -> float | None:
    """A number that JSON has, else None."""
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class Errors:
    """Mean squared and mean absolute error over `n` triples, in the weights' own units."""

    n: int
    mse: float
    mae: float

    def to_dict(self) -> dict[str, Any]:
        return {"n": self.n, "mse": finite_or_none(self.mse), "mae": finite_or_none(self.mae)}


def errors(predicted: Floats, truth: Floats) -> Errors:
    """MSE and MAE of predictions [n].

    >>> errors(np.array([0.5, 1.0]), np.array([0.0, 1.0]))
    Errors(n=2, mse=0.125, mae=0.25)
    """
    _check(predicted, truth)
    if not len(truth):
        return Errors(0, math.nan, math.nan)
    # Weights near 1e308 have no square; their error is infinite, which is no reason to warn.
    with np.errstate(over="ignore"):
        off = predicted - truth
        return Errors(len(truth), float(np.mean(off * off)), float(np.mean(np.abs(off))))


def spearman(predicted: Floats, truth: Floats) -> float:
    """Spearman's rank correlation, ties at their average rank; NaN where either side is constant.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.9, 0.2]))
    0.5
    """
    _check(predicted, truth)
    first, second = _centred_ranks(predicted), _centred_ranks(truth)
    spread = math.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second) / spread if spread > 0 else math.nan


def _centred_ranks(values: Floats) -> Floats:
    """Average ranks [n] less their mean. Halves of whole numbers, so sums of them are exact and ties are ties."""
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    ranks: Floats = (last - (count - 1) / 2)[group] - (len(values) + 1) / 2
    return ranks


@dataclass(frozen=True)
class Bin:
    """Predictions in [low, high): how many, their mean, and the mean of the true weights."""

    low: float
    high: float
    count: int
    predicted: float
    truth: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "low": self.low,
            "high": self.high,
            "count": self.count,
            "predicted": finite_or_none(self.predicted),
            "truth": finite_or_none(self.truth),
        }


@dataclass(frozen=True)
class Reliability:
    """A reliability curve and its expected calibration error, Σ count/n · |mean predicted − mean truth|."""

    bins: tuple[Bin, ...]
    ece: float

    def to_dict(self) -> dict[str, Any]:
        return {"ece": finite_or_none(self.ece), "bins": [one.to_dict() for one in self.bins]}


def reliability(predicted: Floats, truth: Floats, bins: int = 10) -> Reliability:
    """Predictions [n] in `bins` of equal width over [0, 1], beside the true weights [n] of the same triples.

    The truth is a weight, not a label of 0 or 1: the curve says whether edges predicted at .7 weigh .7 on average,
    and two triples of .4 and 1 count as well as two of .7. What lies outside [0, 1] joins the nearest bin.

    >>> reliability(np.array([0.1, 0.9]), np.array([0.2, 0.7]), bins=2).ece
    0.15000000000000002
    """
    _check(predicted, truth)
    if bins < 1:
        raise FocuseError(f"a reliability curve needs at least one bin, not {bins}")
    edges = np.arange(bins + 1) / bins
    place = np.clip(np.searchsorted(edges, predicted, side="right") - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    sums = [np.bincount(place, weights=values, minlength=bins) for values in (predicted, truth)]
    means = [np.divide(total, count, out=np.full(bins, np.nan), where=count > 0) for total in sums]
    columns = zip(edges[:-1], edges[1:], count, *means, strict=True)
    curve = tuple(Bin(float(low), float(high), int(n), float(p), float(t)) for low, high, n, p, t in columns)
    gap = float(np.abs(sums[0] - sums[1]).sum() / len(truth)) if len(truth) else math.nan
    return Reliability(curve, gap)


@dataclass(frozen=True)
class Classification:
    """Telling `strong` of `n` triples from the rest. `rule` says how the line was drawn."""

    rule: str
    n: int
    strong: int
    accuracy: float
    precision: float
    recall: float
    f1: float

    def to_dict(self) -> dict[str, Any]:
        shares = {name: finite_or_none(getattr(self, name)) for name in ("accuracy", "precision", "recall", "f1")}
        return {"rule": self.rule, "n": self.n, "strong": self.strong, **shares}


def classify(called: Flags, strong: Flags, rule: str = "") -> Classification:
    """Accuracy, precision, recall and F1 of the triples `called` strong [n] against those that are [n].

    Precision is NaN where none is called, recall where none is strong, F1 only where both hold.

    >>> classify(np.array([True, True, False]), np.array([True, False, False])).f1
    0.6666666666666666
    """
    _check(called, strong)
    both, either = int((called & strong).sum()), int(called.sum()) + int(strong.sum())
    return Classification(
        rule,
        len(strong),
        int(strong.sum()),
        accuracy=_share(int((called == strong).sum()), len(strong)),
        precision=_share(both, int(called.sum())),
        recall=_share(both, int(strong.sum())),
        f1=_share(2 * both, either),
    )


def classify_at(predicted: Floats, truth: Floats, threshold: float) -> Classification:
    """`at threshold`: a triple is strong if its weight exceeds `threshold`, and called so if its prediction does.

    Corruptions take part with the weight 0: a fact is strong, not just any heavy row.
    """
    return classify(predicted > threshold, truth > threshold, f"predicted > {threshold:g}")


def classify_fitted(
    predicted: Floats, truth: Floats, threshold: float, other_predicted: Floats, other_truth: Floats
) -> Classification:
    """`fitted`: the line is drawn by a logistic regression of strength on the prediction, fitted on other triples.

    The other triples [m] are a validation set with as many random corruptions. Unlike `classify_at` this forgives a
    model whose predictions are in order but off the scale.
    """
    _check(predicted, truth)
    _check(other_predicted, other_truth)
    strong = other_truth > threshold
    rule = "logistic regression of predicted, fitted on validation"
    if not len(strong):
        raise FocuseError("no validation triples to fit the classification on; leave it out or give some")
    if strong.all() or not strong.any():
        return classify(np.full(len(truth), bool(strong[0])), truth > threshold, rule)
    # Late: it takes a second to load, and a table without this figure does without it.
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, unused-ignore]

    # Standardised, else its ridge would hold back the line of a model whose predictions span little.
    middle = float(other_predicted.mean())
    spread = float(other_predicted.std()) if np.ptp(other_predicted) > 0 else 1.0
    line = LogisticRegression().fit((other_predicted[:, None] - middle) / spread, strong)
    # The sign of the linear form decides, as in `predict`, which refuses an empty test.
    margin = (predicted - middle) / spread * float(line.coef_[0, 0]) + float(line.intercept_[0])
    return classify(margin > 0, truth > threshold, rule)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def _check(predicted: npt.NDArray[Any], truth: npt.NDArray[Any]) -> None:
    if predicted.shape != truth.shape or predicted.ndim != 1:
        raise FocuseError(f"predictions {list(predicted.shape)} and weights {list(truth.shape)} must be alike, [n]")
