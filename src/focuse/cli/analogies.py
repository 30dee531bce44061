"""`focuse analogies`: A is to B as C is to what?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.output import Json
from focuse.cli.results import Device, Out, RunFolder, check_out, opened, show

NAME = "analogies"
SHORT = "A is to B as C is to what?"


def command(
    run: Annotated[Path, RunFolder],
    a: Annotated[str, typer.Argument(help="An entity.")],
    b: Annotated[str, typer.Argument(help="One that is linked with it.")],
    c: Annotated[str, typer.Argument(help="Another one like the first.")],
    top: Annotated[int, typer.Option(help="How many answers.")] = 10,
    method: Annotated[
        str, typer.Option(help="relations (those that link A to B), or offset (nearest to B − A + C).")
    ] = "relations",
    new_only: Annotated[bool, typer.Option("--new", help="Leave out answers that are known facts.")] = False,
    out: Annotated[Path | None, Out] = None,
    device: Annotated[str, Device] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Complete an analogy: A is to B as C is to what?"""
    check_out(out)
    found = opened(run, device).analogies(a, b, c, top, method=method, new_only=new_only)
    show(found, out, as_json, "answers")
