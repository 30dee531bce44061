"""Commands that make something of a finished run: a page, an explorer, files for other tools, or a larger run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from focuse.cli.options import AsJson, Device, Layout, NodeAttributes, Quiet, RunFolder, TestFile, option
from focuse.cli.output import emit
from focuse.errors import FocuseError, counted


def report(
    run: RunFolder,
    layout: Layout,
    test: TestFile = None,
    out: Annotated[Path | None, option("HTML file to write. Default: RUN/report.html.", "Output")] = None,
    projection: Annotated[str, option("Projection of the entity map: tsne, umap, pca or none.")] = "tsne",
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write a self-contained HTML report on a run: data, training, evaluation, predicted links and an entity map.

    The report loads nothing from the network, and all its numbers can be saved from it as JSON. The charts need
    matplotlib.
    """
    from focuse.api import load

    page = load(run, device).report(out or run / "report.html", layout.read_given(test), projection, progress=not quiet)
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
    out: Annotated[
        Path,
        option("File: .parquet, .csv, .tsv, .vec (word2vec), .npz, .safetensors, .pt; or a folder (projector)."),
    ],
    format: Annotated[
        str | None,
        option("parquet, csv, tsv, word2vec, projector, numpy, safetensors or pyg. Default: by the suffix of --out."),
    ] = None,
    what: Annotated[str, option("entities, relations or both.")] = "entities",
    as_json: AsJson = False,
) -> None:
    """Write the embeddings of a run with their names: Parquet, CSV, TSV, word2vec, a folder for TensorBoard's
    projector, NumPy, safetensors or tensors for PyTorch Geometric.
    """
    from focuse.api import load

    files = [str(path) for path in load(run, "cpu").export(out, format, what)]
    emit({"files": files}, "\n".join(f"written: {path}" for path in files), as_json)


def extend(
    run: RunFolder,
    layout: Layout,
    edges: Annotated[str | None, typer.Argument(metavar="[NEW_EDGES]", help="Edges to add.")] = None,
    out: Annotated[Path | None, option("Folder to write the new run to.", "Output")] = None,
    freeze: Annotated[bool, option("Only new rows learn, or all rows train on.", names="--freeze/--warm")] = True,
    epochs: Annotated[
        int | None, option("Looks at new edges (default: 50), or --warm's epochs (default: a fifth).")
    ] = None,
    remove: Annotated[str | None, option("Triples that are facts no longer.", "Input")] = None,
    duplicates: Annotated[
        str, option("What a triple of train weighs that comes again: last, max, mean or keep (both rows).")
    ] = "last",
    valid_fraction: Annotated[float, option("Share of the new edges to hold out for validation.", "Input")] = 0.0,
    test_fraction: Annotated[float, option("Share of the new edges to hold out for test.", "Input")] = 0.0,
    node_attributes: NodeAttributes = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write a new run that knows more: entities and relations that training has never seen get rows from their edges.

    With --freeze, the default, all old rows keep their bits and only new ones learn, in seconds. With --warm all rows
    train on for a few epochs on old and new edges together. The old run stays as it is.
    """
    from focuse.api import extend as extend_run

    if out is None:
        raise FocuseError("extend needs a folder for the new run: focuse extend RUN NEW_EDGES --out NEW_RUN")
    given, gone = (source and partial(layout.read, source) for source in (edges, remove))
    made = extend_run(
        run, given, out=out, frozen=freeze, epochs=epochs, remove=gone, duplicates=duplicates,
        valid_fraction=valid_fraction, test_fraction=test_fraction, node_attributes=node_attributes, progress=not quiet,
    )  # fmt: skip
    data = {"run": str(out), **made.extended[-1]}
    emit(data, _describe_extension(data), as_json)


def _describe_extension(data: dict[str, Any]) -> str:
    told = [f"{counted(data['added'], 'edges')} added"]
    told += [f"{data[name]:,} {name}" for name in ("updated", "removed") if data[name]]
    told += [f"{data[name]:,} held out for {name}" for name in ("valid", "test") if data[name]]
    news = f"{counted(data['entities'], 'new entities')}, {counted(data['relations'], 'new relations')}"
    rows = (
        "old rows as they were" if data["frozen"] else f"all rows trained for {counted(data['epochs'], 'more epochs')}"
    )
    return f"{data['run']}: {', '.join(told)}; {news}; {rows}"
