"""The cells of the paper's tables: data set × model × {plain, FocusE} × seed, its rival UKGE, and the settings of each.

Settings come from the TOML files in `configurations/`: one a data set, checked on load; `departures.toml` holds
where the authors' code differs from their text, `published.toml` the figures of the paper.
"""

from __future__ import annotations

import hashlib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from focuse.config import Config
from focuse.errors import FocuseError
from focuse.option_strings import choose

DATA = ("ppi5k", "nl27k", "cn15k", "onet20k", "onet-importance")
MODELS = ("transe", "distmult", "complex")
KINDS = ("plain", "focuse")
# The paper's rival has a kind of its own; it needs confidences and rules, so not every data set has it.
UKGE, UKGE_DATA = ("ukge-rect", "ukge-logi"), ("ppi5k", "nl27k", "cn15k")
TITLES = {
    "transe": "TransE",
    "distmult": "DistMult",
    "complex": "ComplEx",
    "ukge-rect": "UKGE rect",
    "ukge-logi": "UKGE logi",
}
LONGEST = 180
NOT_SETTINGS = ("departures", "ours", "because")
# Figure 3 varies λ on NL27K and holds everything else.
DECAYS = tuple(range(0, 801, 100))
FIGURE_3: dict[str, Any] = {"dim": 300, "lr": 1e-3, "regularizer": "l3:1e-2"}
# The quick form: small and shared, but the same layer, protocol and report.
QUICK: dict[str, Any] = {
    "dim": 100,
    "negative_sampling": "shared",
    "num_negatives": 512,
    "lr": 3e-3,
    "epochs": 12,
    "eval_every": 2,
}
QUICK_DATA, QUICK_MODELS = ("ppi5k", "nl27k"), ("complex",)
QUICK_FOCUSE: dict[str, Any] = {"beta_decay_epochs": 12, "eval_start": 4}


@dataclass(frozen=True)
class Cell:
    """One training. `changes` are settings other than the configuration's: an ablation, or figure 3's λ.

    `form` says which settings it starts from: 'paper' is the configuration, 'appendix' the same without `ours`,
    'quick' and 'figure3' have their own.
    """

    data: str
    model: str
    kind: str
    seed: int = 0
    changes: Mapping[str, Any] = field(default_factory=dict)
    form: str = "paper"

    @property
    def name(self) -> str:
        """A file name; equal for equal cells."""
        parts = [self.data, self.model, self.kind]
        parts += [f"{key}={value}" for key, value in sorted(self.changes.items())]
        parts += [self.form] if self.form != "paper" else []
        name = re.sub(r"[^\w=.+-]", "-", "_".join([*parts, f"seed{self.seed}"]))
        if len(name) > LONGEST:  # a file system takes 255 bytes, and temporary names are longer
            name = f"{name[: LONGEST - 17]}_{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"
        return name

    @property
    def title(self) -> str:
        """'PPI5K FocusE ComplEx (loss=pairwise-nll)'."""
        changed = ", ".join(f"{key}={value}" for key, value in sorted(self.changes.items()))
        focused = "FocusE " if self.kind == "focuse" else ""
        return f"{title(self.data)} {focused}{TITLES[self.model]}" + (f" ({changed})" if changed else "")

    def settings(self, rows: int) -> dict[str, Any]:
        """What `train` gets, for a training graph of `rows` rows."""
        given = self._given()
        batches = given.pop("batches", None)
        if batches:
            given["batch_size"] = math.ceil(rows / batches)
        return given | {"model": self.model, "seed": self.seed}

    def _given(self) -> dict[str, Any]:
        given = dict(configuration(self.data, self.form in ("paper", "quick"))[self.model][self.kind])
        if self.form == "quick":
            given |= QUICK | (QUICK_FOCUSE if self.kind == "focuse" else {"eval_start": 0})
        if self.form == "figure3":
            given |= FIGURE_3
        given |= self.changes
        if "batch_size" in self.changes:
            given.pop("batches", None)
        return given

    @property
    def departures(self) -> list[str]:
        """The names of the authors' departures that it follows, whatever else it changes."""
        given, notes = self._given(), departure_notes()
        tables = _tables(self.data, self.model, self.kind)
        named = [name for table in tables for name in table.get("departures", [])]
        return [name for name in named if notes[name]["settings"].items() <= given.items()]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"changes": dict(self.changes)}


def paper_cells(data: Iterable[str], models: Iterable[str], kinds: Iterable[str], seeds: int) -> list[Cell]:
    """The cells of tables 2 to 4, seed after seed, so that an early stop leaves whole tables."""
    wanted = {(m, k) for m in models for k in kinds}
    names = [(d, m, k) for d in data for m, k in rows_of(d) if (m, k) in wanted]
    return [Cell(d, m, k, seed) for seed in range(seeds) for d, m, k in names]


def rows_of(data: str) -> list[tuple[str, str]]:
    """Model and kind of every row that the tables have for a data set."""
    rivals = [(model, "ukge") for model in UKGE] if data in UKGE_DATA else []
    return [(model, kind) for model in MODELS for kind in KINDS] + rivals


def place(data: str, model: str, kind: str) -> tuple[int, int, int]:
    """Where a row stands among all, to sort by."""
    return DATA.index(data), (*MODELS, *UKGE).index(model), (*KINDS, "ukge").index(kind)


def figure_cells(models: Iterable[str], seeds: int, decays: Iterable[int] = DECAYS) -> list[Cell]:
    """The cells of figure 3: NL27K, λ from 0 to 800."""
    names = [(model, decay) for decay in decays for model in models]
    return [
        Cell("nl27k", model, "focuse", seed, {"beta_decay_epochs": decay}, "figure3")
        for seed in range(seeds)
        for model, decay in names
    ]


def title(data: str) -> str:
    return str(_read(choose("data set", data, DATA))["title"])


def because(data: str, model: str, kind: str) -> str:
    """Why a cell departs from the paper's own settings, '' if it does not."""
    return str(_read(data)[model][kind].get("ours", {}).get("because", ""))


@cache
def departure_notes() -> dict[str, dict[str, Any]]:
    """What each departure means: paper, code, settings."""
    return load_configuration("departures")


@cache
def published() -> dict[str, dict[str, Any]]:
    """The paper's figures: data set -> model -> kind -> top, bottom, delta, gain (and UKGE's rows)."""
    return load_configuration("published")


@cache
def configuration(data: str, ours: bool = True) -> dict[str, dict[str, dict[str, Any]]]:
    """Settings of a data set's cells: model -> kind -> settings; checked, departures worked in.

    A cell's table `ours` holds what reaches the paper's figures where its own settings do not, and `because`.
    """
    raw = _read(choose("data set", data, DATA))
    result: dict[str, dict[str, dict[str, Any]]] = {}
    for model, kind in rows_of(data):
        given: dict[str, Any] = {}
        own = raw[model][kind].get("ours", {}) if ours else {}
        for table in (*_tables(data, model, kind), own):
            for name in table.get("departures", []):
                given |= departure_notes()[name]["settings"]
            given |= {key: value for key, value in table.items() if key not in NOT_SETTINGS}
        Config.from_kwargs(**{key: value for key, value in given.items() if key != "batches"}, model=model)
        result.setdefault(model, {})[kind] = given
    return result


def _tables(data: str, model: str, kind: str) -> list[dict[str, Any]]:
    """What the file of a data set says of a row, the general first; `all` is about the paper's own models."""
    raw = _read(data)
    return [*([] if kind == "ukge" else [raw["all"]]), raw.get(kind, {}), raw[model][kind]]


@cache
def _read(data: str) -> dict[str, Any]:
    """A data set's file, its structure checked."""
    raw, where = load_configuration(data), f"configurations/{data}.toml"
    for model, kind in rows_of(data):
        if kind not in raw.get(model, {}):
            raise FocuseError(f"{where}: no settings for {model}.{kind}")
    for table in (raw["all"], *(raw[kind] for kind in KINDS), *(raw[m][k] for m, k in rows_of(data))):
        for name in table.get("departures", []):
            choose(f"departure in {where}", name, departure_notes())
    return raw


def load_configuration(name: str) -> dict[str, Any]:
    path = files("focuse.paper") / "configurations" / f"{name}.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise FocuseError(f"{path}: {error}") from None
