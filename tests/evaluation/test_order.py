"""The order of facts by weight, against loops over pairs and queries."""

import math
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focuse.evaluation.order import Concordance, Order, ascending, concordance, order_of
from focuse.graph.graph import Graph
from focuse.graph.vocabulary import Vocabulary

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


def found(table: dict[Edge, tuple[int, int, int]]) -> Order:
    weight, tail_score, head_score = (
        np.array([row[i] for row in table.values()], np.float64) / scale for i, scale in enumerate((4, 1, 1))
    )
    return order_of(graph_of(list(table)), weight, tail_score, head_score)


def share(pairs: list[tuple[float, float, float, float]]) -> Concordance:
    """Of pairs (weight, score, other weight, other score)."""
    counted = [(w - v) * (s - t) for w, s, v, t in pairs if w != v]
    points = sum(1.0 if agree > 0 else 0.5 if agree == 0 else 0.0 for agree in counted)
    return Concordance(points / len(counted) if counted else math.nan, len(counted))


def same(left: Concordance, right: Concordance) -> None:
    assert left.pairs == right.pairs
    assert left.share == pytest.approx(right.share, nan_ok=True, abs=1e-12)


@given(rows=columns)
def test_concordance_against_all_pairs(rows: list[tuple[int, int, int]]) -> None:
    group, weight, score = np.array(rows, np.float64).reshape(-1, 3).T
    every = [(a[1], a[2], b[1], b[2]) for a, b in combinations(rows, 2)]
    same(concordance(score, weight), share(every))
    within = [(a[1], a[2], b[1], b[2]) for a, b in combinations(rows, 2) if a[0] == b[0]]
    same(concordance(score, weight, group.astype(np.int64)), share(within))


def test_many_rows_without_ties_give_kendalls_tau() -> None:
    from scipy.stats import kendalltau

    random = np.random.default_rng(0)
    score, weight = random.normal(size=(2, 1_001))
    score += weight
    assert 2 * concordance(score, weight).share - 1 == pytest.approx(kendalltau(score, weight).statistic)
    assert concordance(score, weight).pairs == 1_001 * 500


@given(table=facts)
def test_groups_of_pairs(table: dict[Edge, tuple[int, int, int]]) -> None:
    every, relation, query = [], [], []
    for ((h, r, t), (w, s, u)), ((g, q, e), (v, x, y)) in combinations(table.items(), 2):
        every.append((w, s, v, x))
        relation += [(w, s, v, x)] * (r == q)
        query += [(w, s, v, x)] * ((h, r) == (g, q)) + [(w, u, v, y)] * ((r, t) == (q, e))
    order = found(table)
    for part, pairs in ((order.every, every), (order.relation, relation), (order.query, query)):
        same(part, share(pairs))


def dcg(gains: list[float], ranks: list[int]) -> float:
    return sum(gain / math.log2(rank + 1) for gain, rank in zip(gains, ranks, strict=True))


@given(table=facts)
def test_ndcg_against_loops(table: dict[Edge, tuple[int, int, int]]) -> None:
    queries: dict[tuple[object, ...], list[tuple[float, int]]] = {}
    for (h, r, t), (w, s, u) in table.items():
        queries.setdefault((h, r, "?"), []).append((w / 4, s))
        queries.setdefault(("?", r, t), []).append((w / 4, u))
    asked = [rows for rows in queries.values() if len({w for w, _ in rows}) > 1]
    order = found(table)
    assert order.ndcg.queries == order.chance.queries == len(asked)
    for kind, gain in (("linear", lambda w: w), ("exponential", lambda w: 2**w - 1)):
        reached, chance = [], []
        for rows in asked:
            gains = [gain(w) for w, _ in rows]
            best = dcg(sorted(gains, reverse=True), list(range(1, len(rows) + 1)))
            worst = [gain(w) for w, _ in sorted(rows, key=lambda row: (-row[1], row[0]))]
            reached.append(dcg(worst, list(range(1, len(rows) + 1))) / best)
            if len(rows) <= 4:
                orders = [dcg(list(some), list(range(1, len(rows) + 1))) / best for some in permutations(gains)]
                chance.append(float(np.mean(orders)))
        assert getattr(order.ndcg, kind) == pytest.approx(np.mean(reached) if reached else math.nan, nan_ok=True)
        if len(chance) == len(asked):
            assert getattr(order.chance, kind) == pytest.approx(np.mean(chance) if chance else math.nan, nan_ok=True)


@given(table=facts)
def test_perfect_reversed_and_constant_scores(table: dict[Edge, tuple[int, int, int]]) -> None:
    for sign, expected in ((1, 1.0), (-1, 0.0), (0, 0.5)):
        order = found({key: (w, sign * w, sign * w) for key, (w, *_) in table.items()})
        for part in (order.every, order.relation, order.query):
            assert part.share == expected if part.pairs else math.isnan(part.share)
        if order.ndcg.queries and sign == 1:
            assert (order.ndcg.linear, order.ndcg.exponential) == (pytest.approx(1), pytest.approx(1))
        elif order.ndcg.queries:
            assert order.ndcg.linear < order.chance.linear < 1
            assert order.ndcg.exponential < order.chance.exponential < 1


def test_nothing_to_compare_is_none() -> None:
    for table in ({}, {(0, 0, 1): (2, 1, 1)}, {(0, 0, 1): (2, 1, 1), (0, 0, 2): (2, 3, 3)}):
        told = found(table).to_dict()
        assert told["concordance"] == {key: {"share": None, "pairs": 0} for key in ("relation", "query", "all")}
        assert told["ndcg"] == {"queries": 0, "linear": None, "exponential": None, "ties": "worst"}
        assert told["chance"] == {"linear": None, "exponential": None}
        assert "–" in str(found(table))
        assert "nan" not in str(found(table))


def test_it_prints_what_it_holds() -> None:
    order = found({(0, 0, 1): (4, 3, 3), (0, 0, 2): (2, 1, 1), (0, 0, 3): (0, 2, 2), (1, 1, 1): (1, 9, 9)})
    text = str(order)
    assert "in a relation 0.667 (3 pairs), in a query 0.667 (3 pairs), in a graph 0.500 (6 pairs)" in text
    assert f"gain w {order.ndcg.linear:.3f} (chance {order.chance.linear:.3f})" in text
    assert "1 queries" in text


def test_columns_too_many_for_one_number_are_sorted_all_the_same() -> None:
    random = np.random.default_rng(1)
    columns = [random.integers(0, 3, 50) * 2**40, random.integers(0, 3, 50) * 2**40]
    rows = ascending(*columns)
    assert [(column[rows]).tolist() for column in columns] == [list(one) for one in zip(*sorted(zip(*columns)))]  # noqa: B905
