"""Statistics of a graph, and leakage from train to test, with the text that `focuse describe` prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.data.graph import Graph, Mask, UnseenNames, find_sorted, scale_range
from focuse.data.out_of_core import CHUNK_EDGES
from focuse.data.readers import read
from focuse.data.undirected import resolve_undirected
from focuse.data.weight_check import Finding, check_weights
from focuse.data.weights import fit_merger, heavy_tails, log_offsets, to_log
from focuse.errors import FocuseError, counted, printable
from focuse.results import ResultTable, attribute_columns
from focuse.system import chunks

HISTOGRAM_BINS = 10
SHADES = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class RelationStatistics:
    """The number of edges of a relation and the distribution of their weights.

    `histogram` has ten equal bins: of the weights, or of their logarithms if they have a heavy tail.
    """

    name: str
    edges: int
    heads: int
    tails: int
    weight_min: float
    weight_median: float
    weight_mean: float
    weight_max: float
    histogram: list[int]
    heavy_tailed: bool


@dataclass(frozen=True)
class ColumnStatistics:
    """One of several weight columns: its range, the fraction of edges without it, and its importance in training.

    `explained` is the fraction of its variance that the graph's structure explains.
    """

    name: str
    weight_min: float
    weight_mean: float
    weight_max: float
    missing: float
    explained: float
    importance: float


@dataclass(frozen=True)
class Leakage:
    """The numbers of rows of a held-out graph that can be looked up in train."""

    rows: int
    unseen: UnseenNames
    same_triple: int
    same_triple_and_weight: int
    inverse_edge: int
    inverse_of_same_relation: int
    same_pair_other_relation: int
    neither_duplicate_nor_inverse: int

    def __str__(self) -> str:
        counts = {
            "same (head, relation, tail) in train": self.same_triple,
            "… and the same weight": self.same_triple_and_weight,
            "inverse edge in train": self.inverse_edge,
            "… of the same relation": self.inverse_of_same_relation,
            "same pair, other relation": self.same_pair_other_relation,
            "not leaked": self.neither_duplicate_nor_inverse,
            "with names that are not in train": self.unseen.rows,
        }
        lines = [counted(self.rows, "rows")]
        lines += [f"  {what:38} {rows:,} ({rows / max(self.rows, 1):.1%})" for what, rows in counts.items()]
        names = self.unseen.entity_examples + self.unseen.relation_examples
        return "\n".join([*lines, *([f"  for example {', '.join(map(repr, names[:5]))}"] if names else [])])


@dataclass(frozen=True)
class GraphStatistics:
    """The statistics of a graph; `leakage` has one entry per held-out graph, by name.

    `weight_findings` say what the distribution of the weights means for training.
    """

    source: str
    first_edge: list[str]
    edges: int
    entities: int
    relations: int
    weighted: bool
    weight_min: float
    weight_mean: float
    weight_max: float
    all_weights_equal: bool
    repeated_rows: int
    repeated_triples: int
    repeated_with_other_weight: int
    self_loops: int
    rows_with_inverse: int
    rows_with_same_relation_inverse: int
    per_relation: list[RelationStatistics]
    leakage: dict[str, Leakage] = field(default_factory=dict)
    columns: list[ColumnStatistics] = field(default_factory=list)
    weight_findings: list[Finding] = field(default_factory=list)
    undirected: list[str] = field(default_factory=list)  # relations
    undirected_note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return all statistics as JSON can hold them."""
        return asdict(self)

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, max_relations: int = 20) -> str:
        """Return the statistics as text, with a table of the largest relations."""
        table = ResultTable(
            {
                "relation": [row.name for row in self.per_relation],
                **attribute_columns(self.per_relation, "edges", "heads", "tails"),
                **attribute_columns(self.per_relation, "min", "median", "mean", "max", prefix="weight_"),
                "weights": [f"|{bars(row.histogram)}|{' log' * row.heavy_tailed}" for row in self.per_relation],
            }
        )
        lines = [
            f"{self.source}: {counted(self.edges, 'edges')}, {counted(self.entities, 'entities')}, "
            f"{counted(self.relations, 'relations')}",
            f"first edge: {' | '.join(map(printable, self.first_edge))}",
            self._weights_text(),
            *(f"  {finding}" for finding in self.weight_findings),
            f"repeated triples: {self.repeated_triples:,} ({counted(self.repeated_rows, 'extra rows')}), "
            f"{self.repeated_with_other_weight:,} of them with differing weights"
            f"{'; training keeps all rows unless --duplicates merges them' if self.repeated_rows else ''}",
            f"inverse pairs: {counted(self.rows_with_inverse, 'rows', 'have')} an inverse edge, "
            f"{self.rows_with_same_relation_inverse:,} of the same relation; self loops: {self.self_loops:,}",
            *([self.undirected_note] if self.undirected_note else []),
            "",
            table.to_text(max_relations),
        ]
        for name, found in self.leakage.items():
            lines += ["", f"{name}: {found}"]
        return "\n".join(lines)

    def _weights_text(self) -> str:
        """Return the range of the weights, or of each of several columns with how many edges lack it."""
        if self.columns:
            table = ResultTable(
                {
                    "column": [row.name for row in self.columns],
                    **attribute_columns(self.columns, "min", "mean", "max", prefix="weight_"),
                    **attribute_columns(self.columns, "missing", "explained", "importance"),
                },
                notes=["the following is about the mean of an edge's columns, each scaled to [0, 1]"],
            )
            heading = f"weights: {len(self.columns)} columns; how much of each the graph explains, and its importance"
            return f"{heading}\n{table}"
        if not self.weighted:
            return "weights: none, so that all are 1; training ignores them"
        if self.all_weights_equal:
            return f"weights: all are {self.weight_min:g}; training ignores them"
        return f"weights: {self.weight_min:g} to {self.weight_max:g}, mean {self.weight_mean:.4g}"


def bars(counts: list[int]) -> str:
    """Return counts as a row of small bars.

    >>> bars([0, 1, 4])
    ' ▂█'
    """
    top = max(counts) or 1
    return "".join(SHADES[-(-count * (len(SHADES) - 1) // top)] for count in counts)


def describe(graph: Any, held_out: dict[str, Any] | None = None) -> GraphStatistics:
    """Compute statistics of a graph, and its leakage to each held-out graph; `print` shows them as a table.

    The graphs are any sources that `focuse.read` accepts.

    >>> from focuse.data.readers import read
    >>> train, test = read([("a", "r", "b", 0.9), ("b", "r", "c", 0.2)]), read([("b", "r", "a", 0.8)])
    >>> found = describe(train, {"test": test})
    >>> found.edges, found.weight_max, found.leakage["test"].inverse_edge
    (2, 0.9, 1)
    """
    graph, others = read(graph), {name: read(other) for name, other in (held_out or {}).items()}
    if not len(graph):
        raise FocuseError(f"{graph.source}: no edges to describe")
    # Given parts are not changed by what is recognized.
    as_trained = graph if not others or graph.undirected else replace(graph, undirected=False)
    repeated, (pairs, note) = graph.repeated(), resolve_undirected(as_trained)
    loops = graph.head == graph.tail
    inverse, same_relation_inverse = _inverse_edges(graph, graph)
    return GraphStatistics(
        source=graph.source,
        first_edge=_first_edge(graph),
        edges=len(graph),
        entities=len(graph.entities),
        relations=len(graph.relations),
        weighted=graph.weighted,
        **_range_and_mean(graph.weight),
        all_weights_equal=bool(graph.weight.min() == graph.weight.max()),
        repeated_rows=repeated[0],
        repeated_triples=repeated[1],
        repeated_with_other_weight=repeated[2],
        self_loops=int(loops.sum()),
        rows_with_inverse=int(inverse.sum()),
        rows_with_same_relation_inverse=int(same_relation_inverse.sum()),
        per_relation=_relation_statistics(graph),
        leakage={name: leakage(graph, other) for name, other in others.items()},
        columns=_column_statistics(graph),
        weight_findings=check_weights(graph),
        undirected=list(compress(graph.relations, pairs.is_undirected)),
        undirected_note=note,
    )


def _range_and_mean(weight: npt.NDArray[np.float64]) -> dict[str, float]:
    return {"weight_min": float(weight.min()), "weight_mean": _safe(np.mean, weight), "weight_max": float(weight.max())}


def _safe(average: Callable[[npt.NDArray[np.float64]], Any], weight: npt.NDArray[np.float64]) -> float:
    """Return the mean or median, for which numbers are scaled down if their sum could overflow."""
    scale = 2.0**64 if np.abs(weight).max() > 1e280 else 1.0
    small = weight / scale
    return float(np.clip(average(small), small.min(), small.max()) * scale)


def _column_statistics(graph: Graph) -> list[ColumnStatistics]:
    """Return one entry per weight column if there are several, with the importance that training would learn."""
    if graph.columns is None:
        return []
    merger = fit_merger(graph)
    statistics = []
    for name, explained, importance in zip(graph.columns.names, merger.explained, merger.importance, strict=True):
        weight = graph.column(name).weight
        missing, numbers = 1 - len(weight) / len(graph), _range_and_mean(weight)
        statistics.append(
            ColumnStatistics(name, missing=missing, explained=float(explained), importance=float(importance), **numbers)
        )
    return statistics


def _first_edge(graph: Graph) -> list[str]:
    """Return head, relation, tail and weight of the first row, which shows a header that was read as an edge."""
    names = [graph.entities[graph.head[0]], graph.relations[graph.relation[0]], graph.entities[graph.tail[0]]]
    return [*names, f"{graph.weight[0]:g}"]


def leakage(train: Graph, held_out: Graph) -> Leakage:
    """Count the rows of `held_out` whose triple, inverse edge or pair of entities is in train."""
    aligned = held_out.align(train)
    rows = aligned.graph
    same, pair = np.isin(rows.keys, train.keys), np.isin(_pair_keys(rows), _pair_keys(train))
    inverse, same_relation_inverse = _inverse_edges(train, rows)
    return Leakage(
        rows=len(held_out),
        unseen=aligned.unseen,
        same_triple=int(same.sum()),
        same_triple_and_weight=int(_same_triple_and_weight(train, rows).sum()),
        inverse_edge=int(inverse.sum()),
        inverse_of_same_relation=int(same_relation_inverse.sum()),
        same_pair_other_relation=int((pair & ~same).sum()),
        neither_duplicate_nor_inverse=int((~(same | inverse)).sum()),
    )


REPEATED_ADVICE = "remove them from one of the two"
MIN_LEAKAGE = 0.05  # of the rows, from which leakage is reported with the metrics


def leakage_note(train: Graph, held_out: Graph, name: str = "test") -> str:
    """Return a line on the triples of `held_out` (in train's ids) that train has, or their reverse; '' if few.

    `name` is what the triples are called.
    """
    # Pairs of undirected relations may be related by others, too; the reverse of directed triples may be an inverse.
    same_relation = bool(train.undirected)
    wanted = _pair_keys(held_out, reverse=True)
    if same_relation:
        wanted = held_out.keys_of(held_out.tail, held_out.relation, held_out.head)
    pairs, triples = np.unique(wanted), np.unique(held_out.keys)
    reversed_, repeated = np.zeros(len(pairs), bool), np.zeros(len(triples), bool)
    for part in chunks(len(train), CHUNK_EDGES):  # train may be too large to sort
        keys = train.keys_of(train.head[part], train.relation[part], train.tail[part])
        these_pairs = keys if same_relation else _pair_keys(train, part)
        for known, these, found in ((pairs, these_pairs, reversed_), (triples, keys, repeated)):
            index, rows = find_sorted(known, these)
            found[index[rows]] = True
    no_loop = held_out.head != held_out.tail
    same = repeated[np.searchsorted(triples, held_out.keys)]
    other = reversed_[np.searchsorted(pairs, wanted)] & no_loop
    advice = "give" if same_relation else "train with --undirected if pairs have no direction, or give"
    for rows, words, what in (
        (other, "the reverse of", f"{advice} --valid and --test files with both directions of a pair in one part"),
        (same, "", REPEATED_ADVICE),
    ):
        if rows.any() and rows.sum() >= max(MIN_LEAKAGE * len(held_out), same.sum(), other.sum()):
            shown = f"{words} {rows.sum():,} of {len(held_out):,} {name} triples ({rows.mean():.0%})".strip()
            verb = "is" if words else "are"
            return f"{held_out.source}: leakage: {shown} {verb} in train, so metrics are too good; {what}"
    return ""


def leaked(train: Graph, rows: Graph) -> Mask:
    """Return a mask of the rows that are in train, or whose inverse edge is there with any relation; bool [n].

    `rows` has train's ids, like `run.splits.test`; translate another graph by `graph.align(train).graph`.
    """
    return np.isin(rows.keys, train.keys) | _inverse_edges(train, rows)[0]


def _inverse_edges(train: Graph, rows: Graph) -> tuple[Mask, Mask]:
    """Return masks of the rows whose inverse edge is in train, with any relation and with the same; bool [n] each."""
    no_loop = rows.head != rows.tail
    of_same_relation = np.isin(rows.keys_of(rows.tail, rows.relation, rows.head), train.keys)
    return np.isin(_pair_keys(rows, reverse=True), _pair_keys(train)) & no_loop, of_same_relation & no_loop


def _pair_keys(graph: Graph, rows: slice = slice(None), *, reverse: bool = False) -> npt.NDArray[np.int64]:
    """Return one number per (head, tail), or (tail, head); int64 [n]."""
    first, second = (graph.tail, graph.head) if reverse else (graph.head, graph.tail)
    return first[rows].astype(np.int64) * len(graph.entities) + second[rows]


def _same_triple_and_weight(train: Graph, rows: Graph) -> Mask:
    """Return a mask of the rows that are in train with the same weight, or the same several weights; bool [n]."""
    held_out, known = rows.weight[:, None], train.weight[:, None]
    if train.columns is not None and rows.columns is not None:
        held_out, known = rows.columns.values_of(train.columns.names), train.columns.values
    key = np.unique(np.concatenate([rows.keys, train.keys]), return_inverse=True)[1]
    numbers = np.concatenate([held_out, known])
    table = np.column_stack([key, np.where(np.isnan(numbers), np.inf, numbers)])  # missing weights are equal
    record = np.unique(table, axis=0, return_inverse=True)[1].ravel()
    return np.isin(record[: len(rows)], record[len(rows) :])


def _relation_statistics(graph: Graph) -> list[RelationStatistics]:
    """Return one entry per relation, the largest first."""
    order = np.argsort(graph.relation, kind="stable")
    counts = np.bincount(graph.relation, minlength=len(graph.relations))
    ends = np.cumsum(counts)
    statistics, heavy = [], heavy_tails(graph)
    offset = log_offsets(graph) if heavy.any() else np.zeros(len(counts))
    for relation in np.argsort(-counts, kind="stable"):
        rows = order[ends[relation] - counts[relation] : ends[relation]]
        if len(rows) == 0:
            continue
        weight = graph.weight[rows]
        numbers = _range_and_mean(weight)
        shown = to_log(weight, offset[relation]) if heavy[relation] else weight
        low, high = shown.min(), shown.max()
        unit = scale_range(shown, low, high) if low < high else np.zeros(len(weight))
        bins = np.minimum(unit * HISTOGRAM_BINS, HISTOGRAM_BINS - 1).astype(np.int64)
        statistics.append(
            RelationStatistics(
                name=graph.relations[int(relation)],
                edges=len(rows),
                heads=len(np.unique(graph.head[rows])),
                tails=len(np.unique(graph.tail[rows])),
                weight_median=_safe(np.median, weight),
                heavy_tailed=bool(heavy[relation]),
                histogram=np.bincount(bins, minlength=HISTOGRAM_BINS).tolist(),
                **numbers,
            )
        )
    return statistics
