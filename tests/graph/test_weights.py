"""Weights to [0, 1] and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.errors import FocuseError
from focuse.graph import Graph, from_columns
from focuse.graph.weights import (
    NORMALISERS,
    comparable,
    default_normaliser,
    fit_normaliser,
    stored_normaliser,
    strength,
)

Edge = tuple[str, float]
NUMBER = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.floats(-1, 1), st.integers(-3, 3).map(float)
)  # also huge, tiny, negative, and often equal
EDGES = st.lists(st.tuples(st.sampled_from("rst"), NUMBER), min_size=1, max_size=25)
MAPS = ["relation", "global", "quantile"]


def graph_of(edges: list[Edge]) -> Graph:
    places = [str(place) for place in range(len(edges))]
    return from_columns(places, [relation for relation, _ in edges], places, [weight for _, weight in edges])


def ids(graph: Graph, relations: list[str]) -> np.ndarray:
    return np.array([list(graph.relations).index(relation) for relation in relations], np.int32)


@settings(deadline=None)
@given(EDGES, st.sampled_from(MAPS))
def test_train_lies_in_the_unit_range_and_comes_back(edges: list[Edge], name: str) -> None:
    graph = graph_of(edges)
    normaliser = fit_normaliser(name, graph)
    share = normaliser.transform(graph.weight, graph.relation)
    assert share.shape == graph.weight.shape
    assert ((share >= 0) & (share <= 1)).all()
    back = normaliser.inverse(share, graph.relation)
    for relation, weight, again in zip(graph.relation, graph.weight, back, strict=True):
        like = graph.weight if name == "global" else graph.weight[graph.relation == relation]
        # Numbers too close for their range lose digits: what is lost is measured by the largest of them.
        assert again == pytest.approx(weight, rel=0, abs=max(float(np.abs(like).max()) * 1e-14, 1e-322))


@settings(deadline=None)
@given(EDGES, st.sampled_from(MAPS), st.lists(NUMBER, min_size=1, max_size=10))
def test_monotone_within_a_relation_and_clipped_outside_train(
    edges: list[Edge], name: str, others: list[float]
) -> None:
    graph = graph_of(edges)
    normaliser = fit_normaliser(name, graph)
    for relation in range(len(graph.relations)):
        own = graph.weight[graph.relation == relation]
        weights = np.sort(np.concatenate([own, others]))
        kinds = np.full(len(weights), relation, np.int32)
        share = normaliser.transform(weights, kinds)
        assert (np.diff(share) >= -1e-15).all()
        assert ((share >= 0) & (share <= 1)).all()
        known = normaliser.transform(own, np.full(len(own), relation, np.int32))
        if name != "global":
            assert (share[weights > own.max()] == known.max()).all()
            assert (share[weights < own.min()] == known.min()).all()


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("rst"), st.floats(-1e6, 1e6)), min_size=1, max_size=25))
def test_ranges_against_plain_arithmetic(edges: list[Edge]) -> None:
    graph = graph_of(edges)
    by_relation = fit_normaliser("relation", graph).transform(graph.weight, graph.relation)
    by_all = fit_normaliser("global", graph).transform(graph.weight, graph.relation)
    everything = [weight for _, weight in edges]
    for (relation, weight), own, over_all in zip(edges, by_relation, by_all, strict=True):
        same = [other for kind, other in edges if kind == relation]
        for group, share in ((same, own), (everything, over_all)):
            span = max(group) - min(group)
            if span > 1e-300 or span == 0:
                assert share == pytest.approx((weight - min(group)) / span if span else 1.0, abs=1e-12)


@settings(deadline=None)
@given(EDGES)
def test_quantiles_against_their_definition(edges: list[Edge]) -> None:
    graph = graph_of(edges)
    share = fit_normaliser("quantile", graph).transform(graph.weight, graph.relation)
    for place, (relation, weight) in enumerate(edges):
        others = [w for i, (kind, w) in enumerate(edges) if kind == relation and i != place]
        if all(other == weight for other in others):
            assert share[place] == 1.0
        else:
            below = sum(other < weight for other in others) + sum(other == weight for other in others) / 2
            assert share[place] == pytest.approx(below / len(others), abs=1e-12)


def test_quantiles_between_two_training_weights_are_linear() -> None:
    graph = graph_of([("r", 0.0), ("r", 1.0), ("r", 3.0), ("s", 7.0)])
    normaliser = fit_normaliser("quantile", graph)
    share = normaliser.transform(np.array([0.5, 2.0, -9.0, 9.0]), np.zeros(4, np.int32))
    assert share.tolist() == [0.25, 0.75, 0.0, 1.0]
    assert normaliser.inverse(share, np.zeros(4, np.int32)).tolist() == [0.5, 2.0, 0.0, 3.0]


@pytest.mark.parametrize("name", MAPS)
def test_between_the_largest_numbers_nothing_overflows(name: str) -> None:
    graph = graph_of([("r", -1.7e308), ("r", 1.7e308), ("r", 0.0)])
    normaliser = fit_normaliser(name, graph)
    zeros = np.zeros(5, np.int32)
    share = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    back = normaliser.inverse(share, zeros)
    assert back == pytest.approx([-1.7e308, -0.85e308, 0.0, 0.85e308, 1.7e308], rel=1e-12)
    assert normaliser.transform(back, zeros) == pytest.approx(share, abs=1e-12)
    narrow = fit_normaliser(name, graph_of([("r", 0.0), ("r", 1e-10)]))
    assert narrow.transform(np.array([1e308, -1e308]), zeros[:2]).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("weight", [0.0, -3.5, 1e308, 5e-324])
def test_one_single_value_becomes_one(name: str, weight: float) -> None:
    graph = graph_of([("r", weight)] * 3)
    normaliser = fit_normaliser(name, graph)
    assert normaliser.transform(graph.weight, graph.relation).tolist() == [1.0] * 3
    assert normaliser.inverse(np.ones(3), graph.relation).tolist() == [weight] * 3


@pytest.mark.parametrize("name", list(NORMALISERS))
def test_only_train_is_looked_at_and_arrays_hold_all(name: str) -> None:
    graph = graph_of([("r", 0.0), ("r", 0.5), ("s", 0.25), ("s", 1.0), ("u", 0.5)])
    normaliser = fit_normaliser(name, graph)
    before = {key: array.copy() for key, array in normaliser.arrays.items()}
    wild = np.array([-100.0, 100.0, 0.3])
    share = normaliser.transform(wild, np.array([0, 1, 0], np.int32))
    assert share[:2].tolist() == [0.0, 1.0]
    assert all((normaliser.arrays[key] == array).all() for key, array in before.items())
    again = NORMALISERS[name](before)
    assert again.transform(wild, np.array([0, 1, 0], np.int32)).tolist() == share.tolist()


@pytest.mark.parametrize("name", list(NORMALISERS))
def test_a_relation_without_an_edge_in_train_is_no_fault(name: str) -> None:
    graph = graph_of([("r", 0.2), ("s", 0.9), ("r", 0.7)])
    normaliser = fit_normaliser(name, graph.select(np.array([0, 2])))
    share = normaliser.transform(np.array([0.5, 0.5]), np.array([0, 1], np.int32))
    assert ((share >= 0) & (share <= 1)).all()


def test_none_wants_weights_in_the_unit_range() -> None:
    for weights in ([-0.1, 0.5], [0.5, 1.0001]):
        with pytest.raises(FocuseError, match=r"'none' needs weights in \[0, 1\].*'quantile'"):
            fit_normaliser("none", graph_of([("r", weight) for weight in weights]))
    normaliser = fit_normaliser("none", graph_of([("r", 0.0), ("r", 1.0)]))
    zeros = np.zeros(3, np.int32)
    assert normaliser.transform(np.array([-1.0, 0.3, 2.0]), zeros).tolist() == [0.0, 0.3, 1.0]
    assert normaliser.inverse(np.array([0.0, 0.3, 1.0]), zeros).tolist() == [0.0, 0.3, 1.0]


def test_an_unknown_name() -> None:
    with pytest.raises(FocuseError, match=r"unknown normaliser 'globl' \(did you mean global\?\)"):
        fit_normaliser("globl", graph_of([("r", 1.0)]))


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("rst"), st.integers(0, 2).map(float)), min_size=1, max_size=8))
def test_the_default_normaliser(edges: list[Edge]) -> None:
    values = {relation: {weight for kind, weight in edges if kind == relation} for relation, _ in edges}
    each_its_own = all(len(found) == 1 for found in values.values())
    several = len({weight for _, weight in edges}) > 1
    assert default_normaliser(graph_of(edges)) == ("global" if each_its_own and several else "relation")


@settings(deadline=None)
@given(st.lists(NUMBER, min_size=1, max_size=10), st.lists(NUMBER, min_size=1, max_size=10))
def test_comparable_weights(weight: list[float], train: list[float]) -> None:
    found = comparable(np.array(weight), np.array(train))
    if all(0 <= value <= 1 for value in weight + train):
        assert found.tolist() == weight
        return
    assert ((found >= 0) & (found <= 1)).all()
    low, high = min(train), max(train)
    span = high / 2 - low / 2
    for value, share in zip(weight, found, strict=True):
        if span > 1e-300:
            inside = min(max(value, low), high)
            assert share == pytest.approx((inside / 2 - low / 2) / span, abs=1e-12)
        elif span == 0:
            assert share == 1.0


@pytest.mark.parametrize("name", NORMALISERS)
def test_nothing_stays_nothing(name: str) -> None:
    graph = from_columns(["a", "b"], ["r", "s"], ["b", "a"], [0.25, 0.75])
    normaliser = fit_normaliser(name, graph)
    empty = np.empty(0), np.empty(0, np.int32)
    assert normaliser.transform(*empty).shape == normaliser.inverse(*empty).shape == (0,)


class TestLowerIsBetter:
    """Small numbers are the strong ones: shares fall as weights rise, and strengths with them."""

    @pytest.mark.parametrize("name", NORMALISERS)
    def test_mirrored(self, name: str) -> None:
        graph = graph_of([("r", 0.0), ("r", 0.25), ("r", 0.25), ("r", 1.0), ("s", 0.3), ("s", 0.4)])
        plain = fit_normaliser(name, graph)
        turned = fit_normaliser(name, graph.directed(True))
        share = turned.transform(graph.weight, graph.relation)
        np.testing.assert_allclose(share, 1 - plain.transform(graph.weight, graph.relation))
        np.testing.assert_allclose(turned.inverse(share, graph.relation), graph.weight)
        again = stored_normaliser(name, turned.arrays, lower=True)
        np.testing.assert_array_equal(again.transform(graph.weight, graph.relation), share)

    @pytest.mark.parametrize("name", ["relation", "global", "quantile"])
    def test_a_single_value_is_strong_either_way(self, name: str) -> None:
        graph = graph_of([("r", 4.0), ("r", 4.0)]).directed(True)
        assert fit_normaliser(name, graph).transform(graph.weight, graph.relation).tolist() == [1.0, 1.0]

    def test_as_they_are_must_lie_in_the_unit_range(self) -> None:
        with pytest.raises(FocuseError, match="found 0 to 3"):
            fit_normaliser("none", graph_of([("r", 0.0), ("r", 3.0)]).directed(True))

    @pytest.mark.parametrize("weights", [[0.1, 0.9, 0.5], [2.0, 40.0, 3.0], [-7.0, -1.0, 3.0]])
    def test_strength(self, weights: list[float]) -> None:
        graph = graph_of([("r", weight) for weight in weights])
        turned = graph.directed(True)
        np.testing.assert_allclose(strength(turned, turned), 1 - comparable(graph.weight, graph.weight))
        np.testing.assert_array_equal(strength(graph, graph), comparable(graph.weight, graph.weight))

    def test_equal_weights_are_all_strong(self) -> None:
        graph = graph_of([("r", 4.0), ("r", 4.0)]).directed(True)
        assert strength(graph, graph).tolist() == [1.0, 1.0]

    def test_the_direction_is_trains(self) -> None:
        train = graph_of([("r", 2.0), ("r", 8.0)]).directed(True)
        other = graph_of([("r", 8.0), ("r", 2.0)]).align(train).graph
        assert other.lower_is_better
        assert strength(other, train).tolist() == [0.0, 1.0]
