"""One triple and the rules that would imply it: groundings whose head it is, by lookups around its two ends.

Where `grounding.ground` finds everything that rules infer from a graph, this starts with the head bound: a join
begins at two entities and never leaves their surroundings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from focuse.graph.graph import Ids, Weights
from focuse.ukge.facts import Facts, pairs, partners
from focuse.ukge.rules import Atom, Rule

ROUNDING = 1e-9
LIMIT = 100_000  # rows of a join; a hub's weakest edges are left out beyond it

Bindings = dict[str, Ids]  # a column [n] a variable


@dataclass(frozen=True, eq=False)
class Proof:
    """The groundings of one rule whose head is the asked triple, the strongest body first.

    `bindings` has a column [n] of entities a variable, `body` [n] the body's truth, `confidence` [n] what follows for
    the head: max(0, body + truth − 1).
    """

    rule: Rule
    bindings: Bindings
    body: Weights
    confidence: Weights

    def __len__(self) -> int:
        return len(self.body)


def prove(facts: Facts, rule: Rule, head: int, tail: int, minimum: float, limit: int = LIMIT) -> Proof:
    """What implies rule.head(head, tail) in the graph without that triple: bodies true to at least `minimum`.

    >>> from focuse.graph import read
    >>> from focuse.ukge.rules import parse_rules
    >>> graph = read([("a", "r", "b", 0.9), ("b", "r", "c", 0.8)])
    >>> [rule] = parse_rules("r(x, y) & r(y, z) -> r(x, z)")
    >>> found = prove(Facts(graph), rule, graph.entities.id("a"), graph.entities.id("c"), 0.5)
    >>> graph.entities[found.bindings["y"][0]], found.body.round(3).tolist()
    ('b', [0.7])
    """
    one = _One(facts, rule, head, tail, limit)
    columns, body = one.bodies(minimum)
    order = np.argsort(-body, kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    return Proof(rule, columns, body[order], np.maximum(0.0, body[order] + rule.truth - 1.0))


class _One:
    """One rule whose head's variables are bound."""

    def __init__(self, facts: Facts, rule: Rule, head: int, tail: int, limit: int) -> None:
        self.facts, self.rule, self.limit = facts, rule, limit
        self.ends = head, tail
        self.relations = {name: facts.graph.relations.id(name, "relation") for name in rule.relations}

    def bodies(self, minimum: float) -> tuple[Bindings, Weights]:
        target, (head, tail) = self.rule.head, self.ends
        if target.first == target.second and head != tail:
            return {target.first: np.empty(0, np.int32)}, np.empty(0)
        # As in grounding: a sum of k parts reaches the minimum only if one of them reaches a k-th of it.
        least = minimum / len(self.rule.body) - ROUNDING
        tables = [self._conjunction(part, least) for part in self.rule.body]
        names = sorted(tables[0])
        rows = np.unique(np.concatenate([np.stack([one[name] for name in names], axis=1) for one in tables]), axis=0)
        columns = {name: rows[:, place].astype(np.int32) for place, name in enumerate(names)}
        truth = np.minimum(1.0, sum((self._truth(part, columns) for part in self.rule.body), np.zeros(len(rows))))
        kept = truth >= minimum - ROUNDING
        return {name: column[kept] for name, column in columns.items()}, truth[kept]

    def _weight(self, atom: Atom, columns: Bindings) -> tuple[Weights, npt.NDArray[np.bool_]]:
        """Weights [n] of a bound atom's triples, and whether the graph has them [n]; it lacks the asked one."""
        weight, seen = self.facts.weight(columns[atom.first], self.relations[atom.relation], columns[atom.second])
        seen = seen & ~self._asked(atom, columns)
        return np.where(seen, weight, 0.0), seen

    def _asked(self, atom: Atom, columns: Bindings) -> npt.NDArray[np.bool_]:
        """Where a bound atom is the asked triple itself; [n]."""
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
        """Bindings of all variables for which the atoms without '!' may be true to at least `least`."""
        target, (head, tail) = self.rule.head, self.ends
        columns: Bindings = {target.first: np.array([head], np.int32), target.second: np.array([tail], np.int32)}
        value = np.ones(1)
        rest = [atom for atom in conjunction if not atom.negated]
        while rest:
            # What has both ends bound only filters, and comes first; one that has neither waits.
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
        low, count = partners(edges, columns[bound], least + 1.0 - value)
        row, place = pairs(low, count)
        worth = value[row] + edges.weight[place] - 1.0
        if len(row) > self.limit:
            best = np.argpartition(-worth, self.limit)[: self.limit]
            row, place, worth = row[best], place[best], worth[best]
        joined = {name: column[row] for name, column in columns.items()} | {free: edges.end[place]}
        others = ~self._asked(atom, joined)
        return {name: column[others] for name, column in joined.items()}, worth[others]
