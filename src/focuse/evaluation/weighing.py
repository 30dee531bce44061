"""Which triples a table of weights is about, and the table: one part a protocol, the trivial rows in each.

Published errors follow protocols that do not compare, so each stands under its own name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.errors import FocuseError, choose
from focuse.evaluation.baselines import Floats, Predictor, fit_doubting, fit_trivial
from focuse.evaluation.confidence import (
    Classification,
    Errors,
    Reliability,
    classify_at,
    classify_fitted,
    errors,
    finite_or_none,
    reliability,
    spearman,
)
from focuse.graph.audit import leaked
from focuse.graph.columns import joined
from focuse.graph.graph import Graph
from focuse.graph.merging import fit_merger
from focuse.graph.weights import in_unit_range

PROTOCOLS = {
    "positives": "positives only",
    "clean": "positives only, clean: neither a duplicate nor an inverse in train",
    "with_negatives": "UKGE: test with as many zero-weight negatives",
    "negatives": "negatives alone",
}
DOUBTING = ("with_negatives", "negatives")  # where a predictor should know that most triples are false
ROUNDS = 100  # tries to find a corruption that is no fact


@dataclass(frozen=True)
class WeightTest:
    """Triples (in train's ids) whose weights are to be predicted, and corruptions of them, whose weight is 0."""

    positives: Graph
    negatives: Graph | None = None

    @classmethod
    def from_file(cls, rows: Graph) -> WeightTest:
        """A `test_with_neg` file, aligned to train: rows of weight 0 are the negatives."""
        if len(rows) and rows.weight.min() < 0:
            raise FocuseError(
                f"{rows.source}: a test with negatives has weights from 0 on, found {rows.weight.min():g}"
            )
        false = rows.weight == 0
        return cls(rows.select(~false), rows.select(false) if false.any() else None)

    @property
    def with_negatives(self) -> Graph:
        """UKGE's protocol: both together, the positives first."""
        if self.negatives is None:
            return self.positives
        return join([self.positives, self.negatives])


def join(graphs: Sequence[Graph]) -> Graph:
    """The rows of graphs with one vocabulary, one after the other; named like the first."""
    return replace(
        graphs[0],
        head=np.concatenate([graph.head for graph in graphs]),
        relation=np.concatenate([graph.relation for graph in graphs]),
        tail=np.concatenate([graph.tail for graph in graphs]),
        weight=np.concatenate([graph.weight for graph in graphs]),
        columns=joined(graph.columns for graph in graphs),
    )


def draw_negatives(
    test: Graph, known_keys: npt.NDArray[np.int64], seed: int = 0, popular: npt.NDArray[np.int32] | None = None
) -> Graph:
    """A random corruption of each row of `test`, weight 0: a fair coin for the side, then a uniform entity.

    With `popular` [m] entities (with repeats) every other row's comes from there instead: such corruptions are harder
    to tell from facts, and a file of negatives may hold many.
    None is in `known_keys` (`Graph.keys` of train, say) or in test. A row of which a hundred tries give nothing but
    facts is left out.
    """
    random = np.random.default_rng(seed)
    known = np.unique(np.concatenate([known_keys, test.keys]))
    head, tail = test.head.copy(), test.tail.copy()
    open_rows = np.arange(len(test))
    for _ in range(ROUNDS):
        at_tail = random.random(len(open_rows)) < 0.5
        entity = random.integers(0, max(len(test.entities), 1), len(open_rows), dtype=np.int32)
        if popular is not None:
            entity = np.where(open_rows % 2, popular[random.integers(0, len(popular), len(open_rows))], entity)
        head[open_rows] = np.where(at_tail, test.head[open_rows], entity)
        tail[open_rows] = np.where(at_tail, entity, test.tail[open_rows])
        keys = test.keys_of(head[open_rows], test.relation[open_rows], tail[open_rows])
        open_rows = open_rows[np.isin(keys, known)]
        if not len(open_rows):
            break
    drawn = replace(test, head=head, tail=tail, weight=np.zeros(len(test)))
    return drawn.select(np.setdiff1d(np.arange(len(test)), open_rows))


@dataclass(frozen=True)
class WeightFigures:
    """The figures of one predictor under one protocol; None where they say nothing there."""

    errors: Errors
    spearman: float
    reliability: Reliability | None = None
    at_threshold: Classification | None = None
    fitted: Classification | None = None

    def to_dict(self) -> dict[str, Any]:
        parts = {name: getattr(self, name) for name in ("reliability", "at_threshold", "fitted")}
        return {
            **self.errors.to_dict(),
            "spearman": finite_or_none(self.spearman),
            **{name: part.to_dict() for name, part in parts.items() if part is not None},
        }


@dataclass(frozen=True)
class WeightTable:
    """Predictor -> protocol -> figures; `print` shows a table a protocol, `to_dict` is what `--json` prints."""

    rows: dict[str, dict[str, WeightFigures]]
    trivial: tuple[str, ...]
    threshold: float | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def protocols(self) -> list[str]:
        return list(self.rows[self.trivial[0]])

    def to_dict(self) -> dict[str, Any]:
        return {
            "protocols": {key: PROTOCOLS[key] for key in self.protocols},
            "rows": {name: {key: figures.to_dict() for key, figures in row.items()} for name, row in self.rows.items()},
            "trivial": list(self.trivial),
            "threshold": self.threshold,
            "notes": list(self.notes),
        }

    def cells(self, protocol: str) -> dict[str, dict[str, str]]:
        """Predictor -> heading -> number as text, under one protocol; the trivial rows come last."""
        names = [name for name in self.rows if name not in self.trivial] + list(self.trivial)
        return {
            name: {heading: _number(value) for heading, value in _cells(self.rows[name][protocol]).items()}
            for name in names
            if protocol in self.rows[name]
        }

    def __str__(self) -> str:
        notes = ["\n".join(self.notes)] if self.notes else []
        return "\n\n".join([*(self._section(key) for key in self.protocols), *notes])

    def _section(self, protocol: str) -> str:
        """One protocol's table: its name, the predictors, and below a rule the trivial rows."""
        cells = self.cells(protocol)
        width = max(map(len, cells))
        names = [*cells[self.trivial[0]]]
        heading = " " * width + "".join(f"{name:>{_width(name)}}" for name in names)
        sizes = self._sizes(self.rows[self.trivial[0]][protocol])
        lines = [f"{PROTOCOLS[protocol]} ({sizes})", heading]
        for name, row in cells.items():
            if name == self.trivial[0] and len(lines) > 2:
                lines.append("─" * len(heading))
            texts = "".join(f"{row.get(key, '–'):>{_width(key)}}" for key in names)
            lines.append(f"{name:{width}}{texts}")
        return "\n".join(lines)

    def _sizes(self, figures: WeightFigures) -> str:
        strong = figures.at_threshold
        text = f"{figures.errors.n:,} triples"
        return text if strong is None else f"{text}, {strong.strong:,} of them strong: weight > {self.threshold:g}"


def _cells(figures: WeightFigures) -> dict[str, float]:
    """Heading -> number of one line."""
    cells = {"MSE": figures.errors.mse, "MAE": figures.errors.mae, "Spearman": figures.spearman}
    if figures.reliability is not None:
        cells["ECE"] = figures.reliability.ece
    for words, part in (("at threshold", figures.at_threshold), ("fitted", figures.fitted)):
        if part is not None:
            cells |= {f"accuracy {words}": part.accuracy, f"F1 {words}": part.f1}
    return cells


def _width(heading: str) -> int:
    return max(len(heading), 8) + 2


def _number(value: float) -> str:
    """Four digits after the point where weights are about 1, else as many as say something."""
    if not np.isfinite(value):
        return "–"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.4g}"


def weigh(
    test: WeightTest,
    train: Graph,
    predictors: Mapping[str, Predictor],
    with_negatives: Mapping[str, Predictor] | None = None,
    threshold: float | None = None,
    validation: WeightTest | None = None,
) -> WeightTable:
    """The figures of `predictors` and of the three trivial rows, under every protocol that `test` has triples for.

    `with_negatives` names other predictors for the protocols with negatives (one calibrated to know that most triples
    are false); names it lacks are taken from `predictors`. Facts above `threshold` are strong: they are told from the
    rest at that threshold, and, if `validation` has triples and corruptions of them, by a line fitted there.

    >>> from focuse.graph.graph import from_columns
    >>> graph = from_columns(["a", "b", "a"], ["r", "r", "s"], ["b", "c", "b"], [0.2, 0.6, 1.0])
    >>> table = weigh(WeightTest(graph), graph, {"always .5": lambda head, relation, tail: np.full(len(head), 0.5)})
    >>> round(table.rows["always .5"]["positives"].errors.mae, 3)
    0.3
    """
    trivial, doubting = fit_trivial(train), fit_doubting(train)
    for name in [*predictors, *(with_negatives or {})]:
        if name in {**trivial, **doubting}:
            raise FocuseError(f"a predictor is called {name!r}, as a trivial row is; give it another name")
    for name in with_negatives or {}:
        choose("predictor", name, predictors)
    # Where lower is better, a weight of 0 is the strongest and not that of a false triple.
    turned = train.lower_is_better
    unit = not turned and all(in_unit_range(graph.weight) for graph in (train, test.with_negatives))
    plan = _Plan(unit, threshold if unit else None, validation if unit else None)
    parts = _parts(test, train)
    everyone: dict[str, Predictor] = {**predictors, **trivial}
    unsure: dict[str, Predictor] = {**everyone, **(with_negatives or {}), **doubting}
    rows: dict[str, dict[str, WeightFigures]] = {}
    for key, graph in parts.items():
        for name, predictor in (unsure if key in DOUBTING else everyone).items():
            rows.setdefault(name, {})[key] = plan.figures(predictor, graph, key)
    below = (*trivial, *(name for name in doubting if name in rows))
    return WeightTable(rows, below, plan.threshold, tuple(_notes(test, unit, turned)))


def trivial_errors(train: Graph, held_out: Graph) -> dict[str, dict[str, Errors]]:
    """Protocol (positives, clean) -> trivial row -> its errors on the facts of a held-out graph of any vocabulary.

    What a model must beat on a user's own split, known before one is trained: `focuse inspect` prints it.
    """
    test = held_out.align(train).graph
    if train.columns is not None:  # several weights are looked at as the one that training makes of them
        merger = fit_merger(train)
        train, test = merger(train), merger(test)
    trivial = fit_trivial(train)
    parts = _parts(WeightTest(test), train)
    return {
        key: {name: errors(predict(row, graph), graph.weight) for name, row in trivial.items()}
        for key, graph in parts.items()
    }


def _parts(test: WeightTest, train: Graph) -> dict[str, Graph]:
    """Protocol -> its triples."""
    positives = test.positives
    parts = {"positives": positives, "clean": positives.select(~leaked(train, positives))}
    if test.negatives is not None:
        parts |= {"with_negatives": test.with_negatives, "negatives": test.negatives}
    return parts


def _notes(test: WeightTest, unit: bool, turned: bool) -> list[str]:
    notes = ["the trivial rows are fitted on the weights of train's facts alone: they do not know what a corruption is"]
    if test.negatives is None:
        notes = []
    elif len(test.negatives) != len(test.positives):
        notes.append(f"{len(test.negatives):,} negatives to {len(test.positives):,} positives, not as many")
    if not unit:
        why = "lower is better" if turned else "weights outside [0, 1]"
        notes.append(f"{why}: no calibration error and no classification")
    return notes


@dataclass(frozen=True)
class _Plan:
    """Which figures make sense here, and what they need."""

    unit: bool
    threshold: float | None
    validation: WeightTest | None

    def figures(self, predictor: Predictor, graph: Graph, protocol: str) -> WeightFigures:
        predicted, truth = predict(predictor, graph), graph.weight
        strong = self.threshold if protocol == "with_negatives" else None
        return WeightFigures(
            errors(predicted, truth),
            spearman(predicted, truth),
            reliability(predicted, truth) if self.unit else None,
            None if strong is None else classify_at(predicted, truth, strong),
            None if strong is None else self._fitted(predictor, predicted, truth, strong),
        )

    def _fitted(
        self, predictor: Predictor, predicted: Floats, truth: Floats, threshold: float
    ) -> Classification | None:
        if self.validation is None or self.validation.negatives is None:
            return None
        other = self.validation.with_negatives
        return classify_fitted(predicted, truth, threshold, predict(predictor, other), other.weight)


def predict(predictor: Predictor, graph: Graph) -> Floats:
    """The predicted weights of a graph's edges, float64 [n]."""
    predicted = np.asarray(predictor(graph.head, graph.relation, graph.tail), np.float64)
    if not np.isfinite(predicted).all():
        raise FocuseError("a model predicts weights that are not finite: training diverged; lower the learning rate")
    return predicted
