"""Several weight columns made one: each normalised by itself on train, then a mean by importance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from focuse.errors import FocuseError
from focuse.graph.columns import Columns, Mask, combine
from focuse.graph.graph import Graph, Weights
from focuse.graph.importance import learn_importance
from focuse.graph.weights import (
    Arrays,
    LowerIsBetter,
    Normaliser,
    default_normaliser,
    fit_normaliser,
    stored_normaliser,
)


@dataclass(frozen=True, eq=False)
class Merger:
    """How train's columns become one weight: their names, normalisers and importances [C], which sum to 1.

    `explained` [C] is the share of each column's variance that the graph's structure tells; NaN where not measured.
    """

    names: tuple[str, ...]
    lower: frozenset[str]
    normalisers: tuple[Normaliser, ...]
    importance: Weights
    explained: Weights

    def shares(self, graph: Graph) -> tuple[Weights, Mask]:
        """The shares in [0, 1] of a graph's columns, strong ones large, and where there are any: [n, C] each."""
        if graph.columns is None:
            raise FocuseError(
                f"{graph.source}: one weight an edge, train has {', '.join(self.names)}; read it with the same columns"
            )
        values = graph.columns.by_name(self.names)
        present = ~np.isnan(values)
        if not present.any(axis=1).all():
            raise FocuseError(
                f"{graph.source}: {int((~present.any(axis=1)).sum()):,} rows have none of train's weight columns "
                f"({', '.join(self.names)}); read it with the same columns"
            )
        shares = np.zeros(values.shape)
        for place, normaliser in enumerate(self.normalisers):
            rows = present[:, place]
            shares[rows, place] = normaliser.transform(values[rows, place], graph.relation[rows])
        return shares, present

    def __call__(self, graph: Graph) -> Graph:
        """The graph with its merged weight in [0, 1]; one without any numbers stays as it is."""
        if not graph.weighted or not len(graph):
            return graph
        weight = combine(*self.shares(graph), self.importance)
        columns = graph.columns
        if columns is not None:
            columns = Columns(self.names, columns.by_name(self.names), self.lower)
        return replace(graph, weight=weight, columns=columns, lower_is_better=False)

    def __str__(self) -> str:
        """One line on what counts how much."""
        told = [
            f"{name} {share:.2f}" + ("" if np.isnan(known) else f" (structure tells {known:.0%} of it)")
            for name, share, known in zip(self.names, self.importance, self.explained, strict=True)
        ]
        if (self.explained == 0).all():
            told.append("the graph's structure tells none of them, so all count the same")
        return f"weight columns by importance: {', '.join(told)}"

    # ---- storing ------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """What of it is words and a few numbers, for run.toml."""
        measured = {} if np.isnan(self.explained).any() else {"explained": self.explained.tolist()}
        return {
            "names": list(self.names),
            "lower_is_better": [name in self.lower for name in self.names],
            "normalize": [_plain(normaliser).name for normaliser in self.normalisers],
            "importance": self.importance.tolist(),
            **measured,
        }

    def arrays(self) -> Arrays:
        """Its arrays, each column's under its place."""
        each = enumerate(self.normalisers)
        arrays = {f"{place}/{name}": value for place, one in each for name, value in one.arrays.items()}
        return arrays | {"importance": self.importance, "explained": self.explained}

    @classmethod
    def stored(cls, described: Mapping[str, Any], arrays: Arrays) -> Merger:
        """From what `to_dict` and `arrays` gave."""
        names, turned = tuple(described["names"]), described["lower_is_better"]
        normalisers = []
        for place, (kind, lower) in enumerate(zip(described["normalize"], turned, strict=True)):
            own = {key.partition("/")[2]: value for key, value in arrays.items() if key.startswith(f"{place}/")}
            normalisers.append(stored_normaliser(kind, own, lower))
        lower = frozenset(name for name, low in zip(names, turned, strict=True) if low)
        return cls(names, lower, tuple(normalisers), arrays["importance"], arrays["explained"])


def fit_merger(
    train: Graph, normalize: str | None = None, importance: Mapping[str, float] | None = None, seed: int = 0
) -> Merger:
    """Normalisers and importances of a training graph's columns; given importances need not sum to 1.

    A column with one number a relation is normalised over all edges, since within a relation there is nothing to tell.

    >>> from focuse.graph import read
    >>> graph = read([("a", "r", "b", 1, 30), ("a", "r", "c", 0, 10)])
    >>> fit_merger(graph, importance={"w1": 3, "w2": 1}).importance.tolist()
    [0.75, 0.25]
    """
    columns = train.columns
    if columns is None:
        raise FocuseError(f"{train.source}: one weight an edge; there is nothing to merge")
    graphs, normalisers = [], []
    for name in columns.names:
        alone = train.column(name)
        if not len(alone):
            raise FocuseError(f"{train.source}: the weight column {name!r} has no number in train; leave it out")
        kind = default_normaliser(alone) if normalize in (None, "relation") else normalize
        normalisers.append(fit_normaliser(kind or "relation", alone))
        graphs.append(alone)
    if importance is not None:
        learnt, explained = given_importance(columns, importance), np.full(len(columns.names), np.nan)
    else:
        each = zip(graphs, normalisers, strict=True)
        shares = [(alone, one.transform(alone.weight, alone.relation)) for alone, one in each]
        learnt, explained = learn_importance(shares, seed)
    return Merger(columns.names, columns.lower, tuple(normalisers), learnt, explained)


def given_importance(columns: Columns, importance: Mapping[str, float]) -> Weights:
    """Importances [C] as the user gave them, summing to 1; columns that are not named have none."""
    numbers = np.zeros(len(columns.names))
    for name, value in importance.items():
        if not np.isfinite(value) or value < 0:
            raise FocuseError(f"importance of {name!r} is {value:g}; give a number of at least 0")
        numbers[columns.place(name)] = value
    if not numbers.sum() > 0:
        raise FocuseError("importance: no column has any; give at least one a number above 0")
    shares: Weights = numbers / numbers.sum()
    return shares


def _plain(normaliser: Normaliser) -> Normaliser:
    return normaliser.other if isinstance(normaliser, LowerIsBetter) else normaliser
