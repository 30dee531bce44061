"""The files of an entity table that is trained in partitions on disk.

    manifest.json            the training progress, and the versions of all partitions that belong to it
    edges.safetensors        the training edges, sorted by (partition of the head, partition of the tail)
    part-7.12.safetensors    version 12 of partition 7: the embeddings and optimizer state of its rows
    shared-12.safetensors    relations, other parameters, and their optimizer state

A version is never changed. A new manifest replaces the old one as a whole, and only then are the files removed that it
does not list. Whenever a process dies, the files that the manifest on disk lists are complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.errors import FocuseError
from focuse.storage.atomic import fsync_path, replace_file
from focuse.storage.tensors import (
    Array,
    ArraySpec,
    TensorFile,
    check_row,
    check_tensors,
    map_arrays,
    read_into,
    reading,
    seal_row,
    write_arrays,
    writing,
)
from focuse.system import chunks

EDGES, MANIFEST = "edges.safetensors", "manifest.json"
CHUNK_ROWS = 1 << 16  # rows of the entity table written at once
MANIFEST_FORMAT = 1
MIN_SYNC_BYTES = 1 << 26  # files of at least this size are flushed to the disk immediately
RESTORE_ADVICE = "put a copy of it back, or remove the folder 'partitions' and train again from the start with --resume"


def reading_partition(path: Path) -> AbstractContextManager[Path]:
    """Report errors of the block as `reading` does, with advice for a damaged file of the partitions."""
    return reading(path, RESTORE_ADVICE)


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
        names = manifest.files() | {EDGES}
        missing = sorted(name for name in names if not (self.folder / name).is_file())
        if missing:
            raise FocuseError(f"{self.folder / missing[0]}: missing; {RESTORE_ADVICE}")
        for name in sorted(names):  # all files are verified now, because some of them are read only hours later
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

    def map_table(self, part: int, name: str) -> Array:
        """Return one table of a partition's newest version, memory-mapped."""
        return self._map_tables([self.current[part]], name, part)[0]

    def _map_tables(self, versions: Iterable[int], name: str, first: int = 0) -> list[Array]:
        """Return one table of each partition from number `first` on, memory-mapped."""
        tables = []
        for part, version in enumerate(versions, first):
            with reading_partition(self.path(part, version)) as path:
                tables.append(map_arrays(path)[name])
        return tables

    def write_whole(self, path: Path, versions: list[int], others: Mapping[str, Array]) -> None:
        """Write one file with the entity table in the order of ids, in chunks of rows, and the other tables."""
        with reading_partition(self.folder / EDGES) as edges:
            part_of = np.array(map_arrays(edges)["part"])
        maps = self._map_tables(versions, "entity")
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
                    raise FocuseError("training diverged in its last step; lower the learning rate (--lr)")
                file.write("entity", rows, chunk.start)
            for name, values in others.items():
                file.write(name, values)
        file.seal(drop_cache=True)
