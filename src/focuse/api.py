"""The public API: train, resume, load and extend runs, evaluate them and predict with them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from focuse.config import Config
from focuse.data.graph import Graph
from focuse.data.splits import Splits
from focuse.data.triple_index import filter_index
from focuse.data.weights import Normalizer
from focuse.engines.factory import choose_device, enough_memory, make_table_scorer
from focuse.engines.process_group import ProcessGroup, current_group, init_group, join_group
from focuse.engines.scorer import TableScorer
from focuse.engines.sharded.engine import SHARDED
from focuse.errors import FocuseError, Stopped, counted
from focuse.evaluation.evaluate import Evaluation, evaluate
from focuse.exports.exporting import ExportMethods
from focuse.inference.calibration import Calibration, fingerprint
from focuse.inference.discovery.methods import DiscoveryMethods
from focuse.inference.explaining.asking import ExplanationMethods
from focuse.inference.predict import Predictions, predict, question
from focuse.integrations.trackers import make_trackers, stored_trackers
from focuse.models.checks import check_scores
from focuse.models.registry import MODELS, model_class, model_family
from focuse.reports.report import write_report
from focuse.rules.augmentation import with_inferred
from focuse.storage.run_folder import RunFolder
from focuse.storage.tables import Checkpoint, ShardedTables, check_tables, make_table_storage
from focuse.storage.tensors import WriteError
from focuse.training.callbacks import (
    Callback,
    CallbackFailed,
    CallbackReporter,
    Reporter,
    make_callbacks,
    make_reporter,
)
from focuse.training.extend import BaseRun, Extension, extension, read_extended, write_extended
from focuse.training.graph_update import RequestedChange
from focuse.training.label_exponent import LabelExponentTrial, choose_label_exponent, read_choice, write_choice
from focuse.training.preparation import (
    check_confidences,
    check_numbers,
    choose_engine,
    focus_or_off,
    held_out,
    make_splits,
    normalizer_of,
    read_whole,
    with_numbers,
)
from focuse.training.problem import build_model
from focuse.training.shared_memory import Prepared, prepared_once
from focuse.training.trainer import Trainer, make_trainer


@dataclass
class Run(DiscoveryMethods, ExplanationMethods, ExportMethods):
    """A trained model with everything it was made from. Made by `train` or `load`.

    >>> run = train([(str(i % 8), "r", str(i % 9), i) for i in range(60)], epochs=1, dim=4, progress=False)
    >>> run.evaluate().all.n, len(run.predict(head="3", relation="r", top=4))
    (6, 4)
    """

    settings: Config
    splits: Splits
    normalizer: Normalizer
    scorer: TableScorer
    history: list[dict[str, Any]]
    last: Checkpoint | None = None
    folder: Path | None = None
    choice: list[LabelExponentTrial] = field(default_factory=list)  # what short trainings showed of each label exponent
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
        known = filter_index(aligned.graph, graphs, self.scorer.device)
        valid = self.splits.valid.graph
        return evaluate(self.scorer, aligned, self.graph, known, ties, protocol, filtered, valid, candidates)

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
        return predict(self.scorer, graphs, head, relation, tail, top, new_only, weigher)

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
        RunFolder.create(Path(folder), self.settings, self.splits, self.normalizer, fill=self._fill).unlock()
        if self.folder is None:
            self.folder, self.tables = Path(folder), fingerprint(Path(folder))
            self._keep_calibration()
            for what in self._fitted:
                self._keep(what)

    def _fill(self, store: RunFolder) -> None:
        """All but the fixed part, into a folder that is not to be seen yet."""
        if self.last is not None:
            store.truncate_history(self.history)
            store.finish(self.last)
        write_choice(store, self.choice)
        write_extended(store, self.extended)


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
    other keyword is one of `Config`: model (a name, 'package.module:Class' or a class), dim, epochs, focus, lr, …

    >>> run = train([("a", "r", str(i), i) for i in range(20)], epochs=1, dim=4, progress=False)
    >>> run.settings.model
    'complex'
    """
    chosen, group = _chosen(settings, out)
    following = _callbacks(callbacks, track)
    check_numbers(chosen, numbers is not None)
    if out is not None and RunFolder.was_created_by(Path(out), group):  # torchrun has restarted its workers
        return resume(str(out), progress=progress, callbacks=following, deadline=deadline)
    reporter = make_reporter(progress if current_group().is_main else False)
    given = graph, valid, test, valid_share, test_share, false, numbers, soft_logic, rules
    prepare = partial(_prepare, chosen, reporter, *given)
    resolved, splits, normalizer = prepared_once(prepare) if chosen.engine in SHARDED else prepare()
    resolved = choose_engine(resolved, splits, reporter, out is not None)
    with enough_memory():
        resolved, choice = choose_label_exponent(resolved, splits, normalizer, reporter, deadline)
        followers = CallbackReporter(
            reporter, following, splits, None if out is None else RunFolder.ensure_new(Path(out), group)
        )
        trainer = make_trainer(resolved, splits, normalizer, followers, deadline=deadline)
        if out is not None:  # only now: settings too large for this machine must leave nothing behind
            tables, fill = make_table_storage(resolved.engine, group), partial(_fill, trainer, choice)
            trainer.folder = RunFolder.create(Path(out), resolved, splits, normalizer, tables, fill)
        with _nothing_left(trainer):
            return finish(trainer, splits, normalizer, followers, choice)


def _callbacks(callbacks: Sequence[object], track: Sequence[str] | str | None) -> list[Callback]:
    """Callbacks and trackers of a training; only the main process has any."""
    if not current_group().is_main:
        return []
    return [*make_callbacks(callbacks), *(make_trackers(track) if track else [])]


def _prepare(
    chosen: Config,
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
    """Resolved settings, splits and normalizer of what the user gives."""
    splits = make_splits(read_whole(graph, reporter), valid, test, valid_share, test_share, chosen, reporter, false)
    splits = with_numbers(splits, numbers, reporter)
    resolved = chosen.resolve(splits.train, choose_device(chosen.device, chosen.engine))
    normalizer = normalizer_of(resolved, splits)
    if model_class(resolved.model).confidence_head is not None:
        check_confidences(splits, resolved, reporter)
    if soft_logic is not None or rules is not None:
        splits = with_inferred(splits, soft_logic, rules, resolved, reporter)
    return focus_or_off(resolved, splits, normalizer, reporter), splits, normalizer


def _fill(trainer: Trainer, choice: list[LabelExponentTrial], store: RunFolder) -> None:
    """Write what a new run folder has besides its metadata."""
    if trainer.config.start is not None:  # that run may be gone when this one is resumed
        store.save(trainer.checkpoint())
    write_choice(store, choice if current_group().is_main else [])


def _chosen(given: dict[str, Any], out: str | Path | None) -> tuple[Config, ProcessGroup]:
    """The settings and the process group; both folders are checked before a long file is read."""
    start = given.get("start")
    chosen = Config.of(**given | ({"start": start.place()} if isinstance(start, Run) else {}))
    if chosen.model not in MODELS and not model_family(chosen.model):
        check_scores(model_class(chosen.model))
    group = join_group(chosen.engine, chosen.device, out)
    if out is not None and not RunFolder.was_created_by(Path(out), group):
        RunFolder.ensure_new(Path(out), group)
    if chosen.start is not None:
        RunFolder.open(Path(chosen.start))
    return chosen, group


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
    store, reporter = RunFolder.open(Path(folder)), make_reporter(progress if current_group().is_main else False)
    following = _callbacks(callbacks, track)
    settings, splits, normalizer = store.metadata(model)
    settings = replace(settings, device=choose_device(device or settings.device, settings.engine))
    group = join_group(settings.engine, settings.device)
    store = RunFolder(store.path, make_table_storage(settings.engine, group))
    with enough_memory(), store.locked():
        checkpoint, rows = store.load_checkpoint(note=reporter.note), store.storage.rows(len(splits.train.entities))
        if checkpoint is not None and settings.engine != "partitioned":
            check_tables(checkpoint.tables, settings, build_model(settings, splits), splits.train, Path(folder), rows)
        settings = _going_on(store, settings, checkpoint, epochs)
        if checkpoint is not None and checkpoint.progress.finished:
            reporter.note(f"{folder}: already finished after {counted(checkpoint.progress.epoch, 'epochs')}")
            store.repair(checkpoint)
            return load(folder, model=model)
        store.truncate_history(checkpoint.history if checkpoint else [])
        place = f"going on after {checkpoint.progress}" if checkpoint else "no checkpoint yet, so it begins again"
        reporter.note(f"{folder}: {place}")
        if track is None and current_group().is_main:
            following += stored_trackers(store.path, following, reporter.note)
        followers = CallbackReporter(reporter, following, splits, store.path)
        trainer = make_trainer(settings, splits, normalizer, followers, store, checkpoint, deadline)
        made = finish(trainer, splits, normalizer, followers, read_choice(store))
        return replace(made, extended=read_extended(store))


def _going_on(store: RunFolder, settings: Config, checkpoint: Checkpoint | None, epochs: int | None) -> Config:
    """The settings of a run that goes on, for more `epochs` if so many are given; its checkpoint knows of it, too."""
    at = checkpoint.progress if checkpoint is not None else None
    if epochs is not None:
        done = at.epoch if at else 0
        if epochs <= done or epochs < settings.epochs:
            have = counted(max(done, settings.epochs), "epochs")
            raise FocuseError(f"{store.path}: has {have} already; --epochs can only raise them")
        settings = replace(settings, epochs=epochs)
        if at is not None:
            if at.finished == "stopped early":  # who asks for more epochs has new patience
                at.checks_since_best = 0
            at.finished = ""
        store.continue_with(settings, checkpoint)
    if at is not None and at.finished == "all epochs" and at.epoch < settings.epochs:
        at.finished = ""  # it was killed while it was being extended
    if at is not None and at.finished.startswith("stopped by"):  # a callback has ended it before its last epoch
        at.finished = ""
        store.continue_with(settings, checkpoint)
    return settings


def load(folder: str | Path, device: str = "auto", *, model: object = None) -> Run:
    """A run from its folder, ready to evaluate and predict.

    `model` is the class of its model, where that is one of your own which cannot be imported here.

    >>> load("runs/skills").predict(head="MLEngineer", relation="requiresSkill")  # doctest: +SKIP
    """
    several = current_group().size > 1
    store = RunFolder.open(Path(folder), ShardedTables(init_group(device)) if several else None)
    settings, splits, normalizer = store.metadata(model)
    tables, history = store.model(choose_device(device))
    made = build_model(replace(settings, device=choose_device(device)), splits)
    entities = len(splits.train.entities)
    check_tables(tables, settings, made, splits.train, Path(folder), store.storage.rows(entities))
    scorer, found = (
        make_table_scorer(made, tables, entities, store.group, settings.reciprocal),
        fingerprint(Path(folder)),
    )
    run = Run(settings, splits, normalizer, scorer, history, folder=Path(folder), tables=found)
    return replace(run, choice=read_choice(store), extended=read_extended(store))


@contextmanager
def _nothing_left(trainer: Trainer) -> Iterator[None]:
    """Whatever fails in a training's first step leaves no run behind, but for a lack of room: that run can go on."""
    try:
        yield
    except (Stopped, WriteError):
        raise
    except Exception:
        at = trainer.progress
        if trainer.folder is not None and not at.epoch and not at.batch:
            shutil.rmtree(trainer.folder.path, ignore_errors=True)
        raise


def finish(
    trainer: Trainer,
    splits: Splits,
    normalizer: Normalizer,
    followers: CallbackReporter,
    choice: list[LabelExponentTrial],
) -> Run:
    """Train to the end; the run."""
    with followers.report_failure():
        try:
            last = trainer.run()
        except CallbackFailed as error:
            if trainer.progress.epoch and trainer.placement.in_memory:
                error.run = _run_of(trainer, trainer.checkpoint(), splits, normalizer, choice)
            raise
        finally:
            if trainer.folder is not None:
                trainer.folder.unlock()
    at = last.progress
    if last.best is not None:
        followers.note(
            f"{at.finished} at epoch {at.epoch}; {_found(trainer.config, at.best_value)} at epoch {at.best_epoch}, "
            f"those weights are kept{'; it was still improving' if at.best_epoch == at.epoch else ''}"
        )
    run = _run_of(trainer, last, splits, normalizer, choice)
    followers.finished(run)
    return run


def _run_of(
    trainer: Trainer, last: Checkpoint, splits: Splits, normalizer: Normalizer, choice: list[LabelExponentTrial]
) -> Run:
    scorer = trainer.engine.make_scorer(build_model(trainer.config, splits), last.final())
    folder = trainer.folder.path if trainer.folder is not None else None
    found = "" if folder is None else fingerprint(folder)
    kept = last if trainer.placement.in_memory else None  # what is in partitions stays in its folder
    return Run(trainer.config, splits, normalizer, scorer, last.history, kept, folder, choice, tables=found)


def _found(settings: Config, value: float) -> str:
    return f"best validation MSE {-value:.4f}" if settings.stop_metric == "mse" else f"best validation MRR {value:.3f}"


def extend(
    run: Run | str | Path,
    edges: Any = None,
    *,
    out: str | Path | None = None,
    frozen: bool = True,
    epochs: int | None = None,
    remove: Any = None,
    duplicates: str = "last",
    valid_share: float = 0.0,
    test_share: float = 0.0,
    numbers: Any = None,
    model: object = None,
    progress: bool | Reporter = True,
) -> Run:
    """A new run with more edges, new entities and relations among them, without starting over; the old one stays.

    `run` is a run or its folder, `edges` whatever `focuse.read` takes. `frozen`: only the rows of new names learn, for
    `epochs` of their edges, and all others keep their bits. Else all rows train on, for `epochs` more. `remove` are
    triples that are facts no longer, `duplicates` says what a triple of train weighs that comes again (last, max, mean,
    keep), `numbers` are those of new entities. Shares of the new edges may be held out; `model` as of `load`.

    >>> from focuse import train
    >>> run = train([("a", "r", str(i), i) for i in range(20)], epochs=1, dim=4, progress=False)
    >>> extend(run, [("b", "r", "3", 3.0)], epochs=1, progress=False).graph.entities[-1]
    'b'
    """
    if current_group().size > 1:
        raise FocuseError("a run is extended by one process; leave torchrun out")
    if out is not None:
        RunFolder.ensure_new(Path(out))
    base = run if isinstance(run, Run) else load(run, model=model)
    if not frozen and base.settings.engine == "partitioned":
        raise FocuseError("a run trained by partitions has its optimizer's state on disk; extend it with frozen rows")
    reporter = make_reporter(progress)
    change = RequestedChange(edges, remove, duplicates, valid_share, test_share, numbers)
    with enough_memory():
        grown = extension(_origin(base), change, frozen, epochs, reporter)
        return _settled(base, grown, out) if frozen else _warmed(base, grown, out, reporter)


def _origin(run: Run) -> BaseRun:
    """What an extension begins with."""
    last = run.last if run.last is not None or run.folder is None else RunFolder.open(run.folder).load_checkpoint()
    name = "a run in memory" if run.folder is None else str(run.folder)
    settings = run.settings  # whatever it was trained by, it is extended in memory
    if settings.engine in ("partitioned", *SHARDED):
        settings = replace(settings, engine="auto", partitions=None)
    parts = settings, run.splits, run.normalizer, dict(run.scorer.tables), last, run.history
    return BaseRun(*parts, run.extended, name)


def _settled(base: Run, grown: Extension, out: str | Path | None) -> Run:
    """The run as it is: its new rows have learnt already."""
    model = build_model(replace(grown.settings, device=str(base.scorer.device)), grown.splits)
    scorer, last = TableScorer(model, grown.checkpoint.tables, grown.settings.reciprocal), grown.checkpoint
    made = Run(grown.settings, grown.splits, grown.normalizer, scorer, last.history, last, choice=base.choice)
    made = replace(made, extended=grown.extended)
    if out is not None:
        made.save(out)
    return made


def _warmed(base: Run, grown: Extension, out: str | Path | None, reporter: Reporter) -> Run:
    """All rows train on; in a folder, from where a resume could go on."""
    followers = CallbackReporter(reporter, (), grown.splits, None if out is None else Path(out))
    trainer = make_trainer(grown.settings, grown.splits, grown.normalizer, followers, checkpoint=grown.checkpoint)
    if out is not None:

        def fill(store: RunFolder) -> None:
            """From chance a resume would come to another run: its folder appears with where it begins."""
            store.truncate_history(grown.checkpoint.history)
            store.save(trainer.checkpoint())
            write_choice(store, base.choice)
            write_extended(store, grown.extended)

        trainer.folder = RunFolder.create(Path(out), grown.settings, grown.splits, grown.normalizer, fill=fill)
    made = finish(trainer, grown.splits, grown.normalizer, followers, base.choice)
    *before, record = grown.extended
    record = {**record, "epochs": made.history[-1]["epoch"] - record["before"]}  # validation may have ended it early
    if trainer.folder is not None:
        write_extended(trainer.folder, [*before, record])
    return replace(made, extended=[*before, record])
