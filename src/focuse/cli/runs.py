"""Commands on a run: evaluate and ask it, and make a page, an explorer, files for other tools or a larger run of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from focuse.cli.options import (
    AsJson,
    Device,
    Layout,
    LinksOut,
    NodeAttributes,
    Out,
    PreferOption,
    Quiet,
    RunFolder,
    TestFile,
    option,
)
from focuse.cli.output import check_out, emit, opened, show
from focuse.errors import FocuseError, counted

# As in the modules that use them (a test compares), which would load torch for every command.
TIES, PROTOCOLS, DECILES = ("worst", "mean", "best"), ("per-side", "combined"), ("relation", "global")
STRATEGIES, CALIBRATIONS = ("exhaustive", "popular", "sampled"), ("isotonic", "platt")
EXPORT_FORMATS, EXPORTED = ("parquet", "csv", "tsv", "word2vec", "numpy", "pyg"), ("entities", "relations", "both")


def evaluate(
    run: RunFolder,
    layout: Layout,
    test: TestFile = None,
    prefer: PreferOption = None,
    ties: Annotated[str, option("Rank among equal scores: worst, mean or best.", None, TIES)] = "worst",
    protocol: Annotated[str, option("per-side: a list per side; combined: one list.", None, PROTOCOLS)] = "per-side",
    unfiltered: Annotated[bool, option("Unfiltered ranks: keep known triples among the candidates.")] = False,
    sample_candidates: Annotated[
        int | None, option("Rank against this many sampled entities per side. Default: all; 500 for slow models.")
    ] = None,
    deciles: Annotated[
        str | None,
        option("Compare weights within each relation or of all. Default: global for weights in [0, 1].", None, DECILES),
    ] = None,
    weights: Annotated[bool, option("Evaluate predicted weights instead of ranks.")] = False,
    probabilities: Annotated[bool, option("Evaluate the probability of a link instead of ranks.")] = False,
    coverage: Annotated[float | None, option("With --weights: nominal coverage of intervals. Default: 0.9.")] = None,
    negatives_file: Annotated[
        str | None,
        option("With --weights: false triples, default random. With --probabilities: default the best new links."),
    ] = None,
    ndcg_queries: Annotated[
        str | None, option("With --weights: triples of the queries of nDCG. Default: TEST's, with all known tails.")
    ] = None,
    strong_above: Annotated[float | None, option("With --weights: a triple above it is strong. Default: 0.85.")] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Rank every test triple against all entities, on both sides.

    Compares the run's rankings by likely and by strong links with a ranking by frequency in train, and
    prints MR, MRR and Hits@k of all triples, of the top and the bottom decile by weight, and their weighted mean; ΔMRR
    is top minus bottom, ΔM the distance of their median scores.

    With --weights: errors of predicted weights by protocol next to baselines, coverage of intervals, calibration,
    classification of strong triples, nDCG. With --probabilities: Brier score and calibration error of the probability
    of a link, before and after calibration.
    """
    ranking: Any = {"ties": ties, "protocol": protocol, "filtered": not unfiltered}
    ranking |= {"sample_candidates": sample_candidates, "deciles": deciles, "prefer": prefer}
    chosen: Any = {"strong_above": strong_above, "coverage": coverage}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if weights and probabilities:
        raise FocuseError("give one of --weights and --probabilities")
    if not weights and (chosen or ndcg_queries is not None):
        raise FocuseError("--ndcg-queries, --strong-above and --coverage require --weights")
    if not (weights or probabilities) and negatives_file is not None:
        raise FocuseError("--negatives-file requires --weights or --probabilities")
    if (weights or probabilities) and list(ranking.values()) != ["worst", "per-side", True, None, None, None]:
        raise FocuseError(
            "--prefer, --ties, --protocol, --unfiltered, --sample-candidates and --deciles only apply to ranks"
        )
    graph, negatives, queries = layout.read_given(test, negatives_file, ndcg_queries)
    loaded = opened(run, device)
    found: Any
    if probabilities:
        found = loaded.evaluate_probabilities(graph, negatives=negatives)
    elif weights:
        found = loaded.evaluate_weights(graph, negatives=negatives, ndcg_queries=queries, **chosen)
    else:
        found = loaded.evaluate(graph, **ranking)
    data, texts = found.to_dict(), [str(found)]
    if weights and loaded.splits.merger is not None:
        given = {} if coverage is None else {"coverage": coverage}
        by_column = loaded.evaluate_weight_columns(graph, **given)
        data["columns"] = {name: one.to_dict() for name, one in by_column.items()}
        texts += [f"column {name}\n\n{one}" for name, one in by_column.items()]
    emit(data, "\n\n".join(texts), as_json)


def predict(
    run: RunFolder,
    head: Annotated[str | None, option("Name of the head.")] = None,
    relation: Annotated[str | None, option("Name of the relation; a graph's only one need not be given.")] = None,
    tail: Annotated[str | None, option("Name of the tail.")] = None,
    queries: Annotated[Path | None, option("File of head, relation, tail; one of them is '?' or empty.")] = None,
    top: Annotated[int, option("Number of completions per query.")] = 10,
    new_only: Annotated[bool, option("Leave out known triples.")] = False,
    candidates_file: Annotated[
        Path | None, option("File of the entities to rank, one per line. Default: those of a plausible type.")
    ] = None,
    any_type: Annotated[bool, option("Rank every entity, also those of an implausible type.")] = False,
    scores_only: Annotated[bool, option("Predict no weights and probabilities; much faster.")] = False,
    prefer: PreferOption = None,
    out: LinksOut = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Rank the tails, heads or relations that complete a triple, the most probable first; known triples are marked.

    Give two of --head, --relation and --tail; the third is ranked. If all three are given, the triple gets its rank
    by score among the tails. --queries completes all triples of a file. Entities are ranked that are
    plausible on that side of the relation.
    """
    from focuse.inference.predict import listed_names

    check_out(out, links=True, inputs=(queries, candidates_file))
    if queries is not None and (head, relation, tail) != (None, None, None):
        raise FocuseError("--queries completes the triples of a file; leave --head, --relation and --tail out")
    loaded = opened(run, device)
    chosen: Any = {"candidates": listed_names(None, candidates_file), "any_type": any_type, "weights": not scores_only}
    chosen["prefer"] = prefer
    if queries is None:
        found = loaded.predict(head, relation, tail, top, new_only, **chosen)
    else:
        found = loaded.predict_batch(queries, top, new_only, progress=True, **chosen)
    show(found, out, as_json, "predictions")


def discover(
    run: RunFolder,
    head: Annotated[list[str] | None, option("Search links of this head; may be repeated.")] = None,
    relation: Annotated[list[str] | None, option("Search this relation; may be repeated.")] = None,
    tail: Annotated[list[str] | None, option("Search links to this tail; may be repeated.")] = None,
    heads_from: Annotated[Path | None, option("File with one head per line.")] = None,
    relations_from: Annotated[Path | None, option("File with one relation per line.")] = None,
    tails_from: Annotated[Path | None, option("File with one tail per line.")] = None,
    top: Annotated[int, option("Number of links.")] = 100,
    min_probability: Annotated[float, option("Leave out links with a lower probability.")] = 0.0,
    max_per_head: Annotated[int | None, option("Largest number of links per head.")] = None,
    any_type: Annotated[bool, option("Search every entity on both sides of every relation.")] = False,
    strategy: Annotated[str, option("Links to score: exhaustive, popular, sampled.", None, STRATEGIES)] = "exhaustive",
    sample_size: Annotated[int, option("Entities per relation and side for popular and sampled.")] = 1000,
    seed: Annotated[int, option("Random seed of --strategy sampled.")] = 0,
    rerank: Annotated[int | None, option("Best links per relation that are compared. Default: 2000.")] = None,
    max_scores: Annotated[float, option("Refuse to score more links.")] = 2e10,
    base_rate: Annotated[float | None, option("Share of true links among all candidates. Default: estimated.")] = None,
    scores_only: Annotated[bool, option("Predict no weights; much faster.")] = False,
    prefer: PreferOption = None,
    out: LinksOut = None,
    quiet: Quiet = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Find the most probable missing links, with their expected weights and 90 % intervals.

    All links are scored; the best of each relation are then ordered by probability and weight. Ctrl-C stops the search
    and shows the best links so far.
    """
    from focuse.inference.predict import listed_names

    check_out(out, links=True, inputs=(heads_from, relations_from, tails_from))
    found = opened(run, device).discover(
        listed_names(head, heads_from),
        listed_names(relation, relations_from),
        listed_names(tail, tails_from),
        top,
        min_probability=min_probability,
        max_per_head=max_per_head,
        any_type=any_type,
        strategy=strategy,
        sample_size=sample_size,
        seed=seed,
        rerank=rerank,
        max_scores=max_scores,
        base_rate=base_rate,
        weights=not scores_only,
        prefer=prefer,
        progress=not quiet,
    )
    show(found, out, as_json, "links")


def explain(
    run: RunFolder,
    head: Annotated[str, option("Name of the head.")],
    tail: Annotated[str, option("Name of the tail.")],
    relation: Annotated[str | None, option("Name of the relation. Default: the only one of the graph.")] = None,
    top: Annotated[int, option("Number of triples and rules of each kind.")] = 5,
    rules: Annotated[Path | None, option("A file of rules. Default: mine rules from train.")] = None,
    out: Annotated[Path | None, option("Write the explanation as an HTML page (.html).", "Output")] = None,
    device: Device = "auto",
    as_json: AsJson = False,
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


def predict_weights(
    run: RunFolder,
    triples: Annotated[str, typer.Argument(help="Triples, with or without weights.")],
    layout: Layout,
    coverage: Annotated[float, option("Probability with which an interval contains the weight.")] = 0.9,
    weight_column: Annotated[str | None, option("One of the run's weight columns. Default: all merged.")] = None,
    out: LinksOut = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Predict the weight of each triple if it is true, with an interval, and the probability that it is true.

    The first prediction fits an estimator (about a minute for 200,000 edges), which is stored in the run folder.
    """
    check_out(out, links=True, inputs=(triples,))
    graph = layout.read(triples)
    found = opened(run, device).predict_weights(graph, coverage=coverage, column=weight_column)
    show(found, out, as_json, "triples")


def calibrate(
    run: RunFolder,
    method: Annotated[
        str | None,
        option("isotonic or platt. Default: isotonic; platt for probabilities with few triples.", None, CALIBRATIONS),
    ] = None,
    base_rate: Annotated[
        float | None, option("Share of true links among all candidates. Default: as many as validation holds.")
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Fit maps from scores to weights and to probabilities on validation, one curve per relation, and store them.

    'focuse predict' fits isotonic maps when it first needs them; this command is for another method or another base
    rate.
    """
    from focuse.inference.fitted import CALIBRATION_FILE

    loaded = opened(run, device)
    made = loaded.calibrate(method, base_rate=base_rate)
    probability = loaded.weight_predictor(full=True).probability
    data = {
        "run": str(run),
        "method": made.method,
        "validation_rows": len(loaded.splits.valid),
        "calibration_rows": len(loaded.weight_predictor().parts.calibration),
        "base_rate": None if probability is None else probability.base_rate or probability.estimated_rate,
        "probability_method": None if probability is None else probability.method,
        "relations": len(loaded.graph.relations),
        "relations_with_own_curve": int((made.given_true.arrays["trust"] > 0).sum()),
        "stored": loaded.fitted.calibration_stored,
    }
    text = (
        f"{made.method} on {data['calibration_rows']:,} of {data['validation_rows']:,} validation triples, "
        f"{data['relations_with_own_curve']} of {data['relations']} relations with a curve of their own; "
    )
    stored, not_stored = f"stored in {run / CALIBRATION_FILE}", "not stored: the run is unfinished or cannot be written"
    text += stored if data["stored"] else not_stored
    if probability is not None:
        text += f"\nprobabilities: {probability.method}, for a base rate of {data['base_rate']:.3g}"
    emit(data, text, as_json)


def similar(
    run: RunFolder,
    entity: Annotated[list[str], typer.Argument(help="Names of one or several entities.")],
    top: Annotated[int, option("Number of similar entities per given entity.")] = 10,
    mean: Annotated[bool, option("Entities similar to the mean of all given ones.")] = False,
    out: Out = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Find the entities whose embeddings are most similar to those of given entities."""
    check_out(out)
    found = opened(run, device).similar(entity, top, mean=mean)
    show(found, out, as_json, "similar entities")


def duplicates(
    run: RunFolder,
    min_similarity: Annotated[float | None, option("Smallest cosine. Default: far above random pairs.")] = None,
    min_overlap: Annotated[float | None, option("Smallest overlap of edges. Default: far above random pairs.")] = None,
    top: Annotated[int, option("Largest number of pairs.")] = 100,
    out: Out = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Find pairs of entities with nearly equal embeddings and nearly the same edges."""
    check_out(out)
    found = opened(run, device).duplicates(min_similarity, min_overlap, top)
    show(found, out, as_json, "pairs")


def clusters(
    run: RunFolder,
    n_clusters: Annotated[int | None, option("Number of clusters. Default: that of the best silhouette.")] = None,
    seed: Annotated[int, option("Random seed.")] = 0,
    out: Out = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Cluster entities by their embeddings; show central entities and typical edges of each cluster.

    --out writes the cluster of each entity.
    """
    check_out(out)
    found = opened(run, device).clusters(n_clusters, seed=seed)
    show(found, out, as_json, "entities", summary=found.summary)


def analogies(
    run: RunFolder,
    a: Annotated[str, typer.Argument(help="An entity.")],
    b: Annotated[str, typer.Argument(help="An entity that is linked to A.")],
    c: Annotated[str, typer.Argument(help="An entity like A.")],
    top: Annotated[int, option("Number of answers.")] = 10,
    new_only: Annotated[bool, option("Leave out answers whose link is known.")] = False,
    out: Out = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Complete an analogy: A is to B as C is to what?"""
    check_out(out)
    found = opened(run, device).analogies(a, b, c, top, new_only=new_only)
    show(found, out, as_json, "answers")


def report(
    run: RunFolder,
    layout: Layout,
    test: TestFile = None,
    out: Annotated[Path | None, option("HTML file to write. Default: RUN/report.html.", "Output")] = None,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write a self-contained HTML report on a run: data, training, evaluation and predicted links.

    The report loads nothing from the network, and all its numbers can be saved from it as JSON. The charts need
    matplotlib.
    """
    from focuse.api import load

    (graph,) = layout.read_given(test)
    page = load(run, device).report(out or run / "report.html", graph, progress=not quiet)
    emit({"report": str(page)}, f"report: {page}", as_json)


def serve(
    run: RunFolder,
    compare: Annotated[Path | None, option("Second run to compare with.")] = None,
    host: Annotated[str, option("Address to listen on; other than loopback, it is open to everyone.")] = "127.0.0.1",
    port: Annotated[int, option("Port to listen on; 0 takes a free one.")] = 8000,
    open_page: Annotated[bool, option("Open the page in a browser.", names="--open")] = False,
    timeout: Annotated[float, option("Seconds for one answer, including the time in the queue.")] = 60.0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Explore a run in a browser: search entities, their neighborhoods and missing links, and compare two runs.

    The page needs no network. Ctrl-C stops the server.
    """
    from focuse.explorer.server import is_loopback
    from focuse.explorer.server import serve as start_server

    def report(url: str) -> None:
        warning = "" if is_loopback(host) else f"there is no password: everyone who can reach {host} can use this run"
        if warning:
            typer.echo(f"focuse: warning: {warning}", err=True)
        started = {"url": url, "run": str(run), "compare": compare and str(compare), "warning": warning}
        emit(started, f"focuse explorer: {url} (API: {url}docs); Ctrl-C stops it", as_json)

    start_server(run, compare, host, port, device, open_page, timeout, report)
    typer.echo("focuse: stopped", err=True)


def export(
    run: RunFolder,
    out: Annotated[Path, option("File: .parquet, .csv, .tsv, .vec (word2vec), .npz or .pt (PyTorch Geometric).")],
    format: Annotated[
        str | None,
        option("parquet, csv, tsv, word2vec, numpy or pyg. Default: by the suffix of --out.", None, EXPORT_FORMATS),
    ] = None,
    what: Annotated[str, option("entities, relations or both; pyg has both.", None, EXPORTED)] = "entities",
    as_json: AsJson = False,
) -> None:
    """Write the embeddings of a run with their names: Parquet, CSV, TSV, word2vec, NumPy or PyTorch Geometric."""
    files = [str(path) for path in opened(run, "cpu").export(out, format, what)]
    emit({"files": files}, "\n".join(f"written: {path}" for path in files), as_json)


def extend(
    run: RunFolder,
    layout: Layout,
    edges: Annotated[str | None, typer.Argument(metavar="NEW_EDGES", help="Edges to add.")] = None,
    out: Annotated[Path | None, option("Folder to write the new run to.", "Output")] = None,
    train_known: Annotated[bool, option("Train the embeddings of known names too, on old and new edges.")] = False,
    epochs: Annotated[
        int | None, option("Epochs. Default: 50 on new edges; with --train-known a fifth of the run's.")
    ] = None,
    remove: Annotated[str | None, option("Triples to remove from the run.", "Input")] = None,
    node_attributes: NodeAttributes = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Add edges, entities and relations to a run, and write the result as a new run.

    By default, only the embeddings of new names are trained, which takes seconds, and those of known names stay the
    same. With --train-known, all are trained for a few more epochs on old and new edges. The old run stays as it is.
    """
    from focuse.api import extend as extend_run

    if out is None:
        raise FocuseError("extend needs a folder for the new run: focuse extend RUN NEW_EDGES --out NEW_RUN")
    given, gone = (source and partial(layout.read, source) for source in (edges, remove))
    made = extend_run(
        run,
        given,
        out=out,
        train_known=train_known,
        epochs=epochs,
        remove=gone,
        node_attributes=node_attributes,
        progress=not quiet,
    )
    data = {"run": str(out), **made.extended[-1]}
    emit(data, _describe_extension(data), as_json)


def _describe_extension(data: dict[str, Any]) -> str:
    parts = [f"{counted(data['added'], 'edges')} added"]
    parts += [f"{data[name]:,} {name}" for name in ("updated", "removed") if data[name]]
    news = f"{counted(data['entities'], 'new entities')}, {counted(data['relations'], 'new relations')}"
    more = f"all embeddings trained for {counted(data['epochs'], 'more epochs')}"
    rows = more if data["train_known"] else "embeddings of known names unchanged"
    return f"{data['run']}: {', '.join(parts)}; {news}; {rows}"
