"""Trackers: callbacks that log a training to TensorBoard, MLflow or Weights & Biases.

The folder of a run remembers in tracking.toml where it is tracked, so that a resumed training goes on there. A
tracker that fails is noted once, and training goes on without it.
"""

from __future__ import annotations

import os
import time
import tomllib
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from focuse.errors import FocuseError, Stopped, install_command
from focuse.option_strings import choose
from focuse.storage.atomic import replace_file
from focuse.storage.metadata import to_toml
from focuse.storage.tensors import check_text, seal_text
from focuse.training.callbacks import Callback, TrainingInfo, describe_error
from focuse.training.validation import best_epoch_row

FILE = "tracking.toml"


class Tracker(Callback):
    """A callback that writes settings, figures of each epoch and the end of a training somewhere.

    `place` says where, in the tracker's own words. With `evaluate` the test figures are measured and written at the
    end. A tracker that cannot begin is an error before the first step; one that fails later is noted, once, and the
    training goes on.
    """

    kind: ClassVar[str]
    module: ClassVar[str]  # of the library that it needs

    def __init__(self, place: str | Path | None = None, *, evaluate: bool = False) -> None:
        self.place = None if place is None else self.absolute(str(place))
        self.evaluate = evaluate
        self.asked = True  # by the user; not by a run that goes on
        self.broken = False
        self.note: Callable[[str], None] = lambda text: None
        try:
            import_module(self.module)
        except ImportError as error:
            raise FocuseError(f"cannot track with {self.kind} ({error}); {install_command(self.kind)}") from None

    # ---- what each kind says --------------------------------------------------------------------------------------

    def absolute(self, place: str) -> str:
        """`place` so that it means the same in another folder."""
        return place

    @abstractmethod
    def begin(self, beginning: TrainingInfo, before: str | None) -> str:
        """Open what is written to, going on with `before` if that is given; the name to find it by."""

    @abstractmethod
    def log(self, figures: dict[str, float], epoch: int) -> None:
        """Figures of an epoch."""

    @abstractmethod
    def end(self, figures: dict[str, float], texts: dict[str, str]) -> None:
        """Figures and texts of a whole training."""

    @abstractmethod
    def close(self, how: str) -> None:
        """No more follows; `how` is finished, stopped or failed."""

    # ---- when -----------------------------------------------------------------------------------------------------

    def started(self, beginning: TrainingInfo) -> None:
        self.note, self.broken = beginning.note, False
        folder = beginning.folder
        places = {} if folder is None else read_places(folder)
        before = places.get(self.kind, {}).get("id") if beginning.epochs_done else None
        try:
            found = self.begin(beginning, before)
            if folder is not None:
                places[self.kind] = {"place": self.place or "", "id": found}
                write_places(folder, places)
        except Exception as error:
            if self.asked:
                raise
            self._give_up(error)

    def epoch(self, row: dict[str, Any]) -> None:
        figures = {name: float(value) for name, value in row.items() if name != "epoch" and value is not None}
        self._try(lambda: self.log(figures, int(row["epoch"])))

    def finished(self, run: Any) -> None:
        self._try(lambda: self.end(*self._summary(run)))
        self._try(lambda: self.close("finished"))

    def failed(self, error: BaseException) -> None:
        how = "stopped" if isinstance(error, Stopped | KeyboardInterrupt) else "failed"
        self._try(lambda: self.close(how))

    def _summary(self, run: Any) -> tuple[dict[str, float], dict[str, str]]:
        best = best_epoch_row(run.history) or {}
        figures = {"epochs": len(run.history), "total_seconds": sum(row["seconds"] for row in run.history)}
        figures |= {f"best_{name}": best[name] for name in ("epoch", "valid_mrr", "valid_mse") if name in best}
        if self.evaluate and len(run.splits.test):
            found = run.evaluate().to_dict()
            figures |= flat({**found.pop("all"), **found}, "test")
        texts = {"folder": "" if run.folder is None else str(run.folder.absolute()), "fingerprint": run.tables_checksum}
        return {name: float(value) for name, value in figures.items()}, {k: v for k, v in texts.items() if v}

    def _try(self, do: Callable[[], None]) -> None:
        if self.broken:
            return
        try:
            do()
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.broken = True
        self.note(f"{self.kind}: {' '.join(describe_error(error).split())}; training goes on without it")


def flat(figures: Mapping[str, Any], name: str) -> dict[str, float]:
    """Numbers of nested tables, by the path to them.

    >>> flat({"mrr": 0.5, "hits": {"10": 1.0}, "ties": "worst"}, "test")
    {'test_mrr': 0.5, 'test_hits_10': 1.0}
    """
    found: dict[str, float] = {}
    for key, value in figures.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}_{key}")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[f"{name}_{key}"] = value
    return found


def read_places(folder: Path) -> dict[str, dict[str, str]]:
    """Where a run is tracked: by kind its place and id."""
    path = folder / FILE
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        check_text(text, required=False)
        found = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise FocuseError(f"{path}: damaged file: {error}; delete it to track the run anew") from None
    return {kind: about for kind, about in found.items() if isinstance(about, dict)}


def write_places(folder: Path, places: dict[str, dict[str, str]]) -> None:
    with replace_file(folder / FILE) as temporary:
        temporary.write_text(seal_text(to_toml(places)), encoding="utf-8")


class TensorBoard(Tracker):
    """Scalars, settings as text and hyperparameters under FOLDER/NAME OF THE RUN; see them by tensorboard --logdir."""

    kind, module = "tensorboard", "tensorboard"

    def __init__(self, place: str | Path | None = None, *, evaluate: bool = False) -> None:
        if place is None:
            raise FocuseError("track 'tensorboard': give its folder, like tensorboard:logs")
        super().__init__(place, evaluate=evaluate)

    def absolute(self, place: str) -> str:
        return str(Path(place).absolute())

    def begin(self, beginning: TrainingInfo, before: str | None) -> str:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        name = "run" if beginning.folder is None else beginning.folder.absolute().name
        folder = Path(before) if before is not None else free(Path(self.place or "."), name)
        # Epochs that a killed training has written after its last checkpoint are not shown twice.
        again = beginning.epochs_done + 1 if before is not None else None
        make: Any = SummaryWriter  # torch says no types of it
        self.writer = make(str(folder), purge_step=again)
        self.done = beginning.epochs_done
        if before is None:
            rows = {f"{part}_rows": count for part, count in beginning.rows.items()}
            settings = {key: value for key, value in (beginning.settings | rows).items() if value is not None}
            lines = [f"| {key} | {value} |" for key, value in settings.items()]
            self.writer.add_text("settings", "\n".join(["| setting | value |", "| --- | --- |", *lines]))
            simple = {k: v if isinstance(v, bool | int | float | str) else str(v) for k, v in settings.items()}
            for summary in hparams(simple, {"loss": None}):  # type: ignore[no-untyped-call]
                self.writer.file_writer.add_summary(summary)
        self.writer.flush()
        return str(folder)

    def log(self, figures: dict[str, float], epoch: int) -> None:
        self.done = epoch
        for name, value in figures.items():
            self.writer.add_scalar(name, value, epoch)

    def end(self, figures: dict[str, float], texts: dict[str, str]) -> None:
        for name, value in figures.items():
            self.writer.add_scalar(f"end/{name}", value, self.done)
        for name, text in texts.items():
            self.writer.add_text(name, text, self.done)

    def close(self, how: str) -> None:
        self.writer.close()


def free(folder: Path, name: str) -> Path:
    """A folder in `folder` that no other training writes to."""
    places = (folder / (name if count == 1 else f"{name}-{count}") for count in range(1, 1_000_000))
    return next(place for place in places if not place.exists())


EXPERIMENT = "focuse"  # unless MLFLOW_EXPERIMENT_NAME names another
MOST = 100  # parameters that one call takes
ENDS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


class MLflow(Tracker):
    """Parameters, metrics by epoch, tags. `place` is a tracking URI or a file like logs.db [MLFLOW_TRACKING_URI]."""

    kind, module = "mlflow", "mlflow"

    def absolute(self, place: str) -> str:
        """A file that ends in .db is a database of SQLite. What it is goes into the run's folder: no password may."""
        if urlsplit(place).password:
            raise FocuseError(
                "track mlflow: an address with a password would be kept in the run's folder; give the password in "
                "MLFLOW_TRACKING_PASSWORD, the name in MLFLOW_TRACKING_USERNAME"
            )
        file = place.removeprefix("sqlite:///")
        return f"sqlite:///{Path(file).absolute().as_posix()}" if file.endswith(".db") else place

    def begin(self, beginning: TrainingInfo, before: str | None) -> str:
        # A server that is gone costs seconds, not the minutes of the library's many attempts; yours win.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self.client: Any = MlflowClient(tracking_uri=self.place)
        self.logged = 0
        if before is not None:
            self.run = before
            self.client.update_run(before, status="RUNNING")
            # Resuming repeats the epochs after the last checkpoint to the same bits: what is there stays.
            self.logged = max((each.step for each in self.client.get_metric_history(before, "loss")), default=0)
            self.client.set_tag(before, "focuse.epochs", str(beginning.settings["epochs"]))
            return before
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        found = self.client.get_experiment_by_name(name)
        experiment = self.client.create_experiment(name) if found is None else found.experiment_id
        title = None if beginning.folder is None else beginning.folder.absolute().name
        self.run = self.client.create_run(experiment, run_name=title).info.run_id
        rows = {f"{part}_rows": count for part, count in beginning.rows.items()}
        given = iter((beginning.settings | rows).items())
        while batch := list(islice(given, MOST)):
            self.client.log_batch(self.run, params=[Param(key, str(value)) for key, value in batch])
        return str(self.run)

    def log(self, figures: dict[str, float], epoch: int) -> None:
        if epoch > self.logged:
            self._metrics(figures, epoch)
            self.logged = epoch

    def _metrics(self, figures: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self.client.log_batch(self.run, metrics=[Metric(key, value, now, step) for key, value in figures.items()])

    def end(self, figures: dict[str, float], texts: dict[str, str]) -> None:
        self._metrics(figures, self.logged)
        for name, text in texts.items():
            self.client.set_tag(self.run, f"focuse.{name}", text)

    def close(self, how: str) -> None:
        self.client.set_terminated(self.run, status=ENDS[how])


PROJECT = "focuse"


class WeightsAndBiases(Tracker):
    """Settings as the run's config, figures by epoch, a summary at the end. `place` is PROJECT or ENTITY/PROJECT."""

    kind, module = "wandb", "wandb"

    def begin(self, beginning: TrainingInfo, before: str | None) -> str:
        import wandb

        entity, _, project = (self.place or PROJECT).rpartition("/")
        rows = {f"{part}_rows": count for part, count in beginning.rows.items()}
        folder = beginning.folder
        self.run: Any = wandb.init(
            entity=entity or None,
            project=project,
            id=before,
            resume=None if before is None else "allow",
            name=None if folder is None else folder.absolute().name,
            # Its files lie with the run, not in the folder that someone happens to work in.
            dir=None if folder is None or "WANDB_DIR" in os.environ else str(folder),
            config=beginning.settings | rows,
            settings=wandb.Settings(console="off"),
        )
        if before is not None:
            self.run.config.update(beginning.settings, allow_val_change=True)
        # Against epochs, not calls; of an online run that goes on its summary says which are there already.
        self.run.define_metric("*", step_metric="epoch")
        self.logged = int(self.run.summary.get("epoch") or 0) if before is not None else 0
        return str(self.run.id)

    def log(self, figures: dict[str, float], epoch: int) -> None:
        if epoch > self.logged:
            self.run.log(figures | {"epoch": epoch})

    def end(self, figures: dict[str, float], texts: dict[str, str]) -> None:
        self.run.summary.update({**figures, **texts})

    def close(self, how: str) -> None:
        self.run.finish(exit_code={"finished": 0, "stopped": 130, "failed": 1}[how])


TRACKERS: dict[str, type[Tracker]] = {kind.kind: kind for kind in (TensorBoard, MLflow, WeightsAndBiases)}
SECRETS = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD")  # MLflow sends them to whatever server it is given
NONE = "none"  # a resumed training with no tracker at all


def make_trackers(specs: Sequence[str] | str) -> list[Callback]:
    """Trackers from 'tensorboard:FOLDER', 'mlflow[:URI]' and 'wandb[:PROJECT]', each kind once.

    >>> make_trackers("none")
    []
    """
    made: dict[str, Callback] = {}
    for spec in [specs] if isinstance(specs, str) else specs:
        kind, _, place = str(spec).partition(":")
        if kind == NONE:
            continue
        if choose("tracker", kind, [*TRACKERS, NONE]) in made:
            raise FocuseError(f"track {spec!r}: {kind} is there already; give each tracker once")
        made[kind] = TRACKERS[kind](place or None)
    return list(made.values())


def stored_trackers(folder: Path, given: Sequence[Callback], note: Callable[[str], None]) -> list[Callback]:
    """The trackers of a run that goes on, but for kinds that are `given`; one that cannot be had is only noted."""
    found: list[Callback] = []
    taken = {each.kind for each in given if isinstance(each, Tracker)}
    for kind, about in read_places(folder).items():
        if kind not in TRACKERS or kind in taken:
            continue
        place = about.get("place") or None
        secret = _secret_for(kind, place)
        if secret:
            note(
                f"{kind}: {place} stands only in the run's {FILE} and would be sent your {secret}; training goes on "
                f"without it (to go on there: --track {kind}:{place})"
            )
            continue
        try:
            tracker = TRACKERS[kind](place)
        except FocuseError as error:
            note(f"{kind}: {error}; training goes on without it")
            continue
        tracker.asked = False
        found.append(tracker)
    return found


def _secret_for(kind: str, place: str | None) -> str:
    """The secret in the environment that a server would be sent which the user has not named; '' if there is none."""
    named = place is None or place == os.environ.get("MLFLOW_TRACKING_URI")
    if kind != MLflow.kind or named or urlsplit(str(place)).scheme.lower() not in ("http", "https"):
        return ""
    return next((name for name in SECRETS if os.environ.get(name)), "")
