"""Sections on predicted weights."""

from __future__ import annotations

from focuse.evaluation.order import number
from focuse.evaluation.weighing import PROTOCOLS
from focuse.reports.gathered import Gathered, Reported
from focuse.reports.page import heading, paragraph, table


def weights(run: Reported, figures: Gathered) -> str:
    """Errors of predicted weights by protocol, the trivial rows below, and nDCG among all entities."""
    found = figures.weights
    if found is None or not run.graph.weighted:
        return ""
    parts = [
        heading("Predicted weights"),
        paragraph("Rows below the model's are guesses without a model: to be beaten."),
    ]
    for protocol in found.table.protocols:
        cells = found.table.cells(protocol)
        heads = [*next(iter(cells.values()))]
        rows = [[name, *(row.get(head, "–") for head in heads)] for name, row in cells.items()]
        parts += [heading(PROTOCOLS[protocol], 3), table(["", *heads], rows)]
    gains = [[name, number(gain.linear), number(gain.exponential)] for name, gain in found.gains.items()]
    parts += [heading("nDCG: every known tail among all entities", 3), table(["", "linear", "exponential"], gains)]
    return "".join([*parts, *(paragraph(note) for note in found.table.notes)])
