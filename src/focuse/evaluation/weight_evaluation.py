"""Evaluation of predicted weights and probabilities: the triples of each protocol, and tables of metrics.

Published errors use different protocols that are not comparable, so weights have one table per protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from focuse.data.graph import Graph, concatenate
from focuse.data.statistics import leaked
from focuse.data.weights import fit_merger, in_unit_range
from focuse.errors import FocuseError
from focuse.evaluation.baselines import Predictor, fit_weight_baselines, fit_zero_baseline
from focuse.evaluation.metrics import NDCG, FloatArray, Metrics, json_value, spearman
from focuse.evaluation.weight_metrics import (
    Classification,
    Coverage,
    Errors,
    ProbabilityMetrics,
    RelationCoverage,
    Reliability,
    classify_at,
    classify_fitted,
    errors,
    reliability,
)
from focuse.option_strings import choose
from focuse.results import ResultTable, TableExport, format_table

PROTOCOLS = {
    "positives": "positives only",
    "clean": "positives only, clean: neither a duplicate nor an inverse in train",
    "with_negatives": "UKGE: test with as many zero-weight negatives",
    "negatives": "negatives alone",
}
WITH_NEGATIVES = ("with_negatives", "negatives")  # protocols for predictors that are calibrated with negatives
MAX_RELATIONS_SHOWN = 12  # relations in the printed table of intervals; `to_dict` has all


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
class WeightTable(TableExport):
    """The metrics of predictors (`rows`: predictor -> protocol -> metrics); `print` shows one table per protocol."""

    rows: dict[str, dict[str, WeightMetrics]]
    baselines: tuple[str, ...]
    threshold: float | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def protocols(self) -> list[str]:
        """The protocols that the test has triples for."""
        return list(self.rows[self.baselines[0]])

    def to_dict(self) -> dict[str, Any]:
        """Return the table as `--json` prints it."""
        return {
            "protocols": {key: PROTOCOLS[key] for key in self.protocols},
            "rows": json_value(self.rows),
            "baselines": list(self.baselines),
            "threshold": self.threshold,
            "notes": list(self.notes),
        }

    def to_arrow(self) -> pa.Table:
        """Return one row per protocol and predictor, with its metrics."""
        rows = [
            {
                "protocol": protocol,
                "predictor": name,
                "baseline": name in self.baselines,
                "n": self.rows[name][protocol].errors.n,
                **self.rows[name][protocol].cells(),
            }
            for protocol in self.protocols
            for name in self._names(protocol)
        ]
        columns = dict.fromkeys(key for row in rows for key in row)
        table = {name: pa.array([row.get(name) for row in rows], from_pandas=True) for name in columns}
        return pa.table(table)

    def _names(self, protocol: str) -> list[str]:
        """Return the predictors of a protocol; baselines come last."""
        names = [*(name for name in self.rows if name not in self.baselines), *self.baselines]
        return [name for name in names if protocol in self.rows[name]]

    def cells(self, protocol: str) -> dict[str, dict[str, str]]:
        """Return the table cells of one protocol (predictor -> heading -> text); baselines come last."""
        lines = {name: self.rows[name][protocol].cells() for name in self._names(protocol)}
        return {name: {key: _number(value) for key, value in line.items()} for name, line in lines.items()}

    def __str__(self) -> str:
        notes = ["\n".join(self.notes)] if self.notes else []
        return "\n\n".join([*(self._section(key) for key in self.protocols), *notes])

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
) -> WeightTable:
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
    >>> table = evaluate_weights(WeightTest(graph), graph, constant)
    >>> round(table.rows["always .5"]["positives"].errors.mae, 3)
    0.3
    """
    baselines, zero_baseline = fit_weight_baselines(train), fit_zero_baseline(train)
    for name in [*predictors, *(with_negatives or {})]:
        if name in {**baselines, **zero_baseline}:
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
    return WeightTable(rows, baseline_names, threshold, tuple(_notes(test, unit, train.lower_is_better)))


def _metrics(
    predictor: Predictor, graph: Graph, unit: bool, threshold: float | None, fitted_on: Graph | None
) -> WeightMetrics:
    """Compute the metrics of one predictor that apply to the weights of a graph."""
    predicted, truth = predict(predictor, graph), graph.weight
    curve = reliability(predicted, truth) if unit else None
    metrics = errors(predicted, truth), spearman(predicted, truth), curve
    if threshold is None:
        return WeightMetrics(*metrics)
    fitted = None
    if fitted_on is not None:
        others = predict(predictor, fitted_on), fitted_on.weight
        fitted = classify_fitted(predicted, truth, threshold, *others)
    return WeightMetrics(*metrics, classify_at(predicted, truth, threshold), fitted)


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
        first = next(iter(self.rows.values()))
        calibrated = [row for row in self.relations if row.calibrated]
        lines = [[name, *_coverage_cells(row)] for name, row in self.rows.items()]
        sizes = f"{first.n:,} test triples, {self.conformal_rows:,} conformal rows"
        text = f"{self.coverage:.0%} intervals ({sizes})\n{_coverage_table(lines)}\n"
        text += f"by relation: {len(calibrated)} of {len(self.relations)} have intervals of their own, "
        text += "the rest share the global one"
        lines = [[row.relation, *_coverage_cells(row.coverage)] for row in calibrated[:MAX_RELATIONS_SHOWN]]
        return f"{text}\n{_coverage_table(lines)}" if lines else text


def _coverage_cells(row: Coverage) -> list[str]:
    return [f"{row.coverage:.3f}", f"{row.width:.4g}", f"{row.median_width:.4g}", f"{row.n:,}"]


def _coverage_table(lines: Sequence[Sequence[str]]) -> str:
    return format_table(["", "coverage", "mean width", "median width", "n"], lines)


@dataclass(frozen=True)
class WeightEvaluation(TableExport):
    """The errors by protocol (`table`), the `ndcg` of scores and baselines, and the coverage of `intervals`.

    `print` shows tables, `to_dict` returns what `--json` prints, and data frames have the rows of `table`.
    """

    table: WeightTable
    ndcg: Mapping[str, NDCG]
    intervals: IntervalTable | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the test set and on the metrics."""
        return self.table.notes

    def to_arrow(self) -> pa.Table:
        """Return one row per protocol and predictor, with its metrics."""
        return self.table.to_arrow()

    def to_dict(self) -> dict[str, Any]:
        """Return all metrics by name, as JSON can hold them."""
        return {**self.table.to_dict(), "ndcg": json_value(self.ndcg), "intervals": json_value(self.intervals)}

    def __str__(self) -> str:
        first = next(iter(self.ndcg.values()))
        lines = [[name, _number(row.linear), _number(row.exponential)] for name, row in self.ndcg.items()]
        title = f"nDCG: every known tail among all entities ({first.queries:,} queries, ties {first.ties})"
        parts = [self.table, *([] if self.intervals is None else [self.intervals])]
        return "\n\n".join([*map(str, parts), f"{title}\n{format_table(['', 'linear', 'exponential'], lines)}"])


@dataclass(frozen=True)
class ProbabilityTable(TableExport):
    """The metrics of methods to compute probabilities, the uncalibrated one first.

    `positives` and `negatives` are the numbers of true and of false triples.
    """

    rows: Mapping[str, ProbabilityMetrics]
    positives: int
    negatives: int
    base_rate: float
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Return all metrics by name, as JSON can hold them."""
        names = ("positives", "negatives", "base_rate", "rows", "notes")
        return {name: json_value(getattr(self, name)) for name in names}

    def to_arrow(self) -> pa.Table:
        """Return one row per method, with its Brier score and its expected calibration error."""
        columns = {"brier": [row.brier for row in self.rows.values()], "ece": [row.ece for row in self.rows.values()]}
        return ResultTable({"method": list(self.rows), **columns}).to_arrow()

    def __str__(self) -> str:
        title = f"{self.positives:,} true triples and {self.negatives:,} negatives (base rate {self.base_rate:.3g})"
        lines = [[name, _number(row.brier), _number(row.ece)] for name, row in self.rows.items()]
        return "\n".join([title, format_table(["", "Brier", "ECE"], lines), *self.notes])
