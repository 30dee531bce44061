"""Links in a table, known or guessed, with what is said of each: written as text, Parquet or RDF."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from focuse.errors import FocuseError
from focuse.graph.iris import BASE
from focuse.graph.rdf_writing import SUFFIXES as RDF
from focuse.graph.rdf_writing import Triples, lines_of
from focuse.graph.spreadsheets import text_table
from focuse.graph.writing import COMPRESSION, replacing

SUFFIXES = (".tsv", ".csv", ".parquet", *RDF)
NAMES = ("head", "relation", "tail")
CHUNK_ROWS = 1 << 17


def write_links(links: Any, path: str | Path, base: str = BASE, asserted: bool = False) -> Path:
    """Write links to a file whose suffix says the form, whole or not at all; its path.

    `links` is an Arrow table with the columns head, relation and tail (or anything whose `to_arrow` gives one); every
    other column is a number, a truth value or a text of theirs. Text has a header, and with FOCUSE_SPREADSHEET=1 an
    apostrophe before names that begin as formulas do. In RDF a link is a triple with
    notes; guesses are not `asserted`: the file speaks of them without stating them.

    >>> import tempfile
    >>> table = pa.table({"head": ["a"], "relation": ["r"], "tail": ["b"], "probability": [0.75]})
    >>> path = write_links(table, Path(tempfile.mkdtemp()) / "links.ttl")
    >>> print(path.read_text(encoding="utf-8").splitlines()[1][:44])
    << <urn:focuse:a> <urn:focuse:r> <urn:focuse
    """
    import pyarrow.csv as arrow_csv
    import pyarrow.parquet as pq

    path = Path(path)
    kind, packed = form_of(path)
    table = links.to_arrow() if hasattr(links, "to_arrow") else pa.table(links)
    missing = [name for name in NAMES if name not in table.column_names]
    if missing and kind in RDF:
        raise FocuseError(f"{path}: links have no column {missing[0]!r}; give head, relation and tail")
    table = text_table(table) if kind in (".csv", ".tsv") else table
    with replacing(path) as temporary:
        if kind == ".parquet":
            pq.write_table(table, temporary)
            return path
        with pa.output_stream(str(temporary), compression=packed) as stream:
            if kind == ".csv":
                arrow_csv.write_csv(table, stream)
            elif kind == ".tsv":
                _write_tsv(table, path, stream)
            else:
                for piece in lines_of(_triples(table, asserted), kind, base):
                    stream.write(piece)
    return path


def form_of(path: Path) -> tuple[str, str | None]:
    """The form that a file's name asks for, and its compression; an error for others."""
    packed = COMPRESSION.get(path.suffix)
    kind = Path(path.stem).suffix if packed else path.suffix
    if kind not in SUFFIXES or (packed and kind == ".parquet"):
        raise FocuseError(
            f"{path}: cannot write {path.suffix or 'a file without suffix'}; use {', '.join(SUFFIXES[:-1])} or "
            f"{SUFFIXES[-1]}"
        )
    return kind, packed


def _triples(table: pa.Table, asserted: bool) -> Triples:
    """A table of names as places in lists of distinct ones."""
    ends = pa.concat_arrays([_text(table, name) for name in ("head", "tail")]).dictionary_encode()
    kinds = _text(table, "relation").dictionary_encode()
    notes: Mapping[str, pa.Array] = {name: _one(table.column(name)) for name in table.column_names if name not in NAMES}
    head, tail = ends.indices.slice(0, len(table)), ends.indices.slice(len(table))
    return Triples(head, kinds.indices, tail, ends.dictionary, kinds.dictionary, notes, asserted)


def _text(table: pa.Table, name: str) -> pa.Array:
    return _one(table.column(name).cast(pa.string()))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _write_tsv(table: pa.Table, path: Path, stream: Any) -> None:
    """A heading, then lines without quotes, by hand: Arrow's writer quotes or refuses names."""
    stream.write(("\t".join(table.column_names) + "\n").encode())
    for part in table.to_batches(CHUNK_ROWS):
        columns = [column.cast(pa.string()).fill_null("") for column in part.columns]
        named = [text for text, column in zip(columns, part.columns, strict=True) if pa.types.is_string(column.type)]
        if any(pc.any(pc.match_substring_regex(column, "[\t\r\n]")).as_py() for column in named):
            raise FocuseError(f"{path}: a name holds a tab or line end; write .csv or .parquet instead")
        lines = pc.binary_join_element_wise(*columns, "\t")
        stream.write(("\n".join(lines.to_pylist()) + "\n").encode())
