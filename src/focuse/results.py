"""The table of results that every query returns: predictions, weights, discoveries, similar entities, evaluations."""

from __future__ import annotations

import html
import json
import math
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from focuse.data.writers import format_and_compression, link_writers, write_links
from focuse.errors import FocuseError, counted, printable
from focuse.storage.atomic import check_writable, replace_file

PRINTED_ROWS = 50
LINK_COLUMNS = {"head", "relation", "tail"}


class TableExport:
    """Conversions of an object that has a method `to_arrow`."""

    def to_arrow(self) -> pa.Table:
        """Return all rows as a PyArrow table."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """Return all rows as a pandas data frame."""
        return _import("pandas") and self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return all rows as a polars data frame."""
        return _import("polars").from_arrow(self.to_arrow())

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dictionary per row; a missing value is None."""
        return list(self.to_arrow().to_pylist())

    def write(self, path: str | Path) -> Path:
        """Write all rows to a file and return its path; the suffix names the format.

        The formats are .tsv, .csv (both with a header, also .gz and .zst), .parquet and .json, and RDF (.ttl, .nt, …)
        for links. The file appears only when it is complete.
        """
        table, path = self.to_arrow(), Path(path)
        check_table_path(path, links=set(table.column_names) >= LINK_COLUMNS)
        if path.suffix.lower() != ".json":
            return write_links(table, path)
        with replace_file(path) as temporary:
            rows = [json.dumps(row, ensure_ascii=False) for row in table.to_pylist()]
            temporary.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        return ResultTable(self.to_arrow(), notes=getattr(self, "notes", ()))._repr_html_()


class ResultTable(TableExport, Sequence[Any]):
    """Rows of results in named columns.

    `print(table)` shows the first rows; `table[0]` is a row with named fields, `table[:3]` a shorter table and
    `table["tail"]` a column as a NumPy array. Notebooks show it as an HTML table.

    Parameters
    ----------
    columns : mapping of names to columns, or pyarrow.Table
        Columns of equal length; NaN in a column of numbers becomes a missing value.
    notes : sequence of str
        Remarks on the results, printed below the table.
    info : mapping
        Facts about the whole table, such as how many links were scored; attributes of the table and keys of its JSON.
        A value may be another ResultTable.
    printed : sequence of str, optional
        The columns that `print` shows, by default all; a column without any value is not shown.
    empty : str
        What is printed if there are no rows.

    Examples
    --------
    >>> table = ResultTable({"tail": ["b", "c"], "probability": [0.75, float("nan")]}, notes=["2 candidates"])
    >>> print(table)
    tail  probability
    b           0.750
    c               –
    2 candidates
    >>> table[0].tail, table["tail"].tolist(), table.to_dicts()[1]
    ('b', ['b', 'c'], {'tail': 'c', 'probability': None})
    """

    def __init__(
        self,
        columns: Mapping[str, Any] | pa.Table,
        *,
        notes: Sequence[str] = (),
        info: Mapping[str, Any] | None = None,
        printed: Sequence[str] | None = None,
        empty: str = "no results",
    ) -> None:
        if not isinstance(columns, pa.Table):
            arrow = (pa.Array, pa.ChunkedArray)
            made = [one if isinstance(one, arrow) else pa.array(one, from_pandas=True) for one in columns.values()]
            columns = pa.table(made, names=list(columns))
        self._table, self._printed, self._empty = columns, printed, empty
        self.notes, self.info = tuple(notes), dict(info or {})

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._table.column_names)

    def to_arrow(self) -> pa.Table:
        """Return all rows as a PyArrow table."""
        return self._table

    def to_json(self) -> dict[str, Any]:
        """Return the rows, the notes and the facts about the table as one dictionary that JSON can represent."""
        return {"rows": self.to_dicts(), **self.info_to_json()}

    def info_to_json(self) -> dict[str, Any]:
        """Return the same without the rows."""
        info = {key: value.to_dicts() if isinstance(value, ResultTable) else value for key, value in self.info.items()}
        return {**info, "notes": list(self.notes)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResultTable) and self.notes == other.notes and self._table.equals(other._table)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_row"}  # its class has no module

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getattr__(self, name: str) -> Any:
        info = self.__dict__.get("info", {})
        if name not in info:
            raise AttributeError(f"this table has no attribute {name!r}")
        return info[name]

    @cached_property
    def _row(self) -> Callable[..., Any]:
        return namedtuple("Row", self.columns, rename=True)

    def __getitem__(self, index: int | slice | str) -> Any:
        if isinstance(index, str):
            if index not in self.columns:
                raise FocuseError(f"no column {index!r}; the table has {', '.join(self.columns)}")
            return self._table.column(index).to_numpy()
        if isinstance(index, slice):
            rows = self._table.take(pa.array(np.arange(len(self))[index]))
            return type(self)(rows, notes=self.notes, info=self.info, printed=self._printed, empty=self._empty)
        (row,) = self._table.slice(range(len(self))[index], 1).to_pylist()
        return self._row(*row.values())

    def __iter__(self) -> Iterator[Any]:
        return (self._row(*row.values()) for batch in self._table.to_batches() for row in batch.to_pylist())

    def to_text(self, rows: int = PRINTED_ROWS) -> str:
        """Return the first rows as an aligned table, followed by the notes; `print` shows this text."""
        table = format_table(*self.cells(rows)) if len(self) else self._empty
        return "\n".join([table, *self._remarks(rows)])

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"ResultTable({len(self):,} rows: {', '.join(self.columns)})"

    def _repr_html_(self) -> str:
        headings, rows, _ = self.cells()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in headings)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        remarks = [*([] if rows else [self._empty]), *self._remarks(PRINTED_ROWS)]
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in remarks)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"

    def cells(self, rows: int = PRINTED_ROWS) -> tuple[list[str], list[list[str]], list[bool]]:
        """Return the headings, the first rows of the printed columns as texts, and which columns are text."""
        names, table = self._printed or self.columns, self._table
        table = table.select([name for name in names if table[name].null_count < max(len(table), 1)]).slice(0, rows)
        is_text = [not (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)) for field in table.schema]
        columns = [_format_column(table.column(index).to_pylist()) for index in range(table.num_columns)]
        headings = [printable(name) for name in table.column_names]
        return headings, [list(row) for row in zip(*columns, strict=True)], is_text

    def _remarks(self, rows: int) -> list[str]:
        more = [f"… {counted(len(self) - rows, 'more rows')}"] if len(self) > rows else []
        return [*more, *map(printable, self.notes)]


def format_table(headings: Sequence[str], rows: Sequence[Sequence[str]], is_text: Sequence[bool] | None = None) -> str:
    """Return aligned columns: text to the left, numbers to the right. By default the first column is text.

    >>> print(format_table(["name", "n"], [["a", "1"], ["bb", "22"]]))
    name   n
    a      1
    bb    22
    """
    is_text = [index == 0 for index in range(len(headings))] if is_text is None else is_text
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = []
    for row in [headings, *rows]:
        cells = zip(row, widths, is_text, strict=True)
        lines.append("  ".join(cell.ljust(width) if left else cell.rjust(width) for cell, width, left in cells))
    return "\n".join(line.rstrip() for line in lines)


def check_table_path(path: Path, links: bool = False) -> Path:
    """Return the path if a table can be written there; raise FocuseError for an unknown format or a file of a run."""
    format_and_compression(path, link_writers if links else dict, ".json")
    check_writable(path)
    return path


def _format_column(values: Sequence[Any]) -> list[str]:
    """Return the cells of a column; its numbers have the same number of decimals."""
    largest = max((abs(value) for value in values if isinstance(value, float) and math.isfinite(value)), default=0.0)
    decimals = 3 if largest < 100 else 1 if largest < 10_000 else 0
    return [_format_cell(value, decimals) for value in values]


def _format_cell(value: Any, decimals: int) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        small = value != 0 and abs(value) < 0.5 * 10**-decimals
        return f"{value:.2g}" if small else f"{value:,.{decimals}f}"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def _import(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise FocuseError(f"{name} is not installed; install it: pip install {name}") from None


def attribute_columns(rows: Sequence[Any], *names: str, prefix: str = "") -> dict[str, list[Any]]:
    """Return columns for a ResultTable, made of attributes of objects.

    >>> attribute_columns([3 + 4j, 1 + 2j], "real", "imag")
    {'real': [3.0, 1.0], 'imag': [4.0, 2.0]}
    """
    return {name: [getattr(row, prefix + name) for row in rows] for name in names}
