"""One thread for the model: what a run fits when first asked is not made for two threads at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, TypeVar

from focuse.explorer import limits
from focuse.explorer.problems import Refused

Answer = TypeVar("Answer")
Lane = Literal["quick", "dear"]
LOOK = 0.25  # seconds between looks at whether anyone still waits
Waiting = tuple[Future[Any], Callable[[], Any], str]  # the last is whose question it is
TAKEN = limits.Limits()


class Worker:
    """Questions one after another, with a limit on how many wait and for how long.

    Quick ones (a prediction) go before dear ones (missing links, explanations), which have a queue of their own: a
    visitor who asks much does not stop one who asks little. After a dear one, quick ones have as long as it took; then
    the next dear one has its turn, so that neither waits for ever. A queue takes `waiting` or `dear` questions of one
    client, and twice as many of all: whoever fills its own part leaves room for others. A daemon thread: a question
    that is being worked on does not keep the server from stopping.
    """

    def __init__(self, waiting: int = TAKEN.waiting, seconds: float = TAKEN.seconds, dear: int = limits.DEAR) -> None:
        self.seconds = seconds
        self._room: dict[Lane, int] = {"quick": waiting, "dear": dear}
        self._lanes: dict[Lane, deque[Waiting]] = {"quick": deque(), "dear": deque()}
        self._asked = threading.Condition()
        self._dear_from = 0.0  # the time from which a dear question may go before a quick one
        threading.Thread(target=self._work, name="focuse-model", daemon=True).start()

    @property
    def waiting(self) -> int:
        return sum(map(len, self._lanes.values()))

    def submit(
        self, job: Callable[[], Answer], lane: Lane = "quick", admitted: bool = False, client: str = ""
    ) -> Future[Answer]:
        """Its future; refused with 429 where too many wait, unless it goes on with one that was `admitted`."""
        future: Future[Answer] = Future()
        with self._asked:
            queue = self._lanes[lane]
            if not admitted and self._full(lane, client):
                still = [one for one in queue if not one[0].cancelled()]
                queue.clear()
                queue.extend(still)
                if self._full(lane, client):
                    hint = "too many questions wait for it; ask again in a moment"
                    raise Refused(429, "the model is busy", hint, again=1 if lane == "quick" else 2)
            queue.append((future, job, client))
            self._asked.notify()
        return future

    def _full(self, lane: Lane, client: str) -> bool:
        queue, room = self._lanes[lane], self._room[lane]
        return len(queue) >= limits.ALL_CLIENTS * room or sum(one[2] == client for one in queue) >= room

    async def ask(
        self,
        job: Callable[[], Answer],
        gone: Callable[[], Awaitable[bool]] | None = None,
        lane: Lane = "quick",
        end: float | None = None,
        admitted: bool = False,
        client: str = "",
    ) -> Answer:
        """The job's answer; 503 where it is not there by `end` (of time.monotonic). One that still waits is not begun.

        `gone` says whether whoever asked has left: a visitor who clicks on and on leaves no queue behind.
        """
        end = time.monotonic() + self.seconds if end is None else end
        answer = asyncio.wrap_future(self.submit(job, lane, admitted, client))
        try:
            while True:
                done, _ = await asyncio.wait({answer}, timeout=min(LOOK, max(0.0, end - time.monotonic())))
                if done:
                    return await answer
                if time.monotonic() >= end:
                    hint = "ask for fewer (top, limit, batch), or again in a moment"
                    raise Refused(503, f"no answer within {self.seconds:g} seconds", hint, again=2)
                if gone is not None and await gone():
                    raise Refused(499, "nobody waits for the answer")
        finally:
            answer.cancel()

    def _next(self) -> tuple[Future[Any], Callable[[], Any], Lane]:
        with self._asked:
            while not self.waiting:
                self._asked.wait()
            quick, dear = self._lanes["quick"], self._lanes["dear"]
            lane: Lane = "dear" if not quick or (dear and time.monotonic() >= self._dear_from) else "quick"
            future, job, _ = self._lanes[lane].popleft()
            return future, job, lane

    def _work(self) -> None:
        while True:
            future, job, lane = self._next()
            if not future.set_running_or_notify_cancel():  # nobody waits for it any more
                continue
            began = time.monotonic()
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)
            if lane == "dear":
                ended = time.monotonic()
                self._dear_from = ended + (ended - began)
            del future, job  # a thread that waits holds no answer


class Readers:
    """Names and facts: looked up at once where the graph is small, by a few threads where one look takes a while."""

    def __init__(self, inline: bool, threads: int = limits.READERS, waiting: int = limits.READING) -> None:
        self.inline, self._most, self._now = inline, threads + waiting, 0
        self._pool = None if inline else ThreadPoolExecutor(threads, "focuse-reader")

    async def ask(self, job: Callable[[], Answer]) -> Answer:
        """The job's answer; refused with 429 where too many wait."""
        if self._pool is None:
            return job()
        if self._now >= self._most:
            raise Refused(429, "too many look things up", "ask again in a moment", again=1)
        self._now += 1
        try:
            return await asyncio.wrap_future(self._pool.submit(job))
        finally:
            self._now -= 1
