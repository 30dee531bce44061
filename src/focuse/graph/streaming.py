"""Encoding edges that come in blocks, in memory for the names and a few blocks: columns go to disk and are mapped.

The result is what `from_columns` gives, id for id: entities in order of appearance, heads first. Some millions of edges
are encoded together, and the names among them looked up in those of before, so that each name is hashed a few times
and no Python object stands for it. That makes ids in another order; who was a head first is noted, and at the end the
columns are walked once more.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from focuse.errors import FocuseError
from focuse.graph.arrays import chunks
from focuse.graph.graph import Graph, Ids, join, unified
from focuse.graph.memory import free_memory
from focuse.graph.vocabulary import Vocabulary

TOGETHER = 1 << 23  # edges encoded together, where memory allows
EDGE_BYTES = 600  # of memory that is to be free for each of them: twice what names and ids take
CHUNK = 1 << 20  # edges renumbered together
MOST_LETTERS = (1 << 31) - 1  # that one column of names can hold
KIND = pa.dictionary(pa.int32(), pa.string())
COLUMNS: tuple[tuple[str, Any], ...] = (
    ("head", np.int32),
    ("relation", np.int32),
    ("tail", np.int32),
    ("weight", np.float64),
)


class Column:
    """Numbers written to a file without a name, which is gone when nobody looks at it any more; then mapped."""

    def __init__(self, kind: Any, folder: Path | None) -> None:
        self.kind, self.length = np.dtype(kind), 0
        self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115

    def append(self, values: npt.NDArray[Any]) -> None:
        self.file.write(np.ascontiguousarray(values, self.kind).data)
        self.length += len(values)

    def mapped(self, mode: str = "c") -> npt.NDArray[Any]:
        """All of it [n]; with mode 'r+' changes are written to the file."""
        self.file.flush()
        if not self.length:
            return np.empty(0, self.kind)
        return np.asarray(np.memmap(self.file, self.kind, mode, shape=(self.length,)))  # type: ignore[call-overload]


class Names:
    """Distinct names in the order in which they are met."""

    def __init__(self, source: str) -> None:
        self.column: pa.Array = pa.array([], pa.string())
        self.source = source

    def ids(self, names: pa.Array) -> Ids:
        """The places of distinct names [n], new ones added behind; int32 [n]."""
        found = pc.index_in(names, value_set=self.column)
        new = pc.is_null(found)
        ids: Ids = np.array(pc.fill_null(found, -1))
        more = names.filter(new)
        if len(more):
            letters = sum(pc.sum(pc.binary_length(part)).as_py() or 0 for part in (self.column, more))
            if letters > MOST_LETTERS:
                raise FocuseError(f"{self.source}: names of more than {MOST_LETTERS:,} bytes together; shorten them")
            ids[ids < 0] = np.arange(len(self.column), len(self.column) + len(more))
            self.column = pa.concat_arrays([self.column, more])
        return ids


class Order:
    """When each entity was first met: as a head, or else as a tail."""

    def __init__(self) -> None:
        self.first = {side: np.empty(0, np.int32) for side in ("head", "tail")}
        self.met = {"head": 0, "tail": 0}

    def note(self, side: str, ids: Ids, entities: int) -> None:
        """Distinct ids in the order in which they come on a side."""
        first = self.first[side]
        if len(first) < entities:
            grown = np.full(max(entities, 2 * len(first)), -1, np.int32)
            grown[: len(first)] = first
            first = self.first[side] = grown
        new = ids[first[ids] < 0]
        first[new] = np.arange(self.met[side], self.met[side] + len(new), dtype=np.int32)
        self.met[side] += len(new)

    def final(self, entities: int) -> npt.NDArray[np.int64]:
        """Entities heads first, both in order of appearance; [E]."""
        head, tail = (self.first[side][:entities] for side in ("head", "tail"))
        heads, others = np.flatnonzero(head >= 0), np.flatnonzero(head < 0)
        return np.concatenate([heads[np.argsort(head[heads])], others[np.argsort(tail[others])]])


def stream(blocks: Iterable[Sequence[pa.Array]], source: str, weighted: bool, folder: Path | None = None) -> Graph:
    """A graph of blocks of (head, relation, tail[, weight]) columns, in files in `folder` (default: the system's).

    >>> block = [pa.array(["a", "b"]), pa.array(["r", "r"]), pa.array(["c", "a"]), pa.array([1.0, 2.0])]
    >>> graph = stream([block], "edges", True)
    >>> graph.entities.column.to_pylist(), graph.tail.tolist()
    (['a', 'b', 'c'], [2, 0])
    """
    columns = {name: Column(kind, folder) for name, kind in COLUMNS}
    entities, relations, order = Names(source), Names(source), Order()
    for some in _together(blocks):
        heads, kinds, tails = ([_encoded(block[place]) for block in some] for place in range(3))
        ids, names = unified(heads + tails)
        edges = sum(map(len, heads))
        known = entities.ids(names.column)
        distinct = int(ids[:edges].max()) + 1  # heads come first
        order.note("head", known[:distinct], len(entities.column))
        order.note("tail", known[distinct:], len(entities.column))
        columns["head"].append(known[ids[:edges]])
        columns["tail"].append(known[ids[edges:]])
        ids, names = unified(kinds)
        columns["relation"].append(relations.ids(names.column)[ids])
        columns["weight"].append(join([block[3] for block in some]) if weighted else np.ones(edges))
    final = order.final(len(entities.column))
    places = np.empty(len(final), np.int32)
    places[final] = np.arange(len(final), dtype=np.int32)
    for name in ("head", "tail"):
        values = columns[name].mapped("r+")
        for piece in chunks(len(values), CHUNK):
            values[piece] = places[values[piece]]
    names = entities.column.take(pa.array(final))
    head, relation, tail, weight = (columns[name].mapped() for name, _ in COLUMNS)
    return Graph(head, relation, tail, weight, Vocabulary(names), Vocabulary(relations.column), source, weighted)


def _together(blocks: Iterable[Sequence[pa.Array]]) -> Iterable[list[Sequence[pa.Array]]]:
    """Blocks in groups of some millions of edges."""
    group: list[Sequence[pa.Array]] = []
    free = free_memory()
    most = TOGETHER if free is None else min(TOGETHER, max(free // EDGE_BYTES, 1))
    for block in blocks:
        if len(block[0]):
            group.append(block)
        if sum(len(each[0]) for each in group) >= most:
            yield group
            group = []
    if group:
        yield group


def _encoded(column: pa.Array) -> pa.Array:
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode().cast(KIND)
