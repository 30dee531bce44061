"""Rules that would imply an asked triple, mined from the training graph or given."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from focuse.errors import FocuseError
from focuse.graph import Graph
from focuse.graph.weights import in_unit_range
from focuse.inference.explaining.explanation import Implied, Step
from focuse.ukge.facts import Facts
from focuse.ukge.mining import mine
from focuse.ukge.proving import Proof, prove
from focuse.ukge.rules import Atom, Rule, read_rules

SUPPORT, CONFIDENCE = 10, 0.3  # of rules that are mined for explanations
PATHS = 1_000_000  # that mining walks: a second
MINIMUM = 0.01  # least truth of a body: all that says anything


@dataclass(frozen=True, eq=False)
class Logic:
    """Rules with their soft confidences, by their head's relation, over the facts of train."""

    facts: Facts
    rules: dict[str, list[tuple[Rule, float | None]]]
    notes: tuple[str, ...] = ()

    @classmethod
    def mined(cls, graph: Graph, normalize: str | None) -> Logic:
        """Those that train suggests."""
        if normalize == "none" and in_unit_range(graph.weight):
            normalize = None
        elif normalize in (None, "none"):
            normalize = "relation"
        found = mine(graph, minimum_support=SUPPORT, minimum_confidence=CONFIDENCE, limit=PATHS, normalize=normalize)
        return cls(Facts(graph, normalize), _by_head([(one.rule, one.soft) for one in found]))

    @classmethod
    def given(cls, facts: Facts, rules: Any) -> Logic:
        """Those of the user; unknown relations are an error."""
        if isinstance(rules, str | PathLike):
            rules = read_rules(Path(rules))
        rules = [rules] if isinstance(rules, Rule) else list(rules)
        if not all(isinstance(rule, Rule) for rule in rules):
            raise FocuseError("rules: give a file of them, or what focuse.ukge.parse_rules makes of a text")
        for rule in rules:
            for name in rule.relations:
                try:
                    facts.graph.relations.id(name, "relation")
                except FocuseError as error:
                    raise FocuseError(f"{rule.where}: {error}") from None
        return cls(facts, _by_head([(rule, None) for rule in rules]))

    def implied(self, head: int, relation: int, tail: int, top: int) -> tuple[Implied, ...]:
        """The rules that imply a triple, the most confident first."""
        found = []
        for rule, soft in self.rules.get(self.facts.graph.relations[relation], []):
            proof = prove(self.facts, rule, head, tail, MINIMUM)
            if len(proof):
                found.append(self._told(proof, soft))
        found.sort(key=lambda one: (-one.implied, -one.confidence * one.body, one.rule))
        return tuple(found[:top])

    def _told(self, proof: Proof, soft: float | None) -> Implied:
        bound = {name: int(column[0]) for name, column in proof.bindings.items()}
        # Of several ways to be true ('|') the one that is truest here.
        steps = max(
            ([self._step(atom, bound) for atom in part] for part in proof.rule.body),
            key=lambda part: sum(-1.0 if one.negated else (one.weight or 0.0) - 1.0 for one in part),
        )
        body, implied = float(proof.body[0]), float(proof.confidence[0])
        return Implied(str(proof.rule), proof.rule.truth, soft, body, implied, len(proof), tuple(steps))

    def _step(self, atom: Atom, bound: dict[str, int]) -> Step:
        graph = self.facts.graph
        first, second = bound[atom.first], bound[atom.second]
        ends = np.array([first], np.int32), np.array([second], np.int32)
        weight, seen = self.facts.weight(ends[0], graph.relations.id(atom.relation), ends[1])
        value = float(weight[0]) if seen[0] else None
        return Step(graph.entities[first], atom.relation, graph.entities[second], value, atom.negated)


def _by_head(rules: list[tuple[Rule, float | None]]) -> dict[str, list[tuple[Rule, float | None]]]:
    found: dict[str, list[tuple[Rule, float | None]]] = {}
    for rule, soft in rules:
        found.setdefault(rule.head.relation, []).append((rule, soft))
    return found
