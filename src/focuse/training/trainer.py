"""The training loop: epochs, validation, early stopping, checkpoints.

Shuffles and negatives are pure functions of (seed, epoch, batch), so a resumed training needs no random state, and its
result is bitwise equal to that of an uninterrupted training.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from focuse.config import Config, checkpoint_interval
from focuse.data.splits import Splits
from focuse.data.weights import Normalizer
from focuse.engines.base import Engine, TrainBatches
from focuse.engines.factory import make_engine
from focuse.engines.optimizers import make_optimizer
from focuse.engines.process_group import current_group
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError, Stopped
from focuse.evaluation.ranking import sample_size
from focuse.objective.negatives import Batch, Negatives
from focuse.objective.randomness import EpochOrder, StreamKey, epoch_order, stream_seed
from focuse.objective.semi_supervised import SamplePool, make_pool_schedule
from focuse.random_streams import RandomStream
from focuse.storage.run_folder import RunFolder, resume_command
from focuse.storage.tables import Checkpoint, Progress
from focuse.storage.tensors import Tables
from focuse.system import check_memory_limit, interruptible
from focuse.training.callbacks import Reporter
from focuse.training.problem import IN_MEMORY, TrainingProblem
from focuse.training.validation import RankValidator, Validator


class DivergedError(FocuseError):
    """The loss or an embedding is no longer a finite number."""


class Trainer:
    """The training loop: the placement provides the batches, its engine takes the steps, `folder` stores checkpoints.

    At the `deadline` (of time.monotonic) it does as on Ctrl-C: it saves and raises `Stopped`, or without a folder it
    raises KeyboardInterrupt.
    """

    def __init__(
        self,
        placement: Placement,
        reporter: Reporter,
        folder: RunFolder | None = None,
        deadline: float = math.inf,
    ) -> None:
        self.placement, self.problem, self.config = placement, placement.problem, placement.config
        self.engine, self.reporter, self.folder, self.deadline = placement.engine, reporter, folder, deadline
        self.group, checkpoint = current_group(), placement.checkpoint
        self.progress = checkpoint.progress if checkpoint else Progress()
        self.history: list[dict[str, Any]] = list(checkpoint.history) if checkpoint else []
        self.sample_pool: SamplePool | None = None
        schedule = None if self.config.semi_supervised == "none" else make_pool_schedule(self.config.semi_supervised)
        if schedule is not None:
            self.sample_pool = SamplePool(schedule, self.config.device, checkpoint.pool if checkpoint else None)
        self.regularizer, self.train_batches = self.problem.regularizer, self._make_batch_runner()
        self.loss: float | Tensor = self.progress.loss

    def _make_batch_runner(self) -> TrainBatches:
        # A sample pool changes from step to step, so its steps cannot be captured.
        return self.engine.make_batch_runner(self._train_batch, capture=self.sample_pool is None)

    def run(self) -> Checkpoint:
        """Train to the end and return the last checkpoint; its `final` tables are those to predict with."""
        self.placement.open(self.folder, self.reporter.note)
        self._report_start()
        try:
            with interruptible(self.folder is not None) as interrupted:
                while not self.progress.finished:
                    self._epoch(interrupted)
                checkpoint = self._finish()  # a request to stop that arrives now has no effect
        finally:
            self.reporter.stop()
            self.placement.close()
        return self.placement.finish(checkpoint)

    def _report_start(self) -> None:
        engine, pool = self.engine, self.sample_pool
        if engine.fallback_reason:
            self.reporter.note(f"{engine.fallback_message}, but {engine.fallback_reason}")
        sample = sample_size(engine.scorer, None, engine.entities)
        if sample is not None and self.placement.in_memory and isinstance(self.placement.validator, RankValidator):
            self.reporter.note(f"validation ranks against {sample:,} sampled entities per side, not all")
        if pool is not None and not pool.schedule.fraction_at(self.config.epochs):
            start = pool.schedule.start + pool.schedule.wait + 1
            self.reporter.note(
                f"semi-supervised training starts in epoch {start}, but training ends after epoch "
                f"{self.config.epochs}; lower start (semi_supervised 'pool:start=…,wait=…') or raise epochs"
            )
        self.reporter.start(self.config, self.progress.epoch)

    def _epoch(self, interrupted: threading.Event) -> None:
        """Train one epoch, or the rest of it, then validate, report and save."""
        at, started = self.progress, time.perf_counter()
        batches, rows = self.placement.start_epoch(at.epoch)
        if self.problem.regularizer_at(at.epoch) != self.regularizer:  # captured steps have the former strength
            self.regularizer, self.train_batches = self.problem.regularizer_at(at.epoch), self._make_batch_runner()
        beta = self.placement.beta(at.epoch)
        for some in self.placement.batches(at.epoch, at.batch, self.engine.steps_per_call):
            self.loss = self.loss + self._train_group(some, beta)
            at.batch += len(some)
            self.reporter.step(at.epoch, at.batch / batches)
            check_memory_limit(", or lower dim, batch_size or num_negatives")
            if self.group.any_rank(interrupted.is_set() or time.monotonic() > self.deadline):
                self._save_and_stop()
            if at.batch < batches:
                self._save_if_due(epoch_ends=False)
        self._read_loss()
        row: dict[str, Any] = {"epoch": at.epoch + 1, "loss": at.loss / rows}
        row |= {"beta": beta if self.problem.focuse_layer else None}
        at.epoch, at.batch, at.loss, self.loss = at.epoch + 1, 0, 0.0, 0.0
        self._validate(row)
        row["seconds"] = round(time.perf_counter() - started, 4)
        self.history.append(row)
        if self.folder is not None:
            self.folder.append(row)
        self._report_epoch(row)
        self._save_if_due(epoch_ends=True)

    def _train_group(self, batches: Sequence[Tensor], beta: float) -> float | Tensor:
        at = self.progress
        seeds = [self.placement.seed(at.epoch, at.batch + number) for number in range(len(batches))]
        try:
            return self.train_batches(batches, beta, seeds)
        except FloatingPointError as error:
            raise self._diverged(str(error)) from None

    def _train_batch(self, rows: Tensor, beta: float | Tensor, seed: int | Tensor) -> float | Tensor:
        """Take one training step on one batch and return its loss."""
        batch = self.placement.take(rows)
        negatives = self.placement.sample(batch, seed)
        step = self.problem.step(batch, negatives, beta, seed, self.progress.epoch)
        if self.sample_pool is not None:
            if not isinstance(seed, int):
                raise ValueError("steps with a sample pool cannot be captured as CUDA graphs")
            batch, negatives = self.sample_pool(batch, negatives, self.progress.epoch + 1, seed, self.engine.scorer)
            step = replace(step, positives=batch, negatives=negatives)
        return self.engine.step(step)

    def _validate(self, row: dict[str, Any]) -> None:
        """Validate if a validation is due, and decide whether to stop early."""
        at, config = self.progress, self.config
        last = at.epoch >= config.epochs
        due = at.epoch % config.eval_every == 0 or last
        validator = self.placement.validator
        if validator is not None and due and (at.epoch >= (config.eval_start or 0) or last):
            found = row[validator.metric] = validator(self.placement.scorer())
            at.checks_since_best += 1
            if validator.sign * found > at.best_value:
                at.best_value, at.best_epoch, at.checks_since_best = validator.sign * found, at.epoch, 0
                self.placement.keep_best()
        if last:
            at.finished = "all epochs"
        elif at.checks_since_best >= config.patience:
            at.finished = "stopped early"

    def _report_epoch(self, row: dict[str, Any]) -> None:
        """Report an epoch to the callbacks, which may request a stop; if one fails, the training is saved first."""
        failed: FocuseError | None = None
        stop: str | None = None
        try:
            stop = self.reporter.epoch(row)
        except FocuseError as error:
            failed = error
        if self.group.any_rank(failed is not None):
            if self.folder is not None:
                save = self.folder.finish if self.progress.finished else self.folder.save
                save(self.checkpoint())
            raise failed or FocuseError("another process has failed; see its error message")
        stops = self.group.any_rank(bool(stop))
        self.progress.finished = self.progress.finished or stop or ("stopped by another process" if stops else "")

    def _read_loss(self) -> None:
        """Store the loss of the epoch as a number; only this waits for the GPU."""
        self.progress.loss = float(self.loss)
        if not math.isfinite(self.progress.loss):
            raise self._diverged(f"the loss is {self.progress.loss}")

    def _diverged(self, why: str) -> DivergedError:
        return DivergedError(
            f"training diverged in epoch {self.progress.epoch + 1}: {why}; "
            "lower the learning rate (lr) or the dimension"
        )

    # ---- checkpoints ----------------------------------------------------------------------------------------------

    def checkpoint(self) -> Checkpoint:
        self._read_loss()
        tables, optimizer = self.placement.checkpoint_tables()
        pool = self.sample_pool.state() if self.sample_pool is not None else {}
        return Checkpoint(self.progress, tables, optimizer, self.placement.best, self.history, pool)

    def _save_if_due(self, epoch_ends: bool) -> None:
        if self.folder is None or self.progress.finished:
            return
        epochs, seconds = checkpoint_interval(self.config.checkpoint_every)
        by_epoch = epochs and epoch_ends and self.progress.epoch % epochs == 0
        by_clock = seconds and time.monotonic() - self.folder.last_saved >= seconds
        if by_epoch or (seconds and self.group.any_rank(bool(by_clock))):
            self.folder.save(self.checkpoint())

    def _finish(self) -> Checkpoint:
        checkpoint = self.checkpoint()
        finite = all(bool(torch.isfinite(table).all()) for table in checkpoint.final().values())
        if self.group.any_rank(not finite):
            raise DivergedError("training diverged in its last step; lower the learning rate (lr)")
        if self.folder is not None:
            self.folder.finish(checkpoint)
        return checkpoint

    def _save_and_stop(self) -> None:
        if self.folder is None:
            raise KeyboardInterrupt
        self.folder.save(self.checkpoint())
        command = self.folder.resume_with
        command = command or resume_command(self.folder.path, self.config.model, self.group)
        raise Stopped(f"stopped after {self.progress}, saved; continue with: {command}")


class Placement:
    """Where tables and training triples are during a training: this class keeps them in memory.

    A placement provides the batches of the training loop, their negatives, and the tables of a checkpoint. `best` are
    the tables of the best epoch; `validator` is None if there is nothing to validate on.
    """

    in_memory = True
    validator: Validator | None = None

    def __init__(self, problem: TrainingProblem, engine: Engine, checkpoint: Checkpoint | None = None) -> None:
        self.problem, self.config, self.engine, self.checkpoint = problem, problem.config, engine, checkpoint
        self.best = checkpoint.best if checkpoint else None
        self._shuffled: tuple[int, EpochOrder] | None = None

    def open(self, folder: RunFolder | None, note: Callable[[str], None]) -> None:
        """Prepare everything for the first step."""
        self.validator = self.problem.validator

    def start_epoch(self, epoch: int) -> tuple[int, int]:
        """Prepare an epoch, counted from 0, and return its numbers of batches and of triples."""
        order = self._order(epoch)
        return len(order.batches), order.rows

    def beta(self, epoch: int) -> float:
        """Return β of an epoch, counted from 0."""
        return self.problem.beta(epoch)

    def batches(self, epoch: int, first: int, batches_per_call: int) -> Iterator[Sequence[Tensor]]:
        """Yield groups of up to `batches_per_call` batches of row indices, starting with batch `first`."""
        batches = self._order(epoch).batches
        for start in range(first, len(batches), batches_per_call):
            yield batches[start : start + batches_per_call]
        if self.engine.device.type == "cuda" and epoch + 1 < self.config.epochs:
            self._order(epoch + 1)  # computed while the GPU still works on this epoch

    def _order(self, epoch: int) -> EpochOrder:
        """Return the shuffled rows of an epoch; the result of the last call is cached."""
        if self._shuffled is None or self._shuffled[0] != epoch:
            config, triples = self.config, self.problem.triple_store
            rows = self.problem.triples.rows_in_epoch(epoch)
            seed = stream_seed(config.seed, epoch, RandomStream.SHUFFLE)
            count = len(triples) if rows is None else len(rows)
            device = self.engine.device if isinstance(triples, Batch) else "cpu"
            order = epoch_order(count, config.batch_size or len(triples), seed, device, rows)
            self._shuffled = epoch, order
        return self._shuffled[1]

    def take(self, rows: Tensor) -> Batch:
        """Return the triples at `rows`."""
        return self.problem.triple_store.take(rows)

    def sample(self, batch: Batch, seed: StreamKey) -> list[Negatives]:
        """Return the negatives of a batch."""
        return self.problem.negative_sampler(batch, seed)

    def seed(self, epoch: int, batch: int) -> int:
        """Return the seed of all random numbers of a batch."""
        return stream_seed(self.config.seed, epoch, batch)

    def scorer(self) -> TableScorer:
        """Return the scorer for validation."""
        return self.engine.scorer

    def keep_best(self) -> None:
        """Keep a copy of the current tables, which are the best so far."""
        self.best = {name: table.detach().clone() for name, table in self.engine.tables.items()}

    def checkpoint_tables(self) -> tuple[Tables, Tables]:
        """Return the tables and the optimizer state that a checkpoint stores."""
        return self.engine.tables, self.engine.optimizer.state()

    def finish(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the last checkpoint with the final tables."""
        return checkpoint

    def close(self) -> None:
        """Release files and threads."""


def build_engine(problem: TrainingProblem, checkpoint: Checkpoint | None, reporter: Reporter) -> Engine:
    """Return the engine of a problem over the tables of a checkpoint, or over initial tables."""
    config = problem.config
    tables = checkpoint.tables if checkpoint else problem.init_tables(reporter.note)
    tables = {name: table.to(config.device) for name, table in tables.items()}
    optimizer = make_optimizer(config.optimizer, tables, config.lr)
    if checkpoint and checkpoint.optimizer:  # an extension of a partitioned run has no optimizer state
        state = checkpoint.optimizer.items()
        optimizer.load({name: value.to(config.device) for name, value in state})
    parts = problem.model, tables, optimizer, problem.entities, config.reciprocal
    return make_engine(config.engine, *parts, problem.objective)


def make_trainer(
    config: Config,
    splits: Splits,
    normalizer: Normalizer,
    reporter: Reporter,
    folder: RunFolder | None = None,
    checkpoint: Checkpoint | None = None,
    deadline: float = math.inf,
) -> Trainer:
    """Return a trainer of a resolved config: in memory, with a partitioned entity table, or with several processes."""
    placement: Placement
    if config.engine == "partitioned":  # this and 'sharded' are rare and plug in here
        from focuse.training.partitioned import PartitionedPlacement

        placement = PartitionedPlacement(config, splits, normalizer, checkpoint)
    else:
        source = IN_MEMORY
        if config.engine == "sharded":
            from focuse.training.shared_memory import TriplesInSharedMemory

            source = TriplesInSharedMemory()
        problem = TrainingProblem.build(config, splits, normalizer, source)
        placement = Placement(problem, build_engine(problem, checkpoint, reporter), checkpoint)
    return Trainer(placement, reporter, folder, deadline)
