"""`focuse clusters`: groups of entities, and what is typical of each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.output import Json
from focuse.cli.results import Device, RunFolder, check_out, show

NAME = "clusters"
SHORT = "Groups of entities that are alike."


def command(
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
    from focuse.run import load

    check_out(out)
    found = load(run, device).clusters(count, method=method, smallest=smallest, seed=seed)
    show(found, out, as_json, "entities", len(found.labels))
