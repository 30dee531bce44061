"""Tensors in files: safetensors with a checksum, written in pieces, read whole, in part or memory-mapped.

Also the checksums of texts and JSON records, and one-line errors for files that are damaged or cannot be written.
"""

from __future__ import annotations

import errno
import json
import math
import os
import sys
import tomllib
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from focuse.errors import DiskFullError, FocuseError
from focuse.storage.atomic import replace_file
from focuse.system import chunks

if TYPE_CHECKING:  # reading and inspecting a graph need no torch
    import torch

    Tables = dict[str, torch.Tensor]
else:
    Tables = dict

Array = npt.NDArray[Any]
Record = TypeVar("Record")

# ---- checksums ----------------------------------------------------------------------------------------------------

KEY = "crc32"
UNKNOWN = "0" * 8
FIELD = f'"{KEY}":"'.encode()
MARK = f"# {KEY} "
CHUNK_BYTES = 1 << 24
ALTERED = "altered since it was written (its checksum differs)"
MISSING = "altered since it was written (its checksum is gone)"


def checksum(data: bytes | memoryview) -> str:
    """The CRC-32 of some bytes in eight hexadecimal digits.

    >>> checksum(b"focuse")
    '366ee0cc'
    """
    return f"{zlib.crc32(data):08x}"


def file_checksum(path: Path) -> str:
    """The checksum of a whole file, read in pieces."""
    with path.open("rb") as file:
        return f"{_remaining_checksum(file, 0):08x}"


def _remaining_checksum(file: BinaryIO, start: int) -> int:
    piece = memoryview(bytearray(CHUNK_BYTES))
    while count := file.readinto(piece):  # type: ignore[attr-defined]
        start = zlib.crc32(piece[:count], start)
    return start


def seal_text(text: str) -> str:
    """A text of whole lines with its checksum as the last line, a comment of TOML.

    >>> print(seal_text("seed = 3\\n"), end="")
    seed = 3
    # crc32 12b4aed9
    """
    return f"{text}{MARK}{checksum(text.encode())}\n"


def check_text(text: str, required: bool) -> None:
    """Raise ValueError if a text differs from its checksum, or has none although that is `required`."""
    lines, mark, digits = text.rpartition(MARK)
    if mark and digits == f"{checksum(lines.encode())}\n":
        return
    if required or mark:
        raise ValueError(ALTERED if mark else MISSING)


def seal_row(row: dict[str, Any]) -> dict[str, Any]:
    """A JSON object with the checksum of its other fields as the last one.

    >>> seal_row({"epoch": 1})
    {'epoch': 1, 'crc32': '94919848'}
    """
    return {**row, KEY: checksum(json.dumps(row).encode())}


def check_row(row: dict[str, Any], required: bool) -> dict[str, Any]:
    """The JSON object without its checksum; ValueError if that differs, or is missing although it is `required`."""
    rest = {key: value for key, value in row.items() if key != KEY}
    if KEY in row and row[KEY] != checksum(json.dumps(rest).encode()):
        raise ValueError(ALTERED)
    if required and KEY not in row:
        raise ValueError(MISSING)
    return rest


def check_tensors(path: Path, required: bool = False) -> None:
    """Raise ValueError if a safetensors file differs from its checksum, or has none although that is `required`."""
    with path.open("rb") as file:
        position, digits = _tensor_checksum(file)
        if position is None:
            if required:
                raise ValueError(MISSING)
            return
        file.seek(position)
        if file.read(len(UNKNOWN)) != digits.encode():
            raise ValueError(ALTERED)


def _tensor_checksum(file: BinaryIO) -> tuple[int | None, str]:
    """Where the digits of a safetensors file's checksum are, None if nowhere, and what they should be."""
    first = file.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or length > os.fstat(file.fileno()).st_size - 8:
        raise ValueError("it is cut short")
    head = bytearray(file.read(length))
    position = head.find(FIELD)  # within a string its quotes would be escaped: there is one such position or none
    if position < 0:
        return None, ""
    start = position + len(FIELD)
    head[start : start + len(UNKNOWN)] = UNKNOWN.encode()
    return 8 + start, f"{_remaining_checksum(file, zlib.crc32(head, zlib.crc32(first))):08x}"


def has_checksums(folder: Path) -> bool:
    """Whether the files of a run must have checksums; runs of the first versions have none."""
    try:
        return "checksums" in tomllib.loads((folder / "run.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False  # the reader of run.toml reports what is wrong with it


# ---- one-line errors ----------------------------------------------------------------------------------------------

TRY_AGAIN, OR_RESUME = "try again", " or go on with --resume"  # the second if there is a run to resume
FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)


class DamagedError(FocuseError):
    """A file of a run is missing, or is not what was written."""


class WriteError(FocuseError):
    """A file of a run could not be written; the file that was there before is still whole."""


@contextmanager
def reading(path: Path, advice: str = "") -> Iterator[Path]:
    """Turn every error in the contents of a file into a `DamagedError` of one line, which ends with `advice`."""
    ending = f"; {advice}" if advice else ""
    try:
        yield path
    except DamagedError:
        raise  # of a file that was read within the block
    except KeyError as error:
        raise DamagedError(f"{path}: damaged file: {error} is missing or unknown{ending}") from None
    except (FocuseError, OSError, TypeError, ValueError, IndexError, RecursionError, SafetensorError) as error:
        raise DamagedError(f"{path}: damaged file: {' '.join(str(error).split())}{ending}") from None


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Turn a full disk and the like into a `WriteError` of one line."""
    try:
        yield path
    except (OSError, DiskFullError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or " ".join(str(error).split())
        advice = "make it writable" if getattr(error, "errno", None) in FORBIDDEN else "make room"
        raise WriteError(f"{path}: cannot be written: {reason}; {advice}, then {TRY_AGAIN}{OR_RESUME}") from None


# ---- writing ------------------------------------------------------------------------------------------------------

DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BOOL": np.dtype("?"),
    "I64": np.dtype("<i8"), "I32": np.dtype("<i4"), "I16": np.dtype("<i2"), "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"), "U32": np.dtype("<u4"), "U16": np.dtype("<u2"), "U8": np.dtype("u1"),
}  # fmt: skip
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
ALIGNMENT = 64  # bytes: where torch's own tensors begin, too
PIECE_BYTES = 1 << 24
MAX_HEADER = 1 << 24  # bytes; a file that claims more is damaged


@dataclass(frozen=True)
class ArraySpec:
    """Data type and shape of an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, array: Array) -> ArraySpec:
        return cls(array.dtype, array.shape)

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class TensorFile:
    """A new safetensors file of known shapes, which is written piece by piece, in any order.

    Several processes may write to it: one calls `create`, all `write`, then one calls `seal`.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "table.safetensors"
    >>> table = TensorFile(path, {"rows": ArraySpec(np.dtype("<f4"), (4, 2))})
    >>> table.create()
    >>> with table.open():
    ...     table.write("rows", np.ones((2, 2), np.float32))
    ...     table.write("rows", np.zeros((2, 2), np.float32), row=2)
    >>> table.seal()
    >>> map_arrays(path)["rows"].sum(1).tolist()
    [2.0, 2.0, 0.0, 0.0]
    """

    def __init__(
        self, path: Path, specs: Mapping[str, ArraySpec], metadata: Mapping[str, str] | None = None, seal: bool = True
    ) -> None:
        self.path, self.specs, self.sealed = path, specs, seal
        described: dict[str, Any] = dict(sorted({**(metadata or {}), **({KEY: UNKNOWN} if seal else {})}.items()))
        described = {"__metadata__": described} if described else {}
        self.offsets, end = {}, 0
        for name, spec in specs.items():
            self.offsets[name] = end
            offsets = [end, end + spec.bytes]
            described[name] = {"dtype": DTYPE_NAMES[spec.dtype], "shape": list(spec.shape), "data_offsets": offsets}
            end += spec.bytes
        text = json.dumps(described, separators=(",", ":")).encode()
        length = -(-(len(text) + 8) // ALIGNMENT) * ALIGNMENT - 8
        self.header = length.to_bytes(8, "little") + text.ljust(length)
        self.offsets = {name: len(self.header) + offset for name, offset in self.offsets.items()}
        self.size = len(self.header) + end
        # The checksum of what was written from the beginning without a gap, and where that ends.
        self._checksum, self._end = zlib.crc32(self.header), len(self.header)
        self._file: BinaryIO | None = None

    def create(self, allocate: bool = False) -> None:
        """Make the file; with `allocate` in its full size, so that a disk that is too small is noticed now."""
        with self.path.open("wb") as file:
            file.write(self.header)
            if allocate:
                file.truncate(self.size)
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, self.size)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Keep the file open for the `write`s of a block."""
        with self.path.open("r+b", buffering=0) as self._file:
            yield
        self._file = None

    def write(self, name: str, values: Array, row: int = 0) -> None:
        """Write the rows of an array from number `row` on."""
        if self._file is None:
            raise ValueError("the file is not open")
        position = self.offsets[name] + row * self.specs[name].row_bytes
        self._file.seek(position)
        for piece in _pieces(values):
            rest = piece
            while rest:
                rest = rest[self._file.write(rest) :]
            if self.sealed and position == self._end:
                self._checksum = zlib.crc32(piece, self._checksum)
                self._end += len(piece)
            position += len(piece)

    def seal(self, sync: bool = True, forget: bool = False) -> None:
        """Fill in the checksum; with `sync` flush the file to the disk, with `forget` drop it from the page cache."""
        with self.path.open("r+b") as file:
            if os.fstat(file.fileno()).st_size != self.size:
                raise OSError(errno.EIO, "fewer bytes were written than were given")
            if self.sealed:
                digits = f"{self._checksum:08x}" if self._end == self.size else _tensor_checksum(file)[1]
                file.seek(self.header.index(FIELD) + len(FIELD))
                file.write(digits.encode())
            file.flush()
            if sync:
                os.fsync(file.fileno())
            if forget:
                forget_pages(file)


def write_arrays(
    path: Path,
    arrays: Mapping[str, Array],
    metadata: Mapping[str, str] | None = None,
    *,
    seal: bool = True,
    sync: bool = True,
    forget: bool = False,
) -> None:
    """Write arrays to a safetensors file without a copy of any; with `seal` the file holds its checksum."""
    ordered = dict(sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize))  # so that all are aligned
    file = TensorFile(path, {name: ArraySpec.of(array) for name, array in ordered.items()}, metadata, seal)
    file.create()
    with file.open():
        for name, array in ordered.items():
            file.write(name, array)
    file.seal(sync, forget)


def write_tensors(path: Path, tensors: Tables, metadata: Mapping[str, str], keep: Path | None = None) -> None:
    """Replace a file of torch tensors; the file that was there before is kept as `keep`."""
    with writing(path), replace_file(path, durable=True, keep=keep) as temporary:
        arrays = {name: tensors[name].detach().cpu().numpy() for name in sorted(tensors)}
        write_arrays(temporary, arrays, metadata, sync=False)


def _pieces(array: Array) -> Iterator[memoryview]:
    """The bytes of an array, some megabytes at a time."""
    rows = array.reshape(1) if array.ndim == 0 else array
    step = max(1, PIECE_BYTES // max(1, ArraySpec.of(rows).row_bytes))
    for part in chunks(len(rows), step):
        some = np.ascontiguousarray(rows[part])
        if some.size:
            yield some.reshape(-1).view(np.uint8).data


def forget_pages(file: BinaryIO) -> None:
    """Drop a file from the page cache, whose memory others need more."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


# ---- reading ------------------------------------------------------------------------------------------------------


def read_header(path: Path) -> tuple[dict[str, tuple[ArraySpec, int]], dict[str, str]]:
    """The specification and the position of every array in a safetensors file, and its metadata.

    Raises ValueError if the file is damaged.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER):
            raise ValueError("no header of tensors, or one cut short")
        described = json.loads(file.read(length))
    metadata = described.pop("__metadata__", {})
    found = {}
    for name, each in described.items():
        spec = ArraySpec(DTYPES[each["dtype"]], tuple(map(int, each["shape"])))
        begin, end = map(int, each["data_offsets"])
        if min(spec.shape, default=0) < 0 or begin < 0 or end - begin != spec.bytes or 8 + length + end > size:
            raise ValueError(f"tensor {name!r} is cut short")
        found[name] = (spec, 8 + length + begin)
    return found, metadata


def map_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a safetensors file, memory-mapped: only pages that are used are read. Changes stay in memory."""
    found, _ = read_header(path)
    arrays: dict[str, Array] = {}
    for name, (spec, position) in found.items():
        if not math.prod(spec.shape):
            arrays[name] = np.empty(spec.shape, spec.dtype)
        elif position % spec.dtype.itemsize or sys.platform == "win32":  # there a mapped file cannot be replaced
            with path.open("rb") as file:
                file.seek(position)
                arrays[name] = np.fromfile(file, spec.dtype, math.prod(spec.shape)).reshape(spec.shape)
        else:
            arrays[name] = np.asarray(np.memmap(path, spec.dtype, "c", position, spec.shape))
    return arrays


def read_into(path: Path, targets: Mapping[str, Array]) -> set[str]:
    """Read the arrays of a file into `targets` (contiguous, of the same shapes); the names that the file has.

    If all arrays of the file are read, they are checked against its checksum.
    """
    found, metadata = read_header(path)
    with path.open("rb", buffering=0) as file:
        head = file.read(min((position for _, position in found.values()), default=0))
        before, field, after = head.partition(FIELD)
        total = zlib.crc32(before + field + (UNKNOWN.encode() + after[len(UNKNOWN) :] if field else b""))
        for name, (spec, position) in found.items():
            if name not in targets:
                continue
            target = targets[name]
            if spec != ArraySpec.of(target):
                raise ValueError(f"tensor {name!r} is {spec.shape} instead of {target.shape}")
            file.seek(position)
            rest = target.reshape(-1).view(np.uint8).data
            while rest:
                count = file.readinto(rest[: 1 << 26])
                if not count:
                    raise ValueError(f"tensor {name!r} is cut short")
                total = zlib.crc32(rest[:count], total)
                rest = rest[count:]
        forget_pages(file)
    if KEY in metadata and found.keys() <= targets.keys() and metadata[KEY] != f"{total:08x}":
        raise ValueError(ALTERED)
    return set(found)


def read_tensors(path: Path, device: str, advice: str = "") -> tuple[Tables, dict[str, str]]:
    """The torch tensors of a file of a run, and its metadata."""
    with reading(path, advice):
        check_tensors(path, has_checksums(path.parent))
        with safe_open(path, framework="pt", device=device) as file:
            return {key: _aligned(file.get_tensor(key)) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118


def _aligned(table: torch.Tensor) -> torch.Tensor:
    """A tensor that begins where torch would begin it: products of vectors elsewhere are rounded differently.

    On Windows it is always a copy, because a file in use cannot be replaced there.
    """
    return table if table.data_ptr() % ALIGNMENT == 0 and sys.platform != "win32" else table.clone()


# ---- records ------------------------------------------------------------------------------------------------------


def write_records(path: Path, records: list[dict[str, Any]]) -> None:
    """Replace a JSON file by a list of objects, each with its checksum; an empty list writes nothing."""
    if not records:
        return
    with writing(path), replace_file(path, durable=True) as temporary:
        text = json.dumps([seal_row(record) for record in records], indent=1, ensure_ascii=False)
        temporary.write_text(text, encoding="utf-8")


def read_records(path: Path, parse: Callable[[dict[str, Any]], Record]) -> list[Record]:
    """What `write_records` wrote, each object parsed; an empty list if there is no such file."""
    if not path.exists():
        return []
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
            raise ValueError("no list of records")
        required = has_checksums(path.parent)
        return [parse(check_row(record, required)) for record in records]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise FocuseError(f"{path}: damaged file ({error}); remove it") from None
