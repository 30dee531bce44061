"""What is in a graph, and what leaks from train to test: the facts behind `focuse inspect`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.graph.graph import Graph, Unseen
from focuse.graph.merging import fit_merger

BINS = 10


@dataclass(frozen=True)
class RelationFacts:
    """One relation: its edges and how their weights are spread (`histogram`: ten equal bins from min to max)."""

    name: str
    edges: int
    heads: int
    tails: int
    weight_min: float
    weight_median: float
    weight_mean: float
    weight_max: float
    histogram: list[int]


@dataclass(frozen=True)
class ColumnFacts:
    """One of several weight columns: its range, the share of edges that lack it, and what it would count in training.

    `explained` is the share of its variance that the graph's structure tells.
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
    """How much of a held-out graph can be looked up in train."""

    rows: int
    unseen: Unseen
    same_triple: int
    same_triple_and_weight: int
    inverse_edge: int
    inverse_of_same_relation: int
    same_pair_other_relation: int
    neither_duplicate_nor_inverse: int


@dataclass(frozen=True)
class Audit:
    """Everything `focuse inspect` prints."""

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
    per_relation: list[RelationFacts]
    leakage: dict[str, Leakage] = field(default_factory=dict)
    columns: list[ColumnFacts] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def audit(graph: Graph, held_out: dict[str, Graph] | None = None) -> Audit:
    """Describe a graph, and what of each held-out graph train already gives away.

    >>> from focuse.graph import read
    >>> train, test = read([("a", "r", "b", 0.9), ("b", "r", "c", 0.2)]), read([("b", "r", "a", 0.8)])
    >>> found = audit(train, {"test": test})
    >>> found.edges, found.weight_max, found.leakage["test"].inverse_edge
    (2, 0.9, 1)
    """
    keys, group, count = np.unique(graph.keys, return_inverse=True, return_counts=True)
    low = np.full(len(keys), np.inf)
    high = np.full(len(keys), -np.inf)
    np.minimum.at(low, group, graph.weight)
    np.maximum.at(high, group, graph.weight)
    pairs, reverse = _pairs(graph), _pairs(graph, reverse=True)
    loops = graph.head == graph.tail
    return Audit(
        source=graph.source,
        first_edge=_first_edge(graph),
        edges=len(graph),
        entities=len(graph.entities),
        relations=len(graph.relations),
        weighted=graph.weighted,
        weight_min=float(graph.weight.min()),
        weight_mean=_scaled(np.mean, graph.weight),
        weight_max=float(graph.weight.max()),
        all_weights_equal=bool(graph.weight.min() == graph.weight.max()),
        repeated_rows=len(graph) - len(keys),
        repeated_triples=int((count > 1).sum()),
        repeated_with_other_weight=int((low < high).sum()),
        self_loops=int(loops.sum()),
        rows_with_inverse=int((np.isin(reverse, pairs) & ~loops).sum()),
        rows_with_same_relation_inverse=int(
            (np.isin(graph.keys_of(graph.tail, graph.relation, graph.head), keys) & ~loops).sum()
        ),
        per_relation=_per_relation(graph),
        leakage={name: leakage(graph, other) for name, other in (held_out or {}).items()},
        columns=_columns(graph),
    )


def _columns(graph: Graph) -> list[ColumnFacts]:
    """One entry a weight column where there are several, with the importance that training would learn."""
    if graph.columns is None:
        return []
    merger = fit_merger(graph)
    facts = []
    for place, name in enumerate(graph.columns.names):
        weight = graph.column(name).weight
        facts.append(
            ColumnFacts(
                name=name,
                weight_min=float(weight.min()),
                weight_mean=_scaled(np.mean, weight),
                weight_max=float(weight.max()),
                missing=1 - len(weight) / len(graph),
                explained=float(merger.explained[place]),
                importance=float(merger.importance[place]),
            )
        )
    return facts


def _first_edge(graph: Graph) -> list[str]:
    """Head, relation, tail and weight of the first row: a heading taken for an edge shows here."""
    names = [graph.entities[graph.head[0]], graph.relations[graph.relation[0]], graph.entities[graph.tail[0]]]
    return [*names, f"{graph.weight[0]:g}"]


def leakage(train: Graph, held_out: Graph) -> Leakage:
    """What of `held_out` can be looked up in train: the same triple, the edge back, another relation of the pair."""
    aligned = held_out.align(train)
    rows = aligned.graph
    same = np.isin(rows.keys, train.keys)
    pairs = _pairs(train)
    inverse = np.isin(_pairs(rows, reverse=True), pairs) & (rows.head != rows.tail)
    pair = np.isin(_pairs(rows), pairs)
    return Leakage(
        rows=len(held_out),
        unseen=aligned.unseen,
        same_triple=int(same.sum()),
        same_triple_and_weight=int(_same_with_weight(train, rows).sum()),
        inverse_edge=int(inverse.sum()),
        inverse_of_same_relation=int(
            (np.isin(rows.keys_of(rows.tail, rows.relation, rows.head), train.keys) & (rows.head != rows.tail)).sum()
        ),
        same_pair_other_relation=int((pair & ~same).sum()),
        neither_duplicate_nor_inverse=int((~leaked(train, rows)).sum()),
    )


def leaked(train: Graph, rows: Graph) -> npt.NDArray[np.bool_]:
    """Which rows (in train's ids) stand in train, or have an edge back there by any relation; bool [n].

    `run.splits.test.graph` is in train's ids; another graph comes to them by `graph.align(train).graph`.
    """
    inverse = np.isin(_pairs(rows, reverse=True), _pairs(train)) & (rows.head != rows.tail)
    found: npt.NDArray[np.bool_] = np.isin(rows.keys, train.keys) | inverse
    return found


def _pairs(graph: Graph, reverse: bool = False) -> npt.NDArray[np.int64]:
    """One number for each (head, tail), or (tail, head); int64 [n]."""
    first, second = (graph.tail, graph.head) if reverse else (graph.head, graph.tail)
    return first.astype(np.int64) * len(graph.entities) + second


def _same_with_weight(train: Graph, rows: Graph) -> npt.NDArray[np.bool_]:
    """Rows whose triple and weight (of several, all of them) both stand in train; bool [n]."""
    if train.columns is not None and rows.columns is not None:
        return _same_with_columns(train, rows)
    kind = np.dtype([("key", np.int64), ("weight", np.float64)])
    ours, theirs = np.empty(len(rows), kind), np.empty(len(train), kind)
    ours["key"], ours["weight"] = rows.keys, rows.weight
    theirs["key"], theirs["weight"] = train.keys, train.weight
    return np.isin(ours, theirs)


def _same_with_columns(train: Graph, rows: Graph) -> npt.NDArray[np.bool_]:
    """As above for several weights, what is missing in both being the same."""
    if train.columns is None or rows.columns is None:
        return np.zeros(len(rows), bool)
    key = np.unique(np.concatenate([rows.keys, train.keys]), return_inverse=True)[1]
    numbers = np.concatenate([rows.columns.by_name(train.columns.names), train.columns.values])
    table = np.column_stack([key, np.where(np.isnan(numbers), np.inf, numbers)])
    place = np.unique(table, axis=0, return_inverse=True)[1].ravel()
    return np.isin(place[: len(rows)], place[len(rows) :])


def _scaled(middle: Callable[[npt.NDArray[np.float64]], Any], weight: npt.NDArray[np.float64]) -> float:
    """The mean or median, of numbers scaled down first where their sum could overflow."""
    scale = 2.0**64 if np.abs(weight).max() > 1e280 else 1.0
    small = weight / scale
    return float(np.clip(middle(small), small.min(), small.max()) * scale)


def _per_relation(graph: Graph) -> list[RelationFacts]:
    """One entry a relation, the largest first."""
    order = np.argsort(graph.relation, kind="stable")
    counts = np.bincount(graph.relation, minlength=len(graph.relations))
    ends = np.cumsum(counts)
    facts = []
    for kind in np.argsort(-counts, kind="stable"):
        rows = order[ends[kind] - counts[kind] : ends[kind]]
        if len(rows) == 0:
            continue
        weight = graph.weight[rows]
        low, high = float(weight.min()), float(weight.max())
        # Scaled to [0, 1] first: bins over a tiny or a huge span would not be representable.
        span = high / 2 - low / 2
        share = (weight / 2 - low / 2) / span if span > 0 else np.zeros(len(weight))
        facts.append(
            RelationFacts(
                name=graph.relations[int(kind)],
                edges=len(rows),
                heads=len(np.unique(graph.head[rows])),
                tails=len(np.unique(graph.tail[rows])),
                weight_min=low,
                weight_median=_scaled(np.median, weight),
                weight_mean=_scaled(np.mean, weight),
                weight_max=high,
                histogram=np.bincount(np.minimum(share * BINS, BINS - 1).astype(np.int64), minlength=BINS).tolist(),
            )
        )
    return facts
