"""Small files that would become huge ones, and Parquet that is not what it says."""

from __future__ import annotations

import gzip
import io
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from focuse.errors import FocuseError
from focuse.graph import opening, read
from focuse.graph.opening import most_unpacked, open_bytes

LINE = {
    ".tsv": b"a\tr\tb\t1\n",
    ".csv": b"a,r,b,1\n",
    ".nt": b"<urn:a> <urn:r> <urn:b> .\n",
    ".graphml": b"<edge source='a' target='b'/>\n",
}


def packed(path: Path, times: int) -> Path:
    """A packed text of so many lines."""
    kind = {".gz": "gzip", ".zst": "zstd"}[path.suffix]
    with pa.output_stream(str(path), compression=kind) as stream:
        line = LINE[Path(path.stem).suffix]
        stream.write(b"<graphml><graph>" if b"<edge" in line else b"")
        for _ in range(times // 10_000):
            stream.write(line * 10_000)
        stream.write(b"</graph></graphml>" if b"<edge" in line else b"")
    return path


@pytest.mark.parametrize("suffix", LINE)
@pytest.mark.parametrize("kind", [".gz", ".zst"])
def test_a_bomb_is_refused(suffix: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(tmp_path / f"graph{suffix}{kind}", 20_000)
    monkeypatch.setattr(opening, "ALWAYS", 1 << 16)
    monkeypatch.setattr(opening, "TIMES", 5)
    with pytest.raises(FocuseError, match=r"bytes unpack to more than .* FOCUSE_UNPACKED") as caught:
        read(path, cache=False, missing=1.0)
    assert str(path) in str(caught.value)
    monkeypatch.setenv("FOCUSE_UNPACKED", "0.1")
    assert len(read(path, cache=False)) in (1, 20_000)  # of RDF a fact is one, however often it is said


def test_a_real_bomb(tmp_path: Path) -> None:
    """72 MB of text in some KB, with the limits as they are."""
    path = tmp_path / "graph.tsv.zst"
    path.write_bytes(pa.compress(LINE[".tsv"] * 9_000_000, "zstd", asbytes=True))
    assert path.stat().st_size < 20_000
    with pytest.raises(FocuseError, match=r"unpack to more than 0\.0671 GB, which no graph does"):
        read(path, cache=False)


def test_frames_of_zstd_without_data_are_skipped(tmp_path: Path) -> None:
    """As pzstd and other writers put them before, between and behind the others."""
    empty = [struct.pack("<II", 0x184D2A50 + number, 5) + b"other" for number in (0, 7, 15)]
    rows = [pa.compress(line, "zstd", asbytes=True) for line in (b"a\tr\tb\t1\n", b"b\tr\tc\t2\n")]
    path = tmp_path / "graph.tsv.zst"
    path.write_bytes(empty[0] + empty[1] + rows[0] + empty[2] + rows[1] + empty[0])
    assert read(path, cache=False).to_pandas()["weight"].tolist() == [1.0, 2.0]
    path.write_bytes(empty[0][:-2])
    with pytest.raises(FocuseError, match=r"graph\.tsv\.zst: damaged compressed file: Truncated"):
        read(path, cache=False)
    path.write_bytes(empty[0])
    with pytest.raises(FocuseError, match=r"graph\.tsv\.zst: .*empty"):
        read(path, cache=False)


@pytest.mark.parametrize("suffix", LINE)
def test_a_window_that_is_too_large_is_told(suffix: str, tmp_path: Path) -> None:
    """One frame that says to need 2 GiB, as `zstd --long=31` writes it, with one raw block."""
    line = LINE[suffix]
    block = (len(line) << 3 | 1).to_bytes(3, "little") + line  # the last one, raw
    path = tmp_path / f"graph{suffix}.zst"
    for window, fits in ((21 << 3, False), (17 << 3, True)):  # 2^(10 + n) bytes
        path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes([0, window]) + block)
        with open_bytes(path) as stream:
            if fits:
                assert stream.read(100) == line
                continue
        with pytest.raises(FocuseError, match=r"zst: packed with a window above 128 MiB \(zstd --long\); unpack it"):
            read(path, cache=False)


def test_what_is_packed_well_is_read(tmp_path: Path) -> None:
    path = packed(tmp_path / "graph.tsv.gz", 50_000)  # 400 KB of 1 KB
    assert len(read(path, cache=False)) == 50_000


@pytest.mark.parametrize(("given", "most"), [("", 1 << 26), ("off", float("inf")), ("2", 2e9), ("0.5", 5e8)])
def test_the_limit(given: str, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOCUSE_UNPACKED", given)
    assert most_unpacked(1_000) == most


@pytest.mark.parametrize("given", ["x", "-1", "0", "nan"])
def test_a_limit_that_is_none(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOCUSE_UNPACKED", given)
    with pytest.raises(FocuseError, match="FOCUSE_UNPACKED is"):
        most_unpacked(1)


def test_a_bounded_stream_is_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    with open_bytes(path) as stream:
        assert stream.read(2) + stream.read() == b"one\ntwo\n"
    with open_bytes(path) as stream:
        assert list(io.TextIOWrapper(stream, encoding="utf-8")) == ["one\n", "two\n"]


class TestParquet:
    def test_a_long_name_in_every_row(self, tmp_path: Path) -> None:
        """3 KB in the file, 30 GB as text: it stays in its dictionary until its size is known."""
        rows = 300_000
        names = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * 100_000]))
        pq.write_table(
            pa.table({"head": names, "relation": ["r"] * rows, "tail": ["t"] * rows}), tmp_path / "g.parquet"
        )
        assert (tmp_path / "g.parquet").stat().st_size < 200_000
        with pytest.raises(FocuseError, match="bytes unpack to more than"):
            read(tmp_path / "g.parquet")

    def test_many_rows_of_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A column of one value is a few bytes, however many rows it has."""
        rows = 500_000
        monkeypatch.setattr(opening, "ALWAYS", rows - 1)
        monkeypatch.setattr(opening, "TIMES", 1)
        one = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array(["a"]))
        pq.write_table(pa.table({"head": one, "relation": one, "tail": one}), tmp_path / "g.parquet")
        with pytest.raises(FocuseError, match="bytes unpack to more than"):
            read(tmp_path / "g.parquet")

    def test_names_that_are_no_text(self, tmp_path: Path) -> None:
        """Arrow takes a file's word for it; the first to look would have been a crash far from here."""
        path = tmp_path / "g.parquet"
        pq.write_table(pa.table({"head": ["abcd"], "relation": ["r"], "tail": ["t"]}), path, compression="none")
        path.write_bytes(path.read_bytes().replace(b"abcd", b"ab\xffd"))
        with pytest.raises(FocuseError, match=r"not a readable Parquet file: .*UTF"):
            read(path)

    def test_headings_that_are_no_text(self, tmp_path: Path) -> None:
        path = tmp_path / "g.parquet"
        table = pa.table({"head": ["a"], "relation": ["r"], "abcd": ["t"]})
        pq.write_table(table, path, store_schema=False)
        path.write_bytes(path.read_bytes().replace(b"abcd", b"ab\xffd"))
        with pytest.raises(FocuseError, match="not a readable Parquet file"):
            read(path)

    def test_dictionaries_of_a_frame_read_as_before(self, tmp_path: Path) -> None:
        names = pa.array(["a", "b", "a", None]).dictionary_encode().slice(0, 3)
        table = pa.table({"head": names, "relation": ["r"] * 3, "tail": ["x", "y", "x"], "weight": [1, 2, 3]})
        pq.write_table(table, tmp_path / "g.parquet")
        graph = read(tmp_path / "g.parquet")
        assert [graph.entities[row] for row in graph.head] == ["a", "b", "a"]
        assert sorted(graph.entities) == ["a", "b", "x", "y"]


def test_a_sorted_graph_of_long_names_reads_back(tmp_path: Path) -> None:
    """It packs by far more than text does, and is no bomb."""
    names = [f"http://example.org/people/department-of-examples/person-{number:05}" for number in range(700)]
    head, tail = np.repeat(np.arange(700, dtype=np.int32), 700), np.tile(np.arange(700, dtype=np.int32), 700)
    columns = [pa.DictionaryArray.from_arrays(pa.array(ids), pa.array(names)) for ids in (head, tail)]
    kinds = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(head), np.int32)), pa.array(["knows"]))
    table = pa.table({"head": columns[0], "relation": kinds, "tail": columns[1], "weight": (head % 5) / 4})
    pq.write_table(table, tmp_path / "sorted.parquet", compression="zstd")
    size = (tmp_path / "sorted.parquet").stat().st_size
    assert len(read(tmp_path / "sorted.parquet", cache=False)) == 490_000
    assert 490_000 * 2 * len(names[0]) > 200 * size
    assert 490_000 * 2 * len(names[0]) > 1 << 25


def test_nested_columns_are_not_read(tmp_path: Path) -> None:
    table = pa.table({"head": ["a"], "relation": ["r"], "tail": ["b"], "weight": [1.0], "notes": [["x" * 100]]})
    pq.write_table(table, tmp_path / "nested.parquet")
    assert len(read(tmp_path / "nested.parquet", cache=False)) == 1
