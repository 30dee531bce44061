"""`focuse report`: one HTML page on a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.files import Layout, Query
from focuse.cli.output import Json, emit

NAME = "report"
SHORT = "One HTML page on a run."


def command(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    test: Annotated[str | None, typer.Argument(help="Test triples [default: the run's own].")] = None,
    out: Annotated[Path | None, typer.Option(help="The page [default: RUN/report.html].")] = None,
    columns: Annotated[str | None, typer.Option(help="Columns of TEST to use, by heading or counted from 1.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Separator of TEST.")] = None,
    header: Annotated[bool | None, typer.Option("--header/--no-header", help="Whether line 1 of TEST is one.")] = None,
    drawn_by: Annotated[str, typer.Option("--map", help="Map of entities: tsne, umap, pca or none.")] = "tsne",
    query: Query = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Write one self-contained page that needs no network: an audit of the data, the training, ranks and predicted
    weights beside guesses without a model, calibration, relations one by one, new links, a map of the entities, and
    what it takes to repeat it. All its figures can be saved from it as JSON.
    """
    from focuse.run import load

    graph = None if test is None else Layout(columns, delimiter, header, query=query).read(test)
    target = run / "report.html" if out is None else out
    page = load(run, device).report(target, graph, map=drawn_by, progress=not quiet)
    emit({"report": str(page)}, f"report: {page}", as_json)
