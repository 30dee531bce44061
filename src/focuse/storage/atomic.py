"""Atomic file replacement and the lock of a run folder.

One training at a time may work in the folder of a run: the lock is one of the operating system, which goes with its
process however that ends. Readers (evaluate, predict, serve) take no lock: every file is replaced whole.
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

FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", None))  # Windows has no quota
TENSOR_FILES = (
    "checkpoint", "checkpoint.previous", "model", "splits", "weight_scaling", "weight_columns", "node_attributes",
    "normaliser", "columns", "numbers", "calibration", "weights", "probability",
)  # fmt: skip
RUN_FILES = ("entities.parquet", "relations.parquet", *(f"{name}.safetensors" for name in TENSOR_FILES))


def refuse_overwrite(path: Path, *inputs: str | Path | None) -> None:
    """Raise FocuseError if `path`, which is to be written, is one of the `inputs` or a file of a run."""
    if not path.exists():
        return
    if path.is_dir():
        raise FocuseError(f"{path}: is a folder; give a file")
    if any(given is not None and os.path.exists(given) and path.samefile(given) for given in inputs):
        raise FocuseError(f"{path}: that is the file that is read; choose another one to write")
    if path.name in RUN_FILES and (path.absolute().parent / "run.toml").is_file():
        raise FocuseError(f"{path}: that is a part of the run itself; choose another file")


@contextmanager
def replace_file(path: Path, durable: bool = False, private: bool = False, keep: Path | None = None) -> Iterator[Path]:
    """Give a temporary file that replaces `path` when the block ends without an error.

    Readers see the old file or the new one, never a part of it. With `durable` this also holds for a power cut. A
    `private` file can be read by its owner only. With `keep` the old file is renamed to that.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> with replace_file(path) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> path.read_text()
    'whole'
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident():x}")
    try:  # from before the file exists: a pending interrupt is raised just after
        try:
            temporary.touch(0o600 if private else 0o666)  # less the umask
            mode = temporary.stat().st_mode
        except OSError as error:
            if error.errno in FULL:
                raise
            advice = "choose a folder that exists and is writable"
            raise FocuseError(f"{path}: {error.strerror or error}; {advice}") from None
        yield temporary
        temporary.chmod(mode)  # some writers make files that only their owner can read
        if durable:
            fsync_path(temporary)
        if keep is not None and path.exists():
            path.replace(keep)
        os.replace(temporary, path)
        if durable:
            fsync_path(path.parent)
    except OSError as error:
        if error.errno is None or error.errno not in FULL:
            raise
        raise DiskFullError(path, os.strerror(error.errno)) from None
    finally:
        with deferred_signals(), suppress(OSError):
            temporary.unlink()


def fsync_path(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk; Windows flushes folders by itself."""
    if sys.platform == "win32" and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)  # Windows flushes only writable files
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---- locks --------------------------------------------------------------------------------------------------------

PATIENCE = 0.1  # seconds, in which a process that only asked for the holder has released the lock
UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # by some network file systems


class ProcessLock:
    """An exclusive lock on a file, which the system releases when the process ends, however it ends.

    The file names the process that holds the lock. A file that a killed process left behind is not locked.
    """

    def __init__(self, path: Path, lock: filelock.BaseFileLock) -> None:
        self.path, self._lock = path, lock
        self._held = True

    @classmethod
    def acquire(cls, path: Path, timeout: float = PATIENCE) -> ProcessLock | None:
        """The lock on `path`, or None if another process holds it; OSError if the file cannot be written.

        On file systems without locks every process gets one.
        """
        import filelock  # only here: it takes long to import, and most commands lock nothing

        if not path.parent.is_dir():  # it would be made
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
        lock = filelock.FileLock(path, thread_local=False, fallback_to_soft=False)
        try:
            lock.acquire(timeout=timeout, poll_interval=PATIENCE / 10)
        except filelock.Timeout:
            return None
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
        with suppress(OSError):  # on a full disk the holder is unknown, but the lock is held
            path.write_text(f"{os.getpid()} {socket.gethostname()}\n", encoding="utf-8")
        return cls(path, lock)

    def release(self) -> None:
        """Unlock and remove the file; the second time nothing happens."""
        if not self._held:
            return
        self._held = False
        if sys.platform == "win32":  # an open file cannot be removed there
            self._lock.release()
        with suppress(OSError):
            self.path.unlink()
        self._lock.release()


def lock_holder(path: Path) -> str:
    """'process 4711 on HOST', or 'another process', which holds the lock on `path`; '' if it is not locked."""
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
