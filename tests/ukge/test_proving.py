"""Groundings of one triple, against all groundings of a graph."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from focuse.errors import FocuseError
from focuse.graph import Graph, read
from focuse.ukge import ground, parse_rules
from focuse.ukge.facts import Facts
from focuse.ukge.proving import prove

RULES = [
    "r(x, y) -> s(y, x) : 0.9",
    "r(x, y) & s(y, z) -> t(x, z) : 0.8",
    "r(y, x) & s(z, y) & t(x, x) -> s(x, z)",
    "r(x, y) & r(y, z) & !t(x, z) -> s(x, z) : 0.7",
    "r(x, y) & s(y, z) | t(x, y) & r(y, z) -> s(x, z)",
    "s(x, y) & s(y, w) & r(w, z) -> t(x, z)",
]


def random_graph(seed: int) -> Graph:
    random = np.random.default_rng(seed)
    ends = [f"e{number}" for number in range(7)]
    rows = [
        (str(random.choice(ends)), str(random.choice(list("rst"))), str(random.choice(ends)), int(weight) / 20)
        for weight in random.integers(8, 21, 60)
    ]
    return read([*rows, ("e0", "r", "e1", 1.0), ("e0", "s", "e1", 1.0), ("e0", "t", "e1", 1.0)])


@pytest.mark.parametrize("text", RULES)
@pytest.mark.parametrize("seed", range(3))
def test_every_unknown_triple_has_the_groundings_of_the_whole_graph(text: str, seed: int) -> None:
    graph, [rule] = random_graph(seed), parse_rules(text)
    try:
        [whole] = ground(graph, [rule], minimum=0.3)
    except FocuseError:
        pytest.skip("nothing to ground")
    expected = defaultdict(list)
    for head, tail, body in zip(whole.head, whole.tail, whole.body, strict=True):
        expected[int(head), int(tail)].append(float(body))
    facts = Facts(graph)
    relation = graph.relations.id(rule.head.relation)
    for head in range(len(graph.entities)):
        for tail in range(len(graph.entities)):
            _, seen = facts.weight(np.array([head], np.int32), relation, np.array([tail], np.int32))
            if seen[0]:  # a proof of a known triple leaves out bodies that use it: see below
                continue
            found = prove(facts, rule, head, tail, 0.3)
            assert found.body.tolist() == pytest.approx(sorted(expected[head, tail], reverse=True))
            assert found.confidence == pytest.approx(np.maximum(0.0, found.body + rule.truth - 1.0))


@pytest.mark.parametrize("text", RULES)
def test_a_known_triple_is_proven_as_if_it_were_unknown(text: str) -> None:
    graph, [rule] = random_graph(3), parse_rules(text)
    relation = graph.relations.id(rule.head.relation)
    for row in np.flatnonzero(graph.relation == relation)[:6]:
        head, tail = int(graph.head[row]), int(graph.tail[row])
        try:
            [whole] = ground(graph.select(graph.keys != graph.keys[row]), [rule], minimum=0.3)
            mine = whole.body[(whole.head == head) & (whole.tail == tail)]
        except FocuseError:
            mine = np.empty(0)
        found = prove(Facts(graph), rule, head, tail, 0.3)
        assert found.body.tolist() == pytest.approx(sorted(mine.tolist(), reverse=True))


def test_a_triple_is_no_reason_for_itself() -> None:
    graph = read([("a", "r", "a", 1.0), ("a", "r", "b", 0.9), ("b", "r", "b", 1.0)])
    [rule] = parse_rules("r(x, y) & r(y, z) -> r(x, z)")
    a, b = graph.entities.id("a"), graph.entities.id("b")
    assert len(prove(Facts(graph), rule, a, b, 0.5)) == 0  # r(a, a) & r(a, b) and r(a, b) & r(b, b) both use it


def test_a_hub_keeps_its_strongest_partners() -> None:
    rows = [("a", "r", f"m{number}", number / 100) for number in range(50, 100)]
    graph = read([*rows, *((f"m{number}", "s", "z", 1.0) for number in range(50, 100)), ("a", "t", "z", 0.5)])
    [rule] = parse_rules("r(x, y) & s(y, z) -> t(x, z)")
    found = prove(Facts(graph), rule, graph.entities.id("a"), graph.entities.id("z"), 0.1, limit=10)
    assert found.body.tolist() == pytest.approx([number / 100 for number in range(99, 89, -1)])
