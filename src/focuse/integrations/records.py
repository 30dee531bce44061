"""Read tables in JSON, JSON Lines and Excel files."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from focuse.data.graph import Graph
from focuse.data.readers import (
    SAMPLE_ROWS,
    ReadOptions,
    graph_from_table,
    inspect_file,
    open_decompressed,
    records_to_arrow,
    rows_to_arrow,
)
from focuse.data.roles import endpoints, is_header, words_of
from focuse.data.sniffer import names_headings
from focuse.errors import FocuseError, install_command
from focuse.integrations.networks import as_undirected
from focuse.system import format_size

MIN_BOMB, MAX_RATIO = 1 << 26, 200  # sheets of equal rows are 14 times as large when unpacked
EDGE_LISTS = ("edges", "links", "relationships", "relations", "triples")  # keys of an object that holds a graph
APOC = "a table by a query like MATCH (a)-[r]->(b) RETURN a.name AS head, type(r) AS relation, b.name AS tail, r.weight"
OTHER_GRAPHS = {  # keys of objects that hold a graph in another form, and what reads it
    "adjacency": "networkx.adjacency_graph(json.load(open(file)))",
    "elements": "[each['data'] for each in json.load(open(file))['elements']{} if 'source' in each['data']]{}",
}


def read_json(path: Path, options: ReadOptions) -> Graph:
    """Read JSON Lines, or JSON: a list of objects or of rows, an object of columns, or a graph with its edges."""
    where = str(path)
    inspect_file(path)
    try:
        with open_decompressed(path) as stream:
            text = stream.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FocuseError(f"{path}: not UTF-8 text; save the file as UTF-8") from None
    except (pa.ArrowException, OSError, EOFError) as error:
        raise FocuseError(f"{path}: damaged compressed file: {' '.join(str(error).split())[:200]}") from None
    value = _parse(text, where)
    notes: list[str] = []
    is_undirected = False
    if isinstance(value, dict):
        is_undirected = value.get("directed") is False
        key = next((key for key in EDGE_LISTS if isinstance(value.get(key), list)), None)
        value = value[key] if key is not None else _from_columns(value, where, options)
        notes = [f"{where}: the edges are the list {key!r}"] if key is not None else []
    if not isinstance(value, list) or not value:
        raise FocuseError(f'{where}: no edges; expected a list of objects such as {{"head": …, "tail": …}}')
    if all(isinstance(row, dict) and row.get("type") in ("node", "relationship") for row in value):
        raise FocuseError(f"{where}: nodes and relationships as APOC exports them from Neo4j; export {APOC} instead")
    if all(isinstance(row, list) for row in value):
        graph = graph_from_table(rows_to_arrow(value, where), options, where, header=False)
    else:
        graph = graph_from_table(records_to_arrow(value, where), options, where)
    graph = replace(graph, notes=(*notes, *graph.notes))
    return as_undirected(graph, options) if is_undirected else graph


def _parse(text: str, where: str) -> Any:
    """Return the value of a JSON text, or the list of those of its lines."""
    try:
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            if error.msg != "Extra data" or "\n" not in text[: error.pos + 1]:
                raise _not_json(where, error.lineno, error) from None
        values = []
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                try:
                    values.append(json.loads(line))
                except json.JSONDecodeError as error:
                    raise _not_json(where, number, error) from None
        return values
    except (RecursionError, ValueError) as error:  # nested too deep, or a number of thousands of digits
        raise FocuseError(f"{where}: JSON that cannot be read: {str(error)[:200]}") from None


def _not_json(where: str, line: int, error: json.JSONDecodeError) -> FocuseError:
    return FocuseError(f"{where}, line {line}: not JSON: {error.msg} (column {error.colno}); correct it")


def _from_columns(value: dict[str, Any], where: str, options: ReadOptions) -> list[Any]:
    """Return an object of columns, as pandas writes it, as a list of objects; an object with head and tail is a row."""
    if key := next((key for key in OTHER_GRAPHS if isinstance(value.get(key), list | dict)), None):
        part = "['edges']" if isinstance(value[key], dict) else ""
        advice = OTHER_GRAPHS[key].format(part, ", undirected=True" if value.get("directed") is False else "")
        raise FocuseError(f"{where}: a graph in another form than a list of edges; give focuse.read({advice})")
    columns = list(value.values())
    if all(name.isdecimal() and isinstance(row, Mapping) for name, row in value.items()) and not any(
        name.isdecimal() for row in columns for name in row
    ):
        return columns  # pandas with orient="index"
    if (
        columns
        and all(isinstance(column, Mapping) for column in columns)
        and len({tuple(each) for each in columns}) == 1
    ):
        columns = [list(column.values()) for column in columns]
    elif not all(isinstance(column, list) for column in columns):
        if options.names_columns or None not in endpoints([words_of(key) for key in value]):
            return [value]
        keys = ", ".join(map(repr, islice(value, 6)))
        raise FocuseError(
            f"{where}: an object with {keys}{' …' if len(value) > 6 else ''}, but neither a list of edges nor the head "
            f"and tail of one; give the list of edges, with its key {EDGE_LISTS[0]!r} or alone"
        )
    if len({len(column) for column in columns}) != 1:
        return []
    return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)]


# ---- Excel ----------------------------------------------------------------------------------------------------------


def read_excel(path: Path, options: ReadOptions) -> Graph:
    """Read a sheet of an Excel file; a header is recognized as in a text file.

    It is the first one that has a name such as "edges", or else the first one that has cells and is not hidden.
    """
    where = str(path)
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise FocuseError(f"reading Excel files needs openpyxl; {install_command('excel')}") from None
    inspect_file(path)
    try:
        _refuse_hostile(path)
        with path.open("rb") as file:
            book = load_workbook(file, read_only=True, data_only=True)
            sheets = [sheet for sheet in book.worksheets if sheet.sheet_state == "visible"] or book.worksheets
            sheets.sort(key=lambda sheet: sheet.title.lower() not in EDGE_LISTS)
            tables = ((sheet.title, *_cells(sheet)) for sheet in sheets)
            title, rows, first_row = next((each for each in tables if each[1]), ("", [], 1))
            others = [sheet.title for sheet in book.worksheets if sheet.title != title]
    except FocuseError:
        raise
    except Exception as error:  # openpyxl, zipfile, zlib and the XML parser raise many kinds for damaged files
        text = " ".join(str(error).split())[:200]
        raise FocuseError(f"{path}: not a readable Excel file (.xlsx): {text}") from None
    if not rows:
        raise FocuseError(f"{where}: no sheet has cells; expected columns head, relation, tail and weight")
    columns = list(map(list, zip(*rows, strict=True)))
    header = options.header
    if header is None:
        header = names_headings(options) or is_header(rows[0], [column[1 : SAMPLE_ROWS + 1] for column in columns])
    names = [column[0].strip() if header else "" for column in columns]
    cells = [pa.array(column[bool(header) :], pa.string()) for column in columns]
    graph = graph_from_table(pa.table(cells, names), options, where, bool(header), first_row + bool(header))
    if others:
        rest = ", ".join(map(repr, others[:5]))
        note = f"{where}: the sheet {title!r} was read, not {rest}{' …' if len(others) > 5 else ''}; for another one, "
        note += "give focuse.read(pandas.read_excel(file, sheet_name=…))"
        graph = replace(graph, notes=(note, *graph.notes))
    return graph


def _refuse_hostile(path: Path) -> None:
    """Raise FocuseError if a part of the archive declares entities or it unpacks to much more than its size."""
    with zipfile.ZipFile(path) as archive:
        size = sum(part.file_size for part in archive.infolist())
        if size > max(MIN_BOMB, MAX_RATIO * path.stat().st_size):
            raise FocuseError(f"{path}: it unpacks to {format_size(size)}, which no sheet does; save it as CSV instead")
        for name in archive.namelist():
            with archive.open(name) as part:
                if b"<!DOCTYPE" in part.read(4096):
                    raise FocuseError(f"{path}: {name} declares entities; save the sheet again with a spreadsheet")


def _cells(sheet: Any) -> tuple[list[list[str]], int]:
    """Return the cells of a sheet as text, without empty rows and columns around them, and the first row's number.

    Rows of one cell above the others are a title, and no part of the table.
    """
    rows = [["" if cell is None else str(cell) for cell in row] for row in sheet.iter_rows(values_only=True)]
    counts = [sum(bool(cell.strip()) for cell in row) for row in rows]
    filled = [number for number, count in enumerate(counts) if count > (max(counts) > 2)]
    if not filled:
        return [], 1
    rows = rows[filled[0] : max(number for number, count in enumerate(counts) if count) + 1]
    width = max(map(len, rows))
    rows = [[*row, *[""] * (width - len(row))] for row in rows]
    used = [index for index in range(width) if any(row[index].strip() for row in rows)]
    return [[row[index] for index in used] for row in rows], filled[0] + 1
