"""The public API: train, resume, load and extend runs, evaluate them and predict with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focuse.config import SETTINGS, Config, show_settings
from focuse.data.graph import Graph
from focuse.data.readers import read
from focuse.data.splits import Splits, split_validation
from focuse.data.triple_index import filter_index
from focuse.data.weights import Normalizer
from focuse.engines.factory import choose_device, explain_memory_errors, make_group_scorer
from focuse.engines.process_group import PEER_LOST, ProcessGroup, current_group, init_group, is_peer_lost, join_group
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError, Stopped, counted
from focuse.evaluation.evaluate import Evaluation
from focuse.evaluation.preference import (
    NO_WEIGHT_MODEL,
    NOT_LEARNED,
    Prefer,
    Preference,
    evaluate_preferences,
    fit_preference,
    has_preference,
    read_preference,
    remove_preference,
    write_preference,
)
from focuse.evaluation.weight_evaluation import ProbabilityTable, WeightEvaluation
from focuse.inference import weight_predictor as weights
from focuse.inference.calibration import COVERAGE, Calibration
from focuse.inference.discover import MAX_SCORES, discover
from focuse.inference.explain import Explanation, explain
from focuse.inference.fitted import FittedCache, fingerprint
from focuse.inference.link_search import SAMPLE_SIZE
from focuse.inference.predict import Names, predict, predict_batch
from focuse.inference.similarity import analogies, find_clusters, find_duplicates, similar
from focuse.integrations.export import export, to_pyg
from focuse.integrations.trackers import make_trackers
from focuse.models.checks import check_scores
from focuse.models.registry import MODELS, model_class, model_family
from focuse.results import ResultTable
from focuse.rules.augmentation import with_inferred
from focuse.storage.metadata import write_metadata
from focuse.storage.run_folder import REQUEST, WEIGHT_MODEL, RunFolder, resume_command
from focuse.storage.tables import Checkpoint, ShardedTables, check_tables, make_table_storage
from focuse.storage.tensors import WriteError
from focuse.system import limited_memory
from focuse.training import preparation
from focuse.training.callbacks import (
    Callback,
    CallbackFailed,
    CallbackReporter,
    Reporter,
    make_callbacks,
    make_reporter,
)
from focuse.training.extend import Extension, RequestedChange, build_extension, read_extended, write_extended
from focuse.training.label_exponent import LabelExponentTrial, choose_label_exponent, read_trials, write_trials
from focuse.training.memory_planner import partition_if_needed
from focuse.training.problem import build_model
from focuse.training.request import TrainingInput, check_unchanged, read_request
from focuse.training.shared_memory import PreparedData, prepare_once_per_machine
from focuse.training.trainer import Trainer, make_trainer
from focuse.training.weight_model import WeightModel, load_weight_model, train_weight_model

if TYPE_CHECKING:
    from focuse.report.summary import Summary


@dataclass
class Run:
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
    weight_model: WeightModel | None = None  # says how strong a link is; None with another weight_mode
    preference: Preference = field(default_factory=Preference)  # the meaning of `prefer`
    extended: list[dict[str, Any]] = field(default_factory=list)  # what it was extended from, oldest first
    tables_checksum: str = ""  # fingerprint of the final tables in the folder
    fitted: FittedCache = field(default_factory=FittedCache, repr=False)

    def __repr__(self) -> str:
        trained = f"{self.settings.model}, dim {self.settings.dim}, {counted(len(self.history), 'epochs')}"
        return f"Run({trained} on {self.graph!r})"

    def exponent(self, prefer: Prefer = None) -> float:
        """Return the exponent c of the weight by which links are ordered, see `focuse.evaluation.preference`."""
        if self.weight_model is None:
            if prefer is not None and self.preference.share(prefer):
                raise FocuseError(NO_WEIGHT_MODEL)
            return 0.0
        return self.preference.exponent(prefer)

    @property
    def graph(self) -> Graph:
        """The training graph; its vocabularies hold the names of the rows of the tables."""
        return self.splits.train

    def evaluate(
        self,
        test: Any = None,
        *,
        prefer: Prefer = None,
        ties: str = "worst",
        protocol: str = "per-side",
        filtered: bool = True,
        sample_candidates: int | None = None,
        deciles: str | None = None,
    ) -> Evaluation:
        """Rank the held-out test triples, or those of another graph or file.

        `delta_mrr` of the result is the MRR of the top decile by weight minus that of the bottom decile. `compared`
        has the same metrics of the rankings by likely and by strong links, and by frequency in train.

        Parameters
        ----------
        test
            Triples to evaluate on, by default the test split.
        prefer
            The ranking to evaluate: by 'likely' or by 'strong' links, or a number from 0 (likely) to 1 (strong); by
            default the one that had the highest weighted precision on validation triples.
        ties, protocol
            Rank of tied scores: 'worst', 'mean' or 'best'; 'per-side' ranks each side separately, 'combined' ranks both
            sides as one list.
        filtered, sample_candidates
            Whether other known triples are left out of the candidates; the number of sampled candidates per side, by
            default all, or 500 for expensive models.
        deciles
            Whether weights are compared within each relation ('relation') or across all ('global'). By default, within
            each relation, unless all training weights lie in [0, 1] or there is a single relation.
        """
        aligned = (
            self.splits.aligned_test if test is None else preparation.read_test_graph(test, self.settings, self.splits)
        )
        if test is None and not len(aligned.graph) and not aligned.unseen.rows:
            raise FocuseError("the run has no test split; give a test graph")
        graphs = [self.splits.train, self.splits.valid, self.splits.test, aligned.graph]
        known = filter_index(aligned.graph, graphs, self.scorer.device)
        options: dict[str, Any] = {"ties": ties, "protocol": protocol, "filtered": filtered, "deciles": deciles}
        options |= {"valid": self.splits.valid, "sample_candidates": sample_candidates}
        weights = None if self.weight_model is None else self.weight_model.scorer
        parts = self.scorer, weights, self.preference, prefer
        return evaluate_preferences(*parts, aligned, self.graph, known, **options)

    def evaluate_weights(
        self,
        test: Any = None,
        *,
        negatives: Any = None,
        ndcg_queries: Any = None,
        strong_above: float = weights.STRONG,
        coverage: float = COVERAGE,
        estimator: bool = True,
    ) -> WeightEvaluation:
        """Evaluate predicted weights: errors by protocol next to baselines, intervals, calibration and nDCG.

        Parameters
        ----------
        test
            Triples to evaluate on, by default the test split.
        negatives
            Triples known to be false: those of weight 0 (as in UKGE's `test_with_neg` files), or all if they have no
            weights. By default, random negatives.
        ndcg_queries
            Triples of the queries of nDCG, by default the queries of `test` with all their known tails.
        strong_above, coverage
            The weight above which a triple is strong, and the nominal coverage of intervals.
        estimator
            Whether to include the estimator by graph features; without it, evaluation takes seconds.
        """
        return weights.evaluate_weights(
            self,
            test,
            negatives=negatives,
            ndcg_queries=ndcg_queries,
            strong_above=strong_above,
            coverage=coverage,
            estimator=estimator,
        )

    def evaluate_weight_columns(self, test: Any = None, *, coverage: float = COVERAGE) -> dict[str, WeightEvaluation]:
        """Evaluate the weights of each of several columns in its own units, on the test triples that have it."""
        return weights.evaluate_weight_columns(self, test, coverage=coverage)

    def evaluate_probabilities(self, test: Any = None, *, negatives: Any = None, seed: int = 0) -> ProbabilityTable:
        """Compute Brier score and calibration error of the probability that a link is true, raw and calibrated.

        Parameters
        ----------
        test
            True links, by default the test split.
        negatives
            Triples known to be false, as in `evaluate_weights`; the odds are scaled to the share of true triples among
            both. By default, the probabilities are those of the ten best new links of 1,000 random heads and 1,000
            random tails with their relations, as in train: the links that `predict` offers. Those in `test` are true.
        seed
            The random seed of these heads and tails.
        """
        return weights.evaluate_probabilities(self, test, negatives=negatives, seed=seed)

    def predict_weights(self, triples: Any, *, coverage: float = COVERAGE, column: str | None = None) -> ResultTable:
        """Predict the weights of triples, if they are true, with intervals, and the probability that they are true.

        Parameters
        ----------
        triples
            A graph, a file, or rows (head, relation, tail) with or without a weight. Rows with names that train does
            not have are left out, and a note of the result says so.
        coverage, column
            The probability with which an interval contains the weight; one of several weight columns, in its own units,
            by default their merged weight in [0, 1].

        Returns
        -------
        ResultTable
            Columns head, relation, tail, in_train, weight (if given), weight_mean (least squared error), weight_median
            (least absolute error), weight_low, weight_high and probability. The weights of triples in train are not
            predicted but looked up.
        """
        return weights.predict_weights(self, triples, coverage=coverage, column=column)

    def predict_weight(
        self, head: str, relation: str, tail: str, *, coverage: float = COVERAGE, column: str | None = None
    ) -> Any:
        """Predict the weight of one triple and return the row of `predict_weights`.

        For example, `run.predict_weight("MLEngineer", "requiresSkill", "Python").weight_mean`.
        """
        return self.predict_weights([(head, relation, tail)], coverage=coverage, column=column)[0]

    def calibrate(self, method: str | None = None, *, base_rate: float | None = None) -> Calibration:
        """Fit the maps from scores to weights and to probabilities again, and store them in the run folder.

        Parameters
        ----------
        method
            'isotonic' or 'platt'; by default isotonic. With few validation triples, the line that gives probabilities
            is not corrected by a curve, as with 'platt'.
        base_rate
            The share of true links among all candidates, to which the odds of all probabilities of the run are scaled.
            By default it is estimated, as if the graph lacks as many links as validation holds.
        """
        return weights.calibrate(self, method, base_rate=base_rate)

    def weight_predictor(self, full: bool = False) -> weights.WeightPredictor:
        """Return the predictor of weights, which is fitted when it is first needed, and stored in the run folder.

        With `full`, it also has the estimator by graph features, intervals and probabilities.
        """
        return weights.weight_predictor(self, full)

    def predict(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        top: int = 10,
        new_only: bool = False,
        *,
        candidates: Names = None,
        any_type: bool = False,
        weights: bool = True,
        prefer: Prefer = None,
    ) -> ResultTable:
        """Rank the completions of a triple with one missing part, likely and strong ones first.

        The best completions by score and weight (200, or ten times `top` if that is more) are ordered by their
        probability times a power of their weight. In a run without probabilities, and without `weights`, the score
        takes the place of the probability; `ordered_by` says which.

        Parameters
        ----------
        head, relation, tail
            Two of the three names; the third is ranked. If all are given, the triple gets its rank by score among the
            tails that are candidates. The relation need not be given if the graph has only one.
        top, new_only
            How many completions to return, and whether to leave out known triples; ranks count them nevertheless.
        candidates
            Entities to rank, by default those of a plausible type: those that train has on the missing side of the
            relation, and those of other sides of which at least half are also there.
        any_type
            Whether to rank all entities by default.
        weights
            Whether to predict weights and probabilities. Without them, only scores are returned, which is faster.
        prefer
            'likely' orders by the probability alone, 'strong' counts the weight most, and numbers from 0 to 1 are
            between them. By default the number that had the highest weighted precision on validation triples.

        Returns
        -------
        ResultTable
            One row per completion: `rank`, `head`, `relation`, `tail`, `score`; `known` and the known `weight`;
            `weight_mean`, `weight_median` and the 90 % interval from `weight_low` to `weight_high`, predicted for the
            case that the triple is true; the `probability` that it is true; and the `confidence`, a weight in [0, 1]
            that is low for triples that are probably false. The probability of a link is the same number everywhere:
            the share of such links that are true, if the graph lacks as many links as validation holds. That of a known
            triple is the one that the model would give to an unknown link with this score. Predictions are missing if
            the run has no validation triples, or if the graph is too large to compute its features in memory.

        >>> run.predict(head="MLEngineer", relation="requiresSkill")[0].probability  # doctest: +SKIP
        """
        return predict(self, (head, relation, tail), top, new_only, candidates, weights, any_type, prefer)

    def predict_batch(
        self,
        queries: Any,
        top: int = 10,
        new_only: bool = False,
        *,
        candidates: Names = None,
        any_type: bool = False,
        weights: bool = True,
        prefer: Prefer = None,
        progress: bool = False,
    ) -> ResultTable:
        """Rank the completions of many triples, as `predict` does for one.

        The result also has the number of the `query`, counted from 1, and `stopped`: whether it was interrupted.

        Parameters
        ----------
        queries
            A file (TSV, CSV, Parquet), a data frame or rows such as ("Ward Nurse", "requires skill", None). The missing
            part is None, empty or '?'.
        top, new_only, candidates, any_type, weights, prefer
            See `predict`.
        progress
            Whether to show the progress on stderr; Ctrl-C then returns the answers so far.
        """
        return predict_batch(self, queries, top, new_only, candidates, weights, any_type, prefer, progress)

    def discover(
        self,
        heads: Names = None,
        relations: Names = None,
        tails: Names = None,
        top: int = 100,
        *,
        min_probability: float = 0.0,
        max_per_head: int | None = None,
        any_type: bool = False,
        strategy: str = "exhaustive",
        sample_size: int = SAMPLE_SIZE,
        seed: int = 0,
        rerank: int | None = None,
        max_scores: float = MAX_SCORES,
        base_rate: float | None = None,
        weights: bool = True,
        prefer: Prefer = None,
        progress: bool = False,
    ) -> ResultTable:
        """Find likely and strong links that the graph lacks.

        All links between the chosen entities are scored. The best of each relation are then ordered by their
        probability times a power of their weight, as in `predict`.
        Known triples and known negatives are left out, as are self-loops of relations that have hardly any in train.

        Parameters
        ----------
        heads, relations, tails
            Names to search, by default all.
        top, max_per_head, min_probability
            How many links to return, in all and per head, and the smallest probability of those.
        any_type
            By default, an entity is searched only where its type is plausible, see `predict`. If True, everywhere.
        strategy
            'exhaustive' scores all links; 'popular' and 'sampled' those between `sample_size` entities per relation
            and side: those with the most edges, or random ones (with this `seed`).
        rerank
            How many of the best links per relation by score are compared, by default 2,000.
        max_scores
            Refuse to score more links.
        base_rate
            The share of true links among all candidates, to which the odds are scaled; by default that of the run.
        weights
            Whether to predict weights. Without them, the search is much faster in a run that has not predicted weights
            yet; the probabilities are the same.
        prefer
            'likely', 'strong' or a number between 0 and 1, see `predict`.
        progress
            Whether to show the progress on stderr; Ctrl-C then returns the best links so far.

        Returns
        -------
        ResultTable
            One row per link: `rank`, `head`, `relation`, `tail`, `score`, `probability`, `weight_mean`,
            `weight_median`, `weight_low` and `weight_high`. `scored` and `reranked` count links, `ordered_by` names
            what orders them, and `stopped` says whether the search was interrupted.

        >>> run.discover(relations="requires skill", top=20, min_probability=0.9)  # doctest: +SKIP
        """
        return discover(
            self,
            heads,
            relations,
            tails,
            top,
            min_probability=min_probability,
            max_per_head=max_per_head,
            any_type=any_type,
            strategy=strategy,
            sample_size=sample_size,
            seed=seed,
            rerank=rerank,
            max_scores=max_scores,
            base_rate=base_rate,
            weights=weights,
            prefer=prefer,
            progress=progress,
        )

    def similar(
        self, entity: str | Sequence[str], top: int = 10, *, candidates: Names = None, mean: bool = False
    ) -> ResultTable:
        """Find the entities whose embeddings have the largest cosine similarity.

        Parameters
        ----------
        entity, top
            One or several entities, and how many neighbors of each to return.
        candidates
            Entities that may be neighbors, by default all.
        mean
            Whether to return the neighbors of the mean of the entities instead of those of each.

        Returns
        -------
        ResultTable
            One row per neighbor: `entity`, `rank`, `neighbor`, `similarity`.
        """
        return similar(self, entity, top, candidates, mean)

    def clusters(self, n_clusters: int | None = None, *, seed: int = 0) -> ResultTable:
        """Cluster the entities by their embeddings, with k-means.

        Parameters
        ----------
        n_clusters
            The number of clusters; by default the one of 2, 3, 5, 8, 12, 20, 30 and 50 with the best silhouette.
        seed
            The random seed.

        Returns
        -------
        ResultTable
            One row per entity: `entity`, `cluster` (1 is the largest) and its `similarity` to the centroid, by cluster,
            the most central entities first. `summary` is a table with one row per cluster: its size, its cohesion (the
            mean similarity), central entities, and relations and neighbors that are typical of it. `silhouette`
            measures how well the clusters are separated (from −1 to 1).
        """
        return find_clusters(self.scorer, self.splits.train, n_clusters, seed)

    def duplicates(
        self, min_similarity: float | None = None, min_overlap: float | None = None, top: int = 100
    ) -> ResultTable:
        """Find pairs of entities that may be the same: with nearly equal embeddings and nearly the same edges.

        Parameters
        ----------
        min_similarity, min_overlap
            The smallest cosine of the embeddings and the smallest overlap of the edges, in [0, 1]; by default far above
            those of random pairs.
        top
            The largest number of pairs.

        Returns
        -------
        ResultTable
            One row per pair, by similarity · overlap: `first`, `second`, `similarity`, `overlap`, `shared_edges`
            and `group`: pairs that share an entity are in the same group.
            `min_similarity` and `min_overlap` are the thresholds.
        """
        return find_duplicates(self.scorer, self.splits.train, min_similarity, min_overlap, top)

    def analogies(self, a: str, b: str, c: str, top: int = 10, *, new_only: bool = False) -> ResultTable:
        """Complete the analogy: a is to b as c is to what? The relations that link a to b are followed.

        Parameters
        ----------
        new_only
            Whether to leave out answers whose link is known.

        Returns
        -------
        ResultTable
            One row per answer: `rank`, `entity`, `strength` (the probability of the link from a to b times that of the
            link from c to the entity), the `relation`, its `direction`, the `probability` of the link and whether it is
            `known`; `links` is a table of the links from a to b.
        """
        return analogies(self, a, b, c, top, new_only)

    @property
    def path(self) -> Path:
        """Return the folder of the run; raise FocuseError if it was not saved."""
        if self.folder is None:
            raise FocuseError("this run has no folder yet; save it first: run.save(FOLDER)")
        return self.folder

    def explain(self, head: str, relation: str | None, tail: str, top: int = 5, *, rules: Any = None) -> Explanation:
        """Explain the score of a triple, known or not: triples that support or oppose it, similar ones, and rules.

        The relation may be None if the graph has only one.
        `top` is the number of triples and rules of each kind. `rules` is a file of rules or parsed rules; by default
        they are mined from the training graph, once per run. `print` shows the explanation as text, `to_dict()` gives
        it as data, and `focuse.report.page.write_explanation` writes it as a page.
        """
        return explain(self, head, relation, tail, top, rules=rules)

    def summary(self, top: int = 5) -> Summary:
        """Return how good the run is next to a ranking by frequency, and its `top` most probable new links.

        It takes seconds: at most 5,000 test triples are ranked, and no weights are predicted. `print`
        shows it as text, `to_dict()` gives it as data.
        """
        from focuse.report.summary import summarize

        return summarize(self, top)

    def report(self, path: str | Path, test: Any = None, *, progress: bool | Reporter = False) -> Path:
        """Write a self-contained HTML report on the run and return its path.

        The run is evaluated on its test split, or on `test`. The charts need matplotlib.
        """
        from focuse.report.report import write_report  # imports Jinja2

        return write_report(self, Path(path), test, make_reporter(progress).note)

    def export(self, path: str | Path, format: str | None = None, what: str = "entities") -> list[Path]:
        """Write embeddings with their names for other tools, and return the paths of the files.

        `format` is parquet, csv, tsv, word2vec, numpy or pyg, by default that of the suffix; `what` is entities,
        relations or both. See `focuse.integrations.export.export`.
        """
        return export(self, path, format, what)

    def to_pyg(self, parts: Sequence[str] | str = ("train",)) -> Any:
        """Return embeddings and edges of these splits as a `torch_geometric.data.Data`."""
        return to_pyg(self, parts)

    def save(self, folder: str | Path) -> None:
        """Write the run to a new folder."""
        if self.last is None:
            raise FocuseError("this run was loaded from a folder; copy that folder instead")
        store = RunFolder(Path(folder))
        store.create(self._write)
        store.unlock()
        if self.folder is None:
            self.folder, self.tables_checksum = Path(folder), fingerprint(Path(folder))
            self.fitted.store(self.folder, self.tables_checksum)

    def _write(self, store: RunFolder) -> None:
        """Write the run to a folder that does not exist under its name yet."""
        write_metadata(store.path, self.settings, self.splits, self.normalizer)
        if self.last is not None:
            store.truncate_history(self.history)
            store.finish(self.last)
        if self.weight_model is not None:
            self.weight_model.write(store.path)
            write_preference(store, self.preference)
        write_trials(store, self.label_exponent_trials)
        write_extended(store, self.extended)


@show_settings
def train(
    graph: Any,
    *,
    valid: Any = None,
    test: Any = None,
    valid_fraction: float | None = None,
    test_fraction: float | None = None,
    undirected: bool | None = None,
    inferred_triples: Any = None,
    rules: Any = None,
    known_negatives: Any = None,
    node_attributes: Any = None,
    out: str | Path | None = None,
    progress: bool | Reporter = True,
    callbacks: Sequence[object] = (),
    track: Sequence[str] | str = (),
    deadline: float = math.inf,
    **settings: Any,
) -> Run:
    """Train embeddings of a weighted graph.

    Parameters
    ----------
    graph
        Training graph: a graph or any source that `focuse.read` accepts.
    valid, test, valid_fraction, test_fraction
        Validation and test triples, like `graph`. Without both, random fractions of the graph are held out, by default
        0.1 for each; without `valid` alone, only validation is.
    undirected
        Whether each pair of entities is one fact, see `focuse.read`.
    inferred_triples, rules
        Triples that rules infer, with their confidences, or rules to ground over train; for confidence models.
    known_negatives
        Triples known to be false.
    node_attributes
        Rows of entity, attribute and value, for literale-complex, literale-distmult, transea and kblrn.
    out
        Folder of the run, which can be resumed from then on. It is created before anything is read if all sources are
        files, and otherwise (frames, rows, graphs) once they are read and split, before the first training.
    progress
        Whether to show progress, or a reporter.
    callbacks, track
        Instances or classes of `focuse.Callback`; trackers: 'tensorboard:FOLDER', 'mlflow:URI' or 'wandb:PROJECT'.
    deadline
        Time, as of time.monotonic, at which training stops as on Ctrl-C; it is saved if there is a folder `out`.
    **settings
        All settings, see below; `model` may be a class. One that has no effect with the others raises FocuseError.

    Examples
    --------
    >>> run = train([("a", "r", str(i), i) for i in range(20)], epochs=1, dim=4, progress=False)
    >>> run.settings.model
    'complex'
    """
    chosen, group = _check_arguments(dict(settings), out)
    preparation.check_rule_settings(chosen, inferred_triples is not None or rules is not None)
    preparation.check_node_attributes(chosen, node_attributes is not None)
    all_callbacks = _callbacks(callbacks, track)
    if out is not None and RunFolder.was_created_by(Path(out), group):  # torchrun has restarted its processes
        return resume(str(out), progress=progress, callbacks=all_callbacks, deadline=deadline)
    given = TrainingInput(
        graph, valid, test, known_negatives, node_attributes, inferred_triples, rules, valid_fraction, test_fraction,
        undirected,
    )  # fmt: skip
    folder = None if out is None else RunFolder(Path(out), make_table_storage(chosen.engine, group))
    reporter = make_reporter(progress if current_group().is_main else False)
    session = _Session(folder, reporter, all_callbacks, deadline)
    with limited_memory(chosen.memory_limit), explain_memory_errors(), _discarded_on_failure(folder):
        request = group.run_on_main(lambda: given.request(chosen))  # another machine may not have the files
        if folder is not None and request is not None:
            folder.create(lambda store: (store.path / REQUEST).write_text(request, encoding="utf-8"))
        return _remaining_phases(session, *_prepare(session, chosen, given))


@dataclass(frozen=True)
class _Session:
    """What all phases of a training share; `folder` is that of the run, None if it is not stored."""

    folder: RunFolder | None
    reporter: Reporter
    callbacks: list[Callback]
    deadline: float

    @contextmanager
    def phase(self, doing: str, model: str) -> Iterator[None]:
        """Turn an interrupt into `Stopped` if the training can be resumed: it then continues with this phase."""
        try:
            yield
        except KeyboardInterrupt:
            if self.folder is None or not self.folder.exists:
                raise
            command = resume_command(self.folder.path, model, self.folder.group)
            raise Stopped(f"stopped while {doing}; continue with: {command}") from None


@contextmanager
def _discarded_on_failure(folder: RunFolder | None) -> Iterator[None]:
    """Unlock the folder of a new training, and remove it if the training fails before it has stored any progress."""
    try:
        yield
    except (Stopped, WriteError):  # the run can be resumed
        raise
    except Exception as error:
        lost = is_peer_lost(error) or str(error) == PEER_LOST  # not the fault of this training
        if folder is not None and folder.exists and not folder.has_progress and not lost:
            folder.discard()
        raise
    finally:
        if folder is not None:
            folder.unlock()


def _prepare(session: _Session, chosen: Config, given: TrainingInput) -> PreparedData:
    """Return the resolved settings, the splits and the normalizer of the user's input, and write them to the folder."""
    folder, reporter = session.folder, session.reporter
    with session.phase("reading the input", chosen.model):
        prepare = partial(_read_and_split, chosen, reporter, given)
        resolved, splits, normalizer = prepare_once_per_machine(prepare) if chosen.engine == "sharded" else prepare()
        resolved = partition_if_needed(resolved, splits, reporter, folder is not None)
        preparation.report_settings(resolved, reporter)
        if folder is not None:
            folder.store_tables_in(make_table_storage(resolved.engine, folder.group))
            folder.write_metadata(resolved, splits, normalizer)
        return resolved, splits, normalizer


def _remaining_phases(
    session: _Session, settings: Config, splits: Splits, normalizer: Normalizer, checkpoint: Checkpoint | None = None
) -> Run:
    """Run the phases of a training that follow its preparation; each continues with what the folder holds of it."""
    folder, reporter, deadline = session.folder, session.reporter, session.deadline
    with session.phase("choosing the label exponent", settings.model):
        settings, trials = choose_label_exponent(settings, splits, normalizer, reporter, folder, deadline)
    with session.phase("training", settings.model):
        path = None if folder is None else folder.path
        callback_reporter = CallbackReporter(reporter, session.callbacks, splits, path)
        trainer = make_trainer(settings, splits, normalizer, callback_reporter, folder, checkpoint, deadline)
        if folder is not None and checkpoint is None and settings.init_from is not None:
            folder.save(trainer.checkpoint())  # that run may have been deleted when this one is resumed
        return train_to_end(trainer, splits, normalizer, callback_reporter, trials, partial(_add_weight_model, session))


def _add_weight_model(session: _Session, run: Run) -> Run:
    """Return the run with its weight model, which is trained, or loaded if the folder has it."""
    settings, splits = run.settings, run.splits
    if settings.weight_mode != "separate":
        return run
    with session.phase("training the weight model", settings.model):
        made = train_weight_model(settings, splits, session.reporter, session.folder, session.deadline)
    with session.phase("choosing the preference", settings.model):
        stopping = split_validation(splits.valid, settings.stop_fraction, settings.seed).stopping
        graphs = [splits.train, splits.valid, splits.test]
        preference = NOT_LEARNED
        if made.better_than_mean:
            preference = fit_preference(run.scorer, made.scorer, splits.train, stopping, graphs, settings.seed)
        if session.folder is not None:
            write_preference(session.folder, preference)
    checksum = run.tables_checksum if run.folder is None else fingerprint(run.folder)
    return replace(run, weight_model=made, preference=preference, tables_checksum=checksum)


def _callbacks(callbacks: Sequence[object], track: Sequence[str] | str | None) -> list[Callback]:
    """Return the callbacks and trackers of a training; only the main process has any."""
    if not current_group().is_main:
        return []
    return [*make_callbacks(callbacks), *(make_trackers(track) if track else ())]


def _read_and_split(chosen: Config, reporter: Reporter, given: TrainingInput) -> PreparedData:
    """Return the resolved settings, the splits and the normalizer of the user's input."""
    graph = given.graph if given.undirected is None else partial(read, given.graph, undirected=given.undirected)
    train = preparation.read_training_graph(graph, reporter)
    splits = preparation.make_splits(
        train, given.valid, given.test, given.valid_fraction, given.test_fraction, chosen, reporter,
        given.known_negatives,
    )  # fmt: skip
    splits = preparation.with_node_attributes(splits, given.node_attributes, reporter)
    resolved = chosen.resolve(splits.train, choose_device(chosen.device, chosen.engine))
    normalizer = preparation.fit_training_normalizer(resolved, splits)
    if model_class(resolved.model).confidence_head is not None:
        preparation.check_confidences(splits, resolved, reporter)
    if given.inferred_triples is not None or given.rules is not None:
        splits = with_inferred(splits, given.inferred_triples, given.rules, resolved, reporter)
    return preparation.ignore_equal_weights(resolved, splits, normalizer, reporter), splits, normalizer


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
        See `train`; a tracker of the run continues its log if it is given again.

    >>> run = resume("runs/skills", epochs=100)  # doctest: +SKIP
    """
    if epochs is not None:
        epochs = SETTINGS["epochs"].coerce(epochs)
        SETTINGS["epochs"].check(epochs)
    reporter = make_reporter(progress if current_group().is_main else False)
    all_callbacks = _callbacks(callbacks, track)
    store = RunFolder.open(Path(folder), unread=True)
    given: TrainingInput | None = None
    if store.has_metadata:
        settings, splits, normalizer = store.metadata(model)
    else:
        settings, given = read_request(store, model)
    settings = replace(settings, device=choose_device(device or settings.device, settings.engine))
    group = join_group(settings.engine, settings.device)
    store.store_tables_in(make_table_storage(settings.engine, group))
    session = _Session(store, reporter, all_callbacks, deadline)
    with limited_memory(settings.memory_limit), explain_memory_errors(), store.locked():
        if given is not None:
            group.run_on_main(lambda: check_unchanged(store))
            reporter.note(f"{folder}: its input was not read to the end; it is read again")
            settings, splits, normalizer = _prepare(session, settings, given)
        checkpoint, rows = store.load_checkpoint(), store.storage.rows(len(splits.train.entities))
        if checkpoint is not None and settings.engine != "partitioned":
            check_tables(checkpoint.tables, settings, build_model(settings, splits), splits.train, Path(folder), rows)
        settings = _settings_to_resume(store, settings, checkpoint, epochs)
        if checkpoint is not None and checkpoint.progress.finished:
            done = counted(checkpoint.progress.epoch, "epochs")
            store.repair(checkpoint)
            run = load(folder, device or "auto", model=model)
            if settings.weight_mode == "separate" and (run.weight_model is None or not has_preference(store)):
                reporter.note(f"{folder}: its own model is finished after {done}; going on with the weight model")
                return _add_weight_model(session, replace(run, settings=settings))
            reporter.note(f"{folder}: already finished after {done}; give more epochs to continue")
            return run
        store.truncate_history(checkpoint.history if checkpoint else [])
        place = f"resuming after {checkpoint.progress}" if checkpoint else "no checkpoint yet; training starts again"
        reporter.note(f"{folder}: {place}")
        remove_preference(store)
        made = _remaining_phases(session, settings, splits, normalizer, checkpoint)
        return replace(made, extended=read_extended(store))


def _settings_to_resume(
    store: RunFolder, settings: Config, checkpoint: Checkpoint | None, epochs: int | None
) -> Config:
    """Return the settings of a run to resume, with more `epochs` if given, and update its checkpoint accordingly."""
    at = checkpoint.progress if checkpoint is not None else None
    done = at.epoch if at else 0
    if epochs is not None and epochs < max(done, settings.epochs):
        have = counted(max(done, settings.epochs), "epochs")
        raise FocuseError(f"{store.path}: is set to {have}; epochs can only raise the number")
    if epochs is not None and epochs > done:
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
    if settings.weight_mode == "separate":
        run.weight_model = load_weight_model(store, splits, choose_device(device))
        run.preference = read_preference(store)
    return replace(run, label_exponent_trials=read_trials(store), extended=read_extended(store))


def train_to_end(
    trainer: Trainer,
    splits: Splits,
    normalizer: Normalizer,
    callback_reporter: CallbackReporter,
    label_exponent_trials: list[LabelExponentTrial],
    complete: Callable[[Run], Run] = lambda run: run,
) -> Run:
    """Train to the end, `complete` the run and return it."""
    with callback_reporter.report_failure():
        try:
            last = trainer.run()
        except CallbackFailed as error:
            if trainer.progress.epoch and trainer.placement.in_memory:
                error.run = _make_run(trainer, trainer.checkpoint(), splits, normalizer, label_exponent_trials)
            raise
    at = last.progress
    if last.best is not None:
        mse = trainer.config.stop_metric == "mse"
        strong = " of strong triples" if trainer.config.valid_min_weight else ""
        best = f"validation MSE {-at.best_value:.4f}" if mse else f"validation MRR{strong} {at.best_value:.3f}"
        whole = at.finished == "all epochs"
        ended = f"finished all {counted(at.epoch, 'epochs')}" if whole else f"{at.finished} at epoch {at.epoch}"
        callback_reporter.note(
            f"{ended}; best {best} at epoch {at.best_epoch}, "
            f"whose embeddings are kept{'; it was still improving' if at.best_epoch == at.epoch else ''}"
        )
    run = complete(_make_run(trainer, last, splits, normalizer, label_exponent_trials))
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
    train_known: bool = False,
    epochs: int | None = None,
    remove: Any = None,
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
        New edges, from any source that `focuse.read` accepts. One that repeats a training triple replaces its weight.
    out
        Folder of the new run.
    train_known
        If False, only the embeddings of new names are trained, for `epochs` epochs on their edges, and those of known
        names stay bitwise equal. If True, all embeddings are then trained for `epochs` more epochs on all edges.
    remove
        Triples to remove.
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
    if train_known and base.settings.engine == "partitioned":
        raise FocuseError("a run trained with partitions keeps its optimizer state on disk; leave out train_known")
    reporter = make_reporter(progress)
    change = RequestedChange(edges, remove, node_attributes)
    with limited_memory(base.settings.memory_limit if train_known else None), explain_memory_errors():
        grown = build_extension(base, change, train_known, epochs, reporter)
        return (
            _continue_training(base, grown, out, reporter)
            if train_known
            else _finish_extension(base, grown, change, out)
        )


def _extend_weight_model(base: Run, model: WeightModel, change: RequestedChange) -> WeightModel:
    """Return the weight model with rows for the new names; those of known names stay bitwise equal."""
    folder = None if base.folder is None else base.folder / WEIGHT_MODEL
    splits = replace(base.splits, known_negatives=None)
    before = Run(model.settings, splits, model.normalizer, model.scorer, model.history, model.last, folder)
    grown = build_extension(before, replace(change, attributes=None), False, None, Reporter())
    bound = build_model(replace(grown.settings, device=str(model.scorer.device)), grown.splits)
    scorer, last = TableScorer(bound, grown.checkpoint.tables), grown.checkpoint
    return WeightModel(grown.settings, grown.normalizer, scorer, last.history, last)


def _finish_extension(base: Run, grown: Extension, change: RequestedChange, out: str | Path | None) -> Run:
    """Return the extended run, whose new rows are already trained."""
    model = build_model(replace(grown.settings, device=str(base.scorer.device)), grown.splits)
    scorer, last = TableScorer(model, grown.checkpoint.tables, grown.settings.reciprocal), grown.checkpoint
    made = Run(grown.settings, grown.splits, grown.normalizer, scorer, last.history, last)
    made = replace(made, label_exponent_trials=base.label_exponent_trials, extended=grown.extended)
    if base.weight_model is not None:
        made.weight_model, made.preference = _extend_weight_model(base, base.weight_model, change), base.preference
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

        def write(store: RunFolder) -> None:
            """Write the initial checkpoint, because a resume without it would start from random embeddings."""
            write_metadata(store.path, grown.settings, grown.splits, grown.normalizer)
            store.truncate_history(grown.checkpoint.history)
            store.save(trainer.checkpoint())
            write_trials(store, base.label_exponent_trials)
            write_extended(store, grown.extended)

        trainer.folder = RunFolder(Path(out))
        trainer.folder.create(write)
    session = _Session(trainer.folder, reporter, [], math.inf)
    parts = grown.splits, grown.normalizer, callback_reporter, base.label_exponent_trials
    try:
        made = train_to_end(trainer, *parts, partial(_add_weight_model, session))
    finally:
        if trainer.folder is not None:
            trainer.folder.unlock()
    *before, record = grown.extended
    record = {**record, "epochs": made.history[-1]["epoch"] - record["before"]}  # early stopping may have ended it
    if trainer.folder is not None:
        write_extended(trainer.folder, [*before, record])
    return replace(made, extended=[*before, record])
