"""Opening files from elsewhere: what is packed is unpacked within bounds, so that a small file cannot fill memory."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from focuse.errors import FocuseError

MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
SKIPPED = b"\x2a\x4d\x18"  # after one of the bytes 50 to 5f: a frame of zstd that holds no data; pzstd begins with one
# Text of graphs packs 5 to 30 times; what packs better than this, and is large, is no graph.
TIMES, ALWAYS = 200, 1 << 26  # the factor, and the bytes that any file may have
TABLE = 1 << 30  # bytes of names that any Parquet file may have: a sorted graph of few names is very small there
VARIABLE = "FOCUSE_UNPACKED"
BLOCK = 1 << 20


def packing(start: bytes) -> str | None:
    """How a file with these first four bytes is packed; None if it is not.

    >>> packing(b"\\x1f\\x8b\\x08\\x00"), packing(b"\\x5e\\x2a\\x4d\\x18"), packing(b"a\\tr\\t")
    ('gzip', 'zstd', None)
    """
    if start[1:4] == SKIPPED and start[0] >> 4 == 5:
        return "zstd"
    return next((name for magic, name in MAGIC.items() if start.startswith(magic)), None)


def most_unpacked(packed: int) -> float:
    """The bytes that a file of `packed` bytes may become; FOCUSE_UNPACKED sets them in gigabytes, or 'off'."""
    given = os.environ.get(VARIABLE, "").strip().lower()
    if not given:
        return max(ALWAYS, TIMES * packed)
    try:
        most = float("inf") if given in ("off", "no", "false") else float(given) * 1e9
    except ValueError:
        most = -1.0
    if not most > 0:
        raise FocuseError(f"{VARIABLE} is {given!r}; set it to off or to the gigabytes that a file may have unpacked")
    return most


def too_large(path: Path, packed: int, most: float) -> FocuseError:
    return FocuseError(
        f"{path}: {packed:,} bytes unpack to more than {most / 1e9:.3g} GB, which no graph does; if it is right, set "
        f"{VARIABLE} to the gigabytes that it has unpacked, or to off"
    )


class Bounded(io.RawIOBase):
    """A stream that ends in an error where more than `most` bytes come out of it."""

    def __init__(self, stream: Any, path: Path, packed: int, most: float) -> None:
        self.stream, self.path, self.packed, self.most = stream, path, packed, most
        self.seen = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            return self.readall()
        try:
            data: bytes = self.stream.read(size)
        except OSError as error:
            if "too much memory for decoding" not in str(error):
                raise
            raise FocuseError(
                f"{self.path}: packed with a window above 128 MiB (zstd --long); unpack it first, by "
                f"zstd -d --long=31, or pack it without --long"
            ) from None
        self.seen += len(data)
        if self.seen > self.most:
            raise too_large(self.path, self.packed, self.most)
        return data

    def readall(self) -> bytes:
        parts = []
        while data := self.read(BLOCK):
            parts.append(data)
        return b"".join(parts)

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self.stream.close()
        super().close()


def open_bytes(path: Path) -> Any:
    """The decompressed bytes of a file; the compression is told by its first bytes, not by its name."""
    with path.open("rb") as file:
        start = file.read(4)
        packed = os.fstat(file.fileno()).st_size
    kind = packing(start)
    stream = pa.input_stream(str(path), compression=kind)
    return stream if kind is None else Bounded(stream, path, packed, most_unpacked(packed))


@contextmanager
def parquet_file(path: Path) -> Iterator[pq.ParquetFile]:
    """A Parquet file that does not say of itself to be a bomb; what goes wrong while it is read is one line."""
    try:
        with pq.ParquetFile(path) as file:
            packed, about = path.stat().st_size, file.metadata
            stated = sum(about.row_group(place).total_byte_size for place in range(about.num_row_groups))
            if max(stated, about.num_rows) > most_unpacked(packed):
                raise too_large(path, packed, most_unpacked(packed))
            yield file
    except (pa.ArrowException, OSError, ValueError) as error:  # names of columns, too, may be no text
        raise FocuseError(f"{path}: not a readable Parquet file: {' '.join(str(error).split())[:200]}") from None


def parquet_table(path: Path) -> pa.Table:
    """What a Parquet file holds: checked to be text where it says so, and not to be a bomb."""
    packed = path.stat().st_size
    most = max(most_unpacked(packed), TABLE if VARIABLE not in os.environ else 0)
    with parquet_file(path) as file:
        schema = file.schema_arrow
        # Names stay in dictionaries: a long one that stands in every row is small in the file, and huge as text.
        texts = [field.name for field in schema if _is_text(field.type)]
        # Lists and the like are no columns of a graph, and could be of any size.
        wanted = [field.name for field in schema if not pa.types.is_nested(field.type)]
        table = pq.read_table(path, columns=wanted, read_dictionary=texts)
        table.validate(full=True)
    if sum(map(_expanded, table.columns)) > most:
        raise too_large(path, packed, most)
    return table


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def _expanded(column: pa.ChunkedArray) -> int:
    """Bytes of a column whose dictionaries are written out."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    total = 0
    for chunk in column.chunks:
        if _is_text(chunk.dictionary.type):
            lengths = pc.fill_null(pc.binary_length(chunk.dictionary), 0).to_numpy(zero_copy_only=False)
            used = chunk.indices.drop_null().to_numpy(zero_copy_only=False)
            total += int(np.bincount(used, minlength=len(lengths)) @ lengths.astype(np.int64)) if len(used) else 0
    return total
