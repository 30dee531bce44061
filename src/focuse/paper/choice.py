"""Which cells a reproduction trains, from the words of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from focuse.config import Config, parse_assignments, parse_setting_value
from focuse.errors import FocuseError
from focuse.option_strings import choose
from focuse.paper.cells import (
    DATA,
    DECAYS,
    KINDS,
    MODELS,
    QUICK_DATA,
    QUICK_MODELS,
    UKGE,
    Cell,
    figure_cells,
    paper_cells,
)

PARTS = ("tables", "figure3", "all")

NOT_CHANGED = {
    "model",
    "seed",
    "device",
    "batches",
    "duplicates",
    "checkpoint_every",
}  # they make another cell, or none


@dataclass(frozen=True)
class Choice:
    """Which cells to train. Made by `of`, which refuses what does not exist and lists what does."""

    data: tuple[str, ...]
    models: tuple[str, ...]
    kinds: tuple[str, ...]
    seeds: int
    part: str
    decays: tuple[int, ...]
    changes: tuple[dict[str, Any], ...]
    form: str
    named: bool  # the user named the data sets: one that cannot be had is then an error

    @classmethod
    def of(
        cls,
        data: Sequence[str] | None = None,
        models: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
        seeds: int = 1,
        part: str = "all",
        decays: str | None = None,
        changes: Sequence[str] | None = None,
        appendix: bool = False,
        quick: bool = False,
    ) -> Choice:
        """From the words of the command line; None means all."""
        data = None if data is None else [name.lower() for name in data]  # the paper's tables say PPI5K
        known = {"data set": (data, DATA), "model": (models, (*MODELS, *UKGE)), "kind": (kinds, (*KINDS, "ukge"))}
        for word, (given, names) in known.items():
            for name in given or ():
                choose(word, name, names)
        choose("part", part, PARTS)
        if quick and appendix:
            raise FocuseError("--quick has settings of its own; leave out --appendix")
        if part == "figure3" and (quick or appendix or changes):
            raise FocuseError("figure 3 has settings of its own; leave out --quick, --appendix and --change")
        if part == "figure3" and ("focuse" not in (kinds or KINDS) or "nl27k" not in (data or DATA)):
            raise FocuseError("figure 3 is FocusE on NL27K; leave out --kind and --data")
        made = cls(
            data=tuple(dict.fromkeys(data or (QUICK_DATA if quick else DATA))),
            models=tuple(dict.fromkeys(models or _models(quick, kinds))),
            kinds=tuple(dict.fromkeys(kinds or (*KINDS, "ukge"))),
            seeds=seeds,
            part="tables" if quick or changes or appendix else part,
            decays=DECAYS if decays is None else _decays(decays),
            changes=tuple(_variant(text) for text in changes or ()),
            form="quick" if quick else "appendix" if appendix else "paper",
            named=data is not None,
        )
        cells = made.cells(made.data)
        if not cells:
            raise FocuseError("no such row: UKGE is a kind of its own, on ppi5k, nl27k and cn15k; see --help")
        for cell in cells:
            Config.from_kwargs(**cell.settings(1000))  # before anything is read: a change may make no sense
        return made

    def cells(self, data: Sequence[str]) -> list[Cell]:
        """The chosen cells of these data sets, in the order in which to train them."""
        cells: list[Cell] = []
        if self.part in ("tables", "all"):
            base = paper_cells([name for name in self.data if name in data], self.models, self.kinds, self.seeds)
            base = [replace(cell, form=self.form) for cell in base]
            cells += [replace(cell, changes=change) for change in self.changes for cell in base] or base
        if self.part in ("figure3", "all") and "nl27k" in self.data and "nl27k" in data and "focuse" in self.kinds:
            cells += figure_cells([name for name in self.models if name in MODELS], self.seeds, self.decays)
        return cells


def _models(quick: bool, kinds: Sequence[str] | None) -> tuple[str, ...]:
    """The models that are meant where none is named; the quick form has UKGE only where its kind is."""
    if not quick:
        return (*MODELS, *UKGE)
    return (*QUICK_MODELS, *UKGE) if "ukge" in (kinds or ()) else QUICK_MODELS


def _decays(text: str) -> tuple[int, ...]:
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        values = [-1]
    if min(values) < 0:
        raise FocuseError(f"--decays {text!r}: give epochs with commas between, like 0,200,800")
    return tuple(dict.fromkeys(values))


def _variant(text: str) -> dict[str, Any]:
    """'lr=1e-4 dim=300' as settings."""
    found = {
        name: parse_setting_value(name, value) for name, value in parse_assignments("--change", text.split()).items()
    }
    if not found:
        raise FocuseError(f"--change {text!r}: write it like --change 'lr=1e-4 dim=300'")
    for name in NOT_CHANGED & set(found):
        raise FocuseError(f"--change {text!r}: {name} cannot be changed here; it has an option of its own, or none")
    return found
