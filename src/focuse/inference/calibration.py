"""Calibration: what a score means as a weight, and as an interval of weights.

**Weights.** One curve per relation, fitted on validation triples, maps scores to weights. There are two sets of curves:
`given_true` is fitted on validation triples alone and predicts the weight of a link that exists; `with_negatives` is
also fitted on as many random negatives of weight 0, so it allows for false triples. The curve of a relation with n
rows counts n / (n + 50); the rest is one curve pooled over all relations, scaled to the relation's mean weight.

**Intervals.** Split conformal prediction: on rows to which nothing was fitted, the error of each prediction is measured
in units of its predicted scale, and every interval is as many scales wide as the quantile of these errors. If rows are
exchangeable, the true weight of a new one lies inside with at least the stated probability, whatever the model. A
relation with enough rows has its own quantile (Mondrian); the others share one. Intervals end at the range of weights
that train shows for a relation, unless so many true weights lie beyond it that the coverage could not be kept.

Probabilities of links are in `link_probability`.

All weights here are in [0, 1] and mean the same for every relation (data/weights.py).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from focuse.errors import FocuseError
from focuse.evaluation.baselines import AnyIds
from focuse.evaluation.metrics import FloatArray, spearman
from focuse.option_strings import choose

METHODS = ("isotonic", "platt")
CURVE_ARRAYS = {
    "isotonic": ("trust", "ratio", "score", "share", "offsets"),
    "platt": ("trust", "ratio", "slope", "shift"),
}
HALF_TRUST_ROWS = 50  # rows at which a relation's own curve counts as much as the pooled one
MIN_CURVE_ROWS = 5  # with fewer rows a relation has no curve of its own
COVERAGE = 0.9
MIN_SCALE = 0.005  # of a relation's range, added to every predicted scale
MIN_QUANTILE_ROWS = 30  # conformal rows from which a relation has its own quantile
Curve = tuple[FloatArray, FloatArray]  # scores and weights of the knots, or slope and shift


# ---- weights ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Curves:
    """Maps from scores to [0, 1], one per relation.

    Curve 0 is the pooled one, curve r + 1 is that of relation r. Isotonic: the knots `score` and `share` of curve c lie
    at offsets[c]:offsets[c + 1], with straight lines between them. Platt: `slope` and `shift` [R + 1] of a logistic
    function. `trust` [R] is how much a relation's own curve counts, and `ratio` [R] scales the pooled one.
    """

    method: str
    arrays: dict[str, FloatArray]

    def __call__(self, score: FloatArray, relation: AnyIds) -> FloatArray:
        """Map scores [n] of edges with `relation` [n] to numbers in [0, 1], [n]."""
        trust, ratio = self.arrays["trust"][relation], self.arrays["ratio"][relation]
        pooled = np.clip(self._curve(score, np.zeros(len(score), np.int64)) * ratio, 0.0, 1.0)
        own = self._curve(score, relation.astype(np.int64) + 1)
        return np.asarray(trust * own + (1 - trust) * pooled, np.float64)

    def _curve(self, score: FloatArray, curve: npt.NDArray[np.int64]) -> FloatArray:
        """Evaluate the curves [n] at the scores [n]."""
        arrays = self.arrays
        if self.method == "platt":
            return plain_probability(arrays["slope"][curve] * score + arrays["shift"][curve])
        result = np.zeros(len(score))
        for index, rows in _rows_by_group(curve, len(arrays["offsets"]) - 1):
            knots = slice(*arrays["offsets"][index : index + 2].astype(np.int64))
            if knots.stop > knots.start:
                result[rows] = np.interp(score[rows], arrays["score"][knots], arrays["share"][knots])
        return result


def fit_curves(
    method: str,
    score: FloatArray,
    relation: AnyIds,
    weight: FloatArray,
    means: FloatArray,
    increasing: bool,
) -> Curves:
    """Fit curves to validation scores [n], relations [n] and true weights [n].

    Parameters
    ----------
    means
        Mean training weights per relation, [R].
    increasing
        Whether curves may only increase. Among true triples, weights may decrease with the score, because an
        unweighted model need not order triples by weight.
    """
    fit = {"isotonic": _isotonic, "platt": _platt}[choose("calibration", method, METHODS)]
    curves: list[Curve | None] = [fit(score, weight, increasing), *([None] * len(means))]
    for index, rows in _rows_by_group(relation, len(means)):
        if len(rows) >= MIN_CURVE_ROWS:
            curves[index + 1] = fit(score[rows], weight[rows], increasing)
    rows_per_relation = np.bincount(relation, minlength=len(means)).astype(np.float64)
    count = np.where(rows_per_relation >= MIN_CURVE_ROWS, rows_per_relation, 0.0)
    usual = float(means @ rows_per_relation / rows_per_relation.sum())
    ratio = means / usual if usual > 0 else np.ones(len(means))
    arrays = {"trust": count / (count + HALF_TRUST_ROWS), "ratio": ratio}
    return Curves(method, arrays | _pack(method, curves))


def _rows_by_group(group: AnyIds, groups: int) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Yield each group that occurs with its rows; rows are sorted once, for any number of groups."""
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group, minlength=groups))
    for index in np.unique(group):
        yield int(index), order[ends[index - 1] if index else 0 : ends[index]]


def _pack(method: str, curves: list[Curve | None]) -> dict[str, FloatArray]:
    if method == "platt":
        pairs = np.array([(0.0, 0.0) if curve is None else (curve[0][0], curve[1][0]) for curve in curves])
        return {"slope": pairs[:, 0].copy(), "shift": pairs[:, 1].copy()}
    fitted = [curve for curve in curves if curve is not None]
    sizes = [0 if curve is None else len(curve[0]) for curve in curves]
    return {
        "score": np.concatenate([curve[0] for curve in fitted]),
        "share": np.concatenate([curve[1] for curve in fitted]),
        "offsets": np.concatenate([[0], np.cumsum(sizes)]).astype(np.float64),
    }


def _isotonic(score: FloatArray, weight: FloatArray, increasing: bool) -> Curve:
    """Return the knots of the monotone curve of least squared error."""
    from sklearn.isotonic import IsotonicRegression  # type: ignore[import-untyped, unused-ignore]

    upward = increasing or not spearman(score, weight) < 0
    fitted = IsotonicRegression(y_min=0.0, y_max=1.0, increasing=upward, out_of_bounds="clip").fit(score, weight)
    return np.asarray(fitted.X_thresholds_, np.float64), np.asarray(fitted.y_thresholds_, np.float64)


def _platt(score: FloatArray, weight: FloatArray, increasing: bool) -> Curve:
    """Return slope and shift of the logistic curve; a row of weight w counts as w of a hit and 1 − w of a miss."""
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, unused-ignore]

    mean, deviation = float(score.mean()), float(score.std()) or 1.0
    scaled = np.tile((score - mean) / deviation, 2)[:, None]
    hit = np.repeat([1, 0], len(score))
    line = LogisticRegression().fit(scaled, hit, sample_weight=np.concatenate([weight, 1 - weight]))
    slope = float(line.coef_[0, 0]) / deviation
    if increasing and slope < 0:  # the score is not informative, so the curve is constant
        constant = float(np.clip(weight.mean(), 1e-6, 1 - 1e-6))
        return np.zeros(1), np.array([np.log(constant / (1 - constant))])
    return np.array([slope]), np.array([float(line.intercept_[0]) - slope * mean])


@dataclass(frozen=True)
class Calibration:
    """The two maps of a run from scores and relations to weights in [0, 1]."""

    method: str
    given_true: Curves
    with_negatives: Curves

    def digest(self) -> str:
        """Return a fingerprint of the map for true triples."""
        digest = hashlib.blake2b(self.method.encode(), digest_size=16)
        for name in CURVE_ARRAYS[self.method]:
            digest.update(np.ascontiguousarray(self.given_true.arrays[name], np.float64).tobytes())
        return digest.hexdigest()


# ---- probabilities ------------------------------------------------------------------------------------------------


def check_base_rate(rate: float) -> float:
    """Return a share of true links; raise FocuseError for other values."""
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < 1:
        raise FocuseError(f"base rate {rate!r}: give the share of true links among all candidates, in (0, 1)")
    return float(rate)


def plain_probability(score: FloatArray) -> FloatArray:
    """Return the logistic function of raw scores [n], the probability of an uncalibrated model."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * score)), np.float64)  # does not overflow


# ---- intervals ----------------------------------------------------------------------------------------------------


def check_coverage(coverage: float) -> float:
    """Return the coverage of intervals; raise FocuseError for values that none can have."""
    if isinstance(coverage, bool) or not isinstance(coverage, int | float) or not 0 < coverage < 1:
        raise FocuseError(f"coverage {coverage!r}: give a fraction above 0 and below 1, such as 0.9")
    return float(coverage)


def conformal_quantile(errors: FloatArray, coverage: float) -> float:
    """Return the ⌈(n + 1)·coverage⌉-th smallest of errors [n]; infinite if n rows are too few for the coverage.

    >>> conformal_quantile(np.array([0.3, 0.1, 0.2, 0.4]), 0.6)
    0.3
    """
    # The small number is subtracted, because 0.9 · 10 may be rounded to 9.000000000000002, which is not the tenth.
    rank = max(math.ceil((len(errors) + 1) * coverage - 1e-9), 1)
    return math.inf if rank > len(errors) else float(np.partition(errors, rank - 1)[rank - 1])


class Quantiles(NamedTuple):
    """Per relation [R]: half the width of intervals in scales, whether it is of the relation's own rows, and whether
    intervals end where the relation's range does."""

    half: FloatArray
    own: npt.NDArray[np.bool_]
    cut: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Conformal:
    """The `errors` [n] of predictions for conformal rows, in scales, with their `relation` [n] and true weight [n]."""

    errors: FloatArray
    relation: npt.NDArray[np.int64]
    relations: int
    truth: FloatArray

    def __len__(self) -> int:
        return len(self.errors)

    def quantiles(self, coverage: float) -> Quantiles:
        """Return how wide the intervals of each relation are."""
        check_coverage(coverage)
        pooled, ends = self._quantile(np.arange(len(self)), coverage)
        half, cut = np.full(self.relations, pooled), np.full(self.relations, ends)
        own = np.zeros(self.relations, bool)
        for index, rows in _rows_by_group(self.relation, self.relations):
            if len(rows) < MIN_QUANTILE_ROWS:
                continue
            found, ends = self._quantile(rows, coverage)
            if np.isfinite(found):  # 30 rows are too few for a coverage of 99 %, all rows together may suffice
                half[index], cut[index], own[index] = found, ends, True
        return Quantiles(half, own, cut)

    def _quantile(self, rows: npt.NDArray[np.intp], coverage: float) -> tuple[float, bool]:
        """Return the quantile of some rows, and whether intervals that end with the range can have the coverage."""
        beyond = (self.truth[rows] < 0) | (self.truth[rows] > 1)
        inside = conformal_quantile(np.where(beyond, np.inf, self.errors[rows]), coverage)
        if math.isfinite(inside):
            return inside, True
        return conformal_quantile(self.errors[rows], coverage), int(beyond.sum()) == 1

    def interval(
        self, mean: FloatArray, scale: FloatArray, relation: AnyIds, coverage: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return bounds [n] around means [n] that contain the true weight with probability `coverage`.

        If there are too few rows for that, intervals cover all weights of train and of the conformal rows.
        """
        half, _, cut = self.quantiles(coverage)
        least, most = np.zeros(self.relations), np.ones(self.relations)
        np.minimum.at(least, self.relation, self.truth)
        np.maximum.at(most, self.relation, self.truth)
        reach = half[relation] * (scale + MIN_SCALE)
        low = np.where(np.isinf(reach), least[relation], mean - reach)
        high = np.where(np.isinf(reach), most[relation], mean + reach)
        ends = cut[relation]
        return np.where(ends, np.clip(low, 0.0, 1.0), low), np.where(ends, np.clip(high, 0.0, 1.0), high)


def measure_errors(
    truth: FloatArray, mean: FloatArray, scale: FloatArray, relation: AnyIds, relations: int
) -> Conformal:
    """Measure how far predicted means [n] are from true weights [n], in units of the predicted scales [n].

    >>> measure_errors(np.array([0.5]), np.array([0.3]), np.array([0.095]), np.array([0]), 1).errors
    array([2.])
    """
    return Conformal(np.abs(truth - mean) / (scale + MIN_SCALE), relation.astype(np.int64), relations, truth)
