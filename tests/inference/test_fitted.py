"""Files of estimators and probabilities; how runs use them is in test_weight_predictor.py."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from focuse.data.graph import from_columns
from focuse.errors import FocuseError
from focuse.inference import fitted
from focuse.inference.calibration import Conformal
from focuse.inference.fitted import (
    ESTIMATOR_FILE,
    PROBABILITY_FILE,
    load_estimator,
    load_probability,
    save_estimator,
    save_probability,
)
from focuse.inference.link_probability import EVIDENCE, LinkProbability
from focuse.inference.weight_estimator import FEATURES, Estimator, fit_trees

GRAPH = from_columns(["a", "b"], ["r", "s"], ["b", "a"], [0.1, 0.9])


def half(head: np.ndarray, relation: np.ndarray, tail: np.ndarray) -> np.ndarray:
    return np.full(len(head), 0.5)


def estimator(relation: int = 1) -> Estimator:
    random = np.random.default_rng(0)
    trees = fit_trees(random.normal(size=(100, 3)), random.random(100), trees=3)
    conformal = Conformal(random.random(5), np.full(5, relation), 2, np.array([-0.5, 0.0, 0.5, 1.0, 1.5]))
    return Estimator(
        GRAPH, half, half, {"given_true": trees, "link": trees}, np.array([1.0, 0.0, 0.0]), conformal, ("a note",)
    )


def test_saved_estimator_is_loaded(tmp_path: Path) -> None:
    made = estimator()
    save_estimator(made, tmp_path, "t", "c")
    again = load_estimator(tmp_path, "t", "c", GRAPH, half, half)
    assert again is not None
    rows = np.random.default_rng(1).normal(size=(20, 3))
    np.testing.assert_array_equal(again.trees["given_true"](rows), made.trees["given_true"](rows))
    np.testing.assert_array_equal(again.conformal.errors, made.conformal.errors)
    assert (again.notes, again.mix.tolist()) == (made.notes, made.mix.tolist())
    assert again.conformal.truth.tolist() == [-0.5, 0.0, 0.5, 1.0, 1.5]
    assert load_estimator(tmp_path, "other", "c", GRAPH, half, half) is None
    assert load_estimator(tmp_path / "none", "t", "c", GRAPH, half, half) is None


def test_estimator_of_another_calibration_is_not_loaded(tmp_path: Path) -> None:
    save_estimator(estimator(), tmp_path, "t", "c")
    assert load_estimator(tmp_path, "t", "others", GRAPH, half, half) is None
    assert load_estimator(tmp_path, "t", None, GRAPH, half, half) is not None  # whichever they were


def test_estimator_of_another_layout_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_estimator(estimator(), tmp_path, "t", "c")
    monkeypatch.setattr(fitted, "LAYOUT", 99)
    assert load_estimator(tmp_path, "t", "c", GRAPH, half, half) is None


DAMAGES = {
    "conformal rows do not fit": lambda arrays, about: arrays["conformal/relation"].fill(7),
    "invalid numbers": lambda arrays, about: arrays["conformal/truth"].fill(np.nan),
    "shares do not add up to 1": lambda arrays, about: arrays["mix"].fill(0.5),
    "trees do not belong together": lambda arrays, about: about.update(forests=["facts"]),
    "nodes out of range": lambda arrays, about: arrays["link/feature"].fill(FEATURES),
    "trees with other shapes": lambda arrays, about: arrays["facts/threshold"].fill(np.nan),
    "trees with other types of numbers": lambda arrays, about: arrays.update(
        {"facts/feature": arrays["facts/feature"].astype(float)}
    ),
    "'mix'": lambda arrays, about: arrays.pop("mix"),
}


@pytest.mark.parametrize("why", DAMAGES)
def test_inconsistent_estimator_file_is_reported(tmp_path: Path, why: str) -> None:
    save_estimator(estimator(), tmp_path, "t", "c")
    with fitted._reading(tmp_path, ESTIMATOR_FILE, "t") as found:
        arrays, about = found
    arrays = {name: part.copy() for name, part in arrays.items()}
    DAMAGES[why](arrays, about)
    fitted._write(tmp_path / ESTIMATOR_FILE, arrays, about)
    with pytest.raises(FocuseError, match=rf"damaged file: {re.escape(why)}"):
        load_estimator(tmp_path, "t", "c", GRAPH, half, half)


class Evidence:
    """Evidence of two relations that is not computed."""

    relations = 2


def probability() -> LinkProbability:
    random, size = np.random.default_rng(0), len(EVIDENCE)
    bounds = np.sort(random.normal(size=(2, size)), axis=0)
    points, logits = np.array([-3.0, 0.0, 2.0]), np.array([-4.0, -1.0, 0.5])
    offsets = random.normal(size=2)
    return LinkProbability(
        Evidence(),
        random.normal(size=size + 1),
        bounds,
        offsets,
        points,
        logits,
        -2.0,
        0.01,
        0.2,
        30,  # type: ignore[arg-type]
    )


def test_saved_probability_is_loaded(tmp_path: Path) -> None:
    made = probability()
    save_probability(made, tmp_path, "t")
    again = load_probability(tmp_path, "t", made.evidence)
    assert again is not None
    assert (again.method, again.base_rate, again.estimated_rate) == ("isotonic", 0.2, 0.01)
    assert (again.implausible, again.positives) == (-2.0, 30)
    rows, kinds = np.random.default_rng(1).normal(size=(9, len(EVIDENCE))), np.arange(9) % 2
    np.testing.assert_array_equal(
        again.corrected(again.on_line(rows, kinds)), made.corrected(made.on_line(rows, kinds))
    )
    assert load_probability(tmp_path, "other", made.evidence) is None
    assert load_probability(tmp_path / "none", "t", made.evidence) is None


def test_probability_of_an_earlier_version_is_fitted_again(tmp_path: Path) -> None:
    about = {"tables": "t", "method": "platt", "base_rate": 0.5, "fitted_rate": 0.5, "negatives": "drawn"}
    fitted._write(tmp_path / PROBABILITY_FILE, {"line": np.array([1.0, 0.0, 0.0])}, about)
    assert load_probability(tmp_path, "t", Evidence()) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["line", "offsets", "points", "logits"])
def test_inconsistent_probability_file_is_reported(tmp_path: Path, name: str) -> None:
    made = probability()
    save_probability(replace(made, **{name: np.array([1.0])}), tmp_path, "t")
    with pytest.raises(FocuseError, match="damaged file"):
        load_probability(tmp_path, "t", made.evidence)
