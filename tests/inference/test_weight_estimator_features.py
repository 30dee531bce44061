"""Features of the neighborhood of a triple, compared with loops over train."""

from __future__ import annotations

import numpy as np
import pytest

from focuse.data.graph import Graph, from_columns
from focuse.evaluation.baselines import KeyedWeights
from focuse.inference import weight_estimator
from focuse.inference.weight_estimator import ABSENT, FEATURES, GraphFeatures, LowRank, ParallelEdges


def random_graph(rows: int = 300, entities: int = 12, relations: int = 3, seed: int = 0) -> Graph:
    random = np.random.default_rng(seed)
    head, tail = random.integers(0, entities, (2, rows))
    kind = random.integers(0, relations, rows)
    names = [f"e{i}" for i in range(entities)]
    columns = [names[i] for i in head], [f"r{i}" for i in kind], [names[i] for i in tail]
    return from_columns(*columns, random.random(rows), "random")


@pytest.fixture
def graph() -> Graph:
    return random_graph()


def triples(graph: Graph, n: int = 60, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    sizes = len(graph.entities), len(graph.relations), len(graph.entities)
    head, relation, tail = (random.integers(0, size, n) for size in sizes)
    return head, relation, tail


def columns_of(graph: Graph, ids: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
    return GraphFeatures(graph).columns(*ids)


def test_features_are_finite_and_of_the_declared_number(graph: Graph) -> None:
    rows = GraphFeatures(graph).rows(*triples(graph))
    assert rows.shape == (60, FEATURES)
    assert np.isfinite(rows).all()


def test_keyed_table_matches_hand_computed_statistics() -> None:
    keys, value = np.array([3, 1, 3, 3, 9]), np.array([0.2, 0.5, 0.8, 0.3, 0.1])
    weights, asked = KeyedWeights(keys, value), np.array([3, 2, 9])
    assert weights.lookup("count", asked, 0.0).tolist() == [3, 0, 1]
    assert weights.lookup("min", asked, ABSENT).tolist() == [0.2, ABSENT, 0.1]
    assert weights.lookup("median", asked, ABSENT).tolist() == [0.3, ABSENT, 0.1]
    assert weights.lookup("max", asked, ABSENT).tolist() == [0.8, ABSENT, 0.1]
    np.testing.assert_allclose(weight_estimator._shrunken_mean(weights, asked), [1.3 / 6, 0, 0.1 / 4])


def test_features_of_a_pair_match_loops(graph: Graph) -> None:
    ids = triples(graph)
    found = columns_of(graph, ids)
    rows = list(zip(graph.head, graph.relation, graph.tail, graph.weight, strict=True))
    for at, (h, r, t) in enumerate(zip(*ids, strict=True)):
        parts = {
            "same": [w for a, k, b, w in rows if (a, k, b) == (h, r, t)],
            "inverse": [w for a, k, b, w in rows if (a, k, b) == (t, r, h)],
            "pair": [w for a, _, b, w in rows if (a, b) == (h, t)],
            "inverse pair": [w for a, _, b, w in rows if (a, b) == (t, h)],
        }
        for name, weights in parts.items():
            assert found[f"{name}, count"][at] == len(weights)
            for column, function in (("mean", np.mean), ("min", min), ("max", max)):
                expected = function(weights) if weights else ABSENT
                assert found[f"{name}, {column}"][at] == pytest.approx(expected)


def test_features_of_head_and_tail_match_loops(graph: Graph) -> None:
    ids = triples(graph, 20)
    found = columns_of(graph, ids)
    weight, overall = graph.weight, graph.weight.mean()
    usual = {k: (weight[graph.relation == k].sum() + 5 * overall) / ((graph.relation == k).sum() + 5) for k in range(3)}
    off = weight - np.array([usual[k] for k in graph.relation])
    for at, (h, r, t) in enumerate(zip(*ids, strict=True)):
        here = off[(graph.head == h) & (graph.relation == r)]
        assert found["relation mean"][at] == pytest.approx(usual[r])
        assert found["head here"][at] == pytest.approx(here.sum() / (len(here) + 3))
        assert found["tail as tail, count"][at] == (graph.tail == t).sum()
        both = np.concatenate([off[graph.head == t], off[graph.tail == t]])
        assert found["tail in total"][at] == pytest.approx(both.sum() / (len(both) + 3))


def test_features_of_common_neighbors_match_loops(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_estimator, "PAIRS_AT_ONCE", 7)
    sparse = random_graph(30)
    ids = triples(sparse)
    found = columns_of(sparse, ids)
    beside = {e: set(sparse.tail[sparse.head == e]) | set(sparse.head[sparse.tail == e]) for e in range(12)}
    for at, (h, _, t) in enumerate(zip(*ids, strict=True)):
        common = beside[h] & beside[t]
        assert found["common neighbors"][at] == len(common)
        assert found["common neighbors, rarity"][at] == pytest.approx(
            sum(1 / np.log(len(beside[e]) + 2) for e in common)
        )


def test_neighbors_of_a_hub_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_estimator, "MAX_NEIGHBORS", 2)
    star = from_columns(["hub"] * 5 + ["x"] * 5, ["r"] * 10, [*"abcde", *"abcde"], np.linspace(0, 1, 10))
    at = np.array([star.entities.id("hub", "entity")]), np.array([0]), np.array([star.entities.id("x", "entity")])
    assert columns_of(star, at)["common neighbors"][0] == 2


def test_low_rank_factorization_recovers_a_low_rank_matrix() -> None:
    """Every entry of a matrix of rank 2 is given: rank 2 says them all."""
    random = np.random.default_rng(0)
    matrix = random.normal(size=(9, 2)) @ random.normal(size=(2, 7))
    rows, columns = (part.ravel() for part in np.indices(matrix.shape))
    made = LowRank.fit(rows, columns * 10, matrix.ravel(), 9, rank=2)
    np.testing.assert_allclose(made(rows, columns * 10), matrix.ravel(), atol=1e-8)
    assert made(np.array([0]), np.array([5]), -1.0).tolist() == [-1.0]


def test_reverse_edge_predicts_by_linear_regression() -> None:
    """Relation s runs back with the weight 1 − w: many pairs of edges show it, and a new one follows it."""
    weight = np.linspace(0, 1, 400)
    names = [f"a{i}" for i in range(400)], [f"b{i}" for i in range(400)]
    head, tail = [*names[0], *names[1][:-1]], [*names[1], *names[0][:-1]]
    graph = from_columns(head, ["r"] * 400 + ["s"] * 399, tail, np.concatenate([weight, 1 - weight[:-1]]))
    asked = (graph.entities.id(name, "entity") for name in ("b399", "a399"))
    head_id, tail_id = (np.array([number]) for number in asked)
    estimate, precision = ParallelEdges(graph)(head_id, np.array([graph.relations.id("s", "relation")]), tail_id)
    assert estimate[0] == pytest.approx(0.0, abs=0.03)
    assert precision[0] > 10
    nothing = ParallelEdges(graph)(np.array([0]), np.array([0]), np.array([1]))
    assert (nothing[0][0], nothing[1][0]) == (ABSENT, 0)


def test_graph_without_reverse_edges_has_no_such_feature() -> None:
    line = from_columns([*"abc"], ["r"] * 3, [*"bcd"], [0.1, 0.5, 0.9])
    assert columns_of(line, (np.array([3]), np.array([0]), np.array([0])))["parallel edges"][0] == ABSENT
