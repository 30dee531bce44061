"""Compute everything that a report shows about a run, once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from focuse.data.graph import AlignedGraph, Graph
from focuse.data.readers import read
from focuse.data.statistics import GraphStatistics, describe
from focuse.errors import FocuseError
from focuse.evaluation.baselines import RELATION_MEAN, fit_weight_baselines
from focuse.evaluation.evaluate import Evaluation, evaluate_baselines
from focuse.evaluation.metrics import json_value
from focuse.evaluation.weight_evaluation import ProbabilityTable, WeightEvaluation, interval_coverage
from focuse.training.preparation import read_test_graph

if TYPE_CHECKING:
    from focuse.api import Run

LINKS, LINKS_PER_HEAD = 20, 3
LINK_COLUMNS = ("head", "relation", "tail", "score", "probability", "weight_mean", "weight_low", "weight_high")
COVERAGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # targets of the coverage chart
MIN_TEST_TRIPLES = 20  # of a relation, for its coverage and Brier score
T = TypeVar("T")
Floats = npt.NDArray[np.float64]
Progress = Callable[[str], None]


@dataclass
class Findings:
    """What is known about a run; None or empty if it is not available, and then a note says why.

    `test` are the triples that the run was evaluated on, `baselines` the evaluations of rankings without a model,
    `coverage` the pairs (target, measured) of intervals, and
    `relations` the metrics of each relation by name.
    """

    run: Run
    statistics: GraphStatistics
    test: AlignedGraph | None = None
    evaluation: Evaluation | None = None
    baselines: dict[str, Evaluation] = field(default_factory=dict)
    weights: WeightEvaluation | None = None
    probabilities: ProbabilityTable | None = None
    coverage: list[tuple[float, float]] = field(default_factory=list)
    relations: list[dict[str, Any]] = field(default_factory=list)
    links: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def attempt(self, compute: Callable[[], T]) -> T | None:
        """Return the result of a computation; None if it is refused, which is noted once."""
        try:
            return compute()
        except FocuseError as error:
            if str(error) not in self.notes:
                self.notes.append(str(error))
            return None

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as data that JSON can represent."""
        names = ("statistics", "evaluation", "baselines", "weights", "probabilities", "relations", "notes")
        parts = {
            "settings": self.run.settings,
            "history": self.run.history,
            "label_exponent_trials": [asdict(trial) for trial in self.run.label_exponent_trials],
            "weight_columns": self.run.splits.merger,
            **{name: getattr(self, name) for name in names},
            "coverage": [{"target": target, "measured": measured} for target, measured in self.coverage],
            "links": [{key: getattr(row, key) for key in LINK_COLUMNS} for row in self.links],
        }
        return {name: json_value(part) for name, part in parts.items()}


def collect(run: Run, test: Any, progress: Progress) -> Findings:
    """Evaluate a run on its test split or on `test`, and find new links."""
    graph = None if test is None else read(test)
    aligned = run.splits.aligned_test if graph is None else read_test_graph(graph, run.settings, run.splits)
    held_out = {"validation": run.splits.valid, "test": aligned.graph}
    found = Findings(run, describe(run.graph, {name: part for name, part in held_out.items() if len(part)}))
    progress(f"Ranking {len(aligned.graph):,} test triples")
    # A report without test triples is fine, but given triples that all have unknown names are a mistake.
    mistaken = graph is not None and not len(aligned.graph)
    found.evaluation = run.evaluate(graph) if mistaken else found.attempt(lambda: run.evaluate(graph))
    if found.evaluation is not None:
        found.test = aligned
        if "candidates" not in found.evaluation.settings:  # sampled ranks are not comparable with those of baselines
            splits, known = run.splits, [run.splits.train, run.splits.valid, run.splits.test]
            evaluated = splits.train, splits.valid, aligned, known, run.scorer.device
            found.baselines = found.attempt(lambda: evaluate_baselines(*evaluated)) or {}
        progress("Fitting the weight estimator (once per run)")
        found.attempt(lambda: run.weight_predictor(full=True))
        progress("Evaluating predicted weights and probabilities")
        found.weights = found.attempt(lambda: run.evaluate_weights(graph))
        found.probabilities = found.attempt(lambda: run.evaluate_probabilities(graph))
        found.coverage = _coverage_by_target(found)
    found.relations = relation_metrics(found)
    progress("Searching for new links")
    found.links = found.attempt(lambda: list(new_links(run))) or []
    return found


def new_links(run: Run) -> Any:
    """Return the most probable links that the graph lacks; in a large graph, those between popular entities."""
    try:
        return run.discover(top=LINKS, prefer="likely", max_per_head=LINKS_PER_HEAD)
    except FocuseError:  # more links than are scored by default
        return run.discover(top=LINKS, prefer="likely", max_per_head=LINKS_PER_HEAD, strategy="popular")


def _coverage_by_target(found: Findings) -> list[tuple[float, float]]:
    """Return (target, measured) coverage of intervals on the test triples."""
    if found.weights is None or found.weights.intervals is None or found.test is None:
        return []
    predictor, test = found.run.weight_predictor(full=True), found.test.graph
    if predictor.estimator is None:
        return []
    pairs, estimates = [], predictor.estimator(test.head, test.relation, test.tail)
    for target in COVERAGES:
        bounds = predictor.interval(estimates, test.relation, target)
        pairs.append((target, interval_coverage(*bounds, test.weight).coverage))
    return [(target, measured) for target, measured in pairs if math.isfinite(measured)]


# ---- metrics per relation --------------------------------------------------------------------------------------------


def relation_metrics(found: Findings) -> list[dict[str, Any]]:
    """Return the metrics of every relation of train, the most frequent first; NaN if there is too little to measure."""
    measured = _measure_relations(found)
    ids = {name: number for number, name in enumerate(found.run.graph.relations)}
    rows = []
    for one in found.statistics.per_relation:
        row = {"name": one.name, "train": one.edges, "weight_mean": one.weight_mean, "histogram": one.histogram}
        rows.append({**row, "test": 0, **{key: values[ids[one.name]].item() for key, values in measured.items()}})
    return rows


def _measure_relations(found: Findings) -> dict[str, npt.NDArray[Any]]:
    """Return one value per relation [R] for each metric; empty without test triples."""
    if found.test is None or found.evaluation is None:
        return {}
    run, test, ranks = found.run, found.test.graph, found.evaluation.ranks
    count = np.bincount(test.relation, minlength=len(test.relations))
    metrics: dict[str, npt.NDArray[Any]] = {"test": count}
    if ranks.shape == (len(test), 2):
        metrics["tail_mrr"], metrics["head_mrr"] = (_mean_by_relation(test, 1 / ranks[:, side]) for side in (0, 1))
        metrics["hits_at_10"] = _mean_by_relation(test, (ranks <= 10).mean(axis=1))
    enough = np.where(count >= MIN_TEST_TRIPLES, 1.0, np.nan)
    if test.weighted and run.graph.weighted and found.weights is not None:
        predicted = run.weight_predictor(full=True).predict_unseen(test.head, test.relation, test.tail)
        low, high = predicted["weight_low"], predicted["weight_high"]
        mean = fit_weight_baselines(run.graph)[RELATION_MEAN](test.head, test.relation, test.tail)
        metrics["weight_mae"] = _mean_by_relation(test, abs(predicted["weight_mean"] - test.weight))
        metrics["baseline_mae"] = _mean_by_relation(test, abs(mean - test.weight))
        inside = (low <= test.weight) & (test.weight <= high)
        metrics["coverage"] = _mean_by_relation(test, np.where(np.isfinite(low), inside, np.nan)) * enough
    if found.probabilities is not None:
        table = found.probabilities
        metrics["brier"] = _mean_by_relation(table.triples, (table.probability - table.label) ** 2) * enough
    return metrics


def _mean_by_relation(graph: Graph, values: npt.NDArray[Any]) -> Floats:
    """Return the mean of one number per row [n] for each relation [R], NaN for a relation without rows."""
    size = len(graph.relations)
    count = np.bincount(graph.relation, minlength=size).astype(np.float64)
    total = np.bincount(graph.relation, weights=values, minlength=size)
    mean: Floats = np.divide(total, count, out=np.full(size, np.nan), where=count > 0)
    return mean
