"""The graph itself: encoding, keys, repeated triples, alignment."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import focuse
from focuse.data.graph import (
    NEUTRAL_WEIGHT,
    Graph,
    Vocabulary,
    WeightColumns,
    aggregate_groups,
    combine_columns,
    concatenate,
    from_columns,
)
from focuse.data.readers import read
from focuse.errors import FocuseError

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
    assert graph.num_repeated == len(edges) - len({edge[:3] for edge in edges})
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
def test_merged_repeats_agree_with_a_dict(edges: list[Row]) -> None:
    graph = graph_of(edges)
    groups: dict[tuple[str, str, str], list[float]] = {}
    for head, relation, tail, weight in edges:
        groups.setdefault((head, relation, tail), []).append(weight)
    assert rows(graph.merge_repeated("keep")) == edges
    assert rows(graph.merge_repeated("max")) == [(*key, max(group)) for key, group in groups.items()]
    assert rows(graph.merge_repeated("last")) == [(*key, group[-1]) for key, group in groups.items()]
    several = {key: group for key, group in groups.items() if len(group) > 1}
    differing = sum(len(set(group)) > 1 for group in several.values())
    assert graph.repeated() == (len(edges) - len(groups), len(several), differing)
    mean = rows(graph.merge_repeated("mean"))
    assert [row[:3] for row in mean] == list(groups)
    for row, group in zip(mean, groups.values(), strict=True):
        largest = max(abs(weight) for weight in group)
        assert row[3] == pytest.approx(sum(weight / len(group) for weight in group), rel=1e-12, abs=largest * 1e-12)


TRIPLE = st.tuples(st.sampled_from("ab"), st.sampled_from("rs"), st.sampled_from("ab"))


@given(st.lists(st.tuples(TRIPLE, st.floats(0, 1)), min_size=1, max_size=15))
def test_sum_and_noisy_or_agree_with_a_loop(edges: list[tuple[tuple[str, str, str], float]]) -> None:
    graph = graph_of([(*triple, weight) for triple, weight in edges])
    groups: dict[tuple[str, str, str], list[float]] = {}
    for triple, weight in edges:
        groups.setdefault(triple, []).append(weight)
    for policy, expected in (
        ("sum", {triple: math.fsum(group) for triple, group in groups.items()}),
        ("noisy-or", {triple: 1 - math.prod(1 - weight for weight in group) for triple, group in groups.items()}),
    ):
        merged = rows(graph.merge_repeated(policy))
        assert [row[:3] for row in merged] == list(expected)
        assert [row[3] for row in merged] == pytest.approx(list(expected.values()), abs=1e-12)
        single = [row[3] for row in merged if len(groups[row[:3]]) == 1]
        assert single == [group[0] for group in groups.values() if len(group) == 1]  # not rounded


def test_noisy_or_refuses_weights_that_are_no_probabilities() -> None:
    high = graph_of([("a", "r", "b", 0.5), ("a", "r", "b", 5.0)])
    with pytest.raises(FocuseError, match=r"probabilities in \[0, 1\], but they reach from 0\.5 to 5; merge"):
        high.merge_repeated("noisy-or")
    low = graph_of([("a", "r", "b", 0.5), ("a", "r", "b", 0.1)]).with_lower_is_better(True)
    with pytest.raises(FocuseError, match="low ones are the strong ones"):
        low.merge_repeated("noisy-or")


def test_sum_that_is_not_finite_is_refused() -> None:
    with pytest.raises(FocuseError, match="the sum of a triple's weights is too large"):
        graph_of([("a", "r", "b", 1.5e308), ("a", "r", "b", 1.5e308)]).merge_repeated("sum")


def test_unknown_duplicate_policy_suggests_the_nearest() -> None:
    with pytest.raises(FocuseError, match=r"did you mean max\?\): choose one of keep, max, mean, sum, last, noisy-or"):
        graph_of([("a", "r", "b", 1.0)]).merge_repeated("maxx")


@settings(deadline=None)
@given(EDGES, st.data())
def test_select_by_indices_and_by_mask(edges: list[Row], data: st.DataObject) -> None:
    graph = graph_of(edges)
    mask = data.draw(st.lists(st.booleans(), min_size=len(edges), max_size=len(edges)))
    chosen = [edge for edge, taken in zip(edges, mask, strict=True) if taken]
    assert rows(graph.select(np.array(mask))) == chosen
    assert rows(graph.select(np.flatnonzero(mask))) == chosen
    assert graph.select(np.array(mask)).entities is graph.entities


@settings(deadline=None)
@given(EDGES, st.lists(st.tuples(*[st.sampled_from("abcdefxyz")] * 3, WEIGHT), max_size=15))
def test_alignment_agrees_with_plain_python(train: list[Row], other: list[Row]) -> None:
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


def test_unseen_names_are_counted_and_some_are_shown() -> None:
    train = graph_of([("a", "r", "b", 1.0)])
    other = replace(graph_of([(f"n{i}\n", "r", "a", 1.0) for i in range(1234)]), source="test.tsv")
    aligned = other.align(train)
    assert len(aligned.unseen.entity_examples) == 20
    assert str(aligned) == (
        "test.tsv: 1,234 of 1,234 rows name 1,234 entities ('n0\\n', 'n1\\n', 'n2\\n', …) not in train; "
        "they have no embedding and are left out"
    )


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.text(), st.text(), st.text()), max_size=12))
def test_columns_of_any_type_are_encoded_alike(edges: list[tuple[str, str, str]]) -> None:
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


def test_columns_of_different_length_or_with_gaps_are_refused() -> None:
    with pytest.raises(FocuseError, match="different lengths"):
        from_columns(["a", "b"], ["r", "r"], ["b", "c"], [1.0])
    with pytest.raises(FocuseError, match="1 missing"):
        from_columns(["a", None], ["r", "r"], ["b", "c"])  # type: ignore[list-item]


def test_a_graph_shows_its_size() -> None:
    assert repr(graph_of([("a", "r", "b", 1.0)])) == "Graph(graph: 1 edge, 2 entities, 1 relation)"


UNIQUE = st.lists(st.text(), unique=True, max_size=20)


@settings(deadline=None)
@given(UNIQUE, st.lists(st.text(), max_size=10))
def test_ids_agree_with_a_dict(names: list[str], others: list[str]) -> None:
    vocabulary = Vocabulary(names)
    places = {name: place for place, name in enumerate(names)}
    asked = names[::-1] + others
    ids = vocabulary.ids(asked)
    assert ids.dtype == np.int32
    assert ids.tolist() == vocabulary.ids(pa.array(asked, pa.string())).tolist()
    assert ids.tolist() == [places.get(name, -1) for name in asked]
    assert list(vocabulary) == names
    assert len(vocabulary) == len(names)
    assert [vocabulary[place] for place in range(len(names))] == names
    assert vocabulary.take(np.arange(len(names))[::-1]).to_pylist() == names[::-1]


@settings(deadline=None, max_examples=30)
@given(UNIQUE)
def test_a_vocabulary_is_unchanged_after_writing_and_reading(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "names.parquet"
        Vocabulary(names).write(path)
        again = Vocabulary.read(path)
    assert again == Vocabulary(names)
    assert list(again) == names
    assert again.ids(names).tolist() == list(range(len(names)))


def test_equality_is_that_of_names_in_order() -> None:
    assert Vocabulary(["a", "b"]) == Vocabulary(pa.array(["a", "b"]))
    assert Vocabulary(["a", "b"]) != Vocabulary(["b", "a"])
    assert Vocabulary(["a"]) != ["a"]


@settings(deadline=None)
@given(st.text(min_size=1, max_size=8))
def test_id_of_a_name_is_its_position(name: str) -> None:
    assert Vocabulary(["", name]).id(name) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pyton", "the graph has no skill 'pyton' (did you mean python?)"),
        ("xyz", "the graph has no skill 'xyz'; it has python, sql"),
        ("", "the graph has no skill ''; it has python, sql"),
        ("\udcff", "the graph has no skill '\\udcff'; it has python, sql"),
    ],
)
def test_an_unknown_name_offers_the_nearest(name: str, message: str) -> None:
    with pytest.raises(FocuseError) as caught:
        Vocabulary(["python", "sql"]).id(name, "skill")
    assert str(caught.value) == message


def test_find_agrees_with_ids() -> None:
    names = Vocabulary(["b", "a", "", "é"])
    for name in ["b", "a", "", "é", "e", "ab"]:
        assert names.find(name) == names.ids([name])[0]
    assert names.find("\ud800") == Vocabulary([]).find("a") == -1


NAN = float("nan")


ROWS: list[tuple[Any, ...]] = [
    ("a", "r", "b", 0.5, 3),
    ("b", "s", "c", None, -2.5),
    ("a", "r", "c", 0.25, NAN),
    ("a", "r", "b", 1, 7),
]


VALUES = [[0.5, 3.0], [NAN, -2.5], [0.25, NAN], [1.0, 7.0]]


NAMES = ("confidence", "age")


TEXT = "head\trelation\ttail\tconfidence\tage\na\tr\tb\t0.5\t3\nb\ts\tc\t\t-2.5\na\tr\tc\t0.25\tNaN\na\tr\tb\t1\t7\n"


def frame() -> pa.Table:
    columns = list(zip(*ROWS, strict=True))
    return pa.table(dict(zip(("head", "relation", "tail", *NAMES), map(list, columns), strict=True)))


def text(suffix: str, delimiter: str) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        path = folder / f"g.{suffix}"
        path.write_text(TEXT.replace("\t", delimiter))
        return path

    return make


def parquet(folder: Path) -> Path:
    import pyarrow.parquet as pq

    pq.write_table(frame(), folder / "g.parquet")
    return folder / "g.parquet"


def networkx(folder: Path) -> Any:
    import networkx

    graph = networkx.MultiDiGraph()
    for head, relation, tail, *numbers in ROWS:
        data = {name: value for name, value in zip(NAMES, numbers, strict=True) if value is not None}
        graph.add_edge(head, tail, relation=relation, **data)
    return graph


SOURCES: dict[str, Callable[[Path], Any]] = {
    "tsv": text("tsv", "\t"),
    "csv": text("csv", ","),
    "parquet": parquet,
    "arrow": lambda _: frame(),
    "pandas": lambda _: frame().to_pandas(),
    "polars": lambda _: polars.from_arrow(frame()),
    "networkx": networkx,
}


@pytest.mark.parametrize("kind", SOURCES)
def test_weight_columns_are_the_same_from_every_source(kind: str, tmp_path: Path) -> None:
    graph = read(SOURCES[kind](tmp_path), weight_columns=list(NAMES))
    assert graph.columns is not None
    assert graph.columns.names == NAMES
    order = np.lexsort((graph.tail, graph.head)) if kind == "networkx" else np.arange(4)  # which groups by head
    expected = np.array(VALUES)[[0, 3, 2, 1]] if kind == "networkx" else np.array(VALUES)
    np.testing.assert_array_equal(graph.columns.values[order], expected)
    assert graph.columns.values.dtype == np.float64
    assert graph.weighted


def test_rows_of_five_values_need_no_names() -> None:
    graph = read(ROWS)
    assert graph.columns is not None
    assert graph.columns.names == ("w1", "w2")
    np.testing.assert_array_equal(graph.columns.values, VALUES)


@pytest.mark.parametrize("chosen", [[1, 2, 3, 5, 4], ["head", "relation", "tail", "age", "confidence"]])
def test_columns_with_more_than_four_entries(chosen: list[Any], tmp_path: Path) -> None:
    graph = read(text("tsv", "\t")(tmp_path), columns=chosen, header=True)
    assert graph.columns is not None
    assert graph.columns.names == ("age", "confidence")
    np.testing.assert_array_equal(graph.columns.values, np.array(VALUES)[:, ::-1])


def test_weight_columns_without_a_header_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text("0.5\ta\tr\tb\t3\n\tb\tr\tc\t4\n")
    graph = read(tmp_path / "g.tsv", weight_columns=[5, 1])
    assert graph.columns is not None
    assert graph.columns.names == ("w1", "w2")
    np.testing.assert_array_equal(graph.columns.values, [[3, 0.5], [4, NAN]])
    assert graph.entities[graph.head[0]] == "a"


def test_a_single_named_weight_is_a_plain_weight(tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text("head\trelation\ttail\tp\tother\na\tr\tb\t0.5\tx\n")
    graph = read(tmp_path / "g.tsv", weight_columns=["p"])
    assert graph.columns is None
    assert graph.weight.tolist() == [0.5]


@pytest.mark.parametrize(
    ("line", "options", "says"),
    [
        ("a\tr\tb\t\t\n", {}, "line 3: all its weights are missing"),
        ("a\tr\tb\tNaN\t\n", {}, "line 3: all its weights are missing"),
        ("a\tr\tb\tx\t1\n", {}, "line 3: the weight 'x' is not a number"),
        ("a\tr\tb\tinf\t1\n", {}, "line 3: the weight 'inf' is not finite"),
        ("\tr\tb\t1\t1\n", {}, "line 3: the head is empty"),
        ("a\tr\tb\t1\t1\n", {"weight_columns": ["age", "conf"]}, "no column 'conf'"),
        ("a\tr\tb\t1\t1\n", {"weight_columns": ["age", "age"]}, "age is named twice"),
        ("a\tr\tb\t1\t1\n", {"weight_columns": []}, "give a list of columns"),
        ("a\tr\tb\t1\t1\n", {"weight_columns": ["age"], "columns": [1, 2, 3, 4]}, "4 given, expected 3"),
        ("a\tr\tb\t\t1\n", {"weight_columns": ["confidence"]}, "line 3: the weight is empty"),
    ],
)
def test_faulty_weight_columns_name_the_line(line: str, options: Any, says: str, tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text("head\trelation\ttail\tconfidence\tage\nb\ts\tc\t1\t2\n" + line)
    with pytest.raises(FocuseError, match=says):
        read(tmp_path / "g.tsv", **{"weight_columns": list(NAMES), **options})


@pytest.mark.parametrize(("row", "says"), [((None, NAN), "row 2: all its"), ((1, float("inf")), "row 2: the weight")])
def test_faulty_rows_and_frames_name_the_row(row: tuple[Any, ...], says: str) -> None:
    with pytest.raises(FocuseError, match=says):
        read([("a", "r", "b", 1, 2), ("b", "r", "c", *row)])


def test_ambiguous_name_columns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("x,y,z,u,v,w\na,r,b,c,1,2\n")
    with pytest.raises(FocuseError, match=r"columns .x, y, z, u, v, w. are head and tail"):
        read(tmp_path / "g.csv", weight_columns=["v", "w"])
    graph = read(tmp_path / "g.csv", weight_columns=["v", "w"], columns=["x", "y", "u"])
    assert graph.entities[graph.tail[0]] == "c"


# ---- through a graph ----------------------------------------------------------------------------------------------
@pytest.fixture
def both() -> Graph:
    return read(frame(), weight_columns=list(NAMES))


def values(graph: Graph) -> Any:
    assert graph.columns is not None
    return graph.columns.values


def test_select_align_and_concatenate_keep_weight_columns(both: Graph) -> None:
    np.testing.assert_array_equal(values(both.select(np.array([2, 0]))), np.array(VALUES)[[2, 0]])
    aligned = both.align(read([("b", "r", "a", 1), ("c", "r", "a", 1)]))  # knows no relation s
    np.testing.assert_array_equal(values(aligned.graph), np.array(VALUES)[[0, 2, 3]])
    np.testing.assert_array_equal(values(concatenate([both, both])), VALUES * 2)
    assert concatenate([both, replace(both, columns=None)]).columns is None


def test_concatenation_with_an_empty_graph_keeps_weight_columns(both: Graph) -> None:
    merged = concatenate([both, both.select(np.empty(0, np.int64))])
    assert merged.columns is not None
    np.testing.assert_array_equal(merged.columns.values, both.columns.values)


def test_single_weight_column_can_be_selected_as_a_graph(both: Graph) -> None:
    age = both.column("age")
    assert age.columns is None
    assert age.weight.tolist() == [3.0, -2.5, 7.0]
    assert [age.entities[i] for i in age.tail] == ["b", "c", "b"]
    assert not age.lower_is_better
    assert both.with_lower_is_better(["age"]).column("age").lower_is_better
    assert not both.with_lower_is_better(["age"]).column("confidence").lower_is_better
    with pytest.raises(FocuseError, match=r"no weight column 'agee' \(did you mean age\?\)"):
        both.column("agee")
    with pytest.raises(FocuseError, match="a single weight"):
        age.column("age")


@pytest.mark.parametrize(
    ("policy", "expected"), [("max", [1.0, 7.0]), ("mean", [0.75, 5.0]), ("last", [1.0, 7.0])], ids=str
)
def test_repeats_are_merged_column_by_column(both: Graph, policy: str, expected: list[float]) -> None:
    merged = both.merge_repeated(policy)
    np.testing.assert_array_equal(values(merged), [expected, [NAN, -2.5], [0.25, NAN]])


def test_the_strongest_of_repeats_is_the_smallest_where_lower_is_better(both: Graph) -> None:
    assert values(both.with_lower_is_better(["age"]).merge_repeated("max"))[0].tolist() == [1.0, 3.0]
    assert both.column("age").with_lower_is_better(True).merge_repeated("max").weight.tolist() == [3.0, -2.5]


@given(st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(-9, 9))), min_size=1, max_size=12))
def test_aggregation_ignores_missing_values(rows: list[tuple[int, int | None]]) -> None:
    group = np.array([place for place, _ in rows])
    numbers = np.array([NAN if value is None else value for _, value in rows], float)
    for policy, take in (("max", max), ("mean", lambda some: sum(some) / len(some)), ("last", lambda some: some[-1])):
        found = aggregate_groups(numbers, group, 4, policy, lower_is_better=False)
        for place in range(4):
            seen = [value for at, value in rows if at == place and value is not None]
            assert np.isnan(found[place]) if not seen else found[place] == pytest.approx(take(seen))


@pytest.mark.parametrize("suffix", ["tsv", "csv", "tsv.gz", "parquet"])
def test_weight_columns_are_unchanged_after_writing_and_reading(both: Graph, suffix: str, tmp_path: Path) -> None:
    both.write(tmp_path / f"g.{suffix}")
    again = read(tmp_path / f"g.{suffix}", weight_columns=list(NAMES))
    np.testing.assert_array_equal(values(again), VALUES)
    assert again.to_arrow().equals(both.to_arrow())


def test_weight_columns_are_unchanged_through_frames(both: Graph) -> None:
    for form in (both.to_pandas(), both.to_arrow()):
        np.testing.assert_array_equal(values(read(form, weight_columns=list(NAMES))), VALUES)


def test_relation_weights_replace_weight_columns(both: Graph) -> None:
    weighed = read(frame(), weight_columns=list(NAMES), relation_weights={"r": 1, "s": 2})
    assert weighed.columns is None
    assert weighed.weight.tolist() == [1, 2, 1, 1]


# ---- many made one ------------------------------------------------------------------------------------------------
def test_combined_columns_agree_with_plain_python() -> None:
    random = np.random.default_rng(0)
    shares, present = random.random((50, 3)), random.random((50, 3)) < 0.6
    importance = np.array([3.0, 0.0, 1.0])
    found = combine_columns(shares, present, importance)
    for row in range(50):
        seen = [c for c in range(3) if present[row, c] and importance[c] > 0]
        total = sum(importance[c] for c in seen)
        expected = sum(importance[c] * shares[row, c] for c in seen) / total if seen else NEUTRAL_WEIGHT
        assert found[row] == pytest.approx(expected)


def test_combined_columns_ignore_missing_values() -> None:
    shares = np.array([[0.2, NAN], [NAN, 0.6]])
    assert combine_columns(shares, ~np.isnan(shares), np.array([1.0, 5.0])).tolist() == pytest.approx([0.2, 0.6])


def test_the_provisional_weight_is_the_mean_of_scaled_columns(both: Graph) -> None:
    # confidence from 0.25 to 1, age from -2.5 to 7
    assert both.weight.tolist() == pytest.approx([(1 / 3 + 5.5 / 9.5) / 2, 0.0, 0.0, 1.0])
    assert both.with_lower_is_better(["age"]).weight.tolist() == pytest.approx([(1 / 3 + 4 / 9.5) / 2, 1.0, 0.0, 0.5])


def test_inconsistent_weight_columns_are_refused() -> None:
    with pytest.raises(FocuseError, match="a name occurs twice"):
        WeightColumns(("a", "a"), np.zeros((1, 2)))
    with pytest.raises(FocuseError, match="no weight column 'c'"):
        WeightColumns(("a", "b"), np.zeros((1, 2)), frozenset("c"))
    with pytest.raises(FocuseError, match="has no name"):
        focuse.read([("a", "r", "b", 1)]).with_lower_is_better(["p"])
