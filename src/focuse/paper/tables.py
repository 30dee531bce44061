"""The numbers of tables 2 to 4, beside the paper's. Plain data: nothing is rounded or put into words here.

Each table has two forms: `full` is all of test, `clean` what is left without triples that stand in train as they are
or turned round. Deciles follow the same rule in both; the paper has figures for the first only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from focuse.errors import FocuseError
from focuse.evaluation.metrics import decile_size
from focuse.paper.bootstrap import Interval, bootstrap
from focuse.paper.cells import DATA, KINDS, MODELS, UKGE, published, title
from focuse.paper.results import Ranked, Result

FORMS = ("full", "clean")
# The paper's gains over a ΔMRR of "<.01" take it for .01.
LEAST_BASE = 0.01
COLUMNS = {
    2: ("bottom_mrr", "bottom_mrr_joint"),
    3: ("top_mr", "top_mrr", "top_hits@1", "top_hits@10", "top_mrr_joint"),
    4: ("top_mrr", "bottom_mrr", "delta_mrr", "gain", "delta_mrr_joint"),
}
# A figure of the bootstrap -> its column.
BOUNDED = {"top": "top_mrr", "bottom": "bottom_mrr", "delta": "delta_mrr"}
MEASURES: dict[str, Callable[[Ranked], float]] = {
    "top_mr": lambda test: test.metrics("top").mr,
    "top_mrr": lambda test: test.metrics("top").mrr,
    "top_hits@1": lambda test: test.metrics("top").hits[1],
    "top_hits@10": lambda test: test.metrics("top").hits[10],
    "bottom_mrr": lambda test: test.metrics("bottom").mrr,
    "delta_mrr": lambda test: test.delta_mrr(),
    "delta_median": lambda test: test.delta_median,
    "top_mrr_joint": lambda test: test.metrics("top", "combined").mrr,
    "bottom_mrr_joint": lambda test: test.metrics("bottom", "combined").mrr,
    "delta_mrr_joint": lambda test: test.delta_mrr("combined"),
}


@dataclass(frozen=True)
class Entry:
    """One figure: our mean over the seeds, its standard deviation (None for one seed), and the paper's."""

    ours: float | None = None
    spread: float | None = None
    seeds: int = 0
    paper: float | None = None
    interval: Interval | None = None

    @property
    def difference(self) -> float | None:
        """Ours − the paper's."""
        return None if self.ours is None or self.paper is None else self.ours - self.paper

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"difference": self.difference}


@dataclass(frozen=True)
class Change:
    """FocusE − plain of one figure."""

    value: float
    interval: Interval | None


@dataclass(frozen=True)
class Row:
    """One model on one data set. `kind` is plain, focuse or ukge."""

    data: str
    model: str
    kind: str
    entries: dict[str, Entry]
    changes: dict[str, Change] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        entries = {name: entry.to_dict() for name, entry in self.entries.items()}
        changes = {name: asdict(change) for name, change in self.changes.items()}
        return {"data": self.data, "model": self.model, "kind": self.kind, "entries": entries, "focuse-plain": changes}


@dataclass(frozen=True)
class Size:
    """Test triples of a data set in one form: how many of all, and how many places a tenth has."""

    n: int
    of: int
    tenth: int


@dataclass(frozen=True)
class Table:
    """Table 2, 3 or 4 in one form, data set after data set, rows in the paper's order."""

    number: int
    form: str
    sizes: dict[str, Size]
    rows: tuple[Row, ...]

    def of(self, data: str) -> list[Row]:
        return [row for row in self.rows if row.data == data]

    def find(self, data: str, model: str, kind: str) -> Row:
        return next(row for row in self.of(data) if (row.model, row.kind) == (model, kind))

    def to_dict(self) -> dict[str, Any]:
        sizes = {data: asdict(size) for data, size in self.sizes.items()}
        return {"table": self.number, "form": self.form, "sizes": sizes, "rows": [row.to_dict() for row in self.rows]}


Key = tuple[str, str, str]


@dataclass(frozen=True)
class Runs:
    """The cells of the tables: (data, model, kind) -> a result a seed. `form` says with which settings."""

    form: str
    groups: dict[Key, list[Result]]

    @classmethod
    def of(cls, results: Iterable[Result]) -> Runs:
        """Unchanged cells of the paper's form, else of the appendix's, else the quick ones: never mixed."""
        results = list(results)
        unchanged = [result for result in results if not result.cell["changes"]]
        forms = [result.cell["form"] for result in unchanged] or [result.cell["form"] for result in results]
        form = next((form for form in ("paper", "appendix", "quick") if form in forms), "paper")
        groups: dict[Key, list[Result]] = {}
        for result in sorted(unchanged, key=lambda result: int(result.cell["seed"])):
            cell = result.cell
            if cell["form"] == form:
                groups.setdefault((cell["data"], cell["model"], cell["kind"]), []).append(result)
        return cls(form, groups)

    @property
    def data(self) -> list[str]:
        """The data sets that have a result, in the usual order."""
        return [data for data in DATA if any(key[0] == data for key in self.groups)]

    def of_data(self, data: str, clean: bool) -> dict[tuple[str, str], list[Ranked]]:
        """(model, kind) -> ranked tests of one data set, a seed each."""
        return {
            (model, kind): [result.test.of(clean) for result in group]
            for (name, model, kind), group in self.groups.items()
            if name == data
        }


def entry(values: Sequence[float], paper: float | None = None, interval: Interval | None = None) -> Entry:
    """Mean and spread of a figure over seeds; figures that are not defined (NaN) do not count.

    >>> entry([0.25, 0.75], paper=0.5).difference
    0.0
    """
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Entry(paper=paper)
    spread = float(np.std(known, ddof=1)) if len(known) > 1 else None
    return Entry(float(np.mean(known)), spread, len(known), paper, interval)


def gain(plain: float, focused: float) -> float:
    """FocusE's gain over a plain ΔMRR in %, the base being at least .01, as in the paper.

    >>> round(gain(0.0, 0.24))
    2400
    """
    return 100 * (focused - plain) / max(plain, LEAST_BASE)


def paper_figures(data: str, model: str, kind: str) -> dict[str, float]:
    """The paper's figures by column; none for a data set it does not have."""
    found = published().get(data, {}).get(model)
    found = found if found is None or kind == "ukge" else found.get(kind)
    if found is None:
        return {}
    columns = dict(zip(("top_mr", "top_mrr", "top_hits@1", "top_hits@10"), found["top"], strict=True))
    columns |= {"bottom_mrr": found["bottom"], "delta_mrr": found["delta"]}
    return columns | ({"gain": found["gain"]} if "gain" in found else {})


def make_tables(runs: Runs, form: str) -> dict[int, Table]:
    """Tables 2, 3 and 4 of one form; every model has a row, with or without results."""
    sizes: dict[str, Size] = {}
    rows: dict[str, dict[tuple[str, str], Row]] = {}
    for data in runs.data:
        tests = runs.of_data(data, form == "clean")
        n = len(next(iter(tests.values()))[0])
        everything = next(group[0].test for key, group in runs.groups.items() if key[0] == data)
        sizes[data] = Size(n, len(everything), decile_size(n))
        rows[data] = _rows(data, form, tests)
    return {number: _table(number, form, sizes, rows) for number in COLUMNS}


def _table(number: int, form: str, sizes: dict[str, Size], rows: dict[str, dict[tuple[str, str], Row]]) -> Table:
    """The rows of a table, each with the table's own columns."""
    chosen = []
    for data, found in rows.items():
        for place in _order(number):
            if place in found:
                row = found[place]
                entries = {name: row.entries.get(name, Entry()) for name in COLUMNS[number]}
                chosen.append(Row(data, row.model, row.kind, entries, row.changes if number == 4 else {}))
    return Table(number, form, sizes, tuple(chosen))


def _order(number: int) -> list[tuple[str, str]]:
    """Tables 2 and 3 have all plain models first, table 4 has pairs."""
    rivals = [(name, "ukge") for name in UKGE]
    plain, focused = ([(model, kind) for model in MODELS] for kind in KINDS)
    if number == 4:
        return [(model, kind) for model in MODELS for kind in KINDS] + rivals
    return plain + rivals + focused


def _rows(data: str, form: str, tests: dict[tuple[str, str], list[Ranked]]) -> dict[tuple[str, str], Row]:
    """(model, kind) -> its row with every column there is."""
    pairs = [((model, "plain"), (model, "focuse")) for model in MODELS]
    pairs = [pair for pair in pairs if all(name in tests for name in pair)]
    try:
        single, differences = bootstrap(tests, pairs)
    except FocuseError as error:
        raise FocuseError(f"{title(data)}: {error}") from None
    rows = {}
    for name in _order(4):
        model, kind = name
        paper = paper_figures(data, model, kind) if form == "full" else {}
        if kind == "ukge" and not paper and name not in tests:
            continue
        entries = {column: Entry(paper=value) for column, value in paper.items()}
        bounds = {BOUNDED[part]: interval for part, interval in single.get(name, {}).items()}
        for column, measure in MEASURES.items():
            values = [measure(test) for test in tests.get(name, [])]
            entries[column] = entry(values, paper.get(column), bounds.get(column))
        rows[name] = Row(data, model, kind, entries)
    for pair in pairs:
        _compare(rows[pair[0]], rows[pair[1]], differences[pair])
    return rows


def _compare(plain: Row, focused: Row, intervals: dict[str, Interval | None]) -> None:
    """Write FocusE − plain and the gain into the row of FocusE."""
    for part, column in BOUNDED.items():
        ours = (plain.entries[column].ours, focused.entries[column].ours)
        if ours[0] is not None and ours[1] is not None:
            focused.changes[column] = Change(ours[1] - ours[0], intervals[part])
            if part == "delta":
                seeds = min(plain.entries[column].seeds, focused.entries[column].seeds)
                paper = focused.entries.get("gain", Entry()).paper
                focused.entries["gain"] = Entry(gain(ours[0], ours[1]), None, seeds, paper)
