"""Grounding: the triples that rules infer from a graph, and how strongly. Joins of sorted columns, no loop over rows.

Łukasiewicz: a and b = max(0, a + b − 1), a or b = min(1, a + b), not a = 1 − a. A conjunction can only fall with every
atom joined to it, so a partner must weigh at least `minimum` + 1 − (what the atoms so far leave). Edges lie sorted by
entity and, within it, by falling weight: a binary search tells how many partners of a row will do. Nothing that misses
the minimum is built, and the size of a join is known before it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.errors import FocuseError
from focuse.graph import Graph
from focuse.graph.graph import Ids, Weights
from focuse.ukge.facts import Facts, Places, pairs, partners
from focuse.ukge.rules import Atom, Rule, parse_rules

Table = tuple[dict[str, Ids], Weights]  # a column [n] a variable, and how true the atoms so far are [n]
MINIMUM = 0.5
LIMIT = 1_000_000
ROUNDING = 1e-9  # 0.85 + 0.95 − 1 is 0.7999999999999998 in floating point and still reaches a minimum of 0.8
GRID = 1_000_000  # a raised minimum is a multiple of 1 / GRID


@dataclass(frozen=True, eq=False)
class Grounding:
    """What one rule infers: an entry a grounding, the strongest body first.

    `head` and `tail` [n] are entities of the graph, `body` [n] the body's truth, `confidence` [n] what follows for the
    head: max(0, body + truth − 1). `known` [n] is the head's weight in the graph, 0 where `seen` [n] is False.
    All groundings whose body reaches `minimum` are here; it lies above the one asked for where `note` says so.
    """

    rule: Rule
    relation: int
    head: Ids
    tail: Ids
    body: Weights
    confidence: Weights
    known: Weights
    seen: npt.NDArray[np.bool_]
    minimum: float
    note: str = ""

    def __len__(self) -> int:
        return len(self.head)

    @property
    def capped(self) -> bool:
        """Whether the minimum was raised to stay within the limit."""
        return bool(self.note)

    @cached_property
    def _first(self) -> Places:
        """The strongest grounding of each distinct triple; places [d]."""
        pairs = np.stack([self.head, self.tail], axis=1).astype(np.int64)
        return np.sort(np.unique(pairs @ np.array([1 << 31, 1]), return_index=True)[1]).astype(np.int64)

    @property
    def triples(self) -> int:
        """Distinct inferred triples."""
        return len(self._first)

    @property
    def new(self) -> int:
        """Those of them that the graph does not have."""
        return int((~self.seen[self._first]).sum())

    @property
    def hit_ratio(self) -> float:
        """Share of the distinct inferred triples that the graph has."""
        return 1.0 - self.new / self.triples

    @property
    def mean_confidence(self) -> float:
        """Of the distinct inferred triples, each at its strongest."""
        return float(self.confidence[self._first].mean())

    @property
    def distance(self) -> float:
        """Mean distance to satisfaction, max(0, body − head's weight); an unseen head counts as 0."""
        return float(np.maximum(0.0, self.body - self.known).mean())


class _TooMany(Exception):  # noqa: N818 - a signal between the joins and the cap
    def __init__(self, rows: int) -> None:
        self.rows = rows


def ground(
    graph: Graph,
    rules: Iterable[Rule] | str,
    *,
    minimum: float = MINIMUM,
    limit: int = LIMIT,
    normalize: str | None = None,
) -> list[Grounding]:
    """Every grounding of each rule whose body is true to at least `minimum`, in (0, 1].

    Where a join would have more than `limit` rows, the minimum is raised to the lowest that fits and the grounding's
    `note` says so. Repeated triples of the graph count once, with their largest weight. A rule that names an unknown
    relation or grounds to nothing is an error. Weights must lie in [0, 1]; `normalize` brings others there.

    >>> from focuse.graph import read
    >>> graph = read([("a", "r", "b", 0.9), ("b", "r", "c", 0.8), ("c", "r", "d", 0.3)])
    >>> [found] = ground(graph, "r(x, y) & r(y, z) -> r(x, z)")
    >>> graph.entities[found.head[0]], graph.entities[found.tail[0]], round(found.mean_confidence, 3), found.hit_ratio
    ('a', 'c', 0.7, 0.0)
    """
    parsed = parse_rules(rules) if isinstance(rules, str) else list(rules)
    if not 0.0 < minimum <= 1.0:
        raise FocuseError(f"the minimum must lie above 0 and at most at 1, not {minimum:g}")
    if limit < 1:
        raise FocuseError(f"the limit must be at least 1 grounding, not {limit}")
    facts = Facts(graph, normalize)
    encoded = [_relations(rule, graph) for rule in parsed]  # all names first: a typo must not cost an hour
    return [_Grounder(facts, rule, ids, limit).ground(minimum) for rule, ids in zip(parsed, encoded, strict=True)]


def inferred(
    graph: Graph,
    rules: Iterable[Rule] | str,
    *,
    minimum: float = MINIMUM,
    limit: int = LIMIT,
    normalize: str | None = None,
    keep_known: bool = False,
) -> Graph:
    """What rules infer beyond the graph: each new triple once, with the largest confidence any rule gives it.

    A graph over the same vocabularies, the strongest triple first; `keep_known` keeps those that `graph` has, too.
    Its weights are confidences in [0, 1], also where `normalize` had to bring the graph's there.

    >>> from focuse.graph import read
    >>> graph = read([("a", "r", "b", 0.9), ("b", "r", "c", 0.8)])
    >>> inferred(graph, "r(x, y) & r(y, z) -> r(x, z) : 0.9").to_arrow().to_pylist()[0]["tail"]
    'c'
    """
    return collect(graph, ground(graph, rules, minimum=minimum, limit=limit, normalize=normalize), keep_known)


def collect(graph: Graph, groundings: Sequence[Grounding], keep_known: bool = False) -> Graph:
    """`inferred` from groundings that are there already. Triples inferred with confidence 0 say nothing: left out.

    So are loops (x, r, x) of a relation of which the graph has none: transitivity infers them by going there and back.
    """
    looping = np.unique(graph.relation[graph.head == graph.tail])
    kept = [
        (
            one,
            (one.confidence > ROUNDING)
            & (~one.seen | keep_known)
            & ((one.head != one.tail) | bool(np.isin(one.relation, looping))),
        )
        for one in groundings
    ]
    columns = [
        (one.head[rows], np.full(int(rows.sum()), one.relation, np.int32), one.tail[rows], one.confidence[rows])
        for one, rows in kept
    ]
    head, relation, tail, confidence = (
        np.concatenate(column) if column else np.empty(0) for column in (list(zip(*columns, strict=True)) or [()] * 4)
    )
    sources = dict.fromkeys(one.rule.source for one in groundings)
    everything = replace(
        graph,
        head=head.astype(np.int32),
        relation=relation.astype(np.int32),
        tail=tail.astype(np.int32),
        weight=confidence.astype(np.float64),
        source=", ".join(filter(None, sources)) or "rules",
        weighted=True,
    )
    distinct = everything.merge_repeated("max")
    return distinct.select(np.argsort(-distinct.weight, kind="stable"))


def _relations(rule: Rule, graph: Graph) -> dict[str, int]:
    """The ids of a rule's relations."""
    found = {}
    for name in rule.relations:
        try:
            found[name] = graph.relations.id(name, "relation")
        except FocuseError as error:
            raise FocuseError(f"{rule.where}: {error}") from None
    return found


class _Grounder:
    """One rule over one graph."""

    def __init__(self, facts: Facts, rule: Rule, relations: dict[str, int], limit: int) -> None:
        self.facts, self.rule, self.relations, self.limit = facts, rule, relations, limit

    def ground(self, minimum: float) -> Grounding:
        try:
            found, used, note = self.bodies(minimum), minimum, ""
        except _TooMany as error:
            used = self._lowest_that_fits(minimum, error.rows)
            found = self.bodies(used)
            note = (
                f"{self.rule.where}: {error.rows:,} rows to join at body confidence {minimum:g} exceed the limit of "
                f"{self.limit:,}; kept are all {len(found[1]):,} groundings of at least {used:.6g}. "
                "Raise the limit for weaker ones"
            )
        if not len(found[1]):
            raise FocuseError(self._nothing(minimum, used, note))
        return self._finish(*found, used, note)

    def _finish(self, columns: dict[str, Ids], body: Weights, minimum: float, note: str) -> Grounding:
        order = np.argsort(-body, kind="stable")
        body, target = body[order], self.rule.head
        head, tail = columns[target.first][order], columns[target.second][order]
        relation = self.relations[target.relation]
        known, seen = self.facts.weight(head, relation, tail)
        confidence = np.maximum(0.0, body + self.rule.truth - 1.0)
        return Grounding(self.rule, relation, head, tail, body, confidence, known, seen, minimum, note)

    def _lowest_that_fits(self, minimum: float, rows: int) -> float:
        """The lowest minimum, on a grid of a millionth, at which no join exceeds the limit."""
        too_low, fits = int(np.floor(minimum * GRID)), GRID
        try:
            self.bodies(1.0)
        except _TooMany as error:
            raise FocuseError(
                f"{self.rule.where}: {rows:,} rows to join exceed the limit of {self.limit:,}, and so do the "
                f"{error.rows:,} of body confidence 1; raise the limit or make the rule narrower"
            ) from None
        while fits - too_low > 1:
            middle = (fits + too_low) // 2
            try:
                self.bodies(middle / GRID)
                fits = middle
            except _TooMany:
                too_low = middle
        return fits / GRID

    def _nothing(self, minimum: float, used: float, note: str) -> str:
        """Why a rule has no groundings, and what to do."""
        if note:
            return f"{note}, or make the rule narrower"
        names = dict.fromkeys(atom.relation for atom in self.rule.atoms if not atom.negated)
        empty = [name for name in names if not len(self.facts.edges(self.relations[name]).start)]
        if empty:
            return f"{self.rule.where}: grounds to nothing, for the graph has no edge of {empty[0]!r}"
        try:
            weaker = self.bodies(1 / GRID)
        except _TooMany as error:
            weaker = self.bodies(self._lowest_that_fits(1 / GRID, error.rows))
        if len(weaker[1]):
            return (
                f"{self.rule.where}: grounds to nothing, for its strongest body has confidence "
                f"{weaker[1].max():.4g}, below the minimum of {used:g}; lower the minimum"
            )
        return (
            f"{self.rule.where}: grounds to nothing, for no edges fit together, or their weights leave nothing of the "
            "conjunction; check the directions of its atoms"
        )

    def bodies(self, minimum: float) -> Table:
        """Bindings of all variables (columns [n]) whose body reaches `minimum`, and its truth [n]."""
        floor = minimum - ROUNDING
        # A sum of k parts reaches the minimum only if one of them reaches a k-th of it; the other parts of such a
        # binding are then looked up, for a disjunct has no variable that the others do not bind.
        least = minimum / len(self.rule.body) - ROUNDING
        tables = [self._conjunction(conjunction, least) for conjunction in self.rule.body]
        if len(tables) == 1:
            columns, value = tables[0]
        else:
            columns = _distinct([table[0] for table in tables])
            value = np.minimum(1.0, sum(self._truth(part, columns) for part in self.rule.body))
        kept = value >= floor
        self._check(int(kept.sum()))
        return {name: column[kept] for name, column in columns.items()}, np.clip(value[kept], 0.0, 1.0)

    def _truth(self, conjunction: Sequence[Atom], columns: dict[str, Ids]) -> Weights:
        """How true a conjunction is where all of its variables are bound; [n]."""
        value = sum(self._atom(atom, columns)[0] - 1.0 for atom in conjunction) + np.float64(1.0)
        return np.maximum(0.0, np.asarray(value, np.float64))

    def _atom(self, atom: Atom, columns: dict[str, Ids]) -> tuple[Weights, npt.NDArray[np.bool_]]:
        """The truth of a bound atom [n], and whether its triple (or, negated, its absence or doubt) holds at all."""
        weight, seen = self.facts.weight(columns[atom.first], self.relations[atom.relation], columns[atom.second])
        return (1.0 - weight, np.ones(len(seen), bool)) if atom.negated else (weight, seen)

    def _conjunction(self, conjunction: Sequence[Atom], least: float) -> Table:
        """Join the atoms, small relations first; columns [n] and the sum of weights − (atoms − 1), at least `least`."""
        rest = sorted(
            (atom for atom in conjunction if not atom.negated),
            key=lambda atom: len(self.facts.edges(self.relations[atom.relation]).start),
        )
        columns, value = self._start(rest.pop(0), least)
        while rest:
            # A bound atom only filters: it comes as soon as it can.
            atom = max(rest, key=lambda atom: len(columns.keys() & set(atom.variables)) / len(set(atom.variables)))
            rest.remove(atom)
            columns, value = self._join(columns, value, atom, least)
        for atom in conjunction:
            if atom.negated:
                columns, value = self._filter(columns, value, atom, least)
        return columns, value

    def _start(self, atom: Atom, least: float) -> Table:
        edges = self.facts.edges(self.relations[atom.relation])
        kept = edges.weight >= least
        if atom.first == atom.second:
            kept &= edges.start == edges.end
        self._check(int(kept.sum()))
        return {atom.first: edges.start[kept], atom.second: edges.end[kept]}, edges.weight[kept]

    def _filter(self, columns: dict[str, Ids], value: Weights, atom: Atom, least: float) -> Table:
        weight, holds = self._atom(atom, columns)
        value = value + weight - 1.0
        kept = holds & (value >= least)
        return {name: column[kept] for name, column in columns.items()}, value[kept]

    def _join(self, columns: dict[str, Ids], value: Weights, atom: Atom, least: float) -> Table:
        if columns.keys() >= set(atom.variables):
            return self._filter(columns, value, atom, least)
        backward = atom.first not in columns
        bound, free = reversed(atom.variables) if backward else atom.variables
        edges = self.facts.edges(self.relations[atom.relation], backward)
        low, count = partners(edges, columns[bound], least + 1.0 - value)
        self._check(int(count.sum()))
        row, place = pairs(low, count)
        joined = {name: column[row] for name, column in columns.items()} | {free: edges.end[place]}
        return joined, value[row] + edges.weight[place] - 1.0

    def _check(self, rows: int) -> None:
        if rows > self.limit:
            raise _TooMany(rows)


def _distinct(tables: Sequence[dict[str, Ids]]) -> dict[str, Ids]:
    """The distinct bindings of several tables over the same variables."""
    names = sorted(tables[0])
    rows: npt.NDArray[Any] = np.unique(
        np.concatenate([np.stack([table[name] for name in names], axis=1) for table in tables]), axis=0
    )
    return {name: rows[:, place] for place, name in enumerate(names)}
