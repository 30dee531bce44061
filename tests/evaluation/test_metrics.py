"""Metrics, compared with plain loops; deciles with every way to break ties."""

import itertools
import json
import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.data.graph import Graph, Vocabulary
from focuse.evaluation.metrics import (
    Concordance,
    WeightOrder,
    concordance,
    decile_size,
    deciles,
    rank_metrics,
    sort_rows,
    weight_order,
    weighted_median,
)

RANKS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=30)
KEYS = {"mr", "mrr", "hits@1", "hits@3", "hits@10", "n"}


@given(ranks=RANKS, data=st.data())
@settings(max_examples=50, deadline=None)
def test_rank_metrics_match_a_loop(ranks: list[tuple[int, int]], data: st.DataObject) -> None:
    parts = data.draw(st.lists(st.integers(0, 8), min_size=len(ranks), max_size=len(ranks)).filter(any))
    half_steps = data.draw(st.booleans())  # ties by their mean give ranks with halves
    values = [[Fraction(rank) + Fraction(1, 2) * half_steps for rank in row] for row in ranks]
    for share in (None, parts):
        counted = [(rank, 1 if share is None else share[i]) for i, row in enumerate(values) for rank in row]
        total = sum(part for _, part in counted)
        found = rank_metrics(np.array(values, float), None if share is None else np.array(share) / 4)
        assert found.mr == pytest.approx(float(sum(rank * part for rank, part in counted) / total))
        assert found.mrr == pytest.approx(float(sum(part / rank for rank, part in counted) / total))
        for k in (1, 3, 10):
            hits = sum(part for rank, part in counted if rank <= k) / total
            assert found.hits[k] == pytest.approx(float(hits))
        assert found.n == len(ranks)


def test_rank_metrics_can_be_limited_to_one_side() -> None:
    found = rank_metrics(np.array([[1.0], [4.0]]))
    assert (found.mr, found.mrr, found.hits, found.n) == (2.5, 0.625, {1: 0.5, 3: 0.5, 10: 1.0}, 2)
    assert found.to_dict() == {"mr": 2.5, "mrr": 0.625, "hits@1": 0.5, "hits@3": 0.5, "hits@10": 1.0, "n": 2}


@pytest.mark.parametrize("share", [None, np.zeros(3)])
def test_no_triples_give_nan_and_null_in_json(share: np.ndarray | None) -> None:
    found = rank_metrics(np.ones((0 if share is None else 3, 2)), share)
    assert math.isnan(found.mr)
    assert math.isnan(found.mrr)
    assert found.n == 0
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told == {key: 0 if key == "n" else None for key in KEYS}


@pytest.mark.parametrize(("n", "size"), [(0, 0), (1, 0), (2, 1), (9, 1), (19, 1), (20, 2), (14_029, 1_402)])
def test_decile_size_is_a_tenth_and_at_least_one(n: int, size: int) -> None:
    assert decile_size(n) == size


def brute_deciles(weight: list[int], k: int) -> tuple[list[Fraction], list[Fraction]]:
    """The mean over all orders that sort `weight` of: first k are bottom, last k are top."""
    orders = [
        order
        for order in itertools.permutations(range(len(weight)))
        if all(weight[a] <= weight[b] for a, b in itertools.pairwise(order))
    ]
    bottom, top = [0] * len(weight), [0] * len(weight)
    for order in orders:
        for row in order[:k]:
            bottom[row] += 1
        for row in order[-k:]:
            top[row] += 1
    return [Fraction(count, len(orders)) for count in bottom], [Fraction(count, len(orders)) for count in top]


@given(weight=st.lists(st.integers(0, 3), min_size=2, max_size=6))
@settings(max_examples=30, deadline=None)
def test_deciles_are_the_mean_over_all_ways_to_break_ties(weight: list[int]) -> None:
    bottom, top = deciles(np.array(weight, float))
    expected = brute_deciles(weight, 1)
    np.testing.assert_allclose(bottom, np.array(expected[0], float))
    np.testing.assert_allclose(top, np.array(expected[1], float))


@given(weight=st.lists(st.integers(0, 4), min_size=20, max_size=59), scale=st.sampled_from([0.1, 1.0, -3.7]))
@settings(max_examples=50, deadline=None)
def test_rows_tied_at_the_cut_share_the_remaining_places(weight: list[int], scale: float) -> None:
    """Rows beyond the cut belong, rows tied at it share what places are left, none else counts."""
    values = [scale * w for w in weight]
    k = len(values) // 10
    for share, ordered, beyond in (
        (deciles(np.array(values))[0], sorted(values), lambda v, cut: v < cut),
        (deciles(np.array(values))[1], sorted(values, reverse=True), lambda v, cut: v > cut),
    ):
        cut = ordered[k - 1]
        inside = sum(beyond(v, cut) for v in values)
        left = (k - inside) / values.count(cut)
        expected = [1.0 if beyond(v, cut) else left if v == cut else 0.0 for v in values]
        np.testing.assert_allclose(share, expected)
        assert share.sum() == pytest.approx(k)


def test_deciles_are_the_mean_of_many_random_cuts() -> None:
    rng = np.random.default_rng(0)
    weight = rng.choice([0.2, 0.5, 0.9], 47, p=[0.3, 0.3, 0.4])
    bottom, top = np.zeros(47), np.zeros(47)
    rounds = 4_000
    for _ in range(rounds):
        order = np.lexsort((rng.random(47), weight))
        bottom[order[:4]] += 1 / rounds
        top[order[-4:]] += 1 / rounds
    found = deciles(weight)
    np.testing.assert_allclose(found[0], bottom, atol=0.03)  # five standard deviations
    np.testing.assert_allclose(found[1], top, atol=0.03)


def test_equal_weights_belong_equally_to_both_deciles() -> None:
    bottom, top = deciles(np.full(40, 0.3))
    np.testing.assert_allclose(bottom, 0.1)
    np.testing.assert_allclose(top, 0.1)


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_rows_have_no_deciles(n: int) -> None:
    bottom, top = deciles(np.ones(n))
    assert bottom.tolist() == top.tolist() == [0.0] * n


@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), share=st.sampled_from([1.0, 0.1, 1 / 3, 0.505, 7.0])
)
@settings(max_examples=50, deadline=None)
def test_weighted_median_with_equal_weights_is_the_median(values: list[float], share: float) -> None:
    found = weighted_median(np.array(values), np.full(len(values), share))
    assert found == pytest.approx(np.median(values), rel=1e-12, abs=1e-9)


@given(rows=st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 5)), min_size=1, max_size=30))
@settings(max_examples=80, deadline=None)
def test_weighted_median_with_whole_weights_is_that_of_repeats(rows: list[tuple[int, int]]) -> None:
    values, share = np.array(rows, float).T
    found = weighted_median(values, share)
    if not share.any():
        assert math.isnan(found)
    else:
        assert found == np.median(np.repeat(values, share.astype(int)))


@given(rows=st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 20)), min_size=1, max_size=30))
@settings(max_examples=50, deadline=None)
def test_weighted_median_matches_its_definition(rows: list[tuple[int, int]]) -> None:
    """No more than half lies below, no more than half above; the midpoint of all values of which that holds."""
    parts = [(value, Fraction(share, 7)) for value, share in rows]
    total = sum(share for _, share in parts)
    qualify = [
        value
        for value, _ in parts
        if 2 * sum(s for v, s in parts if v < value) <= total and 2 * sum(s for v, s in parts if v > value) <= total
    ]
    expected = (min(qualify) + max(qualify)) / 2
    assert weighted_median(np.array([v for v, _ in rows], float), np.array([s for _, s in rows]) / 7) == expected


@pytest.mark.parametrize("share", [0.1, 0.3, 0.505, 0.7])
def test_weighted_median_of_many_rows_is_exact(share: float) -> None:
    """Running sums of 200,000 fractions are no longer exact, the two middle rows must still be found."""
    values = np.random.default_rng(1).normal(size=200_000)
    assert weighted_median(values, np.full(len(values), share)) == np.median(values)


# ---- The order of facts by weight, against loops over pairs and queries ----


ENTITIES, RELATIONS = 5, 3
Edge = tuple[int, int, int]
edge = st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1))
# Few distinct values: ties of scores, of weights and of both abound.
facts = st.dictionaries(edge, st.tuples(st.integers(0, 4), st.integers(-3, 3), st.integers(-3, 3)), max_size=30)
columns = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 4)), max_size=60)


def graph_of(edges: list[Edge]) -> Graph:
    head, relation, tail = np.array(edges, np.int32).reshape(-1, 3).T
    names = [Vocabulary([f"{kind}{i}" for i in range(n)]) for kind, n in (("e", ENTITIES), ("r", RELATIONS))]
    return Graph(head, relation, tail, np.ones(len(edges)), *names)


def found(table: dict[Edge, tuple[int, int, int]]) -> WeightOrder:
    weight, tail_score, head_score = (
        np.array([row[i] for row in table.values()], np.float64) / scale for i, scale in enumerate((4, 1, 1))
    )
    return weight_order(graph_of(list(table)), weight, tail_score, head_score)


def share(pairs: list[tuple[float, float, float, float]]) -> Concordance:
    """Of pairs (weight, score, other weight, other score)."""
    counted = [(w - v) * (s - t) for w, s, v, t in pairs if w != v]
    points = sum(1.0 if agree > 0 else 0.5 if agree == 0 else 0.0 for agree in counted)
    return Concordance(points / len(counted) if counted else math.nan, len(counted))


def same(left: Concordance, right: Concordance) -> None:
    assert left.pairs == right.pairs
    assert left.share == pytest.approx(right.share, nan_ok=True, abs=1e-12)


@given(rows=columns)
def test_concordance_matches_a_loop_over_pairs(rows: list[tuple[int, int, int]]) -> None:
    group, weight, score = np.array(rows, np.float64).reshape(-1, 3).T
    every = [(a[1], a[2], b[1], b[2]) for a, b in combinations(rows, 2)]
    same(concordance(score, weight), share(every))
    within = [(a[1], a[2], b[1], b[2]) for a, b in combinations(rows, 2) if a[0] == b[0]]
    same(concordance(score, weight, group.astype(np.int64)), share(within))


def test_concordance_without_ties_is_kendalls_tau() -> None:
    from scipy.stats import kendalltau

    random = np.random.default_rng(0)
    score, weight = random.normal(size=(2, 1_001))
    score += weight
    assert 2 * concordance(score, weight).share - 1 == pytest.approx(kendalltau(score, weight).statistic)
    assert concordance(score, weight).pairs == 1_001 * 500


@given(table=facts)
def test_weight_order_compares_pairs_of_graph_relation_and_query(table: dict[Edge, tuple[int, int, int]]) -> None:
    every, relation, query = [], [], []
    for ((h, r, t), (w, s, u)), ((g, q, e), (v, x, y)) in combinations(table.items(), 2):
        every.append((w, s, v, x))
        relation += [(w, s, v, x)] * (r == q)
        query += [(w, s, v, x)] * ((h, r) == (g, q)) + [(w, u, v, y)] * ((r, t) == (q, e))
    order = found(table)
    for part, pairs in ((order.every, every), (order.relation, relation), (order.query, query)):
        same(part, share(pairs))


@given(table=facts)
def test_perfect_reversed_and_constant_scores(table: dict[Edge, tuple[int, int, int]]) -> None:
    for sign, expected in ((1, 1.0), (-1, 0.0), (0, 0.5)):
        order = found({key: (w, sign * w, sign * w) for key, (w, *_) in table.items()})
        for part in (order.every, order.relation, order.query):
            assert part.share == expected if part.pairs else math.isnan(part.share)


def test_nothing_to_compare_is_null_in_json() -> None:
    for table in ({}, {(0, 0, 1): (2, 1, 1)}, {(0, 0, 1): (2, 1, 1), (0, 0, 2): (2, 3, 3)}):
        told = found(table).to_dict()
        assert told["concordance"] == {key: {"share": None, "pairs": 0} for key in ("relation", "query", "all")}
        assert "–" in str(found(table))
        assert "nan" not in str(found(table))


def test_weight_order_prints_its_numbers() -> None:
    order = found({(0, 0, 1): (4, 3, 3), (0, 0, 2): (2, 1, 1), (0, 0, 3): (0, 2, 2), (1, 1, 1): (1, 9, 9)})
    text = str(order)
    parts = "within relation 0.667 (3 pairs), within query 0.667 (3 pairs), all 0.500 (6 pairs)"
    assert text == f"concordance: {parts}"


def test_rows_with_keys_beyond_64_bits_are_sorted() -> None:
    random = np.random.default_rng(1)
    columns = [random.integers(0, 3, 50) * 2**40, random.integers(0, 3, 50) * 2**40]
    rows = sort_rows(*columns)
    assert [(column[rows]).tolist() for column in columns] == [list(one) for one in zip(*sorted(zip(*columns)))]  # noqa: B905
