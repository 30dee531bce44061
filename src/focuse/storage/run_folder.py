"""The folder of a run: metadata, history, checkpoints and the trained model.

The folder holds everything that prediction and resuming need. Nothing is pickled, and every file is replaced as a
whole, so that readers never see a part of one.

    request.json                     the files and settings of the training, until the files of metadata are written
    run.toml                         the resolved settings, the format version and checksums
    entities.parquet                 the names of entities
    relations.parquet                the names of relations
    splits.safetensors               the encoded edges of train, valid and test, inferred triples and known negatives
    weight_scaling.safetensors       the arrays of the weight normalizer
    weight_columns.safetensors       the normalizers and importances of several weight columns, if there are several
    node_attributes.safetensors      numeric attributes of entities, if there are any
    weight_model/                    settings, checkpoints, history and tables of the weight model, if there is one
    preference.json                  what 'likely' and 'strong' mean in this run, with the trials that chose it
    label_exponent.json              the trials that chose the label exponent, if it was searched for
    extended.json                    the additions of a run that was extended
    history.jsonl                    one line per epoch
    checkpoint.safetensors           tables, optimizer state, best tables, sample pool and progress
    partitions/                      the checkpoint of partitioned training, see `focuse.storage.tables`
    model.safetensors                the final tables
    calibration.safetensors          the map from scores to weights, written when it is first needed
    weights.safetensors, probability.safetensors  estimators of weights and probabilities, written when first needed
    job.txt                          the torchrun job that created the run, if several processes did
    training.lock                    the lock, while a process trains in the folder

Runs of format 2 have other names for some of these files; `focuse.storage.metadata` lists them.
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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from focuse.config import Config
from focuse.data.splits import Splits
from focuse.data.weights import Normalizer
from focuse.engines.process_group import ProcessGroup
from focuse.errors import FocuseError
from focuse.models.registry import trust_option
from focuse.storage.atomic import DISK_FULL_ERRORS, ProcessLock, fsync_path, lock_holder, replace_file
from focuse.storage.metadata import CONFIG, Metadata, read_metadata, run_file, write_metadata, write_settings
from focuse.storage.tables import MODEL, ONE_PROCESS, PARTITIONS, Checkpoint, TableStorage
from focuse.storage.tensors import OR_RESUME, Tables, check_row, has_checksums, reading, seal_row, writing
from focuse.system import deferred_signals

WEIGHT_MODEL = "weight_model"  # the folder of the weight model in that of the run
HISTORY, LOCK = "history.jsonl", "training.lock"
REQUEST = "request.json"  # what the training was asked for, until its metadata are written (training/request.py)
NEW_METADATA = ".metadata"  # a folder in which metadata are written before they appear
JOB = "job.txt"  # holds the name of the torchrun job that created the run
CREATED_FOLDERS: set[Path] = set()  # run folders that this process has created


class RunFolder:
    """A reader and writer of the folder of one run; `storage` reads and writes its embedding tables.

    Only a process that holds the lock writes. If several processes train, all of them call every method: the main
    process writes the files, and each process writes its own rows of the tables.
    """

    def __init__(self, path: Path, storage: TableStorage | None = None) -> None:
        self.storage = storage or TableStorage()
        self.storage.path = path
        self.group = self.storage.group
        self.last_saved = time.monotonic()
        self.exists = False  # whether this object has created the folder or opened it
        self.resume_with = ""  # the command that continues the training, if this is a part of a run
        self.has_progress = False  # whether this object has stored an epoch, or a part of one
        self._new_parents: list[Path] = []
        self._lock: ProcessLock | None = None

    @property
    def path(self) -> Path:
        """The path of the folder."""
        return self.storage.path

    def file_path(self, name: str) -> Path:
        """Return the path of a file in the folder; runs of an older format may have it under another name."""
        return run_file(self.path, name)

    # ---- creating, opening, locking -------------------------------------------------------------------------------

    @staticmethod
    def ensure_new(path: Path, group: ProcessGroup = ONE_PROCESS) -> Path:
        """Return the path of a new run; raise FocuseError if a run cannot be created there."""

        def check() -> Path:
            target = path.resolve() if path.is_symlink() else path
            if target.exists() and (not target.is_dir() or any(target.iterdir())):
                if holder := lock_holder(target / LOCK):
                    raise FocuseError(f"{target}: is in use by {holder}; choose another folder, or wait for it")
                advice = "choose another folder" + (", or resume it" if _is_run(target) else "")
                fault = "exists and is not empty" if target.is_dir() else "is a file"
                raise FocuseError(f"{target}: {fault}; {advice}")
            if not target.name:
                raise FocuseError(f"{target}: choose a folder with a name of its own")
            return target

        return Path(group.run_on_main(check))

    def create(self, write: Callable[[RunFolder], object]) -> None:
        """Create the folder with the files that `write` writes to its path.

        The folder appears complete and locked, or not at all. With several processes, the main process creates it.
        """
        CREATED_FOLDERS.add(self.path.resolve())
        self.storage.path = self.group.run_on_main(lambda: self._create(write))
        self.exists = True

    def _create(self, write: Callable[[RunFolder], object]) -> Path:
        path = self.ensure_new(self.path)
        _remove_abandoned(path)
        temporary = self.storage.path = path.with_name(f".{path.name}.{os.getpid()}")
        self._new_parents = [parent for parent in path.parents if not parent.exists()]
        try:  # this begins before the folder exists, because a pending interrupt is raised just after it is created
            try:
                temporary.mkdir(parents=True)
            except OSError as error:
                raise FocuseError(f"{path}: {error.strerror or error}; choose a folder that can be written") from None
            with writing(path):
                write(self)
                if not self.group.is_single:
                    (temporary / JOB).write_text(self.group.job, encoding="utf-8")
                self._move_into_place(path)
        except FocuseError as error:
            raise FocuseError(str(error).replace(str(temporary), str(path)).replace(OR_RESUME, "")) from None
        finally:
            with deferred_signals():  # a second Ctrl-C must not interrupt the removal
                self.storage.path = path
                if not self.exists:
                    self.unlock()
                shutil.rmtree(temporary, ignore_errors=True)
                if not self.exists:
                    self._remove_new_parents()
        return path

    def _remove_new_parents(self) -> None:
        for parent in self._new_parents:
            with suppress(OSError):  # another process has written to it
                parent.rmdir()

    def discard(self) -> None:
        """Remove the folder, and the empty folders above it that were created for it."""
        self.unlock()
        shutil.rmtree(self.path, ignore_errors=True)
        self._remove_new_parents()

    def _move_into_place(self, path: Path) -> None:
        """Flush the temporary folder to the disk, lock it and rename it to `path`."""
        for entry in (*self.path.iterdir(), self.path):
            fsync_path(entry)
        if sys.platform != "win32":  # Windows cannot rename a folder with an open file
            self._acquire()
        try:
            if path.exists():
                path.rmdir()
            os.rename(self.path, path)
        except OSError:
            self.ensure_new(path)  # raises a better error if another process has created the run
            raise
        self.storage.path, self.exists = path, True
        if self._lock is not None:
            self._lock.path = path / LOCK
        fsync_path(path.parent)
        self._acquire()

    @classmethod
    def open(cls, path: Path, storage: TableStorage | None = None, *, unread: bool = False) -> RunFolder:
        """Return the folder of an existing run; raise FocuseError if there is none.

        With `unread`, it may also be one whose training was stopped before its input was read.
        """
        if not _is_run(path):
            raise FocuseError(f"{path}: not a run (no {CONFIG}); give a folder that 'focuse train' created")
        if not unread and not (path / CONFIG).is_file():
            holder, command = lock_holder(path / LOCK), resume_command(path)
            advice = f"wait for {holder}, which reads it" if holder else f"continue with: {command}"
            raise FocuseError(f"{path}: the input of its training is not read yet; {advice}")
        folder = cls(path, storage)
        folder.exists = True
        return folder

    @property
    def has_metadata(self) -> bool:
        """Whether the input was read and the metadata are written."""
        return (self.path / CONFIG).is_file()

    def store_tables_in(self, storage: TableStorage) -> None:
        """Read and write the tables by another storage from here on."""
        storage.path = self.path
        self.storage, self.group = storage, storage.group

    @staticmethod
    def was_created_by(path: Path, group: ProcessGroup) -> bool:
        """Return whether the torchrun job of these processes created the run before torchrun restarted them."""
        if group.is_single or path.resolve() in CREATED_FOLDERS:
            return False

        def is_ours() -> bool:
            job = path / JOB
            return job.is_file() and _is_run(path) and job.read_text(encoding="utf-8") == group.job

        return bool(group.run_on_main(is_ours))

    def lock(self) -> None:
        """Lock the folder until `unlock`; raise FocuseError if another process has locked it."""
        self.group.run_on_main(self._acquire)

    def _acquire(self) -> None:
        if self._lock is not None:
            return
        try:
            self._lock = ProcessLock.acquire(self.path / LOCK)
        except OSError as error:
            full = error.errno in DISK_FULL_ERRORS
            advice = "free some space" if full else "make it writable, or continue with a copy of it"
            raise FocuseError(f"{self.path}: cannot be written: {error.strerror or error}; {advice}") from None
        if self._lock is None:
            holder = lock_holder(self.path / LOCK) or "another process"
            raise FocuseError(f"{self.path}: is in use by {holder}; wait for it, or stop it first")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder within a block."""
        self.lock()
        try:
            yield
        finally:
            self.unlock()

    def unlock(self) -> None:
        """Release the lock, so that other processes can write in the folder."""
        if self._lock is not None:
            self._lock.release()
        self._lock = None

    # ---- metadata -------------------------------------------------------------------------------------------------

    def metadata(self, model: object = None) -> Metadata:
        """Return settings, splits and weight scaling; `model` is the model's class, if that cannot be imported."""
        return read_metadata(self.path, model)

    def write_metadata(self, settings: Config, splits: Splits, normalizer: Normalizer) -> None:
        """Write the metadata, which replace the request, or create the folder with them if it does not exist."""

        def write() -> None:
            new = self.path / NEW_METADATA
            try:
                shutil.rmtree(new, ignore_errors=True)
                with writing(self.path):
                    new.mkdir()
                    write_metadata(new, settings, splits, normalizer)
                    for entry in sorted(new.iterdir(), key=lambda entry: entry.name == CONFIG):
                        fsync_path(entry)
                        fsync_path(self.path)  # run.toml comes last, when all that it needs is on the disk
                        os.replace(entry, self.path / entry.name)
                    fsync_path(self.path)
            finally:
                with deferred_signals():
                    shutil.rmtree(new, ignore_errors=True)
            self._remove(REQUEST)

        if self.exists:
            self.group.run_on_main(write)
        else:
            self.create(lambda folder: write_metadata(folder.path, settings, splits, normalizer))

    def write_settings(self, settings: Config) -> None:
        """Replace the settings."""
        self.group.run_on_main(lambda: write_settings(self.path, settings))

    def continue_with(self, settings: Config, checkpoint: Checkpoint | None) -> None:
        """Prepare a run to continue with other settings; it predicts with its checkpoint until it is finished again."""
        self.write_settings(settings)
        if checkpoint is not None:
            self.save(checkpoint)
            # The tables change from here on.
            self.group.run_on_main(lambda: self._remove("calibration.safetensors", MODEL))

    def _remove(self, *names: str) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    # ---- checkpoints and the model --------------------------------------------------------------------------------

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint."""
        self.group.run_on_main(self._sync_history)
        self.storage.save(checkpoint)
        self.last_saved = time.monotonic()
        self.has_progress |= bool(checkpoint.progress.epoch or checkpoint.progress.batch)

    def load_checkpoint(self, device: str = "cpu") -> Checkpoint | None:
        """Return the checkpoint with the history up to it, or None if there is none yet."""
        checkpoint = self.storage.load(device)
        if checkpoint is not None:
            epoch = checkpoint.progress.epoch
            checkpoint.history = [row for row in self.history(epoch) if row["epoch"] <= epoch]
        return checkpoint

    def finish(self, checkpoint: Checkpoint) -> None:
        """Write the final tables and then the last checkpoint, so that a run marked as finished has both."""
        self.group.run_on_main(lambda: self._remove("calibration.safetensors"))  # it was fitted to other tables
        self.storage.write_model(checkpoint)
        self.save(checkpoint)

    def repair(self, checkpoint: Checkpoint) -> None:
        """Write the final tables again if they were removed, and remove the temporary files of a killed process."""
        if self.group.run_on_main(lambda: not (self.path / MODEL).exists()):
            self.storage.write_model(checkpoint)
        self.group.run_on_main(self._clean_temporary)

    def _clean_temporary(self) -> None:
        """Remove files that a killed process left half-written, and a request that the metadata have replaced."""
        shutil.rmtree(self.path / NEW_METADATA, ignore_errors=True)
        self._remove(REQUEST)
        for pattern in (".*.*.[0-9]*", ".tmp*"):
            for temporary in self.path.glob(pattern):
                temporary.unlink(missing_ok=True)

    def model(self, device: str) -> tuple[Tables, list[dict[str, Any]]]:
        """Return the final tables and the history; an unfinished run has its best tables so far."""
        if (self.path / MODEL).exists():
            return self.storage.read_model(device), self.history(self.storage.last_epoch())
        command = resume_command(self.path)
        if (self.path / PARTITIONS).is_dir():
            raise FocuseError(f"{self.path}: its tables are still in partitions; finish it with: {command}")
        checkpoint = self.load_checkpoint(device)
        if checkpoint is None:
            raise FocuseError(f"{self.path}: nothing trained yet; continue with: {command}")
        return checkpoint.final(), checkpoint.history

    # ---- history --------------------------------------------------------------------------------------------------

    def append(self, row: dict[str, Any]) -> None:
        """Append the line of an epoch to the history."""
        self.has_progress = True
        if self.group.is_main:
            path = self.path / HISTORY
            with writing(path), path.open("a", encoding="utf-8", newline="\n") as file:
                file.write(json.dumps(seal_row(row)) + "\n")

    def _sync_history(self) -> None:
        """Flush the history to the disk, where it must be before the checkpoint that follows it."""
        path = self.path / HISTORY
        if path.exists():
            with writing(path):
                fsync_path(path)

    def truncate_history(self, history: list[dict[str, Any]]) -> None:
        """Replace the history by a checkpoint's history, and remove the temporary files of a killed process."""
        path = self.path / HISTORY

        def write() -> None:
            self._clean_temporary()
            if not history:  # an empty file would be taken for one that was cut short
                path.unlink(missing_ok=True)
                return
            with writing(path), replace_file(path, durable=True) as temporary:
                lines = "".join(json.dumps(seal_row(row)) + "\n" for row in history)
                temporary.write_text(lines, encoding="utf-8", newline="\n")

        self.group.run_on_main(write)

    def history(self, epoch: int = 0) -> list[dict[str, Any]]:
        """Return one row per finished epoch, at least up to `epoch`; a last line that a crash cut short is skipped."""
        path = self.path / HISTORY
        with reading(path, "put a copy of it back, or remove it to continue without a history"):
            if not path.exists():
                return []
            required, lines = has_checksums(self.path), path.read_bytes().split(b"\n")
            if b"}" not in lines[-1]:  # a crash cut the line short, or it is empty
                lines.pop()
            rows = [_parse_row(line, number, required) for number, line in enumerate(lines, 1)]
            if required and epoch > (rows[-1]["epoch"] if rows else 0):
                raise ValueError(f"cut short before epoch {epoch}")
            return rows


def _is_run(path: Path) -> bool:
    """Return whether a folder holds a run, if only one whose input is not read yet."""
    return (path / CONFIG).is_file() or (path / REQUEST).is_file()


def resume_command(path: Path, model: str = "", group: ProcessGroup = ONE_PROCESS) -> str:
    """Return the command that continues the training of a run with this model.

    >>> resume_command(Path("runs/my skills"))
    "focuse train --resume 'runs/my skills'"
    """
    return f"{group.command}{trust_option(model)} train --resume {shlex.quote(str(path))}"


def _remove_abandoned(path: Path) -> None:
    """Remove the temporary folders of processes that were killed while they created a run at `path`."""
    import psutil  # type: ignore[import-untyped]  # imported here, because most commands create no run

    for folder in path.parent.glob(f".{glob.escape(path.name)}.[0-9]*"):
        process = folder.name.rpartition(".")[2]
        if process.isdecimal() and folder.is_dir() and not lock_holder(folder / LOCK):
            with suppress(OverflowError):  # a number that is not the id of a process
                if not psutil.pid_exists(int(process)):
                    shutil.rmtree(folder, ignore_errors=True)


def _parse_row(line: bytes, number: int, required: bool) -> dict[str, Any]:
    """Return the row of a line; raise ValueError if it was altered or lacks a `required` checksum."""
    try:
        return check_row(dict(json.loads(line)), required)
    except (ValueError, TypeError, RecursionError) as error:
        fault = error if str(error).startswith("altered") else "altered since it was written"
        raise ValueError(f"line {number} was {fault}") from None
