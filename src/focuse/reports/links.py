"""Section on links that are not in the graph yet."""

from __future__ import annotations

from focuse.inference.discovery.discoveries import Discovery
from focuse.reports.gathered import PER_HEAD, Gathered, Reported
from focuse.reports.page import heading, paragraph, table


def links(run: Reported, figures: Gathered) -> str:
    """Links that the run would add, the probability and the weight of each."""
    if not figures.links:
        return ""
    rows = [
        [row.head, row.relation, row.tail, f"{row.score:.3f}", _text(row.probability), _text(row.expected_weight),
         _interval(row)]
        for row in figures.links
    ]  # fmt: skip
    text = (
        f"The most probable links that the graph lacks, at most {PER_HEAD} of a head (focuse discover finds more). The "
        "weight is what the link would weigh if it is a fact, with a 90 % interval; the probability that it is one is "
        "that of a triple of which nothing else is known, where one in two is a fact."
    )
    heads = ["head", "relation", "tail", "score", "probability", "weight ≈", "90 % interval"]
    empty = [place for place in (4, 5, 6) if all(row[place] == "–" for row in rows)]
    heads, rows = _without(heads, empty), [_without(row, empty) for row in rows]
    caption = "The best new links"
    return heading("Links it would add") + paragraph(text) + table(heads, rows, words=3, caption=caption)


def _without(row: list[str], places: list[int]) -> list[str]:
    return [cell for place, cell in enumerate(row) if place not in places]


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _interval(row: Discovery) -> str:
    return "–" if row.low is None or row.high is None else f"{row.low:.3g} to {row.high:.3g}"
