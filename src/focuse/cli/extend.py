"""`focuse extend`: more edges for a run, new names among them, without starting over."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from focuse.cli.files import Layout
from focuse.cli.output import Json, emit
from focuse.errors import counted

NAME = "extend"
SHORT = "Add edges and new names to a run."


def command(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    edges: Annotated[Path | None, typer.Argument(metavar="NEW_EDGES", help="Edges to add.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write the new run to.")] = None,
    freeze: Annotated[bool, typer.Option("--freeze/--warm", help="Only new rows learn, or all rows train on.")] = True,
    epochs: Annotated[
        int | None,
        typer.Option(help="Looks at new edges [default: 50], or --warm's epochs [default: a fifth]."),
    ] = None,
    remove: Annotated[Path | None, typer.Option(help="Triples that are facts no longer.")] = None,
    duplicates: Annotated[
        str, typer.Option(help="What a triple of train weighs that comes again: last, max, mean or keep (both rows).")
    ] = "last",
    valid_share: Annotated[float, typer.Option(help="Share of the new edges to hold out for validation.")] = 0.0,
    test_share: Annotated[float, typer.Option(help="Share of the new edges to hold out for test.")] = 0.0,
    numbers: Annotated[Path | None, typer.Option(help="Numbers of new entities: entity, attribute, value.")] = None,
    columns: Annotated[str | None, typer.Option(help="Columns to use, by heading or counted from 1.")] = None,
    weight_columns: Annotated[str | None, typer.Option(help="Several columns of weights, by heading or place.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Separator of NEW_EDGES.")] = None,
    header: Annotated[bool | None, typer.Option("--header/--no-header", help="Whether line 1 is one.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Write a new run that knows more: entities and relations that training has never seen get rows from their edges.

    With --freeze, the default, all old rows keep their bits and only new ones learn, in seconds. With --warm all rows
    train on for a few epochs on old and new edges together. The old run stays as it is.
    """
    from focuse.errors import FocuseError
    from focuse.living import extend
    from focuse.training.checkpoints import Store

    if out is None:
        raise FocuseError("extend needs a folder for the new run: focuse extend RUN NEW_EDGES --out NEW_RUN")
    Store.free(out)  # before a long file is read
    Store.open(run)
    layout = Layout(columns, delimiter, header, weight_columns)
    given = None if edges is None else layout.read(edges)
    gone = None if remove is None else layout.read(remove)
    made = extend(
        run, given, out=out, frozen=freeze, epochs=epochs, remove=gone, duplicates=duplicates, valid_share=valid_share,
        test_share=test_share, numbers=numbers, progress=not quiet,
    )  # fmt: skip
    data = {"run": str(out), **made.extended[-1]}
    emit(data, _text(data), as_json)


def _text(data: dict[str, Any]) -> str:
    told = [f"{counted(data['added'], 'edges')} added"]
    told += [f"{data[name]:,} {name}" for name in ("updated", "removed") if data[name]]
    told += [f"{data[name]:,} held out for {name}" for name in ("valid", "test") if data[name]]
    news = f"{counted(data['entities'], 'new entities')}, {counted(data['relations'], 'new relations')}"
    rows = (
        "old rows as they were" if data["frozen"] else f"all rows trained for {counted(data['epochs'], 'more epochs')}"
    )
    return f"{data['run']}: {', '.join(told)}; {news}; {rows}"
