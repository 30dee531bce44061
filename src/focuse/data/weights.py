"""Maps between weights of any unit and [0, 1], and the combination of several weight columns into one weight.

Everything here is fitted on the training split only. A *unit weight* is a weight in [0, 1] of which 1 is the strongest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from focuse.data.graph import Graph, Ids, Mask, WeightColumns, Weights, combine_columns, scale_range
from focuse.errors import FocuseError
from focuse.option_strings import choose
from focuse.random_streams import RandomStream
from focuse.system import chunks

CHUNK_EDGES = 1 << 20  # edges examined at once
LOG_OFFSET = "log_offset"
SMALLEST, LARGEST = np.finfo(np.float64).tiny, np.finfo(np.float64).max
Arrays = dict[str, npt.NDArray[np.float64]]


class Normalizer(ABC):
    """A monotone map of weights to unit weights, with an inverse.

    `arrays` is its complete state, which a run stores without pickling. If lower is better, weights are negated first,
    so that the smallest are mapped to 1 by the same rules for ties and single values. The state has a `log_offset` [R]
    if the logarithm of weight + offset is the scale on which weights differ, and on which they are predicted.
    """

    name: ClassVar[str]

    def __init__(self, arrays: Arrays, lower_is_better: bool = False) -> None:
        self.arrays, self.lower_is_better = arrays, lower_is_better

    @classmethod
    def fit(cls, graph: Graph) -> Normalizer:
        """Fit the map to the training graph."""
        strengths = cls({}, graph.lower_is_better)._reversed(graph.weight)
        return cls(cls._fit(replace(graph, weight=strengths)), graph.lower_is_better)

    def transform(self, weight: Weights, relation: Ids) -> Weights:
        """Map weights [n] of edges with `relation` [n] to [0, 1]; weights outside of train's range are clipped."""
        return self._to_unit(self._reversed(weight), relation)

    def inverse(self, unit_weight: Weights, relation: Ids) -> Weights:
        """Map unit weights [n] back to the user's units."""
        return self._reversed(self._from_unit(unit_weight, relation))

    def _reversed(self, weight: Weights) -> Weights:
        """Return weights of which the larger ones are the stronger ones."""
        return -weight if self.lower_is_better else weight

    @classmethod
    def _fit(cls, graph: Graph) -> Arrays:
        """Return the arrays of the map for a graph of which the larger weights are the stronger ones."""
        return {}

    @abstractmethod
    def _to_unit(self, weight: Weights, relation: Ids) -> Weights: ...

    @abstractmethod
    def _from_unit(self, unit_weight: Weights, relation: Ids) -> Weights: ...


class RelationRange(Normalizer):
    """(w − min) / (max − min) within each relation; a relation with a single value gets 1."""

    name = "relation"

    @classmethod
    def _fit(cls, graph: Graph) -> Arrays:
        low, high = relation_ranges(graph)
        unused = low > high  # a relation without an edge in train may have any range
        return {"low": np.where(unused, 0.0, low), "high": np.where(unused, 1.0, high)}

    def _to_unit(self, weight: Weights, relation: Ids) -> Weights:
        return scale_range(weight, self.arrays["low"][relation], self.arrays["high"][relation])

    def _from_unit(self, unit_weight: Weights, relation: Ids) -> Weights:
        low, high = self.arrays["low"][relation], self.arrays["high"][relation]
        return low * (1 - unit_weight) + high * unit_weight


def relation_ranges(graph: Graph) -> tuple[Weights, Weights]:
    """Return the lowest and the highest weight of each relation [R]; ∞ and −∞ for a relation without edges."""
    low, high = np.full(len(graph.relations), np.inf), np.full(len(graph.relations), -np.inf)
    for chunk in chunks(len(graph), CHUNK_EDGES):
        np.minimum.at(low, graph.relation[chunk], graph.weight[chunk])
        np.maximum.at(high, graph.relation[chunk], graph.weight[chunk])
    return low, high


class GlobalRange(RelationRange):
    """(w − min) / (max − min) over all edges; 1 if there is a single value."""

    name = "global"

    @classmethod
    def _fit(cls, graph: Graph) -> Arrays:
        relations = len(graph.relations)
        return {"low": np.full(relations, graph.weight.min()), "high": np.full(relations, graph.weight.max())}


class RelationLog(RelationRange):
    """log(w) scaled by its range within each relation, for weights over several orders of magnitude.

    The logarithm is that of w + `log_offset` [R], which is 0 if all weights of the relation are positive.
    """

    name = "log"

    @classmethod
    def fit(cls, graph: Graph) -> Normalizer:
        offset = log_offsets(graph)
        logs = replace(graph, weight=to_log(graph.weight, offset[graph.relation]))
        return cls({**super().fit(logs).arrays, LOG_OFFSET: offset}, graph.lower_is_better)

    def transform(self, weight: Weights, relation: Ids) -> Weights:
        return super().transform(to_log(weight, self.arrays[LOG_OFFSET][relation]), relation)

    def inverse(self, unit_weight: Weights, relation: Ids) -> Weights:
        return from_log(super().inverse(unit_weight, relation), self.arrays[LOG_OFFSET][relation])


def log_offsets(graph: Graph) -> Weights:
    """Return what is added to the weights of each relation [R] so that all have a logarithm.

    That is 0 if all are positive. Otherwise the lowest becomes the distance to 0 of the smallest positive weight.
    """
    low, positive = relation_ranges(graph)[0], np.full(len(graph.relations), np.inf)
    above = graph.weight > 0
    np.minimum.at(positive, graph.relation[above], graph.weight[above])
    step = np.where(np.isfinite(positive), positive, 1.0)
    return np.where(low <= 0, step - low, 0.0)


def to_log(weight: Weights, offset: Weights) -> Weights:
    """Return the logarithm of weight + offset [n]; that of the smallest positive number if it is not positive."""
    with np.errstate(over="ignore"):
        return np.log(np.clip(weight + offset, SMALLEST, LARGEST))


def from_log(logarithm: Weights, offset: Weights) -> Weights:
    """Undo `to_log`; what exceeds all numbers becomes the largest one."""
    with np.errstate(over="ignore"):
        return np.asarray(np.minimum(np.exp(logarithm), LARGEST) - offset, np.float64)


class RelationQuantile(Normalizer):
    """The fraction of a relation's other edges with lower weights, where ties count half; 1 for a single value.

    Between two training weights the map is linear, so it has an inverse.
    """

    name = "quantile"

    @classmethod
    def fit(cls, graph: Graph) -> Normalizer:
        made, offset = super().fit(graph), heavy_tail_offsets(graph)
        return made if offset is None else cls({**made.arrays, LOG_OFFSET: offset}, graph.lower_is_better)

    @classmethod
    def _fit(cls, graph: Graph) -> Arrays:
        # Edges are sorted by relation and weight, and each distinct (relation, weight) becomes one knot of the map.
        order = np.lexsort((graph.weight, graph.relation))
        relation, weight = graph.relation[order], graph.weight[order]
        new = np.ones(len(weight), bool)
        new[1:] = (relation[1:] != relation[:-1]) | (weight[1:] != weight[:-1])
        start = np.flatnonzero(new)
        equal = np.diff(np.append(start, len(weight)))
        edges = np.bincount(graph.relation, minlength=len(graph.relations))
        below = start - (np.cumsum(edges) - edges)[relation[start]]
        others = edges[relation[start]] - 1
        quantile = np.divide(below + (equal - 1) / 2, others, out=np.ones(len(start)), where=equal <= others)
        knots = np.bincount(relation[start], minlength=len(graph.relations))
        offsets = np.concatenate([[0], np.cumsum(knots)]).astype(np.float64)
        return {"value": weight[start], "share": quantile, "offsets": offsets}  # the names that runs store

    def _to_unit(self, weight: Weights, relation: Ids) -> Weights:
        return self._interpolate(weight, relation, "value", "share")

    def _from_unit(self, unit_weight: Weights, relation: Ids) -> Weights:
        return self._interpolate(unit_weight, relation, "share", "value")

    def _interpolate(self, given: Weights, relation: Ids, source: str, target: str) -> Weights:
        result = np.ones(len(given))
        offsets = self.arrays["offsets"].astype(np.int64)
        # Rows are grouped by relation once, so that the cost does not grow with the number of relations.
        order = np.argsort(relation, kind="stable")
        relations, starts = np.unique(relation[order], return_index=True)
        for index, rows in zip(relations, np.split(order, starts[1:]), strict=False):
            knots = slice(offsets[index], offsets[index + 1])
            if offsets[index + 1] > offsets[index]:
                result[rows] = _interpolate_safely(given[rows], self.arrays[source][knots], self.arrays[target][knots])
        return result


def _interpolate_safely(given: Weights, source: Weights, target: Weights) -> Weights:
    """Compute np.interp by fractions instead of slopes, which overflow for numbers near 1e308."""
    given = np.clip(given, source[0], source[-1])
    before = np.searchsorted(source, given, side="right") - 1
    after = np.minimum(before + 1, len(source) - 1)
    span = source[after] / 2 - source[before] / 2
    fraction = np.divide(given / 2 - source[before] / 2, span, out=np.zeros(len(given)), where=span > 0)
    low, high = target[before], target[after]
    result: Weights = np.clip(low * (1 - fraction) + high * fraction, low, high)
    return result


class IdentityNormalizer(Normalizer):
    """The identity, or 1 − w if lower is better, for training weights that lie in [0, 1] already."""

    name = "none"

    @classmethod
    def fit(cls, graph: Graph) -> Normalizer:
        if not in_unit_range(graph.weight):
            raise FocuseError(
                f"{graph.source}: scaling 'none' needs weights in [0, 1], found {graph.weight.min():g} to "
                f"{graph.weight.max():g}; use 'relation', 'global' or 'quantile'"
            )
        return cls({}, graph.lower_is_better)

    def _reversed(self, weight: Weights) -> Weights:
        return 1.0 - weight if self.lower_is_better else weight

    def _to_unit(self, weight: Weights, relation: Ids) -> Weights:
        return np.clip(weight, 0.0, 1.0)

    def _from_unit(self, unit_weight: Weights, relation: Ids) -> Weights:
        return unit_weight


NORMALIZERS: dict[str, type[Normalizer]] = {
    normalizer.name: normalizer
    for normalizer in (RelationRange, GlobalRange, RelationQuantile, RelationLog, IdentityNormalizer)
}


def fit_normalizer(name: str, graph: Graph) -> Normalizer:
    """Fit the normalizer called `name` to the training graph; strong edges get unit weights near 1.

    >>> from focuse.data.readers import read
    >>> graph = read([("a", "hours", "b", 2), ("a", "hours", "c", 40), ("a", "hours", "d", 21)])
    >>> fit_normalizer("relation", graph).transform(graph.weight, graph.relation).tolist()
    [0.0, 1.0, 0.5]
    """
    return NORMALIZERS[choose("normalizer", name, NORMALIZERS)].fit(graph)


def stored_normalizer(name: str, arrays: Arrays, lower_is_better: bool) -> Normalizer:
    """Restore a normalizer from the arrays that a run stores."""
    return NORMALIZERS[choose("normalizer", name, NORMALIZERS)](arrays, lower_is_better)


def with_more_relations(normalizer: Normalizer, graph: Graph, known: int) -> Normalizer:
    """Extend a normalizer of `known` relations to all relations of a graph.

    The first `known` relations keep their map, and the others are fitted to their edges in the graph.

    >>> from focuse.data.readers import read
    >>> first = fit_normalizer("relation", read([("a", "r", "b", 2.0), ("a", "r", "c", 4.0)]))
    >>> both = read([("a", "r", "d", 9.0), ("a", "s", "b", 10.0), ("a", "s", "c", 20.0)])
    >>> with_more_relations(first, both, 1).transform(np.array([3.0, 15.0]), np.array([0, 1])).tolist()
    [0.5, 0.5]
    """
    new, old = len(graph.relations) - known, normalizer.arrays
    if new <= 0 or isinstance(normalizer, IdentityNormalizer):
        return normalizer
    if isinstance(normalizer, GlobalRange):
        arrays = {name: np.append(array, np.full(new, array[0])) for name, array in old.items()}
    else:
        added = replace(graph.select(graph.relation >= known), lower_is_better=normalizer.lower_is_better)
        fitted = normalizer.fit(added).arrays
        if isinstance(normalizer, RelationQuantile):
            arrays = {name: np.append(old[name], fitted[name]) for name in ("value", "share")}
            arrays["offsets"] = np.append(old["offsets"], old["offsets"][-1] + fitted["offsets"][known + 1 :])
            if LOG_OFFSET in old:
                arrays[LOG_OFFSET] = np.append(old[LOG_OFFSET], log_offsets(added)[known:])
        else:
            arrays = {name: np.append(old[name], fitted[name][known:]) for name in old}
    return type(normalizer)(arrays, normalizer.lower_is_better)


def default_normalizer(graph: Graph, ranges: bool = False) -> str:
    """Return 'quantile' for heavy tails, else 'relation', or 'global' if 'relation' would map every weight to 1.

    With `ranges`, heavy tails are scaled by their range, too.
    """
    if not ranges and is_heavy_tailed(graph):
        return "quantile"
    low, high = relation_ranges(graph)
    return "relation" if (low < high).any() or graph.weight.min() == graph.weight.max() else "global"


HEAVY_TAIL = 100.0  # times that the largest of heavy-tailed weights is the median
MAX_EXAMINED = 1 << 20  # edges that show the distributions of all relations


def heavy_tails(graph: Graph) -> Mask:
    """Return which relations [R] have heavy-tailed weights, which min-max would put close to one end.

    None of their weights is negative, and the largest is at least a hundred times the median of those between 0 and the
    largest, to which many may be equal: the limit of a measurement. Small relations have none.

    >>> from focuse.data.readers import read
    >>> plays = [(f"user {n}", "plays", "b", 99_000 // n**2) for n in range(1, 99)]
    >>> stars = [(f"user {n}", "rates", "b", n % 5) for n in range(1, 99)]
    >>> heavy_tails(read(plays + stars)).tolist()
    [True, False]
    """
    step = max(1, len(graph) // MAX_EXAMINED)
    relation, weight = graph.relation[::step], graph.weight[::step]
    order = np.lexsort((weight, relation))
    relation, weight = relation[order], weight[order]
    count, zeros = (np.bincount(ids, minlength=len(graph.relations)) for ids in (relation, relation[weight <= 0]))
    last = np.maximum(np.cumsum(count) - 1, 0)
    first = np.maximum(last - np.maximum(count, 1) + 1, 0)
    low, high = weight[first], weight[last]
    equal = np.bincount(relation[weight == high[relation]], minlength=len(graph.relations))
    median = weight[np.clip((first + zeros + last - equal) // 2, first, last)]
    heavy: Mask = (count >= MIN_EDGES_FOR_RANGE) & (low >= 0) & (high > 0) & (high / HEAVY_TAIL >= median)
    return heavy & (zeros + equal < count)


def is_heavy_tailed(graph: Graph) -> bool:
    """Return whether relations with heavy tails have most of the edges of a graph."""
    single = graph.weighted and graph.columns is None and len(graph) > 0
    return bool(single and heavy_tails(graph)[graph.relation].mean() > 0.5)


def heavy_tail_offsets(graph: Graph) -> Weights | None:
    """Return the offsets of a heavy-tailed graph's logarithms [R], None for another graph."""
    return log_offsets(graph) if is_heavy_tailed(graph) else None


def in_unit_range(weight: Weights) -> bool:
    """Return whether all weights lie in [0, 1]."""
    return bool(len(weight) == 0 or (weight.min() >= 0.0 and weight.max() <= 1.0))


def unit_strength(graph: Graph, train: Graph) -> Weights:
    """Return the strength of each edge, in [0, 1], for deciles and thresholds of evaluation; float64 [n].

    Weights are scaled by the range of all training weights, unless all lie in [0, 1], and reversed if lower is better.
    The logarithms of heavy-tailed weights are scaled.

    >>> from focuse.data.readers import read
    >>> distances = read([("a", "r", "b", 2.0), ("a", "r", "c", 8.0)]).with_lower_is_better(True)
    >>> unit_strength(distances, distances).tolist()
    [1.0, 0.0]
    """
    offset = heavy_tail_offsets(train)
    if offset is not None:
        graph, train = (replace(part, weight=to_log(part.weight, offset.max())) for part in (graph, train))
    train_in_units = in_unit_range(train.weight)
    in_units = train_in_units and in_unit_range(graph.weight)
    weight = graph.weight if in_units else scale_range(graph.weight, train.weight.min(), train.weight.max())
    constant = not train_in_units and train.weight.min() == train.weight.max()
    return 1.0 - weight if train.lower_is_better and len(train) and not constant else weight


# ---- strength: like compared with like -------------------------------------------------------------------------------

STRENGTH_RULES = ("relation", "global")


@dataclass(frozen=True, eq=False)
class Strength:
    """How strong each of n triples is, by `rule`: from `low` to `high` [n], in [0, 1].

    By the rule 'global', both are the unit strength. By the rule 'relation', `low` is the fraction of the relation's
    weights that are weaker, and `high` the fraction of those that are not stronger, so that equal weights share an
    interval, and the interval of a relation with a single weight is [0, 1]. Any increasing map of a relation's weights,
    such as a change of its unit, changes neither.
    """

    rule: str
    low: Weights
    high: Weights

    @property
    def middle(self) -> Weights:
        """The strength as one number per triple [n]: the middle of the interval, 0.5 if all weights are equal."""
        return self.low if self.high is self.low else self.low / 2 + self.high / 2


def strength_rule(train: Graph) -> str:
    """Return 'global' if all weights of a training graph seem to have one unit, else 'relation'.

    They have one unit if there is a single relation, or if all (of every weight column) lie in [0, 1] and those of no
    relation with 30 edges stay below 0.1.

    >>> from focuse.data.readers import read
    >>> [strength_rule(read([("a", "r", "b", 0.5), ("a", "s", "b", most)])) for most in (1, 5)]
    ['global', 'relation']
    """
    if not len(train) or train.relation.min() == train.relation.max():
        return "global"
    columns = np.empty(0) if train.columns is None else train.columns.values[~np.isnan(train.columns.values)]
    confidences = in_unit_range(train.weight) and in_unit_range(columns)
    return "global" if confidences and WeightScaler.fit(train).common else "relation"


def strength(graph: Graph, train: Graph, rule: str | None = None) -> Strength:
    """Return the strength of each edge of `graph`, which has train's ids, for everything that sorts edges by weight.

    The `rule` is 'relation' or 'global', by default that of `strength_rule`. By the rule 'relation', a weight is
    compared with those of its relation in both graphs.

    >>> from focuse.data.readers import read
    >>> graph = read([("a", "r", "b", 1), ("a", "r", "c", 3), ("a", "s", "b", 2000), ("a", "s", "c", 5000)])
    >>> strength(graph, graph).middle.tolist()
    [0.25, 0.75, 0.25, 0.75]
    """
    rule = strength_rule(train) if rule is None else choose("rule for deciles", rule, STRENGTH_RULES)
    if rule == "global":
        unit = unit_strength(graph, train)
        return Strength(rule, unit, unit)
    # Every pair of relation and weight of `graph` is a key; a weight of train between two of them has a key between.
    sign = -1.0 if train.lower_is_better else 1.0
    values, code = np.unique(sign * graph.weight, return_inverse=True)
    step = 2 * len(values) + 1
    keys, place = np.unique(graph.relation.astype(np.int64) * step + 2 * code + 1, return_inverse=True)
    weaker, not_stronger = np.zeros(len(keys) + 1, np.int64), np.zeros(len(keys) + 1, np.int64)
    edges = np.zeros(len(train.relations) + 1, np.int64)
    for part in (train, graph):
        for chunk in chunks(len(part), CHUNK_EDGES):
            weight, relation = sign * part.weight[chunk], part.relation[chunk].astype(np.int64)
            after, before = (np.searchsorted(values, weight, side) for side in ("right", "left"))
            key = relation * step + after + before
            weaker += np.bincount(np.searchsorted(keys, key, "right"), minlength=len(keys) + 1)
            not_stronger += np.bincount(np.searchsorted(keys, key, "left"), minlength=len(keys) + 1)
            edges += np.bincount(relation + 1, minlength=len(edges))
    earlier, count = np.cumsum(edges)[graph.relation], edges[graph.relation + 1]
    low, high = ((np.cumsum(counts)[place] - earlier) / count for counts in (weaker, not_stronger))
    return Strength(rule, low, high)


# ---- one scale per relation, without clipping ------------------------------------------------------------------------

RelationIds = npt.NDArray[Any]
MIN_EDGES_FOR_RANGE = 30  # with this many training edges, their range is used as the range of the relation
MIN_EDGES_FOR_MAGNITUDE = 10  # training edges that show the magnitude of a relation's weights
WIDENING_EDGES = 10.0  # number of edges at which a range is widened half as much as without edges
SAME_UNIT_FACTOR = 2.0  # relations share a unit if their largest weights differ by at most this factor
SMALL_WEIGHT = 0.1  # a relation of weights in [0, 1] that are all below this has its own unit
MAX_OVERSHOOT = 1e6  # in widths of the range; weights farther outside are clipped, because they would overflow


@dataclass(frozen=True, eq=False)
class WeightScaler:
    """Linear maps of each relation's weights from `low` to `high` [R] to 0 to 1, reversed if lower is better.

    Weights outside of the range are mapped outside of [0, 1]. If all training weights lie in [0, 1], they are not
    changed, except in a relation that uses only a small part of [0, 1]. Otherwise the range is that of all training
    weights if the largest weights of all relations have the same magnitude, else that of each relation, which is
    widened if the relation has few edges. `common` is True if the whole graph has one range. With `offset` [R], the
    maps are those of the logarithms of weight + offset, with a range per relation.
    """

    low: Weights
    high: Weights
    lower_is_better: bool = False
    common: bool = False
    offset: Weights | None = None

    @classmethod
    def fit(cls, train: Graph, offset: Weights | None = None) -> WeightScaler:
        """Fit the ranges of train's relations, or those of the logarithms of weight + `offset` [R].

        >>> from focuse.data.readers import read
        >>> rows = [(f"a{n}", name, "b", size * n) for name, size in (("hours", 2), ("grams", 500)) for n in range(40)]
        >>> WeightScaler.fit(read(rows)).to_unit(np.array([39.0, 9750.0]), np.array([0, 1])).tolist()
        [0.5, 0.5]
        """
        if offset is not None:
            train = replace(train, weight=to_log(train.weight, offset[train.relation]))
        count = np.bincount(train.relation, minlength=len(train.relations))
        low, high = relation_ranges(train)
        if offset is None and in_unit_range(train.weight):
            small = (count >= MIN_EDGES_FOR_RANGE) & (high > 0) & (high < SMALL_WEIGHT)
            return cls(np.zeros(len(count)), np.where(small, high, 1.0), train.lower_is_better, not small.any())
        unused, least, most = count == 0, train.weight.min(), train.weight.max()
        low[unused], high[unused] = least, most
        if offset is not None:  # a width of logarithms is a factor, which has no unit
            return cls(*_widened(low, high, count, np.ones(len(count))), train.lower_is_better, offset=offset)
        if not _same_unit(low[~unused], high[~unused], count[~unused]):
            return cls(*_widened(low, high, count, np.maximum(np.abs(low), np.abs(high))), train.lower_is_better)
        return cls(np.full(len(count), least), np.full(len(count), most), train.lower_is_better, True)

    def to_unit(self, weight: Weights, relation: RelationIds) -> Weights:
        """Map weights [n] of edges with `relation` [n] to unit weights [n], which may be outside of [0, 1].

        The value of a relation with a single value is mapped to 1.
        """
        weight = weight if self.offset is None else to_log(weight, self.offset[relation])
        low, high = self.low[relation], self.high[relation]
        inside, within, span = np.clip(weight, low, high), scale_range(weight, low, high), high / 2 - low / 2
        with np.errstate(over="ignore"):
            overshoot = np.clip((weight / 2 - inside / 2) / self._half_width(relation), -MAX_OVERSHOOT, MAX_OVERSHOOT)
        if self.lower_is_better:
            within, overshoot = 1.0 - within, -overshoot
        return np.where(span > 0, within, overshoot >= 0) + overshoot

    def from_unit(self, unit_weight: Weights, relation: RelationIds) -> Weights:
        """Map unit weights [n] back to weights [n]; those in [0, 1] lie within the range of their relation."""
        low, high = self.low[relation], self.high[relation]
        within = np.clip(unit_weight, 0.0, 1.0)
        overshoot = unit_weight - within
        if self.lower_is_better:
            within, overshoot = 1.0 - within, -overshoot
        inside = np.clip(low * (1 - within) + high * within, low, high)  # rounding may leave the range
        with np.errstate(over="ignore"):
            weight = np.asarray(inside + 2 * overshoot * self._half_width(relation), np.float64)
        return weight if self.offset is None else from_log(weight, self.offset[relation])

    def _half_width(self, relation: RelationIds) -> Weights:
        """Return half of the width of each relation's range [n]; half of the value if it has a single one."""
        half = self.high / 2 - self.low / 2
        single = np.where(self.low == 0, 1.0, np.abs(self.low)) / 2
        width: Weights = np.maximum(np.where(half > 0, half, single), np.finfo(np.float64).tiny)  # never 0
        return width[relation]


def _same_unit(low: Weights, high: Weights, count: RelationIds) -> bool:
    """Return whether ranges [R] seem to have one unit, because the largest weights of all relations are similar.

    Relations with very few edges are left out, because their weights may all be small by chance.
    """
    largest = np.maximum(np.abs(low), np.abs(high))
    shown = largest[(count >= min(MIN_EDGES_FOR_MAGNITUDE, float(np.median(count)))) & (largest > 0)]
    return bool(largest.max() / SAME_UNIT_FACTOR <= shown.min(initial=np.inf))


def _widened(low: Weights, high: Weights, count: RelationIds, unit: Weights) -> tuple[Weights, Weights]:
    """Widen the ranges [R] of relations with few edges toward the median width, within the range of train.

    The width of a range is measured in multiples of its unit [R], such as its largest weight.
    """
    half = high / 2 - low / 2  # halved, because the span of numbers near ±1e308 would overflow
    enough = (count >= MIN_EDGES_FOR_RANGE) & (half > 0)
    median_width = float(np.median(half[enough] / unit[enough])) if enough.any() else 0.5
    margin = np.maximum(median_width * unit - half, 0.0) * (WIDENING_EDGES / (count + WIDENING_EDGES))
    margin[(count >= MIN_EDGES_FOR_RANGE) | (count == 0)] = 0.0
    with np.errstate(over="ignore"):
        return np.maximum(low - margin, low.min()), np.minimum(high + margin, high.max())


# ---- several weight columns -----------------------------------------------------------------------------------------

FOLDS = 5
BACKFITTING_SWEEPS = 2  # times that all effects are fitted, each to the residuals of the others
MAX_SAMPLED_ROWS = 500_000
# An explained variance below one of these counts as chance: noise in n rows exceeds 12 / n once in a hundred times.
MIN_EXPLAINED, MIN_EXPLAINED_TIMES_ROWS = 0.01, 12.0
MIN_DECISIVE = 0.05  # an explained variance below this is too small to prefer one column to another

Groups = list[tuple[npt.NDArray[np.intp], int]]  # per effect: the group of each row, and the number of groups


def learn_importance(columns: list[tuple[Graph, Weights]], seed: int = 0) -> tuple[Weights, Weights]:
    """Return importances [C] that sum to 1, and the fraction of each column's variance that the structure explains [C].

    A column is given as the graph of the edges that have it and its unit weights [n]. If the structure explains little
    of every column, all are equally important.
    """
    explained = np.array([explained_variance(graph, unit_weight, seed) for graph, unit_weight in columns])
    if explained.max() < MIN_DECISIVE:
        return np.full(len(columns), 1 / len(columns)), explained
    return explained / explained.sum(), explained


def explained_variance(graph: Graph, unit_weight: Weights, seed: int = 0) -> float:
    """Return the fraction of the variance of `unit_weight` [n] that other edges of the graph explain (R² out of fold).

    The result is 0 if it is not significant.

    >>> from focuse.data.readers import read
    >>> graph = read([(f"h{i % 20}", "r", f"t{i // 20}", i % 20) for i in range(400)])
    >>> explained_variance(graph, graph.weight / 19) > 0.9
    True
    >>> explained_variance(graph, np.random.default_rng(0).random(400)) < 0.05
    True
    """
    random = np.random.default_rng([seed, RandomStream.IMPORTANCE_FOLDS])
    if len(graph) > MAX_SAMPLED_ROWS:
        rows = np.sort(random.choice(len(graph), MAX_SAMPLED_ROWS, replace=False))
        graph, unit_weight = graph.select(rows), unit_weight[rows]
    if len(graph) < 2 * FOLDS or np.ptp(unit_weight) == 0:
        return 0.0
    # Repeats of a triple are in one fold, because a weight that occurs twice is not structure.
    distinct, triple = np.unique(graph.keys, return_inverse=True)
    fold = (random.permutation(len(distinct)) % FOLDS)[triple]
    groups = _groups(graph)
    predicted = np.empty(len(unit_weight))
    for number in range(FOLDS):
        held_out = fold == number
        if held_out.any():
            predicted[held_out] = _predict(groups, unit_weight, ~held_out)[held_out]
    # The baseline without structure predicts the mean of the other folds.
    sums, counts = np.bincount(fold, unit_weight, FOLDS), np.bincount(fold, minlength=FOLDS)
    baseline = ((unit_weight.sum() - sums) / np.maximum(len(unit_weight) - counts, 1))[fold]
    unexplained = np.square(unit_weight - predicted).sum() / np.square(unit_weight - baseline).sum()
    explained = 1 - float(unexplained)
    return explained if explained >= max(MIN_EXPLAINED, MIN_EXPLAINED_TIMES_ROWS / len(unit_weight)) else 0.0


def _groups(graph: Graph) -> Groups:
    """Return the groups of rows of each effect, the coarse effects first."""
    entities, relations = len(graph.entities), len(graph.relations)
    head, relation, tail = (ids.astype(np.int64) for ids in (graph.head, graph.relation, graph.tail))
    low, high = np.minimum(head, tail), np.maximum(head, tail)
    result = []
    for key in (relation, head, tail, head * relations + relation, tail * relations + relation, low * entities + high):
        distinct, group = np.unique(key, return_inverse=True)
        result.append((group, len(distinct)))
    return result


def _predict(groups: Groups, unit_weight: Weights, fitted: npt.NDArray[np.bool_]) -> Weights:
    """Predict the unit weight of every row [n] from the rows that are `fitted`, bool [n]."""
    mean = unit_weight[fitted].mean()
    effects = [np.zeros(count) for _, count in groups]
    residual = unit_weight[fitted] - mean
    inside = [group[fitted] for group, _ in groups]
    for _ in range(BACKFITTING_SWEEPS):
        for index, (_, count) in enumerate(groups):
            residual += effects[index][inside[index]]
            effects[index] = shrunken_means(residual, inside[index], count)
            residual -= effects[index][inside[index]]
    total: Weights = np.full(len(unit_weight), mean)
    for effect, (group, _) in zip(effects, groups, strict=True):
        total += effect[group]
    return total


def shrunken_means(values: Weights, group: npt.NDArray[np.intp], groups: int) -> Weights:
    """Return the mean of each group's values [n], shrunken toward 0 if groups differ little beyond chance; [groups].

    The estimate is m · nτ² / (nτ² + σ²) for a group of n values with mean m, where the variances within groups (σ²) and
    between them (τ²) come from the analysis of variance.
    """
    count = np.bincount(group, minlength=groups)
    mean = np.bincount(group, values, groups) / np.maximum(count, 1)
    seen, rows = int((count > 0).sum()), len(values)
    if seen < 2 or rows <= seen:
        return np.zeros(groups)
    within = np.square(values - mean[group]).sum() / (rows - seen)
    among = (count * np.square(mean - values.mean())).sum() / (seen - 1)
    size = (rows - np.square(count).sum() / rows) / (seen - 1)
    signal = count * max((among - within) / size, 0.0)
    shrunken: Weights = mean * np.divide(signal, signal + within, out=np.zeros(groups), where=signal > 0)
    return shrunken


@dataclass(frozen=True, eq=False)
class ColumnMerger:
    """A function that combines the weight columns of edges into one weight, by importances [C] that sum to 1.

    `explained` [C] is the fraction of each column's variance that the graph's structure explains; NaN if unknown.
    """

    names: tuple[str, ...]
    lower_is_better: frozenset[str]
    normalizers: tuple[Normalizer, ...]
    importance: Weights
    explained: Weights

    def unit_weights(self, graph: Graph) -> tuple[Weights, Mask]:
        """Return the unit weights of a graph's columns, and a mask of the present ones; [n, C] each."""
        names = ", ".join(self.names)
        advice = "read it with the same columns"
        if graph.columns is None:
            raise FocuseError(f"{graph.source}: a single weight per edge, but train has {names}; {advice}")
        values = graph.columns.values_of(self.names)
        present = ~np.isnan(values)
        without = int((~present.any(axis=1)).sum())
        if without:
            fault = f"{without:,} rows have none of train's weight columns ({names})"
            raise FocuseError(f"{graph.source}: {fault}; {advice}")
        scaled = np.zeros(values.shape)
        for index, normalizer in enumerate(self.normalizers):
            rows = present[:, index]
            scaled[rows, index] = normalizer.transform(values[rows, index], graph.relation[rows])
        return scaled, present

    def __call__(self, graph: Graph) -> Graph:
        """Return the graph with its combined weight in [0, 1]; an unweighted graph is not changed."""
        if not graph.weighted or not len(graph):
            return graph
        weight = combine_columns(*self.unit_weights(graph), self.importance)
        values = graph.columns.values_of(self.names) if graph.columns is not None else np.empty((0, len(self.names)))
        columns = WeightColumns(self.names, values, self.lower_is_better)
        return replace(graph, weight=weight, columns=columns, lower_is_better=False)

    def __str__(self) -> str:
        """Return one line on the importance of each column."""
        columns = [
            f"{name} {importance:.2f}"
            + ("" if np.isnan(explained) else f" ({explained:.0%} of its variance explained)")
            for name, importance, explained in zip(self.names, self.importance, self.explained, strict=True)
        ]
        if (self.explained == 0).all():
            columns.append("the graph's structure explains none of them, so all are equally important")
        return f"importance of weight columns: {', '.join(columns)}"

    # ---- storing ------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the part that run.toml stores."""
        return {
            "names": list(self.names),
            "lower_is_better": [name in self.lower_is_better for name in self.names],
            "normalize": [normalizer.name for normalizer in self.normalizers],
            "importance": self.importance.tolist(),
        }

    def arrays(self) -> Arrays:
        """Return the arrays that a run stores; those of a column have its index as a prefix."""
        arrays = {"importance": self.importance, "explained": self.explained}
        for index, normalizer in enumerate(self.normalizers):
            arrays |= {f"{index}/{name}": array for name, array in normalizer.arrays.items()}
        return arrays

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any], arrays: Arrays) -> ColumnMerger:
        """Restore a merger from the results of `to_dict` and `arrays`."""
        names, normalizers = tuple(stored["names"]), []
        for index, (name, lower) in enumerate(zip(stored["normalize"], stored["lower_is_better"], strict=True)):
            prefix = f"{index}/"
            own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
            normalizers.append(stored_normalizer(name, own, lower))
        lower_is_better = frozenset(compress(names, stored["lower_is_better"]))
        return cls(names, lower_is_better, tuple(normalizers), arrays["importance"], arrays["explained"])


def fit_merger(
    train: Graph, normalize: str | None = None, importance: Mapping[str, float] | None = None, seed: int = 0
) -> ColumnMerger:
    """Fit normalizers and importances of a training graph's columns; a given `importance` need not sum to 1.

    A column with a single weight per relation is normalized over all edges, because it is constant within a relation.

    >>> from focuse.data.readers import read
    >>> graph = read([("a", "r", "b", 1, 30), ("a", "r", "c", 0, 10)])
    >>> fit_merger(graph, importance={"w1": 3, "w2": 1}).importance.tolist()
    [0.75, 0.25]
    """
    columns = train.columns
    if columns is None:
        raise FocuseError(f"{train.source}: a single weight per edge; there is nothing to merge")
    scaled, normalizers = [], []
    for name in columns.names:
        single = train.column(name)
        if not len(single):
            raise FocuseError(f"{train.source}: the weight column {name!r} has no number in train; leave it out")
        chosen = default_normalizer(single, normalize == "relation") if normalize in (None, "relation") else normalize
        normalizers.append(fit_normalizer(chosen or "relation", single))
        scaled.append((single, normalizers[-1].transform(single.weight, single.relation)))
    if importance is not None:
        importances, explained = given_importance(columns, importance), np.full(len(columns.names), np.nan)
    else:
        importances, explained = learn_importance(scaled, seed)
    return ColumnMerger(columns.names, columns.lower_is_better, tuple(normalizers), importances, explained)


def given_importance(columns: WeightColumns, importance: Mapping[str, float]) -> Weights:
    """Scale the user's importances to a sum of 1 [C]; columns that are not named get 0."""
    numbers = np.zeros(len(columns.names))
    for name, value in importance.items():
        if not np.isfinite(value) or value < 0:
            raise FocuseError(f"importance of {name!r} is {value:g}; give a number of at least 0")
        numbers[columns.index(name)] = value
    if not numbers.sum() > 0:
        raise FocuseError("importance: every column has 0; give at least one a number above 0")
    scaled: Weights = numbers / numbers.sum()
    return scaled
