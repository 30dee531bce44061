"""Hyper-parameter search: `tune` finds the settings with the best validation result.

Optuna draws and stores the trials, shares them among processes and repeats those of killed processes.
"""

from __future__ import annotations

import hashlib
import math
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

from focuse.api import train
from focuse.config import Config, parse_assignments, parse_setting_value
from focuse.data.graph import Graph
from focuse.data.readers import read
from focuse.data.splits import Splits
from focuse.engines.factory import choose_device
from focuse.errors import FocuseError, Stopped, install_command, printable
from focuse.option_strings import choose, parse_duration, parse_option_string
from focuse.results import ResultTable
from focuse.storage.atomic import replace_file
from focuse.storage.metadata import to_toml
from focuse.system import limited_memory
from focuse.training.callbacks import Reporter, make_reporter
from focuse.training.preparation import check_node_attributes, make_splits

try:
    import optuna
    from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
    from optuna.trial import FrozenTrial, TrialState
    from sqlalchemy import URL
    from sqlalchemy.exc import SQLAlchemyError
except ImportError:
    raise FocuseError(f"tuning needs Optuna; {install_command('tune')}") from None

STUDY_FILE, BEST_FILE = "study.db", "best.toml"
DEFAULT_TRIALS, MAX_GRID_SIZE = 50, 1_000_000  # a grid is kept in memory
HEARTBEAT_SECONDS, GRACE_SECONDS = 10, 60  # a process without a heartbeat for the grace period counts as killed
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
# By default these settings are searched: the value that `focuse.train` would use, multiplied by each factor.
DEFAULT_FACTORS = {
    "dim": (1, 2, 4),
    "lr": (0.3, 1, 3),
    "num_negatives": (0.25, 1, 4),
    "regularizer": (0.1, 1, 10),
    "beta_decay_epochs": (0.25, 0.5, 1),
}
# They decide what is measured, or where: trials that differ in them could not be compared.
NOT_SEARCHED = (
    "seed", "device", "checkpoint_every", "stop_metric", "stop_fraction", "valid_min_weight", "duplicates",
    "weight_scaling", "lower_is_better", "negative_weights", "zero_weights", "column_importance",
)  # fmt: skip
NOT_WRITTEN = ("device", "checkpoint_every")  # they depend on the machine, not on the model


def tune(
    graph: Any,
    out: str | Path,
    *,
    search: Mapping[str, Sequence[Any]] | None = None,
    fix: Mapping[str, Any] | None = None,
    sampler: str = "tpe",
    pruner: str = "median",
    trials: int | None = None,
    time_limit: str | float | None = None,
    storage: str | None = None,
    valid: Any = None,
    test: Any = None,
    valid_fraction: float | None = None,
    test_fraction: float | None = None,
    node_attributes: Any = None,
    progress: bool = True,
) -> ResultTable:
    """Search the settings with the best validation result and write them to `out`/best.toml.

    Called again with the same `out`, the search continues; several processes with the same `out` share the trials. The
    arguments from `valid` on are those of `focuse.train`. Test triples are only used as known triples.

    Parameters
    ----------
    search
        Values to try per setting; by default values around those that `focuse.train` would use.
    fix
        Settings with one value for all trials.
    sampler
        'tpe' (learns from earlier trials) or 'grid' (all combinations, in a shuffled order).
    pruner
        Whether trials below the median of others end early: 'median' or 'none'.
    trials
        Number of trials that the study shall have in total; by default 50, or the whole grid.
    time_limit
        Time after which this call ends: seconds, or a text such as '30m'.
    storage
        URL of a database, by default a SQLite file in `out`.

    Returns
    -------
    ResultTable
        One row per finished trial; its attribute `best` has the best trial with all of its settings.
    """
    seconds = math.inf if time_limit is None else parse_duration(time_limit)
    deadline, folder, reporter = time.monotonic() + seconds, Path(out), make_reporter(progress)
    choose("sampler", sampler, ("tpe", "grid"))
    choose("pruner", pruner, ("median", "none"))
    if trials is not None and (not isinstance(trials, Integral) or trials < 1):
        raise FocuseError(f"trials {trials!r}: give a whole number of at least 1")
    _check_folder(folder)
    config = Config.from_kwargs(**fix or {})
    choose_device(config.device)
    if "model" not in (search or {}):
        check_node_attributes(config, node_attributes is not None)
    with limited_memory(config.memory_limit):
        splits = make_splits(read(graph), valid, test, valid_fraction, test_fraction, config, reporter)
    if not len(splits.train) or not len(splits.valid):
        advice = "raise valid_fraction" if valid is None else "give validation triples whose names are in train"
        raise FocuseError(f"{splits.train.source}: no triples to train on, or none to validate; {advice}")
    space = make_space(splits.train, search, fix)
    count = min(trials or (space.size if sampler == "grid" else DEFAULT_TRIALS), space.size)
    if max(count, space.size * (sampler == "grid")) > MAX_GRID_SIZE:
        raise FocuseError(f"a grid of {space.size:,} combinations is too large; search less, or use sampler 'tpe'")
    parts: dict[str, Any] = {"valid": splits.valid, "test": splits.test, "known_negatives": splits.known_negatives}
    train_trial = partial(train, splits.train, **parts, node_attributes=node_attributes, deadline=deadline)
    with _explain_optuna_errors(str(folder) if storage is None else f"{storage.partition('://')[0]}://…"):
        study = _open_study(folder, f"{fingerprint(splits)}; {sampler}; {space}", space.metric, pruner, storage)
        reporter.note(f"{space}\n{sampler}: {len(_trials(study, *FINISHED))} of {count} trials done")
        try:
            _run_trials(study, space, sampler == "grid", count, train_trial, deadline, folder, reporter.note)
        except KeyboardInterrupt:
            done = f"{len(_trials(study, *FINISHED))} of {count} trials done; continue with the same command"
            if time.monotonic() < deadline:
                raise Stopped(f"{folder}: stopped; {done}") from None
            reporter.note(f"{folder}: the time limit is reached; {done}")
        return _result(study, space, folder, count)


def _check_folder(folder: Path) -> None:
    """Raise FocuseError if the folder holds something else than a study."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if folder.is_file() or (names and not names & {STUDY_FILE, BEST_FILE}):
        raise FocuseError(f"{folder}: exists and is not a study; choose another folder")


def fingerprint(splits: Splits) -> str:
    """Return the sizes of the splits and a hash of their triples, which does not depend on the names of files."""
    graphs = [graph for graph in (splits.train, splits.valid, splits.test, splits.known_negatives) if graph is not None]
    columns = [column for graph in graphs for column in (graph.head, graph.relation, graph.tail, graph.weight)]
    digest = hashlib.blake2b(b"".join(column.tobytes() for column in columns), digest_size=6).hexdigest()
    return f"{' + '.join(f'{len(graph):,}' for graph in graphs)} triples ({digest})"


def _open_study(folder: Path, about: str, metric: str, pruner: str, url: str | None) -> optuna.Study:
    """Create the study of a folder, or open it if it is `about` the same search; `url` is a database to use instead."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    folder.mkdir(parents=True, exist_ok=True)
    create = partial(_create_study, folder, metric, pruner, url)
    try:
        study = create()
    except SQLAlchemyError:  # another process may be creating the tables of the same database
        time.sleep(1)
        study = create()
    known = study.user_attrs.get("about", about)
    if known != about:
        raise FocuseError(f"{folder}: this study was started with {known}, not {about}; choose another folder")
    study.set_user_attr("about", about)
    return study


def _create_study(folder: Path, metric: str, pruner: str, url: str | None) -> optuna.Study:
    """Create the study of a folder, or open it."""
    return optuna.create_study(
        storage=RDBStorage(
            url or URL.create("sqlite", database=str(folder.resolve() / STUDY_FILE)).render_as_string(),
            heartbeat_interval=HEARTBEAT_SECONDS,
            grace_period=GRACE_SECONDS,
            heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
        ),
        study_name=folder.resolve().name,
        direction="maximize" if metric == "valid_mrr" else "minimize",
        pruner=optuna.pruners.MedianPruner(n_min_trials=3) if pruner == "median" else optuna.pruners.NopPruner(),
        load_if_exists=True,
    )


class RepeatedCombinationError(Exception):
    """The sampler has drawn a combination that another trial has; the trial does not count."""


class TrialReporter(Reporter):
    """Reports the validation results of a training to Optuna, and ends the training if the trial is pruned."""

    def __init__(self, trial: optuna.Trial, metric: str) -> None:
        self.trial, self.metric = trial, metric
        self.values: list[float] = []

    def start(self, settings: Config, epochs_done: int) -> None:
        self.epochs = settings.epochs

    def epoch(self, row: dict[str, Any]) -> None:
        if (value := row.get(self.metric)) is not None:
            self.values.append(value)
            self.trial.report(value, row["epoch"])
            if row["epoch"] < self.epochs and self.trial.should_prune():
                raise optuna.TrialPruned


def _run_trials(
    study: optuna.Study,
    space: Space,
    grid: bool,
    count: int,
    train: Callable[..., object],
    deadline: float,
    folder: Path,
    note: Callable[[str], None],
) -> None:
    """Run trials until the study has `count` finished ones; several processes may do so at the same time.

    If not all combinations are tried, the first one is that of `focuse.train`.
    """

    def try_combination(trial: optuna.Trial) -> float:
        started.append(trial.number)
        combination = {name: trial.suggest_categorical(name, values) for name, values in space.searched.items()}
        others = [other for other in _trials(study, *FINISHED, TrialState.RUNNING) if other.number < trial.number]
        if any(other.params == combination for other in others):
            raise RepeatedCombinationError
        reporter = TrialReporter(trial, space.metric)
        try:
            train(**space.fixed, **combination, progress=reporter)
            if not reporter.values:
                raise FocuseError(f"no epoch has a {space.metric}; fix stop_metric or eval_start")
        except FocuseError as error:  # diverged, or too large for this machine: the next one may do better
            trial.set_user_attr("reason", str(error))
            raise optuna.TrialPruned from None
        return max(reporter.values) if space.metric == "valid_mrr" else min(reporter.values)

    started: list[int] = []
    grid = grid or count == space.size
    if not _trials(study) and not grid and space.default_combination:
        study.enqueue_trial(space.default_combination)
    repeats = 0
    while (done := len(_trials(study, *FINISHED))) < count:
        fail_stale_trials(study)  # queues the trials of killed processes again
        if done + len(_trials(study, TrialState.RUNNING)) >= count and not _trials(study, TrialState.WAITING):
            time.sleep(0.2)  # other processes run the last trials
            if time.monotonic() >= deadline:
                raise KeyboardInterrupt
            continue
        if grid:
            study.sampler = optuna.samplers.GridSampler(space.searched, space.resolved.seed)
        else:  # every trial has its own seed, because a resumed study would otherwise draw the same combinations
            seed = zlib.crc32(f"{space.resolved.seed} {done} {repeats}".encode())
            study.sampler = optuna.samplers.RandomSampler(seed) if repeats else optuna.samplers.TPESampler(seed=seed)
        try:
            study.optimize(try_combination, n_trials=1, catch=RepeatedCombinationError)
        except BaseException:  # interrupted, or a fault of the program: the combination is queued again
            for trial in _trials(study, TrialState.FAIL):
                if trial.number in started[-1:]:
                    RetryHeartbeatStaleTrialCallback()(study, trial)
            raise
        repeats = repeats + 1 if len(_trials(study, *FINISHED)) == done else 0
        if not repeats:
            note(f"{_write_best(study, space, folder)}; {len(_trials(study, *FINISHED))} of {count} trials done")


def _trials(study: optuna.Study, *states: TrialState) -> list[FrozenTrial]:
    """Return the trials in one of these states, by default all, ordered by number."""
    return study.get_trials(deepcopy=False, states=states or None)


def _write_best(study: optuna.Study, space: Space, folder: Path) -> str:
    """Write the settings of the best trial so far to best.toml, and describe the last finished trial and the best."""
    last = _row(_trials(study, *FINISHED)[-1], space)
    text = ", ".join(f"{name} {value}" for name, value in last.items() if value is not None)
    if not _trials(study, TrialState.COMPLETE):
        return text
    best = f"{space.metric} {study.best_value:.4f} (trial {study.best_trial.number})"
    settings = to_toml(space.train_settings(study.best_params))
    with replace_file(folder / BEST_FILE) as temporary:
        temporary.write_text(f"# {best} of {printable(str(folder))}\n{settings}", encoding="utf-8")
    return f"{text}; best: {best}"


def _row(trial: FrozenTrial, space: Space) -> dict[str, Any]:
    """Return a row of the result; the value of a pruned trial is its last validation result."""
    return {
        "trial": trial.number,
        "state": "failed" if "reason" in trial.user_attrs else trial.state.name.lower(),
        space.metric: trial.value,
        **{name: trial.params[name] for name in space.searched},
        "seconds": trial.duration and round(trial.duration.total_seconds(), 3),
        "reason": trial.user_attrs.get("reason"),
    }


def _result(study: optuna.Study, space: Space, folder: Path, count: int) -> ResultTable:
    """Return the finished trials; raise FocuseError if none is complete."""
    rows = [_row(trial, space) for trial in _trials(study, *FINISHED)]
    if not _trials(study, TrialState.COMPLETE):
        reasons = [row["reason"] for row in rows if row["reason"]]
        advice = f"the last error: {reasons[-1]}" if reasons else "raise time_limit, or search smaller models"
        raise FocuseError(f"{folder}: no trial was completed; {advice}")
    best = {**_row(study.best_trial, space), "settings": space.train_settings(study.best_params)}
    info = {"study": str(folder), "config": str(folder / BEST_FILE), "trials": count, "best": best}
    return ResultTable({name: [row[name] for row in rows] for name in rows[0]}, info=info)


@contextmanager
def _explain_optuna_errors(where: str) -> Iterator[None]:
    """Turn the errors of a database that cannot be used into one line, and suppress Optuna's experimental warnings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    except (ImportError, OSError, SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise FocuseError(f"{where}: {reason}; choose another folder, or a storage like sqlite:///study.db") from None


# ---- the settings that a search varies, and those that it holds fixed ------------------------------------------------


@dataclass(frozen=True)
class Space:
    """The values to try per searched setting, and the fixed settings; made by `make_space`.

    `resolved` has the settings that `focuse.train` would use with the fixed settings alone.
    """

    searched: dict[str, list[Any]]
    fixed: dict[str, Any]
    resolved: Config

    @property
    def size(self) -> int:
        """The number of combinations."""
        return math.prod(len(values) for values in self.searched.values())

    @property
    def metric(self) -> str:
        """The validation result that trials are compared by: that of early stopping."""
        return f"valid_{self.resolved.stop_metric}"

    @property
    def default_combination(self) -> dict[str, Any]:
        """The combination that `focuse.train` would use by itself; empty if it is not in the space."""
        defaults = {name: getattr(self.resolved, name) for name in self.searched}
        return defaults if all(defaults[name] in values for name, values in self.searched.items()) else {}

    def train_settings(self, combination: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keywords with which `focuse.train` repeats the trial of a combination, the searched ones first."""
        settings = {**combination, **Config.from_kwargs(**{**self.fixed, **combination}).to_kwargs()}
        return {name: value for name, value in settings.items() if name not in NOT_WRITTEN and value is not None}

    def __str__(self) -> str:
        searched = "; ".join(f"{name} {' | '.join(map(str, values))}" for name, values in self.searched.items())
        fixed = ", ".join(f"{name} {value}" for name, value in self.fixed.items() if name not in NOT_WRITTEN)
        return f"search: {searched or 'nothing'} ({self.size:,} combinations); fixed: {fixed or 'nothing'}"


def make_space(
    train: Graph, search: Mapping[str, Sequence[Any]] | None = None, fix: Mapping[str, Any] | None = None
) -> Space:
    """Return the space of a training graph, by default around the settings that `focuse.train` would use.

    `search` has the values to try per setting and `fix` the settings that are not searched; every value is checked.
    """
    search, fixed = dict(search or {}), dict(fix or {})
    if both := sorted(set(search) & set(fixed)):
        raise FocuseError(f"{', '.join(both)}: both searched and fixed; choose one")
    config = Config.from_kwargs(**fixed)
    if "model" in fixed:
        fixed["model"] = config.model  # the name of a class
    resolved = config.resolve(train, config.device)
    searched = {name: values for name, values in _values_around(resolved, search).items() if name not in fixed}
    checked = {name: _check_values(name, values, fixed) for name, values in (searched | search).items()}
    return Space(checked, fixed, resolved)


def _values_around(config: Config, search: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the settings that are searched by default, with the values of `config`, lower and higher ones."""
    unused = {
        "lr": "optimizer" in search,  # a learning rate suits one optimizer
        "num_negatives": "negative_sampling" in search or config.negative_sampling == "all",
        "regularizer": not parse_option_string(config.regularizer, "regularizer")[1],
        "beta_decay_epochs": config.weight_mode != "focuse" or config.beta is not None,
    }
    return {
        name: [_scale(getattr(config, name), factor) for factor in factors]
        for name, factors in DEFAULT_FACTORS.items()
        if not unused.get(name)
    }


def _scale(value: Any, factor: float) -> Any:
    """Return a number times a factor, or a regularizer such as 'l3:1e-3' with its strength times the factor."""
    if isinstance(value, str):
        name, (strength, *_), _ = parse_option_string(value, "regularizer")
        return value if factor == 1 else f"{name}:{strength * factor:g}"
    return max(1, round(value * factor)) if isinstance(value, int) else float(f"{value * factor:.6g}")


def _check_values(name: str, values: Sequence[Any], fixed: Mapping[str, Any]) -> list[Any]:
    """Return the values as `Config` has them, each of them once."""
    if not isinstance(values, list | tuple) or not values:
        raise FocuseError(f"{name} {values!r}: give a list of values to search")
    if name in NOT_SEARCHED:
        raise FocuseError(f"{name} cannot be searched, because trials would not be comparable; fix it instead")
    return list(dict.fromkeys(getattr(Config.from_kwargs(**{**fixed, name: value}), name) for value in values))


def parse_search(assignments: Sequence[str]) -> dict[str, list[Any]]:
    """Parse `--search`, like ['lr=1e-4,1e-3'] -> {'lr': [1e-4, 1e-3]}; semicolons separate values with commas."""
    found = parse_assignments("--search", assignments)
    parts = {name: text.split(";" if ";" in text else ",") for name, text in found.items()}
    return {name: [parse_setting_value(name, part.strip()) for part in some] for name, some in parts.items()}


def parse_fix(assignments: Sequence[str]) -> dict[str, Any]:
    """Parse `--fix`, like ['batch-size=64'] -> {'batch_size': 64}."""
    return {name: parse_setting_value(name, text) for name, text in parse_assignments("--fix", assignments).items()}
