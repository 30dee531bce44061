"""Predicted weights and probabilities: their metrics, the triples of each protocol, and tables of both.

Metrics are pure functions of arrays `predicted` [n] and `truth` [n]: errors, calibration, classification, interval
coverage and probabilities. NaN means that a metric is not defined, and becomes None in `to_dict`. Published errors use
different protocols that are not comparable, so weights have one table per protocol.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from focuse.data.graph import Graph, concatenate
from focuse.data.statistics import leaked
from focuse.data.weights import fit_merger, in_unit_range
from focuse.errors import FocuseError
from focuse.evaluation.baselines import AnyIds, Predictor, fit_weight_baselines, fit_zero_baseline
from focuse.evaluation.metrics import NDCG, FloatArray, Metrics, json_value, spearman
from focuse.option_strings import choose
from focuse.results import ResultTable, TableExport, format_table

Flags = npt.NDArray[np.bool_]
# UKGE calls a triple strong if its weight is above this (Chen et al., 2019).
THRESHOLDS = {"cn15k": 0.85, "nl27k": 0.85, "ppi5k": 0.70}
PROTOCOLS = {
    "positives": "positives only",
    "clean": "positives only, clean: neither a duplicate nor an inverse in train",
    "with_negatives": "UKGE: test with as many zero-weight negatives",
    "negatives": "negatives alone",
}
WITH_NEGATIVES = ("with_negatives", "negatives")  # protocols for predictors that are calibrated with negatives
MAX_RELATIONS_SHOWN = 12  # relations in the printed table of intervals; `to_dict` has all


# ---- metrics ------------------------------------------------------------------------------------------------------


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
    both, positive, true = (int(flags.sum()) for flags in (predicted & strong, predicted, strong))
    equal, n = int((predicted == strong).sum()), len(strong)
    fractions = ((equal, n), (both, positive), (both, true), (2 * both, positive + true))
    return Classification(rule, n, true, *(part / whole if whole else math.nan for part, whole in fractions))


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
    count = np.bincount(relation, minlength=len(names))
    coverages = []
    for index in np.argsort(-count, kind="stable")[: np.count_nonzero(count)]:
        rows = np.flatnonzero(relation == index)
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


# ---- evaluation by protocol ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WeightTest:
    """Test triples (in train's ids) whose weights are predicted, and negatives, whose weight is 0."""

    positives: Graph
    negatives: Graph | None = None

    @property
    def with_negatives(self) -> Graph:
        """The positives followed by the negatives, as in the protocol of UKGE."""
        return self.positives if self.negatives is None else concatenate([self.positives, self.negatives])

    def protocols(self, train: Graph) -> dict[str, Graph]:
        """Return the triples of each protocol."""
        parts = {"positives": self.positives, "clean": self.positives.select(~leaked(train, self.positives))}
        if self.negatives is not None:
            parts |= {"with_negatives": self.with_negatives, "negatives": self.negatives}
        return parts


@dataclass(frozen=True)
class WeightMetrics(Metrics):
    """The metrics of one predictor under one protocol; None if a metric does not apply."""

    errors: Errors
    spearman: float
    reliability: Reliability | None = None
    at_threshold: Classification | None = None
    fitted: Classification | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics that apply, by name."""
        metrics = super().to_dict()
        return {**metrics.pop("errors"), **{name: part for name, part in metrics.items() if part or name == "spearman"}}

    def cells(self) -> dict[str, float]:
        """Return the numbers of one line of the table, by heading."""
        cells = {"MSE": self.errors.mse, "MAE": self.errors.mae, "Spearman": self.spearman}
        if self.reliability is not None:
            cells["ECE"] = self.reliability.ece
        for words, part in (("threshold", self.at_threshold), ("fitted threshold", self.fitted)):
            if part is not None:
                cells |= {f"accuracy ({words})": part.accuracy, f"F1 ({words})": part.f1}
        return cells


@dataclass(frozen=True)
class WeightEvaluation(TableExport):
    """The metrics of predictors (`rows`: predictor -> protocol -> metrics); `print` shows one table per protocol.

    The `ndcg` of scores and baselines and the coverage of `intervals` are added for a run. `to_dict` returns what
    `--json` prints.
    """

    rows: dict[str, dict[str, WeightMetrics]]
    baselines: tuple[str, ...]
    threshold: float | None = None
    notes: tuple[str, ...] = ()
    ndcg: Mapping[str, NDCG] = field(default_factory=dict)
    intervals: IntervalTable | None = None

    @property
    def protocols(self) -> list[str]:
        """The protocols that the test has triples for."""
        return list(self.rows[self.baselines[0]])

    def to_dict(self) -> dict[str, Any]:
        """Return all metrics by name, as JSON can hold them."""
        parts = {one.name: json_value(getattr(self, one.name)) for one in fields(self)}
        return {"protocols": {key: PROTOCOLS[key] for key in self.protocols}, **parts}

    def to_arrow(self) -> pa.Table:
        """Return one row per protocol and predictor, with its metrics."""
        rows = [
            {
                "protocol": protocol,
                "predictor": name,
                "baseline": name in self.baselines,
                "n": metrics.errors.n,
                **metrics.cells(),
            }
            for protocol in self.protocols
            for name, metrics in self.metrics_of(protocol).items()
        ]
        columns = dict.fromkeys(key for row in rows for key in row)
        return ResultTable({name: [row.get(name) for row in rows] for name in columns}).to_arrow()

    def metrics_of(self, protocol: str) -> dict[str, WeightMetrics]:
        """Return the metrics of each predictor under a protocol; baselines come last."""
        names = sorted(self.rows, key=lambda name: name in self.baselines)
        return {name: self.rows[name][protocol] for name in names if protocol in self.rows[name]}

    def cells(self, protocol: str) -> dict[str, dict[str, str]]:
        """Return the table cells of one protocol (predictor -> heading -> text); baselines come last."""
        lines = {name: metrics.cells() for name, metrics in self.metrics_of(protocol).items()}
        return {name: {key: _number(value) for key, value in line.items()} for name, line in lines.items()}

    def __str__(self) -> str:
        parts = [self._section(key) for key in self.protocols]
        parts += ["\n".join(self.notes)] if self.notes else []
        parts += [] if self.intervals is None else [str(self.intervals)]
        if self.ndcg:
            first = next(iter(self.ndcg.values()))
            lines = [[name, _number(row.linear), _number(row.exponential)] for name, row in self.ndcg.items()]
            title = f"nDCG: every known tail among all entities ({first.queries:,} queries, ties {first.ties})"
            parts.append(f"{title}\n{format_table(['', 'linear', 'exponential'], lines)}")
        return "\n\n".join(parts)

    def _section(self, protocol: str) -> str:
        """Return the table of a protocol, with its name and the number of triples above it."""
        cells = self.cells(protocol)
        headings = list(cells[self.baselines[0]])
        texts = {name: [row.get(key, "–") for key in headings] for name, row in cells.items()}
        lines = [[name, *row] for name, row in texts.items() if name not in self.baselines]
        lines += [["baselines", *[""] * len(headings)]] if lines else []
        lines += [[f"  {name}", *row] for name, row in texts.items() if name in self.baselines]
        metrics = self.rows[self.baselines[0]][protocol]
        sizes = f"{metrics.errors.n:,} triples"
        if metrics.at_threshold is not None:
            sizes += f", {metrics.at_threshold.strong:,} of them strong: weight > {self.threshold:g}"
        return f"{PROTOCOLS[protocol]} ({sizes})\n{format_table(['', *headings], lines)}"


def _number(value: float) -> str:
    """Return a number with four decimals if it is below 10, else with four significant digits."""
    if not np.isfinite(value):
        return "–"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.4g}"


def evaluate_weights(
    test: WeightTest,
    train: Graph,
    predictors: Mapping[str, Predictor],
    with_negatives: Mapping[str, Predictor] | None = None,
    threshold: float | None = None,
    validation: WeightTest | None = None,
) -> WeightEvaluation:
    """Compute the metrics of predictors and of weight baselines, under every protocol that `test` has triples for.

    Parameters
    ----------
    predictors
        Functions from ids to weights, by name.
    with_negatives
        Other predictors for the protocols with negatives, which are calibrated with negatives; the predictors of names
        that are missing here are taken from `predictors`.
    threshold
        Triples above this weight are strong; if it is given, the classification of strong triples is evaluated.
    validation
        If this has negatives, triples are also classified by a logistic regression that is fitted on it.

    >>> from focuse.data.graph import from_columns
    >>> graph = from_columns(["a", "b", "a"], ["r", "r", "s"], ["b", "c", "b"], [0.2, 0.6, 1.0])
    >>> constant = {"always .5": lambda head, relation, tail: np.full(len(head), 0.5)}
    >>> evaluated = evaluate_weights(WeightTest(graph), graph, constant)
    >>> round(evaluated.rows["always .5"]["positives"].errors.mae, 3)
    0.3
    """
    baselines, zero_baseline = fit_weight_baselines(train), fit_zero_baseline(train)
    for name in set(predictors) & {*baselines, *zero_baseline}:
        raise FocuseError(f"predictor {name!r} has the name of a baseline; choose another name")
    for name in with_negatives or {}:
        choose("predictor", name, predictors)
    # If lower is better, a weight of 0 is the strongest and does not mean a false triple.
    unit = not train.lower_is_better and all(in_unit_range(graph.weight) for graph in (train, test.with_negatives))
    threshold = threshold if unit else None
    fitted_on = validation.with_negatives if validation is not None and validation.negatives is not None else None
    for_positives: dict[str, Predictor] = {**predictors, **baselines}
    for_negatives: dict[str, Predictor] = {**for_positives, **(with_negatives or {}), **zero_baseline}
    rows: dict[str, dict[str, WeightMetrics]] = {}
    for key, graph in test.protocols(train).items():
        strong = threshold if key == "with_negatives" else None
        for name, predictor in (for_negatives if key in WITH_NEGATIVES else for_positives).items():
            rows.setdefault(name, {})[key] = _metrics(predictor, graph, unit, strong, fitted_on)
    baseline_names = (*baselines, *(name for name in zero_baseline if name in rows))
    return WeightEvaluation(rows, baseline_names, threshold, tuple(_notes(test, unit, train.lower_is_better)))


def _metrics(
    predictor: Predictor, graph: Graph, unit: bool, threshold: float | None, fitted_on: Graph | None
) -> WeightMetrics:
    """Compute the metrics of one predictor that apply to the weights of a graph."""
    predicted, truth = predict(predictor, graph), graph.weight
    at_threshold = fitted = None
    if threshold is not None:
        at_threshold = classify_at(predicted, truth, threshold)
        if fitted_on is not None:
            others = predict(predictor, fitted_on), fitted_on.weight
            fitted = classify_fitted(predicted, truth, threshold, *others)
    curve = reliability(predicted, truth) if unit else None
    return WeightMetrics(errors(predicted, truth), spearman(predicted, truth), curve, at_threshold, fitted)


def baseline_errors(train: Graph, held_out: Graph) -> dict[str, dict[str, Errors]]:
    """Compute the errors of weight baselines on a held-out graph of any vocabulary: protocol -> baseline -> errors.

    The protocols are "positives" and "clean". A useful model has lower errors on a user's own split; `focuse describe`
    prints these before any training.
    """
    test = held_out.align(train).graph
    if train.columns is not None:  # several weight columns are merged as training merges them
        merger = fit_merger(train)
        train, test = merger(train), merger(test)
    baselines = fit_weight_baselines(train)
    return {
        key: {name: errors(predict(baseline, graph), graph.weight) for name, baseline in baselines.items()}
        for key, graph in WeightTest(test).protocols(train).items()
    }


def _notes(test: WeightTest, unit: bool, lower_is_better: bool) -> list[str]:
    notes = []
    if test.negatives is not None:
        notes.append("the baselines are fitted on the weights of train alone, without negatives")
        if len(test.negatives) != len(test.positives):
            sizes = f"{len(test.negatives):,} negatives and {len(test.positives):,} positives"
            notes.append(f"{sizes}; the protocol has equal numbers")
    if not unit:
        reason = "lower is better" if lower_is_better else "weights outside [0, 1]"
        notes.append(f"{reason}: no calibration error and no classification")
    return notes


def predict(predictor: Predictor, graph: Graph) -> FloatArray:
    """Return the predicted weights of a graph's edges, float64 [n]."""
    predicted = np.asarray(predictor(graph.head, graph.relation, graph.tail), np.float64)
    if predicted.shape != graph.weight.shape:
        shape = list(predicted.shape)
        raise FocuseError(f"a predictor returned {shape} weights; return one per triple, [{len(graph)}]")
    if not np.isfinite(predicted).all():
        raise FocuseError("a model predicts weights that are not finite: training diverged; lower the learning rate")
    return predicted


@dataclass(frozen=True)
class IntervalTable(Metrics):
    """The coverage of several methods for intervals of a nominal `coverage`, and of the first method by relation."""

    coverage: float
    conformal_rows: int
    rows: Mapping[str, Coverage]
    relations: Sequence[RelationCoverage]

    def __str__(self) -> str:
        def table(rows: Mapping[str, Coverage]) -> str:
            numbers = {name: (row.coverage, row.width, row.median_width, row.n) for name, row in rows.items()}
            lines = [[name, f"{c:.3f}", f"{w:.4g}", f"{m:.4g}", f"{n:,}"] for name, (c, w, m, n) in numbers.items()]
            return format_table(["", "coverage", "mean width", "median width", "n"], lines)

        own = {row.relation: row.coverage for row in self.relations if row.calibrated}
        sizes = f"{next(iter(self.rows.values())).n:,} test triples, {self.conformal_rows:,} conformal rows"
        lines = [f"{self.coverage:.0%} intervals ({sizes})", table(self.rows)]
        shares = f"{len(own)} of {len(self.relations)} have intervals of their own"
        lines.append(f"by relation: {shares}, the rest share the global one")
        return "\n".join([*lines, *([table(dict(list(own.items())[:MAX_RELATIONS_SHOWN]))] if own else [])])


@dataclass(frozen=True)
class ProbabilityTable(TableExport, Metrics):
    """The metrics of methods to compute probabilities, the uncalibrated one first.

    `positives` and `negatives` are the numbers of true and of false triples, which are the rows of `triples`;
    `probability` [n] is their calibrated probability and `label` [n] is 1 if they are true.
    """

    rows: Mapping[str, ProbabilityMetrics]
    positives: int
    negatives: int
    base_rate: float
    triples: Graph = field(repr=False, compare=False)
    probability: FloatArray = field(repr=False, compare=False)
    label: FloatArray = field(repr=False, compare=False)
    notes: tuple[str, ...] = ()

    def to_arrow(self) -> pa.Table:
        """Return one row per method, with its Brier score and its expected calibration error."""
        columns = {"brier": [row.brier for row in self.rows.values()], "ece": [row.ece for row in self.rows.values()]}
        return ResultTable({"method": list(self.rows), **columns}).to_arrow()

    def __str__(self) -> str:
        title = f"{self.positives:,} true triples and {self.negatives:,} negatives (base rate {self.base_rate:.3g})"
        lines = [[name, _number(row.brier), _number(row.ece)] for name, row in self.rows.items()]
        return "\n".join([title, format_table(["", "Brier", "ECE"], lines), *self.notes])
