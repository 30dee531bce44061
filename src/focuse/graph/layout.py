"""Looking at the first lines of a text file: its delimiter, its header and which column is which."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from focuse.errors import FocuseError

DELIMITERS = ("\t", ",", ";", "|", " ")
ROLES = ("head", "relation", "tail", "weight")
# Words that people put over such columns; a first line is taken for a header only if it holds one of them.
HEADINGS = {
    "head": {"head", "subject", "source", "src", "from", "h", "s", "subj", "start", "node1", "entity1"},
    "relation": {"relation", "predicate", "property", "rel", "r", "p", "edge", "type", "label", "relationship"},
    "tail": {"tail", "object", "target", "dst", "to", "t", "o", "obj", "end", "node2", "entity2"},
    "weight": {
        "weight", "w", "score", "confidence", "conf", "value", "importance", "strength", "probability", "prob",
        "numeric", "rating", "number",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """How a text file is to be read: `places` are the columns of head, relation, tail and perhaps weight."""

    delimiter: str
    header: bool
    width: int
    places: tuple[int, ...]

    @property
    def quoted(self) -> bool:
        return quoting(self.delimiter) == csv.QUOTE_MINIMAL


def quoting(delimiter: str) -> Literal[0, 3]:
    """Quotes delimit fields in CSV; in TSV they are part of a name, as is usual there."""
    return csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL


def detect(
    sample: str,
    where: str,
    delimiter: str | None = None,
    header: bool | None = None,
    columns: Sequence[str | int] | None = None,
) -> Layout:
    """The layout of a text that begins with `sample` (whole lines)."""
    lines = [line for line in sample.splitlines() if line][:50]
    if not lines:
        raise FocuseError(f"{where}: the file is empty; expected lines of head, relation, tail and weight")
    delimiter = delimiter or _delimiter(lines, where)
    first = next(csv.reader(lines, delimiter=delimiter, quoting=quoting(delimiter)))
    is_header = _is_header(first) if header is None else header
    places = choose_places(first, is_header, columns, where)
    return Layout(delimiter, is_header, len(first), places)


def _delimiter(lines: list[str], where: str) -> str:
    """The separator that cuts most of the first lines into the same number (3 or more) of fields."""
    best, most = "", 0
    for candidate in DELIMITERS:
        widths = [len(row) for row in csv.reader(lines, delimiter=candidate, quoting=quoting(candidate))]
        common = max(set(widths), key=widths.count)
        agree = widths.count(common)
        if common >= 3 and agree > most:
            best, most = candidate, agree
    if not best:
        raise FocuseError(
            f"{where}, line 1: found no tab, comma, semicolon, bar or space that cuts it into 3 or 4 columns: "
            f"{lines[0][:60]!r}; expected head, relation, tail, weight"
        )
    return best


def _is_header(first: list[str]) -> bool:
    words = {field.strip().lower() for field in first}
    if len(first) == 4 and is_number(first[3]):
        return False
    return any(words & HEADINGS[role] for role in ROLES)


def is_number(text: str) -> bool:
    """Whether `text` reads as a number, NaN and infinity included."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def choose_places(first: list[str], header: bool, columns: Sequence[str | int] | None, where: str) -> tuple[int, ...]:
    if columns is not None:
        return _given(first, header, columns, where)
    if header:
        named: dict[str, int] = {}
        for place, field in enumerate(first):
            for role in ROLES:
                if field.strip().lower() in HEADINGS[role]:
                    named.setdefault(role, place)
        if all(role in named for role in ROLES[:3]):
            return tuple(named[role] for role in ROLES if role in named)
    if len(first) not in (3, 4):
        raise FocuseError(
            f"{where}, line 1: {len(first)} columns, expected 3 or 4 (head, relation, tail, weight); "
            "name the ones to use with columns (--columns 1,2,3,4 or their headings)"
        )
    return tuple(range(len(first)))


def _given(first: list[str], header: bool, columns: Sequence[str | int], where: str) -> tuple[int, ...]:
    """Columns that the user named by heading or counted from 1."""
    if len(columns) not in (3, 4):
        raise FocuseError(f"columns: {len(columns)} given, expected 3 or 4 (head, relation, tail, weight)")
    places = []
    for column in columns:
        if header and str(column) in first:
            places.append(first.index(str(column)))
        elif str(column).isdecimal() and 1 <= int(column) <= len(first):
            places.append(int(column) - 1)
        else:
            known = ", ".join(first) if header else f"1 to {len(first)}"
            raise FocuseError(f"{where}: no column {column!r}; it has {known}")
    return tuple(places)
