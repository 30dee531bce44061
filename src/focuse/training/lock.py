"""One training at a time in a run's folder: a lock of the system's, which goes with its process however that ends.

Who only reads (evaluate, predict, serve) asks for none: every file is replaced whole.
"""

from __future__ import annotations

import errno
import glob
import os
import shutil
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from focuse.errors import FocuseError
from focuse.graph.writing import FULL

FILE = "training.lock"
ASKING = 0.05  # seconds after which somebody who only asked whether it is held has let go
UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # by some file systems of networks


class UnwritableError(FocuseError):
    """A folder in which nobody can write."""


def _advice(error: OSError) -> str:
    return "make room" if error.errno in FULL else "make it writable, or go on with a copy of it"


class Lock:
    """The right to write in a folder, held until `release` or the end of the process."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path, self.handle = path, handle

    @classmethod
    def take(cls, folder: Path) -> Lock:
        """The lock of a folder; an error where another training has it or nothing can be written."""
        path = folder / FILE
        while True:
            try:
                handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)  # less the umask
            except OSError as error:
                reason = error.strerror or error
                raise UnwritableError(f"{folder}: cannot be written: {reason}; {_advice(error)}") from None
            if not _held(handle) and not _held_after(handle):
                told = _told(handle)
                os.close(handle)
                raise FocuseError(f"{folder}: {told}; wait for it, or stop it first")
            # Its last holder may have removed it between our opening and our locking: then it is nobody's file.
            with suppress(OSError):
                if os.path.samestat(os.fstat(handle), os.stat(path)):
                    with suppress(OSError):  # on a full disk nobody can read who has it, but it is held
                        os.truncate(handle, 0)
                        os.write(handle, f"{os.getpid()} {socket.gethostname()}\n".encode())
                    return cls(path, handle)
            os.close(handle)

    def release(self) -> None:
        """Give it back; the file goes, too."""
        if self.handle < 0:
            return
        handle, self.handle = self.handle, -1
        if sys.platform == "win32":  # there an open file cannot be removed; whoever comes between takes it over
            os.close(handle)
        with suppress(OSError):
            self.path.unlink()
        if sys.platform != "win32":
            os.close(handle)


def is_locked(folder: Path) -> bool:
    """Whether somebody is at work in a folder."""
    return bool(who_is_in(folder))


def who_is_in(folder: Path) -> str:
    """'another training is at work in it (process 4711 on host)', or nothing where nobody is."""
    try:
        handle = os.open(folder / FILE, os.O_RDWR)
    except OSError:
        return ""
    try:
        return "" if _held(handle) else _told(handle)
    finally:
        os.close(handle)


def _held_after(handle: int) -> bool:
    """As `_held`, a little later."""
    time.sleep(ASKING)
    return _held(handle)


def _held(handle: int) -> bool:
    """As `locked`; where there are no locks, everyone has one."""
    try:
        return locked(handle)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        return True


def _told(handle: int) -> str:
    """Who has it, where that can be read."""
    told = "another training is at work in it"
    try:
        process, host = os.read(handle, 300).decode().split()
    except (OSError, ValueError):  # Windows lets nobody read what is locked
        return told
    return f"{told} (process {process} on {host})"


def sweep(folder: Path) -> None:
    """Remove what processes left that were killed while they made this folder."""
    if sys.platform == "win32":  # there nobody can be asked for without harm
        return
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.[0-9]*"):
        number = left.name.rpartition(".")[2]
        if number.isdecimal() and left.is_dir() and not is_locked(left) and not is_alive(int(number)):
            shutil.rmtree(left, ignore_errors=True)


def is_alive(process: int) -> bool:
    """Whether there is a process of this number on this machine."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


if sys.platform == "win32":
    import msvcrt

    def locked(handle: int) -> bool:
        """Whether the lock of an open file is ours now."""
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def locked(handle: int) -> bool:
        """Whether the lock of an open file is ours now."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
