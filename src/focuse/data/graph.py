"""Weighted graphs: names, ids of heads, relations and tails, and one or several weights per edge.

The module also has the lookup in sorted keys that other packages need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from focuse.errors import FocuseError, counted, did_you_mean, fold_name, nearest, similar_names
from focuse.option_strings import choose
from focuse.system import chunks

if TYPE_CHECKING:
    import pandas


BASE_IRI = "urn:focuse:"  # the prefix of names in RDF that are not IRIs
CHUNK_NAMES = 1 << 20  # names compared at once
MAX_NAMES_LISTED = 12  # an error lists all names of a vocabulary of at most this size


class Vocabulary:
    """An ordered set of names, stored as one Arrow column without a Python object per name.

    >>> skills = Vocabulary(["python", "sql"])
    >>> skills.ids(["sql", "cobol"]).tolist(), skills[0]
    ([1, -1], 'python')
    """

    def __init__(self, names: Iterable[str] | pa.Array) -> None:
        self.column: pa.Array = names if isinstance(names, pa.Array) else pa.array(list(names), pa.string())
        # For errors, a graph sets the text "a relation, not an entity" and the relations for entities, and vice versa.
        self.counterpart: tuple[str, Vocabulary] | None = None

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, index: int) -> str:
        return str(self.column[int(index)].as_py())

    def __iter__(self) -> Iterator[str]:
        return iter(self.column.to_pylist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and bool(self.column.equals(other.column))

    __hash__ = None  # type: ignore[assignment]

    def ids(self, names: Sequence[str] | pa.Array) -> npt.NDArray[np.int32]:
        """Return the id of each name, int32 [n]; −1 for unknown names."""
        column = names if isinstance(names, pa.Array) else pa.array(names, pa.string())
        indices = pc.index_in(column, value_set=self.column)
        result: npt.NDArray[np.int32] = pc.fill_null(indices, -1).to_numpy(zero_copy_only=False).astype(np.int32)
        return result

    def find(self, name: str) -> int:
        """Return the id of one name, −1 if it is unknown, by one scan instead of the hash table of `ids`."""
        try:
            return int(pc.index(self.column, pa.scalar(name, self.column.type)).as_py())
        except UnicodeEncodeError:  # bytes from a shell that are not text
            return -1

    def id(self, name: str, kind: str = "name", otherwise: str = "") -> int:
        """Return the id of one name; an unknown name raises an error that suggests similar ones.

        `kind` is the kind of name in the error, such as "entity", and `otherwise` the advice for a name of the other
        kind, such as "give it as the relation".
        """
        if not isinstance(name, str):
            close = self.nearest(str(name), 1) or ([str(name)] if self.find(str(name)) >= 0 else [])
            raise FocuseError(f"{kind} {name!r}: give its name as text{f', such as {close[0]!r}' if close else ''}")
        index = self.find(name)
        if index < 0:
            raise FocuseError(f"the graph has no {kind} {name!r}{self._advice(name, otherwise)}")
        return index

    def nearest(self, name: str, limit: int = 3) -> list[str]:
        """Return at most `limit` names that are similar to a mistyped one, the most similar first.

        >>> Vocabulary(["Python", "SQL", "café"]).nearest("pyhton"), Vocabulary(["café"]).nearest("CAFE")
        (['Python'], ['café'])
        """
        found: list[str] = []
        if name.isdecimal():  # ids of two kinds are kept apart as 'user 1' and 'artist 1'
            found = self.column.filter(pc.ends_with(self.column, f" {name}"))[:limit].to_pylist()
        if found:
            return found
        for chunk in chunks(len(self), CHUNK_NAMES):  # names become Python objects only for a moment
            found += similar_names(name, self.column[chunk].to_pylist(), limit)
        return similar_names(name, found, limit)

    def _advice(self, name: str, otherwise: str) -> str:
        """Return a suggestion: a name of the other kind, similar names, or all names if there are few."""
        similar = self.nearest(name)
        if self.counterpart is not None and not (similar and fold_name(similar[0]) == fold_name(name)):
            kinds, other_names = self.counterpart
            same = [other for other in other_names.nearest(name, 1) if fold_name(other) == fold_name(name)]
            if same:
                subject = "that is" if same[0] == name else f"{same[0]!r} is"
                return f": {subject} {kinds}{f'; {otherwise}' if otherwise else ''}"
        few = 0 < len(self) <= MAX_NAMES_LISTED
        return did_you_mean(similar) or (f"; it has {', '.join(self)}" if few else "")

    def take(self, ids: npt.NDArray[Any]) -> pa.Array:
        """Return the names of `ids` as an Arrow column [n]."""
        return self.column.take(pa.array(ids))

    def write(self, path: Path) -> None:
        """Write the names as one Parquet column, which any tool can open."""
        pq.write_table(pa.table({"name": self.column}), path, compression="zstd")

    @classmethod
    def read(cls, path: Path) -> Vocabulary:
        """Read a file that `write` wrote; raise ValueError if it does not hold names."""
        column = pq.read_table(path)["name"].combine_chunks()
        if not pa.types.is_string(column.type) or column.null_count:
            raise ValueError(f"names have the type {column.type}, or some are missing")
        column.validate(full=True)  # also checks that names are UTF-8
        return cls(column)


ColumnValues = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
NEUTRAL_WEIGHT = 0.5  # the weight of an edge that has numbers only in columns of importance 0
ALL_WEIGHTS_MISSING = "all its weights are missing; give it at least one or remove the line"


@dataclass(frozen=True, eq=False)
class WeightColumns:
    """Several weights per edge.

    `values` is float64 [n, C] in the user's units; a missing weight is NaN. In the columns of `lower_is_better`, small
    numbers mean strong edges.

    >>> both = WeightColumns(("confidence", "age"), np.array([[0.9, np.nan], [0.2, 30.0]]), frozenset({"age"}))
    >>> both.present.tolist()
    [[True, False], [True, True]]
    """

    names: tuple[str, ...]
    values: ColumnValues
    lower_is_better: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise FocuseError(f"weight columns {', '.join(self.names)}: a name occurs twice; give each column its own")
        unknown = sorted(self.lower_is_better - set(self.names))
        if unknown:
            raise self._unknown(unknown[0])

    def __len__(self) -> int:
        return len(self.values)

    @property
    def present(self) -> Mask:
        """A mask of the weights that are not missing; bool [n, C]."""
        return ~np.isnan(self.values)

    def take(self, rows: npt.NDArray[Any]) -> WeightColumns:
        """Return the columns of the given rows (indices or a mask)."""
        return replace(self, values=self.values[rows])

    def index(self, name: str) -> int:
        """Return the index of the column `name`; an unknown name raises an error that suggests similar ones."""
        if name not in self.names:
            raise self._unknown(name)
        return self.names.index(name)

    def _unknown(self, name: str) -> FocuseError:
        return FocuseError(f"no weight column {name!r}{nearest(name, self.names)}: there are {', '.join(self.names)}")

    def values_of(self, names: Sequence[str]) -> ColumnValues:
        """Return the columns `names` in that order, float64 [n, C]; a column that is missing here is all NaN."""
        missing = np.full(len(self), np.nan)
        by_name = {name: self.values[:, index] for index, name in enumerate(self.names)}
        return np.stack([by_name.get(name, missing) for name in names], axis=1)

    def provisional_weight(self) -> ColumnValues:
        """Return one weight per edge [n] before importances are learned: the mean of the columns scaled to [0, 1]."""
        scaled = np.zeros(self.values.shape)
        for index, name in enumerate(self.names):
            column = self.values[:, index]
            present = ~np.isnan(column)
            if present.any():
                low, high = column[present].min(), column[present].max()
                unit = scale_range(column[present], low, high)
                scaled[present, index] = 1 - unit if name in self.lower_is_better and low < high else unit
        return combine_columns(scaled, self.present, np.ones(len(self.names)))


def scale_range(values: ColumnValues, low: npt.ArrayLike, high: npt.ArrayLike) -> ColumnValues:
    """Map values [n] linearly from `low` … `high` to 0 … 1; others are clipped, and all are 1 if the range is empty.

    >>> scale_range(np.array([2.0, 3.0, 9.0]), 2.0, 4.0).tolist()
    [0.0, 0.5, 1.0]
    """
    low, high = np.asarray(low), np.asarray(high)
    span = high / 2 - low / 2  # halved, because the span of numbers near ±1e308 would overflow
    return np.divide(np.clip(values, low, high) / 2 - low / 2, span, out=np.ones(len(values)), where=span > 0)


def combine_columns(unit_weights: ColumnValues, present: Mask, importance: ColumnValues) -> ColumnValues:
    """Combine the columns of each edge [B, C] into one weight in [0, 1], the mean weighted by importance [C] or [B, C].

    Columns that are not `present` do not count. An edge without a column of importance above 0 gets NEUTRAL_WEIGHT.

    >>> unit_weights, present = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[True, True], [False, True]])
    >>> combine_columns(unit_weights, present, np.array([3.0, 1.0])).tolist()
    [0.75, 0.0]
    """
    factor = np.where(present, importance, 0.0)
    total = factor.sum(axis=1)
    weighted_sum = (factor * np.where(present, unit_weights, 0.0)).sum(axis=1)
    mean: ColumnValues = np.divide(weighted_sum, total, out=np.full(len(unit_weights), NEUTRAL_WEIGHT), where=total > 0)
    return np.clip(mean, 0.0, 1.0)


def aggregate_groups(
    values: ColumnValues, group: npt.NDArray[np.intp], groups: int, policy: str, lower_is_better: bool
) -> ColumnValues:
    """Reduce the values [n] of each group to one by `policy`, which `Graph.merge_repeated` describes; float64 [groups].

    NaN values are ignored, and a group without other values is NaN. The strongest value is the smallest if
    `lower_is_better`.
    """
    present = ~np.isnan(values)
    values, group = values[present], group[present]
    count = np.bincount(group, minlength=groups)
    merged: ColumnValues
    if policy == "mean":
        # Values are divided before they are added, because sums of numbers near 1e308 would overflow.
        merged = np.asarray(np.bincount(group, weights=values / count[group], minlength=groups), np.float64)
    elif policy == "max":
        merged = np.full(groups, np.inf if lower_is_better else -np.inf)
        (np.minimum if lower_is_better else np.maximum).at(merged, group, values)
    elif policy == "sum":
        merged = np.asarray(np.bincount(group, weights=values, minlength=groups), np.float64)
    elif policy == "noisy-or":
        with np.errstate(divide="ignore"):  # a probability of 1 decides
            merged = -np.expm1(np.bincount(group, weights=np.log1p(-values), minlength=groups))
        single = count[group] == 1
        merged[group[single]] = values[single]  # without rounding
    else:
        merged = np.empty(groups)
        merged[group] = values  # NumPy keeps the last value written to an index
    merged[count == 0] = np.nan
    return merged


Side = Literal["head", "tail"]  # the side of a triple that is predicted or replaced
Ids = npt.NDArray[np.int32]
Weights = npt.NDArray[np.float64]
EDGE_COLUMNS = ("head", "relation", "tail", "weight")
DUPLICATE_POLICIES = ("keep", "max", "mean", "sum", "last", "noisy-or")
MAX_UNSEEN_EXAMPLES = 20


@dataclass(frozen=True, eq=False)
class Graph:
    """Edges (head, relation, tail, weight) over named entities and relations.

    Attributes
    ----------
    head, relation, tail : int32 [n]
        Ids in the vocabularies `entities` and `relations`.
    weight : float64 [n]
        Weights in the user's own units, or in [0, 1] if they combine several `columns`.
    weighted : bool
        False if the source had no weights, so that every weight is 1.
    columns : WeightColumns or None
        The weights of edges that have several.
    lower_is_better : bool
        True if small weights mean strong edges. `columns` states it per column.
    notes : tuple of str
        Notes on how the source was read and what was left out, one line each.
    weight_name : str
        The heading of the weight column, or '' if it has none.
    one_relation : bool
        True if the source had no relations, so that all edges have a single one with a default name.
    undirected : bool, ids of relations, or None
        Whether each pair of entities is one fact: in all relations (True) or in some; None if that is not known yet.
        Prepared graphs have ids, and both directions of these relations are edges; see `focuse.data.undirected`.

    >>> from focuse.data.readers import read
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
    columns: WeightColumns | None = None
    lower_is_better: bool = False
    notes: tuple[str, ...] = ()
    weight_name: str = ""
    one_relation: bool = False
    undirected: bool | tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        lengths = {len(self.head), len(self.relation), len(self.tail), len(self.weight)}
        if self.columns is not None:
            lengths.add(len(self.columns))
        if len(lengths) != 1:
            raise FocuseError(f"{self.source}: columns of different lengths: {sorted(lengths)}")
        self.entities.counterpart = ("a relation, not an entity", self.relations)
        self.relations.counterpart = ("an entity, not a relation", self.entities)

    def __len__(self) -> int:
        return len(self.head)

    def __repr__(self) -> str:
        return (
            f"Graph({self.source}: {counted(len(self), 'edges')}, {counted(len(self.entities), 'entities')}, "
            f"{counted(len(self.relations), 'relations')})"
        )

    @cached_property
    def keys(self) -> npt.NDArray[np.int64]:
        """One number per (head, relation, tail), which is equal for repeated triples; int64 [n]."""
        return self.keys_of(self.head, self.relation, self.tail)

    def keys_of(self, head: Ids, relation: Ids, tail: Ids) -> npt.NDArray[np.int64]:
        """Return the keys of other triples over the same vocabularies; int64 [n]."""
        entities, relations = max(len(self.entities), 1), max(len(self.relations), 1)
        if entities * entities * relations >= 2**63:
            raise FocuseError(f"{self.source}: {entities:,} entities × {relations:,} relations exceed 64-bit keys")
        return (head.astype(np.int64) * relations + relation) * entities + tail

    @property
    def is_undirected(self) -> Mask:
        """Whether each relation is undirected; bool [R]."""
        mask = np.full(len(self.relations), self.undirected is True)
        if isinstance(self.undirected, tuple):
            mask[list(self.undirected)] = True
        return mask

    @cached_property
    def pair_keys(self) -> npt.NDArray[np.int64]:
        """The same as `keys`, but equal for both directions of a pair of an undirected relation; int64 [n]."""
        return self.pair_keys_of(self.head, self.relation, self.tail) if self.undirected else self.keys

    def pair_keys_of(self, head: Ids, relation: Ids, tail: Ids) -> npt.NDArray[np.int64]:
        """Return the pair keys of other triples over the same vocabularies; int64 [n]."""
        return self.keys_of(*self.ordered(head, relation, tail))

    def ordered(self, head: Ids, relation: Ids, tail: Ids) -> tuple[Ids, Ids, Ids]:
        """Return triples [n] with the smaller id as the head if the relation is undirected."""
        if not self.undirected:
            return head, relation, tail
        swap = self.is_undirected[relation] & (head > tail)
        return np.where(swap, tail, head), relation, np.where(swap, head, tail)

    @property
    def num_repeated(self) -> int:
        """The number of rows that repeat the (head, relation, tail) of an earlier row."""
        return len(self) - len(np.unique(self.keys))

    def repeated(self) -> tuple[int, int, int]:
        """Count the rows that repeat an earlier one, the triples with several rows, and those of differing weights."""
        order = np.argsort(self.keys, kind="stable")
        start = np.flatnonzero(np.diff(self.keys[order], prepend=-1))
        if not len(start):
            return 0, 0, 0
        weight = self.weight[order]
        low, high = np.minimum.reduceat(weight, start), np.maximum.reduceat(weight, start)
        several = np.diff(start, append=len(order)) > 1
        return len(self) - len(start), int(several.sum()), int((low < high).sum())

    def select(self, rows: npt.NDArray[Any]) -> Graph:
        """Return the graph of the given rows (indices or a mask) over the same vocabularies.

        Example: `graph.select(graph.weight > 0.5)`.
        """
        edges: dict[str, Any] = {name: getattr(self, name)[rows] for name in EDGE_COLUMNS}
        return replace(self, **edges, columns=None if self.columns is None else self.columns.take(rows))

    def column(self, name: str) -> Graph:
        """Return the graph weighted by one of its columns, in the user's units, without the edges that lack it.

        >>> from focuse.data.readers import read
        >>> both = read([("a", "r", "b", 0.9, None), ("a", "r", "c", 0.2, 30)])
        >>> both.columns.names, both.column("w2").weight.tolist()
        (('w1', 'w2'), [30.0])
        """
        if self.columns is None:
            raise FocuseError(f"{self.source}: no weight column {name!r}; each edge has a single weight without a name")
        values = self.columns.values[:, self.columns.index(name)]
        lower_is_better = name in self.columns.lower_is_better
        single = replace(self, weight=values, columns=None, lower_is_better=lower_is_better, weighted=True)
        return single.select(~np.isnan(values))

    def with_lower_is_better(self, lower_is_better: Iterable[str] | bool) -> Graph:
        """Return the same graph with small weights as the strong ones: in all columns (True) or in the named ones."""
        if self.columns is not None:
            every = self.columns.names if lower_is_better is True else ()
            names = every if isinstance(lower_is_better, bool) else lower_is_better
            columns = replace(self.columns, lower_is_better=frozenset(names))
            return replace(self, columns=columns, weight=columns.provisional_weight())
        if not isinstance(lower_is_better, bool) and tuple(lower_is_better):
            raise FocuseError(
                f"{self.source}: its single weight per edge has no name; give True or False as lower_is_better"
            )
        return replace(self, lower_is_better=lower_is_better is True)

    def merge_repeated(self, policy: str) -> Graph:
        """Merge rows that repeat a (head, relation, tail) into one.

        The `policy` is 'keep' (all rows), 'max', 'mean', 'sum', 'last' or 'noisy-or'. max keeps the strongest weight,
        which is the smallest if lower is better. noisy-or takes weights as probabilities of independent evidence:
        1 − ∏(1 − w). Missing weights are ignored.

        >>> from focuse.data.readers import read
        >>> twice = read([("a", "r", "b", 0.5), ("a", "r", "b", 0.8)])
        >>> [round(float(twice.merge_repeated(policy).weight[0]), 6) for policy in ("mean", "sum", "noisy-or")]
        [0.65, 1.3, 0.9]
        """
        choose("policy for repeated triples", policy, DUPLICATE_POLICIES)
        if policy == "keep":
            return self
        if policy == "noisy-or":
            self._check_probabilities()
        _, first, group = np.unique(self.keys, return_index=True, return_inverse=True)
        if policy == "last" and self.undirected:  # both directions of a pair take the weight of its last row
            return self._with_last_of_pairs().select(np.sort(first))
        merged = aggregate_groups(self.weight, group, len(first), policy, self.lower_is_better)
        if not np.isfinite(merged).all():
            raise FocuseError(f"{self.source}: the sum of a triple's weights is too large; use 'max' or 'mean'")
        columns = self.columns
        if columns is not None:
            values = [
                aggregate_groups(column, group, len(first), policy, name in columns.lower_is_better)
                for name, column in zip(columns.names, columns.values.T, strict=True)
            ]
            columns = replace(columns, values=np.stack(values, axis=1))
        order = np.argsort(first)
        kept = replace(self, columns=None).select(first[order])
        return replace(kept, weight=merged[order], columns=None if columns is None else columns.take(order))

    def _with_last_of_pairs(self) -> Graph:
        """Return the graph with the weight of the last row of its pair, or of its triple if directed, in every row."""
        pair = np.unique(self.pair_keys, return_inverse=True)[1]
        last = np.empty(pair.max() + 1, np.int64)
        last[pair] = np.arange(len(pair))  # NumPy keeps the last value written to an index
        columns = None if self.columns is None else self.columns.take(last[pair])
        return replace(self, weight=self.weight[last[pair]], columns=columns)

    def _check_probabilities(self) -> None:
        """Raise FocuseError unless every weight is in [0, 1], and high ones are the strong ones."""
        values = self.weight if self.columns is None else self.columns.values
        low, high = (float(bound(values)) if values.size else 0.0 for bound in (np.nanmin, np.nanmax))
        lower = self.lower_is_better or (self.columns is not None and bool(self.columns.lower_is_better))
        if lower or low < 0 or high > 1:
            found = "low ones are the strong ones" if lower else f"they reach from {low:.10g} to {high:.10g}"
            raise FocuseError(
                f"{self.source}: 'noisy-or' combines weights that are probabilities in [0, 1], but {found}; merge "
                "repeated triples by 'max', 'mean', 'sum' or 'last'"
            )

    def with_relation_of(self, other: Graph) -> Graph:
        """Return a graph without relations (`one_relation`) with the only relation of another graph.

        >>> from focuse.data.readers import read
        >>> friends = read([("a", "b", 0.5)], relation_name="friend")
        >>> read([("b", "c", 0.7)]).with_relation_of(friends).relations[0]
        'friend'
        """
        if not self.one_relation or not len(self):
            return self
        if len(other.relations) != 1:
            raise FocuseError(
                f"{self.source}: read without relations, but {other.source} has {len(other.relations):,}; name the "
                "column of relations (relation), or the relation of all edges (relation_name)"
            )
        return replace(self, relations=other.relations)

    def align(self, train: Graph) -> AlignedGraph:
        """Translate this graph into the ids of another one (train), without the rows whose names are unknown there.

        If train keeps heads and tails apart by words ('user 1' and 'movie 1') and no name is known without them, they
        are added: a small file may not show that its ids name different things.
        """
        head_ids = tail_ids = train.entities.ids(self.entities.column)
        if len(self) and (head_ids < 0).all() and (kinds := train.kinds()):
            bare = self.entities.column
            head_ids, tail_ids = (train.entities.ids(pc.binary_join_element_wise(kind, bare, " ")) for kind in kinds)
        relation_ids = train.relations.ids(self.with_relation_of(train).relations.column)
        head, relation, tail = head_ids[self.head], relation_ids[self.relation], tail_ids[self.tail]
        known = (head >= 0) & (relation >= 0) & (tail >= 0)
        ids: dict[str, Any] = {"head": head[known], "relation": relation[known], "tail": tail[known]}
        names: dict[str, Any] = {"entities": train.entities, "relations": train.relations}
        names["undirected"] = train.undirected
        graph = replace(self.select(known), **ids, **names, lower_is_better=train.lower_is_better)
        return AlignedGraph(graph, self._unseen_names(~known, (head_ids < 0) & (tail_ids < 0), relation_ids < 0))

    def kinds(self) -> tuple[str, str] | None:
        """Return the words that all names of heads and of tails begin with, such as user and movie; None if none do."""
        words = []
        for ids in (self.head, self.tail):
            names = self.entities.take(np.unique(ids))
            words.append(pc.unique(pc.replace_substring_regex(names, r" \S+$", "")).to_pylist())
        return (words[0][0], words[1][0]) if len(words[0]) == len(words[1]) == 1 and words[0] != words[1] else None

    def _unseen_names(self, rows: Mask, unseen_entity: Mask, unseen_relation: Mask) -> UnseenNames:
        """Report the unknown names of rows that are left out: masks over rows [n], entities [E] and relations [R]."""
        entities = np.unique(np.concatenate([self.head[rows], self.tail[rows]]))
        relations = np.unique(self.relation[rows])
        entities, relations = entities[unseen_entity[entities]], relations[unseen_relation[relations]]
        entity_examples = self.entities.take(entities[:MAX_UNSEEN_EXAMPLES]).to_pylist()
        relation_examples = self.relations.take(relations[:MAX_UNSEEN_EXAMPLES]).to_pylist()
        return UnseenNames(int(rows.sum()), len(entities), len(relations), entity_examples, relation_examples)

    # ---- conversion ---------------------------------------------------------------------------------------------

    def to_arrow(self) -> pa.Table:
        """Return a table with the columns head, relation, tail and weight, with names instead of ids.

        If edges have several weights, each is a column under its name; missing weights are null.
        """
        head, tail = self.entities.take(self.head), self.entities.take(self.tail)
        names = {"head": head, "relation": self.relations.take(self.relation), "tail": tail}
        return pa.table({**names, **self.weights_by_name()})

    def weights_by_name(self) -> dict[str, pa.Array]:
        """Return each weight column under its name."""
        if self.columns is None:
            return {"weight": pa.array(self.weight)}
        for name in ("head", "relation", "tail"):
            if name in self.columns.names:
                raise FocuseError(
                    f"{self.source}: a weight column is called {name!r}, like a column of names; rename it"
                )
        columns = zip(self.columns.names, np.ascontiguousarray(self.columns.values.T), strict=True)
        return {name: pa.array(column, mask=np.isnan(column)) for name, column in columns}

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas frame with the columns of `to_arrow`."""
        return self.to_arrow().to_pandas()

    def write(self, path: str | Path, base_iri: str = BASE_IRI) -> None:
        """Write the graph to a .tsv, .csv, .parquet, RDF (.nt, .nq, .ttl, .trig) or .graphml file.

        Text may be compressed (.gz, .zst). In RDF, a name that is not an IRI is appended to `base_iri`. The file
        appears only when it is complete.
        """
        from focuse.data.writers import write

        write(self, Path(path), base_iri)


@dataclass(frozen=True)
class UnseenNames:
    """The number of rows that were left out because their names are not in train, and examples of those names."""

    rows: int = 0
    entities: int = 0
    relations: int = 0
    entity_examples: list[str] = field(default_factory=list)
    relation_examples: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class AlignedGraph:
    """A graph in the ids of another one (train), and the names of rows that were left out because train lacks them."""

    graph: Graph
    unseen: UnseenNames = UnseenNames()

    def __str__(self) -> str:
        """Return one line on the rows that were left out, or an empty string if there are none."""
        unseen, parts = self.unseen, []
        if not unseen.rows:
            return ""
        entities = "entities", unseen.entities, unseen.entity_examples
        for kind, count, names in (entities, ("relations", unseen.relations, unseen.relation_examples)):
            if count:
                shown = ", ".join(repr(name) for name in names[:3])
                parts.append(f"{counted(count, kind)} ({shown}{', …' if count > 3 else ''})")
        return (
            f"{self.graph.source}: {unseen.rows:,} of {unseen.rows + len(self.graph):,} rows name "
            f"{' and '.join(parts)} not in train; they have no embedding and are left out"
        )


def from_columns(
    head: Iterable[str] | pa.Array,
    relation: Iterable[str] | pa.Array,
    tail: Iterable[str] | pa.Array,
    weight: npt.ArrayLike | None = None,
    source: str = "graph",
    columns: WeightColumns | None = None,
) -> Graph:
    """Encode columns of names as a graph. Entities are numbered in order of appearance, heads first.

    Give `columns` instead of `weight` if edges have several weights.
    """
    head_blocks, relation_blocks, tail_blocks = (dictionary_blocks(column) for column in (head, relation, tail))
    # Heads and tails are unified together, so that every name of a block is looked up once, without a second pass.
    entity_ids, entities = unify_dictionaries(head_blocks + tail_blocks)
    relation_ids, relations = unify_dictionaries(relation_blocks)
    edges = sum(map(len, head_blocks))
    if columns is not None:
        weight = columns.provisional_weight()
    values = np.ones(edges) if weight is None else np.asarray(weight, dtype=np.float64)
    weighted = weight is not None
    return Graph(
        entity_ids[:edges], relation_ids, entity_ids[edges:], values, entities, relations, source, weighted, columns
    )


def dictionary_blocks(column: Iterable[str] | pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    """Return a column of names, encoded or not, as blocks that are dictionary-encoded."""
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        column = pa.array(list(column), pa.string())
    blocks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if missing := sum(block.null_count for block in blocks):
        raise FocuseError(f"a column of names has {missing} missing values; give every edge its names")
    encoded_type = pa.dictionary(pa.int32(), pa.string())
    plain = not pa.types.is_dictionary(column.type)
    return [(block.dictionary_encode() if plain else block).cast(encoded_type) for block in blocks if len(block)]


def unify_dictionaries(blocks: list[pa.Array]) -> tuple[Ids, Vocabulary]:
    """Return the ids [n] and the distinct names of dictionary-encoded blocks."""
    if not blocks:
        return np.empty(0, np.int32), Vocabulary([])
    column = pa.chunked_array(blocks).unify_dictionaries()
    return concatenate_blocks([block.indices for block in column.chunks]), Vocabulary(column.chunk(0).dictionary)


def concatenate_blocks(blocks: Iterable[pa.Array]) -> npt.NDArray[Any]:
    """Return the numbers of Arrow blocks without nulls as one array [n]."""
    # Array.to_numpy is not used, because it imports pandas first.
    return np.concatenate([np.from_dlpack(block) for block in blocks])


def concatenate(graphs: Sequence[Graph]) -> Graph:
    """Concatenate the rows of graphs with the same vocabularies; the result has the source of the first.

    It has weight columns if all graphs have the same ones.
    """
    columns = graphs[0].columns
    merged = None
    if columns is not None:
        others = [graph.columns for graph in graphs if graph.columns is not None]
        if len(others) == len(graphs) and all(other.names == columns.names for other in others):
            merged = replace(columns, values=np.concatenate([other.values for other in others]))
    edges: dict[str, Any] = {name: np.concatenate([getattr(graph, name) for graph in graphs]) for name in EDGE_COLUMNS}
    return replace(graphs[0], **edges, columns=merged)


# ---- lookup in sorted keys ------------------------------------------------------------------------------------------


def find_sorted(keys: npt.NDArray[Any], values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.intp], Mask]:
    """Find values [n] in ascending keys: an index of each [n] (any if it is not among them) and whether it is [n].

    >>> index, found = find_sorted(np.array([2, 5, 9]), np.array([5, 7]))
    >>> index.tolist(), found.tolist()
    ([1, 2], [True, False])
    """
    if not len(keys):
        return np.zeros(len(values), np.intp), np.zeros(len(values), bool)
    index = np.minimum(np.searchsorted(keys, values), len(keys) - 1)
    return index, keys[index] == values


def isin_sorted(values: npt.NDArray[Any], keys: npt.NDArray[Any]) -> Mask:
    """Return a mask of the values that are among ascending keys, bool [n]; np.isin takes ten times as long."""
    return find_sorted(keys, values)[1]


def lookup_sorted(
    keys: npt.NDArray[Any], table: npt.NDArray[Any], values: npt.NDArray[Any], default: npt.ArrayLike
) -> npt.NDArray[Any]:
    """Return the entry of `table` [k] for each value [n], or `default` if it is not among ascending `keys` [k].

    >>> lookup_sorted(np.array([2, 5]), np.array([0.2, 0.5]), np.array([5, 7]), -1.0).tolist()
    [0.5, -1.0]
    """
    if not len(keys):
        return np.broadcast_to(default, len(values)).astype(np.asarray(default).dtype)
    index, found = find_sorted(keys, values)
    return np.where(found, table[index], default)


def find_all_sorted(
    keys: npt.NDArray[Any], values: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Find every occurrence of values [n] in ascending keys with repeats: rows of `values` [m], indices in `keys` [m].

    >>> [found.tolist() for found in find_all_sorted(np.array([2, 5, 5]), np.array([5, 1, 2]))]
    [[0, 0, 2], [1, 2, 0]]
    """
    return ranges_to_indices(np.searchsorted(keys, values, "left"), np.searchsorted(keys, values, "right"))


def ranges_to_indices(
    start: npt.NDArray[np.integer[Any]], stop: npt.NDArray[np.integer[Any]]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """List the numbers of the ranges [start, stop) [n]: the range that each number belongs to [m], and the number [m].

    >>> [column.tolist() for column in ranges_to_indices(np.array([5, 0, 7]), np.array([7, 0, 8]))]
    [[0, 0, 2], [5, 6, 7]]
    """
    count = stop - start
    row = np.repeat(np.arange(len(count)), count)
    begin = np.cumsum(count) - count
    return row, np.arange(len(row)) - np.repeat(begin - start, count)


def triple_columns(names: Graph, head: Any, relation: Any, tail: Any) -> dict[str, pa.Array]:
    """Return the names of triples with these ids [n] as columns."""
    entities = names.entities
    return {"head": entities.take(head), "relation": names.relations.take(relation), "tail": entities.take(tail)}
