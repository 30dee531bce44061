"""Checksums that tell a file which was altered since it was written: CRC-32, of every byte, in the file itself.

A file of tensors carries its own in its head, computed as if the eight digits of it were zeros; a text carries that of
all its lines in a last one, a comment; rows of JSON carry their own each. So a file and its checksum are replaced in
one step, and whatever was written before there were checksums is read as it ever was.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any, BinaryIO

KEY = "crc32"
UNKNOWN = "0" * 8
FIELD = f'"{KEY}":"'.encode()
MARK = f"# {KEY} "
CHUNK_BYTES = 1 << 24
ALTERED = "altered since it was written (its checksum differs)"
LACKING = "altered since it was written (its checksum is gone)"


def checksum(data: bytes | memoryview) -> str:
    """Eight digits.

    >>> checksum(b"focuse")
    '366ee0cc'
    """
    return f"{zlib.crc32(data):08x}"


def file_checksum(path: Path) -> str:
    """That of a whole file, read in pieces."""
    with path.open("rb") as file:
        return f"{_rest(file, 0):08x}"


def _rest(file: BinaryIO, start: int) -> int:
    """The sum over what is left of a file, going on from `start`."""
    piece = memoryview(bytearray(CHUNK_BYTES))
    while count := file.readinto(piece):  # type: ignore[attr-defined]
        start = zlib.crc32(piece[:count], start)
    return start


# ---- files of tensors -------------------------------------------------------------------------------------------


def seal_tensors(path: Path) -> None:
    """Fill in the checksum of a file of tensors that was written with {KEY: UNKNOWN} among its metadata."""
    with path.open("r+b") as file:
        _put_in_order(file)
        place, found = _look(file)
        if place is None:
            raise ValueError("no place for its checksum")
        file.seek(place)
        file.write(found.encode())


def _put_in_order(file: BinaryIO) -> None:
    """Metadata are written in any order: sort them, so that the same tensors are the same bytes."""
    length = int.from_bytes(file.read(8), "little")
    head = json.loads(file.read(length))
    head["__metadata__"] = dict(sorted(head["__metadata__"].items()))
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    if len(text) <= length:
        file.seek(8)
        file.write(text.ljust(length))
    file.seek(0)


def check_tensors(path: Path, required: bool = False) -> None:
    """Raise ValueError if a file of tensors is not what was written, or if it has no checksum and one is `required`."""
    with path.open("rb") as file:
        place, found = _look(file)
        if place is None:
            if required:
                raise ValueError(LACKING)
            return
        file.seek(place)
        if file.read(len(UNKNOWN)) != found.encode():
            raise ValueError(ALTERED)


def _look(file: BinaryIO) -> tuple[int | None, str]:
    """Where the digits stand in a file of tensors, None if nowhere, and what they should be."""
    first = file.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or length > os.fstat(file.fileno()).st_size - 8:
        raise ValueError("it is cut short")
    head = bytearray(file.read(length))
    place = head.find(FIELD)  # within a string its quotes would be escaped: there is one such place or none
    if place < 0:
        return None, ""
    start = place + len(FIELD)
    head[start : start + len(UNKNOWN)] = UNKNOWN.encode()
    return 8 + start, f"{_rest(file, zlib.crc32(head, zlib.crc32(first))):08x}"


# ---- texts and rows -----------------------------------------------------------------------------------------------


def seal_text(text: str) -> str:
    """A text of whole lines with the checksum of them as its last line, a comment of TOML.

    >>> print(seal_text("seed = 3\\n"), end="")
    seed = 3
    # crc32 12b4aed9
    """
    return f"{text}{MARK}{checksum(text.encode())}\n"


def check_text(text: str, required: bool) -> None:
    """Raise ValueError if a sealed text was altered, or if it is none and `required` to be."""
    lines, mark, digits = text.rpartition(MARK)
    if mark and digits == f"{checksum(lines.encode())}\n":
        return
    if required or mark:
        raise ValueError(ALTERED if mark else LACKING)


def seal_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of JSON with the checksum of all that stands in it before.

    >>> seal_row({"epoch": 1})
    {'epoch': 1, 'crc32': '94919848'}
    """
    return {**row, KEY: checksum(json.dumps(row).encode())}


def check_row(row: dict[str, Any], required: bool) -> dict[str, Any]:
    """The row without its checksum; ValueError if it was altered, or has none and must."""
    rest = {key: value for key, value in row.items() if key != KEY}
    if KEY in row and row[KEY] != checksum(json.dumps(rest).encode()):
        raise ValueError(ALTERED)
    if required and KEY not in row:
        raise ValueError(LACKING)
    return rest
