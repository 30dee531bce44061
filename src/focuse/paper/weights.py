"""Predicted weights of the cells: UKGE's own tables (errors, nDCG, strong facts), with every model in them.

A model of confidence stands with its own weights and with calibrated ones, every other model with calibrated ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from focuse import datasets
from focuse.api import Run
from focuse.data.datasets import Dataset
from focuse.errors import FocuseError
from focuse.evaluation.weight_evaluation import PROTOCOLS
from focuse.evaluation.weight_metrics import THRESHOLDS
from focuse.paper.cells import DATA, TITLES, load_configuration, rows_of
from focuse.paper.results import Result
from focuse.paper.tables import Entry, Runs, entry

NDCG = "ndcg"
SUFFIXES = (".tsv.gz", ".tsv")
# Of a published figure, ours may be this much worse and still reach it.
ERROR_REACH, GAIN_REACH = 1.1, 0.02
FIGURES = {
    **dict.fromkeys(PROTOCOLS, ("mse", "mae", "spearman", "ece")),
    "with_negatives": ("mse", "mae", "spearman", "ece", "accuracy", "f1", "fitted_accuracy", "fitted_f1"),
    NDCG: ("linear", "exponential"),
}
TRIVIAL = "trivial"


def companion(data: Dataset, name: str) -> Path | None:
    """A file that lies beside a data set's splits: softlogic, test_with_neg or ndcg."""
    return _beside(data.folder, name)


def _beside(folder: Path, name: str) -> Path | None:
    return next((path for suffix in SUFFIXES if (path := folder / f"{name}{suffix}").is_file()), None)


def soft_logic_file(name: str) -> Path | None:
    """The soft-logic file of a data set that is here, None without."""
    try:
        folder = datasets.path(name)
    except FocuseError:
        return None
    return _beside(folder, "softlogic")


def without_soft_logic(result: Result) -> bool:
    """Whether UKGE was to learn from inferred triples, and had none."""
    wanted = float(result.facts["settings"].get("rule_loss_weight", 0.0)) > 0
    return result.cell["kind"] == "ukge" and wanted and not result.facts.get("inferred")


def weigh_test(run: Run, data: Dataset) -> dict[str, Any] | None:
    """The figures of a run's predicted weights on UKGE's files, of the model by itself; None for a data set without."""
    negatives, queries = (companion(data, name) for name in ("test_with_neg", "ndcg"))
    if negatives is None or queries is None:
        return None
    threshold = THRESHOLDS.get(data.name, max(THRESHOLDS.values()))
    return run.evaluate_weights(
        negatives=negatives, ndcg_queries=queries, strong_above=threshold, estimator=False
    ).to_dict()


@cache
def published_weights() -> dict[str, dict[str, dict[str, Any]]]:
    """Published figures: data set -> protocol -> row -> figures, and where each row is from."""
    return load_configuration("confidence")


@dataclass(frozen=True)
class WeightRow:
    """One row of a table: a predictor of ours, a trivial one, or a published one. `name` is as printed.

    `curve` is the reliability curve of the first seed of a predictor of ours, bin by bin.
    """

    name: str
    kind: str
    entries: dict[str, Entry] = field(default_factory=dict)
    curve: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        entries = {name: one.to_dict() for name, one in self.entries.items()}
        return {"name": self.name, "kind": self.kind, "entries": entries, "curve": [dict(one) for one in self.curve]}


@dataclass(frozen=True)
class WeightPart:
    """The table of one data set under one protocol (or nDCG), over `n` triples or queries."""

    data: str
    protocol: str
    n: int
    rows: tuple[WeightRow, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"data": self.data, "protocol": self.protocol, "n": self.n, "rows": [row.to_dict() for row in self.rows]}


@dataclass(frozen=True)
class Reached:
    """Whether a figure of UKGE reaches the published one."""

    data: str
    model: str
    figure: str
    ours: float
    paper: float
    reaches: bool

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def weight_parts(runs: Runs) -> list[WeightPart]:
    """Every table that the results have figures for, data set after data set."""
    parts = []
    for data in DATA:
        groups = {name: _weights_of(runs.groups.get((data, *name), [])) for name in rows_of(data)}
        groups = {name: found for name, found in groups.items() if found}
        if groups:
            parts += [_part(data, protocol, groups) for protocol in FIGURES]
    return parts


def reached(parts: Iterable[WeightPart]) -> list[Reached]:
    """UKGE's rows against the figures that its authors published."""
    found = []
    for part in parts:
        for row in part.rows:
            for name, one in row.entries.items():
                if row.kind != "ukge" or one.ours is None or one.paper is None:
                    continue
                worse = one.ours - one.paper
                fine = worse >= -GAIN_REACH if part.protocol == NDCG else worse <= (ERROR_REACH - 1) * one.paper
                found.append(Reached(part.data, row.name, f"{part.protocol} {name}", one.ours, one.paper, fine))
    return found


def _weights_of(group: Iterable[Result]) -> list[Mapping[str, Any]]:
    return [result.weights for result in group if result.weights is not None]


def _part(data: str, protocol: str, groups: Mapping[tuple[str, str], list[Mapping[str, Any]]]) -> WeightPart:
    paper = published_weights().get(data, {}).get(protocol, {})
    rows = []
    for (model, kind), seeds in groups.items():
        for name in _predictors(seeds[0], protocol):
            printed = _printed(model, kind, name)
            known = paper.get(model, {}) if kind == "ukge" and name == model else {}
            rows.append(_row(printed, kind if name == model else "calibrated", protocol, name, seeds, known))
    first = next(iter(groups.values()))
    for name in first[0]["baselines"]:
        if protocol == NDCG or protocol in first[0]["rows"][name]:
            rows.append(_row(name, TRIVIAL, protocol, name, first[:1], {}))
    for name, figures in paper.items():
        if name not in TITLES:
            entries = {key: Entry(paper=value) for key, value in figures.items() if key in FIGURES[protocol]}
            rows.append(WeightRow(f"{name} (published)", "published", entries))
    return WeightPart(data, protocol, _size(first[0], protocol), tuple(rows))


def _predictors(weights: Mapping[str, Any], protocol: str) -> list[str]:
    """The names of the model's own rows, without the trivial ones."""
    return [name for name in weights["ndcg" if protocol == NDCG else "rows"] if name not in weights["baselines"]]


def _printed(model: str, kind: str, name: str) -> str:
    """'FocusE ComplEx, isotonic'."""
    return ("FocusE " if kind == "focuse" else "") + TITLES[model] + name.removeprefix(model)


def _size(weights: Mapping[str, Any], protocol: str) -> int:
    trivial = weights["baselines"][0]
    found = weights["ndcg"][trivial]["queries"] if protocol == NDCG else weights["rows"][trivial][protocol]["n"]
    return int(found)


def _row(
    printed: str, kind: str, protocol: str, name: str, seeds: list[Mapping[str, Any]], paper: Mapping[str, float]
) -> WeightRow:
    entries = {}
    for figure in FIGURES[protocol]:
        values = [value for one in seeds if (value := figure_of(one, protocol, name, figure)) is not None]
        entries[figure] = entry(values, paper.get(figure))
    curve: list[Mapping[str, Any]] = []
    if protocol != NDCG and kind != TRIVIAL:
        curve = seeds[0]["rows"][name][protocol].get("reliability", {}).get("bins", [])
    return WeightRow(printed, kind, entries, tuple(one for one in curve if one["count"]))


def figure_of(weights: Mapping[str, Any], protocol: str, name: str, figure: str) -> float | None:
    """One figure of one predictor, None where it is not defined."""
    if protocol == NDCG:
        gain = weights["ndcg"].get(name)
        return None if gain is None else gain[figure]
    found = weights["rows"][name][protocol]
    if figure == "ece":
        found = found.get("reliability", {})
    elif figure in ("accuracy", "f1"):
        found = found.get("at_threshold", {})
    elif figure.startswith("fitted_"):
        found, figure = found.get("fitted", {}), figure.removeprefix("fitted_")
    value = found.get(figure)
    return None if value is None else float(value)
