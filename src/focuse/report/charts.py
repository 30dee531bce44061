"""Small charts as SVG, drawn here: their texts stay text, and the page's colours hold for screen, night and paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.report.violins import Distribution, violin_stats

Points = Sequence[tuple[float, float]]
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 26, 40  # what stands around the drawing: ticks, title, labels
SERIES = ("0", "1", "2", "3")  # colours, by number of the classes s and f


@dataclass(frozen=True)
class Scale:
    """Numbers from `low` to `high` along a line from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most about `most` round numbers from `low` to `high`.

    >>> ticks(0, 30)
    [0.0, 10.0, 20.0, 30.0]
    """
    if not high > low:
        return [low]
    rough = (high - low) / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(step * place, 12) for place in range(first, math.floor(high / step + 1e-9) + 1)]


def around(values: Sequence[float], least: float | None = None) -> tuple[float, float]:
    """Bounds that leave all of `values` inside, from `least` on if it is given."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    low = low if least is None else min(low, least)
    room = (high - low) or abs(high) or 1.0
    return (low if least is not None and low == least else low - 0.06 * room), high + 0.06 * room


def label(value: float) -> str:
    """A tick's number, a minus as long as a plus."""
    return f"{value:.6g}".replace("-", "−")


@dataclass(frozen=True)
class Frame:
    """A chart's axes: what is drawn inside is placed by `x` and `y`."""

    width: int
    height: int
    x: Scale
    y: Scale

    @classmethod
    def of(cls, x: tuple[float, float], y: tuple[float, float], width: int = 300, height: int = 220) -> Frame:
        return cls(width, height, Scale(*x, LEFT, width - RIGHT), Scale(*y, height - BOTTOM, TOP))

    def draw(self, inside: str, title: str, along: str, upright: str = "", x_ticks: Mapping[float, str] | None = None,
             described: str = "") -> str:  # fmt: skip
        """The whole SVG: grid, ticks, labels and what is `inside`."""
        marks = {value: label(value) for value in ticks(self.x.low, self.x.high)} if x_ticks is None else x_ticks
        left, right, bottom, top = self.x.start, self.x.end, self.y.start, self.y.end
        lines = [
            f'<line class="grid" x1="{left:g}" x2="{right:g}" y1="{self.y(v):.1f}" y2="{self.y(v):.1f}"/>'
            f'<text class="tick" x="{left - 7:g}" y="{self.y(v) + 4:.1f}" text-anchor="end">{label(v)}</text>'
            for v in ticks(self.y.low, self.y.high)
        ]
        lines += [
            f'<text class="tick" x="{self.x(v):.1f}" y="{bottom + 16:g}" text-anchor="middle">{escape(text)}</text>'
            for v, text in marks.items()
        ]
        middle = (left + right) / 2
        told = escape(described or title)
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}" role="img" '
            f'aria-label="{told}"><title>{told}</title>'
            f'<text class="title" x="{left:g}" y="15">{escape(title)}</text>{"".join(lines)}'
            f'<line class="axis" x1="{left:g}" x2="{right:g}" y1="{bottom:g}" y2="{bottom:g}"/>{inside}'
            f'<text class="tick" x="{middle:g}" y="{self.height - 5}" text-anchor="middle">{escape(along)}</text>'
            + (f'<text class="tick" transform="translate(11 {(top + bottom) / 2:g}) rotate(-90)" '
               f'text-anchor="middle">{escape(upright)}</text>' if upright else "")
            + "</svg>"
        )  # fmt: skip

    def line(self, points: Points, colour: str, dots: bool = False) -> str:
        """A line through points, on wish with a dot at each."""
        if not points:
            return ""
        places = [(self.x(x), self.y(y)) for x, y in points]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        drawn = f'<path class="line s{colour}" d="{path}"/>' if len(points) > 1 else ""
        if dots or len(points) == 1:
            drawn += "".join(
                f'<circle class="f{colour}" cx="{px:.1f}" cy="{py:.1f}" r="3"><title>{label(x)}: {label(y)}</title>'
                "</circle>"
                for (x, y), (px, py) in zip(points, places, strict=True)
            )
        return drawn


def curve(title: str, points: Points, colour: str, least: float | None = None, dots: bool = False) -> str:
    """One measure by epoch; what is not finite is left out."""
    points = [(x, y) for x, y in points if math.isfinite(y)]
    if not points:
        return ""
    epochs = [x for x, _ in points]
    frame = Frame.of((min(epochs), max(max(epochs), min(epochs) + 1)), around([y for _, y in points], least))
    marks = {value: label(value) for value in ticks(*(frame.x.low, frame.x.high)) if value == int(value)}
    said = f"{title} from {label(points[0][1])} in epoch {points[0][0]:g} to {label(points[-1][1])} in {epochs[-1]:g}"
    return frame.draw(frame.line(points, colour, dots), title, "epoch", x_ticks=marks, described=said)


def promise(title: str, lines: Mapping[str, Points], along: str, upright: str) -> str:
    """Lines from 0 to 1 beside the diagonal, which is what was promised."""
    frame = Frame.of((0.0, 1.0), (0.0, 1.0), 330, 320)
    colours = SERIES if len(lines) > 1 else SERIES[2:]
    drawn = [f'<path class="promise" d="M{frame.x(0):g} {frame.y(0):g}L{frame.x(1):g} {frame.y(1):g}"/>']
    drawn += [frame.line(points, colour, dots=True) for colour, points in zip(colours, lines.values(), strict=False)]
    said = "; ".join(
        f"{name}: " + ", ".join(f"{label(round(x, 2))} is {label(round(y, 2))}" for x, y in points)
        for name, points in lines.items()
    )
    return frame.draw("".join(drawn), title, along, upright, described=f"{title}. {said}")


def bars(title: str, counts: Sequence[int], low: float, high: float, along: str = "weight", height: int = 220) -> str:
    """A histogram of equal bins from `low` to `high`."""
    if not high > low:
        low, high = low - 0.5, high + 0.5
    frame = Frame.of((low, high), (0.0, max([*counts, 1]) * 1.06), 440, height)
    width = (high - low) / len(counts)
    drawn = []
    for place, count in enumerate(counts):
        left, right, top = frame.x(low + place * width), frame.x(low + (place + 1) * width), frame.y(count)
        ends = f"{low + place * width:.4g} to {low + (place + 1) * width:.4g}"
        drawn.append(
            f'<rect class="f2" x="{left + 0.5:.1f}" y="{top:.1f}" width="{max(right - left - 1, 0.5):.1f}" '
            f'height="{frame.y.start - top:.1f}"><title>{ends}: {count:,}</title></rect>'
        )
    said = f"{title}: " + ", ".join(f"{count:,}" for count in counts)
    return frame.draw("".join(drawn), title, along, described=said)


def spark(counts: Sequence[int]) -> str:
    """A histogram the size of a word."""
    tall = [18 * count / max([*counts, 1]) for count in counts]
    rects = "".join(
        f'<rect class="f2" x="{place * 6}" y="{18 - size:.1f}" width="5" height="{size:.1f}"/>'
        for place, size in enumerate(tall)
        if size
    )
    told = "weights from least to most: " + ", ".join(map(str, counts))
    size = f'viewBox="0 0 {len(counts) * 6} 18" width="{len(counts) * 6}" height="18"'
    return f'<svg {size} role="img" aria-label="{told}"><title>{told}</title>{rects}</svg>'


def violin_chart(title: str, panel: Distribution) -> str:
    """Scores of the heaviest tenth beside those of the lightest, quartiles dotted."""
    scores = panel.scores.astype(np.float64)
    both = {"1": ("top 10 %", panel.top_share), "2": ("bottom 10 %", panel.bottom_share)}
    stats = {colour: violin_stats(scores, share) for colour, (_, share) in both.items()}
    ends = [value for one in stats.values() for value in (float(one["coords"][0]), float(one["coords"][-1]))]
    frame = Frame.of((0.5, 2.5), around(ends), 360, 300)
    drawn = [_violin(frame, place, colour, one) for place, (colour, one) in enumerate(stats.items(), 1)]
    medians = [one["median"] for one in stats.values()]
    said = f"{title}: median {medians[0]:.3g} of the top 10 %, {medians[1]:.3g} of the bottom 10 %"
    marks = {float(place): name for place, (name, _) in enumerate(both.values(), 1)}
    return frame.draw("".join(drawn), title, f"ΔM = {panel.delta_median:.2f}", "score", marks, said)


def _violin(frame: Frame, place: float, colour: str, stats: Mapping[str, Any]) -> str:
    density: npt.NDArray[np.float64] = np.asarray(stats["vals"]) / max(float(np.max(stats["vals"])), 1e-300) * 0.4
    heights = [frame.y(float(value)) for value in stats["coords"]]
    right = [f"{frame.x(place + wide):.1f} {y:.1f}" for wide, y in zip(density.tolist(), heights, strict=True)]
    left = [f"{frame.x(place - wide):.1f} {y:.1f}" for wide, y in zip(density.tolist(), heights, strict=True)]
    lines = []
    for value in stats["quantiles"]:
        wide = float(np.interp(value, stats["coords"], density))
        y = f"{frame.y(value):.1f}"
        lines.append(
            f'<line class="quartile" x1="{frame.x(place - wide):.1f}" x2="{frame.x(place + wide):.1f}" y1="{y}" '
            f'y2="{y}"/>'
        )
    return f'<path class="violin f{colour} s{colour}" d="M{"L".join(right + left[::-1])}Z"/>' + "".join(lines)


def legend(names: Mapping[str, str]) -> str:
    """Colour -> name, as a list of dots."""
    dots = "".join(
        f'<li><svg width="10" height="10" viewBox="0 0 10 10" aria-hidden="true"><circle class="f{colour}" cx="5" '
        f'cy="5" r="5"/></svg>{escape(name)}</li>'
        for colour, name in names.items()
    )
    return f'<ul class="legend">{dots}</ul>\n'
