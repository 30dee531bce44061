"""Export of embeddings, with their names, to the file formats of other tools."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from focuse.data.writers import COMPRESSION, column_bytes
from focuse.errors import DiskFullError, FocuseError, nearest
from focuse.models.base import components_of
from focuse.option_strings import choose
from focuse.storage.atomic import check_writable, replace_file

if TYPE_CHECKING:
    from focuse.api import Run

SUFFIXES = {
    ".parquet": "parquet", ".csv": "csv", ".tsv": "tsv", ".vec": "word2vec", ".w2v": "word2vec", ".txt": "word2vec",
    ".npz": "numpy", ".pt": "pyg",
}  # fmt: skip
FORMATS = ("parquet", "csv", "tsv", "word2vec", "numpy", "pyg")
TEXT_FORMATS = ("csv", "tsv", "word2vec")
TABLES = ("entities", "relations", "both")
SPLIT_NAMES = ("train", "valid", "test")
CHUNK_NUMBERS = 1 << 20  # numbers that are converted to text at once
MAX_NAME_BYTES = 4_000_000_000  # of names in a NumPy array, where each takes as much memory as the longest
# White space and control characters, at which some reader may split a line, and the sign that escapes them.
UNSAFE_IN_WORDS = re.compile("[%\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class EmbeddingTable:
    """The embeddings [n, d] of entities or relations, and their names [n]."""

    kind: str
    names: pa.Array
    vectors: Vectors

    @property
    def width(self) -> int:
        """Numbers per row."""
        return int(self.vectors.shape[1])

    def chunks(self) -> Iterator[tuple[pa.Array, Vectors]]:
        """Yield names and rows, a bounded number at a time."""
        step = max(1, CHUNK_NUMBERS // max(self.width, 1))
        for start in range(0, len(self.names), step):
            yield self.names.slice(start, step), self.vectors[start : start + step]


def export(run: Run, path: str | Path, format: str | None = None, what: str = "entities") -> list[Path]:
    """Write the embeddings of a run with their names, and return the paths of the files.

    Parameters
    ----------
    run
        A trained run. Its embeddings are written as the model compares them, that is after its encoder.
    path
        A file, which appears only when it is complete.
    format
        'parquet', 'csv', 'tsv', 'word2vec', 'numpy' or 'pyg' (plain tensors of both tables and of the
        training edges); by default the suffix of `path` decides.
    what
        'entities', 'relations' or 'both'. A format with one table per file then gets two files, such as
        FILE.entities.csv and FILE.relations.csv.
    """
    path = Path(path)
    format = check_export(path, format, what)
    if format == "pyg":
        try:
            with replace_file(path) as temporary:
                torch.save(graph_tensors(run), temporary)
        except RuntimeError as error:  # of a full disk
            raise DiskFullError(path, " ".join(str(error).split())[:120]) from None
        return [path]
    tables = embedding_tables(run, what)
    metadata = {"focuse.model": run.settings.model, "focuse.components": str(components_of(run.scorer.model)[0])}
    if format == "numpy":
        with replace_file(path) as temporary:
            _write_numpy(tables, temporary, path)
        return [path]
    stem, dot, suffixes = path.name.partition(".")
    files = [path.with_name(f"{stem}.{table.kind}{dot}{suffixes}") for table in tables] if len(tables) > 1 else [path]
    for table, file in zip(tables, files, strict=True):  # before any file is written
        if format == "tsv" and pc.any(pc.match_substring_regex(table.names, "[\t\r\n]")).as_py():
            raise FocuseError(f"{file}: a name contains a tab or a line end; write .csv or .parquet instead")
    for table, file in zip(tables, files, strict=True):
        with replace_file(file) as temporary:
            if format == "parquet":
                _write_parquet(table, temporary, metadata)
                continue
            with pa.output_stream(str(temporary), compression=COMPRESSION.get(file.suffix)) as stream:
                _write_text(table, stream, format)
    return files


def check_export(path: Path, format: str | None, what: str) -> str:
    """Return the format to write; raise FocuseError if the path, the format and the tables do not fit."""
    choose("export", what, TABLES)
    compressed = path.suffix in COMPRESSION
    suffix = (Path(path.stem).suffix if compressed else path.suffix).lower()
    if format is None and suffix not in SUFFIXES:
        raise FocuseError(
            f"{path}: cannot export to {path.suffix or 'a file without suffix'}{nearest(suffix, SUFFIXES)}; use "
            f"{', '.join(SUFFIXES)}, or give a format: {', '.join(FORMATS)}"
        )
    format = SUFFIXES[suffix] if format is None else choose("format", format, FORMATS)
    if compressed and format not in TEXT_FORMATS:
        raise FocuseError(f"{path}: {format} files are not compressed; leave out {path.suffix}")
    check_writable(path)
    return format


def embedding_tables(run: Run, what: str = "both") -> list[EmbeddingTable]:
    """Return the encoded embeddings of a run, in float32 and in main memory."""
    graph, scorer = run.graph, run.scorer
    rows = {
        "entities": (graph.entities.column, scorer.encoded_tables()["entity"]),
        "relations": (graph.relations.column, scorer.relation_table()),
    }
    return [
        EmbeddingTable(kind, names, vectors.detach().to("cpu", torch.float32).flatten(1).numpy())
        for kind, (names, vectors) in rows.items()
        if what in (kind, "both")
    ]


def _write_parquet(table: EmbeddingTable, path: Path, metadata: Mapping[str, str]) -> None:
    """Write the columns name (text) and vector (a list of d float32 numbers)."""
    schema = pa.schema(
        [("name", pa.string()), ("vector", pa.list_(pa.float32(), table.width))], metadata=dict(metadata)
    )
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False) as writer:
        for names, vectors in table.chunks():
            lists = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(vectors).ravel()), table.width)
            writer.write_batch(pa.record_batch([names, lists], schema=schema))


def _write_numpy(tables: list[EmbeddingTable], path: Path, target: Path) -> None:
    """Write the arrays `entities` [n, d], `entity_names` [n], `relations` and `relation_names`, without pickles."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for table in tables:
        longest = pc.max(pc.utf8_length(table.names)).as_py() or 1
        needed = len(table.names) * longest * 4
        if needed > MAX_NAME_BYTES:
            raise FocuseError(f"{target}: NumPy would need {needed / 1e9:.0f} GB for the names; write .parquet")
        arrays[table.kind] = table.vectors
        arrays["entity_names" if table.kind == "entities" else "relation_names"] = np.array(
            table.names.to_pylist(), f"<U{longest}"
        )
    with path.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)


def _write_text(table: EmbeddingTable, stream: Any, format: str) -> None:
    """Write a header and one line per row; names are quoted in CSV and percent-encoded in word2vec."""
    delimiter = {"csv": ",", "tsv": "\t", "word2vec": " "}[format]
    header = [len(table.names), table.width] if format == "word2vec" else ["name", *range(table.width)]
    stream.write((delimiter.join(map(str, header)) + "\n").encode())
    for names, vectors in table.chunks():
        if format == "word2vec":
            names = pa.array([UNSAFE_IN_WORDS.sub(lambda sign: quote(sign[0]), name) for name in names.to_pylist()])
        if format == "csv":
            names = pc.binary_join_element_wise('"', pc.replace_substring(names, '"', '""'), '"', "")
        lines = pc.binary_join_element_wise(names, delimiter, _joined_numbers(vectors, delimiter), "\n", "")
        stream.write(column_bytes(lines))


def _joined_numbers(vectors: Vectors, delimiter: str) -> pa.Array:
    """Return each row [n, d] as one text, with the fewest digits that give the same float32 numbers."""
    count, width = vectors.shape
    texts = pa.array(np.ascontiguousarray(vectors).ravel()).cast(pa.string())
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * width)
    return pc.binary_join(pa.ListArray.from_arrays(offsets, texts), delimiter)


def graph_tensors(run: Run, parts: Sequence[str] | str = ("train",)) -> dict[str, Any]:
    """Return embeddings and edges as PyTorch Geometric names them.

    x [E, d], edge_index int64 [2, m], edge_type int64 [m], edge_attr [m, C] (weights in the graph's units, NaN where
    one is missing), edge_part int64 [m] (0 train, 1 valid, 2 test) and relation_x [R, k] are tensors; names,
    relation_names and weight_names are lists. `parts` are the splits whose edges are included.
    """
    parts = [parts] if isinstance(parts, str) else list(parts)
    if not parts:
        raise FocuseError(f"parts: none given; choose from {', '.join(SPLIT_NAMES)}")
    graphs = [getattr(run.splits, choose("split", part, SPLIT_NAMES)) for part in parts]
    ids = {name: np.concatenate([getattr(graph, name) for graph in graphs]) for name in ("head", "relation", "tail")}
    columns = run.graph.columns
    if columns is not None and all(graph.columns is not None for graph in graphs):
        weights, weight_names = [graph.columns.values_of(columns.names) for graph in graphs], list(columns.names)
    else:
        weights, weight_names = [graph.weight[:, None] for graph in graphs], ["weight"]
    entities, relations = embedding_tables(run)
    return {
        "x": torch.from_numpy(entities.vectors).clone(),
        "edge_index": torch.from_numpy(np.stack([ids["head"], ids["tail"]]).astype(np.int64)),
        "edge_type": torch.from_numpy(ids["relation"].astype(np.int64)),
        "edge_attr": torch.from_numpy(np.concatenate(weights).astype(np.float32)),
        "edge_part": torch.from_numpy(np.repeat([SPLIT_NAMES.index(part) for part in parts], list(map(len, graphs)))),
        "relation_x": torch.from_numpy(relations.vectors).clone(),
        "names": entities.names.to_pylist(),
        "relation_names": relations.names.to_pylist(),
        "weight_names": weight_names,
    }


def to_pyg(run: Run, parts: Sequence[str] | str = ("train",)) -> Any:
    """Return a run as a `torch_geometric.data.Data`, with the attributes that `graph_tensors` lists."""
    try:
        from torch_geometric.data import Data
    except ImportError:
        raise FocuseError("PyTorch Geometric is not installed; install it: pip install torch_geometric") from None
    return Data(**graph_tensors(run, parts))
