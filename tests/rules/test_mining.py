"""Mined rules, compared with counts by nested loops, and their file."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.data.graph import Graph
from focuse.data.readers import read
from focuse.errors import FocuseError
from focuse.rules.grammar import Atom, Rule, read_rules
from focuse.rules.grounding import ground
from focuse.rules.mining import SHAPES, MinedRules, _fair_share, mine

Counts = tuple[int, int, float]


WEIGHTS = st.integers(1, 20).map(lambda number: number / 20)


EDGE = st.tuples(st.sampled_from("abcd"), st.sampled_from("rs"), st.sampled_from("abcd"), WEIGHTS)


GRAPHS = st.lists(EDGE, min_size=2, max_size=24).map(read)


ATHLETES = [
    ("kobe", "playsFor", "lakers", 0.9),
    ("kobe", "plays", "basketball", 1.0),
    ("shaq", "playsFor", "lakers", 0.8),
    ("shaq", "plays", "basketball", 0.9),
    ("babe", "playsFor", "yankees", 1.0),
    ("babe", "plays", "baseball", 0.7),
    ("lakers", "teamPlays", "basketball", 0.6),
    ("yankees", "teamPlays", "baseball", 1.0),
]


def brute(graph: Graph, shapes: list[str]) -> dict[tuple[str, Rule], Counts]:
    """Support, pairs and soft confidence of every rule with any support, by loops over edges."""
    known: dict[tuple[str, str, str], float] = {}
    for row in graph.to_arrow().to_pylist():
        triple = row["relation"], row["head"], row["tail"]
        known[triple] = max(known.get(triple, 0.0), row["weight"])
    bodies: dict[tuple[Atom, ...], dict[tuple[str, str], float]] = defaultdict(dict)
    for (one, a, b), weight in known.items():
        bodies[(Atom(one, "x", "y"),)][b, a] = weight
    walks = [(Atom(r, "x", "y"), h, t, w) for (r, h, t), w in known.items() if h != t]
    walks += [(Atom(r, "y", "x"), t, h, w) for (r, h, t), w in known.items() if h != t]
    rename = {"x": "y", "y": "z"}
    for (first, a, b, left), (second, c, d, right) in itertools.product(walks, walks):
        if b == c:
            pairs = bodies[first, Atom(second.relation, rename[second.first], rename[second.second])]
            pairs[a, d] = max(pairs.get((a, d), 0.0), left + right - 1.0, 0.0)
    found = {}
    for atoms, pairs in bodies.items():
        for head in graph.relations:
            hits = [pair for pair in pairs if (head, *pair) in known]
            ends = ("y", "x") if len(atoms) == 1 else ("x", "z")
            shape = shape_of(atoms, head)
            if hits and shape in shapes:
                soft = sum(min(pairs[pair], known[head, *pair]) for pair in hits)
                total = sum(pairs.values())
                rule = Rule((atoms,), Atom(head, *ends))
                found[shape, rule] = (len(hits), len(pairs), soft / total if total else 0.0)
    return found


def shape_of(atoms: tuple[Atom, ...], head: str) -> str:
    if len(atoms) == 1:
        return "symmetry" if atoms[0].relation == head else "inverse"
    chain = (Atom(head, "x", "y"), Atom(head, "y", "z"))
    return "transitivity" if atoms == chain else "composition"


def test_loops_are_no_part_of_a_path() -> None:
    rows = [("a", "same", "a", 1.0), ("b", "same", "b", 1.0)]
    rows += [(head, "r", f"t{i}", 1.0) for head in "ab" for i in range(6)]
    mined = mine(read(rows), shapes=["transitivity", "composition"], minimum_support=2)
    assert [atom for one in mined for atom in one.rule.body[0] if atom.relation == "same"] == []


def certain(rule: Rule) -> Rule:
    return Rule(rule.body, rule.head)


@settings(max_examples=100)
@given(GRAPHS, st.sets(st.sampled_from(SHAPES), min_size=1))
def test_counts_agree_with_nested_loops(graph: Graph, shapes: set[str]) -> None:
    mined = mine(graph, shapes=sorted(shapes), minimum_support=1, minimum_confidence=1e-9)
    expected = brute(graph, sorted(shapes))
    found = {(one.shape, certain(one.rule)): (one.support, one.pairs, one.soft_confidence) for one in mined}
    assert len(found) == len(mined)
    assert found.keys() == expected.keys()
    for key, counts in expected.items():
        assert found[key] == pytest.approx(counts)
    assert [one.confidence for one in mined] == sorted((one.confidence for one in mined), reverse=True)


@settings(max_examples=50)
@given(GRAPHS, st.integers(1, 4), st.sampled_from([0.25, 0.5, 1.0]))
def test_support_and_confidence_are_minima(graph: Graph, support: int, confidence: float) -> None:
    expected = {
        key
        for key, (hits, pairs, _) in brute(graph, list(SHAPES)).items()
        if hits >= support and hits / pairs >= confidence
    }
    mined = mine(graph, minimum_support=support, minimum_confidence=confidence)
    assert {(one.shape, certain(one.rule)) for one in mined} == expected
    assert all(one.rule.truth == round(one.confidence, 4) for one in mined)


def test_the_athletes_rule_is_found() -> None:
    mined = mine(read(ATHLETES), shapes=["composition"], minimum_support=2)
    rules = {str(one.rule): one for one in mined}
    athlete = rules["playsFor(y, x) & plays(y, z) -> teamPlays(x, z) : 1.0"]
    assert (athlete.support, athlete.pairs) == (2, 2)
    # Bodies 0.9 (Kobe's is the stronger) and 0.7, heads 0.6 and 1.
    assert athlete.soft_confidence == pytest.approx((0.6 + 0.7) / (0.9 + 0.7))


def test_confidence_is_the_hit_ratio_of_the_grounded_rule(careers: Graph) -> None:
    # Bodies of confidence 0 count for mining only; where every edge is certain there are none.
    sure = replace(careers, weight=np.ones(len(careers)))
    mined = mine(sure, minimum_support=100, minimum_confidence=0.15)
    assert len(mined) > 10
    for one in mined:
        [grounding] = ground(sure, [one.rule], minimum=1.0)
        assert (grounding.num_triples, grounding.hit_ratio) == (one.pairs, pytest.approx(one.confidence))


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 100))
def test_the_limit_is_shared_evenly(total: list[int], limit: int) -> None:
    if sum(total) > limit:
        fitting = [level for level in range(max(total) + 1) if sum(min(one, level) for one in total) <= limit]
        assert _fair_share(np.array(total), limit) == max(fitting)


def test_only_a_large_relation_is_cut() -> None:
    chain = [("a", "r", "b", 0.1), ("b", "r", "c", 0.1), ("a", "r", "c", 0.2)]
    graph = read(chain + [("hub", "crowd", f"leaf {i}", 0.9) for i in range(30)])
    options = {"minimum_support": 1, "minimum_confidence": 0.01}
    everything = mine(graph, **options)
    assert everything.notes == []
    capped = mine(graph, **options, limit=100)
    # 30 × 30 from leaf to leaf over the hub, 30 from the hub to itself; 2 × 2 over each of a, b and c. All but the
    # first take 42, which leaves 58: one step from a leaf to the hub, 37 of 66 in all.
    assert capped.notes == [
        "rows: 942 paths of two edges exceed the limit of 100; those over crowd begin with the strongest "
        "edges only, which are 56.1% of all edges"
    ]
    assert [one for one in capped if "r" in one.rule.relations] == [
        one for one in everything if "r" in one.rule.relations
    ]
    assert any(one.rule.head.relation == "r" for one in capped)


def test_the_strongest_edges_of_a_large_relation_begin_paths() -> None:
    weak = [(f"weak {i}", "r", "hub", 0.3) for i in range(5)] + [("weak 0", "r", "far", 1.0)]
    strong = [(f"strong {i}", "r", "hub", 0.8) for i in range(3)]
    known = [("strong 1", "r", "goal", 0.5), ("weak 1", "r", "goal", 0.5)]
    graph = read([*weak, *strong, *known, ("hub", "r", "goal", 0.9), ("hub", "r", "other", 0.9)])
    [found] = mine(graph, shapes=["transitivity"], minimum_support=1, minimum_confidence=0.01, limit=6)
    assert (found.support, found.pairs) == (1, 6)
    assert found.soft_confidence == pytest.approx(0.5 / (6 * 0.7))


def test_mined_rules_are_written_and_read_back(tmp_path, careers: Graph) -> None:
    mined = mine(careers, minimum_support=50, minimum_confidence=0.3)
    mined.write(tmp_path / "rules.txt")
    assert read_rules(tmp_path / "rules.txt") == [one.rule for one in mined]
    first = (tmp_path / "rules.txt").read_text().split("\n")[0]
    assert f"{mined[0].support} of {mined[0].pairs} pairs" in first
    with pytest.raises(FocuseError, match="no rules to write; lower the support"):
        MinedRules([]).write(tmp_path / "none.txt")
    assert not (tmp_path / "none.txt").exists()


def test_invalid_mining_options_are_refused() -> None:
    graph = read([("a", "r", "b", 5.0), ("b", "r", "a", 1.0)])
    with pytest.raises(FocuseError, match="found 1 to 5; normalize them by 'relation'"):
        mine(graph)
    assert len(mine(graph, weight_scaling="quantile", minimum_support=1)) > 0
    with pytest.raises(FocuseError, match=r"unknown shape 'inverses'.*did you mean inverse"):
        mine(graph, shapes=["inverses"])
    for options in ({"minimum_support": 0}, {"minimum_confidence": 0.0}, {"minimum_confidence": 1.5}, {"limit": 0}):
        with pytest.raises(FocuseError, match="mining needs a support"):
            mine(graph, weight_scaling="global", **options)


def test_mined_rules_are_a_table() -> None:
    [mined] = mine(read(ATHLETES), shapes=["composition"], minimum_support=3).rules[:1]
    [row] = mine(read(ATHLETES), shapes=["composition"], minimum_support=3).to_dicts()[:1]
    assert row == {
        "rule": str(mined.rule),
        **{name: getattr(mined, name) for name in ("shape", "support", "pairs", "confidence", "soft_confidence")},
    }
