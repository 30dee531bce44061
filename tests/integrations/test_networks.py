"""Graphs of NetworkX, igraph and PyTorch Geometric are read as they state their edges."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.data.graph import Graph
from focuse.data.readers import read
from focuse.errors import FocuseError

Row = tuple[str, str, str, float]


def rows(graph: Graph) -> list[Row]:
    return [tuple(row.values()) for row in graph.to_arrow().to_pylist()]


def complaint(source: Any, **options: Any) -> str:
    with pytest.raises(FocuseError) as caught:
        read(source, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---- NetworkX -------------------------------------------------------------------------------------------------------
def test_networkx_relation_from_data_or_key() -> None:
    graph = nx.MultiDiGraph()
    graph.add_edge("a", "b", key="likes", weight=2)
    graph.add_edge("a", "b", relation="hates", weight=3)
    graph.add_edge(1, ("x", 2), key="k", relation="data first", weight=4)
    assert rows(read(graph)) == [
        ("a", "likes", "b", 2.0), ("a", "hates", "b", 3.0), ("1", "data first", "('x', 2)", 4.0),
    ]  # fmt: skip


NODES = st.sampled_from(["a", "b", "c", 1, 2, (3, "x")])
CLASSES = [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph]


@pytest.mark.parametrize("make", CLASSES)
@given(edges=st.lists(st.tuples(NODES, NODES, st.sampled_from("rs"), st.floats(-9, 9)), min_size=1, max_size=8))
@settings(max_examples=25, deadline=None)
def test_the_four_classes_are_read_edge_by_edge(make: Any, edges: list[tuple[Any, Any, str, float]]) -> None:
    graph = make()
    for head, tail, relation, weight in edges:
        graph.add_edge(head, tail, label=relation, weight=weight)
    expected = [(str(head), data["label"], str(tail), data["weight"]) for head, tail, data in graph.edges(data=True)]
    result = read(graph)
    assert rows(result) == expected
    assert result.undirected is (True if make in (nx.Graph, nx.MultiGraph) else None)


def test_edges_without_relations_get_one_and_a_note() -> None:
    graph = read(nx.les_miserables_graph())
    assert (len(graph), len(graph.entities), list(graph.relations)) == (254, 77, ["related"])
    assert graph.one_relation
    assert graph.undirected
    assert graph.weight_name == "weight"
    assert graph.notes == (
        "NetworkX graph: read weight 'weight' from the data of edges; all edges have the relation 'related' "
        "(relation_name); to change it, give relation and weight",
        "NetworkX graph: its edges are undirected (--directed, or undirected=False, changes this)",
    )
    named = read(nx.les_miserables_graph(), relation_name="meets")
    assert (list(named.relations), named.one_relation) == (["meets"], False)
    bare = read(nx.path_graph(3))
    assert (rows(bare), bare.weighted) == ([("0", "related", "1", 1.0), ("1", "related", "2", 1.0)], False)


def test_the_user_chooses_relation_and_weight_among_the_data() -> None:
    graph = nx.DiGraph()
    graph.add_edge("a", "b", capacity=2, cost=0.5, price=0.25, flavor="r", type="Directed")
    assert rows(read(graph, relation="flavor", weight="capacity")) == [("a", "r", "b", 2.0)]
    assert rows(read(graph, relation="flavor", weight="none")) == [("a", "r", "b", 1.0)]
    several = read(graph, weight_columns=["cost", "price"])
    assert (several.columns.names, several.columns.values.tolist()) == (("cost", "price"), [[0.5, 0.25]])
    assert complaint(graph).startswith("NetworkX graph: which of cost, price is the weight? Give weight='cost'")
    assert "no data 'capacty' (did you mean capacity?); they have capacity, cost" in complaint(graph, weight="capacty")
    assert "head has no effect" in complaint(graph, head="source")
    assert read(graph, weight="cost").relations[0] == "cost"  # 'Directed' is no relation


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"relation": "r"}, "row 2: the weight is empty"),
        ({"relation": "r", "weight": float("nan")}, "row 2: the weight 'nan' is not finite"),
        ({"relation": "r", "weight": "much"}, "row 2: the weight 'much' is not a number"),
        ({"weight": 1}, "edge ('a', 'c'): no 'relation' in its data, which other edges have"),
        ({"relation": None, "weight": 1}, "edge ('a', 'c'): no 'relation' in its data, which other edges have"),
        ({"relation": "", "weight": 1}, "row 2: the relation is empty"),
    ],
)
def test_faulty_networkx_edges_are_refused(data: dict[str, Any], message: str) -> None:
    graph = nx.MultiDiGraph()
    graph.add_edge("a", "b", relation="r", weight=1)
    graph.add_edge("a", "c", **data)
    assert complaint(graph).startswith(f"NetworkX graph, {message}")


def test_missing_weights_are_filled_or_left_out() -> None:
    graph = nx.DiGraph([("a", "b", {"weight": 0.5}), ("b", "c", {})])
    assert read(graph, missing_weight=2).weight.tolist() == [0.5, 2.0]
    dropped = read(graph, missing_weight="drop")
    assert (len(dropped), dropped.notes[-1]) == (1, "NetworkX graph: 1 edge without a weight left out")


def test_nodes_with_one_name_are_never_merged() -> None:
    assert "the nodes 1 and '1' have the same name" in complaint(nx.Graph([(1, 2), ("1", 3)]))
    assert "not Unicode text" in complaint(nx.Graph([("a\ud800", "b")]))


def test_empty_networkx_graphs_and_names_are_refused() -> None:
    graph = nx.MultiDiGraph()
    graph.add_node("alone")
    assert "no edges" in complaint(graph)
    graph.add_edge("a", "", relation="r")
    assert "row 1: the tail is empty" in complaint(graph)


def test_data_of_any_kind_is_no_reason_to_fail() -> None:
    named_by_number = nx.DiGraph([("a", "b", {2: 0.5, "at": "x"})])
    assert rows(read(named_by_number)) == [("a", "data 2", "b", 0.5)]
    assert not read(nx.DiGraph([("a", "b", {"timestamp": 1.5e9})])).weighted
    texts = nx.DiGraph([("a", "b", {"level": "high", "score": 2})])
    assert rows(read(texts)) == [("a", "related", "b", 2.0)]


def test_stated_directions_are_not_noted() -> None:
    graph = nx.Graph([("a", "b", {"weight": 0.5})])
    assert "undirected" in read(graph).notes[-1]
    for stated in (False, True):
        assert read(graph, undirected=stated).undirected is stated
        assert not any("its edges are undirected" in note for note in read(graph, undirected=stated).notes)


# ---- igraph ---------------------------------------------------------------------------------------------------------
def test_igraph() -> None:
    igraph = pytest.importorskip("igraph")
    graph = igraph.Graph(edges=[(0, 1), (2, 1)], directed=True)
    graph.vs["name"] = ["a", "b", "c"]
    graph.es["weight"] = [1, 0.5]
    graph.es["type"] = ["r", "s"]
    assert rows(read(graph)) == [("a", "r", "b", 1.0), ("c", "s", "b", 0.5)]
    assert not read(graph).undirected
    famous = read(igraph.Graph.Famous("Zachary"))
    assert (len(famous), len(famous.entities), famous.undirected, famous.weighted) == (78, 34, True, False)
    edges = igraph.Graph.Famous("Zachary").get_edgelist()
    assert [(row[0], row[2]) for row in rows(famous)] == [(str(head), str(tail)) for head, tail in edges]
    graph.vs["name"] = ["a", "a", "c"]
    assert "several nodes have the name 'a'" in complaint(graph)
    assert "no edges" in complaint(igraph.Graph())


# ---- PyTorch Geometric ----------------------------------------------------------------------------------------------
EDGES = torch.tensor([[0, 1, 1], [1, 0, 2]])


def test_pyg_data() -> None:
    data = pytest.importorskip("torch_geometric.data")
    kinds, weights = torch.tensor([0, 1, 0]), torch.tensor([[0.5], [0.25], [-2.0]])
    graph = read(data.Data(edge_index=EDGES, edge_attr=weights, edge_type=kinds, x=torch.zeros(3, 2)))
    assert rows(graph) == [("0", "0", "1", 0.5), ("1", "1", "0", 0.25), ("1", "0", "2", -2.0)]
    assert graph.notes == ()
    first = read(data.Data(edge_index=EDGES, edge_weight=torch.tensor([1.0, 2, 3]), edge_attr=torch.rand(3, 4)))
    assert first.weight.tolist() == [1, 2, 3]
    assert "not used: 'edge_attr[0]', 'edge_attr[1]'" in first.notes[0]
    labels = {"edge_label": torch.rand(5), "edge_label_index": torch.zeros(2, 5, dtype=torch.int64)}
    wide = data.Data(edge_index=EDGES, edge_attr=torch.rand(3, 2), **labels)
    assert "which of edge_attr[0], edge_attr[1] is the weight?" in complaint(wide)
    chosen = read(wide, weight_columns=["edge_attr[0]", "edge_attr[1]"])
    assert np.array_equal(chosen.columns.values, wide.edge_attr.double().numpy())
    assert rows(read(data.Data(edge_index=EDGES)))[2] == ("1", "related", "2", 1.0)
    assert "no edge_index" in complaint(data.Data(x=torch.zeros(3, 2)))
    nodes = {"num_nodes": 4}
    assert read(data.Data(edge_index=EDGES, rating=torch.tensor([3, 1, 2]), **nodes)).weight.tolist() == [3, 1, 2]
    assert read(data.Data(edge_index=EDGES, edge_label=torch.tensor([3, 1, 2]))).weight.tolist() == [3, 1, 2]
    half = torch.tensor([0.5, 1, 2], dtype=torch.bfloat16)
    assert read(data.Data(edge_index=EDGES, edge_weight=half)).weight.tolist() == [0.5, 1, 2]


def test_pyg_weights_of_types_of_edges_may_have_different_names() -> None:
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    data["user", "rates", "movie"].edge_index = torch.tensor([[0, 1], [1, 2]])
    data["user", "rates", "movie"].edge_attr = torch.tensor([3.0, 4.0])
    data["user", "knows", "user"].edge_index = torch.tensor([[0], [1]])
    data["user", "knows", "user"].edge_weight = torch.tensor([0.5])
    graph = read(data)
    assert graph.weight.tolist() == [3, 4, 0.5]
    assert "are called 'edge_attr', of others 'edge_weight'" in " ".join(graph.notes)
    assert read(data, weight="edge_attr", missing_weight="drop").weight.tolist() == [3, 4]


def test_pyg_hetero_data_keeps_types_of_nodes_apart() -> None:
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    data["user", "rates", "movie"].edge_index = torch.tensor([[0, 1], [1, 2]])
    data["user", "rates", "movie"].edge_attr = torch.tensor([3.0, 4.0])
    graph = read(data)
    assert rows(graph) == [("user 0", "rates", "movie 1", 3.0), ("user 1", "rates", "movie 2", 4.0)]
    assert graph.notes[-1].endswith("kept apart, as 'movie 0' (same_ids=True merges equal numbers)")
    assert list(read(data, same_ids=True).entities) == ["0", "1", "2"]
    data["user", "knows", "user"].edge_index = torch.tensor([[0], [1]])
    assert "('user', 'knows', 'user'): no 'edge_attr', which other edges have" in complaint(data)
    assert rows(read(data, missing_weight=1.0))[2] == ("user 0", "knows", "user 1", 1.0)
    data["movie", "knows", "movie"].edge_index = torch.tensor([[0], [1]])
    assert list(read(data, weight="none").relations) == ["rates", "user knows user", "movie knows movie"]


def test_training_on_a_network_of_another_library(tmp_path: Any) -> None:
    """An undirected graph is trained in both directions, and says so."""
    import focuse

    run = focuse.train(nx.les_miserables_graph(), epochs=2, dim=8, out=tmp_path / "run", progress=False)
    train = run.splits.train
    assert train.is_undirected.all()
    pairs = set(zip(train.head.tolist(), train.tail.tolist(), strict=True))
    assert {(tail, head) for head, tail in pairs} == pairs
    parts = (train, run.splits.valid, run.splits.test)
    assert sum(len(np.unique(part.pair_keys)) for part in parts) == 254
