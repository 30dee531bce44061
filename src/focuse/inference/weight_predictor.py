"""Predict weights of links with a trained model, with intervals and probabilities, and evaluate them.

A confidence model (UKGE) gives a weight for every triple by itself; any other model gives one by calibration. Weights
are mapped to [0, 1] per relation (data/weights.py), so that what is learned from all relations does not depend on their
units. Curves and forests are fitted when they are first needed, and stored in the run folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError

from focuse.config import Config
from focuse.data.graph import AlignedGraph, Graph, concatenate, find_sorted
from focuse.data.out_of_core import LARGE_GRAPH
from focuse.data.readers import read
from focuse.data.splits import Splits, ValidationParts, split_validation
from focuse.data.weights import ColumnMerger, Normalizer, WeightScaler, in_unit_range
from focuse.engines.base import ModelScorer
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError
from focuse.evaluation.baselines import (
    GLOBAL_MEAN,
    RELATION_MEAN,
    AnyIds,
    Predictor,
    WeightBaselineScorer,
    fit_weight_baselines,
    fit_zero_baseline,
)
from focuse.evaluation.evaluate import ndcg, ndcg_queries
from focuse.evaluation.metrics import NDCG, FloatArray, spearman
from focuse.evaluation.ranking import sample_size
from focuse.evaluation.weight_evaluation import WeightTable, WeightTest, evaluate_weights
from focuse.evaluation.weight_metrics import (
    IntervalTable,
    ProbabilityTable,
    coverage_by_relation,
    interval_coverage,
    probability_metrics,
)
from focuse.inference import keeping
from focuse.inference.answers import Weighed, Weighings, answers
from focuse.inference.calibration import (
    BASE_RATE,
    COVERAGE,
    LAYOUT,
    METHODS,
    Calibration,
    Probability,
    check_base_rate,
    check_coverage,
    fingerprint,
    fit_curves,
    fit_probability,
    measure,
    plain_probability,
)
from focuse.inference.weight_estimator import Estimator, Table, finish, fit, measuring
from focuse.models.base import confidence as model_confidence
from focuse.objective.negatives import corrupt_graph
from focuse.option_strings import choose
from focuse.system import free_memory
from focuse.training.preparation import read_test_graph

STRONG = 0.85  # UKGE's threshold for CN15K and NL27K
AT_ONCE = 1 << 18  # triples scored at once


@dataclass(frozen=True)
class WeightPredictor:
    """A run's weights: `facts` and `doubting` by calibration, `own` by the model itself if it has a confidence.

    With an `estimator` also what an edge is expected to weigh by all that train and score say, and an interval; with a
    `probability` how likely it is a fact. `held` is validation in disjoint parts.
    """

    name: str
    scorer: ModelScorer
    splits: Splits
    normalizer: Normalizer
    calibration: Calibration | None = None
    held: ValidationParts | None = None
    estimator: Estimator | None = None
    probability: Probability | None = None
    notes: tuple[str, ...] = ()
    one_of_many: bool = False  # a weight column by itself: the model's own confidence is about all of them

    @cached_property
    def units(self) -> WeightScaler:
        """The unit of each relation's weights, by train."""
        return WeightScaler.fit(self.splits.train)

    @property
    def parts(self) -> ValidationParts:
        """Validation in parts; all of it is for fitting where nothing else was said."""
        valid = self.splits.valid
        nothing = valid.select(np.empty(0, np.int64))
        return ValidationParts(nothing, valid, nothing) if self.held is None else self.held

    def score(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        """Scores of triples, ids [n] -> [n]."""
        parts = []
        for start in range(0, len(head), AT_ONCE):
            columns = (ids[start : start + AT_ONCE].astype(np.int64) for ids in (head, relation, tail))
            ids = (torch.from_numpy(column).to(self.scorer.device) for column in columns)
            parts.append(self.scorer.score(*ids).double().cpu().numpy())
        return np.concatenate(parts) if parts else np.empty(0)

    # ---- weights of scored triples: score [n], relation [n] -> [n] -------------------------------------------------

    def expected(self, score: FloatArray, relation: AnyIds) -> FloatArray:
        """What each link would weigh if it is one, in the user's units."""
        return self.units.from_unit(self._calibrated().facts(score, relation), relation)

    def confidence(self, score: FloatArray, relation: AnyIds) -> FloatArray:
        """The confidence in each triple, in [0, 1]: the model's own if it has one, else the doubting calibration."""
        if self.scorer.model.confidence_head is not None:
            return model_confidence(self.scorer.model, torch.from_numpy(score)).numpy()
        return self._calibrated().doubting(score, relation)

    # ---- predictors: ids [n] of heads, relations and tails -> weights [n] ------------------------------------------

    def facts(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        return self.expected(self.score(head, relation, tail), relation)

    def doubting(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        return self.units.from_unit(self._calibrated().doubting(self.score(head, relation, tail), relation), relation)

    def own(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        share = model_confidence(self.scorer.model, torch.from_numpy(self.score(head, relation, tail))).numpy()
        return self.normalizer.inverse(share, relation)

    # ---- by estimator: ids [n] of heads, relations and tails -> weights [n] ----------------------------------------

    def tell(self, head: AnyIds, relation: AnyIds, tail: AnyIds, coverage: float = COVERAGE) -> dict[str, FloatArray]:
        """expected, typical, low, high (in the user's units) and probability, [n] each; NaN where there is none.

        A fact of train is not guessed: `known` is 1 there, else 0, and its weights lie between the least and the
        greatest that it has.
        """
        told = self.guess(head, relation, tail, coverage)
        asked, train = self.splits.train.keys_of(head, relation, tail), self.splits.train
        rows = np.isin(train.keys, asked)
        facts = Table.of(train.keys[rows], train.weight[rows])
        known = find_sorted(facts.keys, asked)[1]
        for name, column in (("expected", "mean"), ("typical", "middle"), ("low", "least"), ("high", "greatest")):
            told[name] = np.where(known, facts.get(column, asked), told[name])
        return {**told, "known": known.astype(np.float64)}

    def guess(self, head: AnyIds, relation: AnyIds, tail: AnyIds, coverage: float = COVERAGE) -> dict[str, FloatArray]:
        """The same as if none of them were known, without `known`."""
        nothing = np.full(len(head), np.nan)
        if self.estimator is None:
            known = nothing if self.calibration is None else self.facts(head, relation, tail)
            return {**dict.fromkeys(("low", "high", "probability"), nothing), "expected": known, "typical": known}
        found = self.estimator(head, relation, tail)
        shares = {"expected": found.expected, "typical": found.typical}
        if len(self.estimator.conformal):
            ends = self.estimator.interval(found, relation, coverage)
            low, high = reversed(ends) if self.splits.train.lower_is_better else ends
            shares |= {"low": low, "high": high}
        told = {name: self.units.from_unit(share, relation) for name, share in shares.items()}
        probable = nothing if self.probability is None else self.probable(head, relation, tail)
        return {"low": nothing, "high": nothing, **told, "probability": probable}

    def caveats(self) -> tuple[str, ...]:
        """What someone should know who reads what is told."""
        made = self.estimator
        notes = [] if made is None else list(made.notes)
        if made is None or not len(made.conformal):
            notes.append("no intervals: validation has no rows left to measure them on (--valid-fraction)")
        if self.calibration is None and not self.one_of_many:
            notes.append("no probabilities: the run has no validation triples to calibrate on (--valid-fraction)")
        return tuple(notes)

    def probable(
        self, head: AnyIds, relation: AnyIds, tail: AnyIds, probability: Probability | None = None
    ) -> FloatArray:
        """The probability [n] that each triple is a fact, by the run's curves or others."""
        made = probability or self.probability
        if made is None:
            raise FocuseError("the run has no validation triples to calibrate on; train with some (--valid-fraction)")
        link = None if self.estimator is None else self.estimator(head, relation, tail).link
        return made.of(self.score(head, relation, tail), link, relation)

    def _by(self, name: str) -> Predictor:
        """One of the estimator's numbers as a predictor in the user's units."""

        def predictor(head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
            if self.estimator is None:
                raise FocuseError("no estimator was fitted")
            return self.units.from_unit(getattr(self.estimator(head, relation, tail), name), relation)

        return predictor

    def _calibrated(self) -> Calibration:
        if self.calibration is None:
            raise FocuseError("the run has no validation triples to calibrate on; train with some (--valid-fraction)")
        return self.calibration

    # ---- fitting and judging ---------------------------------------------------------------------------------------

    def known_keys(self) -> Any:
        graphs = (self.splits.train, self.splits.valid, self.splits.test)
        return np.concatenate([graph.keys for graph in graphs])

    def fitting_keys(self) -> Any:
        """Facts that no negative may be while something is fitted; those of test would tell what is to be judged."""
        return np.concatenate([self.splits.train.keys, self.splits.valid.keys])

    def fit(self, method: str, seed: int = 0) -> Calibration | None:
        """Both maps, fitted on the calibration part of validation; None without validation triples."""
        train, valid = self._shared(self.splits.train), self.parts.calibration
        if not len(valid):
            return None
        means = fit_weight_baselines(train)[RELATION_MEAN].unlinked(np.arange(len(train.relations)))
        share = np.clip(self._shared(valid).weight, 0.0, 1.0)
        score = self.score(valid.head, valid.relation, valid.tail)
        false = corrupt_graph(valid, self.fitting_keys(), seed)
        both = concatenate([valid, false])
        everything = np.concatenate([score, self.score(false.head, false.relation, false.tail)])
        shares = np.concatenate([share, np.zeros(len(false))])
        if not np.isfinite(everything).all():
            raise FocuseError("the model gives scores that are not finite: training diverged; lower the learning rate")
        return Calibration(
            method,
            fit_curves(method, score, valid.relation, share, means, doubting=False),
            fit_curves(method, everything, both.relation, shares, means, doubting=True),
        )

    def estimator_parts(self) -> tuple[Graph, Predictor, Predictor]:
        """Train in shares, the scores, and the plain guess in shares, as an estimator takes them."""
        train = self._shared(self.splits.train)
        mean = fit_weight_baselines(train)[RELATION_MEAN]

        def plain(head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
            if self.calibration is None:
                return mean(head, relation, tail)
            return self.calibration.facts(self.score(head, relation, tail), relation)

        return train, self.score, plain

    def fit_estimator(self, seed: int = 0, learnt: Estimator | None = None) -> Estimator:
        """The weights of unseen edges, from train and the parts of validation.

        Forests that another estimator of the same tables has `learnt` serve again: they know nothing of the curves.
        """
        train, score, plain = self.estimator_parts()
        parts = self.parts
        held = ValidationParts(*(self._shared(part) for part in (parts.stopping, parts.calibration, parts.conformal)))
        if learnt is not None and learnt.forests:
            return finish(replace(learnt, curve=plain), held)
        return fit(train, held, score, plain, self.fitting_keys(), seed)

    def _shared(self, graph: Graph) -> Graph:
        """In shares; held-out ones may lie beyond [0, 1], as weights that are asked for later may."""
        return replace(graph, weight=self.units.to_unit(graph.weight, graph.relation), lower_is_better=False)

    def intervals(self, test: Graph, coverage: float = COVERAGE) -> IntervalTable | None:
        """Coverage and width on test beside intervals of constant width; None without conformal rows."""
        made = self.estimator
        if made is None or not len(made.conformal):
            return None
        rows, asked = self._shared(measuring(made, self.parts)), self._shared(test)
        found = self.guess(test.head, test.relation, test.tail, coverage)
        names = {f"{self.name}, expected ± spread": (found["low"], found["high"])}
        trivial = fit_weight_baselines(self._shared(self.splits.train))
        middles: dict[str, Predictor] = {
            f"{self.name}, expected ± constant": lambda *ids: made(*ids).expected,
            f"{RELATION_MEAN} ± constant": trivial[RELATION_MEAN],
            f"{GLOBAL_MEAN} ± constant": trivial[GLOBAL_MEAN],
        }
        for name, middle in middles.items():
            names[name] = self._constant(middle, rows, asked, coverage)
        own = made.conformal.quantiles(coverage).own
        kinds = coverage_by_relation(found["low"], found["high"], test.weight, test.relation, list(test.relations), own)
        figures = {name: interval_coverage(low, high, test.weight) for name, (low, high) in names.items()}
        return IntervalTable(coverage, len(rows), figures, kinds)

    def _constant(self, middle: Predictor, rows: Graph, asked: Graph, coverage: float) -> tuple[FloatArray, FloatArray]:
        """Bounds [n] of `asked` by the plain form: the same width in shares on each side, whatever the relation.

        Both graphs are in shares, and so is what `middle` gives.
        """
        guess, ask = (np.clip(middle(part.head, part.relation, part.tail), 0.0, 1.0) for part in (rows, asked))
        made = measure(rows.weight, guess, np.zeros(len(rows)), np.zeros(len(rows), np.int64), 1)
        ends = made.interval(ask, np.zeros(len(asked)), np.zeros(len(asked), np.int64), coverage)
        low, high = reversed(ends) if self.splits.train.lower_is_better else ends
        return self.units.from_unit(low, asked.relation), self.units.from_unit(high, asked.relation)

    def judge(
        self,
        aligned: AlignedGraph,
        negatives: AlignedGraph | None,
        queries: AlignedGraph | None,
        threshold: float,
        seed: int = 0,
        coverage: float = COVERAGE,
    ) -> WeightEvaluation:
        """Weights of a test set under every protocol, and nDCG; what is not given is drawn or taken from the graph."""
        train, valid, test = self.splits.train, self.splits.valid, aligned.graph
        notes = [str(part) for part in (aligned, negatives, queries) if part is not None and part.unseen.rows]
        notes += [*_doubts(test, negatives is not None), *self.notes]
        notes += self.estimator.notes if self.estimator is not None else ()
        unit = not train.lower_is_better and in_unit_range(train.weight) and in_unit_range(test.weight)
        known = np.concatenate([self.known_keys(), test.keys])
        false = None
        if not unit:
            notes.append("no protocol with negatives: that a false triple weighs 0 means something in [0, 1] only")
        else:
            false = corrupt_graph(test, known, seed)
            if negatives is not None:  # a file of UKGE's holds the facts, too
                false = negatives.graph.select(negatives.graph.weight == 0)
        held = WeightTest(valid, corrupt_graph(valid, self.fitting_keys(), seed + 1)) if unit and len(valid) else None
        named = self._named()
        doubting = {name: rows[1] for name, rows in named.items()}
        table = evaluate_weights(
            WeightTest(test, false), train, {name: rows[0] for name, rows in named.items()}, doubting, threshold, held
        )
        every = [train, valid, self.splits.test]
        asked = queries.graph if queries is not None else ndcg_queries(test, every)
        dear = sample_size(self.scorer, None, len(train.entities)) is not None
        gains = {} if dear else {self.name: ndcg(self.scorer, asked)}
        if dear:
            notes.append(f"no nDCG of {self.name}: to score all {len(train.entities):,} entities takes it too long")
        for name, row in {**fit_weight_baselines(train), **fit_zero_baseline(train)}.items():
            gains[name] = ndcg(WeightBaselineScorer(row, train, device=self.scorer.device), asked)
        notes += self._verdict(test, table)
        table = replace(table, notes=(*table.notes, *notes))
        return WeightEvaluation(table, gains, self.intervals(test, coverage))

    def _verdict(self, test: Graph, table: WeightTable) -> list[str]:
        """What the figures mean for someone who wants to use the weights."""
        errors = {name: row["positives"].errors.mse for name, row in table.rows.items() if "positives" in row}
        mean = errors[RELATION_MEAN]
        beaten = [name for name in self._named() if not errors[name] < mean]
        notes = [f"{name} does not beat the relation's mean on the facts of test" for name in beaten]
        order = spearman(self.score(test.head, test.relation, test.tail), self._shared(test).weight)
        if order < -2 / np.sqrt(max(len(test) - 1, 1)):  # less is chance
            notes.append(f"the model scores weak facts above strong ones (Spearman {order:.2f}); its ranks say little")
        return notes

    def _named(self) -> Mapping[str, Any]:
        """Name -> its predictor of facts and its doubting one."""
        named: dict[str, Any] = {}
        if self.estimator is not None and self.estimator.forests:
            named[f"{self.name}, expected"] = (self._by("expected"), self._by("doubting"))
            named[f"{self.name}, typical"] = (self._by("typical"), self._by("doubting_typical"))
        if self.scorer.model.confidence_head is not None and not self.one_of_many:
            named[self.name] = (self.own, self.own)
        if self.calibration is not None:
            named[f"{self.name}, {self.calibration.method}"] = (self.facts, self.doubting)
        if not named:
            self._calibrated()
        return named


def _doubts(test: Graph, has_negatives: bool) -> list[str]:
    """What looks like another file than was meant."""
    if not test.weighted:
        return [f"{test.source}: no weights given, every one is taken for 1"]
    nothing = int((test.weight == 0).sum())
    if nothing >= max(2, len(test) // 4) and not has_negatives:
        return [f"{test.source}: {nothing:,} triples of weight 0 count as facts; if they are false, give --negatives"]
    return []


@dataclass(frozen=True)
class WeightEvaluation:
    """Errors by protocol, intervals and nDCG; `print` shows tables, `to_dict` is what `--json` prints."""

    table: WeightTable
    gains: Mapping[str, NDCG]
    intervals: IntervalTable | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.table.to_dict(),
            "ndcg": {name: gain.to_dict() for name, gain in self.gains.items()},
            "intervals": None if self.intervals is None else self.intervals.to_dict(),
        }

    def __str__(self) -> str:
        queries = next(iter(self.gains.values())).queries
        width = max(map(len, self.gains))
        lines = [f"nDCG: every known tail among all entities ({queries:,} queries, ties worst)"]
        lines.append(f"{'':{width}}{'linear':>10}{'exponential':>13}")
        for name, gain in self.gains.items():
            figures = ["–" if np.isnan(value) else f"{value:.4f}" for value in (gain.linear, gain.exponential)]
            lines.append(f"{name:{width}}{figures[0]:>10}{figures[1]:>13}")
        ranges = [] if self.intervals is None else [str(self.intervals)]
        return "\n\n".join([str(self.table), *ranges, "\n".join(lines)])


FEWEST_STEPS = 500  # facts from which steps (isotonic) are chosen before a line of two numbers (Platt)
EDGE_BYTES = 500  # of memory that forests take to learn from an edge's surroundings
FEWEST_NEGATIVES = 10  # of one's own; probabilities of fewer would be made up
NO_VALIDATION = "the run has no validation triples to calibrate on; train with some (--valid-fraction)"


def held_parts(valid: Graph, stop_fraction: float, seed: int) -> tuple[ValidationParts, tuple[str, ...]]:
    """Validation in disjoint parts, with a note where all of it has stopped the training."""
    held = split_validation(valid, stop_fraction, seed)
    if not len(valid) or (len(held.calibration) and len(held.conformal)):
        return held, ()
    note = "maps and intervals are fitted on the rows that also stopped the training (stop_fraction leaves no others)"
    return split_validation(valid, 0.0, seed), (note,)


class WeightMethods:
    """The part of a `Run` that answers about weights and probabilities."""

    settings: Config
    splits: Splits
    normalizer: Normalizer
    scorer: TableScorer
    folder: Path | None
    tables_checksum: str
    calibration_stored: bool
    _calibration: Calibration | None
    _fitted: dict[str, Any]
    before_fitting: Callable[[], None] | None = None  # called before what may take minutes, the first time only

    # ---- answers --------------------------------------------------------------------------------------------------

    def predict_weight(
        self, head: str, relation: str, tail: str, *, coverage: float = COVERAGE, column: str | None = None
    ) -> Weighed:
        """What one triple would weigh: expected and typical weight, an interval, and the probability that it is a fact.

        `run.predict_weight("MLEngineer", "requiresSkill", "Python").expected` is in the graph's units. `column` as for
        `predict_weights`.
        """
        names = self.splits.train
        h, t = names.entities.id(head, "entity"), names.entities.id(tail, "entity")
        ids = np.array([h]), np.array([names.relations.id(relation, "relation")]), np.array([t])
        return self._answers(*ids, check_coverage(coverage), column)[0]

    def predict_weights(self, triples: Any, *, coverage: float = COVERAGE, column: str | None = None) -> Weighings:
        """The same for many: a graph, a file, or rows (head, relation, tail) with or without a weight.

        Rows with names that train has never seen are left out; `notes` of the result says so. Of a run with several
        weight columns it is the merged weight, in [0, 1], or that of one `column`, in its own units.
        """
        check_coverage(coverage)
        graph = _read_triples(triples)
        aligned = graph.align(self.splits.train)
        if not len(aligned.graph):
            self._name_unknown(aligned)
            raise FocuseError(f"{graph.source}: no triples to weigh")
        rows = aligned.graph
        weighed = self._answers(rows.head, rows.relation, rows.tail, coverage, column)
        weighed.notes = (*((str(aligned),) if str(aligned) else ()), *weighed.notes)
        if graph.weighted and self.splits.merger is None:
            weighed.truth = rows.weight
        return weighed

    def _name_unknown(self, aligned: AlignedGraph) -> None:
        """Raise for the first name that train has never seen, with what comes nearest to it."""
        names = self.splits.train
        for name in aligned.unseen.relation_examples[:1]:
            names.relations.id(name, "relation")
        for name in aligned.unseen.entity_examples[:1]:
            names.entities.id(name, "entity")

    def _answers(self, head: AnyIds, relation: AnyIds, tail: AnyIds, coverage: float, column: str | None) -> Weighings:
        whole = self.weight_predictor(full=True)
        asked = whole if column is None else self._column_weigher(column)
        weighed = answers(asked, head, relation, tail, coverage)
        if column is not None and whole.probability is not None:  # that of a link, whichever number is asked for
            weighed.columns["probability"] = whole.probable(head, relation, tail)
        return weighed

    def evaluate_weights(
        self,
        test: Any = None,
        *,
        negatives: Any = None,
        queries: Any = None,
        threshold: float = STRONG,
        coverage: float = COVERAGE,
        forests: bool = True,
    ) -> WeightEvaluation:
        """How well weights are predicted: errors by protocol beside trivial rows, intervals, calibration, nDCG.

        `negatives` are triples of weight 0 (rows of another weight are passed over, so UKGE's `test_with_neg` files
        serve as they are; drawn if not given), `queries` the facts of nDCG's queries (else test's, with all their
        known tails), `threshold` the weight above which a fact is strong, `coverage` what intervals promise.
        Without `forests` only the model itself and its calibration are judged, which takes seconds.
        """
        if not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
            raise FocuseError(f"threshold {threshold!r}: give a weight in [0, 1]")
        check_coverage(coverage)
        aligned = self._test(test)
        false = None if negatives is None else self._negatives(negatives)
        asked = None if queries is None else read_test_graph(queries, self.settings, self.splits)
        if asked is not None and not len(asked.graph):
            raise FocuseError(f"{asked.graph.source}: no query with names that train has")
        return self.weight_predictor(full=forests).judge(aligned, false, asked, threshold, coverage=coverage)

    def evaluate_probabilities(self, test: Any = None, *, negatives: Any = None, seed: int = 0) -> ProbabilityTable:
        """Brier score, calibration error and reliability of the probability that a triple is a fact, before and after.

        `negatives` as for `weigh`. Judged at the share of facts that test and negatives have together. `svg()` of the
        result draws the diagram.
        """
        aligned, predictor = self._test(test), self.weight_predictor(full=True)
        facts = aligned.graph
        given = None if negatives is None else self._negatives(negatives)
        false = corrupt_graph(facts, predictor.known_keys(), seed) if given is None else given.graph
        false = false if given is None else false.select(false.weight == 0)
        rate = len(facts) / (len(facts) + len(false))
        head, relation, tail = (
            np.concatenate([getattr(part, name) for part in (facts, false)]) for name in ("head", "relation", "tail")
        )
        truth = np.repeat([1.0, 0.0], [len(facts), len(false)])
        score = predictor.score(head, relation, tail)
        rows = {"before: logistic of the score": probability_metrics(plain_probability(score), truth)}
        if predictor.probability is None:
            raise FocuseError(NO_VALIDATION)
        made = predictor.probability.at(rate)
        rows[f"after: {made.method}"] = probability_metrics(predictor.probable(head, relation, tail, made), truth)
        notes = [str(part) for part in (aligned, given) if part is not None and part.unseen.rows]
        notes.append("negatives of test are given" if given is not None else "negatives of test are random corruptions")
        notes.append(f"calibrated on {'random corruptions' if made.negatives == 'drawn' else made.negatives}")
        return ProbabilityTable(rows, len(facts), len(false), rate, tuple(notes))

    def weigh_columns(self, test: Any = None, *, coverage: float = COVERAGE) -> dict[str, WeightEvaluation]:
        """`weigh` of every weight column by itself, in its own units, on the rows of test that have it."""
        aligned = self._test(test)
        found = {}
        for name in self._merger().names:
            one, predictor = replace(aligned, graph=aligned.graph.column(name)), self._column_weigher(name)
            known = predictor.calibration is not None or (
                predictor.estimator is not None and predictor.estimator.forests
            )
            if len(one.graph) and known:  # a column of a few edges may be missing in every part of validation
                found[name] = predictor.judge(one, None, None, STRONG, coverage=coverage)
        return found

    # ---- what is fitted -------------------------------------------------------------------------------------------

    def _merger(self) -> ColumnMerger:
        if self.splits.merger is None:
            raise FocuseError("the run has one weight an edge; only one with several weight columns tells them apart")
        return self.splits.merger

    def _column_weigher(self, name: str) -> WeightPredictor:
        """What the run says of one weight column, by forests and intervals of its own."""
        choose("weight column", name, self._merger().names)
        key = f"column {name}"
        if key not in self._fitted:
            train, valid, test = (
                graph.column(name) for graph in (self.splits.train, self.splits.valid, self.splits.test)
            )
            splits = replace(self.splits, train=train, valid=valid, test=test, merger=None)
            # The run's own parts: those of the rows that have this column would be others.
            whole = self._plain_weigher()
            held = ValidationParts(*(getattr(whole.parts, part.name).column(name) for part in fields(ValidationParts)))
            known = replace(whole, splits=splits, held=held, one_of_many=True)
            known = replace(known, calibration=known.fit("isotonic"))
            self._fitted[key] = replace(known, estimator=known.fit_estimator(self.settings.seed))
        found: WeightPredictor = self._fitted[key]
        return found

    def weight_predictor(self, full: bool = False) -> WeightPredictor:
        """What the run says of weights; what it needs is fitted when first asked for, and stored in its folder.

        `full` also has the forests behind expected weights and intervals, and the probability.
        """
        if full and not self.can_predict_weights():
            raise FocuseError(
                f"what {len(self.splits.train):,} edges say of weights takes about {self._weighing_bytes() / 1e9:.3g} "
                "GB of memory to learn, more than is free; predict and evaluate go without"
            )
        plain = self._plain_weigher()
        if self._calibration is None and self.folder is not None and self.tables_checksum:
            self._calibration = Calibration.load(self.folder, self.tables_checksum, len(self.splits.train.relations))
        found = self._calibration
        # In the first layout shares were of one range for the whole graph: where they no longer are, it says nothing.
        if found is None or (found.layout < LAYOUT and not plain.units.common):
            self._calibration = plain.fit("isotonic" if found is None else found.method)
            self._keep_calibration()
        known = replace(plain, calibration=self._calibration)
        if not full:
            return known
        made = self._estimator(known)
        if known.calibration is None and not made.forests:  # neither validation nor edges enough to learn from
            return known
        known = replace(known, estimator=made)
        return replace(known, probability=self._probability(known))

    def can_predict_weights(self) -> bool:
        """Whether memory allows to learn what weights depend on; without, predictions have scores alone."""
        free = free_memory() if len(self.splits.train) >= LARGE_GRAPH else None
        return free is None or "estimator" in self._fitted or self._weighing_bytes() <= free

    def _weighing_bytes(self) -> int:
        return EDGE_BYTES * len(self.splits.train)

    def calibrate(
        self, method: str | None = None, *, negatives: Any = None, base_rate: float = BASE_RATE
    ) -> Calibration:
        """Fit the maps from scores to weights and to probabilities anew, by 'isotonic' or 'platt', and store them.

        Left alone, weights are by steps (isotonic), and probabilities, too, where there are facts enough for them.
        `negatives` are triples known to be false (those of weight 0 where a file has others too, else all; known facts
        are left out); without them random corruptions stand in. `base_rate` is the share of facts among the triples
        that will be asked about. `calibration_stored` says whether storing was possible.
        """
        if method is not None:
            choose("calibration", method, METHODS)
        check_base_rate(base_rate)
        plain = self._plain_weigher()
        false = None if negatives is None else self._false(negatives, plain.fitting_keys())
        made = plain.fit(method or "isotonic")
        if made is None:
            raise FocuseError(NO_VALIDATION)
        known = replace(plain, calibration=made)
        learnt = self._fitted.get("estimator") or self._stored_estimator(known, None)
        self._calibration = made
        self._keep_calibration()
        self._fitted["estimator"] = known.fit_estimator(self.settings.seed, learnt)
        self._keep("estimator")
        known = replace(known, estimator=self._estimator(known))
        self._fitted["probability"] = self._fit_probability(known, method, false, base_rate)
        self._keep("probability")
        return made

    def _plain_weigher(self) -> WeightPredictor:
        held, notes = held_parts(self.splits.valid, self.settings.stop_fraction, self.settings.seed)
        return WeightPredictor(self.settings.model, self.scorer, self.splits, self.normalizer, held=held, notes=notes)

    def _estimator(self, known: WeightPredictor) -> Estimator:
        if "estimator" not in self._fitted:
            curves = "" if known.calibration is None else known.calibration.digest()
            found = self._stored_estimator(known, curves)
            if found is None and self.before_fitting is not None:
                self.before_fitting()
            self._fitted["estimator"] = found or known.fit_estimator(self.settings.seed)
            if found is None:
                self._keep("estimator")
        made: Estimator = self._fitted["estimator"]
        return made

    def _stored_estimator(self, known: WeightPredictor, curves: str | None) -> Estimator | None:
        if self.folder is None or not self.tables_checksum:
            return None
        parts = known.estimator_parts()
        return keeping.load_estimator(self.folder, self.tables_checksum, curves, *parts, common=known.units.common)

    def _probability(self, known: WeightPredictor) -> Probability | None:
        if "probability" not in self._fitted:
            found = None
            if self.folder is not None and self.tables_checksum:
                found = keeping.load_probability(self.folder, self.tables_checksum, len(self.splits.train.relations))
            self._fitted["probability"] = found or self._fit_probability(known, None, None, BASE_RATE)
            if found is None:
                self._keep("probability")
        made: Probability | None = self._fitted["probability"]
        return made

    def _fit_probability(
        self, known: WeightPredictor, method: str | None, false: Graph | None, rate: float
    ) -> Probability | None:
        facts = known.parts.calibration
        if not len(facts):
            return None
        rows = corrupt_graph(facts, known.fitting_keys(), self.settings.seed + 1) if false is None else false
        source = "drawn" if false is None else f"{len(rows):,} of {rows.source}"
        method = method or ("isotonic" if len(facts) >= FEWEST_STEPS else "platt")
        if not len(rows):  # a graph so dense that no corruption of it is false
            return None
        return fit_probability(facts, rows, known.score, known.estimator, method, rate, source)

    def _test(self, test: Any) -> AlignedGraph:
        aligned = self.splits.aligned_test if test is None else read_test_graph(test, self.settings, self.splits)
        if not len(aligned.graph):
            raise FocuseError(str(aligned) or "the run has no test split; give a test graph")
        return aligned

    def _negatives(self, given: Any) -> AlignedGraph:
        """Triples in train's ids, some of which have the weight 0."""
        false = read(given).align(self.splits.train)
        if not (false.graph.weight == 0).any():
            raise FocuseError(f"{false.graph.source}: no triple of weight 0 with names that train has; give negatives")
        return false

    def _false(self, given: Any, known: AnyIds) -> Graph:
        """One's own negatives in train's ids: rows of weight 0, or all where none has it, without the known facts."""
        aligned = _read_triples(given).align(self.splits.train)
        rows = aligned.graph
        nothing = rows.weight == 0
        rows = rows.select(nothing) if nothing.any() else rows
        left = rows.select(~np.isin(rows.keys, known))
        if len(np.unique(left.keys)) >= FEWEST_NEGATIVES:
            return left
        why = f"{len(rows) - len(left):,} stand in the graph as facts, {aligned.unseen.rows:,} have unknown names"
        raise FocuseError(
            f"{rows.source}: {len(np.unique(left.keys)):,} negatives left ({why}); give {FEWEST_NEGATIVES} or more"
        )

    # ---- storing --------------------------------------------------------------------------------------------------

    def _storable(self) -> Path | None:
        # Of an unfinished run the scores still change, and another process may have trained this one further.
        if self.folder is None or not self.tables_checksum or fingerprint(self.folder) != self.tables_checksum:
            return None
        return self.folder

    def _keep_calibration(self) -> None:
        self.calibration_stored = False
        folder = self._storable()
        if self._calibration is None or folder is None:
            return
        with suppress(OSError, FocuseError, SafetensorError):  # a folder that cannot be written: it is fitted each time
            self._calibration.save(folder, self.tables_checksum)
            self.calibration_stored = True

    def _keep(self, what: str) -> None:
        folder, made = self._storable(), self._fitted.get(what)
        if folder is None or made is None:
            return
        with suppress(OSError, FocuseError, SafetensorError):  # what is told of single columns is fitted each time
            if what == "estimator":
                curves = "" if self._calibration is None else self._calibration.digest()
                keeping.save_estimator(made, folder, self.tables_checksum, curves)
            elif what == "probability":
                keeping.save_probability(made, folder, self.tables_checksum)


def _read_triples(given: Any) -> Graph:
    """Triples with or without weights, from whatever `read` takes; one triple of names is a list of one."""
    if isinstance(given, Graph | str | PathLike) or not isinstance(given, Iterable):
        return read(given)
    rows = given
    if isinstance(given, tuple) and len(given) in (3, 4) and all(isinstance(part, str) for part in given[:3]):
        rows = [given]
    return read(rows)
