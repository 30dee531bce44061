"""Commands that ask a run: what is missing, how probable and heavy it is, why, and which entities are alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.options import Device, Json, Layout, LinksOut, Out, RunFolder
from focuse.cli.output import check_out, emit, opened, show
from focuse.errors import FocuseError, counted

# ---- focuse predict -------------------------------------------------------------------------------------------------


def predict(
    run: Annotated[Path, RunFolder],
    head: Annotated[str | None, typer.Option(help="Name of the head.")] = None,
    relation: Annotated[str | None, typer.Option(help="Name of the relation.")] = None,
    tail: Annotated[str | None, typer.Option(help="Name of the tail.")] = None,
    queries: Annotated[
        Path | None, typer.Option(help="File of queries: head, relation, tail per line, one of them empty or '?'.")
    ] = None,
    top: Annotated[int, typer.Option(help="Number of completions per query.")] = 10,
    new_only: Annotated[bool, typer.Option("--new-only", help="Leave out known triples.")] = False,
    candidates_file: Annotated[
        Path | None, typer.Option(help="File of the entities to rank, one per line [default: all].")
    ] = None,
    scores_only: Annotated[
        bool, typer.Option("--scores-only", help="Predict no weights and probabilities; much faster.")
    ] = False,
    out: Annotated[Path | None, LinksOut] = None,
    device: Annotated[str, Device] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Rank the tails, heads or relations that complete a triple; known triples are marked.

    Give two of --head, --relation and --tail; the third is ranked. If all three are given, the triple gets its rank
    among the tails. --queries completes all triples of a file.
    """
    from focuse.inference.candidates import listed_names

    check_out(out, links=True, inputs=(queries, candidates_file))
    if queries is not None and (head, relation, tail) != (None, None, None):
        raise FocuseError("--queries completes the triples of a file; leave --head, --relation and --tail out")
    candidates, loaded, weights = listed_names(None, candidates_file), opened(run, device), not scores_only
    if queries is None:
        found = loaded.predict(head, relation, tail, top, new_only, candidates=candidates, weights=weights)
        show(found, out, as_json, "predictions")
        return
    found = loaded.predict_batch(queries, top, new_only, candidates=candidates, weights=weights, progress=True)
    show(found, out, as_json, "predictions")
    if found.stopped:
        raise typer.Exit(130)


# ---- focuse discover ------------------------------------------------------------------------------------------------


def discover(
    run: Annotated[Path, RunFolder],
    head: Annotated[list[str] | None, typer.Option(help="Search links of this head; may be repeated.")] = None,
    relation: Annotated[list[str] | None, typer.Option(help="Search this relation; may be repeated.")] = None,
    tail: Annotated[list[str] | None, typer.Option(help="Search links to this tail; may be repeated.")] = None,
    heads_from: Annotated[Path | None, typer.Option(help="File with one head per line.")] = None,
    relations_from: Annotated[Path | None, typer.Option(help="File with one relation per line.")] = None,
    tails_from: Annotated[Path | None, typer.Option(help="File with one tail per line.")] = None,
    types_file: Annotated[
        Path | None, typer.Option(help="Types of entities: entity, tab, type [default: the text before ':'].")
    ] = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Search heads and tails of this type; may be repeated.")
    ] = None,
    head_type: Annotated[list[str] | None, typer.Option(help="Search heads of this type; may be repeated.")] = None,
    tail_type: Annotated[list[str] | None, typer.Option(help="Search tails of this type; may be repeated.")] = None,
    top: Annotated[int, typer.Option(help="Number of links.")] = 100,
    min_probability: Annotated[float, typer.Option(help="Leave out links with a lower probability.")] = 0.0,
    max_per_relation: Annotated[int | None, typer.Option(help="Largest number of links per relation.")] = None,
    max_per_head: Annotated[int | None, typer.Option(help="Largest number of links per head.")] = None,
    any_type: Annotated[
        bool,
        typer.Option("--any-type", help="Search entities on all sides, not only on those where train has them."),
    ] = False,
    strategy: Annotated[
        str, typer.Option(help="Links to score: exhaustive, neighborhood, popular, rare or sampled.")
    ] = "exhaustive",
    sample_size: Annotated[
        int, typer.Option(help="Entities per relation and side for popular, rare and sampled.")
    ] = 1000,
    seed: Annotated[int, typer.Option(help="Random seed of --strategy sampled.")] = 0,
    rerank: Annotated[
        int | None, typer.Option(help="Best links per relation by score to order by probability [default: 2000].")
    ] = None,
    max_scores: Annotated[float, typer.Option(help="Refuse to score more links.")] = 2e10,
    base_rate: Annotated[
        float | None, typer.Option(help="Fraction of true links among those searched [default: per relation].")
    ] = None,
    weight_column: Annotated[str | None, typer.Option(help="Predict the weights of this weight column.")] = None,
    out: Annotated[Path | None, LinksOut] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    device: Annotated[str, Device] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Find the most probable missing links, with their expected weights and 90 % intervals.

    All links are scored; the best of each relation are then ordered by probability. Ctrl-C stops the search and shows
    the best links so far.
    """
    from focuse.inference.candidates import listed_names

    check_out(out, links=True, inputs=(heads_from, relations_from, tails_from, types_file))
    found = opened(run, device).discover(
        listed_names(head, heads_from),
        listed_names(relation, relations_from),
        listed_names(tail, tails_from),
        top,
        min_probability=min_probability,
        max_per_relation=max_per_relation,
        max_per_head=max_per_head,
        types=types_file,
        head_types=[*(type_ or ()), *(head_type or ())] or None,
        tail_types=[*(type_ or ()), *(tail_type or ())] or None,
        any_type=any_type,
        strategy=strategy,
        sample_size=sample_size,
        seed=seed,
        rerank=rerank,
        max_scores=max_scores,
        base_rate=base_rate,
        weight_column=weight_column,
        progress=not quiet,
    )
    show(found, out, as_json, "links")
    if found.stopped:
        raise typer.Exit(130)


# ---- focuse explain: why a triple is predicted -----------------------------------------------------------------------


def explain(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    head: Annotated[str, typer.Option(help="Name of the head.")],
    relation: Annotated[str, typer.Option(help="Name of the relation.")],
    tail: Annotated[str, typer.Option(help="Name of the tail.")],
    top: Annotated[int, typer.Option(help="Number of triples and rules of each kind.")] = 5,
    rules: Annotated[Path | None, typer.Option(help="A file of rules [default: mine rules from train].")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the explanation as an HTML page (.html).")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Explain the score of a triple: known triples that support or oppose it, similar triples, and rules.

    The change of a triple estimates how the score would change if that triple had not been in train.
    """
    from focuse.report.page import check_page_path, write_explanation

    if out is not None:
        check_page_path(out)
    found = opened(run, device).explain(head, relation, tail, top, rules=rules)
    if out is not None:
        write_explanation(found, out)
    written = {} if out is None else {"out": str(out)}
    emit(found.to_dict() | written, str(found) + (f"\n\nwritten to {out}" if out else ""), as_json)


# ---- focuse predict-weights: weights of the triples of a file ----------------------------------------------------


def predict_weights(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    triples: Annotated[str, typer.Argument(help="Triples, with or without weights.")],
    coverage: Annotated[float, typer.Option(help="Probability with which an interval contains the weight.")] = 0.9,
    weight_column: Annotated[
        str | None, typer.Option(help="One of the run's weight columns [default: its weight, or all columns merged].")
    ] = None,
    out: Annotated[Path | None, LinksOut] = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns of the file to use, by heading or counted from 1.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Separator of the file.")] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether the first line is a header.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Predict the weight of each triple if it is true, with an interval, and the probability that it is true.

    The first prediction fits an estimator (about a minute for 200,000 edges), which is stored in the run folder.
    """
    check_out(out, links=True, inputs=(triples,))
    graph = Layout(columns, delimiter, header).read(triples)
    found = opened(run, device).predict_weights(graph, coverage=coverage, column=weight_column)
    if out is None:
        emit(found.to_json(), str(found), as_json)
        return
    found.write(out)
    text = "\n".join([f"{counted(len(found), 'triples')} written to {out}", *found.notes])
    emit({"out": str(out), "triples": len(found), "coverage": coverage, "notes": list(found.notes)}, text, as_json)


# ---- focuse calibrate: from a run's scores to weights ----------------------------------------------------------------


def calibrate(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    method: Annotated[
        str | None,
        typer.Option(
            help="isotonic (monotone steps) or platt (a logistic curve) [default: isotonic; platt for probabilities "
            "with under 500 triples to calibrate on]."
        ),
    ] = None,
    negatives_file: Annotated[
        Path | None, typer.Option(help="Triples known to be false, for probabilities [default: random negatives].")
    ] = None,
    base_rate: Annotated[
        float, typer.Option(help="Expected fraction of true triples among those to predict, for probabilities.")
    ] = 0.5,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Fit maps from scores to weights and to probabilities on validation, one curve per relation, and store them.

    'focuse predict' fits isotonic maps when it first needs them; this command is for another method, for your own
    negatives, or for another base rate.
    """
    from focuse.api import load
    from focuse.inference.fitted import CALIBRATION_FILE

    loaded = load(run, device)
    made = loaded.calibrate(method, negatives=negatives_file, base_rate=base_rate)
    probability = loaded.weight_predictor(full=True).probability
    own = int((made.given_true.arrays["trust"] > 0).sum())
    data = {
        "run": str(run),
        "method": made.method,
        "validation_rows": len(loaded.splits.valid),
        "calibration_rows": len(loaded.weight_predictor().parts.calibration),
        "base_rate": base_rate,
        "probability_method": None if probability is None else probability.method,
        "negatives": None if probability is None else probability.negatives,
        "relations": len(loaded.graph.relations),
        "relations_with_own_curve": own,
        "stored": loaded.fitted.calibration_stored,
    }
    stored = (
        f"stored in {run / CALIBRATION_FILE}"
        if data["stored"]
        else "not stored: the run is unfinished or cannot be written"
    )
    text = f"{made.method} on {data['calibration_rows']:,} of {data['validation_rows']:,} validation triples, {own} of "
    text += f"{data['relations']} relations with a curve of their own; {stored}"
    if probability is not None:
        false = "random negatives" if negatives_file is None else probability.negatives
        text += f"\nprobabilities: {probability.method} with {false}, for a base rate of {base_rate:g}"
    emit(data, text, as_json)


# ---- focuse similar, duplicates, clusters, analogies ----------------------------------------------------------------


def similar(
    run: Annotated[Path, RunFolder],
    entity: Annotated[list[str], typer.Argument(help="Names of one or several entities.")],
    top: Annotated[int, typer.Option(help="Number of similar entities of each.")] = 10,
    mean: Annotated[bool, typer.Option("--mean", help="Entities similar to the mean of all given ones.")] = False,
    pairwise: Annotated[bool, typer.Option("--pairwise", help="Compare the given entities with each other.")] = False,
    metric: Annotated[str, typer.Option(help="cosine, or euclidean (minus the distance).")] = "cosine",
    out: Annotated[Path | None, Out] = None,
    device: Annotated[str, Device] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Find the entities whose embeddings are most similar to those of given entities."""
    from focuse.api import load

    check_out(out)
    loaded = load(run, device)
    found = loaded.similar(entity, top, metric=metric, mean=mean, pairwise=pairwise)
    show(found, out, as_json, "similar entities")


def duplicates(
    run: Annotated[Path, RunFolder],
    min_similarity: Annotated[
        float | None, typer.Option(help="Smallest cosine of two embeddings [default: far above random pairs].")
    ] = None,
    min_overlap: Annotated[
        float | None, typer.Option(help="Smallest overlap of edges, by weight [default: far above random pairs].")
    ] = None,
    top: Annotated[int, typer.Option(help="Largest number of pairs.")] = 100,
    compare_names: Annotated[bool, typer.Option("--compare-names", help="Compare the names, too.")] = False,
    out: Annotated[Path | None, Out] = None,
    device: Annotated[str, Device] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Find pairs of entities with nearly equal embeddings and nearly the same edges."""
    from focuse.api import load

    check_out(out)
    found = load(run, device).duplicates(min_similarity, min_overlap, top, compare_names=compare_names)
    show(found, out, as_json, "pairs")


def clusters(
    run: Annotated[Path, RunFolder],
    n_clusters: Annotated[
        int | None, typer.Option(help="Number of clusters [default: of a few, the one with the best silhouette].")
    ] = None,
    method: Annotated[str, typer.Option(help="kmeans or hdbscan.")] = "kmeans",
    min_cluster_size: Annotated[int, typer.Option(help="Smallest cluster of hdbscan.")] = 5,
    seed: Annotated[int, typer.Option(help="Random seed of kmeans.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Write the cluster of each entity to this file (.tsv, .csv, .parquet or .json).")
    ] = None,
    device: Annotated[str, Device] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Cluster entities by their embeddings; show central entities and typical edges of each cluster."""
    from focuse.api import load

    check_out(out)
    found = load(run, device).clusters(n_clusters, method=method, min_cluster_size=min_cluster_size, seed=seed)
    show(found, out, as_json, "entities", summary=found.summary)


def analogies(
    run: Annotated[Path, RunFolder],
    a: Annotated[str, typer.Argument(help="An entity.")],
    b: Annotated[str, typer.Argument(help="An entity that is linked to A.")],
    c: Annotated[str, typer.Argument(help="An entity like A.")],
    top: Annotated[int, typer.Option(help="Number of answers.")] = 10,
    method: Annotated[
        str, typer.Option(help="relations (follow those that link A to B), or offset (nearest to B − A + C).")
    ] = "relations",
    new_only: Annotated[bool, typer.Option("--new-only", help="Leave out answers whose link is known.")] = False,
    out: Annotated[Path | None, Out] = None,
    device: Annotated[str, Device] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Complete an analogy: A is to B as C is to what?"""
    check_out(out)
    found = opened(run, device).analogies(a, b, c, top, method=method, new_only=new_only)
    show(found, out, as_json, "answers")
