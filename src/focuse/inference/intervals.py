"""How far a predicted weight may be off: intervals that hold the truth as often as they say.

Split conformal prediction: on rows that nothing was fitted to, measure how far each guess is off, counted in the spread
that was guessed for that edge, and make every interval as many spreads wide as the quantile says. If rows are
exchangeable, the truth of a new one lies inside with at least the stated probability, whatever the model; ties only add
to it. A relation with rows enough has a quantile of its own (Mondrian), the others share one.

All of it is in shares, which mean the same in every relation (graph/units.py), so that rows of one relation can say how
far those of another are off. Share 0 to 1 is what train shows of a relation, and intervals end there: a row whose truth
lies beyond counts as one that no width reaches. Only where so many do that the promise could not be kept are they not
cut; a single one may be chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from focuse.errors import FocuseError
from focuse.evaluation.baselines import AnyIds, Floats

COVERAGE = 0.9
FLOOR = 0.005  # of a relation's range: no edge is surer than this
OWN = 30  # conformal rows from which a relation has a quantile of its own


def check_coverage(coverage: float) -> float:
    """A coverage that an interval can have; raise for others."""
    if isinstance(coverage, bool) or not isinstance(coverage, int | float) or not 0 < coverage < 1:
        raise FocuseError(f"coverage {coverage!r}: give a share above 0 and below 1, such as 0.9")
    return float(coverage)


def conformal_quantile(off: Floats, coverage: float) -> float:
    """The ⌈(n + 1)·coverage⌉-th smallest of `off` [n]; infinite where n rows cannot promise so much.

    >>> conformal_quantile(np.array([0.3, 0.1, 0.2, 0.4]), 0.6)
    0.3
    """
    # Less a hair: 0.9 · 10 is 9.000000000000002 in some orders of rounding, and must not ask for the tenth.
    place = math.ceil((len(off) + 1) * coverage - 1e-9)
    if place > len(off):
        return math.inf
    return float(np.partition(off, max(place, 1) - 1)[max(place, 1) - 1])


class Quantiles(NamedTuple):
    """Of each relation [R]: half the width of its intervals in spreads, whether it is of its own rows, and whether
    intervals end where the relation's range does."""

    half: Floats
    own: npt.NDArray[np.bool_]
    cut: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Conformal:
    """What the conformal rows said: how far off each guess was (`off` [n], in spreads), and of which `relation` [n].

    `truth` [n] are their shares.
    """

    off: Floats
    relation: npt.NDArray[np.int64]
    relations: int
    truth: Floats

    def __len__(self) -> int:
        return len(self.off)

    @property
    def beyond(self) -> npt.NDArray[np.bool_]:
        """Rows [n] that lie outside of what train shows of their relation."""
        return (self.truth < 0) | (self.truth > 1)

    def quantiles(self, coverage: float) -> Quantiles:
        """How wide each relation's intervals are."""
        check_coverage(coverage)
        pooled, ends = self._quantile(np.arange(len(self)), coverage)
        half, cut = np.full(self.relations, pooled), np.full(self.relations, ends)
        own = np.bincount(self.relation, minlength=self.relations) >= OWN
        order = np.argsort(self.relation, kind="stable")
        start = np.searchsorted(self.relation[order], np.arange(self.relations + 1))
        for kind in np.flatnonzero(own):
            found, ends = self._quantile(order[start[kind] : start[kind + 1]], coverage)
            own[kind] = np.isfinite(found)  # 30 rows cannot promise 99 %, all together may
            if own[kind]:
                half[kind], cut[kind] = found, ends
        return Quantiles(half, own, cut)

    def _quantile(self, rows: npt.NDArray[np.intp], coverage: float) -> tuple[float, bool]:
        """The quantile of some rows, and whether intervals that end with the range can hold what it promises."""
        beyond = self.beyond[rows]
        inside = conformal_quantile(np.where(beyond, np.inf, self.off[rows]), coverage)
        if math.isfinite(inside):
            return inside, True
        return conformal_quantile(self.off[rows], coverage), int(beyond.sum()) == 1

    def interval(self, middle: Floats, spread: Floats, relation: AnyIds, coverage: float) -> tuple[Floats, Floats]:
        """Bounds [n] around shares [n] that hold the truth with probability `coverage`.

        Where rows are too few to promise it, all that train and the rows of its relation show.
        """
        half, _, cut = self.quantiles(coverage)
        least, most = np.zeros(self.relations), np.ones(self.relations)
        np.minimum.at(least, self.relation, self.truth)
        np.maximum.at(most, self.relation, self.truth)
        reach = half[relation] * (spread + FLOOR)
        low = np.where(np.isinf(reach), least[relation], middle - reach)
        high = np.where(np.isinf(reach), most[relation], middle + reach)
        ends = cut[relation]
        return np.where(ends, np.clip(low, 0.0, 1.0), low), np.where(ends, np.clip(high, 0.0, 1.0), high)


def measure(truth: Floats, middle: Floats, spread: Floats, relation: AnyIds, relations: int) -> Conformal:
    """How far guesses [n] are from truths [n], counted in the spreads [n] that they were given with.

    >>> measure(np.array([0.5]), np.array([0.3]), np.array([0.095]), np.array([0]), 1).off
    array([2.])
    """
    return Conformal(np.abs(truth - middle) / (spread + FLOOR), relation.astype(np.int64), relations, truth)
