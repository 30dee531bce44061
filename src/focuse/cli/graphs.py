"""Commands on graphs without any run: describe one, or write it in another form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focuse.cli.files import Layout, Query, shown
from focuse.cli.output import Json, bars, emit, table
from focuse.errors import FocuseError, counted, printable

if TYPE_CHECKING:
    from focuse.data.statistics import GraphStatistics, Leakage
    from focuse.evaluation.weight_metrics import Errors

    # Part of a held-out graph (positives, clean) -> baseline -> its errors.
    BaselineErrors = Mapping[str, Mapping[str, Errors]]


# ---- focuse describe: statistics of a graph, leakage from train to test, and errors of baselines -------------------


def describe(
    file: Annotated[str, typer.Argument(help="A graph (train, if --valid or --test are given).")],
    valid: Annotated[str | None, typer.Option(help="Validation triples.")] = None,
    test: Annotated[str | None, typer.Option(help="Test triples.")] = None,
    columns: Annotated[str | None, typer.Option(help="Columns to use, by heading or counted from 1.")] = None,
    weight_columns: Annotated[
        str | None, typer.Option(help="Several weight columns, by heading or counted from 1.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Separator of a text file.")] = None,
    header: Annotated[bool | None, typer.Option("--header/--no-header", help="Whether line 1 is a header.")] = None,
    query: Query = None,
    most: Annotated[int, typer.Option("--relations", help="Most relations to list.")] = 20,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Describe a graph: counts, weights per relation, repeated triples, inverse pairs and leakage between splits.

    With --valid or --test: which of their rows are leaked by train, and how well three baselines predict their weights.
    """
    from focuse.data.statistics import describe as graph_statistics
    from focuse.evaluation.weight_evaluation import baseline_errors

    layout = Layout(columns, delimiter, header, weight_columns, query)
    graphs = {name: layout.read(path) for name, path in (("valid", valid), ("test", test)) if path is not None}
    train = layout.read(file)
    facts = graph_statistics(train, graphs)
    # Without numbers there is nothing to guess.
    rows = {name: baseline_errors(train, graph) for name, graph in graphs.items() if train.weighted and graph.weighted}
    text = "\n".join([format_statistics(facts, most, rows), *(f"note: {note}" for note in train.notes)])
    emit({**facts.to_dict(), "baselines": _as_data(rows), "notes": list(train.notes)}, text, as_json)


def format_statistics(facts: GraphStatistics, most: int, baselines: Mapping[str, BaselineErrors] | None = None) -> str:
    """Return the statistics as text; `baselines` has the errors of the baselines on each held-out graph."""
    lines = [
        f"{facts.source}: {counted(facts.edges, 'edges')}, {counted(facts.entities, 'entities')}, "
        f"{counted(facts.relations, 'relations')}",
        f"first edge: {' | '.join(map(printable, facts.first_edge))}",
        *([_columns(facts)] if facts.columns else [_weights(facts)]),
        f"repeated triples: {facts.repeated_triples:,} ({counted(facts.repeated_rows, 'extra rows')}), "
        f"{facts.repeated_with_other_weight:,} of them with differing weights",
        f"inverse pairs: {counted(facts.rows_with_inverse, 'rows', 'have')} an inverse edge, "
        f"{facts.rows_with_same_relation_inverse:,} of them with the same relation; self loops: {facts.self_loops:,}",
        "",
        table(
            ["relation", "edges", "heads", "tails", "min", "median", "mean", "max", "weights"],
            [
                [
                    printable(row.name),
                    *(f"{count:,}" for count in (row.edges, row.heads, row.tails)),
                    *(f"{w:.4g}" for w in (row.weight_min, row.weight_median, row.weight_mean, row.weight_max)),
                    f"|{bars(row.histogram)}|",
                ]
                for row in facts.per_relation[:most]
            ],
        ),
    ]
    if len(facts.per_relation) > most:
        lines.append(f"… and {counted(len(facts.per_relation) - most, 'more relations')} (--relations N)")
    for name, leak in facts.leakage.items():
        lines += ["", _leakage(name, leak)]
        if baselines and name in baselines:
            lines += ["", _baselines(name, baselines[name])]
    return "\n".join(lines)


def _baselines(name: str, rows: BaselineErrors) -> str:
    """Return the errors that a model must beat, on all rows of a held-out graph and on those that are not leaked."""
    whole, clean = rows["positives"], rows["clean"]

    def figures(row: str) -> list[str]:
        numbers = (whole[row].mse, whole[row].mae, clean[row].mse, clean[row].mae)
        return [f"{number:.4g}" if math.isfinite(number) else "–" for number in numbers]

    counts = [next(iter(part.values())).n for part in (whole, clean)]
    return "\n".join(
        [
            f"{name}: errors of baselines that predict weights (all {counts[0]:,} rows, and the {counts[1]:,} that are "
            "not leaked)",
            table(["", "MSE", "MAE", "not leaked: MSE", "MAE"], [[f"  {row}", *figures(row)] for row in whole]),
        ]
    )


def _as_data(rows: Mapping[str, BaselineErrors]) -> dict[str, Any]:
    return {
        name: {part: {row: errors.to_dict() for row, errors in found.items()} for part, found in parts.items()}
        for name, parts in rows.items()
    }


def _columns(facts: GraphStatistics) -> str:
    """Return the range of each of several weights, the fraction of edges without it, and its importance in training."""
    rows = [
        [
            f"  {printable(row.name)}",
            *(f"{number:.4g}" for number in (row.weight_min, row.weight_mean, row.weight_max)),
            *(f"{share:.1%}" for share in (row.missing, row.explained)),
            f"{row.importance:.2f}",
        ]
        for row in facts.columns
    ]
    headings = ["", "min", "mean", "max", "missing", "variance explained by graph structure", "importance"]
    lines = [
        f"weights: {len(facts.columns)} columns",
        table(headings, rows),
        "  the statistics below are those of the mean of an edge's columns, each scaled to [0, 1]",
    ]
    return "\n".join(lines)


def _weights(facts: GraphStatistics) -> str:
    if not facts.weighted:
        return "weights: none, so every weight is 1; training ignores them"
    if facts.all_weights_equal:
        return f"weights: all are {facts.weight_min:g}; training ignores them"
    return f"weights: {facts.weight_min:g} to {facts.weight_max:g}, mean {facts.weight_mean:.4g}"


def _leakage(name: str, leak: Leakage) -> str:
    def share(rows: int) -> str:
        return f"{rows:,} ({rows / leak.rows:.1%})"

    lines = [
        f"{name}: {counted(leak.rows, 'rows')}",
        f"  same (head, relation, tail) in train   {share(leak.same_triple)}",
        f"  … and the same weight                  {share(leak.same_triple_and_weight)}",
        f"  inverse edge in train                  {share(leak.inverse_edge)}",
        f"  … with the same relation               {share(leak.inverse_of_same_relation)}",
        f"  same pair, other relation in train     {share(leak.same_pair_other_relation)}",
        f"  not leaked                             {share(leak.neither_duplicate_nor_inverse)}",
        f"  names that are not in train            {share(leak.unseen.rows)}",
    ]
    names = leak.unseen.entity_examples + leak.unseen.relation_examples
    if names:
        lines.append(f"  for example {', '.join(map(repr, names[:5]))}")
    return "\n".join(lines)


# ---- focuse convert: a graph from any form that can be read to any that can be written -------------------------------


def convert(
    source: Annotated[str, typer.Argument(help="TSV, CSV, Parquet, RDF, GraphML, or a data base (with --query).")],
    target: Annotated[Path, typer.Argument(help="File: .tsv, .csv, .parquet, .nt, .nq, .ttl, .trig or .graphml.")],
    columns: Annotated[str | None, typer.Option(help="Columns to use, by heading or counted from 1.")] = None,
    weight_columns: Annotated[
        str | None, typer.Option(help="Several weight columns; of RDF and GraphML, the properties that are weights.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Separator of a text file.")] = None,
    header: Annotated[bool | None, typer.Option("--header/--no-header", help="Whether line 1 is a header.")] = None,
    query: Query = None,
    missing: Annotated[
        str | None, typer.Option(help="RDF, GraphML: the weight of facts without one, or drop [default: an error].")
    ] = None,
    literals: Annotated[str, typer.Option(help="RDF: skip facts with a literal, or keep it as an entity.")] = "skip",
    shorten: Annotated[bool, typer.Option("--shorten", help="RDF: keep the last part of IRIs alone.")] = False,
    base: Annotated[
        str | None, typer.Option(help="RDF: what names that are no IRIs are minted from [default: urn:focuse:].")
    ] = None,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Read a graph and write it in the form that the target's name asks for."""
    from focuse.data.graph import BASE_IRI
    from focuse.data.readers import read
    from focuse.data.writers import check_graph_path

    check_graph_path(target)
    if target.exists() and Path(source).exists() and target.samefile(source):
        raise FocuseError(f"{target}: that is the graph itself; choose another target")
    graph = read(
        source,
        columns=columns.split(",") if columns else None,
        weights=weight_columns.split(",") if weight_columns else None,
        delimiter=delimiter,
        header=header,
        query=query,
        missing=missing,
        literals=literals,
        shorten=shorten,
        base=base or BASE_IRI,
    )
    graph.write(target, base or BASE_IRI)
    data = {
        "source": shown(source),
        "target": str(target),
        "edges": len(graph),
        "entities": len(graph.entities),
        "relations": len(graph.relations),
        "weights": list(graph.columns.names) if graph.columns is not None else ["weight"] * graph.weighted,
        "notes": list(graph.notes),
    }
    text = f"{counted(len(graph), 'edges')} written to {target}"
    emit(data, "\n".join([text, *(f"note: {note}" for note in graph.notes)]), as_json)
