"""`focuse evaluate`: how well a run ranks held-out triples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.files import Layout
from focuse.cli.output import Json, emit

NAME = "evaluate"
SHORT = "Rank held-out triples."


def command(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    test: Annotated[Path | None, typer.Argument(help="Test triples [default: the run's own].")] = None,
    ties: Annotated[str, typer.Option(help="Rank among equal scores: worst, mean or best.")] = "worst",
    protocol: Annotated[
        str, typer.Option(help="sides: each side ranked by itself; joint: both sides as one list.")
    ] = "sides",
    raw: Annotated[bool, typer.Option("--raw", help="Do not leave known facts out of the rivals.")] = False,
    columns: Annotated[str | None, typer.Option(help="Columns of TEST to use, by heading or counted from 1.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Separator of TEST.")] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether line 1 of TEST is a header.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Rank every test triple against all entities, on both sides.

    Prints MR, MRR and Hits of all triples, of the heaviest and the lightest tenth, and weighted by w; ΔMRR is top
    minus bottom, ΔM the distance of their median scores.
    """
    from focuse.run import load

    graph = None if test is None else Layout(columns, delimiter, header).read(test)
    result = load(run, device).evaluate(graph, ties=ties, protocol=protocol, filtered=not raw)
    emit(result.to_dict(), str(result), as_json)
