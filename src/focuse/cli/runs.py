"""Commands that make something of a finished run: a page, an explorer, files for other tools, or a larger run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from focuse.cli.options import Json, Layout
from focuse.cli.output import emit
from focuse.errors import FocuseError, counted

# ---- focuse report: an HTML report on a run --------------------------------------------------------------------------


def report(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    test: Annotated[str | None, typer.Argument(help="Test triples [default: the run's own].")] = None,
    out: Annotated[Path | None, typer.Option(help="HTML file to write [default: RUN/report.html].")] = None,
    columns: Annotated[str | None, typer.Option(help="Columns of TEST to use, by heading or counted from 1.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Separator of TEST.")] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether the first line of TEST is a header.")
    ] = None,
    projection: Annotated[str, typer.Option(help="Projection of the entity map: tsne, umap, pca or none.")] = "tsne",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Write a self-contained HTML report on a run: data, training, evaluation, predicted links and an entity map.

    The report loads nothing from the network, and all its numbers can be saved from it as JSON. The charts need
    matplotlib.
    """
    from focuse.api import load

    graph = None if test is None else Layout(columns, delimiter, header).read(test)
    target = run / "report.html" if out is None else out
    page = load(run, device).report(target, graph, projection, progress=not quiet)
    emit({"report": str(page)}, f"report: {page}", as_json)


# ---- focuse serve: explore a run in a browser ------------------------------------------------------------------------


def serve(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    compare: Annotated[Path | None, typer.Option(help="Second run to compare with.")] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other than loopback, it is open to everyone.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    timeout: Annotated[float, typer.Option(help="Seconds for one answer, including the time in the queue.")] = 60.0,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Explore a run in a browser: search entities, their neighborhoods and missing links, and compare two runs.

    The page needs no network. Ctrl-C stops the server.
    """
    import signal

    from focuse.explorer.server import is_loopback
    from focuse.explorer.server import serve as start_server

    def report(url: str) -> None:
        warning = "" if is_loopback(host) else f"there is no password: everyone who can reach {host} can use this run"
        if warning:
            typer.echo(f"focuse: warning: {warning}", err=True)
        started = {"url": url, "run": str(run), "compare": compare and str(compare), "warning": warning}
        emit(started, f"focuse explorer: {url} (API: {url}docs); Ctrl-C stops it", as_json)

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` stops the server as Ctrl-C does
    start_server(run, compare, host, port, device, open_page, timeout, report)
    typer.echo("focuse: stopped", err=True)


# ---- focuse export: embeddings with their names, for other tools -----------------------------------------------------


def export(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    out: Annotated[
        Path,
        typer.Option(help="File: .parquet, .csv, .tsv, .vec (word2vec), .npz, .safetensors or .pt."),
    ],
    format: Annotated[
        str | None,
        typer.Option(help="parquet, csv, tsv, word2vec, numpy, safetensors or pyg [default: by the suffix of --out]."),
    ] = None,
    what: Annotated[str, typer.Option(help="entities, relations or both.")] = "entities",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Write the embeddings of a run with their names: Parquet, CSV, TSV, word2vec, NumPy, safetensors or
    tensors for PyTorch Geometric.
    """
    from focuse.api import load
    from focuse.integrations.export import check_export
    from focuse.models.base import components_of

    format = check_export(out, format, what)
    loaded = load(run, "cpu")
    files = [str(path) for path in loaded.export(out, format, what)]
    data = {
        "format": format,
        "what": "both" if format == "pyg" else what,
        "files": files,
        "entities": list(loaded.scorer.encoded_tables()["entity"].shape),
        "relations": list(loaded.scorer.relation_table().shape),
        "components": components_of(loaded.scorer.model)[0],
    }
    emit(data, "\n".join(f"written: {path}" for path in files), as_json)


# ---- focuse extend: more edges for a run, new names among them, without starting over --------------------------------


def extend(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    edges: Annotated[Path | None, typer.Argument(metavar="NEW_EDGES", help="Edges to add.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write the new run to.")] = None,
    freeze: Annotated[bool, typer.Option("--freeze/--warm", help="Only new rows learn, or all rows train on.")] = True,
    epochs: Annotated[
        int | None,
        typer.Option(help="Looks at new edges [default: 50], or --warm's epochs [default: a fifth]."),
    ] = None,
    remove: Annotated[Path | None, typer.Option(help="Triples that are facts no longer.")] = None,
    duplicates: Annotated[
        str, typer.Option(help="What a triple of train weighs that comes again: last, max, mean or keep (both rows).")
    ] = "last",
    valid_fraction: Annotated[float, typer.Option(help="Share of the new edges to hold out for validation.")] = 0.0,
    test_fraction: Annotated[float, typer.Option(help="Share of the new edges to hold out for test.")] = 0.0,
    node_attributes: Annotated[
        Path | None, typer.Option(help="Numeric attributes of new entities: entity, attribute, value.")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Columns to use, by heading or counted from 1.")] = None,
    weight_columns: Annotated[str | None, typer.Option(help="Several columns of weights, by heading or place.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Separator of NEW_EDGES.")] = None,
    header: Annotated[bool | None, typer.Option("--header/--no-header", help="Whether line 1 is one.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Write a new run that knows more: entities and relations that training has never seen get rows from their edges.

    With --freeze, the default, all old rows keep their bits and only new ones learn, in seconds. With --warm all rows
    train on for a few epochs on old and new edges together. The old run stays as it is.
    """
    from focuse.api import extend as extend_run
    from focuse.storage.run_folder import RunFolder

    if out is None:
        raise FocuseError("extend needs a folder for the new run: focuse extend RUN NEW_EDGES --out NEW_RUN")
    RunFolder.ensure_new(out)  # before a long file is read
    RunFolder.open(run)
    layout = Layout(columns, delimiter, header, weight_columns)
    given = None if edges is None else layout.read(edges)
    gone = None if remove is None else layout.read(remove)
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
