"""Rows of triples, with their names."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar, overload

import pyarrow as pa

from focuse.data.writers import TABLE_SUFFIXES, link_suffixes, write_links
from focuse.errors import FocuseError, printable
from focuse.storage.atomic import refuse_overwrite


class Triple(Protocol):
    """A row that names a triple."""

    @property
    def head(self) -> str: ...

    @property
    def relation(self) -> str: ...

    @property
    def tail(self) -> str: ...


T = TypeVar("T", bound=Triple)


class Rows(Sequence[T]):
    """Answers held in columns: a row is made when asked for. `print` shows the first, `write` makes a file of all."""

    shown = 50  # rows that `print` shows
    nothing: str | None = None  # what it says where there are none
    notes: tuple[str, ...] = ()

    @abstractmethod
    def row(self, place: int) -> T:
        """The row at a place, counted from 0."""

    @abstractmethod
    def line(self, row: T, names: str) -> str:
        """A row as text; `names` are the three of its triple, in columns."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """All rows as a table."""

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            return [self.row(number) for number in range(*place.indices(len(self)))]
        return self.row(range(len(self))[place])

    def __iter__(self) -> Iterator[T]:
        return map(self.row, range(len(self)))

    def write(self, path: str | Path) -> None:
        """Write to .tsv, .csv (with a header), .parquet or RDF (.ttl, .nt, …), whole or not at all."""
        write_table(self.to_arrow(), Path(path))

    def __str__(self) -> str:
        rows = self[: self.shown]
        names = [[printable(part) for part in (row.head, row.relation, row.tail)] for row in rows]
        widths = [max(map(len, column)) for column in zip(*names, strict=True)] if names else []
        lines = [] if rows or self.nothing is None else [self.nothing]
        for row, parts in zip(rows, names, strict=True):
            cells = "  ".join(f"{part:{width}}" for part, width in zip(parts, widths, strict=True))
            lines.append(self.line(row, cells).rstrip())
        if len(self) > self.shown:
            lines.append(f"… {len(self) - self.shown:,} more (--out FILE has all)")
        return "\n".join([*lines, *self.notes])


def check_target(path: Path, suffixes: tuple[str, ...] = (".tsv", ".csv", ".parquet")) -> Path:
    """A file that can be written in one of these forms; raise for others, before any work is done."""
    if path.suffix not in suffixes:
        forms = " or ".join(part for part in (", ".join(suffixes[:-1]), suffixes[-1]) if part)
        raise FocuseError(f"{path}: cannot write {path.suffix or 'a file without suffix'}; use {forms}")
    if not path.absolute().parent.is_dir():
        raise FocuseError(f"{path}: there is no folder {path.parent}; make it first")
    refuse_overwrite(path)
    return path


def write_table(table: pa.Table, path: Path) -> None:
    """Write to .tsv, .csv (with a header) or .parquet, links also as RDF; whole or not at all."""
    links = {"head", "relation", "tail"} <= set(table.column_names)
    write_links(table, check_target(path, link_suffixes() if links else TABLE_SUFFIXES))
