"""Following a training from outside: hooks of your own, called by the reporter that the loop tells of each epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focuse.errors import FocuseError
from focuse.graph.splits import Splits
from focuse.models.registry import imported
from focuse.training.progress import Reporter
from focuse.training.settings import Settings


@dataclass(frozen=True)
class Beginning:
    """What is known when the first epoch begins.

    `settings` are the resolved ones of run.toml; `rows` counts the triples of train, valid and test; `epochs_done` is
    above 0 when a training goes on; `folder` is the run's, if it has one; `note(text)` tells the user a line.
    """

    settings: dict[str, Any]
    rows: dict[str, int]
    entities: int
    relations: int
    epochs_done: int
    folder: Path | None
    note: Callable[[str], None]


class Callback:
    """Derive from it and define what you want to hear of; nothing it does changes what is learnt.

    >>> class Losses(Callback):
    ...     def __init__(self):
    ...         self.seen = []
    ...     def epoch(self, row):
    ...         self.seen.append(row["loss"])
    ...         return len(self.seen) == 3  # enough
    """

    def started(self, beginning: Beginning) -> None:
        """The first epoch is about to begin."""

    def epoch(self, row: dict[str, Any]) -> bool | None:
        """An epoch is complete and in the history: epoch, loss, beta, seconds and now and then valid_mrr or valid_mse.

        True ends the training here, as if it had no more epochs; `resume` goes on with those that are left.
        """
        return None

    def finished(self, run: Any) -> None:
        """The training is over and saved; `run` is the `focuse.Run` that `train` returns."""

    def failed(self, error: BaseException) -> None:
        """It ended otherwise: by an error, or saved by Ctrl-C or a deadline (`Stopped`)."""


class CallbackFailed(FocuseError):  # noqa: N818 - what failed is no part of the training
    """A callback raised an error. What was trained until then is in `run`, which can be saved; None if nothing was."""

    run: Any = None


class Followers:
    """A reporter that passes everything on to another, and what callbacks hear of to them, in their order."""

    def __init__(self, reporter: Reporter, callbacks: Sequence[Callback], splits: Splits, folder: Path | None) -> None:
        self.reporter, self.callbacks, self.splits, self.folder = reporter, callbacks, splits, folder

    def note(self, text: str) -> None:
        self.reporter.note(text)

    def start(self, settings: Settings, epochs_done: int) -> None:
        splits = self.splits
        rows = {"train": len(splits.train), "valid": len(splits.valid.graph), "test": len(splits.test.graph)}
        sizes = len(splits.train.entities), len(splits.train.relations)
        beginning = Beginning(settings.to_dict(), rows, *sizes, epochs_done, self.folder, self.note)
        for callback in self.callbacks:  # before a bar is drawn: some print
            with self._naming(callback, "started"):
                callback.started(beginning)
        self.reporter.start(settings, epochs_done)

    def step(self, epoch: int, share: float) -> None:
        self.reporter.step(epoch, share)

    def epoch(self, row: dict[str, Any]) -> str | None:
        """Why a training is to end here, if someone wishes it."""
        wish = self.reporter.epoch(row)
        for callback in self.callbacks:
            with self._naming(callback, "epoch"):
                if callback.epoch(dict(row)) is True:
                    wish = wish or f"stopped by {name_of(callback)}"
        return wish

    def stop(self) -> None:
        self.reporter.stop()

    def finished(self, run: Any) -> None:
        """Every callback hears of it, also after one that fails."""
        first: CallbackFailed | None = None
        for callback in self.callbacks:
            try:
                with self._naming(callback, "finished", "; the training itself is complete"):
                    callback.finished(run)
            except CallbackFailed as error:
                error.run, first = run, first or error
        if first is not None:
            raise first

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Whatever ends the block too soon is told to every callback; one that fails over it is only noted."""
        try:
            yield
        except BaseException as error:
            for callback in self.callbacks:
                try:
                    callback.failed(error)
                except Exception as another:
                    self.note(f"callback {name_of(callback)} failed in failed(): {told(another)}")
            raise

    def _naming(self, callback: Callback, hook: str, more: str = "") -> Any:
        return _naming(callback, hook, self._advice() if hook == "epoch" else more)

    def _advice(self) -> str:
        if self.folder is None:
            return "; what was trained is in the error's .run"
        return f"; the training is saved, continue with: focuse train --resume {self.folder}"


@contextmanager
def _naming(callback: Callback, hook: str, more: str) -> Iterator[None]:
    """An error of a callback is one line that names it; its own traceback stays attached as the cause."""
    try:
        yield
    except Exception as error:
        raise CallbackFailed(f"callback {name_of(callback)} failed in {hook}(): {told(error)}{more}") from error


def name_of(callback: Callback) -> str:
    return type(callback).__name__


def told(error: BaseException) -> str:
    """'ValueError: what is wrong'; our own errors speak for themselves."""
    return str(error) if isinstance(error, FocuseError) else f"{type(error).__name__}: {error}"


def make_callbacks(given: Sequence[object]) -> list[Callback]:
    """Callbacks from callbacks, their classes, or 'package.module:Class'.

    >>> make_callbacks([Callback])[0].epoch({"epoch": 1})
    """
    if isinstance(given, str | Callback | type):
        given = [given]
    return [_made(each) for each in given]


def _made(each: object) -> Callback:
    if isinstance(each, str):
        if ":" not in each:
            raise FocuseError(f"callback {each!r}: write it like package.module:Class")
        name, each = each, imported(each, "callback", Callback)
        if not (isinstance(each, type) and issubclass(each, Callback)):
            raise FocuseError(f"callback {name!r}: {each!r} is no subclass of focuse.Callback; derive it from that")
    if isinstance(each, type) and issubclass(each, Callback):
        try:
            return each()
        except FocuseError:
            raise
        except Exception as error:
            raise FocuseError(f"callback {each.__name__}: cannot be made without arguments: {told(error)}") from None
    if not isinstance(each, Callback):
        raise FocuseError(f"callback {each!r}: is no focuse.Callback; derive its class from that")
    return each
