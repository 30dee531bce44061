"""Cells with other settings than the tables', each beside the cell that it changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from focuse.paper.cells import place
from focuse.paper.results import Result
from focuse.paper.tables import BOUNDED, MEASURES, Entry, Runs, entry
from focuse.paper.weights import NDCG, figure_of

ABLATED = tuple(BOUNDED.values())


@dataclass(frozen=True)
class Variant:
    """One way to train a cell, over its seeds. `differences` are to the base cell, over the seeds both have.

    `weights` are UKGE's own figures: mse, mae (on UKGE's test) and nDCG; empty for other models.
    """

    data: str
    model: str
    kind: str
    form: str
    changes: dict[str, Any]
    is_base: bool
    seeds: tuple[int, ...]
    best_epochs: tuple[int | None, ...]
    entries: dict[str, Entry]
    differences: dict[str, float | None]
    weights: dict[str, Entry]

    def to_dict(self) -> dict[str, Any]:
        entries, weights = (
            {name: one.to_dict() for name, one in part.items()} for part in (self.entries, self.weights)
        )
        return {**vars(self), "entries": entries, "weights": weights}


def ablations(results: Sequence[Result], runs: Runs) -> list[list[Variant]]:
    """Groups of variants; in each the base cell comes first, where it was trained.

    A change is set beside the unchanged cell of the same form; the paper's appendix, where it is not what the tables
    are made of, beside the cell of the tables.
    """
    variants: dict[tuple[str, ...], dict[str, list[Result]]] = {}
    for result in results:
        cell, form = result.cell, result.cell["form"]
        if form == "figure3" or (form == "quick" and runs.form != "quick"):
            continue
        places = [(form, dict(cell["changes"]))]
        if form != runs.form and not cell["changes"]:
            places.append((runs.form, {"form": form}))
        for own, changes in places:
            group = variants.setdefault((cell["data"], cell["model"], cell["kind"], own), {})
            group.setdefault(json.dumps(changes, sort_keys=True), []).append(result)
    chosen = {key: group for key, group in variants.items() if set(group) - {"{}"}}
    return [_group(chosen[key]) for key in sorted(chosen, key=_place)]


def _place(key: tuple[str, ...]) -> tuple[Any, ...]:
    data, model, kind, form = key
    return *place(data, model, kind), form != "paper", form


def _group(group: dict[str, list[Result]]) -> list[Variant]:
    measured = {name: _measures(found) for name, found in group.items()}
    base = measured.get("{}", {})
    order = sorted(group, key=lambda name: (name != "{}", name))
    return [_variant(group[name], measured[name], base, name == "{}") for name in order]


def _measures(results: Sequence[Result]) -> dict[int, dict[str, float]]:
    """Seed -> figure -> value."""
    return {
        int(result.cell["seed"]): {name: MEASURES[name](result.test) for name in ABLATED}
        for result in sorted(results, key=lambda result: int(result.cell["seed"]))
    }


def _variant(
    results: list[Result], measured: dict[int, dict[str, float]], base: dict[int, dict[str, float]], is_base: bool
) -> Variant:
    cell = results[0].cell
    both = [seed for seed in measured if seed in base]
    differences: dict[str, float | None] = dict.fromkeys(ABLATED)
    if both and not is_base:
        for name in ABLATED:
            difference = float(np.mean([measured[seed][name] - base[seed][name] for seed in both]))
            differences[name] = None if np.isnan(difference) else difference
    epochs = {int(result.cell["seed"]): result.facts.get("best_epoch") for result in results}
    return Variant(
        data=cell["data"],
        model=cell["model"],
        kind=cell["kind"],
        form=cell["form"],
        changes=dict(cell["changes"]),
        is_base=is_base,
        seeds=tuple(measured),
        best_epochs=tuple(epochs[seed] for seed in measured),
        entries={name: entry([figures[name] for figures in measured.values()]) for name in ABLATED},
        differences=differences,
        weights=_weights(results),
    )


def _weights(results: Sequence[Result]) -> dict[str, Entry]:
    """UKGE's own figures, of the model's own weights."""
    found = [result for result in results if result.cell["kind"] == "ukge" and result.weights is not None]
    if not found:
        return {}
    wanted = {"mse": ("with_negatives", "mse"), "mae": ("with_negatives", "mae"), "ndcg": (NDCG, "linear")}
    values = {
        name: [figure_of(result.weights or {}, part, result.cell["model"], figure) for result in found]
        for name, (part, figure) in wanted.items()
    }
    return {name: entry([one for one in all_of if one is not None]) for name, all_of in values.items()}
