"""What a trained model says of weights, and how right it is.

A model of confidence (UKGE) has a weight for every triple by itself; any model has one by calibration. Shares are
weights in [0, 1]: as they are where train's lie there, else by train's global range, as deciles see them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from focuse.engines import ReferenceEngine
from focuse.errors import FocuseError
from focuse.evaluation.baselines import RELATION_MEAN, AnyIds, Floats, fit_doubting, fit_trivial
from focuse.evaluation.confidence import spearman
from focuse.evaluation.gain import Gain, TrivialScorer, ndcg, queries_of
from focuse.evaluation.weighing import WeightTable, WeightTest, draw_negatives, join, weigh
from focuse.graph.graph import Aligned, Graph
from focuse.graph.splits import Splits
from focuse.graph.weights import Normaliser, comparable, in_unit_range
from focuse.inference.calibrate import Calibration, fit_curves

STRONG = 0.85  # UKGE's threshold for CN15K and NL27K
AT_ONCE = 1 << 18  # triples scored at once


@dataclass(frozen=True)
class Weigher:
    """A run's weights: `facts` and `doubting` by calibration, `own` by the model itself if it has a confidence."""

    name: str
    engine: ReferenceEngine
    splits: Splits
    normaliser: Normaliser
    calibration: Calibration | None = None

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
        return self._units(self._calibrated().facts(score, relation))

    def confidence(self, score: Floats, relation: AnyIds) -> Floats:
        """The confidence in each triple, in [0, 1]: the model's own if it has one, else the doubting calibration."""
        if self.engine.model.confident:
            return self.engine.model.confidence(torch.from_numpy(score)).numpy()
        return self._calibrated().doubting(score, relation)

    # ---- predictors: ids [n] of heads, relations and tails -> weights [n] ------------------------------------------

    def facts(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> Floats:
        return self.expected(self.score(head, relation, tail), relation)

    def doubting(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> Floats:
        return self._units(self._calibrated().doubting(self.score(head, relation, tail), relation))

    def own(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> Floats:
        share = self.engine.model.confidence(torch.from_numpy(self.score(head, relation, tail))).numpy()
        return self.normaliser.inverse(share, relation)

    def _calibrated(self) -> Calibration:
        if self.calibration is None:
            raise FocuseError("the run has no validation triples to calibrate on; train with some (--valid-share)")
        return self.calibration

    def _share(self, weight: Floats) -> Floats:
        train = self.splits.train.weight
        return np.clip(weight, 0.0, 1.0) if in_unit_range(train) else comparable(weight, train)

    def _units(self, share: Floats) -> Floats:
        train = self.splits.train.weight
        if in_unit_range(train):
            return share
        low, high = float(train.min()), float(train.max())
        return low * (1 - share) + high * share

    # ---- fitting and judging ---------------------------------------------------------------------------------------

    def known_keys(self) -> Any:
        graphs = (self.splits.train, self.splits.valid.graph, self.splits.test.graph)
        return np.concatenate([graph.keys for graph in graphs])

    def fit(self, method: str, seed: int = 0) -> Calibration | None:
        """Both maps, fitted on validation; None without validation triples."""
        train, valid = self.splits.train, self.splits.valid.graph
        if not len(valid):
            return None
        means = self._share(fit_trivial(train)[RELATION_MEAN].elsewhere(np.arange(len(train.relations))))
        share = self._share(valid.weight)
        score = self.score(valid.head, valid.relation, valid.tail)
        false = draw_negatives(valid, self.known_keys(), seed)
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

    def judge(
        self, aligned: Aligned, negatives: Aligned | None, queries: Aligned | None, threshold: float, seed: int = 0
    ) -> WeightEvaluation:
        """Weights of a test set under every protocol, and nDCG; what is not given is drawn or taken from the graph."""
        train, valid, test = self.splits.train, self.splits.valid.graph, aligned.graph
        notes = [str(part) for part in (aligned, negatives, queries) if part is not None and part.unseen.rows]
        notes += _doubts(test, negatives is not None)
        unit = in_unit_range(train.weight) and in_unit_range(test.weight)
        known = np.concatenate([self.known_keys(), test.keys])
        false = None
        if not unit:
            notes.append("no protocol with negatives: that a false triple weighs 0 means something in [0, 1] only")
        else:
            false = draw_negatives(test, known, seed)
            if negatives is not None:  # a file of UKGE's holds the facts, too
                false = negatives.graph.select(negatives.graph.weight == 0)
        held = WeightTest(valid, draw_negatives(valid, known, seed + 1)) if unit and len(valid) else None
        named = self._named()
        doubting = {name: rows[1] for name, rows in named.items()}
        table = weigh(
            WeightTest(test, false), train, {name: rows[0] for name, rows in named.items()}, doubting, threshold, held
        )
        every = [train, valid, self.splits.test.graph]
        asked = queries.graph if queries is not None else queries_of(test, every)
        gains = {self.name: ndcg(self.engine, asked)}
        for name, row in {**fit_trivial(train), **fit_doubting(train)}.items():
            gains[name] = ndcg(TrivialScorer(row, train, device=self.engine.device), asked)
        notes += self._verdict(test, table)
        return WeightEvaluation(replace(table, notes=(*table.notes, *notes)), gains)

    def _verdict(self, test: Graph, table: WeightTable) -> list[str]:
        """What the figures mean for someone who wants to use the weights."""
        errors = {name: row["positives"].errors.mse for name, row in table.rows.items() if "positives" in row}
        mean = errors[RELATION_MEAN]
        beaten = [name for name in self._named() if not errors[name] < mean]
        notes = [f"{name} does not beat the relation's mean on the facts of test" for name in beaten]
        order = spearman(self.score(test.head, test.relation, test.tail), test.weight)
        if order < 0:
            notes.append(f"the model scores light facts above heavy ones (Spearman {order:.2f}); its ranks say little")
        return notes

    def _named(self) -> Mapping[str, Any]:
        """Name -> its predictor of facts and its doubting one."""
        named: dict[str, Any] = {}
        if self.engine.model.confident:
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
    """Errors by protocol and nDCG; `print` shows tables, `to_dict` is what `--json` prints."""

    table: WeightTable
    gains: Mapping[str, Gain]

    def to_dict(self) -> dict[str, Any]:
        return {**self.table.to_dict(), "ndcg": {name: gain.to_dict() for name, gain in self.gains.items()}}

    def __str__(self) -> str:
        queries = next(iter(self.gains.values())).queries
        width = max(map(len, self.gains))
        lines = [f"nDCG: every known tail among all entities ({queries:,} queries, ties worst)"]
        lines.append(f"{'':{width}}{'linear':>10}{'exponential':>13}")
        for name, gain in self.gains.items():
            figures = ["–" if np.isnan(value) else f"{value:.4f}" for value in (gain.linear, gain.exponential)]
            lines.append(f"{name:{width}}{figures[0]:>10}{figures[1]:>13}")
        return "\n\n".join([str(self.table), "\n".join(lines)])
