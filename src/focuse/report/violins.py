"""Score distributions of the heaviest and the lightest tenth as violins (the paper's figure 4)."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

TOP_COLOUR, BOTTOM_COLOUR = "#e07b39", "#3b76af"
# No date and fixed ids: the same numbers give the same file.
LOOK: dict[Any, Any] = {"svg.hashsalt": "focuse", "font.family": "DejaVu Sans"}
Floats = npt.NDArray[np.float64]


class Distribution(Protocol):
    """What is drawn: scores [n], how much each counts in top and bottom [n], and ΔM. An `Evaluation` is one."""

    @property
    def scores(self) -> npt.NDArray[np.float32]: ...

    @property
    def top_share(self) -> Floats: ...

    @property
    def bottom_share(self) -> Floats: ...

    @property
    def delta_median(self) -> float: ...


def violins(panels: Mapping[str, Distribution], title: str = "") -> str:
    """An SVG picture: in each named panel, top 10 % beside bottom 10 %, quartiles dotted, ΔM below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 * len(panels) + 0.6, 3.9 if title else 3.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (name, panel) in zip(axes, panels.items(), strict=True):
        _draw(axis, panel)
        axis.set_title(name, fontsize=11, parse_math=False)  # a name may hold dollar signs
        axis.set_xlabel(f"ΔM = {panel.delta_median:.2f}")
    axes[0].set_ylabel("score f(t)")
    if title:
        figure.suptitle(title, fontsize=12, fontweight="bold", parse_math=False)
    return svg_of(figure)


def svg_of(figure: Any) -> str:
    """A matplotlib figure as SVG, the same each time."""
    import matplotlib

    picture = io.StringIO()
    with matplotlib.rc_context(LOOK):
        figure.savefig(picture, format="svg", metadata={"Date": None})
    return picture.getvalue()


def _draw(axis: Any, panel: Distribution) -> None:
    parts = {"top 10 %": panel.top_share, "bottom 10 %": panel.bottom_share}
    axis.set_xticks([1, 2], list(parts))
    axis.spines[["top", "right"]].set_visible(False)
    if not panel.top_share.any():  # a single triple has no tenths
        return
    stats = [violin_stats(panel.scores.astype(np.float64), share) for share in parts.values()]
    drawn = axis.violin(stats, showextrema=False, showmedians=False, widths=0.8)
    for body, colour in zip(drawn["bodies"], (TOP_COLOUR, BOTTOM_COLOUR), strict=True):
        body.set(facecolor=colour, alpha=0.65, edgecolor=colour)
    drawn["cquantiles"].set(linestyle=":", color="black", linewidth=1)


def violin_stats(scores: Floats, share: Floats, points: int = 100) -> dict[str, Any]:
    """What matplotlib needs to draw one violin of scores [n] that count by share [n]."""
    scores, share = scores[share > 0], share[share > 0]
    share = share / share.sum()
    order = np.argsort(scores)
    scores, share = scores[order], share[order]
    spread = float(np.sqrt(np.sum(share * (scores - np.sum(share * scores)) ** 2)))
    width = max(spread, 1e-6) * len(scores) ** -0.2  # Scott's rule
    grid = np.linspace(scores[0] - 2 * width, scores[-1] + 2 * width, points)
    density = np.exp(-0.5 * ((grid[:, None] - scores) / width) ** 2) @ share
    passed = np.cumsum(share) - share / 2
    quartiles = np.interp([0.25, 0.5, 0.75], passed, scores)
    return {
        "coords": grid,
        "vals": density,
        "mean": float(np.sum(share * scores)),
        "median": float(quartiles[1]),
        "min": float(scores[0]),
        "max": float(scores[-1]),
        "quantiles": quartiles.tolist(),
    }
