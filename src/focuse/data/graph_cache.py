"""A cache of graphs that were read before, stored as arrays that are memory-mapped.

The name of a cached graph is a hash of the file's bytes, the options of reading and the version of focuse. A small note
next to it records which state of a file (size, times, inode) had those bytes, so that an unchanged file need not be
hashed again. All cached files may be deleted at any time, and no error in this module ever fails a read.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import shutil
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from focuse import __version__
from focuse.data.graph import Graph, Vocabulary, WeightColumns
from focuse.errors import FocuseError
from focuse.storage.atomic import replace_file

FORMAT = 3  # increased whenever the layout of cached files or the result of reading the same bytes changes
DEFAULT_MAX_GIGABYTES = 2.0  # size of the cache unless FOCUSE_GRAPH_CACHE sets it
HASH_CHUNK_BYTES = 1 << 22  # bytes hashed at once by each thread
# File times are coarse: a file that changed more recently than this might change again with the same time.
UNSETTLED_NS = 2_000_000_000
ABANDONED_SECONDS = 600.0  # a half-written file that is unchanged for this long belongs to a killed process
NOTE_SECONDS = 30 * 86_400.0  # notes are deleted after this time; a file without its note is hashed again
HEADER = struct.Struct("<8s10Q?7xQ")
MAGIC = b"focuseG\x03"
ALIGNMENT = 64

Array = npt.NDArray[Any]


def cache_folder() -> Path:
    """Return the folder of downloaded data sets and cached graphs: FOCUSE_CACHE, else the system's cache folder."""
    if folder := os.environ.get("FOCUSE_CACHE"):
        return Path(os.path.expanduser(folder))
    try:
        if sys.platform == "win32":
            local = os.environ.get("LOCALAPPDATA")
            return (Path(local) if local else Path.home() / "AppData" / "Local") / "focuse" / "Cache"
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "focuse"
        folder = os.environ.get("XDG_CACHE_HOME", "")
        return (Path(folder) if os.path.isabs(folder) else Path.home() / ".cache") / "focuse"
    except RuntimeError:
        raise FocuseError("no home folder to store data sets in; name a folder with FOCUSE_CACHE") from None


def max_cache_bytes() -> int:
    """Return the maximum size of the cache: FOCUSE_GRAPH_CACHE in gigabytes; 0 if it is 'off'."""
    setting = os.environ.get("FOCUSE_GRAPH_CACHE", "").strip().lower()
    if setting in ("off", "no", "false"):
        return 0
    try:
        gigabytes = float(setting) if setting else DEFAULT_MAX_GIGABYTES
        return max(0, int(gigabytes * 1e9))
    except (ValueError, OverflowError):
        raise FocuseError(
            f"FOCUSE_GRAPH_CACHE is {setting!r}; set it to off or to the gigabytes that cached graphs may take"
        ) from None


def cached(path: Path, options: Iterable[object], read: Callable[[], Graph]) -> Graph:
    """Return the graph that `read` reads from the file at `path`, from the cache if it was read before.

    `options` are all inputs of `read` other than the file's bytes.
    """
    max_bytes = max_cache_bytes()
    folder = _graph_folder() if max_bytes else None
    if folder is None:
        return read()
    context = repr((FORMAT, __version__, *options))
    try:
        file = FileState.of(path)
        note = folder / f"{_hashed(context, os.path.abspath(path), *file.stamp)}.note"
        graph = _load_by_note(note, file)
        if graph is None:
            key = _hashed(context, content_hash(path))
            graph = _load_by_key(key, note, file)
    except OSError:
        return read()
    if graph is not None:
        return replace(graph, source=str(path))
    graph = read()
    with suppress(OSError, FocuseError):
        # A graph is not stored if the file changed after it was hashed, because the bytes that were read are unknown.
        if len(graph) and file.is_unchanged() and (file.settled or key == _hashed(context, content_hash(path))):
            store(graph, folder / f"{key}.graph", max_bytes)
            _write_note(note, key, file)
    return graph


def scratch_folder() -> Path | None:
    """Return the folder for columns of graphs larger than memory, or None for the system's temporary folder."""
    folder = _graph_folder()
    return folder if folder is not None and os.access(folder, os.W_OK) else None


def _graph_folder() -> Path | None:
    """Return the folder of cached graphs, or None if it cannot be created."""
    try:
        folder = cache_folder() / "graphs"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, FocuseError):
        return None
    return folder


def _hashed(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()[:40]


# ---- identity of files ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileState:
    """The state of a file; `stamp` changes when its bytes change, which is certain only if it is `settled`."""

    path: Path
    stamp: tuple[int, ...]
    settled: bool

    @classmethod
    def of(cls, path: Path) -> FileState:
        """Return the current state of a file."""
        now = time.time_ns()
        status = os.stat(path)
        stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        # On Windows st_ctime is the time of creation, so that a change with the old time restored would go unnoticed.
        settled = max(status.st_mtime_ns, status.st_ctime_ns) + UNSETTLED_NS < now and sys.platform != "win32"
        return cls(path, stamp, settled)

    def is_unchanged(self) -> bool:
        """Return whether the file still has this state."""
        return FileState.of(self.path).stamp == self.stamp


def content_hash(path: Path) -> str:
    """Return the SHA-256 of the chunks' SHA-256, which is as strong as that of the whole file but uses all cores."""

    def chunk_hash(start: int) -> bytes:
        with path.open("rb") as file:
            file.seek(start)
            return hashlib.sha256(file.read(HASH_CHUNK_BYTES)).digest()

    size = path.stat().st_size
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as pool:
        parts = pool.map(chunk_hash, range(0, size, HASH_CHUNK_BYTES))
        return hashlib.sha256(size.to_bytes(8, "little") + b"".join(parts)).hexdigest()


# ---- notes: the state of a file and the cached graph of its bytes ---------------------------------------------------


def _load_by_note(note: Path, file: FileState) -> Graph | None:
    """Load the graph of a note; if it did not change since the note was written, only its length is checked."""
    try:
        key, *stamp = note.read_text(encoding="ascii").split()
        stored = note.with_name(f"{key}.graph")
        unchanged = tuple(map(int, stamp)) == _stamp(stored)
    except (OSError, ValueError):
        return None
    return load(stored, check=False) if unchanged else _load_by_key(key, note, file)


def _load_by_key(key: str, note: Path, file: FileState) -> Graph | None:
    graph = load(note.with_name(f"{key}.graph"))
    if graph is not None:
        _write_note(note, key, file)
    return graph


def _write_note(note: Path, key: str, file: FileState) -> None:
    """Record that the file has the bytes of a cached graph that was just written or checked completely."""
    if file.settled:
        with suppress(OSError, FocuseError):
            stamp = _stamp(note.with_name(f"{key}.graph"))
            with replace_file(note, private=True) as temporary:
                temporary.write_text(" ".join([key, *map(str, stamp)]), encoding="ascii")


def _stamp(stored: Path) -> tuple[int, int, int]:
    status = stored.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


# ---- cached graphs: a header, then arrays that begin at multiples of ALIGNMENT --------------------------------------


def store(graph: Graph, path: Path, max_bytes: int) -> None:
    """Write a graph to the cache file `path`, evicting others so that all fit into `max_bytes`.

    The file appears only when it is complete, and not at all if it does not fit.
    """
    empty = np.empty(0, np.int32), np.empty(0, np.uint8)
    columns = graph.columns
    values = np.empty(0) if columns is None else columns.values.ravel()
    column_names = empty if columns is None else _string_arrays(Vocabulary(columns.names))
    notes = _string_arrays(Vocabulary(graph.notes)) if graph.notes else empty
    names = (*_string_arrays(graph.entities), *_string_arrays(graph.relations))
    arrays: list[Array] = [
        graph.weight, graph.head, graph.relation, graph.tail, *names, values, *column_names, *notes,
    ]  # fmt: skip
    lengths = [len(arrays[index]) for index in (0, 4, 5, 6, 7, 8, 9, 10, 11, 12)]
    layout, size = _array_layout(lengths)
    if not evict(path.parent, max_bytes - size) or shutil.disk_usage(path.parent).free < 2 * size:
        return
    with replace_file(path, private=True) as temporary, temporary.open("wb") as stream:
        stream.write(HEADER.pack(MAGIC, *lengths, graph.weighted, _checksum(lengths, graph.weighted, arrays)))
        for (_, _, offset), array in zip(layout, arrays, strict=True):
            stream.seek(offset)
            stream.write(_bytes(array))


def load(path: Path, check: bool = True) -> Graph | None:
    """Map a cached graph into memory, or return None if it is absent or damaged.

    Without `check`, only its length is verified.
    """
    try:
        with path.open("rb") as stream:
            # With copy on write, the arrays are writable like those of any graph, and the file is not changed.
            whole = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
        magic, *lengths, weighted, checksum = HEADER.unpack_from(whole)
    except (OSError, ValueError, struct.error):
        return None
    layout, size = _array_layout(lengths)
    if magic != MAGIC or len(whole) != size:
        return None
    arrays: list[Array] = [np.frombuffer(whole, dtype, count, offset) for dtype, count, offset in layout]
    if check and _checksum(lengths, weighted, arrays) != checksum:
        return None
    with suppress(OSError):  # the time of last use is set; the time of the last change is kept (see _stamp)
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
    try:
        graph = _graph_of(arrays, weighted)
        if check:
            _check_names_and_ids(graph)
    except (FocuseError, ValueError, IndexError, pa.ArrowException):  # invalid data may have a correct checksum
        return None
    return graph


def _graph_of(arrays: Sequence[Array], weighted: bool) -> Graph:
    weight, head, relation, tail, *names, values, column_ends, column_text, note_ends, note_text = arrays
    entities, relations = _vocabulary(*names[:2]), _vocabulary(*names[2:])
    column_names = tuple(_vocabulary(column_ends, column_text)) if len(column_ends) else ()
    columns = WeightColumns(column_names, values.reshape(len(weight), len(column_names))) if column_names else None
    notes = tuple(_vocabulary(note_ends, note_text)) if len(note_ends) else ()
    return Graph(head, relation, tail, weight, entities, relations, weighted=weighted, columns=columns, notes=notes)


def _check_names_and_ids(graph: Graph) -> None:
    """Raise an error if a name is not valid UTF-8 or an id is out of range."""
    for names, columns in ((graph.entities, (graph.head, graph.tail)), (graph.relations, (graph.relation,))):
        names.column.validate(full=True)
        if any(len(ids) and not 0 <= ids.min() <= ids.max() < len(names) for ids in columns):
            raise ValueError("an id is out of range")


def _array_layout(lengths: Sequence[int]) -> tuple[list[tuple[Any, int, int]], int]:
    """Return type, length and offset of each array of a file, and the file's size.

    `lengths` are the number of edges; the offsets and bytes of the entities' names, and of the relations'; the values
    of several weight columns and the offsets and bytes of their names; and those of the notes.
    """
    layout = []
    end = HEADER.size
    edge_columns = [(np.float64, lengths[0]), *[(np.int32, lengths[0])] * 3]
    strings = (np.int32, np.uint8)
    others = zip((*strings, *strings, np.float64, *strings, *strings), lengths[1:], strict=True)
    for dtype, count in (*edge_columns, *others):
        # Nothing is written for an empty array, so its offset must not be after the end of the file.
        offset = -(-end // ALIGNMENT) * ALIGNMENT if count else 0
        layout.append((dtype, count, offset))
        end = max(end, offset + count * np.dtype(dtype).itemsize)
    return layout, end


def _checksum(lengths: Sequence[int], weighted: bool, arrays: Iterable[Array]) -> int:
    total = zlib.crc32(repr((*lengths, weighted)).encode())
    for array in arrays:
        total = zlib.crc32(_bytes(array), total)
    return total


def _bytes(array: Array) -> memoryview:
    return np.ascontiguousarray(array).view(np.uint8).data


def _string_arrays(names: Vocabulary) -> tuple[Array, Array]:
    """Return the offsets of names [n + 1], and the bytes of all names."""
    column = names.column
    _, offsets, text = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return ends - ends[0], np.frombuffer(text, np.uint8)[ends[0] : ends[-1]]


def _vocabulary(ends: Array, text: Array) -> Vocabulary:
    if not len(ends) or ends[0] or ends[-1] != len(text) or (ends[1:] < ends[:-1]).any():
        raise ValueError("names overlap")  # such names would be read from outside of the file
    return Vocabulary(pa.StringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends), pa.py_buffer(text)))


# ---- the folder of cached graphs ------------------------------------------------------------------------------------


def evict(folder: Path, max_bytes: int) -> bool:
    """Delete stale files, and then the least recently used graphs until the others fit into `max_bytes`.

    Return whether the remaining graphs fit.
    """
    if max_bytes < 0:
        return False
    graphs = []
    now = time.time()
    max_age = {".part": ABANDONED_SECONDS, ".note": NOTE_SECONDS}
    for path in folder.iterdir():
        with suppress(OSError):  # another process may delete it at the same time
            status = path.stat()
            if path.suffix == ".graph":
                graphs.append((status.st_atime_ns, status.st_size, path))
            elif now - _last_change(path) > max_age.get(
                ".part" if path.name.startswith(".") else path.suffix, math.inf
            ):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
    total = sum(size for _, size, _ in graphs)
    for _, size, path in sorted(graphs):
        if total <= max_bytes:
            break
        with suppress(OSError):
            path.unlink()
            total -= size
    return total <= max_bytes


def _last_change(path: Path) -> float:
    """Return the time at which a file, or a folder or a file in it, was last written."""
    return max(float(entry.stat().st_mtime) for entry in (path, *(path.iterdir() if path.is_dir() else ())))
