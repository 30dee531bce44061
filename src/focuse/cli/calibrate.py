"""`focuse calibrate`: from a run's scores to weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.output import Json, emit

NAME = "calibrate"
SHORT = "Fit the map from scores to weights."


def command(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    method: Annotated[str, typer.Option(help="isotonic (monotone steps) or platt (a logistic curve).")] = "isotonic",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Fit a map from scores to weights on validation, a curve a relation, and store it in the run.

    'focuse predict' fits the isotonic one by itself when it is first asked; this command is for another choice.
    """
    from focuse.inference.calibrate import FILE
    from focuse.run import load

    loaded = load(run, device)
    made = loaded.calibrate(method)
    own = int((made.facts.arrays["trust"] > 0).sum())
    data = {
        "run": str(run),
        "method": method,
        "validation_rows": len(loaded.splits.valid.graph),
        "relations": len(loaded.graph.relations),
        "relations_with_own_curve": own,
        "stored": loaded.calibration_stored,
    }
    kept = f"stored in {run / FILE}" if data["stored"] else "not stored: the run is unfinished or cannot be written"
    text = f"{method} on {data['validation_rows']:,} validation triples, {own} of {data['relations']} relations with"
    emit(data, f"{text} a curve of their own; {kept}", as_json)
