"""Calibration: what a score means as a weight, as an interval of weights, and as a probability.

**Weights.** One curve per relation, fitted on validation triples, maps scores to weights. There are two sets of curves:
`given_true` is fitted on validation triples alone and predicts the weight of a link that exists; `with_negatives` is
also fitted on as many random negatives of weight 0, so it allows for false triples. The curve of a relation with n
rows counts n / (n + 50); the rest is one curve pooled over all relations, scaled to the relation's mean weight.

**Intervals.** Split conformal prediction: on rows to which nothing was fitted, the error of each prediction is measured
in units of its predicted scale, and every interval is as many scales wide as the quantile of these errors. If rows are
exchangeable, the true weight of a new one lies inside with at least the stated probability, whatever the model. A
relation with enough rows has its own quantile (Mondrian); the others share one. Intervals end at the range of weights
that train shows for a relation, unless so many true weights lie beyond it that the coverage could not be kept.

**Probabilities.** Platt's or isotonic curves over the evidence: the score and, if train is large enough for boosted
trees, the features of the graph around a triple, combined by logistic regression. Negatives are the user's or random
ones. The fraction of triples that are true is no property of a model: curves are fitted at the ratio of the rows they
saw, then shifted to the base rate that the user gives.

All weights here are in [0, 1] and mean the same for every relation (data/weights.py).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from focuse.data.graph import Graph, concatenate
from focuse.errors import FocuseError
from focuse.evaluation.baselines import AnyIds, Predictor
from focuse.evaluation.metrics import FloatArray, spearman
from focuse.option_strings import choose

if TYPE_CHECKING:  # which imports this module
    from focuse.inference.weight_estimator import Estimator

METHODS = ("isotonic", "platt")
CURVE_ARRAYS = {
    "isotonic": ("trust", "ratio", "score", "share", "offsets"),
    "platt": ("trust", "ratio", "slope", "shift"),
}
HALF_TRUST_ROWS = 50  # rows at which a relation's own curve counts as much as the pooled one
MIN_CURVE_ROWS = 5  # with fewer rows a relation has no curve of its own
BASE_RATE = 0.5  # one negative per positive, as in UKGE's tests
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
    *,
    never_certain: bool = False,
) -> Curves:
    """Fit curves to validation scores [n], relations [n] and true weights [n].

    Parameters
    ----------
    means
        Mean training weights per relation, [R].
    increasing
        Whether curves may only increase. Among true triples, weights may decrease with the score, because an
        unweighted model need not order triples by weight.
    never_certain
        Whether weights are labels 0 and 1, such that no curve may reach 0 or 1.
    """
    fit = {"isotonic": _isotonic, "platt": _platt}[choose("calibration", method, METHODS)]
    curves: list[Curve | None] = [fit(score, weight, increasing), *([None] * len(means))]
    for index, rows in _rows_by_group(relation, len(means)):
        if len(rows) >= MIN_CURVE_ROWS:
            curves[index + 1] = fit(score[rows], weight[rows], increasing)
    if never_certain and method == "isotonic":
        curves = _without_certainty(curves, score)
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


def _without_certainty(curves: list[Curve | None], score: FloatArray) -> list[Curve | None]:
    """Replace 0 and 1 in curves by what the pooled curve, which comes first, shows at its scores [n].

    If n rows of all relations are true without exception, the next one is true with probability (n + 1) / (n + 2), and
    if none is, with 1 / (n + 2) (Laplace's rule of succession), but no step moves past the next one.
    """
    pooled = curves[0]
    if pooled is None:
        return curves
    at_rows = np.interp(score, *pooled)
    between = at_rows[(at_rows > 0) & (at_rows < 1)]
    low = min(1 / ((at_rows == 0).sum() + 2), between.min(initial=0.5))
    high = max(1 - 1 / ((at_rows == 1).sum() + 2), between.max(initial=0.5))

    def clip(steps: FloatArray) -> FloatArray:
        inner = steps[(steps > 0) & (steps < 1)]
        return np.clip(steps, min(low, inner.min(initial=1.0)), max(high, inner.max(initial=0.0)))

    return [curve and (curve[0], clip(curve[1])) for curve in curves]


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
    """Return a fraction of true triples; raise FocuseError for other values."""
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < 1:
        raise FocuseError(f"base rate {rate!r}: give the fraction of true triples among those to predict, in (0, 1)")
    return float(rate)


def at_base_rate(probability: FloatArray, fitted: float, base_rate: float | FloatArray) -> FloatArray:
    """Convert probabilities [n], fitted where a fraction `fitted` of triples is true, to another base rate.

    >>> at_base_rate(np.array([0.0, 0.5, 1.0]), 0.5, 0.1).tolist()
    [0.0, 0.1, 1.0]
    """
    odds = base_rate * (1 - fitted), fitted * (1 - base_rate)
    true, false = probability * odds[0], (1 - probability) * odds[1]
    return np.asarray(true / (true + false), np.float64)


@dataclass(frozen=True, eq=False)
class Probability:
    """The probability that a triple is true, by `curves` over evidence = line · (score, log-odds of link, 1)."""

    line: FloatArray
    curves: Curves
    base_rate: float
    fitted_rate: float
    negatives: str  # 'drawn', or the source of the negatives
    rates: FloatArray | None = None  # base rates per relation [R], instead of `base_rate`

    @property
    def method(self) -> str:
        return self.curves.method

    def of(self, score: FloatArray, link: FloatArray | None, relation: AnyIds) -> FloatArray:
        """Return probabilities [n] for scores [n] and for the probabilities of a link by graph features [n]."""
        rate = self.base_rate if self.rates is None else self.rates[relation]
        return at_base_rate(self.curves(evidence(self.line, score, link), relation), self.fitted_rate, rate)

    def at(self, base_rate: float) -> Probability:
        """Return the same for another fraction of true triples."""
        return replace(self, base_rate=check_base_rate(base_rate), rates=None)


def evidence(line: FloatArray, score: FloatArray, link: FloatArray | None) -> FloatArray:
    """Combine the score and the log-odds of a link, if known, into one number per triple [n]."""
    odds = np.zeros(len(score)) if link is None else _log_odds(link)
    return np.asarray(line[0] * score + line[1] * odds + line[2], np.float64)


def _log_odds(link: FloatArray) -> FloatArray:
    safe = np.clip(link, 0.001, 0.999)
    return np.asarray(np.log(safe / (1 - safe)), np.float64)


def fit_probability(
    positives: Graph,
    false: Graph,
    score: Predictor,
    estimator: Estimator | None,
    method: str = "isotonic",
    base_rate: float = BASE_RATE,
    negatives: str = "drawn",
) -> Probability:
    """Fit probabilities to held-out `positives` and to `false` triples, in train's ids; `negatives` is their source."""
    both = concatenate([positives, false])
    ids = both.head, both.relation, both.tail
    label = np.repeat([1.0, 0.0], [len(positives), len(false)])
    scores = score(*ids)
    link = None if estimator is None else estimator(*ids).link
    line = _fit_line(scores, link, label)
    seen, means = evidence(line, scores, link), np.ones(len(positives.relations))
    curves = fit_curves(method, seen, both.relation, label, means, increasing=True, never_certain=True)
    return Probability(line, curves, check_base_rate(base_rate), float(label.mean()), negatives)


def _fit_line(score: FloatArray, link: FloatArray | None, label: FloatArray) -> FloatArray:
    """Return the coefficients of score, log-odds and a constant, by logistic regression."""
    if link is None:
        return np.array([1.0, 0.0, 0.0])
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, unused-ignore]

    columns = np.column_stack([score, _log_odds(link)])
    mean, deviation = columns.mean(0), np.where(columns.std(0) > 0, columns.std(0), 1.0)
    fitted = LogisticRegression().fit((columns - mean) / deviation, label)
    slope = fitted.coef_[0] / deviation
    return np.array([*slope, float(fitted.intercept_[0]) - float(slope @ mean)])


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
