"""Files of a run's folder: written whole or not at all, and whatever is wrong with one is a line that names it."""

from __future__ import annotations

import errno
import json
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file as save_tensors

from focuse.errors import FocuseError, NoRoomError
from focuse.graph.checksums import KEY, UNKNOWN, check_row, check_tensors, seal_row, seal_tensors
from focuse.graph.writing import replacing

Tables = dict[str, torch.Tensor]
AGAIN, GO_ON = "try again", " or go on with --resume"  # the second where there is a run to go on with
FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)


class DamagedError(FocuseError):
    """A file of a run that is not what was written; the line names it."""


class UnwrittenError(FocuseError):
    """A file of a run that could not be written; what was there before is still whole, and the line says what to do."""


@contextmanager
def reading(path: Path, advice: str = "") -> Iterator[Path]:
    """Whatever is wrong with a file of the run is one line that names it, and says what to do."""
    do = f"; {advice}" if advice else ""
    try:
        yield path
    except DamagedError:
        raise  # another file's, which says so itself
    except KeyError as error:
        raise DamagedError(f"{path}: damaged file: {error} is missing or unknown{do}") from None
    except (FocuseError, OSError, TypeError, ValueError, IndexError, RecursionError, SafetensorError) as error:
        raise DamagedError(f"{path}: damaged file: {' '.join(str(error).split())}{do}") from None


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A full disk and the like are one line too; what was there before is still whole."""
    try:
        yield path
    except (OSError, SafetensorError, NoRoomError) as error:
        told = " ".join(str(error).split()).rpartition("I/O error: ")[2]  # the writer of tensors says more
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or told
        advice = "make it writable" if getattr(error, "errno", None) in FORBIDDEN else "make room"
        raise UnwrittenError(f"{path}: cannot be written: {reason}; {advice}, then {AGAIN}{GO_ON}") from None


def has_checksums(folder: Path) -> bool:
    """Whether a run's files must have checksums: of those that were begun before there were any, none need."""
    try:
        return "checksums" in tomllib.loads((folder / "run.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False  # damaged: whoever reads it says so


def write_tensors(
    path: Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str], keep: Path | None = None
) -> None:
    """Replace a file of tensors, whole and with its checksum; what was there before is kept as `keep`."""
    with writing(path), replacing(path, durable=True) as temporary:
        contiguous = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
        save_tensors(contiguous, temporary, {**metadata, KEY: UNKNOWN})
        with safe_open(temporary, framework="pt"):
            pass  # its length is as its head says, or nothing is replaced
        seal_tensors(temporary)
        if keep is not None and path.exists():
            path.replace(keep)  # from here to the end of the block there is only this one


def read_tensors(path: Path, device: str, advice: str = "") -> tuple[Tables, dict[str, str]]:
    """The tensors of a file, and what it says of them."""
    with reading(path, advice):
        check_tensors(path, has_checksums(path.parent))
        with safe_open(path, framework="pt", device=device) as file:
            return {key: aligned(file.get_tensor(key)) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118


def aligned(table: torch.Tensor) -> torch.Tensor:
    """A tensor where torch would have put it: products of vectors that lie elsewhere round otherwise.

    On Windows never one that lies in the file itself, for a file in use cannot be replaced there.
    """
    return table if table.data_ptr() % 64 == 0 and sys.platform != "win32" else table.clone()


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """A list of rows as JSON, each with its checksum, replaced whole."""
    with writing(path), replacing(path, durable=True) as temporary:
        text = json.dumps([seal_row(row) for row in rows], indent=1, ensure_ascii=False)
        temporary.write_text(text, encoding="utf-8")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """What `write_rows` wrote; ValueError or TypeError where that is something else."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("no list of rows")
    required = has_checksums(path.parent)
    return [check_row(row, required) for row in rows]
