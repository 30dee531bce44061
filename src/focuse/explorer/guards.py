"""What stands before every request: its host and origin, rate, size, kind and time, and headers of answers."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import math
import re
import socket
import time
from collections import OrderedDict
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from focuse.explorer import limits

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
SENT = [(key.encode(), value.encode()) for key, value in HEADERS.items()]
API = "/api/"
ABSOLUTE = re.compile(rb"https?://([^/?#]*)", re.IGNORECASE)
NAMED = re.compile(r"(?:\[(.*)\]|([^:\[\]]*))(?::\d*)?")
Fault = tuple[int, str, str]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host_of(host) == "localhost"


def host_of(header: str) -> str:
    """The host of a Host header in one spelling: without port, brackets and the dot of a full name, lower case.

    >>> host_of("LocalHost.:8000"), host_of("[0:0::1]:8000"), host_of("127.0.0.1")
    ('localhost', '::1', '127.0.0.1')
    """
    text = header.strip().lower()
    found = NAMED.fullmatch(text)
    host = (found[1] or found[2] or "").removesuffix(".") if found else text
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def own_names() -> set[str]:
    """What this machine is called in its own network; nobody else can have a name without dots, or one of .local."""
    name = host_of(socket.gethostname())
    short = name.partition(".")[0]
    return {name, short, f"{short}.local"} - {"", ".local"}


def as_path(scope: Scope) -> Scope:
    """The request with its address as a path: HTTP lets one write it whole, and then its host goes before the header's.

    >>> made = as_path({"raw_path": b"http://localhost:8000/docs", "headers": [(b"host", b"other")]})
    >>> made["path"], made["raw_path"], made["headers"]
    ('/docs', b'/docs', [(b'host', b'localhost:8000')])
    """
    found = ABSOLUTE.match(scope.get("raw_path") or b"")
    if found is None:
        return scope
    path = scope["raw_path"][found.end() :] or b"/"
    headers = [(b"host", found[1]), *(pair for pair in scope["headers"] if pair[0] != b"host")]
    return {**scope, "path": unquote(path.decode("latin-1")), "raw_path": path, "headers": headers}


class Rates:
    """Requests a second of each client: a bucket that fills at `rate` and holds two seconds of it, or one request.

    >>> rates = Rates(1.0)
    >>> [rates.wait("me", now=0.0) for _ in range(3)], rates.wait("me", now=1.5), rates.wait("you", now=1.5)
    ([0.0, 0.0, 1.0], 0.0, 0.0)
    """

    def __init__(self, rate: float, clients: int = limits.CLIENTS) -> None:
        self.rate, self.most, self.clients = rate, max(1.0, 2 * rate), clients
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # client: requests left, when that was

    def wait(self, client: str, now: float | None = None) -> float:
        """Seconds until its next request is welcome; 0 counts this one."""
        now = time.monotonic() if now is None else now
        left, then = self._left.pop(client, (self.most, now))
        left = min(self.most, left + (now - then) * self.rate)
        self._left[client] = (left - 1 if left >= 1 else left, now)
        while len(self._left) > self.clients:  # whoever was not here for longest is forgotten
            self._left.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) / self.rate


class Guard:
    """Refuses requests for other hosts (DNS rebinding) and from other sites' pages, too many, too large, too slow.

    A server that listens everywhere is also reached by its addresses and its own name. An address is safe: a foreign
    page can make a name of its own point here, but not an address.
    """

    def __init__(self, app: ASGIApp, host: str = "127.0.0.1", taken: limits.Limits | None = None) -> None:
        self.app, self.taken = app, taken or limits.Limits()
        self.body = self.taken.body
        self.rates = Rates(self.taken.rate) if self.taken.rate else None
        self.everywhere = host in EVERYWHERE
        self.hosts = {*LOOPBACK, *(own_names() if self.everywhere else [host_of(host)])}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # there is no websocket here
        scope = as_path(scope)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *SENT]
            await send(message)

        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        fault = self._fault(scope, headers)
        if fault is None and self.rates is not None and scope["path"].startswith(API):
            client = scope.get("client") or ("",)
            if wait := self.rates.wait(client[0]):
                told = f"more than {self.rates.rate:g} requests a second"
                await _refuse(guarded, (429, told, "ask more slowly"), again=math.ceil(wait))
                return
        if fault is None:
            found = await self._whole_body(receive, headers)
            if not isinstance(found, tuple):
                await self.app(scope, found, guarded)
                return
            fault = found
        await _refuse(guarded, fault)

    def _fault(self, scope: Scope, headers: dict[str, str]) -> Fault | None:
        """What is wrong with a request before its body is read: status, what, what to do."""
        if not self._known(host_of(headers.get("host", ""))):
            return 400, f"this server is not {headers.get('host', '')!r}", "open it by the address that it printed"
        if scope["path"].startswith(API) and self._foreign(headers):
            return 403, "a page of another site asks", "open the explorer's own page, or ask from a program"
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > limits.ADDRESS:
            return 414, f"the address is longer than {limits.ADDRESS:,} bytes", "ask for shorter names"
        # Uvicorn looks at the size of what it waits for, not of headers that come all at once.
        if sum(len(key) + len(value) + 4 for key, value in scope["headers"]) > limits.HEADERS:
            return 431, f"the headers are longer than {limits.HEADERS:,} bytes", "send fewer, or shorter ones"
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] == "POST" and kind != "application/json":
            return 415, "the body is not JSON", "send it with Content-Type: application/json"
        return None

    def _foreign(self, headers: dict[str, str]) -> bool:
        """Whether a browser says that another site's page sent it: it could not read the answer, but make work."""
        if headers.get("sec-fetch-site") == "cross-site":
            return True
        origin = headers.get("origin")
        return origin is not None and not self._known(host_of(origin.partition("://")[2]))

    def _known(self, host: str) -> bool:
        if host in self.hosts:
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return self.everywhere

    async def _whole_body(self, receive: Receive, headers: dict[str, str]) -> Receive | Fault:
        """The body read up to the limit, given on as it came; what is wrong where it goes beyond, or takes too long."""
        large = 413, f"the body is larger than {self.body:,} bytes", "send fewer questions at once"
        length = headers.get("content-length", "0")
        told = int(length) if length.isascii() and length.isdigit() and len(length) < 20 else math.inf
        if told > self.body and (told > limits.DISCARDED or "expect" in headers):
            return large  # it would be read in vain
        parts, size, more = [], 0, True
        try:
            async with asyncio.timeout(self.taken.patience):
                while more and size <= limits.DISCARDED:
                    message = await receive()
                    if message["type"] != "http.request":
                        break
                    size += len(message.get("body", b""))
                    if size <= self.body:
                        parts.append(message.get("body", b""))
                    more = message.get("more_body", False)
        except TimeoutError:
            return 408, f"no whole body within {self.taken.patience:g} seconds", "send it faster, or less"
        if size > self.body:  # read on nonetheless: one who is still sending would not hear the answer
            return large
        waiting: list[Message] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

        async def given() -> Message:
            return waiting.pop() if waiting else await receive()

        return given


async def _refuse(send: Any, fault: Fault, again: int | None = None) -> None:
    status, error, hint = fault
    body = json.dumps({"error": error, "hint": hint, "nearest": []}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if again is not None:
        headers.append((b"retry-after", str(again).encode()))
    else:
        headers.append((b"connection", b"close"))  # what comes behind it may be the rest of a body
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
