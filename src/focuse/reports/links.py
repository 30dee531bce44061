"""Section on links that are not in the graph yet."""

from __future__ import annotations

from focuse.reports.gathered import Gathered, Reported
from focuse.reports.page import heading, paragraph, table


def links(run: Reported, figures: Gathered) -> str:
    """The best new tails of a few heads."""
    rows = [
        [row.head, row.relation, row.tail, f"{row.score:.3f}", _text(row.expected_weight), _text(row.confidence)]
        for some in figures.links
        for row in some
    ]
    if not rows:
        return ""
    text = (
        "The strongest new tails of the heads with the most facts. The weight is what the link would weigh if it is a "
        "fact; the confidence knows that most triples are false."
    )
    heads = ["head", "relation", "tail", "score", "weight ≈", "confidence"]
    return heading("Links it would add") + paragraph(text) + table(heads, rows, words=3)


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
