"""`focuse duplicates`: entities that may be one and the same."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.output import Json
from focuse.cli.results import Device, Out, RunFolder, check_out, show

NAME = "duplicates"
SHORT = "Entities that may be one and the same."


def command(
    run: Annotated[Path, RunFolder],
    similarity: Annotated[
        float | None, typer.Option(help="Least cosine of two embeddings [default: far above chance].")
    ] = None,
    overlap: Annotated[
        float | None, typer.Option(help="Least share of edges in common, by weight [default: far above chance].")
    ] = None,
    top: Annotated[int, typer.Option(help="How many pairs at most.")] = 100,
    names: Annotated[bool, typer.Option("--names", help="Also show how alike the names are.")] = False,
    out: Annotated[Path | None, Out] = None,
    device: Annotated[str, Device] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Show pairs of entities whose embeddings nearly coincide and whose edges are nearly the same."""
    from focuse.run import load

    check_out(out)
    found = load(run, device).duplicates(similarity, overlap, top, compare_names=names)
    show(found, out, as_json, "pairs")
