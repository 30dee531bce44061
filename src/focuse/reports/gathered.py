"""What a report's sections draw from: computed once, whatever of it a run has."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from focuse.errors import FocuseError
from focuse.evaluation.evaluate import Evaluation
from focuse.evaluation.probabilities import ProbabilityTable
from focuse.graph import Graph, read
from focuse.graph.splits import Splits
from focuse.inference.predict import Predictions
from focuse.inference.weigh import WeightEvaluation
from focuse.training.settings import Settings
from focuse.training.sharpness import Look

HEADS, LINKS = 6, 3  # heads that get suggestions, and how many each
T = TypeVar("T")


class Reported(Protocol):
    """What a report needs of a run."""

    @property
    def settings(self) -> Settings: ...

    @property
    def splits(self) -> Splits: ...

    @property
    def history(self) -> list[dict[str, Any]]: ...

    @property
    def graph(self) -> Graph: ...

    @property
    def choice(self) -> list[Look]: ...

    def evaluate(self, test: Any = None) -> Evaluation: ...

    def weigh(self, test: Any = None) -> WeightEvaluation: ...

    def weigh_columns(self, test: Any = None) -> dict[str, WeightEvaluation]: ...

    def probabilities(self, test: Any = None) -> ProbabilityTable: ...

    def predict(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        top: int = 10,
        new_only: bool = False,
    ) -> Predictions: ...


@dataclass
class Gathered:
    """Figures of a run; None where it has none, and a note says why.

    `data` is what the page offers as JSON: a section with figures of its own adds them under its name.
    """

    evaluation: Evaluation | None
    weights: WeightEvaluation | None
    probabilities: ProbabilityTable | None
    columns: dict[str, WeightEvaluation]
    links: list[Predictions]
    notes: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)


def gather(run: Reported, test: Any = None) -> Gathered:
    """Evaluate a run by its own test split, or by `test`, and ask it for a few new links."""
    graph = None if test is None else read(test)
    notes: list[str] = []
    evaluation = _or_note(lambda: run.evaluate(graph), notes)
    weights = None if evaluation is None else _or_note(lambda: run.weigh(graph), notes)
    apart = run.splits.merger is not None and weights is not None
    columns = (_or_note(lambda: run.weigh_columns(graph), notes) or {}) if apart else {}
    probable = None if evaluation is None else _or_note(lambda: run.probabilities(graph), notes)
    links = _or_note(lambda: new_links(run), notes) or []
    data = {
        "settings": run.settings.to_dict(),
        "history": [{key: _json(value) for key, value in row.items()} for row in run.history],
        "evaluation": None if evaluation is None else evaluation.to_dict(),
        "weights": None if weights is None else weights.to_dict(),
        "weights_by_column": {name: one.to_dict() for name, one in columns.items()},
        "probabilities": None if probable is None else probable.to_dict(),
        "links": [row for some in links for row in some.to_dict()["predictions"]],
    }
    return Gathered(evaluation, weights, probable, columns, links, notes, data)


def _or_note(compute: Callable[[], T], notes: list[str]) -> T | None:
    """What `compute` gives; what it refuses is noted."""
    try:
        return compute()
    except FocuseError as error:
        if str(error) not in notes:
            notes.append(str(error))
        return None


def _json(value: Any) -> Any:
    """JSON has no NaN, which the loss of a diverged training is."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def new_links(run: Reported) -> list[Predictions]:
    """The best new tails of the heads with the most facts, each by the relation that it has most often."""
    graph = run.graph
    relations = len(graph.relations)
    pairs, count = np.unique(graph.head.astype(np.int64) * relations + graph.relation, return_counts=True)
    order = np.argsort(-count, kind="stable")
    heads, first = np.unique(pairs[order] // relations, return_index=True)
    facts = np.bincount(graph.head, minlength=len(graph.entities))[heads]
    asked = pairs[order][first[np.argsort(-facts, kind="stable")[:HEADS]]]
    found = []
    for pair in asked.tolist():
        head, relation = graph.entities[pair // relations], graph.relations[pair % relations]
        rows = run.predict(head=head, relation=relation, top=LINKS + 1, new_only=True)
        found.append(Predictions([row for row in rows if row.tail != row.head][:LINKS]))  # a loop says little
    return found


def title_of(run: Reported) -> str:
    return f"focuse: {run.settings.model} on {Path(run.graph.source).name}"
