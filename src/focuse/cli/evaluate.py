"""`focuse evaluate`: how well a run ranks held-out triples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from focuse.cli.options import Json, Layout, Sql
from focuse.cli.output import emit, opened
from focuse.errors import FocuseError


def command(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    test: Annotated[str | None, typer.Argument(help="Test triples [default: the run's own].")] = None,
    ties: Annotated[str, typer.Option(help="Rank among equal scores: worst, mean or best.")] = "worst",
    protocol: Annotated[
        str, typer.Option(help="sides: each side ranked by itself; joint: both sides as one list.")
    ] = "sides",
    raw: Annotated[bool, typer.Option("--raw", help="Do not leave known facts out of the rivals.")] = False,
    candidates: Annotated[
        int | None,
        typer.Option(
            help="Rank against so many sampled entities a side [default: all; 500 for convkb, or above 4 million]."
        ),
    ] = None,
    weights: Annotated[
        bool, typer.Option("--weights", help="How well weights are predicted, instead of ranks.")
    ] = False,
    probabilities: Annotated[
        bool,
        typer.Option("--probabilities", help="How far the probability of a link can be trusted, instead of ranks."),
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="With --probabilities: write the reliability diagram here (SVG).")
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="With --weights: the share of weights that intervals hold [default: 0.9].")
    ] = None,
    negatives: Annotated[
        str | None,
        typer.Option(help="With --weights or --probabilities: triples of weight 0 [default: drawn, as many as TEST]."),
    ] = None,
    queries: Annotated[
        str | None, typer.Option(help="With --weights: facts of nDCG's queries [default: TEST's, with known tails].")
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
    sql: Sql = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Rank every test triple against all entities, on both sides.

    Prints MR, MRR and Hits of all triples, of the heaviest and the lightest tenth, and weighted by w; ΔMRR is top
    minus bottom, ΔM the distance of their median scores.

    With --weights: errors of predicted weights by protocol beside trivial rows, intervals, calibration, strong facts,
    nDCG. With --probabilities: Brier score and calibration error of the probability of a link, before and after.
    """
    from focuse.inference.answers import check_target

    _check(
        weights=weights,
        probabilities=probabilities,
        ranks=(ties, protocol, raw, candidates) != ("worst", "sides", False, None),
        about_weights=(queries, threshold, coverage) != (None, None, None),
        negatives=negatives is not None,
        plot=plot is not None,
    )
    if plot is not None:
        check_target(plot, (".svg",))
    layout = Layout(columns, delimiter, header, weight_columns, sql)
    graph = None if test is None else layout.read(test)
    loaded = opened(run, device)
    false, asked = (None if path is None else layout.read(path) for path in (negatives, queries))
    if probabilities:
        found = loaded.evaluate_probabilities(graph, negatives=false)
        if plot is not None:
            _write(plot, found.svg(f"{run.name}: probability of a link"))
        emit(found.to_dict(), str(found), as_json)
        return
    if weights:
        chosen: dict[str, Any] = {"threshold": threshold, "coverage": coverage}
        judged = loaded.evaluate_weights(
            graph,
            negatives=false,
            queries=asked,
            **{name: value for name, value in chosen.items() if value is not None},
        )
        apart = {} if loaded.splits.merger is None else loaded.weigh_columns(graph)
        data = judged.to_dict() | ({"columns": {name: one.to_dict() for name, one in apart.items()}} if apart else {})
        texts = [str(judged), *(f"column {name}\n\n{one}" for name, one in apart.items())]
        emit(data, "\n\n".join(texts), as_json)
        return
    result = loaded.evaluate(graph, ties=ties, protocol=protocol, filtered=not raw, candidates=candidates)
    emit(result.to_dict(), str(result), as_json)


def _check(
    *, weights: bool, probabilities: bool, ranks: bool, about_weights: bool, negatives: bool, plot: bool
) -> None:
    """Options that do not go together, said before anything is loaded."""
    if weights and probabilities:
        raise FocuseError("give one of --weights and --probabilities")
    if not weights and about_weights:
        raise FocuseError("--queries, --threshold and --coverage go with --weights")
    if not (weights or probabilities) and negatives:
        raise FocuseError("--negatives goes with --weights or --probabilities")
    if plot and not probabilities:
        raise FocuseError("--plot goes with --probabilities")
    if (weights or probabilities) and ranks:
        raise FocuseError("--ties, --protocol, --raw and --candidates are about ranks; leave them out here")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FocuseError(f"{path}: cannot write ({error.strerror}); give another --plot") from None
