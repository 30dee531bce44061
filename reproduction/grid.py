"""The grid of trainings behind the paper's tables and figures: data set × model × {plain, FocusE, UKGE} × seed.

Settings come from one TOML file per data set in `configurations/`, which tests check. The file
`departures.toml` lists where the authors' code differs from their text, `published.toml` has the paper's results.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from focuse.config import Config, parse_assignments, parse_setting_value
from focuse.errors import FocuseError
from focuse.option_strings import choose

DATA = ("ppi5k", "nl27k", "cn15k", "onet20k", "onet-importance")
MODELS, KINDS = ("transe", "distmult", "complex"), ("plain", "focuse")
# UKGE, which the paper compares with, needs confidences and rules, which not every data set has.
UKGE, UKGE_DATA = ("ukge-rect", "ukge-logi"), ("ppi5k", "nl27k", "cn15k")
TITLES = {
    "transe": "TransE",
    "distmult": "DistMult",
    "complex": "ComplEx",
    "ukge-rect": "UKGE rect",
    "ukge-logi": "UKGE logi",
}
FORMS, PARTS = ("tables", "appendix", "quick", "figure3"), ("tables", "figure3", "all")
# Figure 3 varies λ, the epochs of the decay of β, on NL27K with these settings.
FIGURE_3_DATA, DECAYS = "nl27k", tuple(range(0, 801, 100))
FIGURE_3 = {"dim": 300, "lr": 1e-3, "regularizer": "l3:1e-2"}
# The quick form has small models and shared negatives, but the same layer, protocol and report.
QUICK_DATA, QUICK_MODELS = ("ppi5k", "nl27k"), ("complex",)
QUICK = {"dim": 100, "negative_sampling": "shared", "num_negatives": 512, "lr": 3e-3, "epochs": 12, "eval_every": 2}
QUICK_FOCUSE = {"beta_decay_epochs": 12, "eval_start": 4}
NOT_SETTINGS = ("departures", "ours", "because")
NOT_OVERRIDDEN = ("model", "seed", "device", "batches", "duplicates", "checkpoint_every")


@dataclass(frozen=True)
class Cell:
    """One training of the grid.

    `form` says with which settings it starts: 'tables' is the configuration, 'appendix' the same with the paper's
    settings only; 'quick' and 'figure3' have their own. `overrides` are settings that differ from those.
    """

    data: str
    model: str
    kind: str
    seed: int = 0
    overrides: Mapping[str, Any] = field(default_factory=dict)
    form: str = "tables"

    @property
    def name(self) -> str:
        """A file name, the same for equal cells only."""
        parts = [self.data, self.model, self.kind]
        parts += [f"{key}={value}" for key, value in sorted(self.overrides.items())]
        parts += [self.form] if self.form != "tables" else []
        return re.sub(r"[^\w=.+-]", "-", "_".join([*parts, f"seed{self.seed}"]))

    @property
    def title(self) -> str:
        """A title such as 'PPI5K FocusE ComplEx (loss=pairwise-nll)'."""
        overrides = ", ".join(f"{key}={value}" for key, value in sorted(self.overrides.items()))
        return f"{title(self.data)} {model_title(self.model, self.kind)}" + (f" ({overrides})" if overrides else "")

    def settings(self, rows: int) -> dict[str, Any]:
        """Return the keywords of `focuse.train` for a training graph of `rows` rows."""
        settings = self._settings()
        batches = settings.pop("batches", None)
        if batches:
            settings["batch_size"] = math.ceil(rows / batches)
        return settings | {"model": self.model, "seed": self.seed}

    def _settings(self) -> dict[str, Any]:
        settings = dict(configuration(self.data, self.form in ("tables", "quick"))[self.model][self.kind])
        if self.form == "quick":
            settings |= QUICK | (QUICK_FOCUSE if self.kind == "focuse" else {"eval_start": 0})
        settings |= FIGURE_3 if self.form == "figure3" else {}
        if "batch_size" in self.overrides:
            settings.pop("batches", None)
        return settings | dict(self.overrides)

    @property
    def departures(self) -> list[str]:
        """The names of the departures of the authors' code from their text that this cell follows."""
        settings = self._settings()
        named = [name for table in _tables(self.data, self.model, self.kind) for name in table.get("departures", [])]
        return [name for name in named if departure_notes()[name]["settings"].items() <= settings.items()]

    @property
    def order(self) -> tuple[Any, ...]:
        """The place of the cell in a report, to sort by."""
        row = rows_of(self.data).index((self.model, self.kind))
        overrides = [str(item) for item in sorted(self.overrides.items())]
        return FORMS.index(self.form), DATA.index(self.data), row, overrides, self.seed

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"overrides": dict(self.overrides)}


def rows_of(data: str) -> list[tuple[str, str]]:
    """Return the model and the kind of every row that the tables have for a data set."""
    ukge = [(model, "ukge") for model in UKGE] if data in UKGE_DATA else []
    return [(model, kind) for model in MODELS for kind in KINDS] + ukge


def title(data: str) -> str:
    """Return the title of a data set, such as 'PPI5K'."""
    return str(read_configuration(choose("data set", data, DATA))["title"])


def model_title(model: str, kind: str) -> str:
    """Return the title of a row, such as 'FocusE ComplEx'."""
    return ("FocusE " if kind == "focuse" else "") + TITLES[model]


# ---- configuration files --------------------------------------------------------------------------------------------


@cache
def configuration(data: str, ours: bool = True) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the settings of a data set's cells, as model -> kind -> settings, checked and with departures.

    The table `ours` of a cell has the settings that reach the paper's results where the paper's own do not, and the
    reason, `because`.
    """
    raw = read_configuration(choose("data set", data, DATA))
    result: dict[str, dict[str, dict[str, Any]]] = {}
    for model, kind in rows_of(data):
        settings: dict[str, Any] = {}
        for table in (*_tables(data, model, kind), raw[model][kind].get("ours", {}) if ours else {}):
            for name in table.get("departures", []):
                settings |= departure_notes()[name]["settings"]
            settings |= {key: value for key, value in table.items() if key not in NOT_SETTINGS}
        Config.from_kwargs(**{key: value for key, value in settings.items() if key != "batches"}, model=model)
        result.setdefault(model, {})[kind] = settings
    return result


def _tables(data: str, model: str, kind: str) -> list[dict[str, Any]]:
    """Return the tables of a configuration file that apply to a row; `all` is for the paper's own models."""
    raw = read_configuration(data)
    return [*([] if kind == "ukge" else [raw["all"]]), raw.get(kind, {}), raw[model][kind]]


@cache
def read_configuration(name: str) -> dict[str, Any]:
    """Read one of the TOML files."""
    return tomllib.loads((files("reproduction") / "configurations" / f"{name}.toml").read_text(encoding="utf-8"))


def departure_notes() -> dict[str, dict[str, Any]]:
    """Return the departures by name, with what the paper says, what the code does, and the settings."""
    return read_configuration("departures")


def reason_for_ours(cell: Cell) -> str:
    """Return why a cell does not have the paper's own settings, '' if it does."""
    return str(read_configuration(cell.data)[cell.model][cell.kind].get("ours", {}).get("because", ""))


@cache
def published_results(data: str, model: str, kind: str) -> dict[str, float]:
    """Return the paper's results of a row by column; empty for a data set that the paper does not have."""
    found = read_configuration("published").get(data, {}).get(model)
    found = found if found is None or kind == "ukge" else found.get(kind)
    if found is None:
        return {}
    columns = dict(zip(("top_mr", "top_mrr", "top_hits@1", "top_hits@10"), found["top"], strict=True))
    columns |= {"bottom_mrr": found["bottom"], "delta_mrr": found["delta"]}
    return columns | ({"gain": found["gain"]} if "gain" in found else {})


# ---- selection ------------------------------------------------------------------------------------------------------


def select_cells(
    data: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    seeds: int = 1,
    part: str = "all",
    decays: str | None = None,
    overrides: Sequence[str] | None = None,
    paper_settings_only: bool = False,
    quick: bool = False,
) -> list[Cell]:
    """Return the cells that the options of `python -m reproduction` select, seed by seed; None selects all.

    >>> [cell.title for cell in select_cells(["PPI5K"], ["complex"], part="tables")]
    ['PPI5K ComplEx', 'PPI5K FocusE ComplEx']
    """
    data = None if data is None else [name.lower() for name in data]
    known = {"data set": (data, DATA), "model": (models, (*MODELS, *UKGE)), "kind": (kinds, (*KINDS, "ukge"))}
    for word, (given, names) in known.items():
        for name in given or ():
            choose(word, name, names)
    choose("part", part, PARTS)
    if quick and paper_settings_only:
        raise FocuseError("--quick has its own settings; leave out --paper-settings-only")
    if part == "figure3" and (quick or paper_settings_only or overrides):
        raise FocuseError("figure 3 has its own settings; leave out --quick, --paper-settings-only and --override")
    if seeds < 1:
        raise FocuseError(f"--seeds {seeds}: give a whole number of at least 1")
    tables_only = part == "tables" or quick or paper_settings_only or bool(overrides)
    models = models or (QUICK_MODELS if quick and "ukge" not in (kinds or ()) else (*MODELS, *UKGE))
    data, kinds = data or (QUICK_DATA if quick else DATA), kinds or (*KINDS, "ukge")
    figure_3 = not tables_only and FIGURE_3_DATA in data and "focuse" in kinds
    if decays is not None and not figure_3:
        raise FocuseError("--decays requires figure 3, which the other options leave out; leave out --decays")
    form = "quick" if quick else "appendix" if paper_settings_only else "tables"
    cells = []
    if part != "figure3":
        wanted = {(model, kind) for model in models for kind in kinds}
        rows = [(name, *row) for name in data for row in rows_of(name) if row in wanted]
        changes = [_parse_override(text) for text in overrides or ()] or [{}]
        cells += [Cell(*row, seed, one, form) for one in changes for seed in range(seeds) for row in rows]
    if figure_3:
        cells += [
            Cell(FIGURE_3_DATA, model, "focuse", seed, {"beta_decay_epochs": decay}, "figure3")
            for seed in range(seeds)
            for decay in (DECAYS if decays is None else _parse_decays(decays))
            for model in models
            if model in MODELS
        ]
    if not cells:
        raise FocuseError("no cell is selected: kind ukge is for UKGE on ppi5k, nl27k and cn15k, figure 3 for nl27k")
    for cell in cells:
        Config.from_kwargs(**cell.settings(1000))  # before anything is read: an override may be invalid
    return list({cell.name: cell for cell in cells}.values())


def _parse_decays(text: str) -> list[int]:
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise FocuseError(f"--decays {text!r}: give epochs separated by commas, like 0,200,800")
    return list(dict.fromkeys(int(part) for part in text.split(",")))


def _parse_override(text: str) -> dict[str, Any]:
    """Parse an override such as 'lr=1e-4 dim=300'."""
    assignments = parse_assignments("--override", text.split())
    if not assignments:
        raise FocuseError(f"--override {text!r}: write it like --override 'lr=1e-4 dim=300'")
    for name in assignments:
        if name in NOT_OVERRIDDEN:
            raise FocuseError(f"--override {text!r}: {name} cannot be overridden")
    return {name: parse_setting_value(name, value) for name, value in assignments.items()}
