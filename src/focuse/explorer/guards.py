"""Protection of the server: foreign pages, large or slow requests, stalled connections, too many questions at once."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import psutil  # type: ignore[import-untyped, unused-ignore]
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from focuse.explorer.schemas import ProblemError

Answer = TypeVar("Answer")
Lane = Literal["quick", "slow"]
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
MAX_BODY = 4 * 2**20  # bytes; the longest request that the schema allows fits, whatever its characters
POLL_SECONDS = 0.25  # between checks whether a waiting client is still connected
# Only files of this server, no inline code, and no frame of another page; pictures of explanations are data: URLs.
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-cache",
}
RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]


def allowed_hosts(host: str) -> list[str]:
    """Return the values of the Host header that a server accepts which listens on `host`.

    Any other name may belong to a foreign page that made its own name point to this machine (DNS rebinding).

    >>> allowed_hosts("127.0.0.1")
    ['localhost', '127.0.0.1', '[::1]']
    """
    names = [host]
    if host in ("0.0.0.0", "::", ""):
        names = [socket.gethostname(), f"{socket.gethostname()}.local"]
        names += [entry.address.partition("%")[0] for card in psutil.net_if_addrs().values() for entry in card]
    return list(dict.fromkeys([*LOOPBACK, *(f"[{name}]" if ":" in name else name.lower() for name in names)]))


class RequestGuard:
    """Middleware that refuses requests of other sites' pages and long or slow bodies, and adds security headers."""

    def __init__(self, app: ASGIApp, hosts: Collection[str], monitor: ConnectionMonitor) -> None:
        self.app, self.hosts, self.monitor = app, hosts, monitor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *RAW_HEADERS]
            await send(message)

        with self.monitor.serving(scope.get("client")):
            try:
                headers = Headers(scope=scope)
                if scope["path"].startswith("/api/") and self._is_foreign(headers):
                    raise ProblemError(403, "a page of another site sent this", "use the page of the explorer")
                if scope["method"] == "POST":
                    receive = await self._read_body(headers, receive)
            except ProblemError as refused:
                await refused.response()(scope, receive, send_guarded)
            else:
                await self.app(scope, receive, send_guarded)

    def _is_foreign(self, headers: Headers) -> bool:
        """Return whether a browser marks the request as sent by the page of another site.

        Such a page could not read the answer, but it could keep the model busy.
        """
        host = re.sub(r":[0-9]+$", "", headers.get("origin", "").partition("://")[2].lower())
        return headers.get("sec-fetch-site") == "cross-site" or ("origin" in headers and host not in self.hosts)

    async def _read_body(self, headers: Headers, receive: Receive) -> Receive:
        """Return a `receive` that yields the whole body, which is read within the limits on its size and time."""
        too_large = ProblemError(413, f"the body is larger than {MAX_BODY:,} bytes", "send fewer questions at once")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 18 or int(length) > MAX_BODY:
            raise too_large
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(self.monitor.io_timeout):
                while more:
                    message = await receive()
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > MAX_BODY:
                        raise too_large
        except TimeoutError:
            seconds = f"{self.monitor.io_timeout:g} seconds"
            raise ProblemError(408, f"the body did not arrive within {seconds}", "send it faster") from None
        whole: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        return replay


class ConnectionMonitor:
    """Closes connections whose client neither completes a request nor reads its answer.

    Uvicorn itself waits forever in both cases. It calls `close_stalled` once per second; `connections` are its
    protocols. If half of all connections are in use, a stalled one is closed after a second.
    """

    def __init__(self, io_timeout: float = 10.0, max_connections: int = 800) -> None:
        self.io_timeout, self.max_connections = io_timeout, max_connections
        self.connections: set[Any] = set()
        self._active: set[Any] = set()  # clients whose request the application works on
        self._recent: set[Any] = set()  # clients whose request was answered since the last look
        self._stalled: dict[Any, tuple[int, float]] = {}  # connection: bytes not sent yet, and since when

    @contextmanager
    def serving(self, client: Any) -> Iterator[None]:
        """Note that the application works on a request of this client."""
        self._active.add(client)
        try:
            yield
        finally:
            self._active.discard(client)
            self._recent.add(client)

    async def close_stalled(self) -> None:
        """Close connections without progress for `io_timeout` seconds."""
        now, stalled = time.monotonic(), {}
        limit = self.io_timeout if 2 * len(self.connections) < self.max_connections else min(1.0, self.io_timeout)
        for connection in list(self.connections):
            unsent = connection.transport.get_write_buffer_size()
            before, since = self._stalled.get(connection, (unsent, now))
            waits_for_us = connection.client in self._active and not unsent
            if waits_for_us or unsent != before or connection.client in self._recent:
                since = now
            if now - since > limit:
                connection.transport.abort()
            else:
                stalled[connection] = (unsent, since)
        self._stalled = stalled
        self._recent.clear()


class ModelQueue:
    """Runs questions to the models one at a time, in a thread of its own.

    Slow questions wait in a lane of their own. After each of them, all quick questions that wait by then come first: a
    quick question waits for one slow question at most, and slow ones are never starved. The thread is a daemon, so that
    a question in progress does not keep the server from stopping.
    """

    def __init__(self, timeout: float = 60.0, max_quick: int = 64, max_slow: int = 16) -> None:
        self.timeout = timeout
        self._limits: dict[Lane, int] = {"quick": max_quick, "slow": max_slow}
        self._lanes: dict[Lane, deque[tuple[Future[Any], Callable[[], Any]]]] = {"quick": deque(), "slow": deque()}
        self._quick_first = 0  # quick questions that come before the next slow one
        self._changed = threading.Condition()
        threading.Thread(target=self._work, name="focuse-model", daemon=True).start()

    @property
    def waiting(self) -> int:
        """The number of questions in the queue."""
        return sum(map(len, self._lanes.values()))

    def submit(self, job: Callable[[], Answer], lane: Lane = "quick") -> Future[Answer]:
        """Add a question; if its lane is full, that is a problem with status 429."""
        future: Future[Answer] = Future()
        with self._changed:
            queue = self._lanes[lane] = deque(entry for entry in self._lanes[lane] if not entry[0].cancelled())
            if len(queue) >= self._limits[lane]:
                raise ProblemError(429, "the model is busy", "too many questions wait; try again soon", retry_after=2)
            queue.append((future, job))
            self._changed.notify()
        return future

    async def run(
        self, job: Callable[[], Answer], lane: Lane = "quick", is_gone: Callable[[], Awaitable[bool]] | None = None
    ) -> Answer:
        """Return the answer to a question; it is given up after `timeout` seconds, or if its client has left."""
        deadline = time.monotonic() + self.timeout
        answer = asyncio.wrap_future(self.submit(job, lane))
        try:
            while not (await asyncio.wait({answer}, timeout=POLL_SECONDS))[0]:
                if time.monotonic() >= deadline:
                    error = f"no answer within {self.timeout:g} seconds"
                    raise ProblemError(503, error, "ask for less (top), or try again soon", retry_after=2)
                if is_gone is not None and await is_gone():
                    raise ProblemError(503, "the client has left")
            return answer.result()
        finally:
            answer.cancel()

    def _take(self) -> tuple[Future[Any], Callable[[], Any], Lane]:
        with self._changed:
            self._changed.wait_for(lambda: self.waiting)
            slow = self._lanes["slow"] and not (self._lanes["quick"] and self._quick_first)
            lane: Lane = "slow" if slow else "quick"
            self._quick_first = max(0, self._quick_first - 1)
            return *self._lanes[lane].popleft(), lane

    def _work(self) -> None:
        while True:
            future, job, lane = self._take()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)
            if lane == "slow":
                self._quick_first = len(self._lanes["quick"])
            del future, job  # while the thread waits, it keeps no answer in memory
