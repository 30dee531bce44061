"""Looking at the first lines of a text file: its delimiter, its header and which column is which."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from focuse.errors import FocuseError

DELIMITERS = ("\t", ",", ";", "|", " ")
ROLES = ("head", "relation", "tail", "weight")
# Words that people put over such columns; a first line is taken for a header only if it holds some of them.
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
    """How a text file is to be read: `places` are the columns of head, relation, tail and perhaps weights.

    `skip` counts the lines up to the end of the header; 0 without one. `names` are those of several weights. Other
    files than graphs have other `roles`: the last one is a number, the others are names.
    """

    delimiter: str
    skip: int
    width: int
    places: tuple[int, ...]
    names: tuple[str, ...] = ()
    roles: tuple[str, ...] = ROLES

    @property
    def may_miss(self) -> bool:
        """Whether a number may be missing."""
        return bool(self.names) or self.roles != ROLES

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
    weights: Sequence[str | int] | None = None,
) -> Layout:
    """The layout of a text that begins with `sample` (whole lines)."""
    first, delimiter, end = first_row(sample, where, delimiter)
    is_header = _is_header(first, [*(columns or ()), *(weights or ())]) if header is None else header
    places = choose_places(first, is_header, columns, f"{where}, line 1", weights)
    names = weight_names(first, is_header, places)
    return Layout(delimiter, end if is_header else 0, len(first), places, names)


def first_row(
    sample: str, where: str, delimiter: str | None = None, roles: Sequence[str] = ROLES
) -> tuple[list[str], str, int]:
    """The first line that is not blank in fields, what separates them, and how many lines there are up to its end."""
    # Not str.splitlines: a name may hold U+2028 and other letters that it takes for line ends.
    lines = list(io.StringIO(sample, newline=""))
    blank = next((number for number, line in enumerate(lines) if line.strip("\r\n")), None)
    if blank is None:
        raise FocuseError(f"{where}: the file is empty; expected lines of {listed(roles)}")
    lines = lines[blank : blank + 50]
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'):
        raise FocuseError(f"delimiter {delimiter!r} is not a single letter such as a tab, ',' or ';'")
    delimiter = delimiter or _delimiter(lines, where, roles)
    rows = csv.reader(lines, delimiter=delimiter, quoting=quoting(delimiter))
    return next(rows), delimiter, blank + rows.line_num


def listed(roles: Sequence[str]) -> str:
    """Roles in words.

    >>> listed(ROLES)
    'head, relation, tail and weight'
    """
    return f"{', '.join(roles[:-1])} and {roles[-1]}"


def weight_names(first: list[str], header: bool, places: Sequence[int]) -> tuple[str, ...]:
    """The names of several weight columns: their headings, else w1, w2, …; none for a single one."""
    if len(places) <= 4:
        return ()
    numbered = [f"w{number}" for number in range(1, len(places) - 2)]
    return tuple(first[place].strip() if header else name for place, name in zip(places[3:], numbered, strict=True))


def _delimiter(lines: list[str], where: str, roles: Sequence[str] = ROLES) -> str:
    """The separator that cuts most of the first lines into as many fields (3 or more) as the very first."""
    best, most = "", 0
    tabs = any("\t" in line for line in lines)  # then a space is part of a name
    for candidate in (mark for mark in DELIMITERS if mark != " " or not tabs):
        widths = [len(row) for row in csv.reader(lines, delimiter=candidate, quoting=quoting(candidate))]
        agree = widths.count(widths[0])
        if widths[0] >= 3 and agree > most:
            best, most = candidate, agree
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
    # Three names may well be an edge with a relation called 'type': there one known word is not enough.
    return len(_named(first)) >= (2 if len(first) == 3 else 1)


def _named(first: list[str]) -> dict[str, int]:
    """The column of each role that a heading names."""
    named: dict[str, int] = {}
    for place, field in enumerate(first):
        for role in ROLES:
            if field.strip().lower() in HEADINGS[role]:
                named.setdefault(role, place)
    return named


def is_number(text: str) -> bool:
    """Whether `text` reads as a number, NaN and infinity included."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def choose_places(
    first: list[str],
    header: bool,
    columns: Sequence[str | int] | None,
    where: str,
    weights: Sequence[str | int] | None = None,
) -> tuple[int, ...]:
    """The columns of head, relation, tail and perhaps weights: as given, else by heading, the others in order."""
    if weights is not None:
        return _beside(first, header, columns, where, weights)
    if columns is not None:
        return _given(first, header, columns, where)
    named = _named(first) if header else {}
    if len(named) == 4:
        return tuple(named[role] for role in ROLES)
    rest = [place for place in range(len(first)) if place not in named.values()]
    unnamed = [role for role in ROLES[: len(first)] if role not in named]
    places = named | dict(zip(unnamed, rest, strict=False))
    # A weight without a known heading is believed only where it usually stands, last: it may be some other number.
    if len(first) not in (3, 4) or len(unnamed) != len(rest) or places.get("weight", 3) not in (named.get("weight"), 3):
        raise FocuseError(
            f"{where}: {len(first)} columns{_shown(first, header)}, expected 3 or 4 "
            "(head, relation, tail, weight); "
            "name the ones to use with columns (--columns 1,2,3,4 or their headings), several weights with weights "
            "(--weight-columns)"
        )
    return tuple(places[role] for role in ROLES[: len(first)])


def _shown(first: list[str], header: bool) -> str:
    return f" ({', '.join(first)})" if header else ""


def _given(first: list[str], header: bool, columns: Sequence[str | int], where: str) -> tuple[int, ...]:
    """Columns that the user named by heading or counted from 1."""
    if len(columns) < 3:
        raise FocuseError(
            f"columns: {len(columns)} given, expected 3 or 4 (head, relation, tail, weight) or more weights"
        )
    return find_columns(first, header, columns, where)


def _beside(
    first: list[str], header: bool, columns: Sequence[str | int] | None, where: str, weights: Sequence[str | int]
) -> tuple[int, ...]:
    """Weight columns that the user named, beside those of names: given, by heading, or the three that are left."""
    if isinstance(weights, str) or not weights:
        raise FocuseError(f"weights {weights!r}: give a list of columns, by heading or counted from 1")
    if columns is not None:
        if len(columns) != 3:
            raise FocuseError(f"columns: {len(columns)} given beside weights, expected 3 (head, relation, tail)")
        return find_columns(first, header, [*columns, *weights], where)
    numbers = find_columns(first, header, weights, where)
    named = {role: place for role, place in (_named(first) if header else {}).items() if role != "weight"}
    named = {role: place for role, place in named.items() if place not in numbers}
    rest = [place for place in range(len(first)) if place not in {*named.values(), *numbers}]
    unnamed = [role for role in ROLES[:3] if role not in named]
    if unnamed and len(unnamed) != len(rest):
        raise FocuseError(
            f"{where}: which of {len(first)} columns{_shown(first, header)} are head, relation and tail? "
            "name them with columns (--columns 1,2,3 or their headings)"
        )
    places = named | dict(zip(unnamed, rest, strict=False))
    return (*(places[role] for role in ROLES[:3]), *numbers)


def find_columns(first: list[str], header: bool, columns: Sequence[str | int], where: str) -> tuple[int, ...]:
    """Where columns stand that are named by heading or counted from 1."""
    places: list[int] = []
    headings = [field.strip() for field in first] if header else []
    for column in columns:
        if isinstance(column, str) and column.strip() in headings:
            places.append(headings.index(column.strip()))
        elif str(column).isdecimal() and 1 <= int(column) <= len(first):
            places.append(int(column) - 1)
        else:
            known = ", ".join(first) if header else f"1 to {len(first)}"
            raise FocuseError(f"{where}: no column {column!r}; it has {known}")
    if len(set(places)) < len(places):
        raise FocuseError(f"columns: {', '.join(map(str, columns))} name one column twice; give each its own")
    return tuple(places)
