"""Finished cells without a training: made ranks, weights and scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from reproduction.grid import Cell
from reproduction.results import RankedTest, Result

TRIPLES = 240


def ranked(seed: int, n: int = TRIPLES, gap: float = 0.0, weights: int = 12) -> RankedTest:
    """Random ranks; `gap` gives triples of low weight worse ranks. All seeds have the same weights."""
    fixed, random = np.random.default_rng(n), np.random.default_rng(seed)
    weight = fixed.integers(0, weights, n) / max(weights - 1, 1)
    higher = random.geometric(0.3, (n, 2)) - 1 + (gap * (1 - weight)[:, None] * random.integers(0, 20, (n, 2)))
    equal = random.integers(0, 2, (n, 2))
    score = (random.normal(size=n) + gap * weight).astype(np.float32)
    return RankedTest(higher.astype(np.int64), equal, score, weight, fixed.random(n) < 0.6)


def finished(
    data: str = "ppi5k",
    model: str = "complex",
    kind: str = "plain",
    seed: int = 0,
    overrides: dict[str, Any] | None = None,
    form: str = "tables",
    test: RankedTest | None = None,
    **info: Any,
) -> Result:
    cell = Cell(data, model, kind, seed, overrides or {}, form)
    known = {
        "settings": {"dim": 400, "num_negatives": 30, "lr": 1e-4, "regularizer": "l3:1e-2", "beta_decay_epochs": 500},
        "departures": cell.departures if form == "tables" else [],
        "epochs": 800,
        "best_epoch": 425,
        "valid_mrr": 0.8125,
        "valid_mse": None,
        "seconds": 36.4,
        "device": "made up",
        "torch": "2",
        "focuse": "0",
    }
    if test is None:
        number = sum(map(ord, f"{data}{model}{kind}{overrides}{form}")) * 31 + seed
        test = ranked(number, TRIPLES + 10 * len(data), 0.8 if kind == "focuse" else 0.1)
    return Result(cell, known | info, test)


@pytest.fixture(scope="session")
def make_ranked() -> Callable[..., RankedTest]:
    return ranked


@pytest.fixture(scope="session")
def make_result() -> Callable[..., Result]:
    return finished
