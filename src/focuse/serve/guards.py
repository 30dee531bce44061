"""What stands before every request: the host it was sent to, the size and kind of its body, and headers of answers."""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Iterable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from focuse.serve import limits

LOOPBACK = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("0.0.0.0", "::", "")
# Nothing but this server's own files, no inline code, in no other page's frame; explanations' pictures are data: URLs.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_of(header: str) -> str:
    """The host of a Host header, without port and brackets, lower case.

    >>> host_of("LocalHost:8000"), host_of("[::1]:8000"), host_of("127.0.0.1")
    ('localhost', '::1', '127.0.0.1')
    """
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] if text.count(":") == 1 else text


class Guard:
    """Refuses requests for other hosts (DNS rebinding), bodies too large, and POSTs that are not JSON.

    A server that listens everywhere is also reached by its addresses and its own name. An address is safe: a foreign
    page can make a name of its own point here, but not an address.
    """

    def __init__(self, app: ASGIApp, host: str = "127.0.0.1", body: int = limits.BODY) -> None:
        self.app, self.body = app, body
        self.everywhere = host in EVERYWHERE
        self.hosts = {*LOOPBACK, host.lower(), *([socket.gethostname().lower()] if self.everywhere else [])}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # there is no websocket here
        headers = [(key.decode("latin-1"), value.decode("latin-1")) for key, value in scope["headers"]]
        problem = self._problem(scope["method"], headers)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in HEADERS.items())]
            await send(message)

        if problem is None:
            given = await self._whole_body(receive)
            if given is not None:
                await self.app(scope, given, guarded)
                return
            problem = (413, f"the body is larger than {self.body:,} bytes", "send fewer questions at once")
        await _refuse(guarded, *problem)

    def _problem(self, method: str, headers: Iterable[tuple[str, str]]) -> tuple[int, str, str] | None:
        values = dict(headers)
        if not self._known(host_of(values.get("host", ""))):
            return 400, f"this server is not {values.get('host', '')!r}", "open it by the address that it printed"
        if method == "POST" and values.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return 415, "the body is not JSON", "send it with Content-Type: application/json"
        length = values.get("content-length", "0")
        if not length.isdigit() or int(length) > self.body:
            return 413, f"the body is larger than {self.body:,} bytes", "send fewer questions at once"
        return None

    def _known(self, host: str) -> bool:
        if host in self.hosts:
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return self.everywhere

    async def _whole_body(self, receive: Receive) -> Receive | None:
        """The body read up to the limit, given on as it came; None where it goes beyond, whatever its header said."""
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                break
            size += len(message.get("body", b""))
            if size > self.body:
                return None
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        waiting: list[Message] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

        async def given() -> Message:
            return waiting.pop() if waiting else await receive()

        return given


async def _refuse(send: Any, status: int, error: str, hint: str) -> None:
    body = json.dumps({"error": error, "hint": hint, "nearest": []}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
