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
    method: Annotated[
        str | None,
        typer.Option(
            help="isotonic (monotone steps) or platt (a logistic curve) [default: isotonic; platt for probabilities "
            "with under 500 facts to calibrate on]."
        ),
    ] = None,
    negatives: Annotated[
        Path | None, typer.Option(help="Triples known to be false, for probabilities [default: random corruptions].")
    ] = None,
    base_rate: Annotated[
        float, typer.Option(help="Share of facts among the triples you will ask about, for probabilities.")
    ] = 0.5,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Fit maps from scores to weights and to probabilities on validation, a curve a relation; the run stores them.

    'focuse predict' fits isotonic ones by itself when it is first asked; this command is for another choice, for your
    own negatives, or for another base rate.
    """
    from focuse.inference.calibrate import FILE
    from focuse.run import load

    loaded = load(run, device)
    made = loaded.calibrate(method, negatives=negatives, base_rate=base_rate)
    probability = loaded.weigher(full=True).probability
    own = int((made.facts.arrays["trust"] > 0).sum())
    data = {
        "run": str(run),
        "method": made.method,
        "validation_rows": len(loaded.splits.valid.graph),
        "calibration_rows": len(loaded.weigher().parts.calibration),
        "base_rate": base_rate,
        "probability_method": None if probability is None else probability.method,
        "negatives": None if probability is None else probability.negatives,
        "relations": len(loaded.graph.relations),
        "relations_with_own_curve": own,
        "stored": loaded.calibration_stored,
    }
    kept = f"stored in {run / FILE}" if data["stored"] else "not stored: the run is unfinished or cannot be written"
    text = f"{made.method} on {data['calibration_rows']:,} of {data['validation_rows']:,} validation triples, {own} of "
    text += f"{data['relations']} relations with a curve of their own; {kept}"
    if probability is not None:
        false = "random corruptions" if negatives is None else probability.negatives
        text += f"\nprobabilities: {probability.method} against {false}, for a base rate of {base_rate:g}"
    emit(data, text, as_json)
