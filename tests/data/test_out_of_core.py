"""A graph encoded on disk equals one encoded in memory, with the same errors."""

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import focuse
from focuse.data import out_of_core, readers
from focuse.data.graph import Graph, from_columns
from focuse.data.out_of_core import encode_blocks
from focuse.data.splits import split
from focuse.errors import FocuseError


@pytest.fixture
def in_chunks(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From when it is called, every file is large, blocks are small and few edges are encoded together."""

    def make() -> None:
        monkeypatch.setattr(readers, "OUT_OF_CORE_BYTES", 0)
        monkeypatch.setattr(readers, "BLOCK_BYTES", 2000)
        monkeypatch.setattr(out_of_core, "MAX_EDGES_PER_GROUP", 300)
        monkeypatch.setattr(out_of_core, "CHUNK_EDGES", 170)

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
def test_ids_agree_with_encoding_in_memory(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    monkeypatch.setattr(out_of_core, "MAX_EDGES_PER_GROUP", together)
    head, relation, tail, weight = columns(400)
    blocks = [
        [*(pa.array(names[at : at + 37]) for names in (head, relation, tail)), pa.array(weight[at : at + 37])]
        for at in range(0, 400, 37)
    ]
    assert_same(encode_blocks(blocks, "graph", True), from_columns(head, relation, tail, weight))


@pytest.mark.parametrize("name", ["graph.tsv", "graph.csv", "graph.tsv.gz", "graph.parquet"])
@pytest.mark.parametrize("weighted", [True, False])
def test_files_read_out_of_core_agree_with_memory(
    tmp_path: Path, in_chunks: Callable[[], None], name: str, weighted: bool
) -> None:
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
    plain = focuse.read(path)
    in_chunks()
    pieces = focuse.read(path)
    assert_same(plain, pieces)
    pieces.weight[0] = 7.0  # like those of any graph the columns may be changed
    assert focuse.read(path).weight[0] == plain.weight[0]


@pytest.mark.parametrize("line", ["a\tr\tb\tmany", "a\tr\tb", "a\t\tb\t1", "a\tr\tb\tinf", "a\tr\tb\t", '"a\tr\t\t2'])
def test_a_faulty_line_in_a_late_block_is_named(tmp_path: Path, in_chunks: Callable[[], None], line: str) -> None:
    path = tmp_path / "graph.tsv"
    from_columns(*columns()).write(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[1976] = line
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    told = []
    for prepare in (lambda: None, in_chunks):
        prepare()
        with pytest.raises(FocuseError, match="line 1977: ") as raised:
            focuse.read(path)
        told.append(str(raised.value))
    assert told[0] == told[1]


def test_a_faulty_parquet_row_is_named(tmp_path: Path, in_chunks: Callable[[], None]) -> None:
    import pyarrow.parquet as pq

    head, relation, tail, weight = columns()
    tail[1200] = ""
    path = tmp_path / "graph.parquet"
    pq.write_table(pa.table({"head": head, "relation": relation, "tail": tail, "weight": weight}), path)
    in_chunks()
    with pytest.raises(FocuseError, match="row 1201: the tail is empty"):
        focuse.read(path)


def test_files_without_edges_are_refused(tmp_path: Path, in_chunks: Callable[[], None]) -> None:
    in_chunks()
    path = tmp_path / "graph.tsv"
    path.write_text("head\trelation\ttail\tweight\n", encoding="utf-8")
    with pytest.raises(FocuseError, match="no edges"):
        focuse.read(path)
    path.write_text("", encoding="utf-8")
    with pytest.raises(FocuseError, match="empty"):
        focuse.read(path)


def test_no_temporary_files_remain(
    tmp_path: Path, in_chunks: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOCUSE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "graph.tsv"
    from_columns(*columns()).write(path)
    in_chunks()
    assert len(focuse.read(path)) == 2500
    assert [found for found in (tmp_path / "cache").rglob("*") if found.is_file()] == []


def graph(count: int = 4000, seed: int = 0) -> Graph:
    random = np.random.default_rng(seed)
    ends = (random.random((2, count)) ** 3 * 300).astype(int)
    kinds = random.integers(0, 5, count)
    return from_columns(
        [f"e{id}" for id in ends[0]], [f"r{id}" for id in kinds], [f"e{id}" for id in ends[1]], random.random(count)
    )


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out_of_core, "LARGE_GRAPH", 1000)
    monkeypatch.setattr(out_of_core, "MAX_SORTED_KEYS", 900)
    monkeypatch.setattr(out_of_core, "CHUNK_EDGES", 333)


@pytest.mark.usefixtures("small_pieces")
def test_repeated_triples_are_counted() -> None:
    given = graph()
    assert out_of_core.count_repeated(given) == given.num_repeated > 0


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("seed", range(4))
def test_a_large_graph_is_split_like_a_small_one(seed: int) -> None:
    given = graph(seed=seed)
    parts = split(given, 0.1, 0.05, seed)
    train, valid, test = parts.train, parts.valid, parts.test
    assert len(train) + len(valid) + len(test) == len(given)
    assert 0.5 * 400 <= len(valid) <= 400
    assert 0.5 * 200 <= len(test) <= 200
    # Nothing is unseen, nothing leaks, nothing is lost or out of order.
    assert set(train.head) | set(train.tail) == set(range(len(given.entities)))
    assert set(train.relation) == set(range(len(given.relations)))
    keys = [set(part.keys.tolist()) for part in (train, valid, test)]
    assert [len(one & other) for one, other in combinations(keys, 2)] == [0, 0, 0]
    for name in ("head", "relation", "tail", "weight"):
        together = np.concatenate([getattr(part, name) for part in (train, valid, test)])
        assert np.array_equal(np.sort(together), np.sort(getattr(given, name)))
    held = np.isin(given.keys, [*keys[1], *keys[2]])
    assert np.array_equal(train.weight, given.weight[~held])
    again = split(given, 0.1, 0.05, seed)
    assert np.array_equal(again.test.keys, test.keys)
    assert not np.array_equal(split(given, 0.1, 0.05, seed + 1).test.keys, test.keys)


@pytest.mark.usefixtures("small_pieces")
def test_few_rows_are_held_out_if_few_are_spare() -> None:
    count = 1500
    chain = from_columns(
        [f"a{i}" for i in range(count)], ["r"] * count, [f"b{i}" for i in range(count)], np.ones(count)
    )
    parts = split(chain)
    assert len(parts.train) == count
    assert len(parts.valid) == len(parts.test) == 0


@pytest.mark.usefixtures("small_pieces")
def test_split_without_held_out_rows_is_possible() -> None:
    parts = split(graph(), 0.0, 0.0)
    assert len(parts.train) == 4000
    assert len(parts.test) == 0
