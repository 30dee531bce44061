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
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from focuse.errors import FocuseError
from focuse.graph.splits import Splits
from focuse.graph.weights import Normaliser
from focuse.graph.writing import replacing
from focuse.training.files import Tables, read_tensors, reading, write_tensors, writing
from focuse.training.fixed import FORMAT, amend, read_fixed, write_fixed
from focuse.training.settings import Settings

__all__ = ["FORMAT", "Checkpoint", "Progress", "Store", "Tables"]


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
            with writing(folder):
                write_fixed(temporary, settings, splits, normaliser)
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
        return read_fixed(self.folder, model)

    def extend(self, settings: Settings, checkpoint: Checkpoint | None) -> None:
        """More epochs for a run, finished or not; what it predicts with is then the checkpoint's best."""
        amend(self.folder, settings)
        if checkpoint is not None:
            self.save(checkpoint)
            (self.folder / "calibration.safetensors").unlink(missing_ok=True)  # the tables change from here on
            (self.folder / "model.safetensors").unlink(missing_ok=True)

    # ---- the moving part ------------------------------------------------------------------------------------------

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint, whole."""
        found = {"table": checkpoint.tables, "optimiser": checkpoint.optimiser, "best": checkpoint.best or {}}
        found["pool"] = checkpoint.pool
        tensors = {f"{part}/{name}": value for part, values in found.items() for name, value in values.items()}
        progress = {"progress": json.dumps(asdict(checkpoint.progress))}
        write_tensors(self.folder / "checkpoint.safetensors", tensors, progress)
        self.last_saved = time.monotonic()

    def append(self, row: dict[str, Any]) -> None:
        """One line of history."""
        path = self.folder / "history.jsonl"
        with writing(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def finish(self, checkpoint: Checkpoint) -> None:
        """The tables to predict with, then the last checkpoint: a run that says it is finished has both."""
        (self.folder / "calibration.safetensors").unlink(missing_ok=True)  # it was of other tables
        write_tensors(self.folder / "model.safetensors", checkpoint.final(), {})
        self.save(checkpoint)

    def checkpoint(self, device: str = "cpu") -> Checkpoint | None:
        """The newest checkpoint, None if there is none yet. History is cut back to it."""
        path = self.folder / "checkpoint.safetensors"
        if not path.exists():
            return None
        tensors, metadata = read_tensors(path, device)
        parts: dict[str, Tables] = {"table": {}, "optimiser": {}, "best": {}, "pool": {}}
        with reading(path):
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
        with writing(path), replacing(path) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in history), encoding="utf-8")

    def history(self) -> list[dict[str, Any]]:
        """One entry a finished epoch; a line cut short by a crash is passed over."""
        path = self.folder / "history.jsonl"
        rows = []
        with reading(path):
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
            return read_tensors(path, device)[0], self.history()
        checkpoint = self.checkpoint(device)
        if checkpoint is None:
            raise FocuseError(
                f"{self.folder}: nothing trained yet; continue with 'focuse train --resume {self.folder}'"
            )
        return checkpoint.final(), checkpoint.history
