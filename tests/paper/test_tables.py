"""Tables 2 to 4 against plain NumPy, with some cells, seeds and papers missing."""

from __future__ import annotations

import json

import numpy as np
import pytest

from focuse.errors import FocuseError
from focuse.paper.cells import DATA, MODELS, published
from focuse.paper.report import strict
from focuse.paper.tables import COLUMNS, FORMS, Entry, Runs, entry, gain, make_tables, paper_figures


def tenths(weight):
    """The mean over every order of ties, by sorting once and sharing places among equals."""
    n, places = len(weight), len(weight) // 10
    shares = []
    for key in (-weight, weight):
        order = np.sort(key)
        share = np.array([np.mean(order[:places] == value) * places / np.sum(order == value) for value in key])
        shares.append(share)
    assert all(share.sum() == pytest.approx(places) for share in shares)
    assert n == len(shares[0])
    return shares


def brute(result, clean):
    """Every column, by hand."""
    test = result.test
    rows = test.clean if clean else np.ones(len(test), bool)
    higher, same, weight = test.rivals.higher[rows], test.rivals.equal[rows], test.weight[rows]
    top, bottom = tenths(weight)
    sides, joint = 1 + higher + same, (1 + (higher + same).sum(1))[:, None]

    def mean(values, share):
        return sum(s * v.mean() for s, v in zip(share, values, strict=True)) / share.sum()

    figures = {
        "top_mr": mean(sides, top),
        "top_mrr": mean(1 / sides, top),
        "top_hits@1": mean((sides <= 1) * 1.0, top),
        "top_hits@10": mean((sides <= 10) * 1.0, top),
        "bottom_mrr": mean(1 / sides, bottom),
        "top_mrr_joint": mean(1 / joint, top),
        "bottom_mrr_joint": mean(1 / joint, bottom),
    }
    figures["delta_mrr"] = figures["top_mrr"] - figures["bottom_mrr"]
    figures["delta_mrr_joint"] = figures["top_mrr_joint"] - figures["bottom_mrr_joint"]
    return figures


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seeds", [1, 3])
def test_every_entry_agrees_with_numpy(make_result, form, seeds):
    results = [make_result("nl27k", "complex", kind, seed) for kind in ("plain", "focuse") for seed in range(seeds)]
    tables = make_tables(Runs.of(reversed(results)), form)
    for number, table in tables.items():
        for kind in ("plain", "focuse"):
            found = table.find("nl27k", "complex", kind)
            hand = [brute(result, form == "clean") for result in results if result.cell["kind"] == kind]
            assert tuple(found.entries) == COLUMNS[number]
            for name, one in found.entries.items():
                if name == "gain":
                    continue
                values = [figures[name] for figures in hand]
                assert one.ours == pytest.approx(np.mean(values))
                assert one.seeds == seeds
                assert one.spread == (None if seeds == 1 else pytest.approx(np.std(values, ddof=1)))


def test_differences_are_ours_minus_the_papers(make_result):
    results = [make_result("ppi5k", "distmult", kind) for kind in ("plain", "focuse")]
    tables = make_tables(Runs.of(results), "full")
    paper = published()["ppi5k"]["distmult"]["focuse"]
    row = tables[3].find("ppi5k", "distmult", "focuse")
    for name, value in zip(("top_mr", "top_mrr", "top_hits@1", "top_hits@10"), paper["top"], strict=True):
        assert row.entries[name].paper == value
        assert row.entries[name].difference == row.entries[name].ours - value
    assert tables[2].find("ppi5k", "distmult", "focuse").entries["bottom_mrr"].paper == paper["bottom"]
    last = tables[4].find("ppi5k", "distmult", "focuse").entries
    assert (last["delta_mrr"].paper, last["gain"].paper) == (paper["delta"], paper["gain"])


@pytest.mark.parametrize("form", FORMS)
def test_gain_and_change_follow_from_the_rows(make_result, form):
    results = [make_result("cn15k", "transe", kind, seed) for kind in ("plain", "focuse") for seed in range(2)]
    table = make_tables(Runs.of(results), form)[4]
    plain, focused = (table.find("cn15k", "transe", kind) for kind in ("plain", "focuse"))
    before, after = plain.entries["delta_mrr"].ours, focused.entries["delta_mrr"].ours
    assert focused.entries["gain"].ours == pytest.approx(100 * (after - before) / max(before, 0.01))
    for name in ("top_mrr", "bottom_mrr", "delta_mrr"):
        change = focused.changes[name]
        assert change.value == focused.entries[name].ours - plain.entries[name].ours
        assert change.interval.low < change.value < change.interval.high
        assert plain.entries[name].interval.low < plain.entries[name].ours < plain.entries[name].interval.high
    assert plain.changes == {}
    assert plain.entries["gain"] == Entry()


def test_the_papers_own_gains_have_this_base():
    for data in ("ppi5k", "nl27k", "cn15k", "onet20k"):
        for model in MODELS:
            cells = published()[data][model]
            assert gain(cells["plain"]["delta"], cells["focuse"]["delta"]) == pytest.approx(
                cells["focuse"]["gain"], abs=0.6
            )


def test_the_order_is_the_papers(make_result):
    tables = make_tables(Runs.of([make_result("ppi5k")]), "full")
    plain, focused = [(model, "plain") for model in MODELS], [(model, "focuse") for model in MODELS]
    rivals = [("ukge-rect", "ukge"), ("ukge-logi", "ukge")]
    for number in (2, 3):
        assert [(row.model, row.kind) for row in tables[number].rows] == plain + rivals + focused
    pairs = [pair for both in zip(plain, focused, strict=True) for pair in both]
    assert [(row.model, row.kind) for row in tables[4].rows] == pairs + rivals
    assert tables[3].find("ppi5k", "ukge-logi", "ukge").entries["top_mr"] == Entry(paper=2)


def test_missing_cells_are_empty_entries(make_result):
    """Missing cells are empty entries beside the paper's figures; data sets come in the usual order."""
    results = [make_result("nl27k", "transe", "focuse"), make_result("ppi5k", "complex", "plain")]
    table = make_tables(Runs.of(results), "full")[4]
    assert list(table.sizes) == ["ppi5k", "nl27k"] == [data for data in DATA if data in table.sizes]
    missing = table.find("nl27k", "transe", "plain")
    assert missing.entries["delta_mrr"] == Entry(paper=0.2)
    assert missing.entries["delta_mrr"].difference is None
    alone = table.find("nl27k", "transe", "focuse")
    assert alone.changes == {}
    assert alone.entries["gain"].ours is None
    assert alone.entries["delta_mrr"].interval is not None


def test_substitute_data_set_has_no_paper_values(make_result):
    results = [make_result("onet-importance", "complex", kind) for kind in ("plain", "focuse")]
    for table in make_tables(Runs.of(results), "full").values():
        assert {row.kind for row in table.rows} == {"plain", "focuse"}
        assert {one.paper for row in table.rows for one in row.entries.values()} == {None}
        assert {one.difference for row in table.rows for one in row.entries.values()} == {None}
    assert paper_figures("onet-importance", "complex", "plain") == {}


def test_clean_form_states_its_size_and_has_no_paper_values(make_result):
    result = make_result("ppi5k")
    full, clean = (make_tables(Runs.of([result]), form) for form in FORMS)
    n = int(result.test.clean.sum())
    size = clean[2].sizes["ppi5k"]
    assert (size.n, size.of, size.tenth) == (n, len(result.test), n // 10)
    assert full[2].sizes["ppi5k"].n == len(result.test)
    assert {one.paper for row in clean[4].rows for one in row.entries.values()} == {None}
    assert not any(row.kind == "ukge" for row in clean[4].rows)


def test_clean_form_without_clean_triples_is_empty(make_result, make_ranked):
    test = make_ranked(0)
    test = type(test)(test.rivals, test.score, test.weight, np.zeros(len(test), bool))
    tables = make_tables(Runs.of([make_result(test=test)]), "clean")
    assert tables[2].sizes["ppi5k"].n == 0
    assert tables[4].find("ppi5k", "complex", "plain").entries["top_mrr"] == Entry()


def test_forms_and_changes_are_never_mixed(make_result):
    quick = make_result(form="quick")
    changed = make_result(changes={"lr": 0.1})
    figure = make_result("nl27k", kind="focuse", changes={"beta_decay_epochs": 0}, form="figure3")
    appendix, paper = make_result(form="appendix"), make_result()
    every = [quick, changed, figure, appendix, paper]
    for known, form in ((every, "paper"), (every[:4], "appendix"), (every[:3], "quick")):
        runs = Runs.of(known)
        assert runs.form == form
        assert [result.cell["form"] for group in runs.groups.values() for result in group] == [form]
    assert Runs.of([changed, figure]).groups == {}


def test_seeds_without_a_value_are_ignored():
    assert entry([]) == Entry()
    assert entry([float("nan")], 0.5) == Entry(paper=0.5)
    assert entry([0.25, float("nan")]) == Entry(0.25, None, 1)


def test_different_test_sets_are_an_error(make_result, make_ranked):
    results = [make_result("cn15k", kind=kind, test=make_ranked(0, n=n)) for kind, n in (("plain", 90), ("focuse", 80))]
    with pytest.raises(FocuseError, match=r"^CN15K: .*different test triples"):
        make_tables(Runs.of(results), "full")


def test_table_converts_to_json(make_result):
    results = [make_result("ppi5k", "complex", kind) for kind in ("plain", "focuse")]
    table = make_tables(Runs.of(results), "full")[4]
    data = json.loads(json.dumps(strict(table.to_dict()), allow_nan=False))
    row = next(row for row in data["rows"] if (row["model"], row["kind"]) == ("complex", "focuse"))
    one = table.find("ppi5k", "complex", "focuse").entries["delta_mrr"]
    assert row["entries"]["delta_mrr"]["difference"] == one.difference
    assert set(row["focuse-plain"]["delta_mrr"]["interval"]) == {"low", "high"}
