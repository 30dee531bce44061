"""Metrics of predicted weights: errors, calibration, classification, intervals and probabilities.

They are pure functions of arrays `predicted` [n] and `truth` [n]; `focuse.evaluation.weight_evaluation` chooses the
triples. NaN means that a metric is not defined, and becomes None in `to_dict`.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.errors import FocuseError
from focuse.evaluation.baselines import AnyIds
from focuse.evaluation.metrics import FloatArray, check_same_shape, finite_or_none

Flags = npt.NDArray[np.bool_]
# UKGE calls a triple strong if its weight is above this (Chen et al., 2019).
THRESHOLDS = {"cn15k": 0.85, "nl27k": 0.85, "ppi5k": 0.70}


@dataclass(frozen=True)
class Errors:
    """Mean squared and mean absolute error over `n` triples, in the weights' own units."""

    n: int
    mse: float
    mae: float

    def to_dict(self) -> dict[str, Any]:
        return {"n": self.n, "mse": finite_or_none(self.mse), "mae": finite_or_none(self.mae)}


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
class Bin:
    """A bin of a reliability curve: the number of predictions in [low, high), their mean, and the mean true weight."""

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
        return {"ece": finite_or_none(self.ece), "bins": [part.to_dict() for part in self.bins]}


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
class Classification:
    """The metrics of a classification of `n` triples, of which `strong` are strong; `rule` describes the decision."""

    rule: str
    n: int
    strong: int
    accuracy: float
    precision: float
    recall: float
    f1: float

    def to_dict(self) -> dict[str, Any]:
        metrics = {name: finite_or_none(getattr(self, name)) for name in ("accuracy", "precision", "recall", "f1")}
        return {"rule": self.rule, "n": self.n, "strong": self.strong, **metrics}


def classify(predicted: Flags, strong: Flags, rule: str = "") -> Classification:
    """Compute accuracy, precision, recall and F1 of triples [n] that are `predicted` to be strong.

    Precision is NaN if none is predicted, recall is NaN if none is strong, and F1 is NaN only if both hold.

    >>> classify(np.array([True, True, False]), np.array([True, False, False])).f1
    0.6666666666666666
    """
    check_same_shape(predicted, strong)
    both, either = int((predicted & strong).sum()), int(predicted.sum()) + int(strong.sum())
    return Classification(
        rule,
        len(strong),
        int(strong.sum()),
        accuracy=_share(int((predicted == strong).sum()), len(strong)),
        precision=_share(both, int(predicted.sum())),
        recall=_share(both, int(strong.sum())),
        f1=_share(2 * both, either),
    )


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


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


MAX_RELATIONS_SHOWN = 12  # relations in the printed table; `to_dict` has all


@dataclass(frozen=True)
class Coverage:
    """The fraction of `n` intervals that contain the truth, and their mean and median width in the weights' units."""

    n: int
    coverage: float
    width: float
    median_width: float

    def to_dict(self) -> dict[str, Any]:
        numbers = {name: finite_or_none(getattr(self, name)) for name in ("coverage", "width", "median_width")}
        return {"n": self.n, **numbers}


def interval_coverage(low: FloatArray, high: FloatArray, truth: FloatArray) -> Coverage:
    """Compute the coverage of intervals [n], which include their ends.

    >>> interval_coverage(np.array([0.0, 0.0]), np.array([0.5, 1.0]), np.array([0.5, 2.0]))
    Coverage(n=2, coverage=0.5, width=0.75, median_width=0.75)
    """
    if not len(truth):
        return Coverage(0, math.nan, math.nan, math.nan)
    inside = (low <= truth) & (truth <= high)
    width = high - low
    return Coverage(len(truth), float(inside.mean()), float(width.mean()), float(np.median(width)))


@dataclass(frozen=True)
class RelationCoverage:
    """The coverage in one relation; `calibrated` is True if the relation's own conformal rows set its intervals."""

    relation: str
    calibrated: bool
    coverage: Coverage

    def to_dict(self) -> dict[str, Any]:
        return {"relation": self.relation, "own": self.calibrated, **self.coverage.to_dict()}


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
class IntervalTable:
    """The coverage of several methods for intervals of a nominal `coverage`, and of the first method by relation."""

    coverage: float
    conformal_rows: int
    rows: Mapping[str, Coverage]
    relations: Sequence[RelationCoverage]

    def to_dict(self) -> dict[str, Any]:
        return {
            "coverage": self.coverage,
            "conformal_rows": self.conformal_rows,
            "rows": {name: row.to_dict() for name, row in self.rows.items()},
            "relations": [row.to_dict() for row in self.relations],
        }

    def __str__(self) -> str:
        first = next(iter(self.rows.values()))
        width = max(map(len, self.rows))
        lines = [f"{self.coverage:.0%} intervals ({first.n:,} test triples, {self.conformal_rows:,} conformal rows)"]
        lines.append(f"{'':{width}}{'coverage':>10}{'mean width':>12}{'median width':>14}")
        lines += [f"{name:{width}}{_cells(row)}" for name, row in self.rows.items()]
        calibrated = sum(row.calibrated for row in self.relations)
        lines.append(
            f"by relation: {calibrated} of {len(self.relations)} have intervals of their own, "
            "the rest share the global one"
        )
        shown = [row for row in self.relations if row.calibrated][:MAX_RELATIONS_SHOWN]
        width = max((len(row.relation) for row in shown), default=0)
        lines += [f"  {row.relation:{width}}{_cells(row.coverage)}  ({row.coverage.n:,})" for row in shown]
        return "\n".join(lines)


def _cells(row: Coverage) -> str:
    return f"{row.coverage:>10.3f}{row.width:>12.4g}{row.median_width:>14.4g}"


# With a fixed salt for ids and without a date, equal numbers yield equal files.
SVG_STYLE: dict[Any, Any] = {"svg.hashsalt": "focuse", "font.family": "DejaVu Sans"}
COLORS = ("#8a8a8a", "#3b76af", "#e07b39", "#4f9d69")


def brier(probability: FloatArray, label: FloatArray) -> float:
    """Compute the Brier score, the mean squared error of probabilities [n] with labels 1 (true) or 0 (false) [n].

    >>> brier(np.array([1.0, 0.5]), np.array([1.0, 0.0]))
    0.125
    """
    return float(np.mean((probability - label) ** 2)) if len(label) else float("nan")


@dataclass(frozen=True)
class ProbabilityMetrics:
    """The Brier score and reliability of one method to compute probabilities."""

    brier: float
    reliability: Reliability

    @property
    def ece(self) -> float:
        """The expected calibration error."""
        return self.reliability.ece

    def to_dict(self) -> dict[str, Any]:
        return {"brier": finite_or_none(self.brier), **self.reliability.to_dict()}


def probability_metrics(probability: FloatArray, label: FloatArray) -> ProbabilityMetrics:
    """Compute the metrics of probabilities [n] of triples with labels 1 (true) or 0 (false) [n]."""
    return ProbabilityMetrics(brier(probability, label), reliability(probability, label))


@dataclass(frozen=True)
class ProbabilityTable:
    """The metrics of methods to compute probabilities, the uncalibrated one first.

    `positives` and `negatives` are the numbers of true and of false triples.
    """

    rows: Mapping[str, ProbabilityMetrics]
    positives: int
    negatives: int
    base_rate: float
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        return {
            "facts": self.positives,
            "negatives": self.negatives,
            "base_rate": self.base_rate,
            "rows": {name: row.to_dict() for name, row in self.rows.items()},
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        width = max(map(len, self.rows))
        lines = [f"{self.positives:,} true triples and {self.negatives:,} negatives (base rate {self.base_rate:.3g})"]
        lines.append(f"{'':{width}}{'Brier':>9}{'ECE':>9}")
        lines += [f"{name:{width}}{row.brier:>9.4f}{row.ece:>9.4f}" for name, row in self.rows.items()]
        return "\n".join([*lines, *self.notes])

    def svg(self, title: str = "") -> str:
        """Return a reliability diagram as SVG: the fraction of true triples per bin, with one line per method."""
        import matplotlib
        from matplotlib.figure import Figure

        figure = Figure(figsize=(4.6, 4.4), layout="constrained")
        axis = figure.subplots()
        axis.plot([0, 1], [0, 1], color="#c0c0c0", linewidth=1, linestyle="--")
        for color, (name, row) in zip(COLORS, self.rows.items(), strict=False):
            bins = [part for part in row.reliability.bins if part.count]
            label = f"{name} (Brier {row.brier:.3f}, ECE {row.ece:.3f})"
            axis.plot(
                [part.predicted for part in bins],
                [part.truth for part in bins],
                "o-",
                color=color,
                label=label,
                markersize=4,
            )
        axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="predicted probability", ylabel="fraction of true triples")
        axis.legend(fontsize=8, loc="upper left", frameon=False)
        if title:
            axis.set_title(title, fontsize=11, parse_math=False)  # a name may contain dollar signs
        output = io.StringIO()
        with matplotlib.rc_context(SVG_STYLE):
            figure.savefig(output, format="svg", metadata={"Date": None})
        return output.getvalue()
