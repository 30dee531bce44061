"""Sections on the training: the way of loss, validation and β, weight columns, the label exponent of labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from focuse.errors import counted
from focuse.report.charts import curve
from focuse.report.gathered import Gathered, Reported
from focuse.report.page import figure, heading, paragraph, table
from focuse.training.validation import best_epoch_row

# What a history may hold: its name, colour, least value of the axis, and whether each look gets a dot.
MEASURES: dict[str, tuple[str, str, float | None, bool]] = {
    "loss": ("Loss", "2", None, False),
    "valid_mrr": ("Validation MRR", "1", None, True),
    "valid_mse": ("Validation MSE", "1", None, True),
    "beta": ("β", "3", 0.0, False),
}


def training(run: Reported, figures: Gathered) -> str:
    """Loss, validation and β over the epochs."""
    settings = run.settings
    seconds = sum(row.get("seconds", 0.0) for row in run.history)
    text = (
        f"Model {settings.model}, dimension {settings.dim}, weight mode {settings.weight_mode}, loss {settings.loss}: "
        f"{len(run.history)} of {counted(settings.epochs, 'epochs')} in {seconds:.1f} s."
    )
    best = best_epoch_row(run.history)
    if best is not None:
        text += f" Kept are the embeddings of epoch {best['epoch']}, the best on validation."
    told = "By epoch, as far as it was measured. Validation is looked at every few epochs, each a dot."
    if any(row.get("beta") is not None for row in run.history):
        told += " At a β of 1 weights are ignored, at 0 they count in full."
    drawn = curves(run.history)
    return heading("Training") + paragraph(text) + (figure(drawn, told) if drawn else "")


def columns(run: Reported, figures: Gathered) -> str:
    """What each weight column counts, where there are several."""
    merger = run.splits.merger
    if merger is None:
        return ""
    figures.data["columns"] = merger.to_dict()
    values = None if run.graph.columns is None else run.graph.columns.values_of(merger.names)
    rows = []
    for place, name in enumerate(merger.names):
        missing = "–" if values is None else f"{np.isnan(values[:, place]).mean():.1%}"
        told = merger.explained[place]
        way = "lower is better" if name in merger.lower_is_better else "higher is better"
        rows.append([name, f"{merger.importance[place]:.2f}", "–" if np.isnan(told) else f"{told:.0%}", missing, way])
    text = "The weight of an edge is the mean of its columns, each normalized by itself, by these importances."
    heads = ["column", "importance", "told by structure", "missing in train", "direction"]
    return heading("Weight columns") + paragraph(text) + table(heads, rows, caption="What each column counts")


def label_exponent(run: Reported, figures: Gathered) -> str:
    """The short trainings that the exponent of soft labels was chosen by."""
    if not run.label_exponent_trials:
        return ""
    figures.data["label_exponent"] = [asdict(look) for look in run.label_exponent_trials]
    rows = [
        [f"{look.label_exponent:g}", f"{look.top_mrr:.3f}", f"{look.delta_mrr:.3f}"]
        for look in run.label_exponent_trials
    ]
    text = (
        f"Label exponent {run.settings.label_exponent:g} was chosen by short trainings, compared on validation; 0 is "
        "the model without weights. Taken is the widest ΔMRR whose top-10 % MRR is within 0.01 of the plain one's."
    )
    told = table(["label exponent", "top 10 % MRR", "ΔMRR"], rows, caption="Short trainings")
    return heading("Exponent of the soft labels") + paragraph(text) + told


def curves(history: Sequence[dict[str, Any]]) -> list[str]:
    """A chart each of the loss and, where they were measured, of validation and β by epoch."""
    drawn = [
        curve(name, _points(history, key), colour, least, dots) for key, (name, colour, least, dots) in MEASURES.items()
    ]
    return [chart for chart in drawn if chart]


def _points(history: Sequence[dict[str, Any]], key: str) -> list[tuple[float, float]]:
    return [(row["epoch"], row[key]) for row in history if row.get(key) is not None]
