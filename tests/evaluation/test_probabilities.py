"""Brier score by hand, and a diagram that is the same each time."""

from __future__ import annotations

import json

import numpy as np
import pytest

from focuse.evaluation.probabilities import ProbabilityTable, brier, judge_probability

PROBABILITY, FACT = np.array([0.9, 0.6, 0.2, 0.1]), np.array([1.0, 0.0, 1.0, 0.0])


def table() -> ProbabilityTable:
    rows = {"before": judge_probability(np.full(4, 0.75), FACT), "after": judge_probability(PROBABILITY, FACT)}
    return ProbabilityTable(rows, 2, 2, 0.5, ("a note",))


def test_brier_by_hand() -> None:
    assert brier(PROBABILITY, FACT) == pytest.approx((0.01 + 0.36 + 0.64 + 0.01) / 4)
    assert np.isnan(brier(np.empty(0), np.empty(0)))


def test_ece_by_hand() -> None:
    assert table().rows["before"].ece == pytest.approx(0.25)
    assert table().rows["after"].ece == pytest.approx((0.1 + 0.6 + 0.8 + 0.1) / 4)


def test_text_and_json() -> None:
    told = json.loads(json.dumps(table().to_dict(), allow_nan=True))
    assert told["rows"]["before"]["brier"] == pytest.approx(0.3125)
    assert told["base_rate"] == 0.5
    shown = str(table())
    assert "2 facts and 2 negatives (base rate 0.5)" in shown
    assert shown.endswith("a note")


def test_the_same_diagram_each_time() -> None:
    first, second = table().svg("a $title"), table().svg("a $title")
    assert first == second
    assert first.startswith("<?xml")
    assert first != table().svg("another")
