"""Tables as files: CSV, TSV or JSON, a piece at a time."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal
from urllib.parse import quote

Format = Literal["csv", "tsv", "json"]
TYPES = {"csv": "text/csv", "tsv": "text/tab-separated-values", "json": "application/json"}
FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # what a spreadsheet may take for the start of a formula
AT_ONCE = 500  # rows a piece


def safe(cell: Any) -> Any:
    """A cell that no spreadsheet runs: an apostrophe before a name that begins as a formula does. Numbers stay.

    >>> safe("=1+1"), safe("plain"), safe(-0.5), safe(None)
    ("'=1+1", 'plain', -0.5, '')
    """
    if cell is None:
        return ""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def write(columns: list[str], rows: Iterable[Mapping[str, Any]], form: Format) -> Iterator[str]:
    """The file in pieces; JSON is a list of objects, the others have a heading and quote where they must."""
    if form == "json":
        yield from _json(columns, rows)
        return
    text = io.StringIO()
    writer = csv.writer(text, delimiter="," if form == "csv" else "\t", lineterminator="\r\n")
    writer.writerow(columns)
    for count, row in enumerate(rows, 1):
        writer.writerow([safe(row.get(column)) for column in columns])
        if count % AT_ONCE == 0:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()


def _json(columns: list[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    before, made = "[\n", []
    for count, row in enumerate(rows, 1):
        made += [
            before,
            json.dumps({column: row.get(column) for column in columns}, ensure_ascii=False, allow_nan=False),
        ]
        before = ",\n"
        if count % AT_ONCE == 0:
            yield "".join(made)
            made = []
    yield "".join([*made, "[" if before.startswith("[") else "", "\n]\n"])


def disposition(words: Iterable[str], form: Format) -> str:
    """The header that names the file; whatever a name holds, only letters, digits and dashes reach the file's.

    >>> disposition(["missing", 'a"/../b'], "csv")
    'attachment; filename="focuse-missing-a-b.csv"; filename*=UTF-8\\'\\'focuse-missing-a-b.csv'
    """
    name = "-".join(part for word in words for part in re.findall(r"\w+", word))[:80]
    plain = re.sub("-+", "-", re.sub(r"[^A-Za-z0-9_-]", "-", name)).strip("-")
    whole = quote(f"focuse-{name}.{form}", safe="")
    return f"attachment; filename=\"focuse-{plain}.{form}\"; filename*=UTF-8''{whole}"
