"""Printing results: text for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer

Json = typer.Option("--json", help="Print one JSON object instead of text.")


def emit(data: dict[str, Any], text: str, as_json: bool) -> None:
    """Print `data` as JSON or `text` as it is."""
    typer.echo(json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False) if as_json else text)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text; the first is left-aligned, numbers right.

    >>> print(table(["name", "n"], [["a", "1"], ["bb", "22"]]))
    name   n
    a      1
    bb    22
    """
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    lines = []
    for row in [headings, *rows]:
        cells = [
            f"{cell:{width}}" if i == 0 else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


SHADES = " ▁▂▃▄▅▆▇█"


def bars(counts: Sequence[int]) -> str:
    """Counts as a row of little bars.

    >>> bars([0, 1, 4])
    ' ▂█'
    """
    top = max(counts) or 1
    return "".join(SHADES[-(-count * (len(SHADES) - 1) // top)] for count in counts)
