"""`focuse tune`: search the settings that learn a graph best."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.files import Layout, Query, shown
from focuse.cli.output import Json, emit, next_line
from focuse.errors import FocuseError


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
        str | None, typer.Option(help="soft-labels, focuse or none, as for train [default: soft-labels].")
    ] = None,
    search: Annotated[
        list[str] | None, typer.Option(help="Values to try for a setting, like lr=1e-4,1e-3. May be repeated.")
    ] = None,
    fix: Annotated[
        list[str] | None, typer.Option(help="A setting that is not searched, like dim=200. May be repeated.")
    ] = None,
    sampler: Annotated[str, typer.Option(help="tpe (learns from the trials so far) or grid (all of them).")] = "tpe",
    pruner: Annotated[str, typer.Option(help="Whether weak trials end early: median or none.")] = "median",
    trials: Annotated[
        int | None, typer.Option(help="Trials the study is to have in all [default: 50, or the whole grid].")
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option(help="Time after which this command ends: 90s, 30m, 2h [default: none].")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="URL of a database instead of a SQLite file in OUT: postgresql://….")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the search and of every trial [default: 0].")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda [default: auto].")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Search the settings with the best validation result, and write them to OUT/best.toml.

    By default, values around those of train are searched. Ctrl-C is safe: the same command continues, and several
    commands can share a study.
    """
    from focuse.tuning import tune
    from focuse.tuning.space import parse_fix, parse_search

    given = {"model": model, "weight_mode": weight_mode, "seed": seed, "device": device}
    options = {name: value for name, value in given.items() if value is not None}
    fixed = parse_fix(fix or [])
    if twice := sorted(set(fixed) & set(options)):
        raise FocuseError(f"{', '.join(twice)}: given twice; use --fix or the option, not both")
    layout = Layout(columns, delimiter, header, weight_columns, query)
    read = [path and layout.read(path, relation_weights) for path in (graph, valid, test)]
    found = tune(
        read[0],
        out,
        search=parse_search(search or []),
        fix=fixed | options,
        sampler=sampler,
        pruner=pruner,
        trials=trials,
        time_limit=time_limit,
        storage=storage,
        valid=read[1],
        test=read[2],
        valid_fraction=valid_fraction,
        test_fraction=test_fraction,
        node_attributes=node_attributes,
        progress=not quiet,
    )
    more = [] if node_attributes is None else ["--node-attributes", str(node_attributes)]
    command = ["train", shown(graph), *more, "--config", found.config, "--out", "RUN"]
    next_command = next_line(str(found.best["settings"]["model"]), *command)
    done = f"{out}: {len(found)} of {found.trials} trials done; best: trial {found.best['trial']}"
    emit(found.to_json(), f"{found}\n{done}\n{next_command}", as_json)
