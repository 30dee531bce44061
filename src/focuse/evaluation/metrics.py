"""Ranking metrics: mean rank, MRR and Hits@k, deciles by weight, concordance, nDCG and weighted precision.

They are pure functions of arrays, such as ranks [n, 2], scores [n] and weights [n]; `focuse.evaluation.ranking`
computes the ranks. NaN means that a metric is not defined, and becomes None in `to_dict`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from focuse.data.graph import Graph
from focuse.results import format_table

if TYPE_CHECKING:
    from focuse.models.base import Side

FloatArray = npt.NDArray[np.float64]
Keys = npt.NDArray[np.int64]
HITS = (1, 3, 10)
SIDES: tuple[Side, Side] = ("tail", "head")


class Metrics:
    """Base class of dataclasses that hold metrics; `to_dict` leaves out fields that `repr` does not show, as arrays."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, as JSON can hold them: None instead of NaN, dictionaries of nested metrics."""
        names = [field.name for field in fields(self) if field.repr]  # type: ignore[arg-type]
        return {name: json_value(getattr(self, name)) for name in names}


def json_value(value: Any) -> Any:
    """Return a value that JSON can hold: None for a number that is not finite, a dictionary for metrics."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: json_value(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def format_number(value: float | None) -> str:
    """Return a number with three decimals or, if it is tiny or huge, three digits; a dash for None and NaN."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.3f}" if value == 0 or 1e-3 <= abs(value) < 1000 else f"{value:.3g}"


def spearman(predicted: FloatArray, truth: FloatArray) -> float:
    """Compute Spearman's rank correlation, with average ranks for ties; NaN if either array is constant.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.9, 0.2]))
    0.5
    """
    first, second = _centered_ranks(predicted), _centered_ranks(truth)
    spread = math.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second) / spread if spread > 0 else math.nan


def _centered_ranks(values: FloatArray) -> FloatArray:
    """Return average ranks [n] minus their mean, which are multiples of ½, so that their sums are exact."""
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[group] - (len(values) + 1) / 2, np.float64)


# ---- ranks --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RankMetrics(Metrics):
    """Mean rank, mean reciprocal rank and Hits@k over `n` triples; NaN if there are none."""

    mr: float
    mrr: float
    hits: dict[int, float]
    n: int

    def to_dict(self) -> dict[str, Any]:
        """Return the keys mr, mrr, hits@1, hits@3, hits@10 and n; None instead of NaN."""
        hits = {f"hits@{k}": fraction for k, fraction in self.hits.items()}
        numbers: dict[str, Any] = json_value({"mr": self.mr, "mrr": self.mrr, **hits, "n": self.n})
        return numbers


def rank_metrics(ranks: FloatArray, sample_weight: FloatArray | None = None, n: int | None = None) -> RankMetrics:
    """Average metrics over ranks from 1, with one row per triple and one column per side.

    `sample_weight` [n] is the weight of each triple in the means, and `n` the number of triples to report, if it is not
    the number of rows.

    >>> rank_metrics(np.array([[1.0, 2.0], [4.0, 1.0]])).mrr
    0.6875
    """
    sample_weight = np.ones(len(ranks)) if sample_weight is None else sample_weight
    total = sample_weight.sum() * ranks.shape[1]
    if total <= 0:
        return RankMetrics(np.nan, np.nan, dict.fromkeys(HITS, np.nan), 0 if n is None else n)

    def mean(values: FloatArray) -> float:
        return float((values * sample_weight[:, None]).sum() / total)

    hits = {k: mean((ranks <= k).astype(np.float64)) for k in HITS}
    return RankMetrics(mean(ranks), mean(1.0 / ranks), hits, len(ranks) if n is None else n)


# ---- deciles by weight --------------------------------------------------------------------------------------------


def decile_size(n: int) -> int:
    """Return the number of triples in a decile: ⌊n/10⌋, but at least 1 if there are two triples to compare."""
    return max(n // 10, 1) if n >= 2 else 0


def deciles(weight: FloatArray, upper: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
    """Return the membership of each triple in the bottom and in the top decile by weight: [n], [n].

    Each sums to ⌊n/10⌋. Triples with equal weights at a cut share the remaining places, which yields the exact mean
    over all random ways to break the tie.

    With `upper`, triples have intervals from `weight` to `upper`, such as those of `focuse.data.weights.Strength`. A
    triple belongs to the top decile with the fraction of its interval that lies above the cut. Triples with the
    interval [0, 1], of which nothing is known, belong to no decile, unless all have it.

    >>> deciles(np.array([1.0] * 10 + [2.0] * 10))[1].tolist()[-3:]
    [0.2, 0.2, 0.2]
    >>> deciles(np.array([0.0, 0.5, 0.0, 0.0]), np.array([0.5, 1.0, 1.0, 1.0]))[1].tolist()
    [0.0, 1.0, 0.0, 0.0]
    """
    if upper is not None and upper is not weight:
        known = upper - weight < 1.0
        known = known if known.sum() >= 2 else np.ones(len(weight), bool)
        bottom, top = np.zeros(len(weight)), np.zeros(len(weight))
        bottom[known], top[known] = _above(-upper[known], -weight[known]), _above(weight[known], upper[known])
        return bottom, top
    size = decile_size(len(weight))

    def lowest(values: FloatArray) -> FloatArray:
        cut = np.partition(values, size - 1)[size - 1]
        below, tied = values < cut, values == cut
        return np.asarray(below + tied * ((size - below.sum()) / tied.sum()), np.float64)

    return (lowest(weight), lowest(-weight)) if size else (np.zeros(len(weight)), np.zeros(len(weight)))


def _above(low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the fraction of each interval [n] above the cut at which they sum to the size of a decile."""
    size, ends = decile_size(len(low)), np.unique(np.concatenate([low, high]))

    def fractions(cut: float) -> FloatArray:
        return np.clip((high - cut) / (high - low), 0.0, 1.0)

    if not size:
        return np.zeros(len(low))
    first, last = 0, len(ends) - 1  # the cut is between them
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if fractions(ends[middle]).sum() >= size else (first, middle)
    more, fewer = fractions(ends[first]), fractions(ends[last])
    # Between two neighboring ends, every fraction is a linear function of the cut.
    return np.asarray(more + (fewer - more) * ((more.sum() - size) / (more.sum() - fewer.sum())), np.float64)


def weighted_median(values: FloatArray, sample_weight: FloatArray) -> float:
    """Return the weighted median of `values` [n]; the midpoint if two values qualify."""
    order = np.argsort(values, kind="stable")
    values, sample_weight = values[order], sample_weight[order]
    values, sample_weight = values[sample_weight > 0], sample_weight[sample_weight > 0]
    if not len(values):
        return float("nan")
    cumulative = np.cumsum(sample_weight)
    half = cumulative[-1] / 2
    # Cumulative sums of a million fractions have errors of about 1e-11, and relevant weights are larger than 1e-9.
    lower = int(np.searchsorted(cumulative, half * (1 - 1e-9)))
    upper = int(np.searchsorted(cumulative, half * (1 + 1e-9), side="right"))
    return float((values[lower] + values[min(upper, len(values) - 1)]) / 2)


# ---- concordance --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Concordance(Metrics):
    """The fraction (`share`) of `pairs` in which the triple of higher weight scores higher; NaN without pairs."""

    share: float
    pairs: int


def concordance(score: FloatArray, weight: FloatArray, group: npt.NDArray[Any] | None = None) -> Concordance:
    """Compare the order of scores [n] and weights [n] over the pairs within each group [n], or over all pairs.

    Pairs of equal weight are not counted, and equal scores count as half. The result is exact, in O(n log n) time.

    >>> concordance(np.array([3.0, 1.0, 2.0]), np.array([0.9, 0.1, 0.05]))
    Concordance(share=0.6666666666666666, pairs=3)
    """
    group = np.zeros(len(score), np.int64) if group is None else group
    by_weight, by_score = dense_codes(weight), dense_codes(score)
    order = sort_rows(group, by_weight, by_score)
    group, by_weight, by_score = group[order], by_weight[order], by_score[order]
    pairs = _tied_pairs(group) - _tied_pairs(group, by_weight)
    if not pairs:
        return Concordance(math.nan, 0)
    # Equal scores keep the order of their weights, so that an inversion is a pair that disagrees.
    order = sort_rows(group, by_score, np.arange(len(by_score)))
    position = np.empty(len(by_score), np.int32 if len(by_score) < 2**31 else np.int64)
    position[order] = np.arange(len(by_score))
    ties = _tied_pairs(group[order], by_score[order]) - _tied_pairs(group, by_weight, by_score)
    return Concordance((pairs - _inversions(position) - ties / 2) / pairs, pairs)


def _tied_pairs(*columns: npt.NDArray[Any]) -> int:
    """Count the pairs of rows that agree in all columns, where equal rows are next to each other."""
    if not len(columns[0]):
        return 0
    new = np.ones(len(columns[0]), bool)
    new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    count = np.diff(np.append(np.flatnonzero(new), len(new)))
    return int((count * (count - 1) // 2).sum())


def _inversions(position: npt.NDArray[Any]) -> int:
    """Count the pairs i < j with position[i] > position[j] in a permutation of 0 … n - 1.

    Bits are processed from the highest down. Among numbers that agree in all higher bits, each 0 counts the 1s before
    it; then the numbers are split by that bit, and each half keeps its order.
    """
    total = 0
    for bit in reversed(range(int(len(position) - 1).bit_length())):
        one = (position >> bit) & 1
        start = position >> (bit + 1) << (bit + 1)  # start of the numbers that agree in all higher bits
        ones_before = np.cumsum(one, dtype=position.dtype) - one
        ones_before -= ones_before[start]
        total += int(ones_before[one == 0].sum(dtype=np.int64))
        zeros_before = np.arange(len(position), dtype=position.dtype) - start - ones_before
        target = np.where(one == 1, start + (1 << bit) + ones_before, start + zeros_before)
        split = np.empty_like(position)
        split[target] = position
        position = split
    return total


# ---- nDCG ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NDCG(Metrics):
    """The mean nDCG over `queries`, with linear and with exponential gain; `ties` is the rule for equal scores."""

    queries: int
    linear: float
    exponential: float
    ties: str = "worst"


def mean_ndcg(gain: FloatArray, ranks: FloatArray, first: npt.NDArray[np.intp]) -> float:
    """Return the mean nDCG over queries with any gain.

    The gains and ranks of triples [n] are sorted by query and then by decreasing gain; `first` [q] are the positions at
    which queries begin.
    """
    count = np.diff(np.append(first, len(gain)))
    ideal_ranks = np.arange(1.0, len(gain) + 1) - np.repeat(first, count)
    reached = np.add.reduceat(gain / np.log2(ranks + 1), first)
    possible = np.add.reduceat(gain / np.log2(ideal_ranks + 1), first)
    counts = possible > 0
    return float(np.mean(reached[counts] / possible[counts])) if counts.any() else math.nan


def query_keys(graph: Graph, side: Side = "tail") -> Keys:
    """Return one number per query (head, relation, ?), or (?, relation, tail) for the side "head"; int64 [n]."""
    given = graph.head if side == "tail" else graph.tail
    return given.astype(np.int64) * max(len(graph.relations), 1) + graph.relation


def queries_of_both_sides(triples: Graph) -> Keys:
    """Return a number from 0 per query of tails, and then of heads; int64 [2n]."""
    tail, head = (query_keys(triples, side) for side in SIDES)
    return dense_codes(np.concatenate([tail, head + tail.max(initial=-1) + 1]))


# ---- order by weight ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WeightOrder(Metrics):
    """How well scores order true triples by weight: the concordance over three sets of pairs.

    Pairs are within a relation (scores of different relations are often not comparable), within a query, or any.
    """

    relation: Concordance
    query: Concordance
    every: Concordance

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics by name, as JSON can hold them."""
        return {"concordance": json_value({"relation": self.relation, "query": self.query, "all": self.every})}

    def __str__(self) -> str:
        parts = {"within relation": self.relation, "within query": self.query, "all": self.every}
        shares = (f"{name} {format_number(part.share)} ({part.pairs:,} pairs)" for name, part in parts.items())
        return f"concordance: {', '.join(shares)}"


def weight_order(
    triples: Graph, weight: FloatArray, tail_score: FloatArray, head_score: FloatArray, score: FloatArray | None = None
) -> WeightOrder:
    """Measure how scores order distinct triples (in train's ids) by their weights [n].

    `tail_score` and `head_score` [n] are the scores as answers to (head, relation, ?) and to (?, relation, tail), which
    are equal up to rounding for most models. Within a query only scores of one side are compared, so that ties are
    exact. Comparisons across queries use `score` [n], or else `tail_score`.
    """
    score = tail_score if score is None else score
    both_sides = np.concatenate([tail_score, head_score]), np.concatenate([weight, weight])
    return WeightOrder(
        relation=concordance(score, weight, triples.relation),
        query=concordance(*both_sides, queries_of_both_sides(triples)),
        every=concordance(score, weight),
    )


# ---- weighted precision@n -----------------------------------------------------------------------------------------

LIST_LENGTHS = (1, 3, 10)


@dataclass(frozen=True)
class PrecisionAtN(Metrics):
    """The precision of the first `n` suggestions of a query, as means over queries.

    `weight` is the weighted precision, the sum of the weights found divided by n, and `possible` is its normalized
    form, that sum divided by the largest sum that n suggestions could have. `precision` is the fraction of true
    triples, and `mean_weight` is the mean weight of the triples found.
    """

    n: int
    weight: float
    possible: float
    precision: float
    mean_weight: float


@dataclass(frozen=True)
class WeightedPrecision(Metrics):
    """The weighted precision of the first suggestions of `queries`; `print` shows a table.

    Queries whose weights are all 0 do not count for `PrecisionAtN.possible`.
    """

    queries: int
    first: tuple[PrecisionAtN, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the number of queries and the metrics of each list length."""
        return {"queries": self.queries, **{f"first@{row.n}": row.to_dict() for row in self.first}}

    def __str__(self) -> str:
        headings = ["first n", "weighted precision@n", "normalized", "precision@n", "mean weight found"]
        numbers = [(row.weight, row.possible, row.precision, row.mean_weight) for row in self.first]
        rows = [[f"n = {row.n}", *map(format_number, line)] for row, line in zip(self.first, numbers, strict=True)]
        return f"{format_table(headings, rows)}\n({self.queries:,} queries)"


def weighted_precision(
    triples: Graph, weight: FloatArray, tail_score: FloatArray, head_score: FloatArray, ranks: FloatArray
) -> WeightedPrecision:
    """Measure the precision of lists of suggestions, of which `triples` are the correct ones.

    The triples are distinct, and none of them is known from train or validation; weights and scores are those of
    `weight_order`. Their `ranks` [n, 2], the worst for equal scores, are filtered by the triples themselves and by all
    other known triples. Competitors are therefore not true, and the order among the triples follows from their scores.
    """
    query = queries_of_both_sides(triples)
    queries = int(query.max(initial=-1)) + 1
    score, weights = np.concatenate([tail_score, head_score]), np.concatenate([weight, weight])
    by_weight = dense_codes(-weights)  # 0 for the highest
    # Equal scores have the worst order: the lowest weight first, and after competitors that are not true.
    among_triples = position_in_group(query, dense_codes(-score), by_weight.max(initial=0) - by_weight)
    rank = among_triples + ranks.T.ravel()
    ideal_position = position_in_group(query, by_weight)

    def per_query(values: npt.NDArray[Any]) -> FloatArray:
        return np.asarray(np.bincount(query, weights=values, minlength=queries), np.float64)

    rows = []
    for n in LIST_LENGTHS:
        found = rank <= n
        weight_found, ideal_weight = per_query(weights * found), per_query(weights * (ideal_position < n))
        counts = ideal_weight > 0
        normalized = weight_found[counts] / ideal_weight[counts]
        parts = (weight_found / n, normalized, per_query(found) / n, weights[found])
        rows.append(PrecisionAtN(n, *(float(part.mean()) if len(part) else math.nan for part in parts)))
    return WeightedPrecision(queries, tuple(rows))


# ---- sorting in groups --------------------------------------------------------------------------------------------


def dense_codes(values: npt.NDArray[Any]) -> Keys:
    """Return integers from 0 in the order of the values, which are equal for equal values; [n]."""
    return np.asarray(np.unique(values, return_inverse=True)[1], np.int64)


def sort_rows(*columns: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return the order that sorts rows by columns of integers from 0; the first column is the primary key; [n]."""
    size, key = 1, np.zeros(len(columns[0]), np.int64)
    for column in columns:
        size *= int(column.max(initial=0)) + 1
        if size >= 2**63:  # one key per row would overflow, so each column is sorted separately
            return np.lexsort(columns[::-1])
        key = key * (int(column.max(initial=0)) + 1) + column
    return np.argsort(key)  # sorting one key per row is ten times as fast as sorting by several columns


def position_in_group(keys: Keys, *columns: npt.NDArray[Any]) -> FloatArray:
    """Return each row's position among the rows of the same key, sorted by the columns; [n].

    Columns hold integers from 0, as `dense_codes` returns them; the first column is the primary key.

    >>> position_in_group(np.array([7, 7, 8, 7]), np.array([5, 1, 0, 3])).tolist()
    [2.0, 0.0, 0.0, 1.0]
    """
    rows = sort_rows(keys, *columns)
    positions = np.empty(len(rows))
    positions[rows] = np.arange(len(rows)) - np.searchsorted(keys[rows], keys[rows])
    return positions
