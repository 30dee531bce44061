"""One thread for the model: what a run fits when first asked is not made for two threads at once."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from focuse.serve import limits
from focuse.serve.problems import Refused

Answer = TypeVar("Answer")
LOOK = 0.25  # seconds between looks at whether anyone still waits


class Worker:
    """Questions one after another, with a limit on how many wait and for how long.

    A daemon thread: a question that is being worked on does not keep the server from stopping.
    """

    def __init__(self, waiting: int = limits.WAITING, seconds: float = limits.SECONDS) -> None:
        self.seconds = seconds
        self._jobs: queue.Queue[tuple[Future[Any], Callable[[], Any]]] = queue.Queue(maxsize=waiting)
        threading.Thread(target=self._work, name="focuse-model", daemon=True).start()

    @property
    def waiting(self) -> int:
        return self._jobs.qsize()

    def submit(self, job: Callable[[], Answer]) -> Future[Answer]:
        """Its future; refused with 503 where too many wait."""
        future: Future[Answer] = Future()
        try:
            self._jobs.put_nowait((future, job))
        except queue.Full:
            raise Refused(503, "the model is busy", "too many questions wait for it; ask again in a moment") from None
        return future

    async def ask(self, job: Callable[[], Answer], gone: Callable[[], Awaitable[bool]] | None = None) -> Answer:
        """The job's answer; 503 where it takes too long. One that still waits by then is not begun.

        `gone` says whether whoever asked has left: a visitor who clicks on and on leaves no queue behind.
        """
        future, end = self.submit(job), time.monotonic() + self.seconds
        answer = asyncio.wrap_future(future)
        while True:
            done, _ = await asyncio.wait({answer}, timeout=min(LOOK, max(0.0, end - time.monotonic())))
            if done:
                return await answer
            if time.monotonic() >= end:
                answer.cancel()
                hint = "ask for fewer (top, limit, batch), or again in a moment"
                raise Refused(503, f"no answer within {self.seconds:g} seconds", hint)
            if gone is not None and await gone():
                answer.cancel()
                raise Refused(499, "nobody waits for the answer")

    def _work(self) -> None:
        while True:
            future, job = self._jobs.get()
            if not future.set_running_or_notify_cancel():  # nobody waits for it any more
                continue
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)
