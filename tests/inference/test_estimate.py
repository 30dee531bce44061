"""Weights of unseen edges on a graph whose weights are planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from focuse.graph import Graph, from_columns
from focuse.graph.splits import Held, hold, split
from focuse.inference import estimate
from focuse.inference.estimate import Estimator, fit, measuring


def planted(rows: int = 3000, seed: int = 0) -> Graph:
    """A weight is what its head and its tail bring along, and some noise."""
    random = np.random.default_rng(seed)
    head, tail = random.integers(0, 60, (2, rows))
    kind = random.integers(0, 2, rows)
    worth = random.random((2, 60))
    noise = random.normal(0, np.where(kind == 0, 0.01, 0.1))
    weight = np.clip((worth[0][head] + worth[1][tail]) / 2 + noise, 0, 1)
    return from_columns([f"e{i}" for i in head], [f"r{i}" for i in kind], [f"e{i}" for i in tail], weight, "planted")


def nothing_of(graph: Graph) -> Graph:
    return graph.select(np.empty(0, np.int64))


@pytest.fixture(scope="module")
def parts() -> tuple[Graph, Held, Graph]:
    splits = split(planted(6000), valid=0.3, test=0.2, seed=1)
    return splits.train, hold(splits.valid.graph, 0.5, 1), splits.test.graph


@pytest.fixture(scope="module")
def made(parts: tuple[Graph, Held, Graph]) -> Estimator:
    return fit(parts[0], parts[1])


def test_beats_the_relation_mean_by_far(made: Estimator, parts: tuple[Graph, Held, Graph]) -> None:
    train, _, test = parts
    found = made(test.head, test.relation, test.tail)
    means = np.array([train.weight[train.relation == kind].mean() for kind in range(2)])
    trivial = np.mean((means[test.relation] - test.weight) ** 2)
    for name in ("expected", "typical"):
        assert np.mean((getattr(found, name) - test.weight) ** 2) < 0.3 * trivial
    assert made.notes == ()


def test_spreads_tell_sure_edges_from_others(made: Estimator, parts: tuple[Graph, Held, Graph]) -> None:
    test = parts[2]
    found = made(test.head, test.relation, test.tail)
    assert found.spread[test.relation == 0].mean() < 0.6 * found.spread[test.relation == 1].mean()
    low, high = made.interval(found, test.relation, 0.9)
    assert np.mean((low <= test.weight) & (test.weight <= high)) == pytest.approx(0.9, abs=0.04)


def test_the_parts_stay_apart(made: Estimator, parts: tuple[Graph, Held, Graph]) -> None:
    """Other weights in the conformal part change no prediction, only the intervals."""
    train, held, test = parts
    odd = replace(held.conformal, weight=1 - held.conformal.weight)
    other = fit(train, replace(held, conformal=odd))
    one, two = (which(test.head, test.relation, test.tail) for which in (made, other))
    np.testing.assert_array_equal(one.expected, two.expected)
    np.testing.assert_array_equal(one.spread, two.spread)
    assert np.median(other.conformal.off) > 2 * np.median(made.conformal.off)


def test_blocks_change_nothing(
    made: Estimator, parts: tuple[Graph, Held, Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    test = parts[2].select(np.arange(50))
    whole = made._estimate(test.head, test.relation, test.tail)
    monkeypatch.setattr(estimate, "AT_ONCE", 8)
    again = made._estimate(test.head, test.relation, test.tail)
    np.testing.assert_allclose(again.expected, whole.expected, rtol=1e-12)
    assert again.link is not None
    assert whole.link is not None
    np.testing.assert_allclose(again.link, whole.link, rtol=1e-12)


def test_a_tiny_graph_falls_back(parts: tuple[Graph, Held, Graph]) -> None:
    small = planted(400)
    held = Held(nothing_of(small), small.select(np.arange(50)), small.select(np.arange(50, 100)))
    made = fit(small, held, fallback=lambda head, relation, tail: np.full(len(head), 0.3))
    assert made.forests == {}
    assert "too few to learn weights" in made.notes[0]
    found = made(small.head, small.relation, small.tail)
    assert set(found.expected) == {0.3}
    low, high = made.interval(found, small.relation, 0.5)
    np.testing.assert_allclose((high - low)[low > 0], (high - low)[low > 0][0])


def test_where_surroundings_say_nothing_the_plain_guess_stays() -> None:
    random = np.random.default_rng(0)
    noise = replace(planted(1500), weight=random.permutation(planted(1500).weight))
    order = random.permutation(1500)
    train = noise.select(order[:1100])
    held = Held(noise.select(order[1100:1300]), noise.select(order[1300:1400]), noise.select(order[1400:]))
    made = fit(train, held)
    assert made.forests == {}
    assert "plain guess is used" in made.notes[0]


def test_which_rows_measure(parts: tuple[Graph, Held, Graph]) -> None:
    held = parts[1]
    assert measuring(True, held) is not None
    few = replace(held, calibration=held.calibration.select(np.arange(20)))
    assert len(measuring(True, few)) == len(few.conformal) + 20
    assert len(measuring(False, few)) == len(few.conformal)
    full = replace(held, calibration=planted(600))
    assert len(measuring(True, full)) == len(full.conformal)
