"""Numbers of entities: a table of entity, attribute, value, in which any of them may be missing."""

from __future__ import annotations

import hashlib
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
from safetensors.numpy import save_file

from focuse.errors import FocuseError, counted, did_you_mean
from focuse.graph.graph import join
from focuse.graph.layout import Layout, find_columns, first_row, is_number
from focuse.graph.opening import parquet_table
from focuse.graph.reading import explain, first_lines, look_at, parse_text, to_arrow
from focuse.graph.tables import names_in, numbers_in, own_columns, to_column
from focuse.graph.vocabulary import Vocabulary

ROLES = ("entity", "attribute", "value")
HEADINGS = {
    "entity": {"entity", "node", "head", "subject", "name", "id", "item"},
    "attribute": {"attribute", "property", "relation", "predicate", "key", "feature", "variable"},
    "value": {"value", "number", "literal", "tail", "object", "weight", "numeric"},
}
NAMED = 3  # unknown entities that a note names
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Literals:
    """Rows of entity, attribute and value as they were read; a missing value is NaN."""

    entity: pa.Array
    attribute: pa.Array
    value: Floats
    source: str

    def __len__(self) -> int:
        return len(self.value)

    def fingerprint(self) -> str:
        """The same for the same rows."""
        found = hashlib.sha256(self.value.tobytes())
        for column in (self.entity, self.attribute):
            found.update("\n".join(map(str, column.to_pylist())).encode())
        return found.hexdigest()[:16]


@dataclass(frozen=True)
class Numbers:
    """Numbers of a graph's E entities, A attributes standardised each to mean 0 and deviation 1; missing ones are 0.

    `values` are float32 [E, A], `present` bool [E, A]. `mean` and `deviation` [A] lead back to the units they had.
    """

    names: tuple[str, ...]
    values: npt.NDArray[np.float32]
    present: npt.NDArray[np.bool_]
    mean: Floats
    deviation: Floats
    source: str = "numbers"

    def __str__(self) -> str:
        shown = ", ".join(self.names[:NAMED]) + (", …" if len(self.names) > NAMED else "")
        have = int(self.present.any(axis=1).sum())
        return f"{self.source}: {len(self.names)} attributes ({shown}) of {have:,} of {len(self.values):,} entities"

    def original(self, values: npt.NDArray[Any]) -> Floats:
        """Standardised values [..., A] in the units they were read in."""
        found: Floats = values.astype(np.float64) * self.deviation + self.mean
        return found

    def write(self, path: Path) -> None:
        """One file of tensors, the attributes' names in its head."""
        arrays = {"values": self.values, "present": self.present, "mean": self.mean, "deviation": self.deviation}
        save_file(arrays, path, {"names": json.dumps(self.names), "source": self.source})

    @classmethod
    def read(cls, path: Path, entities: int) -> Numbers:
        """What `write` wrote, for so many entities; raises ValueError where it does not fit."""
        with safe_open(path, framework="numpy") as file:
            parts = {name: file.get_tensor(name) for name in ("values", "present", "mean", "deviation")}
            words = file.metadata() or {}
        names = tuple(json.loads(words["names"]))
        shapes = {"values": (entities, len(names)), "mean": (len(names),)}
        shapes |= {"present": shapes["values"], "deviation": shapes["mean"]}
        for name, part in parts.items():
            if part.shape != shapes[name] or part.dtype.kind != ("b" if name == "present" else "f"):
                raise ValueError(f"{name} are {part.dtype} {part.shape} instead of {shapes[name]}")
            if not np.isfinite(part).all():
                raise ValueError(f"{name} hold what is no number")
        return cls(names, parts["values"], parts["present"], parts["mean"], parts["deviation"], words["source"])


def read_numbers(
    source: Any,
    *,
    columns: Sequence[str | int] | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
) -> Literals:
    """Read numbers of entities: rows of entity, attribute and value, which may be missing (empty or NaN).

    `source` is a file (TSV, CSV, plain or gzip or zstd; Parquet), a pandas or polars frame, an Arrow table, or rows of
    tuples. `columns` names the three columns to use, by heading or counted from 1.

    >>> len(read_numbers([("Berlin", "inhabitants", 3.7e6), ("Berlin", "founded", 1237), ("Bonn", "founded", None)]))
    3
    """
    if isinstance(source, Literals):
        return source
    found = _read(source, columns, delimiter, header)
    _check_long(found)
    return found


def _check_long(found: Literals) -> None:
    """Raise where attributes are numbers, hardly two alike: a table with a column for each attribute."""
    names = pc.unique(found.attribute).to_pylist()
    if len(found) > 2 and 2 * len(names) > len(found) and all(is_number(str(name)) for name in names):
        raise FocuseError(
            f"{found.source}: the attributes are numbers ({names[0]}, {names[1]}, …); give a line a value: entity, "
            "attribute, value (of a table with a column an attribute, pandas' frame.melt('entity') makes them)"
        )


def _read(source: Any, columns: Sequence[str | int] | None, delimiter: str | None, header: bool | None) -> Literals:
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if look_at(path)[0]:
            return _from_table(parquet_table(path), columns, str(path))
        return _read_text(path, columns, delimiter, header)
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__dataframe__"):
        return _from_table(to_arrow(source), columns, "numbers")
    if isinstance(source, Iterable) and not isinstance(source, Mapping):
        return _from_table(_rows(source), columns, "numbers")
    raise FocuseError(f"cannot read numbers from {type(source).__name__}: give a file, a frame or rows")


def _read_text(path: Path, columns: Sequence[str | int] | None, delimiter: str | None, header: bool | None) -> Literals:
    first, delimiter, end = first_row(first_lines(path), str(path), delimiter, ROLES)
    header = _is_header(first, columns) if header is None else header
    places = _places(first, header, columns, f"{path}, line 1")
    layout = Layout(delimiter, end if header else 0, len(first), places, roles=ROLES)
    table = parse_text(path, layout)
    if not len(table):
        raise FocuseError(f"{path}: no numbers; expected lines of entity, attribute and value")
    entity, attribute = (column.cast(pa.string()).combine_chunks() for column in table.columns[:2])
    value = join(pc.fill_null(table.column(2), np.nan).chunks)
    if np.isinf(value).any() or any(pc.min(pc.binary_length(names)).as_py() == 0 for names in (entity, attribute)):
        raise explain(path, layout, "a name is empty or a value not finite")
    return Literals(entity, attribute, value, str(path))


def _is_header(first: list[str], columns: Sequence[str | int] | None) -> bool:
    """Whether a first line holds headings: of a line of numbers, one field would be a number or empty."""
    if any(not str(column).isdecimal() for column in columns or ()):
        return True
    if any(is_number(field) or not field.strip() for field in first):
        return False
    return bool(_named(first))


def _named(first: list[str]) -> dict[str, int]:
    """The column of each role that a heading names."""
    words = [field.strip().lower() for field in first]
    found = {role: [place for place, word in enumerate(words) if word in HEADINGS[role]] for role in ROLES}
    return {role: places[0] for role, places in found.items() if places}


def _places(first: list[str], header: bool, columns: Sequence[str | int] | None, where: str) -> tuple[int, ...]:
    """The columns of entity, attribute and value: as given, by heading, or in order where there are three."""
    if columns is not None:
        if len(columns) != len(ROLES):
            raise FocuseError(f"columns: {len(columns)} given, expected 3 (entity, attribute, value)")
        return find_columns(first, header, columns, where)
    named = _named(first) if header else {}
    rest = [place for place in range(len(first)) if place not in named.values()]
    unnamed = [role for role in ROLES if role not in named]
    if unnamed and len(rest) != len(unnamed):
        shown = f" ({', '.join(first)})" if header else ""
        raise FocuseError(f"{where}: {len(first)} columns{shown}, expected 3 (entity, attribute, value)")
    places = named | dict(zip(unnamed, rest, strict=False))
    return tuple(places[role] for role in ROLES)


def _from_table(table: pa.Table, columns: Sequence[str | int] | None, where: str) -> Literals:
    table = own_columns(table, where, ROLES)
    places = _places(list(table.column_names), True, columns, where)
    entity, attribute = (
        pa.chunked_array(names_in(table.column(place), role, where)).combine_chunks()
        for role, place in zip(ROLES, places, strict=False)
        if role != "value"
    )
    return Literals(entity, attribute, numbers_in(table.column(places[2]), where, True, "value"), where)


def _rows(rows: Iterable[Any]) -> pa.Table:
    found = []
    for number, row in enumerate(rows, 1):
        if isinstance(row, str | bytes | Mapping) or not isinstance(row, Iterable) or len(row := tuple(row)) != 3:
            raise FocuseError(f"numbers, row {number}: {row!r:.60} is not a tuple of entity, attribute and value")
        found.append(row)
    columns = (to_column([row[place] for row in found], "numbers") for place in range(3))
    return pa.table(dict(zip(ROLES, columns, strict=True)))


def align(literals: Literals, entities: Vocabulary) -> tuple[Numbers, list[str]]:
    """The numbers of `entities`, standardised, and notes on what had to be left out or merged.

    A repeated (entity, attribute) counts as the mean of its values.

    >>> found, notes = align(read_numbers([("a", "age", 10), ("b", "age", 30), ("c", "age", 20)]), Vocabulary("ab"))
    >>> found.values.ravel().tolist(), notes
    ([-1.0, 1.0], ["numbers: 1 of 3 entities is not in the graph and left out: 'c'"])
    """
    where, ids = literals.source, entities.ids(literals.entity)
    notes = _unknown(literals, ids, entities)
    rows = (ids >= 0) & ~np.isnan(literals.value)
    if not rows.any():
        raise FocuseError(f"{where}: every value is missing; give numbers, or leave the file out")
    coded = literals.attribute.filter(pa.array(rows)).dictionary_encode()
    names = tuple(coded.dictionary.to_pylist())
    lost = sorted(set(literals.attribute.unique().to_pylist()) - set(names))
    if lost:
        notes.append(f"{where}: no entity of the graph has {_some(lost)}; left out")
    cells = ids[rows].astype(np.int64) * len(names) + coded.indices.to_numpy()
    # Divided by the largest first: sums and squares of very large numbers would overflow.
    scale = np.zeros(len(names))
    np.maximum.at(scale, cells % len(names), np.abs(literals.value[rows]))
    scale[scale == 0] = 1.0
    distinct, which, times = np.unique(cells, return_inverse=True, return_counts=True)
    if len(cells) > len(distinct):
        notes.append(
            f"{where}: {counted(len(cells) - len(distinct), 'rows', 'repeat')} an entity's attribute; the mean is taken"
        )
    scaled = np.bincount(which, literals.value[rows] / scale[cells % len(names)]) / times
    values, present = np.zeros((len(entities), len(names))), np.zeros((len(entities), len(names)), bool)
    values.flat[distinct], present.flat[distinct] = scaled, True
    mean, deviation, same = _moments(values, present)
    if same.any():
        constant = [name for name, one in zip(names, same, strict=True) if one]
        notes.append(f"{where}: all values of {_some(constant)} are equal and tell nothing; they count as 0")
    values = np.where(present & ~same, (values - mean) / np.where(same, 1.0, deviation), 0.0)
    return Numbers(names, values.astype(np.float32), present, mean * scale, deviation * scale, where), notes


def _moments(values: Floats, present: npt.NDArray[np.bool_]) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """Mean and deviation of each column's present values, and which columns hold one value only (deviation 0)."""
    lowest = np.min(values, axis=0, where=present, initial=np.inf)
    same = lowest == np.max(values, axis=0, where=present, initial=-np.inf)
    mean = np.where(same, lowest, np.mean(values, axis=0, where=present))
    deviation = np.where(same, 0.0, np.sqrt(np.mean((values - mean) ** 2, axis=0, where=present)))
    return mean, deviation, same


def _unknown(literals: Literals, ids: npt.NDArray[np.int32], entities: Vocabulary) -> list[str]:
    """A note on entities that the graph does not have; an error if it has none of them."""
    unknown = literals.entity.filter(pa.array(ids < 0)).unique().to_pylist()
    if not unknown:
        return []
    shown = ", ".join(f"{name!r}{did_you_mean(entities.nearest(name, 1))}" for name in unknown[:NAMED])
    if (ids < 0).all():
        raise FocuseError(f"{literals.source}: the graph has none of its {len(unknown):,} entities, such as {shown}")
    every = len(literals.entity.unique())
    more = "such as " if len(unknown) > NAMED else ""
    verb = "is" if len(unknown) == 1 else "are"
    return [
        f"{literals.source}: {len(unknown):,} of {every:,} entities {verb} not in the graph and left out: {more}{shown}"
    ]


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:NAMED])) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
