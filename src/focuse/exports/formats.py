"""The formats of exported embeddings: rows of numbers with their names, and what writes them in each format."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from focuse.data.graph import Graph
from focuse.data.splits import Splits
from focuse.data.writers import column_bytes
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError
from focuse.option_strings import choose

# ---- the finished rows of a run with the names they belong to --------------------------------------------------------

WHAT = ("entities", "relations", "both")
CHUNK_NUMBERS = 1 << 20  # numbers that are text at a time
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of numbers [n, d] and their names [n]; `kind` is entities or relations."""

    kind: str
    names: pa.Array
    vectors: Vectors

    def __len__(self) -> int:
        return len(self.names)

    @property
    def width(self) -> int:
        return int(self.vectors.shape[1])

    def parts(self) -> Iterator[tuple[pa.Array, Vectors]]:
        """Names and rows, a bounded number at a time."""
        step = max(1, CHUNK_NUMBERS // max(self.width, 1))
        for start in range(0, len(self), step):
            yield self.names.slice(start, step), self.vectors[start : start + step]


def finished_tables(scorer: TableScorer, graph: Graph, what: str) -> list[Table]:
    """The tables asked for, as the model takes them: encoded, with the numbers of entities where it looks at them."""
    choose("export", what, WHAT)
    found = scorer.encoded_tables()
    both = {
        "entities": (graph.entities.column, found["entity"]),
        "relations": (graph.relations.column, scorer.relation_table()),
    }
    return [Table(kind, names, as_numpy(rows)) for kind, (names, rows) in both.items() if what in (kind, "both")]


def as_numpy(rows: torch.Tensor) -> Vectors:
    """A table as float32 in the computer's memory, without a copy where it is there already."""
    found: Any = rows.detach().to("cpu", torch.float32).flatten(1).numpy()
    return found  # type: ignore[no-any-return]


# ---- tables as they are: Parquet, NumPy and safetensors --------------------------------------------------------------

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


# ---- tables as text: CSV, TSV, word2vec's format and the folder of TensorBoard's projector ---------------------------
# Numbers have the fewest digits that give the same float32 again.

# Whatever some reader may cut a line at, and the sign that marks what stands for it.
UNSAFE_IN_WORDS = "[%\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"


def numbers(vectors: Vectors, separator: str) -> pa.Array:
    """Each row [n, d] as one text."""
    count, width = vectors.shape
    flat = pa.array(np.ascontiguousarray(vectors).ravel()).cast(pa.string())
    ends = pa.array(np.arange(count + 1, dtype=np.int32) * width)
    return pc.binary_join(pa.ListArray.from_arrays(ends, flat), separator)


def check_names(table: Table, path: Path) -> None:
    """Raise for names that TSV cannot hold."""
    if pc.any(pc.match_substring_regex(table.names, "[\t\r\n]")).as_py():
        raise FocuseError(f"{path}: a name holds a tab or line end; write .csv or .parquet instead")


def write_delimited(table: Table, stream: Any, delimiter: str) -> None:
    """A header (name, 0, 1, …), then a line a row; names are quoted in CSV and never in TSV."""
    stream.write((delimiter.join(["name", *map(str, range(table.width))]) + "\n").encode())
    for names, vectors in table.parts():
        if delimiter == ",":
            names = pc.binary_join_element_wise('"', pc.replace_substring(names, '"', '""'), '"', "")
        stream.write(_lines(names, vectors, delimiter))


def write_word2vec(table: Table, stream: Any) -> None:
    """`n d`, then a name and its numbers a line, with spaces between."""
    stream.write(f"{len(table)} {table.width}\n".encode())
    for names, vectors in table.parts():
        stream.write(_lines(word(names), vectors, " "))


def word(names: pa.Array) -> pa.Array:
    """Names without white space: that and % are percent-encoded, which urllib.parse.unquote undoes."""
    odd = pc.match_substring_regex(names, UNSAFE_IN_WORDS)
    if not pc.any(odd).as_py():
        return names
    return pc.replace_with_mask(names, odd, pa.array(map(_encode_word, names.filter(odd).to_pylist()), pa.string()))


def _encode_word(name: str) -> str:
    return re.sub(UNSAFE_IN_WORDS, lambda found: quote(found[0]), name)


def write_projector(tables: list[Table], folder: Path) -> None:
    """A folder that TensorBoard's projector opens: vectors, labels, and a file that says which are which."""
    config = []
    for table in tables:
        start = "" if table.kind == "entities" else f"{table.kind}_"
        vectors, labels = f"{start}tensors.tsv", f"{start}metadata.tsv"
        with (folder / vectors).open("wb") as rows, (folder / labels).open("wb") as words:
            for names, part in table.parts():
                rows.write(_lines(None, part, "\t"))
                shown = label(names)
                words.write(column_bytes(pc.binary_join_element_wise(shown, "\n", "")))
        config.append(
            f'embeddings {{\n  tensor_name: "{table.kind}"\n'
            f"  tensor_shape: {len(table)}\n  tensor_shape: {table.width}\n"
            f'  tensor_path: "{vectors}"\n  metadata_path: "{labels}"\n}}\n'
        )
    (folder / "projector_config.pbtxt").write_text("".join(config), encoding="utf-8")


def label(names: pa.Array) -> pa.Array:
    """Names on one line: a backslash, tab or line end as in a Python string."""
    for letter, written in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        names = pc.replace_substring(names, letter, written)
    return names


def _lines(names: pa.Array | None, vectors: Vectors, separator: str) -> pa.Buffer | bytes:
    parts = [] if names is None else [names, separator]
    return column_bytes(pc.binary_join_element_wise(*parts, numbers(vectors, separator), "\n", ""))


# ---- a run as PyTorch Geometric takes graphs: rows of nodes, edges, their types and weights --------------------------

SPLIT_NAMES = ("train", "valid", "test")


def plain_tensors(scorer: TableScorer, splits: Splits, parts: Sequence[str] = ("train",)) -> dict[str, Any]:
    """Tensors and lists of text, of which a `Data` is made.

    x [E, d], edge_index int64 [2, m], edge_type int64 [m], edge_attr [m, C] (weights in the graph's units, NaN where
    one is missing), edge_part int64 [m] (0 train, 1 valid, 2 test), relation_x [R, k]; names, relation_names and
    weight_names are lists.
    """
    if isinstance(parts, str):
        parts = [parts]
    if not parts:
        raise FocuseError(f"parts: none given; choose of {', '.join(SPLIT_NAMES)}")
    graphs = {"train": splits.train, "valid": splits.valid, "test": splits.test}
    chosen = [graphs[choose("part of a run", part, SPLIT_NAMES)] for part in parts]
    head, relation, tail = (
        np.concatenate([getattr(graph, name) for graph in chosen]).astype(np.int64)
        for name in ("head", "relation", "tail")
    )
    columns = splits.train.columns
    several = columns is not None and all(graph.columns is not None for graph in chosen)
    if several and columns is not None:
        weights = np.concatenate([graph.columns.values_of(columns.names) for graph in chosen if graph.columns])
    else:
        weights = np.concatenate([graph.weight for graph in chosen])[:, None]
    found = scorer.encoded_tables()
    place = [np.full(len(graphs[part]), SPLIT_NAMES.index(part), np.int64) for part in parts]
    return {
        "x": torch.from_numpy(as_numpy(found["entity"])).clone(),
        "edge_index": torch.from_numpy(np.stack([head, tail])),
        "edge_type": torch.from_numpy(relation),
        "edge_attr": torch.from_numpy(weights.astype(np.float32)),
        "edge_part": torch.from_numpy(np.concatenate(place)),
        "relation_x": torch.from_numpy(as_numpy(scorer.relation_table())).clone(),
        "names": splits.train.entities.column.to_pylist(),
        "relation_names": splits.train.relations.column.to_pylist(),
        "weight_names": list(columns.names) if several and columns is not None else ["weight"],
    }


def to_pyg(scorer: TableScorer, splits: Splits, parts: Sequence[str] = ("train",)) -> Any:
    """A `torch_geometric.data.Data` of these tensors."""
    try:
        from torch_geometric.data import Data
    except ImportError:
        raise FocuseError("this needs PyTorch Geometric: pip install torch_geometric") from None
    return Data(**plain_tensors(scorer, splits, parts))
