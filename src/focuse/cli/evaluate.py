"""`focuse evaluate`: how well a run ranks held-out triples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.files import Layout
from focuse.cli.output import Json, emit
from focuse.errors import FocuseError

NAME = "evaluate"
SHORT = "Rank or weigh held-out triples."


def command(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    test: Annotated[Path | None, typer.Argument(help="Test triples [default: the run's own].")] = None,
    ties: Annotated[str, typer.Option(help="Rank among equal scores: worst, mean or best.")] = "worst",
    protocol: Annotated[
        str, typer.Option(help="sides: each side ranked by itself; joint: both sides as one list.")
    ] = "sides",
    raw: Annotated[bool, typer.Option("--raw", help="Do not leave known facts out of the rivals.")] = False,
    weights: Annotated[
        bool, typer.Option("--weights", help="How well weights are predicted, instead of ranks.")
    ] = False,
    negatives: Annotated[
        Path | None, typer.Option(help="With --weights: triples of weight 0 [default: drawn, as many as TEST].")
    ] = None,
    queries: Annotated[
        Path | None, typer.Option(help="With --weights: facts of nDCG's queries [default: TEST's, with known tails].")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="With --weights: a fact of a larger weight is strong [default: 0.85].")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns of the given files to use, by heading or counted from 1.")
    ] = None,
    weight_columns: Annotated[
        str | None, typer.Option(help="Several weight columns of the given files, by heading or counted from 1.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Separator of the given files.")] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether line 1 of them is a header.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Rank every test triple against all entities, on both sides.

    Prints MR, MRR and Hits of all triples, of the heaviest and the lightest tenth, and weighted by w; ΔMRR is top
    minus bottom, ΔM the distance of their median scores.

    With --weights: errors of predicted weights by protocol beside trivial rows, calibration, strong facts, nDCG.
    """
    from focuse.run import load

    if not weights and (negatives, queries, threshold) != (None, None, None):
        raise FocuseError("--negatives, --queries and --threshold go with --weights")
    if weights and (ties, protocol, raw) != ("worst", "sides", False):
        raise FocuseError("--ties, --protocol and --raw are about ranks; leave them out with --weights")
    layout = Layout(columns, delimiter, header, weight_columns)
    graph = None if test is None else layout.read(test)
    loaded = load(run, device)
    if weights:
        false, asked = (None if path is None else layout.read(path) for path in (negatives, queries))
        strong = {} if threshold is None else {"threshold": threshold}
        judged = loaded.weigh(graph, negatives=false, queries=asked, **strong)
        emit(judged.to_dict(), str(judged), as_json)
        return
    result = loaded.evaluate(graph, ties=ties, protocol=protocol, filtered=not raw)
    emit(result.to_dict(), str(result), as_json)
