"""The graph and edges of a training in files that all processes of one machine share.

All processes map the same file, which is unlinked after it was opened, so there is one copy per machine, in the page
cache. The first process of the machine writes it to the scratch folder of the cache, or to the temporary folder.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.config import Config
from focuse.data.graph import Graph
from focuse.data.out_of_core import scratch_folder
from focuse.data.splits import Splits
from focuse.data.triple_index import TripleIndex
from focuse.data.weights import Normalizer
from focuse.engines.partitioned import COLUMNS, PackedEdges
from focuse.engines.process_group import PEER_LOST, current_group, is_peer_lost
from focuse.errors import FocuseError
from focuse.objective.focuse import SoftLabels
from focuse.objective.negatives import Batch
from focuse.storage.metadata import read_metadata, write_metadata
from focuse.system import chunks
from focuse.training.problem import TrainingTriples, TripleSource

PreparedData = tuple[Config, Splits, Normalizer]
CHUNK = 1 << 20  # edges written at a time
Array = npt.NDArray[Any]


def prepare_once_per_machine(prepare: Callable[[], PreparedData]) -> PreparedData:
    """Return the result of `prepare`, which only the first process of each machine calls; the others map its files.

    So a graph is read and split once per machine, and each process keeps in memory only the pages that it uses.
    """
    group, folder, failure = current_group(), "", ""
    try:
        if group.is_local_main:
            try:
                made = prepare()  # before the folder is created, because an old folder is removed as abandoned
                folder = tempfile.mkdtemp(suffix=".part", prefix=".", dir=scratch_folder())
                write_metadata(Path(folder), *made)
            except FocuseError as error:
                failure = str(error)
            except OSError as error:
                failure = _disk_full_message(error)
        where, failure = group.broadcast_on_host((folder, failure))
        if group.any_rank(bool(failure)):
            raise FocuseError(failure or "preparing the training failed on another machine; see its error message")
        found = read_metadata(Path(where), trusted=True)
        group.barrier()
    except RuntimeError as error:
        if is_peer_lost(error):  # a process waits here for another one for the first time
            raise FocuseError(PEER_LOST) from None
        raise
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    return found


def _disk_full_message(error: OSError) -> str:
    where = scratch_folder() or tempfile.gettempdir()
    return f"{where}: cannot write the training edges: {error.strerror or error}; set FOCUSE_CACHE to another folder"


class TriplesInSharedMemory(TripleSource):
    """A source that keeps the training triples in a file that all processes of a machine share."""

    def load(self, triples: TrainingTriples, labels: SoftLabels | None, device: str) -> SharedEdges:
        return SharedEdges(triples, labels, device)

    def index(self, train: Graph, device: str) -> TripleIndex:
        return SharedTripleIndex(train)


def shared_array(dtype: Any, shape: tuple[int, ...], fill: Callable[[Array], None]) -> Array:
    """Return an array that all processes of this machine share; the first process fills it. All must make this call."""
    group, path, failure = current_group(), "", ""
    if group.is_local_main:
        try:
            path = _write_array_file(np.dtype(dtype), shape, fill)
        except OSError as error:
            failure = _disk_full_message(error)
    path, failure = group.broadcast_on_host((path, failure))
    if group.any_rank(bool(failure)):
        raise FocuseError(failure or "the training edges cannot be written on another machine; see its error message")
    found: Array = np.asarray(np.memmap(path, dtype, "r+", shape=shape)) if math.prod(shape) else np.empty(shape, dtype)
    group.barrier()  # all processes have opened the file, so it can be unlinked
    if group.is_local_main:
        with suppress(OSError):  # fails on Windows, where a later run removes the file
            Path(path).unlink()
    return found


def _write_array_file(dtype: np.dtype[Any], shape: tuple[int, ...], fill: Callable[[Array], None]) -> str:
    """Write an array to a new file and return its path."""
    number, path = tempfile.mkstemp(suffix=".part", prefix=".", dir=scratch_folder())
    try:
        with os.fdopen(number, "r+b") as file:
            size = math.prod(shape) * dtype.itemsize
            file.truncate(size)
            if size and hasattr(os, "posix_fallocate"):  # raises an error if the disk is full, instead of SIGBUS later
                os.posix_fallocate(file.fileno(), 0, size)
            if size:
                fill(np.asarray(np.memmap(file, dtype, "r+", shape=shape)))
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise
    return path


class SharedEdges(PackedEdges):
    """Training triples in a file that the processes of a machine share, 16 bytes each; batches are on `device`."""

    def __init__(self, rows: TrainingTriples, label: SoftLabels | None, device: torch.device | str) -> None:
        super().__init__(shared_array(np.int32, (len(rows), COLUMNS), rows.pack), label)
        self.device = device

    def take(self, rows: Tensor) -> Batch:
        """Return the triples at `rows`, int64 [B]."""
        batch = super().take(rows)
        return Batch(*(part.to(self.device) for part in (batch.head, batch.relation, batch.tail, batch.weight)))

    def first(self, count: int) -> Batch:
        """Return the first `count` triples in memory."""
        return self.take(torch.arange(count))


class SharedTripleIndex(TripleIndex):
    """An index of known triples as sorted keys in a file that the processes of a machine share, 8 bytes each."""

    def __init__(self, graph: Graph) -> None:
        self.entities, self.relations = len(graph.entities), len(graph.relations)

        def fill(keys: Array) -> None:
            for piece in chunks(len(graph), CHUNK):
                keys[piece] = graph.keys_of(graph.head[piece], graph.relation[piece], graph.tail[piece])
            keys.sort()

        self.keys = {"tail": torch.from_numpy(shared_array(np.int64, (len(graph),), fill))}
