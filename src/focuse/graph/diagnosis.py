"""Finding the line that a fast reader stumbled over.

The fast reader knows that something is wrong, seldom where. So the file is read once more, slowly and line
by line, until the first fault: that costs time only when there is something to report.
"""

from __future__ import annotations

import csv
import io
import math
import re
from typing import BinaryIO

import pyarrow as pa

from focuse.errors import FocuseError
from focuse.graph.columns import ALL_MISSING
from focuse.graph.layout import ROLES, Layout, listed, quoting

NOT_A_NUMBER = "is not a number; mend it"
# What Arrow reads; Python's float would also take 1_000, other scripts' digits and odd spaces.
PLAIN = re.compile(r"[ \t]*[-+.eE0-9]+[ \t]*")
THOUSANDS = re.compile(r"[ \t]*[-+]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]*)?[ \t]*")
DECIMAL_COMMA = re.compile(r"[ \t]*[-+]?[0-9.]+,[0-9]+[ \t]*")
MISSING = ("", "nan", "NaN", "NAN")  # of one of several weights
HEADER = ", or say that line 1 is a header (--header) or which columns to use (--columns)"
SHOWN = 60  # letters of a faulty weight that a message shows


def first_fault(stream: BinaryIO, layout: Layout, where: str) -> FocuseError | None:
    """The first line of `stream` that is not head, relation, tail, finite weight; None if all are."""
    # Bytes that are not UTF-8 become lone surrogates, so that the reader goes on and the line is known.
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    rows = csv.reader(text, delimiter=layout.delimiter, quoting=quoting(layout.delimiter))
    line = 1
    try:
        for row in rows:
            if row and line > layout.skip:
                fault = row_fault(row, layout)
                if fault and line == 1 and fault.endswith(NOT_A_NUMBER):
                    fault += HEADER if layout.roles == ROLES else f", or head the columns {', '.join(layout.roles)}"
                if fault:
                    return FocuseError(f"{where}, line {line}: {fault}")
            line = rows.line_num + 1
    except (csv.Error, pa.ArrowException, OSError, EOFError) as error:
        return FocuseError(f"{where}, line {line}: {error}")
    return None


def row_fault(row: list[str], layout: Layout) -> str:
    """What is wrong with one row, and what to do; empty if nothing is."""
    if len(row) != layout.width:
        return f"{len(row)} columns instead of {layout.width}; give every line {listed(layout.roles)}"
    several = len(layout.names) > 1
    number = layout.roles[-1]
    for role, place in zip([*layout.roles, *[number] * len(layout.names)], layout.places, strict=False):
        field = row[place]
        if not field.isascii() and any("\udc80" <= letter <= "\udcff" for letter in field):
            return f"the {role} is not UTF-8 text; save the file as UTF-8"
        if role == number:
            fault = "" if layout.may_miss and is_missing(field) else weight_fault(field, number)
            if fault:
                return fault
        elif not field:
            return f"the {role} is empty; give it a name or remove the line"
    return ALL_MISSING if several and all(is_missing(row[place]) for place in layout.places[3:]) else ""


def is_missing(field: str) -> bool:
    """Whether a field stands for a number that is not there: empty, or NaN."""
    return field in MISSING


def weight_fault(field: object, role: str = "weight") -> str:
    """What is wrong with one weight, or what else is to be a number; empty if it is a finite one."""
    text = str(field)
    shown = repr(text[:SHOWN])
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
    if math.isfinite(value) and not PLAIN.fullmatch(text):
        return f"the {role} {shown} {NOT_A_NUMBER}"
    if not math.isfinite(value):
        return f"the {role} {shown} is not finite; give it a number or remove the line"
    return ""
