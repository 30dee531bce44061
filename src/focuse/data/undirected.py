"""Undirected relations, whose pairs of entities are one fact each: recognize them, and list both directions.

A table lists such a pair once or in both directions. In a prepared graph, both directions are edges, so that a model is
trained on both and a known link is found from either end; `Graph.pair_keys` are equal for both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.data import out_of_core
from focuse.data.graph import EDGE_COLUMNS, Graph, Mask, find_sorted
from focuse.errors import counted
from focuse.system import chunks

# Undirected tables list 100 % of the pairs in both directions, and their random splits at most 90 %: the train parts of
# PPI5K and NL27K have 85 %. The rest is for tables that have lost a few rows.
MIN_SHARE = 0.99
MIN_ROWS = 10  # of a relation; fewer may be symmetric by chance
ALL_EDGES, SAMPLE = 1 << 18, 1 << 16  # of a graph with more edges, a sample is examined
MAX_NAMES = 3
HASH_FACTORS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


def resolve_undirected(graph: Graph) -> tuple[Graph, str]:
    """Return the graph with the ids of its undirected relations and both directions of their pairs, and a note.

    Relations are undirected if that is stated (`undirected` is True), and recognized if nothing is stated (None).

    >>> from focuse.data.readers import read
    >>> friends = read([("a", "friend of", "b", 0.9), ("b", "friend of", "c", 0.2)], undirected=True)
    >>> both, note = resolve_undirected(friends)
    >>> len(both), note
    (4, 'rows: each pair is one fact, trained in both directions (2 edges are added)')
    """
    if isinstance(graph.undirected, tuple):
        return graph, ""
    share = np.ones(len(graph.relations)) if graph.undirected is not None else _share_of_reversed(graph)
    ids = tuple(np.flatnonzero(share >= MIN_SHARE).tolist()) if graph.undirected is not False else ()
    stated, made = graph.undirected, replace(graph, undirected=ids)
    if not ids:
        return made, ""
    if stated or len(graph) < out_of_core.LARGE_GRAPH:
        made = with_both_directions(made)
    added = len(made) - len(graph)
    names = [repr(graph.relations[relation]) for relation in ids[:MAX_NAMES]] + ["…"] * (len(ids) > MAX_NAMES)
    where = "" if len(ids) == len(graph.relations) else f" of {', '.join(names)}"
    more = f"{counted(added, 'edges', 'are')} added"
    if stated:
        return made, f"{graph.source}: each pair{where} is one fact, trained in both directions ({more})"
    every = "every pair" if not added else "nearly every pair"
    return made, (
        f"{graph.source}: {every}{where} is listed in both directions with the same weight: each pair is one fact"
        f"{f'; {more}' if added else ''} (--directed, or undirected=False, changes this)"
    )


def with_both_directions(graph: Graph) -> Graph:
    """Return the graph with the missing directions of the pairs of its undirected relations.

    The reverse of an edge, with the same weight, follows it.
    """
    if not graph.undirected or not len(graph):
        return graph
    if len(graph) >= out_of_core.LARGE_GRAPH and graph.columns is None:
        share = _share_of_reversed(graph)[graph.is_undirected]
        if (share >= MIN_SHARE).all():
            return graph
        if (share <= 1 - MIN_SHARE).all():
            return _append_reversed(graph)
    rows = np.flatnonzero(graph.is_undirected[graph.relation] & (graph.head != graph.tail))
    rows = rows[_lacks_reverse(graph, rows)]
    source = np.concatenate([np.arange(len(graph)), rows])
    order = np.argsort(source, kind="stable")
    made, added = graph.select(source[order]), order >= len(graph)
    return replace(made, head=np.where(added, made.tail, made.head), tail=np.where(added, made.head, made.tail))


def _lacks_reverse(graph: Graph, rows: npt.NDArray[Any]) -> Mask:
    """Return which of `rows` [n] have no reverse with the same weight among them; each reverse serves one row."""
    pair = np.unique(graph.pair_keys[rows], return_inverse=True)[1]
    weight = np.unique(_rounded(graph.weight[rows]), return_inverse=True)[1]
    fact = np.unique(pair * (int(weight.max(initial=0)) + 1) + weight, return_inverse=True)[1]
    side = 2 * fact + (graph.head[rows] < graph.tail[rows])
    count = np.bincount(side, minlength=int(side.max(initial=0)) + 2)
    order = np.argsort(side, kind="stable")
    turn = np.empty(len(rows), np.int64)
    turn[order] = np.arange(len(rows)) - np.searchsorted(side[order], side[order])
    return np.asarray(turn >= count[side ^ 1])


def _share_of_reversed(graph: Graph) -> npt.NDArray[np.float64]:
    """Return the share of the edges of each relation whose reverse has the same weight, [R]; 0 with few edges."""
    edges, rows = len(graph), np.arange(len(graph))
    if edges > ALL_EDGES:
        rows = np.unique(np.random.default_rng(0).integers(0, edges, SAMPLE))
    rows = rows[graph.head[rows] != graph.tail[rows]]
    relation = graph.relation[rows]
    wanted = _marks(graph, graph.tail[rows], relation, graph.head[rows], graph.weight[rows])
    marks = np.unique(wanted)
    seen = np.zeros(len(marks), bool)
    for part in chunks(edges, out_of_core.CHUNK_EDGES):
        listed = _marks(graph, graph.head[part], graph.relation[part], graph.tail[part], graph.weight[part])
        index, found = find_sorted(marks, listed)
        seen[index[found]] = True
    count = np.bincount(relation, minlength=len(graph.relations))
    reverse = np.bincount(relation, seen[np.searchsorted(marks, wanted)], minlength=len(graph.relations))
    return np.where(count >= MIN_ROWS, reverse / np.maximum(count, 1), 0.0)


def _marks(graph: Graph, head: Any, relation: Any, tail: Any, weight: Any) -> npt.NDArray[np.uint64]:
    """Return one number per triple and weight [n], which differs for different ones almost certainly."""
    key, bits = graph.keys_of(head, relation, tail).view(np.uint64), _rounded(weight).view(np.uint64)
    return np.asarray(key * HASH_FACTORS[0] ^ (bits ^ bits >> np.uint64(32)) * HASH_FACTORS[1])


def _rounded(weight: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return weights rounded to seven digits: both directions of a correlation may differ in the last one."""
    with np.errstate(over="ignore"):
        return weight.astype(np.float32).astype(np.float64) + 0.0


def _append_reversed(graph: Graph) -> Graph:
    """Return a large graph followed by the reverse of the edges of undirected relations, mapped from files."""
    columns = {
        name: out_of_core.ColumnFile(dtype, out_of_core.scratch_folder()) for name, dtype in out_of_core.COLUMNS.items()
    }
    for head, tail in (("head", "tail"), ("tail", "head")):
        for part in chunks(len(graph), out_of_core.CHUNK_EDGES):
            keep = np.ones(part.stop - part.start, bool)
            if head == "tail":
                keep = graph.is_undirected[graph.relation[part]] & (graph.head[part] != graph.tail[part])
            for name, source in zip(EDGE_COLUMNS, (head, "relation", tail, "weight"), strict=True):
                columns[name].append(getattr(graph, source)[part][keep])
    mapped: dict[str, Any] = {name: column.mapped() for name, column in columns.items()}
    return replace(graph, **mapped)
