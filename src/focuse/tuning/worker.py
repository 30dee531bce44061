"""One process at work on a study: trial after trial, the best settings so far in a file."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from focuse.api import train
from focuse.config import Config
from focuse.data.attributes import AttributeTable
from focuse.data.splits import Splits
from focuse.errors import FocuseError, Stopped, printable
from focuse.models.registry import model_class, model_name
from focuse.storage.atomic import replace_file
from focuse.storage.metadata import to_toml
from focuse.training.callbacks import SilentReporter
from focuse.tuning.watching import Watch

if TYPE_CHECKING:  # Optuna is an extra
    from optuna.trial import Trial

    from focuse.tuning.ledger import Ledger


class Halted(Exception):  # noqa: N818 - not a fault
    """A trial that has to end here: Ctrl-C, or the budget is spent."""


class Judged(SilentReporter):
    """Follows the training of one trial: reports each look at validation and ends what is not worth more time."""

    def __init__(self, trial: Trial, watch: Watch, halt: Callable[[], None]) -> None:
        self.trial, self.watch, self.halt = trial, watch, halt
        self.best, self.best_epoch, self.epochs_done = -1.0, 0, 0

    def start(self, settings: Config, epochs_done: int) -> None:
        self.epochs = settings.epochs

    def step(self, epoch: int, share: float) -> None:
        self.halt()
        self.watch.share((epoch + share) / self.epochs)

    def epoch(self, row: dict[str, Any]) -> None:
        import optuna

        self.epochs_done = row["epoch"]
        if row.get("valid_mrr") is None:
            return
        if row["valid_mrr"] > self.best:
            self.best, self.best_epoch = row["valid_mrr"], row["epoch"]
        self.trial.report(row["valid_mrr"], row["epoch"])
        if row["epoch"] < self.epochs and self.trial.should_prune():
            raise optuna.TrialPruned


class Worker:
    """One process at work on a study."""

    def __init__(
        self,
        ledger: Ledger,
        splits: Splits,
        numbers: AttributeTable | None,
        watch: Watch,
        wanted: int,
        deadline: float,
        asked: threading.Event,
    ) -> None:
        self.ledger, self.splits, self.numbers, self.watch = ledger, splits, numbers, watch
        self.wanted, self.deadline, self.asked = wanted, deadline, asked

    def run(self) -> None:
        """Trial after trial until enough are done, the time is over or someone says stop."""
        ledger, watch = self.ledger, self.watch
        buried = ledger.bury_the_dead()
        if buried:
            watch.note(f"{ledger.folder}: trials of killed processes are tried again: {buried}")
        watch.begin(self.wanted, ledger.done())
        try:
            self.halt()
            while (trial := ledger.next(self.wanted)) is not None:
                self._try(trial)
                write_best(ledger)
                self.halt()
        except Halted:
            if self.asked.is_set():
                raise Stopped(
                    f"{ledger.folder}: stopped with {ledger.done()} of {self.wanted} trials done, the one under way is "
                    "tried again; go on with the same command"
                ) from None
            watch.note(f"the budget is spent: {ledger.done()} of {self.wanted} trials; the same command goes on")
        finally:
            watch.stop()
        write_best(ledger)

    def halt(self) -> None:
        """Raise if this process has to end."""
        if self.asked.is_set() or time.monotonic() >= self.deadline:
            raise Halted

    def _try(self, trial: Trial) -> None:
        """Train one combination and write down how it went."""
        import optuna

        follower, started, ledger = Judged(trial, self.watch, self.halt), time.monotonic(), self.ledger
        outcome, reason = "complete", None
        splits, settings = self.splits, {**ledger.space.fixed, **trial.params}
        try:
            self.halt()
            held: dict[str, Any] = {
                "valid": splits.valid,
                "test": splits.test,
                "known_negatives": splits.known_negatives,
            }
            if "attributes" in model_class(model_name(settings.get("model", Config.model))).requires:
                held["node_attributes"] = self.numbers
            train(splits.train, **held, progress=follower, **settings)
        except Halted:
            ledger.interrupt(trial.number)
            raise
        except optuna.TrialPruned:
            outcome = f"pruned at epoch {follower.epochs_done}"
        except FocuseError as error:  # diverged, or too large for this machine: the next one may do better
            outcome, reason = f"failed ({error})", str(error)
        seconds = time.monotonic() - started
        trial.set_user_attr("seconds", round(seconds, 3))
        trial.set_user_attr("epochs", follower.epochs_done)
        trial.set_user_attr("best_epoch", follower.best_epoch)
        if outcome == "complete":
            ledger.complete(trial, follower.best)
            outcome = f"valid MRR {follower.best:.4f} at epoch {follower.best_epoch}"
        else:
            ledger.give_up(trial, reason)
        best = ledger.best()
        params = ", ".join(f"{name} {value}" for name, value in trial.params.items())
        self.watch.ended(
            f"trial {trial.number}: {outcome}, {seconds:.1f} s ({params})",
            f"{best.value:.4f} (trial {best.number})" if best else "none yet",
            ledger.done(),
        )


def write_best(ledger: Ledger) -> None:
    """best.toml of the best trial so far. It looks again after writing: another process may have been faster."""
    written, best = None, ledger.best()
    while best is not None and best.number != written:
        study, path = printable(str(ledger.folder)), ledger.folder / "best.toml"
        text = (
            f"# validation MRR {best.value:.4f} at epoch {best.user_attrs['best_epoch']}: "
            f"trial {best.number} of the study {study}\n"
            f"# focuse train GRAPH --config {printable(shlex.quote(str(path)))} --out RUN\n"
            + to_toml(ledger.space.remembered(best.params))
        )
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            with replace_file(path) as temporary:
                temporary.write_text(text, encoding="utf-8")
        written, best = best.number, ledger.best()
