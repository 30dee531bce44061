"""How far figures may be off by the choice of test triples: a paired bootstrap.

Triples are drawn again and again with replacement, the same ones for every model, so that a difference between two
models is not blurred by triples that are easy or hard for both. A triple keeps its share of top and bottom (a
fraction where weights tie at the cut): MRR = Σ c·share·rr / Σ c·share, c being how often it was drawn.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from focuse.errors import FocuseError
from focuse.paper.results import Ranked

Floats = npt.NDArray[np.float64]
Name = TypeVar("Name", bound=Hashable)
RESAMPLES, LEVEL, SEED = 2_000, 0.95, 0
MEASURES = ("top", "bottom", "delta")
COUNTS_AT_ONCE = 1 << 22  # 32 MB of them, and once more as floats, whatever the number of resamples


@dataclass(frozen=True)
class Interval:
    """A percentile interval."""

    low: float
    high: float


Intervals = dict[str, Interval | None]


def bootstrap(
    tests: Mapping[Name, Sequence[Ranked]],
    pairs: Sequence[tuple[Name, Name]] = (),
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> tuple[dict[Name, Intervals], dict[tuple[Name, Name], Intervals]]:
    """95 % intervals of the MRR of top, of bottom and of ΔMRR: of each named model, and of second − first of a pair.

    A model has one ranked test a seed, all of the same triples; a triple's reciprocal rank is its mean over them.
    None stands where there is no triple to draw. What comes out for one model does not depend on the others.
    """
    names = list(tests)
    every = [test for name in names for test in tests[name]]
    if not every:
        return {}, {}
    if any(not np.array_equal(test.weight, every[0].weight) for test in every):
        raise FocuseError("cells were ranked on different test triples; remove the older ones and run them again")
    own = {name: np.mean([test.reciprocal() for test in tests[name]], axis=0) for name in names}
    # A difference of means is the mean of differences: equal models come out as exactly 0.
    values = np.stack([*own.values(), *(own[second] - own[first] for first, second in pairs)])
    shares = every[0].shares
    found = [_intervals(draws) for draws in resampled(values, shares["top"], shares["bottom"], resamples, seed)]
    return dict(zip(names, found, strict=False)), dict(zip(pairs, found[len(names) :], strict=True))


def resampled(values: Floats, top: Floats, bottom: Floats, resamples: int = RESAMPLES, seed: int = SEED) -> Floats:
    """Means over top and bottom, and their difference, of values [rows, n] in each resample: [rows, 3, resamples].

    NaN where a resample holds no triple of a part.

    >>> resampled(np.ones((1, 20)), np.repeat([0.0, 1.0], 10), np.repeat([1.0, 0.0], 10), resamples=2)[0].tolist()
    [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    """
    n = values.shape[1]
    inside = np.flatnonzero((top > 0) | (bottom > 0))
    draws = np.full((len(values), 3, resamples), np.nan)
    if not len(inside):
        return draws
    shares = np.stack([top[inside], bottom[inside]])
    weighted = (shares[:, None] * values[:, inside]).reshape(-1, len(inside))
    # All triples outside of both parts are one outcome: how often each of them was drawn does not matter.
    chances = np.append(np.full(len(inside), 1 / n), max(0.0, 1 - len(inside) / n))
    generator = np.random.default_rng(seed)
    step = max(1, COUNTS_AT_ONCE // len(chances))
    for start in range(0, resamples, step):
        stop = min(start + step, resamples)
        counts = generator.multinomial(n, chances, size=stop - start)[:, :-1].astype(np.float64)
        sums = (counts @ weighted.T).reshape(-1, 2, len(values))
        totals = (counts @ shares.T)[:, :, None]
        means = np.divide(sums, totals, out=np.full_like(sums, np.nan), where=totals > 0)
        draws[:, :2, start:stop] = means.transpose(2, 1, 0)
    draws[:, 2] = draws[:, 0] - draws[:, 1]
    return draws


def _intervals(draws: Floats) -> Intervals:
    """Of draws [3, resamples]."""
    return {measure: _interval(row) for measure, row in zip(MEASURES, draws, strict=True)}


def _interval(draws: Floats) -> Interval | None:
    drawn = draws[~np.isnan(draws)]
    if not len(drawn):
        return None
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))
