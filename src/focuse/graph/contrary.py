"""Triples known to be false: taken out of a graph by their weights, or read from a source of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from focuse.errors import FocuseError
from focuse.graph.graph import Graph, Weights
from focuse.graph.reading import read


def take_apart(graph: Graph, negative: bool = False, zero: bool = False) -> tuple[Graph, Graph | None]:
    """The facts of a graph, and those of its edges that speak against a link (None without any).

    With `negative` weights below 0 do so, as strongly as they are large beside the largest; with `zero` those of
    exactly 0, at full strength. Of several columns all that an edge has must speak against it. The false triples keep
    the graph's vocabularies; their weight is the strength of the evidence in (0, 1].

    >>> facts, false = take_apart(read([("a", "r", "b", 2), ("a", "r", "c", -1), ("b", "r", "c", -4)]), negative=True)
    >>> len(facts), false.weight.tolist()
    (1, [0.25, 1.0])
    """
    if not (negative or zero) or not graph.weighted or not len(graph):
        return graph, None
    if graph.lower_is_better:
        raise FocuseError(
            f"{graph.source}: lower is better, so that weights of 0 and below are the strongest; name false triples in "
            "a file of their own (--false)"
        )
    values = graph.weight[:, None] if graph.columns is None else graph.columns.values
    below, nothing = (values < 0) & negative, (values == 0) & zero
    if graph.columns is not None:  # of a column where lower is better, no number speaks against a link
        turned = np.array([name in graph.columns.lower for name in graph.columns.names])
        below, nothing = below & ~turned, nothing & ~turned
    rows = (below | nothing | np.isnan(values)).all(axis=1)
    if not rows.any():
        return graph, None
    if rows.all():
        raise FocuseError(f"{graph.source}: every weight speaks against its link; there is no fact to train on")
    largest = np.max(-values, axis=0, where=below, initial=0.0)
    share = np.divide(-values, largest, out=np.ones(values.shape), where=below)
    evidence = np.mean(share[rows], axis=1, where=(below | nothing)[rows])
    return graph.select(~rows), _as_false(graph.select(rows), evidence)


def read_false(source: Any) -> Graph:
    """Triples known to be false, from whatever `read` takes; a fourth column is the strength of the evidence.

    Its sign does not matter and the largest counts as 1; where there is none, or all are 0, every strength is 1.

    >>> read_false([("a", "r", "b", 5), ("a", "r", "c", 10)]).weight.tolist()
    [0.5, 1.0]
    """
    graph = read(source)
    evidence = np.abs(graph.weight)
    if not len(graph) or evidence.max() == 0:
        return _as_false(graph, np.ones(len(graph)))
    without = int((evidence == 0).sum())
    if without:
        raise FocuseError(
            f"{graph.source}: {without:,} of {len(graph):,} false triples have evidence of strength 0; give every "
            "one a number above 0, or none any"
        )
    return _as_false(graph, evidence / evidence.max())


def _as_false(graph: Graph, evidence: Weights) -> Graph:
    return replace(graph, weight=evidence, columns=None, lower_is_better=False, weighted=True)
