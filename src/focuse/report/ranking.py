"""Sections on ranks and on the order of facts by weight."""

from __future__ import annotations

from collections.abc import Mapping

from focuse.evaluation.evaluate import Evaluation
from focuse.evaluation.metrics import HITS, format_number
from focuse.report.charts import violin_chart
from focuse.report.gathered import Gathered, Reported
from focuse.report.page import bullets, figure, grouped, heading, paragraph, picture, table
from focuse.report.violins import violins

RANKING = "Ranking the test triples"
SCORES = "Scores of strong and weak links"
ABOUT_SCORES = (
    "The further apart the heaviest and the lightest tenth, the better a model tells them apart. "
    "Dotted lines are quartiles, ΔM is the distance of the medians."
)
ABOUT_TRIVIAL = (
    "Frequency takes whoever stood at that place of the relation most often in train. The other first takes those who "
    "have an edge back by the same relation, then those with any edge. A model that does not beat them learnt little."
)


def ranking(run: Reported, figures: Gathered) -> str:
    """MRR and Hits of all, of the heaviest and of the lightest tenth, beside rankings without a model."""
    found = figures.evaluation
    if found is None:
        return ""
    name = run.settings.model
    text = "Each test triple asks for its tail and for its head; its rank is the place of the right one among all " + (
        f"{len(run.graph.entities):,} entities, known facts left out. ΔMRR is how far the heaviest tenth stands before "
        "the lightest."
    )
    if "candidates" in found.settings:
        text = (
            "Each test triple asks for its tail and for its head; its rank is the place of the right one in a sample."
        )
    beside = [heading("Beside rankings without a model", 3), paragraph(ABOUT_TRIVIAL), bullets(verdicts(name, figures))]
    told = ranking_table({name: found, **figures.baselines}, "Ranks of the test triples")
    return "".join([
        heading(RANKING), paragraph(text), told,
        *(beside if figures.baselines else []), *(paragraph(note, "note") for note in found.notes),
        paragraph(", ".join(f"{key} {value}" for key, value in found.settings.items()), "note"),
    ])  # fmt: skip


def verdicts(name: str, figures: Gathered) -> list[str]:
    """Whether the model ranks better than each ranking without one, a sentence each."""
    found, lines = figures.evaluation, []
    if found is None:
        return []
    for other, row in figures.baselines.items():
        verb = "beats" if found.all.mrr > row.all.mrr else "does not beat"
        lines.append(f"{name} {verb} {other}: an MRR of {found.all.mrr:.3f} to {row.all.mrr:.3f}.")
    return lines


def ranking_table(evaluations: Mapping[str, Evaluation], caption: str = "") -> str:
    """Three rows for each named evaluation."""
    heads = ["", "part", "n", "MR", "MRR", *(f"Hits@{k}" for k in HITS), "ΔMRR", "ΔM"]
    rows = []
    for name, evaluation in evaluations.items():
        for part, label in (("all", "all"), ("top", "top 10 %"), ("bottom", "bottom 10 %")):
            row = getattr(evaluation, part)
            numbers = [f"{row.n:,}", f"{row.mr:.1f}", f"{row.mrr:.3f}", *(f"{row.hits[k]:.3f}" for k in HITS)]
            deltas = [f"{evaluation.delta_mrr:.3f}", f"{evaluation.delta_median:.3f}"]
            numbers += deltas if part == "all" else ["", ""]
            rows.append([name, label, *(cell.replace("nan", "–") for cell in numbers)])
    return table(heads, grouped(rows), words=2, caption=caption)


def order(run: Reported, figures: Gathered) -> str:
    """Whether heavier facts score higher, and stand in front."""
    found = figures.evaluation.order if figures.evaluation is not None else None
    if found is None or not found.every.pairs:  # all facts weigh the same
        return ""
    pairs = {"one relation": found.relation, "one query": found.query, "the whole graph": found.every}
    text = (
        "Concordance: of two test facts with different weights, how often the heavier one is scored higher "
        "(0.5 is chance, 1 the order of the weights)."
    )
    return "".join(
        [
            heading("Does the order follow the weights?"),
            paragraph(text),
            table(
                ["pairs within", "concordance", "pairs"],
                [[name, format_number(one.share), f"{one.pairs:,}"] for name, one in pairs.items()],
                caption="Concordance of scores and weights",
            ),
        ]
    )


def suggestions(run: Reported, figures: Gathered) -> str:
    """What the first suggestions hold, counted by weight, beside those of rankings without a model."""
    found = figures.evaluation.suggestions if figures.evaluation is not None else None
    if found is None or not found.queries:
        return ""
    text = (
        f"Each of the {found.queries:,} questions (head, relation, ?) and (?, relation, tail) that test asks gets a "
        "list of what is not known from train and validation. What its first n entries hold, on average:"
    )
    heads = ["", "first n", "weight / n", "of the possible", "precision", "mean weight found"]
    every = {run.settings.model: found, **{name: one.suggestions for name, one in figures.baselines.items()}}
    rows = [
        [
            name,
            str(one.n),
            *(format_number(value) for value in (one.weight, one.possible, one.precision, one.mean_weight)),
        ]
        for name, listed in every.items()
        if listed is not None
        for one in listed.first
    ]
    told = table(heads, grouped(rows), caption="What the first suggestions hold, on average")
    return heading("What the first suggestions hold") + paragraph(text) + told


def scores(run: Reported, figures: Gathered) -> str:
    """Violins of the strong and the weak."""
    found = figures.evaluation
    if found is None or not found.top_share.any():
        return ""
    return heading(SCORES) + figure([violin_chart(run.settings.model, found)], ABOUT_SCORES)


def scores_of(evaluations: Mapping[str, Evaluation]) -> str:
    return heading(SCORES) + paragraph(ABOUT_SCORES) + picture(violins(evaluations), "violins")
