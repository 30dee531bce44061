"""A graph as joins need it: each triple once, weights in [0, 1], edges sorted from both ends."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from focuse.errors import FocuseError
from focuse.graph import Graph
from focuse.graph.graph import Ids, Weights
from focuse.graph.weights import fit_normaliser, in_unit_range

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges of one relation seen from one end: sorted by `start` and, within it, by falling weight."""

    start: Ids
    end: Ids
    weight: Weights


class Facts:
    """A graph as rules see it: each triple once with its largest weight, in [0, 1], ready to be joined."""

    def __init__(self, graph: Graph, normalize: str | None = None) -> None:
        merged = unit_weights(graph, normalize).merge_repeated("max")
        order = np.argsort(merged.keys)
        self.graph = merged.select(order)
        self.keys = merged.keys[order]
        by_relation = np.argsort(self.graph.relation, kind="stable")
        counts = np.bincount(self.graph.relation, minlength=len(graph.relations))
        self._rows = np.split(by_relation, np.cumsum(counts)[:-1])
        self._edges: dict[tuple[int, bool], Edges] = {}

    def edges(self, relation: int, backward: bool = False) -> Edges:
        if (relation, backward) not in self._edges:
            rows = self._rows[relation]
            ends = [self.graph.head[rows], self.graph.tail[rows]]
            start, end = reversed(ends) if backward else ends
            weight = self.graph.weight[rows]
            order = np.lexsort((-weight, start))
            self._edges[relation, backward] = Edges(start[order], end[order], weight[order])
        return self._edges[relation, backward]

    def weight(self, head: Ids, relation: int, tail: Ids) -> tuple[Weights, npt.NDArray[np.bool_]]:
        """The weights [n] of triples, 0 where the graph has none, and whether it has them [n]."""
        if not len(self.keys):
            return np.zeros(len(head)), np.zeros(len(head), bool)
        wanted = self.graph.keys_of(head, np.full(len(head), relation, np.int32), tail)
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        seen = self.keys[place] == wanted
        return np.where(seen, self.graph.weight[place], 0.0), seen


def unit_weights(graph: Graph, normalize: str | None) -> Graph:
    """The graph with weights in [0, 1]: as they are, or by a normaliser fitted on it."""
    if normalize is not None:
        weight = fit_normaliser(normalize, graph).transform(graph.weight, graph.relation)
        return replace(graph, weight=weight, lower_is_better=False)
    if not in_unit_range(graph.weight):
        raise FocuseError(
            f"{graph.source}: rules need confidences in [0, 1], found {graph.weight.min():g} to "
            f"{graph.weight.max():g}; normalize them by 'relation', 'global' or 'quantile'"
        )
    return replace(graph, weight=1.0 - graph.weight, lower_is_better=False) if graph.lower_is_better else graph


def partners(edges: Edges, entity: Ids, least: Weights) -> tuple[Places, Places]:
    """Where the edges of each entity [n] begin, and how many of them weigh at least `least` [n].

    Falling weights within an entity make this a binary search, done for all rows at once.
    """
    first = np.searchsorted(edges.start, entity, side="left").astype(np.int64)
    low, high = first.copy(), np.searchsorted(edges.start, entity, side="right").astype(np.int64)
    while (low < high).any():
        middle = (low + high) // 2
        # Rows that are done may point behind the last edge; their middle is not used.
        heavy = edges.weight[np.minimum(middle, len(edges.weight) - 1)] >= least
        open_ = low < high
        low = np.where(open_ & heavy, middle + 1, low)
        high = np.where(open_ & ~heavy, middle, high)
    return first, low - first


def pairs(low: Places, count: Places) -> tuple[Places, Places]:
    """Rows i, each `count[i]` times, and beside them the places low[i], low[i] + 1, …; two [sum of count].

    >>> [column.tolist() for column in pairs(np.array([5, 0, 7]), np.array([2, 0, 1]))]
    [[0, 0, 2], [5, 6, 7]]
    """
    row = np.repeat(np.arange(len(count)), count)
    begin = np.cumsum(count) - count
    return row, np.arange(len(row)) - np.repeat(begin - low, count)
