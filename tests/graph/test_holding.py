"""Large graphs: held-out rows, what is left, and repeats, without sorting all edges."""

from itertools import combinations

import numpy as np
import pytest

from focuse.graph import holding
from focuse.graph.graph import Graph, from_columns
from focuse.graph.splits import split


def graph(count: int = 4000, seed: int = 0) -> Graph:
    random = np.random.default_rng(seed)
    ends = (random.random((2, count)) ** 3 * 300).astype(int)
    kinds = random.integers(0, 5, count)
    return from_columns(
        [f"e{id}" for id in ends[0]], [f"r{id}" for id in kinds], [f"e{id}" for id in ends[1]], random.random(count)
    )


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "LARGE", 1000)
    monkeypatch.setattr(holding, "SORTED", 900)
    monkeypatch.setattr(holding, "CHUNK", 333)


@pytest.mark.usefixtures("small_pieces")
def test_repeats_are_counted() -> None:
    given = graph()
    assert holding.repeated(given) == given.repeated > 0


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("seed", range(4))
def test_a_split_of_a_large_graph(seed: int) -> None:
    given = graph(seed=seed)
    parts = split(given, 0.1, 0.05, seed)
    train, valid, test = parts.train, parts.valid.graph, parts.test.graph
    assert len(train) + len(valid) + len(test) == len(given)
    assert 0.5 * 400 <= len(valid) <= 400
    assert 0.5 * 200 <= len(test) <= 200
    # Nothing is unseen, nothing leaks, nothing is lost or out of order.
    assert set(train.head) | set(train.tail) == set(range(len(given.entities)))
    assert set(train.relation) == set(range(len(given.relations)))
    keys = [set(part.keys.tolist()) for part in (train, valid, test)]
    assert [len(one & other) for one, other in combinations(keys, 2)] == [0, 0, 0]
    for name in ("head", "relation", "tail", "weight"):
        together = np.concatenate([getattr(part, name) for part in (train, valid, test)])
        assert np.array_equal(np.sort(together), np.sort(getattr(given, name)))
    held = np.isin(given.keys, [*keys[1], *keys[2]])
    assert np.array_equal(train.weight, given.weight[~held])
    again = split(given, 0.1, 0.05, seed)
    assert np.array_equal(again.test.graph.keys, test.keys)
    assert not np.array_equal(split(given, 0.1, 0.05, seed + 1).test.graph.keys, test.keys)


@pytest.mark.usefixtures("small_pieces")
def test_where_there_is_little_to_spare_little_is_held_out() -> None:
    count = 1500
    chain = from_columns(
        [f"a{i}" for i in range(count)], ["r"] * count, [f"b{i}" for i in range(count)], np.ones(count)
    )
    parts = split(chain)
    assert len(parts.train) == count
    assert len(parts.valid.graph) == len(parts.test.graph) == 0


@pytest.mark.usefixtures("small_pieces")
def test_nothing_to_hold_out() -> None:
    parts = split(graph(), 0.0, 0.0)
    assert len(parts.train) == 4000
    assert len(parts.test.graph) == 0
