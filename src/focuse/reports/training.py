"""Sections on what was trained: the data, the settings, the way of loss and validation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

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


def columns(run: Reported, figures: Gathered) -> str:
    """What each weight column counts, where there are several."""
    merger = run.splits.merger
    if merger is None:
        return ""
    figures.data["columns"] = merger.to_dict()
    values = None if run.graph.columns is None else run.graph.columns.by_name(merger.names)
    rows = []
    for place, name in enumerate(merger.names):
        missing = "–" if values is None else f"{np.isnan(values[:, place]).mean():.1%}"
        told = merger.explained[place]
        way = "lower is better" if name in merger.lower else "higher is better"
        rows.append([name, f"{merger.importance[place]:.2f}", "–" if np.isnan(told) else f"{told:.0%}", missing, way])
    text = "The weight of an edge is the mean of its columns, each normalised by itself, by these importances."
    heads = ["column", "importance", "told by structure", "missing in train", "direction"]
    return heading("Weight columns") + paragraph(text) + table(heads, rows)


def sharpness(run: Reported, figures: Gathered) -> str:
    """The short trainings that the sharpness of labels was chosen by."""
    if not run.choice:
        return ""
    figures.data["sharpness"] = [asdict(look) for look in run.choice]
    rows = [[f"{look.sharpness:g}", f"{look.top_mrr:.3f}", f"{look.delta_mrr:.3f}"] for look in run.choice]
    text = (
        f"Sharpness {run.settings.sharpness:g} was chosen by short trainings, judged on validation; 0 is the plain "
        "model. Taken is the widest ΔMRR whose top-10 % MRR is within 0.01 of the plain one's."
    )
    return heading("Sharpness of the labels") + paragraph(text) + table(["sharpness", "top 10 % MRR", "ΔMRR"], rows)


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
