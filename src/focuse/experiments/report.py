"""One self-contained HTML page on several models side by side: figures, score distributions, predictions, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from focuse.evaluation.evaluate import Evaluation
from focuse.reports.page import heading, numbered, page, paragraph, settings_details
from focuse.reports.ranking import RANKING, ranking_table, scores_of


def html_report(
    title: str,
    summary: str,
    evaluations: Mapping[str, Evaluation],
    sentences: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]],
) -> str:
    """The page. Every name and text is escaped: graphs may hold hostile ones."""
    parts = [
        heading(title, 1) + paragraph(summary),
        heading(RANKING) + ranking_table(evaluations),
        scores_of(evaluations),
        heading("Links it would add") + numbered(sentences),
        *(settings_details(name, values) for name, values in settings.items()),
    ]
    return page(title, "\n".join(parts))
