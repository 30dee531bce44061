"""How the cells of a report were trained: settings, epochs, and where they follow the authors' code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from focuse.paper.cells import Cell, because, departure_notes, place
from focuse.paper.document import Block, Grid, Heading, Points, Text
from focuse.paper.results import Result
from focuse.paper.sections import NONE, decimal

FORMS = ("paper", "appendix", "quick", "figure3")
FORM_NAMES = {"paper": "tables", "appendix": "appendix", "quick": "quick", "figure3": "figure 3"}


def history_section(results: Sequence[Result]) -> list[Block]:
    """Every cell with its settings, then what it owes to the authors' code, then where it leaves the appendix."""
    heads = [
        "cell",
        "form",
        "seed",
        "k",
        "η",
        "lr",
        "γ",
        "λ",
        "epochs",
        "best epoch",
        "validation",
        "seconds",
        "device",
    ]
    rows = [_row(result) for result in sorted(results, key=_place)]
    blocks: list[Block] = [
        Heading(2, "How it was run"),
        Text(
            "k: size of the embeddings, η: negatives of a triple, lr: learning rate, γ: weight of the regularizer (L3 "
            "unless said), λ: decay of β in epochs. The model of the best epoch by validation MRR (or MSE) was tested. "
            "Any row is trained by `focuse reproduce --part tables --data NAME --model NAME --kind NAME`, with "
            "`--change 'name=value …'` for what stands in brackets and `--appendix` for that form; `--part figure3` "
            "trains the rows of figure 3."
        ),
        Grid(heads, rows, words=2),
    ]
    return blocks + _departures(results) + _reasons(results)


def _place(result: Result) -> tuple[Any, ...]:
    cell = result.cell
    places = place(cell["data"], cell["model"], cell["kind"])
    return FORMS.index(cell["form"]), *places, [_sortable(*change) for change in cell["changes"].items()], cell["seed"]


def _sortable(key: str, value: Any) -> tuple[str, str]:
    """Numbers in their order, also as text."""
    return key, f"{value:020.9f}" if isinstance(value, int | float) else str(value)


def _row(result: Result) -> list[str]:
    cell, facts = result.cell, result.facts
    settings = facts["settings"]
    decay = settings.get("beta_decay_epochs") if cell["kind"] == "focuse" else None
    numbers = [settings.get("dim"), settings.get("num_negatives")]
    seconds = facts.get("seconds")
    return [
        Cell(**cell).title,
        FORM_NAMES[cell["form"]],
        str(cell["seed"]),
        *(_whole(number) for number in numbers),
        scientific(settings.get("lr")),
        str(settings.get("regularizer", NONE)).removeprefix("l3:"),
        _whole(decay),
        _whole(facts.get("epochs")),
        _whole(facts.get("best_epoch")),
        decimal(facts.get("valid_mrr")) if facts.get("valid_mse") is None else f"MSE {decimal(facts['valid_mse'], 4)}",
        NONE if seconds is None else f"{seconds:,.0f}",
        str(facts.get("device", NONE)),
    ]


def _whole(number: int | None) -> str:
    return NONE if number is None else f"{number:,}"


def scientific(value: float | None) -> str:
    """'5e-4', '0.05'.

    >>> scientific(0.0005), scientific(0.05)
    ('5e-4', '0.05')
    """
    if value is None:
        return NONE
    if value >= 0.01:
        return f"{value:g}"
    digits, power = f"{value:e}".split("e")
    return f"{float(digits):g}e{int(power)}"


def _departures(results: Sequence[Result]) -> list[Block]:
    """Which points of the authors' code were followed, what they mean, and by which cells."""
    notes = departure_notes()
    used = dict.fromkeys(name for result in results for name in result.facts.get("departures", []))
    if not used:
        return []
    rows = []
    for name in sorted(used, key=lambda name: (list(notes).index(name) if name in notes else len(notes), name)):
        note = notes.get(name, {})
        rows.append([name, str(note.get("paper", NONE)), str(note.get("code", NONE)), _followers(name, results)])
    return [
        Heading(3, "Where the authors' code differs from their text, and the code was followed"),
        Grid(["departure", "the paper", "the code", "cells"], rows, words=4),
    ]


def _followers(name: str, results: Sequence[Result]) -> str:
    """'all', 'all with FocusE', '3 of 30': of the cells that say which they follow."""
    asked = [result for result in results if result.facts.get("departures")]
    follows = [name in result.facts["departures"] for result in asked]
    if all(follows):
        return "all"
    focused = [result.cell["kind"] == "focuse" for result in asked]
    return "all with FocusE" if follows == focused else f"{sum(follows)} of {len(asked)}"


def _reasons(results: Sequence[Result]) -> list[Block]:
    """Why cells of the tables do not use the settings of the paper's appendix."""
    reasons = {}
    for result in sorted(results, key=_place):
        cell = result.cell
        if cell["form"] == "paper" and not cell["changes"]:
            reason = because(cell["data"], cell["model"], cell["kind"])
            if reason:
                reasons[Cell(**cell).title] = reason
    if not reasons:
        return []
    heading = Heading(3, "Where the tables' settings are not those of the paper's appendix")
    return [heading, Points(tuple(f"{name}: {reason}" for name, reason in reasons.items()))]
