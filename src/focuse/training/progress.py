"""Telling people how far a training is: a bar on a terminal, lines elsewhere, or nothing."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from focuse.training.settings import Settings

SECONDS_BETWEEN_LINES = 10.0


class Reporter(Protocol):
    """Whoever wants to follow a training."""

    def note(self, text: str) -> None:
        """Something the user should know."""

    def start(self, settings: Settings, epochs_done: int) -> None: ...

    def step(self, epoch: int, share: float) -> None:
        """`share` of the epoch is done."""

    def epoch(self, row: dict[str, Any]) -> str | None:
        """An epoch is complete: epoch, loss, beta, seconds and perhaps valid_mrr or valid_mse.

        A text ends the training here and says why.
        """

    def stop(self) -> None: ...


class Silent:
    """No word."""

    def note(self, text: str) -> None: ...

    def start(self, settings: Settings, epochs_done: int) -> None: ...

    def step(self, epoch: int, share: float) -> None: ...

    def epoch(self, row: dict[str, Any]) -> None: ...

    def stop(self) -> None: ...


class Lines(Silent):
    """A line now and then for logs: on stderr, or to `say`."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self.last = float("-inf")
        self.epochs = 0
        self.say = say

    def note(self, text: str) -> None:
        if self.say is None:
            print(text, file=sys.stderr, flush=True)
        else:
            self.say(text)

    def start(self, settings: Settings, epochs_done: int) -> None:
        self.epochs = settings.epochs

    def epoch(self, row: dict[str, Any]) -> None:
        if row["epoch"] == self.epochs or time.monotonic() - self.last >= SECONDS_BETWEEN_LINES:
            self.last = time.monotonic()
            self.note(f"epoch {row['epoch']}/{self.epochs}  {describe(row)}")


class Bar(Silent):
    """A bar with epoch, loss, β, validation MRR and time left, on stderr."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self.console = Console(stderr=True, highlight=False)
        self.bar = Progress(
            TextColumn("epoch {task.fields[at]}/{task.total}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self.shown: dict[str, Any] = {}

    def note(self, text: str) -> None:
        self.console.print(text, markup=False)

    def start(self, settings: Settings, epochs_done: int) -> None:
        self.task = self.bar.add_task("", total=settings.epochs, completed=epochs_done, at=epochs_done, figures="")
        self.bar.start()

    def step(self, epoch: int, share: float) -> None:
        self.bar.update(self.task, completed=epoch + share)

    def epoch(self, row: dict[str, Any]) -> None:
        # The validation MRR is known only now and then; the last one stays on screen.
        self.shown |= row
        self.bar.update(self.task, completed=row["epoch"], at=row["epoch"], figures=describe(self.shown))

    def stop(self) -> None:
        self.bar.stop()
        self.bar.remove_task(self.task)  # another training may follow on the same bar


def describe(row: dict[str, Any]) -> str:
    """'loss 1.234  β 0.50  valid MRR 0.321'."""
    parts = [f"loss {row['loss']:.4g}"]
    if row.get("beta") is not None:
        parts.append(f"β {row['beta']:.2f}")
    if row.get("valid_mrr") is not None:
        parts.append(f"valid MRR {row['valid_mrr']:.3f}")
    if row.get("valid_mse") is not None:
        parts.append(f"valid MSE {row['valid_mse']:.4f}")
    return "  ".join(parts)


def make_reporter(progress: bool | Reporter) -> Reporter:
    """A bar if someone watches, lines if it goes to a file, nothing if not wanted; a reporter is taken as it is."""
    if not progress:
        return Silent()
    if not isinstance(progress, bool | int):
        return progress
    plain = os.environ.get("TERM") == "dumb"  # it cannot go back to the beginning of a line
    return Bar() if sys.stderr.isatty() and not plain else Lines()
