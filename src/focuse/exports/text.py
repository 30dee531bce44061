"""Tables as text: CSV, TSV, word2vec's format and the folder of TensorBoard's projector.

Numbers have the fewest digits that give the same float32 again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from focuse.errors import FocuseError
from focuse.exports.tables import Table, Vectors
from focuse.graph.rdf_writing import text_of
from focuse.graph.spreadsheets import for_spreadsheets, guarded

# Whatever some reader may cut a line at, and the sign that marks what stands for it.
CUTS = "[%\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"


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
        names = guarded(names) if for_spreadsheets() else names
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
    odd = pc.match_substring_regex(names, CUTS)
    if not pc.any(odd).as_py():
        return names
    return pc.replace_with_mask(names, odd, pa.array(map(_word, names.filter(odd).to_pylist()), pa.string()))


def _word(name: str) -> str:
    return re.sub(CUTS, lambda found: quote(found[0]), name)


def write_projector(tables: list[Table], folder: Path) -> None:
    """A folder that TensorBoard's projector opens: vectors, labels, and a file that says which are which."""
    config = []
    for table in tables:
        start = "" if table.kind == "entities" else f"{table.kind}_"
        vectors, labels = f"{start}tensors.tsv", f"{start}metadata.tsv"
        with (folder / vectors).open("wb") as rows, (folder / labels).open("wb") as words:
            for names, part in table.parts():
                rows.write(_lines(None, part, "\t"))
                shown = label(guarded(names) if for_spreadsheets() else names)
                words.write(text_of(pc.binary_join_element_wise(shown, "\n", "")))
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
    return text_of(pc.binary_join_element_wise(*parts, numbers(vectors, separator), "\n", ""))
