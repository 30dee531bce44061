"""What commands that find something share: a file of all rows, or a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import typer

from focuse.cli.output import emit
from focuse.errors import counted

if TYPE_CHECKING:
    from focuse.api import Run

RunFolder = typer.Argument(help="Folder that 'focuse train --out' made.")
Out = typer.Option(help="Write all rows here (.tsv, .csv or .parquet).")
LinksOut = typer.Option(help="Write all rows here (.tsv, .csv, .parquet; RDF: .ttl, .nt, .nq, .trig).")
Device = typer.Option(help="auto, cpu or cuda.")


MANY = 20_000  # training edges from which fitting takes long enough to be reported, also in a file
FITTING = "Fitting the weight estimator (once per run) …"


def opened(folder: Path, device: str) -> Run:
    """A run that says on stderr when it has to fit something first, which takes minutes on a large graph."""
    from focuse.api import load

    run = load(folder, device)

    def report() -> None:
        if len(run.graph) >= MANY or sys.stderr.isatty():
            print(FITTING, file=sys.stderr, flush=True)

    run.fitted.before_fitting = report
    return run


class Result(Protocol):
    """What can be shown, written and counted."""

    def __len__(self) -> int: ...

    def to_dict(self) -> dict[str, Any]: ...

    def write(self, path: str | Path) -> None: ...


def check_out(out: Path | None, links: bool = False, inputs: Sequence[str | Path | None] = ()) -> None:
    """Raise where nothing could be written, or over one of the `inputs`, before any work; `links` can be RDF too."""
    if out is not None:
        from focuse.data.writers import TABLE_SUFFIXES, link_suffixes
        from focuse.inference.answers import check_target
        from focuse.storage.atomic import refuse_overwrite

        refuse_overwrite(check_target(out, link_suffixes() if links else TABLE_SUFFIXES), *inputs)


def show(found: Result, out: Path | None, as_json: bool, rows: str = "rows", count: int | None = None) -> None:
    """Print what was found, or write it to a file and say so."""
    if out is None:
        emit(found.to_dict(), str(found), as_json)
        return
    found.write(out)
    many = len(found) if count is None else count
    notes = list(getattr(found, "notes", ()))
    data: dict[str, Any] = {"out": str(out), rows.replace(" ", "_"): many, "notes": notes}
    emit(data, "\n".join([f"{counted(many, rows)} written to {out}", *notes]), as_json)
