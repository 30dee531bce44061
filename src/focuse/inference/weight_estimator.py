"""Estimate the weight of an unseen edge by boosted trees over features of the graph and over the model's score.

The features of a (head, relation, tail) need no model: weights of the same triple, of the inverse edge and of the pair
by other relations; weights and numbers of the edges of both ends; low-rank estimates. The triple itself must not be in
the graph that the features come from, so the rows that trees are fitted to get their features from the other folds.

There are two stages, because a model's scores of its own training triples are too good. Stage one uses the graph
features alone and is fitted to train. Stage two corrects it on the calibration part of validation, with the score.
The stopping part decides how much the simple estimates (the score's curve, the relation's mean) count next to the
trees, and how large the error is likely to be; the conformal part, to which nothing is fitted, measures the error.

All weights here are in [0, 1].
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from focuse.data.graph import Graph, concatenate, find_all_sorted, find_sorted
from focuse.data.splits import ValidationParts
from focuse.evaluation.baselines import AnyIds, KeyedWeights, Predictor, relation_means
from focuse.evaluation.metrics import FloatArray, Keys
from focuse.inference.calibration import Conformal, measure_errors
from focuse.objective.negatives import corrupt_graph
from focuse.random_streams import RandomStream
from focuse.system import chunks

# ---- boosted trees ------------------------------------------------------------------------------------------------

TRIPLES_AT_ONCE = 1 << 15  # triples that go down the trees together, so that they stay in the cache


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """Boosted regression trees as arrays: fitted by scikit-learn, stored in safetensors, evaluated with NumPy.

    The nodes of all trees are in one array: if `feature` [N] is not above `threshold` [N], a row goes to `left` [N],
    else to `right` [N]. A leaf points to itself, so that every row can take the same number of steps. `roots` [T] are
    the first nodes of the trees, and the prediction is `base` plus the `value` [N] of one leaf per tree.
    """

    base: FloatArray
    roots: npt.NDArray[np.int32]
    feature: npt.NDArray[np.int32]
    threshold: FloatArray
    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    value: FloatArray

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Predict a number for each row: [n, features] -> [n].

        Few rows go down many trees at once, because each step is one call.
        """
        flat, width = np.ascontiguousarray(rows).ravel(), rows.shape[1]
        trees = max(1, TRIPLES_AT_ONCE // max(len(rows), 1))
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
            # Trees are added one after another, so that a row yields the same bits in any block.
            if len(node) == 1:
                total += self.value[node[0]]
            else:
                total = np.cumsum(np.vstack([total, self.value[node]]), axis=0)[-1]
        return total


def fit_trees(
    rows: FloatArray,
    truth: FloatArray,
    *,
    quantile: float | None = None,
    trees: int = 200,
    leaves: int = 31,
    rate: float = 0.1,
    min_leaf: int = 20,
) -> BoostedTrees:
    """Fit trees that predict the mean, or a quantile, of `truth` [n] from `rows` [n, features].

    >>> rows = np.linspace(0, 1, 200)[:, None]
    >>> trees = fit_trees(rows, (rows[:, 0] > 0.5).astype(float), trees=30)
    >>> trees(np.array([[0.1], [0.9]])).round(1)
    array([0., 1.])
    """
    from sklearn.ensemble import HistGradientBoostingRegressor  # type: ignore[import-untyped, unused-ignore]

    loss = {"loss": "squared_error"} if quantile is None else {"loss": "quantile", "quantile": quantile}
    sizes = {"max_iter": trees, "learning_rate": rate, "max_leaf_nodes": leaves, "min_samples_leaf": min_leaf}
    return flatten_trees(
        HistGradientBoostingRegressor(**loss, **sizes, early_stopping=False, random_state=0).fit(rows, truth)
    )


def flatten_trees(fitted: Any) -> BoostedTrees:
    """Convert scikit-learn's trees, in which children follow their parent."""
    each = [tree[0].nodes for tree in fitted._predictors]
    sizes = np.array([len(nodes) for nodes in each])
    roots = (np.cumsum(sizes) - sizes).astype(np.int32)
    nodes = np.concatenate(each)
    shift = np.repeat(roots, sizes)
    leaf = nodes["is_leaf"].astype(bool)
    here = np.arange(len(nodes), dtype=np.int32)
    return BoostedTrees(
        np.asarray(fitted._baseline_prediction, np.float64).reshape(1),
        roots,
        np.where(leaf, 0, nodes["feature_idx"]).astype(np.int32),
        np.where(leaf, np.inf, nodes["num_threshold"]).astype(np.float64),
        np.where(leaf, here, nodes["left"].astype(np.int32) + shift).astype(np.int32),
        np.where(leaf, here, nodes["right"].astype(np.int32) + shift).astype(np.int32),
        nodes["value"].astype(np.float64),
    )


# ---- graph features -----------------------------------------------------------------------------------------------

ABSENT = -2.0  # stands for "not in train": below every weight and every difference of weights
SHRINKAGE = 3.0  # edges at which an entity's own mean counts half
RANK = 16  # of residual weights
LINK_RANK = 32  # of links
MAX_NEIGHBORS = 512  # of an entity that count as common ones; hubs would cost their degree for each triple
FEATURES = 55  # columns of `GraphFeatures.rows`
PAIRS_AT_ONCE = 1 << 15  # triples whose neighbors are compared at once


def _shrunken_mean(weights: KeyedWeights, keys: Keys) -> FloatArray:
    """Return the means of `keys` [n], shrunk to 0 if they have few weights."""
    count = weights.lookup("count", keys, 0.0)
    return weights.lookup("mean", keys, 0.0) * count / (count + SHRINKAGE)


@dataclass(frozen=True, eq=False)
class LowRank:
    """A sparse matrix of entities by keys in few dimensions: `left` [E, d], `right` [k, d] for sorted `keys` [k]."""

    left: FloatArray
    right: FloatArray
    keys: Keys

    @classmethod
    def fit(
        cls, rows: Keys, columns: Keys, value: FloatArray, entities: int, rank: int, normalize: bool = False
    ) -> LowRank:
        """Return the best approximation of rank `rank` of the entries (rows [n], columns [n]) = value [n], else 0.

        `normalize` divides each entry by the roots of its row's and its column's number of entries, because links to
        hubs are less informative.
        """
        from scipy import sparse  # type: ignore[import-untyped, unused-ignore]
        from sklearn.utils.extmath import randomized_svd  # type: ignore[import-untyped, unused-ignore]

        keys, column = np.unique(columns, return_inverse=True)
        if normalize:
            value = value / np.sqrt(np.bincount(rows, minlength=entities)[rows] * np.bincount(column)[column])
        matrix = sparse.csr_matrix((value, (rows, column)), shape=(entities, len(keys)))
        dimensions = max(1, min(rank, entities - 1, len(keys) - 1))
        left, size, right = randomized_svd(matrix, dimensions, n_iter=3, random_state=0)
        return cls(np.ascontiguousarray(left * size), np.ascontiguousarray(right.T), keys)

    def __call__(self, rows: Keys, columns: Keys, default: float = 0.0) -> FloatArray:
        """Return the approximation at rows [n] and columns [n]; `default` for an unknown column."""
        column, found = find_sorted(self.keys, columns)
        return np.where(found, np.einsum("nd,nd->n", self.left[rows], self.right[column]), default)


class ParallelEdges:
    """Estimates of a weight from other edges between the same two entities, by one linear regression per kind.

    A kind is (relation to estimate, relation of the other edge, same or opposite direction). Regressions are fitted to
    all such pairs of edges in train and shrunk to constants, as if by `PRIOR_ROWS` more rows; `variance` is that of
    their residuals. Repeated triples count once, with their mean weight.
    """

    PRIOR_ROWS = 5.0

    def __init__(self, train: Graph) -> None:
        self.edges = edges = train.merge_repeated("mean")
        pairs = edges.head.astype(np.int64) * len(edges.entities) + edges.tail
        self.order = np.argsort(pairs, kind="stable")
        self.pairs = pairs[self.order]
        row, other, inverse = self._other_edges(edges.head, edges.tail)
        rows = row != other
        row, other, inverse = row[rows], other[rows], inverse[rows]
        kinds = self._kinds(edges.relation[row], other, inverse)
        self.kinds, group, count = np.unique(kinds, return_inverse=True, return_counts=True)
        if not len(row):
            return
        relations, prior = len(edges.relations), self.PRIOR_ROWS
        mean = relation_means(edges).by_relation
        y, x, variance = edges.weight[row], edges.weight[other], float(edges.weight.var()) or 1.0

        def total(value: FloatArray) -> FloatArray:
            return np.asarray(np.bincount(group, weights=value), np.float64)

        self.mean_x = (total(x) + prior * mean[self.kinds // 2 % relations]) / (count + prior)
        self.mean_y = (total(y) + prior * mean[self.kinds // 2 // relations]) / (count + prior)
        dx, dy = x - self.mean_x[group], y - self.mean_y[group]
        self.slope = total(dx * dy) / (total(dx * dx) + prior * variance / 2)
        residuals = total((dy - self.slope[group] * dx) ** 2)
        self.variance = ((residuals + prior * variance) / (count + prior) + variance / 100) / variance

    def __call__(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> tuple[FloatArray, FloatArray]:
        """Return mean estimates [n], weighted by the inverse variance of their regressions, and the total weight."""
        row, other, inverse = self._other_edges(head, tail)
        kind, found = find_sorted(self.kinds, self._kinds(relation[row], other, inverse))
        row, other, kind = row[found], other[found], kind[found]
        if not len(row):
            return np.full(len(head), ABSENT), np.zeros(len(head))
        estimate = self.mean_y[kind] + self.slope[kind] * (self.edges.weight[other] - self.mean_x[kind])
        precision = 1 / self.variance[kind]
        total = np.asarray(np.bincount(row, weights=precision, minlength=len(head)), np.float64)
        sums = np.bincount(row, weights=precision * estimate, minlength=len(head))
        return np.divide(sums, total, out=np.full(len(head), ABSENT), where=total > 0), total

    def _other_edges(self, head: AnyIds, tail: AnyIds) -> tuple[Keys, Keys, Keys]:
        """Return each triple with each edge between its entities: rows [m] of both, and 1 if the edge is inverse."""
        found: list[tuple[Keys, Keys, Keys]] = []
        for inverse, (first, second) in enumerate(((head, tail), (tail, head))):
            keys = first.astype(np.int64) * len(self.edges.entities) + second
            row, position = find_all_sorted(self.pairs, keys)
            found.append((row, self.order[position], np.full(len(row), inverse, np.int64)))
        rows, others, inverses = (np.concatenate(part) for part in zip(*found, strict=True))
        return rows, others, inverses

    def _kinds(self, relation: AnyIds, other: Keys, inverse: Keys) -> Keys:
        relations = len(self.edges.relations)
        return np.asarray((relation.astype(np.int64) * relations + self.edges.relation[other]) * 2 + inverse, np.int64)


class GraphFeatures:
    """Features of any triple from one graph with weights in [0, 1].

    `rows(head, relation, tail)` takes ids [n] and returns float64 [n, FEATURES].
    """

    def __init__(self, train: Graph) -> None:
        self.train = train
        self.entities, self.relations = len(train.entities), len(train.relations)
        head, relation, tail = (ids.astype(np.int64) for ids in (train.head, train.relation, train.tail))
        weight = train.weight
        self.by_relation = KeyedWeights(relation, weight)
        self.global_mean = float(weight.mean()) if len(weight) else 0.0
        residual = weight - self._relation_mean(relation)
        heads, tails = head * self.relations + relation, tail * self.relations + relation
        self.by_head, self.by_tail = KeyedWeights(heads, residual), KeyedWeights(tails, residual)
        ends = np.concatenate([head, tail])
        self.by_entity = {
            "as head": KeyedWeights(head, residual),
            "as tail": KeyedWeights(tail, residual),
            "in total": KeyedWeights(ends, np.concatenate([residual, residual])),
        }
        self.triples = KeyedWeights(train.keys, weight)
        self.pairs = KeyedWeights(head * self.entities + tail, weight)
        self.parallel_edges = ParallelEdges(train)
        left = residual - 0.7 * (_shrunken_mean(self.by_head, heads) + _shrunken_mean(self.by_tail, tails))
        one = np.ones(len(weight))
        self.weights_out = LowRank.fit(head, tails, left, self.entities, RANK)
        self.weights_in = LowRank.fit(tail, heads, left, self.entities, RANK)
        self.links_out = LowRank.fit(head, tails, one, self.entities, LINK_RANK, normalize=True)
        self.links_in = LowRank.fit(tail, heads, one, self.entities, LINK_RANK, normalize=True)
        sides = np.concatenate([2 * relation, 2 * relation + 1])
        self.roles = LowRank.fit(ends, sides, np.ones(len(ends)), self.entities, LINK_RANK, normalize=True)
        self.neighbors, self.rarity = _neighbors(train)

    def _relation_mean(self, relation: Keys) -> FloatArray:
        """Return the mean of each relation [n], shrunk to the global mean if it has few edges."""
        count = self.by_relation.lookup("count", relation, 0.0)
        mean = self.by_relation.lookup("mean", relation, self.global_mean)
        return np.asarray((mean * count + 5 * self.global_mean) / (count + 5), np.float64)

    def rows(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        """Return the features of triples, ids [n] -> [n, features]."""
        return np.column_stack(list(self.columns(head, relation, tail).values()))

    def columns(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> dict[str, FloatArray]:
        """Return the same by name, [n] each; they are equal for both directions of a pair of an undirected relation."""
        h, r, t = (ids.astype(np.int64) for ids in self.train.ordered(head, relation, tail))
        return self._edges_of_ends(h, r, t) | self._edges_between(h, r, t) | self._low_rank(h, r, t)

    def _edges_of_ends(self, h: Keys, r: Keys, t: Keys) -> dict[str, FloatArray]:
        """Return weights and numbers of the edges of the relation and of both ends."""
        hr, tr = h * self.relations + r, t * self.relations + r
        found = {
            "relation": r.astype(np.float64),
            "relation mean": self._relation_mean(r),
            "relation median": self.by_relation.lookup("median", r, ABSENT),
        }
        for name, weights, keys in (("head", self.by_head, hr), ("tail", self.by_tail, tr)):
            found[f"{name} here"] = _shrunken_mean(weights, keys)
            for statistic in ("min", "median", "max"):
                found[f"{name} here, {statistic}"] = weights.lookup(statistic, keys, ABSENT)
            found[f"{name} here, count"] = weights.lookup("count", keys, 0.0)
        for name, ids in (("head", h), ("tail", t)):
            for role, weights in self.by_entity.items():
                found[f"{name} {role}"] = _shrunken_mean(weights, ids)
                found[f"{name} {role}, count"] = weights.lookup("count", ids, 0.0)
        found["tail as head here"] = _shrunken_mean(self.by_head, tr)
        found["head as tail here"] = _shrunken_mean(self.by_tail, hr)
        return found

    def _edges_between(self, h: Keys, r: Keys, t: Keys) -> dict[str, FloatArray]:
        """Return weights that train has between the two ends."""
        key: Any = self.train.keys_of  # which accepts ids of any width
        lookups = {
            "same": (self.triples, key(h, r, t)),
            "inverse": (self.triples, key(t, r, h)),
            "pair": (self.pairs, h * self.entities + t),
            "inverse pair": (self.pairs, t * self.entities + h),
        }
        found: dict[str, FloatArray] = {}
        for name, (weights, keys) in lookups.items():
            found |= {f"{name}, {column}": weights.lookup(column, keys, ABSENT) for column in ("mean", "min", "max")}
            found[f"{name}, count"] = weights.lookup("count", keys, 0.0)
        found["parallel edges"], found["parallel edges, precision"] = self.parallel_edges(h, r, t)
        return found

    def _low_rank(self, h: Keys, r: Keys, t: Keys) -> dict[str, FloatArray]:
        """Return low-rank estimates, the similarity of both ends, and their common neighbors."""
        hr, tr = h * self.relations + r, t * self.relations + r
        left = self.links_out.left
        length = np.linalg.norm(left, axis=1) + 1e-12
        common, rarity, weight = self._common_neighbors(h, t)
        return {
            "weight out": self.weights_out(h, tr, ABSENT),
            "weight in": self.weights_in(t, hr, ABSENT),
            "link out": self.links_out(h, tr),
            "link in": self.links_in(t, hr),
            "role of head": self.roles(h, 2 * r),
            "role of tail": self.roles(t, 2 * r + 1),
            "similarity": np.einsum("nd,nd->n", left[h], left[t]) / (length[h] * length[t]),
            "common neighbors": common,
            "common neighbors, rarity": rarity,
            "common neighbors, weight": weight,
        }

    def _common_neighbors(self, h: Keys, t: Keys) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the number of common neighbors, their rarity (Adamic and Adar), and the weight of their edges."""
        parts: list[tuple[Any, Any, Any]] = [(np.empty(0), np.empty(0), np.empty(0))]
        for rows in chunks(len(h), PAIRS_AT_ONCE):
            both = self.neighbors[h[rows]].multiply(self.neighbors[t[rows]])
            shared = (both > 0).astype(np.float64)
            count = np.asarray(shared.sum(1)).ravel()
            parts.append((count, shared @ self.rarity, np.asarray(both.sum(1)).ravel() / np.maximum(count, 1)))
        common, rarity, weight = (np.concatenate(part) for part in zip(*parts, strict=True))
        return common, rarity, weight


def _neighbors(train: Graph) -> tuple[Any, FloatArray]:
    """Return a sparse matrix of neighbors, with the highest weight of their edges plus 1, and 1 / log degree [E].

    Edges count in both directions. A hub keeps only its first neighbors.
    """
    from scipy import sparse

    entities = len(train.entities)
    first = np.concatenate([train.head, train.tail]).astype(np.int64)
    keys = first * entities + np.concatenate([train.tail, train.head])
    weights = KeyedWeights(keys, np.concatenate([train.weight, train.weight]) + 1.0)
    row = weights.keys // entities
    degree = np.bincount(row, minlength=entities)
    kept = np.arange(len(row)) - (np.cumsum(degree) - degree)[row] < MAX_NEIGHBORS
    entries = (weights.order_statistics["max"][kept], (row[kept], weights.keys[kept] % entities))
    return sparse.csr_matrix(entries, shape=(entities, entities)), 1 / np.log(degree + 2.0)


# ---- estimator ----------------------------------------------------------------------------------------------------

FOLDS = 10
MAX_ROWS = 100_000  # of train that stage one is fitted to; more changes the third digit of an error
MIN_EDGES = 1_000  # of train for stage one
MIN_CALIBRATION_ROWS = 500  # for stage two
MIN_SCALE_ROWS = 300  # for scales that differ from edge to edge
MIN_STOPPING_ROWS = 30  # fewer rows decide nothing
SCORE_FEATURES = 4  # columns of stage two in addition to those of stage one
SINGLE_THREAD_EDGES = 50_000  # with fewer edges of train, threads wait for each other longer than they work
USEFUL = 0.98  # one more estimate must reduce the squared error to less than this fraction
CLIP = (-1.0, 2.0)  # a validation weight farther off counts as one a whole range beyond
STAGE_ONE = ("given_true", "link")
STAGE_TWO = ("given_true_correction", "with_negatives_correction", "with_negatives_median")
DISTRIBUTION = ("median", "scale")
TREE_FEATURES = {
    **dict.fromkeys(STAGE_ONE, FEATURES),
    **dict.fromkeys(STAGE_TWO, FEATURES + SCORE_FEATURES),
    **dict.fromkeys(DISTRIBUTION, FEATURES + SCORE_FEATURES + 1),
}
NOT_USEFUL = "graph features do not improve the weights of held-out rows; simple estimates are used"


class Estimates(NamedTuple):
    """Estimated weights [n] of n triples: mean and median if each triple is true, and the `scale` of the error.

    `with_negatives` and `with_negatives_median` are mean and median for triples that may be false, with weight 0;
    `link` is the probability of a link by graph features alone, None without trees.
    """

    mean: FloatArray
    median: FloatArray
    scale: FloatArray
    with_negatives: FloatArray
    with_negatives_median: FloatArray
    link: FloatArray | None


@dataclass(frozen=True, eq=False)
class Estimator:
    """A function from triples, ids [n] each, to estimates. `trees` may lack stages that had too few rows.

    The mean is a mixture of three estimates with the shares `mix` [3]: trees, the `curve` of scores, and the relation's
    mean.
    """

    train: Graph
    score: Predictor | None
    curve: Predictor
    trees: dict[str, BoostedTrees]
    mix: FloatArray
    conformal: Conformal
    notes: tuple[str, ...] = ()
    # Computed when first needed; copies made by `replace` share the list, so that it is computed once.
    _features: list[GraphFeatures] = field(default_factory=list, repr=False)

    @cached_property
    def relation_mean(self) -> Predictor:
        return relation_means(self.train)

    def __call__(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> Estimates:
        blocks = [
            self._estimate(head[rows], relation[rows], tail[rows])
            for rows in chunks(max(len(head), 1), TRIPLES_AT_ONCE)
        ]
        columns: list[Any] = [None if part[0] is None else np.concatenate(part) for part in zip(*blocks, strict=True)]
        return Estimates(*columns)

    def _estimate(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> Estimates:
        if "given_true" not in self.trees or not len(head):
            flat = self.mixture(np.zeros(len(head)), head, relation, tail)
            return Estimates(flat, flat, np.zeros(len(flat)), flat, flat, None)
        rows, given_true, link = self.stage_two_rows(head, relation, tail)
        mean = self.mixture(self.corrected(rows, given_true), head, relation, tail)
        with_negatives = np.clip(link * given_true + self._correction("with_negatives_correction", rows), 0.0, 1.0)
        with_negatives_median = with_negatives
        if "with_negatives_median" in self.trees:
            with_negatives_median = np.clip(self.trees["with_negatives_median"](rows), 0.0, 1.0)
        rows = np.column_stack([mean, rows])
        median = np.clip(mean + self._correction("median", rows), 0.0, 1.0)
        scale = np.maximum(self._correction("scale", rows), np.zeros(len(rows)))
        return Estimates(mean, median, scale, with_negatives, with_negatives_median, link)

    def corrected(self, rows: FloatArray, given_true: FloatArray) -> FloatArray:
        """Return the weights [n] that both stages estimate for true triples."""
        return np.clip(given_true + self._correction("given_true_correction", rows), 0.0, 1.0)

    def mixture(self, by_trees: FloatArray, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        """Return the mean [n], given the estimates of the trees [n]."""
        total = self.mix[0] * by_trees
        if self.mix[1] > 0:
            total = total + self.mix[1] * self.curve(head, relation, tail)
        if self.mix[2] > 0:
            total = total + self.mix[2] * self.relation_mean(head, relation, tail)
        return np.asarray(np.clip(total, 0.0, 1.0), np.float64)

    def _correction(self, name: str, rows: FloatArray) -> FloatArray | float:
        return self.trees[name](rows) if name in self.trees else 0.0

    def stage_two_rows(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the features of stage two [n, features], and stage one's weight if true [n] and link [n]."""
        if not self._features:
            self._features.append(GraphFeatures(self.train))
        rows = self._features[0].rows(head, relation, tail)
        given_true = np.clip(self.trees["given_true"](rows), 0.0, 1.0)
        link = np.clip(self.trees["link"](rows), 0.0, 1.0)
        columns = [given_true, link]
        if self.score is not None:
            columns += [self.score(head, relation, tail), self.score(tail, relation, head)]
        return np.column_stack([*columns, rows]), given_true, link


def fit_estimator(
    train: Graph,
    held: ValidationParts,
    score: Predictor | None = None,
    curve: Predictor | None = None,
    known_keys: AnyIds | None = None,
    seed: int = 0,
) -> Estimator:
    """Fit an estimator of train's weights, which are in [0, 1]; those of `held` may lie beyond.

    Parameters
    ----------
    held
        Validation triples in disjoint parts.
    score
        A function from triples to a model's scores.
    curve
        A function from triples to weights in [0, 1] by a calibration of the scores; the relation's mean if None.
    known_keys
        Keys of further true triples, which are not sampled as negatives.
    """
    known = train.keys if known_keys is None else known_keys
    trees: dict[str, BoostedTrees] = {}
    notes: list[str] = []
    nothing = Conformal(np.empty(0), np.empty(0, np.int64), len(train.relations), np.empty(0))
    made = Estimator(train, score, curve or relation_means(train), trees, np.array([1.0, 0.0, 0.0]), nothing)
    if len(train) < MIN_EDGES or not np.ptp(train.weight) > 0:
        distinct = len(np.unique(train.weight))
        weights = f"{distinct:,} weight{'s' * (distinct != 1)}"
        notes.append(f"{len(train):,} edges in train with {weights}: too few to learn weights from graph features")
    else:
        with _limit_threads(train):
            trees |= _stage_one(train, seed)
            if len(held.calibration) >= MIN_CALIBRATION_ROWS:
                near = _clipped(held)
                trees |= _stage_two(made, near.calibration, known, seed)
                _drop_useless_correction(made, near.stopping)
    return finish_estimator(replace(made, notes=tuple(notes)), held)


def finish_estimator(made: Estimator, held: ValidationParts) -> Estimator:
    """Return the estimator with everything that follows from both stages and the curve: mix, scales, intervals."""
    trees = {name: part for name, part in made.trees.items() if name not in DISTRIBUTION}
    made = replace(made, trees=trees)
    near = _clipped(held)
    with _limit_threads(made.train):
        made = replace(made, mix=_fit_mix(made, near.stopping))
        if trees and not made.mix[0] > 0:
            trees.clear()
            made = replace(made, notes=(*made.notes, NOT_USEFUL))
        rows = near.stopping if len(near.stopping) >= MIN_SCALE_ROWS else near.calibration
        if trees and len(rows) >= MIN_SCALE_ROWS:
            trees |= _fit_distribution(made, rows)
        rows = conformal_rows(made, held)
        found = made(rows.head, rows.relation, rows.tail)
        errors = measure_errors(rows.weight, found.mean, found.scale, rows.relation, len(made.train.relations))
        return replace(made, conformal=errors)


def _clipped(held: ValidationParts) -> ValidationParts:
    """Return validation rows to fit to, among which an outlier must not outweigh all others."""
    parts = (held.stopping, held.calibration, held.conformal)
    return ValidationParts(*(replace(part, weight=np.clip(part.weight, *CLIP)) for part in parts))


@contextmanager
def _limit_threads(train: Graph) -> Iterator[None]:
    """Use one thread for a small graph, whose matrices and trees are too small for several."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, unused-ignore]

    with threadpool_limits(1 if len(train) < SINGLE_THREAD_EDGES else None):
        yield


def _folds(train: Graph, seed: int) -> list[AnyIds]:
    """Return rows of train to hold out in turn: a tenth at a time, and in total no more than stage one needs.

    Rows that repeat a triple (or a pair of an undirected relation) with the same weight are in one fold; with another
    weight they are another edge.
    """
    size = min(-(-len(train) // FOLDS), MAX_ROWS)
    fold = np.empty(len(train), np.int64)
    order = np.random.default_rng([seed, RandomStream.ESTIMATOR_FOLDS]).permutation(len(train))
    fold[order] = np.arange(len(train)) // size
    keys = train.pair_keys
    order = np.lexsort((train.weight, keys))
    repeated = (np.diff(keys[order]) == 0) & (np.diff(train.weight[order]) == 0)
    first = np.maximum.accumulate(np.where(np.append(False, repeated), 0, np.arange(len(train))))
    fold[order] = fold[order[first]]
    return [np.flatnonzero(fold == number) for number in range(min(FOLDS, -(-MAX_ROWS // size)))]


def _stage_one(train: Graph, seed: int) -> dict[str, BoostedTrees]:
    """Fit the weight of true triples, and whether a triple is true, to features without the triple itself."""
    ends = np.concatenate([train.head, train.tail])
    rows, weights, labels = [], [], []
    for number, fold in enumerate(_folds(train, seed)):
        rest = np.ones(len(train), bool)
        rest[fold] = False
        true = train.select(fold)
        both = concatenate([true, corrupt_graph(true, train.keys, seed + number, ends)])
        rows.append(GraphFeatures(train.select(rest)).rows(both.head, both.relation, both.tail))
        weights.append(both.weight)
        labels.append(np.arange(len(both)) < len(true))
    features, weight, label = np.concatenate(rows), np.concatenate(weights), np.concatenate(labels)
    return {
        "given_true": fit_trees(features[label], weight[label], trees=300, leaves=63, rate=0.08),
        "link": fit_trees(features, label.astype(np.float64)),
    }


def _stage_two(made: Estimator, calibration: Graph, known: AnyIds, seed: int) -> dict[str, BoostedTrees]:
    """Fit corrections that use the model's score: for true triples, and for triples that may be false."""
    ends = np.concatenate([made.train.head, made.train.tail])
    both = concatenate([calibration, corrupt_graph(calibration, known, seed + FOLDS, ends)])
    rows, given_true, link = made.stage_two_rows(both.head, both.relation, both.tail)
    true = np.arange(len(both)) < len(calibration)
    residual = both.weight - link * given_true
    return {
        "given_true_correction": _fit_small(rows[true], (both.weight - given_true)[true]),
        "with_negatives_correction": fit_trees(rows, residual, trees=150, leaves=8, rate=0.05),
        "with_negatives_median": fit_trees(rows, both.weight, quantile=0.5, trees=150, leaves=8, rate=0.05),
    }


def _drop_useless_correction(made: Estimator, stopping: Graph) -> None:
    """Remove the correction of true triples unless it reduces the error; it adds noise if features say it all."""
    if len(stopping) >= MIN_STOPPING_ROWS:
        rows, given_true, _ = made.stage_two_rows(stopping.head, stopping.relation, stopping.tail)
        estimates = (made.corrected(rows, given_true), given_true)
        corrected, plain = (np.mean((estimate - stopping.weight) ** 2) for estimate in estimates)
        if corrected < plain:
            return
    made.trees.pop("given_true_correction")


def _fit_small(rows: FloatArray, truth: FloatArray, quantile: float | None = None) -> BoostedTrees:
    return fit_trees(rows, truth, quantile=quantile, trees=100, leaves=8, rate=0.05, min_leaf=30)


def _fit_mix(made: Estimator, rows: Graph) -> FloatArray:
    """Return the shares [3] of trees, curve and relation mean that minimize the error on the stopping part.

    As few estimates as possible are used: each must reduce the error noticeably. Without rows, the trees are used, or
    else the curve.
    """
    if len(rows) < MIN_STOPPING_ROWS:
        return np.array([1.0, 0.0, 0.0]) if made.trees else np.array([0.0, 1.0, 0.0])
    sets = [(2,), (1,), (0,), (0, 2), (0, 1), (0, 1, 2)] if made.trees else [(2,), (1,), (1, 2)]
    ids = rows.head, rows.relation, rows.tail
    estimates = np.zeros((len(rows), 3))
    if made.trees:
        estimates[:, 0] = made.corrected(*made.stage_two_rows(*ids)[:2])
    estimates[:, 1], estimates[:, 2] = made.curve(*ids), made.relation_mean(*ids)
    found = [_fit_shares(estimates, rows.weight, columns) for columns in sets]
    errors = [_squared_error(estimates, rows.weight, shares) for shares in found]
    return next(shares for shares, error in zip(found, errors, strict=True) if error * USEFUL <= min(errors))


def _fit_shares(estimates: FloatArray, truth: FloatArray, columns: tuple[int, ...]) -> FloatArray:
    """Return shares [3] of some columns of estimates [n, 3], at least 0 and 1 in total, with the least squared error.

    There are so few columns that each subset is solved separately; the best one without negative shares is returned.
    """
    best, least = np.zeros(estimates.shape[1]), np.inf
    for size in range(1, len(columns) + 1):
        for first, *rest in combinations(columns, size):
            shares = np.zeros(estimates.shape[1])
            if rest:
                differences = estimates[:, rest] - estimates[:, [first]]
                shares[rest] = np.linalg.lstsq(differences, truth - estimates[:, first], rcond=None)[0]
            shares[first] = 1.0 - shares.sum()
            error = _squared_error(estimates, truth, shares)
            if (shares >= 0).all() and error < least:
                best, least = shares, error
    return best


def _squared_error(estimates: FloatArray, truth: FloatArray, shares: FloatArray) -> float:
    return float(np.mean((estimates @ shares - truth) ** 2))


def _fit_distribution(made: Estimator, rows: Graph) -> dict[str, BoostedTrees]:
    """Fit the median relative to the mean, and the scale of the error."""
    features, given_true, _ = made.stage_two_rows(rows.head, rows.relation, rows.tail)
    mean = made.mixture(made.corrected(features, given_true), rows.head, rows.relation, rows.tail)
    features = np.column_stack([mean, features])
    error = rows.weight - mean
    return {"median": _fit_small(features, error, 0.5), "scale": _fit_small(features, np.abs(error))}


def conformal_rows(made: Estimator, held: ValidationParts) -> Graph:
    """Return the rows that measure errors: the conformal part.

    Rows of the calibration part are added if nothing that the mean uses was fitted to them.
    """
    scales = len(held.stopping) < MIN_SCALE_ROWS and "scale" in made.trees
    corrections = bool(made.trees) and len(held.calibration) >= MIN_CALIBRATION_ROWS
    unused = not (scales or corrections or made.mix[1] > 0)
    return concatenate([held.calibration, held.conformal]) if unused else held.conformal
