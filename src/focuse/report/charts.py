"""Charts as SVG, drawn with matplotlib; the same numbers give the same file.

The colors in `COLORS` become CSS variables when a chart is placed in a page, so that charts follow its dark mode.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape

from focuse.errors import FocuseError

# Names are those of the variables in templates/style.css.
COLORS = {
    "ink": "#1d2430", "soft": "#5a6473", "line": "#d9dee5", "paper": "#ffffff", "rest": "#9aa3af",
    "c1": "#c8601d", "c2": "#2f6fae", "c3": "#2f8558", "c4": "#7c5aa6",
}  # fmt: skip
TOP_COLOR, BOTTOM_COLOR = COLORS["c1"], COLORS["c2"]
SERIES = (COLORS["c2"], COLORS["c1"], COLORS["c3"], COLORS["c4"])
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "focuse",
    "svg.fonttype": "none",  # texts stay texts
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": COLORS["line"],
    "figure.facecolor": COLORS["paper"],
    "axes.facecolor": COLORS["paper"],
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor"), COLORS["ink"]),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), COLORS["soft"]),
}
Points = Sequence[tuple[float, float]]
Floats = npt.NDArray[np.float64]


def require_matplotlib() -> None:
    """Raise FocuseError if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise FocuseError("matplotlib is not installed; install matplotlib: pip install matplotlib") from None


def chart_style() -> AbstractContextManager[None]:
    """Return a context in which figures are drawn in the style of the report."""
    import matplotlib

    return matplotlib.rc_context(STYLE)


def figure_svg(figure: Any) -> str:
    """Return a matplotlib figure as an SVG file without a date."""
    picture = io.StringIO()
    with chart_style():
        figure.savefig(picture, format="svg", metadata={"Date": None})
    return picture.getvalue()


def inline_svg(svg: str, name: str, description: str = "") -> Markup:
    """Return an SVG file for use within a page: with distinct ids, the page's colors, and a text for screen readers.

    >>> inline_svg('<?xml version="1.0"?><svg><path id="a" style="fill: #1d2430"/></svg>', "My chart", "A line")
    Markup('<svg role="img" aria-label="A line"><path id="my-chart-a" style="fill: var(--ink)"/></svg>')
    """
    prefix = re.sub(r"[^a-z0-9]+", "-", name.lower())
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    for variable, color in COLORS.items():
        svg = svg.replace(f": {color}", f": var(--{variable})")
    return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{escape(description or name)}"', 1))


def _new_chart(title: str, width: float, height: float, x_label: str, y_label: str = "") -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axis = figure.subplots()
    axis.set_title(title, loc="left", fontweight="bold", parse_math=False)
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)
    axis.grid(axis="y", linewidth=0.8)
    return figure, axis


def line_chart(title: str, points: Points, x_label: str, color: str, dots: bool = False) -> Markup:
    """Return a line over whole numbers, without values that are not finite; empty if nothing is left."""
    points = [(x, y) for x, y in points if math.isfinite(y)]
    if not points:
        return Markup("")
    from matplotlib.ticker import MaxNLocator

    with chart_style():
        figure, axis = _new_chart(title, 3.1, 2.3, x_label)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axis.plot(*np.array(points).T, color=color, marker="o" if dots or len(points) == 1 else "", markersize=3.5)
    return inline_svg(figure_svg(figure), title, f"{title} from {points[0][1]:.3g} to {points[-1][1]:.3g}")


def reliability_chart(title: str, lines: Mapping[str, Points], x_label: str, y_label: str) -> Markup:
    """Return named lines from 0 to 1 and a dashed diagonal, on which both coordinates are equal."""
    with chart_style():
        figure, axis = _new_chart(title, 3.5, 3.3, x_label, y_label)
        axis.set(xlim=(0, 1), ylim=(0, 1))
        axis.plot([0, 1], [0, 1], color=COLORS["rest"], linestyle="--", linewidth=1)
        for color, (name, points) in zip(SERIES, lines.items(), strict=False):
            axis.plot(*np.reshape(points, (-1, 2)).T, color=color, marker="o", markersize=3.5, label=name)
        if len(lines) > 1:
            axis.legend(frameon=False, fontsize=8)
    values = [f"{name} " + ", ".join(f"{x:.2g} is {y:.2g}" for x, y in points) for name, points in lines.items()]
    return inline_svg(figure_svg(figure), title, f"{title}: {'; '.join(values)}")


def histogram(title: str, counts: Sequence[int], low: float, high: float, x_label: str, height: float = 2.3) -> Markup:
    """Return a histogram of equal bins from `low` to `high`."""
    if not high > low:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, len(counts) + 1)
    with chart_style():
        figure, axis = _new_chart(title, 4.4, height, x_label)
        axis.bar(edges[:-1], counts, np.diff(edges) * 0.94, align="edge", color=COLORS["c2"])
        axis.set_xlim(low, high)
    description = f"{title}, from {low:.4g} to {high:.4g}: {', '.join(f'{one:,}' for one in counts)}"
    return inline_svg(figure_svg(figure), title, description)


def sparkline(counts: Sequence[int]) -> Markup:
    """Return a histogram of the size of a word; there may be thousands, so matplotlib does not draw them."""
    tallest = max([*counts, 1])
    bars = "".join(
        f'<rect x="{place * 6}" y="{18 - 18 * count / tallest:.1f}" width="5" height="{18 * count / tallest:.1f}"/>'
        for place, count in enumerate(counts)
        if count
    )
    label = "weights from lowest to highest: " + ", ".join(map(str, counts))
    size = f'viewBox="0 0 {len(counts) * 6} 18" width="{len(counts) * 6}" height="18"'
    return Markup(f'<svg class="spark" {size} role="img" aria-label="{label}">{bars}</svg>')


def violins(panels: Mapping[str, Any], title: str = "") -> str:
    """Return an SVG file with one panel per model: scores of the top and bottom decile, dotted quartiles, and ΔM.

    A panel is an `Evaluation`, or has its attributes `scores`, `top_share`, `bottom_share` [n] and `delta_median`.
    """
    from matplotlib.figure import Figure

    with chart_style():
        figure = Figure(figsize=(3.2 * len(panels) + 0.6, 3.9 if title else 3.6), layout="constrained")
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axis, (name, panel) in zip(axes, panels.items(), strict=True):
            axis.set_title(name, fontsize=11, parse_math=False)  # a name may contain dollar signs
            axis.set_xlabel(f"ΔM = {panel.delta_median:.2f}")
            parts = {"top 10 %": panel.top_share, "bottom 10 %": panel.bottom_share}
            axis.set_xticks([1, 2], list(parts))
            if not panel.top_share.any():  # a single triple has no deciles
                continue
            stats = [violin_stats(panel.scores.astype(np.float64), share) for share in parts.values()]
            drawn = axis.violin(stats, showextrema=False, showmedians=False, widths=0.8)
            for body, color in zip(drawn["bodies"], (TOP_COLOR, BOTTOM_COLOR), strict=True):
                body.set(facecolor=color, alpha=0.65, edgecolor=color)
            drawn["cquantiles"].set(linestyle=":", color=COLORS["ink"], linewidth=1)
        axes[0].set_ylabel("score f(t)")
        if title:
            figure.suptitle(title, fontsize=12, fontweight="bold", parse_math=False)
        return figure_svg(figure)


def violin_stats(scores: Floats, share: Floats, points: int = 100) -> dict[str, Any]:
    """Return what matplotlib needs to draw one violin of scores [n] with the weights share [n]."""
    scores, share = scores[share > 0], share[share > 0]
    share = share / share.sum()
    order = np.argsort(scores)
    scores, share = scores[order], share[order]
    deviation = float(np.sqrt(np.sum(share * (scores - np.sum(share * scores)) ** 2)))
    width = max(deviation, 1e-6) * len(scores) ** -0.2  # Scott's rule
    grid = np.linspace(scores[0] - 2 * width, scores[-1] + 2 * width, points)
    density = np.exp(-0.5 * ((grid[:, None] - scores) / width) ** 2) @ share
    quartiles = np.interp([0.25, 0.5, 0.75], np.cumsum(share) - share / 2, scores)
    return {
        "coords": grid,
        "vals": density,
        "mean": float(np.sum(share * scores)),
        "median": float(quartiles[1]),
        "min": float(scores[0]),
        "max": float(scores[-1]),
        "quantiles": quartiles.tolist(),
    }
