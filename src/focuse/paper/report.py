"""The report of a reproduction: report.md, report.html, report.json and the figures, from finished cells alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from focuse.errors import FocuseError
from focuse.paper import sections
from focuse.paper.ablations import Variant, ablations
from focuse.paper.bootstrap import LEVEL, RESAMPLES, SEED
from focuse.paper.cells import DATA, Cell, title
from focuse.paper.document import Block, Grid, Heading, Points, Text, to_html, to_markdown
from focuse.paper.figures import Curves, Violins, decay_curves, draw_curves, draw_violins
from focuse.paper.history import history_section
from focuse.paper.reliability import draw_reliability
from focuse.paper.results import Result
from focuse.paper.tables import FORMS, Runs, Table, make_tables
from focuse.paper.times import times_section
from focuse.paper.verdict import Verdict, verdict
from focuse.paper.weight_sections import weight_section
from focuse.paper.weights import reached, weight_parts, without_soft_logic
from focuse.storage.atomic import replace_file

TITLE = "Reproduction of FocusE"
FIGURE_3 = "figure3.svg"
QUICK_LINE = (
    "This is the quick form: small models, few epochs, shared negatives. It shows what FocusE does, but its figures do "
    "not compare with the paper's cell by cell."
)
LEGEND = (
    "Filtered ranks, ties ranked worst. The main figures rank each side of a triple by itself and take both ranks into "
    "the mean; “both sides as one list” ranks a triple once, among the corruptions of both sides. “diff.” is ours "
    "− paper, where “<.01” counts as .01. ± is the standard deviation over seeds; – stands for what was not run or "
    "not published. Intervals tell how much the choice of test triples matters, not that of the seed."
)
CLEAN = (
    "The same tables on the test triples of which neither a duplicate nor an edge back by any relation stands in "
    "train; top and bottom are the tenths of these. The paper has no such figures."
)


class Report:
    """Everything a report says, computed once."""

    def __init__(self, results: Sequence[Result], about: Mapping[str, Any]) -> None:
        self.results = list(results)
        seconds = sum(float(result.facts.get("seconds") or 0) for result in self.results)
        self.about = {"cells": len(self.results), "hours": round(seconds / 3600, 3)} | dict(about)
        self.runs = Runs.of(self.results)
        self.tables: dict[str, dict[int, Table]] = {form: make_tables(self.runs, form) for form in FORMS}
        self.verdict: Verdict = verdict(self.tables["full"][4], comparable=self.runs.form != "quick")
        self.weights = weight_parts(self.runs)
        self.reached = reached(self.weights) if self.runs.form != "quick" else []
        self.curves: Curves = decay_curves(self.results)
        self.violins: list[Violins] = draw_violins(self.runs)
        self.ablations: list[list[Variant]] = ablations(self.results, self.runs)
        self.pictures = {FIGURE_3: draw_curves(self.curves)} if self.curves else {}
        self.pictures |= {f"figure4-{drawn.data}.svg": drawn.svg for drawn in self.violins}
        self.reliability = {f"reliability-{data}.svg": svg for data, svg in draw_reliability(self.weights).items()}
        self.pictures |= self.reliability

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON: no NaN, no types of NumPy."""
        figure_4 = [
            {
                "data": one.data,
                "seeds": one.seeds,
                "delta_median": {k: e.to_dict() for k, e in one.delta_median.items()},
            }
            for one in self.violins
        ]
        figure_3 = {m: {str(at): e.to_dict() for at, e in points.items()} for m, points in self.curves.items()}
        data = {
            "about": self.about,
            "form": self.runs.form,
            "bootstrap": {"resamples": RESAMPLES, "level": LEVEL, "seed": SEED},
            "verdict": self.verdict.to_dict(),
            "tables": {form: [table.to_dict() for table in found.values()] for form, found in self.tables.items()},
            "weights": [part.to_dict() for part in self.weights],
            "ukge": [one.to_dict() for one in self.reached],
            "figure3": figure_3,
            "figure4": figure_4,
            "ablations": [[variant.to_dict() for variant in group] for group in self.ablations],
            # Without what the tables of weights say already.
            "cells": [{k: v for k, v in result.to_dict().items() if k != "weights"} for result in self.results],
        }
        plain: dict[str, Any] = strict(data)
        return plain

    def blocks(self) -> list[Block]:
        """The report from top to bottom."""
        blocks = [*self._opening(), *sections.verdict_section(self.verdict)]
        if self.runs.data:
            blocks += [Heading(2, "Tables"), Text(LEGEND), *self._tables("full")]
        if self.weights:
            blocks += weight_section(self.weights, self.reached, self.tables["full"][4], self.reliability)
        if self.curves:
            blocks += sections.figure_3(FIGURE_3, self.pictures[FIGURE_3], self.curves)
        if self.violins:
            blocks += sections.figure_4([(f"figure4-{one.data}.svg", one) for one in self.violins])
        if self.runs.data:
            blocks += [Heading(2, "Without leaked triples"), Text(CLEAN), *self._tables("clean")]
        if self.ablations:
            blocks += sections.ablation_section(self.ablations)
        return blocks + history_section(self.results) + times_section(self.results)

    def _opening(self) -> list[Block]:
        blocks: list[Block] = [
            Heading(1, TITLE),
            Text(
                "Tables 2 to 4 and figures 3 and 4 of Pai and Costabello, “Learning Embeddings from Knowledge Graphs "
                "With Numeric Edge Attributes” (IJCAI 2021)."
            ),
        ]
        if self.runs.form == "quick":
            blocks.append(Text(QUICK_LINE))
        elif self.runs.form == "appendix":
            blocks.append(
                Text("The tables hold the settings of the paper's appendix and the authors' code, without ours.")
            )
        blocks.append(Grid(["what was run", ""], [[key, words(value)] for key, value in self.about.items()], words=2))
        notes = []
        missing = [title(data) for data in DATA if data not in self.runs.data]
        if missing:
            notes.append(f"No cell of the tables is finished for {', '.join(missing)}.")
        if not self.curves and self.runs.form != "quick":
            notes.append("No cell of figure 3 is finished; `--part figure3` trains them.")
        bare = [Cell(**result.cell).title for result in self.results if without_soft_logic(result)]
        if bare:
            notes.append(f"Trained without soft logic, for lack of its file, so UKGE−: {', '.join(bare)}.")
        aside = sum(result.cell["form"] == "quick" for result in self.results) if self.runs.form != "quick" else 0
        if aside:
            notes.append(f"{aside} cells of the quick form lie in the same folder; they are in no table.")
        return [*blocks, Points(tuple(notes))] if notes else blocks

    def _tables(self, form: str) -> list[Block]:
        found = self.tables[form]
        size = sections.sizes(found[4])
        return [size, *sections.table_2(found[2]), *sections.table_3(found[3]), *sections.table_4(found[4])]


def write_report(results: Sequence[Result], folder: Path, about: Mapping[str, Any]) -> None:
    """Write report.md, report.html, report.json, figure3.svg, figure4-DATA.svg and reliability-DATA.svg into `folder`.

    `about` says what was run: command, device, versions, number of cells, hours. Each file is replaced whole, pictures
    before the pages that show them; one that this report has no results for is removed.
    """
    report = Report(results, about)
    blocks = report.blocks()
    texts = {
        **report.pictures,
        "report.md": to_markdown(blocks),
        "report.html": to_html(TITLE, blocks),
        "report.json": json.dumps(report.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n",
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            with replace_file(folder / name) as temporary:
                temporary.write_text(text, encoding="utf-8")
        for path in [folder / FIGURE_3, *folder.glob("figure4-*.svg"), *folder.glob("reliability-*.svg")]:
            if path.name not in texts:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise FocuseError(f"{folder}: {error.strerror or error}; choose a folder that can be written") from None


def words(value: Any) -> str:
    """A value of `about` as one line.

    >>> words({"torch": "2.13", "seeds": [0, 1]})
    'torch 2.13, seeds 0, 1'
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {words(one)}" for key, one in value.items())
    if isinstance(value, list | tuple | set):
        return ", ".join(words(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def strict(value: Any) -> Any:
    """What strict JSON can hold: NaN and infinity are None, NumPy's numbers Python's, other things their text.

    >>> strict({"a": (np.float32(0.5), float("nan")), 1: Path("x")})
    {'a': [0.5, None], '1': 'x'}
    """
    if isinstance(value, Mapping):
        return {str(key): strict(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | np.ndarray):
        return [strict(one) for one in value]
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
