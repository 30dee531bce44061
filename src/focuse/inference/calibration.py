"""Calibration: what a score means as a weight, as an interval of weights, and as a probability.

**Weights.** One curve per relation, fitted on validation triples, maps scores to weights. There are two sets of curves:
`facts` is fitted on validation triples alone and predicts the weight of a link that exists; `doubting` is also fitted
on as many random negatives of weight 0, so it takes into account that most triples are false. The curve of a relation
with n rows counts n / (n + 50); the rest is one curve pooled over all relations, scaled to the relation's mean weight.

**Intervals.** Split conformal prediction: on rows to which nothing was fitted, the error of each prediction is measured
in units of its predicted spread, and every interval is as many spreads wide as the quantile of these errors. If rows
are exchangeable, the true weight of a new one lies inside with at least the stated probability, whatever the model. A
relation with enough rows has its own quantile (Mondrian); the others share one. Intervals end at the range of weights
that train shows for a relation, unless so many true weights lie beyond it that the coverage could not be kept.

**Probabilities.** Platt's or isotonic curves over the evidence: the score and, if train is large enough for forests,
the features of the graph around a triple, combined by logistic regression. Negatives are the user's or random ones.
The share of triples that are true is no property of a model: curves are fitted at the ratio of the rows they saw, then
shifted to the base rate that is asked for.

All weights here are in [0, 1] and mean the same for every relation (data/weights.py).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from focuse.data.graph import Graph
from focuse.errors import FocuseError
from focuse.evaluation.baselines import AnyIds, Predictor
from focuse.evaluation.metrics import FloatArray, spearman
from focuse.option_strings import choose
from focuse.storage.atomic import replace_file
from focuse.storage.tensors import check_tensors, write_arrays

if TYPE_CHECKING:  # which imports this module
    from focuse.inference.weight_estimator import Estimator

METHODS = ("isotonic", "platt")
PARTS = {
    "isotonic": ("trust", "ratio", "score", "share", "offsets"),
    "platt": ("trust", "ratio", "slope", "shift"),
}
FILE = "calibration.safetensors"
LAYOUT = 2  # of the file; in the first one all relations' weights were shares of one range
SAMPLE = 1 << 20  # bytes: every row of a table moves in training, so a part of them tells
TRUSTED = 50  # rows at which a relation's own curve counts as much as the pooled one
FEWEST = 5  # with fewer rows a relation has no curve of its own
Arrays = dict[str, npt.NDArray[np.float64]]
Part = tuple[FloatArray, FloatArray]  # a curve: its knots, or its slope and shift


@dataclass(frozen=True, eq=False)
class Curves:
    """Score -> share in [0, 1] for each of R relations.

    Curve 0 is the pooled one, curve r + 1 relation r's own. Isotonic: the knots `score` and `share` of curve c lie at
    offsets[c]:offsets[c + 1], straight lines between them. Platt: `slope` and `shift` [R + 1] of a logistic function.
    `trust` [R] is how far a relation's own curve counts, `ratio` [R] scales the pooled one.
    """

    method: str
    arrays: Arrays

    def check(self, relations: int) -> None:
        """Raise unless the arrays fit each other and `relations` relations."""
        sizes = {"trust": relations, "ratio": relations, "offsets": relations + 2}
        sizes |= {"slope": relations + 1, "shift": relations + 1}
        for name in PARTS[self.method]:
            array = self.arrays[name]
            if array.shape != (sizes.get(name, len(self.arrays.get("score", ()))),) or not np.isfinite(array).all():
                raise ValueError(f"{name} does not fit")
        bounded = ["trust", *(["share"] if self.method == "isotonic" else [])]
        if any(self.arrays[name].min(initial=0.0) < 0 or self.arrays[name].max(initial=0.0) > 1 for name in bounded):
            raise ValueError("shares outside [0, 1]")
        if self.method == "isotonic":
            offsets = self.arrays["offsets"]
            if offsets[0] != 0 or offsets[-1] != len(self.arrays["score"]) or np.any(np.diff(offsets) < 0):
                raise ValueError("offsets that do not fit")

    def __call__(self, score: FloatArray, relation: AnyIds) -> FloatArray:
        """Scores [n] of edges with `relation` [n] to shares [n]."""
        trust, ratio = self.arrays["trust"][relation], self.arrays["ratio"][relation]
        pooled = np.clip(self._curve(score, np.zeros(len(score), np.int64)) * ratio, 0.0, 1.0)
        own = self._curve(score, relation.astype(np.int64) + 1)
        return np.asarray(trust * own + (1 - trust) * pooled, np.float64)

    def _curve(self, score: FloatArray, curve: npt.NDArray[np.int64]) -> FloatArray:
        """The curves [n] at the scores [n]."""
        arrays = self.arrays
        if self.method == "platt":
            return _logistic(arrays["slope"][curve] * score + arrays["shift"][curve])
        result = np.zeros(len(score))
        for kind, rows in _grouped(curve, len(arrays["offsets"]) - 1):
            knots = slice(*arrays["offsets"][kind : kind + 2].astype(np.int64))
            if knots.stop > knots.start:
                result[rows] = np.interp(score[rows], arrays["score"][knots], arrays["share"][knots])
        return result


def fit_curves(
    method: str,
    score: FloatArray,
    relation: AnyIds,
    share: FloatArray,
    means: FloatArray,
    doubting: bool,
    *,
    never_sure: bool = False,
) -> Curves:
    """Curves of validation scores [n], relations [n] and true shares [n]; `means` [R] are train's mean shares.

    Facts may weigh less the higher they score (a plain model need not order by weight), so their curve runs either
    way; a `doubting` one only rises. With `never_sure` shares are of facts, and no curve reaches 0 or 1.
    """
    fit = {"isotonic": _isotonic, "platt": _platt}[choose("calibration", method, METHODS)]
    parts: list[Part | None] = [fit(score, share, doubting), *([None] * len(means))]
    for kind, rows in _grouped(relation, len(means)):
        if len(rows) >= FEWEST:
            parts[kind + 1] = fit(score[rows], share[rows], doubting)
    if never_sure and method == "isotonic":
        parts = _unsure(parts, score)
    facts = np.bincount(relation, minlength=len(means)).astype(np.float64)
    count = np.where(facts >= FEWEST, facts, 0.0)
    typical = float(means @ facts / facts.sum())
    ratio = means / typical if typical > 0 else np.ones(len(means))
    arrays = {"trust": count / (count + TRUSTED), "ratio": ratio}
    return Curves(method, arrays | _packed(method, parts))


def _grouped(group: AnyIds, groups: int) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Each group that occurs, with its rows; sorted once, however many groups there are."""
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group, minlength=groups))
    for kind in np.unique(group):
        yield int(kind), order[ends[kind - 1] if kind else 0 : ends[kind]]


def _packed(method: str, parts: list[Part | None]) -> Arrays:
    if method == "platt":
        pairs = np.array([(0.0, 0.0) if part is None else (part[0][0], part[1][0]) for part in parts])
        return {"slope": pairs[:, 0].copy(), "shift": pairs[:, 1].copy()}
    filled = [part for part in parts if part is not None]
    sizes = [0 if part is None else len(part[0]) for part in parts]
    return {
        "score": np.concatenate([part[0] for part in filled]),
        "share": np.concatenate([part[1] for part in filled]),
        "offsets": np.concatenate([[0], np.cumsum(sizes)]).astype(np.float64),
    }


def _unsure(parts: list[Part | None], score: FloatArray) -> list[Part | None]:
    """The curves without 0 and 1, by what the pooled one, which comes first, shows with its scores [n].

    Where n rows of all relations are facts without exception the next one is with (n + 1) / (n + 2), where none is with
    1 / (n + 2) (Laplace's rule of succession), but no step moves past the next one.
    """
    pooled = parts[0]
    if pooled is None:
        return parts
    there = np.interp(score, *pooled)
    between = there[(there > 0) & (there < 1)]
    none, every = 1 / ((there == 0).sum() + 2), 1 - 1 / ((there == 1).sum() + 2)
    least, most = min(none, between.min(initial=0.5)), max(every, between.max(initial=0.5))
    return [part and (part[0], _inside(part[1], least, most)) for part in parts]


def _inside(steps: FloatArray, least: float, most: float) -> FloatArray:
    between = steps[(steps > 0) & (steps < 1)]
    return np.clip(steps, min(least, between.min(initial=1.0)), max(most, between.max(initial=0.0)))


def _isotonic(score: FloatArray, share: FloatArray, rising: bool) -> Part:
    """Knots of the monotone step curve of least squared error."""
    from sklearn.isotonic import IsotonicRegression  # type: ignore[import-untyped, unused-ignore]

    way = rising or not spearman(score, share) < 0
    fitted = IsotonicRegression(y_min=0.0, y_max=1.0, increasing=way, out_of_bounds="clip").fit(score, share)
    return np.asarray(fitted.X_thresholds_, np.float64), np.asarray(fitted.y_thresholds_, np.float64)


def _platt(score: FloatArray, share: FloatArray, rising: bool) -> Part:
    """Slope and shift of the logistic curve; a row of share w counts as w of a hit and 1 − w of a miss."""
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, unused-ignore]

    middle, spread = float(score.mean()), float(score.std()) or 1.0
    scaled = np.tile((score - middle) / spread, 2)[:, None]
    hit = np.repeat([1, 0], len(score))
    line = LogisticRegression().fit(scaled, hit, sample_weight=np.concatenate([share, 1 - share]))
    slope = float(line.coef_[0, 0]) / spread
    if rising and slope < 0:  # nothing to learn from the score: the mean is all
        mean = float(np.clip(share.mean(), 1e-6, 1 - 1e-6))
        return np.zeros(1), np.array([np.log(mean / (1 - mean))])
    return np.array([slope]), np.array([float(line.intercept_[0]) - slope * middle])


def _logistic(x: FloatArray) -> FloatArray:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)), np.float64)  # no overflow at either end


@dataclass(frozen=True)
class Calibration:
    """The two maps of a run, score and relation to share in [0, 1]; `layout` is that of the file it comes from."""

    method: str
    facts: Curves
    doubting: Curves
    layout: int = LAYOUT

    def digest(self) -> str:
        """What tells the map of facts from another one."""
        digest = hashlib.blake2b(self.method.encode(), digest_size=16)
        for name in PARTS[self.method]:
            digest.update(np.ascontiguousarray(self.facts.arrays[name], np.float64).tobytes())
        return digest.hexdigest()

    def save(self, folder: Path, tables: str) -> None:
        """Write it into a run's folder, whole or not at all; `tables` is the fingerprint of what it was fitted to."""
        parts = {"facts": self.facts, "doubting": self.doubting}
        arrays = {f"{name}/{key}": value for name, part in parts.items() for key, value in part.arrays.items()}
        with replace_file(folder / FILE) as temporary:
            about = {"method": self.method, "tables": tables, "layout": self.layout}
            write_arrays(temporary, arrays, {"calibration": json.dumps(about)})

    @classmethod
    def load(cls, folder: Path, tables: str, relations: int) -> Calibration | None:
        """The calibration that a run's folder holds; None if there is none, or one of other tables."""
        path = folder / FILE
        if not path.exists() or not os.access(path, os.R_OK):
            return None
        try:
            check_tensors(path)
            with safe_open(path, framework="np") as file:
                arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
                about = json.loads(file.metadata()["calibration"])
            method = choose("calibration", about["method"], METHODS)
            if about["tables"] != tables:
                return None
            missing = {f"{part}/{key}" for part in ("facts", "doubting") for key in PARTS[method]} - set(arrays)
            if missing:
                raise ValueError(f"no {min(missing)}")
            facts, doubting = (
                Curves(method, {key.partition("/")[2]: value for key, value in arrays.items() if key.startswith(part)})
                for part in ("facts/", "doubting/")
            )
            facts.check(relations)
            doubting.check(relations)
            layout = int(about.get("layout", 1))
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError, FocuseError) as error:
            raise FocuseError(f"{path}: damaged file ({error}); remove it, it is made anew") from None
        return cls(method, facts, doubting, layout)


def fingerprint(folder: Path) -> str:
    """What tells the final tables of a run's folder from others: size, beginning and end of their file; '' without."""
    path = folder / "model.safetensors"
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            digest = hashlib.blake2b(str(size).encode(), digest_size=16)
            for start in (0, max(0, size - SAMPLE)):
                file.seek(start)
                digest.update(file.read(SAMPLE))
    except OSError:
        return ""
    return digest.hexdigest()


BASE_RATE = 0.5  # a negative for each fact, as UKGE's tests have


def check_base_rate(rate: float) -> float:
    """A share of facts among triples; raise for others."""
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < 1:
        raise FocuseError(f"base rate {rate!r}: give the share of facts among the triples you ask about, in (0, 1)")
    return float(rate)


def at_base_rate(probability: FloatArray, fitted: float, asked: float | FloatArray) -> FloatArray:
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

    line: FloatArray
    curves: Curves
    base_rate: float
    fitted_rate: float
    negatives: str  # 'drawn', or the source of those given

    @property
    def method(self) -> str:
        return self.curves.method

    def of(self, score: FloatArray, link: FloatArray | None, relation: AnyIds) -> FloatArray:
        """Probabilities [n] of triples with these scores [n] and beliefs of the surroundings [n]."""
        return at_base_rate(self.curves(evidence(self.line, score, link), relation), self.fitted_rate, self.base_rate)

    def at(self, base_rate: float) -> Probability:
        """The same for another share of facts among the triples asked about."""
        return replace(self, base_rate=check_base_rate(base_rate))


def evidence(line: FloatArray, score: FloatArray, link: FloatArray | None) -> FloatArray:
    """One number a triple [n]; without forests the score alone."""
    belief = np.zeros(len(score)) if link is None else _log_odds(link)
    return np.asarray(line[0] * score + line[1] * belief + line[2], np.float64)


def _log_odds(link: FloatArray) -> FloatArray:
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


def _line(score: FloatArray, link: FloatArray | None, label: FloatArray) -> FloatArray:
    """What a logistic regression gives score, belief and a constant."""
    if link is None:
        return np.array([1.0, 0.0, 0.0])
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, unused-ignore]

    columns = np.column_stack([score, _log_odds(link)])
    middle, spread = columns.mean(0), np.where(columns.std(0) > 0, columns.std(0), 1.0)
    fitted = LogisticRegression().fit((columns - middle) / spread, label)
    slope = fitted.coef_[0] / spread
    return np.array([*slope, float(fitted.intercept_[0]) - float(slope @ middle)])


def plain_probability(score: FloatArray) -> FloatArray:
    """The logistic of a raw score [n]: what a model says of itself before any calibration."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * score)), np.float64)


COVERAGE = 0.9
FLOOR = 0.005  # of a relation's range: no edge is surer than this
OWN = 30  # conformal rows from which a relation has a quantile of its own


def check_coverage(coverage: float) -> float:
    """A coverage that an interval can have; raise for others."""
    if isinstance(coverage, bool) or not isinstance(coverage, int | float) or not 0 < coverage < 1:
        raise FocuseError(f"coverage {coverage!r}: give a share above 0 and below 1, such as 0.9")
    return float(coverage)


def conformal_quantile(off: FloatArray, coverage: float) -> float:
    """The ⌈(n + 1)·coverage⌉-th smallest of `off` [n]; infinite where n rows cannot promise so much.

    >>> conformal_quantile(np.array([0.3, 0.1, 0.2, 0.4]), 0.6)
    0.3
    """
    # Less a hair: 0.9 · 10 is 9.000000000000002 in some orders of rounding, and must not ask for the tenth.
    place = math.ceil((len(off) + 1) * coverage - 1e-9)
    if place > len(off):
        return math.inf
    return float(np.partition(off, max(place, 1) - 1)[max(place, 1) - 1])


class Quantiles(NamedTuple):
    """Of each relation [R]: half the width of its intervals in spreads, whether it is of its own rows, and whether
    intervals end where the relation's range does."""

    half: FloatArray
    own: npt.NDArray[np.bool_]
    cut: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Conformal:
    """What the conformal rows said: how far off each guess was (`off` [n], in spreads), and of which `relation` [n].

    `truth` [n] are their shares.
    """

    off: FloatArray
    relation: npt.NDArray[np.int64]
    relations: int
    truth: FloatArray

    def __len__(self) -> int:
        return len(self.off)

    @property
    def beyond(self) -> npt.NDArray[np.bool_]:
        """Rows [n] that lie outside of what train shows of their relation."""
        return (self.truth < 0) | (self.truth > 1)

    def quantiles(self, coverage: float) -> Quantiles:
        """How wide each relation's intervals are."""
        check_coverage(coverage)
        pooled, ends = self._quantile(np.arange(len(self)), coverage)
        half, cut = np.full(self.relations, pooled), np.full(self.relations, ends)
        own = np.bincount(self.relation, minlength=self.relations) >= OWN
        order = np.argsort(self.relation, kind="stable")
        start = np.searchsorted(self.relation[order], np.arange(self.relations + 1))
        for kind in np.flatnonzero(own):
            found, ends = self._quantile(order[start[kind] : start[kind + 1]], coverage)
            own[kind] = np.isfinite(found)  # 30 rows cannot promise 99 %, all together may
            if own[kind]:
                half[kind], cut[kind] = found, ends
        return Quantiles(half, own, cut)

    def _quantile(self, rows: npt.NDArray[np.intp], coverage: float) -> tuple[float, bool]:
        """The quantile of some rows, and whether intervals that end with the range can hold what it promises."""
        beyond = self.beyond[rows]
        inside = conformal_quantile(np.where(beyond, np.inf, self.off[rows]), coverage)
        if math.isfinite(inside):
            return inside, True
        return conformal_quantile(self.off[rows], coverage), int(beyond.sum()) == 1

    def interval(
        self, middle: FloatArray, spread: FloatArray, relation: AnyIds, coverage: float
    ) -> tuple[FloatArray, FloatArray]:
        """Bounds [n] around shares [n] that hold the truth with probability `coverage`.

        Where rows are too few to promise it, all that train and the rows of its relation show.
        """
        half, _, cut = self.quantiles(coverage)
        least, most = np.zeros(self.relations), np.ones(self.relations)
        np.minimum.at(least, self.relation, self.truth)
        np.maximum.at(most, self.relation, self.truth)
        reach = half[relation] * (spread + FLOOR)
        low = np.where(np.isinf(reach), least[relation], middle - reach)
        high = np.where(np.isinf(reach), most[relation], middle + reach)
        ends = cut[relation]
        return np.where(ends, np.clip(low, 0.0, 1.0), low), np.where(ends, np.clip(high, 0.0, 1.0), high)


def measure(truth: FloatArray, middle: FloatArray, spread: FloatArray, relation: AnyIds, relations: int) -> Conformal:
    """How far guesses [n] are from truths [n], counted in the spreads [n] that they were given with.

    >>> measure(np.array([0.5]), np.array([0.3]), np.array([0.095]), np.array([0]), 1).off
    array([2.])
    """
    return Conformal(np.abs(truth - middle) / (spread + FLOOR), relation.astype(np.int64), relations, truth)
