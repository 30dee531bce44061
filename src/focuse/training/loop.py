"""The training loop: batches, β's decay, stopping, checkpoints.

Shuffles and negatives are pure functions of (seed, epoch, batch), so a resumed training needs no random state
and ends in the same bits as one that was never interrupted.
"""

from __future__ import annotations

import math
import shlex
import threading
import time
from collections.abc import Sequence
from typing import Any

import torch

from focuse.engines import Batch, Hints, ReferenceEngine, make_engine
from focuse.errors import FocuseError, Stopped
from focuse.evaluation.asked import facts_about
from focuse.evaluation.sampled import sample_size
from focuse.focus import Focus, Label
from focuse.graph.splits import Splits, hold
from focuse.graph.weights import Normaliser
from focuse.models import Model
from focuse.models.registry import trusting
from focuse.training.chances import COINS, CORRUPTS, make_chances
from focuse.training.checkpoints import Checkpoint, Progress, Store
from focuse.training.columns import TrainingRows
from focuse.training.interrupts import interruptible
from focuse.training.losses import Objective, SoftLabel, SquaredError, TwoEvaluators, make_loss
from focuse.training.negatives import Place, Sampler, draw, generator, key_of
from focuse.training.numbers import context_of
from focuse.training.optimisers import make_optimiser
from focuse.training.progress import Reporter
from focuse.training.regularisers import make_regulariser
from focuse.training.semisupervised import Pool, make_schedule
from focuse.training.settings import SQUARED_ERROR, Settings, checkpoint_interval
from focuse.training.shards import alike, home_of, normal_rows, own_rows
from focuse.training.sharing import as_batch, data_of, known_of
from focuse.training.shuffling import Order, order_of
from focuse.training.starting import started
from focuse.training.stopping import Best, Judge, RankJudge, confidence_judge, make_judge

# Places of the random streams: shuffles and first embeddings must not coincide with negatives.
SHUFFLE, INITIAL = 1 << 40, 1 << 41
INFERRED = 0x5851F42D4C957F2D  # turns a batch's key into that of its inferred triples


class Trainer:
    """Trains one model on `splits` by resolved `settings`; stops and saves at `deadline` (of time.monotonic)."""

    whole = True  # whether its checkpoints hold all tables

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
        self.settings, self.reporter, self.store, self.deadline = settings, reporter, store, deadline
        train = splits.train
        self.rows = TrainingRows.of(settings, splits, normaliser)
        label = label_of(settings, splits)
        self.data = data_of(settings, self.rows, label)
        hints = splits.inferred
        self.inferred = as_batch(hints, hints.weight, settings.device) if hints is not None and len(hints) else None
        self.progress = checkpoint.progress if checkpoint else Progress()
        self.history: list[dict[str, Any]] = list(checkpoint.history) if checkpoint else []
        entities = len(train.entities)
        model = model_in(settings, splits)
        tables = checkpoint.tables if checkpoint else self._first_tables(model, splits)
        tables = {name: table.to(home_of(settings, name)) for name, table in tables.items()}
        optimiser = make_optimiser(settings.optimizer, tables, settings.learning_rate)
        if checkpoint and checkpoint.optimiser:  # that of a run extended from partitions has none
            moments = checkpoint.optimiser.items()
            optimiser.load({name: value.to(home_of(settings, name.partition(".")[0])) for name, value in moments})
        self.engine = make_engine(settings.engine, model, tables, optimiser, entities)
        known = known_of(settings, train) if settings.filter_negatives else None
        # By chance alone nobody looks at facts, and those on disk need not come into memory.
        uniform = (settings.corrupt, settings.coin) == (CORRUPTS[0], COINS[0])
        facts = self.data.first(0 if uniform else len(train))
        chances = make_chances(settings.corrupt, settings.coin, facts, entities, len(train.relations))
        self.sampler = Sampler(settings.sampling, settings.negatives or 1, entities, known, chances)
        self.focus = settings.make_focus()
        missing = None if label is None else missing_rivals(settings, label, self.sampler, facts)
        self.objective = make_objective(settings, self.focus, missing)
        self.penalty = make_regulariser(settings.regularizer, settings.regularize or "tables")
        schedule = make_schedule(settings.semi_supervised)
        held = checkpoint.pool if checkpoint else None
        self.pool = None if schedule is None else Pool(schedule, settings.device, held)
        # What a pool holds changes from step to step, so no engine can record its steps.
        preparing = type(self.engine) if self.pool is None else ReferenceEngine
        self.compute = preparing.prepare(self.engine, self._compute)
        self.shuffled: tuple[int, Order] | None = None
        self.loss: float | torch.Tensor = self.progress.loss
        self.judge = self._make_judge(splits, normaliser)
        self.best = Best(
            self.progress.best_value,
            self.progress.best_epoch,
            self.progress.checks_since_best,
            checkpoint.best if checkpoint else None,
        )

    def _first_tables(self, model: Model, splits: Splits) -> dict[str, torch.Tensor]:
        """By chance, or from the run that the settings start with."""
        settings, train = self.settings, splits.train
        sizes = len(train.entities), len(train.relations)
        if settings.start is None:
            return initial_tables(settings, model, *sizes, own_rows(settings, sizes[0]))
        chance = initial_tables(settings, model, *sizes)
        tables = started(chance, settings.start, splits, model_in, self.reporter.note)
        return tables | {"entity": tables["entity"][own_rows(settings, sizes[0])]}

    def _make_judge(self, splits: Splits, normaliser: Normaliser) -> Judge | None:
        settings = self.settings
        valid = hold(splits.valid.graph, settings.stopping_share, settings.seed).stopping
        learnt = [splits.train, splits.valid.graph]
        if settings.judge == "mse":
            facts = facts_about(learnt, valid, settings.device)
            return confidence_judge(valid, normaliser.transform(valid.weight, valid.relation), facts, settings.seed)
        # As in the paper, validation ranks leave out every known fact; of test only that, nothing is learnt from it.
        facts = facts_about([*learnt, splits.test.graph], valid, settings.device)
        return make_judge(valid, splits.train, facts, settings.threshold, settings.seed)

    def run(self) -> Checkpoint:
        """Train to the end; the last checkpoint, its `final` tables are the ones to use."""
        if self.engine.instead:
            self.reporter.note(f"{self.engine.title}, but {self.engine.instead}")
        sample = sample_size(self.engine, None, self.engine.entities)
        if sample is not None and isinstance(self.judge, RankJudge):
            self.reporter.note(f"validation ranks against {sample:,} sampled entities a side, not all")
        if self.pool is not None and not self.pool.schedule.share_at(self.settings.epochs):
            schedule = self.pool.schedule
            self.reporter.note(
                f"the pool is first learnt from in epoch {schedule.start + schedule.wait + 1}, and there are "
                f"{self.settings.epochs} (--semi-supervised pool:start=…,wait=…)"
            )
        self.reporter.start(self.settings, self.progress.epoch)
        with interruptible(self.store is not None) as interrupted:
            try:
                while not self.progress.finished:
                    self._epoch(interrupted)
            finally:
                self.reporter.stop()
            return self._finish()  # a wish to stop that comes now is one to be done with it

    def _finish(self) -> Checkpoint:
        checkpoint = self.checkpoint()
        finite = all(bool(torch.isfinite(table).all()) for table in checkpoint.final().values())
        if self.engine.agreed(not finite):
            raise FocuseError("training diverged in its last step; lower the learning rate (--lr)")
        if self.store is not None:
            self.store.finish(checkpoint)
        return checkpoint

    def _epoch(self, interrupted: threading.Event) -> None:
        """One epoch, or what is left of it, then a look at validation and the rules for stopping."""
        at, started = self.progress, time.perf_counter()
        order = self._order(at.epoch)
        beta = self.focus.beta(at.epoch) if self.focus else 1.0
        if self.rows.moving:
            weight, merged = self.rows.weights_at(at.epoch)
            self.data.weigh(torch.from_numpy(weight))
            beta = beta if merged is None else merged
        self._walk(order.batches, beta, interrupted, 0, len(order.batches))
        self._order(at.epoch + 1)  # while a GPU still works on this one
        self._end_epoch(beta, order.rows, started)

    def _walk(
        self, parts: Sequence[torch.Tensor], beta: float, interrupted: threading.Event, first: int, last: int
    ) -> None:
        """The batches of `parts` that are not done yet; they are those from `first` on of an epoch's `last`."""
        at, together = self.progress, self.engine.together
        for rows in (parts[start : start + together] for start in range(at.batch - first, len(parts), together)):
            self.loss = self.loss + self._steps(rows, beta)
            at.batch += len(rows)
            self.reporter.step(at.epoch, at.batch / last)
            if self.engine.agreed(interrupted.is_set() or time.monotonic() > self.deadline):
                self._stop_here()
            if at.batch < last:
                self._save_if_due(epoch_ends=False)

    def _end_epoch(self, beta: float, rows: int, started: float) -> None:
        """The epoch's line of history, a look at validation, a checkpoint if one is due."""
        at = self.progress
        self._settle()
        row: dict[str, Any] = {"epoch": at.epoch + 1, "loss": at.loss / rows}
        row |= {"beta": beta if self.focus else None}
        at.epoch, at.batch, at.loss, self.loss = at.epoch + 1, 0, 0.0, 0.0
        self._judge(row)
        row["seconds"] = round(time.perf_counter() - started, 4)
        self.history.append(row)
        if self.store is not None:
            self.store.append(row)
        self._tell(row)
        self._save_if_due(epoch_ends=True)

    def _tell(self, row: dict[str, Any]) -> None:
        """Whoever follows may wish to end here; if one of them fails, nothing that was learnt is lost."""
        failed: FocuseError | None = None
        wish: str | None = None
        try:
            wish = self.reporter.epoch(row)
        except FocuseError as error:
            failed = error
        if self.engine.agreed(failed is not None):
            if self.store is not None:
                save = self.store.finish if self.progress.finished else self.store.save
                save(self.checkpoint())
            raise failed or FocuseError("another process has failed; it says why")
        wished = self.engine.agreed(bool(wish))
        self.progress.finished = self.progress.finished or wish or ("stopped by another process" if wished else "")

    def _order(self, epoch: int) -> Order:
        """The epoch's rows, shuffled; the last answer is kept."""
        if self.shuffled is None or self.shuffled[0] != epoch:
            rows, key = self.rows.rows_at(epoch), key_of(self.settings.seed, epoch, SHUFFLE)
            count, size = len(self.data) if rows is None else len(rows), self.settings.batch_size or len(self.data)
            device = self.engine.device if isinstance(self.data, Batch) else "cpu"
            self.shuffled = epoch, order_of(count, size, key, device, rows)
        return self.shuffled[1]

    def _steps(self, rows: Sequence[torch.Tensor], beta: float) -> float | torch.Tensor:
        at = self.progress
        keys = [key_of(self.settings.seed, at.epoch, at.batch + place) for place in range(len(rows))]
        try:
            return self.compute(rows, beta, keys)
        except FloatingPointError as error:
            raise self._diverged(str(error)) from None

    def _compute(self, rows: torch.Tensor, beta: float | torch.Tensor, place: Place) -> float | torch.Tensor:
        """The loss of one batch, its gradient's step taken."""
        batch = self.data.take(rows)
        scale = 1.0 / len(batch) if self.settings.reduction == "mean" else 1.0
        hints = self._hints(place)
        corruptions, key = self.sampler(batch, place), place if isinstance(place, int) else None
        if self.pool is not None:
            if key is None:
                raise ValueError("steps with a pool are not recorded")
            batch, corruptions = self.pool(batch, corruptions, self.progress.epoch + 1, key, self.engine)
        return self.engine.step(batch, corruptions, self.objective, beta, self.penalty, scale, hints, key)

    def _hints(self, place: Place) -> Hints | None:
        """Some of what rules infer, drawn for this batch."""
        data, objective = self.inferred, self.objective
        if data is None or not isinstance(objective, SquaredError | TwoEvaluators) or isinstance(place, tuple):
            return None
        rows = draw(place ^ INFERRED, (self.settings.soft_logic_size,), len(data), data.head.device)
        return Hints(data.take(rows), objective.shortfall)

    def _settle(self) -> None:
        """The epoch's loss as a number. A GPU works ahead: only here its result is waited for and looked at."""
        self.progress.loss = float(self.loss)
        if not math.isfinite(self.progress.loss):
            raise self._diverged(f"the loss is {self.progress.loss}")

    def _diverged(self, why: str) -> FocuseError:
        return FocuseError(
            f"training diverged in epoch {self.progress.epoch + 1}: {why}; "
            "lower the learning rate (--lr) or the dimension"
        )

    def _judge(self, row: dict[str, Any]) -> None:
        """Measure on validation when it is time, and decide whether to stop."""
        at, settings = self.progress, self.settings
        last = at.epoch >= settings.epochs
        due = at.epoch % settings.check_every == 0 or last
        if self.judge is not None and due and (at.epoch >= (settings.burn_in or 0) or last):
            found = row[self.judge.figure] = self.judge(self.engine)
            self.best.look(self.judge.sign * found, at.epoch, self.engine.tables)
            at.best_value, at.best_epoch = self.best.value, self.best.epoch
            at.checks_since_best = self.best.checks_since
        if last:
            at.finished = "all epochs"
        elif at.checks_since_best >= settings.patience:
            at.finished = "stopped early"

    # ---- checkpoints ----------------------------------------------------------------------------------------------

    def checkpoint(self) -> Checkpoint:
        self._settle()
        optimiser = self.engine.optimiser.state() if self.engine.optimiser else {}
        pool = self.pool.state() if self.pool is not None else {}
        return Checkpoint(self.progress, self.engine.tables, optimiser, self.best.tables, self.history, pool)

    def _save_if_due(self, epoch_ends: bool) -> None:
        if self.store is None or self.progress.finished:
            return
        epochs, seconds = checkpoint_interval(self.settings.checkpoint_every)
        by_epoch = epochs and epoch_ends and self.progress.epoch % epochs == 0
        by_clock = seconds and time.monotonic() - self.store.last_saved >= seconds
        if by_epoch or (seconds and self.engine.agreed(bool(by_clock))):
            self.store.save(self.checkpoint())

    def _stop_here(self) -> None:
        if self.store is None:
            raise KeyboardInterrupt
        self.store.save(self.checkpoint())
        at, folder = self.progress, self.store.folder
        raise Stopped(
            f"stopped after {at}, saved; continue with: "
            f"{self.engine.command}{trusting(self.settings.model)} train --resume {shlex.quote(str(folder))}"
        )


def label_of(settings: Settings, splits: Splits) -> Label | None:
    """The labels of weights, None where weights are none; a plain model needs some, too, to tell what is false."""
    if splits.false is None or settings.loss == SQUARED_ERROR:
        return settings.make_label()
    return settings.make_label() or Label(0.0)


def make_objective(
    settings: Settings, focus: Focus | None, missing: float | None = None
) -> Objective | SoftLabel | SquaredError | TwoEvaluators:
    """Focus and loss, the squared error of a model of confidence, or labels where `missing` rivals are given."""
    if missing is not None:
        return SoftLabel(missing)
    if settings.loss != SQUARED_ERROR:
        return Objective(make_loss(settings.loss), focus)
    model = settings.make_model()
    if model.structured:
        return TwoEvaluators(model.trained, model.structure, settings.soft_logic_weight)
    return SquaredError(model.trained, settings.soft_logic_weight, model.known_curve())


def missing_rivals(settings: Settings, label: Label, sampler: Sampler, facts: Batch) -> float:
    """ln of how many more rivals there are than corruptions of a positive: E − 1 a side, and own ones are of both.

    By type only entities of that type are rivals, and the mean of ln over `facts` serves all. By degree and with an
    unfair coin there are as many as ever, each counted by how often it is drawn, 1 on average.
    A plain model has always taken its corruptions for all there is, and at a sharpness of 0 this is one.
    """
    if settings.sampling == "all" or settings.negatives is None or sampler.entities < 2 or label.sharpness == 0:
        return 0.0
    chances = sampler.chances
    if chances is not None and chances.corrupt == "type" and chances.types is not None:
        return float(chances.types.rivals(facts).cpu().double().log().mean()) - math.log(settings.negatives)
    sides = 2 if settings.sampling == "independent" else 1
    return math.log(sides * (sampler.entities - 1) / settings.negatives)


def model_in(settings: Settings, splits: Splits) -> Model:
    """The model of the settings, in the graph that it is trained on if it looks at that."""
    model = settings.make_model()
    if settings.attribute_share is not None:
        model.share = settings.attribute_share
    return model.with_context(context_of(model, splits, settings.device)) if model.wants else model


def initial_tables(
    settings: Settings,
    model: Model,
    entities: int,
    relations: int,
    rows: slice = slice(None),
    random: torch.Generator | None = None,
) -> dict[str, torch.Tensor]:
    """Normal, of the settings' or the model's deviation, else Xavier's √(2 / (rows + width)) as in the paper's code.

    Of the entities only `rows` are kept, and no more held unless the model looks at all of them.
    """
    random = generator(settings.seed, 0, INITIAL) if random is None else random
    shapes = {
        "entity": (entities, model.entity_width(settings.dim)),
        "relation": (relations, model.relation_width(settings.dim)),
    }
    tables = {}
    for name, shape in shapes.items():
        xavier = (2.0 / sum(shape)) ** 0.5
        some = name == "entity" and alike(model)
        values = normal_rows(shape, random, rows if some else slice(None)) * (settings.spread or model.spread or xavier)
        made = model.table_start(name, values)
        tables[name] = made[rows].clone() if name == "entity" and not some and rows != slice(None) else made
    return tables | model.dense_start(settings.dim, random)
