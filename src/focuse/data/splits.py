"""Split a graph into train, valid and test: from given graphs, or at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.data import out_of_core
from focuse.data.attributes import NodeAttributes
from focuse.data.graph import AlignedGraph, Graph, UnseenNames
from focuse.data.readers import read
from focuse.data.undirected import resolve_undirected, with_both_directions
from focuse.data.weights import ColumnMerger
from focuse.errors import FocuseError
from focuse.option_strings import check_fraction
from focuse.random_streams import RandomStream

HELD_OUT_FRACTION = 0.1
# This many rows are enough for metrics that are stable to the third digit.
MAX_HELD_OUT = 20_000


@dataclass(frozen=True)
class Splits:
    """The train, valid and test graphs with train's vocabularies; `valid` and `test` may be empty.

    `inferred` are triples that rules infer from train; their weights are confidences in [0, 1]. `known_negatives` are
    triples known to be false, which are never positives; their weights are the strength of evidence, in (0, 1]. The
    `merger` combined the weight columns of edges that have several. `unseen_valid` and `unseen_test` tell the rows that
    were left out because train lacks their names.
    """

    train: Graph
    valid: Graph
    test: Graph
    inferred: Graph | None = None
    known_negatives: Graph | None = None
    merger: ColumnMerger | None = None
    attributes: NodeAttributes | None = None
    unseen_valid: UnseenNames = field(default_factory=UnseenNames)
    unseen_test: UnseenNames = field(default_factory=UnseenNames)

    @property
    def aligned_test(self) -> AlignedGraph:
        """The test graph together with the rows that were left out of it."""
        return AlignedGraph(self.test, self.unseen_test)

    def warnings(self) -> list[str]:
        """Return notes on rows that were left out of valid and test, one line each."""
        parts = AlignedGraph(self.valid, self.unseen_valid), self.aligned_test
        return [line for line in map(str, parts) if line]


def split(
    graph: Any,
    valid_fraction: float = HELD_OUT_FRACTION,
    test_fraction: float = HELD_OUT_FRACTION,
    seed: int = 0,
    max_rows: int = MAX_HELD_OUT,
) -> Splits:
    """Hold out random fractions of the edges of a graph for valid and test, at most `max_rows` rows each.

    `graph` is any source that `focuse.read` accepts. Every entity and relation keeps an edge in train, and rows
    that repeat a (head, relation, tail) stay together, as do both directions of a pair of an undirected relation. So
    valid and test contain no unseen name and no triple of train. Relations and weights are distributed as in the whole
    graph. If too few rows can be held out, both get fewer.

    >>> from focuse.data.readers import read
    >>> parts = split(read([("a", "r", str(i % 7), i) for i in range(70)]), seed=1)
    >>> len(parts.train.entities) == len(set(parts.train.head) | set(parts.train.tail))
    True
    """
    graph = resolve_undirected(read(graph))[0]
    for name, fraction in (("valid_fraction", valid_fraction), ("test_fraction", test_fraction)):
        check_fraction(name, fraction)
    if valid_fraction + test_fraction >= 1:
        raise FocuseError(
            f"valid_fraction {valid_fraction:g} and test_fraction {test_fraction:g}: their sum must be below 1"
        )
    sizes = [min(int(fraction * len(graph)), max_rows) for fraction in (test_fraction, valid_fraction)]
    if len(graph) >= out_of_core.LARGE_GRAPH and graph.columns is None:  # not sorted, nor copied in memory
        test, valid = out_of_core.hold_out_rows(graph, sizes, seed)
        train = out_of_core.without_rows(graph, np.sort(np.concatenate([test, valid])))
        return Splits(train, graph.select(valid), graph.select(test))
    part = _assign_rows(graph, sizes, seed)
    train, held_test, held_valid = (graph.select(part == number) for number in range(3))
    return Splits(train, held_valid, held_test)


def splits_from_graphs(
    train: Graph, valid: Graph | None, test: Graph | None, seed: int = 0, valid_fraction: float = HELD_OUT_FRACTION
) -> Splits:
    """Make splits of given graphs; without `valid`, a fraction of train is held out for it."""
    if valid is None:
        parts = split(train, valid_fraction, 0.0, seed)
        train, aligned_valid = parts.train, AlignedGraph(parts.valid)
    else:
        aligned_valid = valid.align(train)
    aligned_test = AlignedGraph(train.select(np.empty(0, np.int64))) if test is None else test.align(train)
    aligned_valid, aligned_test = (
        replace(part, graph=with_both_directions(part.graph)) for part in (aligned_valid, aligned_test)
    )
    unseen: dict[str, Any] = {"unseen_valid": aligned_valid.unseen, "unseen_test": aligned_test.unseen}
    return Splits(train, aligned_valid.graph, aligned_test.graph, **unseen)


@dataclass(frozen=True)
class ValidationParts:
    """Validation in three disjoint parts, so that nothing is fitted and measured on the same rows.

    `stopping` is used for early stopping and the choice of the label exponent, `calibration` to fit maps from scores to
    weights, and `conformal` to measure their errors.
    """

    stopping: Graph
    calibration: Graph
    conformal: Graph


def split_validation(valid: Graph, stopping: float, seed: int = 0) -> ValidationParts:
    """Split `valid` at random: a fraction for stopping, and the rest in halves; repeats and pairs stay together.

    >>> from focuse.data.readers import read
    >>> parts = split_validation(read([("a", "r", str(i), i) for i in range(100)]), 0.5)
    >>> len(parts.stopping), len(parts.calibration), len(parts.conformal)
    (50, 25, 25)
    """
    if not 0 <= stopping <= 1:
        raise FocuseError(f"stop_fraction {stopping:g}: give a fraction in [0, 1]")
    distinct, group = np.unique(valid.pair_keys, return_inverse=True)
    random = np.random.default_rng([seed, RandomStream.VALIDATION_PARTS])
    position = random.permutation(len(distinct)) / max(len(distinct), 1)
    part = np.digitize(position, [stopping, (1 + stopping) / 2])[group]
    return ValidationParts(*(valid.select(part == number) for number in range(3)))


def _assign_rows(graph: Graph, sizes: Sequence[int], seed: int) -> npt.NDArray[np.int8]:
    """Return 0 for the rows of train, and 1, 2, … for parts of about `sizes` rows; int8 [n]."""
    if not sum(sizes):
        return np.zeros(len(graph), np.int8)
    _, first, group, rows = np.unique(graph.pair_keys, return_index=True, return_inverse=True, return_counts=True)
    random = np.random.default_rng(seed)
    order = random.permutation(len(first))
    # The last edge of every entity and relation in a random order stays in train.
    needed = np.zeros(len(order), bool)
    head, relation, tail = (column[first] for column in (graph.head, graph.relation, graph.tail))
    ends = np.stack([head[order], tail[order]], axis=1).ravel()
    for ids, triples in ((ends, np.repeat(order, 2)), (relation[order], order)):
        kept = np.full(ids.max() + 1, -1)
        kept[ids] = triples  # NumPy keeps the last value written to an index
        needed[kept[kept >= 0]] = True
    # Of a large graph, a sample is enough to choose from.
    order = random.permutation(order)
    sample = order[: int(np.searchsorted(np.cumsum(~needed[order]), OVERSAMPLING * sum(sizes))) + 1]
    free = np.flatnonzero(~needed[sample])
    candidates = sample[balanced_order(free, relation[sample], strength(graph, first[sample]), random)]
    return assign_parts(candidates, rows, sizes)[group]


def strength(graph: Graph, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the weights of rows [n], negated if low ones are strong, so that their direction has no effect."""
    weight: npt.NDArray[Any] = graph.weight[rows]
    return -weight if graph.lower_is_better else weight


OVERSAMPLING = 8  # triples among which one is chosen, in a graph that has so many
STRATUM = 50  # triples of similar weight that are held out in the same proportion


def balanced_order(
    candidates: npt.NDArray[Any], relation: npt.NDArray[Any], weight: npt.NDArray[Any], random: np.random.Generator
) -> npt.NDArray[Any]:
    """Return candidates [c] in a random order, any beginning of which has about the relations and weights of all.

    `relation` and `weight` [d] are those of all distinct triples. The triples that are not candidates are the only
    edges of rare entities, whose weights are often lower or higher; other candidates of similar weight take their turn.

    >>> weight = np.arange(1000.0)
    >>> order = balanced_order(np.arange(0, 1000, 2), np.zeros(1000, int), weight, np.random.default_rng(0))
    >>> float(weight[order[:100]].mean().round())
    499.0
    """
    stratum = np.empty(len(weight), np.int64)
    stratum[np.lexsort((weight, relation))] = np.arange(len(weight)) // STRATUM
    candidates = random.permutation(candidates)
    candidates = candidates[np.argsort(stratum[candidates], kind="stable")]
    group = stratum[candidates]
    turn = np.arange(len(group)) - np.searchsorted(group, group)
    shift = random.random(len(weight) // STRATUM + 1)  # so that the strata do not all begin at once
    size = np.bincount(stratum, minlength=len(shift))
    return np.asarray(candidates[np.argsort((turn + shift[group]) / size[group], kind="stable")])


def assign_parts(
    candidates: npt.NDArray[Any], rows_per_triple: npt.NDArray[Any], sizes: Sequence[int]
) -> npt.NDArray[np.int8]:
    """Assign distinct triples to parts of about `sizes` rows, in the order of `candidates`.

    `candidates` [c] are the triples that may be held out, in random order, and `rows_per_triple` [d] are the numbers of
    rows of all distinct triples. If there are too few candidates, all parts get fewer in the same proportion. Returns 0
    for triples that stay in train, 1 for the first part, and so on; int8 [d].
    """
    candidates = candidates[fit_part(rows_per_triple, sizes)[candidates]]
    total = np.cumsum(rows_per_triple[candidates])
    if len(total) and total[-1] < sum(sizes):
        sizes = [int(size * int(total[-1]) / sum(sizes)) for size in sizes]
    part = np.zeros(len(rows_per_triple), np.int8)
    start = assigned_rows = 0
    for number, size in enumerate(sizes, 1):
        stop = int(np.searchsorted(total, assigned_rows + size, side="right"))
        part[candidates[start:stop]] = number
        start, assigned_rows = stop, int(total[stop - 1]) if stop else 0
    return part


def fit_part(rows_per_triple: npt.NDArray[Any], sizes: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Return a mask of triples with few enough rows to be held out; very many rows would end a part early."""
    max_rows = max(min(size for size in sizes if size) // 10, int(np.median(rows_per_triple)))
    small: npt.NDArray[np.bool_] = rows_per_triple <= max_rows
    return small
