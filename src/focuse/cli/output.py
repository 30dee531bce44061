"""Print results: text for people, JSON for programs, or a file of all rows."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from focuse.errors import TERMINAL_CODES, counted, escape_terminal_codes

if TYPE_CHECKING:
    from focuse.api import Run
    from focuse.results import ResultTable

ROWS_WITH_OUT = 10  # printed rows of a table that is written to a file
LARGE_GRAPH = 20_000  # training edges from which fitting takes so long that it is announced, also into a file


def emit(data: dict[str, Any], text: str, as_json: bool) -> None:
    """Print `data` as JSON or `text`, with terminal codes escaped; of several processes only the first prints."""
    if not is_main_process():
        return
    if as_json:
        made = json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False)
        text = TERMINAL_CODES.sub(lambda found: f"\\u{ord(found[0]):04x}", made)
    typer.echo(escape_terminal_codes(text))


def show(table: ResultTable, out: Path | None, as_json: bool, rows: str, summary: ResultTable | None = None) -> None:
    """Print a table, or its `summary`; with `out`, write all rows to a file and print the first ones only.

    After a Ctrl-C, the table has the answers so far, and the exit code is 130.
    """
    printed = table if summary is None else summary
    if out is None:
        emit(table.to_json() if as_json else {}, str(printed), as_json)
    else:
        table.write(out)
        data = {"out": str(out), "written": len(table), **table.info_to_json()}
        emit(data, f"{printed.to_text(ROWS_WITH_OUT)}\n{counted(len(table), rows)} written to {out}", as_json)
    if table.info.get("stopped"):
        raise typer.Exit(130)


def check_out(out: Path | None, links: bool = False, inputs: Sequence[str | Path | None] = ()) -> None:
    """Raise FocuseError before any work if `out` cannot be written or is one of the `inputs`; `links` may be RDF."""
    if out is not None:
        from focuse.results import check_table_path
        from focuse.storage.atomic import check_writable

        check_writable(check_table_path(out, links), *inputs)


def opened(folder: Path, device: str) -> Run:
    """Load a run that announces on stderr when it has to fit something first, which takes long on a large graph."""
    from focuse.api import load

    run = load(folder, device)

    def announce() -> None:
        if len(run.graph) >= LARGE_GRAPH or sys.stderr.isatty():
            print("Fitting the weight estimator (once per run) …", file=sys.stderr, flush=True)

    run.fitted.before_fitting = announce
    return run


def next_line(model: str, *words: str) -> str:
    """Return the suggestion of a next command on a run; a custom model must be trusted by every command.

    >>> next_line("complex", "evaluate", "runs/careers")
    'next: focuse evaluate runs/careers'
    >>> next_line("mine.models:Stretch", "evaluate", "runs/stretch")
    'next: focuse --trust mine.models evaluate runs/stretch'
    """
    from focuse.models.registry import trust_option

    typed = ["focuse", *trust_option(model).split(), *words]
    return f"next: {subprocess.list2cmdline(typed) if os.name == 'nt' else shlex.join(typed)}"


def is_main_process() -> bool:
    """Return whether this is the only process, or the first of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0" or "WORLD_SIZE" not in os.environ


def warn(text: str) -> None:
    """Print one line to stderr; on a terminal with colors its beginning is red."""
    from rich.console import Console
    from rich.text import Text

    line = Text.assemble(("focuse:", "bold red"), " ", escape_terminal_codes(text))
    Console(stderr=True, soft_wrap=True, highlight=False).print(line)


def print_any_character() -> None:
    """Let stdout and stderr print every character: a pipe on Windows and some terminals lack Greek letters."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8" if sys.platform == "win32" and not stream.isatty() else None)
            stream.reconfigure(errors="backslashreplace")
