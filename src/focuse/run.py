"""The public face: train a graph to a run, save and load it, evaluate and predict with it."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from focuse.engines import ReferenceEngine
from focuse.engines.company import leads
from focuse.errors import FocuseError, Stopped, counted
from focuse.evaluation.evaluate import Evaluation, evaluate, facts_for
from focuse.exports.exporting import ExportMethods
from focuse.graph import Graph
from focuse.graph.splits import Splits
from focuse.graph.weights import Normaliser
from focuse.inference.calibrate import Calibration, fingerprint
from focuse.inference.discovery.methods import DiscoveryMethods
from focuse.inference.explaining import ExplanationMethods
from focuse.inference.predict import Predictions, predict, question
from focuse.models import MODELS, kind_of
from focuse.models.checking import check_scores
from focuse.models.pykeen import PREFIX
from focuse.reports.report import write_report
from focuse.training.callbacks import CallbackFailed, Followers, make_callbacks
from focuse.training.checkpoints import Checkpoint, Store
from focuse.training.extending import read_extended, write_extended
from focuse.training.files import UnwrittenError
from focuse.training.loop import Trainer, model_in
from focuse.training.machine import choose_device, enough_memory
from focuse.training.numbers import check_numbers, with_numbers
from focuse.training.partitions.memory import choose_engine
from focuse.training.partitions.store import store_for
from focuse.training.partitions.trainer import trainer_for
from focuse.training.preparing import (
    check_confidences,
    focus_or_off,
    held_out,
    make_splits,
    normaliser_of,
    read_whole,
)
from focuse.training.progress import Reporter, make_reporter
from focuse.training.settings import Settings
from focuse.training.sharing import Prepared, prepared_once
from focuse.training.sharpness import Look, choose_sharpness, read_choice, write_choice
from focuse.training.tables import check_tables
from focuse.training.together import open_together, restarted, rows_of, scorer_of
from focuse.training.tracking import make_trackers, stored_trackers
from focuse.ukge.inferring import with_inferred


@dataclass
class Run(DiscoveryMethods, ExplanationMethods, ExportMethods):
    """A trained model with everything it was made from. Made by `train` or `load`.

    >>> run = train([(str(i % 8), "r", str(i % 9), i) for i in range(60)], epochs=1, dim=4, progress=False)
    >>> run.evaluate().all.n, len(run.predict(head="3", relation="r", top=4))
    (6, 4)
    """

    settings: Settings
    splits: Splits
    normaliser: Normaliser
    engine: ReferenceEngine
    history: list[dict[str, Any]]
    last: Checkpoint | None = None
    folder: Path | None = None
    choice: list[Look] = field(default_factory=list)  # what short trainings showed of each sharpness
    extended: list[dict[str, Any]] = field(default_factory=list)  # what it was extended from, oldest first
    tables: str = ""  # fingerprint of the final tables in the folder
    calibration_stored: bool = False
    _calibration: Calibration | None = field(default=None, repr=False)
    _fitted: dict[str, Any] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        trained = f"{self.settings.model}, dim {self.settings.dim}, {counted(len(self.history), 'epochs')}"
        return f"Run({trained} on {self.graph!r})"

    @property
    def graph(self) -> Graph:
        """The training graph; its vocabularies give names to the rows of the tables."""
        return self.splits.train

    def evaluate(
        self,
        test: Any = None,
        *,
        ties: str = "worst",
        protocol: str = "sides",
        filtered: bool = True,
        candidates: int | None = None,
    ) -> Evaluation:
        """Rank the held-out test triples, or those of another graph or file.

        `ties`: worst, mean or best. `protocol`: each side by itself ('sides') or both as one list ('joint').
        `candidates`: rank against so many sampled entities a side, not against all; a dear model's usual is 500.
        `run.evaluate().delta_mrr` is how much better the heaviest tenth ranks than the lightest.
        """
        aligned = self.splits.test if test is None else held_out(test, self.settings, self.splits)
        if test is None and not len(aligned.graph) and not aligned.unseen.rows:
            raise FocuseError("the run has no test split; give a test graph (focuse evaluate RUN TEST)")
        graphs = [self.splits.train, self.splits.valid.graph, self.splits.test.graph, aligned.graph]
        known = facts_for(aligned.graph, graphs, self.engine.device)
        valid = self.splits.valid.graph
        return evaluate(self.engine, aligned, self.graph, known, ties, protocol, filtered, valid, candidates)

    def predict(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        top: int = 10,
        new_only: bool = False,
    ) -> Predictions:
        """The best completions of a triple with one part left out, known facts marked.

        Each has the weight that it is expected to have if it is a fact with a 90 % interval, the probability that it
        is one, and a confidence in [0, 1]: `run.predict(head="MLEngineer", relation="requiresSkill")[0].probability`;
        of a graph whose surroundings are too large to learn from in memory, its score alone.
        """
        graphs = [self.splits.train, self.splits.valid.graph, self.splits.test.graph]
        question(self.graph, head, relation, tail, top, new_only)  # a misspelt name is told before a minute of fitting
        weigher = self.weigher(full=True) if self.can_weigh() else None
        return predict(self.engine, graphs, head, relation, tail, top, new_only, weigher)

    def place(self) -> Path:
        """The folder that it is in."""
        if self.folder is None:
            raise FocuseError("this run is in no folder yet; save it first: run.save(FOLDER)")
        return self.folder

    def report(
        self, path: str | Path, test: Any = None, *, map: str = "tsne", progress: bool | Reporter = False
    ) -> Path:
        """Write one self-contained HTML page on the run, judged by its own test split or by another; its path.

        `map` says how entities become a map: tsne, umap (needs focuse[map]), pca or none.
        """
        return write_report(self, Path(path), test, map, make_reporter(progress).note)

    def save(self, folder: str | Path) -> None:
        """Write the run to a new folder."""
        if self.last is None:
            raise FocuseError("this run was loaded from a folder; copy that folder instead")
        Store.create(Path(folder), self.settings, self.splits, self.normaliser, self._fill).release()
        if self.folder is None:
            self.folder, self.tables = Path(folder), fingerprint(Path(folder))
            self._keep_calibration()
            for what in self._fitted:
                self._keep(what)

    def _fill(self, store: Store) -> None:
        """All but the fixed part, into a folder that is not to be seen yet."""
        if self.last is not None:
            store.rewind(self.history)
            store.finish(self.last)
        write_choice(store.folder, self.choice)
        write_extended(store.folder, self.extended)


def train(
    graph: Any,
    *,
    valid: Any = None,
    test: Any = None,
    valid_share: float = 0.1,
    test_share: float = 0.1,
    soft_logic: Any = None,
    rules: Any = None,
    false: Any = None,
    numbers: Any = None,
    out: str | Path | None = None,
    progress: bool | Reporter = True,
    callbacks: Sequence[object] = (),
    track: Sequence[str] | str = (),
    deadline: float = math.inf,
    **settings: Any,
) -> Run:
    """Learn embeddings of a weighted graph.

    `graph`, `valid` and `test` are graphs or whatever `focuse.read` takes. Without `valid` and `test`, shares of
    the graph are held out by chance. A model of confidence (ukge-rect, ukge-logi) also learns from triples that
    rules infer: `soft_logic` holds such triples with their confidences, `rules` (a file, or rules) are grounded over
    the training split. `false` are triples known to be false. `numbers` are those of entities, rows of entity,
    attribute and value, for models that look at them (literale-complex, literale-distmult, transea, kblrn). With `out`
    the run is written there while it trains and can be resumed. `callbacks` (of `focuse.Callback`) follow it, `track`
    names trackers that do: 'tensorboard:FOLDER', 'mlflow:URI', 'wandb:PROJECT'. At `deadline` (of time.monotonic) it
    stops and saves, as on Ctrl-C. `start` is a run, or its folder, whose embeddings are the first ones (by name). Every
    other keyword is one of `Settings`: model (a name, 'package.module:Class' or a class), dim, epochs, focus, lr, …

    >>> run = train([("a", "r", str(i), i) for i in range(20)], epochs=1, dim=4, progress=False)
    >>> run.settings.model
    'complex'
    """
    chosen, kind = _chosen(settings, out)
    following = [*make_callbacks(callbacks), *make_trackers(track)] if leads() else []
    check_numbers(chosen, numbers is not None)
    if kind is None:  # torchrun has started its workers again
        return resume(str(out), progress=progress, callbacks=following, deadline=deadline)
    reporter = make_reporter(progress if leads() else False)
    given = graph, valid, test, valid_share, test_share, false, numbers, soft_logic, rules
    resolved, splits, normaliser = prepared_once(chosen, partial(_prepare, chosen, reporter, *given))
    resolved = choose_engine(resolved, splits, reporter, out is not None)
    kind = store_for(resolved, out)
    with enough_memory():
        resolved, choice = choose_sharpness(resolved, splits, normaliser, reporter, deadline)
        followers = Followers(reporter, following, splits, None if out is None else kind.free(Path(out)))
        trainer = trainer_for(resolved)(resolved, splits, normaliser, followers, deadline=deadline)
        if out is not None:  # only now: settings too large for this machine must leave nothing behind
            fill = partial(_fill, trainer, choice)
            trainer.store = kind.create(Path(out), resolved, splits, normaliser, fill)
        with _nothing_left(trainer):
            return finish(trainer, splits, normaliser, followers, choice)


def _prepare(
    chosen: Settings,
    reporter: Reporter,
    graph: Any,
    valid: Any,
    test: Any,
    valid_share: float,
    test_share: float,
    false: Any,
    numbers: Any,
    soft_logic: Any,
    rules: Any,
) -> Prepared:
    """Resolved settings, splits and normaliser of what the user gives."""
    splits = make_splits(read_whole(graph, reporter), valid, test, valid_share, test_share, chosen, reporter, false)
    splits = with_numbers(splits, numbers, reporter)
    resolved = chosen.resolve(splits.train, choose_device(chosen.device, chosen.engine))
    normaliser = normaliser_of(resolved, splits)
    if kind_of(resolved.model).confident:
        check_confidences(splits, resolved, reporter)
    splits = with_inferred(splits, soft_logic, rules, resolved, reporter)
    return focus_or_off(resolved, splits, normaliser, reporter), splits, normaliser


def _fill(trainer: Trainer, choice: list[Look], store: Store) -> None:
    """What a new folder holds besides its fixed part before it is to be seen."""
    if trainer.settings.start is not None:  # that run may be gone when this one is resumed
        store.save(trainer.checkpoint())
    write_choice(store.folder, choice if leads() else [])


def _chosen(given: dict[str, Any], out: str | Path | None) -> tuple[Settings, type[Store] | None]:
    """The settings, and both folders looked at before a long file is read and short trainings are made.

    Also how the run's folder is written; None where this very job has begun it before, and is to go on.
    """
    start = given.get("start")
    chosen = Settings.of(**given | ({"start": start.place()} if isinstance(start, Run) else {}))
    if chosen.model not in MODELS and not chosen.model.startswith(PREFIX):
        check_scores(kind_of(chosen.model))
    kind = store_for(chosen, out)
    if restarted(chosen, out):
        return chosen, None
    if out is not None:
        kind.free(Path(out))
    if chosen.start is not None:
        Store.open(Path(chosen.start))
    return chosen, kind


def resume(
    folder: str | Path,
    *,
    epochs: int | None = None,
    device: str | None = None,
    model: object = None,
    progress: bool | Reporter = True,
    callbacks: Sequence[object] = (),
    track: Sequence[str] | str | None = None,
    deadline: float = math.inf,
) -> Run:
    """Go on with a run from its newest checkpoint, to the same bits as if it had never stopped.

    `epochs` may raise the number of epochs of the run, `device` move it to another machine's (with other bits);
    `model` as of `load`; `callbacks` and `track` as of `train`: trackers of the run go on where nothing else is said.

    >>> run = resume("runs/skills", epochs=100)  # doctest: +SKIP
    """
    store, reporter = Store.open(Path(folder)), make_reporter(progress if leads() else False)
    following = [*make_callbacks(callbacks), *(make_trackers(track) if track is not None else [])] if leads() else []
    settings, splits, normaliser = store.fixed(model)
    settings = replace(settings, device=choose_device(device or settings.device, settings.engine))
    store = store_for(settings)(store.folder)
    with enough_memory(), store.alone():
        checkpoint, rows = store.checkpoint(note=reporter.note), rows_of(store, len(splits.train.entities))
        if checkpoint is not None and trainer_for(settings).whole:
            check_tables(checkpoint.tables, settings, model_in(settings, splits), splits.train, Path(folder), rows)
        settings = _going_on(store, settings, checkpoint, epochs)
        if checkpoint is not None and checkpoint.progress.finished:
            reporter.note(f"{folder}: already finished after {counted(checkpoint.progress.epoch, 'epochs')}")
            store.mend(checkpoint)
            return load(folder, model=model)
        store.rewind(checkpoint.history if checkpoint else [])
        place = f"going on after {checkpoint.progress}" if checkpoint else "no checkpoint yet, so it begins anew"
        reporter.note(f"{folder}: {place}")
        if track is None and leads():
            following += stored_trackers(store.folder, following, reporter.note)
        followers = Followers(reporter, following, splits, store.folder)
        trainer = trainer_for(settings)(settings, splits, normaliser, followers, store, checkpoint, deadline)
        made = finish(trainer, splits, normaliser, followers, read_choice(Path(folder)))
        return replace(made, extended=read_extended(Path(folder)))


def _going_on(store: Store, settings: Settings, checkpoint: Checkpoint | None, epochs: int | None) -> Settings:
    """The settings of a run that goes on, for more `epochs` if so many are given; its checkpoint knows of it, too."""
    at = checkpoint.progress if checkpoint is not None else None
    if epochs is not None:
        done = at.epoch if at else 0
        if epochs <= done or epochs < settings.epochs:
            have = counted(max(done, settings.epochs), "epochs")
            raise FocuseError(f"{store.folder}: has {have} already; --epochs can only raise them")
        settings = replace(settings, epochs=epochs)
        if at is not None:
            if at.finished == "stopped early":  # who asks for more epochs has new patience
                at.checks_since_best = 0
            at.finished = ""
        store.extend(settings, checkpoint)
    if at is not None and at.finished == "all epochs" and at.epoch < settings.epochs:
        at.finished = ""  # it was killed while it was being extended
    if at is not None and at.finished.startswith("stopped by"):  # a callback has ended it before its last epoch
        at.finished = ""
        store.extend(settings, checkpoint)
    return settings


def load(folder: str | Path, device: str = "auto", *, model: object = None) -> Run:
    """A run from its folder, ready to evaluate and predict.

    `model` is the class of its model, where that is one of your own which cannot be imported here.

    >>> load("runs/skills").predict(head="MLEngineer", relation="requiresSkill")  # doctest: +SKIP
    """
    store = open_together(Path(folder), device)
    settings, splits, normaliser = store.fixed(model)
    tables, history = store.model(choose_device(device))
    made = model_in(replace(settings, device=choose_device(device)), splits)
    check_tables(tables, settings, made, splits.train, Path(folder), rows_of(store, len(splits.train.entities)))
    engine, found = scorer_of(store, made, tables, len(splits.train.entities)), fingerprint(Path(folder))
    run = Run(settings, splits, normaliser, engine, history, folder=Path(folder), tables=found)
    return replace(run, choice=read_choice(Path(folder)), extended=read_extended(Path(folder)))


@contextmanager
def _nothing_left(trainer: Trainer) -> Iterator[None]:
    """Whatever fails in a training's first step leaves no run behind, but for a lack of room: that run can go on."""
    try:
        yield
    except (Stopped, UnwrittenError):
        raise
    except Exception:
        at = trainer.progress
        if trainer.store is not None and not at.epoch and not at.batch:
            shutil.rmtree(trainer.store.folder, ignore_errors=True)
        raise


def finish(trainer: Trainer, splits: Splits, normaliser: Normaliser, followers: Followers, choice: list[Look]) -> Run:
    """Train to the end; the run."""
    with followers.watched():
        try:
            last = trainer.run()
        except CallbackFailed as error:
            if trainer.progress.epoch and trainer.whole:
                error.run = _run_of(trainer, trainer.checkpoint(), splits, normaliser, choice)
            raise
        finally:
            if trainer.store is not None:
                trainer.store.release()
    at = last.progress
    if last.best is not None:
        followers.note(
            f"{at.finished} at epoch {at.epoch}; {_found(trainer.settings, at.best_value)} at epoch {at.best_epoch}, "
            f"those weights are kept{'; it was still improving' if at.best_epoch == at.epoch else ''}"
        )
    run = _run_of(trainer, last, splits, normaliser, choice)
    followers.finished(run)
    return run


def _run_of(trainer: Trainer, last: Checkpoint, splits: Splits, normaliser: Normaliser, choice: list[Look]) -> Run:
    engine = trainer.engine.scorer(model_in(trainer.settings, splits), last.final())
    folder = trainer.store.folder if trainer.store is not None else None
    found = "" if folder is None else fingerprint(folder)
    kept = last if trainer.whole else None  # what is in partitions stays in its folder
    return Run(trainer.settings, splits, normaliser, engine, last.history, kept, folder, choice, tables=found)


def _found(settings: Settings, value: float) -> str:
    return f"best validation MSE {-value:.4f}" if settings.judge == "mse" else f"best validation MRR {value:.3f}"
