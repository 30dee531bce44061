"""Connections that keep a server waiting: none for ever, and never so many that others cannot come in.

Uvicorn waits without end for the rest of a request and for an answer to be taken. This is its protocol with a clock.
"""

from __future__ import annotations

import json
import logging
import socket
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from focuse.explorer.guards import SENT
from focuse.explorer.limits import UNTAKEN, Limits

# What Uvicorn says of every malformed request: a stranger could fill the terminal with it.
NOISE = ("Invalid HTTP request", "Unsupported upgrade", "No supported WebSocket")
PHRASES = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Unavailable"}


class Door:
    """Who is inside, in the order in which they came; `look` shows those out who have kept the server waiting."""

    def __init__(self, limits: Limits) -> None:
        self.most, self.patience = limits.connections, limits.patience
        self.inside: dict[Connection, None] = {}

    def protocol(self) -> type[Connection]:
        """The class that Uvicorn makes connections of."""
        return type("Connection", (Connection,), {"door": self})

    def enter(self, connection: Connection) -> bool:
        """Whether it may stay. Where all places are taken, whoever has kept the server waiting longest makes room."""
        if len(self.inside) >= self.most:
            slow = next((one for one in self.inside if one.waits), None)
            if slow is None:
                return False
            self.inside.pop(slow)
            slow.transport.abort()
        self.inside[connection] = None
        return True

    def leave(self, connection: Connection) -> None:
        self.inside.pop(connection, None)

    async def look(self) -> None:
        """Once a second."""
        for connection in list(self.inside):
            connection.look(self.patience)


class Connection(H11Protocol):  # type: ignore[misc, unused-ignore]
    """One connection: a request arrives within the door's patience, or it ends; so does one whose answer is not taken.

    `since` is when its first or current request began, None while a request is answered or between two.
    """

    door: Door

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.since: float | None = self.loop.time()
        self.unsent, self.unsent_since = 0, 0.0
        held = transport.get_extra_info("socket")
        if held is not None:  # else the system keeps megabytes for each, and one who never reads makes that much work
            held.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNTAKEN)
        if not self.door.enter(self):
            self._say(503, "too many connections", "ask again in a moment")

    def connection_lost(self, exc: Exception | None) -> None:
        self.door.leave(self)
        super().connection_lost(exc)

    @property
    def idle(self) -> bool:
        """Whether no request is being read or answered beyond its headers."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def waits(self) -> bool:
        """Whether it is the other side's turn: to send a whole request, or to take its answer."""
        return self.idle or self.cycle.more_body or self.flow.write_paused

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.since is None and self.idle:
            self.since = self.loop.time()
        before = self.cycle
        try:
            super().data_received(data)
        except h11.ProtocolError:  # garbage behind a request that is being answered: there is no one left to answer
            self.transport.abort()
        if self.cycle is not before:
            self.since = None

    def send_400_response(self, msg: str) -> None:
        """Uvicorn calls it where it catches what is wrong; that knows whether it was the size."""
        fault = sys.exc_info()[1]
        if not self.idle:
            self.transport.abort()
        elif getattr(fault, "error_status_hint", 400) == 431:
            self._say(431, "the request's address or headers are too long", "ask with POST, or for shorter names")
        else:
            self._say(400, "this is not HTTP/1.1", "")

    def on_response_complete(self) -> None:
        self.since = None
        super().on_response_complete()

    def look(self, patience: float) -> None:
        """End it if it has kept the server waiting for longer than `patience` seconds."""
        now, unsent = self.loop.time(), self.transport.get_write_buffer_size()
        if not unsent or unsent < self.unsent or not self.unsent:
            self.unsent_since = now
        self.unsent = unsent
        if unsent and now - self.unsent_since > patience:
            self.transport.abort()  # to close would mean to wait until it is taken
        elif self.since is not None and self.idle and now - self.since > patience and not self.transport.is_closing():
            self._say(408, f"no whole request within {patience:g} seconds", "")

    def _say(self, status: int, error: str, hint: str) -> None:
        """An answer without the application, and the end."""
        body = json.dumps({"error": error, "hint": hint, "nearest": []}).encode()
        lines = [f"HTTP/1.1 {status} {PHRASES[status]}".encode(), b"content-type: application/json"]
        lines += [b"content-length: %d" % len(body), b"connection: close", *(b"%s: %s" % pair for pair in SENT)]
        lines += [b"retry-after: 2"] if status == 503 else []
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        self.transport.close()


class NoNoise(logging.Filter):
    """Leaves out what Uvicorn says of malformed requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(NOISE)


def room_for(connections: int) -> int:
    """How many connections there are files for, having asked for more where the system lets us."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return connections
    wanted = connections + SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        except (ValueError, OSError):
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(1, min(connections, soft - SPARE))


SPARE = 128  # files that the server itself may open
