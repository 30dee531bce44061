"""Train, valid and test: from given graphs, or by chance with nothing in test that train has never seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from focuse.errors import FocuseError
from focuse.graph import holding
from focuse.graph.graph import Aligned, Graph
from focuse.graph.merging import Merger
from focuse.graph.numbers import Numbers

# A random hold-out needs no more rows than this for figures stable to the third digit.
MOST_HELD_OUT = 20_000
PARTS = 0x9A27  # place of the random stream that cuts validation into parts


@dataclass(frozen=True)
class Splits:
    """Three graphs over train's vocabularies. `valid` or `test` may be empty.

    `inferred` holds triples that rules infer from train, their weights being confidences in [0, 1]. `false` holds
    triples known to be false: they are facts nowhere, and their weights say how strong the evidence is, in (0, 1].
    `merger` made the weights where edges have several columns of them. `numbers` are those of the entities.
    """

    train: Graph
    valid: Aligned
    test: Aligned
    inferred: Graph | None = None
    false: Graph | None = None
    merger: Merger | None = None
    numbers: Numbers | None = None

    def warnings(self) -> list[str]:
        """What of valid and test had to be left out, one line each."""
        return [line for line in (str(self.valid), str(self.test)) if line]


def split(graph: Graph, valid: float = 0.1, test: float = 0.1, seed: int = 0, most: int = MOST_HELD_OUT) -> Splits:
    """Hold out a random share of the edges for valid and test (at most `most` rows each).

    Every entity and relation keeps an edge in train, and rows that repeat one (head, relation, tail) stay
    together, so nothing is unseen and nothing leaks. If that leaves too few rows to hold out, both get less.

    >>> from focuse.graph import read
    >>> parts = split(read([("a", "r", str(i % 7), i) for i in range(70)]), seed=1)
    >>> len(parts.train.entities) == len(set(parts.train.head) | set(parts.train.tail))
    True
    """
    for name, share in (("valid", valid), ("test", test)):
        if not 0 <= share < 1 or valid + test >= 1:
            raise FocuseError(f"split: {name} share {share:g} is out of range; valid + test must be below 1")
    if len(graph) >= holding.LARGE and graph.columns is None:
        return _split_large(graph, [_size(graph, share, most) for share in (test, valid)], seed)
    held = _hold_out(graph, [_size(graph, test, most), _size(graph, valid, most)], seed)
    return Splits(graph.select(held == 0), Aligned(graph.select(held == 2)), Aligned(graph.select(held == 1)))


def _split_large(graph: Graph, sizes: list[int], seed: int) -> Splits:
    """As `split`, without sorting the graph or copying it in memory."""
    test, valid = holding.hold_out(graph, sizes, seed)
    train = holding.without(graph, np.sort(np.concatenate([test, valid])))
    return Splits(train, Aligned(graph.select(valid)), Aligned(graph.select(test)))


def given(train: Graph, valid: Graph | None, test: Graph | None, seed: int = 0, valid_share: float = 0.1) -> Splits:
    """Splits from given graphs; without `valid` a share of train is held out for stopping."""
    if valid is None:
        parts = split(train, valid=valid_share, test=0.0, seed=seed)
        train, held = parts.train, parts.valid
    else:
        held = valid.align(train)
    empty = Aligned(train.select(np.empty(0, np.int64)))
    return Splits(train, held, empty if test is None else test.align(train))


@dataclass(frozen=True)
class Held:
    """Validation in three disjoint parts, so that no figure is fitted and promised on the same rows.

    `stopping` decides when to stop and how sharp to focus, `calibration` is what maps from scores are fitted to, and
    `conformal` only measures how far they are off.
    """

    stopping: Graph
    calibration: Graph
    conformal: Graph


def hold(valid: Graph, stopping: float, seed: int = 0) -> Held:
    """`valid` in parts by chance: a share for stopping, the rest halved. Repeats of a triple stay together.

    >>> from focuse.graph import read
    >>> held = hold(read([("a", "r", str(i), i) for i in range(100)]), 0.5)
    >>> len(held.stopping), len(held.calibration), len(held.conformal)
    (50, 25, 25)
    """
    if not 0 <= stopping <= 1:
        raise FocuseError(f"stopping_share {stopping:g}: give a share in [0, 1]")
    distinct, group = np.unique(valid.keys, return_inverse=True)
    place = np.random.default_rng([seed, PARTS]).permutation(len(distinct)) / max(len(distinct), 1)
    part = np.digitize(place, [stopping, (1 + stopping) / 2])[group]
    stop, fit, check = (valid.select(part == number) for number in range(3))
    return Held(stop, fit, check)


def _size(graph: Graph, share: float, most: int) -> int:
    return min(int(share * len(graph)), most)


def _hold_out(graph: Graph, sizes: list[int], seed: int) -> npt.NDArray[np.int8]:
    """0 for train, 1 and 2 for the parts of about `sizes` rows; int8 [n]."""
    if not sum(sizes):
        return np.zeros(len(graph), np.int8)
    _, first, group, rows = np.unique(graph.keys, return_index=True, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(first))
    # In random order, the first edge of every entity and relation stays in train; that covers all of them.
    needed = np.zeros(len(order), bool)
    head, relation, tail = (column[first][order] for column in (graph.head, graph.relation, graph.tail))
    for column in (relation, np.concatenate([head, tail])):
        needed[np.unique(column, return_index=True)[1] % len(order)] = True
    # A triple with very many rows would not fit and end the part early: it stays in train.
    fits = max(min(size for size in sizes if size) // 10, int(np.median(rows)))
    free = order[~needed & (rows[order] <= fits)]
    taken = np.cumsum(rows[free])
    if len(taken) and taken[-1] < sum(sizes):  # too few to spare: share what there is in the same proportion
        sizes = [int(size * int(taken[-1]) / sum(sizes)) for size in sizes]
    part = np.zeros(len(order), np.int8)
    start, done = 0, 0
    for name, size in enumerate(sizes, 1):
        end = int(np.searchsorted(taken, done + size, side="right"))
        part[free[start:end]] = name
        start, done = end, int(taken[end - 1]) if end else 0
    return part[group]
