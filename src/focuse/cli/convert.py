"""`focuse convert`: a graph from any form that can be read to any that can be written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.files import Query, shown
from focuse.cli.output import Json, emit
from focuse.errors import FocuseError, counted

NAME = "convert"
SHORT = "A graph from one form to another."


def command(
    source: Annotated[str, typer.Argument(help="TSV, CSV, Parquet, RDF, GraphML, or a data base (with --query).")],
    target: Annotated[Path, typer.Argument(help="File: .tsv, .csv, .parquet, .nt, .nq, .ttl, .trig or .graphml.")],
    columns: Annotated[str | None, typer.Option(help="Columns to use, by heading or counted from 1.")] = None,
    weight_columns: Annotated[
        str | None, typer.Option(help="Several weight columns; of RDF and GraphML, the properties that are weights.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Separator of a text file.")] = None,
    header: Annotated[bool | None, typer.Option("--header/--no-header", help="Whether line 1 is a header.")] = None,
    query: Query = None,
    missing: Annotated[
        str | None, typer.Option(help="RDF, GraphML: the weight of facts without one, or drop [default: an error].")
    ] = None,
    literals: Annotated[str, typer.Option(help="RDF: skip facts with a literal, or keep it as an entity.")] = "skip",
    shorten: Annotated[bool, typer.Option("--shorten", help="RDF: keep the last part of IRIs alone.")] = False,
    base: Annotated[
        str | None, typer.Option(help="RDF: what names that are no IRIs are minted from [default: urn:focuse:].")
    ] = None,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Read a graph and write it in the form that the target's name asks for."""
    from focuse.graph import read
    from focuse.graph.iris import BASE
    from focuse.graph.writing import check_form

    check_form(target)
    if target.exists() and Path(source).exists() and target.samefile(source):
        raise FocuseError(f"{target}: that is the graph itself; choose another target")
    graph = read(
        source,
        columns=columns.split(",") if columns else None,
        weights=weight_columns.split(",") if weight_columns else None,
        delimiter=delimiter,
        header=header,
        query=query,
        missing=missing,
        literals=literals,
        shorten=shorten,
        base=base or BASE,
    )
    graph.write(target, base or BASE)
    data = {
        "source": shown(source),
        "target": str(target),
        "edges": len(graph),
        "entities": len(graph.entities),
        "relations": len(graph.relations),
        "weights": list(graph.columns.names) if graph.columns is not None else ["weight"] * graph.weighted,
        "notes": list(graph.notes),
    }
    text = f"{counted(len(graph), 'edges')} written to {target}"
    emit(data, "\n".join([text, *(f"note: {note}" for note in graph.notes)]), as_json)
