"""Partitions in memory: slots of rows in one table, filled and written back by a thread while others are trained."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
from torch import Tensor

from focuse.graph.arrays import Array
from focuse.training.partitions.files import PartitionFiles
from focuse.training.partitions.plan import Stage


class Buffer:
    """Slots of `rows` rows each in `tables` (embeddings and optimiser's state, [slots · rows, width]).

    While a stage is trained, who left the one before is written and the next newcomer read, into the same free slot.
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

    def enter(self, stage: Stage, following: Stage | None) -> None:
        """Have a stage's partitions in their slots, and begin to make those of the one that follows ready."""
        self.wait()
        self._arrange(stage, [slot for slot, part in enumerate(stage.slots) if part >= 0])
        self.active = set(stage.active)
        if following is not None:
            # Who is trained now stays where it is: stages without edges may lie between, after which it sits elsewhere.
            taken = self.active
            free = [slot for slot, part in enumerate(stage.slots) if part < 0 and following.slots[slot] not in taken]
            self.work = self.worker.submit(self._arrange, following, free)

    def moved(self) -> None:
        """A step is taken: what is active differs from its files from now on, also after a flush."""
        self.changed |= self.active

    def wait(self) -> None:
        """Until the thread has done its work; what went wrong there is told here."""
        work, self.work = self.work, None
        if work is not None:
            work.result()

    def _arrange(self, stage: Stage, slots: list[int]) -> None:
        """The stage's partitions in these slots: who is in the way, or in another slot, is written first."""
        wrong = [slot for slot in slots if self.held[slot] != stage.slots[slot]]
        wanted = {stage.slots[slot] for slot in wrong}
        for slot, part in enumerate(self.held):
            if slot in wrong or part in wanted:
                self._leave(slot)
        for slot in wrong:
            if (part := stage.slots[slot]) >= 0:
                self.files.read(part, self.of(slot, part))
                self.held[slot] = part

    def _leave(self, slot: int) -> None:
        part = self.held[slot]
        if part >= 0 and part in self.changed:
            self.files.write(part, self.of(slot, part))
            self.changed.discard(part)
        self.held[slot] = -1

    def flush(self) -> None:
        """All that is in memory is on disk too; it stays in memory."""
        self.wait()
        for slot, part in enumerate(self.held):
            if part >= 0 and part in self.changed:
                self.files.write(part, self.of(slot, part))
                self.changed.discard(part)

    def of(self, slot: int, part: int) -> dict[str, Array]:
        """The rows of a partition in its slot, a view a table."""
        rows = slice(slot * self.rows, slot * self.rows + int(self.sizes[part]))
        return {name: table[rows] for name, table in self.tables.items()}

    def close(self) -> None:
        self.worker.shutdown(cancel_futures=True)
