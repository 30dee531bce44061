"""A run's folder whose entity table lies in partitions while it is trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from focuse.graph.arrays import Array, map_arrays
from focuse.graph.writing import flush, replacing
from focuse.training.checkpoints import HISTORY, MODEL, Checkpoint, Progress, Store, Tables
from focuse.training.files import writing
from focuse.training.partitions.edges import EdgeFile
from focuse.training.partitions.files import EDGES, FOLDER, PartitionFiles, reading
from focuse.training.partitions.starting import write_whole
from focuse.training.settings import Settings
from focuse.training.together import store_kind

PARTS = ("table", "optimiser")


class PartitionedStore(Store):
    """Its checkpoint is a manifest: versions of partitions that belong together, and what all of them share.

    A `Checkpoint` made or taken here holds what is shared; before one is saved, all partitions must be on disk.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.files = PartitionFiles(folder / FOLDER)

    def _appear(self, folder: Path) -> None:
        super()._appear(folder)
        self.files = PartitionFiles(self.folder / FOLDER)

    def mend(self, checkpoint: Checkpoint) -> None:
        if self.lock is not None and not (self.folder / MODEL).exists():
            self.finish(checkpoint)

    def save(self, checkpoint: Checkpoint) -> None:
        """The partitions as they are on disk, and what they share, are what a resumed training begins with."""
        if (self.folder / HISTORY).exists():  # its rows are on the disk before a manifest speaks of them
            with writing(self.folder / HISTORY):
                flush(self.folder / HISTORY)
        self.files.save(checkpoint.progress, shared_of(checkpoint))
        self.moved()

    def moved(self) -> None:
        """The clock of checkpoints starts again."""
        self.last_saved = Store(self.folder).last_saved

    def checkpoint(self, device: str = "cpu", note: Callable[[str], None] | None = None) -> Checkpoint | None:
        """Where training stands, with what is shared; None if it has not begun."""
        manifest = self.files.open()
        if manifest is None:
            return None
        parts: dict[str, Tables] = {name: {} for name in PARTS}
        with reading(self.files.folder / "manifest.json"):
            progress = Progress(**manifest.progress)
            for key, values in self.files.read_shared().items():
                part, _, name = key.partition("/")
                parts[part][name] = torch.from_numpy(values)
        history = [row for row in self.history(progress.epoch) if row["epoch"] <= progress.epoch]
        return Checkpoint(progress, parts["table"], parts["optimiser"], None, history)

    def finish(self, checkpoint: Checkpoint) -> None:
        """One file of the tables to predict with, written piece by piece; then the last checkpoint."""
        (self.folder / "calibration.safetensors").unlink(missing_ok=True)  # it was of other tables
        versions, shared = self.files.best
        others = {name: values.numpy() for name, values in checkpoint.tables.items()}
        if versions:
            stored = self.files.read_shared(shared)
            others = {name[len("table/") :]: values for name, values in stored.items() if name.startswith("table/")}
        dealt = EdgeFile.open(self.files.folder / EDGES).dealt
        path = self.folder / "model.safetensors"
        with writing(path), replacing(path) as temporary:
            write_whole(temporary, self.files, versions or self.files.current, dealt, others)
        self.save(checkpoint)

    def tables(self) -> Tables:
        """The final tables, mapped."""
        with reading(self.folder / "model.safetensors") as path:
            return {name: torch.from_numpy(values) for name, values in map_arrays(path).items()}


def shared_of(checkpoint: Checkpoint) -> dict[str, Array]:
    """What all partitions share, by 'part/name'."""
    found = {"table": checkpoint.tables, "optimiser": checkpoint.optimiser}
    return {
        f"{part}/{name}": np.ascontiguousarray(value.detach().numpy())
        for part, values in found.items()
        for name, value in values.items()
    }


def store_for(settings: Settings, out: object = True) -> type[Store]:
    """How the folder of a training by these settings is written; several processes meet here."""
    return PartitionedStore if settings.engine == "partitioned" else store_kind(settings, out)
