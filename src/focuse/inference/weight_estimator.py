"""Estimate the weight of an unseen edge by forests over features of the graph and over the model's score.

The features of a (head, relation, tail) need no model: weights of the same triple, of the inverse edge and of the pair
by other relations; weights and numbers of the edges of both ends; low-rank estimates. The triple itself must not be in
the graph that the features come from, so the rows that a forest is trained on get their features from the other folds.

There are two stages, because a model's scores of its own training triples are too good. Stage one uses the graph
features alone and is trained on train. Stage two corrects it on the calibration part of validation, with the score.
The stopping part decides how much the plain estimates (the score's curve, the relation's mean) count next to the
forests, and how large the error is likely to be; the conformal part, to which nothing is fitted, measures the error.

All weights here are in [0, 1].
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.data.graph import Graph, concatenate, find_all_sorted, find_sorted, lookup_sorted
from focuse.data.splits import ValidationParts
from focuse.evaluation.baselines import RELATION_MEAN, AnyIds, Predictor, fit_weight_baselines
from focuse.evaluation.metrics import FloatArray
from focuse.inference.calibration import COVERAGE, Conformal, measure
from focuse.inference.trees import Forest, grow
from focuse.objective.negatives import corrupt_graph
from focuse.random_streams import RandomStream

Keys = npt.NDArray[np.int64]
ABSENT = -2.0  # stands for "train has none": below every share and every difference of shares
SHRINK = 3.0  # edges at which an entity's own mean counts half
RANK = 16  # of residual weights
LINK_RANK = 32  # of links
NEIGHBOURS = 512  # of an entity that count as common ones; hubs would cost their degree for each triple
FEATURES = 55  # columns of `rows`
PAIRS_AT_ONCE = 1 << 15  # triples whose neighbours are compared at once


@dataclass(frozen=True, eq=False)
class Table:
    """For each distinct key [k], sorted: how many values it has, and their mean, least, middle and greatest."""

    keys: Keys
    columns: dict[str, FloatArray]

    @classmethod
    def of(cls, keys: Keys, value: FloatArray) -> Table:
        """From keys [n] with repeats and a value [n] each.

        >>> Table.of(np.array([7, 5, 7]), np.array([1.0, 0.0, 0.5])).get("mean", np.array([7, 6]))
        array([ 0.75, -2.  ])
        """
        distinct, group, count = np.unique(keys, return_inverse=True, return_counts=True)
        ordered = value[np.lexsort((value, group))]
        end = np.cumsum(count)
        start = end - count
        columns = {
            "count": count.astype(np.float64),
            "mean": np.bincount(group, weights=value, minlength=len(count)) / count,
            "least": ordered[start],
            "middle": ordered[(start + end - 1) // 2],
            "greatest": ordered[end - 1],
        }
        return cls(distinct, columns)

    def get(self, column: str, keys: Keys, otherwise: float = ABSENT) -> FloatArray:
        """One column at `keys` [n]; `otherwise` where a key is unknown."""
        return lookup_sorted(self.keys, self.columns[column], keys, otherwise)

    def shrunk(self, keys: Keys) -> FloatArray:
        """Means at `keys` [n], pulled to 0 where few values stand behind them."""
        count = self.get("count", keys, 0.0)
        return self.get("mean", keys, 0.0) * count / (count + SHRINK)


@dataclass(frozen=True, eq=False)
class LowRank:
    """A sparse matrix of entities by keys in few dimensions: `left` [E, d], `right` [k, d] for sorted `keys` [k]."""

    left: FloatArray
    right: FloatArray
    keys: Keys

    @classmethod
    def of(
        cls, rows: Keys, columns: Keys, value: FloatArray, entities: int, rank: int, normed: bool = False
    ) -> LowRank:
        """The best approximation of rank `rank` of the entries (rows [n], columns [n]) = value [n]; others are 0.

        `normed` divides each by the roots of its row's and its column's number of entries: links to hubs say less.
        """
        from scipy import sparse  # type: ignore[import-untyped, unused-ignore]
        from sklearn.utils.extmath import randomized_svd  # type: ignore[import-untyped, unused-ignore]

        keys, place = np.unique(columns, return_inverse=True)
        if normed:
            value = value / np.sqrt(np.bincount(rows, minlength=entities)[rows] * np.bincount(place)[place])
        matrix = sparse.csr_matrix((value, (rows, place)), shape=(entities, len(keys)))
        dimensions = max(1, min(rank, entities - 1, len(keys) - 1))
        left, size, right = randomized_svd(matrix, dimensions, n_iter=3, random_state=0)
        return cls(np.ascontiguousarray(left * size), np.ascontiguousarray(right.T), keys)

    def __call__(self, rows: Keys, columns: Keys, otherwise: float = 0.0) -> FloatArray:
        """The approximation at rows [n] and columns [n]; `otherwise` for an unknown column."""
        place, found = find_sorted(self.keys, columns)
        return np.where(found, np.einsum("nd,nd->n", self.left[rows], self.right[place]), otherwise)


@dataclass(frozen=True, eq=False)
class Echoes:
    """What an edge between two entities says of another one: a line from the weight of one to that of the other.

    For each (relation asked, relation seen, same or opposite direction) that occurs, sorted: how the one weighs, given
    the other, and how far off that is (`spread`, a variance). Means over repeats of a triple.
    """

    edges: Graph
    pairs: Keys
    order: npt.NDArray[np.intp]
    kinds: Keys
    middle_seen: FloatArray
    middle_asked: FloatArray
    slope: FloatArray
    spread: FloatArray

    @classmethod
    def of(cls, train: Graph, trust: float = 5.0) -> Echoes:
        """Lines of least squares over all pairs of edges in train, each held to flat as if by `trust` more."""
        edges = train.merge_repeated("mean")
        pairs = edges.head.astype(np.int64) * len(edges.entities) + edges.tail
        order = np.argsort(pairs, kind="stable")
        nothing = np.empty(0)
        bare = cls(edges, pairs[order], order, np.empty(0, np.int64), nothing, nothing, nothing, nothing)
        asked, seen, back = bare._meetings(edges.head, edges.tail)
        other = asked != seen
        asked, seen, back = asked[other], seen[other], back[other]
        if not len(asked):
            return bare
        kinds, group, count = np.unique(
            bare._kinds(edges.relation[asked], seen, back), return_inverse=True, return_counts=True
        )
        relations = len(edges.relations)
        mean = fit_weight_baselines(edges)[RELATION_MEAN].unlinked(np.arange(relations))
        y, x, variance = edges.weight[asked], edges.weight[seen], float(edges.weight.var()) or 1.0

        def total(value: FloatArray) -> FloatArray:
            return np.asarray(np.bincount(group, weights=value), np.float64)

        middle_seen = (total(x) + trust * mean[kinds // 2 % relations]) / (count + trust)
        middle_asked = (total(y) + trust * mean[kinds // 2 // relations]) / (count + trust)
        dx, dy = x - middle_seen[group], y - middle_asked[group]
        slope = total(dx * dy) / (total(dx * dx) + trust * variance / 2)
        spread = (total((dy - slope[group] * dx) ** 2) + trust * variance) / (count + trust) + variance / 100
        return cls(edges, bare.pairs, order, kinds, middle_seen, middle_asked, slope, spread / variance)

    def __call__(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> tuple[FloatArray, FloatArray]:
        """Weights [n] that edges between head and tail speak for, each by how near its line runs, and how loudly."""
        asked, seen, back = self._meetings(head, tail)
        place, found = find_sorted(self.kinds, self._kinds(relation[asked], seen, back))
        asked, seen, place = asked[found], seen[found], place[found]
        guess = self.middle_asked[place] + self.slope[place] * (self.edges.weight[seen] - self.middle_seen[place])
        sure = 1 / self.spread[place]
        voices = np.asarray(np.bincount(asked, weights=sure, minlength=len(head)), np.float64)
        sums = np.bincount(asked, weights=sure * guess, minlength=len(head))
        return np.divide(sums, voices, out=np.full(len(head), ABSENT), where=voices > 0), voices

    def _meetings(self, head: AnyIds, tail: AnyIds) -> tuple[Keys, Keys, Keys]:
        """Each triple with each edge between its two entities: places [m] of both, and 1 where the edge runs back."""
        found: list[tuple[Keys, Keys, Keys]] = []
        for back, (first, second) in enumerate(((head, tail), (tail, head))):
            keys = first.astype(np.int64) * len(self.edges.entities) + second
            asked, place = find_all_sorted(self.pairs, keys)
            found.append((asked, self.order[place], np.full(len(asked), back, np.int64)))
        asked, seen, back_ = (np.concatenate(part) for part in zip(*found, strict=True))
        return asked, seen, back_

    def _kinds(self, relation: AnyIds, seen: Keys, back: Keys) -> Keys:
        many = len(self.edges.relations)
        return np.asarray((relation.astype(np.int64) * many + self.edges.relation[seen]) * 2 + back, np.int64)


class Surroundings:
    """The numbers of any triple, asked of one graph whose weights are shares in [0, 1].

    `rows(head, relation, tail)` takes ids [n] and gives float64 [n, features]; `names` says what the columns are.
    """

    def __init__(self, train: Graph) -> None:
        self.train = train
        self.entities, self.relations = len(train.entities), len(train.relations)
        head, relation, tail = (ids.astype(np.int64) for ids in (train.head, train.relation, train.tail))
        weight = train.weight
        self.by_relation = Table.of(relation, weight)
        self.overall = float(weight.mean()) if len(weight) else 0.0
        off = weight - self._usual(relation)
        heads, tails = head * self.relations + relation, tail * self.relations + relation
        self.of_head, self.of_tail = Table.of(heads, off), Table.of(tails, off)
        self.as_head, self.as_tail = Table.of(head, off), Table.of(tail, off)
        self.either = Table.of(np.concatenate([head, tail]), np.concatenate([off, off]))
        self.triples, self.pairs = Table.of(train.keys, weight), Table.of(head * self.entities + tail, weight)
        self.echoes = Echoes.of(train)
        left = off - 0.7 * (self.of_head.shrunk(heads) + self.of_tail.shrunk(tails))
        one = np.ones(len(weight))
        self.weights_out = LowRank.of(head, tails, left, self.entities, RANK)
        self.weights_in = LowRank.of(tail, heads, left, self.entities, RANK)
        self.links_out = LowRank.of(head, tails, one, self.entities, LINK_RANK, normed=True)
        self.links_in = LowRank.of(tail, heads, one, self.entities, LINK_RANK, normed=True)
        ends, sides = np.concatenate([head, tail]), np.concatenate([2 * relation, 2 * relation + 1])
        self.roles = LowRank.of(ends, sides, np.ones(len(ends)), self.entities, LINK_RANK, normed=True)
        self.neighbours, self.nearness = _neighbours(train)
        self.names: tuple[str, ...] = ()

    def _usual(self, relation: Keys) -> FloatArray:
        """A relation's mean [n], pulled to the mean of all where few edges stand behind it."""
        count = self.by_relation.get("count", relation, 0.0)
        mean = self.by_relation.get("mean", relation, self.overall)
        return np.asarray((mean * count + 5 * self.overall) / (count + 5), np.float64)

    def rows(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        """The numbers of triples, ids [n] -> [n, features]."""
        h, r, t = (ids.astype(np.int64) for ids in (head, relation, tail))
        columns = self._ends(h, r, t) | self._between(h, r, t) | self._guesses(h, r, t)
        self.names = tuple(columns)
        return np.column_stack(list(columns.values()))

    def _ends(self, h: Keys, r: Keys, t: Keys) -> dict[str, FloatArray]:
        """How heavy, and how many, the edges of the relation and of both ends are."""
        hr, tr = h * self.relations + r, t * self.relations + r
        found = {"relation": r.astype(np.float64), "usual": self._usual(r), "middle": self.by_relation.get("middle", r)}
        for name, table, keys in (("head", self.of_head, hr), ("tail", self.of_tail, tr)):
            found[f"{name} here"] = table.shrunk(keys)
            found |= {f"{name} here, {column}": table.get(column, keys) for column in ("least", "middle", "greatest")}
            found[f"{name} here, count"] = table.get("count", keys, 0.0)
        tables = {"as head": self.as_head, "as tail": self.as_tail, "at all": self.either}
        for name, ids in (("head", h), ("tail", t)):
            for role, table in tables.items():
                found[f"{name} {role}"] = table.shrunk(ids)
                found[f"{name} {role}, count"] = table.get("count", ids, 0.0)
        found["tail as head here"] = self.of_head.shrunk(tr)
        found["head as tail here"] = self.of_tail.shrunk(hr)
        return found

    def _between(self, h: Keys, r: Keys, t: Keys) -> dict[str, FloatArray]:
        """Weights that train has between the two ends."""
        key: Any = self.train.keys_of  # ids of any width will do
        asked = {
            "same": (self.triples, key(h, r, t)),
            "back": (self.triples, key(t, r, h)),
            "pair": (self.pairs, h * self.entities + t),
            "pair back": (self.pairs, t * self.entities + h),
        }
        found: dict[str, FloatArray] = {}
        for name, (table, keys) in asked.items():
            found |= {f"{name}, {column}": table.get(column, keys) for column in ("mean", "least", "greatest")}
            found[f"{name}, count"] = table.get("count", keys, 0.0)
        found["echo"], found["echo, voices"] = self.echoes(h, r, t)
        return found

    def _guesses(self, h: Keys, r: Keys, t: Keys) -> dict[str, FloatArray]:
        """What few dimensions, and common neighbours, make likely."""
        hr, tr = h * self.relations + r, t * self.relations + r
        left = self.links_out.left
        length = np.linalg.norm(left, axis=1) + 1e-12
        common, near, heavy = self._common(h, t)
        return {
            "weight out": self.weights_out(h, tr, ABSENT),
            "weight in": self.weights_in(t, hr, ABSENT),
            "link out": self.links_out(h, tr),
            "link in": self.links_in(t, hr),
            "head's role": self.roles(h, 2 * r),
            "tail's role": self.roles(t, 2 * r + 1),
            "alike": np.einsum("nd,nd->n", left[h], left[t]) / (length[h] * length[t]),
            "common": common,
            "common, rare": near,
            "common, weight": heavy,
        }

    def _common(self, h: Keys, t: Keys) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Neighbours of both ends: how many, how rare ones (Adamic and Adar), and how heavy their edges are."""
        parts: list[tuple[Any, Any, Any]] = []
        for start in range(0, len(h), PAIRS_AT_ONCE):
            rows = slice(start, start + PAIRS_AT_ONCE)
            first, second = self.neighbours[h[rows]], self.neighbours[t[rows]]
            both = first.multiply(second)
            shared = (both > 0).astype(np.float64)
            count = np.asarray(shared.sum(1)).ravel()
            parts.append((count, shared @ self.nearness, np.asarray(both.sum(1)).ravel() / np.maximum(count, 1)))
        if not parts:
            return np.empty(0), np.empty(0), np.empty(0)
        common, near, heavy = (np.concatenate(part) for part in zip(*parts, strict=True))
        return common, near, heavy


def _neighbours(train: Graph) -> tuple[Any, FloatArray]:
    """Entities by entities, either direction, the heaviest edge of each (plus 1, so that none is 0).

    And 1 / log degree [E]. Of a hub only the first neighbours stay.
    """
    from scipy import sparse

    entities = len(train.entities)
    first = np.concatenate([train.head, train.tail]).astype(np.int64)
    keys = first * entities + np.concatenate([train.tail, train.head])
    table = Table.of(keys, np.concatenate([train.weight, train.weight]) + 1.0)
    row = table.keys // entities
    degree = np.bincount(row, minlength=entities)
    place = np.arange(len(row)) - (np.cumsum(degree) - degree)[row]
    kept = place < NEIGHBOURS
    entries = (table.columns["greatest"][kept], (row[kept], table.keys[kept] % entities))
    return sparse.csr_matrix(entries, shape=(entities, entities)), 1 / np.log(degree + 2.0)


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

    expected: FloatArray
    typical: FloatArray
    spread: FloatArray
    doubting: FloatArray
    doubting_typical: FloatArray
    link: FloatArray | None


@dataclass(frozen=True, eq=False)
class Estimator:
    """Estimates for any triples, ids [n] each. `forests` may lack stages that there were too few rows for.

    What is expected is `mix` [3] of three: forests, the `curve` of scores and the relation's mean.
    """

    train: Graph
    score: Predictor | None
    curve: Predictor
    forests: dict[str, Forest]
    mix: FloatArray
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
            place, found = find_sorted(old_keys[order], keys[open_rows])
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

    def corrected(self, rows: FloatArray, facts: FloatArray) -> FloatArray:
        """What both stages say of a fact's share [n]."""
        return np.clip(facts + self._more("facts_second", rows), 0.0, 1.0)

    def mixed(self, forests: FloatArray, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        """The expected share [n], given what the forests say of it."""
        total = self.mix[0] * forests
        if self.mix[1] > 0:
            total = total + self.mix[1] * self.curve(head, relation, tail)
        if self.mix[2] > 0:
            total = total + self.mix[2] * fit_weight_baselines(self.train)[RELATION_MEAN](head, relation, tail)
        return np.asarray(np.clip(total, 0.0, 1.0), np.float64)

    def _more(self, name: str, rows: FloatArray) -> FloatArray | float:
        return self.forests[name](rows) if name in self.forests else 0.0

    def second_rows(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> tuple[FloatArray, FloatArray, FloatArray]:
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

    def interval(
        self, estimates: Estimates, relation: AnyIds, coverage: float = COVERAGE
    ) -> tuple[FloatArray, FloatArray]:
        """Shares [n] between which a fact's lies with probability `coverage`."""
        return self.conformal.interval(estimates.expected, estimates.spread, relation, coverage)


def fit(
    train: Graph,
    held: ValidationParts,
    score: Predictor | None = None,
    curve: Predictor | None = None,
    known_keys: AnyIds | None = None,
    seed: int = 0,
) -> Estimator:
    """An estimator of train's weights, which are shares in [0, 1]; those of `held` may lie beyond.

    `score` gives a model's scores of triples, `curve` shares by a calibration of them (else the relation's mean stands
    in), `known_keys` more facts that no drawn negative may be.
    """
    plain = curve or fit_weight_baselines(train)[RELATION_MEAN]
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


def finish(made: Estimator, held: ValidationParts) -> Estimator:
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


def _near(held: ValidationParts) -> ValidationParts:
    """What is fitted to: one row a hundred ranges off would outweigh all others. What is measured stays as it is."""
    parts = (held.stopping, held.calibration, held.conformal)
    return ValidationParts(*(replace(part, weight=np.clip(part.weight, *FITTED)) for part in parts))


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
    fold[np.random.default_rng([seed, RandomStream.ESTIMATOR_FOLDS]).permutation(len(train))] = (
        np.arange(len(train)) // size
    )
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
        false = corrupt_graph(true, train.keys, seed + number, popular)
        both = concatenate([true, false])
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
    false = corrupt_graph(calibration, known, seed + FOLDS, popular)
    both = concatenate([calibration, false])
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


def _small(rows: FloatArray, truth: FloatArray, quantile: float | None = None) -> Forest:
    return grow(rows, truth, quantile=quantile, trees=100, leaves=8, rate=0.05, fewest=30)


def _mix(made: Estimator, held: ValidationParts) -> FloatArray:
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
    guesses[:, 1], guesses[:, 2] = made.curve(*ids), fit_weight_baselines(made.train)[RELATION_MEAN](*ids)
    found = [_shares(guesses, rows.weight, some) for some in sets]
    errors = [_error(guesses, rows.weight, shares) for shares in found]
    return next(shares for shares, error in zip(found, errors, strict=True) if error * EARNED <= min(errors))


def _shares(guesses: FloatArray, truth: FloatArray, some: tuple[int, ...]) -> FloatArray:
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


def _error(guesses: FloatArray, truth: FloatArray, shares: FloatArray) -> float:
    return float(np.mean((guesses @ shares - truth) ** 2))


def _bounds(made: Estimator, rows: Graph) -> dict[str, Forest]:
    """Where the median lies beside what is expected, and how far off that is."""
    inputs, facts, _ = made.second_rows(rows.head, rows.relation, rows.tail)
    expected = made.mixed(made.corrected(inputs, facts), rows.head, rows.relation, rows.tail)
    inputs = np.column_stack([expected, inputs])
    off = rows.weight - expected
    return {"middle": _small(inputs, off, 0.5), "spread": _small(inputs, np.abs(off))}


def measuring(made: Estimator, held: ValidationParts) -> Graph:
    """The rows that say how far weights are off: the conformal part.

    Where nothing that expected weights use was fitted to the calibration part, its rows are as fresh, and join.
    """
    bounded = len(held.stopping) < FEWEST_BOUNDS and "spread" in made.forests
    learned = bool(made.forests) and len(held.calibration) >= FEWEST_CALIBRATION
    fresh = not (bounded or learned or made.mix[1] > 0)
    return concatenate([held.calibration, held.conformal]) if fresh else held.conformal


def _measured(made: Estimator, rows: Graph) -> Conformal:
    found = made._estimate(rows.head, rows.relation, rows.tail)
    return measure(rows.weight, found.expected, found.spread, rows.relation, len(made.train.relations))
