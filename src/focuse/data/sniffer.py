"""Detect the layout of a text file (delimiter, header, columns) and find its first faulty line.

The fast reader detects that a file has a fault, but seldom on which line. A faulty file is therefore read again, slowly
and line by line, up to the first fault, which costs time only if there is an error to report.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Literal

import pyarrow as pa

from focuse.data.graph import ALL_WEIGHTS_MISSING
from focuse.errors import FocuseError

DELIMITERS = ("\t", ",", ";", "|", " ")
ROLES = ("head", "relation", "tail", "weight")
# These are common headings of the columns. A first line is a header only if it contains some of them.
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
class TableLayout:
    """The layout of a text file: `header_lines` lines up to the end of the header, and `width` columns.

    `columns` are the indices of head, relation, tail and the weights, if any, and `weight_names` the names of several
    weights. `roles` are what the columns hold, of which the last is a number and the others are names. Names may be
    empty in a query (`allows_empty_names`).
    """

    delimiter: str
    header_lines: int
    width: int
    columns: tuple[int, ...]
    weight_names: tuple[str, ...] = ()
    roles: tuple[str, ...] = ROLES
    allows_empty_names: bool = False

    @property
    def allows_missing(self) -> bool:
        """Whether a number may be missing."""
        return bool(self.weight_names) or "weight" not in self.roles

    @property
    def quoted(self) -> bool:
        """Whether quotes delimit fields."""
        return quoting(self.delimiter) == csv.QUOTE_MINIMAL


def quoting(delimiter: str) -> Literal[0, 3]:
    """Return the csv module's quoting rule: quotes delimit fields in CSV, and are part of names in TSV."""
    return csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL


def detect_layout(
    sample: str,
    where: str,
    delimiter: str | None = None,
    header: bool | None = None,
    columns: Sequence[str | int] | None = None,
    weight_columns: Sequence[str | int] | None = None,
) -> TableLayout:
    """Detect the layout of a text that begins with `sample` (complete lines)."""
    first, delimiter, end = first_row(sample, where, delimiter)
    is_header = _is_header(first, [*(columns or ()), *(weight_columns or ())]) if header is None else header
    chosen = choose_columns(first, is_header, columns, f"{where}, line 1", weight_columns)
    weight_names = weight_column_names(first, is_header, chosen)
    return TableLayout(delimiter, end if is_header else 0, len(first), chosen, weight_names)


def first_row(
    sample: str, where: str, delimiter: str | None = None, roles: Sequence[str] = ROLES
) -> tuple[list[str], str, int]:
    """Return the fields of the first line that is not blank, their delimiter, and the number of lines up to its end."""
    # str.splitlines is not used, because it splits at U+2028 and other characters that names may contain.
    lines = list(io.StringIO(sample, newline=""))
    blank = next((number for number, line in enumerate(lines) if line.strip("\r\n")), None)
    if blank is None:
        raise FocuseError(f"{where}: the file is empty; expected lines of {join_words(roles)}")
    lines = lines[blank : blank + 50]
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'):
        raise FocuseError(f"delimiter {delimiter!r} is not a single character such as a tab, ',' or ';'")
    delimiter = delimiter or _detect_delimiter(lines, where, roles)
    rows = csv.reader(lines, delimiter=delimiter, quoting=quoting(delimiter))
    return next(rows), delimiter, blank + rows.line_num


def join_words(words: Sequence[str]) -> str:
    """Join words by commas and a final "and".

    >>> join_words(ROLES)
    'head, relation, tail and weight'
    """
    return f"{', '.join(words[:-1])} and {words[-1]}"


def weight_column_names(first: list[str], header: bool, columns: Sequence[int]) -> tuple[str, ...]:
    """Return the names of several weight columns: their headings, else w1, w2, …; none for a single column."""
    if len(columns) <= 4:
        return ()
    numbered = [f"w{number}" for number in range(1, len(columns) - 2)]
    return tuple(first[index].strip() if header else name for index, name in zip(columns[3:], numbered, strict=True))


def _detect_delimiter(lines: list[str], where: str, roles: Sequence[str] = ROLES) -> str:
    """Return the delimiter that cuts most of the first lines into as many fields (3 or more) as the very first line."""
    best, best_count = "", 0
    has_tabs = any("\t" in line for line in lines)  # then a space is part of a name
    for candidate in (mark for mark in DELIMITERS if mark != " " or not has_tabs):
        widths = [len(row) for row in csv.reader(lines, delimiter=candidate, quoting=quoting(candidate))]
        agree = widths.count(widths[0])
        if widths[0] >= min(len(roles), 3) and agree > best_count:
            best, best_count = candidate, agree
    if not best:
        raise FocuseError(
            f"{where}, line 1: found no tab, comma, semicolon, bar or space that cuts it into "
            f"{'3 or 4' if len(roles) == 4 else len(roles)} columns: {lines[0].rstrip()[:60]!r}; expected "
            f"{', '.join(roles)}"
        )
    return best


def _is_header(first: list[str], columns: Sequence[str | int]) -> bool:
    if any(not str(column).isdecimal() for column in columns):
        return True
    if any(is_number(field) for field in first):
        return False
    # Three names may be an edge whose relation is called 'type', so that one known heading is not enough.
    return len(columns_by_heading(first)) >= (2 if len(first) == 3 else 1)


def columns_by_heading(first: list[str], headings: Mapping[str, set[str]] = HEADINGS) -> dict[str, int]:
    """Return the column of each role that has a known heading."""
    words = [field.strip().lower() for field in first]
    found = {role: [index for index, word in enumerate(words) if word in known] for role, known in headings.items()}
    return {role: indices[0] for role, indices in found.items() if indices}


def is_number(text: str) -> bool:
    """Return whether a text is a number, NaN and infinity included."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def columns_by_role(
    first: list[str],
    header: bool,
    roles: Sequence[str],
    headings: Mapping[str, set[str]] = HEADINGS,
    taken: Sequence[int] = (),
) -> dict[str, int]:
    """Return a column for each role: those with a known heading, the others in order; empty if that is ambiguous."""
    by_heading = columns_by_heading(first, headings) if header else {}
    by_heading = {role: index for role, index in by_heading.items() if index not in taken}
    rest = [index for index in range(len(first)) if index not in {*by_heading.values(), *taken}]
    unnamed = [role for role in roles if role not in by_heading]
    if unnamed and len(unnamed) != len(rest):
        return {}
    return by_heading | dict(zip(unnamed, rest, strict=False))


def choose_columns(
    first: list[str],
    header: bool,
    columns: Sequence[str | int] | None,
    where: str,
    weight_columns: Sequence[str | int] | None = None,
) -> tuple[int, ...]:
    """Choose the columns of head, relation, tail and weights: as given, else by heading, the others in order.

    `first` are the fields of the first line, and with `header` they are headings. `columns` and `weight_columns` are
    what the user asks for, by heading or counted from 1. The result has the indices of head, relation, tail and any
    weights.
    """
    for name, given in (("columns", columns), ("weight_columns", weight_columns)):
        if given is not None and (isinstance(given, str) or not given):
            raise FocuseError(f"{name} {given!r}: give a list of columns, by heading or counted from 1")
    if columns is not None:
        if len(columns) < 3 or (weight_columns is not None and len(columns) > 3):
            expected = "3 or 4 (head, relation, tail, weight) or more weights"
            expected = expected if weight_columns is None else "3 (head, relation, tail) next to weight_columns"
            raise FocuseError(f"columns: {len(columns)} given, expected {expected}")
        return find_columns(first, header, [*columns, *(weight_columns or ())], where)
    shown = f"{len(first)} columns" + (f" ({', '.join(first)})" if header else "")
    if weight_columns is not None:
        found = find_columns(first, header, weight_columns, where)
        chosen = columns_by_role(first, header, ROLES[:3], taken=found)
        if not chosen:
            advice = "name them with columns (1,2,3 or their headings)"
            raise FocuseError(f"{where}: which of {shown} are head, relation and tail? {advice}")
        return (*(chosen[role] for role in ROLES[:3]), *found)
    chosen = columns_by_role(first, header, ROLES[: len(first)])
    # A weight without a known heading is accepted only in the last column: elsewhere it may be some other number.
    has_heading = header and "weight" in columns_by_heading(first)
    if len(chosen) < 3 or (chosen.get("weight", 3) != 3 and not has_heading):
        raise FocuseError(
            f"{where}: {shown}, expected 3 or 4 (head, relation, tail, weight); name the ones to use with columns "
            "(1,2,3,4 or their headings), several weights with weight_columns"
        )
    return tuple(chosen[role] for role in ROLES if role in chosen)


def find_columns(first: list[str], header: bool, columns: Sequence[str | int], where: str) -> tuple[int, ...]:
    """Return the indices of columns that are named by heading or counted from 1."""
    indices: list[int] = []
    headings = [field.strip() for field in first] if header else []
    for column in columns:
        if isinstance(column, str) and column.strip() in headings:
            indices.append(headings.index(column.strip()))
        elif str(column).isdecimal() and 1 <= int(column) <= len(first):
            indices.append(int(column) - 1)
        else:
            known = ", ".join(first) if header else f"1 to {len(first)}"
            raise FocuseError(f"{where}: no column {column!r}; it has {known}")
    if len(set(indices)) < len(indices):
        raise FocuseError(f"columns: {', '.join(map(str, columns))} name one column twice; give each its own")
    return tuple(indices)


# ---- faulty lines ---------------------------------------------------------------------------------------------------

NOT_A_NUMBER = "is not a number; correct it"
# This matches the numbers that Arrow reads; Python's float also accepts 1_000, other digits and unusual spaces.
PLAIN_NUMBER = re.compile(r"[ \t]*[-+.eE0-9]+[ \t]*")
THOUSANDS = re.compile(r"[ \t]*[-+]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]*)?[ \t]*")
DECIMAL_COMMA = re.compile(r"[ \t]*[-+]?[0-9.]+,[0-9]+[ \t]*")
MISSING_NUMBERS = ("", "nan", "NaN", "NAN")  # fields that mean that a number is missing
HEADER_ADVICE = ", or say that line 1 is a header (header) or which columns to use (columns)"
MAX_SHOWN = 60  # characters of a faulty weight that a message shows


def first_fault(stream: BinaryIO, layout: TableLayout, where: str) -> FocuseError | None:
    """Return the error of the first line of `stream` that does not fit the layout, None if all lines do."""
    # Bytes that are not UTF-8 become lone surrogates, so that the reader goes on and the line number is known.
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    rows = csv.reader(text, delimiter=layout.delimiter, quoting=quoting(layout.delimiter))
    line = 1
    try:
        for row in rows:
            if row and line > layout.header_lines:
                fault = row_fault(row, layout)
                if fault and line == 1 and fault.endswith(NOT_A_NUMBER):
                    fault += (
                        HEADER_ADVICE if layout.roles == ROLES else f", or head the columns {', '.join(layout.roles)}"
                    )
                if fault:
                    return FocuseError(f"{where}, line {line}: {fault}")
            line = rows.line_num + 1
    except (csv.Error, pa.ArrowException, OSError, EOFError) as error:
        return FocuseError(f"{where}, line {line}: {error}")
    return None


def row_fault(row: list[str], layout: TableLayout) -> str:
    """Return the fault of a row with advice, or an empty string if it has none."""
    if len(row) != layout.width:
        return f"{len(row)} columns instead of {layout.width}; give every line {join_words(layout.roles)}"
    several = len(layout.weight_names) > 1
    number = layout.roles[-1]
    for role, index in zip([*layout.roles, *[number] * len(layout.weight_names)], layout.columns, strict=False):
        field = row[index]
        if not field.isascii() and any("\udc80" <= character <= "\udcff" for character in field):
            return f"the {role} is not UTF-8 text; save the file as UTF-8"
        if role == number:
            fault = "" if layout.allows_missing and field in MISSING_NUMBERS else weight_fault(field, number)
            if fault:
                return fault
        elif not field and not layout.allows_empty_names:
            return f"the {role} is empty; give it a name or remove the line"
    return ALL_WEIGHTS_MISSING if several and all(row[index] in MISSING_NUMBERS for index in layout.columns[3:]) else ""


def weight_fault(field: object, role: str = "weight") -> str:
    """Return what is wrong with a weight (or another number, named by `role`); empty if it is a finite number."""
    text = str(field)
    shown = repr(text[:MAX_SHOWN])
    if text == "":
        return f"the {role} is empty; give it a number or remove the line"
    try:
        value = float(text)
    except ValueError:
        if THOUSANDS.fullmatch(text):
            return f"the {role} {shown} has a comma; write a decimal point, and thousands without a separator"
        if DECIMAL_COMMA.fullmatch(text):
            return f"the {role} {shown} has a decimal comma; write it with a point"
        return f"the {role} {shown} {NOT_A_NUMBER}"
    if math.isfinite(value) and not PLAIN_NUMBER.fullmatch(text):
        return f"the {role} {shown} {NOT_A_NUMBER}"
    if not math.isfinite(value):
        return f"the {role} {shown} is not finite; give it a number or remove the line"
    return ""
