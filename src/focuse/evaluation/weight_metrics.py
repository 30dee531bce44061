"""Metrics of predicted weights: errors, calibration, classification, interval coverage and probabilities.

They are pure functions of arrays `predicted` [n] and `truth` [n]; `focuse.evaluation.weight_evaluation` chooses the
triples. NaN means that a metric is not defined, and becomes None in `to_dict`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from focuse.errors import FocuseError
from focuse.evaluation.baselines import AnyIds
from focuse.evaluation.metrics import FloatArray, Metrics, check_same_shape

Flags = npt.NDArray[np.bool_]
# UKGE calls a triple strong if its weight is above this (Chen et al., 2019).
THRESHOLDS = {"cn15k": 0.85, "nl27k": 0.85, "ppi5k": 0.70}


@dataclass(frozen=True)
class Errors(Metrics):
    """Mean squared and mean absolute error over `n` triples, in the weights' own units."""

    n: int
    mse: float
    mae: float


def errors(predicted: FloatArray, truth: FloatArray) -> Errors:
    """Compute MSE and MAE of predictions [n].

    >>> errors(np.array([0.5, 1.0]), np.array([0.0, 1.0]))
    Errors(n=2, mse=0.125, mae=0.25)
    """
    check_same_shape(predicted, truth)
    if not len(truth):
        return Errors(0, math.nan, math.nan)
    # The squares of weights near 1e308 are infinite, and so is the error, which needs no warning.
    with np.errstate(over="ignore"):
        error = predicted - truth
        return Errors(len(truth), float(np.mean(error * error)), float(np.mean(np.abs(error))))


@dataclass(frozen=True)
class Bin(Metrics):
    """A bin of a reliability curve: the number of predictions in [low, high), their mean, and the mean true weight."""

    low: float
    high: float
    count: int
    predicted: float
    truth: float


@dataclass(frozen=True)
class Reliability(Metrics):
    """A reliability curve and its expected calibration error, Σ count/n · |mean predicted − mean truth|."""

    bins: tuple[Bin, ...]
    ece: float


def reliability(predicted: FloatArray, truth: FloatArray, bins: int = 10) -> Reliability:
    """Compare predictions [n] with true weights [n] in `bins` of equal width over [0, 1].

    The truth is a weight, not a label of 0 or 1. The curve shows whether edges with a prediction of 0.7 have an average
    weight of 0.7; two triples of weights 0.4 and 1 are equivalent to two of weight 0.7. Predictions outside [0, 1]
    belong to the nearest bin.

    >>> reliability(np.array([0.1, 0.9]), np.array([0.2, 0.7]), bins=2).ece
    0.15000000000000002
    """
    check_same_shape(predicted, truth)
    if bins < 1:
        raise FocuseError(f"a reliability curve needs at least one bin, not {bins}")
    edges = np.arange(bins + 1) / bins
    index = np.clip(np.searchsorted(edges, predicted, side="right") - 1, 0, bins - 1)
    count = np.bincount(index, minlength=bins)
    sums = [np.bincount(index, weights=values, minlength=bins) for values in (predicted, truth)]
    means = [np.divide(total, count, out=np.full(bins, np.nan), where=count > 0) for total in sums]
    columns = zip(edges[:-1], edges[1:], count, *means, strict=True)
    curve = tuple(Bin(float(low), float(high), int(n), float(p), float(t)) for low, high, n, p, t in columns)
    ece = float(np.abs(sums[0] - sums[1]).sum() / len(truth)) if len(truth) else math.nan
    return Reliability(curve, ece)


@dataclass(frozen=True)
class Classification(Metrics):
    """The metrics of a classification of `n` triples, of which `strong` are strong; `rule` describes the decision."""

    rule: str
    n: int
    strong: int
    accuracy: float
    precision: float
    recall: float
    f1: float


def classify(predicted: Flags, strong: Flags, rule: str = "") -> Classification:
    """Compute accuracy, precision, recall and F1 of triples [n] that are `predicted` to be strong.

    Precision is NaN if none is predicted, recall is NaN if none is strong, and F1 is NaN only if both hold.

    >>> classify(np.array([True, True, False]), np.array([True, False, False])).f1
    0.6666666666666666
    """
    check_same_shape(predicted, strong)
    both, positive, true = (int(flags.sum()) for flags in (predicted & strong, predicted, strong))

    def fraction(part: int, whole: int) -> float:
        return part / whole if whole else math.nan

    accuracy = fraction(int((predicted == strong).sum()), len(strong))
    precision, recall, f1 = fraction(both, positive), fraction(both, true), fraction(2 * both, positive + true)
    return Classification(rule, len(strong), true, accuracy, precision, recall, f1)


def classify_at(predicted: FloatArray, truth: FloatArray, threshold: float) -> Classification:
    """Classify by a threshold, which the weight of a strong triple and the prediction of a predicted one exceed.

    Negatives are included with weight 0.
    """
    return classify(predicted > threshold, truth > threshold, f"predicted > {threshold:g}")


def classify_fitted(
    predicted: FloatArray, truth: FloatArray, threshold: float, other_predicted: FloatArray, other_truth: FloatArray
) -> Classification:
    """Classify by a logistic regression on the prediction, which is fitted on other triples.

    The other triples [m] are a validation set with as many random negatives. Unlike `classify_at`, this allows for
    predictions that have the right order but another scale.
    """
    check_same_shape(predicted, truth)
    check_same_shape(other_predicted, other_truth)
    strong = other_truth > threshold
    rule = "logistic regression of predicted, fitted on validation"
    if not len(strong):
        raise FocuseError("no validation triples to fit the classification on; leave it out or give some")
    if strong.all() or not strong.any():
        return classify(np.full(len(truth), bool(strong[0])), truth > threshold, rule)
    # This import is delayed, because it takes a second.
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, unused-ignore]

    # Predictions are standardized, because the ridge penalty would shrink the slope of those with a small range.
    mean = float(other_predicted.mean())
    deviation = float(other_predicted.std()) if np.ptp(other_predicted) > 0 else 1.0
    regression = LogisticRegression().fit((other_predicted[:, None] - mean) / deviation, strong)
    # The sign of the linear form decides, as in `regression.predict`, which raises an error for an empty test.
    margin = (predicted - mean) / deviation * float(regression.coef_[0, 0]) + float(regression.intercept_[0])
    return classify(margin > 0, truth > threshold, rule)


@dataclass(frozen=True)
class Coverage(Metrics):
    """The fraction of `n` intervals that contain the truth, and their mean and median width in the weights' units."""

    n: int
    coverage: float
    width: float
    median_width: float


def interval_coverage(low: FloatArray, high: FloatArray, truth: FloatArray) -> Coverage:
    """Compute the coverage of intervals [n], which include their ends.

    >>> interval_coverage(np.array([0.0, 0.0]), np.array([0.5, 1.0]), np.array([0.5, 2.0]))
    Coverage(n=2, coverage=0.5, width=0.75, median_width=0.75)
    """
    if not len(truth):
        return Coverage(0, math.nan, math.nan, math.nan)
    inside, width = (low <= truth) & (truth <= high), high - low
    return Coverage(len(truth), float(inside.mean()), float(width.mean()), float(np.median(width)))


@dataclass(frozen=True)
class RelationCoverage(Metrics):
    """The coverage in one relation; `calibrated` is True if the relation's own conformal rows set its intervals."""

    relation: str
    calibrated: bool
    coverage: Coverage


def coverage_by_relation(
    low: FloatArray, high: FloatArray, truth: FloatArray, relation: AnyIds, names: Sequence[str], calibrated: AnyIds
) -> list[RelationCoverage]:
    """Compute the coverage in each relation that occurs, in order of decreasing frequency."""
    order = np.argsort(relation, kind="stable")
    count = np.bincount(relation, minlength=len(names))
    end = np.cumsum(count)
    coverages = []
    for index in np.argsort(-count, kind="stable")[: int((count > 0).sum())]:
        rows = order[end[index] - count[index] : end[index]]
        coverage = interval_coverage(low[rows], high[rows], truth[rows])
        coverages.append(RelationCoverage(str(names[index]), bool(calibrated[index]), coverage))
    return coverages


@dataclass(frozen=True)
class ProbabilityMetrics(Metrics):
    """The Brier score and the reliability of one method to compute probabilities."""

    brier: float
    reliability: Reliability

    @property
    def ece(self) -> float:
        """The expected calibration error."""
        return self.reliability.ece


def probability_metrics(probability: FloatArray, label: FloatArray) -> ProbabilityMetrics:
    """Compute the metrics of probabilities [n] of triples with labels 1 (true) or 0 (false) [n].

    The Brier score is the mean squared error of the probabilities.

    >>> probability_metrics(np.array([1.0, 0.5]), np.array([1.0, 0.0])).brier
    0.125
    """
    brier = float(np.mean((probability - label) ** 2)) if len(label) else math.nan
    return ProbabilityMetrics(brier, reliability(probability, label))
