"""Starting and stopping the explorer."""

from __future__ import annotations

import logging
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focuse.api import load
from focuse.errors import FocuseError
from focuse.explorer.limits import HEADERS, KEEP_ALIVE, Limits

if TYPE_CHECKING:
    import uvicorn

    from focuse.explorer.connections import Door

NEEDED = "the explorer needs focuse[serve]: pip install 'focuse[serve]'"


@dataclass(frozen=True)
class Listening:
    """Where the server is reached, and what someone should know who starts it there."""

    url: str
    run: str
    compare: str | None
    warning: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"url": self.url, "run": self.run, "compare": self.compare, "warning": self.warning}


def serve(
    run: Path,
    compare: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    device: str = "auto",
    open_page: bool = False,
    told: Callable[[Listening], None] = lambda listening: None,
    taken: Limits | None = None,
) -> None:
    """Serve a run until it is interrupted. `told` is called once the address is taken, before the first request.

    `taken` is what it takes of one request and of all at once.
    """
    taken = taken or Limits()
    try:
        import uvicorn

        from focuse.explorer.app import make_app
        from focuse.explorer.connections import Door, room_for
        from focuse.explorer.explorer import Explorer
        from focuse.explorer.guards import is_loopback
        from focuse.explorer.state import State
        from focuse.explorer.worker import Worker
    except ModuleNotFoundError as error:
        raise FocuseError(f"{NEEDED} ({error.name} is not installed)") from None
    with listen(host, port) as listener:  # before the run is loaded: a port in use is told at once
        first, *others = [Explorer(load(folder, device), folder.resolve().name) for folder in (run, compare) if folder]
        taken = replace(taken, connections=room_for(taken.connections))
        worker = Worker(taken.waiting, taken.seconds)
        app = make_app(State(first, others[0] if others else None, worker), host, taken)
        url = address(listener, host)
        safe = is_loopback(host)
        warning = "" if safe else f"there is no password: everyone who can reach {host} can ask this run"
        told(Listening(url, str(run), None if compare is None else str(compare), warning))
        if open_page:
            webbrowser.open(url)
        with suppress(KeyboardInterrupt), _killed_as_interrupted():
            uvicorn.Server(configuration(app, Door(taken))).run(sockets=[listener])


def configuration(app: Any, door: Door) -> uvicorn.Config:
    """How Uvicorn runs it, behind `door`. Its own lines of start and stop say nothing that is not said here."""
    import uvicorn

    from focuse.explorer.connections import NoNoise

    made = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=3,
        timeout_keep_alive=KEEP_ALIVE,
        http=door.protocol(),
        h11_max_incomplete_event_size=HEADERS,
        proxy_headers=False,  # a client does not say itself who it is
        callback_notify=door.look,
        timeout_notify=0,  # as often as Uvicorn can: once a second
    )
    logging.getLogger("uvicorn.error").addFilter(NoNoise())
    return made


@contextmanager
def _killed_as_interrupted() -> Iterator[None]:
    """`kill` stops as Ctrl-C does: at its end Uvicorn raises what stopped it again, under the handler from before."""
    if threading.current_thread() is not threading.main_thread():  # elsewhere there are no signals
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to host and port; one line where that cannot be. Port 0 takes a free one."""
    if not 0 <= port <= 65535:
        raise FocuseError(f"port {port}: give one from 1 to 65535, or 0 for a free one")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise FocuseError(f"host {host!r}: {error.strerror or error}; give a name or address of this machine") from None
    made = socket.socket(family, kind, protocol)
    try:
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # elsewhere two servers could share the port
            made.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen(128)
    except OSError as error:
        made.close()
        advice = "choose another --port (0 takes a free one) or --host"
        raise FocuseError(f"cannot listen on {host} port {port}: {error.strerror or error}; {advice}") from None
    return made


def address(listener: socket.socket, host: str) -> str:
    """The address to open in a browser on this machine."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{listener.getsockname()[1]}/"
