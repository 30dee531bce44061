"""Predicted weights as rows, columns and text."""

from __future__ import annotations

import numpy as np

from focuse.data.graph import from_columns
from focuse.inference.answers import Weighings

GRAPH = from_columns(["a", "b"], ["r", "r"], ["b", "a"], [0.1, 0.9])


def told(n: int = 2) -> Weighings:
    ids = np.arange(n) % 2, np.zeros(n, np.int64), (np.arange(n) + 1) % 2
    columns = {name: np.full(n, 0.25) for name in ("expected", "typical", "low", "high")}
    columns["low"][0] = np.nan
    known = (np.arange(n) == 2).astype(float)
    return Weighings(GRAPH, ids, columns | {"probability": np.full(n, np.nan), "known": known}, 0.8)


def test_rows_are_indexed_with_missing_values_as_none() -> None:
    first, second = told()
    assert (first.head, first.relation, first.tail) == ("a", "r", "b")
    assert (first.low, first.high, first.probability) == (None, 0.25, None)
    assert second.low == 0.25
    assert told()[-1] == second
    assert told().expected.tolist() == [0.25, 0.25]


def test_text_shows_available_values() -> None:
    lines = str(told()).splitlines()
    assert lines[0].rstrip() == "a  r  b  weight ≈ 0.25     typically 0.25"
    assert "80% in 0.25 to 0.25" in lines[1]
    assert str(told(3)).splitlines()[2].endswith("weight = 0.25     known from train")
    many = str(told(Weighings.shown + 7)).splitlines()
    assert len(many) == Weighings.shown + 1
    assert many[-1].startswith("… 7 more")


def test_missing_numbers_are_null_in_arrow() -> None:
    table = told().to_arrow()
    assert table["low"].to_pylist() == [None, 0.25]
    assert table["probability"].null_count == 2
    assert told(3).to_arrow()["known"].to_pylist() == [False, False, True]
