"""The probability that a triple is a fact: Platt's or isotonic curves over the evidence, at a stated base rate.

The evidence is the model's score and, where train is large enough for forests, what the surroundings say; a logistic
line makes one number of both. Negatives are the user's, or random corruptions. What share of triples are facts is no
property of a model: curves are fitted at the ratio of the rows they saw, then moved to the base rate that is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from focuse.errors import FocuseError, choose
from focuse.evaluation.baselines import AnyIds, Floats, Predictor
from focuse.graph.graph import Graph
from focuse.inference.calibrate import METHODS, Curves, fit_curves
from focuse.inference.estimate import Estimator

BASE_RATE = 0.5  # a negative for each fact, as UKGE's tests have


def check_base_rate(rate: float) -> float:
    """A share of facts among triples; raise for others."""
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < 1:
        raise FocuseError(f"base rate {rate!r}: give the share of facts among the triples you ask about, in (0, 1)")
    return float(rate)


def at_base_rate(probability: Floats, fitted: float, asked: float | Floats) -> Floats:
    """Probabilities [n] from rows of which a share `fitted` are facts, as they are where a share `asked` is.

    >>> at_base_rate(np.array([0.0, 0.5, 1.0]), 0.5, 0.1).tolist()
    [0.0, 0.1, 1.0]
    """
    odds = asked * (1 - fitted), fitted * (1 - asked)
    true, false = probability * odds[0], (1 - probability) * odds[1]
    return np.asarray(true / (true + false), np.float64)


@dataclass(frozen=True, eq=False)
class Probability:
    """The probability that a triple is a fact, by `curves` over evidence = line · (score, log-odds of link, 1)."""

    line: Floats
    curves: Curves
    base_rate: float
    fitted_rate: float
    negatives: str  # 'drawn', or the source of those given

    @property
    def method(self) -> str:
        return self.curves.method

    def of(self, score: Floats, link: Floats | None, relation: AnyIds) -> Floats:
        """Probabilities [n] of triples with these scores [n] and beliefs of the surroundings [n]."""
        return at_base_rate(self.curves(evidence(self.line, score, link), relation), self.fitted_rate, self.base_rate)

    def at(self, base_rate: float) -> Probability:
        """The same for another share of facts among the triples asked about."""
        return replace(self, base_rate=check_base_rate(base_rate))


def evidence(line: Floats, score: Floats, link: Floats | None) -> Floats:
    """One number a triple [n]; without forests the score alone."""
    belief = np.zeros(len(score)) if link is None else _log_odds(link)
    return np.asarray(line[0] * score + line[1] * belief + line[2], np.float64)


def _log_odds(link: Floats) -> Floats:
    safe = np.clip(link, 0.001, 0.999)
    return np.asarray(np.log(safe / (1 - safe)), np.float64)


def fit_probability(
    facts: Graph,
    false: Graph,
    score: Predictor,
    estimator: Estimator | None,
    method: str = "isotonic",
    base_rate: float = BASE_RATE,
    negatives: str = "drawn",
) -> Probability:
    """Curves of held-out `facts` and triples that are none, in train's ids."""
    choose("calibration", method, METHODS)
    head, relation, tail = (
        np.concatenate([getattr(part, name) for part in (facts, false)]) for name in ("head", "relation", "tail")
    )
    label = np.repeat([1.0, 0.0], [len(facts), len(false)])
    if not len(false) or not len(facts):
        raise FocuseError("probabilities need facts and negatives to calibrate on; give some")
    scores = score(head, relation, tail)
    link = None if estimator is None else estimator(head, relation, tail).link
    line = _line(scores, link, label)
    seen = evidence(line, scores, link)
    means = np.ones(len(facts.relations))
    curves = fit_curves(method, seen, relation, label, means, doubting=True, never_sure=True)
    return Probability(line, curves, check_base_rate(base_rate), float(label.mean()), negatives)


def _line(score: Floats, link: Floats | None, label: Floats) -> Floats:
    """What a logistic regression gives score, belief and a constant."""
    if link is None:
        return np.array([1.0, 0.0, 0.0])
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, unused-ignore]

    columns = np.column_stack([score, _log_odds(link)])
    middle, spread = columns.mean(0), np.where(columns.std(0) > 0, columns.std(0), 1.0)
    fitted = LogisticRegression().fit((columns - middle) / spread, label)
    slope = fitted.coef_[0] / spread
    return np.array([*slope, float(fitted.intercept_[0]) - float(slope @ middle)])


def plain_probability(score: Floats) -> Floats:
    """The logistic of a raw score [n]: what a model says of itself before any calibration."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * score)), np.float64)
