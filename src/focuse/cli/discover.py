"""`focuse discover`: the most probable links that a graph lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.output import Json
from focuse.cli.results import Device, LinksOut, RunFolder, check_out, opened, show

NAME = "discover"
SHORT = "The most probable missing links of a graph."


def command(
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
