"""From a score to a weight: a map a relation, fitted on validation, that gives any model's scores a meaning.

Two maps stand side by side. `facts` is fitted on the validation triples alone and says what a link would weigh if it
is one; `doubting` is fitted on as many random corruptions of weight 0 besides and so knows that most triples are false.

A relation's own curve is trusted as far as it has rows, n / (n + 50); the rest comes from one curve pooled over all
relations, scaled to the relation's mean weight in train. Weights are shares here (graph/units.py).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from focuse.errors import FocuseError, choose
from focuse.evaluation.baselines import AnyIds, Floats
from focuse.evaluation.confidence import spearman
from focuse.graph.checksums import KEY, UNKNOWN, check_tensors, seal_tensors
from focuse.graph.writing import replacing
from focuse.training.files import has_checksums

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
Part = tuple[Floats, Floats]  # a curve: its knots, or its slope and shift


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

    def __call__(self, score: Floats, relation: AnyIds) -> Floats:
        """Scores [n] of edges with `relation` [n] to shares [n]."""
        trust, ratio = self.arrays["trust"][relation], self.arrays["ratio"][relation]
        pooled = np.clip(self._curve(score, np.zeros(len(score), np.int64)) * ratio, 0.0, 1.0)
        own = self._curve(score, relation.astype(np.int64) + 1)
        return np.asarray(trust * own + (1 - trust) * pooled, np.float64)

    def _curve(self, score: Floats, curve: npt.NDArray[np.int64]) -> Floats:
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
    score: Floats,
    relation: AnyIds,
    share: Floats,
    means: Floats,
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


def _unsure(parts: list[Part | None], score: Floats) -> list[Part | None]:
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


def _inside(steps: Floats, least: float, most: float) -> Floats:
    between = steps[(steps > 0) & (steps < 1)]
    return np.clip(steps, min(least, between.min(initial=1.0)), max(most, between.max(initial=0.0)))


def _isotonic(score: Floats, share: Floats, rising: bool) -> Part:
    """Knots of the monotone step curve of least squared error."""
    from sklearn.isotonic import IsotonicRegression  # type: ignore[import-untyped, unused-ignore]

    way = rising or not spearman(score, share) < 0
    fitted = IsotonicRegression(y_min=0.0, y_max=1.0, increasing=way, out_of_bounds="clip").fit(score, share)
    return np.asarray(fitted.X_thresholds_, np.float64), np.asarray(fitted.y_thresholds_, np.float64)


def _platt(score: Floats, share: Floats, rising: bool) -> Part:
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


def _logistic(x: Floats) -> Floats:
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
        with replacing(folder / FILE) as temporary:
            about = {"method": self.method, "tables": tables, "layout": self.layout}
            save_file(arrays, temporary, {"calibration": json.dumps(about), KEY: UNKNOWN})
            seal_tensors(temporary)

    @classmethod
    def load(cls, folder: Path, tables: str, relations: int) -> Calibration | None:
        """The calibration that a run's folder holds; None if there is none, or one of other tables."""
        path = folder / FILE
        if not path.exists() or not os.access(path, os.R_OK):
            return None
        try:
            check_tensors(path, has_checksums(folder))
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
