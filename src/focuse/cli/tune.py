"""`focuse tune`: search the settings that learn a graph best."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from focuse.cli.files import Layout, Query, shown
from focuse.cli.output import Json, emit, next_line, table

SHOWN = 10


def command(
    graph: Annotated[str, typer.Argument(help="Head, relation, tail, weight, as for train.")],
    out: Annotated[Path, typer.Option(help="Folder of the study; the same one goes on with it, or shares it.")],
    valid: Annotated[str | None, typer.Option(help="Validation triples [default: 10 % of GRAPH].")] = None,
    test: Annotated[
        str | None, typer.Option(help="Test triples, known facts only [default: 10 %, if no --valid either].")
    ] = None,
    valid_fraction: Annotated[float, typer.Option(help="Share of GRAPH held out where no --valid is given.")] = 0.1,
    test_fraction: Annotated[
        float, typer.Option(help="Share held out where neither --valid nor --test is given.")
    ] = 0.1,
    columns: Annotated[str | None, typer.Option(help="Columns to use, as for train.")] = None,
    weight_columns: Annotated[str | None, typer.Option(help="Several weight columns, as for train.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Separator of a text file [default: found by looking].")] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether line 1 is a header [default: by looking].")
    ] = None,
    query: Query = None,
    relation_weights: Annotated[
        Path | None, typer.Option(help="File of relation and weight: one weight a relation instead of one an edge.")
    ] = None,
    node_attributes: Annotated[Path | None, typer.Option(help="Numeric attributes of entities, as for train.")] = None,
    model: Annotated[str | None, typer.Option(help="Scoring function, as for train [default: complex].")] = None,
    weight_mode: Annotated[
        str | None, typer.Option(help="focuse, soft-labels or none (a plain model) [default: focuse].")
    ] = None,
    search: Annotated[
        list[str] | None, typer.Option(help="Values to try for a setting, like lr=1e-4,1e-3. May be repeated.")
    ] = None,
    fixed: Annotated[
        list[str] | None, typer.Option("--set", help="A setting held fixed, like dim=200. May be repeated.")
    ] = None,
    space: Annotated[
        Path | None, typer.Option(help="TOML file that is the whole space: lists are searched, values fixed.")
    ] = None,
    sampler: Annotated[str, typer.Option(help="tpe (learns from the trials so far) or grid (all of them).")] = "tpe",
    pruner: Annotated[str, typer.Option(help="What ends weak trials early: median, hyperband or none.")] = "median",
    trials: Annotated[
        int | None, typer.Option(help="Trials the study is to have in all [default: 50, or the whole grid].")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Time after which this command ends: 90s, 30m, 2h [default: none].")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="URL of a data base instead of the folder's journal: sqlite:///study.db.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the search and of every trial [default: 0].")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda [default: auto].")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Search the settings with the best validation MRR, and write them to OUT/best.toml.

    Weak trials end early. Ctrl-C loses nothing: the same command goes on, and several at a time share the work.
    """
    from focuse.option_strings import parse_duration
    from focuse.tuning.space import read_space
    from focuse.tuning.tuning import tune

    given = {"model": model, "weight_mode": weight_mode, "seed": seed, "device": device}
    options = {name: value for name, value in given.items() if value is not None}
    wanted = read_space(space, search or [], fixed or [], options)
    seconds = None if budget is None else parse_duration(budget)
    layout = Layout(columns, delimiter, header, weight_columns, query)
    held = {
        name: None if path is None else layout.read(path, relation_weights)
        for name, path in (("valid", valid), ("test", test))
    }
    done = tune(
        layout.read(graph, relation_weights),
        wanted,
        out,
        **held,
        valid_fraction=valid_fraction,
        test_fraction=test_fraction,
        node_attributes=node_attributes,
        sampler=sampler,
        pruner=pruner,
        trials=trials,
        budget=seconds,
        storage=storage,
        progress=not quiet,
    )
    data = done.to_dict()
    emit(data, _text(data, shown(graph), node_attributes), as_json)


def _text(data: dict[str, Any], graph: str, attributes: Path | None) -> str:
    """The best trials as a table, and what to do next."""
    ranked = sorted(data["trials"], key=lambda row: (row["state"] != "complete", -(row["valid_mrr"] or 0.0)))
    names = list(ranked[0]["searched"]) if ranked else []
    rows = [
        [
            str(row["trial"]),
            row["state"],
            "–" if row["valid_mrr"] is None else f"{row['valid_mrr']:.4f}",
            str(row["best_epoch"]),
            f"{row['seconds']:.1f}",
            *(str(row["searched"][name]) for name in names),
        ]
        for row in ranked[:SHOWN]
    ]
    lines = [table(["trial", "state", "valid MRR", "epoch", "seconds", *names], rows)] if rows else []
    lines.append(f"{data['study']}: {data['done']} of {data['wanted']} trials done")
    if data["running"]:
        lines.append(f"{data['running']} under way in other processes")
    if data["best"]:
        lines.append(f"best: trial {data['best']['trial']}, validation MRR {data['best']['valid_mrr']:.4f}")
        more = [] if attributes is None else ["--node-attributes", str(attributes)]
        model = str(data["best"]["settings"].get("model", ""))
        lines.append(next_line(model, "train", graph, *more, "--config", data["config"], "--out", "RUN"))
    return "\n".join(lines)
