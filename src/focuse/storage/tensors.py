"""Safetensors files with a checksum, which are written in chunks and read whole, in part or memory-mapped.

The module also has checksums of texts and JSON records, and one-line errors for files that are damaged or cannot be
written.
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
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from focuse.errors import DiskFullError, FocuseError
from focuse.storage.atomic import replace_file
from focuse.system import chunks

if TYPE_CHECKING:  # reading and inspecting a graph must not import torch
    import torch

    Tables = dict[str, torch.Tensor]
else:
    Tables = dict

Array = npt.NDArray[Any]
Record = TypeVar("Record")

# ---- checksums ----------------------------------------------------------------------------------------------------

CHECKSUM_KEY = "crc32"
CHECKSUM_PLACEHOLDER = "0" * 8
CHECKSUM_FIELD = f'"{CHECKSUM_KEY}":"'.encode()
CHECKSUM_COMMENT = f"# {CHECKSUM_KEY} "
CHUNK_BYTES = 1 << 24
ALTERED = "altered since it was written (its checksum differs)"
NO_CHECKSUM = "altered since it was written (its checksum is gone)"


def file_checksum(path: Path) -> str:
    """Return the checksum of a whole file, which is read in chunks."""
    with path.open("rb") as file:
        return f"{_remaining_checksum(file, 0):08x}"


def _remaining_checksum(file: BinaryIO, start: int) -> int:
    chunk = memoryview(bytearray(CHUNK_BYTES))
    while count := file.readinto(chunk):  # type: ignore[attr-defined]
        start = zlib.crc32(chunk[:count], start)
    return start


def seal_text(text: str) -> str:
    """Return a text of whole lines with its checksum as the last line, which is a comment in TOML.

    >>> print(seal_text("seed = 3\\n"), end="")
    seed = 3
    # crc32 12b4aed9
    """
    return f"{text}{CHECKSUM_COMMENT}{zlib.crc32(text.encode()):08x}\n"


def check_text(text: str, required: bool) -> None:
    """Raise ValueError if a text differs from its checksum, or lacks a `required` one."""
    lines, comment, digits = text.rpartition(CHECKSUM_COMMENT)
    if comment and digits == f"{zlib.crc32(lines.encode()):08x}\n":
        return
    if required or comment:
        raise ValueError(ALTERED if comment else NO_CHECKSUM)


def seal_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object with a last field that holds the checksum of the other fields.

    >>> seal_row({"epoch": 1})
    {'epoch': 1, 'crc32': '94919848'}
    """
    return {**row, CHECKSUM_KEY: f"{zlib.crc32(json.dumps(row).encode()):08x}"}


def check_row(row: dict[str, Any], required: bool) -> dict[str, Any]:
    """Return a JSON object without its checksum; raise ValueError if it differs, or is `required` and missing."""
    rest = {key: value for key, value in row.items() if key != CHECKSUM_KEY}
    if CHECKSUM_KEY in row and row != seal_row(rest):
        raise ValueError(ALTERED)
    if required and CHECKSUM_KEY not in row:
        raise ValueError(NO_CHECKSUM)
    return rest


def check_tensors(path: Path, required: bool | None = None) -> None:
    """Raise ValueError if a safetensors file differs from its checksum, or lacks a `required` one.

    By default a checksum is required if the run has checksums.
    """
    with path.open("rb") as file:
        position, digits = _tensor_checksum(file)
        if position is None:
            if has_checksums(path.parent) if required is None else required:
                raise ValueError(NO_CHECKSUM)
            return
        file.seek(position)
        if file.read(len(CHECKSUM_PLACEHOLDER)) != digits.encode():
            raise ValueError(ALTERED)


def _tensor_checksum(file: BinaryIO) -> tuple[int | None, str]:
    """Return the position of the checksum in a safetensors file, None if it has none, and its correct digits."""
    prefix = file.read(8)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or length > os.fstat(file.fileno()).st_size - 8:
        raise ValueError("it is cut short")
    header = bytearray(file.read(length))
    position = header.find(CHECKSUM_FIELD)  # unique, because the quotes would be escaped within a string
    if position < 0:
        return None, ""
    start = position + len(CHECKSUM_FIELD)
    header[start : start + len(CHECKSUM_PLACEHOLDER)] = CHECKSUM_PLACEHOLDER.encode()
    return 8 + start, f"{_remaining_checksum(file, zlib.crc32(header, zlib.crc32(prefix))):08x}"


def has_checksums(folder: Path) -> bool:
    """Return whether the files of a run must have checksums; runs of early versions have none."""
    try:
        return "checksums" in tomllib.loads((folder / "run.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False  # the reader of run.toml reports the error


# ---- one-line errors ----------------------------------------------------------------------------------------------

TRY_AGAIN, OR_RESUME = "try again", " or resume the run"  # the second is removed if there is no run to resume
RESTORE_PARTITIONS = "put a copy of it back, or remove the folder 'partitions' and resume, which trains from the start"
PERMISSION_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM)


class DamagedError(FocuseError):
    """The error of a file of a run that is missing, or whose contents are not those that were written."""


class WriteError(FocuseError):
    """The error of a file of a run that could not be written; the file that it would replace is still complete."""


@contextmanager
def reading(path: Path, advice: str = "") -> Iterator[Path]:
    """Turn every error in the contents of a file into a `DamagedError` of one line, which ends with `advice`."""
    ending = f"; {advice}" if advice else ""
    try:
        yield path
    except DamagedError:
        raise  # another file that was read within the block is damaged
    except KeyError as error:
        raise DamagedError(f"{path}: damaged file: {error} is missing or unknown{ending}") from None
    except (FocuseError, OSError, TypeError, ValueError, IndexError, RecursionError, SafetensorError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise DamagedError(f"{path}: damaged file: {reason}{ending}") from None


def reading_partition(path: Path) -> AbstractContextManager[Path]:
    """Report errors of the block as `reading` does, with advice for a damaged file of the partitions."""
    return reading(path, RESTORE_PARTITIONS)


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Turn errors such as a full disk into a `WriteError` of one line."""
    try:
        yield path
    except (OSError, DiskFullError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or " ".join(str(error).split())
        advice = "make it writable" if getattr(error, "errno", None) in PERMISSION_ERRORS else "free some space"
        raise WriteError(f"{path}: cannot be written: {reason}; {advice}, then {TRY_AGAIN}{OR_RESUME}") from None


# ---- writing ------------------------------------------------------------------------------------------------------

DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BOOL": np.dtype("?"),
    "I64": np.dtype("<i8"), "I32": np.dtype("<i4"), "I16": np.dtype("<i2"), "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"), "U32": np.dtype("<u4"), "U16": np.dtype("<u2"), "U8": np.dtype("u1"),
}  # fmt: skip
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
ALIGNMENT_BYTES = 64  # torch aligns its own tensors in the same way
MAX_HEADER_BYTES = 1 << 24  # a file that claims a larger header is damaged


@dataclass(frozen=True)
class ArraySpec:
    """The data type and shape of an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, array: Array) -> ArraySpec:
        """Return the specification of an array."""
        return cls(array.dtype, array.shape)

    @property
    def row_bytes(self) -> int:
        """The size of one row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def bytes(self) -> int:
        """The size of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


class TensorFile:
    """A new safetensors file with arrays of known shapes, which are written in parts and in any order.

    Several processes may write to it: one calls `create`, all call `write`, and then one calls `seal`.

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

    def __init__(self, path: Path, specs: Mapping[str, ArraySpec], metadata: Mapping[str, str] | None = None) -> None:
        self.path, self.specs = path, specs
        entries = {**(metadata or {}), CHECKSUM_KEY: CHECKSUM_PLACEHOLDER}
        header: dict[str, Any] = {"__metadata__": dict(sorted(entries.items()))}
        self.offsets, end = {}, 0
        for name, spec in specs.items():
            self.offsets[name] = end
            offsets = [end, end + spec.bytes]
            header[name] = {"dtype": DTYPE_NAMES[spec.dtype], "shape": list(spec.shape), "data_offsets": offsets}
            end += spec.bytes
        text = json.dumps(header, separators=(",", ":")).encode()
        length = -(-(len(text) + 8) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES - 8
        self.header = length.to_bytes(8, "little") + text.ljust(length)
        self.offsets = {name: len(self.header) + offset for name, offset in self.offsets.items()}
        self.size = len(self.header) + end
        # These are the checksum of all bytes that were written from the start without a gap, and the end of those.
        self._checksum, self._end = zlib.crc32(self.header), len(self.header)
        self._file: BinaryIO

    def create(self, allocate: bool = False) -> None:
        """Create the file; with `allocate` it gets its full size, so that a full disk is noticed early."""
        with self.path.open("wb") as file:
            file.write(self.header)
            if allocate:
                file.truncate(self.size)
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, self.size)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Keep the file open for the calls of `write` in a block."""
        with self.path.open("r+b", buffering=0) as self._file:
            yield

    def write(self, name: str, values: Array, row: int = 0) -> None:
        """Write rows of an array, the first of which is number `row`, within a block of `open`."""
        position = self.offsets[name] + row * self.specs[name].row_bytes
        self._file.seek(position)
        for chunk in _byte_chunks(values):
            rest = chunk
            while rest:
                rest = rest[self._file.write(rest) :]
            if position == self._end:
                self._checksum = zlib.crc32(chunk, self._checksum)
                self._end += len(chunk)
            position += len(chunk)

    def seal(self, sync: bool = True, drop_cache: bool = False) -> None:
        """Fill in the checksum; `sync` flushes the file to the disk, and `drop_cache` drops it from the page cache."""
        with self.path.open("r+b") as file:
            if os.fstat(file.fileno()).st_size != self.size:
                raise OSError(errno.EIO, "the file does not have its full size")
            digits = f"{self._checksum:08x}" if self._end == self.size else _tensor_checksum(file)[1]
            file.seek(self.header.index(CHECKSUM_FIELD) + len(CHECKSUM_FIELD))
            file.write(digits.encode())
            file.flush()
            if sync:
                os.fsync(file.fileno())
            if drop_cache:
                drop_page_cache(file)


def write_arrays(
    path: Path,
    arrays: Mapping[str, Array],
    metadata: Mapping[str, str] | None = None,
    sync: bool = True,
    drop_cache: bool = False,
) -> None:
    """Write arrays and their checksum to a safetensors file, without copying them."""
    # The largest items come first, so that all arrays are aligned.
    ordered = dict(sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize))
    file = TensorFile(path, {name: ArraySpec.of(array) for name, array in ordered.items()}, metadata)
    file.create()
    with file.open():
        for name, array in ordered.items():
            file.write(name, array)
    file.seal(sync, drop_cache)


def write_tensors(path: Path, tensors: Tables, metadata: Mapping[str, str]) -> None:
    """Replace a file of torch tensors."""
    with writing(path), replace_file(path, durable=True) as temporary:
        arrays = {name: tensors[name].detach().cpu().numpy() for name in sorted(tensors)}
        write_arrays(temporary, arrays, metadata, sync=False)


def _byte_chunks(array: Array) -> Iterator[memoryview]:
    """Yield the bytes of an array in chunks of about CHUNK_BYTES."""
    rows = array.reshape(1) if array.ndim == 0 else array
    step = max(1, CHUNK_BYTES // max(1, ArraySpec.of(rows).row_bytes))
    for part in chunks(len(rows), step):
        chunk = np.ascontiguousarray(rows[part])
        if chunk.size:
            yield chunk.reshape(-1).view(np.uint8).data


def drop_page_cache(file: BinaryIO) -> None:
    """Drop a file from the page cache, so that its memory is available for other files."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


# ---- reading ------------------------------------------------------------------------------------------------------


def read_header(path: Path) -> dict[str, tuple[ArraySpec, int]]:
    """Return the specification and the position of every array in a file; raise ValueError if it is damaged."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
            raise ValueError("the header of tensors is missing or cut short")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    specs = {}
    for name, entry in header.items():
        spec = ArraySpec(DTYPES[entry["dtype"]], tuple(map(int, entry["shape"])))
        begin, end = map(int, entry["data_offsets"])
        if min(spec.shape, default=0) < 0 or begin < 0 or end - begin != spec.bytes or 8 + length + end > size:
            raise ValueError(f"tensor {name!r} is cut short")
        specs[name] = (spec, 8 + length + begin)
    return specs


def map_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of a safetensors file, memory-mapped: only used pages are read, and changes stay in memory."""
    arrays: dict[str, Array] = {}
    for name, (spec, position) in read_header(path).items():
        if not math.prod(spec.shape):
            arrays[name] = np.empty(spec.shape, spec.dtype)
        elif position % spec.dtype.itemsize or sys.platform == "win32":  # Windows cannot replace a mapped file
            with path.open("rb") as file:
                file.seek(position)
                arrays[name] = np.fromfile(file, spec.dtype, math.prod(spec.shape)).reshape(spec.shape)
        else:
            arrays[name] = np.asarray(np.memmap(path, spec.dtype, "c", position, spec.shape))
    return arrays


def read_into(path: Path, targets: Mapping[str, Array]) -> set[str]:
    """Verify a file and read its arrays into `targets`, contiguous arrays of the same shapes; return their names."""
    check_tensors(path, required=True)
    specs = read_header(path)
    with path.open("rb") as file:
        for name in specs.keys() & targets.keys():
            (spec, position), target = specs[name], targets[name]
            if spec != ArraySpec.of(target):
                raise ValueError(f"tensor {name!r} is {spec.shape} instead of {target.shape}")
            file.seek(position)
            if file.readinto(target.reshape(-1).view(np.uint8).data) != target.nbytes:
                raise ValueError(f"tensor {name!r} is cut short")
        drop_page_cache(file)
    return set(specs)


def read_tensors(path: Path, device: str, advice: str = "") -> tuple[Tables, dict[str, str]]:
    """Return the torch tensors of a file of a run, and the metadata of the file."""
    with reading(path, advice):
        check_tensors(path)
        with safe_open(path, framework="pt", device=device) as file:
            return {key: _aligned(file.get_tensor(key)) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118


def _aligned(table: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or a copy with torch's alignment, because vector products are rounded differently without it.

    On Windows the result is always a copy, because Windows cannot replace a file in use.
    """
    return table if table.data_ptr() % ALIGNMENT_BYTES == 0 and sys.platform != "win32" else table.clone()


# ---- records ------------------------------------------------------------------------------------------------------


def write_records(path: Path, records: list[dict[str, Any]]) -> None:
    """Replace a JSON file by a list of objects, each with its checksum; an empty list writes nothing."""
    if not records:
        return
    with writing(path), replace_file(path, durable=True) as temporary:
        text = json.dumps([seal_row(record) for record in records], indent=1, ensure_ascii=False)
        temporary.write_text(text, encoding="utf-8")


def read_records(path: Path, parse: Callable[[dict[str, Any]], Record]) -> list[Record]:
    """Return the parsed objects of a file that `write_records` wrote; the list is empty if there is no file."""
    if not path.exists():
        return []
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
            raise ValueError("not a list of records")
        required = has_checksums(path.parent)
        return [parse(check_row(record, required)) for record in records]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise FocuseError(f"{path}: damaged file ({error}); remove it") from None
