"""Graphs from frames and NetworkX, and back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.errors import FocuseError
from focuse.graph import Graph, from_columns, read

Row = tuple[str, str, str, float]
NAMES = ("head", "relation", "tail", "weight")
SMALL: list[Row] = [("a", "r", "b", 0.5), ("b", "s", "c", -2.0), ("a", "r", "b", 7.0)]
FRAMES = [pd.DataFrame, pl.DataFrame, pa.table]
EDGES = st.lists(
    st.tuples(*[st.text(min_size=1)] * 3, st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=10
)


def rows(graph: Graph) -> list[Row]:
    entities, relations = list(graph.entities), list(graph.relations)
    return [
        (entities[h], relations[r], entities[t], float(w))
        for h, r, t, w in zip(graph.head, graph.relation, graph.tail, graph.weight, strict=True)
    ]


def columns(edges: list[Row], names: tuple[str, ...] = NAMES) -> dict[str, list[Any]]:
    return {name: [edge[place] for edge in edges] for place, name in enumerate(names)}


def complaint(source: Any, **options: Any) -> str:
    with pytest.raises(FocuseError) as caught:
        read(source, **options)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@settings(deadline=None, max_examples=40)
@given(EDGES)
def test_frames_there_and_back(edges: list[Row]) -> None:
    graph = from_columns(*list(columns(edges).values()))
    assert rows(read(graph.to_arrow())) == edges
    assert rows(read(graph.to_pandas())) == edges
    assert rows(read(graph.to_polars())) == edges
    assert sorted(rows(read(graph.to_networkx()))) == sorted(edges)
    assert graph.to_pandas().columns.tolist() == graph.to_polars().columns == list(NAMES)


@pytest.mark.parametrize("make", FRAMES)
def test_headings_decide_and_position_otherwise(make: Any) -> None:
    table = columns(SMALL)
    assert rows(read(make({name: table[name] for name in ("weight", "tail", "head", "relation")}))) == SMALL
    assert rows(read(make(dict(zip("abcd", table.values(), strict=True))))) == SMALL
    assert rows(read(make({"id": [1, 2, 3], **table}))) == SMALL
    assert rows(read(make({"id": [1, 2, 3], **table}), columns=["head", 3, "4", "weight"])) == SMALL
    three = read(make({name: table[name] for name in NAMES[:3]}))
    assert [row[:3] for row in rows(three)] == [row[:3] for row in SMALL]
    assert not three.weighted
    assert "source, target, weight" in complaint(make({"source": ["a"], "target": ["b"], "weight": [1]}))
    assert "--columns" in complaint(make(dict(zip("abcde", [*table.values(), [1, 2, 3]], strict=True))))
    assert "empty" in complaint(make({name: [] for name in NAMES}))


def test_a_pandas_index_is_no_column() -> None:
    frame = pd.DataFrame(columns(SMALL, ("a", "b", "c", "d")), index=[7, 3, 5])
    assert rows(read(frame)) == SMALL
    assert rows(read(frame[frame["d"] > 0])) == [SMALL[0], SMALL[2]]
    stored = pa.table({**columns(SMALL, ("a", "b", "c", "d")), "__index_level_0__": [7, 3, 5]})
    assert rows(read(stored)) == SMALL


@pytest.mark.parametrize("make", FRAMES)
@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("weight", [1.0, float("nan"), 2.0], "frame, row 2: the weight"),
        ("weight", [1.0, 2.0, float("inf")], "frame, row 3: the weight 'inf' is not finite"),
        ("weight", [1, None, None], "frame, row 2: the weight"),
        ("weight", ["1", "2", "x"], "frame, row 3: the weight 'x' is not a number"),
        ("weight", ["1", "", "x"], "frame, row 2: the weight is empty"),
        ("weight", ["1", "2", "1_0"], "frame, row 3: the weight '1_0' is not a number"),
        ("head", ["a", "", "b"], "frame, row 2: the head is empty"),
        ("relation", ["a", "b", None], "frame, row 3: the relation is empty"),
        ("tail", [None, None, "b"], "frame, row 1: the tail is empty"),
        ("tail", [[1], [2], [3]], "frame: the tail column holds"),
    ],
)
def test_faulty_frames_name_the_row(make: Any, column: str, values: list[Any], message: str) -> None:
    assert complaint(make({**columns(SMALL), column: values})).startswith(message)


@pytest.mark.parametrize("make", FRAMES)
@pytest.mark.parametrize("weight", [[1, 2, 3], ["1", " 2 ", "3e0"], [True, True, True], [2**53 + 1, 2, 2**60]])
def test_weights_of_other_kinds(make: Any, weight: list[Any]) -> None:
    assert read(make({**columns(SMALL), "weight": weight})).weight.tolist() == [float(value) for value in weight]


def test_weights_of_special_kinds() -> None:
    table = columns(SMALL)
    for weight, expected in [
        (pa.array([Decimal("0.25"), Decimal("1.5"), Decimal("-2")]), [0.25, 1.5, -2.0]),
        (pa.array([0.25, 0.25, 1.0]).dictionary_encode(), [0.25, 0.25, 1.0]),
        (pa.array(["1", "2", "1"]).dictionary_encode(), [1.0, 2.0, 1.0]),
        (pa.array([1, 2, 3], pa.float32()), [1.0, 2.0, 3.0]),
        (pa.array([1, 2, 2**64 - 1], pa.uint64()), [1.0, 2.0, 2.0**64]),
    ]:
        assert read(pa.table({**table, "weight": weight})).weight.tolist() == expected


def test_pandas_nullable_categorical_and_mixed_columns() -> None:
    frame = pd.DataFrame(columns(SMALL))
    frame["head"] = pd.Categorical(frame["head"], categories=["unused", "b", "a"])
    frame["tail"] = frame["tail"].astype("string")
    frame["weight"] = pd.array([1, 2, 3], dtype="Int64")
    graph = read(frame)
    assert [row[:3] for row in rows(graph)] == [row[:3] for row in SMALL]
    assert list(graph.entities) == ["a", "b", "c"]  # no unused category, in order of appearance
    assert complaint(frame.assign(weight=pd.array([1, None, 3], dtype="Int64"))).startswith("frame, row 2: the weight")
    assert complaint(frame.assign(head=pd.Categorical(["a", None, "b"]))).startswith("frame, row 2: the head is empty")
    mixed = pd.DataFrame({**columns(SMALL), "head": [1, "x", 2.5]})
    assert [row[0] for row in rows(read(mixed))] == ["1", "x", "2.5"]
    mixed = pd.DataFrame({**columns(SMALL), "head": [1, "x", None]})
    assert complaint(mixed).startswith("frame, row 3: the head is empty")
    mixed = pd.DataFrame({**columns(SMALL), "weight": [0.5, "x", 2]})
    assert complaint(mixed).startswith("frame, row 2: the weight 'x' is not a number")
    double = pd.DataFrame([["a", "r", "b", 1.0]], columns=["head", "relation", "tail", "tail"])
    assert "frame" in complaint(double)


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["unused", "b", "a"])])
def test_polars_categories(kind: Any) -> None:
    graph = read(pl.DataFrame(columns(SMALL)).with_columns(pl.col("head").cast(kind)))
    assert rows(graph) == SMALL
    assert list(graph.entities) == ["a", "b", "c"]


def test_dictionaries_in_chunks_with_repeats_and_gaps() -> None:
    one = pa.DictionaryArray.from_arrays(pa.array([2, 0], pa.int8()), pa.array(["a", "unused", "a"]))
    two = pa.DictionaryArray.from_arrays(pa.array([1], pa.int8()), pa.array(["x", "b"]))
    head = pa.chunked_array([one.cast(pa.dictionary(pa.int8(), pa.string())), two])
    table = pa.table({"head": head, "relation": ["r", "r", "s"], "tail": ["a", "c", "a"]})
    graph = read(table)
    assert [row[:3] for row in rows(graph)] == [("a", "r", "a"), ("a", "r", "c"), ("b", "s", "a")]
    assert list(graph.entities) == ["a", "b", "c"]


@pytest.mark.parametrize("make", FRAMES)
def test_numbers_as_names(make: Any) -> None:
    graph = read(make({"head": [10, 2, 10], "relation": [0, 0, 1], "tail": [2, 3, 10], "weight": [1, 2, 3]}))
    assert rows(graph) == [("10", "0", "2", 1.0), ("2", "0", "3", 2.0), ("10", "1", "10", 3.0)]
    assert graph.head.dtype == graph.tail.dtype == graph.relation.dtype == np.int32


def test_things_that_are_no_table() -> None:
    for source in (pd.Series([1, 2]), pl.Series([1, 2]), pl.DataFrame(columns(SMALL)).lazy()):
        complaint(source)
    batch = pa.RecordBatch.from_pydict(columns(SMALL))
    assert rows(read(batch)) == SMALL


# ---- NetworkX -------------------------------------------------------------------------------------------------------


def test_networkx_relation_from_data_or_key() -> None:
    graph = nx.MultiDiGraph()
    graph.add_edge("a", "b", key="likes", weight=2)
    graph.add_edge("a", "b", relation="hates", weight=3)
    graph.add_edge(1, ("x", 2), key="k", relation="data first", weight=4)
    assert rows(read(graph)) == [
        ("a", "likes", "b", 2.0), ("a", "hates", "b", 3.0), ("1", "data first", "('x', 2)", 4.0),
    ]  # fmt: skip


def test_networkx_without_weights_and_simple_graphs() -> None:
    graph = nx.DiGraph()
    graph.add_edge("a", "b", relation="r")
    assert rows(read(graph)) == [("a", "r", "b", 1.0)]
    assert not read(graph).weighted
    undirected = nx.MultiGraph()
    undirected.add_edge("a", "b", key="r", weight=0.5)
    assert rows(read(undirected)) == [("a", "r", "b", 0.5)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"relation": "r"}, "row 2: the weight is empty"),
        ({"relation": "r", "weight": float("nan")}, "row 2: the weight 'nan' is not finite"),
        ({"relation": "r", "weight": "much"}, "row 2: the weight 'much' is not a number"),
        ({"weight": 1}, "edge ('a', 'c'): no 'relation'"),
        ({"relation": None, "weight": 1}, "edge ('a', 'c'): no 'relation'"),
        ({"relation": "", "weight": 1}, "row 2: the relation is empty"),
    ],
)
def test_faulty_networkx_edges(data: dict[str, Any], message: str) -> None:
    graph = nx.MultiDiGraph()
    graph.add_edge("a", "b", relation="r", weight=1)
    graph.add_edge("a", "c", **data)
    assert complaint(graph).startswith(f"NetworkX graph, {message}")


def test_empty_networkx_graphs_and_names() -> None:
    graph = nx.MultiDiGraph()
    graph.add_node("alone")
    assert "no edges" in complaint(graph)
    graph.add_edge("a", "", relation="r")
    assert "row 1: the tail is empty" in complaint(graph)
