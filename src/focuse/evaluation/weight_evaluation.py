"""Evaluation of predicted weights: the test triples of each protocol, and a table of predictors and baselines.

Published errors use different protocols that are not comparable, so the table has one part per protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from focuse.data.graph import Graph, concatenate
from focuse.data.statistics import leaked
from focuse.data.weights import fit_merger, in_unit_range
from focuse.errors import FocuseError
from focuse.evaluation.baselines import Predictor, fit_weight_baselines, fit_zero_baseline
from focuse.evaluation.metrics import FloatArray, finite_or_none, spearman
from focuse.evaluation.weight_metrics import (
    Classification,
    Errors,
    Reliability,
    classify_at,
    classify_fitted,
    errors,
    reliability,
)
from focuse.option_strings import choose

PROTOCOLS = {
    "positives": "positives only",
    "clean": "positives only, clean: neither a duplicate nor an inverse in train",
    "with_negatives": "UKGE: test with as many zero-weight negatives",
    "negatives": "negatives alone",
}
WITH_NEGATIVES = ("with_negatives", "negatives")  # protocols for predictors that are calibrated with negatives


@dataclass(frozen=True)
class WeightTest:
    """Test triples (in train's ids) whose weights are predicted, and negatives, whose weight is 0."""

    positives: Graph
    negatives: Graph | None = None

    @classmethod
    def from_file(cls, rows: Graph) -> WeightTest:
        """Split the rows of a UKGE `test_with_neg` file, in train's ids; rows of weight 0 are the negatives."""
        if len(rows) and rows.weight.min() < 0:
            raise FocuseError(
                f"{rows.source}: a test with negatives has weights from 0 on, found {rows.weight.min():g}"
            )
        false = rows.weight == 0
        return cls(rows.select(~false), rows.select(false) if false.any() else None)

    @property
    def with_negatives(self) -> Graph:
        """The positives followed by the negatives, as in the protocol of UKGE."""
        if self.negatives is None:
            return self.positives
        return concatenate([self.positives, self.negatives])


@dataclass(frozen=True)
class WeightMetrics:
    """The metrics of one predictor under one protocol; None if a metric does not apply."""

    errors: Errors
    spearman: float
    reliability: Reliability | None = None
    at_threshold: Classification | None = None
    fitted: Classification | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics that apply, by name."""
        parts = {name: getattr(self, name) for name in ("reliability", "at_threshold", "fitted")}
        return {
            **self.errors.to_dict(),
            "spearman": finite_or_none(self.spearman),
            **{name: part.to_dict() for name, part in parts.items() if part is not None},
        }


@dataclass(frozen=True)
class WeightTable:
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
            "rows": {name: {key: metrics.to_dict() for key, metrics in row.items()} for name, row in self.rows.items()},
            "trivial": list(self.baselines),
            "threshold": self.threshold,
            "notes": list(self.notes),
        }

    def cells(self, protocol: str) -> dict[str, dict[str, str]]:
        """Return the table cells of one protocol (predictor -> heading -> text); baselines come last."""
        names = [name for name in self.rows if name not in self.baselines] + list(self.baselines)
        return {
            name: {heading: _number(value) for heading, value in _cells(self.rows[name][protocol]).items()}
            for name in names
            if protocol in self.rows[name]
        }

    def __str__(self) -> str:
        notes = ["\n".join(self.notes)] if self.notes else []
        return "\n\n".join([*(self._section(key) for key in self.protocols), *notes])

    def _section(self, protocol: str) -> str:
        """Return the table of a protocol: its name, the predictors and, below a line, the baselines."""
        cells = self.cells(protocol)
        width = max(map(len, cells))
        names = [*cells[self.baselines[0]]]
        heading = " " * width + "".join(f"{name:>{_width(name)}}" for name in names)
        sizes = self._sizes(self.rows[self.baselines[0]][protocol])
        lines = [f"{PROTOCOLS[protocol]} ({sizes})", heading]
        for name, row in cells.items():
            if name == self.baselines[0] and len(lines) > 2:
                lines.append("─" * len(heading))
            texts = "".join(f"{row.get(key, '–'):>{_width(key)}}" for key in names)
            lines.append(f"{name:{width}}{texts}")
        return "\n".join(lines)

    def _sizes(self, metrics: WeightMetrics) -> str:
        strong = metrics.at_threshold
        text = f"{metrics.errors.n:,} triples"
        return text if strong is None else f"{text}, {strong.strong:,} of them strong: weight > {self.threshold:g}"


def _cells(metrics: WeightMetrics) -> dict[str, float]:
    """Return the numbers of one line by heading."""
    cells = {"MSE": metrics.errors.mse, "MAE": metrics.errors.mae, "Spearman": metrics.spearman}
    if metrics.reliability is not None:
        cells["ECE"] = metrics.reliability.ece
    for words, part in (("at threshold", metrics.at_threshold), ("fitted", metrics.fitted)):
        if part is not None:
            cells |= {f"accuracy {words}": part.accuracy, f"F1 {words}": part.f1}
    return cells


def _width(heading: str) -> int:
    return max(len(heading), 8) + 2


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
    lower_is_better = train.lower_is_better
    unit = not lower_is_better and all(in_unit_range(graph.weight) for graph in (train, test.with_negatives))
    metrics = _MetricsFor(unit, threshold if unit else None, validation if unit else None)
    parts = _parts(test, train)
    for_positives: dict[str, Predictor] = {**predictors, **baselines}
    for_negatives: dict[str, Predictor] = {**for_positives, **(with_negatives or {}), **zero_baseline}
    rows: dict[str, dict[str, WeightMetrics]] = {}
    for key, graph in parts.items():
        for name, predictor in (for_negatives if key in WITH_NEGATIVES else for_positives).items():
            rows.setdefault(name, {})[key] = metrics(predictor, graph, key)
    baseline_names = (*baselines, *(name for name in zero_baseline if name in rows))
    return WeightTable(rows, baseline_names, metrics.threshold, tuple(_notes(test, unit, lower_is_better)))


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
    parts = _parts(WeightTest(test), train)
    return {
        key: {name: errors(predict(baseline, graph), graph.weight) for name, baseline in baselines.items()}
        for key, graph in parts.items()
    }


def _parts(test: WeightTest, train: Graph) -> dict[str, Graph]:
    """Return the triples of each protocol."""
    positives = test.positives
    parts = {"positives": positives, "clean": positives.select(~leaked(train, positives))}
    if test.negatives is not None:
        parts |= {"with_negatives": test.with_negatives, "negatives": test.negatives}
    return parts


def _notes(test: WeightTest, unit: bool, lower_is_better: bool) -> list[str]:
    notes = ["the baselines are fitted on the weights of train alone, without negatives"]
    if test.negatives is None:
        notes = []
    elif len(test.negatives) != len(test.positives):
        notes.append(
            f"{len(test.negatives):,} negatives and {len(test.positives):,} positives; the protocol has equal numbers"
        )
    if not unit:
        reason = "lower is better" if lower_is_better else "weights outside [0, 1]"
        notes.append(f"{reason}: no calibration error and no classification")
    return notes


@dataclass(frozen=True)
class _MetricsFor:
    """A function that computes the metrics that apply to the weights of a test set."""

    unit: bool
    threshold: float | None
    validation: WeightTest | None

    def __call__(self, predictor: Predictor, graph: Graph, protocol: str) -> WeightMetrics:
        predicted, truth = predict(predictor, graph), graph.weight
        strong = self.threshold if protocol == "with_negatives" else None
        return WeightMetrics(
            errors(predicted, truth),
            spearman(predicted, truth),
            reliability(predicted, truth) if self.unit else None,
            None if strong is None else classify_at(predicted, truth, strong),
            None if strong is None else self._fitted(predictor, predicted, truth, strong),
        )

    def _fitted(
        self, predictor: Predictor, predicted: FloatArray, truth: FloatArray, threshold: float
    ) -> Classification | None:
        if self.validation is None or self.validation.negatives is None:
            return None
        validation = self.validation.with_negatives
        return classify_fitted(predicted, truth, threshold, predict(predictor, validation), validation.weight)


def predict(predictor: Predictor, graph: Graph) -> FloatArray:
    """Return the predicted weights of a graph's edges, float64 [n]."""
    predicted = np.asarray(predictor(graph.head, graph.relation, graph.tail), np.float64)
    if not np.isfinite(predicted).all():
        raise FocuseError("a model predicts weights that are not finite: training diverged; lower the learning rate")
    return predicted
