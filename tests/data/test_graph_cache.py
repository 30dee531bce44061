"""Cached graphs equal those that were read, and stale or damaged ones are rebuilt."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import focuse
from focuse.data import graph_cache, readers
from focuse.data.graph import Graph
from focuse.data.readers import read
from focuse.errors import FocuseError

TEXT = "a\tr\tb\t0.5\nb\ts\tc\t-2\na\tr\tb\t7\n"


class Shelf:
    """A cache of its own for files of any size and age, that counts what is parsed."""

    def __init__(self, patch: pytest.MonkeyPatch, root: Path) -> None:
        self.patch, self.root = patch, root
        self.folder = root / "cache" / "graphs"
        self.parsed = 0
        patch.setenv("FOCUSE_CACHE", str(root / "cache"))
        patch.delenv("FOCUSE_GRAPH_CACHE", raising=False)
        patch.setattr(readers, "CACHED_BYTES", 0)
        patch.setattr(graph_cache, "UNSETTLED_SECONDS", -1.0)
        for function in ("_read_text", "_read_parquet"):
            self._count(function)

    def _count(self, function: str) -> None:
        real = getattr(readers, function)

        def counted(*arguments: Any) -> Any:
            self.parsed += 1
            return real(*arguments)

        self.patch.setattr(readers, function, counted)

    def put(self, text: str | bytes = TEXT, name: str = "graph.tsv") -> Path:
        path = self.root / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def files(self) -> list[Path]:
        return sorted(self.folder.iterdir()) if self.folder.is_dir() else []

    def parses(self, path: Path, **options: Any) -> int:
        """Return how often reading parses; the graph must be the one that a reading without cache gives."""
        before = self.parsed
        graph = read(path, **options)
        after = self.parsed
        same(graph, read(path, cache=False, **options))
        assert graph.source == str(path)
        return after - before


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    return Shelf(monkeypatch, tmp_path)


def same(one: Graph, other: Graph) -> None:
    for name in ("head", "relation", "tail", "weight"):
        first, second = getattr(one, name), getattr(other, name)
        assert first.dtype == second.dtype
        assert first.tobytes() == second.tobytes()
        assert type(first) is np.ndarray
        assert first.flags.writeable >= second.flags.writeable
    assert one.entities == other.entities
    assert one.relations == other.relations
    assert one.entities.column.type == other.entities.column.type == pa.string()
    assert (one.source, one.weighted, repr(one)) == (other.source, other.weighted, repr(other))


def test_weight_columns_are_cached(shelf: Shelf) -> None:
    path = shelf.put("a\tr\tb\t0.5\t\nb\ts\tc\t-2\t7\n")
    assert [shelf.parses(path, weights=[4, 5]) for _ in range(2)] == [1, 0]
    columns = read(path, weights=[4, 5]).columns
    assert columns is not None
    assert columns.names == ("w1", "w2")
    np.testing.assert_array_equal(columns.values, [[0.5, np.nan], [-2, 7]])
    assert shelf.parses(path, columns=[1, 2, 3, 4]) == 1
    assert read(path, columns=[1, 2, 3, 4]).columns is None


NAME = st.text(st.characters(exclude_categories=("Cs",), exclude_characters='\t\r\n\0\ufeff",'), min_size=1)


EDGE = st.tuples(NAME, NAME, NAME, st.floats(allow_nan=False, allow_infinity=False))


def written(edges: list[tuple[Any, ...]], kind: str, header: bool, path: Path) -> None:
    names = ("head", "relation", "tail", "weight")
    if kind == "parquet":
        return pq.write_table(pa.table(dict(zip(names, zip(*edges, strict=True), strict=False))), path)
    mark = "," if kind == "csv" else "\t"
    lines = ([names[: len(edges[0])]] if header else []) + [tuple(map(str, edge)) for edge in edges]
    text = "".join(mark.join(line) + "\n" for line in lines).encode()
    pack: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.compress,
        "zstd": lambda data: bytes(pa.compress(data, codec="zstd", asbytes=True)),
    }
    path.write_bytes(pack.get(kind, bytes)(text))
    return None


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(EDGE, min_size=1, max_size=8),
    st.sampled_from(["tsv", "csv", "gzip", "zstd", "parquet"]),
    st.booleans(),
    st.booleans(),
)
def test_a_cached_graph_equals_the_one_that_was_read(edges: list[Any], kind: str, header: bool, weighted: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        shelf = Shelf(patch, Path(folder))
        path = Path(folder) / "graph"
        written(edges if weighted else [edge[:3] for edge in edges], kind, header, path)
        options: dict[str, Any] = {} if kind == "parquet" else {"header": header, "delimiter": "\t,"[kind == "csv"]}
        assert shelf.parses(path, **options) == 1
        assert shelf.parses(path, **options) == 0


def test_small_files_and_other_sources_are_not_cached(shelf: Shelf) -> None:
    shelf.patch.setattr(readers, "CACHED_BYTES", 4 * len(TEXT))
    assert shelf.parses(shelf.put()) == shelf.parses(shelf.put()) == 1
    read([("a", "r", "b", 1.0)])
    packed = gzip.compress(TEXT.encode() * 4, mtime=0)
    path = shelf.put(packed, "g.gz")  # a quarter is enough of a compressed file
    assert [shelf.parses(path) for _ in range(2)] == [1, 0]


def test_the_cache_depends_on_the_file_and_the_options(shelf: Shelf) -> None:
    path = shelf.put("head\trelation\ttail\na\tr\tb\n")
    for options in ({}, {"header": False}, {"columns": [3, 2, 1]}, {"columns": ["tail", "relation", "head"]}):
        assert [shelf.parses(path, **options) for _ in range(2)] == [1, 0]
    assert read(path, relation_weights={"r": 0.25}).weight.tolist() == [0.25]
    assert read(path).weight.tolist() == [1.0]


def test_a_changed_file_is_read_again(shelf: Shelf) -> None:
    path = shelf.put()
    before = path.stat()
    assert [shelf.parses(path) for _ in range(2)] == [1, 0]
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # the clock of the file system is coarse
        path.write_text(TEXT.replace("7", "8"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert shelf.parses(path) == 1
    assert read(path).weight.tolist() == [0.5, -2.0, 8.0]


def test_a_file_that_was_just_written_or_changes_is_not_cached(shelf: Shelf) -> None:
    path = shelf.put()
    real = readers.parse_text

    def parse(*arguments: Any) -> Any:
        table = real(*arguments)
        path.write_text(TEXT + "a\tr\tc\t1\n")
        return table

    shelf.patch.setattr(readers, "parse_text", parse)
    assert read(path).weight.tolist() == [0.5, -2.0, 7.0]
    assert shelf.files() == []
    shelf.patch.setattr(readers, "parse_text", real)
    shelf.patch.setattr(graph_cache, "UNSETTLED_SECONDS", 60.0)
    read(path)
    assert shelf.files() == []


def test_training_on_a_cached_graph_gives_no_warning(shelf: Shelf, small: Graph) -> None:
    path = shelf.root / "small.tsv"
    small.write(path)
    fresh, cached = read(path), read(path)
    assert shelf.parsed == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        runs = [focuse.train(graph, dim=4, epochs=2, engine="reference", progress=False) for graph in (fresh, cached)]
    assert runs[0].evaluate().all == runs[1].evaluate().all
    cached.weight[:] = 9  # this stays in memory
    assert shelf.parses(path) == 0


@pytest.mark.parametrize("damage", ["truncated", "longer", "flipped", "header", "garbage", "empty", "gone"])
def test_damaged_cache_files_are_rebuilt(shelf: Shelf, damage: str) -> None:
    path = shelf.put()
    read(path)
    [file] = shelf.files()
    whole = file.read_bytes()
    broken = {
        "truncated": whole[:-1],
        "longer": whole + b"x",
        "flipped": whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:],
        "header": whole[:8] + bytes([whole[8] ^ 1]) + whole[9:],
        "garbage": b"x" * len(whole),
        "empty": b"",
    }.get(damage)
    file.unlink()
    if broken is not None:
        file.write_bytes(broken)
    assert shelf.parses(path) == 1
    assert file.read_bytes() == whole
    assert shelf.parses(path) == 0


def test_ids_outside_of_the_vocabulary_are_rejected(tmp_path: Path) -> None:
    graph = read([("aa", "r", "bb", 1.0), ("bb", "r", "cc", 2.0)])
    graph_cache.store(replace(graph, tail=np.array([1, 7], np.int32)), tmp_path / "graph")
    with pytest.raises(ValueError, match="out of range"):
        graph_cache.load(tmp_path / "graph")


def test_faulty_files_are_never_cached(shelf: Shelf) -> None:
    bad = shelf.put(TEXT + "a\tr\tb\tnan\n", "bad.tsv")
    messages = set()
    for use in (False, True, True):
        with pytest.raises(FocuseError) as caught:
            read(bad, cache=use)
        messages.add(str(caught.value))
    assert messages == {f"{bad}, line 4: the weight 'nan' is not finite; give it a number or remove the line"}
    with pytest.raises(FocuseError, match="no edges"):
        read(shelf.put("head\trelation\ttail\tweight\n", "none.tsv"))
    assert shelf.files() == []


@pytest.mark.parametrize("fault", ["folder", "temporary", "replace", "write"])
def test_an_unwritable_cache_does_not_fail_a_read(shelf: Shelf, fault: str) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise OSError(28, "No space left on device")

    if fault == "folder":
        shelf.patch.setenv("FOCUSE_CACHE", str(shelf.put("a file", "file") / "cache"))
    else:
        names = {"temporary": (Path, "touch"), "replace": (os, "replace"), "write": (graph_cache, "write_arrays")}
        shelf.patch.setattr(*names[fault], fail)
    path = shelf.put()
    assert [shelf.parses(path) for _ in range(2)] == [1, 1]
    assert shelf.files() == []


def test_the_cache_can_be_switched_off(shelf: Shelf) -> None:
    path = shelf.put()
    shelf.patch.setenv("FOCUSE_GRAPH_CACHE", "off")
    assert [shelf.parses(path) for _ in range(2)] == [1, 1]
    shelf.patch.delenv("FOCUSE_GRAPH_CACHE")
    read(path, cache=False)
    assert not shelf.folder.exists()


def test_the_least_recently_used_graphs_are_evicted(shelf: Shelf) -> None:
    first, second, third = (shelf.put(TEXT.replace("7", str(i)), f"{i}.tsv") for i in range(3))
    for age, path in ((30, first), (20, second)):
        read(path)
        used = max(shelf.files(), key=lambda file: file.stat().st_mtime)
        os.utime(used, (time.time() - age,) * 2)
    shelf.patch.setattr(graph_cache, "MAX_CACHE_BYTES", int(2.5 * used.stat().st_size))
    assert shelf.parses(first) == 0  # now it is used last
    assert shelf.parses(third) == 1
    assert len(shelf.files()) == 2
    assert [shelf.parses(path) for path in (first, third, second)] == [0, 0, 1]
    shelf.patch.setattr(graph_cache, "MAX_CACHE_BYTES", 1)
    shelf.parses(shelf.put(TEXT.replace("7", "9"), "large.tsv"))
    assert len(shelf.files()) == 2  # a graph that is too large evicts no others


def test_files_of_killed_processes_are_removed(shelf: Shelf) -> None:
    read(shelf.put())
    long_ago = time.time() - 100_000
    for name in (".left.part", ".new.part", ".file"):
        (shelf.folder / name).mkdir() if name != ".file" else (shelf.folder / name).touch()
        if name != ".new.part":
            os.utime(shelf.folder / name, (long_ago, long_ago))
    read(shelf.put(TEXT * 2, "other.tsv"))
    assert [path.name for path in shelf.files() if path.name.startswith(".")] == [".new.part"]


def test_cached_files_are_readable_by_their_owner_only(shelf: Shelf) -> None:
    read(shelf.put())
    if os.name == "posix":
        assert shelf.folder.stat().st_mode & 0o77 == 0
        assert {path.stat().st_mode & 0o77 for path in shelf.folder.iterdir()} == {0}


READ = """
import hashlib, sys
from focuse.data import graph_cache, readers
graph_cache.UNSETTLED_SECONDS = -1.0
print("ready", flush=True)
sys.stdin.readline()
if sys.argv[2] == "from the cache":
    readers._read_text = None
graph = readers.read(sys.argv[1])
names = "".join([*graph.entities, *graph.relations])
print(hashlib.md5(b"".join([graph.head, graph.relation, graph.tail, graph.weight, names.encode()])).hexdigest())
"""


def test_two_processes_may_read_and_cache_the_same_file_at_once(shelf: Shelf) -> None:
    text = "".join(f"entity {i % 977}\tr{i % 7}\tentity {i % 1009}\t{i / 8}\n" for i in range(40_000))
    path = shelf.put(text)
    assert path.stat().st_size > 1 << 20

    def checksums(count: int, source: str) -> list[str]:
        """What `count` processes read, which all begin once the last of them is ready."""
        command = [sys.executable, "-c", READ, str(path), source]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        running = [subprocess.Popen(command, **pipes) for _ in range(count)]
        assert [process.stdout.readline() for process in running] == ["ready\n"] * count
        for process in running:
            process.stdin.write("\n")
            process.stdin.flush()
        return [process.communicate(timeout=60)[0].strip() for process in running]

    found = [*checksums(2, "from anywhere"), *checksums(1, "from the cache")]
    assert len(set(found)) == 1
    assert len(found[0]) == 32
    assert len(shelf.files()) == 1
