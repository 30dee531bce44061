"""Grounding of rules, compared with nested loops: joins, the limit, counts and errors."""

from __future__ import annotations

import itertools
import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.data.graph import Graph
from focuse.data.readers import read
from focuse.errors import FocuseError
from focuse.rules.grammar import Atom, Rule, parse_rules
from focuse.rules.grounding import GRID, FactIndex, Grounding, RelationEdges, collect, ground, inferred, prove

REAL = os.environ.get("FOCUSE_DATA", "")


TRANSITIVITY = "r(x, y) & r(y, z) -> r(x, z)"


# Twentieths tie often, and sums of them miss their decimal by rounding; heavy ones, for the weak reach no minimum.
WEIGHTS = st.one_of(st.integers(14, 20), st.integers(0, 20)).map(lambda number: number / 20)


EDGE = st.tuples(st.sampled_from("abc"), st.sampled_from("rst"), st.sampled_from("abc"), WEIGHTS)


EVERY_NAME = [("a", "r", "b", 0.0), ("c", "s", "a", 0.0), ("a", "t", "a", 0.0)]


GRAPHS = st.lists(EDGE, min_size=6, max_size=36).map(lambda rows: read(EVERY_NAME + rows))


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    """Chains, stars, cycles and loops of one to three atoms, with negations and disjunctions."""
    variable = st.sampled_from(draw(st.sampled_from(["x", "xy", "xyz"])))
    links = [(draw(variable), draw(variable)) for _ in range(draw(st.integers(1, 3)))]
    names = sorted({name for link in links for name in link})
    links += [(one, two) for one, two in itertools.pairwise(names)]  # tied together
    relation, bound = st.sampled_from("rst"), st.sampled_from(names)
    body = []
    for _ in range(draw(st.integers(1, 2))):
        atoms = [Atom(draw(relation), *(link if draw(st.booleans()) else link[::-1])) for link in links[-3:]]
        # Cutting the list may untie it; the last links are the ones that tie.
        atoms += [Atom(draw(relation), draw(bound), draw(bound), True) for _ in range(draw(st.integers(0, 1)))]
        body.append(tuple(draw(st.permutations(atoms))))
    head = Atom(draw(relation), draw(bound), draw(bound))
    return Rule(tuple(body), head, draw(st.sampled_from([1.0, 0.75])))


def weights(graph: Graph) -> dict[tuple[str, str, str], float]:
    table: dict[tuple[str, str, str], float] = {}
    for row in graph.to_arrow().to_pylist():
        triple = row["head"], row["relation"], row["tail"]
        table[triple] = max(table.get(triple, 0.0), row["weight"])
    return table


def brute(graph: Graph, rule: Rule, minimum: float) -> list[tuple[str, str, float]]:
    """(head, tail, body) of every binding of all variables to all entities, by the definition."""
    known = weights(graph)
    names = sorted({name for atom in rule.atoms for name in atom.variables})
    found = []
    for binding in itertools.product(graph.entities, repeat=len(names)):
        value = dict(zip(names, binding, strict=True))
        body = 0.0
        for conjunction in rule.body:
            truth = 1.0
            for atom in conjunction:
                weight = known.get((value[atom.first], atom.relation, value[atom.second]), 0.0)
                truth = max(0.0, truth + (1.0 - weight if atom.negated else weight) - 1.0)
            body = min(1.0, body + truth)
        if body >= minimum - 1e-9:
            found.append((value[rule.head.first], value[rule.head.second], body))
    return found


def rows(graph: Graph, found: Grounding) -> Counter[tuple[str, str, float]]:
    heads, tails = graph.entities.take(found.head).to_pylist(), graph.entities.take(found.tail).to_pylist()
    return Counter(zip(heads, tails, found.body.round(6).tolist(), strict=True))


def rounded(found: list[tuple[str, str, float]]) -> Counter[tuple[str, str, float]]:
    return Counter((head, tail, round(body, 6)) for head, tail, body in found)


@settings(max_examples=250)
@given(GRAPHS, rules(), st.sampled_from([0.05, 0.3, 0.5, 0.8, 1.0]))
def test_joins_find_what_nested_loops_find(graph: Graph, rule: Rule, minimum: float) -> None:
    expected = brute(graph, rule, minimum)
    if not expected:
        with pytest.raises(FocuseError, match="has no grounding"):
            ground(graph, [rule], minimum=minimum)
        return
    [found] = ground(graph, [rule], minimum=minimum)
    assert rows(graph, found) == rounded(expected)
    known = weights(graph)
    heads = {(head, rule.head.relation, tail) for head, tail, _ in expected}
    assert found.num_triples == len(heads)
    assert found.num_new == len(heads - known.keys())
    assert found.hit_ratio == pytest.approx(len(heads & known.keys()) / len(heads))
    short = [max(0.0, body - known.get((head, rule.head.relation, tail), 0.0)) for head, tail, body in expected]
    assert found.distance == pytest.approx(sum(short) / len(short))
    assert (np.diff(found.body) <= 0).all()
    assert not found.note


@settings(max_examples=100)
@given(GRAPHS, st.lists(rules(), min_size=1, max_size=2), st.booleans())
def test_inferred_keeps_each_triple_once_with_its_best_confidence(
    graph: Graph, several: list[Rule], keep_known: bool
) -> None:
    known, expected = weights(graph), dict[tuple[str, str, str], float]()
    for rule in several:
        bodies = brute(graph, rule, 0.4)
        if not bodies:
            return
        for head, tail, body in bodies:
            triple, confidence = (head, rule.head.relation, tail), max(0.0, body + rule.truth - 1.0)
            loops = any(one == other and kind == rule.head.relation for one, kind, other in known)
            if confidence > 1e-9 and (keep_known or triple not in known) and (head != tail or loops):
                expected[triple] = max(expected.get(triple, 0.0), confidence)
    found = inferred(graph, several, minimum=0.4, keep_known=keep_known)
    assert found.entities is graph.entities
    assert found.relations is graph.relations
    assert found.num_repeated == 0
    assert weights(found) == pytest.approx(expected)


@settings(max_examples=150)
@given(st.lists(EDGE, min_size=8, max_size=30), st.integers(3, 12), st.sampled_from([0.2, 0.21, 0.23, 0.26]))
def test_a_cap_keeps_everything_above_the_lowest_minimum_that_fits(edges: list[Any], limit: int, least: float) -> None:
    graph = read([(head, "r", tail, weight) for head, _, tail, weight in edges])
    [rule] = parse_rules(TRANSITIVITY)
    known = weights(graph).values()
    bodies = [body for _, _, body in brute(graph, rule, least)]

    def size(minimum: float) -> int:
        return max(sum(value >= minimum - 1e-9 for value in values) for values in (known, bodies))

    too_low = [value for value in [least, *known, *bodies] if value >= least and size(value) > limit]
    lowest = max(too_low) + 1 / GRID if too_low else least
    if lowest > 1.0 or not brute(graph, rule, lowest):
        with pytest.raises(FocuseError, match="limit" if too_low else "has no grounding"):
            ground(graph, [rule], minimum=least, limit=limit)
        return
    [found] = ground(graph, [rule], minimum=least, limit=limit)
    assert bool(found.note) == bool(too_low)
    assert found.minimum == pytest.approx(lowest, abs=1e-8)
    assert rows(graph, found) == rounded(brute(graph, rule, lowest))
    assert not found.note or f"at least {lowest:.6g}" in found.note


@settings(max_examples=100)
@given(GRAPHS, rules(), st.integers(1, 15))
def test_a_cap_over_many_atoms_still_keeps_all_above_its_minimum(graph: Graph, rule: Rule, limit: int) -> None:
    try:
        [found] = ground(graph, [rule], minimum=0.2, limit=limit)
    except FocuseError:
        return
    assert rows(graph, found) == rounded(brute(graph, rule, found.minimum))


@given(st.lists(st.tuples(st.integers(0, 5), WEIGHTS), max_size=30), st.lists(st.tuples(st.integers(0, 6), WEIGHTS)))
def test_edges_above_a_minimum_are_counted_right(
    edges: list[tuple[int, float]], asked: list[tuple[int, float]]
) -> None:
    edges.sort(key=lambda edge: (edge[0], -edge[1]))
    start = np.array([edge[0] for edge in edges], np.int32)
    table = RelationEdges(start, start, np.array([edge[1] for edge in edges]))
    entity, least = np.array([one[0] for one in asked], np.int32), np.array([one[1] for one in asked])
    start, stop = table.at_least(entity, least)
    assert (stop - start).tolist() == [sum(who == one and weight >= bar for who, weight in edges) for one, bar in asked]


def test_the_truth_of_a_rule_lowers_confidences() -> None:
    graph = read([("a", "r", "b", 0.9), ("b", "r", "c", 0.8)])
    assert inferred(graph, f"{TRANSITIVITY} : 0.9").weight.tolist() == pytest.approx([0.6])
    assert len(inferred(graph, f"{TRANSITIVITY} : 0.3")) == 0  # confidence 0 says nothing


def test_two_weak_disjuncts_together_reach_the_minimum() -> None:
    graph = read([("a", "r", "b", 0.3), ("a", "s", "b", 0.35), ("b", "r", "a", 0.4), ("b", "s", "c", 0.9)])
    [found] = ground(graph, "r(x, y) | s(x, y) -> s(x, y)", minimum=0.6)
    assert rows(graph, found) == {("a", "b", 0.65): 1, ("b", "c", 0.9): 1}


def test_head_truer_than_the_body_has_distance_zero() -> None:
    graph = read([("a", "r", "b", 0.6), ("a", "s", "b", 0.9), ("b", "r", "a", 0.8)])
    [found] = ground(graph, "r(x, y) -> s(x, y)")
    assert found.distance == pytest.approx((0.0 + 0.8) / 2)


def test_sums_that_rounding_leaves_short_still_reach_the_minimum() -> None:
    graph = read([("a", "r", "b", 0.85), ("b", "r", "c", 0.95)])
    assert 0.85 + 0.95 - 1 < 0.8
    assert len(ground(graph, TRANSITIVITY, minimum=0.8)[0]) == 1


def test_repeated_triples_count_once_with_their_largest_weight() -> None:
    graph = read([("a", "r", "b", 0.2), ("a", "r", "b", 0.9), ("b", "r", "c", 1.0), ("b", "r", "c", 0.1)])
    [found] = ground(graph, TRANSITIVITY)
    assert found.body.tolist() == pytest.approx([0.9])


def test_other_units_need_a_normalizer() -> None:
    graph = read([("a", "r", "b", 40.0), ("b", "r", "c", 90.0), ("c", "r", "d", 100.0), ("d", "r", "e", 0.0)])
    with pytest.raises(FocuseError, match=r"found 0 to 100; normalize them by 'relation', 'global' or 'quantile'"):
        ground(graph, TRANSITIVITY)
    assert inferred(graph, TRANSITIVITY, weight_scaling="global").weight.tolist() == pytest.approx([0.9])


def test_the_source_of_inferred_triples_is_the_rules_file(tmp_path: Path) -> None:
    graph = read([("a", "r", "b", 0.9), ("b", "r", "c", 0.8)])
    found = inferred(graph, parse_rules(TRANSITIVITY, "my.rules"))
    assert found.source == "my.rules"
    found.write(tmp_path / "soft.tsv")
    assert (tmp_path / "soft.tsv").read_text().split("\t")[:3] == ["a", "r", "c"]
    assert len(collect(graph, [])) == 0


def refusal(graph: Graph, text: str, **options: Any) -> str:
    with pytest.raises(FocuseError) as caught:
        ground(graph, parse_rules(text, "my.rules"), **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_errors_of_rules_without_grounding() -> None:
    graph = read([("a", "plays for", "b", 0.6), ("b", "plays for", "c", 0.7), ("c", "likes", "d", 1.0)])
    wrong = refusal(graph, '"plays for"(x, y) -> "play for"(y, x)')
    assert wrong.startswith("my.rules, line 1: ")
    assert "no relation 'play for' (did you mean plays for?)" in wrong
    weak = refusal(graph, '"plays for"(x, y) & "plays for"(y, z) -> likes(x, z)')
    assert "strongest body has confidence 0.3, below the minimum of 0.5; lower the minimum" in weak
    assert "no edges fit together" in refusal(graph, "likes(x, y) & likes(y, z) -> likes(x, z)")
    assert "no edges fit together" in refusal(graph, "likes(x, x) -> likes(x, x)")
    no_edges = refusal(graph.select(graph.relation == 0), "likes(x, y) -> likes(y, x)")
    assert "the graph has no edge of 'likes'" in no_edges
    for options in ({"minimum": 0.0}, {"minimum": 1.5}, {"minimum": float("nan")}, {"limit": 0}):
        assert "must" in refusal(graph, "likes(x, y) -> likes(y, x)", **options)


def test_a_rule_beyond_the_limit_at_full_confidence_is_refused() -> None:
    graph = read([(f"a{i}", "r", "hub", 1.0) for i in range(5)] + [("hub", "r", f"b{i}", 1.0) for i in range(5)])
    said = refusal(graph, TRANSITIVITY, limit=12)
    assert "25 rows to join exceed the limit of 12, and so do the 25 of body confidence 1; raise the limit" in said


def test_a_limit_that_leaves_no_grounding_is_refused() -> None:
    graph = read([(f"a{i}", "r", "hub", 0.75) for i in range(5)] + [("hub", "r", f"b{i}", 0.75) for i in range(5)])
    said = refusal(graph, TRANSITIVITY, limit=12)
    assert said.endswith("exceed the limit of 12; no grounding fits into it; raise it or make the rule narrower")


def test_a_raised_minimum_is_noted_in_one_line() -> None:
    graph = read(
        [(f"a{i}", "r", "hub", 0.5 + i / 20) for i in range(10)] + [("hub", "r", f"b{i}", 1.0) for i in range(2)]
    )
    [found] = ground(graph, parse_rules(TRANSITIVITY, "my.rules"), limit=12)
    assert found.note == (
        "my.rules, line 1: r(x, y) & r(y, z) -> r(x, z) : 1.0: 20 rows to join at body confidence 0.5 exceed the limit "
        "of 12; groundings kept: 12, each of at least 0.650001; raise the limit for more"
    )


def test_a_disjunction_respects_the_limit() -> None:
    """Each part fits, both together do not: the minimum rises until they do."""
    rows = [(f"a{i}", "r", f"b{i}", 0.5 + i / 20) for i in range(4)] + [(f"c{i}", "s", f"d{i}", 0.9) for i in range(3)]
    (found,) = ground(read([*rows, ("a0", "t", "b0", 1.0)]), "r(x, y) | s(x, y) -> t(x, y)", minimum=0.5, limit=4)
    assert found.body.tolist() == pytest.approx([0.9, 0.9, 0.9, 0.65])
    assert found.minimum == pytest.approx(0.6, abs=2e-6)
    assert "exceed the limit of 4" in found.note


def test_loops_are_inferred_only_where_the_graph_has_some() -> None:
    rows = [("a", "r", "b", 1.0), ("b", "r", "a", 1.0), ("b", "r", "c", 1.0)]
    rule = "r(x, y) & r(y, z) -> r(x, z)"
    assert set(weights(inferred(read(rows), rule))) == {("a", "r", "c")}
    looping = read([*rows, ("c", "r", "c", 0.1)])
    assert set(weights(inferred(looping, rule))) == {("a", "r", "c"), ("a", "r", "a"), ("b", "r", "b")}


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
def test_proofs_of_unknown_triples_agree_with_grounding(text: str, seed: int) -> None:
    graph, [rule] = random_graph(seed), parse_rules(text)
    try:
        [whole] = ground(graph, [rule], minimum=0.3)
    except FocuseError:
        pytest.skip("nothing to ground")
    expected = defaultdict(list)
    for head, tail, body in zip(whole.head, whole.tail, whole.body, strict=True):
        expected[int(head), int(tail)].append(float(body))
    facts = FactIndex(graph)
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
        found = prove(FactIndex(graph), rule, head, tail, 0.3)
        assert found.body.tolist() == pytest.approx(sorted(mine.tolist(), reverse=True))


def test_a_triple_does_not_prove_itself() -> None:
    graph = read([("a", "r", "a", 1.0), ("a", "r", "b", 0.9), ("b", "r", "b", 1.0)])
    [rule] = parse_rules("r(x, y) & r(y, z) -> r(x, z)")
    a, b = graph.entities.id("a"), graph.entities.id("b")
    assert len(prove(FactIndex(graph), rule, a, b, 0.5)) == 0  # r(a, a) & r(a, b) and r(a, b) & r(b, b) both use it


def test_a_hub_keeps_its_strongest_edges() -> None:
    rows = [("a", "r", f"m{number}", number / 100) for number in range(50, 100)]
    graph = read([*rows, *((f"m{number}", "s", "z", 1.0) for number in range(50, 100)), ("a", "t", "z", 0.5)])
    [rule] = parse_rules("r(x, y) & s(y, z) -> t(x, z)")
    found = prove(FactIndex(graph), rule, graph.entities.id("a"), graph.entities.id("z"), 0.1, limit=10)
    assert found.body.tolist() == pytest.approx([number / 100 for number in range(99, 89, -1)])
