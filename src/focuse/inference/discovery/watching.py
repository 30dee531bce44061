"""Telling how far a long pass is, on stderr: a bar if someone watches, else a line now and then, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

from focuse.system import interruptible

SECONDS_BETWEEN_LINES = 10.0


class Watch:
    """How much of a pass is done, and whether the user has asked to stop it (Ctrl-C)."""

    def __init__(self, what: str, total: float, asked: Event, bar: Any = None, lines: bool = False) -> None:
        self.what, self.total, self.asked, self.bar, self.lines = what, max(total, 1.0), asked, bar, lines
        self.done = 0.0
        self.last = time.monotonic()
        self.task = bar.add_task(what, total=self.total) if bar is not None else None

    @property
    def stopped(self) -> bool:
        return self.asked.is_set()

    @property
    def share(self) -> float:
        """How much is done, in [0, 1]."""
        return min(self.done / self.total, 1.0)

    def advance(self, amount: float) -> None:
        self.done += amount
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done)
        elif self.lines and time.monotonic() - self.last >= SECONDS_BETWEEN_LINES:
            self.last = time.monotonic()
            print(f"{self.what}: {self.share:.0%}", file=sys.stderr, flush=True)


@contextmanager
def watched(what: str, total: float, progress: bool = False) -> Iterator[Watch]:
    """A pass of `total` units that can be followed and, where it is, stopped by Ctrl-C with what it has found so far.

    >>> with watched("scoring", 10) as watch:
    ...     watch.advance(5)
    >>> watch.share
    0.5
    """
    with interruptible(progress) as asked:
        if not progress or not sys.stderr.isatty():
            yield Watch(what, total, asked, lines=progress)
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"))
        console = Console(stderr=True, highlight=False)
        with Progress(*columns, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), console=console,
                      transient=True) as bar:  # fmt: skip
            yield Watch(what, total, asked, bar)
