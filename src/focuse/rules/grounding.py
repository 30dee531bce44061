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

from focuse.data.graph import Graph, Ids, Weights, concatenate, lookup_sorted, ranges_to_indices
from focuse.data.weights import fit_normalizer, in_unit_range
from focuse.errors import FocuseError
from focuse.rules.grammar import Atom, Rule, as_rules, parse_rules

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
        self.rows = np.split(by_relation, np.cumsum(counts)[:-1])  # of the edges of each relation
        self._edges: dict[tuple[int, bool], RelationEdges] = {}

    def edges(self, relation: int, backward: bool = False) -> RelationEdges:
        """Return the edges of a relation, sorted by head or, with `backward`, by tail."""
        if (relation, backward) not in self._edges:
            rows = self.rows[relation]
            ends = [self.graph.head[rows], self.graph.tail[rows]]
            start, end = reversed(ends) if backward else ends
            weight = self.graph.weight[rows]
            order = np.lexsort((-weight, start))
            self._edges[relation, backward] = RelationEdges(start[order], end[order], weight[order])
        return self._edges[relation, backward]

    def weight(self, head: Ids, relation: int, tail: Ids) -> tuple[Weights, npt.NDArray[np.bool_]]:
        """Return the weights [n] of triples, 0 where the graph has none, and whether it has them [n]."""
        keys = self.graph.keys_of(head, np.full(len(head), relation, np.int32), tail)
        weight = lookup_sorted(self.keys, self.graph.weight, keys, np.nan)
        known = ~np.isnan(weight)
        return np.where(known, weight, 0.0), known


def relation_ids(graph: Graph, rule: Rule) -> dict[str, int]:
    """Return the ids of a rule's relations by name; an unknown name is an error of the rule."""
    try:
        return {name: graph.relations.id(name, "relation") for name in rule.relations}
    except FocuseError as error:
        raise FocuseError(f"{rule.where}: {error}") from None


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
    if not 0.0 < minimum <= 1.0:
        raise FocuseError(f"the minimum must lie above 0 and at most at 1, not {minimum:g}")
    if limit < 1:
        raise FocuseError(f"the limit must be at least 1 grounding, not {limit}")
    parsed = parse_rules(rules) if isinstance(rules, str) else as_rules(rules)
    facts = FactIndex(graph, weight_scaling)
    joins = [_Joins(facts, rule, limit) for rule in parsed]  # all first, so that a typo is found at once
    return [_ground(one, minimum) for one in joins]


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
    looping = set(graph.relation[graph.head == graph.tail].tolist())
    sources = dict.fromkeys(one.rule.source for one in groundings)
    source = ", ".join(filter(None, sources)) or "rules"
    empty = np.empty(0, np.int32)
    plain = replace(graph, source=source, weighted=True, columns=None, lower_is_better=False)
    parts = [replace(plain, head=empty, relation=empty, tail=empty, weight=np.empty(0))]
    for one in groundings:
        kept = (one.confidence > ROUNDING) & (~one.seen | keep_known)
        if one.relation not in looping:
            kept &= one.head != one.tail
        relation = np.full(int(kept.sum()), one.relation, np.int32)
        ends = one.head[kept], one.tail[kept]
        parts.append(replace(parts[0], head=ends[0], relation=relation, tail=ends[1], weight=one.confidence[kept]))
    distinct = concatenate(parts).merge_repeated("max")
    return distinct.select(np.argsort(-distinct.weight, kind="stable"))


def _ground(joins: _Joins, minimum: float) -> Grounding:
    """Ground one rule; the minimum is raised to the lowest at which its joins stay within the limit."""
    rule, used, note = joins.rule, minimum, ""
    try:
        columns, body = joins.bodies(minimum)
    except _LimitExceeded as error:
        used = _lowest_that_fits(joins, minimum, error.rows)
        columns, body = joins.bodies(used)
        note = (
            f"{rule.where}: {error.rows:,} rows to join at body confidence {minimum:g} exceed the limit of "
            f"{joins.limit:,}; "
        )
        if not len(body):
            raise FocuseError(f"{note}no grounding fits into it; raise it or make the rule narrower") from None
        note += f"groundings kept: {len(body):,}, each of at least {used:.6g}; raise the limit for more"
    if not len(body):
        raise FocuseError(_no_grounding(joins, minimum))
    order = np.argsort(-body, kind="stable")
    body, head, tail = body[order], columns[rule.head.first][order], columns[rule.head.second][order]
    relation = joins.relations[rule.head.relation]
    known, seen = joins.facts.weight(head, relation, tail)
    return Grounding(rule, relation, head, tail, body, _implied(body, rule), known, seen, used, note)


def _implied(body: Weights, rule: Rule) -> Weights:
    """Return the confidence of the head [n] that follows from the truth of the body [n]."""
    return np.maximum(0.0, body + rule.truth - 1.0)


def _lowest_that_fits(joins: _Joins, minimum: float, rows: int) -> float:
    """Return the lowest minimum, on a grid of a millionth, at which no join exceeds the limit."""
    too_low, fits = int(np.floor(minimum * GRID)), GRID
    try:
        joins.bodies(1.0)
    except _LimitExceeded as error:
        raise FocuseError(
            f"{joins.rule.where}: {rows:,} rows to join exceed the limit of {joins.limit:,}, and so do the "
            f"{error.rows:,} of body confidence 1; raise the limit or make the rule narrower"
        ) from None
    while fits - too_low > 1:
        middle = (fits + too_low) // 2
        try:
            joins.bodies(middle / GRID)
            fits = middle
        except _LimitExceeded:
            too_low = middle
    return fits / GRID


def _no_grounding(joins: _Joins, minimum: float) -> str:
    """Return why a rule has no groundings, and what to do."""
    for atom in joins.rule.atoms:
        if not atom.negated and not len(joins.facts.rows[joins.relations[atom.relation]]):
            return f"{joins.rule.where}: has no grounding, because the graph has no edge of {atom.relation!r}"
    try:
        _, body = joins.bodies(1 / GRID)
    except _LimitExceeded as error:
        _, body = joins.bodies(_lowest_that_fits(joins, 1 / GRID, error.rows))
    if len(body):
        return (
            f"{joins.rule.where}: has no grounding, because its strongest body has confidence {body.max():.4g}, below "
            f"the minimum of {minimum:g}; lower the minimum"
        )
    return (
        f"{joins.rule.where}: has no grounding, because no edges fit together, or their weights leave nothing of the "
        "conjunction; check the directions of its atoms"
    )


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
    columns, body = _Joins(facts, rule, limit, (head, tail)).bodies(minimum)
    order = np.argsort(-body, kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    return Proof(rule, columns, body[order], _implied(body[order], rule))


# ---- joins ----------------------------------------------------------------------------------------------------------


class _LimitExceeded(Exception):  # noqa: N818 - not an error: the minimum is raised
    """A join would have more rows than the limit."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


class _Joins:
    """Joins the atoms of one rule over one graph: for all bodies, or for those that imply a `target` (head, tail).

    Without a target, a join of more than `limit` rows raises _LimitExceeded. With one, a join keeps the strongest rows,
    and the target itself is part of no body.
    """

    def __init__(self, facts: FactIndex, rule: Rule, limit: int, target: tuple[int, int] | None = None) -> None:
        self.facts, self.rule, self.limit, self.target = facts, rule, limit, target
        self.relations = relation_ids(facts.graph, rule)

    def bodies(self, minimum: float) -> tuple[Bindings, Weights]:
        """Return the bindings of all variables [n] whose body reaches `minimum`, and its truth [n]."""
        # A sum of k disjuncts reaches the minimum only if one of them reaches a k-th of it. The others are then looked
        # up, because every disjunct has the same variables.
        least = minimum / len(self.rule.body) - ROUNDING
        tables = [self._conjunction(conjunction, least) for conjunction in self.rule.body]
        columns, value = tables[0]
        if len(tables) > 1:
            names = sorted(columns)
            stacked = [np.stack([table[name] for name in names], axis=1) for table, _ in tables]
            rows: npt.NDArray[Any] = np.unique(np.concatenate(stacked), axis=0)
            columns = {name: rows[:, index] for index, name in enumerate(names)}
            value = np.minimum(1.0, sum(self._truth(part, columns) for part in self.rule.body))
        kept = value >= minimum - ROUNDING
        self._check_limit(int(kept.sum()))
        return {name: column[kept] for name, column in columns.items()}, np.clip(value[kept], 0.0, 1.0)

    def _truth(self, conjunction: Sequence[Atom], columns: Bindings) -> Weights:
        """Return the truth of a conjunction whose variables are all bound; [n]."""
        value = sum(self._atom(atom, columns)[0] - 1.0 for atom in conjunction) + np.float64(1.0)
        return np.maximum(0.0, np.asarray(value, np.float64))

    def _atom(self, atom: Atom, columns: Bindings) -> tuple[Weights, npt.NDArray[np.bool_]]:
        """Return the truth of a bound atom [n], and whether the graph has its triple (or it is negated) [n]."""
        weight, seen = self.facts.weight(columns[atom.first], self.relations[atom.relation], columns[atom.second])
        if self.target is not None:
            seen &= ~self._is_target(atom, columns)
            weight = np.where(seen, weight, 0.0)
        return (1.0 - weight, np.ones(len(seen), bool)) if atom.negated else (weight, seen)

    def _is_target(self, atom: Atom, columns: Bindings) -> npt.NDArray[np.bool_]:
        """Return where a bound atom is the target; bool [n]."""
        head, tail = self.target or (-1, -1)
        same = (columns[atom.first] == head) & (columns[atom.second] == tail)
        return np.asarray(same & (atom.relation == self.rule.head.relation), bool)

    def _conjunction(self, conjunction: Sequence[Atom], least: float) -> tuple[Bindings, Weights]:
        """Join the atoms, small relations first; return bindings [n] and their truth, which is at least `least`."""
        rest = [atom for atom in conjunction if not atom.negated]
        rest.sort(key=lambda atom: len(self.facts.rows[self.relations[atom.relation]]))
        if self.target is None:
            columns, value = self._edges(rest.pop(0), least)
        else:
            (first, second), (head, tail) = self.rule.head.variables, self.target
            rows = int(first != second or head == tail)  # nothing implies r(a, b) by a rule for r(x, x)
            columns = {first: np.full(rows, head, np.int32), second: np.full(rows, tail, np.int32)}
            value = np.ones(rows)
        while rest:
            # An atom whose variables are bound only filters, so it comes as soon as possible.
            atom = max(rest, key=lambda atom: len(columns.keys() & set(atom.variables)) / len(set(atom.variables)))
            rest.remove(atom)
            columns, value = self._join(columns, value, atom, least)
        for atom in conjunction:
            if atom.negated:
                columns, value = self._filter(columns, value, atom, least)
        return columns, value

    def _edges(self, atom: Atom, least: float) -> tuple[Bindings, Weights]:
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
        truth = value[row] + edges.weight[edge] - 1.0
        joined = {name: column[row] for name, column in columns.items()} | {free: edges.end[edge]}
        if self.target is None:
            return joined, truth
        kept = np.flatnonzero(~self._is_target(atom, joined))
        if len(kept) > self.limit:
            kept = kept[np.argpartition(-truth[kept], self.limit)[: self.limit]]
        return {name: column[kept] for name, column in joined.items()}, truth[kept]

    def _check_limit(self, rows: int) -> None:
        if rows > self.limit and self.target is None:
            raise _LimitExceeded(rows)
