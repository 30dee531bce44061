"""Storage of embedding tables in a run folder: whole, written by several processes, or in partitions on disk.

A finished run always has one file of whole tables, so that any number of processes can load it.
"""

from __future__ import annotations

import json
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from focuse.config import Config
from focuse.data.graph import Graph
from focuse.engines.process_group import ProcessGroup
from focuse.errors import FocuseError, counted
from focuse.models.base import Model
from focuse.models.registry import MODELS
from focuse.storage.atomic import fsync_path, replace_file
from focuse.storage.metadata import with_inverse_rows
from focuse.storage.old_names import OLD_TENSOR_PREFIXES
from focuse.storage.partition_files import MANIFEST, PartitionFiles, reading_partition
from focuse.storage.tensors import (
    Array,
    ArraySpec,
    DamagedError,
    Tables,
    TensorFile,
    check_tensors,
    has_checksums,
    map_arrays,
    read_tensors,
    reading,
    write_tensors,
    writing,
)

MODEL, NEWEST, PREVIOUS = "model.safetensors", "checkpoint.safetensors", "checkpoint.previous.safetensors"
PARTITIONS = "partitions"
ONE_PROCESS = ProcessGroup(0, 1, torch.device("cpu"))


@dataclass
class Progress:
    """The progress of training: complete epochs, complete batches of the next epoch, and their loss so far."""

    epoch: int = 0
    batch: int = 0
    loss: float = 0.0
    best_value: float = float("-inf")
    best_epoch: int = 0
    checks_since_best: int = 0
    finished: str = ""

    def __str__(self) -> str:
        """Return a text like '3 epochs and 1 batch'."""
        return f"{counted(self.epoch, 'epochs')} and {counted(self.batch, 'batches')}"


@dataclass
class Checkpoint:
    """The complete state of training, from which it continues as if it had not been interrupted."""

    progress: Progress
    tables: Tables
    optimizer: Tables
    best: Tables | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    pool: Tables = field(default_factory=dict)

    def final(self) -> Tables:
        """Return the tables for prediction: the best by validation, or the last if there was no validation."""
        return self.best or self.tables


def check_tables(
    tables: Tables, settings: Config, model: Model, train: Graph, folder: Path, rows: slice = slice(None)
) -> None:
    """Raise FocuseError unless tables with these `rows` of entities fit the settings and the graph of their run."""
    width, relation_width = model.widths(settings.dim)
    parameters = model.init_parameters(settings.dim, torch.Generator())
    expected = {
        "entity": (len(range(len(train.entities))[rows]), width),
        "relation": (len(train.relations) * (2 if settings.reciprocal else 1), relation_width),
        **{name: tuple(value.shape) for name, value in parameters.items()},
    }
    for name, shape in expected.items():
        actual = tuple(tables[name].shape) if name in tables else None
        if actual != shape:
            fault = "damaged run" if settings.model in MODELS else f"damaged run, or not of {settings.model}"
            raise FocuseError(f"{folder}: {fault}: table {name!r} is {actual} instead of {shape}")


class TableStorage(ABC):
    """The strategy by which a run folder writes and reads checkpoints and final tables; the folder sets `path`."""

    path: Path
    group = ONE_PROCESS

    def rows(self, entities: int) -> slice:
        """Return the rows of the entity table that this process reads and writes."""
        return slice(None)

    @abstractmethod
    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint."""

    @abstractmethod
    def load(self, device: str, note: Callable[[str], None] | None) -> Checkpoint | None:
        """Return the newest checkpoint without its history, or None if there is none.

        With `note`, a damaged checkpoint is replaced by the previous one and reported to `note`.
        """

    @abstractmethod
    def write_model(self, checkpoint: Checkpoint) -> None:
        """Write the tables for prediction."""

    def read_model(self, device: str) -> Tables:
        """Return the tables for prediction of a finished run."""
        advice = "put a copy of it back, or train again"
        if (self.path / NEWEST).exists():
            advice = "remove it, the checkpoint has the same tables"
        elif (self.path / PARTITIONS / MANIFEST).exists():
            advice = "remove it and use --resume, which writes it again from its partitions"
        return with_inverse_rows(self.path, self._read(self.path / MODEL, device, advice)[0])

    def _read(self, path: Path, device: str, advice: str) -> tuple[Tables, dict[str, str]]:
        return read_tensors(path, device, advice)

    def clean_up(self) -> None:  # noqa: B027 - most storages have nothing to remove
        """Remove files that a finished run does not need."""


def make_table_storage(engine: str, group: ProcessGroup = ONE_PROCESS) -> TableStorage:
    """Return the storage of tables that an engine trains."""
    if engine.startswith("sharded"):
        return ShardedTables(group)
    return PartitionedTables() if engine == "partitioned" else WholeTables()


def last_epoch(path: Path) -> int:
    """Return the last epoch of a finished run from its checkpoint or manifest; 0 if unfinished or neither exists."""
    newest, manifest = path / NEWEST, path / PARTITIONS / MANIFEST
    with suppress(OSError, SafetensorError, KeyError, TypeError, ValueError):
        if newest.exists() or not manifest.exists():
            with safe_open(newest, framework="pt") as file:
                progress = Progress(**json.loads(file.metadata()["progress"]))
        else:
            progress = Progress(**json.loads(manifest.read_text(encoding="utf-8"))["progress"])
        return int(progress.epoch) if progress.finished else 0
    return 0


class WholeTables(TableStorage):
    """A storage of whole tables, written by one process; the checkpoint before the newest is kept."""

    def save(self, checkpoint: Checkpoint) -> None:
        tensors = _join_parts(
            table=checkpoint.tables, optimizer=checkpoint.optimizer, best=checkpoint.best or {}, pool=checkpoint.pool
        )
        progress = {"progress": json.dumps(asdict(checkpoint.progress))}
        self._write(self.path / NEWEST, tensors, progress, self.path / PREVIOUS)

    def load(self, device: str, note: Callable[[str], None] | None) -> Checkpoint | None:
        newest, previous = self.path / NEWEST, self.path / PREVIOUS
        if not newest.exists():  # a process was killed while it replaced the newest one
            return self.load_file(previous, device, self._advice()) if previous.exists() else None
        if not previous.exists():
            return self.load_file(newest, device, self._advice())
        try:
            return self.load_file(newest, device)
        except DamagedError as error:
            if note is None:
                command = f"focuse train --resume {shlex.quote(str(self.path))}"
                raise DamagedError(f"{error}; continue from the previous one with: {command}") from None
            checkpoint = self.load_file(previous, device, self._advice())
            note(f"{error}; continuing from the previous one, of epoch {checkpoint.progress.epoch}")
            self.group.run_on_main(self._use_previous)
            return checkpoint

    def _use_previous(self) -> None:
        with writing(self.path / NEWEST):
            (self.path / PREVIOUS).replace(self.path / NEWEST)

    def _advice(self) -> str:
        """Return the advice for a run without an undamaged checkpoint."""
        if (self.path / MODEL).exists():
            return "the run still predicts; to train on, put a copy back, or start from its embeddings (--init-from)"
        if (self.path / "extended.json").exists():
            return "put a copy of it back, or extend again"
        return "put a copy of it back, or remove it and train again from the start with --resume"

    def load_file(self, path: Path, device: str, advice: str = "") -> Checkpoint:
        """Return the checkpoint in a file."""
        tensors, metadata = self._read(path, device, advice)
        with reading(path, advice):
            progress = Progress(**json.loads(metadata["progress"]))
            tensors = with_inverse_rows(self.path, tensors)
            parts = _split_parts(tensors, "table", "optimizer", "best", "pool")
            if not {"entity", "relation"} <= set(parts["table"]):
                raise ValueError("it has no tables")
        return Checkpoint(progress, parts["table"], parts["optimizer"], parts["best"] or None, [], parts["pool"])

    def write_model(self, checkpoint: Checkpoint) -> None:
        self._write(self.path / MODEL, checkpoint.final(), {})

    def clean_up(self) -> None:
        (self.path / PREVIOUS).unlink(missing_ok=True)  # the model holds the tables

    def _write(self, path: Path, tensors: Tables, metadata: dict[str, str], keep: Path | None = None) -> None:
        write_tensors(path, tensors, metadata, keep)


def _join_parts(**parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors of several parts in one dictionary, with the keys 'part/name'."""
    return {f"{part}/{name}": value for part, values in parts.items() for name, value in values.items()}


def _split_parts(tensors: Mapping[str, Any], *names: str) -> dict[str, dict[str, Any]]:
    """Return one dictionary of tensors per part (the inverse of `_join_parts`); raise KeyError for unknown parts."""
    parts: dict[str, dict[str, Any]] = {name: {} for name in names}
    for key, value in tensors.items():
        part, _, name = key.partition("/")
        parts[OLD_TENSOR_PREFIXES.get(part, part)][name] = value
    return parts


# ---- several processes --------------------------------------------------------------------------------------------


class ShardedTables(WholeTables):
    """A storage of whole tables in files to which every process writes its own rows of entities.

    All processes must have access to the folder. The main process writes all other tables.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group

    def rows(self, entities: int) -> slice:
        return self.group.shard(entities)

    def _read(self, path: Path, device: str, advice: str) -> tuple[Tables, dict[str, str]]:
        """Read this process's rows of entities and all other tensors; the main process verifies the checksum."""

        def check() -> None:
            with reading(path, advice):
                check_tensors(path, has_checksums(path.parent))

        self.group.run_on_main(check)
        with reading(path, advice), safe_open(path, framework="pt", device="cpu") as file:
            return {key: self._read_tensor(file, key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118

    def _read_tensor(self, file: Any, key: str) -> torch.Tensor:
        rows = file.get_slice(key)
        tensor: torch.Tensor = rows[self.rows(rows.get_shape()[0])] if _is_sharded(key) else file.get_tensor(key)
        return tensor.clone()

    def _write(self, path: Path, tensors: Tables, metadata: dict[str, str], keep: Path | None = None) -> None:
        """Write a file together: the main process creates it, all write their rows, and it replaces the old file."""
        group = self.group
        order = sorted(tensors, key=lambda key: (not _is_sharded(key), -tensors[key].element_size(), key))
        arrays = {key: tensors[key].detach().cpu().numpy() for key in order}
        counts = torch.tensor([len(arrays[key]) for key in order if _is_sharded(key)], device=group.device)
        lengths = iter(group.all_reduce(counts).tolist())
        specs = {
            key: ArraySpec(array.dtype, (next(lengths), *array.shape[1:]) if _is_sharded(key) else array.shape)
            for key, array in arrays.items()
        }
        with ExitStack() as replacement:

            def create() -> Path:
                with writing(path):
                    temporary = replacement.enter_context(replace_file(path, durable=True, keep=keep))
                    TensorFile(temporary, specs, metadata).create(allocate=True)
                return temporary

            def complete() -> None:
                with writing(path):
                    file.seal(sync=False)
                    replacement.close()

            file = TensorFile(group.run_on_main(create), specs, metadata)
            self._write_shard(path, file, arrays)
            group.run_on_main(complete)

    def _write_shard(self, path: Path, file: TensorFile, arrays: Mapping[str, Array]) -> None:
        """Write this process's rows; if one process fails, all of them raise an error."""
        failure = ""
        try:
            with file.open():
                for key, array in arrays.items():
                    if _is_sharded(key):
                        file.write(key, array, self.rows(file.specs[key].shape[0]).start)
                    elif self.group.is_main:
                        file.write(key, array)
            fsync_path(file.path)
        except OSError as error:
            failure = error.strerror or str(error)
        if self.group.any_rank(bool(failure)):
            reason = failure or "another process failed and reports why"
            raise FocuseError(f"{path}: cannot be written: {reason}; free some space, then go on with --resume")


def _is_sharded(key: str) -> bool:
    """Return whether the tensor of a key such as 'table/entity' or 'optimizer/entity.sum' has rows of entities."""
    return key.rpartition("/")[2].partition(".")[0] == "entity"


# ---- partitions ---------------------------------------------------------------------------------------------------


class PartitionedTables(TableStorage):
    """A storage that keeps the entity table in partitions on disk while it is trained.

    A checkpoint consists of a manifest, which lists the versions of partitions that belong together, and a file of the
    tables that all partitions share. A `Checkpoint` holds the shared tables only; all partitions must be on disk when
    it is saved.
    """

    @cached_property
    def files(self) -> PartitionFiles:
        """The files of the partitions."""
        return PartitionFiles(self.path / PARTITIONS)

    def save(self, checkpoint: Checkpoint) -> None:
        self.files.save(asdict(checkpoint.progress), shared_arrays(checkpoint))

    def load(self, device: str, note: Callable[[str], None] | None) -> Checkpoint | None:
        manifest = self.files.open()
        if manifest is None:
            return None
        with reading_partition(self.files.folder / MANIFEST):
            progress = Progress(**manifest.progress)
            tensors = {key: torch.from_numpy(values) for key, values in self.files.read_shared().items()}
            parts = _split_parts(with_inverse_rows(self.path, tensors), "table", "optimizer")
        return Checkpoint(progress, parts["table"], parts["optimizer"])

    def write_model(self, checkpoint: Checkpoint) -> None:
        """Write one file of whole tables, in chunks of rows."""
        versions, shared = self.files.best
        others = {name: values.numpy() for name, values in checkpoint.tables.items()}
        if versions:
            others = _split_parts(self.files.read_shared(shared), "table", "optimizer")["table"]
        path = self.path / MODEL
        with writing(path), replace_file(path) as temporary:
            self.files.write_whole(temporary, versions or self.files.current, others)

    def map_model(self) -> Tables:
        """Return the final tables, memory-mapped."""
        with reading(self.path / MODEL) as path:
            return {name: torch.from_numpy(values) for name, values in map_arrays(path).items()}


def shared_arrays(checkpoint: Checkpoint) -> dict[str, Array]:
    """Return the tables and the optimizer state that all partitions share, with the keys 'part/name'."""
    tensors = _join_parts(table=checkpoint.tables, optimizer=checkpoint.optimizer)
    return {name: np.ascontiguousarray(value.detach().numpy()) for name, value in tensors.items()}
