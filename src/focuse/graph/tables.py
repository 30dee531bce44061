"""Graphs from tables in memory: Arrow (and so pandas and polars) and NetworkX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from focuse.errors import FocuseError
from focuse.graph.diagnosis import weight_fault
from focuse.graph.graph import Graph, from_columns
from focuse.graph.layout import ROLES, choose_places


def from_table(table: pa.Table, columns: Sequence[str | int] | None, where: str) -> Graph:
    """A graph from a table's columns, chosen by heading as in a file with a header."""
    if table.num_columns == 0 or table.num_rows == 0:
        raise FocuseError(f"{where}: the table is empty; expected columns head, relation, tail and weight")
    places = choose_places(list(table.column_names), True, columns, where)
    names = [_names(table.column(place), role, where) for role, place in zip(ROLES[:3], places, strict=False)]
    weight = _weights(table.column(places[3]), where) if len(places) == 4 else None
    head, relation, tail = names
    return from_columns(head, relation, tail, weight, source=where)


def _names(column: pa.ChunkedArray, role: str, where: str) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        text = column.cast(pa.string())
    except pa.ArrowException:
        raise FocuseError(f"{where}: the {role} column holds {column.type}, not names; convert it to text") from None
    bad = pc.fill_null(pc.equal(text, ""), True)
    if pc.any(bad).as_py():
        row = pc.index(bad, True).as_py() + 1
        raise FocuseError(f"{where}, row {row}: the {role} is empty; give it a name or remove the row")
    return text


def _weights(column: pa.ChunkedArray, where: str) -> npt.NDArray[np.float64]:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    try:
        numbers: npt.NDArray[np.float64] = (
            pc.fill_null(column.cast(pa.float64()), float("nan")).to_numpy().astype(np.float64)
        )
        bad = ~np.isfinite(numbers)
    except pa.ArrowException:
        bad = np.array([bool(weight_fault(value)) for value in column.to_pylist()])
        numbers = np.empty(0)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        value = column[row].as_py()
        raise FocuseError(f"{where}, row {row + 1}: {weight_fault('' if value is None else value)}")
    return numbers


def from_networkx(graph: Any) -> Graph:
    """A graph from NetworkX edges: `relation` and `weight` are read from an edge's data.

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
    weights = None
    if any("weight" in data for *_, data in edges):
        column = pa.chunked_array([_numbers([data.get("weight") for *_, data in edges])])
        weights = _weights(column, "NetworkX graph")
    heads, tails = [str(edge[0]) for edge in edges], [str(edge[1]) for edge in edges]
    return from_columns(heads, [str(name) for name in relations], tails, weights, source="NetworkX graph")


def _numbers(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except pa.ArrowException:
        return pa.array([None if value is None else str(value) for value in values])
