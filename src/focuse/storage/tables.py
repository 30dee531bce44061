"""Storage of embedding tables in a run folder: whole, written by several processes, or in partitions on disk.

A finished run always has one file of whole tables, so that any number of processes can load it. The folder
`partitions` of a training by partitions holds:

    manifest.json            the training progress, and the versions of all partitions that belong to it
    edges.safetensors        the training edges, sorted by (partition of the head, partition of the tail)
    part-7.12.safetensors    version 12 of partition 7: the embeddings and optimizer state of its rows
    shared-12.safetensors    relations, other parameters, and their optimizer state

A version is never changed. A new manifest replaces the old one as a whole, and only then are the files removed that it
does not list. Whenever a process dies, the files that the manifest on disk lists are complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open

from focuse.config import Config
from focuse.data.graph import Graph
from focuse.engines.process_group import ProcessGroup
from focuse.errors import FocuseError, counted
from focuse.models.base import Model
from focuse.storage.atomic import fsync_path, replace_file
from focuse.storage.metadata import upgrade_tensors
from focuse.storage.old_names import OLD_TENSOR_PREFIXES
from focuse.storage.tensors import (
    Array,
    ArraySpec,
    Tables,
    TensorFile,
    check_row,
    check_tensors,
    map_arrays,
    read_into,
    read_tensors,
    reading,
    reading_partition,
    seal_row,
    write_arrays,
    write_tensors,
    writing,
)
from focuse.system import chunks

MODEL, CHECKPOINT = "model.safetensors", "checkpoint.safetensors"
PREVIOUS_CHECKPOINT = "checkpoint.previous.safetensors"  # written by older versions
PARTITIONS, EDGES, MANIFEST = "partitions", "edges.safetensors", "manifest.json"
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
            fault = f"damaged run, or not of {settings.model}: table {name!r} is {actual} instead of {shape}"
            raise FocuseError(f"{folder}: {fault}")


def make_table_storage(engine: str, group: ProcessGroup = ONE_PROCESS) -> TableStorage:
    """Return the storage of tables that an engine trains."""
    if engine == "sharded":
        return ShardedTables(group)
    return PartitionedTables() if engine == "partitioned" else TableStorage()


class TableStorage:
    """A storage of whole tables that one process writes; the run folder sets its `path`.

    Subclasses store tables in other ways.
    """

    path: Path
    group = ONE_PROCESS

    def rows(self, entities: int) -> slice:
        """Return the rows of the entity table that this process reads and writes."""
        return slice(None)

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint."""
        tensors = _join_parts(
            table=checkpoint.tables, optimizer=checkpoint.optimizer, best=checkpoint.best or {}, pool=checkpoint.pool
        )
        self._write(self.path / CHECKPOINT, tensors, {"progress": json.dumps(asdict(checkpoint.progress))})
        (self.path / PREVIOUS_CHECKPOINT).unlink(missing_ok=True)

    def load(self, device: str) -> Checkpoint | None:
        """Return the checkpoint without its history, or None if there is none."""
        path = self.path / CHECKPOINT
        if not path.exists():
            path = self.path / PREVIOUS_CHECKPOINT  # older versions kept it, and could be killed between two renames
        if not path.exists():
            return None
        advice = "put a copy of it back, or remove it and resume, which trains from the start"
        if (self.path / MODEL).exists():
            advice = "the run still predicts; to train on, put a copy back, or start from its embeddings (init_from)"
        elif (self.path / "extended.json").exists():
            advice = "put a copy of it back, or extend again"
        tensors, metadata = self._read(path, device, advice)
        with reading(path, advice):
            progress = Progress(**json.loads(metadata["progress"]))
            parts = _split_parts(upgrade_tensors(self.path, tensors), "table", "optimizer", "best", "pool")
            if not {"entity", "relation"} <= set(parts["table"]):
                raise ValueError("it has no tables")
        return Checkpoint(progress, parts["table"], parts["optimizer"], parts["best"] or None, [], parts["pool"])

    def last_epoch(self) -> int:
        """Return the last epoch of a finished training; 0 if it is unfinished, or if there is no checkpoint."""
        checkpoint, manifest = self.path / CHECKPOINT, self.path / PARTITIONS / MANIFEST
        with suppress(OSError, SafetensorError, KeyError, TypeError, ValueError):
            if checkpoint.exists():
                with safe_open(checkpoint, framework="pt") as file:
                    found = json.loads(file.metadata()["progress"])
            else:
                found = json.loads(manifest.read_text(encoding="utf-8"))["progress"]
            progress = Progress(**found)
            return int(progress.epoch) if progress.finished else 0
        return 0

    def write_model(self, checkpoint: Checkpoint) -> None:
        """Write the tables for prediction."""
        self._write(self.path / MODEL, checkpoint.final(), {})

    def read_model(self, device: str) -> Tables:
        """Return the tables for prediction of a finished run."""
        advice = "put a copy of it back, or train again"
        if (self.path / CHECKPOINT).exists():
            advice = "remove it, the checkpoint has the same tables"
        elif (self.path / PARTITIONS / MANIFEST).exists():
            advice = "remove it and resume, which writes it again from its partitions"
        return upgrade_tensors(self.path, self._read(self.path / MODEL, device, advice)[0])

    def _read(self, path: Path, device: str, advice: str) -> tuple[Tables, dict[str, str]]:
        return read_tensors(path, device, advice)

    def _write(self, path: Path, tensors: Tables, metadata: dict[str, str]) -> None:
        write_tensors(path, tensors, metadata)


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


class ShardedTables(TableStorage):
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
                check_tensors(path)

        self.group.run_on_main(check)
        tensors: Tables = {}
        with reading(path, advice), safe_open(path, framework="pt", device="cpu") as file:
            for key in file.keys():  # noqa: SIM118
                rows = file.get_slice(key)
                mine = rows[self.rows(rows.get_shape()[0])] if _is_sharded(key) else file.get_tensor(key)
                tensors[key] = mine.clone()
            return tensors, file.metadata() or {}

    def _write(self, path: Path, tensors: Tables, metadata: dict[str, str]) -> None:
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
                    temporary = replacement.enter_context(replace_file(path, durable=True))
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
            raise FocuseError(f"{path}: cannot be written: {reason}; free some space, then resume the run")


def _is_sharded(key: str) -> bool:
    """Return whether the tensor of a key such as 'table/entity' or 'optimizer/entity.sum' has rows of entities."""
    return key.rpartition("/")[2].partition(".")[0] == "entity"


# ---- partitions ---------------------------------------------------------------------------------------------------


CHUNK_ROWS = 1 << 16  # rows of the entity table written at once
MANIFEST_FORMAT = 1
MIN_SYNC_BYTES = 1 << 26  # files of at least this size are flushed to the disk immediately


@dataclass
class Manifest:
    """The versions of partitions and shared tables that belong together, now and when validation was best."""

    progress: dict[str, Any] = field(default_factory=dict)
    versions: list[int] = field(default_factory=list)
    shared: int = 0
    best_versions: list[int] = field(default_factory=list)
    best_shared: int = 0
    format: int = MANIFEST_FORMAT

    def files(self) -> set[str]:
        """Return the names of the files of these versions."""
        names = {_shared_file(version) for version in (self.shared, self.best_shared) if version}
        for versions in (self.versions, self.best_versions):
            names |= {_part_file(part, version) for part, version in enumerate(versions)}
        return names


def _part_file(part: int, version: int) -> str:
    return f"part-{part}.{version}.safetensors"


def _shared_file(version: int) -> str:
    return f"shared-{version}.safetensors"


def by_partition(part: npt.NDArray[np.uint16]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield each partition in `part` [n] with the ascending positions of its entities."""
    order = np.argsort(part, kind="stable")
    sizes = np.bincount(part)
    ends = np.cumsum(sizes)
    for number in np.flatnonzero(sizes).tolist():
        yield number, order[ends[number] - sizes[number] : ends[number]]


class PartitionFiles:
    """The files of the partitions in one folder.

    `current` holds the newest version of each partition. `best` holds the versions with the best validation so far, and
    the version of the shared tables that belongs to them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: Manifest | None = None
        self.current: list[int] = []
        self.best: tuple[list[int], int] = [], 0
        self.newest = 0  # the highest version in use
        self.unsynced: set[str] = set()  # files that may not be on the disk yet
        self.read_bytes = self.written_bytes = self.loads = 0

    def open(self) -> Manifest | None:
        """Read the manifest, if there is one, verify its files, and remove files of other versions."""
        path = self.folder / MANIFEST
        if not path.exists():
            return None
        with reading_partition(path):
            manifest = Manifest(**check_row(json.loads(path.read_text(encoding="utf-8")), required=True))
            if manifest.format != MANIFEST_FORMAT or not all(isinstance(version, int) for version in manifest.versions):
                raise ValueError(f"format {manifest.format}, this focuse reads {MANIFEST_FORMAT}")
        for name in sorted(manifest.files() | {EDGES}):  # verified now, because some are read only hours later
            with reading_partition(self.folder / name) as path:
                check_tensors(path, required=True)
        self.manifest, self.current = manifest, list(manifest.versions)
        self.best = list(manifest.best_versions), manifest.best_shared
        self.newest = max([manifest.shared, manifest.best_shared, *manifest.versions, *manifest.best_versions])
        self._remove_unused()
        return manifest

    def create(self, partitions: int) -> None:
        """Start without any version, and remove the files of an interrupted start."""
        self.folder.mkdir(exist_ok=True)
        self.manifest, self.current, self.best, self.newest = None, [0] * partitions, ([], 0), 0
        self._remove_unused()

    def path(self, part: int, version: int | None = None) -> Path:
        """Return the path of a partition's file, by default of its newest version."""
        return self.folder / _part_file(part, self.current[part] if version is None else version)

    def read(self, part: int, targets: Mapping[str, Array]) -> None:
        """Fill `targets` with the rows of a partition; arrays that its file does not have become 0."""
        path = self.path(part)
        with reading_partition(path):
            names = read_into(path, targets)
        for name, target in targets.items():
            if name not in names:
                target[...] = 0
        self.loads += 1
        self.read_bytes += path.stat().st_size

    def write(self, part: int, arrays: Mapping[str, Array]) -> None:
        """Write a new version of a partition.

        A large file is on the disk before this method returns, because pages that wait for the disk take memory. A
        small file is flushed when a manifest lists it, and most files never are listed.
        """
        self.newest += 1
        path, old = self.path(part, self.newest), self.current[part]
        large = sum(array.nbytes for array in arrays.values()) >= MIN_SYNC_BYTES
        with writing(path):
            write_arrays(path, arrays, sync=large, drop_cache=large)
        self.current[part] = self.newest
        self.unsynced = self.unsynced if large else self.unsynced | {path.name}
        self.written_bytes += path.stat().st_size
        if _part_file(part, old) not in self._kept():
            with suppress(OSError):
                self.path(part, old).unlink()

    def _kept(self) -> set[str]:
        """Return the names of the files that training may need again."""
        best, shared = self.best
        initial = {_part_file(part, 0) for part in range(len(self.current))}
        kept = self.manifest.files() if self.manifest else initial
        return kept | Manifest(best_versions=best, best_shared=shared).files()

    def read_shared(self, version: int | None = None) -> dict[str, Array]:
        """Return the shared arrays of a version, by default of the manifest's version."""
        if version is None:
            version = self.manifest.shared if self.manifest else 0
        with reading_partition(self.folder / _shared_file(version)) as path:
            check_tensors(path, required=True)
            return {name: np.array(values) for name, values in map_arrays(path).items()}

    def _write_shared(self, arrays: Mapping[str, Array]) -> None:
        self.newest += 1
        with writing(self.folder / _shared_file(self.newest)) as path:
            write_arrays(path, arrays)

    def save(self, progress: dict[str, Any], shared: Mapping[str, Array]) -> None:
        """Write a manifest of the current versions, with which a resumed training begins."""
        self._write_shared(shared)
        manifest = Manifest(progress, list(self.current), self.newest, *self.best)
        for name in self.unsynced & manifest.files():
            with writing(self.folder / name) as path:
                fsync_path(path)
        self.unsynced = set()
        path = self.folder / MANIFEST
        with writing(path), replace_file(path, durable=True) as temporary:
            temporary.write_text(json.dumps(seal_row(asdict(manifest))), encoding="utf-8")
        self.manifest = manifest
        self._remove_unused()

    def keep_best(self, shared: Mapping[str, Array]) -> None:
        """Record the current versions as the best so far, which the next manifest will list."""
        self._write_shared(shared)
        self.best = list(self.current), self.newest

    def _remove_unused(self) -> None:
        kept = self._kept() | {_part_file(part, version) for part, version in enumerate(self.current)}
        for pattern in ("part-*.safetensors", "shared-*.safetensors", ".*.*.[0-9]*"):
            for path in self.folder.glob(pattern):
                if path.name not in kept:
                    with suppress(OSError):
                        path.unlink()

    def map_table(self, part: int, name: str, version: int | None = None) -> Array:
        """Return one table of a partition, memory-mapped, by default of its newest version."""
        with reading_partition(self.path(part, version)) as path:
            return map_arrays(path)[name]

    def write_whole(self, path: Path, versions: list[int], others: Mapping[str, Array]) -> None:
        """Write one file with the entity table in the order of ids, in chunks of rows, and the other tables."""
        with reading_partition(self.folder / EDGES) as edges:
            part_of = np.array(map_arrays(edges)["part"])
        maps = [self.map_table(part, "entity", version) for part, version in enumerate(versions)]
        width = maps[0].shape[1]
        specs = {"entity": ArraySpec(maps[0].dtype, (len(part_of), width))}
        file = TensorFile(path, specs | {name: ArraySpec.of(values) for name, values in others.items()})
        file.create()
        done = [0] * len(maps)  # rows written of each partition; its rows are in the order of ids
        with file.open():
            for chunk in chunks(len(part_of), CHUNK_ROWS):
                rows = np.empty((chunk.stop - chunk.start, width), maps[0].dtype)
                for part, positions in by_partition(part_of[chunk]):
                    rows[positions] = maps[part][done[part] : done[part] + len(positions)]
                    done[part] += len(positions)
                if not np.isfinite(rows).all():
                    raise FocuseError("training diverged in its last step; lower the learning rate (lr)")
                file.write("entity", rows, chunk.start)
            for name, values in others.items():
                file.write(name, values)
        file.seal(drop_cache=True)


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

    def load(self, device: str) -> Checkpoint | None:
        manifest = self.files.open()
        if manifest is None:
            return None
        with reading_partition(self.files.folder / MANIFEST):
            progress = Progress(**manifest.progress)
            tensors = {key: torch.from_numpy(values) for key, values in self.files.read_shared().items()}
            parts = _split_parts(upgrade_tensors(self.path, tensors), "table", "optimizer")
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
