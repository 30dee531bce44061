"""Sections on predicted weights, their intervals, and the probability of a link."""

from __future__ import annotations

import math

from focuse.evaluation.metrics import format_number
from focuse.evaluation.weight_evaluation import PROTOCOLS, WeightEvaluation, WeightTable
from focuse.evaluation.weight_metrics import Coverage, interval_coverage
from focuse.report.charts import SERIES, bars, legend, promise
from focuse.report.gathered import Gathered, Reported
from focuse.report.page import bullets, figure, heading, paragraph, percent, table

PROMISED = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # shares that intervals are asked to hold
FEWEST_STRONG = 0.01  # share of facts above the threshold, below which telling them apart says nothing
RELIABILITY = (
    "Left, the share of facts among triples of about one probability, in tenths; right, how many triples there are of "
    "each. An average over the ten distances from the diagonal, by these numbers, is the calibration error (ECE)."
)


def weights(run: Reported, figures: Gathered) -> str:
    """Errors of predicted weights by protocol, the trivial rows below, and nDCG among all entities."""
    found = figures.weights
    if found is None or not run.graph.weighted:
        return ""
    parts = [
        heading("Predicted weights"),
        paragraph("What the facts of test weigh, predicted; rows below the model's are guesses without a model."),
        bullets(verdicts(found)),
    ]
    for protocol in found.table.protocols:
        cells = found.table.cells(protocol)
        told, few = _strong(found.table, protocol)
        heads = [head for head in next(iter(cells.values())) if not (few and head.startswith(("accuracy", "F1")))]
        rows = [[name, *(row.get(head, "–") for head in heads)] for name, row in cells.items()]
        parts.append(table(["", *heads], rows, caption=_sentence(PROTOCOLS[protocol]) + told))
    gains = [[name, format_number(gain.linear), format_number(gain.exponential)] for name, gain in found.ndcg.items()]
    parts.append(table(["", "linear", "exponential"], gains, caption="nDCG: every known tail among all entities"))
    return "".join([*parts, *(paragraph(_sentence(note), "note") for note in found.table.notes)])


def _strong(found: WeightTable, protocol: str) -> tuple[str, bool]:
    """What counts as a strong fact in a table that tells them apart, and whether too few are for that to say much."""
    row = found.rows[found.baselines[0]]
    part = row[protocol].at_threshold
    if part is None or found.threshold is None:
        return "", False
    facts = row["positives"].errors.n if "positives" in row else part.n
    few = part.strong < FEWEST_STRONG * facts
    told = f"; a fact is strong above a weight of {found.threshold:g}, as {part.strong:,} of {facts:,} are"
    return told + (": too few to tell apart" if few else ""), few


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def best_weights(found: WeightEvaluation) -> tuple[str, float] | None:
    """The predictor of the model with the least mean absolute error on facts, and that error."""
    rows = {
        name: row["positives"].errors.mae
        for name, row in found.table.rows.items()
        if name not in found.table.baselines and "positives" in row
    }
    known = {name: error for name, error in rows.items() if math.isfinite(error)}
    return min(known.items(), key=lambda item: item[1]) if known else None


def verdicts(found: WeightEvaluation) -> list[str]:
    """Whether the model's best guess is nearer than each trivial one, a sentence each."""
    best, lines = best_weights(found), []
    for name in found.table.baselines:
        if best is None or "positives" not in found.table.rows[name]:
            continue
        error = found.table.rows[name]["positives"].errors.mae
        verb = "beats" if best[1] < error else "does not beat"
        lines.append(f"{best[0]} {verb} the {name}: off by {best[1]:.4g} on average to {error:.4g}.")
    return lines


def intervals(run: Reported, figures: Gathered) -> str:
    """What share of test's weights the intervals hold, how wide they are, and the same for other promises."""
    found = None if figures.weights is None or not run.graph.weighted else figures.weights.intervals
    if found is None:
        return ""
    heads = ["coverage", "mean width", "median width"]
    rows = [[name, *_measured(row)] for name, row in found.rows.items()]
    text = (
        f"Intervals that promise to hold {percent(found.coverage)} of the weights. Their width was learnt from "
        f"{found.conformal_rows:,} validation triples that nothing else was fitted to; what they hold is measured on "
        "test. Below the first row, intervals of one width for all."
    )
    levels = promises(run, figures)
    figures.data["coverage_by_promise"] = [{"promised": promised, "held": held} for promised, held in levels]
    drawn = promise("Promised and held", {"held": levels}, "promised share", "share of test that they hold")
    told = "Share of test's weights that lie within the intervals, by what is promised. On the diagonal it is kept."
    caption = f"Intervals of {percent(found.coverage)}, measured on test"
    return "".join([
        heading("Intervals"), paragraph(text), table(["", *heads], rows, caption=caption), figure([drawn], told),
    ])  # fmt: skip


def promises(run: Reported, figures: Gathered) -> list[tuple[float, float]]:
    """(promised, held) for several promises, on test."""
    if figures.test is None:
        return []
    predictor, test = run.weight_predictor(full=True), figures.test.graph
    if predictor.estimator is None or not len(predictor.estimator.conformal):
        return []
    found, estimates = [], predictor.estimator(test.head, test.relation, test.tail)
    for promised in PROMISED:
        held = interval_coverage(*predictor.interval(estimates, test.relation, promised), test.weight).coverage
        found.append((promised, held))
    return [(promised, held) for promised, held in found if math.isfinite(held)]


def _measured(row: Coverage) -> list[str]:
    return [format_number(row.coverage), f"{row.width:.4g}", f"{row.median_width:.4g}"]


def columns(run: Reported, figures: Gathered) -> str:
    """Of several weight columns, the errors of each on the facts of test that have it, in its own units."""
    parts = []
    for name, found in figures.columns.items():
        cells = found.table.cells("positives")
        heads = [*next(iter(cells.values()))]
        rows = [[kind, *(row.get(head, "–") for head in heads)] for kind, row in cells.items()]
        parts += [heading(f"Column {name}", 3), table(["", *heads], rows, caption=f"Errors of {name} on facts of test")]
        if found.intervals is not None:
            held = next(iter(found.intervals.rows.values()))
            parts.append(
                paragraph(
                    f"Its {percent(found.intervals.coverage)} intervals hold {percent(held.coverage, 1)} of test."
                )
            )
    return "".join([heading("Weight columns, each by itself"), *parts]) if parts else ""


def probabilities(run: Reported, figures: Gathered) -> str:
    """How far the probability of a link can be trusted, before and after calibration."""
    found = figures.probabilities
    if found is None:
        return ""
    rows = [[name, format_number(row.brier), format_number(row.ece)] for name, row in found.rows.items()]
    text = (
        f"Judged on {found.positives:,} test triples and {found.negatives:,} false ones. On the diagonal, of "
        "the links that get a probability of .7 seven in ten are facts."
    )
    lines = {
        name: [(one.predicted, one.truth) for one in row.reliability.bins if one.count]
        for name, row in found.rows.items()
    }
    drawn = promise("Reliability", lines, "predicted probability", "share of facts")
    counts = [one.count for one in list(found.rows.values())[-1].reliability.bins]
    parts = [
        heading("Probability of a link"),
        paragraph(text),
        table(["", "Brier", "ECE"], rows, caption="Errors of the probability"),
        legend(dict(zip(SERIES, lines, strict=False))),
        figure(
            [drawn, bars("Triples by probability, after", counts, 0.0, 1.0, "predicted probability", 320)], RELIABILITY
        ),
    ]
    return "".join([*parts, *(paragraph(_sentence(note), "note") for note in found.notes)])
