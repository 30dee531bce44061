"""The verdict on tables with known numbers."""

from __future__ import annotations

import pytest

from focuse.paper.bootstrap import Interval
from focuse.paper.cells import MODELS
from focuse.paper.tables import Change, Entry, Row, Runs, Size, Table, make_tables
from focuse.paper.verdict import verdict


def table_of(cells):
    """Table 4 of PPI5K from model -> (top, ΔMRR, change, interval); the paper has .95 and .46."""
    rows = []
    for model in MODELS:
        top, delta, change, interval = cells.get(model, (None, None, None, None))
        entries = {"top_mrr": Entry(top, paper=0.95), "delta_mrr": Entry(delta, paper=0.46)}
        changes = {} if change is None else {"delta_mrr": Change(change, interval)}
        rows.append(Row("ppi5k", model, "focuse", entries, changes))
    return Table(4, "full", {"ppi5k": Size(100, 100, 10)}, tuple(rows))


def test_value_within_two_hundredths_reaches_the_paper():
    cells = {"transe": (0.93, 0.4399, 0.1, None), "distmult": (0.9299, 0.44, 0.1, None), "complex": (1, 1, 0.1, None)}
    pairs = verdict(table_of(cells)).pairs
    assert [pair.reaches_top for pair in pairs] == [True, False, True]
    assert [pair.reaches_delta for pair in pairs] == [False, True, True]


@pytest.mark.parametrize(
    ("change", "widens", "narrows"),
    [(0.001, True, False), (0.0, False, False), (-0.01, False, False), (-0.02, False, True)],
)
def test_change_of_delta_mrr_widens_or_narrows(change, widens, narrows):
    pair = verdict(table_of({"transe": (0.9, 0.4, change, None)})).pairs[0]
    assert (pair.widens, pair.narrows) == (widens, narrows)


def test_counts_exclude_unknown_values():
    cells = {"transe": (0.95, 0.46, 0.2, Interval(0.1, 0.3)), "complex": (0.5, 0.46, 0.02, Interval(-0.01, 0.05))}
    counts = {name: (one.yes, one.of) for name, one in verdict(table_of(cells)).counts.items()}
    assert counts == {
        "reaches_top": (1, 2),
        "reaches_delta": (2, 2),
        "widens": (2, 2),
        "surely_widens": (1, 2),
        "narrows": (0, 2),
    }


def test_quick_form_and_substitute_data_set_are_not_compared(make_result):
    results = [make_result(data, kind=kind) for data in ("ppi5k", "onet-importance") for kind in ("plain", "focuse")]
    table = make_tables(Runs.of(results), "full")[4]
    for found, known in ((verdict(table), [True, False]), (verdict(table, comparable=False), [False, False])):
        complex_ones = [pair for pair in found.pairs if pair.model == "complex"]
        assert [pair.reaches_top is not None for pair in complex_ones] == known
        assert [pair.reaches_delta is not None for pair in complex_ones] == known
        assert all(pair.widens for pair in complex_ones)
        assert found.counts["widens"].of == 2
