"""One self-contained HTML page: figures, score distributions, predictions, settings. Works offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from focuse.evaluation.evaluate import Evaluation
from focuse.evaluation.metrics import HITS
from focuse.experiments.violins import violins

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
table { border-collapse: collapse; } th, td { padding: .25rem .8rem; border-bottom: 1px solid #ddd; }
th { text-align: left; font-weight: 600; } td.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { max-width: 100%; height: auto; } details { margin-top: 1rem; }
@media print { details { display: none; } }
"""


def html_report(
    title: str,
    summary: str,
    evaluations: Mapping[str, Evaluation],
    sentences: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]],
) -> str:
    """The page. Every name and text is escaped: graphs may hold hostile ones."""
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(title)}</title><style>{STYLE}</style></head><body>
<h1>{escape(title)}</h1>
<p>{escape(summary)}</p>
<h2>Ranking the test triples</h2>
{_figures(evaluations)}
<h2>Scores of strong and weak links</h2>
<p>The further apart the heaviest and the lightest tenth, the better a model tells them apart.
Dotted lines are quartiles, ΔM is the distance of the medians.</p>
{_picture(violins(evaluations))}
<h2>Links it would add</h2>
<ol>{"".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)}</ol>
{_settings(settings)}
</body></html>
"""


def _picture(svg: str) -> str:
    return svg[svg.index("<svg") :]


def _figures(evaluations: Mapping[str, Evaluation]) -> str:
    heads = ["", "part", "n", "MR", "MRR", *(f"Hits@{k}" for k in HITS), "ΔMRR", "ΔM"]
    rows = []
    for name, evaluation in evaluations.items():
        for part, label in (("all", "all"), ("top", "top 10 %"), ("bottom", "bottom 10 %")):
            row = getattr(evaluation, part)
            numbers = [f"{row.n:,}", f"{row.mr:.1f}", f"{row.mrr:.3f}", *(f"{row.hits[k]:.3f}" for k in HITS)]
            deltas = [f"{evaluation.delta_mrr:.3f}", f"{evaluation.delta_median:.3f}"]
            numbers += deltas if part == "all" else ["", ""]
            cells = "".join(f'<td class="n">{number}</td>' for number in numbers)
            rows.append(f"<tr><th>{escape(name) if part == 'all' else ''}</th><td>{label}</td>{cells}</tr>")
    return f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{''.join(rows)}</table>"


def _settings(settings: Mapping[str, Mapping[str, Any]]) -> str:
    parts = []
    for name, values in settings.items():
        rows = "".join(f"<tr><td>{escape(key)}</td><td>{escape(str(value))}</td></tr>" for key, value in values.items())
        parts.append(f"<details><summary>Settings of {escape(name)}</summary><table>{rows}</table></details>")
    return "".join(parts)
