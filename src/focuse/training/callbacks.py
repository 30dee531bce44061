"""Callbacks, which users write to follow a training, and reporters, which show its progress."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from focuse.config import Config
from focuse.data.splits import Splits
from focuse.errors import FocuseError
from focuse.models.registry import import_object
from focuse.system import interruptible

SECONDS_BETWEEN_LINES = 10.0


class Reporter:
    """Receives the progress of a training; this base class shows nothing."""

    def note(self, text: str) -> None:
        """Show one line to the user."""

    def start(self, settings: Config, epochs_done: int) -> None:
        """Report the beginning of a training, of which `epochs_done` epochs are complete."""

    def step(self, epoch: int, fraction: float) -> None:
        """Report that a `fraction` of the epoch is done."""

    def epoch(self, row: dict[str, Any]) -> str | None:
        """Report a completed epoch and return a reason to end the training here, or None.

        `row` has the keys epoch, loss, beta, seconds and, after a validation, valid_mrr or valid_mse.
        """
        return None

    def stop(self) -> None:
        """Report that the training has ended."""


class ProgressOnly(Reporter):
    """Shows the progress of a part of a training by another reporter, but none of its notes."""

    def __init__(self, reporter: Reporter) -> None:
        for name in ("start", "step", "epoch", "stop"):
            setattr(self, name, getattr(reporter, name))


class LineReporter(Reporter):
    """A reporter that prints a line every few seconds, for log files: to stderr, or with the function `write`."""

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        self.last = float("-inf")
        self.epochs = 0
        self.write = write

    def note(self, text: str) -> None:
        if self.write is None:
            print(text, file=sys.stderr, flush=True)
        else:
            self.write(text)

    def start(self, settings: Config, epochs_done: int) -> None:
        self.epochs = settings.epochs

    def epoch(self, row: dict[str, Any]) -> None:
        if row["epoch"] == self.epochs or time.monotonic() - self.last >= SECONDS_BETWEEN_LINES:
            self.last = time.monotonic()
            self.note(f"epoch {row['epoch']}/{self.epochs}  {format_epoch(row)}")


class ProgressBarReporter(Reporter):
    """A reporter that draws a progress bar with epoch, loss, β, validation MRR and remaining time on stderr."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self.console = Console(stderr=True, highlight=False)
        self.bar = Progress(
            TextColumn("epoch {task.fields[at]}/{task.total}"),
            BarColumn(),
            TextColumn("{task.fields[metrics]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self.shown: dict[str, Any] = {}

    def note(self, text: str) -> None:
        self.console.print(text, markup=False)

    def start(self, settings: Config, epochs_done: int) -> None:
        self.task = self.bar.add_task("", total=settings.epochs, completed=epochs_done, at=epochs_done, metrics="")
        self.bar.start()

    def step(self, epoch: int, fraction: float) -> None:
        self.bar.update(self.task, completed=epoch + fraction)

    def epoch(self, row: dict[str, Any]) -> None:
        # Not every epoch is validated; the last validation MRR stays on screen.
        self.shown |= row
        self.bar.update(self.task, completed=row["epoch"], at=row["epoch"], metrics=format_epoch(self.shown))

    def stop(self) -> None:
        self.bar.stop()
        self.bar.remove_task(self.task)  # another training may follow on the same bar


def format_epoch(row: dict[str, Any]) -> str:
    """Return a row of the history as text, like 'loss 1.234  β 0.50  valid MRR 0.321'."""
    parts = [f"loss {row['loss']:.4g}"]
    if row.get("beta") is not None:
        parts.append(f"β {row['beta']:.2f}")
    if row.get("valid_mrr") is not None:
        parts.append(f"valid MRR {row['valid_mrr']:.3f}")
    if row.get("valid_mse") is not None:
        parts.append(f"valid MSE {row['valid_mse']:.4f}")
    return "  ".join(parts)


def make_reporter(progress: bool | Reporter) -> Reporter:
    """Return a progress bar on a terminal, a line reporter otherwise, and a silent reporter for False.

    A reporter is returned unchanged.
    """
    if not progress:
        return Reporter()
    if not isinstance(progress, bool | int):
        return progress
    return ProgressBarReporter() if _on_terminal() else LineReporter()


def _on_terminal() -> bool:
    """Return whether stderr is a terminal that can return to the beginning of a line."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class Progress:
    """The progress of a long computation other than a training, and whether the user has asked to stop it (Ctrl-C)."""

    def __init__(self, total: float, show: Callable[[float], None], stop_requested: Event) -> None:
        self.total, self.show, self.stop_requested = max(total, 1.0), show, stop_requested
        self.fraction = 0.0

    def advance(self, amount: float) -> None:
        """Report that `amount` more of the total is done."""
        self.fraction = min(self.fraction + amount / self.total, 1.0)
        self.show(self.fraction)

    @property
    def stopped(self) -> bool:
        """Whether the computation should end here with the results that it has."""
        return self.stop_requested.is_set()


@contextmanager
def track_progress(description: str, total: float, enabled: bool = False) -> Iterator[Progress]:
    """Show the progress of a computation of `total` units as a bar on a terminal; if `enabled`, Ctrl-C stops it.

    >>> with track_progress("Scoring links", 10) as progress:
    ...     progress.advance(5)
    >>> progress.fraction, progress.stopped
    (0.5, False)
    """
    with interruptible(enabled) as stop_requested:
        if not (enabled and _on_terminal()):
            yield Progress(total, lambda fraction: None, stop_requested)
            return
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(description, total=1.0)
            yield Progress(total, lambda fraction: bar.update(task, completed=fraction), stop_requested)


@dataclass(frozen=True)
class TrainingInfo:
    """The information that a callback gets before the first epoch.

    `settings` are the resolved settings, as in run.toml; `rows` has the numbers of triples of train, valid and test;
    `epochs_done` is above 0 if a training is resumed; `folder` is the run folder or None; `note(text)` shows a line to
    the user.
    """

    settings: dict[str, Any]
    rows: dict[str, int]
    entities: int
    relations: int
    epochs_done: int
    folder: Path | None
    note: Callable[[str], None]


class Callback:
    """Base class of callbacks: override the hooks that you need. Callbacks do not change what is learned.

    >>> class Losses(Callback):
    ...     def __init__(self):
    ...         self.seen = []
    ...     def epoch(self, row):
    ...         self.seen.append(row["loss"])
    ...         return len(self.seen) == 3  # stop after three epochs
    """

    def started(self, info: TrainingInfo) -> None:
        """Called before the first epoch begins."""

    def epoch(self, row: dict[str, Any]) -> bool | None:
        """Called after every epoch.

        `row` has the keys epoch, loss, beta, seconds and, after a validation, valid_mrr or valid_mse. Return True to
        end the training after this epoch; `resume` can continue with the remaining epochs.
        """
        return None

    def finished(self, run: Any) -> None:
        """Called after the training is complete and saved; `run` is the `focuse.Run` that `train` returns."""

    def failed(self, error: BaseException) -> None:
        """Called if the training ends early: by an error, or by Ctrl-C or a deadline (`Stopped`), when it is saved."""


class CallbackFailed(FocuseError):  # noqa: N818 - the callback failed, not the training
    """A callback raised an error. `run` is the run trained so far, which can be saved; None if nothing was trained."""

    run: Any = None


class CallbackReporter(Reporter):
    """A reporter that passes everything on to another reporter, and calls the hooks of callbacks, in their order."""

    def __init__(self, reporter: Reporter, callbacks: Sequence[Callback], splits: Splits, folder: Path | None) -> None:
        self.reporter, self.callbacks, self.splits, self.folder = reporter, callbacks, splits, folder

    def note(self, text: str) -> None:
        self.reporter.note(text)

    def step(self, epoch: int, fraction: float) -> None:
        self.reporter.step(epoch, fraction)

    def stop(self) -> None:
        self.reporter.stop()

    def start(self, settings: Config, epochs_done: int) -> None:
        splits = self.splits
        rows = {"train": len(splits.train), "valid": len(splits.valid), "test": len(splits.test)}
        sizes = len(splits.train.entities), len(splits.train.relations)
        info = TrainingInfo(settings.to_dict(), rows, *sizes, epochs_done, self.folder, self.note)
        for callback in self.callbacks:  # before the progress bar is drawn, because some print
            with _wrap_errors(callback, "started"):
                callback.started(info)
        self.reporter.start(settings, epochs_done)

    def epoch(self, row: dict[str, Any]) -> str | None:
        """Return the reason to end the training here, or None to continue."""
        reason = self.reporter.epoch(row)
        advice = "; the attribute .run of the error holds the run as trained so far"
        if self.folder is not None:
            advice = f"; the training is saved, continue with: focuse train --resume {self.folder}"
        for callback in self.callbacks:
            with _wrap_errors(callback, "epoch", advice):
                if callback.epoch(dict(row)) is True:
                    reason = reason or f"stopped by {type(callback).__name__}"
        return reason

    def finished(self, run: Any) -> None:
        """Call every callback, even after one that fails."""
        failures: list[CallbackFailed] = []
        for callback in self.callbacks:
            try:
                with _wrap_errors(callback, "finished", "; the training itself is complete"):
                    callback.finished(run)
            except CallbackFailed as error:
                error.run = run
                failures.append(error)
        if failures:
            raise failures[0]

    @contextmanager
    def report_failure(self) -> Iterator[None]:
        """Report an exception in the block to every callback; errors that a callback raises itself are only noted."""
        try:
            yield
        except BaseException as error:
            for callback in self.callbacks:
                try:
                    with _wrap_errors(callback, "failed"):
                        callback.failed(error)
                except CallbackFailed as another:
                    self.note(str(another))
            raise


@contextmanager
def _wrap_errors(callback: Callback, hook: str, advice: str = "") -> Iterator[None]:
    """Turn an error of a callback into one line that names it; the original error stays attached as the cause."""
    try:
        yield
    except Exception as error:
        name = type(callback).__name__
        raise CallbackFailed(f"callback {name} failed in {hook}(): {describe_error(error)}{advice}") from error


def describe_error(error: BaseException) -> str:
    """Return 'ValueError: its message', or the message alone for a FocuseError."""
    return str(error) if isinstance(error, FocuseError) else f"{type(error).__name__}: {error}"


def make_callbacks(given: Sequence[object]) -> list[Callback]:
    """Return callbacks from callbacks, their classes, or 'package.module:Class'.

    >>> make_callbacks([Callback])[0].epoch({"epoch": 1})
    """
    if isinstance(given, str | Callback | type):
        given = [given]
    return [_make_callback(each) for each in given]


def _make_callback(given: object) -> Callback:
    if isinstance(given, str) and ":" not in given:
        raise FocuseError(f"callback {given!r}: write it like package.module:Class")
    made = import_object(given, "callback", Callback) if isinstance(given, str) else given
    if isinstance(made, type) and issubclass(made, Callback):
        try:
            made = made()
        except FocuseError:
            raise
        except Exception as error:
            raise FocuseError(f"callback {given!r}: cannot be created without arguments: {error}") from None
    if not isinstance(made, Callback):
        raise FocuseError(f"callback {given!r}: is not a focuse.Callback; derive its class from that")
    return made
