"""Boosted regression trees as arrays: fitted by scikit-learn, kept in safetensors, evaluated with NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.evaluation.metrics import FloatArray

Integers = npt.NDArray[np.int32]
PARTS = ("base", "roots", "feature", "threshold", "left", "right", "value")
AT_ONCE = 1 << 15  # rows that go down the trees together, so that they stay in the cache


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees whose values add up to `base`.

    Nodes of all trees in one row: `feature` [N] is compared with `threshold` [N], not greater goes to `left` [N], else
    to `right` [N]. A leaf points to itself, so that every row can take the same number of steps; `roots` [T].
    """

    base: FloatArray
    roots: Integers
    feature: Integers
    threshold: FloatArray
    left: Integers
    right: Integers
    value: FloatArray

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Rows [n, features] to numbers [n]."""
        parts = [self._down(rows[start : start + AT_ONCE]) for start in range(0, len(rows), AT_ONCE)]
        return np.concatenate(parts) if parts else np.empty(0)

    def _down(self, rows: FloatArray) -> FloatArray:
        """Few rows go down many trees at once, many down one: a step costs the same call whatever its size."""
        flat, width, trees = np.ascontiguousarray(rows).ravel(), rows.shape[1], max(1, AT_ONCE // len(rows))
        start = np.arange(len(rows), dtype=np.int64) * width
        total = np.full(len(rows), float(self.base[0]))
        for first in range(0, len(self.roots), trees):
            node = np.repeat(self.roots[first : first + trees, None], len(rows), axis=1)
            while True:
                goes_left = flat[start + self.feature[node]] <= self.threshold[node]
                below = np.where(goes_left, self.left[node], self.right[node])
                if np.array_equal(below, node):
                    break
                node = below
            # One tree after another, whatever is in a block: the same rows give the same bits.
            if len(node) == 1:
                total += self.value[node[0]]
            else:
                total = np.cumsum(np.vstack([total, self.value[node]]), axis=0)[-1]
        return total

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {name: getattr(self, name) for name in PARTS}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], features: int) -> Forest:
        """Raise ValueError unless the arrays are trees over `features` features, each of whose paths ends."""
        made = cls(**{name: arrays[name] for name in PARTS})
        whole = [getattr(made, name) for name in ("roots", "feature", "left", "right")]
        real = [getattr(made, name) for name in ("base", "threshold", "value")]
        if any(part.dtype != np.int32 for part in whole) or any(part.dtype != np.float64 for part in real):
            raise ValueError("trees of other kinds of numbers")
        if any(part.ndim != 1 for part in (*whole, *real)) or np.isnan(made.threshold).any():
            raise ValueError("trees of other shapes")
        nodes = len(made.feature)
        if any(len(getattr(made, name)) != nodes for name in ("threshold", "left", "right", "value")):
            raise ValueError("nodes that do not fit")
        here = np.arange(nodes)
        leaf = (made.left == here) & (made.right == here)
        onward = (made.left > here) & (made.right > here) & (made.left < nodes) & (made.right < nodes)
        if not (leaf | onward).all() or not nodes or made.base.shape != (1,):
            raise ValueError("trees that do not end")
        if (
            made.roots.min() < 0
            or made.roots.max() >= nodes
            or made.feature.min() < 0
            or made.feature.max() >= features
        ):
            raise ValueError("nodes out of range")
        if not np.isfinite(made.value).all() or not np.isfinite(made.base).all():
            raise ValueError("values that are not finite")
        return made


def grow(
    rows: FloatArray,
    truth: FloatArray,
    *,
    quantile: float | None = None,
    trees: int = 200,
    leaves: int = 31,
    rate: float = 0.1,
    fewest: int = 20,
) -> Forest:
    """Trees that predict `truth` [n] from `rows` [n, features]: its mean, or a quantile.

    >>> rows = np.linspace(0, 1, 200)[:, None]
    >>> forest = grow(rows, (rows[:, 0] > 0.5).astype(float), trees=30)
    >>> forest(np.array([[0.1], [0.9]])).round(1)
    array([0., 1.])
    """
    fitted = fit_sklearn(rows, truth, quantile=quantile, trees=trees, leaves=leaves, rate=rate, fewest=fewest)
    return _flattened(fitted)


def fit_sklearn(
    rows: FloatArray, truth: FloatArray, *, quantile: float | None, trees: int, leaves: int, rate: float, fewest: int
) -> Any:
    """The regressor that `grow` makes arrays of."""
    from sklearn.ensemble import HistGradientBoostingRegressor  # type: ignore[import-untyped, unused-ignore]

    goal = {"loss": "squared_error"} if quantile is None else {"loss": "quantile", "quantile": quantile}
    return HistGradientBoostingRegressor(
        **goal,
        max_iter=trees,
        learning_rate=rate,
        max_leaf_nodes=leaves,
        min_samples_leaf=fewest,
        early_stopping=False,
        random_state=0,
    ).fit(rows, truth)


def _flattened(fitted: Any) -> Forest:
    """Node by node out of scikit-learn's own trees; in each, children stand after their parent."""
    each = [tree[0].nodes for tree in fitted._predictors]
    sizes = np.array([len(nodes) for nodes in each])
    roots = (np.cumsum(sizes) - sizes).astype(np.int32)
    nodes = np.concatenate(each)
    shift = np.repeat(roots, sizes)
    leaf = nodes["is_leaf"].astype(bool)
    here = np.arange(len(nodes), dtype=np.int32)
    return Forest(
        np.asarray(fitted._baseline_prediction, np.float64).reshape(1),
        roots,
        np.where(leaf, 0, nodes["feature_idx"]).astype(np.int32),
        np.where(leaf, np.inf, nodes["num_threshold"]).astype(np.float64),
        np.where(leaf, here, nodes["left"].astype(np.int32) + shift).astype(np.int32),
        np.where(leaf, here, nodes["right"].astype(np.int32) + shift).astype(np.int32),
        nodes["value"].astype(np.float64),
    )
