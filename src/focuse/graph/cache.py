"""Graphs that were read before, kept as arrays that map into memory.

A kept graph is named after what was read: the bytes of its file, how they were to be read, and the version of focuse.
A small note beside it says which state of a file (size, times, inode) had those bytes, so that an unchanged file need
not be hashed again. All of it may be deleted at any time, and nothing that goes wrong here ever fails a reading.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import shutil
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from focuse import __version__
from focuse.errors import FocuseError
from focuse.graph.columns import Columns
from focuse.graph.graph import Graph
from focuse.graph.vocabulary import Vocabulary

FORMAT = 3  # one more whenever the layout of kept files changes, or what reading makes of the same bytes
GIGABYTES = 2.0  # kept at most, unless FOCUSE_GRAPH_CACHE says otherwise
CHUNK_BYTES = 1 << 22  # hashed at a time by each thread
# File times are coarse: a file changed so shortly ago might change again without showing it.
UNSETTLED_NS = 2_000_000_000
ABANDONED = 600.0  # seconds: no living process leaves its half-written file untouched for so long
NOTES_KEPT = 30 * 86_400.0  # seconds: without its note a file is hashed once more
HEADER = struct.Struct("<8s10Q?7xQ")
MAGIC = b"focuseG\x03"
ALIGNMENT = 64

Array = npt.NDArray[Any]


def cache_folder() -> Path:
    """Where fetched data sets and graphs are kept: FOCUSE_CACHE, else the system's place for such things."""
    if given := os.environ.get("FOCUSE_CACHE"):
        return Path(os.path.expanduser(given))
    try:
        if sys.platform == "win32":
            local = os.environ.get("LOCALAPPDATA")
            return (Path(local) if local else Path.home() / "AppData" / "Local") / "focuse" / "Cache"
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "focuse"
        given = os.environ.get("XDG_CACHE_HOME", "")
        return (Path(given) if os.path.isabs(given) else Path.home() / ".cache") / "focuse"
    except RuntimeError:
        raise FocuseError("no home folder to keep data sets in; name one with FOCUSE_CACHE") from None


def most_bytes() -> int:
    """How much may be kept: FOCUSE_GRAPH_CACHE in gigabytes; 0 when it is 'off'."""
    given = os.environ.get("FOCUSE_GRAPH_CACHE", "").strip().lower()
    if given in ("off", "no", "false"):
        return 0
    try:
        gigabytes = float(given) if given else GIGABYTES
        return max(0, int(gigabytes * 1e9))
    except (ValueError, OverflowError):
        raise FocuseError(
            f"FOCUSE_GRAPH_CACHE is {given!r}; set it to off or to the gigabytes that kept graphs may take"
        ) from None


def remember(path: Path, options: Iterable[object], read: Callable[[], Graph]) -> Graph:
    """What `read` makes of the file at `path`, or the same kept from an earlier time.

    `options` are all that `read` depends on besides the file's bytes.
    """
    most = most_bytes()
    folder = _folder() if most else None
    if folder is None:
        return read()
    asked = repr((FORMAT, __version__, *options))
    try:
        file = File.look(path)
        note = folder / f"{_name(asked, os.path.abspath(path), *file.state)}.note"
        graph = _by_note(note, file)
        if graph is None:
            key = _name(asked, content_hash(path))
            graph = _by_key(key, note, file)
    except OSError:
        return read()
    if graph is not None:
        return replace(graph, source=str(path))
    graph = read()
    with suppress(OSError):
        # Of a file that changed since it was hashed nobody knows which bytes were read.
        if len(graph) and file.is_unchanged() and (file.settled or key == _name(asked, content_hash(path))):
            keep(graph, folder / f"{key}.graph", most)
            _take_note(note, key, file)
    return graph


def scratch_folder() -> Path | None:
    """Where columns of a graph lie that is larger than memory; None for the system's place for temporary files."""
    folder = _folder()
    return folder if folder is not None and os.access(folder, os.W_OK) else None


def _folder() -> Path | None:
    """The folder of kept graphs, if there is one or one can be made."""
    try:
        folder = cache_folder() / "graphs"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, FocuseError):
        return None
    return folder


def _name(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()[:40]


# ---- which bytes a file holds -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class File:
    """A file as it is now: `state` changes whenever its bytes do, which is certain only of a `settled` one."""

    path: Path
    state: tuple[int, ...]
    settled: bool

    @classmethod
    def look(cls, path: Path) -> File:
        now = time.time_ns()
        found = os.stat(path)
        state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        # On Windows the second time is that of creation: a change with the old time put back would go unseen.
        settled = max(found.st_mtime_ns, found.st_ctime_ns) + UNSETTLED_NS < now and sys.platform != "win32"
        return cls(path, state, settled)

    def is_unchanged(self) -> bool:
        return File.look(self.path).state == self.state


def content_hash(path: Path) -> str:
    """SHA-256 over the SHA-256 of each chunk: as strong as one of the whole, but on all cores."""

    def chunk(start: int) -> bytes:
        with path.open("rb") as file:
            file.seek(start)
            return hashlib.sha256(file.read(CHUNK_BYTES)).digest()

    size = path.stat().st_size
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as pool:
        parts = pool.map(chunk, range(0, size, CHUNK_BYTES))
        return hashlib.sha256(size.to_bytes(8, "little") + b"".join(parts)).hexdigest()


# ---- notes: a state of a file and the graph that its bytes are ----------------------------------------------------


def _by_note(note: Path, file: File) -> Graph | None:
    """The graph that a note speaks of. If it is as it was when the note was taken, only its length is looked at."""
    try:
        key, *stamp = note.read_text(encoding="ascii").split()
        kept = note.with_name(f"{key}.graph")
        checked = tuple(map(int, stamp)) == _stamp(kept)
    except (OSError, ValueError):
        return None
    return load(kept, check=False) if checked else _by_key(key, note, file)


def _by_key(key: str, note: Path, file: File) -> Graph | None:
    graph = load(note.with_name(f"{key}.graph"))
    if graph is not None:
        _take_note(note, key, file)
    return graph


def _take_note(note: Path, key: str, file: File) -> None:
    """Write down that the file has the bytes of a kept graph, which was just written or checked whole."""
    if file.settled:
        with suppress(OSError):
            stamp = _stamp(note.with_name(f"{key}.graph"))
            with _replacing(note) as stream:
                stream.write(" ".join([key, *map(str, stamp)]).encode())


def _stamp(kept: Path) -> tuple[int, int, int]:
    found = kept.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


# ---- kept graphs: a header, then arrays that begin at multiples of ALIGNMENT --------------------------------------


def keep(graph: Graph, kept: Path, most: int) -> None:
    """Write a graph to the file `kept`, whole or not at all; others make room for it, `most` bytes are for all."""
    names = (*_arrays(graph.entities), *_arrays(graph.relations))
    columns = graph.columns
    values = np.empty(0) if columns is None else columns.values.ravel()
    nothing = np.empty(0, np.int32), np.empty(0, np.uint8)
    headings = nothing if columns is None else _arrays(Vocabulary(columns.names))
    notes = _arrays(Vocabulary(graph.notes)) if graph.notes else nothing
    arrays: list[Array] = [graph.weight, graph.head, graph.relation, graph.tail, *names, values, *headings, *notes]
    lengths = [len(arrays[place]) for place in (0, 4, 5, 6, 7, 8, 9, 10, 11, 12)]
    places, size = _layout(lengths)
    if not make_room(kept.parent, most - size) or shutil.disk_usage(kept.parent).free < 2 * size:
        return
    with _replacing(kept) as stream:
        stream.write(HEADER.pack(MAGIC, *lengths, graph.weighted, _checksum(lengths, graph.weighted, arrays)))
        for (_, _, place), array in zip(places, arrays, strict=True):
            stream.seek(place)
            stream.write(_bytes(array))


def load(kept: Path, check: bool = True) -> Graph | None:
    """A kept graph, mapped; None if there is none or it is damaged. Without `check` only its length is looked at."""
    try:
        with kept.open("rb") as stream:
            # Copy on write: like those of any graph the arrays may be written to, and the file stays as it is.
            whole = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
        magic, *lengths, weighted, checksum = HEADER.unpack_from(whole)
    except (OSError, ValueError, struct.error):
        return None
    places, size = _layout(lengths)
    if magic != MAGIC or len(whole) != size:
        return None
    arrays: list[Array] = [np.frombuffer(whole, kind, count, place) for kind, count, place in places]
    if check and _checksum(lengths, weighted, arrays) != checksum:
        return None
    with suppress(OSError):  # says when it was last used; the time of the last change stays (see _stamp)
        os.utime(kept, ns=(time.time_ns(), kept.stat().st_mtime_ns))
    try:
        graph = _graph(arrays, weighted)
        if check:
            _check(graph)
    except (FocuseError, ValueError, IndexError, pa.ArrowException):  # a checksum can be right of what makes no sense
        return None
    return graph


def _graph(arrays: Sequence[Array], weighted: bool) -> Graph:
    weight, head, relation, tail, *names, values, ends, letters, note_ends, note_letters = arrays
    entities, relations = _vocabulary(*names[:2]), _vocabulary(*names[2:])
    headings = tuple(_vocabulary(ends, letters)) if len(ends) else ()
    columns = Columns(headings, values.reshape(len(weight), len(headings))) if headings else None
    notes = tuple(_vocabulary(note_ends, note_letters)) if len(note_ends) else ()
    return Graph(head, relation, tail, weight, entities, relations, weighted=weighted, columns=columns, notes=notes)


def _check(graph: Graph) -> None:
    """Raise where names are no text, or an id is that of none."""
    for names, ids in ((graph.entities, (graph.head, graph.tail)), (graph.relations, (graph.relation,))):
        names.column.validate(full=True)
        if any(len(each) and not 0 <= each.min() <= each.max() < len(names) for each in ids):
            raise ValueError("an id that is none")


def _layout(lengths: Sequence[int]) -> tuple[list[tuple[Any, int, int]], int]:
    """Kind, length and place of each array of a file, and the file's size.

    `lengths` are those of the columns, of the entities' offsets and letters, of the relations', and of several
    weights: their values, and the offsets and letters of their names; then those of notes.
    """
    places = []
    end = HEADER.size
    columns = [(np.float64, lengths[0]), *[(np.int32, lengths[0])] * 3]
    texts = (np.int32, np.uint8)
    names = zip((*texts, *texts, np.float64, *texts, *texts), lengths[1:], strict=True)
    for kind, count in (*columns, *names):
        # Nothing is written for an empty one, so it must not reach behind the end.
        start = -(-end // ALIGNMENT) * ALIGNMENT if count else 0
        places.append((kind, count, start))
        end = max(end, start + count * np.dtype(kind).itemsize)
    return places, end


def _checksum(lengths: Sequence[int], weighted: bool, arrays: Iterable[Array]) -> int:
    total = zlib.crc32(repr((*lengths, weighted)).encode())
    for array in arrays:
        total = zlib.crc32(_bytes(array), total)
    return total


def _bytes(array: Array) -> memoryview:
    return np.ascontiguousarray(array).view(np.uint8).data


def _arrays(names: Vocabulary) -> tuple[Array, Array]:
    """Where each name begins and ends [n + 1], and the letters of all."""
    column = names.column
    _, offsets, letters = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return ends - ends[0], np.frombuffer(letters, np.uint8)[ends[0] : ends[-1]]


def _vocabulary(ends: Array, letters: Array) -> Vocabulary:
    if not len(ends) or ends[0] or ends[-1] != len(letters) or (ends[1:] < ends[:-1]).any():
        raise ValueError("names that overlap")  # else they would be read from outside of the file
    return Vocabulary(pa.StringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends), pa.py_buffer(letters)))


# ---- the folder ---------------------------------------------------------------------------------------------------


def make_room(folder: Path, room: int) -> bool:
    """Remove the graphs that were not used for longest until the others fit into `room` bytes; and what is stale."""
    if room < 0:
        return False
    graphs = []
    now = time.time()
    patience = {".part": ABANDONED, ".note": NOTES_KEPT}
    for path in folder.iterdir():
        with suppress(OSError):  # another process may remove it just now
            found = path.stat()
            if path.suffix == ".graph":
                graphs.append((found.st_atime_ns, found.st_size, path))
            elif now - _touched(path) > patience.get(path.suffix, math.inf):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
    taken = sum(size for _, size, _ in graphs)
    for _, size, path in sorted(graphs):
        if taken <= room:
            break
        with suppress(OSError):
            path.unlink()
            taken -= size
    return taken <= room


def _touched(path: Path) -> float:
    """When a file was last written to, or a folder or one in it."""
    return max(float(each.stat().st_mtime) for each in (path, *(path.iterdir() if path.is_dir() else ())))


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file, readable by its owner alone, that takes the place of `path` when the block ends well."""
    number, temporary = tempfile.mkstemp(suffix=".part", prefix=".", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as stream:
            yield stream
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
