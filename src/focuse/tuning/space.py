"""What a search varies and what it holds fixed: the paper's ranges, widened, or those of a file or the shell."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focuse.config import Config, parse_assignments, parse_setting_value
from focuse.errors import FocuseError
from focuse.models.registry import model_class
from focuse.storage.metadata import read_toml

# Section 5 searches k 200–600, three learning rates, η, γ, λ and epochs; its best cells lie partly outside of that.
DEFAULTS: dict[str, list[Any]] = {
    "dim": [150, 200, 250, 300, 400, 500, 600, 800],
    "lr": [1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3],
    "num_negatives": [5, 10, 20, 30],
    "regularizer": ["l3:1e-1", "l3:1e-2", "l3:1e-3"],
}
ADAGRAD_RATES = [0.02, 0.05, 0.1, 0.2, 0.5]
# What those numbers of negatives and those rates are for.
HELD: dict[str, Any] = {"negative_sampling": "per-triple", "optimizer": "sparse-adam", "weight_mode": "focuse"}
# UKGE's own search, without weights and with L2 on the batch's rows.
CONFIDENT: dict[str, list[Any]] = {
    "dim": [64, 128, 256, 512],
    "lr": [5e-4, 1e-3, 2e-3, 5e-3],
    "num_negatives": [10, 20, 40],
    "regularizer": ["l2:1e-5", "l2:1e-4", "l2:5e-4", "l2:2e-3"],
}
CONFIDENT_EPOCHS = 100
LABEL_EXPONENTS = [1.0, 2.0, 4.0, 8.0]
DECAYS = list(range(100, 801, 100))
LOSSES = ["nll", "multiclass-nll", "self-adversarial"]
# With the best weights kept, 800 epochs hold every shorter training of the same λ: one length serves for all.
EPOCHS = 800
PLAIN_EVAL_START = 50  # a plain model has no λ to wait for; half of the paper's shortest training

# They decide what is measured, or where: trials that differ in them could not be compared.
NOT_SEARCHED = ("seed", "valid_min_weight", "duplicates", "device", "checkpoint_every", "stop_metric")
NOT_REMEMBERED = ("device", "checkpoint_every")  # the machine's matter, not the model's


@dataclass(frozen=True)
class Space:
    """Names with the values to try, and the settings that stay. Made by `make_space` or `read_space`."""

    searched: dict[str, list[Any]]
    fixed: dict[str, Any]

    @property
    def size(self) -> int:
        """How many combinations there are."""
        return math.prod(len(values) for values in self.searched.values())

    def cell(self, place: int) -> dict[str, Any]:
        """The combination at a place in [0, size)."""
        chosen = {}
        for name, values in self.searched.items():
            place, at = divmod(place, len(values))
            chosen[name] = values[at]
        return chosen

    def settings(self, cell: Mapping[str, Any]) -> Config:
        """The settings of one trial."""
        return Config.from_kwargs(**{**self.fixed, **cell})

    def remembered(self, cell: Mapping[str, Any]) -> dict[str, Any]:
        """All that makes a trial what it is, the searched values first; without what says nothing of the model."""
        every = {**cell, **self.settings(cell).to_kwargs()}
        return {name: value for name, value in every.items() if name not in NOT_REMEMBERED}

    def about(self) -> dict[str, str]:
        """Every setting in words, to tell one search from another."""
        words = {name: str(value) for name, value in self.remembered({}).items()}
        return words | {name: shown(values) for name, values in self.searched.items()}

    def __str__(self) -> str:
        searched = "; ".join(f"{name} {shown(values)}" for name, values in self.searched.items())
        fixed = ", ".join(f"{name} {value}" for name, value in self.fixed.items())
        return f"search: {searched or 'nothing'} ({self.size:,} combinations)" + (f"; fixed: {fixed}" if fixed else "")


def shown(values: Sequence[Any]) -> str:
    return " | ".join(map(str, values))


def make_space(search: Mapping[str, Sequence[Any]], fixed: Mapping[str, Any], defaults: bool = True) -> Space:
    """The default space with some names searched otherwise or fixed; every value is checked.

    Without `defaults` nothing is searched but `search`, and what is not `fixed` has its usual default.

    >>> make_space({"lr": [1e-3, 1e-2]}, {"dim": 8}, defaults=False).size
    2
    """
    both = sorted(set(search) & set(fixed))
    if both:
        raise FocuseError(f"{', '.join(both)}: both searched and fixed; choose one")
    checked = Config.from_kwargs(**fixed)
    if "model" in fixed:
        fixed = {**fixed, "model": checked.model}  # of a class, the name that it is remembered by
    usual, held = _defaults(search, fixed) if defaults else ({}, {})
    if fixed.get("stop_metric", "mrr") not in ("mrr", "auto"):
        raise FocuseError(f"judge {fixed['stop_metric']!r}: trials are compared by validation MRR; leave it out")
    tried = [fixed.get("model", Config.model), *_checked("model", search.get("model", [Config.model]), {})]
    judged = {"stop_metric": "mrr"} if any(model_class(name).confidence_head is not None for name in tried) else {}
    held = {**held, **fixed, **judged}
    wanted = {**{name: values for name, values in usual.items() if name not in fixed}, **search}
    return Space({name: _checked(name, values, held) for name, values in wanted.items()}, held)


def _defaults(
    search: Mapping[str, Sequence[Any]], fixed: Mapping[str, Any]
) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """The values to search and to hold where the user has not said otherwise."""
    given = {*search, *fixed}
    if model_class(fixed.get("model", Config.model)).confidence_head is not None:
        usual = _suited({name: values for name, values in CONFIDENT.items() if name not in given}, search, fixed)
        held = {"regularizer_scope": "rows", "epochs": CONFIDENT_EPOCHS, "eval_start": 0}
        return usual, {name: value for name, value in held.items() if name not in given}
    usual, held = dict(DEFAULTS), {name: value for name, value in HELD.items() if name not in given}
    plain = fixed.get("weight_mode") == "none"
    if "epochs" not in given:
        held["epochs"] = EPOCHS
        if plain and "eval_start" not in given:
            held["eval_start"] = PLAIN_EVAL_START
    if plain:
        usual["loss"] = LOSSES
    elif fixed.get("weight_mode") == "soft-labels":
        usual["label_exponent"] = LABEL_EXPONENTS
    elif "beta" not in given:
        longest = max((value for value in search.get("epochs", ()) if isinstance(value, int)), default=0)
        longest = longest or fixed.get("epochs", EPOCHS)
        decays = [decay for decay in DECAYS if decay <= longest]  # beyond the last epoch β never arrives
        usual |= {"beta_decay_epochs": decays} if decays else {}
    return _suited(usual, search, fixed), held


def _suited(
    usual: dict[str, list[Any]], search: Mapping[str, Sequence[Any]], fixed: Mapping[str, Any]
) -> dict[str, list[Any]]:
    """Without values that are for another kind of negatives or another optimizer; each is searched for its own."""
    if "negative_sampling" in search or fixed.get("negative_sampling", "per-triple") != "per-triple":
        usual.pop("num_negatives", None)  # a pool of 5 to 30 is none
    if "optimizer" in search:
        usual.pop("lr", None)
    elif str(fixed.get("optimizer", "")).endswith("adagrad") and "lr" in usual:
        usual["lr"] = ADAGRAD_RATES
    return usual


def _checked(name: str, values: Sequence[Any], fixed: Mapping[str, Any]) -> list[Any]:
    """The values as Settings has them, each once."""
    if not isinstance(values, list | tuple) or not values:
        raise FocuseError(f"{name} {values!r}: give a list of values to search")
    if name in NOT_SEARCHED:
        raise FocuseError(
            f"{name} cannot be searched: trials that differ in it cannot be compared; fix it (--fix {name}=…)"
        )
    checked = [getattr(Config.from_kwargs(**{**fixed, name: value}), name) for value in values]
    return list(dict.fromkeys(checked))


def read_space(file: Path | None, searches: Sequence[str], sets: Sequence[str], options: Mapping[str, Any]) -> Space:
    """The space of the command line: --space FILE, --search NAME=VALUE,…, --fix NAME=VALUE and plain options.

    A file is the whole space: a list is searched, a single value fixed. The shell has the last word.
    """
    search: dict[str, Any] = {}
    fixed: dict[str, Any] = {}
    if file is not None:
        for name, value in read_toml(file).items():
            (search if isinstance(value, list) else fixed)[name] = value
        try:
            make_space(search, fixed, defaults=False)
        except FocuseError as error:
            raise FocuseError(f"{file}: {error}") from None
    typed_search = parse_assignments("--search", searches)
    typed_fixed = parse_assignments("--fix", sets)
    twice = sorted(set(typed_fixed) & set(options)) or sorted(set(typed_search) & {*typed_fixed, *options})
    if twice:
        raise FocuseError(f"{', '.join(twice)}: given twice; choose one of --search, --fix and the option of its own")
    fixed |= {name: parse_setting_value(name, text) for name, text in typed_fixed.items()} | dict(options)
    search |= {name: _values(name, text) for name, text in typed_search.items()}
    search = {name: values for name, values in search.items() if name not in {*typed_fixed, *options}}
    fixed = {name: value for name, value in fixed.items() if name not in typed_search}
    return make_space(search, fixed, defaults=file is None)


def _values(name: str, text: str) -> list[Any]:
    """'1e-4,1e-3', or a TOML list where a value itself holds a comma."""
    if not text.startswith("["):
        return [parse_setting_value(name, part.strip()) for part in text.split(",") if part.strip()]
    try:
        return list(tomllib.loads(f"values = {text}")["values"])
    except (ValueError, TypeError, RecursionError):  # a TOMLDecodeError is a ValueError
        raise FocuseError(f'--search {name}={text}: not a TOML list; write it like ["nll", "margin:2"]') from None
