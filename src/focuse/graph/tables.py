"""Graphs from tables in memory: Arrow (and so pandas and polars) and NetworkX."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from focuse.errors import FocuseError
from focuse.graph.columns import ALL_MISSING, Columns
from focuse.graph.diagnosis import is_missing, weight_fault
from focuse.graph.graph import Graph, from_columns
from focuse.graph.layout import ROLES, choose_places, listed, weight_names


def from_table(
    table: pa.Table, columns: Sequence[str | int] | None, where: str, weights: Sequence[str | int] | None = None
) -> Graph:
    """A graph from a table's columns, chosen by heading as in a file with a header."""
    table = own_columns(table, where)
    headings = list(table.column_names)
    places = choose_places(headings, True, columns, where, weights)
    names = [names_in(table.column(place), role, where) for role, place in zip(ROLES[:3], places, strict=False)]
    weight = numbers_in(table.column(places[3]), where) if len(places) == 4 else None
    several = None
    if len(places) > 4:
        chosen = [table.column(place) for place in places[3:]]
        several = _several(weight_names(headings, True, places), chosen, where)
    head, relation, tail = names
    return from_columns(head, relation, tail, weight, where, several)


def table_blocks(
    blocks: Iterable[pa.RecordBatch],
    columns: Sequence[str | int] | None,
    where: str,
    weights: Sequence[str | int] | None,
) -> Iterator[list[pa.Array]]:
    """Names and a weight of a table that comes in blocks, as `from_table` takes them; at most one weight an edge."""
    first = 1
    for block in blocks:
        table = own_columns(pa.table(block), where)
        places = choose_places(list(table.column_names), True, columns, where, weights)
        named = zip(ROLES[:3], places, strict=False)
        names = [names_in(table.column(place), role, where, first) for role, place in named]
        numbers = [pa.array(numbers_in(table.column(place), where, first=first)) for place in places[3:4]]
        yield [*(name.combine_chunks() for name in names), *numbers]
        first += len(table)


def own_columns(table: pa.Table, where: str, roles: Sequence[str] = ROLES) -> pa.Table:
    """A table without the index that pandas stores beside a frame's own columns; an error if it is empty."""
    table = table.drop_columns([name for name in table.column_names if name.startswith("__index_level_")])
    if table.num_columns == 0 or table.num_rows == 0:
        raise FocuseError(f"{where}: the table is empty; expected columns {listed(roles)}")
    return table


def _several(names: Sequence[str], columns: Sequence[pa.ChunkedArray], where: str) -> Columns:
    """Weight columns in which a number may be missing, though not all of an edge."""
    values = np.stack([numbers_in(column, where, may_miss=True) for column in columns], axis=1)
    found = Columns(tuple(names), values)
    empty = ~found.present.any(axis=1)
    if empty.any():
        raise FocuseError(f"{where}, row {int(np.flatnonzero(empty)[0]) + 1}: {ALL_MISSING}")
    return found


def names_in(column: pa.ChunkedArray, role: str, where: str, first: int = 1) -> pa.ChunkedArray:
    """Names [n] of a column, none of them empty; `first` is the number of its first row."""
    try:
        text = _cast(column, pa.string())
    except pa.ArrowException:
        raise FocuseError(f"{where}: the {role} column holds {column.type}, not names; convert it to text") from None
    bad = pc.fill_null(pc.equal(text, ""), True)
    if pc.any(bad).as_py():
        row = pc.index(bad, True).as_py() + first
        raise FocuseError(f"{where}, row {row}: the {role} is empty; give it a name or remove the row")
    return text


def numbers_in(
    column: pa.ChunkedArray, where: str, may_miss: bool = False, role: str = "weight", first: int = 1
) -> npt.NDArray[np.float64]:
    """Numbers [n] of a column of any kind; with `may_miss`, empty ones and NaN are NaN."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_null(column.type):
        column = column.cast(pa.float64())
    numbers: npt.NDArray[np.float64]
    try:
        numbers = pc.fill_null(_cast(column, pa.float64()), np.nan).to_numpy()
    except pa.ArrowException:
        values = ["" if value is None else value for value in column.to_pylist()]
        numbers = np.array([np.nan if weight_fault(value) else float(str(value)) for value in values])
    bad = ~np.isfinite(numbers)
    if may_miss and bad.any():
        shown = ["" if value is None else str(value).strip(" \t") for value in column.filter(pa.array(bad)).to_pylist()]
        bad[bad] = [not is_missing(value) for value in shown]
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        value = column[row].as_py()
        raise FocuseError(f"{where}, row {row + first}: {weight_fault('' if value is None else value, role)}")
    return numbers


def _cast(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """The column as `kind`; dictionaries by their values, for Arrow cannot cast those that polars makes."""
    if pa.types.is_dictionary(column.type):
        return pa.chunked_array([_cast(chunk.dictionary, kind).take(chunk.indices) for chunk in column.chunks], kind)
    if kind != pa.float64():
        return column.cast(kind)
    if pa.types.is_string_view(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.string())
    if pa.types.is_string(column.type):
        column = pc.ascii_trim(column, " \t")  # as in a text file
    return column.cast(kind, safe=False)  # a count beyond 2**53 may lose its last digits


def to_column(values: list[Any], where: str) -> pa.Array:
    """Python values as a column; what is of mixed kinds as text."""
    try:
        try:
            return pa.array(values)
        except (pa.ArrowException, OverflowError):
            return pa.array([None if value is None or _is_nan(value) else str(value) for value in values], pa.string())
    except UnicodeEncodeError as error:
        row = [str(value) for value in values].index(error.object) + 1
        raise FocuseError(f"{where}, row {row}: {error.object!r} is not Unicode text; mend it") from None


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and np.isnan(value)


def from_networkx(graph: Any, weights: Sequence[str | int] | None = None) -> Graph:
    """A graph from NetworkX edges: `relation` and `weight` (or several `weights`) are read from an edge's data.

    Without `relation` a multigraph's text key serves; an edge without weight is an error unless none has one.
    """
    keyed = graph.is_multigraph()
    edges = (
        list(graph.edges(keys=True, data=True)) if keyed else [(h, t, None, d) for h, t, d in graph.edges(data=True)]
    )
    if not edges:
        raise FocuseError("NetworkX graph: no edges")
    relations = [data.get("relation", key if isinstance(key, str) else None) for _, _, key, data in edges]
    if None in relations:
        row = relations.index(None)
        raise FocuseError(f"NetworkX graph, edge {edges[row][:2]!r}: no 'relation' in its data and no text as its key")
    wanted = [str(name) for name in weights] if weights is not None else ["weight"]
    columns = {}
    for name in wanted:
        if any(name in data for *_, data in edges):
            listed = [data.get(name) for *_, data in edges]
            columns[name] = pa.chunked_array([to_column(listed, "NetworkX graph")])
        elif weights is not None:
            raise FocuseError(f"NetworkX graph: no edge has {name!r} in its data")
    alone = len(wanted) == 1 and wanted[0] in columns
    weight = numbers_in(columns[wanted[0]], "NetworkX graph") if alone else None
    several = _several(wanted, list(columns.values()), "NetworkX graph") if len(wanted) > 1 else None
    names = []
    for role, values in zip(ROLES, ([edge[0] for edge in edges], relations, [edge[1] for edge in edges]), strict=False):
        column = pa.chunked_array([to_column([str(value) for value in values], "NetworkX graph")])
        names.append(names_in(column, role, "NetworkX graph"))
    head, relation, tail = names
    return from_columns(head, relation, tail, weight, "NetworkX graph", several)
