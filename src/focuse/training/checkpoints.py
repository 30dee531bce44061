"""A run's folder: everything that prediction and resuming need, nothing pickled, nothing half-written.

run.toml                 every setting, resolved, with a format version
entities.parquet         names; relations.parquet likewise
splits.safetensors       encoded train, valid and test
normaliser.safetensors   arrays of the weight normaliser
history.jsonl            one line an epoch
checkpoint.safetensors   tables, optimiser, best tables and stopping state, replaced whole
model.safetensors        the final tables
"""

from __future__ import annotations

import json
import os
import shutil
import time
import tomllib
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
from focuse.errors import FocuseError
from focuse.graph.graph import Aligned, Graph, Unseen
from focuse.graph.splits import Splits
from focuse.graph.vocabulary import Vocabulary
from focuse.graph.weights import NORMALISERS, Normaliser
from focuse.graph.writing import replacing
from focuse.training.settings import Settings
from focuse.training.toml import to_toml

FORMAT = 1
Tables = dict[str, torch.Tensor]


@dataclass
class Progress:
    """Where a training stands. `epoch` and `batch` count what is complete; `loss` sums the current epoch's."""

    epoch: int = 0
    batch: int = 0
    loss: float = 0.0
    best_mrr: float = -1.0
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

    def final(self) -> Tables:
        """The tables to predict with: the best if validation chose, else the last."""
        return self.best or self.tables


class Store:
    """Reads and writes one run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last_saved = time.monotonic()

    # ---- the fixed part -------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, folder: Path, settings: Settings, splits: Splits, normaliser: Normaliser) -> Store:
        """A new folder with all but the weights; it appears complete or not at all."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise FocuseError(f"{folder}: exists and is not empty; choose another --out, or continue with --resume")
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
            temporary.mkdir()
        except OSError as error:
            raise FocuseError(f"{folder}: {error.strerror or error}; choose a folder that can be written") from None
        try:
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

    def fixed(self) -> tuple[Settings, Splits, Normaliser]:
        """Settings, splits and normaliser as they were when the run began."""
        try:
            config = tomllib.loads((self.folder / "run.toml").read_text(encoding="utf-8"))
            if config["format"] != FORMAT:
                raise FocuseError(
                    f"{self.folder}: run format {config['format']}, this focuse {__version__} reads {FORMAT}; "
                    f"use focuse {config.get('focuse', 'of that time')}"
                )
            settings = Settings.of(**config["settings"])
            splits = _read_splits(self.folder, config)
            arrays = load_arrays(self.folder / "normaliser.safetensors")
            arrays.pop("nothing", None)
            return settings, splits, NORMALISERS[settings.normalize or "relation"](arrays)
        except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError, SafetensorError) as error:
            raise FocuseError(f"{self.folder}: damaged run: {' '.join(str(error).split())}") from None

    # ---- the moving part ------------------------------------------------------------------------------------------

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint, whole."""
        tensors = {f"table/{name}": value for name, value in checkpoint.tables.items()}
        tensors |= {f"optimiser/{name}": value for name, value in checkpoint.optimiser.items()}
        tensors |= {f"best/{name}": value for name, value in (checkpoint.best or {}).items()}
        self._write_tensors("checkpoint.safetensors", tensors, {"progress": json.dumps(asdict(checkpoint.progress))})
        self.last_saved = time.monotonic()

    def append(self, row: dict[str, Any]) -> None:
        """One line of history."""
        with (self.folder / "history.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def finish(self, checkpoint: Checkpoint) -> None:
        """The last checkpoint, and the tables to predict with."""
        self.save(checkpoint)
        self._write_tensors("model.safetensors", checkpoint.final(), {})

    def checkpoint(self, device: str = "cpu") -> Checkpoint | None:
        """The newest checkpoint, None if there is none yet. History is cut back to it."""
        path = self.folder / "checkpoint.safetensors"
        if not path.exists():
            return None
        tensors, metadata = _read_tensors(path, device)
        try:
            progress = Progress(**json.loads(metadata["progress"]))
        except (KeyError, TypeError, ValueError) as error:
            raise FocuseError(f"{path}: damaged checkpoint: {error}") from None
        parts: dict[str, Tables] = {"table": {}, "optimiser": {}, "best": {}}
        for key, value in tensors.items():
            part, _, name = key.partition("/")
            parts[part][name] = value
        history = [row for row in self.history() if row["epoch"] <= progress.epoch]
        return Checkpoint(progress, parts["table"], parts["optimiser"], parts["best"] or None, history)

    def rewind(self, history: list[dict[str, Any]]) -> None:
        """Drop lines of history that lie after the checkpoint."""
        with replacing(self.folder / "history.jsonl") as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in history), encoding="utf-8")

    def history(self) -> list[dict[str, Any]]:
        """One entry a finished epoch; a line cut short by a crash is passed over."""
        path = self.folder / "history.jsonl"
        rows = []
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue
        return rows

    def model(self, device: str) -> Tables:
        """The tables to predict with; of an unfinished run, the best so far."""
        path = self.folder / "model.safetensors"
        if path.exists():
            return _read_tensors(path, device)[0]
        checkpoint = self.checkpoint(device)
        if checkpoint is None:
            raise FocuseError(
                f"{self.folder}: nothing trained yet; continue with 'focuse train --resume {self.folder}'"
            )
        return checkpoint.final()

    def _write_tensors(self, name: str, tensors: Tables, metadata: dict[str, str]) -> None:
        with replacing(self.folder / name) as temporary:
            save_tensors(
                {key: value.detach().cpu().contiguous() for key, value in tensors.items()}, temporary, metadata
            )
            with temporary.open("rb") as file:
                os.fsync(file.fileno())


def _read_tensors(path: Path, device: str) -> tuple[Tables, dict[str, str]]:
    try:
        with safe_open(path, framework="pt", device=device) as file:
            return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise FocuseError(f"{path}: damaged file: {' '.join(str(error).split())}") from None


def _write_fixed(folder: Path, settings: Settings, splits: Splits, normaliser: Normaliser) -> None:
    parts = {"train": splits.train, "valid": splits.valid.graph, "test": splits.test.graph}
    config = {
        "format": FORMAT,
        "focuse": __version__,
        "torch": torch.__version__,
        "settings": {key: value for key, value in settings.to_dict().items() if value is not None},
        "sources": {name: graph.source for name, graph in parts.items()},
        "weighted": {name: graph.weighted for name, graph in parts.items()},
        "unseen": {"valid": asdict(splits.valid.unseen), "test": asdict(splits.test.unseen)},
    }
    (folder / "run.toml").write_text(to_toml(config), encoding="utf-8")
    splits.train.entities.write(folder / "entities.parquet")
    splits.train.relations.write(folder / "relations.parquet")
    columns = {
        f"{name}/{column}": getattr(graph, column)
        for name, graph in parts.items()
        for column in ("head", "relation", "tail", "weight")
    }
    save_arrays(columns, folder / "splits.safetensors")
    # A file of tensors must hold one.
    save_arrays(normaliser.arrays or {"nothing": np.zeros(1)}, folder / "normaliser.safetensors")


def _read_splits(folder: Path, config: dict[str, Any]) -> Splits:
    entities = Vocabulary.read(folder / "entities.parquet")
    relations = Vocabulary.read(folder / "relations.parquet")
    columns = load_arrays(folder / "splits.safetensors")
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
        )
        for name in ("train", "valid", "test")
    }
    unseen = {name: Unseen(**config["unseen"][name]) for name in ("valid", "test")}
    return Splits(parts["train"], Aligned(parts["valid"], unseen["valid"]), Aligned(parts["test"], unseen["test"]))
