"""Commands that ask a run: what is missing, how probable and heavy it is, why, and which entities are alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.options import Device, Json, Layout, LinksOut, Out, RunFolder, Sql
from focuse.cli.output import check_out, emit, opened, show
from focuse.errors import FocuseError, counted

# ---- focuse predict: what is missing from a half-known triple, or from each of many in a file ------------------------


def predict(
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
    found = made.predict_batch(queries, top, new_only, among=named(None, among), weights=not scores_only, progress=True)
    show(found, out, as_json, "answers")
    if found.stopped:
        raise typer.Exit(130)


# ---- focuse discover: the most probable links that a graph lacks -----------------------------------------------------


def discover(
    run: Annotated[Path, RunFolder],
    head: Annotated[list[str] | None, typer.Option(help="Look at links of this head; may repeat.")] = None,
    relation: Annotated[list[str] | None, typer.Option(help="By this relation; may repeat.")] = None,
    tail: Annotated[list[str] | None, typer.Option(help="To this tail; may repeat.")] = None,
    heads_from: Annotated[Path | None, typer.Option(help="File with the name of a head on each line.")] = None,
    relations_from: Annotated[Path | None, typer.Option(help="The same for relations.")] = None,
    tails_from: Annotated[Path | None, typer.Option(help="The same for tails.")] = None,
    types: Annotated[
        Path | None, typer.Option(help="Types of entities: entity, tab, type [default: what stands before ':'].")
    ] = None,
    type_: Annotated[list[str] | None, typer.Option("--type", help="Both ends are of such a type; may repeat.")] = None,
    head_type: Annotated[list[str] | None, typer.Option(help="Heads are of such a type; may repeat.")] = None,
    tail_type: Annotated[list[str] | None, typer.Option(help="Tails are of such a type; may repeat.")] = None,
    top: Annotated[int, typer.Option(help="How many links.")] = 100,
    min_probability: Annotated[float, typer.Option(help="Leave out less probable ones.")] = 0.0,
    per_relation: Annotated[int | None, typer.Option(help="At most so many of a relation.")] = None,
    per_head: Annotated[int | None, typer.Option(help="At most so many of a head.")] = None,
    anywhere: Annotated[
        bool,
        typer.Option(
            "--anywhere/--domain-range", help="Also where train has never seen an entity, or only on sides it has."
        ),
    ] = False,
    candidates: Annotated[
        str, typer.Option(help="Links looked at: exhaustive, neighbourhood, popular, rare or sampled.")
    ] = "exhaustive",
    sample: Annotated[int, typer.Option(help="Entities a relation and side of popular, rare and sampled.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of sampled.")] = 0,
    pool: Annotated[
        int | None,
        typer.Option(help="Best links a relation by score to compare by probability [default: 2000]."),
    ] = None,
    limit: Annotated[float, typer.Option(help="Refuse to score more links than this.")] = 2e10,
    base_rate: Annotated[
        float | None, typer.Option(help="Share of facts among the links looked at [default: each relation's own].")
    ] = None,
    column: Annotated[str | None, typer.Option(help="One of the run's weight columns.")] = None,
    out: Annotated[Path | None, LinksOut] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    device: Annotated[str, Device] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Find the most probable links that the graph lacks, each with its expected weight and a 90 % interval.

    All links are scored, the best of each relation then ordered by probability. Ctrl-C stops and shows the best so far.
    """
    from focuse.inference.discovery.scope import named

    check_out(out, links=True, inputs=(heads_from, relations_from, tails_from, types))
    found = opened(run, device).discover(
        named(head, heads_from),
        named(relation, relations_from),
        named(tail, tails_from),
        top,
        min_probability=min_probability,
        per_relation=per_relation,
        per_head=per_head,
        types=types,
        head_types=[*(type_ or ()), *(head_type or ())] or None,
        tail_types=[*(type_ or ()), *(tail_type or ())] or None,
        anywhere=anywhere,
        candidates=candidates,
        sample=sample,
        seed=seed,
        pool=pool,
        limit=limit,
        base_rate=base_rate,
        column=column,
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


# ---- focuse predict-weights: what the triples of a file would weigh ---------------------------------------------


def predict_weights(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    triples: Annotated[str, typer.Argument(help="Candidate triples, with or without weights.")],
    coverage: Annotated[float, typer.Option(help="The share of weights that intervals hold.")] = 0.9,
    column: Annotated[
        str | None, typer.Option(help="One of the run's weight columns [default: its weight, or all columns merged].")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write all rows here (.tsv, .csv, .parquet; RDF: .ttl, .nt, .nq, .trig).")
    ] = None,
    sql: Sql = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns of the file to use, by heading or counted from 1.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Separator of the file.")] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether line 1 of it is a header.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Say of each triple what it would weigh if it is a fact, within which bounds, and how probable it is.

    The first question to a run fits what is needed (about a minute for 200,000 edges) and stores it there.
    """

    check_out(out, links=True, inputs=(triples,))
    graph = Layout(columns, delimiter, header, sql=sql).read(triples)
    found = opened(run, device).predict_weights(graph, coverage=coverage, column=column)
    if out is not None:
        found.write(out)
        text = "\n".join([f"{counted(len(found), 'triples')} written to {out}", *found.notes])
        emit({"out": str(out), "triples": len(found), "coverage": coverage, "notes": list(found.notes)}, text, as_json)
        return
    emit(found.to_dict(), str(found), as_json)


# ---- focuse calibrate: from a run's scores to weights ----------------------------------------------------------------


def calibrate(
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
    from focuse.api import load
    from focuse.inference.calibration import FILE

    loaded = load(run, device)
    made = loaded.calibrate(method, negatives=negatives, base_rate=base_rate)
    probability = loaded.weight_predictor(full=True).probability
    own = int((made.facts.arrays["trust"] > 0).sum())
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
        "stored": loaded.calibration_stored,
    }
    kept = f"stored in {run / FILE}" if data["stored"] else "not stored: the run is unfinished or cannot be written"
    text = f"{made.method} on {data['calibration_rows']:,} of {data['validation_rows']:,} validation triples, {own} of "
    text += f"{data['relations']} relations with a curve of their own; {kept}"
    if probability is not None:
        false = "random corruptions" if negatives is None else probability.negatives
        text += f"\nprobabilities: {probability.method} against {false}, for a base rate of {base_rate:g}"
    emit(data, text, as_json)


# ---- focuse similar: entities whose embeddings are alike ----------------------------------------------------------


def similar(
    run: Annotated[Path, RunFolder],
    entity: Annotated[list[str], typer.Argument(help="Names of one or several entities.")],
    top: Annotated[int, typer.Option(help="How many of each.")] = 10,
    together: Annotated[bool, typer.Option("--together", help="What is like all of them, not each by itself.")] = False,
    between: Annotated[bool, typer.Option("--between", help="How like each other they are.")] = False,
    measure: Annotated[str, typer.Option(help="cosine, or euclidean (minus the distance).")] = "cosine",
    approximate: Annotated[
        bool, typer.Option("--approximate", help="Search an index kept in the run's folder (needs focuse[ann]).")
    ] = False,
    out: Annotated[Path | None, Out] = None,
    device: Annotated[str, Device] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Show the entities whose embeddings are most like those of given ones."""
    from focuse.api import load

    check_out(out)
    among = entity if between else None
    found = load(run, device).similar(
        entity, top, among=among, measure=measure, together=together, approximate=approximate
    )
    show(found, out, as_json, "neighbours")


# ---- focuse duplicates: entities that may be one and the same --------------------------------------------------------


def duplicates(
    run: Annotated[Path, RunFolder],
    similarity: Annotated[
        float | None, typer.Option(help="Least cosine of two embeddings [default: far above chance].")
    ] = None,
    overlap: Annotated[
        float | None, typer.Option(help="Least share of edges in common, by weight [default: far above chance].")
    ] = None,
    top: Annotated[int, typer.Option(help="How many pairs at most.")] = 100,
    names: Annotated[bool, typer.Option("--names", help="Also show how alike the names are.")] = False,
    out: Annotated[Path | None, Out] = None,
    device: Annotated[str, Device] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Show pairs of entities whose embeddings nearly coincide and whose edges are nearly the same."""
    from focuse.api import load

    check_out(out)
    found = load(run, device).duplicates(similarity, overlap, top, compare_names=names)
    show(found, out, as_json, "pairs")


# ---- focuse clusters: groups of entities, and what is typical of each ------------------------------------------------


def clusters(
    run: Annotated[Path, RunFolder],
    count: Annotated[int | None, typer.Option(help="How many [default: the best separated number of a few].")] = None,
    method: Annotated[str, typer.Option(help="kmeans or hdbscan.")] = "kmeans",
    smallest: Annotated[int, typer.Option(help="Members of a cluster of hdbscan, at least.")] = 5,
    seed: Annotated[int, typer.Option(help="Of kmeans.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Write every entity's cluster here (.tsv, .csv or .parquet).")
    ] = None,
    device: Annotated[str, Device] = "auto",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Group entities by their embeddings; show the centre of each group and which links are typical of it."""
    from focuse.api import load

    check_out(out)
    found = load(run, device).clusters(count, method=method, smallest=smallest, seed=seed)
    show(found, out, as_json, "entities", len(found.labels))


# ---- focuse analogies: A is to B as C is to what? --------------------------------------------------------------------


def analogies(
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
