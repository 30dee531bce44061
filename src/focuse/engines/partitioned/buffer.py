"""The buffer that holds some partitions of the entity table in memory.

The buffer is one table that is divided into slots. A thread loads and writes back partitions while others are trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from torch import Tensor

from focuse.engines.partitioned.stages import Stage
from focuse.storage.tensors import Array

if TYPE_CHECKING:
    from focuse.storage.tables import PartitionFiles


class PartitionBuffer:
    """Tables [slots · rows, width] of embeddings and optimizer state, divided into slots of `rows` rows each.

    While a stage is trained, a thread writes the partition that was evicted and reads the next one into its slot.
    """

    def __init__(self, files: PartitionFiles, tables: Mapping[str, Tensor], sizes: npt.NDArray[np.int64]) -> None:
        self.files, self.sizes = files, sizes
        self.tables = {name: table.numpy() for name, table in tables.items()}
        self.rows = int(sizes.max())
        self.held = [-1] * (len(next(iter(self.tables.values()))) // self.rows)
        self.changed: set[int] = set()  # partitions that differ from their newest file
        self.active: set[int] = set()
        self.worker = ThreadPoolExecutor(1)
        self.work: Future[None] | None = None

    def load_stage(self, stage: Stage, following: Stage | None) -> None:
        """Load a stage's partitions into their slots, and start to load those of the following stage."""
        self.wait()
        self._load(stage, [slot for slot, part in enumerate(stage.slots) if part >= 0])
        self.active = set(stage.active)
        if following is not None:
            # Active partitions stay in their slots. The following stage may have one in another slot if stages without
            # edges were skipped in between.
            active = self.active
            free = [slot for slot, part in enumerate(stage.slots) if part < 0 and following.slots[slot] not in active]
            self.work = self.worker.submit(self._load, following, free)

    def mark_changed(self) -> None:
        """Mark the active partitions as changed, because a step was taken; they then differ from their files."""
        self.changed |= self.active

    def wait(self) -> None:
        """Wait until the thread has finished its work, and raise its errors."""
        work, self.work = self.work, None
        if work is not None:
            work.result()

    def _load(self, stage: Stage, slots: list[int]) -> None:
        """Load the partitions of a stage into these slots, after evicting the partitions that are in the way."""
        wrong = [slot for slot in slots if self.held[slot] != stage.slots[slot]]
        wanted = {stage.slots[slot] for slot in wrong}
        for slot, part in enumerate(self.held):
            if slot in wrong or part in wanted:
                self._write(slot)
                self.held[slot] = -1
        for slot in wrong:
            if (part := stage.slots[slot]) >= 0:
                self.files.read(part, self.rows_of(slot, part))
                self.held[slot] = part

    def _write(self, slot: int) -> None:
        """Write the partition in a slot to disk if it has changed."""
        part = self.held[slot]
        if part in self.changed:
            self.files.write(part, self.rows_of(slot, part))
            self.changed.discard(part)

    def flush(self) -> None:
        """Write all changed partitions to disk; they stay in memory."""
        self.wait()
        for slot in range(len(self.held)):
            self._write(slot)

    def rows_of(self, slot: int, part: int) -> dict[str, Array]:
        """Return the rows of a partition in its slot, as one view per table."""
        rows = slice(slot * self.rows, slot * self.rows + int(self.sizes[part]))
        return {name: table[rows] for name, table in self.tables.items()}

    def close(self) -> None:
        """Stop the thread."""
        self.worker.shutdown(cancel_futures=True)
