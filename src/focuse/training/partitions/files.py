"""Rows of the entity table on disk: a file a partition and version, and a manifest of those that belong together.

manifest.json            where training stands, and which versions of all partitions are of that moment
edges.safetensors        the training edges, sorted by (partition of the head, partition of the tail)
part-7.12.safetensors    partition 7, its 12th version: embeddings and the optimiser's state of its rows
shared-12.safetensors    relations, what is dense, their optimiser's state

A version is never changed. A new manifest takes the old one's place whole, and only then are versions removed that it
does not name: whenever a process dies, the manifest on disk is of one moment and all it names is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from focuse.errors import FocuseError
from focuse.graph.arrays import Array, fill, map_arrays, sync_file, synced, write_through
from focuse.graph.checksums import check_row, check_tensors, seal_row
from focuse.graph.writing import flush, replacing
from focuse.training import files
from focuse.training.files import writing

FOLDER, EDGES = "partitions", "edges.safetensors"
BACKUP = "put a copy of it back, or remove the folder 'partitions': --resume then begins again, to the same bits"
FORMAT = 1
LARGE = 1 << 26  # bytes


@dataclass
class Manifest:
    """Versions that belong together: of each partition and of what is shared, now and when validation was best."""

    progress: dict[str, Any] = field(default_factory=dict)
    versions: list[int] = field(default_factory=list)
    shared: int = 0
    best_versions: list[int] = field(default_factory=list)
    best_shared: int = 0
    format: int = FORMAT

    def named(self) -> set[str]:
        """The files that it speaks of."""
        names = {_shared(version) for version in (self.shared, self.best_shared) if version}
        for versions in (self.versions, self.best_versions):
            names |= {_part(part, version) for part, version in enumerate(versions)}
        return names


class PartitionFiles:
    """Reads and writes the partitions in one folder. `current` holds the newest version of each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: Manifest | None = None
        self.current: list[int] = []
        self.best: tuple[list[int], int] = [], 0
        self.last = 0  # version given out
        self.waiting: set[str] = set()  # files that may not have reached the disk
        self.read_bytes = self.written_bytes = self.loads = 0

    def open(self) -> Manifest | None:
        """The manifest if there is one; versions that it does not name are removed."""
        path = self.folder / "manifest.json"
        if not path.exists():
            return None
        with reading(path):
            found = Manifest(**check_row(json.loads(path.read_text(encoding="utf-8")), required=True))
            if found.format != FORMAT or not all(isinstance(version, int) for version in found.versions):
                raise ValueError(f"format {found.format}, this focuse reads {FORMAT}")
        named = found.named() | {EDGES}
        missing = sorted(name for name in named if not (self.folder / name).is_file())
        if missing:
            raise FocuseError(f"{self.folder / missing[0]}: missing; {BACKUP}")
        for name in sorted(named):  # all of them now, rather than some of them after hours
            with reading(self.folder / name) as path:
                check_tensors(path, required=True)
        self.manifest, self.current = found, list(found.versions)
        self.best = list(found.best_versions), found.best_shared
        self.last = max([found.shared, found.best_shared, *found.versions, *found.best_versions])
        self.sweep()
        return found

    def begin(self, partitions: int) -> None:
        """Nothing is there yet, and what may be is from a start that was interrupted."""
        self.folder.mkdir(exist_ok=True)
        self.manifest, self.current, self.best, self.last = None, [0] * partitions, ([], 0), 0
        self.sweep()

    def path(self, part: int, version: int | None = None) -> Path:
        return self.folder / _part(part, self.current[part] if version is None else version)

    def read(self, part: int, targets: Mapping[str, Array]) -> None:
        """Fill the targets with a partition's rows; what its file does not hold (state of a fresh one) is 0."""
        path = self.path(part)
        with reading(path):
            held = fill(path, targets)
        for name, target in targets.items():
            if name not in held:
                target[...] = 0
        self.loads += 1
        self.read_bytes += path.stat().st_size

    def write(self, part: int, arrays: Mapping[str, Array]) -> None:
        """A new version of a partition.

        A large one is on disk before this returns: written pages that wait for the disk are memory. A small one need
        not be until a manifest names it, and most never are.
        """
        self.last += 1
        version, old = self.last, self.current[part]
        path = self.path(part, version)
        large = sum(array.nbytes for array in arrays.values()) >= LARGE
        with writing(path):
            write_through(path, arrays, sync=large)
        self.current[part] = version
        self.waiting = self.waiting if large else self.waiting | {path.name}
        self.written_bytes += path.stat().st_size
        self._drop(part, old)

    def _drop(self, part: int, version: int) -> None:
        """Remove a version, unless it is one to come back to."""
        name = _part(part, version)
        if name not in self._kept():
            with suppress(OSError):
                (self.folder / name).unlink()

    def _kept(self) -> set[str]:
        best, shared = self.best
        kept = self.manifest.named() if self.manifest else {_part(part, 0) for part in range(len(self.current))}
        return kept | Manifest(best_versions=best, best_shared=shared).named()

    def read_shared(self, version: int | None = None) -> dict[str, Array]:
        if version is None:
            version = self.manifest.shared if self.manifest else 0
        with reading(self.folder / _shared(version)) as path:
            check_tensors(path, required=True)
            return {name: np.array(values) for name, values in map_arrays(path).items()}

    def save(self, progress: Any, shared: Mapping[str, Array]) -> None:
        """The current versions are the ones to come back to from now on."""
        self.last += 1
        with writing(self.folder / _shared(self.last)) as path:
            write_through(path, shared)
        self._sync()
        told = Manifest(asdict(progress), list(self.current), self.last, *self.best)
        path = self.folder / "manifest.json"
        with writing(path), replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
            json.dump(seal_row(asdict(told)), file)
            synced(file)
        flush(self.folder)
        self.manifest = told
        self.sweep()

    def _sync(self) -> None:
        """All that a manifest is to name has reached the disk."""
        named = {self.path(part).name for part in range(len(self.current))}
        named |= Manifest(best_versions=self.best[0]).named()
        for name in self.waiting & named:
            with writing(self.folder / name) as path:
                sync_file(path)
        self.waiting = set()

    def sweep(self) -> None:
        """Remove what neither the manifest nor the present speaks of."""
        kept = self._kept() | {_part(part, version) for part, version in enumerate(self.current)}
        for pattern in ("part-*.safetensors", "shared-*.safetensors", ".*.*.[0-9]*"):
            for path in self.folder.glob(pattern):
                if path.name not in kept:
                    with suppress(OSError):
                        path.unlink()

    def keep_best(self, shared: Mapping[str, Array]) -> None:
        """The current versions are the best so far; the next manifest will say so."""
        self.last += 1
        with writing(self.folder / _shared(self.last)) as path:
            write_through(path, shared)
        self.best = list(self.current), self.last

    def mapped(self, part: int, name: str) -> Array:
        """One table of a partition's newest version, mapped."""
        return self.maps([self.current[part]], name, part)[0]

    def maps(self, versions: Iterable[int], name: str, first: int = 0) -> list[Array]:
        """One table of the partitions from `first` on, mapped."""
        found = []
        for part, version in enumerate(versions, first):
            with reading(self.path(part, version)) as path:
                found.append(map_arrays(path)[name])
        return found


def _part(part: int, version: int) -> str:
    return f"part-{part}.{version}.safetensors"


def _shared(version: int) -> str:
    return f"shared-{version}.safetensors"


def reading(path: Path) -> AbstractContextManager[Path]:
    """As of any file of a run, with what to do about one that is damaged."""
    return files.reading(path, BACKUP)
