"""Several numbers an edge: their names and values, some of them missing, and how they become one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.errors import FocuseError, nearest

Weights = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
# The weight of an edge that has only columns of no importance: nothing is known of its strength.
NEUTRAL = 0.5
ALL_MISSING = "all its weights are missing; give it at least one or remove the line"


@dataclass(frozen=True, eq=False)
class Columns:
    """Weights of edges in several columns: `values` float64 [n, C] in the user's units, NaN where one is missing.

    In the columns named by `lower`, small numbers are the strong ones.

    >>> both = Columns(("confidence", "age"), np.array([[0.9, np.nan], [0.2, 30.0]]), frozenset({"age"}))
    >>> both.present.tolist()
    [[True, False], [True, True]]
    """

    names: tuple[str, ...]
    values: Weights
    lower: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise FocuseError(f"weight columns {', '.join(self.names)}: a name stands twice; give each its own")
        if self.values.ndim != 2 or self.values.shape[1] != len(self.names):
            raise FocuseError(f"weight columns {', '.join(self.names)}: values of shape {self.values.shape}")
        unknown = sorted(self.lower - set(self.names))
        if unknown:
            raise self.unknown(unknown[0])

    def __len__(self) -> int:
        return len(self.values)

    @property
    def present(self) -> Mask:
        """Where there is a number; bool [n, C]."""
        return ~np.isnan(self.values)

    def take(self, rows: npt.NDArray[Any]) -> Columns:
        """The columns of some rows (indices or a mask)."""
        return replace(self, values=self.values[rows])

    def place(self, name: str) -> int:
        """Where the column called `name` stands; an unknown one is an error that offers the nearest."""
        if name not in self.names:
            raise self.unknown(name)
        return self.names.index(name)

    def unknown(self, name: str) -> FocuseError:
        return FocuseError(f"no weight column {name!r}{nearest(name, self.names)}: there are {', '.join(self.names)}")

    def by_name(self, names: Sequence[str]) -> Weights:
        """The columns called `names` in that order, all missing where this has none of that name; float64 [n, C]."""
        missing = np.full(len(self), np.nan)
        own = {name: self.values[:, place] for place, name in enumerate(self.names)}
        return np.stack([own.get(name, missing) for name in names], axis=1)

    def provisional(self) -> Weights:
        """One weight an edge [n] before anything is learnt: the mean of its columns, each by its global range."""
        shares = np.zeros(self.values.shape)
        for place, name in enumerate(self.names):
            column = self.values[:, place]
            seen = ~np.isnan(column)
            if not seen.any():
                continue
            low, high = column[seen].min(), column[seen].max()
            span = high / 2 - low / 2  # halves: the span of numbers near ±1e308 would overflow
            share = (column[seen] / 2 - low / 2) / span if span > 0 else np.ones(int(seen.sum()))
            shares[seen, place] = 1 - share if name in self.lower and span > 0 else share
        return combine(shares, self.present, np.ones(len(self.names)))


def combine(shares: Weights, present: Mask, importance: Weights) -> Weights:
    """One weight in [0, 1] an edge: the mean of its present shares, each counting by its column's importance.

    Shares [B, C] in [0, 1], present bool [B, C], importance [C] or [B, C] -> [B]. Where nothing of importance is
    present, the answer is NEUTRAL.

    >>> shares, present = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[True, True], [False, True]])
    >>> combine(shares, present, np.array([3.0, 1.0])).tolist()
    [0.75, 0.0]
    """
    if shares.shape != present.shape or importance.shape[-1:] != shares.shape[1:]:
        raise ValueError(f"shapes do not fit: {shares.shape}, {present.shape}, importance {importance.shape}")
    counted = np.where(present, importance, 0.0)
    total = counted.sum(axis=1)
    weighed = (counted * np.where(present, shares, 0.0)).sum(axis=1)
    mean: Weights = np.divide(weighed, total, out=np.full(len(shares), NEUTRAL), where=total > 0)
    return np.clip(mean, 0.0, 1.0)


def merge_groups(values: Weights, group: npt.NDArray[np.intp], groups: int, policy: str, lower: bool) -> Weights:
    """Numbers [n] of rows in groups made one a group [groups] by max (the strongest), mean or last; NaN if none is.

    Missing numbers are passed over; where `lower`, the strongest is the smallest.
    """
    seen = ~np.isnan(values)
    values, group = values[seen], group[seen]
    count = np.bincount(group, minlength=groups)
    merged: Weights
    if policy == "mean":
        # Divided before the sum: that of numbers near 1e308 would overflow.
        merged = np.asarray(np.bincount(group, weights=values / count[group], minlength=groups), np.float64)
    elif policy == "max":
        merged = np.full(groups, np.inf if lower else -np.inf)
        (np.minimum if lower else np.maximum).at(merged, group, values)
    else:
        merged = np.empty(groups)
        merged[group] = values  # NumPy keeps the last value written to a place
    merged[count == 0] = np.nan
    return merged


def joined(parts: Iterable[Columns | None]) -> Columns | None:
    """The columns of graphs one after the other; None unless all have the same ones."""
    known = list(parts)
    first = known[0]
    if first is None or any(part is None or part.names != first.names for part in known):
        return None
    return replace(first, values=np.concatenate([part.values for part in known if part is not None]))
