"""Arrays in files larger than memory: written piece by piece, read by mapping them.

The files are safetensors (a length, a JSON header, then the numbers): any tool that knows the format opens them. The
numbers begin at a multiple of 64 bytes, so that a mapped array lies where a library would have put it.
"""

from __future__ import annotations

import json
import math
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from focuse.graph.checksums import ALTERED, FIELD, KEY, UNKNOWN

Array = npt.NDArray[Any]
KINDS: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "I64": np.dtype("<i8"), "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"), "U16": np.dtype("<u2"), "I8": np.dtype("i1"), "U8": np.dtype("u1"), "BOOL": np.dtype("?"),
}  # fmt: skip
NAMES = {kind: name for name, kind in KINDS.items()}
ALIGNMENT = 64
PIECE_BYTES = 1 << 24
MOST_HEADER = 1 << 24  # bytes; a file that says it has more is damaged


@dataclass(frozen=True)
class Shape:
    """What an array will be like, before it is there."""

    kind: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.kind.itemsize


def shape_of(array: Array) -> Shape:
    return Shape(array.dtype, array.shape)


def header_of(shapes: Mapping[str, Shape], metadata: Mapping[str, str] | None = None) -> tuple[bytes, dict[str, int]]:
    """The first bytes of a file that holds arrays of these shapes, and where each of them begins.

    >>> first, places = header_of({"rows": Shape(np.dtype("<f4"), (3, 2))})
    >>> len(first) % 64, places["rows"] == len(first)
    (0, True)
    """
    described: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    places, end = {}, 0
    for name, shape in shapes.items():
        kind = NAMES[shape.kind]
        described[name] = {"dtype": kind, "shape": list(shape.shape), "data_offsets": [end, end + shape.bytes]}
        places[name] = end
        end += shape.bytes
    text = json.dumps(described, separators=(",", ":")).encode()
    size = -(-(len(text) + 8) // ALIGNMENT) * ALIGNMENT
    first = (size - 8).to_bytes(8, "little") + text.ljust(size - 8)
    return first, {name: size + place for name, place in places.items()}


def write_arrays(path: Path, arrays: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays piece by piece, without a copy of any; those with the widest numbers first, so that all align."""
    ordered = dict(sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize))
    first, _ = header_of({name: shape_of(array) for name, array in ordered.items()}, metadata)
    with path.open("wb") as file:
        file.write(first)
        for array in ordered.values():
            for piece in pieces(array):
                file.write(piece)
        synced(file)


def pieces(array: Array) -> Iterator[memoryview]:
    """The bytes of an array, some megabytes at a time."""
    if array.ndim == 0:
        yield np.ascontiguousarray(array).reshape(1).view(np.uint8).data
        return
    row = max(1, array.itemsize * math.prod(array.shape[1:]))
    step = max(1, PIECE_BYTES // row)
    for start in range(0, len(array), step):
        some = np.ascontiguousarray(array[start : start + step])
        if some.size:
            yield some.reshape(-1).view(np.uint8).data


def read_header(path: Path) -> tuple[dict[str, tuple[Shape, int]], dict[str, str]]:
    """Of a file: each array's shape and place, and the metadata; ValueError if it is damaged."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MOST_HEADER):
            raise ValueError("no header of tensors, or one cut short")
        described = json.loads(file.read(length))
    metadata = described.pop("__metadata__", {})
    found = {}
    for name, each in described.items():
        shape = Shape(KINDS[each["dtype"]], tuple(map(int, each["shape"])))
        begin, end = map(int, each["data_offsets"])
        if min(shape.shape, default=0) < 0 or begin < 0 or end - begin != shape.bytes or 8 + length + end > size:
            raise ValueError(f"tensor {name!r} is cut short")
        found[name] = (shape, 8 + length + begin)
    return found, metadata


def map_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a file, mapped: what is not looked at takes no memory. Changes stay with who makes them."""
    found, _ = read_header(path)
    arrays: dict[str, Array] = {}
    for name, (shape, place) in found.items():
        if not math.prod(shape.shape):
            arrays[name] = np.empty(shape.shape, shape.kind)
        elif place % shape.kind.itemsize or sys.platform == "win32":  # there a mapped file cannot be replaced
            with path.open("rb") as file:
                file.seek(place)
                arrays[name] = np.fromfile(file, shape.kind, math.prod(shape.shape)).reshape(shape.shape)
        else:
            arrays[name] = np.asarray(np.memmap(path, shape.kind, "c", place, shape.shape))
    return arrays


def fill(path: Path, targets: Mapping[str, Array]) -> set[str]:
    """Read arrays of a file straight into `targets` (contiguous, of the same shapes); the names that it holds."""
    found, metadata = read_header(path)
    with path.open("rb", buffering=0) as file:
        head = file.read(min((place for _, place in found.values()), default=0))
        before, field, after = head.partition(FIELD)
        total = zlib.crc32(before + field + (UNKNOWN.encode() + after[len(UNKNOWN) :] if field else b""))
        for name, (shape, place) in found.items():
            if name not in targets:
                continue
            target = targets[name]
            if shape != shape_of(target):
                raise ValueError(f"tensor {name!r} is {shape.shape} instead of {target.shape}")
            file.seek(place)
            rest = target.reshape(-1).view(np.uint8).data
            while rest:
                got = file.readinto(rest[: 1 << 26])
                if not got:
                    raise ValueError(f"tensor {name!r} is cut short")
                total = zlib.crc32(rest[:got], total)
                rest = rest[got:]
        forgotten(file)
    if KEY in metadata and found.keys() <= targets.keys() and metadata[KEY] != f"{total:08x}":
        raise ValueError(ALTERED)
    return set(found)


def write_through(path: Path, arrays: Mapping[str, Array], sync: bool = True) -> None:
    """As `write_arrays`, with its checksum, to a file that will not be looked at soon: its pages need not be kept.

    Without `sync` it may reach the disk later (see `sync_file`).
    """
    first, _ = header_of({name: shape_of(array) for name, array in arrays.items()}, {KEY: UNKNOWN})
    total = zlib.crc32(first)
    with path.open("wb", buffering=0) as file:
        _whole(file, first)
        for array in arrays.values():
            for piece in pieces(array):
                _whole(file, piece)
                total = zlib.crc32(piece, total)
        put_checksum(file, total, first)
        if sync:
            synced(file)
            forgotten(file)


def put_checksum(file: BinaryIO | Any, total: int, first: bytes) -> None:
    """Fill in the sum of all of a file's bytes, taken with zeros in its place; `first` are those up to the numbers."""
    file.seek(first.index(FIELD) + len(FIELD))
    _whole(file, f"{total:08x}".encode())


def _whole(file: Any, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def sync_file(path: Path) -> None:
    """What was written to a file has reached the disk."""
    with path.open("r+b") as file:  # Windows flushes only what may be written
        os.fsync(file.fileno())


def synced(file: BinaryIO | Any) -> None:
    """What was written has reached the disk."""
    file.flush()
    os.fsync(file.fileno())


def forgotten(file: BinaryIO | Any) -> None:
    """Tell the system that the file's pages may make room for others."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def chunks(length: int, size: int) -> Iterable[slice]:
    """Slices that together are range(length).

    >>> [(part.start, part.stop) for part in chunks(5, 2)]
    [(0, 2), (2, 4), (4, 5)]
    """
    return (slice(start, min(start + size, length)) for start in range(0, length, size))
