"""Predict weights of links with a trained model, with intervals and probabilities, and evaluate them.

A confidence model (UKGE) predicts a weight for every triple by itself; any other model does so by calibration. Weights
are mapped to [0, 1] per relation (data/weights.py), so that what is learned from all relations does not depend on their
units. Curves and trees are fitted when they are first needed, and stored in the run folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from focuse.data.graph import AlignedGraph, Graph, concatenate, lookup_sorted, triple_columns
from focuse.data.out_of_core import LARGE_GRAPH
from focuse.data.readers import read
from focuse.data.splits import Splits, ValidationParts, split_validation
from focuse.data.statistics import leakage_note
from focuse.data.weights import LOG_OFFSET, ColumnMerger, Normalizer, WeightScaler, in_unit_range, strength_rule
from focuse.engines.base import ModelScorer
from focuse.errors import FocuseError
from focuse.evaluation import evaluate, weight_evaluation
from focuse.evaluation.baselines import (
    GLOBAL_MEAN,
    RELATION_MEAN,
    AnyIds,
    KeyedWeights,
    Predictor,
    WeightBaselineScorer,
    fit_weight_baselines,
    fit_zero_baseline,
    relation_means,
)
from focuse.evaluation.metrics import FloatArray, spearman
from focuse.evaluation.ranking import DIVERGED, sample_size
from focuse.evaluation.weight_evaluation import (
    THRESHOLDS,
    IntervalTable,
    ProbabilityTable,
    WeightEvaluation,
    WeightTest,
    coverage_by_relation,
    interval_coverage,
    probability_metrics,
)
from focuse.inference import fitted
from focuse.inference.calibration import (
    COVERAGE,
    METHODS,
    Calibration,
    check_base_rate,
    check_coverage,
    fit_curves,
    measure_errors,
    plain_probability,
)
from focuse.inference.link_probability import (
    ORDERED,
    PREFERRED,
    LinkEvidence,
    LinkProbability,
    at_rate_of_rows,
    best_new_links,
    fit_link_probability,
    ordering_key,
)
from focuse.inference.weight_estimator import Estimates, Estimator, conformal_rows, finish_estimator, fit_estimator
from focuse.models.base import confidence as model_confidence
from focuse.objective.negatives import corrupt_graph
from focuse.option_strings import check_seed, choose
from focuse.results import ResultTable
from focuse.system import chunks, free_memory
from focuse.training.preparation import read_test_graph

if TYPE_CHECKING:
    from focuse.api import Run
    from focuse.evaluation.preference import Prefer
    from focuse.training.weight_model import WeightModel

EXACTLY_ORDERED = 20_000  # links of all queries of a block that are ordered by the weights that are shown
LEAST_WEIGHT = 1e-3  # smaller weights in [0, 1] count as this one, because their logarithm has no bound
STRONG = THRESHOLDS["cn15k"]
TRIPLES_AT_ONCE = 1 << 18  # triples scored at once
BYTES_PER_EDGE = 500  # of memory that fitting trees to graph features takes
EVALUATED_QUERIES = 1_000  # per side, whose best new links show how good probabilities are
NO_PROBABILITIES = "no probabilities: the run has no validation triples to calibrate on (valid or valid_fraction)"
NO_CANDIDATES = "no probabilities: train and validation have all links between entities of a plausible type"
NO_VALIDATION = "the run has no validation triples to calibrate on; train with some (valid or valid_fraction)"


def order_name(has_probability: bool, exponent: float) -> str:
    """Return the name of what orders links."""
    if not exponent:
        return "probability" if has_probability else "score"
    return f"probability · weight^{exponent:g}" if has_probability else f"score + {exponent:g} · ln weight"


def places(group: AnyIds) -> AnyIds:
    """Return the place of each row [n] in its group, from 0; rows of a group are next to each other."""
    start = np.flatnonzero(np.diff(group, prepend=-1))
    return np.arange(len(group)) - np.repeat(start, np.diff(start, append=len(group)))


@dataclass(frozen=True)
class WeightPredictor:
    """The weights that a run predicts: `given_true` and `with_negatives` by calibration, `native` by the model itself.

    An `estimator` adds weights by graph features, with intervals; a `probability` adds the probability that a link is
    true, which depends on neither. `parts` are validation in disjoint parts. If `single_column`, weights are those of
    one of several columns, to which the model's own confidence does not refer.
    """

    name: str
    scorer: ModelScorer
    splits: Splits
    normalizer: Normalizer
    parts: ValidationParts
    calibration: Calibration | None = None
    estimator: Estimator | None = None
    probability: LinkProbability | None = None
    notes: tuple[str, ...] = ()
    single_column: bool = False
    weight_model: WeightModel | None = None  # its scores predict weights better than those of the run's own model
    exponent: float = 0.0  # of the weight by which links are ordered

    @cached_property
    def units(self) -> WeightScaler:
        """The unit of each relation's weights in train."""
        return WeightScaler.fit(self.splits.train, self.normalizer.arrays.get(LOG_OFFSET))

    def known_keys(self) -> Any:
        """Return the keys of all known triples."""
        return np.concatenate([graph.keys for graph in (self.splits.train, self.splits.valid, self.splits.test)])

    def fitting_keys(self) -> Any:
        """Return the keys of triples that are not negatives when fitting; test triples would leak."""
        return np.concatenate([self.splits.train.keys, self.splits.valid.keys])

    def score(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        """Return the scores of triples, ids [n] -> [n]; both directions of an undirected relation get their mean."""
        scores, pairs = self._score(head, relation, tail), self.splits.train.is_undirected[relation]
        if pairs.any():
            scores[pairs] = (scores[pairs] + self._score(tail[pairs], relation[pairs], head[pairs])) / 2
        return scores

    def weight_score(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        """Return the scores of triples from which weights are predicted: those of the weight model, if there is one."""
        if self.weight_model is None:
            return self.score(head, relation, tail)
        return replace(self, scorer=self.weight_model.scorer).score(head, relation, tail)

    def _score(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        parts = [np.empty(0)]
        for rows in chunks(len(head), TRIPLES_AT_ONCE):
            columns = (ids[rows].astype(np.int64) for ids in (head, relation, tail))
            ids = (torch.from_numpy(column).to(self.scorer.device) for column in columns)
            parts.append(self.scorer.score(*ids).double().cpu().numpy())
        return np.concatenate(parts)

    def confidence(self, score: FloatArray, relation: AnyIds) -> FloatArray:
        """Return the confidence in [0, 1] of triples with scores [n]: the model's own, or by calibration."""
        if self.scorer.model.confidence_head is not None:
            return model_confidence(self.scorer.model, torch.from_numpy(score)).numpy()
        return self._calibrated().with_negatives(score, relation)

    def _calibrated(self) -> Calibration:
        if self.calibration is None:
            raise FocuseError(NO_VALIDATION)
        return self.calibration

    # ---- predictors: ids [n] of heads, relations and tails -> weights [n] in the user's units ------------------------

    def given_true(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        weight = self._calibrated().given_true(self.weight_score(head, relation, tail), relation)
        return self.units.from_unit(weight, relation)

    def with_negatives(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        weight = self._calibrated().with_negatives(self.score(head, relation, tail), relation)
        return self.units.from_unit(weight, relation)

    def native(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        confidence = model_confidence(self.scorer.model, torch.from_numpy(self.score(head, relation, tail))).numpy()
        return self.normalizer.inverse(confidence, relation)

    # ---- columns of results: ids [n] of heads, relations and tails -> columns [n] ------------------------------------

    def predict(self, head: AnyIds, relation: AnyIds, tail: AnyIds, coverage: float = COVERAGE) -> dict[str, Any]:
        """Return the columns weight_mean, weight_median, weight_low, weight_high and probability.

        Weights are in the user's units; NaN means that there is none. The weights of triples in train are not
        predicted: their interval reaches from the lowest to the highest weight that the triple has.
        """
        columns, train = self.predict_unseen(head, relation, tail, coverage), self.splits.train
        keys = train.keys_of(head, relation, tail)
        rows = np.isin(train.keys, keys)
        known = KeyedWeights(train.keys[rows], train.weight[rows])
        for statistic, name in (("mean", "mean"), ("median", "median"), ("min", "low"), ("max", "high")):
            columns[f"weight_{name}"] = known.lookup(statistic, keys, columns[f"weight_{name}"])
        return columns

    def predict_unseen(
        self, head: AnyIds, relation: AnyIds, tail: AnyIds, coverage: float = COVERAGE
    ) -> dict[str, FloatArray]:
        """Return the columns of `predict` as if train had none of the triples."""
        nothing = np.full(len(head), np.nan)
        columns = dict.fromkeys(("weight_mean", "weight_median", "weight_low", "weight_high", "probability"), nothing)
        if self.estimator is None:
            known = nothing if self.calibration is None else self.given_true(head, relation, tail)
            chance = nothing if self.probability is None else self.probability(head, relation, tail)
            return columns | {"weight_mean": known, "weight_median": known, "probability": chance}
        found = self.estimator(head, relation, tail)
        columns["weight_mean"] = self.units.from_unit(found.mean, relation)
        columns["weight_median"] = self.units.from_unit(found.median, relation)
        if len(self.estimator.conformal):
            columns["weight_low"], columns["weight_high"] = self.interval(found, relation, coverage)
        if self.probability is not None:
            columns["probability"] = self.probability(head, relation, tail)
        return columns

    def columns_for(self, score: FloatArray, head: AnyIds, relation: AnyIds, tail: AnyIds) -> dict[str, Any]:
        """Return weights, probability, and the confidence of triples with these scores [n] as answers."""
        columns = self.predict(head, relation, tail)
        if self.scorer.side_dependent or self.splits.train.undirected:  # curves are fitted to the mean of both sides
            score = self.score(head, relation, tail)
        if self.calibration is not None or self.scorer.model.confidence_head is not None:
            columns["confidence"] = self.confidence(score.astype(np.float64), relation)
        return columns

    def interval(self, found: Estimates, relation: AnyIds, coverage: float) -> tuple[FloatArray, FloatArray]:
        """Return bounds [n] in the user's units around estimates of the estimator."""
        if self.estimator is None:
            raise FocuseError("no estimator was fitted")
        ends = self.estimator.conformal.interval(found.mean, found.scale, relation, coverage)
        return self._bounds(ends, relation)

    def _bounds(self, ends: tuple[FloatArray, FloatArray], relation: AnyIds) -> tuple[FloatArray, FloatArray]:
        low, high = reversed(ends) if self.splits.train.lower_is_better else ends
        return self.units.from_unit(low, relation), self.units.from_unit(high, relation)

    # ---- order -----------------------------------------------------------------------------------------------------

    def preferring(self, run: Run, prefer: Prefer) -> WeightPredictor:
        """Return the predictor with the order of links that `prefer` asks for."""
        exponent = run.exponent(prefer)
        return replace(self, exponent=exponent) if exponent else self

    def ordering_key(self, score: FloatArray, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        """Return the number [n] by which links with these scores [n] are ordered, the largest first.

        It is the log-odds of the probability, or ln P + c · ln ŵ with the weights ŵ of the weight model. Without
        probabilities, the score takes the place of ln P.
        """
        ids = head, relation, tail
        if self.weight_model is None or not self.exponent:
            return ordering_key(self.probability, score, ids)
        log_probability = score if self.probability is None else -np.logaddexp(0.0, -self.probability.log_odds(*ids))
        log_weight = -np.logaddexp(0.0, -self.weight_score(*ids))
        return np.asarray(log_probability + self.exponent * log_weight, np.float64)

    def shown_key(self, columns: Mapping[str, Any], relation: AnyIds) -> FloatArray | None:
        """Return the same from the columns that are shown, such that the order never contradicts them.

        None if links are not ordered by the weight, or no weights are shown.
        """
        weight, chance = columns["weight_mean"], columns["probability"]
        if self.weight_model is None or not self.exponent or np.isnan(weight).any() or np.isnan(chance).any():
            return None
        unit = np.clip(self.weight_model.normalizer.transform(weight, relation), LEAST_WEIGHT, 1.0)
        return np.asarray(np.log(np.maximum(chance, LEAST_WEIGHT**4)) + self.exponent * np.log(unit), np.float64)

    def in_shown_order(self, group: AnyIds, head: AnyIds, relation: AnyIds, tail: AnyIds, top: int) -> AnyIds:
        """Return the order of links by group [n] and `shown_key`; they are sorted by group and `ordering_key`.

        Only the first links of each group change places: twice as many as the `top` that are wanted, or more if their
        weights are predicted in a short time.
        """
        order = np.arange(len(group))
        groups = len(np.unique(group))
        first = np.flatnonzero(places(group) < max(2 * top, EXACTLY_ORDERED // max(groups, 1)))
        if not self.exponent or self.weight_model is None or not len(first):
            return order
        ids = head[first], relation[first], tail[first]
        key = self.shown_key(self.predict(*ids), ids[1])
        if key is not None:
            order[first] = first[np.lexsort((-key, group[first]))]
        return order

    @property
    def ordered_by(self) -> str:
        """The name of what orders links."""
        return order_name(self.probability is not None, self.exponent)

    def ordering_notes(self) -> list[str]:
        """Return a note on what orders the completions of a triple."""
        if self.probability is not None:
            return [PREFERRED.format(exponent=self.exponent)] if self.exponent else [ORDERED]
        return [f"{NO_PROBABILITIES}; ordered by {self.ordered_by}"]

    def caveats(self) -> tuple[str, ...]:
        """Return notes on what is missing from the columns of `predict`."""
        notes = [] if self.estimator is None else list(self.estimator.notes)
        if self.estimator is None or not len(self.estimator.conformal):
            notes.append("no intervals: validation has no rows left to measure them on (raise valid_fraction)")
        if self.calibration is None and not self.single_column:
            notes.append(NO_PROBABILITIES)
        return tuple(notes)

    # ---- fitting ---------------------------------------------------------------------------------------------------

    def unit_weights(self, graph: Graph) -> Graph:
        """Return a graph with weights in [0, 1]; those of a graph other than train may lie beyond."""
        return replace(graph, weight=self.units.to_unit(graph.weight, graph.relation), lower_is_better=False)

    def fit_calibration(self, method: str, seed: int = 0) -> Calibration | None:
        """Fit both maps to the calibration part of validation; None without validation triples."""
        valid = self.parts.calibration
        if not len(valid):
            return None
        means = relation_means(self.unit_weights(self.splits.train)).by_relation
        weight = np.clip(self.unit_weights(valid).weight, 0.0, 1.0)
        ids = valid.head, valid.relation, valid.tail
        score, of_weight = self.score(*ids), self.weight_score(*ids)
        false = corrupt_graph(valid, self.fitting_keys(), seed)
        both = np.concatenate([score, self.score(false.head, false.relation, false.tail)])
        if not (np.isfinite(both).all() and np.isfinite(of_weight).all()):
            raise FocuseError(DIVERGED)
        relations = np.concatenate([valid.relation, false.relation])
        weights = np.concatenate([weight, np.zeros(len(false))])
        return Calibration(
            method,
            fit_curves(method, of_weight, valid.relation, weight, means, increasing=False),
            fit_curves(method, both, relations, weights, means, increasing=True),
        )

    def estimator_parts(self) -> tuple[Graph, Predictor, Predictor]:
        """Return train, the scores and the simple estimates in [0, 1], as an estimator needs them."""
        train, calibration = self.unit_weights(self.splits.train), self.calibration
        if calibration is None:
            return train, self.weight_score, relation_means(train)

        def curve(head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
            return calibration.given_true(self.weight_score(head, relation, tail), relation)

        return train, self.weight_score, curve

    def fit_estimator(self, seed: int = 0, fitted_before: Estimator | None = None) -> Estimator:
        """Fit weights of unseen edges to train and to the parts of validation.

        The trees of another estimator of the same tables are used again, because they do not depend on the curves.
        """
        train, score, curve = self.estimator_parts()
        held = ValidationParts(*(self.unit_weights(getattr(self.parts, part.name)) for part in fields(ValidationParts)))
        if fitted_before is not None and fitted_before.trees:
            return finish_estimator(replace(fitted_before, curve=curve), held)
        return fit_estimator(train, held, score, curve, self.fitting_keys(), seed)


# ---- prediction ---------------------------------------------------------------------------------------------------


def predict_weights(run: Run, triples: Any, *, coverage: float = COVERAGE, column: str | None = None) -> ResultTable:
    """Predict the weights of triples; see `Run.predict_weights`."""
    check_coverage(coverage)
    graph = _read_triples(triples)
    aligned, names = graph.align(run.splits.train), run.splits.train
    rows = aligned.graph
    if not len(rows):
        for name in aligned.unseen.relation_examples[:1]:  # raises an error that suggests similar names
            names.relations.id(name, "relation")
        for name in aligned.unseen.entity_examples[:1]:
            names.entities.id(name, "entity")
        raise FocuseError(f"{graph.source}: no triples")
    predictor = weight_predictor(run, full=True)
    of_column = predictor if column is None else column_predictor(run, column)
    if of_column.estimator is None:
        raise FocuseError(NO_VALIDATION)
    ids = rows.head, rows.relation, rows.tail
    columns = of_column.predict(*ids, coverage)
    if column is not None and predictor.probability is not None:  # the probability of a link is that of all columns
        columns["probability"] = predictor.probability(*ids)
    table = {
        **triple_columns(names, *ids),
        "in_train": np.isin(names.keys_of(*ids), names.keys),
        **({"weight": rows.weight} if graph.weighted and run.splits.merger is None else {}),
        **columns,
    }
    notes = (*((str(aligned),) if str(aligned) else ()), *of_column.caveats())
    return ResultTable(table, notes=notes, info={"coverage": coverage})


def _read_triples(given: Any) -> Graph:
    """Read triples with or without weights from anything that `read` accepts, or from one triple of names."""
    if isinstance(given, Graph | str | PathLike) or not isinstance(given, Iterable):
        return read(given)
    one = isinstance(given, tuple) and len(given) in (3, 4) and all(isinstance(part, str) for part in given[:3])
    return read([given] if one else given)


def can_predict_weights(run: Run) -> bool:
    """Return whether the estimator fits into memory; otherwise, predictions have only scores."""
    free = free_memory() if len(run.splits.train) >= LARGE_GRAPH else None
    return free is None or run.fitted.estimator is not None or BYTES_PER_EDGE * len(run.splits.train) <= free


def weight_predictor(run: Run, full: bool = False) -> WeightPredictor:
    """Return the weight predictor of a run; see `Run.weight_predictor`."""
    if full and not can_predict_weights(run):
        gigabytes = BYTES_PER_EDGE * len(run.splits.train) / 1e9
        raise FocuseError(
            f"to learn the weights of {len(run.splits.train):,} edges takes about {gigabytes:.3g} GB of memory, more "
            "than is free; predict and evaluate work without"
        )
    plain, cache, relations = _plain_predictor(run), run.fitted, len(run.splits.train.relations)
    stored = run.folder, run.tables_checksum
    if cache.calibration is None:
        cache.calibration = fitted.load_calibration(*stored, relations)
    if cache.calibration is None:
        cache.calibration = plain.fit_calibration("isotonic")
        cache.store(*stored)
    known = replace(plain, calibration=cache.calibration)
    if not full:
        return known
    if cache.estimator is None:
        curves = "" if known.calibration is None else known.calibration.digest()
        cache.estimator = fitted.load_estimator(run.folder, run.tables_checksum, curves, *known.estimator_parts())
    if cache.estimator is None:
        if cache.before_fitting is not None:
            cache.before_fitting()
        cache.estimator = known.fit_estimator(run.settings.seed)
        cache.store(*stored)
    if known.calibration is None and not cache.estimator.trees:  # neither validation nor enough edges
        return known
    known = replace(known, estimator=cache.estimator)
    return replace(known, probability=link_probability(run))


def probability_predictor(run: Run) -> WeightPredictor:
    """Return a predictor of probabilities alone, which is fitted in seconds; it predicts no weights."""
    return replace(_plain_predictor(run), probability=link_probability(run))


def link_probability(run: Run) -> LinkProbability | None:
    """Return the probability of links, fitted once per run; None if the run has no validation triples."""
    cache = run.fitted
    if cache.probability is None and len(run.splits.valid):
        evidence = _evidence(run)
        cache.probability = fitted.load_probability(run.folder, run.tables_checksum, evidence)
        if cache.probability is None:
            cache.probability = _fit_probability(run, "isotonic", None)
            cache.store_probability(run.folder, run.tables_checksum)
    return cache.probability


def _evidence(run: Run) -> LinkEvidence:
    if run.fitted.evidence is None:
        plain = _plain_predictor(run)
        run.fitted.evidence = LinkEvidence(run.scorer, run.splits.train, plain.score, run.settings.seed)
    return run.fitted.evidence


def _fit_probability(run: Run, method: str, base_rate: float | None) -> LinkProbability | None:
    parts = _plain_predictor(run).parts
    made = fit_link_probability(_evidence(run), run.splits.valid, parts, method, run.settings.seed)
    return made if made is None or base_rate is None else made.at(base_rate)


def _plain_predictor(run: Run) -> WeightPredictor:
    """Return a predictor to which nothing is fitted yet."""
    parts, notes = validation_parts(run.splits.valid, run.settings.stop_fraction, run.settings.seed)
    own = run.settings.model, run.scorer, run.splits, run.normalizer
    return WeightPredictor(*own, parts, notes=notes, weight_model=run.weight_model)


def validation_parts(valid: Graph, stop_fraction: float, seed: int) -> tuple[ValidationParts, tuple[str, ...]]:
    """Split validation into disjoint parts, with a note if all of it was used for early stopping."""
    held = split_validation(valid, stop_fraction, seed)
    if not len(valid) or (len(held.calibration) and len(held.conformal)):
        return held, ()
    note = "curves and intervals are fitted to rows that also stopped the training (stop_fraction leaves no others)"
    return split_validation(valid, 0.0, seed), (note,)


def _merger(run: Run) -> ColumnMerger:
    if run.splits.merger is None:
        raise FocuseError("the run has one weight per edge; leave the weight column out")
    return run.splits.merger


def column_predictor(run: Run, name: str) -> WeightPredictor:
    """Return the predictor of one of several weight columns, with its own estimator and intervals."""
    choose("weight column", name, _merger(run).names)
    if name not in run.fitted.column_predictors:
        train, valid, test = (graph.column(name) for graph in (run.splits.train, run.splits.valid, run.splits.test))
        splits = replace(run.splits, train=train, valid=valid, test=test, merger=None)
        # The parts of validation are those of the run; rows with this column alone would be split differently.
        plain = _plain_predictor(run)
        parts = ValidationParts(*(getattr(plain.parts, part.name).column(name) for part in fields(ValidationParts)))
        normalizer = _merger(run).normalizers[_merger(run).names.index(name)]
        known = replace(plain, splits=splits, parts=parts, normalizer=normalizer, single_column=True)
        known = replace(known, calibration=known.fit_calibration("isotonic"))
        known = replace(known, estimator=known.fit_estimator(run.settings.seed))
        run.fitted.column_predictors[name] = known
    return run.fitted.column_predictors[name]


# ---- calibration --------------------------------------------------------------------------------------------------


def calibrate(run: Run, method: str | None = None, *, base_rate: float | None = None) -> Calibration:
    """Fit the maps from scores to weights and to probabilities again, and store them; see `Run.calibrate`."""
    if method is not None:
        choose("calibration", method, METHODS)
    if base_rate is not None:
        check_base_rate(base_rate)
    plain = _plain_predictor(run)
    made = plain.fit_calibration(method or "isotonic")
    if made is None:
        raise FocuseError(NO_VALIDATION)
    known = replace(plain, calibration=made)
    before = run.fitted.estimator
    if before is None:  # the trees of other curves can be used again
        before = fitted.load_estimator(run.folder, run.tables_checksum, None, *known.estimator_parts())
    run.fitted.calibration = made
    run.fitted.estimator = known.fit_estimator(run.settings.seed, before)
    run.fitted.probability = _fit_probability(run, method or "isotonic", base_rate)
    run.fitted.store(run.folder, run.tables_checksum)
    return made


def _read_negatives(run: Run, given: Any) -> AlignedGraph:
    """Read negatives in train's ids: the rows of weight 0, or all rows if the source has no weights."""
    graph = _read_triples(given)
    false = graph.select(graph.weight == 0) if graph.weighted else replace(graph, weight=np.zeros(len(graph)))
    return false.align(run.splits.train)


# ---- evaluation ---------------------------------------------------------------------------------------------------


def evaluate_weights(
    run: Run,
    test: Any = None,
    *,
    negatives: Any = None,
    ndcg_queries: Any = None,
    strong_above: float = STRONG,
    coverage: float = COVERAGE,
    estimator: bool = True,
) -> WeightEvaluation:
    """Evaluate predicted weights; see `Run.evaluate_weights`."""
    if not isinstance(strong_above, int | float) or not 0 <= strong_above <= 1:
        raise FocuseError(f"strong_above {strong_above!r}: give a weight in [0, 1]")
    check_coverage(coverage)
    aligned = _test(run, test)
    false = None if negatives is None else _test_negatives(run, negatives)
    queries = None if ndcg_queries is None else read_test_graph(ndcg_queries, run.settings, run.splits)
    if queries is not None and not len(queries.graph):
        raise FocuseError(f"{queries.graph.source}: no query with names that train has")
    return _evaluate(weight_predictor(run, full=estimator), aligned, false, queries, strong_above, coverage)


def evaluate_weight_columns(run: Run, test: Any = None, *, coverage: float = COVERAGE) -> dict[str, WeightEvaluation]:
    """Evaluate each of several weight columns; see `Run.evaluate_weight_columns`."""
    aligned, found = _test(run, test), {}
    for name in _merger(run).names:
        of_column, predictor = replace(aligned, graph=aligned.graph.column(name)), column_predictor(run, name)
        trees = predictor.estimator is not None and predictor.estimator.trees
        # A column of few edges may be missing in every part of validation.
        if len(of_column.graph) and (predictor.calibration is not None or trees):
            found[name] = _evaluate(predictor, of_column, None, None, STRONG, coverage)
    return found


def _test(run: Run, test: Any) -> AlignedGraph:
    aligned = run.splits.aligned_test if test is None else read_test_graph(test, run.settings, run.splits)
    if not len(aligned.graph):
        raise FocuseError(str(aligned) or "the run has no test split; give a test graph")
    return aligned


def _test_negatives(run: Run, given: Any) -> AlignedGraph:
    aligned = _read_negatives(run, given)
    if not len(aligned.graph):
        raise FocuseError(f"{aligned.graph.source}: no triple of weight 0 with names that train has; give negatives")
    return aligned


def _evaluate(
    predictor: WeightPredictor,
    aligned: AlignedGraph,
    negatives: AlignedGraph | None,
    queries: AlignedGraph | None,
    threshold: float,
    coverage: float,
) -> WeightEvaluation:
    """Evaluate weights under every protocol, intervals and nDCG; negatives and queries are drawn if not given."""
    train, valid, test = predictor.splits.train, predictor.splits.valid, aligned.graph
    notes = [str(part) for part in (aligned, negatives, queries) if part is not None and part.unseen.rows]
    notes += [line for line in [leakage_note(train, test)] if line]
    notes += [] if test.weighted else [f"{test.source}: it has no weights, every weight is taken as 1"]
    notes += [*predictor.notes, *(predictor.estimator.notes if predictor.estimator is not None else ())]
    false = held = None
    if not train.lower_is_better and in_unit_range(train.weight) and in_unit_range(test.weight):
        known = np.concatenate([predictor.known_keys(), test.keys])
        false = corrupt_graph(test, known, 0) if negatives is None else negatives.graph
        held = WeightTest(valid, corrupt_graph(valid, predictor.fitting_keys(), 1)) if len(valid) else None
    else:
        notes.append("protocols with negatives are skipped: they need weights in [0, 1]")
    weight_test = WeightTest(test, false)
    evaluated = [weight_test.with_negatives, *([] if held is None else [held.with_negatives])]
    estimates = None
    if predictor.estimator is not None:
        rows = predictor.unit_weights(conformal_rows(predictor.estimator, predictor.parts))
        estimates = _precompute(predictor.estimator, [*evaluated, rows])
    named = _predictors(predictor, estimates)
    positive, with_negatives = ({name: pair[index] for name, pair in named.items()} for index in (0, 1))
    table = weight_evaluation.evaluate_weights(weight_test, train, positive, with_negatives, threshold, held)
    every = [train, valid, predictor.splits.test]
    asked = queries.graph if queries is not None else evaluate.ndcg_queries(test, every)
    gains, rule = {}, strength_rule(train)
    if sample_size(predictor.scorer, None, len(train.entities)) is None:
        gains[predictor.name] = evaluate.ndcg(predictor.scorer, asked, rule=rule)
    else:
        notes.append(f"no nDCG of {predictor.name}: it is too slow to score all {len(train.entities):,} entities")
    # If lower is better, weights are ranked by strength, and 0 is the strongest instead of no link.
    strengths = predictor.unit_weights(train) if train.lower_is_better else train
    ranked = fit_weight_baselines(strengths) | ({} if train.lower_is_better else fit_zero_baseline(train))
    for name, baseline in ranked.items():
        gains[name] = evaluate.ndcg(WeightBaselineScorer(baseline, train, predictor.scorer.device), asked, rule=rule)
    notes += _verdict(predictor, test, table, positive)
    intervals = None if estimates is None else _intervals(predictor, estimates, test, rows, coverage)
    return replace(table, notes=(*table.notes, *notes), ndcg=gains, intervals=intervals)


Lookup = Callable[[str, AnyIds, AnyIds, AnyIds], FloatArray]


def _precompute(estimator: Estimator, graphs: Sequence[Graph]) -> Lookup:
    """Estimate every distinct triple once, and return a function from the name of an estimate and ids [n] to [n]."""
    every = concatenate(graphs)
    keys, first = np.unique(every.keys, return_index=True)
    found = estimator(every.head[first], every.relation[first], every.tail[first])

    def lookup(name: str, *ids: AnyIds) -> FloatArray:
        return lookup_sorted(keys, getattr(found, name), estimator.train.keys_of(*ids), np.nan)

    return lookup


def _predictors(predictor: WeightPredictor, estimates: Lookup | None) -> dict[str, tuple[Predictor, Predictor]]:
    """Return the predictors of weights by name, for true triples and for those that may be false."""

    def by(estimate: str) -> Predictor:
        def predict(head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
            return predictor.units.from_unit(estimates(estimate, head, relation, tail), relation)  # type: ignore[misc]

        return predict

    name, named = predictor.name, {}
    if predictor.estimator is not None and predictor.estimator.trees:
        named[f"{name}, mean"] = by("mean"), by("with_negatives")
        named[f"{name}, median"] = by("median"), by("with_negatives_median")
    if predictor.scorer.model.confidence_head is not None and not predictor.single_column:
        named[name] = predictor.native, predictor.native
    if predictor.calibration is not None:
        named[f"{name}, {predictor.calibration.method}"] = predictor.given_true, predictor.with_negatives
    if not named:
        raise FocuseError(NO_VALIDATION)
    return named


def _verdict(
    predictor: WeightPredictor, test: Graph, table: WeightEvaluation, named: dict[str, Predictor]
) -> list[str]:
    """Return warnings about weights that are not useful; heavy-tailed ones are compared by their logarithms."""
    errors = {name: row["positives"].errors.mse for name, row in table.rows.items() if "positives" in row}
    if predictor.units.offset is not None:
        ids, scaled = (test.head, test.relation, test.tail), predictor.unit_weights
        weights = {name: scaled(replace(test, weight=predict(*ids))).weight for name, predict in named.items()}
        weights[RELATION_MEAN] = relation_means(scaled(predictor.splits.train))(*ids)
        truth = scaled(test).weight
        errors = {name: float(np.mean((weight - truth) ** 2)) for name, weight in weights.items()}
    worse = [name for name in named if not errors[name] < errors[RELATION_MEAN]]
    notes = [f"{name} does not beat the relation mean on the test triples" for name in worse]
    order = spearman(predictor.weight_score(test.head, test.relation, test.tail), predictor.unit_weights(test).weight)
    scorer = "the model" if predictor.weight_model is None else "the weight model"
    if order < -2 / np.sqrt(max(len(test) - 1, 1)):  # a smaller correlation may be due to chance
        notes.append(f"{scorer} scores weak triples above strong ones (Spearman {order:.2f}); its ranks say little")
    return notes


def _intervals(
    predictor: WeightPredictor, estimates: Lookup, test: Graph, rows: Graph, coverage: float
) -> IntervalTable | None:
    """Return coverage and width of intervals on test, and of intervals of constant width; None without rows."""
    made = predictor.estimator
    if made is None or not len(made.conformal):
        return None
    ids = test.head, test.relation, test.tail
    ends = made.conformal.interval(estimates("mean", *ids), estimates("scale", *ids), test.relation, coverage)
    bounds = {f"{predictor.name}, mean ± scale": predictor._bounds(ends, test.relation)}
    baselines = fit_weight_baselines(predictor.unit_weights(predictor.splits.train))
    centers: dict[str, Predictor] = {
        f"{predictor.name}, mean": lambda *triples: estimates("mean", *triples),
        RELATION_MEAN: baselines[RELATION_MEAN],
        GLOBAL_MEAN: baselines[GLOBAL_MEAN],
    }
    for name, center in centers.items():  # the same width in [0, 1] for all triples
        at_rows, at_test = (np.clip(center(g.head, g.relation, g.tail), 0.0, 1.0) for g in (rows, test))
        zeros, zero_ids = np.zeros(len(rows)), np.zeros(len(rows), np.int64)
        errors = measure_errors(rows.weight, at_rows, zeros, zero_ids, 1)
        ends = errors.interval(at_test, np.zeros(len(test)), np.zeros(len(test), np.int64), coverage)
        bounds[f"{name} ± constant"] = predictor._bounds(ends, test.relation)
    low, high = bounds[f"{predictor.name}, mean ± scale"]
    own = made.conformal.quantiles(coverage).own
    relations = coverage_by_relation(low, high, test.weight, test.relation, list(test.relations), own)
    coverages = {name: interval_coverage(*pair, test.weight) for name, pair in bounds.items()}
    return IntervalTable(coverage, len(rows), coverages, relations)


def evaluate_probabilities(run: Run, test: Any = None, *, negatives: Any = None, seed: int = 0) -> ProbabilityTable:
    """Evaluate the probability that a link is true; see `Run.evaluate_probabilities`."""
    seed, aligned, made = check_seed(seed), _test(run, test), link_probability(run)
    given = None if negatives is None else _test_negatives(run, negatives)
    if made is None:
        raise FocuseError(NO_CANDIDATES if len(run.splits.valid) else NO_VALIDATION)
    notes = [str(part) for part in (aligned, given) if part is not None and part.unseen.rows]
    if given is None:
        both = _best_links(run, made, seed)
        label = np.isin(both.keys, aligned.graph.keys).astype(np.float64)
        held, lacking = len(np.unique(aligned.graph.keys)), len(np.unique(run.splits.valid.keys))
        notes.append(
            f"the best new links of random heads and tails; {held:,} test triples are true, and probabilities are for "
            f"as many as validation has, {lacking:,}"
        )
    else:
        both = concatenate([aligned.graph, given.graph])
        label = np.repeat([1.0, 0.0], [len(aligned.graph), len(given.graph)])
        notes.append("test negatives are given; odds are scaled to their share")
    ids = both.head, both.relation, both.tail
    after = made(*ids) if given is None else at_rate_of_rows(made(*ids), float(label.mean()))
    rows = {
        "before: logistic of the score": probability_metrics(plain_probability(made.evidence.score(*ids)), label),
        f"after: {made.method}": probability_metrics(after, label),
    }
    positives, rate = int(label.sum()), float(label.mean())
    return ProbabilityTable(rows, positives, len(both) - positives, rate, both, after, label, tuple(notes))


def _best_links(run: Run, made: LinkProbability, seed: int) -> Graph:
    """Return the best links of random queries of train that neither train nor validation has."""
    head, relation, tail = best_new_links(made.evidence, run.splits.valid, EVALUATED_QUERIES, seed)
    train = run.splits.train
    if not len(head):
        raise FocuseError(NO_CANDIDATES)
    rows = train.select(np.zeros(len(head), np.int64))
    h, r, t = (ids.astype(np.int32) for ids in (head, relation, tail))
    return replace(rows, head=h, relation=r, tail=t)
