"""Does the order of scores follow the order of weights? Only true facts are compared with one another.

Concordance: of all pairs of facts with different weights, the share in which the model scores the heavier one higher
(equal scores count half). 1 is the order of the weights, 0.5 what chance gives, 0 the order upside down.

nDCG among facts: the facts of one query alone, at the rank r that the model gives them among each other:

    nDCG = Σ gain(w) / log2(r + 1)  /  Σ gain(w) / log2(i + 1)   i = 1, 2, … by falling weight

A query is (head, relation, ?) or (?, relation, tail), and counts if two of its facts differ in weight. Facts of equal
scores stand in the worst order: the lightest first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.evaluation.confidence import finite_or_none
from focuse.evaluation.gain import Gain, mean_gain, query_keys
from focuse.graph.graph import Graph

Floats = npt.NDArray[np.float64]
Keys = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Concordance:
    """The share of `pairs` in which the heavier fact scores higher; NaN where there is no pair."""

    share: float
    pairs: int

    def to_dict(self) -> dict[str, Any]:
        return {"share": finite_or_none(self.share), "pairs": self.pairs}


@dataclass(frozen=True)
class Order:
    """How well scores order true facts by weight; `print` shows two lines.

    Concordance over pairs within a `relation` (scores of different relations need not compare), within a `query`, and
    over `every` pair; nDCG among facts, and what facts in random order would gain on average (`chance`).
    """

    relation: Concordance
    query: Concordance
    every: Concordance
    ndcg: Gain
    chance: Gain

    def to_dict(self) -> dict[str, Any]:
        pairs = {"relation": self.relation, "query": self.query, "all": self.every}
        return {
            "concordance": {name: one.to_dict() for name, one in pairs.items()},
            "ndcg": self.ndcg.to_dict(),
            "chance": {key: self.chance.to_dict()[key] for key in ("linear", "exponential")},
        }

    def __str__(self) -> str:
        shares = {"relation": self.relation, "query": self.query, "graph": self.every}
        first = ", ".join(f"in a {name} {number(one.share)} ({one.pairs:,} pairs)" for name, one in shares.items())
        gains = (
            ("w", self.ndcg.linear, self.chance.linear),
            ("2^w − 1", self.ndcg.exponential, self.chance.exponential),
        )
        second = ", ".join(f"gain {name} {number(gain)} (chance {number(chance)})" for name, gain, chance in gains)
        return f"heavier fact scored higher: {first}\nnDCG among facts: {second}, {self.ndcg.queries:,} queries"


def number(value: float) -> str:
    """Three digits, or a dash where there is nothing to say."""
    return f"{value:.3f}" if math.isfinite(value) else "–"


def order_of(
    facts: Graph, weight: Floats, tail_score: Floats, head_score: Floats, score: Floats | None = None
) -> Order:
    """How scores order `facts` (distinct, in train's ids) by `weight` [n].

    `tail_score` and `head_score` [n] are the facts' scores as answers to (head, relation, ?) and (?, relation, tail):
    of most models the same but for rounding, so that ties within a query are ties. Beyond a query a fact has the one
    `score` [n] (None: its `tail_score`).
    """
    score = tail_score if score is None else score
    sides = [(query_keys(facts, "tail"), tail_score), (query_keys(facts, "head"), head_score)]
    ndcg, chance = _gains(sides, weight)
    return Order(
        relation=concordance(score, weight, facts.relation),
        query=_pooled([concordance(own, weight, keys) for keys, own in sides]),
        every=concordance(score, weight),
        ndcg=ndcg,
        chance=chance,
    )


def concordance(score: Floats, weight: Floats, group: npt.NDArray[Any] | None = None) -> Concordance:
    """Concordance of scores [n] with weights [n] over the pairs within each group [n] (None: over all pairs).

    Exact, in O(n log n) time.

    >>> concordance(np.array([3.0, 1.0, 2.0]), np.array([0.9, 0.1, 0.05]))
    Concordance(share=0.6666666666666666, pairs=3)
    """
    kind = np.zeros(len(score), np.int64) if group is None else group
    light, low = codes(weight), codes(score)
    by_weight = ascending(kind, light, low)
    kind, light, low = kind[by_weight], light[by_weight], low[by_weight]
    pairs = _tied(kind) - _tied(kind, light)
    if not pairs:
        return Concordance(math.nan, 0)
    # Equal scores keep the order of their weights: an inversion is a pair that truly disagrees.
    by_score = ascending(kind, low, np.arange(len(low)))
    place = np.empty(len(low), np.int32 if len(low) < 2**31 else np.int64)
    place[by_score] = np.arange(len(low))
    same = _tied(kind[by_score], low[by_score]) - _tied(kind, light, low)
    return Concordance((pairs - _inversions(place) - same / 2) / pairs, pairs)


def _tied(*columns: npt.NDArray[Any]) -> int:
    """How many pairs of rows agree in all columns, equal rows standing together."""
    if not len(columns[0]):
        return 0
    new = np.ones(len(columns[0]), bool)
    new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    count = np.diff(np.append(np.flatnonzero(new), len(new)))
    return int((count * (count - 1) // 2).sum())


def _inversions(place: npt.NDArray[Any]) -> int:
    """Pairs i < j with place[i] > place[j] in a permutation of 0 … n - 1.

    From the highest bit down: among numbers that agree so far, each 0 is passed by the 1s before it; then they are
    parted by that bit, each half in its old order.
    """
    total = 0
    for bit in reversed(range(int(len(place) - 1).bit_length())):
        one = (place >> bit) & 1
        start = place >> (bit + 1) << (bit + 1)  # numbers that agree so far lie here, from this place on
        ones_before = np.cumsum(one, dtype=place.dtype) - one
        ones_before -= ones_before[start]
        total += int(ones_before[one == 0].sum(dtype=np.int64))
        zeros_before = np.arange(len(place), dtype=place.dtype) - start - ones_before
        target = np.where(one == 1, start + (1 << bit) + ones_before, start + zeros_before)
        parted = np.empty_like(place)
        parted[target] = place
        place = parted
    return total


def _pooled(parts: list[Concordance]) -> Concordance:
    """The pairs of all parts together."""
    pairs = sum(part.pairs for part in parts)
    agree = sum(part.share * part.pairs for part in parts if part.pairs)
    return Concordance(agree / pairs if pairs else math.nan, pairs)


def _gains(sides: list[tuple[Keys, Floats]], weight: Floats) -> tuple[Gain, Gain]:
    """nDCG of the queries of both sides, and what random order would give."""
    # Queries of the second side are numbered behind those of the first.
    behind = sides[0][0].max(initial=-1) + 1
    keys = np.concatenate([sides[0][0], sides[1][0] + behind])
    score, weight = np.concatenate([sides[0][1], sides[1][1]]), np.concatenate([weight, weight])
    rows = ascending(keys, codes(-weight))
    keys, score, weight = keys[rows], score[rows], weight[rows]
    first, count = np.unique(keys, return_index=True, return_counts=True)[1:]
    differ = weight[first] > weight[first + count - 1]  # the heaviest stands first, the lightest last
    if not differ.any():
        return Gain(0, math.nan, math.nan), Gain(0, math.nan, math.nan)
    asked, count = np.repeat(differ, count), count[differ]
    keys, score, weight = keys[asked], score[asked], weight[asked]
    first = np.cumsum(count) - count
    ideal = np.arange(1.0, len(keys) + 1) - np.repeat(first, count)
    ranks = 1 + before(keys, codes(-score), codes(weight))  # of equal scores the lightest stands first
    reached, alike = [], []
    for gain in (weight, np.exp2(weight) - 1.0):
        reached.append(mean_gain(gain, ranks, gain, ideal, first))
        # In random order every place holds the query's mean gain on average.
        mean = np.repeat(np.add.reduceat(gain, first) / count, count)
        alike.append(mean_gain(mean, ideal, gain, ideal, first))
    return Gain(len(first), reached[0], reached[1]), Gain(len(first), alike[0], alike[1])


def codes(values: npt.NDArray[Any]) -> Keys:
    """Whole numbers from 0 in the same order, equal where the values are; [n]."""
    return np.asarray(np.unique(values, return_inverse=True)[1], np.int64)


def ascending(*columns: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Rows in ascending order of columns of whole numbers from 0, the first counting most; [n]."""
    size, key = 1, np.zeros(len(columns[0]), np.int64)
    for column in columns:
        size *= int(column.max(initial=0)) + 1
        if size >= 2**63:  # rows of millions of groups, weights and scores: each column is sorted by itself
            return np.lexsort(columns[::-1])
        key = key * (int(column.max(initial=0)) + 1) + column
    return np.argsort(key)  # a single number a row is sorted ten times as fast as several


def before(keys: Keys, *columns: npt.NDArray[Any]) -> Floats:
    """How many rows of the same key stand before each in ascending order of the columns, the first counting most; [n].

    Columns are of whole numbers from 0, as `codes` gives them.

    >>> before(np.array([7, 7, 8, 7]), np.array([5, 1, 0, 3])).tolist()
    [2.0, 0.0, 0.0, 1.0]
    """
    rows = ascending(keys, *columns)
    start = np.flatnonzero(np.diff(keys[rows], prepend=-1) != 0)
    count = np.diff(np.append(start, len(rows)))
    places = np.empty(len(rows))
    places[rows] = np.arange(len(rows)) - np.repeat(start, count)
    return places
