"""The graph itself: encoding, keys, repeated triples, alignment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.errors import FocuseError
from focuse.graph import Graph, Vocabulary, from_columns

Row = tuple[str, str, str, float]
FEW = st.sampled_from(["a", "b", "c", "d"])
WEIGHT = st.floats(-1e308, 1e308)
EDGES = st.lists(st.tuples(FEW, st.sampled_from(["r", "s"]), FEW, WEIGHT), min_size=1, max_size=30)


def graph_of(edges: list[Row]) -> Graph:
    return from_columns(*([edge[place] for edge in edges] for place in range(3)), [edge[3] for edge in edges])


def rows(graph: Graph) -> list[Row]:
    entities, relations = list(graph.entities), list(graph.relations)
    return [
        (entities[h], relations[r], entities[t], float(w))
        for h, r, t, w in zip(graph.head, graph.relation, graph.tail, graph.weight, strict=True)
    ]


@settings(deadline=None)
@given(EDGES)
def test_keys_are_equal_exactly_for_equal_triples(edges: list[Row]) -> None:
    graph = graph_of(edges)
    keys = graph.keys.tolist()
    for (one, key), (other, second) in [((edges[0], keys[0]), pair) for pair in zip(edges, keys, strict=True)]:
        assert (one[:3] == other[:3]) == (key == second)
    assert len(set(keys)) == len({edge[:3] for edge in edges})
    assert graph.repeated == len(edges) - len({edge[:3] for edge in edges})
    assert len(graph) == len(edges)


def test_keys_do_not_wrap_around() -> None:
    class Huge(Vocabulary):
        def __len__(self) -> int:
            return 2**31 - 1

    graph = replace(graph_of([("a", "r", "b", 1.0)]), entities=Huge(["a", "b"]))
    last = np.array([2**31 - 2], np.int32)
    assert graph.keys_of(last, np.array([0], np.int32), last).tolist() == [(2**31 - 2) * (2**31 - 1) + 2**31 - 2]
    with pytest.raises(FocuseError, match="64-bit"):
        _ = replace(graph, relations=Vocabulary(["r", "s", "t"])).keys


@settings(deadline=None)
@given(EDGES)
def test_repeated_triples_against_a_dict(edges: list[Row]) -> None:
    graph = graph_of(edges)
    groups: dict[tuple[str, str, str], list[float]] = {}
    for head, relation, tail, weight in edges:
        groups.setdefault((head, relation, tail), []).append(weight)
    assert rows(graph.merge_repeated("keep")) == edges
    assert rows(graph.merge_repeated("max")) == [(*key, max(group)) for key, group in groups.items()]
    assert rows(graph.merge_repeated("last")) == [(*key, group[-1]) for key, group in groups.items()]
    mean = rows(graph.merge_repeated("mean"))
    assert [row[:3] for row in mean] == list(groups)
    for row, group in zip(mean, groups.values(), strict=True):
        largest = max(abs(weight) for weight in group)
        assert row[3] == pytest.approx(sum(weight / len(group) for weight in group), rel=1e-12, abs=largest * 1e-12)


def test_an_unknown_policy() -> None:
    with pytest.raises(FocuseError, match=r"'maxx' \(did you mean max\?\): choose one of keep, max, mean, last"):
        graph_of([("a", "r", "b", 1.0)]).merge_repeated("maxx")


@settings(deadline=None)
@given(EDGES, st.data())
def test_select_by_places_and_by_mask(edges: list[Row], data: st.DataObject) -> None:
    graph = graph_of(edges)
    mask = data.draw(st.lists(st.booleans(), min_size=len(edges), max_size=len(edges)))
    chosen = [edge for edge, taken in zip(edges, mask, strict=True) if taken]
    assert rows(graph.select(np.array(mask))) == chosen
    assert rows(graph.select(np.flatnonzero(mask))) == chosen
    assert graph.select(np.array(mask)).entities is graph.entities


@settings(deadline=None)
@given(EDGES, st.lists(st.tuples(*[st.sampled_from("abcdefxyz")] * 3, WEIGHT), max_size=15))
def test_alignment_against_plain_python(train: list[Row], other: list[Row]) -> None:
    known = {name for head, _, tail, _ in train for name in (head, tail)}
    kinds = {relation for _, relation, _, _ in train}
    graph = graph_of(train)
    aligned = graph_of(other).align(graph)
    kept = [row for row in other if row[0] in known and row[1] in kinds and row[2] in known]
    lost = [row for row in other if row not in kept]
    assert rows(aligned.graph) == kept
    assert aligned.graph.entities is graph.entities
    assert aligned.graph.head.dtype == np.int32
    strangers = {name for row in lost for name in (row[0], row[2])} - known
    unseen = aligned.unseen
    assert (unseen.rows, unseen.entities) == (len(lost), len(strangers))
    assert unseen.relations == len({row[1] for row in lost} - kinds)
    assert set(unseen.entity_examples) == strangers
    assert set(unseen.relation_examples) == {row[1] for row in lost} - kinds
    line = str(aligned)
    assert len(line.splitlines()) == (1 if lost else 0)
    assert (f"{len(lost)} of {len(other)} rows" in line) == bool(lost)


def test_many_unseen_names_are_counted_and_a_few_shown() -> None:
    train = graph_of([("a", "r", "b", 1.0)])
    other = replace(graph_of([(f"n{i}\n", "r", "a", 1.0) for i in range(1234)]), source="test.tsv")
    aligned = other.align(train)
    assert len(aligned.unseen.entity_examples) == 20
    assert str(aligned) == (
        "test.tsv: 1,234 of 1,234 rows name 1,234 entities ('n0\\n', 'n1\\n', 'n2\\n', …) not in train; "
        "they have no embedding and are left out of the figures"
    )


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.text(), st.text(), st.text()), max_size=12))
def test_columns_of_any_kind_encode_alike(edges: list[tuple[str, str, str]]) -> None:
    lists = [[edge[place] for edge in edges] for place in range(3)]
    plain = from_columns(*lists)
    arrays: list[Any] = [pa.array(column, pa.string()) for column in lists]
    for columns in (arrays, [array.dictionary_encode() for array in arrays], [iter(column) for column in lists]):
        graph = from_columns(*columns)
        assert [row[:3] for row in rows(graph)] == edges
        assert list(graph.entities) == list(dict.fromkeys(lists[0] + lists[2]))
        assert graph.entities == plain.entities
        assert graph.head.dtype == graph.tail.dtype == graph.relation.dtype == np.int32
        assert not graph.weighted


def test_faulty_columns() -> None:
    with pytest.raises(FocuseError, match="different lengths"):
        from_columns(["a", "b"], ["r", "r"], ["b", "c"], [1.0])
    with pytest.raises(FocuseError, match="1 missing"):
        from_columns(["a", None], ["r", "r"], ["b", "c"])  # type: ignore[list-item]


def test_networkx_keeps_repeated_edges_and_their_data() -> None:
    graph = graph_of([("a", "r", "b", 1.0), ("a", "r", "b", 2.0), ("b", "s", "b", 3.0)]).to_networkx()
    assert sorted((h, d["relation"], t, d["weight"]) for h, t, d in graph.edges(data=True)) == [
        ("a", "r", "b", 1.0), ("a", "r", "b", 2.0), ("b", "s", "b", 3.0),
    ]  # fmt: skip


def test_a_graph_shows_its_size() -> None:
    assert repr(graph_of([("a", "r", "b", 1.0)])) == "Graph(graph: 1 edge, 2 entities, 1 relation)"
