"""What the tables add up to: does FocusE reach the paper's figures, and does it part strong from weak links?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from focuse.paper.bootstrap import Interval
from focuse.paper.cells import MODELS
from focuse.paper.tables import Table

REACH = 0.02  # this far below the paper's figure still reaches it
NARROW = 0.01  # a ΔMRR this much smaller than the plain model's is a step back
ROUNDING = 1e-9


@dataclass(frozen=True)
class Pair:
    """One model on one data set, FocusE against plain. None: no such figure, or the paper has none to reach."""

    data: str
    model: str
    reaches_top: bool | None
    reaches_delta: bool | None
    change: float | None
    interval: Interval | None

    @property
    def widens(self) -> bool | None:
        return None if self.change is None else self.change > 0

    @property
    def narrows(self) -> bool | None:
        """By more than .01."""
        return None if self.change is None else self.change < -NARROW - ROUNDING

    @property
    def surely(self) -> bool:
        """It widens, and the whole interval says so."""
        return self.interval is not None and self.interval.low > 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"widens": self.widens, "narrows": self.narrows}


@dataclass(frozen=True)
class Count:
    """So many of so many."""

    yes: int
    of: int


@dataclass(frozen=True)
class Verdict:
    """All pairs, and the counts over those that are known."""

    pairs: tuple[Pair, ...]

    @property
    def counts(self) -> dict[str, Count]:
        known = [pair for pair in self.pairs if pair.change is not None]
        return {
            "reaches_top": _count([pair.reaches_top for pair in self.pairs]),
            "reaches_delta": _count([pair.reaches_delta for pair in self.pairs]),
            "widens": _count([pair.widens for pair in known]),
            "surely_widens": _count([pair.surely for pair in known]),
            "narrows": _count([pair.narrows for pair in known]),
        }

    def to_dict(self) -> dict[str, Any]:
        counts = {name: asdict(count) for name, count in self.counts.items()}
        return {"reach": REACH, "narrow": NARROW, "counts": counts, "pairs": [pair.to_dict() for pair in self.pairs]}


def verdict(table: Table, comparable: bool = True) -> Verdict:
    """From table 4 in its full form. Cells that are not `comparable` (the quick form) have no paper to reach."""
    pairs = []
    for data in table.sizes:
        for model in MODELS:
            row = table.find(data, model, "focuse")
            change = row.changes.get("delta_mrr")
            reached = [reaches(row.entries[name].difference) for name in ("top_mrr", "delta_mrr")]
            top, delta = reached if comparable else (None, None)
            value, interval = (None, None) if change is None else (change.value, change.interval)
            pairs.append(Pair(data, model, top, delta, value, interval))
    return Verdict(tuple(pairs))


def reaches(difference: float | None) -> bool | None:
    return None if difference is None else difference >= -REACH - ROUNDING


def _count(answers: Sequence[bool | None]) -> Count:
    known = [answer for answer in answers if answer is not None]
    return Count(sum(known), len(known))
