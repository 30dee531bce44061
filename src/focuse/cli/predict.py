"""`focuse predict`: what is missing from a half-known triple, or from each of many in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.output import Json
from focuse.cli.results import Device, LinksOut, RunFolder, check_out, opened, show
from focuse.errors import FocuseError

NAME = "predict"
SHORT = "Complete a triple."


def command(
    run: Annotated[Path, RunFolder],
    head: Annotated[str | None, typer.Option(help="Name of the head.")] = None,
    relation: Annotated[str | None, typer.Option(help="Name of the relation.")] = None,
    tail: Annotated[str | None, typer.Option(help="Name of the tail.")] = None,
    queries: Annotated[
        Path | None, typer.Option(help="File of head, relation, tail with one of them empty or '?' on each line.")
    ] = None,
    top: Annotated[int, typer.Option(help="How many to show.")] = 10,
    new_only: Annotated[bool, typer.Option("--new", help="Leave out known facts.")] = False,
    among: Annotated[Path | None, typer.Option(help="With --queries: file of entities that may be answers.")] = None,
    scores_only: Annotated[
        bool, typer.Option("--scores-only", help="With --queries: no weights and probabilities; much faster.")
    ] = False,
    out: Annotated[Path | None, LinksOut] = None,
    device: Annotated[str, Device] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Rank the tails, heads or relations that complete a triple, known facts marked.

    Give two of --head, --relation and --tail; the third is ranked. With all three, the triple's own place among
    the tails is shown. --queries asks everything that a file holds.
    """
    from focuse.inference.discovery.scope import named

    check_out(out, links=True, inputs=(queries, among))
    if queries is None:
        if among is not None or scores_only:
            raise FocuseError("--among and --scores-only go with --queries FILE")
        show(opened(run, device).predict(head, relation, tail, top, new_only), out, as_json, "predictions")
        return
    if (head, relation, tail) != (None, None, None):
        raise FocuseError("--queries asks what the file holds; leave --head, --relation and --tail out")
    made = opened(run, device)
    found = made.predict_many(queries, top, new_only, among=named(None, among), weights=not scores_only, progress=True)
    show(found, out, as_json, "answers")
    if found.stopped:
        raise typer.Exit(130)
