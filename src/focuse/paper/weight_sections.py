"""The part of a reproduction's report that is about predicted weights: numbers into words and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from focuse.evaluation.weight_evaluation import PROTOCOLS
from focuse.evaluation.weight_metrics import THRESHOLDS
from focuse.paper.cells import TITLES, UKGE, title
from focuse.paper.document import Block, Grid, Heading, Picture, Points, Text
from focuse.paper.reliability import PROTOCOL
from focuse.paper.sections import NONE, decimal, whole
from focuse.paper.tables import Entry, Table
from focuse.paper.verdict import REACH, reaches
from focuse.paper.weights import ERROR_REACH, GAIN_REACH, NDCG, Reached, WeightPart, WeightRow

HEADS = {
    "mse": "MSE",
    "mae": "MAE",
    "spearman": "Spearman",
    "ece": "ECE",
    "accuracy": "accuracy",
    "f1": "F1",
    "fitted_accuracy": "accuracy, fitted",
    "fitted_f1": "F1, fitted",
    "linear": "linear gain",
    "exponential": "exponential gain",
}
EXPLAINED = (
    "How far predicted weights lie from the true ones. UKGE predicts a weight by itself; the rows “isotonic” calibrate "
    "a model's score by a curve a relation, fitted on validation. Figures of different protocols do not compare, so "
    "each has its table. A triple is strong if it is a fact above the threshold ({thresholds}); F1 calls it strong if "
    "its prediction is above it, “fitted” by a logistic regression fitted on validation. “published” is what others "
    "report under the same protocol; the rows below it have no model."
)
REACHING = (
    "UKGE against the published figures: MRR and ΔMRR of the FocusE paper (at most {reach} below), MSE and MAE of "
    "UKGE's own (at most {worse} % above), nDCG (at most {gain} below). PPI5K's UKGE rect failed in the FocusE paper."
)


def weight_section(
    parts: Sequence[WeightPart], found: Sequence[Reached], table: Table, pictures: Mapping[str, str]
) -> list[Block]:
    """Everything about weights; `table` is table 4 in its full form, `pictures` are the reliability curves by file."""
    thresholds = ", ".join(f"{title(data)} {decimal(value, 2)}" for data, value in THRESHOLDS.items())
    blocks: list[Block] = [Heading(2, "Predicted weights"), Text(EXPLAINED.format(thresholds=thresholds))]
    blocks += _reaching(found, table)
    for part in parts:
        heading = "nDCG" if part.protocol == NDCG else PROTOCOLS[part.protocol]
        unit = "queries" if part.protocol == NDCG else "triples"
        blocks += [Heading(3, f"{title(part.data)}, {heading} ({part.n:,} {unit})"), _grid(part)]
        file = f"reliability-{part.data}.svg"
        if part.protocol == PROTOCOL and file in pictures:
            blocks.append(Picture(file, pictures[file], f"{title(part.data)}: reliability on UKGE's test, first seed"))
    return blocks


def _grid(part: WeightPart) -> Grid:
    names = list(dict.fromkeys(name for row in part.rows for name in row.entries))
    compared = [name for name in names if any(row.entries.get(name, Entry()).paper is not None for row in part.rows)]
    top = [head for name in names for head in [HEADS[name], *(["published"] if name in compared else [])]]
    return Grid(["", *top], [_line(row, names, compared) for row in part.rows])


def _line(row: WeightRow, names: Sequence[str], compared: Sequence[str]) -> list[str]:
    cells = [row.name]
    for name in names:
        one = row.entries.get(name, Entry())
        cells.append(whole(one, 4))
        if name in compared:
            cells.append(decimal(one.paper, 4))
    return cells


def _reaching(found: Sequence[Reached], table: Table) -> list[Block]:
    """One line a data set and form of UKGE: does it reach what was published?"""
    figures = list(dict.fromkeys(one.figure for one in found))
    rows, yes, known = [], 0, 0
    for data in table.sizes:
        for model in UKGE:
            marks = [_ranked(table, data, model, name) for name in ("top_mrr", "delta_mrr")]
            for figure in figures:
                one = next((r for r in found if (r.data, r.model, r.figure) == (data, TITLES[model], figure)), None)
                marks.append(None if one is None else (one.ours, one.paper, one.reaches))
            if any(mark is not None for mark in marks):
                rows.append([title(data), TITLES[model], *(_mark(mark) for mark in marks)])
            answers = [mark[2] for mark in marks if mark is not None]
            yes, known = yes + sum(answers), known + len(answers)
    if not rows:
        return []
    words = {"with_negatives": "UKGE's test", "ndcg": "nDCG"}
    heads = [f"{words.get(part, part)} {HEADS[name]}" for part, name in (figure.split() for figure in figures)]
    text = REACHING.format(reach=decimal(REACH, 2), worse=round(100 * (ERROR_REACH - 1)), gain=decimal(GAIN_REACH, 2))
    return [
        Text(text),
        Points((f"{yes} of {known} figures reach.",)),
        Grid(["data", "model", "top MRR", "ΔMRR", *heads], rows, words=2),
    ]


Mark = tuple[float, float, bool]


def _ranked(table: Table, data: str, model: str, name: str) -> Mark | None:
    row = next((row for row in table.of(data) if row.model == model), None)
    one = Entry() if row is None else row.entries[name]
    fine = reaches(one.difference)
    return None if fine is None or one.ours is None or one.paper is None else (one.ours, one.paper, fine)


def _mark(mark: Mark | None) -> str:
    """'.7940 (.61) yes'."""
    if mark is None:
        return NONE
    ours, paper, fine = mark
    digits = max(2, len(f"{paper:.4f}".rstrip("0")) - 2)  # as many as were published
    return f"{decimal(ours, 4)} ({decimal(paper, digits)}) {'yes' if fine else 'no'}"
