"""Formatting of numbers in the report."""

from __future__ import annotations

import pytest

from focuse.paper.bootstrap import Interval
from focuse.paper.document import Grid
from focuse.paper.sections import (
    bounds,
    decimal,
    model_name,
    paper_figure,
    percent,
    table_2,
    table_3,
    table_4,
    whole,
)
from focuse.paper.tables import Entry, Runs, make_tables


@pytest.mark.parametrize(
    ("value", "places", "sign", "text"),
    [
        (0.97, 3, False, ".970"),
        (0.97, 2, False, ".97"),
        (-0.0021, 3, False, "−.002"),
        (-0.0001, 3, True, ".000"),
        (0.0, 3, True, ".000"),
        (0.0104, 3, True, "+.010"),
        (1.0, 3, False, "1.000"),
        (-12.34, 1, True, "−12.3"),
        (4943.2, 1, False, "4,943.2"),
        (10.05, 3, False, "10.050"),
        (None, 3, True, "–"),
        (float("nan"), 3, True, "–"),
    ],
)
def test_decimals_are_formatted_like_the_paper(value, places, sign, text):
    assert decimal(value, places, sign) == text


def test_entries_are_formatted_with_deviation_and_paper_value():
    assert whole(Entry(0.951, 0.0034, 3)) == ".951 ± .003"
    assert whole(Entry(0.951, None, 1)) == ".951"
    assert whole(Entry()) == "–"
    assert paper_figure("top_mr", 4943) == "4,943"
    assert paper_figure("delta_mrr", 0.01) == "<.01"
    assert paper_figure("delta_mrr", 0.3) == ".30"
    assert paper_figure("delta_mrr", None) == "–"
    assert percent(2300.4) == "+2,300 %"
    assert percent(-6.2) == "−6 %"
    assert percent(None) == "–"
    assert bounds(Interval(-0.1, 0.25), sign=True) == "[−.100, +.250]"
    assert bounds(None) == ""
    assert model_name("complex", "focuse") == "FocusE ComplEx"


@pytest.mark.parametrize("form", ["full", "clean"])
def test_each_row_has_a_cell_for_each_heading(make_result, form):
    results = [
        make_result(d, m, k) for d in ("ppi5k", "onet-importance") for m in ("transe",) for k in ("plain", "focuse")
    ]
    tables = make_tables(Runs.of(results), form)
    grids = [b for b in table_2(tables[2]) + table_3(tables[3]) + table_4(tables[4]) if isinstance(b, Grid)]
    assert len(grids) == 1 + 2 + 2 + 2
    for grid in grids:
        assert {len(row) for row in grid.rows} == {len(grid.heads)}
        # Only where the paper has figures is there a column for them.
        assert ("paper" in grid.heads) == (
            form == "full" and grid.heads[0] in ("PPI5K", "data") and len(grid.heads) > 5
        )


def test_own_value_paper_value_and_difference_are_side_by_side(make_result):
    result = make_result("ppi5k", "transe")
    grid = table_2(make_tables(Runs.of([result]), "full")[2])[1]
    ours = result.test.metrics("bottom").mrr
    joint = result.test.metrics("bottom", "combined").mrr
    expected = ["PPI5K", "TransE", decimal(ours), ".26", decimal(ours - 0.26, sign=True), decimal(joint), "1"]
    assert grid.rows[0] == expected
