"""Scaling of weights to [0, 1] and back, importance and merging of weight columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.data.graph import NEUTRAL_WEIGHT, Graph, WeightColumns, from_columns
from focuse.data.readers import read
from focuse.data.weights import (
    MAX_SAMPLED_ROWS,
    MIN_EDGES_FOR_RANGE,
    NORMALIZERS,
    ColumnMerger,
    WeightScaler,
    default_normalizer,
    explained_variance,
    fit_merger,
    fit_normalizer,
    heavy_tail_offsets,
    heavy_tails,
    is_heavy_tailed,
    learn_importance,
    shrunken_means,
    stored_normalizer,
    strength,
    strength_rule,
    unit_strength,
    with_more_relations,
)
from focuse.errors import FocuseError

Edge = tuple[str, float]


NUMBER = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.floats(-1, 1), st.integers(-3, 3).map(float)
)  # also huge, tiny, negative, and often equal


EDGES = st.lists(st.tuples(st.sampled_from("rst"), NUMBER), min_size=1, max_size=25)


MAPS = ["relation", "global", "quantile"]
COUNTS = np.round(np.exp(np.linspace(0, 12.5, 200)))  # 1 to 268,337, median 502


def graph_of(edges: list[Edge]) -> Graph:
    places = [str(place) for place in range(len(edges))]
    return from_columns(places, [relation for relation, _ in edges], places, [weight for _, weight in edges])


def ids(graph: Graph, relations: list[str]) -> np.ndarray:
    return np.array([list(graph.relations).index(relation) for relation in relations], np.int32)


@settings(deadline=None)
@given(EDGES, st.sampled_from(MAPS))
def test_weights_of_train_are_mapped_to_the_unit_range_and_back(edges: list[Edge], name: str) -> None:
    graph = graph_of(edges)
    normalizer = fit_normalizer(name, graph)
    share = normalizer.transform(graph.weight, graph.relation)
    assert share.shape == graph.weight.shape
    assert ((share >= 0) & (share <= 1)).all()
    back = normalizer.inverse(share, graph.relation)
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
    normalizer = fit_normalizer(name, graph)
    for relation in range(len(graph.relations)):
        own = graph.weight[graph.relation == relation]
        weights = np.sort(np.concatenate([own, others]))
        kinds = np.full(len(weights), relation, np.int32)
        share = normalizer.transform(weights, kinds)
        assert (np.diff(share) >= -1e-15).all()
        assert ((share >= 0) & (share <= 1)).all()
        known = normalizer.transform(own, np.full(len(own), relation, np.int32))
        if name != "global":
            assert (share[weights > own.max()] == known.max()).all()
            assert (share[weights < own.min()] == known.min()).all()


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("rst"), st.floats(-1e6, 1e6)), min_size=1, max_size=25))
def test_ranges_agree_with_plain_arithmetic(edges: list[Edge]) -> None:
    graph = graph_of(edges)
    by_relation = fit_normalizer("relation", graph).transform(graph.weight, graph.relation)
    by_all = fit_normalizer("global", graph).transform(graph.weight, graph.relation)
    everything = [weight for _, weight in edges]
    for (relation, weight), own, over_all in zip(edges, by_relation, by_all, strict=True):
        same = [other for kind, other in edges if kind == relation]
        for group, share in ((same, own), (everything, over_all)):
            span = max(group) - min(group)
            if span > 1e-300 or span == 0:
                assert share == pytest.approx((weight - min(group)) / span if span else 1.0, abs=1e-12)


@settings(deadline=None)
@given(EDGES)
def test_quantiles_agree_with_their_definition(edges: list[Edge]) -> None:
    graph = graph_of(edges)
    share = fit_normalizer("quantile", graph).transform(graph.weight, graph.relation)
    for place, (relation, weight) in enumerate(edges):
        others = [w for i, (kind, w) in enumerate(edges) if kind == relation and i != place]
        if all(other == weight for other in others):
            assert share[place] == 1.0
        else:
            below = sum(other < weight for other in others) + sum(other == weight for other in others) / 2
            assert share[place] == pytest.approx(below / len(others), abs=1e-12)


def test_quantiles_between_two_training_weights_are_linear() -> None:
    graph = graph_of([("r", 0.0), ("r", 1.0), ("r", 3.0), ("s", 7.0)])
    normalizer = fit_normalizer("quantile", graph)
    share = normalizer.transform(np.array([0.5, 2.0, -9.0, 9.0]), np.zeros(4, np.int32))
    assert share.tolist() == [0.25, 0.75, 0.0, 1.0]
    assert normalizer.inverse(share, np.zeros(4, np.int32)).tolist() == [0.5, 2.0, 0.0, 3.0]


@pytest.mark.parametrize("name", MAPS)
def test_the_largest_floats_do_not_overflow(name: str) -> None:
    graph = graph_of([("r", -1.7e308), ("r", 1.7e308), ("r", 0.0)])
    normalizer = fit_normalizer(name, graph)
    zeros = np.zeros(5, np.int32)
    share = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    back = normalizer.inverse(share, zeros)
    assert back == pytest.approx([-1.7e308, -0.85e308, 0.0, 0.85e308, 1.7e308], rel=1e-12)
    assert normalizer.transform(back, zeros) == pytest.approx(share, abs=1e-12)
    narrow = fit_normalizer(name, graph_of([("r", 0.0), ("r", 1e-10)]))
    assert narrow.transform(np.array([1e308, -1e308]), zeros[:2]).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("weight", [0.0, -3.5, 1e308, 5e-324])
def test_a_single_value_becomes_one(name: str, weight: float) -> None:
    graph = graph_of([("r", weight)] * 3)
    normalizer = fit_normalizer(name, graph)
    assert normalizer.transform(graph.weight, graph.relation).tolist() == [1.0] * 3
    assert normalizer.inverse(np.ones(3), graph.relation).tolist() == [weight] * 3


@pytest.mark.parametrize("name", list(NORMALIZERS))
def test_a_normalizer_depends_only_on_train_and_is_stored_in_arrays(name: str) -> None:
    graph = graph_of([("r", 0.0), ("r", 0.5), ("s", 0.25), ("s", 1.0), ("u", 0.5)])
    normalizer = fit_normalizer(name, graph)
    before = {key: array.copy() for key, array in normalizer.arrays.items()}
    wild = np.array([-100.0, 100.0, 0.3])
    share = normalizer.transform(wild, np.array([0, 1, 0], np.int32))
    assert share[:2].tolist() == [0.0, 1.0]
    assert all((normalizer.arrays[key] == array).all() for key, array in before.items())
    again = NORMALIZERS[name](before)
    assert again.transform(wild, np.array([0, 1, 0], np.int32)).tolist() == share.tolist()


@pytest.mark.parametrize("name", list(NORMALIZERS))
def test_a_relation_without_an_edge_in_train_is_no_fault(name: str) -> None:
    graph = graph_of([("r", 0.2), ("s", 0.9), ("r", 0.7)])
    normalizer = fit_normalizer(name, graph.select(np.array([0, 2])))
    share = normalizer.transform(np.array([0.5, 0.5]), np.array([0, 1], np.int32))
    assert ((share >= 0) & (share <= 1)).all()


def test_none_requires_weights_in_the_unit_range() -> None:
    for weights in ([-0.1, 0.5], [0.5, 1.0001]):
        with pytest.raises(FocuseError, match=r"'none' needs weights in \[0, 1\].*'quantile'"):
            fit_normalizer("none", graph_of([("r", weight) for weight in weights]))
    normalizer = fit_normalizer("none", graph_of([("r", 0.0), ("r", 1.0)]))
    zeros = np.zeros(3, np.int32)
    assert normalizer.transform(np.array([-1.0, 0.3, 2.0]), zeros).tolist() == [0.0, 0.3, 1.0]
    assert normalizer.inverse(np.array([0.0, 0.3, 1.0]), zeros).tolist() == [0.0, 0.3, 1.0]


def test_an_unknown_normalizer_is_refused() -> None:
    with pytest.raises(FocuseError, match=r"unknown normalizer 'globl' \(did you mean global\?\)"):
        fit_normalizer("globl", graph_of([("r", 1.0)]))


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("rst"), st.integers(0, 2).map(float)), min_size=1, max_size=8))
def test_default_normalizer_is_global_for_one_weight_per_relation(edges: list[Edge]) -> None:
    values = {relation: {weight for kind, weight in edges if kind == relation} for relation, _ in edges}
    each_its_own = all(len(found) == 1 for found in values.values())
    several = len({weight for _, weight in edges}) > 1
    assert default_normalizer(graph_of(edges)) == ("global" if each_its_own and several else "relation")


@settings(deadline=None)
@given(st.lists(NUMBER, min_size=1, max_size=10), st.lists(NUMBER, min_size=1, max_size=10))
def test_global_scaling_of_weights(weight: list[float], train: list[float]) -> None:
    found = unit_strength(*(graph_of([("r", value) for value in values]) for values in (weight, train)))
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


@pytest.mark.parametrize("name", NORMALIZERS)
def test_empty_weights_stay_empty(name: str) -> None:
    graph = from_columns(["a", "b"], ["r", "s"], ["b", "a"], [0.25, 0.75])
    normalizer = fit_normalizer(name, graph)
    empty = np.empty(0), np.empty(0, np.int32)
    assert normalizer.transform(*empty).shape == normalizer.inverse(*empty).shape == (0,)


class TestLowerIsBetter:
    """Small numbers are the strong ones: shares fall as weights rise, and strengths with them."""

    @pytest.mark.parametrize("name", NORMALIZERS)
    def test_lower_is_better_reverses_the_map(self, name: str) -> None:
        graph = graph_of([("r", 0.0), ("r", 0.25), ("r", 0.25), ("r", 1.0), ("s", 0.3), ("s", 0.4)])
        plain = fit_normalizer(name, graph)
        turned = fit_normalizer(name, graph.with_lower_is_better(True))
        share = turned.transform(graph.weight, graph.relation)
        np.testing.assert_allclose(share, 1 - plain.transform(graph.weight, graph.relation))
        np.testing.assert_allclose(turned.inverse(share, graph.relation), graph.weight)
        again = stored_normalizer(name, turned.arrays, lower_is_better=True)
        np.testing.assert_array_equal(again.transform(graph.weight, graph.relation), share)

    @pytest.mark.parametrize("name", ["relation", "global", "quantile"])
    def test_a_single_value_is_strong_either_way(self, name: str) -> None:
        graph = graph_of([("r", 4.0), ("r", 4.0)]).with_lower_is_better(True)
        assert fit_normalizer(name, graph).transform(graph.weight, graph.relation).tolist() == [1.0, 1.0]

    def test_none_requires_the_unit_range_also_if_lower_is_better(self) -> None:
        with pytest.raises(FocuseError, match="found 0 to 3"):
            fit_normalizer("none", graph_of([("r", 0.0), ("r", 3.0)]).with_lower_is_better(True))

    @pytest.mark.parametrize("weights", [[0.1, 0.9, 0.5], [2.0, 40.0, 3.0], [-7.0, -1.0, 3.0]])
    def test_unit_strength_is_large_for_strong_edges(self, weights: list[float]) -> None:
        graph = graph_of([("r", weight) for weight in weights])
        turned = graph.with_lower_is_better(True)
        unit, low, high = max(weights) <= 1 and min(weights) >= 0, min(weights), max(weights)
        expected = graph.weight if unit else (graph.weight - low) / (high - low)
        np.testing.assert_allclose(unit_strength(turned, turned), 1 - expected)
        np.testing.assert_allclose(unit_strength(graph, graph), expected)

    def test_equal_weights_are_all_strong(self) -> None:
        graph = graph_of([("r", 4.0), ("r", 4.0)]).with_lower_is_better(True)
        assert unit_strength(graph, graph).tolist() == [1.0, 1.0]

    def test_the_direction_is_that_of_train(self) -> None:
        train = graph_of([("r", 2.0), ("r", 8.0)]).with_lower_is_better(True)
        other = graph_of([("r", 8.0), ("r", 2.0)]).align(train).graph
        assert other.lower_is_better
        assert unit_strength(other, train).tolist() == [0.0, 1.0]


class TestStrength:
    """What deciles and validation compare: places within the relation where units differ."""

    @settings(deadline=None)
    @given(EDGES, EDGES, st.booleans())
    def test_strength_within_relations_matches_a_loop(self, rows: list[Edge], known: list[Edge], lower: bool) -> None:
        names = [(name, 0.0) for name in "rst"]  # so that both have the same ids
        train, graph = (graph_of(names + part).with_lower_is_better(lower) for part in (known, rows))
        found = strength(graph, train, "relation")
        every = [*names, *known, *names, *rows]
        for (relation, weight), low, high in zip(names + rows, found.low, found.high, strict=True):
            others = [value for name, value in every if name == relation]
            weaker = sum(other > weight if lower else other < weight for other in others)
            assert (low, high) == (weaker / len(others), (weaker + others.count(weight)) / len(others))
        assert found.middle == pytest.approx((found.low + found.high) / 2)

    def test_a_relation_with_one_weight_has_the_middle_strength(self) -> None:
        graph = graph_of([("r", 4.0)] * 3 + [("s", 1.0), ("s", 2.0)])
        assert strength(graph, graph).middle.tolist() == [0.5, 0.5, 0.5, 0.25, 0.75]

    def test_confidences_and_single_relations_are_compared_as_they_are(self) -> None:
        confidences = graph_of([("r", 0.2), ("s", 0.9)])
        assert strength_rule(confidences) == strength_rule(graph_of([("r", 2.0), ("r", 9.0)])) == "global"
        found = strength(confidences, confidences)
        assert found.low is found.high
        assert found.middle.tolist() == [0.2, 0.9]

    def test_other_units_are_compared_within_relations(self) -> None:
        assert strength_rule(graph_of([("r", 1.0), ("s", 5.0)])) == "relation"
        assert strength_rule(graph_of([("r", -0.1), ("s", 0.5)])) == "relation"
        fractions = [("r", n / 40) for n in range(40)]  # and the same number of parts per million
        assert strength_rule(graph_of(fractions + [("s", weight / 1000) for _, weight in fractions])) == "relation"
        assert strength_rule(graph_of(fractions + [("s", weight / 2) for _, weight in fractions])) == "global"
        values = np.array([[0.5, 3.0], [0.2, np.nan]])
        columns = WeightColumns(("share", "hours"), values, frozenset())
        merged = replace(graph_of([("r", 0.2), ("s", 0.9)]), columns=columns)
        assert strength_rule(merged) == "relation"
        assert strength_rule(replace(merged, columns=replace(columns, values=values / 3))) == "global"

    def test_unknown_rules_are_errors(self) -> None:
        graph = graph_of([("r", 1.0)])
        with pytest.raises(FocuseError, match="rule for deciles"):
            strength(graph, graph, "weight")


UNITS_EDGES = st.lists(st.tuples(st.sampled_from("rst"), NUMBER), min_size=1, max_size=80)


def units_graph_of(**weights: list[float]) -> Graph:
    """Relations by name with their weights."""
    edges = [(relation, weight) for relation, each in weights.items() for weight in each]
    places = [str(place) for place in range(len(edges))]
    return from_columns(places, [relation for relation, _ in edges], places, [weight for _, weight in edges])


def spread(low: float, high: float, many: int = MIN_EDGES_FOR_RANGE) -> list[float]:
    return np.linspace(low, high, many).tolist()


def shares(graph: Graph) -> np.ndarray:
    return WeightScaler.fit(graph).to_unit(graph.weight, graph.relation)


@pytest.mark.parametrize("lower", [False, True])
def test_each_relation_has_its_own_range(lower: bool) -> None:
    graph = units_graph_of(treats=spread(0, 4.5), binds=spread(1, 10), interacts=spread(155, 989)).with_lower_is_better(
        lower
    )
    units = WeightScaler.fit(graph)
    assert (units.low.tolist(), units.high.tolist()) == ([0, 1, 155], [4.5, 10, 989])
    found = units.to_unit(graph.weight, graph.relation).reshape(3, MIN_EDGES_FOR_RANGE)
    np.testing.assert_allclose(
        found, np.tile(np.linspace(0, 1, MIN_EDGES_FOR_RANGE)[:: -1 if lower else 1], (3, 1)), atol=1e-12
    )
    assert not units.common


@pytest.mark.parametrize("factor", [1e-3, 0.2, 7.0, 1e6])
def test_the_unit_of_a_relation_does_not_change_its_unit_weights(factor: float) -> None:
    """Neither its own nor another's: of relations with many edges and with a few."""
    weights = {"a": spread(0, 4.5), "b": spread(100, 900), "c": [2.0, 3.0, 2.5]}
    plain = units_graph_of(**weights)
    other = units_graph_of(**{**weights, "a": [factor * weight for weight in weights["a"]]})
    np.testing.assert_allclose(shares(other), shares(plain), atol=1e-12)


@given(UNITS_EDGES, UNITS_EDGES, st.booleans())
def test_any_number_has_a_unit_weight(
    edges: list[tuple[str, float]], others: list[tuple[str, float]], lower: bool
) -> None:
    """Finite, and outside [0, 1] only beyond the range."""
    names = sorted({relation for relation, _ in edges})
    train = units_graph_of(**{name: [weight for relation, weight in edges if relation == name] for name in names})
    units = WeightScaler.fit(train.with_lower_is_better(lower))
    asked = [(names.index(relation), weight) for relation, weight in others if relation in names]
    kind, weight = np.array([one for one, _ in asked], np.int64), np.array([one for _, one in asked])
    share = units.to_unit(weight, kind)
    assert np.isfinite(share).all()
    inside = (units.low[kind] <= weight) & (weight <= units.high[kind])
    assert ((share >= 0) & (share <= 1))[inside].all()
    assert not np.isnan(units.from_unit(share, kind)).any()


@given(UNITS_EDGES, st.booleans())
def test_from_unit_inverts_to_unit_within_the_range(edges: list[tuple[str, float]], lower: bool) -> None:
    kinds: dict[str, list[float]] = {}
    for relation, weight in edges:
        kinds.setdefault(relation, []).append(weight)
    graph = units_graph_of(**kinds).with_lower_is_better(lower)
    units = WeightScaler.fit(graph)
    share = units.to_unit(graph.weight, graph.relation)
    assert ((share >= 0) & (share <= 1)).all()
    low, high = units.low[graph.relation], units.high[graph.relation]
    assert ((low <= graph.weight) & (graph.weight <= high)).all()
    scale = np.maximum(np.abs(low), np.abs(high)).clip(1e-300)
    np.testing.assert_allclose(units.from_unit(share, graph.relation) / scale, graph.weight / scale, atol=1e-12)
    asked = units.from_unit(np.random.default_rng(0).random(len(graph)), graph.relation)
    assert ((low <= asked) & (asked <= high)).all()


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize(("weights", "beyond"), [([2.0, 4.0], [1.0, 6.0, -20.0]), ([5.0, 5.0], [4.0, 9.0, -1.0])])
def test_weights_beyond_the_range_are_outside_the_unit_range_and_invertible(
    weights: list[float], beyond: list[float], lower: bool
) -> None:
    units = WeightScaler.fit(units_graph_of(r=weights).with_lower_is_better(lower))
    kind = np.zeros(3, np.int64)
    share = units.to_unit(np.array(beyond), kind)
    assert (((share < 0) == (np.array(beyond) < min(weights))) != lower).all()
    assert ((share < 0) | (share > 1)).all()
    np.testing.assert_allclose(units.from_unit(share, kind), beyond)


def test_a_single_value_is_strong() -> None:
    for lower in (False, True):
        assert (
            shares(units_graph_of(r=[5.0] * 40, s=spread(100, 900)).with_lower_is_better(lower))[:40].tolist()
            == [1.0] * 40
        )


def test_weights_in_the_unit_range_are_not_changed() -> None:
    graph = units_graph_of(r=spread(0.2, 0.4), s=spread(0.1, 1.0), t=[0.01])
    assert shares(graph).tolist() == graph.weight.tolist()
    assert WeightScaler.fit(graph).common


def test_a_relation_with_small_weights_has_its_own_scale() -> None:
    graph = units_graph_of(r=spread(0.0002, 0.001), s=spread(0.1, 1.0))
    units = WeightScaler.fit(graph)
    assert (units.low.tolist(), units.high.tolist(), units.common) == ([0, 0], [0.001, 1], False)  # 0 stays nothing


@pytest.mark.parametrize("least", [-100.0, 0.0, 40.0])
def test_relations_of_one_unit_share_its_range(least: float) -> None:
    units = WeightScaler.fit(units_graph_of(r=spread(least, 100), s=spread(50, 90), t=[61.0]))
    assert (set(units.low), set(units.high), units.common) == ({least}, {100}, True)


def test_a_dozen_small_weights_have_their_own_scale() -> None:
    units = WeightScaler.fit(units_graph_of(r=spread(0, 4.5, 12), s=spread(155, 989, 500)))
    assert units.high[0] < 7
    assert WeightScaler.fit(
        units_graph_of(r=spread(0, 4.5, 3), s=spread(0, 100), t=spread(0, 90), u=spread(0, 70))
    ).common


def test_a_few_large_weights_have_their_own_scale() -> None:
    """Else all others would lie at the bottom of a range that nobody but they use."""
    units = WeightScaler.fit(units_graph_of(r=spread(0, 4.5), s=spread(0, 5), t=[155.0, 989.0]))
    assert units.high[:2].tolist() == [4.5, 5]


def test_a_range_of_few_edges_is_widened() -> None:
    """Towards that of others, beside the largest weight; never beyond what train shows."""
    graph = units_graph_of(many=spread(0, 1000, 90), few=[30.0, 40.0], one=[35.0], top=[990.0])
    units = WeightScaler.fit(graph)
    width = units.high - units.low
    assert (units.low[0], units.high[0]) == (0, 1000)
    assert 10 < width[1] < 40
    assert 0 < width[2] < 35
    assert units.low[1] < 30 < 40 < units.high[1]
    assert units.high[3] == 1000


def test_a_relation_without_edges_has_trains_range() -> None:
    graph = units_graph_of(r=spread(0, 4.5), s=spread(155, 989), t=[1.0])
    units = WeightScaler.fit(graph.select(graph.relation < 2))
    assert (units.low[2], units.high[2]) == (0, 989)


def random_graph(rows: int, seed: int, entities: int = 60, relations: int = 3) -> Graph:
    random = np.random.default_rng(seed)
    head, tail = random.integers(0, entities, (2, rows))
    kind = random.integers(0, relations, rows)
    return from_columns([f"e{i}" for i in head], [f"r{i}" for i in kind], [f"e{i}" for i in tail], np.ones(rows))


@pytest.mark.parametrize("seed", range(6))
def test_a_column_of_noise_gets_no_importance(seed: int) -> None:
    graph = random_graph(2000, seed)
    random = np.random.default_rng([seed, 1])
    told = random.random(60)[graph.head] + random.random(60)[graph.tail] + random.random(len(graph)) / 2
    noise = random.random(len(graph))
    importance, explained = learn_importance([(graph, told / told.max()), (graph, noise)], seed)
    assert importance[1] < 0.05
    assert importance.sum() == pytest.approx(1)
    assert explained[0] > 0.5


@pytest.mark.parametrize("effect", ["relation", "head", "tail", "head and relation", "relation and tail", "pair"])
def test_every_effect_explains_variance(effect: str) -> None:
    graph = random_graph(4000, 3, entities=15)
    random = np.random.default_rng(5)
    by_relation, by_entity, by_both = random.random(3), random.random(15), random.random((3, 15))
    by_pair = random.random((15, 15))
    low, high = np.minimum(graph.head, graph.tail), np.maximum(graph.head, graph.tail)
    share = {
        "relation": by_relation[graph.relation],
        "head": by_entity[graph.head],
        "tail": by_entity[graph.tail],
        "head and relation": by_both[graph.relation, graph.head],
        "relation and tail": by_both[graph.relation, graph.tail],
        "pair": by_pair[low, high],  # the edge back has the same
    }[effect]
    assert explained_variance(graph, share) > 0.9


def test_repeats_of_a_triple_do_not_explain_each_other() -> None:
    """Every triple stands there twice with the same noise: a look at its twin would tell all of it."""
    graph = random_graph(500, 0, entities=200)
    twice = graph.select(np.tile(np.arange(500), 2))
    assert explained_variance(twice, np.tile(np.random.default_rng(0).random(500), 2)) < 0.05


def test_columns_of_noise_are_equally_important() -> None:
    graph = random_graph(1000, 0)
    random = np.random.default_rng(0)
    importance, explained = learn_importance([(graph, random.random(1000)) for _ in range(4)])
    assert importance.tolist() == [0.25] * 4
    assert explained.tolist() == [0.0] * 4


def test_barely_explained_columns_are_equally_important() -> None:
    graph = random_graph(4000, 0)
    random = np.random.default_rng(0)
    effect = random.random(len(graph.entities))[graph.head]
    little = effect * 0.2 + random.random(4000)
    importance, explained = learn_importance([(graph, little / little.max()), (graph, random.random(4000))])
    assert 0 < explained[0] < 0.05
    assert importance.tolist() == [0.5, 0.5]


def test_chance_in_a_small_graph_is_not_taken_for_structure() -> None:
    told = [
        explained_variance(random_graph(150, seed), np.random.default_rng(seed).random(150), seed) for seed in range(60)
    ]
    assert sum(share > 0 for share in told) <= 2


def test_importance_depends_only_on_the_seed() -> None:
    graph = random_graph(800, 2)
    random = np.random.default_rng(1)
    share = random.random(60)[graph.head] + random.random(800) / 4
    assert (
        explained_variance(graph, share, 7)
        == explained_variance(graph, share, 7)
        != explained_variance(graph, share, 8)
    )


def test_constant_and_tiny_columns_explain_nothing() -> None:
    graph = random_graph(100, 0)
    assert explained_variance(graph, np.ones(100)) == 0.0
    assert explained_variance(graph.select(np.arange(9)), np.arange(9) / 9) == 0.0


def test_a_large_graph_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(3000, 0)
    random = np.random.default_rng(1)
    share = random.random(60)[graph.head] + random.random(3000) / 4
    whole = explained_variance(graph, share)
    monkeypatch.setattr("focuse.data.weights.MAX_SAMPLED_ROWS", 1000)
    part = explained_variance(graph, share)
    assert whole != part > 0.8
    assert MAX_SAMPLED_ROWS >= 100_000


def test_shrunken_means_match_their_formula() -> None:
    random = np.random.default_rng(0)
    group = np.repeat(np.arange(20), 30)
    values = random.normal(0, 2, 20)[group] + random.normal(0, 1, 600)
    found = shrunken_means(values, group, 21)
    means = values.reshape(20, 30).mean(axis=1)
    within = values.reshape(20, 30).var(axis=1, ddof=1).mean()
    between = means.var(ddof=1) - within / 30
    np.testing.assert_allclose(found[:20], means * 30 * between / (30 * between + within))
    assert found[20] == 0
    assert np.abs(shrunken_means(random.normal(size=600), group, 21)).max() < 0.2
    assert not shrunken_means(np.arange(5.0), np.arange(5), 5).any()  # every group has one: nothing to compare


def test_missing_values_do_not_affect_importance() -> None:
    rows = [(f"h{i % 20}", "r", f"t{i // 20}", (i % 20) / 19 if i % 3 else None, i % 7) for i in range(400)]
    merger = fit_merger(read(rows))
    assert merger.explained[0] > 0.9
    assert merger.importance[0] > 0.9


TRAIN = read(
    [
        ("a", "r", "b", 10, 0.2, 5),
        ("b", "r", "c", 20, None, 5),
        ("a", "s", "c", None, 0.9, 8),
        ("c", "s", "b", 7, 0.1, 8),
        ("c", "s", "a", 3, 0.5, 8),
    ]
)


IMPORTANCE = {"w1": 2, "w2": 1, "w3": 1}


def test_merged_weights_agree_with_plain_python() -> None:
    merged = fit_merger(TRAIN, importance=IMPORTANCE)(TRAIN)
    # w1: r 10 to 20, s 3 to 7; w2: r 0.2 alone gets 1, s 0.1 to 0.9; w3 has one number a relation, so over all 5 to 8
    shares = [[0, 1, 0], [1, None, 0], [None, 1, 1], [1, 0, 1], [0, 0.5, 1]]
    expected = []
    for row in shares:
        seen = [(weight, share) for weight, share in zip((2, 1, 1), row, strict=True) if share is not None]
        expected.append(sum(w * s for w, s in seen) / sum(w for w, _ in seen))
    np.testing.assert_allclose(merged.weight, expected)


def test_small_values_are_strong_if_lower_is_better() -> None:
    merger = fit_merger(TRAIN.with_lower_is_better(["w1"]), importance=IMPORTANCE)
    plain, _ = fit_merger(TRAIN, importance=IMPORTANCE).unit_weights(TRAIN)
    turned, present = merger.unit_weights(TRAIN)
    np.testing.assert_allclose(turned[present[:, 0], 0], 1 - plain[present[:, 0], 0])
    np.testing.assert_array_equal(turned[:, 1:], plain[:, 1:])


def test_unseen_values_are_clipped_and_columns_found_by_name() -> None:
    merger = fit_merger(TRAIN, importance=IMPORTANCE)
    names = dict(zip(("head", "relation", "tail", "w2", "w1"), "csb", strict=False))
    table = pa.table({**{name: [text] for name, text in names.items()}, "w2": [-5], "w1": [99]})
    other = read(table, weight_columns=["w2", "w1"]).align(TRAIN).graph
    assert other.columns is not None
    assert other.columns.names == ("w2", "w1")
    shares, present = merger.unit_weights(other)
    assert present.tolist() == [[True, True, False]]
    assert shares[0, :2].tolist() == [1.0, 0.0]


def test_edges_with_only_unimportant_columns_are_neutral() -> None:
    merger = fit_merger(TRAIN, importance={"w1": 1})
    assert merger(TRAIN).weight[2] == NEUTRAL_WEIGHT


@pytest.mark.parametrize("lower", [[], ["w1", "w3"]])
@pytest.mark.parametrize("normalize", [None, "global", "quantile"])
def test_a_merger_is_unchanged_after_storing(normalize: str | None, lower: list[str]) -> None:
    train = TRAIN.with_lower_is_better(lower)
    merger = fit_merger(train, normalize)
    again = ColumnMerger.from_stored(merger.to_dict(), merger.arrays())
    np.testing.assert_array_equal(again(train).weight, merger(train).weight)
    assert (again.names, again.lower_is_better, str(again)) == (merger.names, merger.lower_is_better, str(merger))


def test_a_merger_describes_its_importances() -> None:
    assert "all are equally important" in str(fit_merger(TRAIN))
    assert str(fit_merger(TRAIN, importance=IMPORTANCE)) == "importance of weight columns: w1 0.50, w2 0.25, w3 0.25"


@pytest.mark.parametrize(
    ("importance", "says"),
    [
        ({"w4": 1}, "no weight column 'w4'"),
        ({"w1": 0}, "every column has 0"),
        ({"w1": -1}, "at least 0"),
        ({"w1": float("nan")}, "at least 0"),
    ],
)
def test_invalid_importances_are_refused(importance: dict[str, float], says: str) -> None:
    with pytest.raises(FocuseError, match=says):
        fit_merger(TRAIN, importance=importance)


def test_other_graphs_need_the_same_columns() -> None:
    merger = fit_merger(TRAIN, importance=IMPORTANCE)
    with pytest.raises(FocuseError, match="a single weight per edge, but train has w1, w2, w3"):
        merger(read([("a", "r", "b", 1)]).align(TRAIN).graph)
    with pytest.raises(FocuseError, match="there is nothing to merge"):
        fit_merger(read([("a", "r", "b", 1)]))
    plain = read([("a", "r", "b")]).align(TRAIN).graph
    assert merger(plain).weight.tolist() == [1.0]  # no numbers at all, as ever


# ---- heavy tails ----------------------------------------------------------------------------------------------------


POSITIVE = st.floats(1e-300, 1e300)


@given(st.lists(st.one_of(POSITIVE, st.just(0.0)), min_size=2, max_size=25), st.booleans())
def test_log_scaling_maps_train_to_the_unit_range_and_back(weights: list[float], lower: bool) -> None:
    graph = graph_of([("r", weight) for weight in weights]).with_lower_is_better(lower)
    normalizer = fit_normalizer("log", graph)
    unit = normalizer.transform(graph.weight, graph.relation)
    assert ((unit >= 0) & (unit <= 1)).all()
    strength = -graph.weight if lower else graph.weight
    assert (np.diff(unit[np.argsort(strength, kind="stable")]) >= 0).all()
    back = normalizer.inverse(unit, graph.relation)
    smallest = min((weight for weight in weights if weight > 0), default=1.0)
    assert back == pytest.approx(graph.weight, rel=1e-9, abs=smallest * 1e-9)


def test_log_scaling_of_powers_of_ten_is_even_in_each_relation() -> None:
    graph = graph_of([("r", 1.0), ("r", 10.0), ("r", 100.0), ("s", 0.0), ("s", 2.0), ("s", 6.0)])
    normalizer = fit_normalizer("log", graph)
    unit = normalizer.transform(graph.weight, graph.relation)
    # In the second relation 2 is added to all weights, because the smallest positive one is 2: 2, 4 and 8.
    assert unit == pytest.approx([0.0, 0.5, 1.0, 0.0, 0.5, 1.0])
    outside = normalizer.transform(np.array([0.0, 1e9]), np.zeros(2, np.int32))
    assert outside.tolist() == [0.0, 1.0]
    negative = graph_of([("r", -3.0), ("r", -2.0), ("r", 1.0)])
    unit = fit_normalizer("log", negative).transform(negative.weight, negative.relation)
    assert unit == pytest.approx(np.log([1.0, 2.0, 5.0]) / np.log(5.0))


def test_heavy_tails_need_a_hundred_times_the_median_of_positive_weights() -> None:
    body = [1.0] * 20 + [3.0] * 9
    for extra, heavy in (([99.0], False), ([100.0], True), ([0.0] * 30 + [100.0], True), ([-1.0, 100.0], False)):
        assert heavy_tails(graph_of([("r", weight) for weight in body + extra])).tolist() == [heavy]
    assert heavy_tails(graph_of([("r", weight) for weight in [*body[:28], 100.0]])).tolist() == [False]  # 29 edges
    assert heavy_tails(graph_of([("r", 0.0)] * 40)).tolist() == [False]


def test_heavy_tails_of_most_edges_change_the_default_scaling() -> None:
    counts, stars = [("plays", weight) for weight in COUNTS], [("rates", n % 5) for n in range(200)]
    assert default_normalizer(graph_of(counts)) == default_normalizer(graph_of(counts + stars[:150])) == "quantile"
    assert default_normalizer(graph_of(counts + stars + stars)) == "relation"
    assert not is_heavy_tailed(replace(graph_of(counts), weighted=False))
    assert heavy_tail_offsets(graph_of(stars)) is None


@pytest.mark.parametrize("lower", [False, True])
def test_weights_with_heavy_tails_are_predicted_by_logarithms(lower: bool) -> None:
    graph = graph_of([("r", weight) for weight in COUNTS]).with_lower_is_better(lower)
    normalizer = fit_normalizer("quantile", graph)
    scaler = WeightScaler.fit(graph, normalizer.arrays["log_offset"])
    relation = np.zeros(3, np.int32)
    middle = scaler.from_unit(np.array([0.0, 0.5, 1.0]), relation)
    expected = [1.0, COUNTS.max() ** 0.5, COUNTS.max()]  # the middle is the geometric mean of both ends
    assert middle == pytest.approx(expected[::-1] if lower else expected)
    assert scaler.to_unit(middle, relation) == pytest.approx([0.0, 0.5, 1.0])
    assert scaler.to_unit(graph.weight, graph.relation) == pytest.approx(unit_strength(graph, graph))
    beyond = scaler.from_unit(np.array([-60.0, 1.5, 1e6]), relation)
    assert np.isfinite(beyond).all()
    assert (beyond >= 0).all()


def test_quantiles_of_other_weights_have_no_logarithms() -> None:
    graph = graph_of([("r", n % 7) for n in range(100)])
    assert "log_offset" not in fit_normalizer("quantile", graph).arrays


@pytest.mark.parametrize("name", ["quantile", "log"])
def test_logarithms_reach_relations_that_are_added(name: str) -> None:
    first = graph_of([("r", weight) for weight in COUNTS])
    both = graph_of([("r", 5.0)] + [("s", n) for n in range(50)])
    more = with_more_relations(fit_normalizer(name, first), both, 1)
    assert more.arrays["log_offset"].tolist() == [0.0, 1.0]
    unit = more.transform(np.array([1.0, 0.0, 49.0]), np.array([0, 1, 1], np.int32))
    assert unit[1:].tolist() == [0.0, 1.0]


def test_columns_with_heavy_tails_are_scaled_by_ranks_unless_asked_otherwise() -> None:
    rows = [(f"a{n}", "r", f"b{n}", count, n % 5) for n, count in enumerate(COUNTS)]
    both = read(rows)
    assert [normalizer.name for normalizer in fit_merger(both).normalizers] == ["quantile", "relation"]
    assert [normalizer.name for normalizer in fit_merger(both, "relation").normalizers] == ["relation", "relation"]
