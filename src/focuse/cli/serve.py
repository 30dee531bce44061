"""`focuse serve`: explore a run in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.output import Json, emit

NAME = "serve"
SHORT = "Explore a run in a browser, or by its JSON API."


def command(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    compare: Annotated[Path | None, typer.Option(help="Another run to put the same questions to.")] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than loopback are open to all.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    waiting: Annotated[int, typer.Option(help="Questions of one client that may wait; more are answered 429.")] = 32,
    timeout: Annotated[float, typer.Option(help="Seconds that a question may take, waiting included.")] = 60.0,
    connections: Annotated[int, typer.Option(help="Connections open at once.")] = 1000,
    patience: Annotated[
        float, typer.Option(help="Seconds for a request to arrive, and for an answer to be taken.")
    ] = 10.0,
    max_body: Annotated[int, typer.Option(help="Bytes of a request's body; more are answered 413.")] = 256 * 1024,
    rate: Annotated[float, typer.Option(help="Requests a second of one client; 0 does not count them.")] = 0.0,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Search entities, look at their weighted neighbourhoods, ask what is missing and why, compare two runs.

    The page needs no network. Ctrl-C stops it.
    """
    from focuse.serve.limits import Limits
    from focuse.serve.server import Listening, serve

    taken = Limits(waiting, timeout, connections, patience, max_body, rate)

    def told(listening: Listening) -> None:
        if listening.warning:
            typer.echo(f"focuse: warning: {listening.warning}", err=True)
        text = f"focuse explorer: {listening.url} (API: {listening.url}docs); Ctrl-C stops it"
        emit(listening.to_dict(), text, as_json)

    serve(run, compare, host, port, device, open_page, told, taken)
    typer.echo("focuse: stopped", err=True)
