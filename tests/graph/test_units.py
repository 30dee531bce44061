"""Weights as shares that mean the same in every relation, and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focuse.graph import Graph, from_columns
from focuse.graph.units import KNOWN, Units

NUMBER = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.floats(-1, 1), st.integers(-3, 3).map(float))
EDGES = st.lists(st.tuples(st.sampled_from("rst"), NUMBER), min_size=1, max_size=80)


def graph_of(**weights: list[float]) -> Graph:
    """Relations by name with their weights."""
    edges = [(relation, weight) for relation, each in weights.items() for weight in each]
    places = [str(place) for place in range(len(edges))]
    return from_columns(places, [relation for relation, _ in edges], places, [weight for _, weight in edges])


def spread(low: float, high: float, many: int = KNOWN) -> list[float]:
    return np.linspace(low, high, many).tolist()


def shares(graph: Graph) -> np.ndarray:
    return Units.fit(graph).shares(graph.weight, graph.relation)


@pytest.mark.parametrize("lower", [False, True])
def test_each_relation_has_its_own_range(lower: bool) -> None:
    graph = graph_of(treats=spread(0, 4.5), binds=spread(1, 10), interacts=spread(155, 989)).directed(lower)
    units = Units.fit(graph)
    assert (units.low.tolist(), units.high.tolist()) == ([0, 1, 155], [4.5, 10, 989])
    found = units.shares(graph.weight, graph.relation).reshape(3, KNOWN)
    np.testing.assert_allclose(found, np.tile(np.linspace(0, 1, KNOWN)[:: -1 if lower else 1], (3, 1)), atol=1e-12)
    assert not units.common


@pytest.mark.parametrize("factor", [1e-3, 0.2, 7.0, 1e6])
def test_the_unit_of_a_relation_moves_no_share(factor: float) -> None:
    """Neither its own nor another's: of relations with many edges and with a few."""
    weights = {"a": spread(0, 4.5), "b": spread(100, 900), "c": [2.0, 3.0, 2.5]}
    plain = graph_of(**weights)
    other = graph_of(**{**weights, "a": [factor * weight for weight in weights["a"]]})
    np.testing.assert_allclose(shares(other), shares(plain), atol=1e-12)


@given(EDGES, EDGES, st.booleans())
def test_any_number_has_a_share(edges: list[tuple[str, float]], others: list[tuple[str, float]], lower: bool) -> None:
    """Finite, and outside [0, 1] only beyond the range."""
    names = sorted({relation for relation, _ in edges})
    train = graph_of(**{name: [weight for relation, weight in edges if relation == name] for name in names})
    units = Units.fit(train.directed(lower))
    asked = [(names.index(relation), weight) for relation, weight in others if relation in names]
    kind, weight = np.array([one for one, _ in asked], np.int64), np.array([one for _, one in asked])
    share = units.shares(weight, kind)
    assert np.isfinite(share).all()
    inside = (units.low[kind] <= weight) & (weight <= units.high[kind])
    assert ((share >= 0) & (share <= 1))[inside].all()
    assert not np.isnan(units.weights(share, kind)).any()


@given(EDGES, st.booleans())
def test_back_again_and_within_the_range(edges: list[tuple[str, float]], lower: bool) -> None:
    kinds: dict[str, list[float]] = {}
    for relation, weight in edges:
        kinds.setdefault(relation, []).append(weight)
    graph = graph_of(**kinds).directed(lower)
    units = Units.fit(graph)
    share = units.shares(graph.weight, graph.relation)
    assert ((share >= 0) & (share <= 1)).all()
    low, high = units.low[graph.relation], units.high[graph.relation]
    assert ((low <= graph.weight) & (graph.weight <= high)).all()
    scale = np.maximum(np.abs(low), np.abs(high)).clip(1e-300)
    np.testing.assert_allclose(units.weights(share, graph.relation) / scale, graph.weight / scale, atol=1e-12)
    asked = units.weights(np.random.default_rng(0).random(len(graph)), graph.relation)
    assert ((low <= asked) & (asked <= high)).all()


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize(("weights", "beyond"), [([2.0, 4.0], [1.0, 6.0, -20.0]), ([5.0, 5.0], [4.0, 9.0, -1.0])])
def test_what_lies_beyond_is_outside_and_comes_back(weights: list[float], beyond: list[float], lower: bool) -> None:
    units = Units.fit(graph_of(r=weights).directed(lower))
    kind = np.zeros(3, np.int64)
    share = units.shares(np.array(beyond), kind)
    assert (((share < 0) == (np.array(beyond) < min(weights))) != lower).all()
    assert ((share < 0) | (share > 1)).all()
    np.testing.assert_allclose(units.weights(share, kind), beyond)


def test_one_single_value_is_strong() -> None:
    for lower in (False, True):
        assert shares(graph_of(r=[5.0] * 40, s=spread(100, 900)).directed(lower))[:40].tolist() == [1.0] * 40


def test_weights_between_0_and_1_stay_as_they_are() -> None:
    graph = graph_of(r=spread(0.2, 0.4), s=spread(0.1, 1.0), t=[0.01])
    assert shares(graph).tolist() == graph.weight.tolist()
    assert Units.fit(graph).common


def test_but_for_a_relation_that_uses_a_small_part_of_it() -> None:
    graph = graph_of(r=spread(0.0002, 0.001), s=spread(0.1, 1.0))
    units = Units.fit(graph)
    assert (units.low.tolist(), units.high.tolist(), units.common) == ([0, 0], [0.001, 1], False)  # 0 stays nothing


@pytest.mark.parametrize("least", [-100.0, 0.0, 40.0])
def test_relations_of_one_unit_share_its_range(least: float) -> None:
    units = Units.fit(graph_of(r=spread(least, 100), s=spread(50, 90), t=[61.0]))
    assert (set(units.low), set(units.high), units.common) == ({least}, {100}, True)


def test_nor_have_a_dozen_light_ones_that_of_others() -> None:
    units = Units.fit(graph_of(r=spread(0, 4.5, 12), s=spread(155, 989, 500)))
    assert units.high[0] < 7
    assert Units.fit(graph_of(r=spread(0, 4.5, 3), s=spread(0, 100), t=spread(0, 90), u=spread(0, 70))).common


def test_a_few_heavy_edges_have_a_unit_of_their_own() -> None:
    """Else all others would lie at the bottom of a range that nobody but they use."""
    units = Units.fit(graph_of(r=spread(0, 4.5), s=spread(0, 5), t=[155.0, 989.0]))
    assert units.high[:2].tolist() == [4.5, 5]


def test_a_range_of_few_edges_is_widened() -> None:
    """Towards that of others, beside the largest weight; never beyond what train shows."""
    graph = graph_of(many=spread(0, 1000, 90), few=[30.0, 40.0], one=[35.0], top=[990.0])
    units = Units.fit(graph)
    width = units.high - units.low
    assert (units.low[0], units.high[0]) == (0, 1000)
    assert 10 < width[1] < 40
    assert 0 < width[2] < 35
    assert units.low[1] < 30 < 40 < units.high[1]
    assert units.high[3] == 1000


def test_a_relation_without_edges_has_trains_range() -> None:
    graph = graph_of(r=spread(0, 4.5), s=spread(155, 989), t=[1.0])
    units = Units.fit(graph.select(graph.relation < 2))
    assert (units.low[2], units.high[2]) == (0, 989)
