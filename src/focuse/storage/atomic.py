"""Atomic file replacement and the lock of a run folder.

Only one process at a time may train in a run folder. The operating system releases its lock when the process ends, for
whatever reason. Readers (evaluate, predict, serve) need no lock, because every file is replaced as a whole.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from focuse.errors import DiskFullError, FocuseError
from focuse.system import deferred_signals

if TYPE_CHECKING:
    import filelock

DISK_FULL_ERRORS = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", None))  # Windows has no EDQUOT
TENSOR_FILES = (
    "checkpoint", "checkpoint.previous", "model", "splits", "weight_scaling", "weight_columns", "node_attributes",
    "normaliser", "columns", "numbers", "calibration", "weights", "probability",
)  # fmt: skip
RUN_FILES = (
    *("request.json", "run.toml", "history.jsonl", "entities.parquet", "relations.parquet", "job.txt", "training.lock"),
    *("preference.json", "label_exponent.json", "sharpness.json", "extended.json"),
    *(f"{name}.safetensors" for name in TENSOR_FILES),
)


def check_writable(path: Path, *inputs: str | Path | None) -> None:
    """Raise FocuseError if `path` is in no folder, or is one of the `inputs` or a file of a run."""
    if not path.absolute().parent.is_dir():
        raise FocuseError(f"{path}: there is no folder {path.parent}; create it first")
    if path.is_dir():
        raise FocuseError(f"{path}: is a folder; give a file")
    given = [source for source in inputs if source is not None and os.path.exists(source)]
    if path.exists() and any(path.samefile(source) for source in given):
        raise FocuseError(f"{path}: this file is also read; choose another file to write")
    folder = path.absolute().parent
    run = folder.parent if folder.name == "partitions" else folder
    if (path.name in RUN_FILES or run != folder) and (run / "run.toml").is_file():
        raise FocuseError(f"{path}: this file is a part of the run; choose another file")


@contextmanager
def replace_file(path: Path, durable: bool = False, private: bool = False) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` when the block ends without an error.

    Readers see the old file or the new one, never a part of it. With `durable`, this also holds after a power cut. A
    `private` file can be read by its owner only.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> with replace_file(path) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> path.read_text()
    'whole'
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident():x}")
    try:  # this begins before the file exists, because a pending interrupt is raised just after it is created
        try:
            temporary.touch(0o600 if private else 0o666)  # the system applies the umask
            mode = temporary.stat().st_mode
        except OSError as error:
            if error.errno in DISK_FULL_ERRORS:
                raise
            advice = "choose a folder that exists and is writable"
            raise FocuseError(f"{path}: {error.strerror or error}; {advice}") from None
        yield temporary
        temporary.chmod(mode)  # some writers create files that only their owner can read
        if durable:
            fsync_path(temporary)
        os.replace(temporary, path)
        if durable:
            fsync_path(path.parent)
    except OSError as error:
        if error.errno is None or error.errno not in DISK_FULL_ERRORS:
            raise
        raise DiskFullError(path, os.strerror(error.errno)) from None
    finally:
        with deferred_signals(), suppress(OSError):
            temporary.unlink()


def fsync_path(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk; Windows flushes folders automatically."""
    if sys.platform == "win32" and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)  # Windows flushes only writable files
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---- locks --------------------------------------------------------------------------------------------------------

LOCK_TIMEOUT_SECONDS = 0.1  # a process that only looks up the holder releases the lock within this time
UNSUPPORTED_ERRORS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # raised by network file systems without locks


class ProcessLock:
    """An exclusive lock on a file, which the system releases when the process ends, for whatever reason.

    The file holds the id of the process that holds the lock. A file that a killed process left behind is not locked.
    """

    def __init__(self, path: Path, lock: filelock.BaseFileLock) -> None:
        self.path, self._lock = path, lock
        self._held = True

    @classmethod
    def acquire(cls, path: Path, timeout: float = LOCK_TIMEOUT_SECONDS) -> ProcessLock | None:
        """Return the lock on `path`, or None if another process holds it; raise OSError if the file is not writable.

        On file systems without locks, every process gets one.
        """
        import filelock  # imported here, because the import is slow and most commands lock nothing

        if not path.parent.is_dir():  # filelock would create the folder
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
        lock = filelock.FileLock(path, thread_local=False, fallback_to_soft=False)
        try:
            lock.acquire(timeout=timeout, poll_interval=LOCK_TIMEOUT_SECONDS / 10)
        except filelock.Timeout:
            return None
        except OSError as error:
            if error.errno not in UNSUPPORTED_ERRORS:
                raise
        with suppress(OSError):  # on a full disk the holder is unknown, but the lock is held
            path.write_text(f"{os.getpid()} {socket.gethostname()}\n", encoding="utf-8")
        return cls(path, lock)

    def release(self) -> None:
        """Unlock and remove the file; a second call has no effect."""
        if not self._held:
            return
        self._held = False
        if sys.platform == "win32":  # Windows cannot remove an open file
            self._lock.release()
        with suppress(OSError):
            self.path.unlink()
        self._lock.release()


def lock_holder(path: Path) -> str:
    """Return 'process 4711 on HOST' or 'another process' if `path` is locked, and an empty string if it is not."""
    if not path.exists():
        return ""
    try:
        lock = ProcessLock.acquire(path, timeout=0)
    except OSError:
        return ""
    if lock is not None:
        lock.release()
        return ""
    try:
        process, host = path.read_text(encoding="utf-8").split()
    except (OSError, ValueError):  # on Windows a locked file cannot be read
        return "another process"
    return f"process {process} on {host}"
