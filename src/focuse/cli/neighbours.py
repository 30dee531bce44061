"""`focuse neighbours`: entities whose embeddings are alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.output import Json
from focuse.cli.results import Device, Out, RunFolder, check_out, show

NAME = "neighbours"
SHORT = "Entities most like given ones."


def command(
    run: Annotated[Path, RunFolder],
    entity: Annotated[list[str], typer.Argument(help="Names of one or several entities.")],
    top: Annotated[int, typer.Option(help="How many of each.")] = 10,
    together: Annotated[bool, typer.Option("--together", help="What is like all of them, not each by itself.")] = False,
    between: Annotated[bool, typer.Option("--between", help="How like each other they are.")] = False,
    measure: Annotated[str, typer.Option(help="cosine, or euclidean (minus the distance).")] = "cosine",
    approximate: Annotated[
        bool, typer.Option("--approximate", help="Search an index kept in the run's folder (needs focuse[ann]).")
    ] = False,
    out: Annotated[Path | None, Out] = None,
    device: Annotated[str, Device] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Show the entities whose embeddings are most like those of given ones."""
    from focuse.run import load

    check_out(out)
    among = entity if between else None
    found = load(run, device).neighbours(
        entity, top, among=among, measure=measure, together=together, approximate=approximate
    )
    show(found, out, as_json, "neighbours")
