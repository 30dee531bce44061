"""Proposing rules: which of the simple shapes hold in a graph, how often and how strongly.

An edge can be walked both ways, so it makes two arcs: its relation's number forward, that plus the number of relations
backward. A composition is a path of two arcs from x over y to z, and an edge from x to z beside it. Paths are built for
all second arcs of one first label at a time, as columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.errors import FocuseError, choose
from focuse.graph import Graph
from focuse.graph.graph import Ids, Weights
from focuse.graph.writing import replacing
from focuse.ukge.facts import Facts, Places, pairs
from focuse.ukge.rules import Atom, Rule, quoted

SHAPES = ("symmetry", "inverse", "transitivity", "composition")
SUPPORT = 10
CONFIDENCE = 0.5
LIMIT = 20_000_000
DIGITS = 4  # of a proposed rule's truth


@dataclass(frozen=True)
class Proposal:
    """A rule that a graph suggests; its truth is its confidence.

    `pairs` counts the distinct (x, z) that the body gives, `support` those whose head stands in the graph.
    `soft` is the sum of min(body, head) over the sum of body, each pair with its strongest body.
    """

    rule: Rule
    shape: str
    support: int
    pairs: int
    soft: float

    @property
    def confidence(self) -> float:
        return self.support / self.pairs


@dataclass(frozen=True)
class Mined:
    """Proposals, the best first, and what was left out to stay within the limit."""

    proposals: list[Proposal]
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.proposals)

    def __iter__(self) -> Iterator[Proposal]:
        return iter(self.proposals)

    def __getitem__(self, place: int) -> Proposal:
        return self.proposals[place]

    def text(self) -> str:
        """A rules file: every rule with its figures in a comment."""
        lines = [
            f"{one.rule}  # {one.shape}: {one.support} of {one.pairs} pairs, soft confidence {one.soft:.4f}\n"
            for one in self.proposals
        ]
        return "".join(lines)

    def write(self, path: str | Path) -> None:
        """Write the rules to a file that `read_rules` reads, whole or not at all."""
        if not self.proposals:
            raise FocuseError(f"{path}: no rules to write; lower the support or the confidence asked for")
        with replacing(Path(path)) as temporary:
            temporary.write_text(self.text(), encoding="utf-8")


def mine(
    graph: Graph,
    *,
    shapes: Sequence[str] = SHAPES,
    minimum_support: int = SUPPORT,
    minimum_confidence: float = CONFIDENCE,
    limit: int = LIMIT,
    normalize: str | None = None,
) -> Mined:
    """Rules of the given shapes that hold often enough, by falling confidence and support.

    Support and confidence look at which triples there are, whatever their weight. Where a graph has more than `limit`
    paths, its most crowded relations begin paths with their strongest edges only, as many as fit; a note says which,
    and the figures of such rules are those of the paths that were walked.

    >>> from focuse.graph import read
    >>> rows = [("a", "knows", "b", 0.9), ("b", "knows", "a", 0.8), ("a", "knows", "c", 0.5)]
    >>> [found] = mine(read(rows), shapes=["symmetry"], minimum_support=2)
    >>> print(found.rule, found.support, found.pairs)
    knows(x, y) -> knows(y, x) : 0.6667 2 3
    """
    for shape in shapes:
        choose("shape", shape, SHAPES)
    if minimum_support < 1 or not 0.0 < minimum_confidence <= 1.0 or limit < 1:
        raise FocuseError(
            "mining needs a support and a limit of at least 1 and a confidence above 0 and at most 1, not "
            f"{minimum_support}, {limit} and {minimum_confidence:g}"
        )
    miner = _Miner(Facts(graph, normalize), minimum_support, minimum_confidence, limit)
    if "symmetry" in shapes or "inverse" in shapes:
        miner.inverses([shape for shape in ("symmetry", "inverse") if shape in shapes])
    if "transitivity" in shapes:
        miner.transitivity()
    if "composition" in shapes:
        miner.compositions()
    best = sorted(miner.found, key=lambda one: (-one.confidence, -one.support, -one.soft, str(one.rule)))
    return Mined(best, miner.notes)


@dataclass(frozen=True, eq=False)
class _Arcs:
    """Edges to walk from `start` to `end`, sorted by start; [n] each."""

    start: Ids
    label: Ids
    end: Ids
    weight: Weights

    def select(self, rows: npt.NDArray[np.bool_] | Places) -> _Arcs:
        return _Arcs(self.start[rows], self.label[rows], self.end[rows], self.weight[rows])


def _arcs(graph: Graph, both_ways: bool) -> _Arcs:
    arcs = _Arcs(graph.head, graph.relation, graph.tail, graph.weight)
    if both_ways:
        arcs = _Arcs(
            np.concatenate([graph.head, graph.tail]),
            np.concatenate([graph.relation, graph.relation + np.int32(len(graph.relations))]),
            np.concatenate([graph.tail, graph.head]),
            np.concatenate([graph.weight, graph.weight]),
        )
    return arcs.select(np.argsort(arcs.start, kind="stable"))


def _sums(group: npt.NDArray[Any], value: Weights, groups: int) -> Weights:
    """The sum of the values [n] of each group; [groups]."""
    return np.asarray(np.bincount(group, weights=value, minlength=groups), np.float64)


def _level(total: Places, limit: int) -> int:
    """The largest c for which the sum of min(total, c) stays within the limit, where that of `total` does not.

    >>> _level(np.array([2, 50, 10, 90]), 40)
    14
    """
    rising = np.sort(total)
    # What is left for each of the labels from here on, once the smaller ones have all they need.
    left = (limit - (np.cumsum(rising) - rising)) // np.arange(len(rising), 0, -1)
    return int(left[np.argmax(rising > left)])


class _Miner:
    def __init__(self, facts: Facts, support: int, confidence: float, limit: int) -> None:
        self.facts, self.graph = facts, facts.graph
        self.support, self.confidence, self.limit = support, confidence, limit
        self.entities, self.relations = max(len(self.graph.entities), 1), max(len(self.graph.relations), 1)
        if self.entities**2 * self.relations * 2 >= 2**63:
            raise FocuseError(f"{self.graph.source}: too many entities and relations to mine in 64-bit keys")
        self.found: list[Proposal] = []
        self.notes: list[str] = []
        order = np.argsort(self._pair(self.graph.head, self.graph.tail), kind="stable")
        self.by_pair = self.graph.select(order)
        self.pair = self._pair(self.by_pair.head, self.by_pair.tail)

    def _pair(self, first: Ids, second: Ids) -> Places:
        return first.astype(np.int64) * self.entities + second

    # ---- shapes ---------------------------------------------------------------------------------------------------

    def inverses(self, shapes: Sequence[str]) -> None:
        """r(x, y) -> s(y, x); with s = r it is symmetry."""
        graph = self.graph
        body = np.bincount(graph.relation, minlength=self.relations)
        mass = _sums(graph.relation, graph.weight, self.relations)
        kind, head, support, shared = self._heads(graph.relation, graph.tail, graph.head, graph.weight)
        for r, s, count, soft in self._enough(kind, head, support, shared, body, mass):
            shape = "symmetry" if r == s else "inverse"
            if shape in shapes:
                self._propose(shape, [self._walk(r, "x", "y")], (s, "y", "x"), count, int(body[r]), soft)

    def transitivity(self) -> None:
        """r(x, y) & r(y, z) -> r(x, z), one relation after the other."""
        arcs = _arcs(self.graph, both_ways=False)
        for relation in range(self.relations):
            own = arcs.select(arcs.label == relation)
            self._compose(relation, self._within_limit(own), own, "transitivity")

    def compositions(self) -> None:
        """a(x, y) & b(y, z) -> t(x, z) for all relations, walked forward or backward."""
        arcs = _arcs(self.graph, both_ways=True)
        first = self._within_limit(arcs)
        for label in np.unique(first.label):
            self._compose(int(label), first.select(first.label == label), arcs, "composition")

    # ---- counting -------------------------------------------------------------------------------------------------

    def _compose(self, first: int, left: _Arcs, right: _Arcs, shape: str) -> None:
        """Paths of a `left` arc and a `right` one that goes on from its end, by the right one's label."""
        second, x, z, body = self._paths(left, right)
        count = np.bincount(second, minlength=2 * self.relations)
        mass = _sums(second, body, 2 * self.relations)
        label, head, support, shared = self._heads(second, x, z, body)
        for b, t, number, soft in self._enough(label, head, support, shared, count, mass):
            if (b == first == t) == (shape == "transitivity"):
                atoms = [self._walk(first, "x", "y"), self._walk(b, "y", "z")]
                self._propose(shape, atoms, (t, "x", "z"), number, int(count[b]), soft)

    def _paths(self, left: _Arcs, right: _Arcs) -> tuple[Ids, Ids, Ids, Weights]:
        """The distinct (second label, x, z) of all paths and the truth of the strongest; [p] each."""
        low = np.searchsorted(right.start, left.end, side="left").astype(np.int64)
        row, place = pairs(low, np.searchsorted(right.start, left.end, side="right") - low)
        key = right.label[place] * np.int64(self.entities**2) + self._pair(left.start[row], right.end[place])
        body = np.maximum(0.0, left.weight[row] + right.weight[place] - 1.0)
        order = np.argsort(key, kind="stable")
        key = key[order]
        first = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]])) if len(key) else np.empty(0, np.int64)
        strongest = np.maximum.reduceat(body[order], first) if len(key) else body
        label, pair = np.divmod(key[first], self.entities**2)
        x, z = np.divmod(pair, self.entities)
        return label.astype(np.int32), x.astype(np.int32), z.astype(np.int32), strongest

    def _heads(self, label: Ids, x: Ids, z: Ids, body: Weights) -> tuple[Places, Places, Places, Weights]:
        """For each (label, relation t) with an edge t(x, z): how many pairs have it, and their sum of min(body, head).

        Bodies [p] in; label, t, support and sum [k] out.
        """
        wanted = self._pair(x, z)
        low = np.searchsorted(self.pair, wanted, side="left").astype(np.int64)
        row, place = pairs(low, np.searchsorted(self.pair, wanted, side="right") - low)
        key = label[row] * np.int64(self.relations) + self.by_pair.relation[place]
        kinds, group, support = np.unique(key, return_inverse=True, return_counts=True)
        shared = _sums(group, np.minimum(body[row], self.by_pair.weight[place]), len(kinds))
        first, head = np.divmod(kinds, self.relations)
        return first, head, support, shared

    def _enough(
        self, label: Places, head: Places, support: Places, shared: Weights, count: Places, mass: Weights
    ) -> Iterator[tuple[int, int, int, float]]:
        """(label, head, support, soft confidence) of what is supported often and surely enough."""
        kept = (support >= self.support) & (support >= self.confidence * count[label])
        for b, t, number, sum_ in zip(label[kept], head[kept], support[kept], shared[kept], strict=True):
            yield int(b), int(t), int(number), float(sum_ / mass[b]) if mass[b] > 0 else 0.0

    def _within_limit(self, arcs: _Arcs) -> _Arcs:
        """The arcs to begin with, so that all of them together begin no more than `limit` paths.

        Labels share the limit evenly; one that needs less leaves the rest to the others, one that needs more begins
        with its strongest arcs only. So a few crowded relations cannot crowd out the others.
        """
        cost = np.bincount(arcs.start, minlength=self.entities)[arcs.end]
        total = np.zeros(2 * self.relations, np.int64)
        np.add.at(total, arcs.label, cost)
        if total.sum() <= self.limit:
            return arcs
        share = _level(total, self.limit)
        order = np.lexsort((-arcs.weight, arcs.label))
        spent, label = np.cumsum(cost[order]), arcs.label[order]
        kept = spent - (np.cumsum(total) - total)[label] <= share
        short = np.argsort(-total, kind="stable")[: int((total > share).sum())]
        names = dict.fromkeys(self.graph.relations[int(one) % self.relations] for one in short)
        self.notes.append(
            f"{self.graph.source}: {total.sum():,} paths of two edges exceed the limit of {self.limit:,}; those over "
            f"{', '.join(map(quoted, list(names)[:3]))}{f' or {len(names) - 3} more' * (len(names) > 3)} "
            f"begin with the strongest edges only, {kept.mean():.1%} of all first steps are taken"
        )
        return arcs.select(np.sort(order[kept]))

    # ---- rules ----------------------------------------------------------------------------------------------------

    def _walk(self, label: int, start: str, end: str) -> Atom:
        """The atom of an arc: its relation's name, turned round for a backward one."""
        backward, relation = divmod(label, self.relations)
        ends = (end, start) if backward else (start, end)
        return Atom(self.graph.relations[relation], *ends)

    def _propose(
        self, shape: str, atoms: list[Atom], head: tuple[int, str, str], support: int, count: int, soft: float
    ) -> None:
        target = Atom(self.graph.relations[head[0]], *head[1:])
        truth = max(round(support / count, DIGITS), 10.0**-DIGITS)
        self.found.append(Proposal(Rule((tuple(atoms),), target, truth), shape, support, count, soft))
