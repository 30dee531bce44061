"""Commands on graphs without a run: describe one, convert it, and the benchmark datasets."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focuse.cli.options import GraphFile, Json, Layout, completed, option, with_options
from focuse.cli.output import MARKUP, Command, Group, emit
from focuse.errors import FocuseError, counted, printable

if TYPE_CHECKING:
    from focuse.data.statistics import GraphStatistics, Leakage
    from focuse.evaluation.weight_metrics import Errors

    # Part of a held-out graph (positives, clean) -> baseline -> its errors.
    Baselines = Mapping[str, Mapping[str, Errors]]

SHADES = " ▁▂▃▄▅▆▇█"


# ---- focuse describe ------------------------------------------------------------------------------------------------


@with_options()
def describe(
    graph: Annotated[str, GraphFile],
    layout: Layout,
    valid: Annotated[str | None, option("Validation triples.", "Input")] = None,
    test: Annotated[str | None, option("Test triples.", "Input")] = None,
    max_relations: Annotated[int, option("Largest number of relations to list.", "Output")] = 20,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Describe a graph: counts, weights per relation, repeated triples and inverse pairs.

    With --valid or --test, also their leakage from train, and how well baselines without a model predict their weights.
    """
    from focuse.data.statistics import describe as graph_statistics
    from focuse.evaluation.weight_evaluation import baseline_errors

    graphs = {name: layout.read(path) for name, path in (("valid", valid), ("test", test)) if path is not None}
    train = layout.read(graph)
    found = graph_statistics(train, graphs)
    # Without weights there is nothing to predict.
    rows = {name: baseline_errors(train, part) for name, part in graphs.items() if train.weighted and part.weighted}
    text = "\n".join([format_statistics(found, max_relations, rows), *(f"note: {note}" for note in train.notes)])
    emit({**found.to_dict(), "baselines": _as_data(rows), "notes": list(train.notes)}, text, as_json)


def format_statistics(facts: GraphStatistics, most: int, baselines: Mapping[str, Baselines] | None = None) -> str:
    """Return statistics as text; `baselines` has the errors of baselines on each held-out graph."""
    from focuse.results import format_table

    lines = [
        f"{facts.source}: {counted(facts.edges, 'edges')}, {counted(facts.entities, 'entities')}, "
        f"{counted(facts.relations, 'relations')}",
        f"first edge: {' | '.join(map(printable, facts.first_edge))}",
        *([_columns(facts)] if facts.columns else [_weights(facts)]),
        f"repeated triples: {facts.repeated_triples:,} ({counted(facts.repeated_rows, 'extra rows')}), "
        f"{facts.repeated_with_other_weight:,} of them with differing weights",
        f"inverse pairs: {counted(facts.rows_with_inverse, 'rows', 'have')} an inverse edge, "
        f"{facts.rows_with_same_relation_inverse:,} of the same relation; self loops: {facts.self_loops:,}",
        "",
        format_table(
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
        lines.append(f"… and {counted(len(facts.per_relation) - most, 'more relations')} (--max-relations N)")
    for name, leak in facts.leakage.items():
        lines += ["", _leakage(name, leak)]
        if baselines and name in baselines:
            lines += ["", _baselines(name, baselines[name])]
    return "\n".join(lines)


def _baselines(name: str, rows: Baselines) -> str:
    """Return the errors of baselines on all of a held-out graph, and on the triples that do not leak from train."""
    from focuse.results import format_table

    whole, clean = rows["positives"], rows["clean"]

    def figures(row: str) -> list[str]:
        numbers = (whole[row].mse, whole[row].mae, clean[row].mse, clean[row].mae)
        return [f"{number:.4g}" if math.isfinite(number) else "–" for number in numbers]

    counts = [next(iter(part.values())).n for part in (whole, clean)]
    headings = ["", "MSE", "MAE", "MSE, not leaked", "MAE, not leaked"]
    cells = [[f"  {row}", *figures(row)] for row in whole]
    return "\n".join(
        [
            f"{name}: weights predicted by baselines (all {counts[0]:,} rows; not leaked: {counts[1]:,} rows)",
            format_table(headings, cells),
        ]
    )


def _as_data(rows: Mapping[str, Baselines]) -> dict[str, Any]:
    return {
        name: {part: {row: errors.to_dict() for row, errors in found.items()} for part, found in parts.items()}
        for name, parts in rows.items()
    }


def _columns(facts: GraphStatistics) -> str:
    """Return the range of each of several weight columns, how many edges lack it, and its importance in training."""
    from focuse.results import format_table

    rows = [
        [
            f"  {printable(row.name)}",
            *(f"{number:.4g}" for number in (row.weight_min, row.weight_mean, row.weight_max)),
            *(f"{share:.1%}" for share in (row.missing, row.explained)),
            f"{row.importance:.2f}",
        ]
        for row in facts.columns
    ]
    headings = ["", "min", "mean", "max", "missing", "explained by graph", "importance"]
    lines = [
        f"weights: {len(facts.columns)} columns",
        format_table(headings, rows),
        "  the following is about the mean of an edge's columns, each scaled to [0, 1]",
    ]
    return "\n".join(lines)


def _weights(facts: GraphStatistics) -> str:
    if not facts.weighted:
        return "weights: none, so that all are 1; training ignores them"
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
        f"  … of the same relation                 {share(leak.inverse_of_same_relation)}",
        f"  same pair, other relation              {share(leak.same_pair_other_relation)}",
        f"  not leaked                             {share(leak.neither_duplicate_nor_inverse)}",
        f"  with names that are not in train       {share(leak.unseen.rows)}",
    ]
    names = leak.unseen.entity_examples + leak.unseen.relation_examples
    if names:
        lines.append(f"  for example {', '.join(map(repr, names[:5]))}")
    return "\n".join(lines)


def bars(counts: list[int]) -> str:
    """Return counts as a row of small bars.

    >>> bars([0, 1, 4])
    ' ▂█'
    """
    top = max(counts) or 1
    return "".join(SHADES[-(-count * (len(SHADES) - 1) // top)] for count in counts)


# ---- focuse convert -------------------------------------------------------------------------------------------------


@with_options()
def convert(
    source: Annotated[str, typer.Argument(help="Graph as TSV, CSV, Parquet, RDF or GraphML.")],
    target: Annotated[Path, typer.Argument(help="File: .tsv, .csv, .parquet, .nt, .nq, .ttl, .trig or .graphml.")],
    layout: Layout,
    missing_weight: Annotated[
        str | None,
        option("RDF, GraphML: weight of edges without one, or drop to leave them out. Default: an error.", "Input"),
    ] = None,
    literals: Annotated[
        str, option("RDF: skip triples with a literal, or keep it as an entity.", "Input", ("skip", "keep"))
    ] = "skip",
    short_names: Annotated[bool, option("RDF: keep the last part of IRIs.", "Input", flag="--short-names")] = False,
    base_iri: Annotated[
        str | None, option("RDF: IRI to which names that are not IRIs are appended. Default: urn:focuse:.", "Output")
    ] = None,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Read a graph and write it in the format of the target's suffix."""
    from focuse.data.graph import BASE_IRI
    from focuse.data.writers import check_graph_path

    check_graph_path(target)
    if target.exists() and Path(source).exists() and target.samefile(source):
        raise FocuseError(f"{target}: is the graph itself; choose another target")
    base_iri = base_iri or BASE_IRI
    graph = layout.read(
        source, missing_weight=missing_weight, literals=literals, short_names=short_names, base_iri=base_iri
    )
    graph.write(target, base_iri)
    data = {
        "source": source,
        "target": str(target),
        "edges": len(graph),
        "entities": len(graph.entities),
        "relations": len(graph.relations),
        "weights": list(graph.columns.names) if graph.columns is not None else ["weight"] * graph.weighted,
        "notes": list(graph.notes),
    }
    text = f"{counted(len(graph), 'edges')} written to {target}"
    emit(data, "\n".join([text, *(f"note: {note}" for note in graph.notes)]), as_json)


# ---- focuse datasets ------------------------------------------------------------------------------------------------

NAMES = ("ppi5k", "nl27k", "cn15k", "onet20k", "onet-importance")  # tests compare them with the catalog
PARTS = ("train", "valid", "test")
DATASET_FIELDS = ("title", "source", "license", "url", "note")
Name = Annotated[str, typer.Argument(help=f"One of {', '.join(NAMES)}.", autocompletion=completed(NAMES))]

datasets = typer.Typer(
    help="List, find and download benchmark graphs.", no_args_is_help=True, rich_markup_mode=MARKUP, cls=Group
)


@datasets.command("list", short_help="List the datasets.", cls=Command)
def list_datasets(as_json: Annotated[bool, Json] = False) -> None:
    """List the datasets with their sizes, folders, sources and licenses."""
    from focuse.data.datasets import CATALOG, data_folder, find
    from focuse.data.out_of_core import cache_folder
    from focuse.results import ResultTable

    copies = {name: find(name) for name in CATALOG}
    entries = CATALOG.values()
    states = {
        name: ("can be downloaded" if CATALOG[name].url else "no public source")
        if copy is None
        else f"without {' and '.join(copy.missing)}"
        if copy.missing
        else "complete"
        for name, copy in copies.items()
    }
    table = ResultTable(
        {
            "name": list(CATALOG),
            **{part: [entry.files[part].rows for entry in entries] for part in PARTS},
            "state": list(states.values()),
            "folder": [None if copy is None else str(copy.folder) for copy in copies.values()],
            **{
                key: [getattr(entry, key) for entry in entries] for key in ("title", "source", "license", "url", "note")
            },
        },
        info={"data": str(data_folder() or ""), "cache": str(cache_folder())},
        printed=["name", *PARTS, "state", "folder"],
        notes=[f"{each.name}: {each.title}; {each.source}; {each.license}" for each in entries],
    )
    emit(table.to_json(), str(table), as_json)


@datasets.command("path", short_help="Print the folder of a dataset.", cls=Command)
def path(name: Name, as_json: Annotated[bool, Json] = False) -> None:
    """Print the folder with the train, valid and test files of a dataset."""
    from focuse.data.datasets import path

    folder = str(path(name))
    emit({"name": name, "folder": folder}, folder, as_json)


@datasets.command("fetch", short_help="Download a dataset.", cls=Command)
def fetch(
    name: Name,
    force: Annotated[bool, option("Download again and replace the copy in the cache.", flag="--force")] = False,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Check a dataset that is found, or download it into the cache."""
    from focuse.data.datasets import fetch

    folder = str(fetch(name, force, progress=sys.stderr.isatty()))
    emit({"name": name, "folder": folder}, folder, as_json)
