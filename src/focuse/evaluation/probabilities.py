"""Figures of probabilities: Brier score, calibration error and a reliability diagram, before and after calibration."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from focuse.evaluation.baselines import Floats
from focuse.evaluation.confidence import Reliability, finite_or_none, reliability

# No date and fixed ids: the same numbers give the same file.
LOOK: dict[Any, Any] = {"svg.hashsalt": "focuse", "font.family": "DejaVu Sans"}
COLOURS = ("#8a8a8a", "#3b76af", "#e07b39", "#4f9d69")


def brier(probability: Floats, fact: Floats) -> float:
    """The mean squared distance of probabilities [n] from 1 for a fact, 0 for none [n].

    >>> brier(np.array([1.0, 0.5]), np.array([1.0, 0.0]))
    0.125
    """
    return float(np.mean((probability - fact) ** 2)) if len(fact) else float("nan")


@dataclass(frozen=True)
class ProbabilityFigures:
    """Brier score and reliability of one kind of probability."""

    brier: float
    reliability: Reliability

    @property
    def ece(self) -> float:
        return self.reliability.ece

    def to_dict(self) -> dict[str, Any]:
        return {"brier": finite_or_none(self.brier), **self.reliability.to_dict()}


def judge_probability(probability: Floats, fact: Floats) -> ProbabilityFigures:
    """Figures of probabilities [n] of what is a fact (1) or none (0) [n]."""
    return ProbabilityFigures(brier(probability, fact), reliability(probability, fact))


@dataclass(frozen=True)
class ProbabilityTable:
    """Kinds of probability, the uncalibrated one first, on `facts` triples that are and `negatives` that are not."""

    rows: Mapping[str, ProbabilityFigures]
    facts: int
    negatives: int
    base_rate: float
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        return {
            "facts": self.facts,
            "negatives": self.negatives,
            "base_rate": self.base_rate,
            "rows": {name: row.to_dict() for name, row in self.rows.items()},
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        width = max(map(len, self.rows))
        lines = [f"{self.facts:,} facts and {self.negatives:,} negatives (base rate {self.base_rate:.3g})"]
        lines.append(f"{'':{width}}{'Brier':>9}{'ECE':>9}")
        lines += [f"{name:{width}}{row.brier:>9.4f}{row.ece:>9.4f}" for name, row in self.rows.items()]
        return "\n".join([*lines, *self.notes])

    def svg(self, title: str = "") -> str:
        """A reliability diagram: the share of facts in each bin of ten, a line a row; the diagonal is the promise."""
        import matplotlib
        from matplotlib.figure import Figure

        figure = Figure(figsize=(4.6, 4.4), layout="constrained")
        axis = figure.subplots()
        axis.plot([0, 1], [0, 1], color="#c0c0c0", linewidth=1, linestyle="--")
        for colour, (name, row) in zip(COLOURS, self.rows.items(), strict=False):
            bins = [one for one in row.reliability.bins if one.count]
            label = f"{name} (Brier {row.brier:.3f}, ECE {row.ece:.3f})"
            axis.plot(
                [one.predicted for one in bins],
                [one.truth for one in bins],
                "o-",
                color=colour,
                label=label,
                markersize=4,
            )
        axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="predicted probability", ylabel="share of facts")
        axis.legend(fontsize=8, loc="upper left", frameon=False)
        if title:
            axis.set_title(title, fontsize=11, parse_math=False)  # a name may hold dollar signs
        picture = io.StringIO()
        with matplotlib.rc_context(LOOK):
            figure.savefig(picture, format="svg", metadata={"Date": None})
        return picture.getvalue()
