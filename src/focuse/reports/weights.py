"""Sections on predicted weights, their intervals, and the probability of a link."""

from __future__ import annotations

from focuse.evaluation.coverage import Coverage
from focuse.evaluation.order import number
from focuse.evaluation.weighing import PROTOCOLS
from focuse.reports.gathered import Gathered, Reported
from focuse.reports.page import heading, paragraph, picture, table

SHOWN = 30  # relations, the most frequent first


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


def intervals(run: Reported, figures: Gathered) -> str:
    """What share of test's weights the intervals hold, how wide they are, and both by relation."""
    found = None if figures.weights is None or not run.graph.weighted else figures.weights.intervals
    if found is None:
        return ""
    heads = ["coverage", "mean width", "median width"]
    rows = [[name, *_measured(row)] for name, row in found.rows.items()]
    kinds = [
        [one.relation, "its own" if one.own else "all relations", f"{one.figures.n:,}", *_measured(one.figures)]
        for one in found.relations[:SHOWN]
    ]
    text = (
        f"Intervals that promise to hold {found.coverage:.0%} of the weights, measured on {found.conformal_rows:,} "
        "validation triples that nothing else was fitted to. Below the first row, intervals of one width for all."
    )
    return "".join([
        heading("Intervals"), paragraph(text), table(["", *heads], rows),
        heading("By relation", 3), table(["relation", "measured on", "n", *heads], kinds, words=2),
    ])  # fmt: skip


def _measured(row: Coverage) -> list[str]:
    return [number(row.coverage), f"{row.width:.4g}", f"{row.median_width:.4g}"]


def columns(run: Reported, figures: Gathered) -> str:
    """Of several weight columns, the errors of each on the facts of test that have it, in its own units."""
    parts = []
    for name, found in figures.columns.items():
        cells = found.table.cells("positives")
        heads = [*next(iter(cells.values()))]
        rows = [[kind, *(row.get(head, "–") for head in heads)] for kind, row in cells.items()]
        parts += [heading(f"Column {name}", 3), table(["", *heads], rows)]
        if found.intervals is not None:
            held = next(iter(found.intervals.rows.values()))
            parts.append(paragraph(f"Its {found.intervals.coverage:.0%} intervals hold {held.coverage:.1%} of test."))
    return "".join([heading("Weight columns, each by itself"), *parts]) if parts else ""


def probabilities(run: Reported, figures: Gathered) -> str:
    """How far the probability of a link can be trusted, before and after calibration."""
    found = figures.probabilities
    if found is None:
        return ""
    rows = [[name, number(row.brier), number(row.ece)] for name, row in found.rows.items()]
    text = (
        f"Judged on {found.facts:,} facts of test and {found.negatives:,} triples that are none. On the diagonal, of "
        "the links that get a probability of .7 seven in ten are facts."
    )
    drawn = picture(found.svg(), "reliability")
    notes = "".join(paragraph(note) for note in found.notes)
    return heading("Probability of a link") + paragraph(text) + table(["", "Brier", "ECE"], rows) + drawn + notes
