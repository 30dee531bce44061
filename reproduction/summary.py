"""The numbers of a reproduction's report: means over seeds next to the published results, intervals and verdicts.

Tables have two forms: all test triples, and the `clean` ones without those that the training split has in the same or
the inverse direction. The paper has results for the first form only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from focuse.errors import FocuseError
from reproduction.grid import MODELS, model_title, published_results, read_configuration, rows_of, title
from reproduction.results import METRICS, Interval, Result, bootstrap

MIN_GAIN_BASE = 0.01  # the paper takes a ΔMRR of "<.01" for .01 to compute relative gains
REACH_TOLERANCE = 0.02  # this far below the published result still counts as reached
NARROW_TOLERANCE = 0.01  # a ΔMRR that is lower by more than this counts as narrower
ROUNDING = 1e-9
MAIN_METRICS = ("top_mrr", "bottom_mrr", "delta_mrr")


@dataclass(frozen=True)
class Entry:
    """One number: our mean over seeds, its standard deviation (None for one seed), and the published one."""

    mean: float | None = None
    spread: float | None = None
    seeds: int = 0
    paper: float | None = None
    interval: Interval | None = None

    @property
    def difference(self) -> float | None:
        """Our mean minus the published number."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper

    @property
    def reaches_paper(self) -> bool | None:
        """Whether our mean is at most .02 below the published number; None if one of them is missing."""
        return None if self.difference is None else self.difference >= -REACH_TOLERANCE - ROUNDING


def entry(values: Iterable[float], paper: float | None = None, interval: Interval | None = None) -> Entry:
    """Return the mean and the spread over seeds; values that are not defined (NaN) are ignored.

    >>> entry([0.25, 0.75], paper=0.5).difference
    0.0
    """
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Entry(paper=paper)
    spread = float(np.std(known, ddof=1)) if len(known) > 1 else None
    return Entry(float(np.mean(known)), spread, len(known), paper, interval)


@dataclass(frozen=True)
class Row:
    """One model on one data set; `changes` are FocusE − plain with their intervals, in the row of FocusE."""

    data: str
    model: str
    kind: str
    entries: dict[str, Entry]
    changes: dict[str, Entry] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return model_title(self.model, self.kind)

    @property
    def seeds(self) -> int:
        return max(one.seeds for one in self.entries.values())


Groups = dict[tuple[str, str, str], list[Result]]  # (data, model, kind) -> one result per seed


def group_results(results: Iterable[Result]) -> tuple[str, Groups]:
    """Return the form of the tables and their results: forms are never mixed, and overrides are left out."""
    plain = sorted((result for result in results if not result.cell.overrides), key=lambda result: result.cell.order)
    forms = {result.cell.form for result in plain}
    form = next((form for form in ("tables", "appendix", "quick") if form in forms), "tables")
    groups: Groups = {}
    for result in plain:
        if result.cell.form == form:
            groups.setdefault((result.cell.data, result.cell.model, result.cell.kind), []).append(result)
    return form, groups


def table_rows(groups: Groups, data: str, clean: bool = False) -> list[Row]:
    """Return the rows of a data set, in the order plain, FocusE per model; rows without results are empty."""
    tests = {key[1:]: [result.test.of(clean) for result in group] for key, group in groups.items() if key[0] == data}
    pairs = [((model, "plain"), (model, "focuse")) for model in MODELS]
    pairs = [pair for pair in pairs if all(name in tests for name in pair)]
    try:
        intervals, differences = bootstrap(tests, pairs)
    except FocuseError as error:
        raise FocuseError(f"{title(data)}: {error}") from None
    rows = {}
    for name in rows_of(data):
        paper = {} if clean else published_results(data, *name)
        if name in tests or name[1] != "ukge" or paper:
            entries = {
                metric: entry(map(compute, tests.get(name, [])), paper.get(metric), intervals.get(name, {}).get(metric))
                for metric, compute in METRICS.items()
            }
            rows[name] = Row(data, *name, entries | {"gain": Entry(paper=paper.get("gain"))})
    for first, second in pairs:
        plain, focused = rows[first].entries, rows[second].entries
        for metric in MAIN_METRICS:
            before, after = plain[metric].mean, focused[metric].mean
            if before is not None and after is not None:
                rows[second].changes[metric] = Entry(after - before, interval=differences[first, second][metric])
        if "delta_mrr" in rows[second].changes:
            gain = relative_gain(plain["delta_mrr"].mean or 0.0, focused["delta_mrr"].mean or 0.0)
            focused["gain"] = Entry(gain, paper=focused["gain"].paper)
    return list(rows.values())


def relative_gain(plain: float, focused: float) -> float:
    """Return the gain of FocusE over a plain ΔMRR in percent; the base is at least .01, as in the paper.

    >>> round(relative_gain(0.0, 0.24))
    2400
    """
    return 100 * (focused - plain) / max(plain, MIN_GAIN_BASE)


def verdicts(rows: Iterable[Row], comparable: bool = True) -> list[dict[str, Any]]:
    """Return per row of FocusE whether it reaches the paper and widens ΔMRR; None if that is unknown.

    Rows of the quick form are not `comparable` with the paper.
    """
    found = []
    for row in rows:
        if row.kind == "focuse":
            delta = row.changes.get("delta_mrr", Entry())
            change = delta.mean or 0.0
            top, gap = (row.entries[name].reaches_paper if comparable else None for name in ("top_mrr", "delta_mrr"))
            verdict: dict[str, Any] = {"data": row.data, "title": row.title, "reaches_top": top, "reaches_delta": gap}
            verdict |= {"change": delta.mean, "interval": delta.interval, "widens": change > 0}
            verdict["surely_widens"] = delta.interval is not None and delta.interval.low > 0
            verdict["narrows"] = change < -NARROW_TOLERANCE - ROUNDING
            found.append(verdict)
    return found


def ablations(results: Sequence[Result], form: str) -> dict[str, dict[str, dict[str, Entry]]]:
    """Return row -> changed settings -> metrics, of rows that were trained with overrides or the paper's settings only.

    The difference of an entry is to the unchanged cell, over the seeds that both have.
    """
    groups: dict[str, dict[str, list[Result]]] = {}
    for result in sorted(results, key=lambda result: result.cell.order):
        cell = result.cell
        if cell.form != "figure3" and (cell.form != "quick" or form == "quick"):
            parts = ["the paper's settings"] if cell.form == "appendix" != form else []
            parts += [f"{key} = {value}" for key, value in sorted(cell.overrides.items())]
            row = f"{title(cell.data)} {model_title(cell.model, cell.kind)}"
            groups.setdefault(row, {}).setdefault(", ".join(parts) or "nothing", []).append(result)
    found: dict[str, dict[str, dict[str, Entry]]] = {}
    for row, variants in groups.items():
        base = {result.cell.seed: result.test for result in variants.get("nothing", [])}
        for changed, group in variants.items() if set(variants) != {"nothing"} else ():
            entries = {}
            for metric in MAIN_METRICS:
                compute, one = METRICS[metric], entry(METRICS[metric](result.test) for result in group)
                both = [result for result in group if result.cell.seed in base and changed != "nothing"]
                gap = entry(compute(result.test) - compute(base[result.cell.seed]) for result in both).mean
                paper = None if gap is None or one.mean is None else one.mean - gap
                entries[metric] = Entry(one.mean, one.spread, one.seeds, paper)
            found.setdefault(row, {})[changed] = entries
    return found


def weight_rows(groups: Groups, data: str) -> dict[str, dict[str, Entry]]:
    """Return MSE and MAE of predicted weights on UKGE's test triples and negatives: predictor -> metric -> entry."""
    paper = read_configuration("confidence").get(data, {})
    rows = {}
    for (name, model, kind), group in groups.items():
        seeds = [result.weights["rows"] for result in group if result.weights is not None and name == data]
        for predictor in seeds[0] if seeds else ():
            if predictor.startswith(model):  # the model itself, or with a calibration; others are trivial baselines
                published = paper.get(predictor, {}) if kind == "ukge" else {}
                values = {
                    metric: [one[predictor]["with_negatives"][metric] for one in seeds] for metric in ("mse", "mae")
                }
                rows[model_title(model, kind) + predictor.removeprefix(model)] = {
                    metric: entry(numbers, published.get(metric)) for metric, numbers in values.items()
                }
    return rows


def decay_curves(results: Iterable[Result]) -> dict[str, dict[int, Entry]]:
    """Return figure 3: model -> λ -> MRR of the top decile over the seeds."""
    values: dict[str, dict[int, list[float]]] = {}
    for result in sorted(results, key=lambda result: result.cell.order):
        if result.cell.form == "figure3":
            points = values.setdefault(result.cell.model, {})
            points.setdefault(int(result.cell.overrides["beta_decay_epochs"]), []).append(
                METRICS["top_mrr"](result.test)
            )
    return {model: {decay: entry(found) for decay, found in points.items()} for model, points in values.items()}
