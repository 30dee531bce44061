"""The sections of a reproduction's report: numbers into words and columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

from focuse.paper.ablations import ABLATED, Variant
from focuse.paper.bootstrap import LEVEL, RESAMPLES, Interval
from focuse.paper.cells import TITLES, title
from focuse.paper.document import Block, Grid, Heading, Picture, Points, Text
from focuse.paper.figures import Curves, Violins
from focuse.paper.tables import BOUNDED, LEAST_BASE, Entry, Row, Table, paper_figures
from focuse.paper.verdict import NARROW, REACH, Pair, Verdict

NONE = "–"
ONE_LIST = "both sides as one list"
APPENDIX = {"ukge": "UKGE's own settings"}
OF_THE_PAPER = "settings of the paper's appendix"
HEADS = {"top_mr": "MR", "top_mrr": "MRR", "top_hits@1": "Hits@1", "top_hits@10": "Hits@10"}
CAPTIONS = {
    2: "Table 2: MRR of the bottom 10 % (lower is better)",
    3: "Table 3: predicting the top 10 %",
    4: "Table 4: telling the top from the bottom 10 %",
}


def decimal(value: float | None, places: int = 3, sign: bool = False) -> str:
    """'.970', '−.002', '+.010', '–' for nothing.

    >>> decimal(0.97), decimal(-0.0021), decimal(0.01, sign=True), decimal(None), decimal(1)
    ('.970', '−.002', '+.010', '–', '1.000')
    """
    if value is None or math.isnan(value):
        return NONE
    digits = f"{abs(value):,.{places}f}"
    zero = not digits.strip("0.,")
    mark = "" if zero else "−" if value < 0 else "+" if sign else ""
    return mark + (digits[1:] if digits.startswith("0.") else digits)


def model_name(model: str, kind: str) -> str:
    """'FocusE ComplEx', 'UKGE rect'."""
    return ("FocusE " if kind == "focuse" else "") + TITLES[model]


def whole(entry: Entry, places: int = 3) -> str:
    """Ours: '.951', with several seeds '.951 ± .003'."""
    spread = "" if entry.spread is None else f" ± {decimal(entry.spread, places)}"
    return decimal(entry.ours, places) + spread


def paper_figure(column: str, value: float | None) -> str:
    """As published: two digits, whole mean ranks, and '<.01' where the paper says so."""
    if value is None:
        return NONE
    if column == "top_mr":
        return f"{value:,.0f}"
    return "<.01" if value == LEAST_BASE else decimal(value, 2)


def percent(value: float | None) -> str:
    """'+417 %'."""
    return NONE if value is None else f"{decimal(round(value), 0, sign=True)} %"


def bounds(interval: Interval | None, sign: bool = False) -> str:
    """'[.940, .962]'."""
    return "" if interval is None else f"[{decimal(interval.low, sign=sign)}, {decimal(interval.high, sign=sign)}]"


def columns(row: Row, names: Sequence[str], paper: bool) -> list[str]:
    """For each figure ours, and where there is a paper its figure and the difference."""
    cells = []
    for name in names:
        one, places = row.entries[name], 1 if name == "top_mr" else 3
        cells.append(whole(one, places))
        if paper:
            cells += [paper_figure(name, one.paper), decimal(one.difference, places, sign=True)]
    return cells


def heads(names: Sequence[str], words: dict[str, str], paper: bool) -> list[str]:
    return [head for name in names for head in [words[name], *(["paper", "diff."] if paper else [])]]


def seeds_of(row: Row) -> str:
    return str(max(entry.seeds for entry in row.entries.values()) or NONE)


def _in_paper(data: str) -> bool:
    return bool(paper_figures(data, "complex", "plain"))


def caption(table: Table) -> Heading:
    return Heading(3, CAPTIONS[table.number] + (", without leaked triples" if table.form == "clean" else ""))


def table_2(table: Table) -> list[Block]:
    paper = table.form == "full"
    names = {"bottom_mrr": "bottom MRR"}
    rows = []
    for data in table.sizes:
        for place, row in enumerate(table.of(data)):
            joint = decimal(row.entries["bottom_mrr_joint"].ours)
            first = [title(data) if place == 0 else "", model_name(row.model, row.kind)]
            rows.append([*first, *columns(row, ["bottom_mrr"], paper), joint, seeds_of(row)])
    top = ["data", "model", *heads(["bottom_mrr"], names, paper), ONE_LIST, "seeds"]
    return [caption(table), Grid(top, rows, words=2)]


def table_3(table: Table) -> list[Block]:
    blocks: list[Block] = [caption(table)]
    for data in table.sizes:
        paper = table.form == "full" and _in_paper(data)
        rows = []
        for row in table.of(data):
            joint = decimal(row.entries["top_mrr_joint"].ours)
            rows.append([model_name(row.model, row.kind), *columns(row, list(HEADS), paper), joint, seeds_of(row)])
        top = [title(data), *heads(list(HEADS), HEADS, paper), f"MRR, {ONE_LIST}", "seeds"]
        blocks.append(Grid(top, rows))
    return blocks


def table_4(table: Table) -> list[Block]:
    words = {"top_mrr": "top MRR", "bottom_mrr": "bottom MRR", "delta_mrr": "ΔMRR"}
    explained = Text(
        "ΔMRR is top − bottom. The gain is what FocusE adds to the plain model's ΔMRR, in % of it, the base being at "
        f"least {decimal(LEAST_BASE, 2)}, as behind the paper's own gains over “<.01”."
    )
    blocks: list[Block] = [caption(table), *([explained] if table.form == "full" else [])]
    for data in table.sizes:
        paper = table.form == "full" and _in_paper(data)
        rows = []
        for row in table.of(data):
            gain, joint = row.entries["gain"], row.entries["delta_mrr_joint"]
            gains = [percent(gain.ours), *([percent(gain.paper)] if paper else [])]
            name = model_name(row.model, row.kind)
            rows.append([name, *columns(row, list(words), paper), *gains, decimal(joint.ours), seeds_of(row)])
        top = [title(data), *heads(list(words), words, paper), "gain", *(["paper"] if paper else [])]
        blocks.append(Grid([*top, f"ΔMRR, {ONE_LIST}", "seeds"], rows))
    return blocks + intervals(table)


def intervals(table: Table) -> list[Block]:
    """The bootstrap's part of table 4: FocusE − plain, and each model by itself."""
    words = ["top MRR", "bottom MRR", "ΔMRR"]
    changes, own = [], []
    for row in table.rows:
        first = [title(row.data), model_name(row.model, row.kind)]
        entries = [row.entries[name] for name in BOUNDED.values()]
        if any(entry.ours is not None for entry in entries):
            own.append([*first, *(f"{decimal(entry.ours)} {bounds(entry.interval)}".rstrip() for entry in entries)])
        if row.changes:
            found = [row.changes.get(name) for name in BOUNDED.values()]
            texts = [f"{decimal(c.value, sign=True)} {bounds(c.interval, True)}".rstrip() if c else NONE for c in found]
            changes.append([title(row.data), TITLES[row.model], *texts])
    level = f"{100 * LEVEL:.0f} %"
    blocks: list[Block] = []
    if changes:
        blocks += [
            Text(f"FocusE − plain, with {level} intervals ({RESAMPLES:,} resamples of the test triples, paired):"),
            Grid(["data", "model", *words], changes, words=2),
        ]
    if own:
        blocks += [
            Text(f"Each model by itself, with {level} intervals:"),
            Grid(["data", "model", *words], own, words=2),
        ]
    return blocks


def sizes(table: Table) -> Block:
    """How many triples a table is about."""
    lines = []
    for data, size in table.sizes.items():
        share = f"{size.n:,} of {size.of:,}" if table.form == "clean" else f"{size.n:,}"
        lines.append(f"{title(data)}: {share} test triples, {size.tenth:,} in each tenth")
    return Points(tuple(lines))


def verdict_section(found: Verdict) -> list[Block]:
    counts = found.counts
    widens, surely, narrows = (counts[name] for name in ("widens", "surely_widens", "narrows"))
    top, delta = counts["reaches_top"], counts["reaches_delta"]
    points = ["No pair of a plain cell and one with FocusE is finished yet."]
    if widens.of:
        points = [
            f"FocusE widens ΔMRR in {widens.yes} of {widens.of} pairs of data set and model; in {surely.yes} the whole "
            f"{100 * LEVEL:.0f} % interval lies above 0. It narrows ΔMRR by more than {decimal(NARROW, 2)} "
            f"in {narrows.yes}."
        ]
    if top.of:
        points.append(
            f"With FocusE, the top-10 % MRR reaches the paper's (at most {decimal(REACH, 2)} below it) in {top.yes} of "
            f"{top.of} cells, ΔMRR in {delta.yes} of {delta.of}."
        )
    strangers = sorted({title(pair.data) for pair in found.pairs if not _in_paper(pair.data)})
    if strangers:
        points.append(f"Not in the paper, so with nothing to reach: {', '.join(strangers)}.")
    rows = []
    for pair in found.pairs:
        reached = [{None: NONE, True: "yes", False: "no"}[answer] for answer in (pair.reaches_top, pair.reaches_delta)]
        change = f"{decimal(pair.change, sign=True)} {bounds(pair.interval, True)}".rstrip()
        rows.append([title(pair.data), TITLES[pair.model], *reached, change, _word(pair)])
    top_row = ["data", "model", "top MRR reaches", "ΔMRR reaches", "ΔMRR, FocusE − plain", "gap"]
    return [
        Heading(2, "Verdict"),
        Points(tuple(points or ["No pair of cells is finished yet."])),
        Grid(top_row, rows, 2),
    ]


def _word(pair: Pair) -> str:
    if pair.change is None:
        return NONE
    return "narrower" if pair.narrows else "wider" if pair.widens else "about as wide"


def figure_3(file: str, svg: str, curves: Curves) -> list[Block]:
    decays = sorted({decay for points in curves.values() for decay in points})
    rows = [[str(decay), *(whole(points.get(decay, Entry())) for points in curves.values())] for decay in decays]
    best = []
    for model, points in curves.items():
        known = {decay: one.ours for decay, one in points.items() if one.ours is not None}
        if known:
            place = max(known, key=lambda decay: known[decay])
            best.append(f"{TITLES[model]} at λ = {place} ({decimal(known[place])})")
    numbers = {one.seeds for points in curves.values() for one in points.values() if one.seeds}
    seeds = str(max(numbers)) if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)}"
    drawn = "one seed" if seeds == "1" else f"mean over {seeds} seeds, the band is one standard deviation each way"
    return [
        Heading(2, "Figure 3: the decay λ"),
        Picture(file, svg, "NL27K: MRR of the top 10 % against the decay λ, a line a model"),
        Text(f"Drawn: {drawn}. Highest: {', '.join(best) or NONE}. λ = 0 means β = 0 from the start."),
        Grid(["λ", *(TITLES[model] for model in curves)], rows),
    ]


def figure_4(pictures: Sequence[tuple[str, Violins]]) -> list[Block]:
    blocks: list[Block] = [
        Heading(2, "Figure 4: scores of the top and the bottom 10 %"),
        Text(
            "Plain ComplEx beside ComplEx with FocusE; dotted lines are quartiles. ΔM is the distance of the median "
            "scores; scores of different models have different scales."
        ),
    ]
    rows = []
    for file, drawn in pictures:
        seeds = ", ".join(sorted({f"seed {seed}" for seed in drawn.seeds.values()}))
        blocks.append(
            Picture(file, drawn.svg, f"{title(drawn.data)}: scores of ComplEx, plain and with FocusE ({seeds})")
        )
        rows.append(
            [title(drawn.data), *(whole(drawn.delta_median.get(kind, Entry())) for kind in ("plain", "focuse"))]
        )
    return [*blocks, Grid(["ΔM", "ComplEx", "FocusE ComplEx"], rows)]


def ablation_section(groups: Sequence[Sequence[Variant]]) -> list[Block]:
    top = ["changed", "top MRR", "diff.", "bottom MRR", "diff.", "ΔMRR", "diff."]
    blocks: list[Block] = [
        Heading(2, "Ablations"),
        Text(
            "A row changes what it names; differences are to the unchanged cell, over the seeds that both have. UKGE's "
            "MSE and MAE are those on its own test, its nDCG has linear gain; a rule_loss_weight of 0 is UKGE−."
        ),
    ]
    for group in groups:
        first = group[0]
        weighed = {"mse": "MSE", "mae": "MAE", "ndcg": "nDCG"} if any(variant.weights for variant in group) else {}
        rows = []
        for variant in group:
            figures = [
                text
                for name in ABLATED
                for text in (whole(variant.entries[name]), decimal(variant.differences[name], sign=True))
            ]
            epochs = ", ".join(NONE if epoch is None else str(epoch) for epoch in variant.best_epochs)
            weights = [whole(variant.weights.get(name, Entry()), 4) for name in weighed]
            rows.append([_changed(variant), *figures, *weights, epochs, str(len(variant.seeds))])
        name = f"{title(first.data)} {model_name(first.model, first.kind)}"
        appendix = all(variant.form == "appendix" for variant in group)
        line = [*top, *weighed.values(), "best epoch", "seeds"]
        heading = f"{name}, {APPENDIX.get(first.kind, OF_THE_PAPER)}" if appendix else name
        blocks += [Heading(3, heading), Grid(line, rows)]
    return blocks


def _changed(variant: Variant) -> str:
    if variant.form == "appendix" and not (variant.is_base or variant.changes):
        return APPENDIX.get(variant.kind, OF_THE_PAPER)
    return ", ".join(f"{key} = {value}" for key, value in sorted(variant.changes.items())) or "nothing"
