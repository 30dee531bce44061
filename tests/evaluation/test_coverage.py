"""Coverage and width by hand."""

from __future__ import annotations

import json
import math

import numpy as np

from focuse.evaluation.coverage import IntervalTable, cover, cover_relations

LOW, HIGH = np.array([0.0, 0.2, 0.5, 0.5]), np.array([0.4, 0.6, 0.6, 1.0])
TRUTH, KIND = np.array([0.4, 0.7, 0.5, 0.2]), np.array([2, 0, 2, 2])


def test_by_hand() -> None:
    found = cover(LOW, HIGH, TRUTH)
    assert (found.n, found.coverage) == (4, 0.5)
    np.testing.assert_allclose([found.width, found.median_width], [1.4 / 4, 0.4])
    assert math.isnan(cover(*[np.empty(0)] * 3).coverage)


def test_relations_most_frequent_first() -> None:
    found = cover_relations(LOW, HIGH, TRUTH, KIND, ["a", "b", "c"], np.array([False, False, True]))
    assert [(row.relation, row.own, row.figures.n, row.figures.coverage) for row in found] == [
        ("c", True, 3, 2 / 3),
        ("a", False, 1, 0.0),
    ]


def test_table_and_json() -> None:
    kinds = cover_relations(LOW, HIGH, TRUTH, KIND, ["a", "b", "c"], np.array([False, False, True]))
    table = IntervalTable(0.9, 40, {"ours": cover(LOW, HIGH, TRUTH)}, kinds)
    told = json.loads(json.dumps(table.to_dict(), allow_nan=False))
    assert told["rows"]["ours"]["coverage"] == 0.5
    assert [row["relation"] for row in told["relations"]] == ["c", "a"]
    shown = str(table)
    assert "90% intervals (4 facts of test, 40 conformal rows)" in shown
    assert "1 of 2 have intervals of their own" in shown
