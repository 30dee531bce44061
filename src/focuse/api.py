"""The public API: train, resume, load and extend runs, evaluate them and predict with them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from focuse.config import Config, TrainSettings, show_settings
from focuse.data.graph import Graph
from focuse.data.splits import Splits
from focuse.data.triple_index import filter_index
from focuse.data.weights import Normalizer
from focuse.engines.factory import choose_device, explain_memory_errors, make_group_scorer
from focuse.engines.process_group import ProcessGroup, current_group, init_group, join_group
from focuse.engines.scorer import TableScorer
from focuse.engines.sharded.engine import SHARDED_ENGINES
from focuse.errors import FocuseError, Stopped, counted
from focuse.evaluation.evaluate import Evaluation, evaluate
from focuse.inference.calibration import Calibration, fingerprint
from focuse.inference.discovery.methods import DiscoveryMethods
from focuse.inference.explain import Explanation, explain
from focuse.inference.predict import Predictions, predict, question
from focuse.integrations.export import export, to_pyg
from focuse.integrations.trackers import make_trackers, stored_trackers
from focuse.models.checks import check_scores
from focuse.models.registry import MODELS, model_class, model_family
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
from focuse.training.extend import BaseRun, Extension, build_extension, read_extended, write_extended
from focuse.training.graph_update import RequestedChange
from focuse.training.label_exponent import LabelExponentTrial, choose_label_exponent, read_trials, write_trials
from focuse.training.preparation import (
    check_confidences,
    check_node_attributes,
    check_rule_settings,
    fit_training_normalizer,
    ignore_equal_weights,
    make_splits,
    partition_if_needed,
    read_test_graph,
    read_training_graph,
    report_settings,
    with_node_attributes,
)
from focuse.training.problem import build_model
from focuse.training.shared_memory import PreparedData, prepare_once_per_machine
from focuse.training.trainer import Trainer, make_trainer


@dataclass
class Run(DiscoveryMethods):
    """A trained model with its settings, splits and history; created by `train`, `resume`, `load` or `extend`.

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
    # The short trainings that selected the label exponent.
    label_exponent_trials: list[LabelExponentTrial] = field(default_factory=list)
    extended: list[dict[str, Any]] = field(default_factory=list)  # what it was extended from, oldest first
    tables_checksum: str = ""  # fingerprint of the final tables in the folder
    calibration_stored: bool = False
    _calibration: Calibration | None = field(default=None, repr=False)
    _fitted: dict[str, Any] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        trained = f"{self.settings.model}, dim {self.settings.dim}, {counted(len(self.history), 'epochs')}"
        return f"Run({trained} on {self.graph!r})"

    @property
    def graph(self) -> Graph:
        """The training graph; its vocabularies hold the names of the rows of the tables."""
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

        Parameters
        ----------
        test
            Triples to evaluate on, by default the test split.
        ties
            Rank of tied scores: 'worst', 'mean' or 'best'.
        protocol
            'sides' ranks each side separately, 'joint' ranks both sides as one list.
        filtered
            Whether other known triples are left out of the candidates.
        candidates
            Number of sampled entities per side to rank against; by default all, or 500 for expensive models.

        Returns
        -------
        Evaluation
            Its `delta_mrr` is the MRR of the top decile by weight minus that of the bottom decile.
        """
        aligned = self.splits.aligned_test if test is None else read_test_graph(test, self.settings, self.splits)
        if test is None and not len(aligned.graph) and not aligned.unseen.rows:
            raise FocuseError("the run has no test split; give a test graph (focuse evaluate RUN TEST)")
        graphs = [self.splits.train, self.splits.valid, self.splits.test, aligned.graph]
        known = filter_index(aligned.graph, graphs, self.scorer.device)
        valid = self.splits.valid
        return evaluate(self.scorer, aligned, self.graph, known, ties, protocol, filtered, valid, candidates)

    def predict(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        top: int = 10,
        new_only: bool = False,
    ) -> Predictions:
        """Return the best completions of a triple with one missing part; known triples are marked.

        Each prediction has the expected weight if the triple is true, with a 90 % interval, the probability that it is
        true, and a confidence in [0, 1], for example
        `run.predict(head="MLEngineer", relation="requiresSkill")[0].probability`. If the graph is too large to compute
        its features in memory, a prediction has only a score.
        """
        graphs = [self.splits.train, self.splits.valid, self.splits.test]
        question(self.graph, head, relation, tail, top, new_only)  # reports a misspelled name before the slow fitting
        predictor = self.weight_predictor(full=True) if self.can_predict_weights() else None
        return predict(self.scorer, graphs, head, relation, tail, top, new_only, predictor)

    @property
    def path(self) -> Path:
        """Return the folder of the run; raise FocuseError if it was not saved."""
        if self.folder is None:
            raise FocuseError("this run has no folder yet; save it first: run.save(FOLDER)")
        return self.folder

    def explain(self, head: str, relation: str, tail: str, top: int = 5, *, rules: Any = None) -> Explanation:
        """Explain the score of a triple, known or not: triples that support or oppose it, similar ones, and rules.

        `top` is the number of triples and rules of each kind. `rules` is a file of rules or parsed rules; by default
        they are mined from the training graph, once per run. `print` shows the explanation as text, and its `to_dict()`
        and `write("why.html")` give it as data and as a page.
        """
        return explain(self, head, relation, tail, top, rules=rules)

    def report(
        self, path: str | Path, test: Any = None, projection: str = "tsne", *, progress: bool | Reporter = False
    ) -> Path:
        """Write a self-contained HTML report on the run and return its path.

        The run is evaluated on its test split, or on `test`. `projection` draws the entity map: 'tsne', 'umap' (needs
        umap-learn), 'pca' or 'none'. The charts need matplotlib.
        """
        from focuse.report.report import write_report  # imports Jinja2

        return write_report(self, Path(path), test, projection, make_reporter(progress).note)

    def export(self, path: str | Path, format: str | None = None, what: str = "entities") -> list[Path]:
        """Write embeddings with their names for other tools, and return the paths of the files.

        `format` is parquet, csv, tsv, word2vec, numpy, safetensors, pyg or projector, by default that of the suffix;
        `what` is entities, relations or both. See `focuse.integrations.export.export`.
        """
        return export(self, path, format, what)

    def to_pyg(self, parts: Sequence[str] | str = ("train",)) -> Any:
        """Return embeddings and edges of these splits as a `torch_geometric.data.Data`."""
        return to_pyg(self, parts)

    def save(self, folder: str | Path) -> None:
        """Write the run to a new folder."""
        if self.last is None:
            raise FocuseError("this run was loaded from a folder; copy that folder instead")
        RunFolder.create(Path(folder), self.settings, self.splits, self.normalizer, fill=self._fill).unlock()
        if self.folder is None:
            self.folder, self.tables_checksum = Path(folder), fingerprint(Path(folder))
            self._keep_calibration()
            for what in self._fitted:
                self._keep(what)

    def _fill(self, store: RunFolder) -> None:
        """Write everything but the metadata to a folder that is not published yet."""
        if self.last is not None:
            store.truncate_history(self.history)
            store.finish(self.last)
        write_trials(store, self.label_exponent_trials)
        write_extended(store, self.extended)


@show_settings
def train(
    graph: Any,
    *,
    valid: Any = None,
    test: Any = None,
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
    inferred_triples: Any = None,
    rules: Any = None,
    known_negatives: Any = None,
    node_attributes: Any = None,
    out: str | Path | None = None,
    progress: bool | Reporter = True,
    callbacks: Sequence[object] = (),
    track: Sequence[str] | str = (),
    deadline: float = math.inf,
    **settings: Unpack[TrainSettings],
) -> Run:
    """Train embeddings of a weighted graph.

    Parameters
    ----------
    graph
        Training graph: a graph or any source that `focuse.read` accepts.
    valid, test
        Validation and test triples, like `graph`. Without both, random fractions of the graph are held out.
    valid_fraction, test_fraction
        Fractions of the graph to hold out.
    inferred_triples
        Triples that rules infer, with their confidences; for confidence models such as ukge-rect and ukge-logi.
    rules
        Rules, or a file of rules, to ground over the training split; for the same models.
    known_negatives
        Triples known to be false.
    node_attributes
        Rows of entity, attribute and value, for literale-complex, literale-distmult, transea and kblrn.
    out
        Folder to which the run is written during training, so that it can be resumed.
    progress
        Whether to show progress, or a reporter.
    callbacks
        Instances or classes of `focuse.Callback`.
    track
        Experiment trackers: 'tensorboard:FOLDER', 'mlflow:URI' or 'wandb:PROJECT'.
    deadline
        Time, as of time.monotonic, at which training stops as on Ctrl-C; it is saved if there is a folder `out`.
    **settings
        All settings of the training. `model` may also be a class, and `init_from` a run. A setting that has no effect
        with the others raises FocuseError.

    Examples
    --------
    >>> run = train([("a", "r", str(i), i) for i in range(20)], epochs=1, dim=4, progress=False)
    >>> run.settings.model
    'complex'
    """
    chosen, group = _check_arguments(dict(settings), out)
    check_rule_settings(chosen, inferred_triples is not None or rules is not None)
    all_callbacks = _callbacks(callbacks, track)
    check_node_attributes(chosen, node_attributes is not None)
    if out is not None and RunFolder.was_created_by(Path(out), group):  # torchrun has restarted its processes
        return resume(str(out), progress=progress, callbacks=all_callbacks, deadline=deadline)
    reporter = make_reporter(progress if current_group().is_main else False)
    given = graph, valid, test, valid_fraction, test_fraction, known_negatives, node_attributes, inferred_triples, rules
    prepare = partial(_prepare, chosen, reporter, *given)
    resolved, splits, normalizer = prepare_once_per_machine(prepare) if chosen.engine in SHARDED_ENGINES else prepare()
    resolved = partition_if_needed(resolved, splits, reporter, out is not None)
    report_settings(resolved, reporter)
    with explain_memory_errors():
        resolved, label_exponent_trials = choose_label_exponent(resolved, splits, normalizer, reporter, deadline)
        callback_reporter = CallbackReporter(
            reporter, all_callbacks, splits, None if out is None else RunFolder.ensure_new(Path(out), group)
        )
        trainer = make_trainer(resolved, splits, normalizer, callback_reporter, deadline=deadline)
        if out is not None:  # created now, so that settings that do not fit into memory leave no folder
            tables, fill = make_table_storage(resolved.engine, group), partial(_fill, trainer, label_exponent_trials)
            trainer.folder = RunFolder.create(Path(out), resolved, splits, normalizer, tables, fill)
        with _remove_folder_on_early_failure(trainer):
            return train_to_end(trainer, splits, normalizer, callback_reporter, label_exponent_trials)


def _callbacks(callbacks: Sequence[object], track: Sequence[str] | str | None) -> list[Callback]:
    """Return the callbacks and trackers of a training; only the main process has any."""
    if not current_group().is_main:
        return []
    return [*make_callbacks(callbacks), *(make_trackers(track) if track else [])]


def _prepare(
    chosen: Config,
    reporter: Reporter,
    graph: Any,
    valid: Any,
    test: Any,
    valid_fraction: float,
    test_fraction: float,
    known_negatives: Any,
    node_attributes: Any,
    inferred_triples: Any,
    rules: Any,
) -> PreparedData:
    """Return the resolved settings, the splits and the normalizer for the user's input."""
    splits = make_splits(
        read_training_graph(graph, reporter),
        valid,
        test,
        valid_fraction,
        test_fraction,
        chosen,
        reporter,
        known_negatives,
    )
    splits = with_node_attributes(splits, node_attributes, reporter)
    resolved = chosen.resolve(splits.train, choose_device(chosen.device, chosen.engine))
    normalizer = fit_training_normalizer(resolved, splits)
    if model_class(resolved.model).confidence_head is not None:
        check_confidences(splits, resolved, reporter)
    if inferred_triples is not None or rules is not None:
        splits = with_inferred(splits, inferred_triples, rules, resolved, reporter)
    return ignore_equal_weights(resolved, splits, normalizer, reporter), splits, normalizer


def _fill(trainer: Trainer, label_exponent_trials: list[LabelExponentTrial], store: RunFolder) -> None:
    """Write the files of a new run folder other than its metadata."""
    if trainer.config.init_from is not None:  # that run may have been deleted when this one is resumed
        store.save(trainer.checkpoint())
    write_trials(store, label_exponent_trials if current_group().is_main else [])


def _check_arguments(given: dict[str, Any], out: str | Path | None) -> tuple[Config, ProcessGroup]:
    """Return the settings and the process group, after checking the folders `out` and `init_from`."""
    init_from = given.get("init_from")
    chosen = Config.from_kwargs(**given | ({"init_from": init_from.path} if isinstance(init_from, Run) else {}))
    if chosen.model not in MODELS and not model_family(chosen.model):
        check_scores(model_class(chosen.model))
    group = join_group(chosen.engine, chosen.device, out)
    if out is not None and not RunFolder.was_created_by(Path(out), group):
        RunFolder.ensure_new(Path(out), group)
    if chosen.init_from is not None:
        RunFolder.open(Path(chosen.init_from))
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
    """Resume a run from its newest checkpoint; the result is bitwise equal to that of an uninterrupted training.

    Parameters
    ----------
    epochs
        New number of epochs, which can only be raised.
    device
        Another device; results then differ by rounding.
    model
        Class of the model, see `load`.
    callbacks, track, deadline
        See `train`; by default, the trackers of the run continue.

    Examples
    --------
    >>> run = resume("runs/skills", epochs=100)  # doctest: +SKIP
    """
    store, reporter = RunFolder.open(Path(folder)), make_reporter(progress if current_group().is_main else False)
    all_callbacks = _callbacks(callbacks, track)
    settings, splits, normalizer = store.metadata(model)
    settings = replace(settings, device=choose_device(device or settings.device, settings.engine))
    group = join_group(settings.engine, settings.device)
    store = RunFolder(store.path, make_table_storage(settings.engine, group))
    with explain_memory_errors(), store.locked():
        checkpoint, rows = store.load_checkpoint(note=reporter.note), store.storage.rows(len(splits.train.entities))
        if checkpoint is not None and settings.engine != "partitioned":
            check_tables(checkpoint.tables, settings, build_model(settings, splits), splits.train, Path(folder), rows)
        settings = _settings_to_resume(store, settings, checkpoint, epochs)
        if checkpoint is not None and checkpoint.progress.finished:
            reporter.note(f"{folder}: already finished after {counted(checkpoint.progress.epoch, 'epochs')}")
            store.repair(checkpoint)
            return load(folder, model=model)
        store.truncate_history(checkpoint.history if checkpoint else [])
        place = f"resuming after {checkpoint.progress}" if checkpoint else "no checkpoint yet; training starts again"
        reporter.note(f"{folder}: {place}")
        if track is None and current_group().is_main:
            all_callbacks += stored_trackers(store.path, all_callbacks, reporter.note)
        callback_reporter = CallbackReporter(reporter, all_callbacks, splits, store.path)
        trainer = make_trainer(settings, splits, normalizer, callback_reporter, store, checkpoint, deadline)
        made = train_to_end(trainer, splits, normalizer, callback_reporter, read_trials(store))
        return replace(made, extended=read_extended(store))


def _settings_to_resume(
    store: RunFolder, settings: Config, checkpoint: Checkpoint | None, epochs: int | None
) -> Config:
    """Return the settings of a run to resume, with more `epochs` if given, and update its checkpoint accordingly."""
    at = checkpoint.progress if checkpoint is not None else None
    if epochs is not None:
        done = at.epoch if at else 0
        if epochs <= done or epochs < settings.epochs:
            have = counted(max(done, settings.epochs), "epochs")
            raise FocuseError(f"{store.path}: is set to {have}; --epochs can only raise the number")
        settings = replace(settings, epochs=epochs, provenance={**settings.provenance, "epochs": "given"})
        if at is not None:
            if at.finished == "stopped early":  # more epochs restart the patience of early stopping
                at.checks_since_best = 0
            at.finished = ""
        store.continue_with(settings, checkpoint)
    if at is not None and at.finished == "all epochs" and at.epoch < settings.epochs:
        at.finished = ""  # the process was killed while the number of epochs was being raised
    if at is not None and at.finished.startswith("stopped by"):  # a callback ended the training early
        at.finished = ""
        store.continue_with(settings, checkpoint)
    return settings


def load(folder: str | Path, device: str = "auto", *, model: object = None) -> Run:
    """Load a run from its folder, to evaluate it and to predict with it.

    `model` is the class of its model, if that is a custom class that cannot be imported.

    >>> load("runs/skills").predict(head="MLEngineer", relation="requiresSkill")  # doctest: +SKIP
    """
    several = current_group().size > 1
    store = RunFolder.open(Path(folder), ShardedTables(init_group(device)) if several else None)
    settings, splits, normalizer = store.metadata(model)
    tables, history = store.model(choose_device(device))
    made = build_model(replace(settings, device=choose_device(device)), splits)
    entities = len(splits.train.entities)
    check_tables(tables, settings, made, splits.train, Path(folder), store.storage.rows(entities))
    scorer = make_group_scorer(made, tables, entities, store.group, settings.reciprocal)
    checksum = fingerprint(Path(folder))
    run = Run(settings, splits, normalizer, scorer, history, folder=Path(folder), tables_checksum=checksum)
    return replace(run, label_exponent_trials=read_trials(store), extended=read_extended(store))


@contextmanager
def _remove_folder_on_early_failure(trainer: Trainer) -> Iterator[None]:
    """Remove the run folder if training fails before its first step is complete, unless the disk is full.

    After a stop or a write error, the run can be resumed.
    """
    try:
        yield
    except (Stopped, WriteError):
        raise
    except Exception:
        at = trainer.progress
        if trainer.folder is not None and not at.epoch and not at.batch:
            shutil.rmtree(trainer.folder.path, ignore_errors=True)
        raise


def train_to_end(
    trainer: Trainer,
    splits: Splits,
    normalizer: Normalizer,
    callback_reporter: CallbackReporter,
    label_exponent_trials: list[LabelExponentTrial],
) -> Run:
    """Train to the end and return the run."""
    with callback_reporter.report_failure():
        try:
            last = trainer.run()
        except CallbackFailed as error:
            if trainer.progress.epoch and trainer.placement.in_memory:
                error.run = _make_run(trainer, trainer.checkpoint(), splits, normalizer, label_exponent_trials)
            raise
        finally:
            if trainer.folder is not None:
                trainer.folder.unlock()
    at = last.progress
    if last.best is not None:
        mse = trainer.config.stop_metric == "mse"
        best = f"validation MSE {-at.best_value:.4f}" if mse else f"validation MRR {at.best_value:.3f}"
        callback_reporter.note(
            f"{at.finished} at epoch {at.epoch}; best {best} at epoch {at.best_epoch}, "
            f"whose tables are kept{'; it was still improving' if at.best_epoch == at.epoch else ''}"
        )
    run = _make_run(trainer, last, splits, normalizer, label_exponent_trials)
    callback_reporter.finished(run)
    return run


def _make_run(
    trainer: Trainer,
    last: Checkpoint,
    splits: Splits,
    normalizer: Normalizer,
    trials: list[LabelExponentTrial],
) -> Run:
    scorer = trainer.engine.make_scorer(build_model(trainer.config, splits), last.final())
    folder = trainer.folder.path if trainer.folder is not None else None
    found = "" if folder is None else fingerprint(folder)
    kept = last if trainer.placement.in_memory else None  # partitioned tables stay in the run folder
    return Run(trainer.config, splits, normalizer, scorer, last.history, kept, folder, trials, tables_checksum=found)


def extend(
    run: Run | str | Path,
    edges: Any = None,
    *,
    out: str | Path | None = None,
    frozen: bool = True,
    epochs: int | None = None,
    remove: Any = None,
    duplicates: str = "last",
    valid_fraction: float = 0.0,
    test_fraction: float = 0.0,
    node_attributes: Any = None,
    model: object = None,
    progress: bool | Reporter = True,
) -> Run:
    """Extend a run with new edges, entities and relations, and return a new run; the old run is not changed.

    Parameters
    ----------
    run
        A run or its folder.
    edges
        New edges, from any source that `focuse.read` accepts.
    out
        Folder of the new run.
    frozen
        If True, only the embeddings of new names are trained, for `epochs` epochs on their edges, and all others stay
        bitwise equal. If False, all embeddings are trained for `epochs` more epochs.
    remove
        Triples to remove.
    duplicates
        Weight of a new edge that repeats a training triple: 'last', 'max', 'mean' or 'keep'.
    valid_fraction, test_fraction
        Fractions of the new edges to hold out.
    node_attributes
        Node attributes of new entities.
    model
        Class of the model, see `load`.

    Examples
    --------
    >>> from focuse import train
    >>> run = train([("a", "r", str(i), i) for i in range(20)], epochs=1, dim=4, progress=False)
    >>> extend(run, [("b", "r", "3", 3.0)], epochs=1, progress=False).graph.entities[-1]
    'b'
    """
    if current_group().size > 1:
        raise FocuseError("a run can only be extended by one process; run it without torchrun")
    if out is not None:
        RunFolder.ensure_new(Path(out))
    base = run if isinstance(run, Run) else load(run, model=model)
    if not frozen and base.settings.engine == "partitioned":
        raise FocuseError("a run trained with partitions keeps its optimizer state on disk; use frozen=True (--freeze)")
    reporter = make_reporter(progress)
    change = RequestedChange(edges, remove, duplicates, valid_fraction, test_fraction, node_attributes)
    with explain_memory_errors():
        grown = build_extension(_base_run(base), change, frozen, epochs, reporter)
        return _finish_frozen_extension(base, grown, out) if frozen else _continue_training(base, grown, out, reporter)


def _base_run(run: Run) -> BaseRun:
    """Return the parts of a run that an extension starts from."""
    last = run.last if run.last is not None or run.folder is None else RunFolder.open(run.folder).load_checkpoint()
    name = "a run in memory" if run.folder is None else str(run.folder)
    settings = run.settings  # a run is always extended in memory, whatever engine trained it
    if settings.engine in ("partitioned", *SHARDED_ENGINES):
        settings = replace(settings, engine="auto", partitions=None)
    parts = settings, run.splits, run.normalizer, dict(run.scorer.tables), last, run.history
    return BaseRun(*parts, run.extended, name)


def _finish_frozen_extension(base: Run, grown: Extension, out: str | Path | None) -> Run:
    """Return the extended run, whose new rows are already trained."""
    model = build_model(replace(grown.settings, device=str(base.scorer.device)), grown.splits)
    scorer, last = TableScorer(model, grown.checkpoint.tables, grown.settings.reciprocal), grown.checkpoint
    made = Run(grown.settings, grown.splits, grown.normalizer, scorer, last.history, last)
    made = replace(made, label_exponent_trials=base.label_exponent_trials, extended=grown.extended)
    if out is not None:
        made.save(out)
    return made


def _continue_training(base: Run, grown: Extension, out: str | Path | None, reporter: Reporter) -> Run:
    """Continue training all rows and return the run; with `out`, the training can be resumed."""
    callback_reporter = CallbackReporter(reporter, (), grown.splits, None if out is None else Path(out))
    trainer = make_trainer(
        grown.settings, grown.splits, grown.normalizer, callback_reporter, checkpoint=grown.checkpoint
    )
    if out is not None:

        def fill(store: RunFolder) -> None:
            """Write the initial checkpoint, because a resume without it would start from random embeddings."""
            store.truncate_history(grown.checkpoint.history)
            store.save(trainer.checkpoint())
            write_trials(store, base.label_exponent_trials)
            write_extended(store, grown.extended)

        trainer.folder = RunFolder.create(Path(out), grown.settings, grown.splits, grown.normalizer, fill=fill)
    made = train_to_end(trainer, grown.splits, grown.normalizer, callback_reporter, base.label_exponent_trials)
    *before, record = grown.extended
    record = {**record, "epochs": made.history[-1]["epoch"] - record["before"]}  # early stopping may have ended it
    if trainer.folder is not None:
        write_extended(trainer.folder, [*before, record])
    return replace(made, extended=[*before, record])
