"""Held-out edges of a graph too large to sort: a few are drawn, and one walk over the others sees to the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from focuse.graph.arrays import chunks
from focuse.graph.cache import scratch_folder
from focuse.graph.graph import Graph
from focuse.graph.streaming import COLUMNS, Column

LARGE = 1 << 22  # edges from which on a graph is dealt with piece by piece
SORTED = 1 << 24  # keys sorted at a time to count repeats
CHUNK = 1 << 20
SPARE = 4  # times as many edges are drawn as are wanted: some are the last of their entity
FLAGS = 24  # bits of a table that says which keys may be among those drawn
MIX = np.uint64(0x9E3779B97F4A7C15)

Rows = npt.NDArray[np.int64]


def hold_out(graph: Graph, sizes: list[int], seed: int) -> list[Rows]:
    """About so many rows for each part, by chance, ascending; together they leave every entity and relation an edge.

    Rows that repeat one (head, relation, tail) stay together.
    """
    if not sum(sizes):
        return [np.empty(0, np.int64) for _ in sizes]
    random = np.random.default_rng(seed)
    drawn = np.unique(random.integers(0, len(graph), SPARE * sum(sizes)))
    keys = np.unique(_keys(graph, drawn))
    rows, degree, uses = _walk(graph, keys)
    group = np.searchsorted(keys, _keys(graph, rows))
    count = np.bincount(group, minlength=len(keys))
    ends = [graph.head[rows], graph.tail[rows]]
    touched = sum(np.bincount(ids, minlength=len(degree)) for ids in ends)
    asked = np.bincount(graph.relation[rows], minlength=len(uses))
    spared = (uses > asked)[graph.relation[rows]] & np.logical_and(*((degree > touched)[ids] for ids in ends))
    fits = max(min(size for size in sizes if size) // 10, int(np.median(count)))
    free = (count <= fits) & (np.bincount(group, ~spared, minlength=len(keys)) == 0)
    order = random.permutation(np.flatnonzero(free))
    taken = np.cumsum(count[order])
    if len(taken) and taken[-1] < sum(sizes):  # too few to spare: share what there is in the same proportion
        sizes = [int(size * int(taken[-1]) / sum(sizes)) for size in sizes]
    part = np.full(len(keys), -1, np.int8)
    start = done = 0
    for name, size in enumerate(sizes):
        end = int(np.searchsorted(taken, done + size, side="right"))
        part[order[start:end]] = name
        start, done = end, int(taken[end - 1]) if end else 0
    return [rows[part[group] == name] for name in range(len(sizes))]


def _keys(graph: Graph, rows: Rows | slice) -> Rows:
    return graph.keys_of(graph.head[rows], graph.relation[rows], graph.tail[rows])


def _walk(graph: Graph, keys: Rows) -> tuple[Rows, Rows, Rows]:
    """Rows whose key is among ascending ones, each entity's edges (loops twice) and each relation's."""
    flags = np.zeros(1 << FLAGS, bool)
    flags[_flag(keys)] = True
    degree, uses = np.zeros(len(graph.entities), np.int64), np.zeros(len(graph.relations), np.int64)
    found = []
    for piece in chunks(len(graph), CHUNK):
        for ids in (graph.head[piece], graph.tail[piece]):
            np.add.at(degree, ids, 1)
        np.add.at(uses, graph.relation[piece], 1)
        here = _keys(graph, piece)
        maybe = np.flatnonzero(flags[_flag(here)])
        place = np.minimum(np.searchsorted(keys, here[maybe]), len(keys) - 1)
        found.append(piece.start + maybe[keys[place] == here[maybe]])
    return np.concatenate(found), degree, uses


def _flag(keys: Rows) -> npt.NDArray[np.uint64]:
    return (keys.view(np.uint64) * MIX) >> np.uint64(64 - FLAGS)


def without(graph: Graph, rows: Rows) -> Graph:
    """A graph without some rows, its columns in files that are mapped."""
    columns = {name: Column(kind, scratch_folder()) for name, kind in COLUMNS}
    for piece in chunks(len(graph), CHUNK):
        keep = np.ones(piece.stop - piece.start, bool)
        keep[rows[(rows >= piece.start) & (rows < piece.stop)] - piece.start] = False
        for name, column in columns.items():
            column.append(getattr(graph, name)[piece][keep])
    head, relation, tail, weight = (columns[name].mapped() for name, _ in COLUMNS)
    return replace(graph, head=head, relation=relation, tail=tail, weight=weight)


def repeated(graph: Graph) -> int:
    """How many rows repeat the (head, relation, tail) of an earlier row; a part of all keys in memory at a time."""
    parts = -(-len(graph) // SORTED)
    return len(graph) - sum(_distinct(graph, part, parts) for part in range(parts))


def _distinct(graph: Graph, part: int, parts: int) -> int:
    """Distinct keys among those that fall to a part."""

    def fallen() -> Iterator[Rows]:
        for piece in chunks(len(graph), CHUNK):
            keys = _keys(graph, piece)
            yield keys[_flag(keys) % np.uint64(parts) == part]

    keys = np.concatenate(list(fallen()))
    keys.sort()
    return int(np.count_nonzero(np.diff(keys, prepend=-1)))
