"""Probabilities of links: the base rate, and calibration on known scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from focuse.data.graph import Graph, from_columns
from focuse.errors import FocuseError
from focuse.evaluation.weight_evaluation import reliability
from focuse.inference.calibration import Probability, at_base_rate, check_base_rate, fit_probability, plain_probability

SIZE = 50


def triples(seed: int, n: int = 3000) -> Graph:
    random = np.random.default_rng(seed)
    head, tail = random.integers(0, SIZE, (2, n))
    names = [*(f"e{i}" for i in range(SIZE))]
    # Every name first, so that all graphs have the same ids.
    every = from_columns(names, ["r"] * SIZE, names)
    return from_columns([names[i] for i in head], ["r"] * n, [names[i] for i in tail]).align(every).graph


def noisy_score(shift: float, seed: int) -> Any:
    random = np.random.default_rng(seed)
    return lambda head, relation, tail: random.normal(shift, 1.0, len(head))


class Scores:
    """The first call's heads are positives, then negatives: what is scored is told by its place."""

    def __init__(self, positives: int, seed: int) -> None:
        self.positives, self.random = positives, np.random.default_rng(seed)

    def __call__(self, head: Any, relation: Any, tail: Any) -> np.ndarray:
        middle = np.where(np.arange(len(head)) < self.positives, 5.0, 3.0)
        return self.random.normal(middle, 1.0)


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_probabilities_are_calibrated(method: str) -> None:
    """Scores of positives around 5 and of others around 3: their plain logistic says .95 of everything."""
    positives, false = triples(0), triples(1)
    made = fit_probability(positives, false, Scores(3000, 0), None, method)
    score = Scores(3000, 1)(np.zeros(6000), None, None)
    label = np.repeat([1.0, 0.0], 3000)
    kind = np.zeros(6000, np.int64)
    after, before = made.of(score, None, kind), plain_probability(score)
    assert reliability(after, label).ece < 0.03
    assert reliability(before, label).ece > 0.3
    # By Bayes' rule the odds are exp(2 (score − 4)).
    np.testing.assert_allclose(made.of(np.array([4.0]), None, np.array([0]))[0], 0.5, atol=0.1)


def test_probabilities_are_calibrated_at_another_base_rate() -> None:
    """Three negatives a fact in the rows; asked for one in ten: calibrated where one in ten is a fact."""
    positives, false = triples(0, 2000), triples(1, 6000)
    made = fit_probability(positives, false, Scores(2000, 0), None, "platt", base_rate=0.1)
    assert made.fitted_rate == 0.25
    score = Scores(1000, 1)(np.zeros(10_000), None, None)
    label = np.repeat([1.0, 0.0], [1000, 9000])
    kind = np.zeros(10_000, np.int64)
    assert reliability(made.of(score, None, kind), label).ece < 0.02
    assert made.of(score, None, kind).mean() == pytest.approx(0.1, abs=0.01)
    assert made.at(0.5).of(score, None, kind).mean() > 0.15


def test_base_rate_is_changed_by_bayes_rule() -> None:
    for p, fitted, asked in [(0.3, 0.5, 0.01), (0.9, 0.2, 0.7), (0.5, 0.5, 0.5)]:
        likelihood = p / (1 - p) / (fitted / (1 - fitted))
        odds = likelihood * asked / (1 - asked)
        assert at_base_rate(np.array([p]), fitted, asked)[0] == pytest.approx(odds / (1 + odds))


@pytest.mark.parametrize("rate", [0, 1, -0.5, 2, True, "0.5"])
def test_base_rate_outside_the_unit_interval_is_refused(rate: object) -> None:
    with pytest.raises(FocuseError, match="give the fraction of true triples"):
        check_base_rate(rate)  # type: ignore[arg-type]


def test_evidence_without_an_estimator_is_the_score() -> None:
    made = fit_probability(triples(0, 10), triples(1, 10), Scores(10, 0), None, "platt")
    assert isinstance(made, Probability)
    assert made.line.tolist() == [1, 0, 0]


def test_probability_uses_the_estimate_of_the_neighborhood() -> None:
    """Scores are noise and the belief is right: the evidence follows the belief."""

    class Knows:
        def __call__(self, head: Any, relation: Any, tail: Any) -> Any:
            self.link = np.where(np.arange(len(head)) < 500, 0.9, 0.1)
            return self

    made = fit_probability(triples(0, 500), triples(1, 500), noisy_score(0, 0), Knows(), "platt")  # type: ignore[arg-type]
    sure = made.of(np.zeros(2), np.array([0.9, 0.1]), np.zeros(2, np.int64))
    assert sure[0] > 0.9
    assert sure[1] < 0.1


def test_probability_of_separated_scores_is_never_certain() -> None:
    """Scores that part positives from others without fail: n rows of a kind say (n + 1) / (n + 2), not 1."""
    positives, false = triples(0, 40), triples(1, 60)

    def parting(head: Any, relation: Any, tail: Any) -> np.ndarray:
        return np.where(np.arange(len(head)) < 40, 1.0, -1.0)

    made = fit_probability(positives, false, parting, None, "isotonic", 0.4)
    kind = positives.relation[:1]
    high, low = (made.of(np.array([score]), None, kind)[0] for score in (1.0, -1.0))
    assert (high, low) == (pytest.approx(41 / 42), pytest.approx(1 / 62))
    rare = made.at(0.001).of(np.array([1.0]), None, kind)[0]
    assert rare == pytest.approx(1 / (1 + (1 - high) / high * (0.4 / 0.6) * (0.999 / 0.001)))
