"""Weights of any unit to [0, 1] and back. Fitted on train alone; valid and test are clipped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from focuse.errors import FocuseError, choose
from focuse.graph.arrays import chunks
from focuse.graph.graph import Graph, Ids, Weights

CHUNK = 1 << 20  # edges looked at together
Arrays = dict[str, npt.NDArray[np.float64]]


class Normaliser(ABC):
    """A monotone map of weights to [0, 1] that can be undone and stored as a few arrays.

    Made by `fit`; `arrays` is all of its state, so that a run can store it without pickling.
    """

    name: ClassVar[str]

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays

    @classmethod
    @abstractmethod
    def fit(cls, graph: Graph) -> Normaliser:
        """Learn the map from the training graph."""

    @abstractmethod
    def transform(self, weight: Weights, relation: Ids) -> Weights:
        """Weights [n] of edges with `relation` [n] to [0, 1]; what lies beyond train's range is clipped."""

    @abstractmethod
    def inverse(self, share: Weights, relation: Ids) -> Weights:
        """From [0, 1] back to the user's units."""


class RelationRange(Normaliser):
    """(w − min) / (max − min) within each relation; a relation with one single value gets 1."""

    name = "relation"

    @classmethod
    def fit(cls, graph: Graph) -> Normaliser:
        low = np.full(len(graph.relations), np.inf)
        high = np.full(len(graph.relations), -np.inf)
        for piece in chunks(len(graph), CHUNK):
            np.minimum.at(low, graph.relation[piece], graph.weight[piece])
            np.maximum.at(high, graph.relation[piece], graph.weight[piece])
        unused = low > high  # a relation of the vocabulary without an edge in train: any range will do
        return cls({"low": np.where(unused, 0.0, low), "high": np.where(unused, 1.0, high)})

    def transform(self, weight: Weights, relation: Ids) -> Weights:
        low, high = self.arrays["low"][relation], self.arrays["high"][relation]
        # Halves first: the span of numbers near ±1e308 would overflow.
        span = high / 2 - low / 2
        inside = np.clip(weight, low, high) / 2 - low / 2
        return np.divide(inside, span, out=np.ones(len(weight)), where=span > 0)

    def inverse(self, share: Weights, relation: Ids) -> Weights:
        low, high = self.arrays["low"][relation], self.arrays["high"][relation]
        return low * (1 - share) + high * share


class GlobalRange(RelationRange):
    """(w − min) / (max − min) over all edges alike; one single value gets 1."""

    name = "global"

    @classmethod
    def fit(cls, graph: Graph) -> Normaliser:
        relations = len(graph.relations)
        return cls({"low": np.full(relations, graph.weight.min()), "high": np.full(relations, graph.weight.max())})


class RelationQuantile(Normaliser):
    """The share of a relation's other edges that weigh less, ties counted half; one single value gets 1.

    Between two training weights the map is linear, so it can be undone.
    """

    name = "quantile"

    @classmethod
    def fit(cls, graph: Graph) -> Normaliser:
        # Sorted by relation, then weight; each distinct (relation, weight) becomes one knot of the map.
        order = np.lexsort((graph.weight, graph.relation))
        relation, weight = graph.relation[order], graph.weight[order]
        new = np.ones(len(weight), bool)
        new[1:] = (relation[1:] != relation[:-1]) | (weight[1:] != weight[:-1])
        start = np.flatnonzero(new)
        equal = np.diff(np.append(start, len(weight)))
        edges = np.bincount(graph.relation, minlength=len(graph.relations))
        first = np.concatenate([[0], np.cumsum(edges)[:-1]])[relation[start]]
        below = start - first
        others = edges[relation[start]] - 1
        share = np.divide(below + (equal - 1) / 2, others, out=np.ones(len(start)), where=equal <= others)
        knots = np.bincount(relation[start], minlength=len(graph.relations))
        offsets = np.concatenate([[0], np.cumsum(knots)]).astype(np.float64)
        return cls({"value": weight[start], "share": share, "offsets": offsets})

    def transform(self, weight: Weights, relation: Ids) -> Weights:
        return self._interpolate(weight, relation, "value", "share")

    def inverse(self, share: Weights, relation: Ids) -> Weights:
        return self._interpolate(share, relation, "share", "value")

    def _interpolate(self, given: Weights, relation: Ids, source: str, target: str) -> Weights:
        result = np.ones(len(given))
        offsets = self.arrays["offsets"].astype(np.int64)
        # Rows grouped by relation once, so that each is looked at once, however many relations there are.
        order = np.argsort(relation, kind="stable")
        kinds, starts, counts = np.unique(relation[order], return_index=True, return_counts=True)
        for kind, start, count in zip(kinds, starts, counts, strict=True):
            rows = order[start : start + count]
            knots = slice(offsets[kind], offsets[kind + 1])
            if offsets[kind + 1] > offsets[kind]:
                result[rows] = _between(given[rows], self.arrays[source][knots], self.arrays[target][knots])
        return result


def _between(given: Weights, source: Weights, target: Weights) -> Weights:
    """np.interp by shares of the way instead of slopes, which overflow where numbers are near 1e308."""
    given = np.clip(given, source[0], source[-1])
    before = np.searchsorted(source, given, side="right") - 1
    after = np.minimum(before + 1, len(source) - 1)
    span = source[after] / 2 - source[before] / 2
    way = np.divide(given / 2 - source[before] / 2, span, out=np.zeros(len(given)), where=span > 0)
    low, high = target[before], target[after]
    result: Weights = np.clip(low * (1 - way) + high * way, low, high)
    return result


class AsTheyAre(Normaliser):
    """No change; train's weights must lie in [0, 1] already."""

    name = "none"

    @classmethod
    def fit(cls, graph: Graph) -> Normaliser:
        if not in_unit_range(graph.weight):
            raise FocuseError(
                f"{graph.source}: normalize 'none' needs weights in [0, 1], found {graph.weight.min():g} to "
                f"{graph.weight.max():g}; use 'relation', 'global' or 'quantile'"
            )
        return cls({})

    def transform(self, weight: Weights, relation: Ids) -> Weights:
        return np.clip(weight, 0.0, 1.0)

    def inverse(self, share: Weights, relation: Ids) -> Weights:
        return share


class LowerIsBetter(Normaliser):
    """Another normaliser for weights of which the small ones are strong: the smallest get 1, the largest 0.

    It maps mirrored weights, so that what the other one says of ties and of a relation with one single value holds.
    """

    name = "lower-is-better"

    def __init__(self, other: Normaliser) -> None:
        super().__init__(other.arrays)
        self.other = other

    @classmethod
    def fit(cls, graph: Graph) -> Normaliser:
        return cls.fit_as(RelationRange, graph)

    @classmethod
    def fit_as(cls, kind: type[Normaliser], graph: Graph) -> Normaliser:
        """As `kind` does it; weights to be taken as they are need no fit, but are looked at."""
        mirrored = graph if kind is AsTheyAre else replace(graph, weight=-graph.weight)
        return cls(kind.fit(mirrored))

    def transform(self, weight: Weights, relation: Ids) -> Weights:
        return self.other.transform(self._mirrored(weight), relation)

    def inverse(self, share: Weights, relation: Ids) -> Weights:
        return self._mirrored(self.other.inverse(share, relation))

    def _mirrored(self, weight: Weights) -> Weights:
        return 1.0 - weight if isinstance(self.other, AsTheyAre) else -weight


NORMALISERS: dict[str, type[Normaliser]] = {
    kind.name: kind for kind in (RelationRange, GlobalRange, RelationQuantile, AsTheyAre)
}


def fit_normaliser(name: str, graph: Graph) -> Normaliser:
    """The normaliser called `name`, fitted on the training graph; its strong weights get the large shares.

    >>> from focuse.graph import read
    >>> graph = read([("a", "hours", "b", 2), ("a", "hours", "c", 40), ("a", "hours", "d", 21)])
    >>> fit_normaliser("relation", graph).transform(graph.weight, graph.relation).tolist()
    [0.0, 1.0, 0.5]
    """
    kind = NORMALISERS[choose("normaliser", name, NORMALISERS)]
    return LowerIsBetter.fit_as(kind, graph) if graph.lower_is_better else kind.fit(graph)


def stored_normaliser(name: str, arrays: Arrays, lower: bool) -> Normaliser:
    """A normaliser from its arrays, as a run stores them."""
    made = NORMALISERS[choose("normaliser", name, NORMALISERS)](arrays)
    return LowerIsBetter(made) if lower else made


def with_more_relations(normaliser: Normaliser, graph: Graph, known: int) -> Normaliser:
    """A normaliser of `known` relations for all of the graph's: the first ones as they were, later ones by their edges.

    >>> from focuse.graph import read
    >>> first = fit_normaliser("relation", read([("a", "r", "b", 2.0), ("a", "r", "c", 4.0)]))
    >>> both = read([("a", "r", "d", 9.0), ("a", "s", "b", 10.0), ("a", "s", "c", 20.0)])
    >>> with_more_relations(first, both, 1).transform(np.array([3.0, 15.0]), np.array([0, 1])).tolist()
    [0.5, 0.5]
    """
    plain = normaliser.other if isinstance(normaliser, LowerIsBetter) else normaliser
    more, old = len(graph.relations) - known, plain.arrays
    if more <= 0 or isinstance(plain, AsTheyAre):
        return normaliser
    if isinstance(plain, GlobalRange):
        arrays = {name: np.append(part, np.full(more, part[0])) for name, part in old.items()}
    else:
        own = graph.select(graph.relation >= known)
        mirrored = own if plain is normaliser else replace(own, weight=-own.weight)
        fresh = type(plain).fit(mirrored).arrays
        if isinstance(plain, RelationQuantile):
            arrays = {name: np.append(old[name], fresh[name]) for name in ("value", "share")}
            arrays["offsets"] = np.append(old["offsets"], old["offsets"][-1] + fresh["offsets"][known + 1 :])
        else:
            arrays = {name: np.append(old[name], fresh[name][known:]) for name in old}
    made = type(plain)(arrays)
    return made if plain is normaliser else LowerIsBetter(made)


def default_normaliser(graph: Graph) -> str:
    """'relation', unless every relation has one weight of its own: then only 'global' can tell them apart."""
    ranges = RelationRange.fit(graph)
    differ = ranges.arrays["low"] != ranges.arrays["high"]
    within = any(bool(differ[graph.relation[piece]].any()) for piece in chunks(len(graph), CHUNK))
    return "relation" if within or graph.weight.min() == graph.weight.max() else "global"


def in_unit_range(weight: Weights) -> bool:
    return bool(len(weight) == 0 or (weight.min() >= 0.0 and weight.max() <= 1.0))


def comparable(weight: Weights, train: Weights) -> Weights:
    """Weights as deciles and thresholds look at them: as they are if all lie in [0, 1], else global min–max.

    The range is train's; what lies beyond it is clipped.
    """
    if in_unit_range(train) and in_unit_range(weight):
        return weight
    low, high = float(train.min()), float(train.max())
    span = high / 2 - low / 2
    return (np.clip(weight, low, high) / 2 - low / 2) / span if span > 0 else np.ones(len(weight))


def strength(graph: Graph, train: Graph) -> Weights:
    """How strong each edge is, in [0, 1], as deciles and thresholds look at it; float64 [n].

    Comparable weights, turned round where lower is better in train: the strong ones are always the large ones.

    >>> from focuse.graph import read
    >>> distances = read([("a", "r", "b", 2.0), ("a", "r", "c", 8.0)]).directed(True)
    >>> strength(distances, distances).tolist()
    [1.0, 0.0]
    """
    weight = comparable(graph.weight, train.weight)
    if not train.lower_is_better or not len(train):
        return weight
    constant = train.weight.min() == train.weight.max() and not in_unit_range(train.weight)
    return weight if constant else 1.0 - weight
