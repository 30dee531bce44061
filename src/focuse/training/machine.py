"""What the machine has: a device by name, and memory that may not be enough."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from focuse.engines.company import LOST, lost
from focuse.errors import FocuseError


def choose_device(name: str, engine: str = "auto") -> str:
    """'auto' is the GPU if there is one, and the engine is not one for a CPU alone."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() and engine != "partitioned" else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError):
        raise FocuseError(f"device {name!r} is not available here; use 'auto' or 'cpu'") from None
    return name


@contextmanager
def enough_memory() -> Iterator[None]:
    """Too little memory is something the user can mend, and so is a process that is gone."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        told = ("allocate memory", "size calculation overflowed")
        if lost(error):
            raise FocuseError(LOST) from None
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(words in str(error) for words in told):
            raise FocuseError("not enough memory; lower --dim, --batch-size or --negatives") from None
        raise
