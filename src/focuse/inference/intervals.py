"""How far a predicted weight may be off: intervals that hold the truth as often as they say.

Split conformal prediction: on rows that nothing was fitted to, measure how far each guess is off, counted in the spread
that was guessed for that edge, and make every interval as many spreads wide as the quantile says. If rows are
exchangeable, the truth of a new one lies inside with at least the stated probability, whatever the model; ties only add
to it. A relation with rows enough has a quantile of its own (Mondrian), the others share one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from focuse.errors import FocuseError
from focuse.evaluation.baselines import AnyIds, Floats

COVERAGE = 0.9
FLOOR = 0.005  # of the weights' range: no edge is surer than this
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


@dataclass(frozen=True, eq=False)
class Conformal:
    """What the conformal rows said: how far off each guess was (`off` [n], in spreads), and of which `relation` [n].

    Their weights lay between `least` and `most`, at least between 0 and 1.
    """

    off: Floats
    relation: npt.NDArray[np.int64]
    relations: int
    least: float = 0.0
    most: float = 1.0

    def __len__(self) -> int:
        return len(self.off)

    def quantiles(self, coverage: float) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Half the width [R] of each relation's intervals, in spreads, and which relations have their own [R]."""
        check_coverage(coverage)
        half = np.full(self.relations, conformal_quantile(self.off, coverage))
        own = np.bincount(self.relation, minlength=self.relations) >= OWN
        order = np.argsort(self.relation, kind="stable")
        start = np.searchsorted(self.relation[order], np.arange(self.relations + 1))
        for kind in np.flatnonzero(own):
            found = conformal_quantile(self.off[order[start[kind] : start[kind + 1]]], coverage)
            own[kind] = np.isfinite(found)  # 30 rows cannot promise 99 %, all together may
            half[kind] = found if own[kind] else half[kind]
        return half, own

    def interval(self, middle: Floats, spread: Floats, relation: AnyIds, coverage: float) -> tuple[Floats, Floats]:
        """Bounds [n] around shares [n] that hold the truth with probability `coverage`."""
        return self.bounded(middle, self.quantiles(coverage)[0][relation] * (spread + FLOOR))

    def bounded(self, middle: Floats, half: Floats | float) -> tuple[Floats, Floats]:
        """middle ± half [n] within [0, 1], unless rows lay beyond it; the whole range where half is infinite."""
        low, high = middle - half, middle + half
        if self.least < 0 or self.most > 1:  # and others may lie farther still
            return np.where(np.isinf(low), self.least, low), np.where(np.isinf(high), self.most, high)
        return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


def measure(truth: Floats, middle: Floats, spread: Floats, relation: AnyIds, relations: int) -> Conformal:
    """How far guesses [n] are from truths [n], counted in the spreads [n] that they were given with.

    >>> measure(np.array([0.5]), np.array([0.3]), np.array([0.095]), np.array([0]), 1).off
    array([2.])
    """
    least, most = float(truth.min(initial=0.0)), float(truth.max(initial=1.0))
    return Conformal(np.abs(truth - middle) / (spread + FLOOR), relation.astype(np.int64), relations, least, most)
