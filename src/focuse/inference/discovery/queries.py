"""Many half-known triples from a file or rows: each with one of head, relation and tail left empty, or a '?'."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from focuse.data.graph import Graph, Vocabulary
from focuse.data.readers import first_lines, frame_to_arrow, inspect_file, open_decompressed, read_parquet_table
from focuse.data.sniffer import HEADINGS, first_row, quoting
from focuse.errors import FocuseError
from focuse.inference.discovery.scope import Ids

PARTS = ("head", "relation", "tail")
EMPTY = ("", "?")
MISSING = -1


@dataclass(frozen=True)
class Queries:
    """Questions in a graph's ids, int64 [n] each; −1 stands for what is asked for."""

    head: Ids
    relation: Ids
    tail: Ids

    def __len__(self) -> int:
        return len(self.head)


@dataclass(frozen=True)
class Source:
    """Names as they were read, and how to say where row i stands."""

    columns: tuple[pa.ChunkedArray, ...]
    where: str
    path: Path | None = None
    delimiter: str = "\t"
    skip: int = 0

    def place(self, row: int) -> str:
        """'file, line 7', or 'queries, row 7'."""
        if self.path is None:
            return f"{self.where}, row {row + 1}"
        with open_decompressed(self.path) as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
            for _ in range(self.skip):
                text.readline()
            lines = csv.reader(text, delimiter=self.delimiter, quoting=quoting(self.delimiter))
            with suppress(csv.Error):  # of a field longer than it reads
                for number, _ in enumerate(line for line in lines if line):
                    if number == row:
                        break
            return f"{self.where}, line {self.skip + lines.line_num}"


def read_queries(given: Any, names: Graph) -> Queries:
    """Questions from a file (TSV, CSV, Parquet), a frame, or rows (head, relation, tail) with None for what is asked.

    A name that the graph does not have is an error with file and line, and the nearest name.
    """
    source = _source(given)
    ids = [
        _ids(source, column, names.relations if part == "relation" else names.entities, part)
        for part, column in zip(PARTS, source.columns, strict=True)
    ]
    many = sum((column == MISSING).astype(np.int64) for column in ids)
    for row in np.flatnonzero(many > 1)[:1]:
        raise FocuseError(f"{source.place(int(row))}: {int(many[row])} parts are empty; give two of the three")
    return Queries(*ids)


def _source(given: Any) -> Source:
    if isinstance(given, str | os.PathLike):
        path = Path(given)
        if inspect_file(path)[0]:
            return _from_table(read_parquet_table(path), str(path))
        return _from_text(path)
    if hasattr(given, "__arrow_c_stream__") or hasattr(given, "__dataframe__"):
        return _from_table(frame_to_arrow(given), "queries")
    if not isinstance(given, Iterable):
        raise FocuseError(f"cannot read queries from {type(given).__name__}: give a file, a frame or rows")
    rows = [given] if isinstance(given, tuple) and len(given) == 3 and not isinstance(given[0], tuple) else list(given)
    for number, row in enumerate(rows, 1):
        if isinstance(row, str) or not isinstance(row, Iterable) or len(row := tuple(row)) != 3:
            raise FocuseError(f"queries, row {number}: {row!r:.60} is not a tuple of head, relation and tail")
        if not all(part is None or isinstance(part, str) for part in row):
            raise FocuseError(f"queries, row {number}: {row!r:.60} holds what is neither a name nor None")
    columns = zip(*map(tuple, rows), strict=True) if rows else ((), (), ())
    return _checked(tuple(pa.chunked_array([pa.array(list(column), pa.string())]) for column in columns), "queries")


def _from_table(table: pa.Table, where: str) -> Source:
    places = _places(list(table.column_names), where)
    places = places if places is not None else [0, 1, 2]
    if table.num_columns < 3:
        raise FocuseError(f"{where}: {table.num_columns} columns; expected head, relation and tail")
    try:
        columns = tuple(table.column(place).cast(pa.string()) for place in places)
    except pa.ArrowException:
        raise FocuseError(f"{where}: a column of names holds no text; convert it") from None
    return _checked(columns, where)


def _from_text(path: Path) -> Source:
    first, delimiter, end = first_row(first_lines(path), str(path), roles=PARTS)
    places = _places(first, str(path))
    skip = 0 if places is None else end
    if len(first) < 3:
        raise FocuseError(f"{path}, line 1: {len(first)} columns; expected head, relation and tail")
    named = [f"c{place}" for place in range(len(first))]
    wanted = [named[place] for place in (places or [0, 1, 2])]
    try:
        with open_decompressed(path) as stream:
            table = arrow_csv.read_csv(
                stream,
                read_options=arrow_csv.ReadOptions(column_names=named, skip_rows=skip),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=delimiter, quote_char='"' if quoting(delimiter) == csv.QUOTE_MINIMAL else False
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(wanted, pa.string()), include_columns=wanted, strings_can_be_null=False
                ),
            )
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:160]
        raise FocuseError(f"{path}: {reason}; give lines of head, relation and tail, one of them empty") from None
    return _checked(tuple(table.columns), str(path), path, delimiter, skip)


def _checked(
    columns: tuple[pa.ChunkedArray, ...], where: str, path: Path | None = None, delimiter: str = "\t", skip: int = 0
) -> Source:
    if not len(columns[0]):
        raise FocuseError(f"{where}: no queries; give lines of head, relation and tail, one of them empty")
    return Source(columns, where, path, delimiter, skip)


def _places(first: list[str], where: str) -> list[int] | None:
    """Where headings name the three parts; None without headings."""
    words = [field.strip().lower() for field in first]
    found = {part: [at for at, word in enumerate(words) if word in HEADINGS[part]] for part in PARTS}
    named = [part for part in PARTS if found[part]]
    if len(named) == 3:
        return [found[part][0] for part in PARTS]
    if len(named) == 2 and len(first) == 3:
        missing = next(part for part in PARTS if part not in named)
        raise FocuseError(f"{where}, line 1: no column is called {missing}; name head, relation and tail, or none")
    return None


def _ids(source: Source, column: pa.ChunkedArray, names: Vocabulary, part: str) -> Ids:
    """Ids [n] of names, −1 for what is asked for."""
    text = pc.fill_null(column, "").combine_chunks()
    asked = pc.is_in(text, value_set=pa.array(EMPTY)).to_numpy(zero_copy_only=False)
    ids = names.ids(text).astype(np.int64)
    asked &= ids < 0  # a graph may have an entity called '?'
    for row in np.flatnonzero((ids < 0) & ~asked)[:1]:
        name, kind = text[int(row)].as_py(), "relation" if part == "relation" else "entity"
        try:
            names.id(name, kind, "order the columns head, relation, tail")
        except FocuseError as error:
            alone = str(error).endswith(repr(name))  # nothing is like it
            advice = "; nor one like it: mend the name or leave it out" if alone else ""
            raise FocuseError(f"{source.place(int(row))}: {error}{advice}") from None
    return np.where(asked, MISSING, ids)
