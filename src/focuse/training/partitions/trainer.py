"""Training by partitions: the loop of `Trainer` over tables and edges that are on disk.

An epoch goes through the stages of a plan. In a stage a part of the edges between the partitions in memory is shuffled
together and trained by an engine to which those partitions are the whole table; negatives are drawn among them.
Everything is a pure function of (seed, epoch, stage, batch), so a resumed training ends in the same bits.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.engines import Batch, make_engine
from focuse.errors import counted
from focuse.graph.splits import Splits
from focuse.graph.weights import Normaliser
from focuse.training.checkpoints import Checkpoint, Progress, Store
from focuse.training.interrupts import interruptible
from focuse.training.loop import SHUFFLE, Trainer, label_of, make_objective, missing_rivals, model_in
from focuse.training.negatives import Sampler, key_of
from focuse.training.optimisers import make_optimiser
from focuse.training.partitions.buffer import Buffer
from focuse.training.partitions.edges import Dealt, EdgeFile, StageEdges, sort_edges
from focuse.training.partitions.files import EDGES
from focuse.training.partitions.judging import SampleJudge, sample_judge
from focuse.training.partitions.memory import told_size
from focuse.training.partitions.negatives import ActiveSampler
from focuse.training.partitions.plan import Stage, stages_of
from focuse.training.partitions.starting import write_first
from focuse.training.partitions.store import PartitionedStore, shared_of
from focuse.training.progress import Reporter
from focuse.training.regularisers import make_regulariser
from focuse.training.settings import Settings
from focuse.training.shuffling import order_of
from focuse.training.specs import parse_partitions
from focuse.training.stopping import Best

REPEATED = 0.05  # edges of a batch an entity of a partition that do no harm
SMALLEST = 32  # batch that is worth a step


class PartitionedTrainer(Trainer):
    """Trains with entity tables in partitions on disk, some of them in memory at a time."""

    whole = False
    store: PartitionedStore | None

    def __init__(
        self,
        settings: Settings,
        splits: Splits,
        normaliser: Normaliser,
        reporter: Reporter,
        store: Store | None = None,
        checkpoint: Checkpoint | None = None,
        deadline: float = math.inf,
    ) -> None:
        self.settings, self.reporter, self.deadline = settings, reporter, deadline
        self.splits, self.normaliser, self.resumed = splits, normaliser, checkpoint
        self.store = store if isinstance(store, PartitionedStore) else None
        self.partitions, self.slots, self.rounds = parse_partitions(settings.partitions or "1:1")
        self.entities = len(splits.train.entities)
        self.progress = checkpoint.progress if checkpoint else Progress()
        self.history: list[dict[str, Any]] = list(checkpoint.history) if checkpoint else []
        model = model_in(settings, splits)
        dense = model.dense_start(settings.dim, torch.Generator())
        slots = self.slots + (self.partitions > self.slots)
        self.rows_a_slot = -(-self.entities // self.partitions)
        tables = {
            "entity": torch.zeros(slots * self.rows_a_slot, model.entity_width(settings.dim)),
            "relation": torch.zeros(len(splits.train.relations), model.relation_width(settings.dim)),
            **dense,
        }
        self.engine = make_engine(
            "partitioned", model, tables, make_optimiser(settings.optimizer, tables, settings.lr or 0)
        )
        self.focus, self.label = settings.make_focus(), label_of(settings, splits)
        self.sampler = Sampler(settings.sampling, settings.negatives or 1, self.entities)
        nobody = torch.empty(0, dtype=torch.int64)
        facts = Batch(nobody, nobody, nobody, torch.empty(0))
        missing = None if self.label is None else missing_rivals(settings, self.label, self.sampler, facts)
        self.objective = make_objective(settings, self.focus, missing)
        self.penalty = make_regulariser(settings.regularizer, settings.regularize or "touched")
        self.pool = self.inferred = None
        self.compute = self.engine.prepare(self._compute)
        self.loss: float | Tensor = self.progress.loss
        self.judge: SampleJudge | None = sample_judge(settings, splits, self.fetch)
        at = self.progress
        self.best = KeptBest(at.best_value, at.best_epoch, at.checks_since_best, trainer=self)

    # ---- making ready ---------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Edges and first rows on disk, or what a checkpoint says in memory."""
        if self.store is None:
            raise ValueError("a training by partitions needs a store")
        files, tables = self.store.files, self.engine.tables
        path = files.folder / EDGES
        if self.resumed is None:
            files.begin(self.partitions)
            dealt = Dealt.of(self.entities, self.partitions, self.settings.seed)
            self.edges = sort_edges(path, self.splits.train, self.normaliser, dealt, lambda: None)
            relations = len(self.splits.train.relations)
            fresh = write_first(files, dealt, self.settings, self.engine.model, relations)
        else:
            self.edges, fresh = EdgeFile.open(path), self.resumed.tables
        for name, values in fresh.items():
            tables[name].copy_(values)
        self._load_state(self.resumed)
        held = {"entity": tables["entity"]} | {
            name: value for name, value in self._state().items() if name.startswith("entity.")
        }
        self.buffer = Buffer(files, held, self.edges.dealt.sizes)
        if self.resumed is None:
            self.store.save(self.checkpoint())

    def _state(self) -> dict[str, Tensor]:
        """The optimiser's own tensors, not copies."""
        return self.engine.optimiser.state() if self.engine.optimiser else {}

    def _load_state(self, checkpoint: Checkpoint | None) -> None:
        """What is shared of the optimiser's state, as a checkpoint holds it."""
        if checkpoint is not None and self.engine.optimiser is not None:
            self.engine.optimiser.load(self._state() | checkpoint.optimiser)

    # ---- the way through an epoch ---------------------------------------------------------------------------------

    def run(self) -> Checkpoint:
        """Train to the end; the last checkpoint, its tables mapped from the run's folder."""
        if self.engine.instead:
            self.reporter.note(f"{self.engine.title}, but {self.engine.instead}")
        self._prepare()
        if self.store is None:
            raise ValueError("a training by partitions needs a store")
        if self.judge is not None and len(self.judge.entities) < self.entities:
            self.reporter.note(f"validation ranks against {len(self.judge.entities):,} sampled entities, not all")
        self.reporter.note(f"{counted(self.partitions, 'partitions')}, {self.slots} of them in memory at a time")
        self.reporter.start(self.settings, self.progress.epoch)
        try:
            with interruptible(True) as interrupted:
                while not self.progress.finished:
                    self._epoch(interrupted)
                checkpoint = self.checkpoint()
                self.store.finish(checkpoint)  # a wish to stop that comes now is one to be done with it
        finally:
            self.reporter.stop()
            self.buffer.close()
        files = self.store.files
        self.reporter.note(
            f"partitions were loaded {counted(files.loads, 'times')}: {told_size(files.read_bytes)} read, "
            f"{told_size(files.written_bytes)} written"
        )
        final = self.store.tables()
        return replace(checkpoint, tables=final, best=final if self.store.files.best[0] else None)

    def _epoch(self, interrupted: threading.Event) -> None:
        """One epoch, or what is left of it."""
        at, started = self.progress, time.perf_counter()
        size = self.settings.batch_size or 1024
        beta = self.focus.beta(at.epoch) if self.focus else 1.0
        batches = [self._batches(stage, size) for stage in self._plan(at.epoch)]
        first, last = 0, sum(batches)
        for number, (stage, count, following) in enumerate(self._stages(batches)):
            if at.batch < first + count:
                order = self._enter(stage, following, number)
                parts = torch.split(order, size) if self.partitions == 1 else torch.tensor_split(order, count)
                self._walk(parts, beta, interrupted, first, last)
            first += count
        self._end_epoch(beta, len(self.edges), started)

    def _batches(self, stage: Stage, size: int) -> int:
        """Batches of a stage, about equal: a short last one in each would count for as much as a full one.

        Between few partitions an entity comes more often in a batch than it would among all, and many gradients in one
        step move it less than as many steps. So batches are smaller by as much, unless few entities repeat anyway.
        """
        edges = self.edges.count(stage)
        if self.partitions == 1 or not edges:
            return -(-edges // size)
        alike = size / (self.partitions * self.edges.crowding(stage))
        return max(1, round(edges / min(size, max(alike, REPEATED * self.rows_a_slot, SMALLEST))))

    def _stages(self, batches: Sequence[int]) -> Iterator[tuple[Stage, int, Stage | None]]:
        """The epoch's stages that have edges, how many batches each, and who follows."""
        before: tuple[Stage, int] | None = None
        for stage, count in zip(self._plan(self.progress.epoch), batches, strict=True):
            if count:
                if before is not None:
                    yield *before, stage
                before = stage, count
        if before is not None:
            yield *before, None

    def _plan(self, epoch: int) -> Iterator[Stage]:
        return stages_of(self.partitions, self.slots, self.settings.seed, epoch, self.rounds)

    def _enter(self, stage: Stage, following: Stage | None, number: int) -> Tensor:
        """Partitions and edges of a stage in memory; the order of its edges."""
        self.buffer.enter(stage, following)
        self.engine.changed()
        self.data = StageEdges(self.edges.read(stage, self.rows_a_slot), self.label)  # type: ignore[assignment]
        self.sampler = ActiveSampler.of(self.settings, stage, self.edges.dealt.sizes, self.rows_a_slot)
        key = key_of(self.settings.seed, self.progress.epoch, SHUFFLE + number)
        return order_of(len(self.data), len(self.data), key).batches[0]

    def _steps(self, rows: Sequence[Tensor], beta: float) -> float | Tensor:
        self.buffer.moved()
        return super()._steps(rows, beta)

    # ---- rows and checkpoints -------------------------------------------------------------------------------------

    def fetch(self, entities: npt.NDArray[np.int64]) -> Tensor:
        """Rows of some entities, [n] -> [n, width], from memory or disk as they are now."""
        self.buffer.wait()
        dealt, files = self.edges.dealt, self.store.files if self.store else None
        part, row = dealt.part[entities], dealt.row[entities]
        table = self.engine.tables["entity"].numpy()
        found = np.empty((len(entities), table.shape[1]), np.float32)
        held = {number: slot for slot, number in enumerate(self.buffer.held)}
        for number in np.unique(part).tolist():
            places = np.flatnonzero(part == number)
            if number in held:
                found[places] = table[held[number] * self.rows_a_slot + row[places]]
            elif files is not None:
                found[places] = files.mapped(number, "entity")[row[places]]
        return torch.from_numpy(found)

    def shared(self) -> Checkpoint:
        """What is not in partitions, with where training stands."""
        tables = {name: table for name, table in self.engine.tables.items() if name != "entity"}
        optimiser = {name: value for name, value in self._state().items() if not name.startswith("entity.")}
        return Checkpoint(self.progress, tables, optimiser, None, self.history)

    def checkpoint(self) -> Checkpoint:
        """All partitions on disk, and what they share."""
        self._settle()
        self.buffer.flush()
        return self.shared()


@dataclass
class KeptBest(Best):
    """The best tables as versions of partitions, which stay on disk."""

    trainer: PartitionedTrainer | None = None

    def look(self, value: float, epoch: int, tables: dict[str, Tensor]) -> None:
        self.checks_since += 1
        if value > self.value and self.trainer is not None and self.trainer.store is not None:
            self.value, self.epoch, self.checks_since = value, epoch, 0
            self.trainer.buffer.flush()
            self.trainer.store.files.keep_best(shared_of(self.trainer.shared()))


def trainer_for(settings: Settings) -> type[Trainer]:
    """The trainer of resolved settings."""
    return PartitionedTrainer if settings.engine == "partitioned" else Trainer
