"""Files of estimators and probabilities; how runs use them is in test_asking.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from focuse.errors import FocuseError
from focuse.graph import from_columns
from focuse.inference.calibrate import fit_curves
from focuse.inference.estimate import Estimator
from focuse.inference.intervals import Conformal
from focuse.inference.keeping import load_estimator, load_probability, save_estimator, save_probability
from focuse.inference.probability import Probability
from focuse.inference.trees import grow

GRAPH = from_columns(["a", "b"], ["r", "s"], ["b", "a"], [0.1, 0.9])


def half(head: np.ndarray, relation: np.ndarray, tail: np.ndarray) -> np.ndarray:
    return np.full(len(head), 0.5)


def estimator(relation: int = 1) -> Estimator:
    random = np.random.default_rng(0)
    forest = grow(random.normal(size=(100, 3)), random.random(100), trees=3)
    conformal = Conformal(random.random(5), np.full(5, relation), 2)
    return Estimator(GRAPH, half, half, {"facts": forest}, conformal, ("a note",))


def test_an_estimator_comes_back(tmp_path: Path) -> None:
    made = estimator()
    save_estimator(made, tmp_path, "t")
    again = load_estimator(tmp_path, "t", GRAPH, half, half)
    assert again is not None
    rows = np.random.default_rng(1).normal(size=(20, 3))
    np.testing.assert_array_equal(again.forests["facts"](rows), made.forests["facts"](rows))
    np.testing.assert_array_equal(again.conformal.off, made.conformal.off)
    assert again.notes == made.notes
    assert load_estimator(tmp_path, "other", GRAPH, half, half) is None
    assert load_estimator(tmp_path / "none", "t", GRAPH, half, half) is None


def test_one_that_does_not_fit(tmp_path: Path) -> None:
    save_estimator(estimator(relation=7), tmp_path, "t")
    with pytest.raises(FocuseError, match=r"damaged file \(conformal rows that do not fit"):
        load_estimator(tmp_path, "t", GRAPH, half, half)


def test_a_probability_comes_back(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    label = (random.random(60) < 0.5).astype(float)
    score, kind = label + random.normal(size=60), random.integers(0, 2, 60)
    curves = fit_curves("isotonic", score, kind, label, np.ones(2), doubting=True)
    made = Probability(np.array([1.0, 0.5, -0.2]), curves, 0.2, 0.4, "false.tsv")
    save_probability(made, tmp_path, "t")
    again = load_probability(tmp_path, "t", 2)
    assert again is not None
    assert (again.method, again.base_rate, again.fitted_rate, again.negatives) == ("isotonic", 0.2, 0.4, "false.tsv")
    np.testing.assert_array_equal(again.of(score, label, kind), made.of(score, label, kind))
    with pytest.raises(FocuseError, match="damaged file"):
        load_probability(tmp_path, "t", 3)
