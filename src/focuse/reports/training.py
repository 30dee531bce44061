"""Sections on what was trained: the data, the settings, the way of loss and validation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from focuse.graph import Graph
from focuse.reports.gathered import Gathered, Reported
from focuse.reports.page import heading, paragraph, picture, settings_details, table
from focuse.reports.violins import BOTTOM_COLOUR, LOOK, TOP_COLOUR, svg_of

VALIDATION = {"valid_mrr": "validation MRR", "valid_mse": "validation MSE"}


def data(run: Reported, figures: Gathered) -> str:
    """How large the parts are and what their weights look like."""
    graph, splits = run.graph, run.splits
    parts = {"train": graph, "validation": splits.valid.graph, "test": splits.test.graph, "inferred": splits.inferred}
    rows = [[name, *_numbers(part)] for name, part in parts.items() if part is not None and len(part)]
    text = f"{len(graph.entities):,} entities, {len(graph.relations):,} relations, from {graph.source}."
    if not graph.weighted:
        text += " No weights were given: each is taken for 1."
    notes = "".join(paragraph(f"Note: {note}") for note in figures.notes)
    return heading("Data") + paragraph(text) + table(["part", "triples", "least w", "mean w", "most w"], rows) + notes


def _numbers(graph: Graph) -> list[str]:
    weight = graph.weight
    mean = float((weight / len(weight)).sum())  # divided before the sum, which may overflow
    return [f"{len(graph):,}", f"{weight.min():.4g}", f"{mean:.4g}", f"{weight.max():.4g}"]


def training(run: Reported, figures: Gathered) -> str:
    """Loss and validation over the epochs, and every setting."""
    settings = run.settings
    seconds = sum(row.get("seconds", 0.0) for row in run.history)
    text = (
        f"Model {settings.model}, dimension {settings.dim}, focus {settings.focus}, loss {settings.loss}: "
        f"{len(run.history)} of {settings.epochs} epochs in {seconds:.1f} s."
    )
    drawn = picture(curves(run.history), "history") if run.history else ""
    return heading("Training") + paragraph(text) + drawn + settings_details(settings.model, settings.to_dict())


def curves(history: Sequence[dict[str, Any]]) -> str:
    """An SVG of the loss and, if it was measured, of validation by epoch."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(6.6, 2.8), layout="constrained")
        axis = figure.subplots()
        _line(axis, history, "loss", "loss", BOTTOM_COLOUR)
        axis.set_xlabel("epoch")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.spines[["top", "right"]].set_visible(False)
        for key, label in VALIDATION.items():
            if any(key in row for row in history):
                other = axis.twinx()
                other.spines[["top", "left"]].set_visible(False)
                _line(other, history, key, label, TOP_COLOUR, marker="o", markersize=3)
    return svg_of(figure)


def _line(axis: Any, history: Sequence[dict[str, Any]], key: str, label: str, colour: str, **look: Any) -> None:
    points = [(row["epoch"], row[key]) for row in history if row.get(key) is not None and math.isfinite(row[key])]
    axis.plot([epoch for epoch, _ in points], [value for _, value in points], color=colour, **look)
    axis.set_ylabel(label, color=colour)
