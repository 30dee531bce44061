"""The settings that a search varies, and those that it holds fixed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from focuse.config import Config, parse_assignments, parse_setting_value
from focuse.data.graph import Graph
from focuse.errors import FocuseError
from focuse.option_strings import parse_option_string

# By default these settings are searched: the value that `focuse.train` would use, multiplied by each factor.
DEFAULT_FACTORS = {
    "dim": (1, 2, 4),
    "lr": (0.3, 1, 3),
    "num_negatives": (0.25, 1, 4),
    "regularizer": (0.1, 1, 10),
    "beta_decay_epochs": (0.25, 0.5, 1),
}
# They decide what is measured, or where: trials that differ in them could not be compared.
NOT_SEARCHED = ("seed", "valid_min_weight", "duplicates", "device", "checkpoint_every", "stop_metric", "stop_fraction")
NOT_WRITTEN = ("device", "checkpoint_every")  # they depend on the machine, not on the model


@dataclass(frozen=True)
class Space:
    """The values to try per searched setting, and the fixed settings; made by `make_space`.

    `resolved` has the settings that `focuse.train` would use with the fixed settings alone.
    """

    searched: dict[str, list[Any]]
    fixed: dict[str, Any]
    resolved: Config

    @property
    def size(self) -> int:
        """The number of combinations."""
        return math.prod(len(values) for values in self.searched.values())

    @property
    def metric(self) -> str:
        """The validation result that trials are compared by: that of early stopping."""
        return f"valid_{self.resolved.stop_metric}"

    @property
    def default_combination(self) -> dict[str, Any]:
        """The combination that `focuse.train` would use by itself; empty if it is not in the space."""
        defaults = {name: getattr(self.resolved, name) for name in self.searched}
        return defaults if all(defaults[name] in values for name, values in self.searched.items()) else {}

    def train_settings(self, combination: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keywords with which `focuse.train` repeats the trial of a combination, the searched ones first."""
        settings = {**combination, **Config.from_kwargs(**{**self.fixed, **combination}).to_kwargs()}
        return {name: value for name, value in settings.items() if name not in NOT_WRITTEN}

    def __str__(self) -> str:
        searched = "; ".join(f"{name} {' | '.join(map(str, values))}" for name, values in self.searched.items())
        fixed = ", ".join(f"{name} {value}" for name, value in self.fixed.items() if name not in NOT_WRITTEN)
        return f"search: {searched or 'nothing'} ({self.size:,} combinations); fixed: {fixed or 'nothing'}"


def make_space(
    train: Graph, search: Mapping[str, Sequence[Any]] | None = None, fix: Mapping[str, Any] | None = None
) -> Space:
    """Return the space of a training graph, by default around the settings that `focuse.train` would use.

    `search` has the values to try per setting and `fix` the settings that are not searched; every value is checked.
    """
    search, fixed = dict(search or {}), dict(fix or {})
    if both := sorted(set(search) & set(fixed)):
        raise FocuseError(f"{', '.join(both)}: both searched and fixed; choose one")
    config = Config.from_kwargs(**fixed)
    if "model" in fixed:
        fixed["model"] = config.model  # the name of a class
    resolved = config.resolve(train, config.device)
    searched = {name: values for name, values in _values_around(resolved, search).items() if name not in fixed}
    checked = {name: _check_values(name, values, fixed) for name, values in (searched | search).items()}
    return Space(checked, fixed, resolved)


def _values_around(config: Config, search: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the settings that are searched by default, with the values of `config`, lower and higher ones."""
    unused = {
        "lr": "optimizer" in search,  # a learning rate suits one optimizer
        "num_negatives": "negative_sampling" in search or config.negative_sampling == "all",
        "regularizer": not parse_option_string(config.regularizer, "regularizer")[1],
        "beta_decay_epochs": config.weight_mode != "focuse" or config.beta is not None,
    }
    return {
        name: [_scale(getattr(config, name), factor) for factor in factors]
        for name, factors in DEFAULT_FACTORS.items()
        if not unused.get(name)
    }


def _scale(value: Any, factor: float) -> Any:
    """Return a number times a factor, or a regularizer such as 'l3:1e-3' with its strength times the factor."""
    if isinstance(value, str):
        name, (strength, *_), _ = parse_option_string(value, "regularizer")
        return value if factor == 1 else f"{name}:{strength * factor:g}"
    return max(1, round(value * factor)) if isinstance(value, int) else float(f"{value * factor:.6g}")


def _check_values(name: str, values: Sequence[Any], fixed: Mapping[str, Any]) -> list[Any]:
    """Return the values as `Config` has them, each of them once."""
    if not isinstance(values, list | tuple) or not values:
        raise FocuseError(f"{name} {values!r}: give a list of values to search")
    if name in NOT_SEARCHED:
        raise FocuseError(f"{name} cannot be searched, because trials would not be comparable; use --fix {name}=…")
    return list(dict.fromkeys(getattr(Config.from_kwargs(**{**fixed, name: value}), name) for value in values))


def parse_search(assignments: Sequence[str]) -> dict[str, list[Any]]:
    """Parse `--search`, like ['lr=1e-4,1e-3'] -> {'lr': [1e-4, 1e-3]}; semicolons separate values with commas."""
    found = parse_assignments("--search", assignments)
    parts = {name: text.split(";" if ";" in text else ",") for name, text in found.items()}
    return {name: [parse_setting_value(name, part.strip()) for part in some] for name, some in parts.items()}


def parse_fix(assignments: Sequence[str]) -> dict[str, Any]:
    """Parse `--fix`, like ['batch-size=64'] -> {'batch_size': 64}."""
    return {name: parse_setting_value(name, text) for name, text in parse_assignments("--fix", assignments).items()}
