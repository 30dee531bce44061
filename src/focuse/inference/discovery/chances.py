"""How likely a link is a fact among the links that are looked at.

A run's probabilities are calibrated on held-out facts and corruptions, one for one, many of which no one would look at:
a tool where a skill belongs. Among all links between entities that stand where they belong, facts are rare and the
others are alike. So the curves are fitted anew, to held-out facts and links drawn from those that are looked at, and
moved to how rare facts are there: as if each relation lacked as large a share of its facts as was held out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from focuse.data.graph import Graph, concatenate
from focuse.evaluation.baselines import AnyIds
from focuse.evaluation.metrics import FloatArray
from focuse.inference.calibration import Probability, at_base_rate, check_base_rate, evidence, fit_probability
from focuse.inference.discovery.scope import Scope
from focuse.inference.weight_predictor import WeightPredictor
from focuse.random_streams import RandomStream

EACH = 20  # links drawn for a held-out fact
MOST = 10_000  # links drawn in all: the forests look at each
TINY = 1e-9


@dataclass(frozen=True, eq=False)
class Chances(Probability):
    """Probabilities at a base rate of each relation's own, `rates` [R]; `asked`: at one that was asked for."""

    rates: FloatArray
    asked: bool = False

    def of(self, score: FloatArray, link: FloatArray | None, relation: AnyIds) -> FloatArray:
        share = self.curves(evidence(self.line, score, link), relation)
        return at_base_rate(share, self.fitted_rate, self.rates[relation])

    def at(self, base_rate: float) -> Chances:
        return replace(
            self, asked=True, base_rate=base_rate, rates=np.full(len(self.rates), check_base_rate(base_rate))
        )


def fit_chances(predictor: WeightPredictor, anywhere: bool = False, seed: int = 0) -> Chances | None:
    """Chances of links between entities that stand where train has them, or `anywhere`; None without probabilities."""
    usual, train = predictor.probability, predictor.splits.train
    if usual is None:
        return None
    scope = Scope(train, np.arange(len(train.relations)), anywhere=anywhere)
    facts = _inside(predictor.parts.calibration, scope)
    false = draw_links(facts, scope, predictor.fitting_keys(), seed)
    if not len(facts) or not len(false):
        return None
    made = fit_probability(facts, false, predictor.score, predictor.estimator, usual.method, negatives="links")
    rates = _rates(predictor, scope)
    return Chances(made.line, made.curves, float(rates.mean()), made.fitted_rate, made.negatives, rates)


def draw_links(facts: Graph, scope: Scope, known: AnyIds, seed: int = 0) -> Graph:
    """Links that the scope looks at and that are not `known`, drawn alike from all of them, by the facts' relations."""
    random = np.random.default_rng([seed, RandomStream.DISCOVERY_CALIBRATION])
    parts = []
    each = max(min(EACH, MOST // max(len(facts), 1)), 1)
    kinds, counts = np.unique(facts.relation, return_counts=True)
    for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
        heads, tails = scope.ends(kind)
        head, tail = random.choice(heads, each * count), random.choice(tails, each * count)
        relation = np.full(len(head), kind)
        fresh = ~np.isin(facts.keys_of(head, relation, tail), known)
        fresh &= (head != tail) | bool(scope.loops[kind])
        rows = facts.select(np.zeros(int(fresh.sum()), np.int64))
        ends = {"head": head[fresh], "tail": tail[fresh], "relation": relation[fresh]}
        parts.append(replace(rows, **{name: ids.astype(np.int32) for name, ids in ends.items()}))
    return concatenate(parts) if parts else facts.select(np.empty(0, np.int64))


def _inside(facts: Graph, scope: Scope) -> Graph:
    """Facts that the scope would look at."""
    keep = np.zeros(len(facts), bool)
    for kind in np.unique(facts.relation).tolist():
        heads, tails = scope.ends(kind)
        rows = facts.relation == kind
        keep[rows] = np.isin(facts.head[rows], heads) & np.isin(facts.tail[rows], tails)
    return facts.select(keep)


def _rates(predictor: WeightPredictor, scope: Scope) -> FloatArray:
    """The share of facts among each relation's links that train lacks, [R]."""
    train = predictor.splits.train
    held = len(predictor.splits.valid) + len(predictor.splits.test)
    facts = np.bincount(train.relation, minlength=len(train.relations)).astype(np.float64)
    pairs = np.array([len(heads) * len(tails) for heads, tails in map(scope.ends, range(len(facts)))], np.float64)
    missing = facts * held / max(len(train), 1)
    return np.asarray(np.clip(missing / np.maximum(pairs - facts, 1.0), TINY, 0.5), np.float64)
