"""Graphs larger than memory: encode edges block by block and hold out rows in one pass.

The ids are equal to those of `from_columns`: entities are numbered in order of appearance, heads first. Groups of
millions of edges are encoded together, and their names are looked up among the earlier ones, so that a name is hashed
only a few times and needs no Python object. Tails are numbered by themselves, and translated into the ids of entities
at the end. Columns are written to disk and mapped.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import platformdirs
import pyarrow as pa
import pyarrow.compute as pc

from focuse.data.graph import (
    EDGE_COLUMNS,
    Graph,
    Ids,
    Vocabulary,
    concatenate_blocks,
    dictionary_blocks,
    isin_sorted,
    unify_dictionaries,
)
from focuse.errors import FocuseError
from focuse.system import check_memory_limit, chunks, free_memory

MAX_EDGES_PER_GROUP = 1 << 23  # edges encoded at once, if there is enough memory
BYTES_PER_EDGE = 600  # free memory required per edge of a group, which is twice the size of its names and ids
CHUNK_EDGES = 1 << 20  # edges processed at once
ABANDONED_SECONDS = 86_400.0  # an older file belongs to a killed process
MAX_NAME_BYTES = (1 << 31) - 1  # the limit of one Arrow column of names
COLUMNS = {name: np.float64 if name == "weight" else np.int32 for name in EDGE_COLUMNS}


def cache_folder() -> Path:
    """Return the folder of downloaded datasets and large columns: FOCUSE_CACHE, else the system's cache folder."""
    given = os.environ.get("FOCUSE_CACHE")
    return Path(os.path.expanduser(given)) if given else platformdirs.user_cache_path("focuse", appauthor=False)


def scratch_folder() -> Path | None:
    """Return the folder for columns of graphs larger than memory, or None for the system's temporary folder.

    Files that killed processes left there are removed.
    """
    folder = cache_folder() / "scratch"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in folder.iterdir():
            if time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder if os.access(folder, os.W_OK) else None


class ColumnFile:
    """A column of numbers that is appended to an anonymous file, which the system deletes after the last use."""

    def __init__(self, dtype: Any, folder: Path | None) -> None:
        self.dtype, self.length = np.dtype(dtype), 0
        self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115

    def append(self, values: npt.NDArray[Any]) -> None:
        """Append values [n] to the column."""
        self.file.write(np.ascontiguousarray(values, self.dtype).data)
        self.length += len(values)

    def mapped(self, mode: str = "c") -> npt.NDArray[Any]:
        """Map the whole column [n] into memory; with mode 'r+' changes are written to the file."""
        self.file.flush()
        if not self.length:
            return np.empty(0, self.dtype)
        return np.asarray(np.memmap(self.file, self.dtype, mode, shape=(self.length,)))  # type: ignore[call-overload]


class GrowingVocabulary:
    """A set of distinct names in the order of their first appearance, to which names are appended."""

    def __init__(self, source: str) -> None:
        self.column: pa.Array = pa.array([], pa.string())
        self.source = source

    def ids(self, names: pa.Array) -> Ids:
        """Return the ids of distinct names, int32 [n]; new names are appended."""
        indices = pc.index_in(names, value_set=self.column)
        new = names.filter(pc.is_null(indices))
        ids: Ids = np.array(pc.fill_null(indices, -1))
        if len(new):
            size = sum(pc.sum(pc.binary_length(part)).as_py() or 0 for part in (self.column, new))
            if size > MAX_NAME_BYTES:
                raise FocuseError(f"{self.source}: names of more than {MAX_NAME_BYTES:,} bytes together; shorten them")
            ids[ids < 0] = np.arange(len(self.column), len(self.column) + len(new))
            self.column = pa.concat_arrays([self.column, new])
        return ids


def encode_blocks(
    blocks: Iterable[Sequence[pa.Array]], source: str, weighted: bool, folder: Path | None = None
) -> Graph:
    """Encode blocks of (head, relation, tail[, weight]) columns as a graph whose columns are files in `folder`.

    >>> block = [pa.array(["a", "b"]), pa.array(["r", "r"]), pa.array(["c", "a"]), pa.array([1.0, 2.0])]
    >>> graph = encode_blocks([block], "edges", True)
    >>> graph.entities.column.to_pylist(), graph.tail.tolist()
    (['a', 'b', 'c'], [2, 0])
    """
    columns = {name: ColumnFile(dtype, folder) for name, dtype in COLUMNS.items()}
    names = {name: GrowingVocabulary(source) for name in ("head", "relation", "tail")}
    for group in _groups_of_blocks(blocks):
        for index, name in enumerate(names):
            ids, distinct = unify_dictionaries([part for block in group for part in dictionary_blocks(block[index])])
            columns[name].append(names[name].ids(distinct.column)[ids])
        edges = sum(len(block[0]) for block in group)
        columns["weight"].append(concatenate_blocks([block[3] for block in group]) if weighted else np.ones(edges))
    entities = names["head"]
    entity_ids = entities.ids(names["tail"].column)  # tails that are no heads are appended
    tails = columns["tail"].mapped("r+")
    for chunk in chunks(len(tails), CHUNK_EDGES):
        tails[chunk] = entity_ids[tails[chunk]]
    head, relation, tail, weight = (columns[name].mapped() for name in COLUMNS)
    vocabularies = Vocabulary(entities.column), Vocabulary(names["relation"].column)
    return Graph(head, relation, tail, weight, *vocabularies, source, weighted)


def _groups_of_blocks(blocks: Iterable[Sequence[pa.Array]]) -> Iterator[list[Sequence[pa.Array]]]:
    """Yield blocks in groups of at most MAX_EDGES_PER_GROUP edges, or fewer if memory is short."""
    group: list[Sequence[pa.Array]] = []
    group_edges = min(MAX_EDGES_PER_GROUP, max(free_memory() // BYTES_PER_EDGE, 1))
    for block in blocks:
        check_memory_limit()
        if len(block[0]):
            group.append(block)
        if sum(len(part[0]) for part in group) >= group_edges:
            yield group
            group = []
    if group:
        yield group


# ---- held-out rows --------------------------------------------------------------------------------------------------

LARGE_GRAPH = 1 << 22  # graphs of at least this many edges are processed in chunks
MAX_SORTED_KEYS = 1 << 24  # keys sorted at once to count repeated triples
OVERSAMPLING = 4  # edges drawn per edge to hold out, because some are the last of their entity
FLAG_BITS = 24  # size of the hash table of drawn keys
HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)

Rows = npt.NDArray[np.int64]


def hold_out_rows(graph: Graph, sizes: list[int], seed: int) -> list[Rows]:
    """Draw about `sizes` random rows for each part, ascending, such that every entity and relation keeps an edge.

    Rows that repeat a (head, relation, tail), or a pair of an undirected relation, stay together.
    """
    if not sum(sizes):
        return [np.empty(0, np.int64) for _ in sizes]
    random = np.random.default_rng(seed)
    drawn = np.unique(random.integers(0, len(graph), OVERSAMPLING * sum(sizes)))
    keys = np.unique(_keys(graph, drawn))
    rows, degree, relation_count = _scan(graph, keys)
    triple = np.searchsorted(keys, _keys(graph, rows))
    rows_per_triple = np.bincount(triple, minlength=len(keys))
    # A row may be held out if its entities and its relation have rows that were not drawn.
    ends = [graph.head[rows], graph.tail[rows]]
    drawn_degree = sum(np.bincount(ids, minlength=len(degree)) for ids in ends)
    drawn_relation_count = np.bincount(graph.relation[rows], minlength=len(relation_count))
    spare = (relation_count > drawn_relation_count)[graph.relation[rows]]
    for ids in ends:
        spare &= (degree > drawn_degree)[ids]
    free = np.bincount(triple, ~spare, minlength=len(keys)) == 0
    # Imported here, because splits imports this module.
    from focuse.data.splits import assign_parts, balanced_order, fit_part, strength

    first = rows[np.unique(triple, return_index=True)[1]]
    candidates = np.flatnonzero(free & fit_part(rows_per_triple, sizes))
    candidates = balanced_order(candidates, graph.relation[first], strength(graph, first), random)
    part = assign_parts(candidates, rows_per_triple, sizes)[triple]
    return [rows[part == number] for number in range(1, len(sizes) + 1)]


def _keys(graph: Graph, rows: Rows | slice) -> Rows:
    return graph.pair_keys_of(graph.head[rows], graph.relation[rows], graph.tail[rows])


def _scan(graph: Graph, keys: Rows) -> tuple[Rows, Rows, Rows]:
    """Return the rows whose key is among ascending ones, entity degrees (loops count twice) and edges per relation."""
    flags = np.zeros(1 << FLAG_BITS, bool)
    flags[_hash(keys)] = True
    degree, relation_count = np.zeros(len(graph.entities), np.int64), np.zeros(len(graph.relations), np.int64)
    rows = []
    for chunk in chunks(len(graph), CHUNK_EDGES):
        for ids in (graph.head[chunk], graph.tail[chunk]):
            np.add.at(degree, ids, 1)
        np.add.at(relation_count, graph.relation[chunk], 1)
        chunk_keys = _keys(graph, chunk)
        possible = np.flatnonzero(flags[_hash(chunk_keys)])
        rows.append(chunk.start + possible[isin_sorted(chunk_keys[possible], keys)])
    return np.concatenate(rows), degree, relation_count


def _hash(keys: Rows) -> npt.NDArray[np.uint64]:
    return (keys.view(np.uint64) * HASH_FACTOR) >> np.uint64(64 - FLAG_BITS)


def without_rows(graph: Graph, rows: Rows) -> Graph:
    """Return a graph without the given rows, whose columns are mapped from files."""
    columns = {name: ColumnFile(dtype, scratch_folder()) for name, dtype in COLUMNS.items()}
    for chunk in chunks(len(graph), CHUNK_EDGES):
        keep = np.ones(chunk.stop - chunk.start, bool)
        keep[rows[(rows >= chunk.start) & (rows < chunk.stop)] - chunk.start] = False
        for name, column in columns.items():
            column.append(getattr(graph, name)[chunk][keep])
    mapped: dict[str, Any] = {name: column.mapped() for name, column in columns.items()}
    return replace(graph, **mapped)


def count_repeated(graph: Graph) -> int:
    """Count the rows that repeat the (head, relation, tail) of an earlier row, with few keys in memory at once."""
    parts = -(-len(graph) // MAX_SORTED_KEYS)
    return len(graph) - sum(_count_distinct(graph, part, parts) for part in range(parts))


def _count_distinct(graph: Graph, part: int, parts: int) -> int:
    """Count the distinct keys whose hash belongs to one of several parts."""
    part_keys = []
    for chunk in chunks(len(graph), CHUNK_EDGES):
        keys = graph.keys_of(graph.head[chunk], graph.relation[chunk], graph.tail[chunk])
        part_keys.append(keys[_hash(keys) % np.uint64(parts) == part])
    keys = np.concatenate(part_keys)
    keys.sort()
    return int(np.count_nonzero(np.diff(keys, prepend=-1)))
