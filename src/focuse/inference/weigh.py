"""What a trained model says of weights, and how right it is.

A model of confidence (UKGE) has a weight for every triple by itself; any model has one by calibration. Shares are
weights in [0, 1]: as they are where train's lie there, else by each relation's range (graph/units.py), so that what is
learnt from all relations says nothing of their units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from focuse.engines import ReferenceEngine
from focuse.errors import FocuseError
from focuse.evaluation.baselines import (
    GLOBAL_MEAN,
    RELATION_MEAN,
    AnyIds,
    Floats,
    Predictor,
    fit_doubting,
    fit_trivial,
)
from focuse.evaluation.confidence import spearman
from focuse.evaluation.coverage import IntervalTable, cover, cover_relations
from focuse.evaluation.gain import Gain, TrivialScorer, ndcg, queries_of
from focuse.evaluation.sampled import sample_size
from focuse.evaluation.weighing import WeightTable, WeightTest, draw_negatives, join, weigh
from focuse.graph.graph import Aligned, Graph
from focuse.graph.splits import Held, Splits
from focuse.graph.units import Units
from focuse.graph.weights import Normaliser, in_unit_range
from focuse.inference.calibrate import Calibration, fit_curves
from focuse.inference.estimate import Estimator, finish, fit, measuring
from focuse.inference.intervals import COVERAGE, measure
from focuse.inference.probability import Probability
from focuse.inference.surroundings import Table, find

STRONG = 0.85  # UKGE's threshold for CN15K and NL27K
AT_ONCE = 1 << 18  # triples scored at once


@dataclass(frozen=True)
class Weigher:
    """A run's weights: `facts` and `doubting` by calibration, `own` by the model itself if it has a confidence.

    With an `estimator` also what an edge is expected to weigh by all that train and score say, and an interval; with a
    `probability` how likely it is a fact. `held` is validation in disjoint parts.
    """

    name: str
    engine: ReferenceEngine
    splits: Splits
    normaliser: Normaliser
    calibration: Calibration | None = None
    held: Held | None = None
    estimator: Estimator | None = None
    probability: Probability | None = None
    notes: tuple[str, ...] = ()
    one_of_many: bool = False  # a weight column by itself: the model's own confidence is about all of them

    @cached_property
    def units(self) -> Units:
        """The unit of each relation's weights, by train."""
        return Units.fit(self.splits.train)

    @property
    def parts(self) -> Held:
        """Validation in parts; all of it is for fitting where nothing else was said."""
        valid = self.splits.valid.graph
        nothing = valid.select(np.empty(0, np.int64))
        return Held(nothing, valid, nothing) if self.held is None else self.held

    def score(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> Floats:
        """Scores of triples, ids [n] -> [n]."""
        parts = []
        for start in range(0, len(head), AT_ONCE):
            columns = (ids[start : start + AT_ONCE].astype(np.int64) for ids in (head, relation, tail))
            ids = (torch.from_numpy(column).to(self.engine.device) for column in columns)
            parts.append(self.engine.score(*ids).double().cpu().numpy())
        return np.concatenate(parts) if parts else np.empty(0)

    # ---- weights of scored triples: score [n], relation [n] -> [n] -------------------------------------------------

    def expected(self, score: Floats, relation: AnyIds) -> Floats:
        """What each link would weigh if it is one, in the user's units."""
        return self.units.weights(self._calibrated().facts(score, relation), relation)

    def confidence(self, score: Floats, relation: AnyIds) -> Floats:
        """The confidence in each triple, in [0, 1]: the model's own if it has one, else the doubting calibration."""
        if self.engine.model.confident:
            return self.engine.model.confidence(torch.from_numpy(score)).numpy()
        return self._calibrated().doubting(score, relation)

    # ---- predictors: ids [n] of heads, relations and tails -> weights [n] ------------------------------------------

    def facts(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> Floats:
        return self.expected(self.score(head, relation, tail), relation)

    def doubting(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> Floats:
        return self.units.weights(self._calibrated().doubting(self.score(head, relation, tail), relation), relation)

    def own(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> Floats:
        share = self.engine.model.confidence(torch.from_numpy(self.score(head, relation, tail))).numpy()
        return self.normaliser.inverse(share, relation)

    # ---- by estimator: ids [n] of heads, relations and tails -> weights [n] ----------------------------------------

    def tell(self, head: AnyIds, relation: AnyIds, tail: AnyIds, coverage: float = COVERAGE) -> dict[str, Floats]:
        """expected, typical, low, high (in the user's units) and probability, [n] each; NaN where there is none.

        A fact of train is not guessed: `known` is 1 there, else 0, and its weights lie between the least and the
        greatest that it has.
        """
        told = self.guess(head, relation, tail, coverage)
        asked, train = self.splits.train.keys_of(head, relation, tail), self.splits.train
        rows = np.isin(train.keys, asked)
        facts = Table.of(train.keys[rows], train.weight[rows])
        known = find(facts.keys, asked)[1]
        for name, column in (("expected", "mean"), ("typical", "middle"), ("low", "least"), ("high", "greatest")):
            told[name] = np.where(known, facts.get(column, asked), told[name])
        return {**told, "known": known.astype(np.float64)}

    def guess(self, head: AnyIds, relation: AnyIds, tail: AnyIds, coverage: float = COVERAGE) -> dict[str, Floats]:
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
        told = {name: self.units.weights(share, relation) for name, share in shares.items()}
        probable = nothing if self.probability is None else self.probable(head, relation, tail)
        return {"low": nothing, "high": nothing, **told, "probability": probable}

    def told_notes(self) -> tuple[str, ...]:
        """What someone should know who reads what is told."""
        made = self.estimator
        notes = [] if made is None else list(made.notes)
        if made is None or not len(made.conformal):
            notes.append("no intervals: validation has no rows left to measure them on (--valid-share)")
        if self.calibration is None and not self.one_of_many:
            notes.append("no probabilities: the run has no validation triples to calibrate on (--valid-share)")
        return tuple(notes)

    def probable(self, head: AnyIds, relation: AnyIds, tail: AnyIds, probability: Probability | None = None) -> Floats:
        """The probability [n] that each triple is a fact, by the run's curves or others."""
        made = probability or self.probability
        if made is None:
            raise FocuseError("the run has no validation triples to calibrate on; train with some (--valid-share)")
        link = None if self.estimator is None else self.estimator(head, relation, tail).link
        return made.of(self.score(head, relation, tail), link, relation)

    def _by(self, name: str) -> Predictor:
        """One of the estimator's numbers as a predictor in the user's units."""

        def predictor(head: AnyIds, relation: AnyIds, tail: AnyIds) -> Floats:
            if self.estimator is None:
                raise FocuseError("no estimator was fitted")
            return self.units.weights(getattr(self.estimator(head, relation, tail), name), relation)

        return predictor

    def _calibrated(self) -> Calibration:
        if self.calibration is None:
            raise FocuseError("the run has no validation triples to calibrate on; train with some (--valid-share)")
        return self.calibration

    # ---- fitting and judging ---------------------------------------------------------------------------------------

    def known_keys(self) -> Any:
        graphs = (self.splits.train, self.splits.valid.graph, self.splits.test.graph)
        return np.concatenate([graph.keys for graph in graphs])

    def fitting_keys(self) -> Any:
        """Facts that no negative may be while something is fitted; those of test would tell what is to be judged."""
        return np.concatenate([self.splits.train.keys, self.splits.valid.graph.keys])

    def fit(self, method: str, seed: int = 0) -> Calibration | None:
        """Both maps, fitted on the calibration part of validation; None without validation triples."""
        train, valid = self._shared(self.splits.train), self.parts.calibration
        if not len(valid):
            return None
        means = fit_trivial(train)[RELATION_MEAN].elsewhere(np.arange(len(train.relations)))
        share = np.clip(self._shared(valid).weight, 0.0, 1.0)
        score = self.score(valid.head, valid.relation, valid.tail)
        false = draw_negatives(valid, self.fitting_keys(), seed)
        both = join([valid, false])
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
        mean = fit_trivial(train)[RELATION_MEAN]

        def plain(head: AnyIds, relation: AnyIds, tail: AnyIds) -> Floats:
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
        held = Held(*(self._shared(part) for part in (parts.stopping, parts.calibration, parts.conformal)))
        if learnt is not None and learnt.forests:
            return finish(replace(learnt, curve=plain), held)
        return fit(train, held, score, plain, self.fitting_keys(), seed)

    def _shared(self, graph: Graph) -> Graph:
        """In shares; held-out ones may lie beyond [0, 1], as weights that are asked for later may."""
        return replace(graph, weight=self.units.shares(graph.weight, graph.relation), lower_is_better=False)

    def intervals(self, test: Graph, coverage: float = COVERAGE) -> IntervalTable | None:
        """Coverage and width on test beside intervals of constant width; None without conformal rows."""
        made = self.estimator
        if made is None or not len(made.conformal):
            return None
        rows, asked = self._shared(measuring(made, self.parts)), self._shared(test)
        found = self.guess(test.head, test.relation, test.tail, coverage)
        names = {f"{self.name}, expected ± spread": (found["low"], found["high"])}
        trivial = fit_trivial(self._shared(self.splits.train))
        middles: dict[str, Predictor] = {
            f"{self.name}, expected ± constant": lambda *ids: made(*ids).expected,
            f"{RELATION_MEAN} ± constant": trivial[RELATION_MEAN],
            f"{GLOBAL_MEAN} ± constant": trivial[GLOBAL_MEAN],
        }
        for name, middle in middles.items():
            names[name] = self._constant(middle, rows, asked, coverage)
        own = made.conformal.quantiles(coverage).own
        kinds = cover_relations(found["low"], found["high"], test.weight, test.relation, list(test.relations), own)
        figures = {name: cover(low, high, test.weight) for name, (low, high) in names.items()}
        return IntervalTable(coverage, len(rows), figures, kinds)

    def _constant(self, middle: Predictor, rows: Graph, asked: Graph, coverage: float) -> tuple[Floats, Floats]:
        """Bounds [n] of `asked` by the plain form: the same width in shares on each side, whatever the relation.

        Both graphs are in shares, and so is what `middle` gives.
        """
        guess, ask = (np.clip(middle(part.head, part.relation, part.tail), 0.0, 1.0) for part in (rows, asked))
        made = measure(rows.weight, guess, np.zeros(len(rows)), np.zeros(len(rows), np.int64), 1)
        ends = made.interval(ask, np.zeros(len(asked)), np.zeros(len(asked), np.int64), coverage)
        low, high = reversed(ends) if self.splits.train.lower_is_better else ends
        return self.units.weights(low, asked.relation), self.units.weights(high, asked.relation)

    def judge(
        self,
        aligned: Aligned,
        negatives: Aligned | None,
        queries: Aligned | None,
        threshold: float,
        seed: int = 0,
        coverage: float = COVERAGE,
    ) -> WeightEvaluation:
        """Weights of a test set under every protocol, and nDCG; what is not given is drawn or taken from the graph."""
        train, valid, test = self.splits.train, self.splits.valid.graph, aligned.graph
        notes = [str(part) for part in (aligned, negatives, queries) if part is not None and part.unseen.rows]
        notes += [*_doubts(test, negatives is not None), *self.notes]
        notes += self.estimator.notes if self.estimator is not None else ()
        unit = not train.lower_is_better and in_unit_range(train.weight) and in_unit_range(test.weight)
        known = np.concatenate([self.known_keys(), test.keys])
        false = None
        if not unit:
            notes.append("no protocol with negatives: that a false triple weighs 0 means something in [0, 1] only")
        else:
            false = draw_negatives(test, known, seed)
            if negatives is not None:  # a file of UKGE's holds the facts, too
                false = negatives.graph.select(negatives.graph.weight == 0)
        held = WeightTest(valid, draw_negatives(valid, self.fitting_keys(), seed + 1)) if unit and len(valid) else None
        named = self._named()
        doubting = {name: rows[1] for name, rows in named.items()}
        table = weigh(
            WeightTest(test, false), train, {name: rows[0] for name, rows in named.items()}, doubting, threshold, held
        )
        every = [train, valid, self.splits.test.graph]
        asked = queries.graph if queries is not None else queries_of(test, every)
        dear = sample_size(self.engine, None, len(train.entities)) is not None
        gains = {} if dear else {self.name: ndcg(self.engine, asked)}
        if dear:
            notes.append(f"no nDCG of {self.name}: to score all {len(train.entities):,} entities takes it too long")
        for name, row in {**fit_trivial(train), **fit_doubting(train)}.items():
            gains[name] = ndcg(TrivialScorer(row, train, device=self.engine.device), asked)
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
        if self.engine.model.confident and not self.one_of_many:
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
    gains: Mapping[str, Gain]
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
