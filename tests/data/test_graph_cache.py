"""Cached graphs equal those that were read, and stale or damaged ones are rebuilt."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
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
    """A cache of its own for files of any size, that counts what is parsed and what is hashed."""

    def __init__(self, patch: pytest.MonkeyPatch, root: Path) -> None:
        self.patch, self.root = patch, root
        self.folder = root / "cache" / "graphs"
        self.parsed = self.hashed = 0
        patch.setenv("FOCUSE_CACHE", str(root / "cache"))
        patch.delenv("FOCUSE_GRAPH_CACHE", raising=False)
        patch.setattr(readers, "CACHED_BYTES", 0)
        self._count("parsed", readers, "_read_text")
        self._count("parsed", readers, "_read_parquet")
        self._count("hashed", graph_cache, "content_hash")

    def _count(self, name: str, module: Any, function: str) -> None:
        real = getattr(module, function)

        def counted(*arguments: Any) -> Any:
            setattr(self, name, getattr(self, name) + 1)
            return real(*arguments)

        self.patch.setattr(module, function, counted)

    def settle(self) -> None:
        """From now on files count as unchanged as soon as the clock of the file system has moved on."""
        self.patch.setattr(graph_cache, "UNSETTLED_NS", 0)
        self.wait_for_clock()

    def wait_for_clock(self) -> None:
        """Return when a file written now gets a later time than any file before."""
        probe = self.root / "probe"
        probe.touch()
        before = probe.stat().st_mtime_ns
        while probe.stat().st_mtime_ns == before:
            os.utime(probe)
        probe.unlink()

    def put(self, text: str | bytes = TEXT, name: str = "graph.tsv") -> Path:
        path = self.root / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def names(self, suffix: str) -> list[Path]:
        return sorted(self.folder.glob(f"*{suffix}"))

    def costs(self, path: Path, **options: Any) -> tuple[int, int]:
        """How often reading parses and hashes; what comes must be what a reading without cache gives."""
        before = self.parsed, self.hashed
        graph = read(path, **options)
        after = self.parsed, self.hashed
        same(graph, read(path, cache=False, **options))
        assert graph.source == str(path)
        return after[0] - before[0], after[1] - before[1]


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
    shelf.settle()
    for expected in ((1, 1), (0, 0)):
        assert shelf.costs(path, weights=[4, 5]) == expected
    columns = read(path, weights=[4, 5]).columns
    assert columns is not None
    assert columns.names == ("w1", "w2")
    np.testing.assert_array_equal(columns.values, [[0.5, np.nan], [-2, 7]])
    assert shelf.costs(path, columns=[1, 2, 3, 4]) == (1, 1)
    assert read(path, columns=[1, 2, 3, 4]).columns is None


# ---- the same graph, without reading --------------------------------------------------------------------------------
def test_a_second_read_neither_parses_nor_hashes(shelf: Shelf) -> None:
    path = shelf.put()
    shelf.settle()
    assert shelf.costs(path) == (1, 1)
    assert shelf.costs(path) == (0, 0)
    assert len(shelf.names(".graph")) == len(shelf.names(".note")) == 1


def test_a_file_that_was_just_written_is_hashed_again(shelf: Shelf) -> None:
    path = shelf.put()
    assert shelf.costs(path) == (1, 2)  # once more after reading: it might have changed meanwhile
    assert shelf.costs(path) == (0, 1)
    assert shelf.names(".note") == []


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
        assert shelf.costs(path, **options)[0] == 1
        assert shelf.costs(path, **options)[0] == 0


def test_small_files_and_other_sources_are_not_cached(shelf: Shelf) -> None:
    shelf.patch.setattr(readers, "CACHED_BYTES", 4 * len(TEXT))
    assert shelf.costs(shelf.put()) == shelf.costs(shelf.put()) == (1, 0)
    read([("a", "r", "b", 1.0)])
    packed = gzip.compress(TEXT.encode() * 4, mtime=0)
    assert shelf.costs(shelf.put(packed, "g.gz"))[0] == 1  # a quarter is enough of what is packed
    assert shelf.costs(shelf.put(packed, "g.gz"))[0] == 0


def test_the_cache_depends_on_content_and_options_not_on_the_path(shelf: Shelf) -> None:
    path = shelf.put("head\trelation\ttail\na\tr\tb\n")
    copy, moved = path.with_name("copy.tsv"), path.with_name("moved")
    assert shelf.costs(path)[0] == 1
    shutil.copy(path, copy)
    assert shelf.costs(copy)[0] == 0
    path.rename(moved)
    assert shelf.costs(moved)[0] == 0
    for options in ({"header": False}, {"columns": [3, 2, 1]}, {"columns": ["tail", "relation", "head"]}):
        assert shelf.costs(copy, **options)[0] == 1
        assert shelf.costs(moved, **options)[0] == 0
    weights = {"r": 0.25}
    assert read(copy, relation_weights=weights).weight.tolist() == [0.25]
    assert read(copy).weight.tolist() == [1.0]


@pytest.mark.parametrize("settled", [True, False])
def test_a_change_of_same_size_and_time_is_noticed(shelf: Shelf, settled: bool) -> None:
    path = shelf.put()
    before = path.stat()
    if settled:
        shelf.settle()
    assert shelf.costs(path)[0] == 1
    if settled:
        shelf.wait_for_clock()
    path.write_text(TEXT.replace("7", "8"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert shelf.costs(path)[0] == 1
    assert read(path).weight.tolist() == [0.5, -2.0, 8.0]


def test_a_file_that_changes_while_it_is_read_is_not_cached(shelf: Shelf) -> None:
    path = shelf.put()
    real = readers.parse_text

    def parse(*arguments: Any) -> Any:
        table = real(*arguments)
        path.write_text(TEXT.replace("7", "8"))
        return table

    shelf.patch.setattr(readers, "parse_text", parse)
    assert read(path).weight.tolist() == [0.5, -2.0, 7.0]
    assert shelf.names(".graph") == []


def test_writing_to_arrays_does_not_change_the_cached_graph(shelf: Shelf) -> None:
    path = shelf.put()
    for _ in range(2):
        graph = read(path)
        graph.weight[:] = 9
        graph.head[0] = 2
    assert shelf.costs(path)[0] == 0


def test_training_on_a_cached_graph_gives_no_warning(shelf: Shelf, small: Graph) -> None:
    path = shelf.root / "small.tsv"
    small.write(path)
    fresh, kept = read(path), read(path)
    assert shelf.parsed == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        runs = [focuse.train(graph, dim=4, epochs=2, engine="torch", progress=False) for graph in (fresh, kept)]
    assert runs[0].evaluate().all == runs[1].evaluate().all
    kept.write(shelf.root / "again.tsv")
    assert (shelf.root / "again.tsv").read_bytes() == path.read_bytes()


# ---- what goes wrong ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("damage", ["truncated", "longer", "flipped", "header", "magic", "garbage", "empty", "gone"])
def test_damaged_cache_files_are_rebuilt(shelf: Shelf, damage: str, settled: bool) -> None:
    path = shelf.put()
    if settled:
        shelf.settle()
    read(path)
    [kept] = shelf.names(".graph")
    whole = kept.read_bytes()
    shelf.wait_for_clock()
    broken = {
        "truncated": whole[:-1],
        "longer": whole + b"x",
        "flipped": whole[:70] + bytes([whole[70] ^ 1]) + whole[71:],
        "header": whole[:8] + bytes([whole[8] ^ 1]) + whole[9:],
        "magic": b"x" + whole[1:],
        "garbage": b"x" * len(whole),
        "empty": b"",
    }.get(damage)
    if broken is None:
        kept.unlink()
    else:
        kept.write_bytes(broken)
    assert shelf.costs(path)[0] == 1
    assert kept.read_bytes() == whole
    assert shelf.costs(path)[0] == 0


def test_a_damaged_note_only_costs_a_hash(shelf: Shelf) -> None:
    path = shelf.put()
    shelf.settle()
    for text in ("", "no note", "../x 1 2 3", f"{'0' * 40} 1 2 3", "\xff"):
        read(path)
        [note] = shelf.names(".note")
        note.write_text(text, encoding="latin-1")
        assert shelf.costs(path) == (0, 1)
    assert shelf.costs(path) == (0, 0)


def test_a_rewritten_cache_file_is_checked_once(shelf: Shelf) -> None:
    path = shelf.put()
    shelf.settle()
    read(path)
    [kept] = shelf.names(".graph")
    checked = []
    real = graph_cache._checksum
    shelf.patch.setattr(graph_cache, "_checksum", lambda *rest: checked.append(1) or real(*rest))
    for expected in ([], [1], [1]):
        if expected and not checked:
            kept.write_bytes(kept.read_bytes())
        assert shelf.costs(path) == (0, 0)
        assert checked == expected


def test_faulty_files_are_never_cached(shelf: Shelf) -> None:
    good = shelf.put()
    read(good)
    bad = shelf.put(TEXT + "a\tr\tb\tnan\n", "bad.tsv")
    messages = set()
    for use in (False, True, True):
        with pytest.raises(FocuseError) as caught:
            read(bad, cache=use)
        messages.add(str(caught.value))
    assert messages == {f"{bad}, line 4: the weight 'nan' is not finite; give it a number or remove the line"}
    with pytest.raises(FocuseError, match="no edges"):
        read(shelf.put("head\trelation\ttail\tweight\n", "none.tsv"))
    assert len(shelf.names(".graph")) == 1
    good.write_text("a\tr\n")
    with pytest.raises(FocuseError, match="line 1"):
        read(good)


def test_the_suffix_matters_as_much_as_without_cache(shelf: Shelf) -> None:
    protein = shelf.put("PAR1\tbinds\tF2R\t0.9\n", "protein.tsv")
    assert shelf.costs(protein)[0] == 1
    with pytest.raises(FocuseError, match="not a readable Parquet file"):
        read(shutil.copy(protein, protein.with_suffix(".parquet")))


@pytest.mark.parametrize("fault", ["folder", "temporary", "replace", "disk", "home", "write"])
def test_an_unwritable_cache_does_not_fail_a_read(shelf: Shelf, fault: str) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise OSError(28, "No space left on device")

    if fault == "folder":
        shelf.patch.setenv("FOCUSE_CACHE", str(shelf.put("a file", "file") / "cache"))
    elif fault == "home":
        shelf.patch.setattr(graph_cache, "cache_folder", lambda: (_ for _ in ()).throw(FocuseError("no home")))
    elif fault == "disk":
        shelf.patch.setattr(graph_cache.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 0))
    else:
        module, name = {
            "temporary": (Path, "touch"),
            "replace": (os, "replace"),
            "write": (graph_cache, "_bytes"),
        }[fault]
        shelf.patch.setattr(module, name, fail)
    path = shelf.put()
    assert shelf.costs(path)[0] == shelf.costs(path)[0] == 1
    assert not shelf.folder.is_dir() or list(shelf.folder.iterdir()) == []


def test_a_read_only_cache_is_still_used(shelf: Shelf) -> None:
    path = shelf.put()
    read(path)
    shelf.settle()
    for name in ("utime", "replace", "unlink"):
        shelf.patch.setattr(os, name, lambda *rest, **more: (_ for _ in ()).throw(PermissionError(13, "no")))
    assert shelf.costs(path) == (0, 1)
    assert shelf.costs(path) == (0, 1)  # no note could be taken


# ---- switches and room ----------------------------------------------------------------------------------------------
def test_the_cache_can_be_switched_off(shelf: Shelf) -> None:
    path = shelf.put()
    for word in ("off", "OFF", "0", "no", "false"):
        shelf.patch.setenv("FOCUSE_GRAPH_CACHE", word)
        assert shelf.costs(path) == (1, 0)
    shelf.patch.delenv("FOCUSE_GRAPH_CACHE")
    read(path, cache=False)
    assert not shelf.folder.exists()
    assert shelf.costs(path)[0] == 1
    read(path, cache=False)
    assert shelf.parsed == 5 * 2 + 1 + 2 + 1  # every comparison parses as well


def test_the_cache_size_is_set_in_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    for word, expected in (("", 2_000_000_000), ("0.5", 500_000_000), (" 10 ", 10_000_000_000), ("-1", 0)):
        monkeypatch.setenv("FOCUSE_GRAPH_CACHE", word)
        assert graph_cache.max_cache_bytes() == expected
    for word in ("lots", "nan", "inf"):
        monkeypatch.setenv("FOCUSE_GRAPH_CACHE", word)
        with pytest.raises(FocuseError, match=f"FOCUSE_GRAPH_CACHE is '{word}'; set it to off or"):
            graph_cache.max_cache_bytes()


def test_the_least_recently_used_graphs_are_evicted(shelf: Shelf) -> None:
    first, second, third = (shelf.put(TEXT.replace("7", str(i)), f"{i}.tsv") for i in range(3))
    read(first)
    size = shelf.names(".graph")[0].stat().st_size
    shelf.patch.setenv("FOCUSE_GRAPH_CACHE", str(size * 2.5 / 1e9))
    read(second)
    shelf.wait_for_clock()
    assert shelf.costs(first)[0] == 0  # used last
    assert shelf.costs(third)[0] == 1
    assert len(shelf.names(".graph")) == 2
    assert [shelf.costs(path)[0] for path in (first, third, second)] == [0, 0, 1]
    shelf.patch.setenv("FOCUSE_GRAPH_CACHE", str(size * 0.5 / 1e9))
    assert shelf.costs(shelf.put(TEXT.replace("7", "9"), "large.tsv"))[0] == 1
    assert len(shelf.names(".graph")) == 2  # too large itself: nothing makes room for it


def test_stale_folders_are_removed_unless_in_use(shelf: Shelf) -> None:
    read(shelf.put())
    long_ago = time.time() - 700
    for name in ("left.part", "written.part"):
        (shelf.folder / name).mkdir()
        (shelf.folder / name / "columns").touch()
        os.utime(shelf.folder / name, (long_ago, long_ago))
    os.utime(shelf.folder / "left.part" / "columns", (long_ago, long_ago))
    read(shelf.put(TEXT * 2, "other.tsv"))
    assert [path.name for path in shelf.folder.iterdir() if path.suffix == ".part"] == ["written.part"]


def test_stale_files_are_removed(shelf: Shelf) -> None:
    read(shelf.put())
    now = time.time()
    for name, age in (("old.part", 700), ("new.part", 60), ("old.note", 40 * 86_400), ("new.note", 86_400), ("x", 1e8)):
        (shelf.folder / name).touch()
        os.utime(shelf.folder / name, (now - age, now - age))
    read(shelf.put(TEXT * 2, "other.tsv"))
    left = {path.name for path in shelf.folder.iterdir() if path.suffix != ".graph"}
    assert left == {"new.part", "new.note", "x"}


def test_cached_files_are_readable_by_their_owner_only(shelf: Shelf) -> None:
    read(shelf.put())
    if os.name == "posix":
        assert shelf.folder.stat().st_mode & 0o77 == 0
        assert {path.stat().st_mode & 0o77 for path in shelf.folder.iterdir()} == {0}


READ = """
import hashlib, sys
from focuse.data import readers
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
    assert len(shelf.names(".graph")) == 1
    assert shelf.names(".part") == []


def with_valid_checksum(data: bytes) -> bytes:
    """A cached graph whose checksum is that of its content."""
    magic, *lengths, weighted, _ = graph_cache.HEADER.unpack_from(data)
    layout, _ = graph_cache._array_layout(lengths)
    arrays = [np.frombuffer(data, dtype, count, offset) for dtype, count, offset in layout]
    header = graph_cache.HEADER.pack(magic, *lengths, weighted, graph_cache._checksum(lengths, weighted, arrays))
    return header + data[len(header) :]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (np.array([0, 2, 4, 6], np.int32).tobytes(), np.array([0, 2, 4, 9_999], np.int32).tobytes()),
        (np.array([0, 2, 4, 6], np.int32).tobytes(), np.array([0, 4, 2, 6], np.int32).tobytes()),
        (np.array([1, 2], np.int32).tobytes(), np.array([1, 7], np.int32).tobytes()),
        (b"aabbcc", b"a\xffbbcc"),
    ],
    ids=["outside", "backwards", "an id of none", "no text"],
)
def test_nonsense_with_a_valid_checksum_is_rejected(old: bytes, new: bytes, tmp_path: Path) -> None:
    """Offsets beyond the letters would be read from outside of the file, ids beyond the names as any name."""
    path = tmp_path / "kept.graph"
    graph_cache.store(read([("aa", "r", "bb", 1.0), ("bb", "r", "cc", 2.0)]), path, 1 << 30)
    whole = path.read_bytes()
    assert whole.count(old) == 1
    assert with_valid_checksum(whole) == whole
    changed = tmp_path / "changed.graph"
    changed.write_bytes(with_valid_checksum(whole.replace(old, new)))
    assert graph_cache.load(path) is not None
    assert graph_cache.load(changed) is None
