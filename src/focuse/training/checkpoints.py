"""A run's folder: everything that prediction and resuming need, nothing pickled, nothing half-written.

run.toml                 every setting, resolved, with a format version
entities.parquet         names; relations.parquet likewise
splits.safetensors       encoded train, valid and test, what rules infer, and what is known to be false
numbers.safetensors      numbers of entities, where there are some
columns.safetensors      of several weight columns: their normalisers and importances
normaliser.safetensors   arrays of the weight normaliser
history.jsonl            one line an epoch
checkpoint.safetensors   tables, optimiser, best tables, pool and stopping state, replaced whole
checkpoint.previous.safetensors  the one before it, until the run is finished
training.lock            there while a training is at work
model.safetensors        the final tables
calibration.safetensors  from scores to weights; made when first asked for
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from focuse.errors import FocuseError, counted
from focuse.graph.checksums import check_row, seal_row
from focuse.graph.splits import Splits
from focuse.graph.weights import Normaliser
from focuse.graph.writing import flush, replacing
from focuse.signals import undisturbed
from focuse.training.files import (
    GO_ON,
    DamagedError,
    Tables,
    has_checksums,
    read_tensors,
    reading,
    write_tensors,
    writing,
)
from focuse.training.fixed import FORMAT, amend, read_fixed, write_fixed
from focuse.training.lock import Lock, UnwritableError, sweep, who_is_in
from focuse.training.settings import Settings

__all__ = ["FORMAT", "Checkpoint", "Progress", "Store", "Tables"]

NEWEST, PREVIOUS = "checkpoint.safetensors", "checkpoint.previous.safetensors"
MODEL, HISTORY, MANIFEST = "model.safetensors", "history.jsonl", "partitions/manifest.json"


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

    def __str__(self) -> str:
        """'3 epochs and 1 batch'."""
        return f"{counted(self.epoch, 'epochs')} and {counted(self.batch, 'batches')}"


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
    """Reads and writes one run's folder; whoever writes has its lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last_saved = time.monotonic()
        self.lock: Lock | None = None

    # ---- the fixed part -------------------------------------------------------------------------------------------

    @staticmethod
    def free(folder: Path) -> Path:
        """The folder to write a run to; an error where there is something already."""
        if folder.is_symlink():
            folder = folder.resolve()
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            if holder := who_is_in(folder):
                raise FocuseError(f"{folder}: {holder}; choose another --out, or wait for it")
            raise FocuseError(f"{folder}: exists and is not empty; choose another --out, or continue with --resume")
        if not folder.name:
            raise FocuseError(f"{folder}: choose a folder with a name of its own")
        return folder

    @classmethod
    def create(
        cls,
        folder: Path,
        settings: Settings,
        splits: Splits,
        normaliser: Normaliser,
        fill: Callable[[Store], None] = lambda store: None,
    ) -> Store:
        """A new folder with all but the weights, and what `fill` adds; it appears whole and locked, or not at all."""
        folder = cls.free(folder)
        sweep(folder)
        temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
        store, made = cls(temporary), False
        try:  # from before it is made: an interrupt that waits is heard just after
            try:
                temporary.mkdir(parents=True)
            except OSError as error:
                raise FocuseError(f"{folder}: {error.strerror or error}; choose a folder that can be written") from None
            with writing(folder):
                write_fixed(temporary, settings, splits, normaliser)
                fill(store)
                store._appear(folder)
            made = True
        except FocuseError as error:
            raise FocuseError(str(error).replace(str(temporary), str(folder)).replace(GO_ON, "")) from None
        finally:
            with undisturbed():  # a second Ctrl-C would leave what the first one has ended
                if not made:
                    store.release()
                shutil.rmtree(temporary, ignore_errors=True)
        return store

    def _appear(self, folder: Path) -> None:
        """Take the name that is meant for it, durably."""
        for path in (*self.folder.iterdir(), self.folder):
            flush(path)
        if sys.platform != "win32":  # there no folder can be renamed in which a file is open
            self.lock = Lock.take(self.folder)
        try:
            if folder.exists():
                folder.rmdir()
            os.rename(self.folder, folder)
        except OSError:
            self.free(folder)  # another training may have been quicker, which this says
            raise
        self.folder = folder
        if self.lock is not None:
            self.lock.path = folder / self.lock.path.name
        flush(folder.parent)
        self.take()

    def take(self) -> None:
        """Have the folder to oneself, until `release`; an error where another training has it."""
        if self.lock is None:
            self.lock = Lock.take(self.folder)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """As `take`, for a block. Of a finished run in a folder that nobody can write in, nothing is taken."""
        try:
            self.take()
        except UnwritableError:
            if not (self.folder / MODEL).exists():
                raise
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Others may write in the folder."""
        if self.lock is not None:
            self.lock.release()
        self.lock = None

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
        self._amend(settings)
        if checkpoint is not None:
            self.save(checkpoint)
            (self.folder / "calibration.safetensors").unlink(missing_ok=True)  # the tables change from here on
            (self.folder / "model.safetensors").unlink(missing_ok=True)

    def _amend(self, settings: Settings) -> None:
        amend(self.folder, settings)

    # ---- the moving part ------------------------------------------------------------------------------------------

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint, whole; the one before it is kept."""
        found = {"table": checkpoint.tables, "optimiser": checkpoint.optimiser, "best": checkpoint.best or {}}
        found["pool"] = checkpoint.pool
        tensors = {f"{part}/{name}": value for part, values in found.items() for name, value in values.items()}
        progress = {"progress": json.dumps(asdict(checkpoint.progress))}
        history = self.folder / HISTORY
        if history.exists():  # its rows are on the disk before a checkpoint speaks of them
            with writing(history):
                flush(history)
        self._write_tensors(self.folder / NEWEST, tensors, progress, keep=self.folder / PREVIOUS)
        self.last_saved = time.monotonic()

    def append(self, row: dict[str, Any]) -> None:
        """One line of history."""
        path = self.folder / HISTORY
        with writing(path), path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(seal_row(row)) + "\n")

    def finish(self, checkpoint: Checkpoint) -> None:
        """The tables to predict with, then the last checkpoint: a run that says it is finished has both."""
        (self.folder / "calibration.safetensors").unlink(missing_ok=True)  # it was of other tables
        self._write_tensors(self.folder / MODEL, checkpoint.final(), {})
        self.save(checkpoint)
        (self.folder / PREVIOUS).unlink(missing_ok=True)  # its tables are kept twice now

    def mend(self, checkpoint: Checkpoint) -> None:
        """Of a finished run: write its tables again where they were removed, and remove what a killed process left."""
        if self.lock is None:
            return  # nobody can write here
        if not (self.folder / MODEL).exists():
            self._write_tensors(self.folder / MODEL, checkpoint.final(), {})
        self._sweep()
        (self.folder / PREVIOUS).unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove files that a killed process left half-written."""
        for pattern in (".*.*.[0-9]*", ".tmp*"):  # ours, and those of the tensor writer
            for left in self.folder.glob(pattern):
                left.unlink(missing_ok=True)

    def checkpoint(self, device: str = "cpu", note: Callable[[str], None] | None = None) -> Checkpoint | None:
        """The newest checkpoint, None if there is none yet. History is cut back to it.

        With `note` a damaged one is removed for the one before it, and that is told; else it is an error.
        """
        newest, previous = self.folder / NEWEST, self.folder / PREVIOUS
        if not newest.exists():  # a training killed in the middle of a replacement has only the one before
            return self._read_checkpoint(previous, device, self._advice()) if previous.exists() else None
        if not previous.exists():
            return self._read_checkpoint(newest, device, self._advice())
        try:
            return self._read_checkpoint(newest, device, "")
        except DamagedError as error:
            if note is None:
                again = f"focuse train --resume {shlex.quote(str(self.folder))}"
                raise DamagedError(f"{error}; go on from the one before it: {again}") from None
            found = self._read_checkpoint(previous, device, self._advice())
            note(f"{error}; going on from the one before it, of epoch {found.progress.epoch}")
            self._step_back()
            return found

    def _step_back(self) -> None:
        """The checkpoint before the newest takes its place."""
        with writing(self.folder / NEWEST):
            (self.folder / PREVIOUS).replace(self.folder / NEWEST)

    def _advice(self) -> str:
        """What to do where no checkpoint is whole."""
        if (self.folder / MODEL).exists():
            return "the run still predicts; to train on, put a copy of it back, or begin with its embeddings (--start)"
        if (self.folder / "extended.json").exists():
            return "put a copy of it back, or extend again"
        return "put a copy of it back, or remove it: --resume then begins again, to the same bits"

    def _read_checkpoint(self, path: Path, device: str, advice: str) -> Checkpoint:
        tensors, metadata = self._read_tensors(path, device, advice)
        parts: dict[str, Tables] = {"table": {}, "optimiser": {}, "best": {}, "pool": {}}
        with reading(path, advice):
            progress = Progress(**json.loads(metadata["progress"]))
            for key, value in tensors.items():
                part, _, name = key.partition("/")
                parts[part][name] = value
            if not {"entity", "relation"} <= set(parts["table"]):
                raise ValueError("no tables in it")
        history = [row for row in self.history(progress.epoch) if row["epoch"] <= progress.epoch]
        return Checkpoint(progress, parts["table"], parts["optimiser"], parts["best"] or None, history, parts["pool"])

    def rewind(self, history: list[dict[str, Any]]) -> None:
        """Drop lines of history that lie after the checkpoint, and files that a killed process left half-written."""
        self._sweep()
        path = self.folder / HISTORY
        if not history:  # an empty file would be one that was cut short
            path.unlink(missing_ok=True)
            return
        with writing(path), replacing(path, durable=True) as temporary:
            lines = "".join(json.dumps(seal_row(row)) + "\n" for row in history)
            temporary.write_text(lines, encoding="utf-8", newline="\n")

    def history(self, epoch: int = 0) -> list[dict[str, Any]]:
        """One entry a finished epoch, up to `epoch` at least; a last line cut short by a crash is passed over."""
        path = self.folder / HISTORY
        with reading(path, "put a copy of it back, or remove it to do without"):
            if not path.exists():
                return []
            required = has_checksums(self.folder)
            rows = read_history(path.read_bytes(), required)
            if required and epoch > (rows[-1]["epoch"] if rows else 0):
                raise ValueError(f"cut short before epoch {epoch}")
            return rows

    def model(self, device: str) -> tuple[Tables, list[dict[str, Any]]]:
        """The tables to predict with and their history; of an unfinished run, the best so far."""
        path = self.folder / MODEL
        if path.exists():
            advice = "put a copy of it back, or train again"
            if (self.folder / NEWEST).exists():
                advice = "remove it, the checkpoint has the same tables"
            elif (self.folder / MANIFEST).exists():
                advice = "remove it: --resume then writes it anew, from its partitions"
            return self._read_tensors(path, device, advice)[0], self.history(self._finished())
        if (self.folder / "partitions").is_dir():
            again = f"focuse train --resume {shlex.quote(str(self.folder))}"
            raise FocuseError(f"{self.folder}: its tables are in partitions still; finish it: {again}")
        checkpoint = self.checkpoint(device)
        if checkpoint is None:
            raise FocuseError(
                f"{self.folder}: nothing trained yet; continue with 'focuse train --resume {self.folder}'"
            )
        return checkpoint.final(), checkpoint.history

    def _read_tensors(self, path: Path, device: str, advice: str = "") -> tuple[Tables, dict[str, str]]:
        return read_tensors(path, device, advice)

    def _write_tensors(self, path: Path, tensors: Tables, metadata: dict[str, str], keep: Path | None = None) -> None:
        write_tensors(path, tensors, metadata, keep)

    def _finished(self) -> int:
        """The last epoch of a finished run, by what its checkpoint or manifest says of it; 0 where none does."""
        newest, manifest = self.folder / NEWEST, self.folder / MANIFEST
        with suppress(OSError, SafetensorError, KeyError, TypeError, ValueError):
            if newest.exists() or not manifest.exists():
                with safe_open(newest, framework="pt") as file:
                    at = Progress(**json.loads(file.metadata()["progress"]))
            else:
                at = Progress(**json.loads(manifest.read_text(encoding="utf-8"))["progress"])
            return int(at.epoch) if at.finished else 0
        return 0


def read_history(data: bytes, required: bool) -> list[dict[str, Any]]:
    """The rows of history's lines; ValueError for one that was altered, or has no checksum and is `required` to."""
    rows: list[dict[str, Any]] = []
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        cut = number == len(lines)  # no line end behind it: a crash came in between
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("no row")
        except (ValueError, RecursionError):
            if required and (not cut or b"}" in line):  # what is cut short has no end
                raise ValueError(f"line {number} was altered since it was written") from None
            continue
        try:
            row = check_row(row, required)
        except ValueError as error:
            raise ValueError(f"line {number} was {error}") from None
        if isinstance(row.get("epoch"), int) and isinstance(row.get("loss"), int | float):
            rows.append(row)
    return rows
