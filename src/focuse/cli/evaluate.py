"""`focuse evaluate`: how well a run ranks held-out triples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from focuse.cli.options import Json, Layout
from focuse.cli.output import emit, opened
from focuse.errors import FocuseError


def command(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    test: Annotated[str | None, typer.Argument(help="Test triples [default: the run's own].")] = None,
    ties: Annotated[str, typer.Option(help="Rank among equal scores: worst, mean or best.")] = "worst",
    protocol: Annotated[
        str, typer.Option(help="per-side: each side is ranked separately; combined: both sides are one list.")
    ] = "per-side",
    unfiltered: Annotated[
        bool, typer.Option("--unfiltered", help="Unfiltered ranks: keep known triples among the candidates.")
    ] = False,
    sample_candidates: Annotated[
        int | None,
        typer.Option(help="Rank against this many sampled entities per side [default: all; 500 for slow models]."),
    ] = None,
    weights: Annotated[bool, typer.Option("--weights", help="Evaluate predicted weights instead of ranks.")] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Evaluate the probability of a link instead of ranks.")
    ] = False,
    coverage: Annotated[
        float | None, typer.Option(help="With --weights: nominal coverage of intervals [default: 0.9].")
    ] = None,
    negatives_file: Annotated[
        str | None,
        typer.Option(help="With --weights or --probabilities: triples of weight 0 [default: random, as many as TEST]."),
    ] = None,
    ndcg_queries: Annotated[
        str | None,
        typer.Option(help="With --weights: triples of the queries of nDCG [default: TEST's, with all known tails]."),
    ] = None,
    strong_above: Annotated[
        float | None, typer.Option(help="With --weights: a triple of a higher weight is strong [default: 0.85].")
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

    Prints MR, MRR and Hits@k of all triples, of the top and the bottom decile by weight, and their weighted mean; ΔMRR
    is top minus bottom, ΔM the distance of their median scores.

    With --weights: errors of predicted weights by protocol next to baselines, coverage of intervals, calibration,
    classification of strong triples, nDCG. With --probabilities: Brier score and calibration error of the probability
    of a link, before and after calibration.
    """
    _check(
        weights=weights,
        probabilities=probabilities,
        ranks=(ties, protocol, unfiltered, sample_candidates) != ("worst", "per-side", False, None),
        about_weights=(ndcg_queries, strong_above, coverage) != (None, None, None),
        negatives=negatives_file is not None,
    )
    layout = Layout(columns, delimiter, header, weight_columns)
    graph = None if test is None else layout.read(test)
    loaded = opened(run, device)
    negatives, queries = (None if path is None else layout.read(path) for path in (negatives_file, ndcg_queries))
    if probabilities:
        found = loaded.evaluate_probabilities(graph, negatives=negatives)
        emit(found.to_dict(), str(found), as_json)
    elif weights:
        chosen: dict[str, Any] = {"strong_above": strong_above, "coverage": coverage}
        chosen = {name: value for name, value in chosen.items() if value is not None}
        result = loaded.evaluate_weights(graph, negatives=negatives, ndcg_queries=queries, **chosen)
        by_column = {} if loaded.splits.merger is None else loaded.evaluate_weight_columns(graph)
        data, texts = result.to_dict(), [str(result)]
        if by_column:
            data["columns"] = {name: one.to_dict() for name, one in by_column.items()}
            texts += [f"column {name}\n\n{one}" for name, one in by_column.items()]
        emit(data, "\n\n".join(texts), as_json)
    else:
        ranked = loaded.evaluate(
            graph, ties=ties, protocol=protocol, filtered=not unfiltered, sample_candidates=sample_candidates
        )
        emit(ranked.to_dict(), str(ranked), as_json)


def _check(*, weights: bool, probabilities: bool, ranks: bool, about_weights: bool, negatives: bool) -> None:
    """Raise FocuseError for options that do not belong together, before anything is loaded."""
    if weights and probabilities:
        raise FocuseError("give one of --weights and --probabilities")
    if not weights and about_weights:
        raise FocuseError("--ndcg-queries, --strong-above and --coverage require --weights")
    if not (weights or probabilities) and negatives:
        raise FocuseError("--negatives-file requires --weights or --probabilities")
    if (weights or probabilities) and ranks:
        raise FocuseError("--ties, --protocol, --unfiltered and --sample-candidates only apply to ranks")
