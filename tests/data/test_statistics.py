"""Statistics of a graph, compared with loops over its rows."""

from __future__ import annotations

import json
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.data.graph import Graph, from_columns
from focuse.data.readers import read
from focuse.data.statistics import describe, leakage
from focuse.errors import FocuseError

Row = tuple[str, str, str, float]


WEIGHT = st.integers(-2, 3).map(lambda number: number / 2)


EDGES = st.lists(st.tuples(*map(st.sampled_from, ("abcde", "rs", "abcde")), WEIGHT), min_size=1, max_size=40)


OTHERS = st.lists(st.tuples(*map(st.sampled_from, ("abcdefg", "rst", "abcdefg")), WEIGHT), min_size=1, max_size=25)


def graph_of(edges: list[Row]) -> Graph:
    return from_columns(*([edge[place] for edge in edges] for place in range(3)), [edge[3] for edge in edges])


@settings(deadline=None)
@given(EDGES)
def test_counts_agree_with_plain_python(edges: list[Row]) -> None:
    facts = describe(graph_of(edges))
    weights: dict[tuple[str, str, str], list[float]] = {}
    for head, relation, tail, weight in edges:
        weights.setdefault((head, relation, tail), []).append(weight)
    pairs = {(head, tail) for head, _, tail, _ in edges}
    every = [edge[3] for edge in edges]
    assert facts.edges == len(edges)
    assert facts.entities == len({name for head, _, tail, _ in edges for name in (head, tail)})
    assert facts.relations == len({edge[1] for edge in edges})
    assert (facts.weight_min, facts.weight_max) == (min(every), max(every))
    assert facts.weight_mean == pytest.approx(sum(every) / len(every))
    assert facts.all_weights_equal == (len(set(every)) == 1)
    assert facts.repeated_rows == len(edges) - len(weights)
    assert facts.repeated_triples == sum(len(group) > 1 for group in weights.values())
    assert facts.repeated_with_other_weight == sum(len(set(group)) > 1 for group in weights.values())
    assert facts.self_loops == sum(head == tail for head, _, tail, _ in edges)
    assert facts.rows_with_inverse == sum((t, h) in pairs and h != t for h, _, t, _ in edges)
    assert facts.rows_with_same_relation_inverse == sum((t, r, h) in weights and h != t for h, r, t, _ in edges)
    assert facts.weighted
    assert json.loads(json.dumps(facts.to_dict()))["edges"] == len(edges)


@settings(deadline=None)
@given(EDGES)
def test_statistics_per_relation_agree_with_plain_python(edges: list[Row]) -> None:
    facts = describe(graph_of(edges)).per_relation
    assert {fact.name for fact in facts} == {edge[1] for edge in edges}
    assert [fact.edges for fact in facts] == sorted((fact.edges for fact in facts), reverse=True)
    for fact in facts:
        own = [edge for edge in edges if edge[1] == fact.name]
        weights = [edge[3] for edge in own]
        assert fact.edges == len(own) == sum(fact.histogram)
        assert fact.heads == len({edge[0] for edge in own})
        assert fact.tails == len({edge[2] for edge in own})
        assert (fact.weight_min, fact.weight_max) == (min(weights), max(weights))
        assert fact.weight_mean == pytest.approx(sum(weights) / len(weights))
        assert fact.weight_median == pytest.approx(statistics.median(weights))
        low, span = min(weights), max(weights) - min(weights)
        bins = [0] * 10
        for weight in weights:
            bins[min(int((weight - low) / span * 10 + 1e-9), 9) if span else 0] += 1
        assert fact.histogram == bins


@settings(deadline=None)
@given(EDGES, OTHERS)
def test_leakage_agrees_with_plain_python(train: list[Row], held_out: list[Row]) -> None:
    graph, other = graph_of(train), graph_of(held_out)
    found = leakage(graph, other)
    known = {name for head, _, tail, _ in train for name in (head, tail)}
    kinds = {relation for _, relation, _, _ in train}
    seen = [row for row in held_out if row[0] in known and row[1] in kinds and row[2] in known]
    triples = {row[:3] for row in train}
    pairs = {(head, tail) for head, _, tail, _ in train}

    def back(row: Row) -> bool:
        return (row[2], row[0]) in pairs and row[0] != row[2]

    assert found.rows == len(held_out)
    assert found.unseen.rows == len(held_out) - len(seen)
    assert found.same_triple == sum(row[:3] in triples for row in seen)
    assert found.same_triple_and_weight == sum(row in train for row in seen)
    assert found.inverse_edge == sum(back(row) for row in seen)
    assert found.inverse_of_same_relation == sum((t, r, h) in triples and h != t for h, r, t, _ in seen)
    assert found.same_pair_other_relation == sum((h, t) in pairs and (h, r, t) not in triples for h, r, t, _ in seen)
    assert found.neither_duplicate_nor_inverse == sum(row[:3] not in triples and not back(row) for row in seen)
    assert describe(graph, {"test": other}).leakage == {"test": found}


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
def test_any_finite_weights_are_described_without_warnings(weights: list[float]) -> None:
    fact = describe(graph_of([("a", "r", "b", weight) for weight in weights])).per_relation[0]
    assert sum(fact.histogram) == len(weights)
    assert min(weights) <= fact.weight_median <= max(weights)
    assert min(weights) <= fact.weight_mean <= max(weights)


@pytest.mark.parametrize("weight", [0.0, 1.0, -3.5, 1.7976931348623157e308, -1e308, 5e-324])
def test_constant_weight_is_described_exactly(weight: float) -> None:
    facts = describe(graph_of([("a", "r", "b", weight)] * 7))
    assert facts.all_weights_equal
    fact = facts.per_relation[0]
    assert (fact.weight_min, fact.weight_median, fact.weight_max) == (weight,) * 3
    assert facts.weight_mean == fact.weight_mean == weight
    assert fact.histogram == [7] + [0] * 9


def test_extreme_weight_ranges_do_not_overflow() -> None:
    huge = describe(graph_of([("a", "r", "b", weight) for weight in (-1.7e308, 1.7e308, 1.6e308, 1.5e308)]))
    assert huge.weight_mean == pytest.approx(0.775e308)
    assert huge.per_relation[0].weight_median == pytest.approx(1.55e308)
    assert huge.per_relation[0].histogram == [1, 0, 0, 0, 0, 0, 0, 0, 0, 3]
    tiny = describe(graph_of([("a", "r", "b", weight) for weight in (0.0, 5e-324)]))
    assert sum(tiny.per_relation[0].histogram) == 2


def test_empty_graphs_are_described_or_refused() -> None:
    graph = graph_of([("a", "r", "b", 1.0)])
    empty = graph.select(graph.head < 0)
    assert "0 rows" in str(describe(graph, {"test": empty}))
    with pytest.raises(FocuseError, match="no edges to describe"):
        describe(empty)


def test_a_relation_without_edges_is_left_out() -> None:
    graph = graph_of([("a", "r", "b", 1.0), ("a", "s", "b", 2.0)]).select(np.array([1]))
    assert [fact.name for fact in describe(graph).per_relation] == ["s"]


def test_statistics_of_weight_columns() -> None:
    train = read([("a", "r", "b", 1, None), ("a", "r", "c", 2, 5), ("b", "r", "c", 2, 7)])
    test = read([("a", "r", "b", 1, None), ("a", "r", "c", 2, 6), ("b", "r", "c", None, 7)])
    facts = describe(train, {"test": test})
    assert (facts.leakage["test"].same_triple, facts.leakage["test"].same_triple_and_weight) == (3, 1)
    first, second = facts.columns
    assert (first.name, first.weight_min, first.weight_max, first.missing) == ("w1", 1, 2, 0)
    assert (second.weight_mean, second.missing) == (6, pytest.approx(1 / 3))
    assert first.importance == second.importance == 0.5  # too few rows to tell


def test_statistics_print_as_a_table() -> None:
    train, test = read([("a", "r", "b", 0.9), ("b", "s", "c", 0.2)]), read([("b", "r", "a", 0.8), ("a", "r", "x", 1)])
    text = str(describe(train, {"test": test}))
    assert "2 edges, 3 entities, 2 relations" in text
    assert "weights: 0.2 to 0.9, mean 0.55" in text
    assert "inverse edge in train                  1 (50.0%)" in text
    assert "for example 'x'" in text


def test_description_says_what_the_weights_mean_for_training() -> None:
    counts = np.round(np.exp(np.linspace(0, 12.5, 200)))
    found = describe(read([(f"a{n}", "plays", f"b{n}", count) for n, count in enumerate(counts)]))
    assert [finding["kind"] for finding in found.to_dict()["weight_findings"]] == ["heavy-tailed"]
    lines = found.to_text().splitlines()
    assert lines[3] == f"  {found.weight_findings[0]}"
    assert lines[-1].endswith("| log")  # logarithms of evenly spaced powers are even
    assert found.per_relation[0].histogram == np.histogram(np.log(counts), 10)[0].tolist()
    stars = describe(read([(f"a{n}", "rates", f"b{n}", n % 5) for n in range(100)]))
    assert stars.weight_findings == []
    assert stars.to_text().endswith("|")
