"""The folder of a run: metadata, history, checkpoints and the trained model.

It holds everything that prediction and resuming need; nothing is pickled, and nothing is half-written.

    run.toml                 every setting, resolved, with a format version
    entities.parquet         names; relations.parquet likewise
    splits.safetensors       encoded train, valid and test, what rules infer, and what is known to be false
    numbers.safetensors      numbers of entities, where there are some
    columns.safetensors      of several weight columns: their normalizers and importances
    normaliser.safetensors   arrays of the weight normalizer
    history.jsonl            one line per epoch
    checkpoint.safetensors   tables, optimizer, best tables, pool and stopping state, replaced whole
    checkpoint.previous.safetensors  the one before it, until the run is finished
    training.lock            there while a training is at work
    model.safetensors        the final tables
    calibration.safetensors  from scores to weights; made when first asked for
"""

from __future__ import annotations

import glob
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from focuse.config import Config
from focuse.data.splits import Splits
from focuse.data.weights import Normalizer
from focuse.engines.process_group import ProcessGroup
from focuse.errors import FocuseError
from focuse.storage.atomic import FULL, ProcessLock, fsync_path, lock_holder, replace_file
from focuse.storage.metadata import CONFIG, Metadata, read_metadata, run_file, write_metadata, write_settings
from focuse.storage.tables import MODEL, ONE_PROCESS, PARTITIONS, Checkpoint, TableStorage, WholeTables, last_epoch
from focuse.storage.tensors import OR_RESUME, Tables, check_row, has_checksums, reading, seal_row, writing
from focuse.system import deferred_signals

HISTORY, LOCK = "history.jsonl", "training.lock"
JOB = "job.txt"  # names the torchrun job that created the run
CREATED: set[Path] = set()  # run folders that this process has created


class ReadOnlyError(FocuseError):
    """A run folder in which no file can be written."""


class RunFolder:
    """Reads and writes the folder of one run; `tables` says how embedding tables are kept in it.

    Only a process that holds the lock writes. In a training of several processes all call every method: the main
    process writes the files, and each its own rows of tables.
    """

    def __init__(self, path: Path, tables: TableStorage | None = None) -> None:
        self.tables = tables or WholeTables()
        self.tables.path = path
        self.group = self.tables.group
        self.last_saved = time.monotonic()
        self._lock: ProcessLock | None = None

    @property
    def path(self) -> Path:
        return self.tables.path

    def sidecar(self, name: str) -> Path:
        """The path of a file that is kept next to those of every run."""
        return run_file(self.path, name)

    # ---- creating, opening, locking -------------------------------------------------------------------------------

    @staticmethod
    def ensure_new(path: Path, group: ProcessGroup = ONE_PROCESS) -> Path:
        """The path for a new run; FocuseError if a run cannot be created there."""

        def check() -> Path:
            target = path.resolve() if path.is_symlink() else path
            if target.exists() and (not target.is_dir() or any(target.iterdir())):
                if holder := lock_holder(target / LOCK):
                    raise FocuseError(f"{target}: is in use by {holder}; choose another --out, or wait for it")
                raise FocuseError(f"{target}: exists and is not empty; choose another --out, or continue with --resume")
            if not target.name:
                raise FocuseError(f"{target}: choose a folder with a name of its own")
            return target

        return Path(group.run_on_main(check))

    @classmethod
    def create(
        cls,
        path: Path,
        settings: Config,
        splits: Splits,
        normalizer: Normalizer,
        tables: TableStorage | None = None,
        fill: Callable[[RunFolder], None] = lambda folder: None,
    ) -> RunFolder:
        """Create a run folder with its metadata and what `fill` adds; it appears complete and locked, or not at all.

        With several processes, `fill` follows when the folder is there.
        """
        folder = cls(path, tables)
        CREATED.add(path.resolve())
        several = not folder.group.is_single
        metadata = settings, splits, normalizer
        folder.tables.path = folder.group.run_on_main(lambda: folder._create(metadata, _sign if several else fill))
        if several:
            fill(folder)
        return folder

    def _create(self, metadata: Metadata, fill: Callable[[RunFolder], None]) -> Path:
        path = self.ensure_new(self.path)
        _remove_abandoned(path)
        temporary = self.tables.path = path.with_name(f".{path.name}.{os.getpid()}")
        created = False
        try:  # from before the folder exists: a pending interrupt is raised just after
            try:
                temporary.mkdir(parents=True)
            except OSError as error:
                raise FocuseError(f"{path}: {error.strerror or error}; choose a folder that can be written") from None
            with writing(path):
                write_metadata(temporary, *metadata)
                fill(self)
                self._publish(path)
            created = True
        except FocuseError as error:
            raise FocuseError(str(error).replace(str(temporary), str(path)).replace(OR_RESUME, "")) from None
        finally:
            with deferred_signals():  # a second Ctrl-C must not stop the removal
                if not created:
                    self.unlock()
                shutil.rmtree(temporary, ignore_errors=True)
        return path

    def _publish(self, path: Path) -> None:
        """Flush the folder to the disk and rename it to `path`."""
        for each in (*self.path.iterdir(), self.path):
            fsync_path(each)
        if sys.platform != "win32":  # a folder with an open file cannot be renamed there
            self._acquire()
        try:
            if path.exists():
                path.rmdir()
            os.rename(self.path, path)
        except OSError:
            self.ensure_new(path)  # says so if another training was faster
            raise
        self.tables.path = path
        if self._lock is not None:
            self._lock.path = path / LOCK
        fsync_path(path.parent)
        self._acquire()

    @classmethod
    def open(cls, path: Path, tables: TableStorage | None = None) -> RunFolder:
        """The folder of a run that exists."""
        if not (path / CONFIG).is_file():
            raise FocuseError(f"{path}: not a run (no {CONFIG}); give a folder that 'focuse train --out' made")
        return cls(path, tables)

    @staticmethod
    def was_created_by(path: Path, group: ProcessGroup) -> bool:
        """Whether the torchrun job of these processes created the run before torchrun restarted them."""
        if group.is_single or path.resolve() in CREATED:
            return False

        def is_ours() -> bool:
            job = path / JOB
            return job.is_file() and (path / CONFIG).is_file() and job.read_text(encoding="utf-8") == group.job

        return bool(group.run_on_main(is_ours))

    def lock(self) -> None:
        """Lock the folder for this training until `unlock`; FocuseError if another one has locked it."""
        self.group.run_on_main(self._acquire)

    def _acquire(self) -> None:
        if self._lock is not None:
            return
        try:
            self._lock = ProcessLock.acquire(self.path / LOCK)
        except OSError as error:
            advice = "make room" if error.errno in FULL else "make it writable, or go on with a copy of it"
            raise ReadOnlyError(f"{self.path}: cannot be written: {error.strerror or error}; {advice}") from None
        if self._lock is None:
            holder = lock_holder(self.path / LOCK) or "another process"
            raise FocuseError(f"{self.path}: is in use by {holder}; wait for it, or stop it first")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for a block. That of a finished run which cannot be written is not locked."""
        try:
            self.lock()
        except ReadOnlyError:
            if not (self.path / MODEL).exists():
                raise
        try:
            yield
        finally:
            self.unlock()

    def unlock(self) -> None:
        """Let others write in the folder."""
        if self._lock is not None:
            self._lock.release()
        self._lock = None

    # ---- metadata -------------------------------------------------------------------------------------------------

    def metadata(self, model: object = None) -> Metadata:
        """Settings, splits and weight scaling of the run; `model` is its class, if that cannot be imported."""
        return read_metadata(self.path, model)

    def reopen(self, settings: Config, checkpoint: Checkpoint | None) -> None:
        """Prepare a run to go on with other settings; until it is finished again, it predicts with its checkpoint."""
        self.group.run_on_main(lambda: write_settings(self.path, settings))
        if checkpoint is not None:
            self.save(checkpoint)
            self.group.run_on_main(
                lambda: self._remove("calibration.safetensors", MODEL)
            )  # the tables change from here on

    def _remove(self, *names: str) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    # ---- checkpoints and the model --------------------------------------------------------------------------------

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint."""
        self.group.run_on_main(self._sync_history)
        self.tables.save(checkpoint)
        self.last_saved = time.monotonic()

    def load_checkpoint(self, device: str = "cpu", note: Callable[[str], None] | None = None) -> Checkpoint | None:
        """The newest checkpoint with the history up to it, None if there is none yet.

        With `note` a damaged checkpoint is replaced by the one before it, which is noted; else it is an error.
        """
        found = self.tables.load(device, note)
        if found is not None:
            at = found.progress.epoch
            found.history = [row for row in self.history(at) if row["epoch"] <= at]
        return found

    def finish(self, checkpoint: Checkpoint) -> None:
        """Write the tables to predict with, then the last checkpoint: a run that says it is finished has both."""
        self.group.run_on_main(lambda: self._remove("calibration.safetensors"))  # it was fitted to other tables
        self.tables.write_model(checkpoint)
        self.save(checkpoint)
        self.group.run_on_main(self.tables.clean_up)

    def repair(self, checkpoint: Checkpoint) -> None:
        """Write the tables of a finished run again if they were removed, and remove what a killed process left."""
        writable, missing = self.group.run_on_main(lambda: (self._lock is not None, not (self.path / MODEL).exists()))
        if writable and missing:
            self.tables.write_model(checkpoint)
        if writable:
            self.group.run_on_main(self._clean_temporary)
            self.group.run_on_main(self.tables.clean_up)

    def _clean_temporary(self) -> None:
        """Remove files that a killed process left half-written."""
        for pattern in (".*.*.[0-9]*", ".tmp*"):
            for left in self.path.glob(pattern):
                left.unlink(missing_ok=True)

    def model(self, device: str) -> tuple[Tables, list[dict[str, Any]]]:
        """The tables to predict with and the history; of an unfinished run the best tables so far."""
        if (self.path / MODEL).exists():
            return self.tables.read_model(device), self.history(last_epoch(self.path))
        again = f"focuse train --resume {shlex.quote(str(self.path))}"
        if (self.path / PARTITIONS).is_dir():
            raise FocuseError(f"{self.path}: its tables are still in partitions; finish it: {again}")
        checkpoint = self.load_checkpoint(device)
        if checkpoint is None:
            raise FocuseError(f"{self.path}: nothing trained yet; continue with: {again}")
        return checkpoint.final(), checkpoint.history

    # ---- history --------------------------------------------------------------------------------------------------

    def append(self, row: dict[str, Any]) -> None:
        """Append the line of an epoch to the history."""
        if self.group.is_main:
            path = self.path / HISTORY
            with writing(path), path.open("a", encoding="utf-8", newline="\n") as file:
                file.write(json.dumps(seal_row(row)) + "\n")

    def _sync_history(self) -> None:
        """The lines must be on the disk before the checkpoint that follows them."""
        path = self.path / HISTORY
        if path.exists():
            with writing(path):
                fsync_path(path)

    def truncate_history(self, history: list[dict[str, Any]]) -> None:
        """Replace the history by that of a checkpoint, and remove files that a killed process left half-written."""
        self.group.run_on_main(lambda: self._write_history(history))

    def _write_history(self, history: list[dict[str, Any]]) -> None:
        self._clean_temporary()
        path = self.path / HISTORY
        if not history:  # an empty file would be one that was cut short
            path.unlink(missing_ok=True)
            return
        with writing(path), replace_file(path, durable=True) as temporary:
            lines = "".join(json.dumps(seal_row(row)) + "\n" for row in history)
            temporary.write_text(lines, encoding="utf-8", newline="\n")

    def history(self, epoch: int = 0) -> list[dict[str, Any]]:
        """One row per finished epoch, at least up to `epoch`; a last line that a crash cut short is skipped."""
        path = self.path / HISTORY
        with reading(path, "put a copy of it back, or remove it to do without"):
            if not path.exists():
                return []
            required = has_checksums(self.path)
            rows = _history_rows(path.read_bytes(), required)
            if required and epoch > (rows[-1]["epoch"] if rows else 0):
                raise ValueError(f"cut short before epoch {epoch}")
            return rows


def _history_rows(data: bytes, required: bool) -> list[dict[str, Any]]:
    """The rows in the lines of a history; ValueError for one that was altered, or has no checksum as `required`."""
    rows: list[dict[str, Any]] = []
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        is_cut = number == len(lines)  # no line end: a crash came in between
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("no row")
        except (ValueError, RecursionError):
            if required and (not is_cut or b"}" in line):  # a line that was cut has no end
                raise ValueError(f"line {number} was altered since it was written") from None
            continue
        try:
            row = check_row(row, required)
        except ValueError as error:
            raise ValueError(f"line {number} was {error}") from None
        if isinstance(row.get("epoch"), int) and isinstance(row.get("loss"), int | float):
            rows.append(row)
    return rows


def _sign(folder: RunFolder) -> None:
    """Write which torchrun job creates a run."""
    (folder.path / JOB).write_text(folder.group.job, encoding="utf-8")


def _remove_abandoned(path: Path) -> None:
    """Remove the temporary folders of processes that were killed while they created a run at `path`."""
    if sys.platform == "win32":  # os.kill would end the process there
        return
    for left in path.parent.glob(f".{glob.escape(path.name)}.[0-9]*"):
        process = left.name.rpartition(".")[2]
        if process.isdecimal() and left.is_dir() and not lock_holder(left / LOCK) and not _is_alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)


def _is_alive(process: int) -> bool:
    """Whether a process of this number exists on this machine."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
