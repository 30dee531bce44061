"""A cache of large files that were read before, as arrays that are memory-mapped.

The name of a cached graph is a hash of the file's path, size and times and of the options of reading it. Cached files
may be deleted at any time, a damaged one is written again, and no error in this module ever fails a read.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import platformdirs
import pyarrow as pa

from focuse import __version__
from focuse.data.graph import Graph, Vocabulary, WeightColumns
from focuse.errors import FocuseError
from focuse.storage.atomic import replace_file
from focuse.storage.tensors import check_tensors, map_arrays, read_header, write_arrays

EDGE_COLUMNS = ("head", "relation", "tail", "weight")
MAX_CACHE_BYTES = 5_000_000_000
BYTES_PER_EDGE = 20  # of a stored graph, without its names
# File times are coarse: a file that changed more recently than this might change again with the same time.
UNSETTLED_SECONDS = 2.0
ABANDONED_SECONDS = 86_400.0  # a half-written file that is older belongs to a killed process
LOAD_ERRORS = (OSError, ValueError, KeyError, TypeError, IndexError, FocuseError, pa.ArrowException)


def cache_folder() -> Path:
    """Return the folder of downloaded datasets and cached graphs: FOCUSE_CACHE, else the system's cache folder."""
    given = os.environ.get("FOCUSE_CACHE")
    return Path(os.path.expanduser(given)) if given else platformdirs.user_cache_path("focuse", appauthor=False)


def scratch_folder() -> Path | None:
    """Return the folder for columns of graphs larger than memory, or None for the system's temporary folder."""
    folder = cache_folder() / "graphs"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder if os.access(folder, os.W_OK) else None


def cached(path: Path, options: Sequence[object], read: Callable[[], Graph]) -> Graph:
    """Return the graph that `read` reads from the file at `path`, from the cache if it was read before.

    `options` are all inputs of `read` other than the file.
    """
    folder = None if os.environ.get("FOCUSE_GRAPH_CACHE") == "off" else scratch_folder()
    if folder is None:
        return read()
    key = _key(path, options)
    with suppress(*LOAD_ERRORS):
        return replace(load(folder / key), source=str(path))
    graph = read()
    with suppress(OSError, FocuseError):
        settled = time.time() - max(path.stat().st_mtime, path.stat().st_ctime) > UNSETTLED_SECONDS
        if settled and key == _key(path, options) and 0 < BYTES_PER_EDGE * len(graph) < MAX_CACHE_BYTES:
            store(graph, folder / key)
            evict(folder)
    return graph


def _key(path: Path, options: Sequence[object]) -> str:
    status = path.stat()
    stamp = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    state = repr((__version__, os.path.abspath(path), stamp, *options))
    return f"{hashlib.sha256(state.encode('utf-8', 'surrogateescape')).hexdigest()[:40]}.safetensors"


def store(graph: Graph, path: Path) -> None:
    """Write a graph to a file that only its owner can read, and that appears only when it is complete."""
    arrays: dict[str, npt.NDArray[Any]] = {
        name: getattr(graph, name) for name in ("head", "relation", "tail", "weight")
    }
    arrays |= {"entities": _packed(graph.entities), "relations": _packed(graph.relations)}
    details = {"weighted": graph.weighted, "notes": graph.notes, "columns": []}
    if graph.columns is not None:
        arrays["columns"], details["columns"] = graph.columns.values, graph.columns.names
    with replace_file(path, private=True) as temporary:
        write_arrays(temporary, arrays, {"details": json.dumps(details)}, sync=False)


def load(path: Path) -> Graph:
    """Map a stored graph into memory; raise one of LOAD_ERRORS if it is absent or damaged."""
    check_tensors(path, required=True)
    arrays, details = map_arrays(path), json.loads(read_header(path)[1]["details"])
    with suppress(OSError):
        os.utime(path)  # the least recently used graphs are evicted
    entities, relations = _unpacked(arrays["entities"]), _unpacked(arrays["relations"])
    head, relation, tail, weight = (arrays[name] for name in EDGE_COLUMNS)
    for ids, names in ((head, entities), (relation, relations), (tail, entities)):
        if len(ids) and not 0 <= ids.min() <= ids.max() < len(names):
            raise ValueError("an id is out of range")
    columns = WeightColumns(tuple(details["columns"]), arrays["columns"]) if details["columns"] else None
    weighted, notes = details["weighted"], tuple(details["notes"])
    return Graph(head, relation, tail, weight, entities, relations, weighted=weighted, columns=columns, notes=notes)


def _packed(names: Vocabulary) -> npt.NDArray[np.int64]:
    """Return names as an Arrow stream, whose length is a multiple of 8 bytes."""
    table, sink = pa.table({"name": names.column}), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return np.frombuffer(sink.getvalue(), np.int64)


def _unpacked(packed: npt.NDArray[np.int64]) -> Vocabulary:
    column = pa.ipc.open_stream(pa.py_buffer(packed)).read_all()["name"].combine_chunks()
    column.validate(full=True)
    return Vocabulary(column)


def evict(folder: Path) -> None:
    """Delete files that killed processes left, and the least recently used graphs if all take too much space."""
    total = 0
    for path in sorted(folder.iterdir(), key=lambda path: -path.stat().st_mtime):
        status = path.stat()
        if not path.name.startswith("."):
            total += status.st_size
            if total > MAX_CACHE_BYTES:
                path.unlink()
        elif time.time() - status.st_mtime > ABANDONED_SECONDS:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
