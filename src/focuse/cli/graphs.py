"""Commands on graphs without a run: describe one, convert it, the benchmark datasets, and rules."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focuse.cli.options import AsJson, GraphFile, Layout, completed, option
from focuse.cli.output import emit
from focuse.config import SETTINGS
from focuse.errors import FocuseError, counted, escape_terminal_codes
from focuse.option_strings import check_count

if TYPE_CHECKING:
    from focuse.evaluation.weight_evaluation import Errors

    # Part of a held-out graph (positives, clean) -> baseline -> its errors.
    Baselines = Mapping[str, Mapping[str, Errors]]


# ---- focuse describe ------------------------------------------------------------------------------------------------


def describe(
    graph: Annotated[str, GraphFile],
    layout: Layout,
    valid: Annotated[str | None, option("Validation triples.", "Input")] = None,
    test: Annotated[str | None, option("Test triples.", "Input")] = None,
    max_relations: Annotated[int, option("Largest number of relations to list.", "Output")] = 20,
    as_json: AsJson = False,
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
    data = {
        name: {part: {row: errors.to_dict() for row, errors in found.items()} for part, found in parts.items()}
        for name, parts in rows.items()
    }
    errors = [f"\n{_baselines(name, parts)}" for name, parts in rows.items()]
    table = found.to_text(check_count("max_relations", max_relations, 0))
    text = "\n".join([table, *errors, *(f"note: {note}" for note in train.notes)])
    emit({**found.to_dict(), "baselines": data, "notes": list(train.notes)}, text, as_json)


def _baselines(name: str, parts: Baselines) -> str:
    """Return the errors of baselines on all of a held-out graph, and on the triples that do not leak from train."""
    from focuse.results import format_table

    rows = []
    for row, whole in parts["positives"].items():
        clean = parts["clean"][row]
        numbers = (whole.mse, whole.mae, clean.mse, clean.mae)
        rows.append([f"  {row}", *("–" if math.isnan(number) else f"{number:.4g}" for number in numbers)])
    heading = f"{name}: weights predicted by baselines (all {whole.n:,} rows; not leaked: {clean.n:,} rows)"
    return f"{heading}\n{format_table(['', 'MSE', 'MAE', 'MSE, not leaked', 'MAE, not leaked'], rows)}"


# ---- focuse convert -------------------------------------------------------------------------------------------------


def convert(
    source: Annotated[str, typer.Argument(help="Graph as TSV, CSV, Parquet, RDF or GraphML.")],
    target: Annotated[Path, typer.Argument(help="File: .tsv, .csv, .parquet, .nt, .nq, .ttl, .trig or .graphml.")],
    layout: Layout,
    literals: Annotated[str, option("RDF: skip or keep triples with a literal.", "Input", ("skip", "keep"))] = "skip",
    short_names: Annotated[bool, option("RDF: keep the last part of IRIs.", "Input")] = False,
    base_iri: Annotated[str, option("RDF: IRI to which other names are appended.", "Output")] = "urn:focuse:",
    as_json: AsJson = False,
) -> None:
    """Read a graph and write it in the format of the target's suffix."""
    from focuse.data.writers import check_graph_path

    check_graph_path(target, source)
    graph = layout.read(source, literals=literals, short_names=short_names, base_iri=base_iri)
    graph.write(target, base_iri)
    data = {
        "source": graph.source,
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
Name = Annotated[str, typer.Argument(help=f"One of {', '.join(NAMES)}.", autocompletion=completed(NAMES))]


def list_datasets(as_json: AsJson = False) -> None:
    """List the datasets with their sizes, folders, sources and licenses."""
    from focuse.data.datasets import CATALOG, PARTS, data_folder, find
    from focuse.data.out_of_core import cache_folder
    from focuse.results import ResultTable, attribute_columns

    entries, states, folders = CATALOG.values(), [], []
    for entry in entries:
        copy = find(entry.name)
        missing = "can be downloaded" if entry.url else "no public source"
        state = "complete" if copy is None or not copy.missing else f"without {' and '.join(copy.missing)}"
        states.append(missing if copy is None else state)
        folders.append(None if copy is None else str(copy.folder))
    table = ResultTable(
        {
            "name": list(CATALOG),
            **{part: [entry.files[part].rows for entry in entries] for part in PARTS},
            "state": states,
            "folder": folders,
            **attribute_columns(list(entries), "title", "source", "license", "url", "note"),
        },
        info={"data": str(data_folder() or ""), "cache": str(cache_folder())},
        printed=["name", *PARTS, "state", "folder"],
        notes=[f"{each.name}: {each.title}; {each.source}; {each.license}" for each in entries],
    )
    emit(table.to_json(), str(table), as_json)


def path(name: Name, as_json: AsJson = False) -> None:
    """Print the folder with the train, valid and test files of a dataset."""
    from focuse.data.datasets import path

    folder = str(path(name))
    emit({"name": name, "folder": folder}, folder, as_json)


def fetch(
    name: Name,
    force: Annotated[bool, option("Download again and replace the copy in the cache.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check a dataset that is found, or download it into the cache."""
    from focuse.data.datasets import fetch

    folder = str(fetch(name, force, progress=sys.stderr.isatty()))
    emit({"name": name, "folder": folder}, folder, as_json)


# ---- focuse rules ---------------------------------------------------------------------------------------------------

# As in focuse.rules (a test compares), which would load pyarrow for every command.
MINIMUM, MOST_GROUNDINGS = 0.5, 1_000_000
SUPPORT, CONFIDENCE, MOST_PATHS = 10, 0.5, 20_000_000
SHAPES = ("symmetry", "inverse", "transitivity", "composition")
WeightScaling = Annotated[
    str | None, option(f"Bring weights into [0, 1]: {', '.join(SETTINGS['weight_scaling'].choices)}.", "Input")
]


def ground(
    graph: Annotated[str, GraphFile],
    rules: Annotated[Path, typer.Argument(help="A file of rules, one per line.")],
    layout: Layout,
    out: Annotated[Path | None, option("Write the inferred triples here.", "Output")] = None,
    minimum: Annotated[float, option("Minimum truth value of a rule's body.")] = MINIMUM,
    limit: Annotated[int, option("Maximum number of groundings of a rule.")] = MOST_GROUNDINGS,
    weight_scaling: WeightScaling = None,
    keep_known: Annotated[bool, option("Write triples that the graph has, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ground rules over a graph with confidences in [0, 1], and write the unseen triples that they infer."""
    from focuse.data.writers import check_graph_path
    from focuse.results import ResultTable, attribute_columns
    from focuse.rules import grounding
    from focuse.rules.grammar import read_rules

    if out is not None:
        check_graph_path(out, graph, rules)
    wanted, train = read_rules(rules), layout.read(graph)
    found = grounding.ground(train, wanted, minimum=minimum, limit=limit, weight_scaling=weight_scaling)
    inferred = grounding.collect(train, found, keep_known)
    _note([one.note for one in found if one.note])
    if out is not None:
        if not len(inferred):
            raise FocuseError(f"{out}: nothing to write, the graph has every inferred triple; --keep-known writes them")
        inferred.write(out)
    table = ResultTable(
        {
            "rule": [str(one.rule) for one in found],
            "line": [one.rule.line for one in found],
            "groundings": [len(one) for one in found],
            **attribute_columns(found, "triples", "new", prefix="num_"),
            **attribute_columns(found, "hit_ratio", "mean_confidence", "distance", "minimum"),
            "capped": [bool(one.note) for one in found],
        },
        printed=["rule", "groundings", "triples", "new", "hit_ratio", "mean_confidence", "distance"],
    )
    written = None if out is None else str(out)
    data = {"graph": train.source, "rules": table.to_dicts(), "inferred": len(inferred), "out": written}
    text = f"{table}\n\n{counted(len(inferred), 'inferred triples')}{f' written to {out}' if out else ''}"
    emit(data, text, as_json)


def mine(
    graph: Annotated[str, GraphFile],
    layout: Layout,
    out: Annotated[Path | None, option("Write the rules to this file.", "Output")] = None,
    support: Annotated[int, option("Minimum number of pairs that confirm a rule.")] = SUPPORT,
    confidence: Annotated[float, option("Minimum fraction of pairs that confirm it.")] = CONFIDENCE,
    shape: Annotated[list[str] | None, option(f"Only this shape, may be repeated: {', '.join(SHAPES)}.")] = None,
    top: Annotated[int, option("Maximum number of rules to show.")] = 20,
    limit: Annotated[int, option("Maximum number of two-edge paths to count.")] = MOST_PATHS,
    weight_scaling: WeightScaling = None,
    as_json: AsJson = False,
) -> None:
    """Propose rules that hold in a graph: symmetric and inverse relations, transitivity, compositions."""
    from focuse.results import ResultTable
    from focuse.rules import mining
    from focuse.storage.atomic import check_writable

    if out is not None:
        check_writable(out, graph)
    train = layout.read(graph)
    found = mining.mine(
        train,
        shapes=shape or mining.SHAPES,
        minimum_support=support,
        minimum_confidence=confidence,
        limit=limit,
        weight_scaling=weight_scaling,
    )
    _note(found.notes)
    if out is not None:
        found.write(out)
    best = ResultTable(found.to_arrow().slice(0, check_count("top", top)))
    written = None if out is None else str(out)
    data = {"graph": train.source, "found": len(found), "rules": best.to_dicts(), "notes": found.notes, "out": written}
    more = f", the best {len(best):,} shown" if len(best) < len(found) else ""
    text = f"{best}\n\n{counted(len(found), 'rules')}{more}{f', all written to {out}' if out else ''}"
    emit(data, text if len(found) else "no rules hold so often; lower --support or --confidence", as_json)


def _note(notes: Iterable[str]) -> None:
    for note in notes:
        typer.echo(escape_terminal_codes(f"note: {note}"), err=True)
