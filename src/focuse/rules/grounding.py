"""Grounding: the triples that rules infer from a graph, and how strongly.

`ground` finds everything that rules infer; `prove` finds what implies one triple. Both are joins of sorted columns
without loops over rows.

Truth values follow Łukasiewicz: a and b = max(0, a + b − 1), a or b = min(1, a + b), not a = 1 − a. The truth of a
conjunction can only decrease with every atom joined to it, so an edge is worth joining only if it weighs at least
`minimum` + 1 − (the truth of the atoms so far). Edges are sorted by entity and, within it, by decreasing weight, so
that a binary search finds how many edges of a row are worth joining. Nothing below the minimum is built, and the size
of a join is known before it is built.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.data.graph import Graph, Ids, Weights, find_sorted, ranges_to_indices
from focuse.data.weights import fit_normalizer, in_unit_range
from focuse.errors import FocuseError
from focuse.rules.grammar import Atom, Rule, parse_rules

Indices = npt.NDArray[np.int64]
Bindings = dict[str, Ids]  # a column of entities [n] per variable
DEFAULT_MINIMUM = 0.5
DEFAULT_LIMIT = 1_000_000
ROUNDING = 1e-9  # 0.85 + 0.95 − 1 is 0.7999999999999998 in floating point and still reaches a minimum of 0.8
GRID = 1_000_000  # a raised minimum is a multiple of 1 / GRID


# ---- the index that joins use ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RelationEdges:
    """Edges of one relation seen from one end: sorted by `start` and, within it, by decreasing weight."""

    start: Ids
    end: Ids
    weight: Weights

    def at_least(self, entity: Ids, minimum: Weights) -> tuple[Indices, Indices]:
        """Return the range of edges of each entity [n] that weigh at least `minimum` [n]: start [n] and stop [n].

        Weights decrease within an entity, so that this is a binary search, done for all rows at once.
        """
        first = np.searchsorted(self.start, entity, side="left").astype(np.int64)
        low, high = first.copy(), np.searchsorted(self.start, entity, side="right").astype(np.int64)
        while (low < high).any():
            middle = (low + high) // 2
            # The middle of a finished row may lie behind the last edge; it is not used.
            strong = self.weight[np.minimum(middle, len(self.weight) - 1)] >= minimum
            unfinished = low < high
            low = np.where(unfinished & strong, middle + 1, low)
            high = np.where(unfinished & ~strong, middle, high)
        return first, low


class FactIndex:
    """A graph as rules see it: each triple once with its largest weight, in [0, 1], sorted for joins."""

    def __init__(self, graph: Graph, weight_scaling: str | None = None) -> None:
        merged = _with_unit_weights(graph, weight_scaling).merge_repeated("max")
        order = np.argsort(merged.keys)
        self.graph = merged.select(order)
        self.keys = merged.keys[order]
        by_relation = np.argsort(self.graph.relation, kind="stable")
        counts = np.bincount(self.graph.relation, minlength=len(graph.relations))
        self._rows = np.split(by_relation, np.cumsum(counts)[:-1])
        self._edges: dict[tuple[int, bool], RelationEdges] = {}

    def edges(self, relation: int, backward: bool = False) -> RelationEdges:
        """Return the edges of a relation, sorted by head or, with `backward`, by tail."""
        if (relation, backward) not in self._edges:
            rows = self._rows[relation]
            ends = [self.graph.head[rows], self.graph.tail[rows]]
            start, end = reversed(ends) if backward else ends
            weight = self.graph.weight[rows]
            order = np.lexsort((-weight, start))
            self._edges[relation, backward] = RelationEdges(start[order], end[order], weight[order])
        return self._edges[relation, backward]

    def weight(self, head: Ids, relation: int, tail: Ids) -> tuple[Weights, npt.NDArray[np.bool_]]:
        """Return the weights [n] of triples, 0 where the graph has none, and whether it has them [n]."""
        if not len(self.keys):
            return np.zeros(len(head)), np.zeros(len(head), bool)
        index, known = find_sorted(self.keys, self.graph.keys_of(head, np.full(len(head), relation, np.int32), tail))
        return np.where(known, self.graph.weight[index], 0.0), known


def _with_unit_weights(graph: Graph, weight_scaling: str | None) -> Graph:
    """Return the graph with weights in [0, 1]: as they are, or by a normalizer fitted to it."""
    if weight_scaling is not None:
        weight = fit_normalizer(weight_scaling, graph).transform(graph.weight, graph.relation)
        return replace(graph, weight=weight, lower_is_better=False)
    if not in_unit_range(graph.weight):
        raise FocuseError(
            f"{graph.source}: rules need confidences in [0, 1], found {graph.weight.min():g} to "
            f"{graph.weight.max():g}; normalize them by 'relation', 'global' or 'quantile'"
        )
    return replace(graph, weight=1.0 - graph.weight, lower_is_better=False) if graph.lower_is_better else graph


# ---- everything that rules infer ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Grounding:
    """All groundings of one rule whose body reaches `minimum`, the strongest body first.

    Attributes
    ----------
    head, tail : ids [n]
        The inferred triples are (head, relation, tail).
    body : float64 [n]
        The truth of the body.
    confidence : float64 [n]
        What follows for the head: max(0, body + truth − 1).
    known : float64 [n]
        The weight of the inferred triple in the graph, 0 where `seen` [n] is False.
    minimum : float
        Above the minimum asked for if `note` says so.
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
        """Return whether the minimum was raised to stay within the limit."""
        return bool(self.note)

    @cached_property
    def _strongest(self) -> Indices:
        """Return the index of the strongest grounding of each distinct triple [d]."""
        pairs = np.stack([self.head, self.tail], axis=1).astype(np.int64)
        return np.sort(np.unique(pairs @ np.array([1 << 31, 1]), return_index=True)[1]).astype(np.int64)

    @property
    def num_triples(self) -> int:
        """Count the distinct inferred triples."""
        return len(self._strongest)

    @property
    def num_new(self) -> int:
        """Count the distinct inferred triples that the graph does not have."""
        return int((~self.seen[self._strongest]).sum())

    @property
    def hit_ratio(self) -> float:
        """Return the fraction of the distinct inferred triples that the graph has."""
        return 1.0 - self.num_new / self.num_triples

    @property
    def mean_confidence(self) -> float:
        """Return the mean confidence of the distinct inferred triples, each by its strongest grounding."""
        return float(self.confidence[self._strongest].mean())

    @property
    def distance(self) -> float:
        """Return the mean distance to satisfaction, max(0, body − head), where an unseen head counts as 0."""
        return float(np.maximum(0.0, self.body - self.known).mean())


class _LimitExceeded(Exception):  # noqa: N818 - not an error: the minimum is raised
    """A join would have more rows than the limit."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


def ground(
    graph: Graph,
    rules: Iterable[Rule] | str,
    *,
    minimum: float = DEFAULT_MINIMUM,
    limit: int = DEFAULT_LIMIT,
    weight_scaling: str | None = None,
) -> list[Grounding]:
    """Return every grounding of each rule whose body is true to at least `minimum`, in (0, 1].

    Repeated triples of the graph count once, with their largest weight. A rule that names an unknown relation or has no
    grounding is an error.

    Parameters
    ----------
    limit : int
        If a join would have more rows, the minimum is raised to the lowest that fits, and the grounding's `note` says
        so.
    weight_scaling : str
        The normalizer for weights outside of [0, 1].

    >>> from focuse.data.readers import read
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
    facts = FactIndex(graph, weight_scaling)
    encoded = [_relation_ids(rule, graph) for rule in parsed]  # all names first, so that a typo is found at once
    return [_Grounder(facts, rule, ids, limit).ground(minimum) for rule, ids in zip(parsed, encoded, strict=True)]


def inferred(
    graph: Graph,
    rules: Iterable[Rule] | str,
    *,
    minimum: float = DEFAULT_MINIMUM,
    limit: int = DEFAULT_LIMIT,
    weight_scaling: str | None = None,
    keep_known: bool = False,
) -> Graph:
    """Return the triples that rules infer beyond the graph, each once with the largest confidence of any rule.

    The result is a graph over the same vocabularies, the strongest triple first. Its weights are confidences in [0, 1].
    `keep_known` keeps the triples that `graph` has already.

    >>> from focuse.data.readers import read
    >>> graph = read([("a", "r", "b", 0.9), ("b", "r", "c", 0.8)])
    >>> inferred(graph, "r(x, y) & r(y, z) -> r(x, z) : 0.9").to_arrow().to_pylist()[0]["tail"]
    'c'
    """
    return collect(graph, ground(graph, rules, minimum=minimum, limit=limit, weight_scaling=weight_scaling), keep_known)


def collect(graph: Graph, groundings: Sequence[Grounding], keep_known: bool = False) -> Graph:
    """Return `inferred` from groundings.

    Triples inferred with confidence 0 are left out. So are loops (x, r, x) of a relation that has none in the graph,
    because transitivity infers them from an edge and its inverse.
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


def _relation_ids(rule: Rule, graph: Graph) -> dict[str, int]:
    """Return the ids of a rule's relations."""
    found = {}
    for name in rule.relations:
        try:
            found[name] = graph.relations.id(name, "relation")
        except FocuseError as error:
            raise FocuseError(f"{rule.where}: {error}") from None
    return found


class _Grounder:
    """Grounds one rule over one graph."""

    def __init__(self, facts: FactIndex, rule: Rule, relations: dict[str, int], limit: int) -> None:
        self.facts, self.rule, self.relations, self.limit = facts, rule, relations, limit

    def ground(self, minimum: float) -> Grounding:
        try:
            found, used, note = self.bodies(minimum), minimum, ""
        except _LimitExceeded as error:
            used = self._lowest_that_fits(minimum, error.rows)
            found = self.bodies(used)
            note = (
                f"{self.rule.where}: {error.rows:,} rows to join at body confidence {minimum:g} exceed the limit of "
                f"{self.limit:,}; kept are all {len(found[1]):,} groundings of at least {used:.6g}. "
                "Raise the limit for weaker ones"
            )
        if not len(found[1]):
            raise FocuseError(self._no_grounding(minimum, used, note))
        return self._finish(*found, used, note)

    def _finish(self, columns: Bindings, body: Weights, minimum: float, note: str) -> Grounding:
        order = np.argsort(-body, kind="stable")
        body, target = body[order], self.rule.head
        head, tail = columns[target.first][order], columns[target.second][order]
        relation = self.relations[target.relation]
        known, seen = self.facts.weight(head, relation, tail)
        confidence = np.maximum(0.0, body + self.rule.truth - 1.0)
        return Grounding(self.rule, relation, head, tail, body, confidence, known, seen, minimum, note)

    def _lowest_that_fits(self, minimum: float, rows: int) -> float:
        """Return the lowest minimum, on a grid of a millionth, at which no join exceeds the limit."""
        too_low, fits = int(np.floor(minimum * GRID)), GRID
        try:
            self.bodies(1.0)
        except _LimitExceeded as error:
            raise FocuseError(
                f"{self.rule.where}: {rows:,} rows to join exceed the limit of {self.limit:,}, and so do the "
                f"{error.rows:,} of body confidence 1; raise the limit or make the rule narrower"
            ) from None
        while fits - too_low > 1:
            middle = (fits + too_low) // 2
            try:
                self.bodies(middle / GRID)
                fits = middle
            except _LimitExceeded:
                too_low = middle
        return fits / GRID

    def _no_grounding(self, minimum: float, used: float, note: str) -> str:
        """Return why a rule has no groundings, and what to do."""
        if note:
            return f"{note}, or make the rule narrower"
        names = dict.fromkeys(atom.relation for atom in self.rule.atoms if not atom.negated)
        empty = [name for name in names if not len(self.facts.edges(self.relations[name]).start)]
        if empty:
            return f"{self.rule.where}: has no grounding, because the graph has no edge of {empty[0]!r}"
        try:
            weaker = self.bodies(1 / GRID)
        except _LimitExceeded as error:
            weaker = self.bodies(self._lowest_that_fits(1 / GRID, error.rows))
        if len(weaker[1]):
            return (
                f"{self.rule.where}: has no grounding, because its strongest body has confidence "
                f"{weaker[1].max():.4g}, below the minimum of {used:g}; lower the minimum"
            )
        return (
            f"{self.rule.where}: has no grounding, because no edges fit together, or their weights leave nothing of "
            "the conjunction; check the directions of its atoms"
        )

    def bodies(self, minimum: float) -> tuple[Bindings, Weights]:
        """Return the bindings of all variables [n] whose body reaches `minimum`, and its truth [n]."""
        floor = minimum - ROUNDING
        # A sum of k disjuncts reaches the minimum only if one of them reaches a k-th of it. The others are then looked
        # up, because every disjunct has the same variables.
        least = minimum / len(self.rule.body) - ROUNDING
        tables = [self._conjunction(conjunction, least) for conjunction in self.rule.body]
        if len(tables) == 1:
            columns, value = tables[0]
        else:
            columns = _distinct_bindings([table[0] for table in tables])
            value = np.minimum(1.0, sum(self._truth(part, columns) for part in self.rule.body))
        kept = value >= floor
        self._check_limit(int(kept.sum()))
        return {name: column[kept] for name, column in columns.items()}, np.clip(value[kept], 0.0, 1.0)

    def _truth(self, conjunction: Sequence[Atom], columns: Bindings) -> Weights:
        """Return the truth of a conjunction whose variables are all bound; [n]."""
        value = sum(self._atom(atom, columns)[0] - 1.0 for atom in conjunction) + np.float64(1.0)
        return np.maximum(0.0, np.asarray(value, np.float64))

    def _atom(self, atom: Atom, columns: Bindings) -> tuple[Weights, npt.NDArray[np.bool_]]:
        """Return the truth of a bound atom [n], and whether the graph has its triple (or it is negated) [n]."""
        weight, seen = self.facts.weight(columns[atom.first], self.relations[atom.relation], columns[atom.second])
        return (1.0 - weight, np.ones(len(seen), bool)) if atom.negated else (weight, seen)

    def _conjunction(self, conjunction: Sequence[Atom], least: float) -> tuple[Bindings, Weights]:
        """Join the atoms, small relations first; return bindings [n] and their truth, which is at least `least`."""
        rest = sorted(
            (atom for atom in conjunction if not atom.negated),
            key=lambda atom: len(self.facts.edges(self.relations[atom.relation]).start),
        )
        columns, value = self._start(rest.pop(0), least)
        while rest:
            # An atom whose variables are bound only filters, so it comes as soon as possible.
            atom = max(rest, key=lambda atom: len(columns.keys() & set(atom.variables)) / len(set(atom.variables)))
            rest.remove(atom)
            columns, value = self._join(columns, value, atom, least)
        for atom in conjunction:
            if atom.negated:
                columns, value = self._filter(columns, value, atom, least)
        return columns, value

    def _start(self, atom: Atom, least: float) -> tuple[Bindings, Weights]:
        edges = self.facts.edges(self.relations[atom.relation])
        kept = edges.weight >= least
        if atom.first == atom.second:
            kept &= edges.start == edges.end
        self._check_limit(int(kept.sum()))
        return {atom.first: edges.start[kept], atom.second: edges.end[kept]}, edges.weight[kept]

    def _filter(self, columns: Bindings, value: Weights, atom: Atom, least: float) -> tuple[Bindings, Weights]:
        weight, holds = self._atom(atom, columns)
        value = value + weight - 1.0
        kept = holds & (value >= least)
        return {name: column[kept] for name, column in columns.items()}, value[kept]

    def _join(self, columns: Bindings, value: Weights, atom: Atom, least: float) -> tuple[Bindings, Weights]:
        if columns.keys() >= set(atom.variables):
            return self._filter(columns, value, atom, least)
        backward = atom.first not in columns
        bound, free = reversed(atom.variables) if backward else atom.variables
        edges = self.facts.edges(self.relations[atom.relation], backward)
        start, stop = edges.at_least(columns[bound], least + 1.0 - value)
        self._check_limit(int((stop - start).sum()))
        row, edge = ranges_to_indices(start, stop)
        joined = {name: column[row] for name, column in columns.items()} | {free: edges.end[edge]}
        return joined, value[row] + edges.weight[edge] - 1.0

    def _check_limit(self, rows: int) -> None:
        if rows > self.limit:
            raise _LimitExceeded(rows)


def _distinct_bindings(tables: Sequence[Bindings]) -> Bindings:
    """Return the distinct bindings of several tables over the same variables."""
    names = sorted(tables[0])
    rows: npt.NDArray[Any] = np.unique(
        np.concatenate([np.stack([table[name] for name in names], axis=1) for table in tables]), axis=0
    )
    return {name: rows[:, index] for index, name in enumerate(names)}


# ---- what implies one triple ----------------------------------------------------------------------------------------

MAX_JOIN_ROWS = 100_000  # the weakest edges of a hub are left out beyond it


@dataclass(frozen=True, eq=False)
class Proof:
    """The groundings of one rule whose head is a given triple, the strongest body first.

    `bindings` has a column of entities [n] per variable, `body` [n] is the truth of the body, and `confidence` [n] what
    follows for the head: max(0, body + truth − 1).
    """

    rule: Rule
    bindings: Bindings
    body: Weights
    confidence: Weights

    def __len__(self) -> int:
        return len(self.body)


def prove(facts: FactIndex, rule: Rule, head: int, tail: int, minimum: float, limit: int = MAX_JOIN_ROWS) -> Proof:
    """Return what implies rule.head(head, tail) in the graph without that triple: bodies true to at least `minimum`.

    The head of the rule is bound, so that a join starts at two entities and stays in their neighborhood.

    >>> from focuse.data.readers import read
    >>> from focuse.rules.grammar import parse_rules
    >>> graph = read([("a", "r", "b", 0.9), ("b", "r", "c", 0.8)])
    >>> [rule] = parse_rules("r(x, y) & r(y, z) -> r(x, z)")
    >>> found = prove(FactIndex(graph), rule, graph.entities.id("a"), graph.entities.id("c"), 0.5)
    >>> graph.entities[found.bindings["y"][0]], found.body.round(3).tolist()
    ('b', [0.7])
    """
    columns, body = _Prover(facts, rule, head, tail, limit).bodies(minimum)
    order = np.argsort(-body, kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    return Proof(rule, columns, body[order], np.maximum(0.0, body[order] + rule.truth - 1.0))


class _Prover:
    """Grounds one rule whose head is bound to the triple to prove."""

    def __init__(self, facts: FactIndex, rule: Rule, head: int, tail: int, limit: int) -> None:
        self.facts, self.rule, self.limit = facts, rule, limit
        self.ends = head, tail
        self.relations = {name: facts.graph.relations.id(name, "relation") for name in rule.relations}

    def bodies(self, minimum: float) -> tuple[Bindings, Weights]:
        target, (head, tail) = self.rule.head, self.ends
        if target.first == target.second and head != tail:
            return {target.first: np.empty(0, np.int32)}, np.empty(0)
        # As in `_Grounder.bodies`: one of k disjuncts must reach a k-th of the minimum.
        least = minimum / len(self.rule.body) - ROUNDING
        tables = [self._conjunction(part, least) for part in self.rule.body]
        columns = {name: column.astype(np.int32) for name, column in _distinct_bindings(tables).items()}
        rows = len(columns[target.first])
        truth = np.minimum(1.0, sum((self._truth(part, columns) for part in self.rule.body), np.zeros(rows)))
        kept = truth >= minimum - ROUNDING
        return {name: column[kept] for name, column in columns.items()}, truth[kept]

    def _weight(self, atom: Atom, columns: Bindings) -> tuple[Weights, npt.NDArray[np.bool_]]:
        """Return weights [n] of a bound atom's triples, and whether the graph has them, except the one to prove [n]."""
        weight, seen = self.facts.weight(columns[atom.first], self.relations[atom.relation], columns[atom.second])
        seen = seen & ~self._is_target(atom, columns)
        return np.where(seen, weight, 0.0), seen

    def _is_target(self, atom: Atom, columns: Bindings) -> npt.NDArray[np.bool_]:
        """Return where a bound atom is the triple to prove; bool [n]."""
        same = (columns[atom.first] == self.ends[0]) & (columns[atom.second] == self.ends[1])
        return np.asarray(same & (atom.relation == self.rule.head.relation), bool)

    def _truth(self, conjunction: Sequence[Atom], columns: Bindings) -> Weights:
        value = np.ones(len(next(iter(columns.values()))))
        holds = np.ones(len(value), bool)
        for atom in conjunction:
            weight, seen = self._weight(atom, columns)
            value = value + (1.0 - weight if atom.negated else weight) - 1.0
            holds &= seen | atom.negated
        return np.where(holds, np.maximum(0.0, value), 0.0)

    def _conjunction(self, conjunction: Sequence[Atom], least: float) -> Bindings:
        """Return bindings of all variables for which the atoms without '!' may be true to at least `least`."""
        target, (head, tail) = self.rule.head, self.ends
        columns: Bindings = {target.first: np.array([head], np.int32), target.second: np.array([tail], np.int32)}
        value = np.ones(1)
        rest = [atom for atom in conjunction if not atom.negated]
        while rest:
            # An atom with both ends bound only filters and comes first; one with neither comes last.
            atom = max(rest, key=lambda atom: len(columns.keys() & set(atom.variables)) / len(set(atom.variables)))
            rest.remove(atom)
            columns, value = self._join(columns, value, atom, least)
        return columns

    def _join(self, columns: Bindings, value: Weights, atom: Atom, least: float) -> tuple[Bindings, Weights]:
        if columns.keys() >= set(atom.variables):
            weight, seen = self._weight(atom, columns)
            value = value + weight - 1.0
            kept = seen & (value >= least)
            return {name: column[kept] for name, column in columns.items()}, value[kept]
        backward = atom.first not in columns
        bound, free = reversed(atom.variables) if backward else atom.variables
        edges = self.facts.edges(self.relations[atom.relation], backward)
        row, edge = ranges_to_indices(*edges.at_least(columns[bound], least + 1.0 - value))
        truth = value[row] + edges.weight[edge] - 1.0
        if len(row) > self.limit:
            best = np.argpartition(-truth, self.limit)[: self.limit]
            row, edge, truth = row[best], edge[best], truth[best]
        joined = {name: column[row] for name, column in columns.items()} | {free: edges.end[edge]}
        others = ~self._is_target(atom, joined)
        return {name: column[others] for name, column in joined.items()}, truth[others]
