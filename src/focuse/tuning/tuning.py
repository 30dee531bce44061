"""The search of the paper's section 5: which settings learn a graph best, as validation sees it."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focuse.config import Config
from focuse.data.attributes import read_attributes
from focuse.data.readers import read
from focuse.data.splits import Splits
from focuse.engines.factory import choose_device
from focuse.errors import FocuseError
from focuse.option_strings import choose
from focuse.system import interruptible
from focuse.training.callbacks import SilentReporter
from focuse.training.preparation import (
    check_node_attributes,
    fit_training_normalizer,
    ignore_equal_weights,
    make_splits,
)
from focuse.tuning.space import Space
from focuse.tuning.watching import make_watch
from focuse.tuning.worker import Worker

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from focuse.tuning.ledger import Ledger

SAMPLERS = ("tpe", "grid")
PRUNERS = ("median", "hyperband", "none")
TRIALS = 50


@dataclass(frozen=True)
class Tuning:
    """A study as it stands: the trials and the best of them."""

    folder: Path
    wanted: int
    running: int
    best: dict[str, Any] | None
    trials: list[dict[str, Any]]

    @property
    def done(self) -> int:
        return len(self.trials)

    def to_dict(self) -> dict[str, Any]:
        """What --json prints."""
        return {
            "study": str(self.folder),
            "config": str(self.folder / "best.toml") if self.best else None,
            "wanted": self.wanted,
            "done": self.done,
            "running": self.running,
            "best": self.best,
            "trials": self.trials,
        }


def tune(
    graph: Any,
    space: Space,
    out: str | Path,
    *,
    valid: Any = None,
    test: Any = None,
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
    node_attributes: Any = None,
    sampler: str = "tpe",
    pruner: str = "median",
    trials: int | None = None,
    budget: float | None = None,
    storage: str | None = None,
    progress: bool = True,
) -> Tuning:
    """Train one combination of `space` after the other and keep the best by validation MRR in `out`/best.toml.

    `trials` is how many the study is to have in all (by default 50, or the whole grid), `budget` how many seconds
    this call may take. `node_attributes` are those of entities, as for `focuse.train`. Called again with the same `out`
    it goes on; several processes share the work. Test triples serve only as known facts, as in training.
    """
    started, folder = time.monotonic(), Path(out)
    choose("sampler", sampler, SAMPLERS)
    choose("pruner", pruner, PRUNERS)
    if trials is not None and trials < 1:
        raise FocuseError(f"trials {trials}: give a whole number of at least 1")
    ledgers = _import_ledger()
    _check_folder(folder, ledgers)
    settings, watch = space.settings({}), make_watch(progress)
    choose_device(settings.device)
    if "model" not in space.searched:
        check_node_attributes(settings, node_attributes is not None)
    given = None if node_attributes is None else read_attributes(node_attributes)
    whole = read(graph)
    if not len(whole):
        raise FocuseError(f"{whole.source}: no edges to train on")
    splits = make_splits(whole, valid, test, valid_fraction, test_fraction, settings, watch)
    _check_splits(splits, space, settings)
    wanted = min(trials or (space.size if sampler == "grid" else TRIALS), space.size)
    about = {"graph": fingerprint(splits), "sampler": sampler, **space.about()}
    about |= {} if given is None else {"numbers": given.fingerprint()}
    ledger = ledgers.open_ledger(folder, space, about, sampler, pruner, storage)
    watch.note(f"{space}\n{sampler}: {wanted:,} trials wanted, {ledger.done():,} done")
    deadline = math.inf if budget is None else started + budget
    with ledgers.reachable(storage or str(folder)), ledger, interruptible() as asked:
        Worker(ledger, splits, given, watch, wanted, deadline, asked).run()
        return _result(ledger, wanted)


def _import_ledger() -> Any:
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise FocuseError("the search needs Optuna; install it with: pip install focuse[tune]") from None
    from focuse.tuning import ledger

    return ledger


def _check_folder(folder: Path, ledgers: Any) -> None:
    """Nobody's own folder is written to."""
    if not folder.name:
        raise FocuseError(f"{folder}: choose a folder with a name of its own for --out")
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {""}
    if names and not names & {ledgers.JOURNAL, ledgers.BEST, ledgers.WORKERS}:
        raise FocuseError(f"{folder}: exists and is not a study; choose another --out")


def _check_splits(splits: Splits, space: Space, settings: Config) -> None:
    if not len(splits.valid):
        raise FocuseError(
            f"{splits.train.source}: no validation triples to compare trials on; give --valid or raise --valid-fraction"
        )
    if settings.weight_mode == "none" or {"weight_mode", "weight_scaling"} & set(space.searched):
        return
    resolved = settings.resolve(splits.train, "cpu")
    normalizer = fit_training_normalizer(resolved, splits)
    if ignore_equal_weights(resolved, splits, normalizer, SilentReporter()).weight_mode == "none":
        raise FocuseError(f"{splits.train.source}: all weights are equal; search with --weight-mode none")


def fingerprint(splits: Splits) -> str:
    """The same for the same edges in the same splits, whatever the file is called."""
    digest = hashlib.blake2b(digest_size=6)
    parts = (splits.train, splits.valid, splits.test)
    for graph in (*parts, *([] if splits.known_negatives is None else [splits.known_negatives])):
        for column in (graph.head, graph.relation, graph.tail, graph.weight):
            digest.update(column.tobytes())
        if graph.columns is not None:
            digest.update(graph.columns.values.tobytes())
    sizes = " + ".join(f"{len(graph):,}" for graph in parts)
    return f"of {sizes} triples ({digest.hexdigest()})"


def _result(ledger: Ledger, wanted: int) -> Tuning:
    trials = [_row(trial) for trial in ledger.trials() if trial.state.is_finished()]
    best = ledger.best()
    running = ledger.running()
    if best is None and not running:
        failed = [row["reason"] for row in trials if row["reason"]]
        if failed:
            raise FocuseError(f"{ledger.folder}: no trial could be trained to its end; the last: {failed[-1]}")
        raise FocuseError(f"{ledger.folder}: no trial came to its end; raise --budget, or search smaller models")
    shown = {**_row(best), "settings": ledger.space.remembered(best.params)} if best else None
    return Tuning(ledger.folder, wanted, running, shown, trials)


def _row(trial: FrozenTrial) -> dict[str, Any]:
    """One trial for people and programs; a pruned one has the MRR of its last look."""
    notes = trial.user_attrs
    state = "failed" if "failed" in notes else trial.state.name.lower()
    return {
        "trial": trial.number,
        "state": state,
        "valid_mrr": trial.value,
        "best_epoch": notes.get("best_epoch"),
        "epochs": notes.get("epochs"),
        "seconds": notes.get("seconds"),
        "searched": dict(trial.params),
        "reason": notes.get("failed"),
    }
