"""Who trains a cell: a lock that the system lets go of when its process ends, however it ends.

So two workers, or two commands, never train the same cell, and nobody has to find out which claims are stale.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from focuse.errors import FocuseError
from focuse.training.lock import locked


@contextmanager
def claim(path: Path) -> Iterator[bool]:
    """Claim what the file `path` stands for; yields False, at once, if another process has it.

    The file is removed at the end. One left by a process that was killed is no claim.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "cell.claim"
    >>> with claim(file) as mine, claim(file) as again:
    ...     mine, again
    (True, False)
    """
    try:
        handle = _open_locked(path)
    except OSError as error:
        raise FocuseError(f"{path}: {error.strerror or error}; choose an --out that can be written") from None
    if handle is None:
        yield False
        return
    try:
        with suppress(OSError):
            os.write(handle, f"{os.getpid()}\n".encode())
        yield True
    finally:
        with suppress(OSError):
            if sys.platform != "win32":  # there an open file cannot be removed; the next one takes it over
                path.unlink()
        os.close(handle)


def _open_locked(path: Path) -> int | None:
    """The file, open and locked, None if it is locked already."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if not locked(handle):
            os.close(handle)
            return None
        # Its last holder may have removed it between our opening and our locking: then it is nobody's file.
        with suppress(OSError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                os.truncate(handle, 0)
                return handle
        os.close(handle)
