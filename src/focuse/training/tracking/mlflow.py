"""MLflow: a run of the experiment 'focuse' on a server or in a local database."""

from __future__ import annotations

import os
import time
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from focuse.errors import FocuseError
from focuse.training.callbacks import Beginning
from focuse.training.tracking.base import Tracker

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

    def begin(self, beginning: Beginning, before: str | None) -> str:
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
