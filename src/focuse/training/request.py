"""What a training was asked for, in request.json of a run folder until its input is read and its splits are written.

A training that is killed while it reads its files begins to read them again when it is resumed. Files are identified by
their path, size and time of modification.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from focuse.config import Config
from focuse.data.graph import Graph
from focuse.data.readers import read
from focuse.errors import FocuseError
from focuse.storage.metadata import resolve_stored_model
from focuse.storage.run_folder import REQUEST, RunFolder
from focuse.storage.tensors import check_row, reading, seal_row

OPTIONS = ("valid_fraction", "test_fraction", "undirected")
TRAIN_AGAIN = "remove the folder and train again"


@dataclass(frozen=True)
class FileSource:
    """A file that is read when this object is called; `options` are keyword arguments of `focuse.read`."""

    path: str | Path
    options: dict[str, Any] = field(default_factory=dict)
    reader: Callable[..., Graph] = read

    def __call__(self) -> Graph:
        return self.reader(self.path, **self.options)

    def files(self) -> list[Any]:
        """Return the paths of all files that are read; a mapping instead of a path is none."""
        weights = self.options.get("relation_weights")
        return [self.path, *([] if weights is None else [weights])]


@dataclass(frozen=True)
class TrainingInput:
    """The graphs and other sources of a training, and how they are split; the arguments of `focuse.train`."""

    graph: Any
    valid: Any = None
    test: Any = None
    known_negatives: Any = None
    node_attributes: Any = None
    inferred_triples: Any = None
    rules: Any = None
    valid_fraction: float | None = None
    test_fraction: float | None = None
    undirected: bool | None = None

    def sources(self) -> dict[str, Any]:
        """Return the sources that are given, by name."""
        found = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in OPTIONS}
        return {name: source for name, source in found.items() if source is not None}

    def request(self, settings: Config) -> str | None:
        """Return the text of request.json, or None unless all sources are files, which can be read again."""
        sources = {
            name: FileSource(source) if isinstance(source, str | Path) else source
            for name, source in self.sources().items()
        }
        if not all(isinstance(source, FileSource) for source in sources.values()):
            return None
        paths = [path for source in sources.values() for path in source.files()]
        try:
            if not all(os.path.isfile(path) for path in paths):
                return None  # reading them fails, or they are folders
            record = {
                "sources": {
                    name: {"path": os.path.abspath(source.path), "options": source.options}
                    for name, source in sources.items()
                },
                "files": {os.path.abspath(path): _identity(path) for path in paths},
                "options": {name: getattr(self, name) for name in OPTIONS},
                "settings": settings.to_dict(),
                "provenance": settings.names_by_provenance(),
            }
            return json.dumps(seal_row(json.loads(json.dumps(record, default=os.fspath))), indent=1)
        except (OSError, TypeError, ValueError):  # an option that JSON does not have, or a name that is no path
            return None


def _identity(path: str | Path) -> list[int]:
    """Return the size of a file and the time of its last modification."""
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns]


def _read_record(folder: RunFolder) -> dict[str, Any]:
    with reading(folder.path / REQUEST, TRAIN_AGAIN) as path:
        return check_row(dict(json.loads(path.read_text(encoding="utf-8"))), required=True)


def read_request(folder: RunFolder, model: object = None) -> tuple[Config, TrainingInput]:
    """Return the settings and the sources of a training that was stopped before its splits were written.

    `model` is the class of its model, if that cannot be imported.
    """
    record = resolve_stored_model(_read_record(folder), model, folder.path)
    settings = Config.from_stored(record["settings"], record["provenance"])
    sources: dict[str, Any] = {
        name: FileSource(source["path"], source["options"]) if source["options"] else source["path"]
        for name, source in record["sources"].items()
    }
    return settings, TrainingInput(**sources, **record["options"])


def check_unchanged(folder: RunFolder) -> None:
    """Raise FocuseError if a file of the request is gone, or is not the one that it was."""
    for path, identity in _read_record(folder)["files"].items():
        where = f"{folder.path}: its training was stopped while it read {path}, which"
        try:
            found = _identity(path)
        except OSError as error:
            raise FocuseError(f"{where} cannot be read: {error.strerror}; put it back, or {TRAIN_AGAIN}") from None
        if found != identity:
            raise FocuseError(f"{where} has changed since; {TRAIN_AGAIN}")
