"""The head of a report: what matters in one paragraph and a few numbers, and a table of contents."""

from __future__ import annotations

import math
import re
from html import escape, unescape

from focuse.evaluation.baselines import RELATION_MEAN
from focuse.reports.gathered import Gathered, Reported, graph_name, title_of
from focuse.reports.page import heading, isolated, paragraph, percent
from focuse.reports.weights import best_weights


def head(run: Reported, figures: Gathered) -> str:
    """Title, summary and the figures that somebody asks for first."""
    said = " ".join([*_trained(run), *_ranked(run, figures), *_weighed(run, figures), *_probable(figures)])
    shown = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(beside)}</small></dd></div>"
        for name, value, beside in tiles(run, figures)
    )
    return "".join([
        "<header>", paragraph("focuse report", "over"), heading(title_of(run), 1), paragraph(said, "lead"),
        f'<dl class="tiles">{shown}</dl>' if shown else "", "</header>\n",
    ])  # fmt: skip


def contents(body: str) -> str:
    """Links to every part of the page that can be linked to."""
    found = re.findall(r'<h2 id="([^"]+)">(.*?)</h2>', body)
    items = "".join(f'<li><a href="#{place}">{escape(unescape(text))}</a></li>' for place, text in found)
    return f'<nav aria-label="Contents"><ol>{items}</ol></nav>\n' if items else ""


def _trained(run: Reported) -> list[str]:
    graph, settings = run.graph, run.settings
    source = isolated(graph_name(graph.source) or "a graph")
    kind = "weighted facts" if graph.weighted else "facts without weights"
    relations = f"{len(graph.relations):,} relation{'s' if len(graph.relations) != 1 else ''}"
    return [
        f"The model {settings.model} of dimension {settings.dim} was trained on {source}: {len(graph):,} {kind} about "
        f"{len(graph.entities):,} entities by {relations}."
    ]


def _ranked(run: Reported, figures: Gathered) -> list[str]:
    found = figures.evaluation
    if found is None:
        refused = figures.notes and len(run.splits.test.graph)
        return [
            "It could not be judged by its test; a note says why." if refused else "There is no test to judge it by."
        ]
    lines = [
        f"On {found.all.n:,} facts that it has not seen, the right entity is the first suggestion in "
        f"{percent(found.all.hits[1])} of the questions and among the first ten in {percent(found.all.hits[10])} (MRR "
        f"{found.all.mrr:.3f})."
    ]
    if figures.baselines:
        name, best = max(figures.baselines.items(), key=lambda item: item[1].all.mrr)
        verb = "more" if found.all.mrr > best.all.mrr else "not more"
        lines.append(f"That is {verb} than the best ranking without a model reaches ({name}: {best.all.mrr:.3f}).")
    if run.graph.weighted and math.isfinite(found.delta_mrr):
        way = "before" if found.delta_mrr > 0 else "behind"
        lines.append(
            f"The heaviest tenth stands {way} the lightest: an MRR of {found.top.mrr:.3f} to {found.bottom.mrr:.3f}."
        )
    return lines


def _weighed(run: Reported, figures: Gathered) -> list[str]:
    found = figures.weights
    best = None if found is None or not run.graph.weighted else best_weights(found)
    if found is None or best is None:
        return []
    mean = found.table.rows[RELATION_MEAN]["positives"].errors.mae
    lines = [f"Predicted weights are off by {best[1]:.3g} on average, the relation's mean by {mean:.3g}."]
    if found.intervals is not None:
        held = next(iter(found.intervals.rows.values())).coverage
        lines.append(
            f"Intervals that promise {percent(found.intervals.coverage)} hold {percent(held, 1)} of the weights."
        )
    return lines


def _probable(figures: Gathered) -> list[str]:
    if figures.probabilities is None:
        return []
    last = list(figures.probabilities.rows.values())[-1]
    return [f"Probabilities of links are off by {percent(last.ece, 1)} on average (ECE)."]


def tiles(run: Reported, figures: Gathered) -> list[tuple[str, str, str]]:
    """(name, value, what stands beside it) of the main figures that the run has."""
    found, shown = figures.evaluation, []
    if found is not None:
        best = max((one.all.mrr for one in figures.baselines.values()), default=math.nan)
        beside = f"without a model {best:.3f}" if math.isfinite(best) else ""
        shown += [("MRR", f"{found.all.mrr:.3f}", beside), ("Hits@10", f"{found.all.hits[10]:.3f}", "")]
        if run.graph.weighted and math.isfinite(found.delta_mrr):
            tenths = f"top 10 % {found.top.mrr:.3f}, bottom {found.bottom.mrr:.3f}"
            shown.append(("ΔMRR", f"{found.delta_mrr:.3f}".replace("-", "−"), tenths))
    weights = figures.weights
    best_one = None if weights is None or not run.graph.weighted else best_weights(weights)
    if weights is not None and best_one is not None:
        mean = weights.table.rows[RELATION_MEAN]["positives"].errors.mae
        shown.append(("Weights off by", f"{best_one[1]:.3g}", f"relation mean {mean:.3g}"))
        if weights.intervals is not None:
            held = next(iter(weights.intervals.rows.values())).coverage
            shown.append(
                (f"{percent(weights.intervals.coverage)} intervals", percent(held, 1), "of test's weights held")
            )
    if figures.probabilities is not None:
        last = list(figures.probabilities.rows.values())[-1]
        shown.append(("Brier score", f"{last.brier:.3f}", "of probabilities; a coin has 0.25"))
    return shown
