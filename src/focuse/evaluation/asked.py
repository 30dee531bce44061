"""Facts that bear on some triples, out of graphs too large to sort: what their ranks are filtered by, and no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from focuse.evaluation.known import Known
from focuse.graph.arrays import chunks
from focuse.graph.graph import Graph

CHUNK = 1 << 20  # edges looked at together
LARGE = 1 << 22  # edges from which sorting all of them is not worth it

Rows = npt.NDArray[np.int64]


def facts_about(graphs: Sequence[Graph], asked: Graph, device: torch.device | str = "cpu") -> Known:
    """Those facts of some graphs that answer (head, relation, ?) or (?, relation, tail) of a triple in `asked`.

    Ranks of `asked` filtered by them are those filtered by all facts. Memory is that of what is found.

    >>> from focuse.graph import read
    >>> graph = read([("a", "r", "b", 1), ("a", "r", "c", 1), ("c", "r", "d", 1), ("d", "s", "b", 1)])
    >>> len(facts_about([graph], graph.select(np.array([0]))).by_side["tail"])
    2
    """
    parts = [[column[rows] for column in columns] for columns, rows in _bearing(graphs, asked)]
    found = [np.concatenate([part[place] for part in parts] or [np.empty(0, np.int32)]) for place in range(3)]
    head, relation, tail = (torch.from_numpy(column.astype(np.int64)).to(device) for column in found)
    return Known(head, relation, tail, len(asked.entities), len(asked.relations))


def _bearing(graphs: Sequence[Graph], asked: Graph) -> Iterator[tuple[list[npt.NDArray[np.int32]], Rows]]:
    """Pieces of the graphs' columns, and the rows in them that answer a query of `asked`."""
    ends = [np.zeros(len(asked.entities), bool) for _ in range(2)]
    for seen, ids in zip(ends, (asked.head, asked.tail), strict=True):
        seen[ids] = True
    queries = [np.unique(_query(asked, ids, asked.relation)) for ids in (asked.head, asked.tail)]
    for graph in graphs:
        for piece in chunks(len(graph), CHUNK):
            columns = [column[piece] for column in (graph.head, graph.relation, graph.tail)]
            # A look at a table of flags leaves few to be searched for.
            some = np.flatnonzero(ends[0][columns[0]] | ends[1][columns[2]])
            kinds = columns[1][some]
            keep = np.zeros(len(some), bool)
            for known, ids in zip(queries, (columns[0][some], columns[2][some]), strict=True):
                keep |= is_in(_query(asked, ids, kinds), known)
            yield columns, some[keep]


def _query(asked: Graph, given: npt.NDArray[np.int32], relation: npt.NDArray[np.int32]) -> Rows:
    return given.astype(np.int64) * max(len(asked.relations), 1) + relation


def is_in(values: Rows, ordered: Rows) -> npt.NDArray[np.bool_]:
    """Which values stand among ascending ones, bool [n]; np.isin takes ten times as long to hash them."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    found: npt.NDArray[np.bool_] = ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
    return found


def stand_in(graph: Graph, other: Graph) -> npt.NDArray[np.bool_]:
    """Which triples of a graph stand in another one of the same vocabularies; bool [n]."""
    if len(other) < LARGE:
        return is_in(graph.keys, np.sort(other.keys))
    found = [
        graph.keys_of(*(column[rows] for column in columns)) for columns, rows in _bearing([other], graph) if len(rows)
    ]
    return is_in(graph.keys, np.unique(np.concatenate(found or [np.empty(0, np.int64)])))
