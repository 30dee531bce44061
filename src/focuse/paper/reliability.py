"""Reliability curves as SVG: the mean true weight of the triples that a model predicts at about the same weight."""

from __future__ import annotations

from collections.abc import Sequence

from focuse.paper.cells import title
from focuse.paper.weights import WeightPart, WeightRow
from focuse.report.charts import chart_style, figure_svg

PROTOCOL = "with_negatives"
# Okabe and Ito's colours; markers and dashes tell the lines apart without any colour.
STYLES = (
    ("#0072b2", "o", "-"),
    ("#d55e00", "s", "--"),
    ("#009e73", "^", "-."),
    ("#cc79a7", "D", ":"),
    ("#e69f00", "v", "-"),
    ("#56b4e9", "P", "--"),
    ("#000000", "X", "-."),
)
FEWEST = 20  # a bin with fewer triples is not drawn


def draw_reliability(parts: Sequence[WeightPart]) -> dict[str, str]:
    """Data set -> its picture, UKGE's test with its zero-weight negatives, one line a predictor of ours."""
    pictures = {}
    for part in parts:
        rows = [row for row in part.rows if row.curve]
        if part.protocol == PROTOCOL and rows:
            pictures[part.data] = _draw(part, rows[: len(STYLES)])
    return pictures


def _draw(part: WeightPart, rows: Sequence[WeightRow]) -> str:
    from matplotlib.figure import Figure

    with chart_style():
        figure = Figure(figsize=(6.4, 4.4), layout="constrained")
        axis = figure.subplots()
        axis.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
        for row, (colour, marker, dashes) in zip(rows, STYLES, strict=False):
            bins = [one for one in row.curve if one["count"] >= FEWEST]
            predicted, truth = [one["predicted"] for one in bins], [one["truth"] for one in bins]
            axis.plot(predicted, truth, color=colour, marker=marker, markersize=4, linestyle=dashes, label=row.name)
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
        axis.set_xlabel("predicted weight, mean of a bin")
        axis.set_ylabel("true weight, mean of the same triples")
        axis.set_title(f"{title(part.data)}: are predicted weights what they say?", fontsize=11, parse_math=False)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
    return figure_svg(figure)
