"""The trials of a study: on disk, shared by processes, no combination twice."""

from __future__ import annotations

import json
import math
import os
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.storages import JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, Trial, TrialState

from focuse.errors import FocuseError
from focuse.tuning.choosing import MOST_CELLS, Cell, Chooser, make_pruner
from focuse.tuning.space import Space

try:
    import fcntl
except ImportError:  # no such locks here: a trial of a process that was killed is not found out
    fcntl = None  # type: ignore[assignment]

INTERRUPTED = "interrupted"
JOURNAL, BEST, WORKERS = "journal.log", "best.toml", "workers"
DONE = (TrialState.COMPLETE, TrialState.PRUNED)
LOCK_SECONDS = 10  # nobody writes for so long: the lock is that of a process killed meanwhile
TORN_SECONDS = 2.0  # a last line without its end may be one that another process is writing


class Ledger:
    """The trials of one study. Used as a context: while it is open, its trials count as alive.

    A trial that was interrupted is void and its combination is the next to be tried by whoever comes, so that a
    study that was stopped and gone on with makes the same trials as one that never stopped. What voids a trial is
    written beside it, for Optuna has no state for that.
    """

    def __init__(self, study: optuna.Study, space: Space, folder: Path, chooser: Chooser) -> None:
        self.study, self.space, self.folder, self.chooser = study, space, folder, chooser
        self.distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(values) for name, values in space.searched.items()
        }
        self.worker = f"{socket.gethostname()}-{uuid.uuid4().hex}"
        self._lock = -1

    # ---- which process is alive -------------------------------------------------------------------------------------

    def __enter__(self) -> Ledger:
        """A file that this process holds a lock on: the system lets go of it even if the process is killed."""
        path = self._file_of(self.worker)
        path.parent.mkdir(exist_ok=True)
        self._lock = os.open(path, os.O_CREAT | os.O_RDWR)
        if fcntl is not None:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._lock)  # first: an open file cannot be removed on Windows
        # Left in the middle of a trial, the file stays: it is how the next process finds out.
        if not any(trial.user_attrs.get("worker") == self.worker for trial in self._in(TrialState.RUNNING)):
            self._file_of(self.worker).unlink(missing_ok=True)

    def _file_of(self, worker: str) -> Path:
        return self.folder / WORKERS / worker

    def _is_dead(self, worker: str) -> bool:
        """Whether the process is known to be gone; one on another machine is not known."""
        if fcntl is None or worker.rpartition("-")[0] != socket.gethostname():
            return False  # not every network folder carries locks from one machine to another
        try:
            descriptor = os.open(self._file_of(worker), os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    def bury_the_dead(self) -> int:
        """Have the trials of killed processes tried again; how many they were."""
        found = 0
        for trial in self._in(TrialState.RUNNING):
            worker = trial.user_attrs.get("worker")
            if worker and self._is_dead(worker):
                self.interrupt(trial.number)
                self._file_of(worker).unlink(missing_ok=True)
                found += 1
        return found

    # ---- counting ---------------------------------------------------------------------------------------------------

    def trials(self) -> list[FrozenTrial]:
        """All that count: not those that were interrupted or one too many."""
        void = self.study.user_attrs
        return [trial for trial in self.study.get_trials(deepcopy=False) if f"void {trial.number}" not in void]

    def _in(self, state: TrialState) -> list[FrozenTrial]:
        return [trial for trial in self.trials() if trial.state == state]

    def _cell(self, params: Mapping[str, Any]) -> Cell:
        return tuple(params[name] for name in self.space.searched)

    def _tried(self, before: float = math.inf) -> set[Cell]:
        """The combinations that are done or under way, of the trials of a lower number."""
        return {self._cell(trial.params) for trial in self.trials() if trial.number < before}

    def done(self) -> int:
        """How many combinations have been tried to the end."""
        return len({self._cell(trial.params) for trial in self.trials() if trial.state in DONE})

    def running(self) -> int:
        return len(self._in(TrialState.RUNNING))

    def best(self) -> FrozenTrial | None:
        """The trial of the highest validation MRR, the first of equals."""
        return max(self._in(TrialState.COMPLETE), key=lambda trial: trial.value or 0.0, default=None)

    # ---- one trial after the other ----------------------------------------------------------------------------------

    def next(self, wanted: int) -> Trial | None:
        """A trial to do, None if as many as wanted, or all there are, are done or under way."""
        wanted = min(wanted, self.space.size)
        while len(tried := self._tried()) < wanted:
            cell = self._interrupted(tried) or self.chooser.choose(self.trials(), tried)
            begun = self._begin(cell)
            # Another process may have been faster: the lower number has it.
            earlier = self._tried(before=begun.number)
            if self._cell(cell) not in earlier and len(earlier) < wanted:
                return Trial(self.study, begun._trial_id)
            self._void(begun.number, "one too many")
        return None

    def _interrupted(self, tried: set[Cell]) -> dict[str, Any] | None:
        """A combination whose trial was interrupted and that nobody has taken up again."""
        void = self.study.user_attrs
        for trial in self.study.get_trials(deepcopy=False):
            if void.get(f"void {trial.number}") == INTERRUPTED and self._cell(trial.params) not in tried:
                return dict(trial.params)
        return None

    def _begin(self, cell: Mapping[str, Any]) -> FrozenTrial:
        """A trial under way. One record says all, so that a process killed at any time leaves nothing unclear."""
        token = uuid.uuid4().hex
        begun = optuna.trial.create_trial(
            state=TrialState.RUNNING,
            params=dict(cell),
            distributions=self.distributions,
            user_attrs={"worker": self.worker, "token": token},
        )
        self.study.add_trial(begun)
        return next(trial for trial in self.trials() if trial.user_attrs.get("token") == token)

    def complete(self, trial: Trial, value: float) -> None:
        self.study.tell(trial, value, skip_if_finished=True)

    def give_up(self, trial: Trial, reason: str | None = None) -> None:
        """Pruned, or failed for `reason`: told as pruned too, so that the sampler learns to keep away."""
        if reason is not None:
            trial.set_user_attr("failed", reason)
        self.study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)

    def interrupt(self, number: int) -> None:
        """It does not count, and its combination is the next to be tried."""
        self._void(number, INTERRUPTED)

    def _void(self, number: int, why: str) -> None:
        self.study.set_user_attr(f"void {number}", why)
        self.study.tell(number, state=TrialState.FAIL, skip_if_finished=True)


# ---- opening --------------------------------------------------------------------------------------------------------


def open_ledger(
    folder: Path,
    space: Space,
    about: Mapping[str, str],
    sampler: str,
    pruner: str,
    url: str | None = None,
) -> Ledger:
    """The study in a folder (or a data base), new or gone on with; not one that was about something else."""
    if sampler == "grid" and space.size > MOST_CELLS:
        raise FocuseError(f"a grid of {space.size:,} combinations is too large; search less, or use --sampler tpe")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FocuseError(f"{folder}: {error.strerror or error}; choose another --out") from None
    where = url or str(folder / JOURNAL)
    name = "focuse" if url is None else folder.resolve().name
    with reachable(where), _undamaged(where):
        study = optuna.create_study(
            storage=RDBStorage(url) if url else _journal(folder / JOURNAL),
            study_name=name,
            direction="maximize",
            load_if_exists=True,
            sampler=optuna.samplers.RandomSampler(),  # never asked: the chooser chooses
            pruner=_pruner(pruner, space),
        )
        known = study.user_attrs.get("about")
        if known is None and study.get_trials(deepcopy=False):
            raise FocuseError(f"{where}: holds a study {name!r} of another program; choose another --out")
        if known is None:
            study.set_user_attr("about", dict(about))
    for key in dict.fromkeys([*about, *(known or {})]):
        before, now = (words.get(key, "its default") for words in (known or about, about))
        if before != now:
            raise FocuseError(
                f"{folder}: this study was started with {key} {before}, not {now}; "
                "go on as it was started, or choose another --out"
            )
    return Ledger(study, space, folder, Chooser(space, sampler, space.settings({}).seed))


def _pruner(kind: str, space: Space) -> optuna.pruners.BasePruner:
    settings = space.settings({})
    return make_pruner(kind, max(space.searched.get("epochs", [settings.epochs])), settings.eval_every)


def _journal(path: Path) -> JournalStorage:
    content, end = _content(path), time.monotonic() + TORN_SECONDS
    while content and not content.endswith(b"\n"):
        if time.monotonic() > end:
            raise ValueError(f"line {content.count(10) + 1} is cut off")
        time.sleep(0.05)
        content = _content(path)
    for number, line in enumerate(content.splitlines(), 1):
        try:
            json.loads(line)
        except ValueError:
            raise ValueError(f"line {number} is no JSON") from None
    # Not Optuna's usual lock: beside a relative path that one waits forever for a process that was killed.
    whole = str(path.resolve())
    return JournalStorage(JournalFileBackend(whole, JournalFileOpenLock(whole, LOCK_SECONDS)))


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


@contextmanager
def reachable(where: str) -> Iterator[None]:
    """A file or data base that cannot be used is one line."""
    import sqlalchemy.exc

    try:
        yield
    except BrokenPipeError:
        raise  # whoever read our output has left
    except OSError as error:
        raise FocuseError(f"{where}: {error.strerror or error}; choose another --out or --storage") from None
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        fault = str(error).splitlines()[0]
        raise FocuseError(f"{where}: {fault}; give a --storage like sqlite:///study.db") from None


@contextmanager
def _undamaged(where: str) -> Iterator[None]:
    """Whatever Optuna stumbles over in a journal, or misses for a data base, in one line."""
    try:
        yield
    except ImportError as error:
        raise FocuseError(f"{where}: {error}; install the driver of that data base") from None
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        raise FocuseError(
            f"{where}: damaged, {error}; bring back a copy, delete the bad line, or choose another --out"
        ) from None
