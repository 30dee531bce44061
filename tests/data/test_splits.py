"""Splits: train has every name, and every row is in exactly one part."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import focuse
from focuse.data import out_of_core, splits
from focuse.data.graph import Graph, from_columns
from focuse.data.readers import read
from focuse.data.splits import Splits, split, split_validation
from focuse.errors import FocuseError

Row = tuple[int, int, int, float]


SHARE = st.floats(0, 0.45)


def graph_of(edges: list[Row]) -> Graph:
    names = [[str(edge[place]) for edge in edges] for place in range(3)]
    return from_columns(*names, [edge[3] for edge in edges])


def random_graph(edges: int, entities: int, relations: int, seed: int) -> Graph:
    random = np.random.default_rng(seed)
    names = [random.integers(0, most, edges).astype(str).tolist() for most in (entities, relations, entities)]
    return from_columns(*names, random.random(edges))


def rows(graph: Graph) -> list[tuple[int, int, int, float]]:
    columns = (graph.head, graph.relation, graph.tail, graph.weight)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def parts(found: Splits) -> list[list[tuple[int, int, int, float]]]:
    return [rows(found.train), rows(found.valid), rows(found.test)]


GRAPHS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 9), st.integers(0, 3).map(float)),
    min_size=1,
    max_size=60,
).map(graph_of)


@settings(deadline=None)
@given(GRAPHS, SHARE, SHARE, st.integers(0, 2**32), st.integers(0, 8))
def test_every_split_keeps_all_rows_and_every_name_in_train(
    graph: Graph, valid: float, test: float, seed: int, most: int
) -> None:
    found = split(graph, valid, test, seed, most)
    train, *held = parts(found)
    assert Counter([*train, *held[0], *held[1]]) == Counter(rows(graph))
    known = {name for head, _, tail, _ in train for name in (head, tail)}
    kinds = {relation for _, relation, _, _ in train}
    assert known == {name for head, _, tail, _ in rows(graph) for name in (head, tail)}
    assert kinds == {relation for _, relation, _, _ in rows(graph)}
    triples = [{row[:3] for row in part} for part in (train, *held)]
    assert sum(map(len, triples)) == len(set().union(*triples))
    for part, share in zip(held, (valid, test), strict=True):
        assert len(part) <= min(share * len(graph), most)
    assert found.warnings() == []


def test_sizes_are_those_asked_for() -> None:
    graph = random_graph(5000, 50, 5, seed=1)
    for valid, test in ((0.1, 0.1), (0.0, 0.2), (0.3, 0.0), (0.05, 0.25)):
        _, held_valid, held_test = parts(split(graph, valid, test))
        assert len(held_valid) == pytest.approx(valid * 5000, abs=10)
        assert len(held_test) == pytest.approx(test * 5000, abs=10)
    _, held_valid, held_test = parts(split(graph, 0.2, 0.2, max_rows=100))
    assert 95 <= len(held_valid) <= 100
    assert 95 <= len(held_test) <= 100


def test_seed_determines_the_split() -> None:
    graph = random_graph(500, 30, 3, seed=2)
    assert parts(split(graph, seed=7)) == parts(split(graph, seed=7))
    assert parts(split(graph, seed=7)) != parts(split(graph, seed=8))


def test_held_out_rows_are_a_uniform_sample() -> None:
    graph = random_graph(2000, 20, 2, seed=3)
    held = [row for seed in range(20) for row in parts(split(graph, seed=seed))[2]]
    assert np.mean([row[3] for row in held]) == pytest.approx(graph.weight.mean(), abs=0.02)


def largest_gap(one: Graph, other: Graph) -> float:
    """The Kolmogorov-Smirnov distance of two distributions of weights."""
    every = np.sort(np.concatenate([one.weight, other.weight]))
    shares = [np.searchsorted(np.sort(part.weight), every, "right") / len(part) for part in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max())


@pytest.mark.parametrize("large", [False, True])
def test_held_out_weights_are_distributed_as_all(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rare entities have low weights here, and most of their edges must stay in train."""
    if large:
        monkeypatch.setattr(out_of_core, "LARGE_GRAPH", 1)
    random = np.random.default_rng(8)
    head, rare = random.integers(0, 300, 20_000), random.random(20_000) < 0.3
    tail = np.where(rare, 1_000 + random.integers(0, 6_000, 20_000), random.integers(0, 300, 20_000))
    relation = random.integers(0, 3, 20_000)
    weight = np.where(rare, 0.5, 1.0) * random.random(20_000) * (1 + relation)
    graph = from_columns(*(column.astype(str).tolist() for column in (head, relation, tail)), weight)
    found = split(graph, seed=5)
    for held in (found.valid, found.test):
        assert 1_900 < len(held) <= 2_000
        assert largest_gap(held, graph) < (0.02 if large else 0.01)  # a random sample has 0.02
        assert np.abs(np.bincount(held.relation) / len(held) - np.bincount(graph.relation) / len(graph)).max() < 0.01


def test_too_few_spare_rows_are_shared_proportionally() -> None:
    edges: list[Row] = [(place, 0, place + 1000, 1.0) for place in range(90)]  # none of these can be spared
    edges += [(0, 0, 1000 + place, 1.0) for place in range(1, 11)]
    train, valid, test = parts(split(graph_of(edges), 0.1, 0.1))
    assert 1 <= len(valid) == len(test) <= 5
    train, valid, test = parts(split(graph_of(edges[:90]), 0.1, 0.1))
    assert (len(train), valid, test) == (90, [], [])


@pytest.mark.parametrize(
    ("valid", "test"), [(-0.1, 0.1), (0.1, -0.1), (1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (0.9, 0.9), (float("nan"), 0.1)]
)
def test_impossible_fractions_are_refused(valid: float, test: float) -> None:
    with pytest.raises(FocuseError, match=r"must be below 1|give a number in \[0, 1\]"):
        split(random_graph(50, 5, 1, seed=0), valid, test)


def test_given_graphs_are_translated_to_the_ids_of_train() -> None:
    train = from_columns(["a", "b", "c"], ["r", "r", "s"], ["b", "c", "a"], [1.0, 2.0, 3.0])
    valid = from_columns(["c", "x"], ["s", "r"], ["b", "a"], [4.0, 5.0], "valid.tsv")
    test = from_columns(["b", "a", "b"], ["r", "t", "r"], ["a", "b", "y"], [6.0, 7.0, 8.0], "test.tsv")
    found = splits.splits_from_graphs(train, valid, test)
    assert found.train is train
    assert rows(found.valid) == [(2, 1, 1, 4.0)]
    assert rows(found.test) == [(1, 0, 0, 6.0)]
    assert [line.split(" rows")[0] for line in found.warnings()] == ["valid.tsv: 1 of 2", "test.tsv: 2 of 3"]
    assert all("\n" not in line for line in found.warnings())


def test_given_without_valid_holds_out_a_part_of_train() -> None:
    graph = random_graph(400, 20, 2, seed=4)
    test = replace(random_graph(30, 20, 2, seed=5), source="test")
    found = splits.splits_from_graphs(graph, None, test, seed=3)
    assert Counter(rows(found.train) + rows(found.valid)) == Counter(rows(graph))
    assert 35 <= len(found.valid) <= 40
    assert len(found.test) + found.unseen_test.rows == 30
    assert parts(found) == parts(splits.splits_from_graphs(graph, None, test, seed=3))
    assert parts(found) != parts(splits.splits_from_graphs(graph, None, test, seed=4))


def test_given_splits_without_test_have_none() -> None:
    graph = random_graph(100, 10, 2, seed=6)
    found = splits.splits_from_graphs(graph, graph, None)
    assert len(found.test) == 0
    assert rows(found.valid) == rows(graph)


def test_validation_in_parts_covers_it_once_and_keeps_repeats_together():
    edges = [("a", "r", str(number // 3), number) for number in range(300)]
    valid = read(edges)
    held = split_validation(valid, 0.5, seed=3)
    parts = [held.stopping, held.calibration, held.conformal]
    assert sorted(np.concatenate([part.weight for part in parts])) == list(range(300))
    assert [len(part) for part in parts] == [150, 75, 75]
    for one, other in itertools.combinations(parts, 2):
        assert not set(one.keys) & set(other.keys)
    assert np.array_equal(split_validation(valid, 0.5, seed=3).conformal.weight, held.conformal.weight)
    assert not np.array_equal(split_validation(valid, 0.5, seed=4).conformal.weight, held.conformal.weight)


def test_all_of_validation_can_serve_stopping():
    held = split_validation(read([("a", "r", str(number), number) for number in range(10)]), 1.0)
    assert (len(held.stopping), len(held.calibration), len(held.conformal)) == (10, 0, 0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"valid": [("a", "r", "b", 1.0)], "valid_fraction": 0.2}, "valid_fraction has no effect"),
        ({"valid": [("a", "r", "b", 1.0)], "test_fraction": 0.2}, "test_fraction has no effect"),
        ({"test": [("a", "r", "b", 1.0)], "test_fraction": 0.1}, "test_fraction has no effect"),
    ],
)
def test_a_fraction_next_to_a_given_split_is_refused(given: dict[str, Any], message: str) -> None:
    rows = [("a", "r", str(i), float(i)) for i in range(40)]
    with pytest.raises(FocuseError, match=message):
        focuse.train(rows, progress=False, **given)
