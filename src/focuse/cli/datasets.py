"""`focuse datasets`: list the benchmark graphs, print their folders and download them."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from focuse.cli.choices import CHOICES
from focuse.cli.output import Json, emit

PARTS = ("train", "valid", "test")

Name = Annotated[str, typer.Argument(help=f"One of {', '.join(CHOICES['datasets name'])}.", show_default=False)]
AsJson = Annotated[bool, Json]

app = typer.Typer(
    help="List, find and download the benchmark graphs of the literature.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("list", short_help="List the datasets.")
def list_(as_json: AsJson = False) -> None:
    """List the datasets: their rows, where they were found, source and license."""
    from focuse.data.datasets import data_folder, names
    from focuse.data.out_of_core import cache_folder

    rows = [describe(name) for name in names()]
    data = data_folder()
    folders = {"data": None if data is None else str(data), "cache": str(cache_folder())}
    emit({"datasets": rows, **folders}, _text(rows), as_json)


@app.command("path", short_help="Print the folder of a dataset.")
def path(name: Name, as_json: AsJson = False) -> None:
    """Print the folder that contains the train, valid and test files of a dataset."""
    from focuse.data import datasets

    folder = str(datasets.path(name))
    emit({"name": name, "folder": folder}, folder, as_json)


@app.command("fetch", short_help="Download a dataset.")
def fetch(
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Download again and replace the copy in the cache.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check the copy of a dataset that is found, or download it into the cache, and print its folder."""
    from focuse.data import datasets

    folder = str(datasets.fetch(name, force, progress=sys.stderr.isatty()))
    emit({"name": name, "folder": folder}, folder, as_json)


def describe(name: str) -> dict[str, Any]:
    """Return what is known about a dataset without reading it."""
    from focuse.data.datasets import CATALOG, find

    entry, found = CATALOG[name], find(name)
    return {
        "name": name,
        "title": entry.title,
        "rows": {part: entry.files[part].rows for part in PARTS},
        "found": None if found is None else str(found.folder),
        "missing": [] if found is None else found.missing,
        "url": entry.url or None,
        "source": entry.source,
        "license": entry.license,
        "note": entry.note,
    }


def _text(rows: list[dict[str, Any]]) -> str:
    from focuse.results import format_table

    cells = [[row["name"], *(f"{row['rows'][part]:,}" for part in PARTS), _location(row)] for row in rows]
    lines = [format_table(["name", *PARTS, "found"], cells, [True, False, False, False, True])]
    for row in rows:
        parts = [row["title"], row["source"], row["license"], row["note"]]
        lines += ["", f"{row['name']}: {'; '.join(part for part in parts if part)}"]
    return "\n".join(lines)


def _location(row: dict[str, Any]) -> str:
    if row["found"] is None:
        return "not downloaded" if row["url"] else "not found"
    return f"{row['found']} (without {' and '.join(row['missing'])})" if row["missing"] else str(row["found"])
