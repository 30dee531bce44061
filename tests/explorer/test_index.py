"""The index of edges, compared with loops over the graph."""

import numpy as np
import pytest

import focuse
from focuse.explorer.index import EdgeIndex


@pytest.fixture(scope="module")
def graphs(small):
    parts = focuse.split(small, seed=2)
    return [parts.train, parts.valid, parts.test]


@pytest.fixture(scope="module")
def edges(graphs):
    return EdgeIndex(graphs)


def everything(graphs):
    return [row for graph in graphs for row in zip(graph.head, graph.relation, graph.tail, graph.weight, strict=True)]


@pytest.mark.parametrize("relation", [None, 1])
def test_edges_of_an_entity_are_complete(edges, graphs, relation) -> None:
    for entity in range(len(graphs[0].entities)):
        expected = [
            (h, r, t, w)
            for h, r, t, w in everything(graphs)
            if entity in (h, t) and (relation is None or r == relation)
        ]
        rows = edges.rows_of(entity, relation)
        found = list(zip(edges.head[rows], edges.relation[rows], edges.tail[rows], edges.weight[rows], strict=True))
        assert sorted(found) == sorted(expected)
        assert (np.diff(edges.strength[rows]) <= 0).all()
        assert len(edges.rows_of(entity, relation, limit=3)) == min(3, len(expected))


def test_strongest_edges_of_both_directions_come_first(edges) -> None:
    for entity in range(5):
        whole = edges.rows_of(entity)
        assert edges.strength[edges.rows_of(entity, limit=4)].tolist() == edges.strength[whole[:4]].tolist()


def test_degrees_agree_with_counts(edges, graphs) -> None:
    rows = everything(graphs)
    for entity in range(len(graphs[0].entities)):
        assert edges.degree[entity] == sum(entity in (h, t) for h, _, t, _ in rows)


def test_relations_of_an_entity_are_counted(edges, graphs) -> None:
    for entity in range(10):
        for as_tail in (False, True):
            expected = {r for h, r, t, _ in everything(graphs) if (t if as_tail else h) == entity}
            assert set(edges.relations_of(entity, as_tail).tolist()) == expected


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("limit", [1, 7, 60])
def test_neighborhood_is_connected(edges, depth, limit) -> None:
    for entity in range(10):
        rows, shown = edges.neighborhood(entity, depth, limit)
        assert len(rows) <= limit
        assert len(set(rows.tolist())) == len(rows)
        assert shown[entity] == 0
        assert max(shown.values()) <= depth
        ends = {int(end) for row in rows for end in (edges.head[row], edges.tail[row])}
        assert ends <= set(shown)
        linked = [(int(edges.head[row]), int(edges.tail[row])) for row in rows]
        for one, steps in shown.items():  # an entity at distance n has an edge to one at distance n − 1
            assert not steps or any(
                one in pair and shown[pair[0] if pair[1] == one else pair[1]] == steps - 1 for pair in linked
            )


def test_small_weights_are_strong_if_lower_is_better(small) -> None:
    graph = small.with_lower_is_better(True)
    edges = EdgeIndex([graph])
    rows = edges.rows_of(0)
    assert (np.diff(edges.weight[rows]) >= 0).all()


def test_loop_is_listed_once() -> None:
    edges = EdgeIndex([focuse.read([("a", "r", "a", 1.0), ("a", "r", "b", 0.5)])])
    assert len(edges.rows_of(0)) == 2
