"""Weights & Biases: a run of a project, online or offline as the library is set up (WANDB_MODE)."""

from __future__ import annotations

import os
from typing import Any

from focuse.training.callbacks import Beginning
from focuse.training.tracking.base import Tracker

PROJECT = "focuse"


class WeightsAndBiases(Tracker):
    """Settings as the run's config, figures by epoch, a summary at the end. `place` is PROJECT or ENTITY/PROJECT."""

    kind, module = "wandb", "wandb"

    def begin(self, beginning: Beginning, before: str | None) -> str:
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
