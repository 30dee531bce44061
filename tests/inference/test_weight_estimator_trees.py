"""Trees as arrays, compared with predictions of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from focuse.inference import weight_estimator
from focuse.inference.fitted import _read_trees
from focuse.inference.weight_estimator import fit_trees, flatten_trees


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    rows = random.normal(size=(2000, 6))
    rows[:, 2] = random.integers(-2, 3, 2000)
    return rows, rows[:, 0] * rows[:, 1] + (rows[:, 2] > 0) + random.normal(0, 0.1, 2000)


@pytest.mark.parametrize("quantile", [None, 0.05, 0.5])
def test_predictions_agree_with_scikit_learn(data: tuple[np.ndarray, np.ndarray], quantile: float | None) -> None:
    rows, truth = data
    loss = {"loss": "squared_error"} if quantile is None else {"loss": "quantile", "quantile": quantile}
    fitted = HistGradientBoostingRegressor(
        **loss, max_iter=40, max_leaf_nodes=15, learning_rate=0.2, min_samples_leaf=10, random_state=0
    ).fit(rows, truth)
    forest = fit_trees(rows, truth, quantile=quantile, trees=40, leaves=15, rate=0.2, min_leaf=10)
    assert vars(forest).keys() == vars(flatten_trees(fitted)).keys()
    asked = np.concatenate([rows, np.random.default_rng(1).normal(size=(500, 6)) * 3])
    np.testing.assert_allclose(forest(asked), fitted.predict(asked), rtol=1e-12, atol=1e-12)


def test_chunked_and_empty_predictions_agree(
    data: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    forest = fit_trees(*data, trees=5)
    whole = forest(data[0])
    monkeypatch.setattr(weight_estimator, "TRIPLES_AT_ONCE", 7)
    np.testing.assert_array_equal(forest(data[0]), whole)
    assert forest(data[0][:0]).shape == (0,)


@pytest.mark.parametrize("count", [1, 3, 50])
def test_prediction_of_a_row_is_independent_of_other_rows(data: tuple[np.ndarray, np.ndarray], count: int) -> None:
    """Few rows go down many trees at once; their values are added in the same order."""
    forest = fit_trees(*data, trees=60)
    np.testing.assert_array_equal(forest(data[0][:count]), forest(data[0])[:count])
    slow = np.full(count, forest.base[0])
    for row in range(count):
        for root in forest.roots:
            node = root
            while forest.left[node] != node:
                small = data[0][row, forest.feature[node]] <= forest.threshold[node]
                node = (forest.left if small else forest.right)[node]
            slow[row] += forest.value[node]
    np.testing.assert_array_equal(forest(data[0][:count]), slow)


def test_same_rows_give_the_same_trees(data: tuple[np.ndarray, np.ndarray]) -> None:
    one, two = (vars(fit_trees(*data, trees=5)) for _ in range(2))
    assert all(np.array_equal(one[name], two[name]) for name in one)


def test_constant_target_gives_single_leaves(data: tuple[np.ndarray, np.ndarray]) -> None:
    forest = fit_trees(data[0], np.full(2000, 0.25), trees=3)
    np.testing.assert_allclose(forest(data[0]), 0.25)


def test_trees_are_unchanged_through_arrays(data: tuple[np.ndarray, np.ndarray]) -> None:
    forest = fit_trees(*data, trees=5)
    again = _read_trees({f"t/{name}": array for name, array in vars(forest).items()}, "t", 6)
    np.testing.assert_array_equal(again(data[0]), forest(data[0]))


@pytest.mark.parametrize(
    ("part", "place", "value", "says"),
    [
        ("left", 0, 0, "do not end"),
        ("right", 0, 10**6, "do not end"),
        ("feature", 0, 6, "out of range"),
        ("value", 3, np.nan, "invalid numbers"),
        ("roots", 0, -1, "out of range"),
    ],
)
def test_damaged_arrays_are_refused(
    data: tuple[np.ndarray, np.ndarray], part: str, place: int, value: float, says: str
) -> None:
    arrays = {f"t/{name}": array.copy() for name, array in vars(fit_trees(*data, trees=5)).items()}
    arrays[f"t/{part}"][place] = value
    with pytest.raises(ValueError, match=says):
        _read_trees(arrays, "t", 6)
