"""`focuse explain`: why a triple is predicted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.output import Json, emit
from focuse.cli.results import opened

NAME = "explain"
SHORT = "Say what a prediction rests on."


def command(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    head: Annotated[str, typer.Option(help="Name of the head.")],
    relation: Annotated[str, typer.Option(help="Name of the relation.")],
    tail: Annotated[str, typer.Option(help="Name of the tail.")],
    top: Annotated[int, typer.Option(help="How many facts of each kind to name.")] = 5,
    rules: Annotated[Path | None, typer.Option(help="A file of rules [default: rules mined from train].")] = None,
    out: Annotated[Path | None, typer.Option(help="Write a page (.html) or a picture (.svg).")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Name the known facts that a triple's score rests on, facts that are like it, and rules that imply it.

    The change beside a fact is how the score is estimated to change had the fact not been in train.
    """
    from focuse.inference.answers import check_target
    from focuse.reports.explanation import FORMS, write_explanation

    if out is not None:
        check_target(out, FORMS)
    found = opened(run, device).explain(head, relation, tail, top, rules=rules)
    if out is not None:
        write_explanation(found, out)
    written = {} if out is None else {"out": str(out)}
    emit(found.to_dict() | written, str(found) + (f"\n\nwritten to {out}" if out else ""), as_json)
