"""A weighted graph in columns: ids of heads, relations and tails, and one or several numbers an edge."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from focuse.errors import FocuseError, choose, counted
from focuse.graph.columns import Columns, merge_groups
from focuse.graph.iris import BASE
from focuse.graph.vocabulary import Vocabulary

if TYPE_CHECKING:
    import networkx
    import pandas
    import polars

Ids = npt.NDArray[np.int32]
Weights = npt.NDArray[np.float64]
DUPLICATE_POLICIES = ("keep", "max", "mean", "last")
EXAMPLES = 20  # unknown names that a report shows


@dataclass(frozen=True, eq=False)
class Graph:
    """Edges (head, relation, tail, weight) over named entities and relations.

    `head`, `relation` and `tail` are int32 [n] places in the vocabularies, `weight` is float64 [n] in the
    user's own units. `weighted` is False when the source had no numbers and every weight is 1 by convention.
    Where an edge has several numbers, `columns` holds them and `weight` is what they make together, in [0, 1].
    `lower_is_better` says that small weights are the strong ones (of several columns, each says so by itself).
    `notes` are lines on what of the source was left out.

    >>> from focuse.graph import read
    >>> graph = read([("a", "r", "b", 0.9), ("b", "r", "c", 0.2)])
    >>> graph.tail.tolist(), graph.entities[graph.tail[1]], graph.weight.tolist()
    ([1, 2], 'c', [0.9, 0.2])
    """

    head: Ids
    relation: Ids
    tail: Ids
    weight: Weights
    entities: Vocabulary
    relations: Vocabulary
    source: str = "graph"
    weighted: bool = True
    columns: Columns | None = None
    lower_is_better: bool = False
    notes: tuple[str, ...] = ()  # what of the source is not in it

    def __post_init__(self) -> None:
        lengths = {len(self.head), len(self.relation), len(self.tail), len(self.weight)}
        if self.columns is not None:
            lengths.add(len(self.columns))
        if len(lengths) != 1:
            raise FocuseError(f"{self.source}: columns of different lengths: {sorted(lengths)}")
        self.entities.beside, self.relations.beside = ("relation", self.relations), ("entity", self.entities)

    def __len__(self) -> int:
        return len(self.head)

    def __repr__(self) -> str:
        return (
            f"Graph({self.source}: {counted(len(self), 'edges')}, {counted(len(self.entities), 'entities')}, "
            f"{counted(len(self.relations), 'relations')})"
        )

    @cached_property
    def keys(self) -> npt.NDArray[np.int64]:
        """One number for each distinct (head, relation, tail), equal for repeats; int64 [n]."""
        return self.keys_of(self.head, self.relation, self.tail)

    def keys_of(self, head: Ids, relation: Ids, tail: Ids) -> npt.NDArray[np.int64]:
        """The keys of other triples over the same vocabularies; int64 [n]."""
        entities, relations = max(len(self.entities), 1), max(len(self.relations), 1)
        if entities * entities * relations >= 2**63:
            raise FocuseError(f"{self.source}: {entities:,} entities × {relations:,} relations exceed 64-bit keys")
        return (head.astype(np.int64) * relations + relation) * entities + tail

    @property
    def repeated(self) -> int:
        """How many rows repeat the (head, relation, tail) of an earlier row."""
        return len(self) - len(np.unique(self.keys))

    def select(self, rows: npt.NDArray[Any]) -> Graph:
        """The same vocabularies with only `rows` (indices or a mask): `graph.select(graph.weight > 0.5)`."""
        return replace(
            self,
            head=self.head[rows],
            relation=self.relation[rows],
            tail=self.tail[rows],
            weight=self.weight[rows],
            columns=None if self.columns is None else self.columns.take(rows),
        )

    def column(self, name: str) -> Graph:
        """The graph whose weight is one of its columns, in the user's units; edges that lack it are left out.

        >>> from focuse.graph import read
        >>> both = read([("a", "r", "b", 0.9, None), ("a", "r", "c", 0.2, 30)])
        >>> both.columns.names, both.column("w2").weight.tolist()
        (('w1', 'w2'), [30.0])
        """
        if self.columns is None:
            raise FocuseError(f"{self.source}: no weight column {name!r}; it has one weight an edge, without a name")
        values = self.columns.values[:, self.columns.place(name)]
        lower = name in self.columns.lower
        alone = replace(self, weight=values, columns=None, lower_is_better=lower, weighted=True)
        return alone.select(~np.isnan(values))

    def directed(self, lower: Iterable[str] | bool) -> Graph:
        """The same graph with small numbers as the strong ones: of all columns (True) or of those called `lower`."""
        if isinstance(lower, bool):
            names = (self.columns.names if self.columns is not None else ()) if lower else ()
        else:
            names = tuple(lower)
        if self.columns is not None:
            columns = replace(self.columns, lower=frozenset(names))
            return replace(self, columns=columns, weight=columns.provisional())
        if names:
            raise FocuseError(
                f"{self.source}: it has one weight an edge, without a name; lower_is_better is all or none"
            )
        return replace(self, lower_is_better=bool(lower))

    def merge_repeated(self, policy: str) -> Graph:
        """Repeated (head, relation, tail) made one row by `policy`: keep (all rows), max, mean or last.

        max keeps the strongest number: the smallest, where lower is better. Missing ones are passed over.
        """
        choose("policy for repeated triples", policy, DUPLICATE_POLICIES)
        if policy == "keep":
            return self
        _, first, group = np.unique(self.keys, return_index=True, return_inverse=True)
        merged = merge_groups(self.weight, group, len(first), policy, self.lower_is_better)
        columns = self.columns
        if columns is not None:
            each = zip(columns.names, columns.values.T, strict=True)
            values = [merge_groups(one, group, len(first), policy, name in columns.lower) for name, one in each]
            columns = replace(columns, values=np.stack(values, axis=1))
        order = np.argsort(first)
        kept = replace(self, columns=None).select(first[order])
        return replace(kept, weight=merged[order], columns=None if columns is None else columns.take(order))

    def align(self, vocabulary_of: Graph) -> Aligned:
        """This graph in the ids of another one (train); rows with names unknown there are set apart."""
        entity = vocabulary_of.entities.ids(self.entities.column)
        relation = vocabulary_of.relations.ids(self.relations.column)
        head, kind, tail = entity[self.head], relation[self.relation], entity[self.tail]
        known = (head >= 0) & (kind >= 0) & (tail >= 0)
        graph = replace(
            self,
            head=head[known],
            relation=kind[known],
            tail=tail[known],
            weight=self.weight[known],
            entities=vocabulary_of.entities,
            relations=vocabulary_of.relations,
            columns=None if self.columns is None else self.columns.take(known),
            lower_is_better=vocabulary_of.lower_is_better,
        )
        return Aligned(graph, self._unseen(~known, entity < 0, relation < 0))

    def _unseen(
        self, rows: npt.NDArray[np.bool_], entity: npt.NDArray[np.bool_], relation: npt.NDArray[np.bool_]
    ) -> Unseen:
        """What the left-out rows name that is unknown: masks over rows [n], entities [E] and relations [R]."""
        entities = np.unique(np.concatenate([self.head[rows], self.tail[rows]]))
        relations = np.unique(self.relation[rows])
        entities, relations = entities[entity[entities]], relations[relation[relations]]
        return Unseen(
            int(rows.sum()),
            len(entities),
            len(relations),
            self.entities.take(entities[:EXAMPLES]).to_pylist(),
            self.relations.take(relations[:EXAMPLES]).to_pylist(),
        )

    # ---- out to other forms -------------------------------------------------------------------------------------

    def to_arrow(self) -> pa.Table:
        """A table with the columns head, relation, tail, weight and names instead of ids.

        Several weights are one column each, by their names, null where one is missing.
        """
        names = {
            "head": self.entities.take(self.head),
            "relation": self.relations.take(self.relation),
            "tail": self.entities.take(self.tail),
        }
        return pa.table({**names, **self.numbers()})

    def numbers(self) -> dict[str, pa.Array]:
        """Each weight column by its heading."""
        if self.columns is None:
            return {"weight": pa.array(self.weight)}
        taken = sorted({"head", "relation", "tail"} & set(self.columns.names))
        if taken:
            raise FocuseError(f"{self.source}: a weight column is called {taken[0]!r}, as one of names is; rename it")
        values = np.ascontiguousarray(self.columns.values.T)
        return {
            name: pa.array(column, mask=np.isnan(column))
            for name, column in zip(self.columns.names, values, strict=True)
        }

    def to_pandas(self) -> pandas.DataFrame:
        """A frame with the columns head, relation, tail and weight, or each weight by its heading."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """As `to_pandas`, in polars."""
        import polars

        return polars.from_arrow(self.to_arrow())

    def to_networkx(self) -> networkx.MultiDiGraph:
        """A directed multigraph: an edge's key is a running number, its data `relation` and `weight`.

        Several weights stand there by their names; missing ones are left out.
        """
        import networkx

        graph = networkx.MultiDiGraph()
        graph.add_nodes_from(self.entities)
        table = self.to_arrow().to_pydict()
        heads, tails = table.pop("head"), table.pop("tail")
        rows = zip(*table.values(), strict=True)
        graph.add_edges_from(
            (head, tail, {key: value for key, value in zip(table, row, strict=True) if value is not None})
            for head, tail, row in zip(heads, tails, rows, strict=True)
        )
        return graph

    def write(self, path: str | Path, base: str = BASE) -> None:
        """Write to .tsv, .csv, .parquet, RDF (.nt, .nq, .ttl, .trig) or .graphml, whole or not at all.

        Text also as .gz or .zst. In RDF, names that are no IRIs are minted from `base`.
        """
        from focuse.graph.writing import write

        write(self, Path(path), base)


@dataclass(frozen=True)
class Unseen:
    """How many rows were left out for names that train has never seen, and a few of those names."""

    rows: int = 0
    entities: int = 0
    relations: int = 0
    entity_examples: list[str] = field(default_factory=list)
    relation_examples: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Aligned:
    """A graph in another one's ids, and what of it that other one has never seen."""

    graph: Graph
    unseen: Unseen = Unseen()

    def __str__(self) -> str:
        """One line on the rows left out, empty if there are none."""
        unseen = self.unseen
        if not unseen.rows:
            return ""
        parts = []
        for kind, count, names in (
            ("entities", unseen.entities, unseen.entity_examples),
            ("relations", unseen.relations, unseen.relation_examples),
        ):
            if count:
                shown = ", ".join(repr(name) for name in names[:3])
                parts.append(f"{counted(count, kind)} ({shown}{', …' if count > 3 else ''})")
        return (
            f"{self.graph.source}: {unseen.rows:,} of {unseen.rows + len(self.graph):,} rows name "
            f"{' and '.join(parts)} not in train; they have no embedding and are left out of the figures"
        )


def from_columns(
    head: Iterable[str] | pa.Array,
    relation: Iterable[str] | pa.Array,
    tail: Iterable[str] | pa.Array,
    weight: npt.ArrayLike | None = None,
    source: str = "graph",
    columns: Columns | None = None,
) -> Graph:
    """Encode columns of names. Entities are numbered in order of appearance, heads first.

    With `columns` of several weights, `weight` is left out.
    """
    heads, kinds, tails = (_encoded(column) for column in (head, relation, tail))
    # Heads and tails in one go: every name that a block knows is looked up once, and the ids need no second pass.
    ids, entities = unified(heads + tails)
    kind_ids, relations = unified(kinds)
    edges = sum(map(len, heads))
    if columns is not None:
        weight = columns.provisional()
    numbers = np.ones(edges) if weight is None else np.asarray(weight, dtype=np.float64)
    weighted = weight is not None
    return Graph(ids[:edges], kind_ids, ids[edges:], numbers, entities, relations, source, weighted, columns)


def _encoded(column: Iterable[str] | pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    """One column as blocks with a dictionary each, plain or already encoded as it comes."""
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        column = pa.array(list(column), pa.string())
    blocks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if missing := sum(block.null_count for block in blocks):
        raise FocuseError(f"a column of names has {missing} missing values; give every edge its names")
    kind = pa.dictionary(pa.int32(), pa.string())
    plain = not pa.types.is_dictionary(column.type)
    return [(block.dictionary_encode() if plain else block).cast(kind) for block in blocks if len(block)]


def unified(blocks: list[pa.Array]) -> tuple[Ids, Vocabulary]:
    """Ids [n] and the distinct names of blocks that have a dictionary each."""
    if not blocks:
        return np.empty(0, np.int32), Vocabulary([])
    unified = pa.chunked_array(blocks).unify_dictionaries()
    return join([block.indices for block in unified.chunks]), Vocabulary(unified.chunk(0).dictionary)


def join(blocks: Iterable[pa.Array]) -> npt.NDArray[Any]:
    """Numbers in blocks, without gaps, as one array [n]."""
    # Not by Array.to_numpy, which first loads all of pandas.
    return np.concatenate([np.from_dlpack(block) for block in blocks])
