"""Figures from ranks: means over triples that may count by a fraction, deciles by weight, medians."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
HITS = (1, 3, 10)


@dataclass(frozen=True)
class Figures:
    """Mean rank, mean reciprocal rank and hits over `n` triples; NaN where there are none."""

    mr: float
    mrr: float
    hits: dict[int, float]
    n: int

    def to_dict(self) -> dict[str, float | int | None]:
        """Keys mr, mrr, hits@1, hits@3, hits@10, n; None instead of NaN."""
        values: dict[str, float] = {"mr": self.mr, "mrr": self.mrr}
        values |= {f"hits@{k}": share for k, share in self.hits.items()}
        return {**{key: None if np.isnan(value) else value for key, value in values.items()}, "n": self.n}


def figures(ranks: Floats, share: Floats | None = None, n: int | None = None) -> Figures:
    """Figures of ranks [n, sides], each triple counting by its share [n] (None: all alike).

    >>> figures(np.array([[1.0, 2.0], [4.0, 1.0]])).mrr
    0.6875
    """
    share = np.ones(len(ranks)) if share is None else share
    total = share.sum() * ranks.shape[1]
    if total <= 0:
        return Figures(np.nan, np.nan, dict.fromkeys(HITS, np.nan), 0 if n is None else n)

    def mean(values: Floats) -> float:
        return float((values * share[:, None]).sum() / total)

    return Figures(
        mr=mean(ranks),
        mrr=mean(1.0 / ranks),
        hits={k: mean((ranks <= k).astype(np.float64)) for k in HITS},
        n=len(ranks) if n is None else n,
    )


def decile_size(n: int) -> int:
    """⌊n/10⌋ triples, but one where there are at least two to compare."""
    return max(n // 10, 1) if n >= 2 else 0


def deciles(weight: Floats) -> tuple[Floats, Floats]:
    """How much each triple belongs to the lightest and the heaviest tenth: [n], [n], each summing to ⌊n/10⌋.

    Rows tied at a cut share the places left, which gives the exact mean over all random ways to break the tie.

    >>> deciles(np.array([1.0] * 10 + [2.0] * 10))[1].tolist()[-3:]
    [0.2, 0.2, 0.2]
    """
    bottom = _lightest(weight)
    return bottom, _lightest(-weight)


def _lightest(weight: Floats) -> Floats:
    places = decile_size(len(weight))
    if not places:
        return np.zeros(len(weight))
    cut = np.partition(weight, places - 1)[places - 1]
    below, tied = weight < cut, weight == cut
    share: Floats = below + tied * ((places - below.sum()) / tied.sum())
    return share


def weighted_median(values: Floats, share: Floats) -> float:
    """The median of `values` [n], each counting by its share [n]; the midpoint where two qualify."""
    order = np.argsort(values, kind="stable")
    values, share = values[order], share[order]
    values, share = values[share > 0], share[share > 0]
    if not len(values):
        return float("nan")
    passed = np.cumsum(share)
    half = passed[-1] / 2
    # Running sums of a million fractions drift by about 1e-11; no share that matters is as small as 1e-9 of them.
    lower = int(np.searchsorted(passed, half * (1 - 1e-9)))
    upper = int(np.searchsorted(passed, half * (1 + 1e-9), side="right"))
    return float((values[lower] + values[min(upper, len(values) - 1)]) / 2)
