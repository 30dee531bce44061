"""Starting and stopping the explorer."""

from __future__ import annotations

import math
import socket
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from focuse.api import load
from focuse.errors import FocuseError, install_command

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI


def serve(
    run: Path,
    compare: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    device: str = "auto",
    open_page: bool = False,
    timeout: float = 60.0,
    on_start: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve a run until it is interrupted.

    A second run, `compare`, is asked the same questions. `timeout` is the number of seconds for the answer to one
    question, including the time that it waits for others. `on_start` gets the address before the first request.
    """
    if not (math.isfinite(timeout) and timeout > 0):
        raise FocuseError(f"timeout {timeout:g}: give a positive number of seconds")
    try:
        import uvicorn  # noqa: F401

        from focuse.explorer.app import make_app
        from focuse.explorer.guards import ModelQueue
        from focuse.explorer.service import Explorer, Service
    except ModuleNotFoundError as error:
        raise FocuseError(f"the explorer needs {error.name}; {install_command('serve')}") from None
    with listen(host, port) as listener:  # before the run is loaded: a port in use is reported at once
        explorers = [Explorer(load(folder, device), folder.resolve().name) for folder in (run, compare) if folder]
        app = make_app(Service(explorers, ModelQueue(timeout)), host)
        url = address(listener, host)
        on_start(url)
        if open_page:
            webbrowser.open(url)
        with suppress(KeyboardInterrupt):
            make_server(app).run(sockets=[listener])


def make_server(app: FastAPI) -> uvicorn.Server:
    """Return the server of an application, with limits on its connections and their headers."""
    import uvicorn

    monitor = app.state.monitor
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_level="error",  # malformed requests would fill the terminal with warnings
        access_log=False,
        server_header=False,
        proxy_headers=False,  # clients must not choose their own address
        limit_concurrency=monitor.max_connections,
        h11_max_incomplete_event_size=64 * 1024,  # bytes of a request before its body
        timeout_keep_alive=5,
        timeout_graceful_shutdown=3,
        callback_notify=monitor.close_stalled,
        timeout_notify=0,  # as often as Uvicorn can, which is once per second
    )
    server = uvicorn.Server(config)
    monitor.connections = server.server_state.connections
    return server


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the host and port; port 0 takes a free one."""
    if not 0 <= port <= 65535:
        raise FocuseError(f"port {port}: give one from 1 to 65535, or 0 for a free one")
    try:
        family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise FocuseError(f"host {host!r}: {error.strerror or error}; give a name or address of this machine") from None
    try:
        listener = socket.create_server(target[:2], family=family)
    except OSError as error:
        advice = "choose another port (0 takes a free one) or host"
        raise FocuseError(f"cannot listen on {host} port {port}: {error.strerror or error}; {advice}") from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it; answers are sent at once
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**18)  # bytes kept for a client that reads no answers
    return listener


def address(listener: socket.socket, host: str) -> str:
    """Return the address to open in a browser on this machine."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{listener.getsockname()[1]}/"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server on `host`."""
    return host in ("localhost", "::1") or host.startswith("127.")
