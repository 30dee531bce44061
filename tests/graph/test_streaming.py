"""A graph that is encoded on disk is the one that is encoded in memory, id for id and fault for fault."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import focuse
from focuse.errors import FocuseError
from focuse.graph import reading, streaming
from focuse.graph.graph import Graph, from_columns
from focuse.graph.streaming import stream


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From when it is called, every file is large, blocks are small and few edges are encoded together."""

    def make() -> None:
        monkeypatch.setattr(reading, "STREAMED_BYTES", 0)
        monkeypatch.setattr(reading, "BLOCK_BYTES", 2000)
        monkeypatch.setattr(streaming, "TOGETHER", 300)
        monkeypatch.setattr(streaming, "CHUNK", 170)

    return make


def columns(count: int = 2500, seed: int = 0) -> list[Any]:
    random = np.random.default_rng(seed)
    ends = (random.random((2, count)) ** 2 * 700).astype(int)
    return [
        [f"ë{id}" for id in ends[0]],
        [f"r{id}" for id in random.integers(0, 9, count)],
        [f"ë{id * 3 % 800}" for id in ends[1]],
        np.round(random.random(count), 4),
    ]


def assert_same(one: Graph, other: Graph) -> None:
    for name in ("head", "relation", "tail", "weight"):
        left, right = getattr(one, name), getattr(other, name)
        assert left.dtype == right.dtype
        assert np.array_equal(left, right)
    assert one.entities == other.entities
    assert one.relations == other.relations
    assert (one.weighted, one.source) == (other.weighted, other.source)


@pytest.mark.parametrize("together", [1, 64, 10_000])
def test_ids_are_those_of_an_encoding_in_memory(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    monkeypatch.setattr(streaming, "TOGETHER", together)
    head, relation, tail, weight = columns(400)
    blocks = [
        [*(pa.array(names[at : at + 37]) for names in (head, relation, tail)), pa.array(weight[at : at + 37])]
        for at in range(0, 400, 37)
    ]
    assert_same(stream(blocks, "graph", True), from_columns(head, relation, tail, weight))


@pytest.mark.parametrize("name", ["graph.tsv", "graph.csv", "graph.tsv.gz", "graph.parquet"])
@pytest.mark.parametrize("weighted", [True, False])
def test_files(tmp_path: Path, in_pieces: Callable[[], None], name: str, weighted: bool) -> None:
    path = tmp_path / name
    table = from_columns(*columns()).to_arrow()
    if weighted:
        from_columns(*columns()).write(path)
    elif path.suffix == ".parquet":
        pytest.importorskip("pyarrow.parquet").write_table(table.drop_columns(["weight"]), path)
    else:
        mark = "," if "csv" in name else "\t"
        rows = (mark.join(row) for row in zip(*columns()[:3], strict=True))
        with pa.output_stream(str(path), compression="gzip" if path.suffix == ".gz" else None) as file:
            file.write(("\n".join(rows) + "\n").encode())
    plain = focuse.read(path, cache=False)
    in_pieces()
    pieces = focuse.read(path, cache=False)
    assert_same(plain, pieces)
    pieces.weight[0] = 7.0  # like those of any graph the columns may be changed
    assert focuse.read(path, cache=False).weight[0] == plain.weight[0]


@pytest.mark.parametrize("line", ["a\tr\tb\tmany", "a\tr\tb", "a\t\tb\t1", "a\tr\tb\tinf", "a\tr\tb\t", '"a\tr\t\t2'])
def test_a_fault_far_down_is_named_as_ever(tmp_path: Path, in_pieces: Callable[[], None], line: str) -> None:
    path = tmp_path / "graph.tsv"
    from_columns(*columns()).write(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[1976] = line
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    told = []
    for prepare in (lambda: None, in_pieces):
        prepare()
        with pytest.raises(FocuseError, match="line 1977: ") as raised:
            focuse.read(path, cache=False)
        told.append(str(raised.value))
    assert told[0] == told[1]


def test_a_faulty_row_of_a_table_is_named(tmp_path: Path, in_pieces: Callable[[], None]) -> None:
    import pyarrow.parquet as pq

    head, relation, tail, weight = columns()
    tail[1200] = ""
    path = tmp_path / "graph.parquet"
    pq.write_table(pa.table({"head": head, "relation": relation, "tail": tail, "weight": weight}), path)
    in_pieces()
    with pytest.raises(FocuseError, match="row 1201: the tail is empty"):
        focuse.read(path, cache=False)


def test_files_without_edges(tmp_path: Path, in_pieces: Callable[[], None]) -> None:
    in_pieces()
    path = tmp_path / "graph.tsv"
    path.write_text("head\trelation\ttail\tweight\n", encoding="utf-8")
    with pytest.raises(FocuseError, match="no edges"):
        focuse.read(path, cache=False)
    path.write_text("", encoding="utf-8")
    with pytest.raises(FocuseError, match="empty"):
        focuse.read(path, cache=False)


def test_nothing_is_left_behind(tmp_path: Path, in_pieces: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOCUSE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "graph.tsv"
    from_columns(*columns()).write(path)
    in_pieces()
    assert len(focuse.read(path, cache=False)) == 2500
    assert [found for found in (tmp_path / "cache").rglob("*") if found.is_file()] == []
