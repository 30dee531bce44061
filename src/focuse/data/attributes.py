"""Numeric attributes of entities (literals): rows of entity, attribute and value, in which values may be missing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from safetensors import safe_open

from focuse.data.graph import Vocabulary, concatenate_blocks
from focuse.data.readers import (
    first_lines,
    frame_to_arrow,
    inspect_file,
    number_column,
    parse_error,
    parse_text,
    read_parquet_table,
    rows_to_arrow,
    text_column,
    without_index_columns,
)
from focuse.data.sniffer import TableLayout, columns_by_heading, columns_by_role, first_rows, is_number
from focuse.errors import FocuseError, counted, did_you_mean

ROLES = ("entity", "attribute", "value")
HEADINGS = {
    "entity": {"entity", "node", "head", "subject", "name", "id", "item"},
    "attribute": {"attribute", "property", "relation", "predicate", "key", "feature", "variable"},
    "value": {"value", "number", "literal", "tail", "object", "weight", "numeric"},
}
MAX_NAMES_SHOWN = 3  # names that a note lists
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class AttributeTable:
    """Rows of entity, attribute and value as they were read; a missing value is NaN."""

    entity: pa.Array
    attribute: pa.Array
    value: Floats
    source: str

    def __len__(self) -> int:
        return len(self.value)


@dataclass(frozen=True)
class NodeAttributes:
    """The A attributes of a graph's E entities, each standardized to mean 0 and standard deviation 1.

    `values` [E, A] are 0 if an attribute is not `present`. `mean` and `deviation` [A], in the units of the source, undo
    the standardization.
    """

    names: tuple[str, ...]
    values: npt.NDArray[np.float32]
    present: npt.NDArray[np.bool_]
    mean: Floats
    deviation: Floats
    source: str = "attributes"

    def __str__(self) -> str:
        shown = ", ".join(self.names[:MAX_NAMES_SHOWN]) + (", …" if len(self.names) > MAX_NAMES_SHOWN else "")
        have = int(self.present.any(axis=1).sum())
        names = counted(len(self.names), "attributes")
        return f"{self.source}: {names} ({shown}) of {have:,} of {len(self.values):,} entities"

    def original(self, values: npt.NDArray[Any]) -> Floats:
        """Return standardized values [..., A] in the units of the source."""
        original: Floats = values.astype(np.float64) * self.deviation + self.mean
        return original

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays that a run stores."""
        return {"values": self.values, "present": self.present, "mean": self.mean, "deviation": self.deviation}

    @classmethod
    def read(cls, path: Path, entities: int) -> NodeAttributes:
        """Read a file of `arrays`, with names and source in its metadata; raise ValueError if they do not fit."""
        with safe_open(path, framework="numpy") as file:
            values, present, mean, deviation = map(file.get_tensor, ("values", "present", "mean", "deviation"))
            metadata = file.metadata() or {}
        names = tuple(json.loads(metadata["names"]))
        shapes = {array.shape for array in (values, present)}, {array.shape for array in (mean, deviation)}
        if shapes != ({(entities, len(names))}, {(len(names),)}):
            raise ValueError(f"values of shape {values.shape} instead of {entities} entities, {len(names)} attributes")
        return cls(names, values, present, mean, deviation, metadata["source"])


def read_attributes(source: Any) -> AttributeTable:
    """Read numeric attributes of entities: rows of entity, attribute and value, which may be missing (empty or NaN).

    The source is a file (TSV or CSV, plain or compressed by gzip or zstd; Parquet), a pandas or polars frame, an Arrow
    table, or rows of tuples.

    >>> len(read_attributes([("Berlin", "inhabitants", 3.7e6), ("Berlin", "founded", 1237), ("Bonn", "founded", None)]))
    3
    """
    if isinstance(source, AttributeTable):
        return source
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        is_parquet = inspect_file(path).is_parquet
        table = _from_table(read_parquet_table(path), str(path)) if is_parquet else _read_text(path)
    elif hasattr(source, "__arrow_c_stream__") or hasattr(source, "__dataframe__"):
        table = _from_table(frame_to_arrow(source), "attributes")
    elif isinstance(source, Iterable) and not isinstance(source, Mapping):
        table = _from_table(rows_to_arrow(source, "attributes", ROLES), "attributes")
    else:
        raise FocuseError(f"cannot read attributes from {type(source).__name__}: give a file, a frame or rows")
    names = pc.unique(table.attribute).to_pylist()
    if len(table) > 2 and 2 * len(names) > len(table) and all(is_number(str(name)) for name in names):
        raise FocuseError(
            f"{table.source}: the attributes are numbers ({names[0]}, {names[1]}, …); give one value per line: entity, "
            "attribute, value (pandas' frame.melt('entity') converts a table with one column per attribute)"
        )
    return table


def _read_text(path: Path) -> AttributeTable:
    found = first_rows(first_lines(path), str(path), None, ROLES)
    first = found.rows[0]
    # In a line of data, one field is a number or empty.
    is_data = any(is_number(field) or not field.strip() for field in first)
    header = not is_data and bool(columns_by_heading(first, HEADINGS))
    chosen = _choose_columns(first, header, f"{path}, line 1")
    lines = found.ends[0] if header else found.skipped
    layout = TableLayout(found.delimiter, lines, len(first), chosen, roles=ROLES, quoted=found.quoted)
    table = parse_text(path, layout)
    if not len(table):
        raise FocuseError(f"{path}: no rows; expected lines of entity, attribute and value")
    entity, attribute = (column.cast(pa.string()).combine_chunks() for column in table.columns[:2])
    value = concatenate_blocks(pc.fill_null(table.column(2), np.nan).chunks)
    if np.isinf(value).any() or any(pc.min(pc.binary_length(names)).as_py() == 0 for names in (entity, attribute)):
        raise parse_error(path, layout, "a name is empty or a value not finite")
    return AttributeTable(entity, attribute, value, str(path))


def _choose_columns(first: list[str], header: bool, where: str) -> tuple[int, ...]:
    """Choose the columns of entity, attribute and value: by heading, or in order if there are three."""
    chosen = columns_by_role(first, header, ROLES, HEADINGS)
    if not chosen:
        shown = f" ({', '.join(first)})" if header else ""
        raise FocuseError(f"{where}: {len(first)} columns{shown}, expected 3 (entity, attribute, value)")
    return tuple(chosen[role] for role in ROLES)


def _from_table(table: pa.Table, where: str) -> AttributeTable:
    table = without_index_columns(table, where, ROLES)
    table = table.select(_choose_columns(table.column_names, True, where))
    entity, attribute = (text_column(table.column(index), ROLES[index], where).combine_chunks() for index in (0, 1))
    value = number_column(table.column(2), where, allow_missing=True, role="value")
    return AttributeTable(entity, attribute, value, where)


def align_attributes(table: AttributeTable, entities: Vocabulary) -> tuple[NodeAttributes, list[str]]:
    """Return the standardized attributes of `entities`, and notes on rows that were left out or merged.

    Repeated values of an entity's attribute are replaced by their mean.

    >>> table = read_attributes([("a", "age", 10), ("b", "age", 30), ("c", "age", 20)])
    >>> found, notes = align_attributes(table, Vocabulary("ab"))
    >>> found.values.ravel().tolist(), notes
    ([-1.0, 1.0], ["attributes: 1 of 3 entities is not in the graph and left out: 'c'"])
    """
    where, ids = table.source, entities.ids(table.entity)
    notes = _unknown_entities(table, ids, entities)
    rows = (ids >= 0) & ~np.isnan(table.value)
    if not rows.any():
        raise FocuseError(f"{where}: every value is missing; give numbers, or omit the file")
    coded = table.attribute.filter(pa.array(rows)).dictionary_encode()
    names = tuple(coded.dictionary.to_pylist())
    absent = sorted(set(table.attribute.unique().to_pylist()) - set(names))
    if absent:
        notes.append(f"{where}: no entity of the graph has {_shown(absent)}; left out")
    cells = ids[rows].astype(np.int64) * len(names) + coded.indices.to_numpy()
    # Values are divided by the largest first, because sums and squares of very large numbers would overflow.
    scale = np.zeros(len(names))
    np.maximum.at(scale, cells % len(names), np.abs(table.value[rows]))
    scale[scale == 0] = 1.0
    distinct, cell, times = np.unique(cells, return_inverse=True, return_counts=True)
    if len(cells) > len(distinct):
        notes.append(
            f"{where}: {counted(len(cells) - len(distinct), 'rows', 'repeat')} an entity's attribute; the mean is used"
        )
    scaled = np.bincount(cell, table.value[rows] / scale[cells % len(names)]) / times
    values, present = np.zeros((len(entities), len(names))), np.zeros((len(entities), len(names)), bool)
    values.flat[distinct], present.flat[distinct] = scaled, True
    mean, deviation, constant = _moments(values, present)
    if constant.any():
        shown = _shown([name for name, flag in zip(names, constant, strict=True) if flag])
        notes.append(f"{where}: all values of {shown} are equal and carry no information; they are set to 0")
    values = np.where(present & ~constant, (values - mean) / np.where(constant, 1.0, deviation), 0.0)
    return NodeAttributes(names, values.astype(np.float32), present, mean * scale, deviation * scale, where), notes


def _moments(values: Floats, present: npt.NDArray[np.bool_]) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """Return mean and standard deviation of each column's present values, and a mask of the constant columns."""
    lowest = np.min(values, axis=0, where=present, initial=np.inf)
    constant = lowest == np.max(values, axis=0, where=present, initial=-np.inf)
    mean = np.where(constant, lowest, np.mean(values, axis=0, where=present))
    deviation = np.where(constant, 0.0, np.sqrt(np.mean((values - mean) ** 2, axis=0, where=present)))
    return mean, deviation, constant


def _unknown_entities(table: AttributeTable, ids: npt.NDArray[np.int32], entities: Vocabulary) -> list[str]:
    """Return a note on entities that the graph does not have; raise an error if it has none of them."""
    unknown = table.entity.filter(pa.array(ids < 0)).unique().to_pylist()
    if not unknown:
        return []
    shown = ", ".join(f"{name!r}{did_you_mean(entities.nearest(name, 1))}" for name in unknown[:MAX_NAMES_SHOWN])
    if (ids < 0).all():
        raise FocuseError(f"{table.source}: the graph has none of its {len(unknown):,} entities, such as {shown}")
    more = "such as " if len(unknown) > MAX_NAMES_SHOWN else ""
    found = f"{len(unknown):,} of {len(table.entity.unique()):,} entities {'is' if len(unknown) == 1 else 'are'}"
    return [f"{table.source}: {found} not in the graph and left out: {more}{shown}"]


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
    return ", ".join(map(repr, names[:MAX_NAMES_SHOWN])) + more
