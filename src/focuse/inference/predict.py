"""Ranking what is missing: tails, heads or relations of a half-known triple."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from focuse.data.graph import Graph
from focuse.data.writers import link_suffixes, write_links
from focuse.engines.base import Scorer
from focuse.errors import FocuseError, printable
from focuse.inference.answers import check_target
from focuse.inference.weight_predictor import WeightPredictor

A_RELATION, AN_ENTITY = "give it with --relation", "give it with --head or --tail"


@dataclass(frozen=True)
class Prediction:
    """One triple, its score as an answer to the question, and rank; `known` facts carry the weight in the graph.

    `expected_weight` is what it would weigh if it is a fact (in the graph's units), with a 90 % interval from `low` to
    `high`; `probability` that it is a fact, and `confidence`, the weight it is expected to have as a share in [0, 1] if
    it may be none. None where the run has no validation to calibrate on.
    """

    rank: int
    head: str
    relation: str
    tail: str
    score: float
    known: bool
    weight: float | None
    expected_weight: float | None = None
    confidence: float | None = None
    low: float | None = None
    high: float | None = None
    probability: float | None = None


class Predictions(list[Prediction]):
    """Predictions, best first; `print` shows a table."""

    def __str__(self) -> str:
        if not self:
            return "nothing to predict"
        triples = [[printable(name) for name in (row.head, row.relation, row.tail)] for row in self]
        widths = [max(map(len, column)) for column in zip(*triples, strict=True)]
        lines = []
        for row, names in zip(self, triples, strict=True):
            cells = "  ".join(f"{name:{width}}" for name, width in zip(names, widths, strict=True))
            mark = f"known, weight {row.weight:g}" if row.known else "new"
            guessed = not row.known and row.expected_weight is not None
            weight = f"  weight ≈ {row.expected_weight:<8.3g}" if guessed else ""
            if guessed and row.low is not None and row.high is not None:
                weight += f" ({row.low:.3g} to {row.high:.3g})"
            sure = "" if row.confidence is None else f"  confidence {row.confidence:.2f}"
            sure += "" if row.probability is None else f"  probability {row.probability:.2f}"
            lines.append(f"{row.rank:>4}  {cells}  {row.score:9.3f}{weight}{sure}  {mark}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return {"predictions": [asdict(row) for row in self]}

    def to_arrow(self) -> pa.Table:
        """head, relation and tail, then every other field of `Prediction`, null where there is none."""
        kinds = {"rank": pa.int64(), "known": pa.bool_(), **dict.fromkeys(("head", "relation", "tail"), pa.string())}
        names = [each.name for each in fields(Prediction)]
        order = ["head", "relation", "tail", *(name for name in names if name not in ("head", "relation", "tail"))]
        return pa.table(
            {name: pa.array([getattr(row, name) for row in self], kinds.get(name, pa.float64())) for name in order}
        )

    def write(self, path: str | Path) -> None:
        """Write to .tsv, .csv (with a header), .parquet or RDF (.ttl, .nt, …), whole or not at all."""
        write_links(self.to_arrow(), check_target(Path(path), link_suffixes()))


def question(
    names: Graph, head: str | None, relation: str | None, tail: str | None, top: int, new_only: bool
) -> tuple[int | None, int | None, int | None]:
    """The ids of a half-known triple, None for what is asked for; an error for what cannot be answered."""
    if top < 1:
        raise FocuseError(f"top {top}: give at least 1")
    if [head, relation, tail].count(None) > 1:
        raise FocuseError("predict: give two of head, relation and tail (or all three); the third is ranked")
    if new_only and None not in (head, relation, tail):
        raise FocuseError("predict: a whole triple is shown, known or not; leave one part out to rank new ones (--new)")
    h, t = (None if end is None else names.entities.id(end, "entity", A_RELATION) for end in (head, tail))
    r = None if relation is None else names.relations.id(relation, "relation", AN_ENTITY)
    return h, r, t


def predict(
    scorer: Scorer,
    graphs: list[Graph],
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    top: int = 10,
    new_only: bool = False,
    predictor: WeightPredictor | None = None,
) -> Predictions:
    """The best completions of a triple with one part left out; with all three given, its own place among tails.

    `graphs` (train first) hold the known facts and the names, `predictor` says what each would weigh.
    """
    names = graphs[0]
    h, r, t = question(names, head, relation, tail, top, new_only)
    scores = _scores(scorer, h, r, t, len(names.relations))
    if not np.isfinite(scores).all():
        raise FocuseError("the model gives scores that are not finite: training diverged; lower the learning rate")
    every = np.arange(len(scores))
    missing = "tail" if None not in (h, r, t) else ("head", "relation", "tail")[[h, r, t].index(None)]
    triples: dict[str, Any] = {"head": h, "relation": r, "tail": t, missing: every}
    known, weight = _facts(graphs, triples, len(scores))
    order = np.argsort(-scores, kind="stable")
    ranks = np.arange(1, len(order) + 1)
    keep = ~known[order] if new_only else np.ones(len(order), bool)
    if None not in (h, r, t):
        keep = order == t
    shown = order[keep][:top]
    told = _weights(predictor, scores[shown], triples, missing, shown)
    rows = Predictions()
    for at, (rank, place) in enumerate(zip(ranks[keep][:top], shown, strict=True)):
        parts = {key: int(place) if key == missing else value for key, value in triples.items()}
        rows.append(
            Prediction(
                int(rank),
                names.entities[parts["head"]],
                names.relations[parts["relation"]],
                names.entities[parts["tail"]],
                float(scores[place]),
                bool(known[place]),
                float(weight[place]) if known[place] else None,
                **{name: column[at] for name, column in told.items()},
            )
        )
    return rows


def _weights(
    predictor: WeightPredictor | None, score: Any, triples: dict[str, Any], missing: str, shown: Any
) -> dict[str, list[float | None]]:
    """What is said of the shown completions, a list a field of `Prediction`; None where the run cannot tell."""
    if predictor is None or not len(shown):
        return {}
    head, relation, tail = (shown if name == missing else np.full(len(shown), value) for name, value in triples.items())
    return {name: _or_none(column) for name, column in told_of(predictor, score, head, relation, tail).items()}


def told_of(predictor: WeightPredictor, score: Any, head: Any, relation: Any, tail: Any) -> dict[str, Any]:
    """What is said of triples with their scores as answers, ids [n]: a column [n] a field of `Prediction`, or NaN."""
    columns = predictor.columns_for(score, head, relation, tail)
    names = {"expected_weight": "weight_mean", "low": "weight_low", "high": "weight_high"}
    names |= {"probability": "probability", "confidence": "confidence"}
    return {name: columns[column] for name, column in names.items() if column in columns}


def _or_none(column: Any) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in column]


def _scores(scorer: Scorer, h: int | None, r: int | None, t: int | None, relations: int) -> Any:
    """Scores of every completion; float [E] or [R]."""

    def ids(value: int) -> torch.Tensor:
        return torch.tensor([value], device=scorer.device)

    if h is not None and r is not None:
        return scorer.score_all(ids(h), ids(r), "tail")[0].cpu().numpy()
    if r is not None and t is not None:
        return scorer.score_all(ids(t), ids(r), "head")[0].cpu().numpy()
    if h is None or t is None:
        raise FocuseError("predict: give two of head, relation and tail (or all three); the third is ranked")
    every = torch.arange(relations, device=scorer.device)
    return scorer.score(ids(h).expand(relations), every, ids(t).expand(relations)).cpu().numpy()


def _facts(graphs: list[Graph], triples: dict[str, Any], size: int) -> tuple[Any, Any]:
    """Which completions are known, and with what weight (the strongest, where a fact repeats); [size] each."""
    lower = graphs[0].lower_is_better
    known, weight = np.zeros(size, bool), np.full(size, np.inf if lower else -np.inf)
    for graph in graphs:
        rows = np.ones(len(graph), bool)
        varying = None
        for column, value in triples.items():
            if isinstance(value, np.ndarray):
                varying = getattr(graph, column)
            else:
                rows &= getattr(graph, column) == value
        if varying is not None:
            known[varying[rows]] = True
            (np.minimum if lower else np.maximum).at(weight, varying[rows], graph.weight[rows])
    return known, weight
