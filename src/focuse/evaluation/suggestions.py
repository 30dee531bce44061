"""Precision among the first n suggestions, counted by weight: what somebody finds who looks at a short list.

Every query (head, relation, ?) and (?, relation, tail) of test gets a list of all entities by score, without the facts
that are known from elsewhere (train, valid). Of the first n suggestions some are facts of test, with weights:

    found by weight  = Σ weight of the facts among the first n / n
    of the possible  = Σ weight of the facts among the first n / Σ of the query's n largest weights
    precision        = number of facts among the first n / n

each averaged over queries. Equal scores stand at their worst: behind everything that is no fact, the lightest first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.evaluation.confidence import finite_or_none
from focuse.evaluation.gain import query_keys
from focuse.evaluation.order import before, codes, number
from focuse.evaluation.ranking import Ranking
from focuse.graph.graph import Graph
from focuse.models import Side

FIRST = (1, 3, 10)
SIDES: tuple[Side, Side] = ("tail", "head")
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """What the first `n` suggestions hold, means over queries; `mean_weight` is that of the facts found."""

    n: int
    weight: float
    possible: float
    precision: float
    mean_weight: float

    def to_dict(self) -> dict[str, Any]:
        names = ("weight", "possible", "precision", "mean_weight")
        return {name: finite_or_none(getattr(self, name)) for name in names}


@dataclass(frozen=True)
class Suggestions:
    """What the first suggestions to `queries` hold; `print` shows a table. `possible` needs a weight above 0."""

    queries: int
    first: tuple[Found, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"queries": self.queries, **{f"first@{one.n}": one.to_dict() for one in self.first}}

    def __str__(self) -> str:
        heads = ("weight / n", "of possible", "precision", "mean weight found")
        title = f"first suggestions ({self.queries:,} queries)"
        lines = [title + "".join(f"{head:>{len(head) + 2}}" for head in heads)]
        for one in self.first:
            values = (one.weight, one.possible, one.precision, one.mean_weight)
            cells = (f"{number(value):>{len(head) + 2}}" for value, head in zip(values, heads, strict=True))
            lines.append(f"{f'first {one.n}':{len(title)}}" + "".join(cells))
        return "\n".join(lines)


def suggestions_of(facts: Graph, weight: Floats, ranking: Ranking, first: tuple[int, ...] = FIRST) -> Suggestions:
    """What the first suggestions hold of `facts` (distinct, in train's ids, none known from elsewhere).

    `ranking` [n rows] has seen the facts themselves and those known from elsewhere as known: then its filtered rivals
    are what is no fact at all, and where the facts stand among each other follows from their scores.
    """
    asked = [query_keys(facts, side) for side in SIDES]
    # The queries of the second side are numbered behind those of the first.
    query = np.unique(np.concatenate([asked[0], asked[1] + asked[0].max(initial=-1) + 1]), return_inverse=True)[1]
    queries = int(query.max(initial=-1)) + 1
    score, weights = np.concatenate([ranking.tail_score, ranking.head_score]), np.concatenate([weight, weight])
    lightness = codes(-weights)
    place = (
        before(query, codes(-score), lightness.max(initial=0) - lightness) + ranking.filtered.ranks("worst").T.ravel()
    )
    heavier = before(query, lightness)

    def per_query(values: npt.NDArray[Any]) -> Floats:
        return np.asarray(np.bincount(query, weights=values, minlength=queries), np.float64)

    rows = []
    for n in first:
        found = place <= n
        weight_found, most = per_query(weights * found), per_query(weights * (heavier < n))
        counts = most > 0
        rows.append(
            Found(
                n,
                weight=_mean(weight_found / n),
                possible=_mean(weight_found[counts] / most[counts]),
                precision=_mean(per_query(found) / n),
                mean_weight=_mean(weights[found]),
            )
        )
    return Suggestions(queries, tuple(rows))


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan
