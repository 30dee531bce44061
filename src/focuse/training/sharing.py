"""A training's graph and edges, in memory or in what the processes of one machine share.

They share a file that has no name any more, mapped by all of them. Its pages are the system's, one copy a machine, and
make room for others where memory is short. The first process of the machine fills it, in the folder of kept graphs or
else in that for temporary files.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.engines.base import Batch
from focuse.engines.company import LOST, joined, lost
from focuse.engines.sharded import SHARDED
from focuse.errors import FocuseError
from focuse.evaluation.evaluate import ids_of, known_facts
from focuse.evaluation.known import Known
from focuse.focus import Label
from focuse.graph.arrays import chunks
from focuse.graph.cache import scratch_folder
from focuse.graph.graph import Graph
from focuse.graph.splits import Splits
from focuse.graph.weights import Normaliser
from focuse.training.columns import TrainingRows
from focuse.training.fixed import read_own, write_fixed
from focuse.training.partitions.edges import COLUMNS, StageEdges
from focuse.training.settings import Settings

Prepared = tuple[Settings, Splits, Normaliser]
CHUNK = 1 << 20  # edges written at a time
Array = npt.NDArray[Any]


def prepared_once(settings: Settings, prepare: Callable[[], Prepared]) -> Prepared:
    """What `prepare` makes. Of the sharded processes of a machine only the first does it; all map what it has written.

    So a graph is read, split and named once a machine, and each process holds of it what it looks at.
    """
    if settings.engine not in SHARDED:
        return prepare()
    company, folder, told = joined(), "", ""
    try:
        if company.first_here:
            try:
                made = prepare()  # before there is a folder: one that nobody touches for long is taken for abandoned
                folder = tempfile.mkdtemp(suffix=".part", prefix=".", dir=scratch_folder())
                write_fixed(Path(folder), *made)
            except FocuseError as error:
                told = str(error)
            except OSError as error:
                told = _no_room(error)
        where, said = company.here((folder, told))
        if company.agreed(bool(said)):
            raise FocuseError(said or "the training cannot be prepared on another machine; it says why")
        found = read_own(Path(where))
        company.wait()
    except RuntimeError as error:
        if lost(error):  # whoever waits for a process that is gone hears it here first
            raise FocuseError(LOST) from None
        raise
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    return found


def _no_room(error: OSError) -> str:
    where = scratch_folder() or tempfile.gettempdir()
    return f"{where}: no room for the training's edges: {error.strerror or error}; name a folder with FOCUSE_CACHE"


def data_of(settings: Settings, rows: TrainingRows, label: Label | None) -> Batch | SharedEdges:
    """What a trainer takes its batches from."""
    if settings.engine in SHARDED:
        return SharedEdges(rows, label, settings.device)
    data = as_batch(rows.graph, rows.weight, settings.device)
    return data if label is None else replace(data, weight=label(data.weight))


def as_batch(graph: Graph, weight: Array, device: str) -> Batch:
    """All edges as one big batch on the device, weights in [0, 1]."""
    columns = (*ids_of(graph), torch.from_numpy(weight.astype(np.float32, copy=False)))
    return Batch(*(column.to(device) for column in columns))


def known_of(settings: Settings, train: Graph) -> Known:
    """The facts that negatives are filtered by."""
    return SharedFacts(train) if settings.engine in SHARDED else known_facts([train], settings.device)


def shared_array(kind: Any, shape: tuple[int, ...], fill: Callable[[Array], None]) -> Array:
    """An array for all processes of this machine, which the first of them fills; every process calls it."""
    company, path, told = joined(), "", ""
    if company.first_here:
        try:
            path = _filled(np.dtype(kind), shape, fill)
        except OSError as error:
            told = _no_room(error)
    path, told = company.here((path, told))
    if company.agreed(bool(told)):
        raise FocuseError(told or "no room for the training's edges on another machine; it says where")
    found: Array = np.asarray(np.memmap(path, kind, "r+", shape=shape)) if math.prod(shape) else np.empty(shape, kind)
    company.wait()  # all have it open: nobody needs its name
    if company.first_here:
        with suppress(OSError):  # Windows keeps it; a later reading clears it away
            Path(path).unlink()
    return found


def _filled(kind: np.dtype[Any], shape: tuple[int, ...], fill: Callable[[Array], None]) -> str:
    """The path of a new file with an array."""
    number, path = tempfile.mkstemp(suffix=".part", prefix=".", dir=scratch_folder())
    try:
        with os.fdopen(number, "r+b") as file:
            size = math.prod(shape) * kind.itemsize
            file.truncate(size)
            if size and hasattr(os, "posix_fallocate"):  # a disk that is too small is told now, not by a signal
                os.posix_fallocate(file.fileno(), 0, size)
            if size:
                fill(np.asarray(np.memmap(file, kind, "r+", shape=shape)))
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise
    return path


class SharedEdges(StageEdges):
    """A training's rows, 16 bytes each in a file of the machine; batches come to `device`."""

    def __init__(self, rows: TrainingRows, label: Label | None, device: torch.device | str) -> None:
        super().__init__(shared_array(np.int32, (len(rows), COLUMNS), rows.pack), label)
        self.device = device

    def take(self, rows: Tensor) -> Batch:
        """The rows int64 [B] of it."""
        batch = super().take(rows)
        return Batch(*(part.to(self.device) for part in (batch.head, batch.relation, batch.tail, batch.weight)))

    def first(self, count: int) -> Batch:
        """The first rows of it, in memory."""
        return self.take(torch.arange(count))

    def weigh(self, weight: Tensor) -> None:
        """Other weights float [n], for all processes; each calls it."""
        company = joined()
        company.wait()
        if company.first_here:
            self.edges[:, 3] = weight.view(torch.int32)
        company.wait()


class SharedFacts(Known):
    """The facts of a graph as sorted keys in a file of the machine, 8 bytes each; they tell whether one is known."""

    def __init__(self, graph: Graph) -> None:
        self.entities, self.relations = len(graph.entities), len(graph.relations)

        def fill(keys: Array) -> None:
            for piece in chunks(len(graph), CHUNK):
                keys[piece] = graph.keys_of(graph.head[piece], graph.relation[piece], graph.tail[piece])
            keys.sort()

        self.by_side = {"tail": torch.from_numpy(shared_array(np.int64, (len(graph),), fill))}
