"""The table of how cells were trained."""

from __future__ import annotations

from focuse.paper.document import Grid
from focuse.paper.history import history_section


def grids(results):
    return [block for block in history_section(results) if isinstance(block, Grid)]


def test_every_cell_has_its_settings(make_result):
    plain = make_result(best_epoch=None, valid_mrr=None)
    focused = make_result("nl27k", "transe", "focuse", 2, {"beta_decay_epochs": 100}, "figure3", seconds=4321.6)
    rows = grids([focused, plain])[0].rows
    assert rows[0] == [
        "PPI5K ComplEx",
        "tables",
        "0",
        "400",
        "30",
        "1e-4",
        "1e-2",
        "–",
        "800",
        "–",
        "–",
        "36",
        "made up",
    ]
    assert rows[1][:3] == ["NL27K FocusE TransE (beta_decay_epochs=100)", "figure 3", "2"]
    assert rows[1][-6:-1] == ["500", "800", "425", ".812", "4,322"]


def test_cells_are_sorted_by_number(make_result):
    results = [
        make_result("nl27k", kind="focuse", changes={"beta_decay_epochs": at}, form="figure3")
        for at in (800, 100, 0, 1200)
    ]
    names = [row[0] for row in grids(results)[0].rows]
    assert [name.split("=")[1] for name in names] == ["0)", "100)", "800)", "1200)"]


def test_deviations_are_explained_with_their_cells(make_result):
    results = [make_result(kind=kind) for kind in ("plain", "focuse")]
    results += [make_result(kind="focuse", changes={"loss": "pairwise-nll"}), make_result(form="quick")]
    rows = {row[0]: row for row in grids(results)[1].rows}
    assert rows["shifted-softplus"][1] == "softplus(x) = ln(1 + eˣ)"
    assert rows["shifted-softplus"][3] == "all with FocusE"
    assert rows["64-batches"][3] == "all"
    assert rows["one-softmax"][3] == "2 of 3"  # the ablation has another loss


def test_unknown_deviation_is_listed_by_name(make_result):
    assert grids([make_result(departures=["of our own"])])[1].rows == [["of our own", "–", "–", "all"]]
    assert len(grids([make_result(departures=[])])) == 1
