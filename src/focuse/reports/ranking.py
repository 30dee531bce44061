"""Sections on ranks and on the order of facts by weight."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from focuse.evaluation.evaluate import Evaluation
from focuse.evaluation.metrics import HITS
from focuse.evaluation.order import number
from focuse.reports.gathered import Gathered, Reported
from focuse.reports.page import heading, paragraph, picture, table
from focuse.reports.violins import violins

RANKING = "Ranking the test triples"
SCORES = "Scores of strong and weak links"
ABOUT_SCORES = (
    "The further apart the heaviest and the lightest tenth, the better a model tells them apart. "
    "Dotted lines are quartiles, ΔM is the distance of the medians."
)


def ranking(run: Reported, figures: Gathered) -> str:
    """MRR and Hits of all, of the heaviest and of the lightest tenth."""
    found = figures.evaluation
    if found is None:
        return ""
    notes = "".join(paragraph(note) for note in found.notes)
    return heading(RANKING) + ranking_table({run.settings.model: found}) + notes


def ranking_table(evaluations: Mapping[str, Evaluation]) -> str:
    """Three rows for each named evaluation."""
    heads = ["", "part", "n", "MR", "MRR", *(f"Hits@{k}" for k in HITS), "ΔMRR", "ΔM"]
    rows = []
    for name, evaluation in evaluations.items():
        for part, label in (("all", "all"), ("top", "top 10 %"), ("bottom", "bottom 10 %")):
            row = getattr(evaluation, part)
            numbers = [f"{row.n:,}", f"{row.mr:.1f}", f"{row.mrr:.3f}", *(f"{row.hits[k]:.3f}" for k in HITS)]
            deltas = [f"{evaluation.delta_mrr:.3f}", f"{evaluation.delta_median:.3f}"]
            numbers += deltas if part == "all" else ["", ""]
            cells = "".join(f'<td class="n">{cell.replace("nan", "–")}</td>' for cell in numbers)
            rows.append(f"<tr><th>{escape(name) if part == 'all' else ''}</th><td>{label}</td>{cells}</tr>")
    return f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{''.join(rows)}</table>"


def order(run: Reported, figures: Gathered) -> str:
    """Whether heavier facts score higher, and stand in front."""
    found = figures.evaluation.order if figures.evaluation is not None else None
    if found is None or not found.every.pairs:  # all facts weigh the same
        return ""
    pairs = {"one relation": found.relation, "one query": found.query, "the whole graph": found.every}
    gains = {"w": "linear", "2^w − 1": "exponential"}
    text = (
        "Concordance: of two test facts with different weights, how often the heavier one is scored higher "
        "(0.5 is chance, 1 the order of the weights)."
    )
    listed = "nDCG among the facts of one query, beside what random order gives (1 is the order of the weights)."
    return "".join(
        [
            heading("Does the order follow the weights?"),
            paragraph(text),
            table(
                ["pairs within", "concordance", "pairs"],
                [[name, number(one.share), f"{one.pairs:,}"] for name, one in pairs.items()],
            ),
            paragraph(listed),
            table(
                ["gain", "nDCG", "chance", "queries"],
                [
                    [
                        name,
                        number(getattr(found.ndcg, key)),
                        number(getattr(found.chance, key)),
                        f"{found.ndcg.queries:,}",
                    ]
                    for name, key in gains.items()
                ],
            ),
        ]
    )


def suggestions(run: Reported, figures: Gathered) -> str:
    """What the first suggestions hold, counted by weight."""
    found = figures.evaluation.suggestions if figures.evaluation is not None else None
    if found is None or not found.queries:
        return ""
    text = (
        f"Each of the {found.queries:,} questions (head, relation, ?) and (?, relation, tail) that test asks gets a "
        "list of what is not known from train and validation. What its first n entries hold, on average:"
    )
    heads = ["first n", "weight / n", "of the possible", "precision", "mean weight found"]
    rows = [
        [str(one.n), *(number(value) for value in (one.weight, one.possible, one.precision, one.mean_weight))]
        for one in found.first
    ]
    return heading("What the first suggestions hold") + paragraph(text) + table(heads, rows)


def scores(run: Reported, figures: Gathered) -> str:
    """Violins of the strong and the weak."""
    found = figures.evaluation
    if found is None or not found.top_share.any():
        return ""
    return scores_of({run.settings.model: found})


def scores_of(evaluations: Mapping[str, Evaluation]) -> str:
    return heading(SCORES) + paragraph(ABOUT_SCORES) + picture(violins(evaluations), "violins")
