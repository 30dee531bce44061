"""Tables as they are: Parquet, NumPy and safetensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from focuse.errors import FocuseError
from focuse.exports.tables import Table

HEADER_BYTES = 50_000_000  # of names: readers refuse a safetensors header of more than twice that
TEXT_BYTES = 4_000_000_000  # of NumPy's names, which all take as much room as the longest


def write_parquet(table: Table, path: Path, about: Mapping[str, str]) -> None:
    """The columns name (text) and vector (a list of so many float32)."""
    kind = pa.list_(pa.float32(), table.width)
    schema = pa.schema([("name", pa.string()), ("vector", kind)], metadata=dict(about))
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False) as writer:
        for names, vectors in table.parts():
            flat = pa.array(np.ascontiguousarray(vectors).ravel())
            lists = pa.FixedSizeListArray.from_arrays(flat, table.width)
            writer.write_batch(pa.record_batch([names, lists], schema=schema))


def write_numpy(tables: list[Table], path: Path, target: Path) -> None:
    """Arrays `entities` [n, d] and `entity_names` [n], and so for relations; nothing of it is pickled."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for table in tables:
        arrays[table.kind] = table.vectors
        arrays["entity_names" if table.kind == "entities" else "relation_names"] = _texts(table.names, target)
    with path.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)


def _texts(names: pa.Array, target: Path) -> npt.NDArray[np.str_]:
    """Names as NumPy holds text."""
    longest = pc.max(pc.utf8_length(names)).as_py() or 1
    if len(names) * longest * 4 > TEXT_BYTES:
        raise FocuseError(
            f"{target}: NumPy would need {len(names) * longest * 4 / 1e9:.0f} GB for names; write .parquet"
        )
    if pc.any(pc.match_substring(names, "\x00")).as_py():
        raise FocuseError(f"{target}: a name holds a zero byte, which NumPy cuts off; write .parquet")
    texts = np.empty(len(names), f"<U{longest}")
    step = 1 << 16
    for start in range(0, len(names), step):
        texts[start : start + step] = names.slice(start, step).to_pylist()
    return texts


def write_safetensors(tables: list[Table], path: Path, target: Path, about: Mapping[str, str]) -> None:
    """Tensors `entities` and `relations`; their names are JSON lists in the file's metadata under the same keys."""
    from safetensors.numpy import save_file

    told = dict(about)
    for table in tables:
        size = (pc.sum(pc.binary_length(table.names)).as_py() or 0) + 4 * len(table)
        if size > HEADER_BYTES:
            raise FocuseError(f"{target}: {size / 1e6:.0f} MB of names are too many for safetensors; write .parquet")
        told[table.kind] = json.dumps(table.names.to_pylist(), ensure_ascii=False)
    save_file({table.kind: np.ascontiguousarray(table.vectors) for table in tables}, path, told)
