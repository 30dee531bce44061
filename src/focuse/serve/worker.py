"""One thread for the model: what a run fits when first asked is not made for two threads at once."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from focuse.serve import limits
from focuse.serve.problems import Refused

Answer = TypeVar("Answer")


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

    async def ask(self, job: Callable[[], Answer]) -> Answer:
        """The job's answer; 503 where it takes too long. One that still waits by then is not begun."""
        future = self.submit(job)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self.seconds)
        except TimeoutError:
            hint = "ask for fewer (top, limit, batch), or again in a moment"
            raise Refused(503, f"no answer within {self.seconds:g} seconds", hint) from None

    def _work(self) -> None:
        while True:
            future, job = self._jobs.get()
            if not future.set_running_or_notify_cancel():  # nobody waits for it any more
                continue
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)
