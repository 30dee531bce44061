"""What commands that return tables share: options, opening a run, and printing or writing a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from focuse.cli.output import emit
from focuse.errors import counted

if TYPE_CHECKING:
    from focuse.api import Run
    from focuse.results import ResultTable

RunFolder = typer.Argument(help="Run folder (train --out).")
Out = typer.Option(help="Write all rows to this file (.tsv, .csv, .parquet or .json).")
LinksOut = typer.Option(help="Write all rows to this file (.tsv, .csv, .parquet, .json; RDF: .ttl, .nt, .nq, .trig).")
Device = typer.Option(help="auto, cpu or cuda.")

ROWS_WITH_OUT = 10  # printed rows if all are written to a file
LARGE_GRAPH = 20_000  # training edges; fitting takes so long that it is reported, even if stderr is not a terminal
FITTING = "Fitting the weight estimator and probabilities (once per run) …"


def opened(folder: Path, device: str) -> Run:
    """Load a run that reports on stderr when it fits something, which takes minutes on a large graph."""
    from focuse.api import load

    run = load(folder, device)

    def report() -> None:
        if len(run.graph) >= LARGE_GRAPH or sys.stderr.isatty():
            print(FITTING, file=sys.stderr, flush=True)

    run.before_fitting = report
    return run


def check_out(out: Path | None, links: bool = False, inputs: Sequence[str | Path | None] = ()) -> None:
    """Raise FocuseError before any work if `out` cannot be written, or is one of the `inputs`."""
    if out is not None:
        from focuse.results import check_table_path
        from focuse.storage.atomic import refuse_overwrite

        refuse_overwrite(check_table_path(out, links), *inputs)


def show(table: ResultTable, out: Path | None, as_json: bool, rows: str, summary: ResultTable | None = None) -> None:
    """Print a table, or its `summary`; with `out`, write all rows to a file and print the first ones only."""
    printed = table if summary is None else summary
    if out is None:
        emit(table.to_json() if as_json else {}, str(printed), as_json)
        return
    table.write(out)
    written = f"{counted(len(table), rows)} written to {out}"
    data = {"out": str(out), "written": len(table), **table.info_to_json()}
    emit(data, f"{printed.to_text(ROWS_WITH_OUT)}\n{written}", as_json)
