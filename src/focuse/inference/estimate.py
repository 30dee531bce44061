"""The weight of an edge that nobody has seen: forests over what train says around it, and over the model's score.

Two stages, since a model's scores of the rows that it was trained on are too good. Stage one knows the surroundings
alone and learns from train, each fold asked of the others; stage two corrects it on the calibration part of validation,
where the score means what it will mean later. The stopping part says how far the plain guesses (the score's curve and
the relation's mean) have a say beside the forests, and how far off all that is likely to be; the conformal part, which
nothing was fitted to, says how far that holds.

Everything here is in shares, weights in [0, 1]; which number of an edge that is, is the caller's choice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from focuse.evaluation.baselines import RELATION_MEAN, AnyIds, Floats, Predictor, fit_trivial
from focuse.evaluation.weighing import draw_negatives, join
from focuse.graph.graph import Graph
from focuse.graph.splits import Held
from focuse.inference.intervals import COVERAGE, Conformal, measure
from focuse.inference.surroundings import Keys, Surroundings, find
from focuse.inference.trees import Forest, grow

FOLDS = 10
MOST_ROWS = 100_000  # of train that stage one learns from; more changes the third digit of an error
FEWEST_EDGES = 1_000  # of train for stage one
FEWEST_CALIBRATION = 500  # rows for stage two
FEWEST_BOUNDS = 300  # rows for bounds that differ from edge to edge
FEW = 30  # rows that decide nothing
AT_ONCE = 1 << 17
REMEMBERED = 6  # the last sets of triples stay, since tables ask for the same ones by several names
WORTH_LOOKING = 1000  # triples from which it pays to look which of them an earlier set had
MORE = 4  # columns that stage two sees beyond stage one's: what that says, and scores; bounds see one more
FEW_ROWS = 50_000  # with fewer rows of train, threads wait for each other longer than they work
EARNED = 0.98  # a further guess must bring the squared error below this much of what it is without
FITTED = (-1.0, 2.0)  # a held-out share farther off counts as one a whole range beyond
STAGE_ONE = ("facts", "link")
STAGE_TWO = ("facts_second", "doubting_second", "doubting_middle")
BOUNDS = ("middle", "spread")
USELESS = "surroundings do not beat the plain guess on held-out rows; the plain guess is used"


@dataclass(frozen=True, eq=False)
class Estimates:
    """Shares [n] of n triples: the mean and the median if each is a fact, and how far off that is likely to be.

    `doubting` and `doubting_typical` are mean and median of what may be no fact at all, then of weight 0; `link` is how
    much the surroundings alone speak for a link, None without forests.
    """

    expected: Floats
    typical: Floats
    spread: Floats
    doubting: Floats
    doubting_typical: Floats
    link: Floats | None


@dataclass(frozen=True, eq=False)
class Estimator:
    """Estimates for any triples, ids [n] each. `forests` may lack stages that there were too few rows for.

    What is expected is `mix` [3] of three: forests, the `curve` of scores and the relation's mean.
    """

    train: Graph
    score: Predictor | None
    curve: Predictor
    forests: dict[str, Forest]
    mix: Floats
    conformal: Conformal
    notes: tuple[str, ...] = ()
    _memory: dict[bytes, tuple[Keys, Estimates]] = field(default_factory=dict, repr=False)
    _around: list[Surroundings] = field(default_factory=list, repr=False)

    def __call__(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> Estimates:
        keys = self.train.keys_of(head, relation, tail)
        key = hashlib.blake2b(np.ascontiguousarray(keys, np.int64).tobytes(), digest_size=16).digest()
        if key not in self._memory:
            made = self._with_known(keys, head, relation, tail)
            while len(self._memory) >= REMEMBERED:
                self._memory.pop(next(iter(self._memory)))
            self._memory[key] = keys, made
        return self._memory[key][1]

    def _with_known(self, keys: Keys, head: AnyIds, relation: AnyIds, tail: AnyIds) -> Estimates:
        """Triples of an earlier set are not estimated again: protocols are parts of each other."""
        if len(keys) < WORTH_LOOKING or "facts" not in self.forests:
            return self._estimate(head, relation, tail)
        columns: dict[str, Any] = {name: np.empty(len(keys)) for name in Estimates.__dataclass_fields__}
        open_rows = np.arange(len(keys))
        for old_keys, old in self._memory.values():
            order = np.argsort(old_keys, kind="stable")
            place, found = find(old_keys[order], keys[open_rows])
            for name, column in columns.items():
                column[open_rows[found]] = getattr(old, name)[order[place[found]]]
            open_rows = open_rows[~found]
        if len(open_rows):
            rest = self._estimate(*(ids[open_rows] for ids in (head, relation, tail)))
            for name, column in columns.items():
                column[open_rows] = getattr(rest, name)
        return Estimates(**columns)

    def _estimate(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> Estimates:
        starts = range(0, max(len(head), 1), AT_ONCE)
        parts = [self._block(*(ids[start : start + AT_ONCE] for ids in (head, relation, tail))) for start in starts]
        if len(parts) == 1:
            return parts[0]
        columns = {name: [getattr(part, name) for part in parts] for name in Estimates.__dataclass_fields__}
        whole: dict[str, Any] = {
            name: None if each[0] is None else np.concatenate(each) for name, each in columns.items()
        }
        return Estimates(**whole)

    def _block(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> Estimates:
        if "facts" not in self.forests or not len(head):
            flat = self.mixed(np.zeros(len(head)), head, relation, tail)
            return Estimates(flat, flat, np.zeros(len(flat)), flat, flat, None)
        rows, facts, link = self.second_rows(head, relation, tail)
        expected = self.mixed(self.corrected(rows, facts), head, relation, tail)
        doubting = np.clip(link * facts + self._more("doubting_second", rows), 0.0, 1.0)
        unsure = doubting
        if "doubting_middle" in self.forests:
            unsure = np.clip(self.forests["doubting_middle"](rows), 0.0, 1.0)
        rows = np.column_stack([expected, rows])
        typical = np.clip(expected + self._more("middle", rows), 0.0, 1.0)
        spread = np.maximum(self._more("spread", rows), np.zeros(len(rows)))
        return Estimates(expected, typical, spread, doubting, unsure, link)

    def corrected(self, rows: Floats, facts: Floats) -> Floats:
        """What both stages say of a fact's share [n]."""
        return np.clip(facts + self._more("facts_second", rows), 0.0, 1.0)

    def mixed(self, forests: Floats, head: AnyIds, relation: AnyIds, tail: AnyIds) -> Floats:
        """The expected share [n], given what the forests say of it."""
        total = self.mix[0] * forests
        if self.mix[1] > 0:
            total = total + self.mix[1] * self.curve(head, relation, tail)
        if self.mix[2] > 0:
            total = total + self.mix[2] * fit_trivial(self.train)[RELATION_MEAN](head, relation, tail)
        return np.asarray(np.clip(total, 0.0, 1.0), np.float64)

    def _more(self, name: str, rows: Floats) -> Floats | float:
        return self.forests[name](rows) if name in self.forests else 0.0

    def second_rows(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> tuple[Floats, Floats, Floats]:
        """What stage two sees [n, features], and stage one's share if it is a fact [n] and belief in the link [n]."""
        if not self._around:
            self._around.append(Surroundings(self.train))
        rows = self._around[0].rows(head, relation, tail)
        facts = np.clip(self.forests["facts"](rows), 0.0, 1.0)
        link = np.clip(self.forests["link"](rows), 0.0, 1.0)
        columns = [facts, link]
        if self.score is not None:
            columns += [self.score(head, relation, tail), self.score(tail, relation, head)]
        return np.column_stack([*columns, rows]), facts, link

    def interval(self, estimates: Estimates, relation: AnyIds, coverage: float = COVERAGE) -> tuple[Floats, Floats]:
        """Shares [n] between which a fact's lies with probability `coverage`."""
        return self.conformal.interval(estimates.expected, estimates.spread, relation, coverage)


def fit(
    train: Graph,
    held: Held,
    score: Predictor | None = None,
    curve: Predictor | None = None,
    known_keys: AnyIds | None = None,
    seed: int = 0,
) -> Estimator:
    """An estimator of train's weights, which are shares in [0, 1]; those of `held` may lie beyond.

    `score` gives a model's scores of triples, `curve` shares by a calibration of them (else the relation's mean stands
    in), `known_keys` more facts that no drawn negative may be.
    """
    plain = curve or fit_trivial(train)[RELATION_MEAN]
    known = train.keys if known_keys is None else known_keys
    forests: dict[str, Forest] = {}
    notes: list[str] = []
    nothing = Conformal(np.empty(0), np.empty(0, np.int64), len(train.relations), np.empty(0))
    made = Estimator(train, score, plain, forests, np.array([1.0, 0.0, 0.0]), nothing)
    if len(train) < FEWEST_EDGES or not np.ptp(train.weight) > 0:
        notes.append(
            f"{len(train):,} edges in train with {_kinds(train)}: too few to learn weights from their surroundings"
        )
    else:
        with _threads(train):
            forests |= _stage_one(train, seed)
            if len(held.calibration) >= FEWEST_CALIBRATION:
                near = _near(held)
                forests |= _stage_two(made, near.calibration, known, seed)
                _keep_if_better(made, near.stopping)
    return finish(replace(made, notes=tuple(notes)), held)


def finish(made: Estimator, held: Held) -> Estimator:
    """The same with all that follows from the forests of both stages and the curve: mix, bounds and intervals."""
    forests = {name: forest for name, forest in made.forests.items() if name not in BOUNDS}
    made = replace(made, forests=forests, _memory={})
    near = _near(held)
    with _threads(made.train):
        made = replace(made, mix=_mix(made, near))
        if forests and not made.mix[0] > 0:
            forests.clear()
            made = replace(made, notes=(*made.notes, USELESS))
        bounds = near.stopping if len(near.stopping) >= FEWEST_BOUNDS else near.calibration
        if forests and len(bounds) >= FEWEST_BOUNDS:
            forests |= _bounds(made, bounds)
        return replace(made, conformal=_measured(made, measuring(made, held)))


def _near(held: Held) -> Held:
    """What is fitted to: one row a hundred ranges off would outweigh all others. What is measured stays as it is."""
    parts = (held.stopping, held.calibration, held.conformal)
    return Held(*(replace(part, weight=np.clip(part.weight, *FITTED)) for part in parts))


@contextmanager
def _threads(train: Graph) -> Iterator[None]:
    """One thread for a small graph: its products and trees are so small that others would wait for most of the time."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, unused-ignore]

    with threadpool_limits(1 if len(train) < FEW_ROWS else None):
        yield


def _kinds(train: Graph) -> str:
    many = len(np.unique(train.weight))
    return f"{many} weight" if many == 1 else f"{many:,} weights"


def _folds(train: Graph, seed: int) -> list[AnyIds]:
    """Rows of train to hold out in turn: a tenth at a time, and no more in all than stage one needs.

    Rows that repeat a triple with the very same weight go together; with another weight they are another edge.
    """
    size = min(-(-len(train) // FOLDS), MOST_ROWS)
    fold = np.empty(len(train), np.int64)
    fold[np.random.default_rng([seed, 0xF01D]).permutation(len(train))] = np.arange(len(train)) // size
    order = np.lexsort((train.weight, train.keys))
    again = (np.diff(train.keys[order]) == 0) & (np.diff(train.weight[order]) == 0)
    first = np.maximum.accumulate(np.where(np.append(False, again), 0, np.arange(len(train))))
    fold[order] = fold[order[first]]
    return [np.flatnonzero(fold == number) for number in range(min(FOLDS, -(-MOST_ROWS // size)))]


def _stage_one(train: Graph, seed: int) -> dict[str, Forest]:
    """The weight of facts, and whether a triple is one, from surroundings that do not hold the triple itself."""
    popular = np.concatenate([train.head, train.tail])
    rows, shares, facts = [], [], []
    for number, fold in enumerate(_folds(train, seed)):
        rest = np.ones(len(train), bool)
        rest[fold] = False
        true = train.select(fold)
        false = draw_negatives(true, train.keys, seed + number, popular)
        both = join([true, false])
        rows.append(Surroundings(train.select(rest)).rows(both.head, both.relation, both.tail))
        shares.append(both.weight)
        facts.append(np.arange(len(both)) < len(true))
    every, share, fact = np.concatenate(rows), np.concatenate(shares), np.concatenate(facts)
    return {
        "facts": grow(every[fact], share[fact], trees=300, leaves=63, rate=0.08),
        "link": grow(every, fact.astype(np.float64)),
    }


def _stage_two(made: Estimator, calibration: Graph, known: AnyIds, seed: int) -> dict[str, Forest]:
    """Corrections that know the model's score: of a fact's share, and of one that may be none."""
    popular = np.concatenate([made.train.head, made.train.tail])
    false = draw_negatives(calibration, known, seed + FOLDS, popular)
    both = join([calibration, false])
    rows, facts, link = made.second_rows(both.head, both.relation, both.tail)
    fact = np.arange(len(both)) < len(calibration)
    return {
        "facts_second": _small(rows[fact], (both.weight - facts)[fact]),
        "doubting_second": grow(rows, both.weight - link * facts, trees=150, leaves=8, rate=0.05),
        "doubting_middle": grow(rows, both.weight, quantile=0.5, trees=150, leaves=8, rate=0.05),
    }


def _keep_if_better(made: Estimator, stopping: Graph) -> None:
    """Where surroundings say all about a fact's weight, the score adds noise: the correction must earn its place."""
    if len(stopping) < FEW:
        made.forests.pop("facts_second")
        return
    rows, facts, _ = made.second_rows(stopping.head, stopping.relation, stopping.tail)
    if not np.mean((made.corrected(rows, facts) - stopping.weight) ** 2) < np.mean((facts - stopping.weight) ** 2):
        made.forests.pop("facts_second")


def _small(rows: Floats, truth: Floats, quantile: float | None = None) -> Forest:
    return grow(rows, truth, quantile=quantile, trees=100, leaves=8, rate=0.05, fewest=30)


def _mix(made: Estimator, held: Held) -> Floats:
    """How much forests, curve and relation's mean count [3], by their errors on held-out rows.

    As few of them as will do: what another one adds must be worth having. Without rows to judge by it is the forests,
    or else the curve.
    """
    rows = held.stopping
    if len(rows) < FEW:
        return np.array([1.0, 0.0, 0.0]) if made.forests else np.array([0.0, 1.0, 0.0])
    sets = [(2,), (1,), (0,), (0, 2), (0, 1), (0, 1, 2)] if made.forests else [(2,), (1,), (1, 2)]
    ids = rows.head, rows.relation, rows.tail
    guesses = np.zeros((len(rows), 3))
    if made.forests:
        guesses[:, 0] = made.corrected(*made.second_rows(*ids)[:2])
    guesses[:, 1], guesses[:, 2] = made.curve(*ids), fit_trivial(made.train)[RELATION_MEAN](*ids)
    found = [_shares(guesses, rows.weight, some) for some in sets]
    errors = [_error(guesses, rows.weight, shares) for shares in found]
    return next(shares for shares, error in zip(found, errors, strict=True) if error * EARNED <= min(errors))


def _shares(guesses: Floats, truth: Floats, some: tuple[int, ...]) -> Floats:
    """Shares [3] of `some` guesses [n, 3], at least 0 and 1 together, whose sum is nearest to truth [n].

    With so few, each subset is solved for itself; the best one without a share below 0 is the answer.
    """
    best, least = np.zeros(guesses.shape[1]), np.inf
    for size in range(1, len(some) + 1):
        for subset in combinations(some, size):
            first, rest = subset[0], list(subset[1:])
            shares = np.zeros(guesses.shape[1])
            if rest:
                apart = guesses[:, rest] - guesses[:, [first]]
                shares[rest] = np.linalg.lstsq(apart, truth - guesses[:, first], rcond=None)[0]
            shares[first] = 1.0 - shares.sum()
            error = _error(guesses, truth, shares)
            if (shares >= 0).all() and error < least:
                best, least = shares, error
    return best


def _error(guesses: Floats, truth: Floats, shares: Floats) -> float:
    return float(np.mean((guesses @ shares - truth) ** 2))


def _bounds(made: Estimator, rows: Graph) -> dict[str, Forest]:
    """Where the median lies beside what is expected, and how far off that is."""
    inputs, facts, _ = made.second_rows(rows.head, rows.relation, rows.tail)
    expected = made.mixed(made.corrected(inputs, facts), rows.head, rows.relation, rows.tail)
    inputs = np.column_stack([expected, inputs])
    off = rows.weight - expected
    return {"middle": _small(inputs, off, 0.5), "spread": _small(inputs, np.abs(off))}


def measuring(made: Estimator, held: Held) -> Graph:
    """The rows that say how far weights are off: the conformal part.

    Where nothing that expected weights use was fitted to the calibration part, its rows are as fresh, and join.
    """
    bounded = len(held.stopping) < FEWEST_BOUNDS and "spread" in made.forests
    learned = bool(made.forests) and len(held.calibration) >= FEWEST_CALIBRATION
    fresh = not (bounded or learned or made.mix[1] > 0)
    return join([held.calibration, held.conformal]) if fresh else held.conformal


def _measured(made: Estimator, rows: Graph) -> Conformal:
    found = made._estimate(rows.head, rows.relation, rows.tail)
    return measure(rows.weight, found.expected, found.spread, rows.relation, len(made.train.relations))
