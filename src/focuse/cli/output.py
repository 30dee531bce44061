"""Printing results: text for people, JSON for programs."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, TextIO

import typer

from focuse.errors import TERMINAL_CODES, escape_terminal_codes

Json = typer.Option("--json", help="Print one JSON object instead of text.")


def emit(data: dict[str, Any], text: str, as_json: bool) -> None:
    """Print `data` as JSON or `text` as it is; what a terminal would obey is shown, in JSON as JSON writes it.

    Of several processes the first speaks.
    """
    if not speaks():
        return
    if as_json:
        made = json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False)
        text = TERMINAL_CODES.sub(lambda found: f"\\u{ord(found[0]):04x}", made)
    typer.echo(escape_terminal_codes(text))


def next_line(model: str, *words: str) -> str:
    """What to type next about a run of `model`: a class of the user's own is trusted anew by every command.

    >>> next_line("complex", "evaluate", "runs/careers")
    'next: focuse evaluate runs/careers'
    >>> next_line("mine.models:Stretch", "evaluate", "runs/stretch")
    'next: focuse --trust mine.models evaluate runs/stretch'
    """
    from focuse.models.registry import trust_option

    typed = ["focuse", *trust_option(model).split(), *words]
    return f"next: {subprocess.list2cmdline(typed) if os.name == 'nt' else shlex.join(typed)}"


def speaks() -> bool:
    """Whether this process is the one to speak: of several that torchrun has started, the first."""
    return os.environ.get("RANK", "0") == "0" or "WORLD_SIZE" not in os.environ


def alone_to_say(text: str) -> bool:
    """Whether this process is to say what several that torchrun has started may all come to."""
    if "WORLD_SIZE" not in os.environ:
        return True
    from focuse.engines.process_group import is_first_to_report

    return is_first_to_report(text)


def warn(text: str) -> None:
    """One line on stderr; on a terminal its beginning is red."""
    name = "\x1b[1;31mfocuse:\x1b[0m" if in_colour(sys.stderr) else "focuse:"
    print(f"{name} {escape_terminal_codes(text)}", file=sys.stderr)


def in_colour(stream: TextIO) -> bool:
    """Only on terminals that can, and where nobody said NO_COLOR; FORCE_COLOR says it of pipes, too."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    # Old consoles of Windows print the codes; its Terminal says its name.
    able = os.environ.get("TERM") != "dumb" and (sys.platform != "win32" or "WT_SESSION" in os.environ)
    return able and stream.isatty()


def any_letter() -> None:
    """Let stdout and stderr carry every letter: a pipe on Windows and some terminals have none of Greek."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8" if sys.platform == "win32" and not stream.isatty() else None)
            stream.reconfigure(errors="backslashreplace")


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
