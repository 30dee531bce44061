"""Weights guessed without a model: the rows that a model has to beat in every table of weights.

They know train's weights alone, so they are means over facts: none of them can tell a fact from a corruption.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.graph.graph import Graph

Floats = npt.NDArray[np.float64]
AnyIds = npt.NDArray[Any]
# Heads, relations and tails (ids [n]) to weights in the user's units [n].
Predictor = Callable[[AnyIds, AnyIds, AnyIds], Floats]

GLOBAL_MEAN, RELATION_MEAN, INVERSE_COPY = "global mean", "relation mean", "inverse copy"
COPY_OR_NOTHING = "inverse copy, else 0"


class Trivial(ABC):
    """A predictor that looks weights up: `predictor(head, relation, tail)`, ids [n] to weights [n]."""

    @abstractmethod
    def elsewhere(self, relation: AnyIds) -> Floats:
        """The weights [n] of edges by `relation` [n] between entities that train does not link at all."""

    def __call__(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> Floats:
        return self.elsewhere(relation)


@dataclass(frozen=True)
class GlobalMean(Trivial):
    """The mean weight of train for every edge."""

    value: float

    def elsewhere(self, relation: AnyIds) -> Floats:
        return np.full(len(relation), self.value)


@dataclass(frozen=True, eq=False)
class RelationMean(Trivial):
    """The mean weight of the edge's relation in train, `values` [R]; the global mean where train has none."""

    values: Floats

    def elsewhere(self, relation: AnyIds) -> Floats:
        found: Floats = self.values[relation]
        return found


@dataclass(frozen=True, eq=False)
class Means:
    """The mean weight of each key: sorted `keys` int64 [k] and `values` [k]."""

    keys: npt.NDArray[np.int64]
    values: Floats

    @classmethod
    def of(cls, keys: npt.NDArray[np.int64], weight: Floats) -> Means:
        """From keys [n] with repeats and a weight [n] each."""
        distinct, group, count = np.unique(keys, return_inverse=True, return_counts=True)
        return cls(distinct, grouped_mean(group, weight, count))

    def fill(self, keys: npt.NDArray[np.int64], otherwise: Floats) -> Floats:
        """The means of `keys` [n]; `otherwise` [n] where a key is unknown."""
        if not len(self.keys):
            return otherwise
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.values[place], otherwise)


@dataclass(frozen=True, eq=False)
class InverseCopy(Trivial):
    """What train says of the edge back by the same relation, else of the pair, else of the relation.

    Means over repeats. The pair's mean is over every edge between both entities, in both directions; so an edge
    that stands in train itself is looked up too, and a loop, which is its own inverse, gives its own weight.
    """

    train: Graph
    inverse: Means
    pair: Means
    relation_mean: RelationMean

    def elsewhere(self, relation: AnyIds) -> Floats:
        return self.relation_mean.elsewhere(relation)

    def __call__(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> Floats:
        pair = self.pair.fill(_pair_keys(self.train, head, tail), self.elsewhere(relation))
        return self.inverse.fill(self.train.keys_of(tail, relation, head), pair)


@dataclass(frozen=True, eq=False)
class CopyOrNothing(Trivial):
    """The inverse copy where train links the two entities, else 0: it takes every other triple for false."""

    copy: InverseCopy

    def elsewhere(self, relation: AnyIds) -> Floats:
        return np.zeros(len(relation))

    def __call__(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> Floats:
        copy, nothing = self.copy, self.elsewhere(relation)
        pair = copy.pair.fill(_pair_keys(copy.train, head, tail), nothing)
        return copy.inverse.fill(copy.train.keys_of(tail, relation, head), pair)


def fit_doubting(train: Graph) -> dict[str, Trivial]:
    """The trivial predictor that knows that most triples are false, for the protocols with negatives."""
    return {COPY_OR_NOTHING: CopyOrNothing(_inverse_copy(train, _relation_mean(train)))}


def fit_trivial(train: Graph) -> dict[str, Trivial]:
    """The three trivial predictors in the user's own units, fitted on train: global mean, relation mean, inverse copy.

    >>> from focuse.graph.graph import from_columns
    >>> train = from_columns(["a", "b", "a"], ["r", "r", "s"], ["b", "c", "b"], [0.2, 0.6, 1.0])
    >>> [round(float(row(np.array([1]), np.array([0]), np.array([0]))[0]), 3) for row in fit_trivial(train).values()]
    [0.6, 0.4, 0.2]
    """
    mean = _relation_mean(train)
    overall = GlobalMean(_overall(train))
    return {GLOBAL_MEAN: overall, RELATION_MEAN: mean, INVERSE_COPY: _inverse_copy(train, mean)}


def _overall(train: Graph) -> float:
    return float(grouped_mean(np.zeros(len(train), np.int64), train.weight, np.array([len(train)]))[0])


def _relation_mean(train: Graph) -> RelationMean:
    count = np.bincount(train.relation, minlength=len(train.relations))
    return RelationMean(np.where(count > 0, grouped_mean(train.relation, train.weight, count), _overall(train)))


def _inverse_copy(train: Graph, relation_mean: RelationMean) -> InverseCopy:
    return InverseCopy(
        train,
        inverse=Means.of(train.keys, train.weight),
        pair=Means.of(_pair_keys(train, train.head, train.tail), train.weight),
        relation_mean=relation_mean,
    )


def grouped_mean(group: AnyIds, weight: Floats, count: AnyIds) -> Floats:
    """The mean of `weight` [n] in each `group` [n], given how many each has [k]; 0 for one without any."""
    # Divided before the sum: that of numbers near 1e308 would overflow.
    shares = np.bincount(group, weights=weight / count[group], minlength=len(count))
    return np.asarray(shares, np.float64)


def _pair_keys(train: Graph, head: AnyIds, tail: AnyIds) -> npt.NDArray[np.int64]:
    """One number for each two entities, whichever stands first; int64 [n]."""
    first, second = np.minimum(head, tail).astype(np.int64), np.maximum(head, tail)
    return first * len(train.entities) + second
