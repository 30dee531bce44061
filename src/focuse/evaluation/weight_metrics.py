"""Metrics of predicted weights: errors, calibration, classification, intervals and probabilities.

They are pure functions of arrays `predicted` [n] and `truth` [n]; the protocol (weight_evaluation.py) says which
triples these are. NaN stands for a metric that is not defined, and becomes None in `to_dict`.
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
    # Weights near 1e308 have no square; their error is infinite, which needs no warning.
    with np.errstate(over="ignore"):
        off = predicted - truth
        return Errors(len(truth), float(np.mean(off * off)), float(np.mean(np.abs(off))))


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


def reliability(predicted: FloatArray, truth: FloatArray, bins: int = 10) -> Reliability:
    """Compare predictions [n] with true weights [n] in `bins` of equal width over [0, 1].

    The truth is a weight, not a label of 0 or 1: the curve shows whether edges predicted at .7 have a weight of .7 on
    average; two triples of .4 and 1 are as good as two of .7. Predictions outside [0, 1] join the nearest bin.

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
    gap = float(np.abs(sums[0] - sums[1]).sum() / len(truth)) if len(truth) else math.nan
    return Reliability(curve, gap)


@dataclass(frozen=True)
class Classification:
    """Classification of `n` triples, `strong` of them strong. `rule` says how the decision was made."""

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


def classify(predicted: Flags, strong: Flags, rule: str = "") -> Classification:
    """Compute accuracy, precision, recall and F1 of the triples `predicted` to be strong [n].

    Precision is NaN where none is predicted, recall where none is strong, F1 only where both hold.

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
    """Classify by a threshold: a triple is strong if its weight exceeds it, predicted so if its prediction does.

    Negatives take part with weight 0.
    """
    return classify(predicted > threshold, truth > threshold, f"predicted > {threshold:g}")


def classify_fitted(
    predicted: FloatArray, truth: FloatArray, threshold: float, other_predicted: FloatArray, other_truth: FloatArray
) -> Classification:
    """Classify by a logistic regression of strength on the prediction, fitted on other triples.

    The other triples [m] are a validation set with as many random negatives. Unlike `classify_at` this accepts a model
    whose predictions are in the right order but on another scale.
    """
    check_same_shape(predicted, truth)
    check_same_shape(other_predicted, other_truth)
    strong = other_truth > threshold
    rule = "logistic regression of predicted, fitted on validation"
    if not len(strong):
        raise FocuseError("no validation triples to fit the classification on; leave it out or give some")
    if strong.all() or not strong.any():
        return classify(np.full(len(truth), bool(strong[0])), truth > threshold, rule)
    # Late, because it takes a second to load.
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, unused-ignore]

    # Standardized, because the ridge penalty would flatten the line of predictions with a small range.
    middle = float(other_predicted.mean())
    spread = float(other_predicted.std()) if np.ptp(other_predicted) > 0 else 1.0
    line = LogisticRegression().fit((other_predicted[:, None] - middle) / spread, strong)
    # The sign of the linear form decides, as in `predict`, which raises for an empty test.
    margin = (predicted - middle) / spread * float(line.coef_[0, 0]) + float(line.intercept_[0])
    return classify(margin > 0, truth > threshold, rule)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


SHOWN = 12  # relations in the printed table; `to_dict` has all


@dataclass(frozen=True)
class Coverage:
    """Share of `n` intervals that contain the truth, and their mean and median width in the weights' units."""

    n: int
    coverage: float
    width: float
    median_width: float

    def to_dict(self) -> dict[str, Any]:
        numbers = {name: finite_or_none(getattr(self, name)) for name in ("coverage", "width", "median_width")}
        return {"n": self.n, **numbers}


def interval_coverage(low: FloatArray, high: FloatArray, truth: FloatArray) -> Coverage:
    """Compute the coverage of intervals [n], ends included.

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
    """Coverage in one relation; `calibrated` says whether its intervals come from conformal rows of the relation."""

    relation: str
    calibrated: bool
    coverage: Coverage

    def to_dict(self) -> dict[str, Any]:
        return {"relation": self.relation, "own": self.calibrated, **self.coverage.to_dict()}


def coverage_by_relation(
    low: FloatArray, high: FloatArray, truth: FloatArray, relation: AnyIds, names: Sequence[str], calibrated: AnyIds
) -> list[RelationCoverage]:
    """Compute the coverage in each relation that occurs, the most frequent first."""
    order = np.argsort(relation, kind="stable")
    count = np.bincount(relation, minlength=len(names))
    end = np.cumsum(count)
    found = []
    for one in np.argsort(-count, kind="stable")[: int((count > 0).sum())]:
        rows = order[end[one] - count[one] : end[one]]
        coverage = interval_coverage(low[rows], high[rows], truth[rows])
        found.append(RelationCoverage(str(names[one]), bool(calibrated[one]), coverage))
    return found


@dataclass(frozen=True)
class IntervalTable:
    """Intervals of a nominal `coverage` by several methods, and those of the first method by relation."""

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
        lines = [f"{self.coverage:.0%} intervals ({first.n:,} facts of test, {self.conformal_rows:,} conformal rows)"]
        lines.append(f"{'':{width}}{'coverage':>10}{'mean width':>12}{'median width':>14}")
        lines += [f"{name:{width}}{_cells(row)}" for name, row in self.rows.items()]
        calibrated = sum(row.calibrated for row in self.relations)
        lines.append(
            f"by relation: {calibrated} of {len(self.relations)} have intervals of their own, "
            "the rest share the global one"
        )
        shown = [row for row in self.relations if row.calibrated][:SHOWN]
        width = max((len(row.relation) for row in shown), default=0)
        lines += [f"  {row.relation:{width}}{_cells(row.coverage)}  ({row.coverage.n:,})" for row in shown]
        return "\n".join(lines)


def _cells(row: Coverage) -> str:
    return f"{row.coverage:>10.3f}{row.width:>12.4g}{row.median_width:>14.4g}"


# No date and fixed ids: the same numbers give the same file.
SVG_STYLE: dict[Any, Any] = {"svg.hashsalt": "focuse", "font.family": "DejaVu Sans"}
COLORS = ("#8a8a8a", "#3b76af", "#e07b39", "#4f9d69")


def brier(probability: FloatArray, fact: FloatArray) -> float:
    """Compute the Brier score: mean squared distance of probabilities [n] from 1 for a true, 0 for a false triple.

    >>> brier(np.array([1.0, 0.5]), np.array([1.0, 0.0]))
    0.125
    """
    return float(np.mean((probability - fact) ** 2)) if len(fact) else float("nan")


@dataclass(frozen=True)
class ProbabilityMetrics:
    """Brier score and reliability of one way to compute probabilities."""

    brier: float
    reliability: Reliability

    @property
    def ece(self) -> float:
        return self.reliability.ece

    def to_dict(self) -> dict[str, Any]:
        return {"brier": finite_or_none(self.brier), **self.reliability.to_dict()}


def probability_metrics(probability: FloatArray, fact: FloatArray) -> ProbabilityMetrics:
    """Compute the metrics of probabilities [n] of triples that are true (1) or false (0) [n]."""
    return ProbabilityMetrics(brier(probability, fact), reliability(probability, fact))


@dataclass(frozen=True)
class ProbabilityTable:
    """Ways to compute probabilities, the uncalibrated one first, on `facts` true and `negatives` false triples."""

    rows: Mapping[str, ProbabilityMetrics]
    facts: int
    negatives: int
    base_rate: float
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        return {
            "facts": self.facts,
            "negatives": self.negatives,
            "base_rate": self.base_rate,
            "rows": {name: row.to_dict() for name, row in self.rows.items()},
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        width = max(map(len, self.rows))
        lines = [f"{self.facts:,} facts and {self.negatives:,} negatives (base rate {self.base_rate:.3g})"]
        lines.append(f"{'':{width}}{'Brier':>9}{'ECE':>9}")
        lines += [f"{name:{width}}{row.brier:>9.4f}{row.ece:>9.4f}" for name, row in self.rows.items()]
        return "\n".join([*lines, *self.notes])

    def svg(self, title: str = "") -> str:
        """Draw a reliability diagram: the share of true triples per bin, one line per row; the diagonal is ideal."""
        import matplotlib
        from matplotlib.figure import Figure

        figure = Figure(figsize=(4.6, 4.4), layout="constrained")
        axis = figure.subplots()
        axis.plot([0, 1], [0, 1], color="#c0c0c0", linewidth=1, linestyle="--")
        for color, (name, row) in zip(COLORS, self.rows.items(), strict=False):
            bins = [one for one in row.reliability.bins if one.count]
            label = f"{name} (Brier {row.brier:.3f}, ECE {row.ece:.3f})"
            axis.plot(
                [one.predicted for one in bins],
                [one.truth for one in bins],
                "o-",
                color=color,
                label=label,
                markersize=4,
            )
        axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="predicted probability", ylabel="share of facts")
        axis.legend(fontsize=8, loc="upper left", frameon=False)
        if title:
            axis.set_title(title, fontsize=11, parse_math=False)  # a name may contain dollar signs
        picture = io.StringIO()
        with matplotlib.rc_context(SVG_STYLE):
            figure.savefig(picture, format="svg", metadata={"Date": None})
        return picture.getvalue()
