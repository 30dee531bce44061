"""`focuse demo`: plain, FocusE and labels side by side on the embedded graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.output import Json, emit
from focuse.errors import FocuseError

NAME = "demo"
SHORT = "Plain and focused, side by side."


def command(
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Same seed, same bits on CPU.")] = 0,
    graph_only: Annotated[
        bool, typer.Option("--graph-only", help="Only write the embedded graph as OUT/careers.tsv and stop.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Train ComplEx plain, with FocusE and with labels on an embedded careers graph and compare; no download.

    Prints them side by side with ten predictions in words, and writes an HTML report.
    """
    from focuse.experiments.demo import careers, demo
    from focuse.training.settings import Settings

    Settings.of(seed=seed)  # before anything is written
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FocuseError(f"{out}: {error.strerror or error}; choose another --out") from None
    if graph_only:
        careers().write(out / "careers.tsv")
        emit({"graph": str(out / "careers.tsv")}, f"graph: {out / 'careers.tsv'}", as_json)
        return
    shown = demo(seed, progress=not quiet, say=lambda text: None if quiet else typer.echo(text, err=True))
    page = shown.write(out)
    emit({**shown.to_dict(), "report": str(page)}, f"{shown}\n\nreport: {page}", as_json)
