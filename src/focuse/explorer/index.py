"""Indexes of a run that are built once: the triples of each entity, and the names of entities."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from rapidfuzz import fuzz, process

from focuse.data.graph import Graph, Vocabulary
from focuse.data.weights import WeightScaler, heavy_tail_offsets

Rows = npt.NDArray[np.int64]

# ---- triples by entity -----------------------------------------------------------------------------------------------

MAX_LINKS_BETWEEN = 2000  # strongest edges per entity that are searched for links between the entities of a picture


class EdgeIndex:
    """All triples of a run (train, valid and test) by head and by tail, the strongest edge of each entity first.

    `strength` [n] is the weight scaled to [0, 1] per relation. The index needs 24 bytes per edge in addition to the
    columns of the graph.
    """

    def __init__(self, graphs: Sequence[Graph]) -> None:
        train = graphs[0]
        self.names = train
        self.head, self.relation, self.tail = (
            np.concatenate([getattr(graph, column) for graph in graphs]) for column in ("head", "relation", "tail")
        )
        self.weight = np.concatenate([graph.weight for graph in graphs])
        scaled = WeightScaler.fit(train, heavy_tail_offsets(train)).to_unit(self.weight, self.relation)
        self.strength = np.clip(scaled, 0.0, 1.0).astype(np.float32)
        self.split = np.repeat(np.arange(len(graphs), dtype=np.int8), [len(graph) for graph in graphs])
        strongest_first = np.argsort(-self.strength, kind="stable")
        self._sorted = [self._sort(column, strongest_first) for column in (self.head, self.tail)]
        loops = np.bincount(self.head[self.head == self.tail], minlength=len(train.entities))
        self.degree: Rows = np.diff(self._sorted[0][1]) + np.diff(self._sorted[1][1]) - loops

    def _sort(self, ends: npt.NDArray[np.int32], strongest_first: Rows) -> tuple[Rows, Rows]:
        """Return all rows sorted by their entity, strongest first, and the offset of each entity."""
        rows = strongest_first[np.argsort(ends[strongest_first], kind="stable")]
        counts = np.bincount(ends, minlength=len(self.names.entities))
        return rows, np.concatenate([[0], np.cumsum(counts)])

    def __len__(self) -> int:
        return len(self.head)

    def rows_of(self, entity: int, relation: int | None = None, limit: int | None = None) -> Rows:
        """Return the rows [m] of an entity in both directions, strongest first; a loop is listed once."""
        found = []
        for as_tail, (rows, offsets) in enumerate(self._sorted):
            own = rows[offsets[entity] : offsets[entity + 1]]
            if relation is not None:
                own = own[self.relation[own] == relation]
            if as_tail:  # loops were found by their head
                own = own[self.head[own] != entity]
            found.append(own if limit is None else own[:limit])
        return self._strongest(np.concatenate(found))[:limit]

    def _strongest(self, rows: Rows) -> Rows:
        return np.asarray(rows[np.argsort(-self.strength[rows], kind="stable")], np.int64)

    def relations_of(self, entity: int, as_tail: bool) -> Rows:
        """Return the relations [k] in which an entity is a head, or a tail, most frequent first."""
        rows, offsets = self._sorted[int(as_tail)]
        relations, counts = np.unique(self.relation[rows[offsets[entity] : offsets[entity + 1]]], return_counts=True)
        return relations[np.argsort(-counts, kind="stable")].astype(np.int64)

    def neighborhood(
        self, entity: int, depth: int, limit: int, relation: int | None = None
    ) -> tuple[Rows, dict[int, int]]:
        """Return the rows of the `limit` strongest edges within `depth` steps, and the distance of each entity there.

        Of two steps, the first gets a third of the edges.
        """
        kept = self.rows_of(entity, relation, limit if depth == 1 else max(1, limit // 3))
        distance = {entity: 0} | dict.fromkeys(self._other_ends(kept, {entity}), 1)
        if depth > 1 and len(distance) > 1:
            left = limit - len(kept)
            per_entity = max(2, left // (len(distance) - 1)) + 1
            near = [self.rows_of(one, relation, per_entity) for one in list(distance)[1:]]
            more = self._strongest(np.setdiff1d(np.concatenate(near), kept))[:left]
            distance |= dict.fromkeys(self._other_ends(more, set(distance)), 2)
            kept = np.concatenate([kept, more])
        return self._add_links_between(kept, np.array(list(distance)), relation, limit), distance

    def _other_ends(self, rows: Rows, seen: set[int]) -> list[int]:
        """Return the entities of rows that are not in `seen`, in the order of the rows."""
        ends = np.stack([self.head[rows], self.tail[rows]], axis=1).ravel().tolist()
        return [one for one in dict.fromkeys(ends) if one not in seen]

    def _add_links_between(self, kept: Rows, shown: Rows, relation: int | None, limit: int) -> Rows:
        """Return the rows and, up to the limit, the strongest other edges between the entities that are shown."""
        if len(kept) >= limit or len(shown) < 2:
            return kept
        near = np.concatenate([self.rows_of(int(one), relation, MAX_LINKS_BETWEEN) for one in shown[1:]])
        inner = near[np.isin(self.head[near], shown) & np.isin(self.tail[near], shown)]
        return np.concatenate([kept, self._strongest(np.setdiff1d(inner, kept))[: limit - len(kept)]])


# ---- entities by name ------------------------------------------------------------------------------------------------

MAX_CANDIDATES = 10_000  # names whose spelling is compared with a query
MIN_SIMILARITY = 70  # of rapidfuzz's weighted ratio, from 0 to 100
WORD_START = r"(^|[^\p{L}\p{N}])"


def _fold(names: pa.Array) -> pa.Array:
    """Return names in lower case and without accents, as they are compared.

    >>> _fold(pa.array(["Façade", "ΟΔΟΣ"])).to_pylist()
    ['facade', 'οδοσ']
    """
    lower = pc.utf8_lower(names)
    if pc.all(pc.string_is_ascii(lower)).as_py():
        return lower
    return pc.replace_substring(pc.replace_substring_regex(pc.utf8_normalize(lower, "NFD"), r"\p{Mn}+", ""), "ς", "σ")


class NameIndex:
    """Search of names by their parts, or by similar spelling if no name contains the query.

    The folded names are one Arrow column, because a million Python strings would be slow. Among equally good matches,
    those of higher `degree` [n] come first.

    >>> index = NameIndex(Vocabulary(["SQL", "mysql", "Sqlite", "plain sql"]), np.array([1, 9, 5, 2]))
    >>> [index.names[i] for i in index.search("sql", 9)]
    ['SQL', 'Sqlite', 'plain sql', 'mysql']
    """

    def __init__(self, names: Vocabulary, degree: npt.NDArray[Any]) -> None:
        self.names, self.degree = names, np.asarray(degree)
        self.folded = _fold(names.column)

    def search(self, query: str, limit: int) -> Rows:
        """Return ids [n <= limit]: equal names, prefixes, starts of words, other parts; similar names without those."""
        words: str = _fold(pa.array([query]))[0].as_py().strip()
        if not words or not len(self.folded):
            return np.empty(0, np.int64)
        found = _where(pc.match_substring(self.folded, words))
        if not len(found):
            return self._similar(words, limit)
        texts = self.folded.take(pa.array(found))
        quality = np.full(len(found), 3)
        quality[_where(pc.match_substring_regex(texts, WORD_START + re.escape(words)))] = 2
        quality[_where(pc.starts_with(texts, words))] = 1
        quality[_where(pc.equal(texts, words))] = 0
        ranked: Rows = found[np.lexsort((found, -self.degree[found], quality))]
        return ranked[:limit]

    def _similar(self, words: str, limit: int) -> Rows:
        """Return the ids [n <= limit] of names that are spelled similarly, most similar first."""
        shared = np.zeros(len(self.folded), np.int8)
        for piece in {*_pieces(words), *_pieces(max(words.split(), key=len))}:
            shared[_where(pc.match_substring(self.folded, piece))] += 1
        found = np.flatnonzero(shared).astype(np.int64)
        if len(found) > MAX_CANDIDATES:
            found = found[np.lexsort((-self.degree[found], -shared[found]))[:MAX_CANDIDATES]]
        texts = self.folded.take(pa.array(found)).to_pylist()
        similarity = process.cdist([words], texts, scorer=fuzz.WRatio, score_cutoff=MIN_SIMILARITY)[0]
        ranked: Rows = found[np.lexsort((found, -self.degree[found], -similarity))]
        return ranked[: min(limit, int(np.count_nonzero(similarity)))]


def _pieces(words: str) -> list[str]:
    """Return up to three parts of a query: a name with two errors or fewer contains one of them unchanged."""
    count = max(1, min(3, len(words) // 2))
    cuts = [round(len(words) * part / count) for part in range(count + 1)]
    return [words[start:end] for start, end in pairwise(cuts)]


def _where(mask: Any) -> Rows:
    """Return the positions at which an Arrow column is true."""
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False)).astype(np.int64)
