"""Sections on single relations (how many facts, how well ranked on either side, how near their weights are) and on
links that are not in the graph yet.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.data.graph import Graph, concatenate
from focuse.errors import FocuseError
from focuse.evaluation.baselines import RELATION_MEAN, fit_weight_baselines
from focuse.evaluation.metrics import finite_or_none
from focuse.inference.discovery.discoveries import Discovery
from focuse.objective.negatives import corrupt_graph
from focuse.report.charts import spark
from focuse.report.gathered import PER_HEAD, Gathered, Reported
from focuse.report.page import Markup, folded, heading, paragraph, table

SHOWN = 25  # relations, the most frequent first; the rest is folded
ENOUGH = 20  # test facts from which a share of them says something
Floats = npt.NDArray[np.float64]
MEASURED = ("mrr_tail", "mrr_head", "hits10", "weight_mae", "mean_mae", "coverage", "brier")


@dataclass(frozen=True)
class RelationRow:
    """One relation; NaN where there is nothing to measure, or too little."""

    name: str
    train: int
    test: int
    mean_weight: float
    histogram: list[int]
    mrr_tail: float = math.nan
    mrr_head: float = math.nan
    hits10: float = math.nan
    weight_mae: float = math.nan
    mean_mae: float = math.nan
    coverage: float = math.nan
    brier: float = math.nan

    def to_dict(self) -> dict[str, Any]:
        return {key: finite_or_none(value) if key in MEASURED else value for key, value in asdict(self).items()}


def relations(run: Reported, figures: Gathered) -> str:
    """A table of the most frequent relations, the rest to unfold."""
    rows = relation_rows(run, figures)
    if not rows:
        return ""
    figures.data["relations"] = [row.to_dict() for row in rows]
    heads, cells = _cells(rows, run.graph.weighted)
    tested = figures.test is not None
    text = f"All {len(rows):,} relations of train" if len(rows) > 1 else "The only relation"
    text += ", the most frequent first." if len(rows) > 1 else "."
    if tested:
        text += (
            " MRR asks for the tail, or for the head. Weights are off by so much on average, and so is the relation's "
            "mean in their place. Coverage is the share of weights within their intervals. It and the Brier score of "
            f"probabilities (0 is sure and right, 0.25 a coin) need {ENOUGH} facts of test."
        )
    shown = table(heads, cells[:SHOWN], caption=_caption(len(rows)), sortable=len(rows) > 1)
    rest = table(heads, cells[SHOWN:], caption="The other relations", sortable=True) if len(rows) > SHOWN else ""
    more = folded(f"The other {len(rows) - SHOWN:,} relations", rest) if rest else ""
    sorts = paragraph("A click on a heading sorts.", "note screen") if len(rows) > 1 else ""
    return heading("By relation") + paragraph(text) + sorts + shown + more


def _caption(count: int) -> str:
    return f"The {SHOWN} most frequent of {count:,} relations" if count > SHOWN else "Relations"


def _cells(rows: list[RelationRow], weighted: bool) -> tuple[list[str], list[list[str]]]:
    """Headings and cells; columns that say nothing of any relation are left out."""
    named = {
        "tail MRR": "mrr_tail", "head MRR": "mrr_head", "Hits@10": "hits10", "weight off by": "weight_mae",
        "mean off by": "mean_mae", "coverage": "coverage", "Brier": "brier",
    }  # fmt: skip
    kept = {text: key for text, key in named.items() if any(math.isfinite(getattr(row, key)) for row in rows)}
    heads = ["relation", "train", *(["test"] if any(row.test for row in rows) else [])]
    heads += ["mean weight", "weights"] if weighted else []
    cells = []
    for row in rows:
        line = [row.name, f"{row.train:,}", *([f"{row.test:,}"] if "test" in heads else [])]
        line += [f"{row.mean_weight:.3g}", Markup(spark(row.histogram))] if weighted else []
        cells.append([*line, *(_number(getattr(row, key), key) for key in kept.values())])
    return [*heads, *kept], cells


def _number(value: float, key: str) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{value:.3g}" if key in ("weight_mae", "mean_mae") else f"{value:.3f}"


def relation_rows(run: Reported, figures: Gathered) -> list[RelationRow]:
    """Every relation of train, the most frequent first."""
    if figures.audit is None:
        return []
    measured = _measures(run, figures)
    place = {name: number for number, name in enumerate(run.graph.relations)}
    rows = []
    for one in figures.audit.per_relation:
        at = place[one.name]
        own = {key: float(values[at]) for key, values in measured.items() if key != "test"}
        count = int(measured["test"][at]) if "test" in measured else 0
        rows.append(RelationRow(one.name, one.edges, count, one.weight_mean, one.histogram, **own))
    return rows


def _measures(run: Reported, figures: Gathered) -> dict[str, Floats]:
    """Name of a measure -> its value for each relation [R]."""
    if figures.test is None or figures.evaluation is None:
        return {}
    test, ranks = figures.test.graph, figures.evaluation.ranks
    mean = _Means(test)
    found = {"test": mean.count}
    if ranks.shape == (len(test), 2):
        found |= {"mrr_tail": mean(1 / ranks[:, 0]), "mrr_head": mean(1 / ranks[:, 1])}
        found["hits10"] = mean((ranks <= 10).mean(axis=1))
    enough = np.where(mean.count >= ENOUGH, 1.0, np.nan)
    if test.weighted and run.graph.weighted and figures.weights is not None:
        told = run.weight_predictor(full=True).predict_unseen(test.head, test.relation, test.tail)
        guess = fit_weight_baselines(run.graph)[RELATION_MEAN](test.head, test.relation, test.tail)
        found["weight_mae"], found["mean_mae"] = (
            mean(abs(told["weight_mean"] - test.weight)),
            mean(abs(guess - test.weight)),
        )
        inside = (told["weight_low"] <= test.weight) & (test.weight <= told["weight_high"])
        found["coverage"] = mean(np.where(np.isfinite(told["low"]), inside, np.nan)) * enough
    if figures.probabilities is not None:
        found["brier"] = _brier(run, test, figures) * enough
    return found


class _Means:
    """Means of numbers of a graph's rows [n] by relation [R], NaN where it has none."""

    def __init__(self, graph: Graph) -> None:
        self.relation, self.size = graph.relation, len(graph.relations)
        self.count = np.bincount(graph.relation, minlength=self.size).astype(np.float64)

    def __call__(self, values: npt.NDArray[Any]) -> Floats:
        total = np.bincount(self.relation, weights=values, minlength=self.size)
        mean: Floats = np.divide(total, self.count, out=np.full(self.size, np.nan), where=self.count > 0)
        return mean


def _brier(run: Reported, test: Graph, figures: Gathered) -> Floats:
    """Squared errors of the probability by relation [R], on the facts and negatives that the whole was judged by."""
    predictor = run.weight_predictor(full=True)
    if predictor.probability is None or figures.probabilities is None:
        raise FocuseError("the run has no probabilities")
    false = corrupt_graph(test, predictor.known_keys(), 0)
    both = concatenate([test, false])
    made = predictor.probability.at(figures.probabilities.base_rate)
    told = predictor.probable(both.head, both.relation, both.tail, made)
    fact = np.repeat([1.0, 0.0], [len(test), len(false)])
    return _Means(both)((told - fact) ** 2)


# ---- links that are not in the graph yet -----------------------------------------------------------------------------


def links(run: Reported, figures: Gathered) -> str:
    """Links that the run would add, the probability and the weight of each."""
    if not figures.links:
        return ""
    rows = [
        [row.head, row.relation, row.tail, f"{row.score:.3f}", _three_digits(row.probability),
         _three_digits(row.expected_weight), _interval(row)]
        for row in figures.links
    ]  # fmt: skip
    text = (
        f"The most probable links that the graph lacks, at most {PER_HEAD} of a head (focuse discover finds more). The "
        "weight is what the link would weigh if it is a fact, with a 90 % interval; the probability that it is one is "
        "that of a triple of which nothing else is known, where one in two is a fact."
    )
    heads = ["head", "relation", "tail", "score", "probability", "weight ≈", "90 % interval"]
    empty = [place for place in (4, 5, 6) if all(row[place] == "–" for row in rows)]
    heads, rows = _without(heads, empty), [_without(row, empty) for row in rows]
    caption = "The best new links"
    return heading("Links it would add") + paragraph(text) + table(heads, rows, words=3, caption=caption)


def _without(row: list[str], places: list[int]) -> list[str]:
    return [cell for place, cell in enumerate(row) if place not in places]


def _three_digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _interval(row: Discovery) -> str:
    return "–" if row.low is None or row.high is None else f"{row.low:.3g} to {row.high:.3g}"
