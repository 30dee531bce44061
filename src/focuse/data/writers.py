"""Write graphs and tables of links to text, Parquet, RDF or GraphML files.

A file is written as a whole or not at all. Files are exact: a graph that is written and read again is the same. Names
that a spreadsheet would run as formulas are therefore not escaped here; only the explorer does that in files it saves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from importlib import import_module
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from focuse.data.graph import BASE_IRI, Graph
from focuse.data.readers import INTEGRATIONS, import_function
from focuse.errors import FocuseError
from focuse.storage.atomic import check_writable, replace_file
from focuse.system import chunks

COMPRESSION = {".gz": "gzip", ".zst": "zstd"}
TABLE_SUFFIXES = (".tsv", ".csv", ".parquet")
NAME_COLUMNS = ("head", "relation", "tail")
CHUNK_ROWS = 1 << 18  # rows in memory as names at once

GRAPH_WRITERS: dict[str, str] = {}
LINK_WRITERS: dict[str, str] = {}


def register_writer(suffixes: Iterable[str], graph: str, links: str = "") -> None:
    """Register writers for file suffixes, as "module:name" of functions that yield the bytes of a file in pieces.

    Parameters
    ----------
    graph : str
        Names a function (graph, suffix, base IRI, path) -> bytes in pieces.
    links : str
        Names a function (table of links, suffix, base IRI) -> bytes in pieces, if there is one.
    """
    for suffix in suffixes:
        GRAPH_WRITERS[suffix] = graph
        if links:
            LINK_WRITERS[suffix] = links


def graph_writers() -> dict[str, str]:
    """Return the registered writers of graphs by suffix."""
    import_module(INTEGRATIONS)
    return GRAPH_WRITERS


def link_writers() -> dict[str, str]:
    """Return the registered writers of links by suffix."""
    import_module(INTEGRATIONS)
    return LINK_WRITERS


def format_and_compression(
    path: Path, writers: Callable[[], Mapping[str, str]], *others: str
) -> tuple[str, str | None]:
    """Return the format suffix and the compression of a file name; raise FocuseError for other formats.

    The formats are those of tables, the `others` and those of `writers`, which is called only if it is needed.
    """
    compression = COMPRESSION.get(path.suffix.lower())
    suffix = (Path(path.stem).suffix if compression else path.suffix).lower()
    known = suffix in (*TABLE_SUFFIXES, *others) or suffix in writers()
    if not known or (compression and suffix in (".parquet", *others)):
        *suffixes, last = (*TABLE_SUFFIXES, *writers(), *others)
        found = path.suffix or "a file without suffix"
        raise FocuseError(f"{path}: cannot write {found}; use {', '.join(suffixes)} or {last}")
    return suffix, compression


def check_graph_path(path: Path, *inputs: str | Path) -> tuple[str, str | None]:
    """Return the format suffix and compression of a new file; raise FocuseError if it cannot be written."""
    suffix, compression = format_and_compression(path, graph_writers)
    check_writable(path, *inputs)
    return suffix, compression


def write(graph: Graph, path: Path, base: str = BASE_IRI) -> None:
    """Write the columns head, relation, tail and weight. TSV has neither header nor quotes, CSV has both.

    Several weights have a header in TSV, too, because their names would be lost without. In RDF, weights are
    annotations of triples, and a name that is not an IRI is appended to `base`.
    """
    suffix, compression = check_graph_path(path)
    if suffix in GRAPH_WRITERS:
        _write_pieces(import_function(GRAPH_WRITERS[suffix])(graph, suffix, base, path), path, compression)
        return
    if suffix == ".tsv":
        refuse_characters(graph, path, "[\t\r\n]", "a tab or line end; write .csv or .parquet instead")
        refuse_characters(graph, path, "^\ufeff", "a byte order mark; write .csv or .parquet instead")
    if suffix != ".parquet":  # readers take a zero byte for UTF-16
        refuse_characters(graph, path, r"\x00", "a zero byte; write .parquet instead")
    schema = graph.select(np.empty(0, np.int64)).to_arrow().schema
    parts = (graph.select(np.arange(rows.start, rows.stop)).to_arrow() for rows in chunks(len(graph), CHUNK_ROWS))
    _write_tables(parts, schema, path, suffix, compression, header=graph.columns is not None)


def _write_pieces(pieces: Iterator[pa.Buffer | bytes], path: Path, compression: str | None) -> None:
    with replace_file(path) as temporary, pa.output_stream(str(temporary), compression=compression) as stream:
        for piece in pieces:
            stream.write(piece)


def _write_tables(
    parts: Iterable[pa.Table], schema: pa.Schema, path: Path, suffix: str, compression: str | None, header: bool
) -> None:
    """Write the parts of a table; `header` says whether a TSV file begins with the names of the columns."""
    if suffix == ".tsv":
        heading = ["\t".join(schema.names).encode() + b"\n"] if header else []
        _write_pieces(chain(heading, map(_tsv_lines, parts)), path, compression)
        return
    with replace_file(path) as temporary, ExitStack() as stack:
        if suffix == ".parquet":
            writer = stack.enter_context(pq.ParquetWriter(temporary, schema, compression="zstd"))
        else:
            stream = stack.enter_context(pa.output_stream(str(temporary), compression=compression))
            writer = stack.enter_context(arrow_csv.CSVWriter(stream, schema))
        for part in parts:
            writer.write_table(part)


def _tsv_lines(table: pa.Table) -> pa.Buffer | bytes:
    """Return the lines of a table without quoting; Arrow's writer refuses names that contain quotes."""
    columns = [pc.fill_null(column.combine_chunks().cast(pa.string()), "") for column in table.columns]
    return column_bytes(pc.binary_join_element_wise(pc.binary_join_element_wise(*columns, "\t"), "", "\n"))


def column_bytes(lines: pa.Array | pa.ChunkedArray) -> pa.Buffer | bytes:
    """Return all texts [n] of a column as one text, without a copy if possible: its bytes are contiguous in Arrow."""
    if isinstance(lines, pa.ChunkedArray):
        lines = lines.combine_chunks()
    length = pc.sum(pc.binary_length(lines)).as_py() or 0
    if length and not lines.offset:
        return lines.buffers()[2].slice(0, length)
    return b"".join(map(str.encode, lines.to_pylist()))


def refuse_characters(graph: Graph, path: Path, pattern: str, fault: str) -> None:
    """Raise an error if a name contains characters that the format cannot represent."""
    column_names = pa.array(graph.columns.names if graph.columns is not None else [], pa.string())
    for names in (graph.entities.column, graph.relations.column, column_names):
        refused = pc.match_substring_regex(names, pattern)
        if pc.any(refused).as_py():
            name = names[pc.index(refused, True).as_py()].as_py()
            raise FocuseError(f"{path}: the name {name!r} contains {fault}")


def write_links(table: pa.Table, path: Path) -> Path:
    """Write links to a file whose suffix names the format, and return its path. It appears only when it is complete.

    The table has the columns head, relation and tail; every other column is a number, a truth value or a text of the
    link. Text files have a header. In RDF, triples are not stated but quoted and annotated, because they are
    predictions.

    >>> import tempfile
    >>> table = pa.table({"head": ["a"], "relation": ["r"], "tail": ["b"], "probability": [0.75]})
    >>> path = write_links(table, Path(tempfile.mkdtemp()) / "links.ttl")
    >>> print(path.read_text(encoding="utf-8").splitlines()[1][:44])
    << <urn:focuse:a> <urn:focuse:r> <urn:focuse
    """
    suffix, compression = format_and_compression(path, link_writers)
    if suffix in LINK_WRITERS:
        _write_pieces(import_function(LINK_WRITERS[suffix])(table, suffix, BASE_IRI), path, compression)
        return path
    texts = [column for column in table.columns if pa.types.is_string(column.type)]
    if suffix == ".tsv" and any(pc.any(pc.match_substring_regex(text, "[\t\r\n]")).as_py() for text in texts):
        raise FocuseError(f"{path}: a name contains a tab or line end; write .csv or .parquet instead")
    parts = (pa.Table.from_batches([batch]) for batch in table.to_batches(CHUNK_ROWS))
    _write_tables(parts, table.schema, path, suffix, compression, header=True)
    return path
