"""Figures of intervals: how often they hold the truth, and how wide they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from focuse.evaluation.baselines import AnyIds, Floats
from focuse.evaluation.confidence import finite_or_none

SHOWN = 12  # relations that the text lists; all are in `to_dict`


@dataclass(frozen=True)
class Coverage:
    """Of `n` intervals, the share that holds the truth, and their mean and median width in the weights' units."""

    n: int
    coverage: float
    width: float
    median_width: float

    def to_dict(self) -> dict[str, Any]:
        numbers = {name: finite_or_none(getattr(self, name)) for name in ("coverage", "width", "median_width")}
        return {"n": self.n, **numbers}


def cover(low: Floats, high: Floats, truth: Floats) -> Coverage:
    """Figures of intervals [n], ends included.

    >>> cover(np.array([0.0, 0.0]), np.array([0.5, 1.0]), np.array([0.5, 2.0]))
    Coverage(n=2, coverage=0.5, width=0.75, median_width=0.75)
    """
    if not len(truth):
        return Coverage(0, math.nan, math.nan, math.nan)
    inside = (low <= truth) & (truth <= high)
    width = high - low
    return Coverage(len(truth), float(inside.mean()), float(width.mean()), float(np.median(width)))


@dataclass(frozen=True)
class RelationCoverage:
    """One relation's figures; `own` says whether its intervals come from its own conformal rows."""

    relation: str
    own: bool
    figures: Coverage

    def to_dict(self) -> dict[str, Any]:
        return {"relation": self.relation, "own": self.own, **self.figures.to_dict()}


def cover_relations(
    low: Floats, high: Floats, truth: Floats, relation: AnyIds, names: Sequence[str], own: AnyIds
) -> list[RelationCoverage]:
    """Figures of each relation that occurs, most frequent first."""
    order = np.argsort(relation, kind="stable")
    count = np.bincount(relation, minlength=len(names))
    end = np.cumsum(count)
    found = []
    for kind in np.argsort(-count, kind="stable")[: int((count > 0).sum())]:
        rows = order[end[kind] - count[kind] : end[kind]]
        found.append(RelationCoverage(str(names[kind]), bool(own[kind]), cover(low[rows], high[rows], truth[rows])))
    return found


@dataclass(frozen=True)
class IntervalTable:
    """Intervals of a stated `coverage` by several methods, and the first one's relations."""

    coverage: float
    conformal_rows: int
    rows: Mapping[str, Coverage]
    relations: Sequence[RelationCoverage]

    def to_dict(self) -> dict[str, Any]:
        return {
            "coverage": self.coverage,
            "conformal_rows": self.conformal_rows,
            "rows": {name: row.to_dict() for name, row in self.rows.items()},
            "relations": [row.to_dict() for row in self.relations],
        }

    def __str__(self) -> str:
        first = next(iter(self.rows.values()))
        width = max(map(len, self.rows))
        lines = [f"{self.coverage:.0%} intervals ({first.n:,} facts of test, {self.conformal_rows:,} conformal rows)"]
        lines.append(f"{'':{width}}{'coverage':>10}{'mean width':>12}{'median width':>14}")
        lines += [f"{name:{width}}{_cells(row)}" for name, row in self.rows.items()]
        own = sum(row.own for row in self.relations)
        lines.append(
            f"by relation: {own} of {len(self.relations)} have intervals of their own, the rest share the global one"
        )
        shown = [row for row in self.relations if row.own][:SHOWN]
        width = max((len(row.relation) for row in shown), default=0)
        lines += [f"  {row.relation:{width}}{_cells(row.figures)}  ({row.figures.n:,})" for row in shown]
        return "\n".join(lines)


def _cells(row: Coverage) -> str:
    return f"{row.coverage:>10.3f}{row.width:>12.4g}{row.median_width:>14.4g}"
