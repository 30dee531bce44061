"""Choosing the next combination of a search, and when to give one up."""

from __future__ import annotations

import random
import warnings
import zlib
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from focuse.tuning.space import Space

STARTUP = 10  # trials by chance before TPE has something to learn from
ATTEMPTS = 20  # suggestions of TPE before any untried combination is taken
MOST_CELLS = 1_000_000  # a grid is held in memory

Cell = tuple[Any, ...]  # the values of a combination, in the order of the space


class Chooser:
    """Chooses a combination that no trial has had.

    Each choice has a random stream of its own, made of the seed and how many were chosen before it: a study that
    is gone on with chooses as if it had never stopped. Optuna's own grid takes a trial that was cut off for done,
    and lets two processes have the same cell; its TPE knows no order among listed numbers.
    """

    def __init__(self, space: Space, kind: str, seed: int) -> None:
        self.space, self.seed = space, seed
        self.order = self._shuffled(seed) if kind == "grid" else None
        # TPE sees numbers by their rank, so that it takes neighbours for alike; words have none.
        self.scales = {name: _ascending(values) or values for name, values in space.searched.items()}
        self.ranks: dict[str, BaseDistribution] = {
            name: IntDistribution(0, len(values) - 1)
            if _ascending(values)
            else CategoricalDistribution(range(len(values)))
            for name, values in self.scales.items()
        }

    def choose(self, trials: list[FrozenTrial], tried: set[Cell]) -> dict[str, Any]:
        """The next combination after these trials; there must be an untried one."""
        if self.order is not None:
            return self._untried(self.order, tried)
        seen = self._seen(trials)
        for attempt in range(ATTEMPTS):
            stream = zlib.crc32(f"{self.seed} {len(tried)} {attempt}".encode())
            seen.sampler = tpe(stream)
            ranks = seen.ask(self.ranks).params
            cell = {name: values[ranks[name]] for name, values in self.scales.items()}
            if tuple(cell.values()) not in tried:
                break
        else:
            if self.space.size <= MOST_CELLS:
                return self._untried(self._shuffled(stream), tried)
        return cell

    def _shuffled(self, seed: int) -> list[int]:
        return random.Random(seed).sample(range(self.space.size), self.space.size)

    def _untried(self, order: list[int], tried: set[Cell]) -> dict[str, Any]:
        cells = (self.space.cell(place) for place in order)
        return next(cell for cell in cells if tuple(cell.values()) not in tried)

    def _seen(self, trials: list[FrozenTrial]) -> optuna.Study:
        """The trials so far, with ranks for values, as a study in memory."""
        seen = optuna.create_study(direction="maximize")
        for trial in trials:
            looks = trial.intermediate_values
            copied = optuna.trial.create_trial(
                state=trial.state,
                value=trial.value if trial.state == TrialState.COMPLETE else None,
                params={name: values.index(trial.params[name]) for name, values in self.scales.items()},
                distributions=self.ranks,
                intermediate_values={max(looks): looks[max(looks)]} if looks else {},  # all that TPE looks at
            )
            seen.add_trial(copied)
        return seen


def _ascending(values: list[Any]) -> list[Any]:
    """Numbers in order; nothing if they are no numbers."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return sorted(values) if numbers else []


def tpe(stream: int) -> optuna.samplers.TPESampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # constant_liar was, in version 4
        return optuna.samplers.TPESampler(seed=stream, n_startup_trials=STARTUP, constant_liar=True)


def make_pruner(kind: str, epochs: int, eval_every: int) -> optuna.pruners.BasePruner:
    """When to give a trial up, seen from what others had reached by the same epoch."""
    if kind == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=5, n_min_trials=3)
    if kind == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=min(eval_every, epochs), max_resource=epochs)
    return optuna.pruners.NopPruner()
