"""Several numbers an edge: from every source, with gaps, through everything that a graph goes through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import focuse
from focuse.errors import FocuseError
from focuse.graph import Graph, read
from focuse.graph.columns import NEUTRAL, Columns, combine, joined, merge_groups

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
def test_every_source_gives_the_same_numbers(kind: str, tmp_path: Path) -> None:
    graph = read(SOURCES[kind](tmp_path), weights=list(NAMES))
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


def test_without_a_header_they_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text("0.5\ta\tr\tb\t3\n\tb\tr\tc\t4\n")
    graph = read(tmp_path / "g.tsv", weights=[5, 1])
    assert graph.columns is not None
    assert graph.columns.names == ("w1", "w2")
    np.testing.assert_array_equal(graph.columns.values, [[3, 0.5], [4, NAN]])
    assert graph.entities[graph.head[0]] == "a"


def test_one_weight_by_name_is_a_plain_weight(tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text("head\trelation\ttail\tp\tother\na\tr\tb\t0.5\tx\n")
    graph = read(tmp_path / "g.tsv", weights=["p"])
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
        ("a\tr\tb\t1\t1\n", {"weights": ["age", "conf"]}, "no column 'conf'"),
        ("a\tr\tb\t1\t1\n", {"weights": ["age", "age"]}, "name one column twice"),
        ("a\tr\tb\t1\t1\n", {"weights": []}, "give a list of columns"),
        ("a\tr\tb\t1\t1\n", {"weights": ["age"], "columns": [1, 2]}, "2 given beside weights"),
        ("a\tr\tb\t\t1\n", {"weights": ["confidence"]}, "line 3: the weight is empty"),
    ],
)
def test_what_cannot_be_right_stops_with_its_line(line: str, options: Any, says: str, tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text("head\trelation\ttail\tconfidence\tage\nb\ts\tc\t1\t2\n" + line)
    with pytest.raises(FocuseError, match=says):
        read(tmp_path / "g.tsv", **{"weights": list(NAMES), **options})


@pytest.mark.parametrize(("row", "says"), [((None, NAN), "row 2: all its"), ((1, float("inf")), "row 2: the weight")])
def test_rows_and_frames_stop_with_their_row(row: tuple[Any, ...], says: str) -> None:
    with pytest.raises(FocuseError, match=says):
        read([("a", "r", "b", 1, 2), ("b", "r", "c", *row)])


def test_which_are_names_must_be_clear(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("x,y,z,u,v,w\na,r,b,c,1,2\n")
    with pytest.raises(FocuseError, match="are head, relation and tail"):
        read(tmp_path / "g.csv", weights=["v", "w"])
    graph = read(tmp_path / "g.csv", weights=["v", "w"], columns=["x", "y", "u"])
    assert graph.entities[graph.tail[0]] == "c"


# ---- through a graph ----------------------------------------------------------------------------------------------


@pytest.fixture
def both() -> Graph:
    return read(frame(), weights=list(NAMES))


def values(graph: Graph) -> Any:
    assert graph.columns is not None
    return graph.columns.values


def test_select_align_and_join_carry_them(both: Graph) -> None:
    np.testing.assert_array_equal(values(both.select(np.array([2, 0]))), np.array(VALUES)[[2, 0]])
    aligned = both.align(read([("b", "r", "a", 1), ("c", "r", "a", 1)]))  # knows no relation s
    np.testing.assert_array_equal(values(aligned.graph), np.array(VALUES)[[0, 2, 3]])
    twice = joined([both.columns, both.columns])
    assert twice is not None
    np.testing.assert_array_equal(twice.values, VALUES * 2)
    assert joined([both.columns, None]) is None


def test_a_column_alone(both: Graph) -> None:
    age = both.column("age")
    assert age.columns is None
    assert age.weight.tolist() == [3.0, -2.5, 7.0]
    assert [age.entities[i] for i in age.tail] == ["b", "c", "b"]
    assert not age.lower_is_better
    assert both.directed(["age"]).column("age").lower_is_better
    assert not both.directed(["age"]).column("confidence").lower_is_better
    with pytest.raises(FocuseError, match=r"no weight column 'agee' \(did you mean age\?\)"):
        both.column("agee")
    with pytest.raises(FocuseError, match="one weight an edge"):
        age.column("age")


@pytest.mark.parametrize(
    ("policy", "expected"), [("max", [1.0, 7.0]), ("mean", [0.75, 5.0]), ("last", [1.0, 7.0])], ids=str
)
def test_repeats_are_merged_column_by_column(both: Graph, policy: str, expected: list[float]) -> None:
    merged = both.merge_repeated(policy)
    np.testing.assert_array_equal(values(merged), [expected, [NAN, -2.5], [0.25, NAN]])


def test_the_strongest_of_repeats_is_the_smallest_where_lower_is_better(both: Graph) -> None:
    assert values(both.directed(["age"]).merge_repeated("max"))[0].tolist() == [1.0, 3.0]
    assert both.column("age").directed(True).merge_repeated("max").weight.tolist() == [3.0, -2.5]


@given(st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(-9, 9))), min_size=1, max_size=12))
def test_groups_pass_over_what_is_missing(rows: list[tuple[int, int | None]]) -> None:
    group = np.array([place for place, _ in rows])
    numbers = np.array([NAN if value is None else value for _, value in rows], float)
    for policy, take in (("max", max), ("mean", lambda some: sum(some) / len(some)), ("last", lambda some: some[-1])):
        found = merge_groups(numbers, group, 4, policy, lower=False)
        for place in range(4):
            seen = [value for at, value in rows if at == place and value is not None]
            assert np.isnan(found[place]) if not seen else found[place] == pytest.approx(take(seen))


@pytest.mark.parametrize("suffix", ["tsv", "csv", "tsv.gz", "parquet"])
def test_there_and_back_through_a_file(both: Graph, suffix: str, tmp_path: Path) -> None:
    both.write(tmp_path / f"g.{suffix}")
    again = read(tmp_path / f"g.{suffix}", weights=list(NAMES))
    np.testing.assert_array_equal(values(again), VALUES)
    assert again.to_arrow().equals(both.to_arrow())


def test_there_and_back_through_frames(both: Graph) -> None:
    for form in (both.to_pandas(), both.to_polars(), both.to_arrow()):
        np.testing.assert_array_equal(values(read(form, weights=list(NAMES))), VALUES)
    edges = list(both.to_networkx().edges(data=True))
    assert edges[0][2] == {"relation": "r", "confidence": 0.5, "age": 3.0}
    assert next(data for _, _, data in edges if data["relation"] == "s") == {"relation": "s", "age": -2.5}


def test_relation_weights_take_their_place(both: Graph) -> None:
    weighed = read(frame(), weights=list(NAMES), relation_weights={"r": 1, "s": 2})
    assert weighed.columns is None
    assert weighed.weight.tolist() == [1, 2, 1, 1]


# ---- many made one ------------------------------------------------------------------------------------------------


def test_combine_by_hand() -> None:
    random = np.random.default_rng(0)
    shares, present = random.random((50, 3)), random.random((50, 3)) < 0.6
    importance = np.array([3.0, 0.0, 1.0])
    found = combine(shares, present, importance)
    for row in range(50):
        seen = [c for c in range(3) if present[row, c] and importance[c] > 0]
        total = sum(importance[c] for c in seen)
        expected = sum(importance[c] * shares[row, c] for c in seen) / total if seen else NEUTRAL
        assert found[row] == pytest.approx(expected)


def test_combine_does_not_look_at_what_is_missing() -> None:
    shares = np.array([[0.2, NAN], [NAN, 0.6]])
    assert combine(shares, ~np.isnan(shares), np.array([1.0, 5.0])).tolist() == pytest.approx([0.2, 0.6])
    with pytest.raises(ValueError, match="shapes do not fit"):
        combine(shares, ~np.isnan(shares), np.ones(3))


def test_before_training_the_weight_is_a_plain_mean_of_ranges(both: Graph) -> None:
    # confidence from 0.25 to 1, age from -2.5 to 7
    assert both.weight.tolist() == pytest.approx([(1 / 3 + 5.5 / 9.5) / 2, 0.0, 0.0, 1.0])
    assert both.directed(["age"]).weight.tolist() == pytest.approx([(1 / 3 + 4 / 9.5) / 2, 1.0, 0.0, 0.5])


def test_columns_refuse_what_makes_no_sense() -> None:
    with pytest.raises(FocuseError, match="a name stands twice"):
        Columns(("a", "a"), np.zeros((1, 2)))
    with pytest.raises(FocuseError, match="values of shape"):
        Columns(("a", "b"), np.zeros((1, 3)))
    with pytest.raises(FocuseError, match="no weight column 'c'"):
        Columns(("a", "b"), np.zeros((1, 2)), frozenset("c"))
    with pytest.raises(FocuseError, match="without a name"):
        focuse.read([("a", "r", "b", 1)]).directed(["p"])
