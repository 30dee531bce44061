"""Figures 3 and 4 of the paper as SVG, and the numbers behind them. The same results give the same files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.paper.cells import KINDS, MODELS, TITLES, title
from focuse.paper.results import Ranked, Result
from focuse.paper.tables import MEASURES, Entry, Runs, entry
from focuse.report.charts import Floats, chart_style, figure_svg, violins

DECAY_DATA, VIOLIN_MODEL = "nl27k", "complex"
# Okabe and Ito's colours; marker and dashes tell the lines apart without any colour.
LINES = {"transe": ("#0072b2", "o", "-"), "distmult": ("#d55e00", "s", "--"), "complex": ("#009e73", "^", "-.")}

Curves = dict[str, dict[int, Entry]]


@dataclass(frozen=True)
class Scores:
    """A ranked test as `violins` draws it."""

    test: Ranked

    @property
    def scores(self) -> npt.NDArray[np.float32]:
        return self.test.score

    @property
    def top_share(self) -> Floats:
        return self.test.shares["top"]

    @property
    def bottom_share(self) -> Floats:
        return self.test.shares["bottom"]

    @property
    def delta_median(self) -> float:
        return self.test.delta_median


def decay_curves(results: Sequence[Result]) -> Curves:
    """Figure 3: model -> λ -> MRR of the top 10 % over the seeds, from the cells of form 'figure3'."""
    values: dict[tuple[str, int], list[float]] = {}
    for result in results:
        cell = result.cell
        if cell["form"] == "figure3" and cell["data"] == DECAY_DATA:
            place = (cell["model"], int(cell["changes"]["beta_decay_epochs"]))
            values.setdefault(place, []).append(MEASURES["top_mrr"](result.test))
    curves: Curves = {}
    for model, decay in sorted(values, key=lambda place: (MODELS.index(place[0]), place[1])):
        curves.setdefault(model, {})[decay] = entry(values[model, decay])
    return curves


def draw_curves(curves: Curves) -> str:
    """MRR of the top 10 % against λ, a line a model; a band is one standard deviation over the seeds each way."""
    from matplotlib.figure import Figure

    with chart_style():
        figure = Figure(figsize=(6.4, 4), layout="constrained")
        axis = figure.subplots()
        for model, points in curves.items():
            _line(axis, model, {decay: one for decay, one in points.items() if one.ours is not None})
        axis.set_xticks(sorted({decay for points in curves.values() for decay in points}))
        axis.set_xlabel("decay λ in epochs")
        axis.set_ylabel("MRR of the top 10 %")
        axis.set_title(f"{title(DECAY_DATA)}: what the decay of β does", fontsize=11, parse_math=False)
        axis.grid(axis="y", color="#dddddd", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        if curves:
            axis.legend(frameon=False, ncols=len(curves), loc="upper center", bbox_to_anchor=(0.5, -0.16))
    return figure_svg(figure)


def _line(axis: Any, model: str, points: Mapping[int, Entry]) -> None:
    colour, marker, dashes = LINES[model]
    decays = list(points)
    means = np.array([one.ours for one in points.values()], dtype=np.float64)
    spread = np.array([one.spread or 0.0 for one in points.values()])
    axis.plot(decays, means, color=colour, marker=marker, linestyle=dashes, label=f"FocusE {TITLES[model]}")
    if spread.any():
        axis.fill_between(decays, means - spread, means + spread, color=colour, alpha=0.15, linewidth=0)


@dataclass(frozen=True)
class Violins:
    """Figure 4 of one data set: the seeds drawn (plain, FocusE), the picture, and ΔM over all seeds by kind."""

    data: str
    seeds: dict[str, int]
    svg: str
    delta_median: dict[str, Entry]


def draw_violins(runs: Runs) -> list[Violins]:
    """Plain beside FocusE ComplEx for each data set that has either; drawn is the first seed that both have."""
    found = []
    for data in runs.data:
        groups = {kind: runs.groups.get((data, VIOLIN_MODEL, kind), []) for kind in KINDS}
        trained = {kind: {int(r.cell["seed"]): r.test for r in group} for kind, group in groups.items() if group}
        if not trained:
            continue
        shared = set.intersection(*(set(tests) for tests in trained.values()))
        seeds = {kind: min(shared or tests) for kind, tests in trained.items()}
        names = {"plain": TITLES[VIOLIN_MODEL], "focuse": f"FocusE {TITLES[VIOLIN_MODEL]}"}
        panels = {names[kind]: Scores(tests[seeds[kind]]) for kind, tests in trained.items()}
        deltas = {kind: entry([test.delta_median for test in tests.values()]) for kind, tests in trained.items()}
        found.append(Violins(data, seeds, violins(panels, title(data)), deltas))
    return found
