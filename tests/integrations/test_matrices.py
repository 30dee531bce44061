"""Arrays and sparse matrices: every entry is read once, as NumPy and SciPy list it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from focuse.data.graph import Graph
from focuse.data.readers import read
from focuse.errors import FocuseError

SIDES = st.integers(1, 6)
FORMATS = ["coo", "csr", "csc", "lil", "dok", "dia", "bsr"]


def rows(graph: Graph) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in graph.to_arrow().to_pylist()]


def edges(graph: Graph) -> list[tuple[Any, ...]]:
    return [(head, tail, weight) for head, _, tail, weight in rows(graph)]


def complaint(source: Any, **options: Any) -> str:
    with pytest.raises(FocuseError) as caught:
        read(source, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---- arrays ---------------------------------------------------------------------------------------------------------
RANDOM = np.random.default_rng(0)
ENDS = RANDOM.integers(0, 40, (90, 2))


def test_two_columns_are_edges_without_weights() -> None:
    for array in (ENDS, ENDS.astype(np.uint8), ENDS.astype(float), torch.tensor(ENDS)):
        graph = read(array)
        assert [(int(head), int(tail), 1.0) for head, tail, _ in edges(graph)] == [
            (*pair, 1.0) for pair in ENDS.tolist()
        ]
        assert not graph.weighted
        assert graph.one_relation


def test_three_columns_are_edges_with_weights_or_triples() -> None:
    weights = RANDOM.random(90)
    assert edges(read(np.c_[ENDS, weights])) == [(str(a), str(b), w) for (a, b), w in zip(ENDS, weights, strict=True)]
    assert edges(read(np.c_[ENDS, np.arange(90) * 7]))[3] == (str(ENDS[3, 0]), str(ENDS[3, 1]), 21.0)
    triples = np.c_[ENDS[:, 0], RANDOM.integers(0, 4, 90), ENDS[:, 1]]
    assert rows(read(triples, head=1, relation=2, tail=3))[5] == (*map(str, triples[5]), 1.0)


def test_four_columns_are_head_relation_tail_weight_unless_the_last_is_a_time() -> None:
    relation, weights = RANDOM.integers(0, 3, 90), RANDOM.random(90)
    graph = read(np.c_[ENDS[:, 0], relation, ENDS[:, 1], weights])
    assert rows(graph)[7] == (str(ENDS[7, 0]), str(relation[7]), str(ENDS[7, 1]), weights[7])
    times = RANDOM.integers(800_000_000, 900_000_000, 90)
    assert edges(read(np.c_[ENDS, relation, times]))[7] == (str(ENDS[7, 0]), str(ENDS[7, 1]), float(relation[7]))


def test_arrays_of_objects_and_text() -> None:
    expected = [("a", "b", 0.5), ("b", "c", 0.25)]
    assert edges(read(np.array([["a", "b", 0.5], ["b", "c", 0.25]], object))) == expected
    assert edges(read(np.array([["a", "b", "0.5"], ["b", "c", "0.25"]]))) == expected
    assert rows(read(np.array([["a", "r", "b"], ["b", "r", "c"]])))[1] == ("b", "r", "c", 1.0)
    assert rows(read(np.array([["a", "r", "7"], ["b", "r", "8"]], object)))[1] == ("b", "r", "8", 1.0)
    structured = np.array([("a", 0.5, "b")], [("source", "U1"), ("weight", float), ("target", "U1")])
    assert edges(read(structured)) == [("a", "b", 0.5)]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.arange(3), "array: 3 int64; give a row per edge"),
        (np.ones((4, 1)), "array: 4 × 1"),
        (np.ones((3, 3), complex), "array: 3 × 3 complex128"),
        (np.ones((7, 7)), "adjacency matrix; give focuse.read(scipy.sparse.coo_array(array))"),
        (torch.zeros(2, 9, dtype=torch.long), "as with a column per edge; give a row per edge: array.T"),
        (torch.eye(3).to_sparse(), "array: cannot be read as a NumPy array"),
        (np.array([[0, np.nan, 0.5], [1, np.inf, 0.25]]), "array"),
        (np.float64(3), "cannot read a graph from float64"),
    ],
)
def test_arrays_that_are_no_edges_are_refused(array: Any, message: str) -> None:
    assert message in complaint(array)


# ---- sparse matrices ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", FORMATS)
@given(
    dense=arrays.arrays(float, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.sampled_from([0, 1, -2.5]))
)
@settings(max_examples=20, deadline=None)
def test_every_format_has_the_edges_of_its_dense_matrix(form: str, dense: np.ndarray) -> None:
    named = dense.shape[0] != dense.shape[1]
    expected = [
        (f"row {i}" if named else str(i), f"column {j}" if named else str(j), dense[i, j])
        for i, j in np.argwhere(dense).tolist()
    ]
    for make in (scipy.sparse.coo_array, scipy.sparse.coo_matrix):
        matrix = make(dense).asformat(form)
        if expected:
            assert edges(read(matrix)) == expected
        else:
            assert "no entries" in complaint(matrix)


def test_stored_zeros_are_edges_and_repeated_entries_are_added() -> None:
    matrix = scipy.sparse.coo_array(([1, 2, 0.0], ([0, 0, 1], [1, 1, 2])), shape=(3, 3))
    for each in (matrix, matrix.tocsr()):
        graph = read(each)
        assert edges(graph) == [("0", "1", 3.0), ("1", "2", 0.0)]
        assert "sparse matrix: 1 stored zero read as edges with the weight 0" in graph.notes
    assert "sparse matrix: 1 repeated entry added to the first ones" in read(matrix).notes


def test_options_of_sparse_matrices() -> None:
    square = scipy.sparse.coo_array(([True, True], ([0, 1], [1, 0])), shape=(2, 2))
    assert not read(square).weighted
    assert list(read(square).entities) == ["0", "1"]
    assert list(read(square, same_ids=False).entities) == ["row 0", "row 1", "column 1", "column 0"]
    wide = scipy.sparse.csr_array(np.array([[0, 0.5, np.nan]]))
    assert list(read(wide, same_ids=True, missing_weight=1.0, relation_name="likes").relations) == ["likes"]
    assert "row 2: the weight 'nan' is not finite" in complaint(wide)
    assert "relation has no effect" in complaint(wide, relation=1)
    assert "complex128, not numbers" in complaint(wide * 1j)
    assert "1 dimensions" in complaint(scipy.sparse.coo_array(np.array([0, 1])))
    assert "cannot read a graph from" in complaint(scipy.sparse.linalg.aslinearoperator(np.eye(2)))


# ---- Matrix Market --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["a.mtx", "a.mtx.gz"])
def test_matrix_market_files_are_read_as_scipy_reads_them(name: str, tmp_path: Path) -> None:
    matrix = scipy.sparse.random_array((9, 9), density=0.3, rng=np.random.default_rng(1)).tocsr()
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix)
    if name.endswith(".gz"):
        (tmp_path / name).write_bytes(gzip.compress((tmp_path / "a.mtx").read_bytes()))
    theirs = scipy.io.mmread(str(tmp_path / "a.mtx")).tocsr().tocoo()
    expected = [(str(i + 1), str(j + 1), w) for i, j, w in zip(theirs.row, theirs.col, theirs.data, strict=True)]
    graph = read(tmp_path / name)
    assert edges(graph) == expected
    assert not graph.undirected


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
def test_symmetric_files_have_both_directions(field: str, symmetry: str, tmp_path: Path) -> None:
    if (field, symmetry) == ("pattern", "skew-symmetric"):
        pytest.skip("there is no such matrix")
    third = {"real": (" 0.5", " -2e1"), "integer": (" 3", " -2"), "pattern": ("", "")}[field]
    diagonal = "" if symmetry == "skew-symmetric" else f"2 2{third[0]}\n"
    path = tmp_path / "a.mtx"
    head = f"%%MatrixMarket matrix coordinate {field} {symmetry}\n% a comment\n\n3 3 {2 + bool(diagonal)}\n"
    path.write_text(f"{head}2 1{third[0]}\n  3   2{third[1]}\n{diagonal}")
    theirs = scipy.io.mmread(str(path)).tocsr().tocoo()
    graph = read(path)
    expected = [(str(i + 1), str(j + 1), w) for i, j, w in zip(theirs.row, theirs.col, theirs.data, strict=True)]
    assert edges(graph) == sorted(expected)
    assert graph.undirected is (True if symmetry == "symmetric" else None)
    assert graph.weighted == (field != "pattern")


BANNER = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: not the banner"),
        ("1 2 3\n", "line 1: not the banner of a Matrix Market file: '1 2 3'"),
        ("%%MatrixMarket matrix array real general\n1 1\n1\n", "array real general; give a sparse one of numbers"),
        ("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 1\n", "coordinate complex general"),
        (BANNER, "is the file complete?"),
        (BANNER + "2 2 2\n1 1 0.5\n", "is the file complete?"),
        (BANNER + "2 2 1\n1 1 x\n", "not a number in Matrix Market format"),
        (BANNER + "2 2 1\n1 3 1\n", "an entry lies outside the matrix of 2 × 2"),
        (BANNER + "2 2 1\n0 1 1\n", "an entry lies outside"),
        (BANNER + "2 2 1\n1.5 1 1\n", "an entry lies outside"),
        (BANNER + "18446744073709551616 5 1\nnan 5 1\n", "an entry lies outside"),
        (BANNER + "2 2 2\n1 inf 1\nnan 1 1\n", "an entry lies outside"),
        (BANNER + "2 2 1\n1 1 nan\n", "row 1: the weight 'nan' is not finite"),
        (BANNER + "2 2 0\n", "no entries"),
    ],
)
def test_damaged_matrix_market_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.mtx").write_text(text)
    assert message in complaint(tmp_path / "a.mtx")
