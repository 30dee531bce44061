"""`focuse predict`: what is missing from a half-known triple."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.output import Json, emit

NAME = "predict"
SHORT = "Complete a triple."


def command(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    head: Annotated[str | None, typer.Option(help="Name of the head.")] = None,
    relation: Annotated[str | None, typer.Option(help="Name of the relation.")] = None,
    tail: Annotated[str | None, typer.Option(help="Name of the tail.")] = None,
    top: Annotated[int, typer.Option(help="How many to show.")] = 10,
    new_only: Annotated[bool, typer.Option("--new", help="Leave out known facts.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write them here instead (.tsv, .csv, .parquet; RDF: .ttl, .nt, .nq, .trig).")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Rank the tails, heads or relations that complete a triple, known facts marked.

    Give two of --head, --relation and --tail; the third is ranked. With all three, the triple's own place among
    the tails is shown.
    """
    from focuse.graph.links import SUFFIXES
    from focuse.inference.answers import check_target
    from focuse.run import load

    if out is not None:
        check_target(out, SUFFIXES)
    result = load(run, device).predict(head, relation, tail, top, new_only)
    if out is not None:
        result.write(out)
        emit({"out": str(out), "predictions": len(result)}, f"{len(result):,} predictions written to {out}", as_json)
        return
    emit(result.to_dict(), str(result), as_json)
