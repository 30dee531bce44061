"""Telling people how far a search is: a bar on a terminal, a line a trial elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from datetime import timedelta

from focuse.training.callbacks import SilentReporter


class Watch(SilentReporter):
    """No word; the others say more. It is also the reporter of what happens before the first trial."""

    def begin(self, wanted: int, done: int) -> None:
        """`done` of `wanted` trials were there before."""

    def share(self, share: float) -> None:
        """So much of the trial under way is done."""

    def ended(self, outcome: str, best: str, done: int) -> None:
        """A trial has ended, and `done` are done by all processes together."""


class Lines(Watch):
    """A line a trial on stderr."""

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def begin(self, wanted: int, done: int) -> None:
        self.wanted, self.before, self.started = wanted, done, time.monotonic()

    def ended(self, outcome: str, best: str, done: int) -> None:
        self.note(f"{outcome}; best {best}; {self.progress(done)}")

    def progress(self, done: int) -> str:
        """'3 of 10 done, about 0:01:10 left': by the pace of all processes since this one began."""
        text = f"{done} of {self.wanted} done"
        if self.before < done < self.wanted:
            seconds = (time.monotonic() - self.started) * (self.wanted - done) / (done - self.before)
            text += f", about {timedelta(seconds=round(seconds))} left"
        return text


class Bar(Lines):
    """The same lines above a bar of all trials."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.console = Console(stderr=True, highlight=False)
        self.bar = Progress(
            BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=self.console, transient=True
        )

    def note(self, text: str) -> None:
        self.console.print(text, markup=False)

    def begin(self, wanted: int, done: int) -> None:
        super().begin(wanted, done)
        self.done = done
        self.task = self.bar.add_task(self.progress(done), total=wanted, completed=done)
        self.bar.start()

    def share(self, share: float) -> None:
        self.bar.update(self.task, completed=self.done + share)

    def ended(self, outcome: str, best: str, done: int) -> None:
        self.done = done
        self.note(outcome)
        self.bar.update(self.task, completed=done, description=f"best {best}; {self.progress(done)}")

    def stop(self) -> None:
        self.bar.stop()


def make_watch(progress: bool) -> Watch:
    """As for a training: a bar if someone watches, lines if it goes to a file, nothing if not wanted."""
    if not progress:
        return Watch()
    return Bar() if sys.stderr.isatty() else Lines()
