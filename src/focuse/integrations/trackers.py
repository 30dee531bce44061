"""Trackers: callbacks that log a training to TensorBoard, MLflow or Weights & Biases.

The folder of a run remembers in tracking.toml where it is tracked, so that a training that is resumed with the same
tracker continues the same log. A tracker that fails is noted once, and the training continues without it.
"""

from __future__ import annotations

import os
import time
import tomllib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
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
PROJECT = "focuse"  # of Weights & Biases, and the experiment of MLflow, unless another is named


class Tracker(Callback):
    """A callback that logs the settings, the metrics of each epoch and the end of a training.

    `place` is where, in the tracker's own words. A tracker that cannot begin is an error before the first step, and one
    that fails later is noted once.
    """

    kind: ClassVar[str]
    module: ClassVar[str]  # of the library that it needs

    def __init__(self, place: str | Path | None = None) -> None:
        self.place = None if place is None else self.absolute(str(place))
        self.broken = False
        self.note: Callable[[str], None] = lambda text: None
        try:
            import_module(self.module)
        except ImportError as error:
            raise FocuseError(f"cannot track with {self.kind} ({error}); {install_command(self.kind)}") from None

    def absolute(self, place: str) -> str:
        """Return `place` so that it means the same in another folder."""
        return place

    @abstractmethod
    def begin(self, info: TrainingInfo, settings: dict[str, Any], name: str | None, before: str | None) -> str:
        """Open the log of the run `name`, or continue the log `before` if that is given; return what identifies it."""

    @abstractmethod
    def log(self, metrics: dict[str, float], epoch: int) -> None:
        """Log the metrics of an epoch."""

    @abstractmethod
    def close(self, how: str, metrics: dict[str, float]) -> None:
        """Close the log; `how` is finished, with metrics of the whole training, or stopped or failed without."""

    def started(self, info: TrainingInfo) -> None:
        self.note, self.broken, folder = info.note, False, info.folder
        places = {} if folder is None else read_places(folder)
        place = self.place or ""
        stored = places.get(self.kind, {}) if info.epochs_done else {}
        settings = info.settings | {f"{part}_rows": number for part, number in info.rows.items()}
        settings |= {} if folder is None else {"folder": str(folder.absolute())}
        before = stored.get("id") if stored.get("place") == place else None
        found = self.begin(info, settings, None if folder is None else folder.absolute().name, before)
        if folder is not None:
            write_places(folder, places | {self.kind: {"place": place, "id": found}})

    def epoch(self, row: dict[str, Any]) -> None:
        metrics = {name: float(value) for name, value in row.items() if name != "epoch" and value is not None}
        self._try(lambda: self.log(metrics, int(row["epoch"])))

    def finished(self, run: Any) -> None:
        best = best_epoch_row(run.history) or {}
        metrics = {"epochs": float(len(run.history)), "total_seconds": sum(row["seconds"] for row in run.history)}
        metrics |= {f"best_{name}": float(best[name]) for name in ("epoch", "valid_mrr", "valid_mse") if name in best}
        self._try(lambda: self.close("finished", metrics))

    def failed(self, error: BaseException) -> None:
        how = "stopped" if isinstance(error, Stopped | KeyboardInterrupt) else "failed"
        self._try(lambda: self.close(how, {}))

    def _try(self, do: Callable[[], None]) -> None:
        try:
            if not self.broken:
                do()
        except Exception as error:
            self.broken = True
            self.note(f"{self.kind}: {' '.join(describe_error(error).split())}; training goes on without it")


def read_places(folder: Path) -> dict[str, dict[str, str]]:
    """Return where a run is tracked: by kind of tracker its place and id."""
    path = folder / FILE
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        check_text(text, required=False)
        found = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise FocuseError(f"{path}: damaged file: {error}; delete it to track the run again") from None
    return {kind: about for kind, about in found.items() if isinstance(about, dict)}


def write_places(folder: Path, places: dict[str, dict[str, str]]) -> None:
    with replace_file(folder / FILE) as temporary:
        temporary.write_text(seal_text(to_toml(places)), encoding="utf-8")


class TensorBoard(Tracker):
    """A tracker that writes scalars and hyperparameters to PLACE/NAME OF THE RUN for `tensorboard --logdir PLACE`."""

    kind, module = "tensorboard", "tensorboard"

    def absolute(self, place: str) -> str:
        return str(Path(place).absolute())

    def begin(self, info: TrainingInfo, settings: dict[str, Any], name: str | None, before: str | None) -> str:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        numbered = (f"{name or 'run'}{'' if number == 1 else f'-{number}'}" for number in range(1, 1_000_000))
        places = (Path(self.place or ".") / folder for folder in numbered)
        folder = before or str(next(place for place in places if not place.exists()))
        # Epochs that a killed training has logged after its last checkpoint are not shown twice.
        make: Any = SummaryWriter  # torch has no type hints for it
        self.writer = make(folder, purge_step=None if before is None else info.epochs_done + 1)
        self.done = info.epochs_done
        if before is None:
            known = {key: value for key, value in settings.items() if value is not None}
            simple = {k: v if isinstance(v, bool | int | float | str) else str(v) for k, v in known.items()}
            for summary in hparams(simple, {"loss": None}):  # type: ignore[no-untyped-call]
                self.writer.file_writer.add_summary(summary)
        self.writer.flush()
        return folder

    def log(self, metrics: dict[str, float], epoch: int) -> None:
        self.done = epoch
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, epoch)

    def close(self, how: str, metrics: dict[str, float]) -> None:
        self.log({f"end/{name}": value for name, value in metrics.items()}, self.done)
        self.writer.close()


class MLflow(Tracker):
    """A tracker that logs parameters and metrics. `place` is a URI or a file like logs.db [MLFLOW_TRACKING_URI]."""

    kind, module = "mlflow", "mlflow"
    ends: ClassVar = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}

    def absolute(self, place: str) -> str:
        """Return the URI; a file that ends in .db is an SQLite database. It is stored, and may have no password."""
        if urlsplit(place).password:
            raise FocuseError(
                "track mlflow: an address with a password would be kept in the run's folder; give the password in "
                "MLFLOW_TRACKING_PASSWORD, the name in MLFLOW_TRACKING_USERNAME"
            )
        file = place.removeprefix("sqlite:///")
        return f"sqlite:///{Path(file).absolute().as_posix()}" if file.endswith(".db") else place

    def begin(self, info: TrainingInfo, settings: dict[str, Any], name: str | None, before: str | None) -> str:
        # A server that is gone costs seconds, not the minutes of the library's many attempts; your settings win.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self.client: Any = MlflowClient(tracking_uri=self.place)
        if before is not None:
            self.run = before
            self.client.update_run(before, status="RUNNING")
            # Resuming repeats the epochs after the last checkpoint exactly, so that logged ones stay.
            self.logged = max((each.step for each in self.client.get_metric_history(before, "loss")), default=0)
            self.client.set_tag(before, "focuse.epochs", str(info.settings["epochs"]))
            return before
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        found = self.client.get_experiment_by_name(title)
        experiment = self.client.create_experiment(title) if found is None else found.experiment_id
        self.run, self.logged = str(self.client.create_run(experiment, run_name=name).info.run_id), 0
        self.client.log_batch(self.run, params=[Param(key, str(value)) for key, value in settings.items()])
        return self.run

    def log(self, metrics: dict[str, float], epoch: int) -> None:
        from mlflow.entities import Metric

        if epoch > self.logged:
            now = int(time.time() * 1000)
            self.client.log_batch(self.run, metrics=[Metric(key, value, now, epoch) for key, value in metrics.items()])
            self.logged = epoch

    def close(self, how: str, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self.client.log_metric(self.run, name, value, step=self.logged)
        self.client.set_terminated(self.run, status=self.ends[how])


class WeightsAndBiases(Tracker):
    """A tracker that logs settings, metrics by epoch and a final summary. `place` is PROJECT or ENTITY/PROJECT."""

    kind, module = "wandb", "wandb"

    def begin(self, info: TrainingInfo, settings: dict[str, Any], name: str | None, before: str | None) -> str:
        import wandb

        entity, _, project = (self.place or PROJECT).rpartition("/")
        self.run: Any = wandb.init(
            entity=entity or None,
            project=project,
            id=before,
            resume=None if before is None else "allow",
            name=name,
            # Its files lie with the run, not in the working folder.
            dir=None if info.folder is None or "WANDB_DIR" in os.environ else str(info.folder),
            config=settings,
            settings=wandb.Settings(console="off"),
        )
        if before is not None:
            self.run.config.update(info.settings, allow_val_change=True)
        self.run.define_metric("*", step_metric="epoch")
        # The summary of an online run that continues has the last epoch that is logged already.
        self.logged = int(self.run.summary.get("epoch") or 0) if before is not None else 0
        return str(self.run.id)

    def log(self, metrics: dict[str, float], epoch: int) -> None:
        if epoch > self.logged:
            self.run.log(metrics | {"epoch": epoch})

    def close(self, how: str, metrics: dict[str, float]) -> None:
        self.run.summary.update(metrics)
        self.run.finish(exit_code={"finished": 0, "stopped": 130, "failed": 1}[how])


TRACKERS: dict[str, type[Tracker]] = {kind.kind: kind for kind in (TensorBoard, MLflow, WeightsAndBiases)}


def make_trackers(specs: Sequence[str] | str) -> list[Callback]:
    """Return trackers from 'tensorboard:FOLDER', 'mlflow[:URI]' and 'wandb[:PROJECT]', each kind once."""
    made: dict[str, Callback] = {}
    for spec in [specs] if isinstance(specs, str) else specs:
        kind, _, place = str(spec).partition(":")
        if choose("tracker", kind, TRACKERS) in made:
            raise FocuseError(f"track {spec!r}: {kind} was given twice; give each tracker once")
        if kind == TensorBoard.kind and not place:
            raise FocuseError("track 'tensorboard': give its folder, like tensorboard:logs")
        made[kind] = TRACKERS[kind](place or None)
    return list(made.values())
