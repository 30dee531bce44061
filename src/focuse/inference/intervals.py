"""How far a predicted weight may be off: intervals that hold the truth as often as they say.

Split conformal prediction: on rows that nothing was fitted to, measure by how much each truth lies outside of what was
guessed, and widen every interval by the quantile of that. If rows are exchangeable, the truth of a new one lies
inside with at least the stated probability, whatever the model; ties only add to it. A relation with rows enough has a
quantile of its own (Mondrian), the others share one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from focuse.errors import FocuseError
from focuse.evaluation.baselines import AnyIds, Floats

COVERAGE = 0.9
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
    """What the conformal rows said: how far outside each truth lay (`off` [n], in widths), and of which `relation` [n]."""

    off: Floats
    relation: npt.NDArray[np.int64]
    relations: int

    def __len__(self) -> int:
        return len(self.off)

    def quantiles(self, coverage: float) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """The widening [R] of each relation's intervals, and which relations have one of their own [R]."""
        check_coverage(coverage)
        widen = np.full(self.relations, conformal_quantile(self.off, coverage))
        own = np.bincount(self.relation, minlength=self.relations) >= OWN
        for kind in np.flatnonzero(own):
            widen[kind] = conformal_quantile(self.off[self.relation == kind], coverage)
        return widen, own

    def interval(self, low: Floats, high: Floats, relation: AnyIds, coverage: float) -> tuple[Floats, Floats]:
        """Guessed bounds [n] moved so that they hold the truth with probability `coverage`, within [0, 1]."""
        widen = self.quantiles(coverage)[0][relation]
        with np.errstate(invalid="ignore"):
            by = widen * scale(low, high)
        by = np.maximum(by, (low - high) / 2)  # an interval too wide shrinks to its middle at most
        return np.clip(low - by, 0.0, 1.0), np.clip(high + by, 0.0, 1.0)


def scale(low: Floats, high: Floats) -> Floats:
    """What counts as one width for guessed bounds [n]: their distance, and a little where they meet."""
    return np.asarray(high - low + FLOOR, np.float64)


FLOOR = 0.02  # of the weights' range


def measure(truth: Floats, low: Floats, high: Floats, relation: AnyIds, relations: int) -> Conformal:
    """How far truths [n] lie outside of guessed bounds [n]; negative inside."""
    off = np.maximum(low - truth, truth - high) / scale(low, high)
    return Conformal(off, relation.astype(np.int64), relations)
