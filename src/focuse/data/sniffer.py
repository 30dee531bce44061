"""Detect the layout of a text file (delimiter, comments, header, columns) and find its first faulty line.

The fast reader detects that a file has a fault, but seldom on which line. A faulty file is therefore read again, slowly
and line by line, up to the first fault, which costs time only if there is an error to report.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, Literal

import pyarrow as pa

from focuse.data.graph import ALL_WEIGHTS_MISSING
from focuse.data.roles import MISSING_WEIGHTS, NONE, Asked, ColumnSample, Roles, TableSample, choose_roles, is_header
from focuse.errors import FocuseError

DELIMITERS = ("\t", ",", ";", "|", " ")
ROLES = ("head", "relation", "tail", "weight")
MAX_SAMPLE_CELLS = 60_000  # cells of the first lines that are examined
FIRST_LINES = 50  # lines that the delimiter is detected from
MIN_QUOTED = 20  # lines of which all texts are in quotes, so that these are no part of names
COMMENTS = ("#", "%")  # lines that begin so before the first edge are comments, or the header


@dataclass(frozen=True)
class TableLayout:
    """The layout of a text file: `header_lines` lines up to the end of the header, and `width` columns.

    `columns` are the indices of the columns of names and then of the weights, if any, and `weight_names` the names of
    several weights. `roles` are what the columns hold, of which the last is a number and the others are names. Names
    may be empty in a query (`allows_empty_names`), and weights may be missing if `missing_weight` says what to do.
    Several blanks are one delimiter if `blanks_repeat`, and blanks after a delimiter are no part of the cell if
    `blanks_follow`. If `colons`, '::' stands in the file instead of the delimiter.
    """

    delimiter: str
    header_lines: int
    width: int
    columns: tuple[int, ...]
    weight_names: tuple[str, ...] = ()
    roles: tuple[str, ...] = ROLES
    allows_empty_names: bool = False
    quoted: bool = True
    blanks_repeat: bool = False
    blanks_follow: bool = False
    missing_weight: float | str | None = None
    json_weight: bool = False
    decimal_comma: bool = False
    colons: bool = False

    @property
    def allows_missing(self) -> bool:
        """Whether a number may be missing."""
        return bool(self.weight_names) or "weight" not in self.roles or self.missing_weight is not None


def quoting(quoted: bool) -> Literal[0, 3]:
    """Return the csv module's quoting rule: whether quotes delimit fields, or are part of names."""
    return csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE


@dataclass(frozen=True)
class FirstRows:
    """The first rows of a text file, and how they are cut into cells.

    `ends` are the numbers of lines up to the end of each row, and `skipped` of those before the first one. `heading`
    are the cells of a comment above the columns, and `count` is the number of triples that a first line gives.
    """

    rows: list[list[str]]
    ends: list[int]
    skipped: int
    delimiter: str
    quoted: bool = True
    blanks_repeat: bool = False
    blanks_follow: bool = False
    heading: list[str] | None = None
    count: int | None = None
    decimal_comma: bool = False
    colons: bool = False


def first_rows(sample: str, where: str, delimiter: str | None = None, roles: Sequence[str] = ROLES) -> FirstRows:
    """Return the rows of a text that begins with `sample` (complete lines), and how it is cut into cells."""
    # str.splitlines is not used, because it splits at U+2028 and other characters that names may contain.
    lines = list(io.StringIO(sample, newline=""))
    start = next((number for number, line in enumerate(lines) if line.strip("\r\n")), None)
    if start is None:
        raise FocuseError(f"{where}: the file is empty; expected lines of {join_words(roles)}")
    if roles == ROLES:
        _refuse_other_format(lines[start], where)
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'):
        raise FocuseError(f"delimiter {delimiter!r} is not a single character such as a tab, ',' or ';'")
    body = start
    while roles == ROLES and body < len(lines) and (lines[body].startswith(COMMENTS) or not lines[body].strip()):
        body += 1
    comments = [line for line in lines[start:body] if line.strip() and not KONECT.match(line)]
    if body == len(lines):  # of a file whose lines all begin with '#', none is a comment
        body, comments = start, []
    if roles == ROLES and re.fullmatch(r"sep=.\s*", lines[body], re.IGNORECASE) and body + 1 < len(lines):
        delimiter, body = lines[body][4], body + 1  # Excel
    count = None
    if roles == ROLES and lines[body].strip().isdecimal() and body + 1 < len(lines):
        count, body = int(lines[body]), body + 1
    some = lines[body : body + FIRST_LINES]
    colons = delimiter is None and roles == ROLES and _cut_by_colons(some)
    if colons:
        lines = [line.replace("::", "\t") for line in lines]
        some = lines[body : body + FIRST_LINES]
    mark, repeat = (delimiter, False) if delimiter else _detect_delimiter(some, where, roles, body)
    quoted = mark != "\t" or _all_quoted(some)
    rows, ends = _cut(lines[body:], mark, quoted, repeat)
    comma = mark != "," and roles == ROLES and _replace_decimal_commas(rows)
    heading = None
    if comments:
        wide = [row for row in _cut(comments, mark, quoted, repeat)[0] if len(row) == len(rows[0])]
        bare = _cut([line.lstrip("#% ") for line in comments], mark, quoted, repeat)[0]
        last = next((row for row in reversed(bare) if len(row) == len(rows[0])), None)
        heading = last if last is not None and _is_heading(last, rows) else None
        others = [row for row in wide if heading is None or [row[0].lstrip("#% "), *row[1:]] != heading]
        if any(row[0] not in COMMENTS or mark != " " for row in others):
            body, heading = start, None  # there are edges whose head begins with '#'
            rows, ends = _cut(lines[body:], mark, quoted, repeat)
            comma = comma and _replace_decimal_commas(rows)
    follow = mark != " " and all(_blanks_follow(row) for row in rows)
    if follow:
        rows = [[cell.strip(" ") for cell in row] for row in rows]
    ends = [body + end for end in ends]
    return FirstRows(rows, ends, body, mark, quoted, repeat, follow, heading, count, comma, colons)


NETWORKX = "focuse.read(networkx.{}(file))"
RENAME_JSON = "it a name that ends with .json or .jsonl"
KONECT = re.compile(r"% (sym|asym|bip) \w+")  # the first line of a file of KONECT: not a header
OTHER_FORMATS = {
    r"%%MatrixMarket": ("a matrix in Matrix Market format", "it a name that ends with .mtx"),
    r"\s*(\[\s*)?\{\s*(\"[^\t]*)?$": ("JSON", RENAME_JSON),
    r"\s*\[\s*(\[\s*[\"0-9-][^\t]*)?$": ("JSON", RENAME_JSON),
    r"\*(vertices|network)\b": ("a graph in Pajek format", NETWORKX.format("read_pajek")),
    r"(Creator\b.*|graph\s*\[?)\s*$": ("a graph in GML", NETWORKX.format("read_gml")),
    r"\S+[\t, ]\S+[\t, ]\{('.*)?\}\s*$": ("edges with data, as NetworkX writes them", NETWORKX.format("read_edgelist")),
}


def _refuse_other_format(first: str, where: str) -> None:
    """Raise FocuseError if the first line is one of a format that another library reads."""
    for pattern, (kind, advice) in OTHER_FORMATS.items():
        if re.match(pattern, first, re.IGNORECASE):
            raise FocuseError(f"{where}: {kind}; give {advice}")


def _cut(lines: Sequence[str], delimiter: str, quoted: bool, repeat: bool) -> tuple[list[list[str]], list[int]]:
    """Cut lines into rows of cells, at most MAX_SAMPLE_CELLS, with the number of lines up to the end of each row."""
    lines = [" ".join(_words(line)) for line in lines] if repeat else lines
    reader = csv.reader(lines, delimiter=delimiter, quoting=quoting(quoted))
    rows: list[list[str]] = []
    ends, cells = [], 0
    for row in reader:
        if row:
            rows.append(row)
            ends.append(reader.line_num)
            cells += len(row)
        if cells > MAX_SAMPLE_CELLS:
            break
    return rows, ends


def _words(line: str) -> list[str]:
    """Return the parts of a line between blanks; a no-break space is part of a name."""
    return re.split(" +", line.strip(" \r\n"))


def _cut_by_colons(lines: Sequence[str]) -> bool:
    """Return whether '::' is the only delimiter of these lines, as in tables of ratings by MovieLens."""
    text = "".join(lines)
    return all(line.count("::") > 1 for line in lines if line.strip()) and not any(mark in text for mark in DELIMITERS)


def _replace_decimal_commas(rows: list[list[str]]) -> bool:
    """Replace decimal commas by points in columns of numbers; return whether there are any.

    A column of numbers like 1,200 may also have thousands, so that it is not changed.
    """
    found, wide = False, [row for row in rows if len(row) == len(rows[0])]
    for index in range(len(rows[0])):
        cells = {row[index] for row in wide[1:] or wide} - {*MISSING_WEIGHTS}
        commas = {cell for cell in cells if DECIMAL_COMMA.fullmatch(cell)}
        others = all(PLAIN_NUMBER.fullmatch(cell) and "." not in cell for cell in cells - commas)
        if commas and others and not all(THOUSANDS.fullmatch(cell) or "." in cell for cell in commas):
            found = True
            for row in wide:
                row[index] = row[index].replace(",", ".") if DECIMAL_COMMA.fullmatch(row[index]) else row[index]
    return found


def _is_heading(first: list[str], rows: list[list[str]]) -> bool:
    """Return whether a line is the header of rows with as many cells."""
    same = [row for row in rows if len(row) == len(first)]
    return bool(same or not rows) and is_header(first, [[row[index] for row in same] for index in range(len(first))])


def _blanks_follow(row: list[str]) -> bool:
    """Return whether every cell after the first begins with a blank or is empty."""
    return all(not cell or cell[0] == " " for cell in row[1:]) and any(row[1:])


def _all_quoted(lines: Sequence[str]) -> bool:
    """Return whether lines cut by tabs are a header in quotes, and rows whose texts are in quotes, as R writes them."""
    table = [[cell.strip("\r\n") for cell in line.split("\t")] for line in lines if line.strip()]
    first, rows = table[0] if table else [], table[1:]
    cells = (cell for row in rows for cell in row)
    texts = [cell for cell in cells if cell and not re.fullmatch(PLAIN_NUMBER, cell) and cell not in MISSING_WEIGHTS]
    if not texts or not all(len(cell) > 2 and cell[0] == cell[-1] == '"' for cell in texts):
        return False
    if len(table) >= MIN_QUOTED and len(set(texts)) > 2:
        return True  # there may be no header
    in_quotes = all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in first)
    return in_quotes and _is_heading([cell.strip('"') for cell in first], rows)


def detect_layout(
    sample: str,
    where: str,
    delimiter: str | None = None,
    header: bool | None = None,
    asked: Asked | None = None,
    missing_weight: float | str | None = None,
) -> tuple[TableLayout, Roles, TableSample]:
    """Detect the layout of a text that begins with `sample` (complete lines), and what its columns hold."""
    asked, found = asked or Asked(), first_rows(sample, where, delimiter)
    first, headings, is_first = found.rows[0], found.heading, False
    if len(found.rows) > 1 and all(len(row) == len(first) + 1 for row in found.rows[1:]) and header is not False:
        row_names = {row[0] for row in found.rows[1:]}
        if all(not row[-1] for row in found.rows[1:]):
            first = found.rows[0] = [*first, ""]  # all lines but the first end with a delimiter
        elif len(row_names) == len(found.rows) - 1:
            first = found.rows[0] = ["", *first]  # R writes the names of rows in a first column without a heading
    if headings is None and header is not False:
        is_first = header is True or names_headings(asked) or _is_heading(first, found.rows[1:])
        headings = first if is_first else None
    elif header is False:
        headings = None
    width = len(first)
    names = [""] * width if headings is None else [cell.strip() for cell in headings]
    rows = [row for row in found.rows[is_first:] if len(row) == width]
    columns = [ColumnSample(name, [row[index] for row in rows]) for index, name in enumerate(names)]
    table = TableSample(columns, headings is not None, where, f", line {found.ends[0]}", found.count)
    konect = KONECT.match(sample) if asked.same_ids is None else None
    roles = choose_roles(table, replace(asked, same_ids=konect[1] != "bip") if konect else asked)
    if konect:
        note = (
            "are the same entity (--separate-ids keeps them apart)"
            if roles.kinds is None
            else "are kept apart (--same-ids)"
        )
        roles = replace(roles, note=f"{roles.note}; equal numbers in both columns {note}, as line 1 says")
    layout = TableLayout(
        found.delimiter,
        found.ends[0] if is_first else found.skipped,
        width,
        (*roles.names, *roles.weights),
        weight_column_names(None if headings is None else names, roles.weights),
        ROLES if roles.relation is not None else ("head", "tail", "weight"),
        quoted=found.quoted,
        blanks_repeat=found.blanks_repeat,
        blanks_follow=found.blanks_follow,
        missing_weight=missing_weight,
        json_weight=roles.json,
        decimal_comma=found.decimal_comma,
        colons=found.colons,
    )
    if found.decimal_comma and roles.weights:
        note = "commas in numbers are decimal points"
        roles = replace(roles, note=f"{note}; {roles.note}" if roles.note else note)
    return layout, roles, table


def names_headings(asked: Asked) -> bool:
    """Return whether the user names columns by headings, so that there is a header."""
    given = [
        *(asked.columns or ()),
        *(asked.weight_columns or ()),
        asked.head,
        asked.relation,
        asked.tail,
        asked.weight,
    ]
    return any(isinstance(name, str) and not name.isdecimal() and name != NONE for name in given)


def join_words(words: Sequence[str]) -> str:
    """Join words by commas and a final "and".

    >>> join_words(ROLES)
    'head, relation, tail and weight'
    """
    return f"{', '.join(words[:-1])} and {words[-1]}"


def weight_column_names(headings: Sequence[str] | None, weights: Sequence[int]) -> tuple[str, ...]:
    """Return the names of several weight columns: their headings, else w1, w2, …; none for a single column."""
    if len(weights) <= 1:
        return ()
    if headings is None:
        return tuple(f"w{number}" for number in range(1, len(weights) + 1))
    return tuple(headings[index] or str(index + 1) for index in weights)


def _detect_delimiter(lines: list[str], where: str, roles: Sequence[str], skipped: int) -> tuple[str, bool]:
    """Return the delimiter that cuts most of the first lines into as many fields as the very first, at least 2 or 3.

    The second result is whether several blanks count as one.
    """
    best: tuple[int, bool, str] = 0, False, ""
    has_tabs = any("\t" in line for line in lines)  # then a space is part of a name
    for candidate in (mark for mark in DELIMITERS if mark != " " or not has_tabs):
        if candidate == " " and best[2] and best[0] == len(lines):
            break  # blanks are part of names where another delimiter is in every line
        widths = [len(row) for row in csv.reader(lines, delimiter=candidate, quoting=quoting(candidate != "\t"))]
        agree, usual = widths.count(widths[0]), widths[0] >= min(len(roles), 3)
        if (usual or ("tail" in roles and widths[0] == 2)) and (agree, usual) > best[:2]:
            best = agree, usual, candidate
    words = [_words(line) for line in lines if line.strip()]
    if best[2] in ("", " ") and not has_tabs and len({len(row) for row in words}) == 1 and len(words[0]) > 1:
        if best[0] < len(words) or len(words[0]) < len(lines[0].split(" ")):
            return " ", True
        if not best[1] and not all(word.isdecimal() for row in words for word in row):
            best = 0, False, ""  # names of two words are no edges
    if not best[2]:
        raise FocuseError(
            f"{where}, line {skipped + 1}: found no tab, comma, semicolon, bar or space that cuts it into "
            f"{'3 or 4' if len(roles) == 4 else len(roles)} columns: {lines[0].rstrip()[:60]!r}; expected "
            f"{', '.join(roles)}"
        )
    return best[2], False


def columns_by_heading(first: list[str], headings: Mapping[str, set[str]]) -> dict[str, int]:
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
    first: list[str], header: bool, roles: Sequence[str], headings: Mapping[str, set[str]]
) -> dict[str, int]:
    """Return a column for each role: those with a known heading, the others in order; empty if that is ambiguous."""
    by_heading = columns_by_heading(first, headings) if header else {}
    rest = [index for index in range(len(first)) if index not in by_heading.values()]
    unnamed = [role for role in roles if role not in by_heading]
    if unnamed and len(unnamed) != len(rest):
        return {}
    return by_heading | dict(zip(unnamed, rest, strict=False))


# ---- faulty lines ---------------------------------------------------------------------------------------------------

NOT_A_NUMBER = "is not a number; correct it"
# This matches the numbers that Arrow reads; Python's float also accepts 1_000, other digits and unusual spaces.
PLAIN_NUMBER = re.compile(r"[ \t]*[-+.eE0-9]+[ \t]*")
THOUSANDS = re.compile(r"[ \t]*[-+]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]*)?[ \t]*")
DECIMAL_COMMA = re.compile(r"[ \t]*[-+]?[0-9.]+,[0-9]+[ \t]*")
HEADER_ADVICE = ", or say that line 1 is a header (--header), or which column is the weight (--weight)"
MISSING_ADVICE = ", or say what such edges weigh: --missing-weight 1, or drop (missing_weight in Python)"
MAX_SHOWN = 60  # characters of a faulty weight that a message shows


def first_fault(stream: BinaryIO, layout: TableLayout, where: str) -> FocuseError | None:
    """Return the error of the first line of `stream` that does not fit the layout, None if all lines do."""
    # Bytes that are not UTF-8 become lone surrogates, so that the reader goes on and the line number is known.
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    rows = csv.reader(text, delimiter=layout.delimiter, quoting=quoting(layout.quoted))
    line = 1
    try:
        for row in rows:
            if row and line > layout.header_lines:
                fault = row_fault(row, layout)
                if fault and line == 1 and fault.endswith(NOT_A_NUMBER):
                    fault += (
                        HEADER_ADVICE if "tail" in layout.roles else f", or head the columns {', '.join(layout.roles)}"
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
            missing = field.strip(" \t") in MISSING_WEIGHTS
            field = field.replace(",", ".") if layout.decimal_comma and DECIMAL_COMMA.fullmatch(field) else field
            if layout.json_weight:
                last = re.search(r'"weight": ?([^,{}"]*)\}$', field)
                field = last[1].strip() if last else ""
            fault = "" if layout.allows_missing and missing else weight_fault(field, number)
            if layout.decimal_comma and "." in row[index] and not fault:
                fault = f"the {role} {field!r} has a decimal point, and others a decimal comma; write all with a point"
            if fault:
                return fault + (MISSING_ADVICE if missing and number == "weight" else "")
        elif layout.blanks_follow and field.lstrip(" ").startswith('"'):
            return f"the {role} has a blank before its quotes; remove blanks after delimiters"
        elif not field and not layout.allows_empty_names:
            return f"the {role} is empty; give it a name or remove the line"
    return (
        ALL_WEIGHTS_MISSING
        if several
        and all(row[index].strip(" \t") in MISSING_WEIGHTS for index in layout.columns[len(layout.roles) - 1 :])
        else ""
    )


def weight_fault(field: object, role: str = "weight") -> str:
    """Return what is wrong with a weight (or another number, named by `role`); empty if it is a finite number."""
    text = str(field)
    shown = repr(text[:MAX_SHOWN])
    advice = "give it a number or remove the line"
    try:
        value = float(text)
    except ValueError:
        if text.strip(" \t") in MISSING_WEIGHTS:
            return f"the {role} is {f'missing ({shown})' if text.strip() else 'empty'}; {advice}"
        if THOUSANDS.fullmatch(text):
            return f"the {role} {shown} has a comma; write a decimal point, and thousands without a separator"
        if DECIMAL_COMMA.fullmatch(text):
            return f"the {role} {shown} has a decimal comma; write it with a point"
        return f"the {role} {shown} {NOT_A_NUMBER}"
    if math.isfinite(value) and not PLAIN_NUMBER.fullmatch(text):
        return f"the {role} {shown} {NOT_A_NUMBER}"
    if not math.isfinite(value):
        return f"the {role} {shown} is not finite; {advice}"
    return ""
