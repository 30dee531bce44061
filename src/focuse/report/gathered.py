"""What a report's sections draw from: computed once, whatever of it a run has."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from focuse.config import Config
from focuse.data.graph import AlignedGraph, Graph
from focuse.data.readers import read
from focuse.data.splits import Splits
from focuse.data.statistics import GraphStatistics, describe
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError
from focuse.evaluation.evaluate import Evaluation, evaluate_baselines
from focuse.evaluation.weight_evaluation import ProbabilityTable, WeightEvaluation
from focuse.inference.discovery.discoveries import Discoveries, Discovery
from focuse.inference.weight_predictor import WeightPredictor
from focuse.training.label_exponent import LabelExponentTrial
from focuse.training.preparation import read_test_graph

LINKS, PER_HEAD = 20, 3  # new links, and how many of them may have the same head
LINK = ("head", "relation", "tail", "score", "probability", "expected_weight", "low", "high")
T = TypeVar("T")
Say = Callable[[str], None]


def silent(text: str) -> None:
    """Nobody wants to know."""


class Reported(Protocol):
    """What a report needs of a run."""

    @property
    def settings(self) -> Config: ...

    @property
    def splits(self) -> Splits: ...

    @property
    def history(self) -> list[dict[str, Any]]: ...

    @property
    def graph(self) -> Graph: ...

    @property
    def label_exponent_trials(self) -> list[LabelExponentTrial]: ...

    @property
    def scorer(self) -> TableScorer: ...

    @property
    def folder(self) -> Path | None: ...

    def weight_predictor(self, full: bool = False) -> WeightPredictor: ...

    def evaluate(self, test: Any = None) -> Evaluation: ...

    def evaluate_weights(self, test: Any = None) -> WeightEvaluation: ...

    def evaluate_weight_columns(self, test: Any = None) -> dict[str, WeightEvaluation]: ...

    def evaluate_probabilities(self, test: Any = None) -> ProbabilityTable: ...

    def discover(
        self, *, top: int = 100, per_head: int | None = None, candidates: str = "exhaustive"
    ) -> Discoveries: ...


@dataclass
class Gathered:
    """Figures of a run; None where it has none, and a note says why.

    `data` is what the page offers as JSON: a section with figures of its own adds them under its name. `test` is what
    the run was judged by, `baselines` what rankings without a model reach there, `drawn_by` how entities become a map.
    """

    evaluation: Evaluation | None
    weights: WeightEvaluation | None
    probabilities: ProbabilityTable | None
    columns: dict[str, WeightEvaluation]
    links: Sequence[Discovery]
    notes: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    test: AlignedGraph | None = None
    baselines: dict[str, Evaluation] = field(default_factory=dict)
    audit: GraphStatistics | None = None
    drawn_by: str = "tsne"
    say: Say = silent


def gather(run: Reported, test: Any = None, say: Say = silent, drawn_by: str = "tsne") -> Gathered:
    """Evaluate a run by its own test split, or by `test`, and ask it for a few new links; `say` hears how far it is."""
    graph = None if test is None else read(test)
    aligned = run.splits.aligned_test if graph is None else read_test_graph(graph, run.settings, run.splits)
    notes: list[str] = []
    say(f"ranking {len(aligned.graph):,} test triples")
    # A page may do without test, but not by mistake: triples that were given and name nothing of train are refused.
    wrong = graph is not None and not len(aligned.graph)
    evaluation = run.evaluate(graph) if wrong else _or_note(lambda: run.evaluate(graph), notes)
    baselines = {} if evaluation is None else _baselines(run, aligned, evaluation, notes)
    weights = probable = None
    if evaluation is not None:
        say("fitting the weight estimator (once per run)")
        _or_note(lambda: run.weight_predictor(full=True), notes)
        say("judging predicted weights")
        weights = _or_note(lambda: run.evaluate_weights(graph), notes)
        probable = _or_note(lambda: run.evaluate_probabilities(graph), notes)
    apart = run.splits.merger is not None and weights is not None
    columns = (_or_note(lambda: run.evaluate_weight_columns(graph), notes) or {}) if apart else {}
    say("looking for new links")
    links = _or_note(lambda: list(new_links(run)), notes) or []
    held = {"validation": run.splits.valid, "test": aligned.graph}
    audited = describe(run.graph, {name: part for name, part in held.items() if len(part)})
    data = {
        "settings": run.settings.to_dict(),
        "history": [{key: _json(value) for key, value in row.items()} for row in run.history],
        "audit": audited.to_dict(),
        "evaluation": None if evaluation is None else evaluation.to_dict(),
        "baselines": {name: one.to_dict() for name, one in baselines.items()},
        "weights": None if weights is None else weights.to_dict(),
        "weights_by_column": {name: one.to_dict() for name, one in columns.items()},
        "probabilities": None if probable is None else probable.to_dict(),
        "links": [{key: getattr(row, key) for key in LINK} for row in links],
    }
    tested = aligned if evaluation is not None else None
    return Gathered(
        evaluation, weights, probable, columns, links, notes, data, tested, baselines, audited, drawn_by, say
    )


def _baselines(run: Reported, test: AlignedGraph, found: Evaluation, notes: list[str]) -> dict[str, Evaluation]:
    """Rankings without a model; none beside ranks among a sample, which do not compare with full ones."""
    if "candidates" in found.settings:
        return {}
    splits = run.splits
    facts = [splits.train, splits.valid, splits.test]
    device = run.scorer.device
    return _or_note(lambda: evaluate_baselines(splits.train, splits.valid, test, facts, device), notes) or {}


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


def new_links(run: Reported) -> Discoveries:
    """The most probable links that the graph lacks, a few of a head; of a large graph those among popular entities."""
    try:
        return run.discover(top=LINKS, per_head=PER_HEAD)
    except FocuseError:  # more links than are scored unasked
        return run.discover(top=LINKS, per_head=PER_HEAD, candidates="popular")


def title_of(run: Reported) -> str:
    return f"{run.settings.model} on {graph_name(run.graph.source)}"


def graph_name(source: str) -> str:
    """What to call a graph: the name of its file, with the folder where the file is just called train.

    >>> graph_name("data/careers.tsv"), graph_name("data/ppi5k/train.tsv.gz")
    ('careers.tsv', 'ppi5k/train.tsv.gz')
    """
    path = Path(source)
    return "/".join(path.parts[-2:]) if path.name.startswith("train.") else path.name
