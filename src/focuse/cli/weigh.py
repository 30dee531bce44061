"""`focuse weigh`: what the triples of a file would weigh."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.files import Layout, Query
from focuse.cli.output import Json, emit
from focuse.cli.results import check_out, opened
from focuse.errors import counted

NAME = "weigh"
SHORT = "Weights, intervals and probabilities of given triples."


def command(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    triples: Annotated[str, typer.Argument(help="Candidate triples, with or without weights.")],
    coverage: Annotated[float, typer.Option(help="The share of weights that intervals hold.")] = 0.9,
    column: Annotated[
        str | None, typer.Option(help="One of the run's weight columns [default: its weight, or all columns merged].")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write all rows here (.tsv, .csv, .parquet; RDF: .ttl, .nt, .nq, .trig).")
    ] = None,
    query: Query = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns of the file to use, by heading or counted from 1.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Separator of the file.")] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether line 1 of it is a header.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Say of each triple what it would weigh if it is a fact, within which bounds, and how probable it is.

    The first question to a run fits what is needed (about a minute for 200,000 edges) and stores it there.
    """

    check_out(out, links=True, inputs=(triples,))
    graph = Layout(columns, delimiter, header, query=query).read(triples)
    found = opened(run, device).weights(graph, coverage=coverage, column=column)
    if out is not None:
        found.write(out)
        text = "\n".join([f"{counted(len(found), 'triples')} written to {out}", *found.notes])
        emit({"out": str(out), "triples": len(found), "coverage": coverage, "notes": list(found.notes)}, text, as_json)
        return
    emit(found.to_dict(), str(found), as_json)
