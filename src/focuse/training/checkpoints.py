"""A run's folder: everything that prediction and resuming need, nothing pickled, nothing half-written.

run.toml                 every setting, resolved, with a format version
entities.parquet         names; relations.parquet likewise
splits.safetensors       encoded train, valid and test, what rules infer, and what is known to be false
numbers.safetensors      numbers of entities, where there are some
columns.safetensors      of several weight columns: their normalisers and importances
normaliser.safetensors   arrays of the weight normaliser
history.jsonl            one line an epoch
checkpoint.safetensors   tables, optimiser, best tables, pool and stopping state, replaced whole
model.safetensors        the final tables
calibration.safetensors  from scores to weights; made when first asked for
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import save_file as save_tensors

from focuse import __version__
from focuse.errors import FocuseError, NoRoomError
from focuse.graph.columns import Columns
from focuse.graph.graph import Aligned, Graph, Unseen
from focuse.graph.merging import Merger
from focuse.graph.numbers import Numbers
from focuse.graph.splits import Splits
from focuse.graph.vocabulary import Vocabulary
from focuse.graph.weights import Normaliser, stored_normaliser
from focuse.graph.writing import replacing
from focuse.training.configuration import with_model
from focuse.training.settings import Settings
from focuse.training.toml import to_toml

FORMAT = 2
PARTS = ("train", "valid", "test")
COLUMNS = ("head", "relation", "tail", "weight")
Tables = dict[str, torch.Tensor]


@dataclass
class Progress:
    """Where a training stands. `epoch` and `batch` count what is complete; `loss` sums the current epoch's."""

    epoch: int = 0
    batch: int = 0
    loss: float = 0.0
    best_value: float = float("-inf")
    best_epoch: int = 0
    checks_since_best: int = 0
    finished: str = ""


@dataclass
class Checkpoint:
    """All that a training needs to go on as if nothing had happened."""

    progress: Progress
    tables: Tables
    optimiser: Tables
    best: Tables | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    pool: Tables = field(default_factory=dict)

    def final(self) -> Tables:
        """The tables to predict with: the best if validation chose, else the last."""
        return self.best or self.tables


class Store:
    """Reads and writes one run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last_saved = time.monotonic()

    # ---- the fixed part -------------------------------------------------------------------------------------------

    @staticmethod
    def free(folder: Path) -> Path:
        """The folder to write a run to; an error where there is something already."""
        if folder.is_symlink():
            folder = folder.resolve()
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise FocuseError(f"{folder}: exists and is not empty; choose another --out, or continue with --resume")
        if not folder.name:
            raise FocuseError(f"{folder}: choose a folder with a name of its own")
        return folder

    @classmethod
    def create(cls, folder: Path, settings: Settings, splits: Splits, normaliser: Normaliser) -> Store:
        """A new folder with all but the weights; it appears complete or not at all."""
        folder = cls.free(folder)
        temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
        try:  # from before it is made: an interrupt that waits is heard just after
            try:
                temporary.mkdir(parents=True)
            except OSError as error:
                raise FocuseError(f"{folder}: {error.strerror or error}; choose a folder that can be written") from None
            with _writing(folder):
                _write_fixed(temporary, settings, splits, normaliser)
                if folder.exists():
                    folder.rmdir()
                os.rename(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return cls(folder)

    @classmethod
    def open(cls, folder: Path) -> Store:
        if not (folder / "run.toml").is_file():
            raise FocuseError(f"{folder}: not a run (no run.toml); give a folder that 'focuse train --out' made")
        return cls(folder)

    def fixed(self, model: object = None) -> tuple[Settings, Splits, Normaliser]:
        """Settings, splits and normaliser as they were when the run began; `model` is a class to take for its own."""
        with _reading(self.folder / "run.toml") as path:
            config = tomllib.loads(path.read_text(encoding="utf-8"))
            version = config["format"]
        if version != FORMAT:
            newer = isinstance(version, int) and version > FORMAT
            advice = "update focuse" if newer else f"train it again: focuse train GRAPH --config {path} --out NEW"
            raise FocuseError(f"{path}: run format {version}, this focuse {__version__} reads {FORMAT}; {advice}")
        config = with_model(config, model, self.folder)
        with _reading(path):
            # Runs from before validation had parts were stopped by all of it.
            settings = Settings.of(**{"stopping_share": 1.0, **config["settings"]})
            splits = _read_splits(self.folder, config)
        with _reading(self.folder / "normaliser.safetensors") as path:
            arrays = load_arrays(path)
            arrays.pop("nothing", None)
            kind = "none" if splits.merger is not None else settings.normalize or "relation"
            normaliser = stored_normaliser(kind, arrays, splits.train.lower_is_better)
            normaliser.transform(splits.train.weight, splits.train.relation)
        return settings, splits, normaliser

    def extend(self, settings: Settings, checkpoint: Checkpoint | None) -> None:
        """More epochs for a run, finished or not; what it predicts with is then the checkpoint's best."""
        self._amend(settings)
        if checkpoint is not None:
            self.save(checkpoint)
            (self.folder / "calibration.safetensors").unlink(missing_ok=True)  # the tables change from here on
            (self.folder / "model.safetensors").unlink(missing_ok=True)

    def _amend(self, settings: Settings) -> None:
        """Other settings for the rest of the training, so that a later resume has them too."""
        with _reading(self.folder / "run.toml") as path:
            config = tomllib.loads(path.read_text(encoding="utf-8"))
        config["settings"] = _known_settings(settings)
        with _writing(path), replacing(path) as temporary:
            temporary.write_text(to_toml(config), encoding="utf-8")

    # ---- the moving part ------------------------------------------------------------------------------------------

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint, whole."""
        found = {"table": checkpoint.tables, "optimiser": checkpoint.optimiser, "best": checkpoint.best or {}}
        found["pool"] = checkpoint.pool
        tensors = {f"{part}/{name}": value for part, values in found.items() for name, value in values.items()}
        self._write_tensors("checkpoint.safetensors", tensors, {"progress": json.dumps(asdict(checkpoint.progress))})
        self.last_saved = time.monotonic()

    def append(self, row: dict[str, Any]) -> None:
        """One line of history."""
        path = self.folder / "history.jsonl"
        with _writing(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def finish(self, checkpoint: Checkpoint) -> None:
        """The tables to predict with, then the last checkpoint: a run that says it is finished has both."""
        (self.folder / "calibration.safetensors").unlink(missing_ok=True)  # it was of other tables
        self._write_tensors("model.safetensors", checkpoint.final(), {})
        self.save(checkpoint)

    def checkpoint(self, device: str = "cpu") -> Checkpoint | None:
        """The newest checkpoint, None if there is none yet. History is cut back to it."""
        path = self.folder / "checkpoint.safetensors"
        if not path.exists():
            return None
        tensors, metadata = _read_tensors(path, device)
        parts: dict[str, Tables] = {"table": {}, "optimiser": {}, "best": {}, "pool": {}}
        with _reading(path):
            progress = Progress(**json.loads(metadata["progress"]))
            for key, value in tensors.items():
                part, _, name = key.partition("/")
                parts[part][name] = value
            if not {"entity", "relation"} <= set(parts["table"]):
                raise ValueError("no tables in it")
        history = [row for row in self.history() if row["epoch"] <= progress.epoch]
        return Checkpoint(progress, parts["table"], parts["optimiser"], parts["best"] or None, history, parts["pool"])

    def rewind(self, history: list[dict[str, Any]]) -> None:
        """Drop lines of history that lie after the checkpoint, and files that a killed process left half-written."""
        for pattern in (".*.*.[0-9]*", ".tmp*"):  # ours, and those of the tensor writer
            for left in self.folder.glob(pattern):
                left.unlink(missing_ok=True)
        path = self.folder / "history.jsonl"
        with _writing(path), replacing(path) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in history), encoding="utf-8")

    def history(self) -> list[dict[str, Any]]:
        """One entry a finished epoch; a line cut short by a crash is passed over."""
        path = self.folder / "history.jsonl"
        rows = []
        with _reading(path):
            lines = path.read_bytes().splitlines() if path.exists() else []
        for line in lines:
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict) and isinstance(row.get("epoch"), int) and isinstance(row.get("loss"), int | float):
                rows.append(row)
        return rows

    def model(self, device: str) -> tuple[Tables, list[dict[str, Any]]]:
        """The tables to predict with and their history; of an unfinished run, the best so far."""
        path = self.folder / "model.safetensors"
        if path.exists():
            return _read_tensors(path, device)[0], self.history()
        checkpoint = self.checkpoint(device)
        if checkpoint is None:
            raise FocuseError(
                f"{self.folder}: nothing trained yet; continue with 'focuse train --resume {self.folder}'"
            )
        return checkpoint.final(), checkpoint.history

    def _write_tensors(self, name: str, tensors: Tables, metadata: dict[str, str]) -> None:
        path = self.folder / name
        with _writing(path), replacing(path) as temporary:
            save_tensors(
                {key: value.detach().cpu().contiguous() for key, value in tensors.items()}, temporary, metadata
            )
            with temporary.open("r+b") as file:  # Windows flushes only what may be written
                os.fsync(file.fileno())


def _read_tensors(path: Path, device: str) -> tuple[Tables, dict[str, str]]:
    with _reading(path), safe_open(path, framework="pt", device=device) as file:
        return {key: _aligned(file.get_tensor(key)) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118


def _aligned(table: torch.Tensor) -> torch.Tensor:
    """A tensor where torch would have put it: products of vectors that lie elsewhere round otherwise.

    On Windows never one that lies in the file itself, for a file in use cannot be replaced there.
    """
    return table if table.data_ptr() % 64 == 0 and sys.platform != "win32" else table.clone()


@contextmanager
def _reading(path: Path) -> Iterator[Path]:
    """Whatever is wrong with a file of the run is one line that names it."""
    try:
        yield path
    except KeyError as error:
        raise FocuseError(f"{path}: damaged file: {error} is missing or unknown") from None
    except (FocuseError, OSError, TypeError, ValueError, IndexError, RecursionError, SafetensorError) as error:
        raise FocuseError(f"{path}: damaged file: {' '.join(str(error).split())}") from None


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """A full disk and the like are one line too; what was there before is still whole."""
    try:
        yield
    except (OSError, SafetensorError, NoRoomError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or " ".join(str(error).split())
        raise FocuseError(
            f"{path}: cannot be written: {reason}; make room, then try again or go on with --resume"
        ) from None


def _write_fixed(folder: Path, settings: Settings, splits: Splits, normaliser: Normaliser) -> None:
    parts = {"train": splits.train, "valid": splits.valid.graph, "test": splits.test.graph}
    others = {"inferred": splits.inferred, "false": splits.false}
    parts |= {name: graph for name, graph in others.items() if graph is not None}
    config: dict[str, Any] = {
        "format": FORMAT,
        "focuse": __version__,
        "torch": torch.__version__,
        "settings": _known_settings(settings),
        "sources": {name: graph.source for name, graph in parts.items()},
        "weighted": {name: graph.weighted for name, graph in parts.items()},
        "unseen": {"valid": asdict(splits.valid.unseen), "test": asdict(splits.test.unseen)},
        "direction": "lower" if splits.train.lower_is_better else "higher",  # which weights are strong
    }
    arrays: dict[str, dict[str, Any]] = {}
    if splits.merger is not None:
        config["columns"] = splits.merger.to_dict()
        arrays["columns"] = splits.merger.arrays()
    if splits.numbers is not None:
        config["numbers"] = splits.numbers.source
        splits.numbers.write(folder / "numbers.safetensors")
    (folder / "run.toml").write_text(to_toml(config), encoding="utf-8")
    splits.train.entities.write(folder / "entities.parquet")
    splits.train.relations.write(folder / "relations.parquet")
    columns = {f"{name}/{column}": getattr(graph, column) for name, graph in parts.items() for column in COLUMNS}
    several = {name: graph.columns for name, graph in parts.items() if graph.columns is not None}
    columns |= {f"{name}/columns": np.ascontiguousarray(found.values) for name, found in several.items()}
    # A file of tensors must hold one.
    arrays |= {"splits": columns, "normaliser": normaliser.arrays or {"nothing": np.zeros(1)}}
    for name, values in arrays.items():
        with replacing(folder / f"{name}.safetensors") as temporary:
            save_arrays(values, temporary)


def _known_settings(settings: Settings) -> dict[str, Any]:
    """TOML has no None: what is not set is left out."""
    return {key: value for key, value in settings.to_dict().items() if value is not None}


def _read_splits(folder: Path, config: dict[str, Any]) -> Splits:
    with _reading(folder / "entities.parquet") as path:
        entities = Vocabulary.read(path)
    with _reading(folder / "relations.parquet") as path:
        relations = Vocabulary.read(path)
    with _reading(folder / "splits.safetensors") as path:
        columns = load_arrays(path)
        missing = {f"{name}/{column}" for name in {*PARTS, *config["sources"]} for column in COLUMNS} - set(columns)
        if missing:
            raise ValueError(f"no column {min(missing)}")
        _check_columns(columns, len(entities), len(relations))
    merger = _read_merger(folder, config)
    lower = config.get("direction") == "lower"
    parts = {
        name: Graph(
            columns[f"{name}/head"],
            columns[f"{name}/relation"],
            columns[f"{name}/tail"],
            columns[f"{name}/weight"],
            entities,
            relations,
            config["sources"][name],
            config["weighted"][name],
            _columns(merger, columns.get(f"{name}/columns")),
            lower and name in PARTS,
        )
        for name in config["sources"]
    }
    unseen = {name: Unseen(**config["unseen"][name]) for name in ("valid", "test")}
    if not all(isinstance(part.rows, int) for part in unseen.values()):
        raise ValueError("unseen rows that are no number")
    valid, test = (Aligned(parts[name], unseen[name]) for name in ("valid", "test"))
    with _reading(folder / "numbers.safetensors") as path:
        numbers = Numbers.read(path, len(entities)) if "numbers" in config else None
    return Splits(parts["train"], valid, test, parts.get("inferred"), parts.get("false"), merger, numbers)


def _check_columns(columns: dict[str, Any], entities: int, relations: int) -> None:
    """Raise unless ids are of the vocabularies and weights are numbers, as many as there are edges."""
    sizes = {"head": entities, "relation": relations, "tail": entities}
    for key, values in columns.items():
        part, _, column = key.partition("/")
        if column not in COLUMNS:
            continue
        if values.shape != columns[f"{part}/head"].shape or values.ndim != 1:
            raise ValueError(f"{key} is of another length than {part}/head")
        if values.dtype.kind != ("f" if column == "weight" else "i"):
            raise ValueError(f"{key} holds other kinds of numbers")
        if column == "weight" and not np.isfinite(values).all():
            raise ValueError(f"{key} holds what is no number")
        if column in sizes and len(values) and not 0 <= values.min() <= values.max() < sizes[column]:
            raise ValueError(f"{key} names what is not in the vocabulary")
    if not len(columns["train/head"]):
        raise ValueError("no edges in train")


def _read_merger(folder: Path, config: dict[str, Any]) -> Merger | None:
    if "columns" not in config:
        return None
    with _reading(folder / "columns.safetensors") as path:
        return Merger.stored(config["columns"], load_arrays(path))


def _columns(merger: Merger | None, values: Any) -> Columns | None:
    return None if merger is None or values is None else Columns(merger.names, values, merger.lower)
