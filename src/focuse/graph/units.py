"""Weights as shares that mean the same in every relation, and back to the unit that each relation has.

A normaliser is what training sees. This is what weights are predicted in: whatever relations have in common (curves,
forests, how far off a guess is) knows shares alone, so the unit of one relation moves no weight of another. Fitted on
train alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.graph.graph import Graph, Weights
from focuse.graph.weights import in_unit_range

Ids = npt.NDArray[Any]
KNOWN = 30  # edges of train from which a relation's range is taken for what its weights allow
SHOWN = 10  # edges of train that show how large a relation's weights are
PULL = 10.0  # edges at which a range that few edges show is widened half as much as by none
ALIKE = 2.0  # relations have one unit if the largest weights are at most so many times as large as each other
SMALL = 0.1  # a relation of weights in [0, 1] that never reaches this has a unit of its own
FARTHEST = 1e6  # ranges beyond the range: what lies farther would only overflow


@dataclass(frozen=True, eq=False)
class Units:
    """Each relation's weights from `low` to `high` [R] as shares from 0 to 1; the other way where lower is better.

    Weights that all lie in [0, 1] stay as they are, but for a relation that uses a small part of it alone. Others have
    train's range where the largest weights of all relations are about the same, else each relation's own: that of its
    edges in train, widened where they are few. `common` where the range is one for the whole graph, [0, 1] or train's.
    """

    low: Weights
    high: Weights
    lower_is_better: bool = False
    common: bool = False

    @classmethod
    def fit(cls, train: Graph) -> Units:
        """The units of train's relations.

        >>> from focuse.graph import read
        >>> rows = [(f"a{n}", name, "b", size * n) for name, size in (("hours", 2), ("grams", 500)) for n in range(40)]
        >>> Units.fit(read(rows)).shares(np.array([39.0, 9750.0]), np.array([0, 1])).tolist()
        [0.5, 0.5]
        """
        count = np.bincount(train.relation, minlength=len(train.relations))
        low, high = np.full(len(count), np.inf), np.full(len(count), -np.inf)
        np.minimum.at(low, train.relation, train.weight)
        np.maximum.at(high, train.relation, train.weight)
        if in_unit_range(train.weight):
            own = (count >= KNOWN) & (high > 0) & (high < SMALL)
            return cls(np.zeros(len(count)), np.where(own, high, 1.0), train.lower_is_better, not own.any())
        unused, least, most = count == 0, train.weight.min(), train.weight.max()
        low[unused], high[unused] = least, most
        if not _alike(low[~unused], high[~unused], count[~unused]):
            return cls(*_widened(low, high, count), train.lower_is_better)
        return cls(np.full(len(count), least), np.full(len(count), most), train.lower_is_better, True)

    def shares(self, weight: Weights, relation: Ids) -> Weights:
        """Weights [n] of edges with `relation` [n] to shares [n]; below 0 or above 1 where they lie beyond the range.

        One single value is a whole range, and strong.
        """
        low, high = self.low[relation], self.high[relation]
        inner = np.clip(weight, low, high)
        # Halves first: the span of numbers near ±1e308 would overflow.
        span = high / 2 - low / 2
        within = np.divide(inner / 2 - low / 2, span, out=np.ones(len(weight)), where=span > 0)
        with np.errstate(over="ignore"):
            past = np.clip((weight / 2 - inner / 2) / self._size(relation), -FARTHEST, FARTHEST)
        if self.lower_is_better:
            within, past = 1.0 - within, -past
        return np.where(span > 0, within, past >= 0) + past

    def weights(self, share: Weights, relation: Ids) -> Weights:
        """`shares` undone: shares [n] to weights [n] in each relation's unit, within its range for shares in [0, 1]."""
        low, high = self.low[relation], self.high[relation]
        within = np.clip(share, 0.0, 1.0)
        past = share - within
        if self.lower_is_better:
            within, past = 1.0 - within, -past
        inner = np.clip(low * (1 - within) + high * within, low, high)  # rounding may lead out of it
        with np.errstate(over="ignore"):
            return np.asarray(inner + 2 * past * self._size(relation), np.float64)

    def _size(self, relation: Ids) -> Weights:
        """Half of what one share is, in the unit of each `relation` [n]; of a single value, half of what it is."""
        half = self.high / 2 - self.low / 2
        single = np.where(self.low == 0, 1.0, np.abs(self.low)) / 2
        size = np.maximum(np.where(half > 0, half, single), np.finfo(np.float64).tiny)  # never 0
        found: Weights = size[relation]
        return found


def _alike(low: Weights, high: Weights, count: Ids) -> bool:
    """Whether ranges [R] look as if they had one unit: no weight is far larger than the largest of any relation.

    Very few edges need not show how large weights are: a relation that has less than others may have small ones alone.
    """
    largest = np.maximum(np.abs(low), np.abs(high))
    shown = largest[(count >= min(SHOWN, float(np.median(count)))) & (largest > 0)]
    return bool(largest.max() / ALIKE <= shown.min(initial=np.inf))


def _widened(low: Weights, high: Weights, count: Ids) -> tuple[Weights, Weights]:
    """Ranges [R] as they are where a relation's `count` [R] is enough, else nearly as wide as those of others.

    Width is counted beside the largest weight, which has the relation's unit. Never beyond what train shows at all.
    """
    # Halves first: the span of numbers near ±1e308 would overflow.
    half, largest = high / 2 - low / 2, np.maximum(np.abs(low), np.abs(high))
    shown = (count >= KNOWN) & (half > 0)
    usual = float(np.median(half[shown] / largest[shown])) if shown.any() else 0.5
    more = np.maximum(usual * largest - half, 0.0) * (PULL / (count + PULL))
    more[(count >= KNOWN) | (count == 0)] = 0.0
    with np.errstate(over="ignore"):
        return np.maximum(low - more, low.min()), np.minimum(high + more, high.max())
