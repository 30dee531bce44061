"""Files of a run's folder: written whole or not at all, and whatever is wrong with one is a line that names it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file as save_tensors

from focuse.errors import FocuseError, NoRoomError
from focuse.graph.writing import replacing

Tables = dict[str, torch.Tensor]


@contextmanager
def reading(path: Path) -> Iterator[Path]:
    """Whatever is wrong with a file of the run is one line that names it."""
    try:
        yield path
    except KeyError as error:
        raise FocuseError(f"{path}: damaged file: {error} is missing or unknown") from None
    except (FocuseError, OSError, TypeError, ValueError, IndexError, RecursionError, SafetensorError) as error:
        raise FocuseError(f"{path}: damaged file: {' '.join(str(error).split())}") from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A full disk and the like are one line too; what was there before is still whole."""
    try:
        yield
    except (OSError, SafetensorError, NoRoomError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or " ".join(str(error).split())
        raise FocuseError(
            f"{path}: cannot be written: {reason}; make room, then try again or go on with --resume"
        ) from None


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """Replace a file of tensors, whole."""
    with writing(path), replacing(path) as temporary:
        save_tensors({key: value.detach().cpu().contiguous() for key, value in tensors.items()}, temporary, metadata)
        with temporary.open("r+b") as file:  # Windows flushes only what may be written
            os.fsync(file.fileno())


def read_tensors(path: Path, device: str) -> tuple[Tables, dict[str, str]]:
    """The tensors of a file, and what it says of them."""
    with reading(path), safe_open(path, framework="pt", device=device) as file:
        return {key: aligned(file.get_tensor(key)) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118


def aligned(table: torch.Tensor) -> torch.Tensor:
    """A tensor where torch would have put it: products of vectors that lie elsewhere round otherwise.

    On Windows never one that lies in the file itself, for a file in use cannot be replaced there.
    """
    return table if table.data_ptr() % 64 == 0 and sys.platform != "win32" else table.clone()
