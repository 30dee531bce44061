"""`focuse datasets`: the benchmark graphs, where they lie, and fetching them."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from focuse.cli.choices import CHOICES
from focuse.cli.output import Json, emit, table

PARTS = ("train", "valid", "test")

Name = Annotated[str, typer.Argument(help=f"One of {', '.join(CHOICES['datasets name'])}.", show_default=False)]
AsJson = Annotated[bool, Json]

app = typer.Typer(
    help="List, find and fetch the benchmark graphs of the literature.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("list", short_help="What there is, and where.")
def list_(as_json: AsJson = False) -> None:
    """List the data sets: rows, where they were found, source and licence."""
    from focuse import datasets
    from focuse.data.datasets import data_folder
    from focuse.data.graph_cache import cache_folder

    rows = [describe(name) for name in datasets.names()]
    data = data_folder()
    places = {"data": None if data is None else str(data), "cache": str(cache_folder())}
    emit({"data_sets": rows, **places}, _text(rows), as_json)


@app.command("path", short_help="The folder of one.")
def path(name: Name, as_json: AsJson = False) -> None:
    """Print the folder that holds a data set's train, valid and test files."""
    from focuse import datasets

    folder = str(datasets.path(name))
    emit({"name": name, "folder": folder}, folder, as_json)


@app.command("fetch", short_help="Download one.")
def fetch(
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Download again and replace the copy in the cache.")] = False,
    as_json: AsJson = False,
) -> None:
    """Have a data set here: check the one that is found, or download it into the cache."""
    from focuse import datasets

    watched = sys.stderr.isatty()
    folder = str(datasets.fetch(name, force, _say if watched else None, _progress if watched else None))
    emit({"name": name, "folder": folder}, folder, as_json)


def describe(name: str) -> dict[str, Any]:
    """What is known of a data set without reading it."""
    from focuse.data.datasets import CATALOG, find

    entry, found = CATALOG[name], find(name)
    return {
        "name": name,
        "title": entry.title,
        "rows": {part: entry.files[part].rows for part in PARTS},
        "found": None if found is None else str(found.path),
        "missing": [] if found is None else found.missing,
        "url": entry.url or None,
        "source": entry.source,
        "licence": entry.license,
        "note": entry.note,
    }


def _text(rows: list[dict[str, Any]]) -> str:
    counts = table(["name", *PARTS], [[row["name"], *(f"{row['rows'][part]:,}" for part in PARTS)] for row in rows])
    places = ["found", *(_place(row) for row in rows)]
    lines = [f"{line}  {place}" for line, place in zip(counts.splitlines(), places, strict=True)]
    for row in rows:
        parts = [row["title"], row["source"], row["licence"], row["note"]]
        lines += ["", f"{row['name']}: {'; '.join(part for part in parts if part)}"]
    return "\n".join(lines)


def _place(row: dict[str, Any]) -> str:
    if row["found"] is None:
        return "to be fetched" if row["url"] else "not here"
    return f"{row['found']} (without {' and '.join(row['missing'])})" if row["missing"] else str(row["found"])


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _progress(done: int, total: int | None) -> None:
    """One line that is written over until all is there; an error would write over it, too."""
    text = f"{done / 1e6:.1f}{f' of {total / 1e6:.1f}' if total else ''} MB"
    typer.echo(text if done == total else f"{text}\r", err=True, nl=done == total)
