"""Writing a graph back to text or Parquet: whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from focuse.errors import FocuseError
from focuse.graph.graph import Graph

COMPRESSION = {".gz": "gzip", ".zst": "zstd"}


def write(graph: Graph, path: Path) -> None:
    """The columns head, relation, tail, weight. TSV has no header and no quotes, CSV has both."""
    packed = COMPRESSION.get(path.suffix)
    kind = Path(path.stem).suffix if packed else path.suffix
    if kind == ".parquet" and not packed:
        with replacing(path) as temporary:
            pq.write_table(graph.to_arrow(), temporary, compression="zstd")
        return
    if kind not in (".tsv", ".csv"):
        raise FocuseError(f"{path}: cannot write {path.suffix or 'a file without suffix'}; use .tsv, .csv or .parquet")
    if kind == ".tsv":
        _check_plain(graph, path)
    options = arrow_csv.WriteOptions(
        include_header=kind == ".csv",
        delimiter="\t" if kind == ".tsv" else ",",
        quoting_style="none" if kind == ".tsv" else "needed",
    )
    with replacing(path) as temporary, pa.output_stream(str(temporary), compression=packed) as stream:
        arrow_csv.write_csv(graph.to_arrow(), stream, options)


def _check_plain(graph: Graph, path: Path) -> None:
    """TSV has no way to write a tab or a line end inside a name."""
    for vocabulary in (graph.entities, graph.relations):
        odd = pc.match_substring_regex(vocabulary.column, "[\t\r\n]")
        if pc.any(odd).as_py():
            name = vocabulary[pc.index(odd, True).as_py()]
            raise FocuseError(f"{path}: the name {name!r} holds a tab or line end; write .csv or .parquet instead")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place only when the block ends well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.touch()
    except OSError as error:
        raise FocuseError(f"{path}: {error.strerror or error}; choose a folder that exists and is writable") from None
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
