"""The files of an entity table that is trained in partitions on disk.

    manifest.json            the progress of the training, and the versions of all partitions that belong to it
    edges.safetensors        the training edges, sorted by (partition of the head, partition of the tail)
    part-7.12.safetensors    partition 7, its 12th version: embeddings and optimizer state of its rows
    shared-12.safetensors    relations, other parameters, and their optimizer state

A version is never changed. A new manifest replaces the old one whole, and only then are files removed that it does not
name. Whenever a process dies, the files that the manifest on disk names are complete.
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
CHUNK = 1 << 16  # rows of the entity table written at a time
MANIFEST_FORMAT = 1
SYNC_BYTES = 1 << 26  # a larger file is written to disk at once
ADVICE = "put a copy of it back, or remove the folder 'partitions': --resume then begins again, to the same bits"


def reading_partition(path: Path) -> AbstractContextManager[Path]:
    """As `reading`, with what to do about a damaged file of the partitions."""
    return reading(path, ADVICE)


@dataclass
class Manifest:
    """Versions that belong together: of each partition and of the shared tables, now and when validation was best."""

    progress: dict[str, Any] = field(default_factory=dict)
    versions: list[int] = field(default_factory=list)
    shared: int = 0
    best_versions: list[int] = field(default_factory=list)
    best_shared: int = 0
    format: int = MANIFEST_FORMAT

    def files(self) -> set[str]:
        """Names of the files that belong to these versions."""
        names = {_shared_file(version) for version in (self.shared, self.best_shared) if version}
        for versions in (self.versions, self.best_versions):
            names |= {_part_file(part, version) for part, version in enumerate(versions)}
        return names


def _part_file(part: int, version: int) -> str:
    return f"part-{part}.{version}.safetensors"


def _shared_file(version: int) -> str:
    return f"shared-{version}.safetensors"


def by_partition(part: npt.NDArray[np.uint16]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """For each partition in `part` [n], the ascending positions of its entities."""
    order = np.argsort(part, kind="stable")
    sizes = np.bincount(part)
    ends = np.cumsum(sizes)
    for number in np.flatnonzero(sizes).tolist():
        yield number, order[ends[number] - sizes[number] : ends[number]]


class PartitionFiles:
    """The files of the partitions in one folder; `current` has the newest version of each, `best` the best so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: Manifest | None = None
        self.current: list[int] = []
        self.best: tuple[list[int], int] = [], 0
        self.newest = 0  # the highest version in use
        self.unsynced: set[str] = set()  # files that may not have reached the disk
        self.read_bytes = self.written_bytes = self.loads = 0

    def open(self) -> Manifest | None:
        """Verify and read the manifest and its files, if there is one; remove files of other versions."""
        path = self.folder / MANIFEST
        if not path.exists():
            return None
        with reading_partition(path):
            found = Manifest(**check_row(json.loads(path.read_text(encoding="utf-8")), required=True))
            if found.format != MANIFEST_FORMAT or not all(isinstance(version, int) for version in found.versions):
                raise ValueError(f"format {found.format}, this focuse reads {MANIFEST_FORMAT}")
        names = found.files() | {EDGES}
        missing = sorted(name for name in names if not (self.folder / name).is_file())
        if missing:
            raise FocuseError(f"{self.folder / missing[0]}: missing; {ADVICE}")
        for name in sorted(names):  # all of them now, rather than some of them after hours
            with reading_partition(self.folder / name) as path:
                check_tensors(path, required=True)
        self.manifest, self.current = found, list(found.versions)
        self.best = list(found.best_versions), found.best_shared
        self.newest = max([found.shared, found.best_shared, *found.versions, *found.best_versions])
        self._remove_unused()
        return found

    def create(self, partitions: int) -> None:
        """Start without any version; files of an interrupted start are removed."""
        self.folder.mkdir(exist_ok=True)
        self.manifest, self.current, self.best, self.newest = None, [0] * partitions, ([], 0), 0
        self._remove_unused()

    def path(self, part: int, version: int | None = None) -> Path:
        return self.folder / _part_file(part, self.current[part] if version is None else version)

    def read(self, part: int, targets: Mapping[str, Array]) -> None:
        """Fill `targets` with the rows of a partition; arrays that its file does not have (yet) become 0."""
        path = self.path(part)
        with reading_partition(path):
            found = read_into(path, targets)
        for name, target in targets.items():
            if name not in found:
                target[...] = 0
        self.loads += 1
        self.read_bytes += path.stat().st_size

    def write(self, part: int, arrays: Mapping[str, Array]) -> None:
        """Write a new version of a partition.

        A large one is on disk before this returns: written pages that wait for the disk take memory. A small one need
        not be until a manifest names it, and most never are.
        """
        self.newest += 1
        path, old = self.path(part, self.newest), self.current[part]
        large = sum(array.nbytes for array in arrays.values()) >= SYNC_BYTES
        with writing(path):
            write_arrays(path, arrays, sync=large, forget=large)
        self.current[part] = self.newest
        self.unsynced = self.unsynced if large else self.unsynced | {path.name}
        self.written_bytes += path.stat().st_size
        if _part_file(part, old) not in self._kept():
            with suppress(OSError):
                self.path(part, old).unlink()

    def _kept(self) -> set[str]:
        """Names of the files to which a training may return."""
        best, shared = self.best
        initial = {_part_file(part, 0) for part in range(len(self.current))}
        kept = self.manifest.files() if self.manifest else initial
        return kept | Manifest(best_versions=best, best_shared=shared).files()

    def read_shared(self, version: int | None = None) -> dict[str, Array]:
        """The shared arrays, of the manifest's version unless another one is given."""
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
        """Make the current versions those that a resumed training begins with."""
        self._write_shared(shared)
        found = Manifest(progress, list(self.current), self.newest, *self.best)
        for name in self.unsynced & found.files():
            with writing(self.folder / name) as path:
                fsync_path(path)
        self.unsynced = set()
        path = self.folder / MANIFEST
        with writing(path), replace_file(path, durable=True) as temporary:
            temporary.write_text(json.dumps(seal_row(asdict(found))), encoding="utf-8")
        self.manifest = found
        self._remove_unused()

    def keep_best(self, shared: Mapping[str, Array]) -> None:
        """Make the current versions the best so far; the next manifest will say so."""
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
        """One table of a partition's newest version, memory-mapped."""
        return self._map_tables([self.current[part]], name, part)[0]

    def _map_tables(self, versions: Iterable[int], name: str, first: int = 0) -> list[Array]:
        """One table of the partitions from number `first` on, memory-mapped."""
        found = []
        for part, version in enumerate(versions, first):
            with reading_partition(self.path(part, version)) as path:
                found.append(map_arrays(path)[name])
        return found

    def write_whole(self, path: Path, versions: list[int], others: Mapping[str, Array]) -> None:
        """Write one file of the entity table in the order of ids, some rows at a time, and the other tables."""
        with reading_partition(self.folder / EDGES) as edges:
            part_of = np.array(map_arrays(edges)["part"])
        maps = self._map_tables(versions, "entity")
        width = maps[0].shape[1]
        specs = {"entity": ArraySpec(maps[0].dtype, (len(part_of), width))}
        file = TensorFile(path, specs | {name: ArraySpec.of(values) for name, values in others.items()})
        file.create()
        done = [0] * len(maps)  # rows of each partition; within one they are in the order of ids
        with file.open():
            for piece in chunks(len(part_of), CHUNK):
                rows = np.empty((piece.stop - piece.start, width), maps[0].dtype)
                for part, positions in by_partition(part_of[piece]):
                    rows[positions] = maps[part][done[part] : done[part] + len(positions)]
                    done[part] += len(positions)
                if not np.isfinite(rows).all():
                    raise FocuseError("training diverged in its last step; lower the learning rate (--lr)")
                file.write("entity", rows, piece.start)
            for name, values in others.items():
                file.write(name, values)
        file.seal(forget=True)
