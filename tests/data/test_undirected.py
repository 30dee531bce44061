"""Undirected relations: which are recognized, both directions of their pairs, and splits of whole pairs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import focuse
from focuse.data import out_of_core, undirected
from focuse.data.graph import Graph, from_columns
from focuse.data.readers import read
from focuse.data.undirected import resolve_undirected, with_both_directions
from focuse.errors import FocuseError

Row = tuple[str, str, str, float]
ROWS = st.lists(
    st.tuples(*map(st.sampled_from, ("abcd", "rs", "abcd")), st.sampled_from([0.25, 0.5, -0.0, 0.0])),
    min_size=1,
    max_size=30,
)


def graph_of(rows: list[Row]) -> Graph:
    return from_columns(*([row[place] for row in rows] for place in range(3)), [row[3] for row in rows])


def rows_of(graph: Graph) -> list[Row]:
    return [tuple(row.values()) for row in graph.to_arrow().to_pylist()]  # type: ignore[misc]


def pairs_of(count: int, seed: int = 0, entities: int = 40, relation: str = "knows") -> list[Row]:
    """Different pairs of entities, each once."""
    random = np.random.default_rng(seed)
    first, second = np.triu_indices(entities, 1)
    chosen = random.choice(len(first), count, replace=False)
    weight = random.random(count).round(3)
    return [(f"e{first[i]}", relation, f"e{second[i]}", float(w)) for i, w in zip(chosen, weight, strict=True)]


def turned(rows: list[Row]) -> list[Row]:
    return [(tail, relation, head, weight) for head, relation, tail, weight in rows]


@given(ROWS)
def test_missing_directions_are_added_and_nothing_else(rows: list[Row]) -> None:
    both = rows_of(resolve_undirected(read(graph_of(rows), undirected=True))[0])
    listed = Counter(rows)
    expected = Counter(rows)
    for row, other in zip(rows, turned(rows), strict=True):  # each reverse that is listed serves one row
        expected[other] = max(listed[row], listed[other])
    assert Counter(both) == expected
    assert set(turned(both)) == set(both)
    assert rows_of(with_both_directions(resolve_undirected(read(graph_of(rows), undirected=True))[0])) == both


@given(ROWS)
def test_pair_keys_are_those_of_unordered_pairs(rows: list[Row]) -> None:
    graph = graph_of(rows)
    only = Graph(**{**vars_of(graph), "undirected": (0,)})
    first = graph.relations[0]
    units = [(frozenset((h, t)), r) if r == first else (h, r, t) for h, r, t, _ in rows]
    numbers: dict[object, int] = {}
    for unit, key in zip(units, only.pair_keys.tolist(), strict=True):
        assert numbers.setdefault(unit, key) == key
    assert len(set(numbers.values())) == len(numbers)
    assert np.array_equal(graph.pair_keys, graph.keys)


def vars_of(graph: Graph) -> dict[str, object]:
    return {name: getattr(graph, name) for name in ("head", "relation", "tail", "weight", "entities", "relations")}


def test_policies_give_both_directions_the_same_weight() -> None:
    rows = [
        ("a", "r", "b", 0.5),
        ("b", "r", "a", 0.8),
        ("a", "r", "c", 0.1),
        ("b", "r", "a", 0.8),
        ("a", "r", "a", 1.0),
    ]
    both = resolve_undirected(read(rows, undirected=True))[0]
    once = resolve_undirected(read(rows[:3], undirected=True))[0]
    for graph, expected in (
        (once, {"max": 0.8, "mean": 0.65, "sum": 1.3, "last": 0.8, "noisy-or": 0.9}),
        (both, {"max": 0.8, "mean": 0.7, "sum": 2.1, "last": 0.8, "noisy-or": 0.98}),
    ):
        for policy, weight in expected.items():
            merged = {row[:3]: row[3] for row in rows_of(graph.merge_repeated(policy))}
            assert merged["a", "r", "b"] == merged["b", "r", "a"] == pytest.approx(weight)
            assert merged["c", "r", "a"] == 0.1


def test_relations_are_recognized_one_by_one() -> None:
    knows, likes = pairs_of(60), pairs_of(60, seed=1, relation="likes")
    few = pairs_of(4, seed=2, relation="few")  # eight rows may be symmetric by chance
    other = [(t, r, h, w + 0.5) for h, r, t, w in pairs_of(60, seed=3, relation="rates")]
    graph = graph_of(
        [*knows, *turned(knows), *likes, *few, *turned(few), *other, *pairs_of(60, seed=3, relation="rates")]
    )
    found, note = resolve_undirected(graph)
    assert found.undirected == (0,)
    assert len(found) == len(graph)
    assert "every pair of 'knows' is listed in both directions with the same weight: each pair is one fact" in note
    assert "--directed" in note
    assert resolve_undirected(found) == (found, "")  # nothing to do twice
    assert resolve_undirected(read(graph, undirected=False))[0].undirected == ()
    assert resolve_undirected(read(graph, undirected=True))[0].undirected == (0, 1, 2, 3)


@pytest.mark.parametrize(("lost", "recognized"), [(0, True), (5, True), (16, False), (60, False)])
def test_a_few_lost_rows_are_added(lost: int, recognized: bool) -> None:
    pairs = pairs_of(700)
    rows = [*pairs, *turned(pairs)]
    found, note = resolve_undirected(graph_of(rows[: len(rows) - lost]))
    assert (found.undirected == (0,)) == recognized
    assert len(found) == len(rows) - (0 if recognized else lost)
    assert ("nearly every pair" in note) == (recognized and lost > 0)
    assert (f"{lost} edges are added" in note) == (recognized and lost > 0)


def test_a_sample_decides_about_a_large_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undirected, "ALL_EDGES", 300)
    monkeypatch.setattr(undirected, "SAMPLE", 200)
    pairs = pairs_of(500)
    assert resolve_undirected(graph_of([*pairs, *turned(pairs)]))[0].undirected == (0,)
    assert resolve_undirected(graph_of([*pairs, *turned(pairs)[:400]]))[0].undirected == ()


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("listed", ["both", "once"])
def test_random_splits_hold_out_whole_pairs(large: bool, listed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr(out_of_core, "LARGE_GRAPH", 1)
    pairs = [*pairs_of(600), ("e1", "knows", "e1", 0.5)]
    rows = [*pairs, *turned(pairs[:-1])] if listed == "both" else pairs
    parts = focuse.split(read(graph_of(rows), undirected=None if listed == "both" else True), seed=3)
    held = [Counter(rows_of(part)) for part in (parts.train, parts.valid, parts.test)]
    assert sum(map(Counter.total, held)) == 1201
    assert set().union(*held) == {*pairs, *turned(pairs)}
    for part in held:
        assert set(turned(list(part))) == set(part)
        assert part.total() > 100
    assert len(parts.train.entities) == len(np.unique(parts.train.head))
    directed = focuse.split(read(graph_of(rows), undirected=False), seed=3)
    assert len(directed.train) + len(directed.valid) + len(directed.test) == len(rows)
    if listed == "both":
        test = rows_of(directed.test)
        assert np.mean([row in set(rows_of(directed.train)) for row in turned(test)]) > 0.6


def test_validation_is_split_into_whole_pairs() -> None:
    pairs = pairs_of(400)
    graph = resolve_undirected(graph_of([*pairs, *turned(pairs)]))[0]
    parts = focuse.data.splits.split_validation(graph, 0.5)
    for part in (parts.stopping, parts.calibration, parts.conformal):
        assert set(turned(rows_of(part))) == set(rows_of(part))
    assert len(parts.stopping) + len(parts.calibration) + len(parts.conformal) == 800


def test_given_splits_are_not_changed_unless_it_is_stated() -> None:
    pairs = pairs_of(300)
    train, test = [*pairs[:250], *turned(pairs[:250])], pairs[250:]
    common = {"test": test, "valid_fraction": 0.1, "epochs": 1, "dim": 4, "progress": False}
    run = focuse.train(train, **common)
    assert (run.graph.undirected, len(run.splits.test)) == ((), 50)
    run = focuse.train(train, undirected=True, **common)
    assert (run.graph.undirected, len(run.splits.test)) == ((0,), 100)


def test_undirected_is_true_or_false() -> None:
    with pytest.raises(FocuseError, match="undirected 'yes': give True, False or None"):
        read([("a", "r", "b", 1.0)], undirected="yes")  # type: ignore[arg-type]
