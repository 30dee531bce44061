"""The numbers of a report: tables, verdicts, ablations and predicted weights, compared with slow computations."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import numpy as np
import pytest

import focuse
from focuse.errors import FocuseError
from focuse.evaluation.weight_evaluation import THRESHOLDS
from reproduction.grid import MODELS, UKGE_DATA, Cell, published_results, read_configuration, rows_of
from reproduction.results import METRICS, Interval
from reproduction.summary import (
    Entry,
    Row,
    ablations,
    decay_curves,
    entry,
    group_results,
    relative_gain,
    table_rows,
    verdicts,
    weight_rows,
)


def rows(results, data, clean=False):
    """(model, kind) -> row."""
    _, groups = group_results(results)
    return {(row.model, row.kind): row for row in table_rows(groups, data, clean)}


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
    higher, same, weight = test.higher[rows], test.equal[rows], test.weight[rows]
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


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("seeds", [1, 3])
def test_every_entry_agrees_with_numpy(make_result, clean, seeds):
    results = [make_result("nl27k", "complex", kind, seed) for kind in ("plain", "focuse") for seed in range(seeds)]
    found = rows(reversed(results), "nl27k", clean)
    for kind in ("plain", "focuse"):
        entries = found["complex", kind].entries
        assert set(entries) == {*METRICS, "gain"}
        by_hand = [brute(result, clean) for result in results if result.cell.kind == kind]
        for name in by_hand[0]:
            values = [numbers[name] for numbers in by_hand]
            assert entries[name].mean == pytest.approx(np.mean(values))
            assert entries[name].seeds == seeds
            assert entries[name].spread == (None if seeds == 1 else pytest.approx(np.std(values, ddof=1)))


def test_differences_are_ours_minus_the_papers(make_result):
    entries = rows([make_result("ppi5k", "distmult", kind) for kind in ("plain", "focuse")], "ppi5k")
    entries = entries["distmult", "focuse"].entries
    paper = read_configuration("published")["ppi5k"]["distmult"]["focuse"]
    for name, value in zip(("top_mr", "top_mrr", "top_hits@1", "top_hits@10"), paper["top"], strict=True):
        assert entries[name].paper == value
        assert entries[name].difference == entries[name].mean - value
    published = [entries[name].paper for name in ("bottom_mrr", "delta_mrr", "gain")]
    assert published == [paper["bottom"], paper["delta"], paper["gain"]]


@pytest.mark.parametrize("clean", [False, True])
def test_gain_and_change_follow_from_the_rows(make_result, clean):
    results = [make_result("cn15k", "transe", kind, seed) for kind in ("plain", "focuse") for seed in range(2)]
    found = rows(results, "cn15k", clean)
    plain, focused = found["transe", "plain"], found["transe", "focuse"]
    before, after = plain.entries["delta_mrr"].mean, focused.entries["delta_mrr"].mean
    assert focused.entries["gain"].mean == pytest.approx(100 * (after - before) / max(before, 0.01))
    for name in ("top_mrr", "bottom_mrr", "delta_mrr"):
        change = focused.changes[name]
        assert change.mean == focused.entries[name].mean - plain.entries[name].mean
        assert change.interval.low < change.mean < change.interval.high
        assert plain.entries[name].interval.low < plain.entries[name].mean < plain.entries[name].interval.high
    assert plain.changes == {}
    assert plain.entries["gain"] == Entry()


def test_the_papers_own_gains_have_this_base():
    for data in ("ppi5k", "nl27k", "cn15k", "onet20k"):
        for model in MODELS:
            plain, focused = (published_results(data, model, kind) for kind in ("plain", "focuse"))
            assert relative_gain(plain["delta_mrr"], focused["delta_mrr"]) == pytest.approx(focused["gain"], abs=0.6)


def test_missing_cells_are_empty_entries_with_published_results(make_result):
    found = rows([make_result("nl27k", "transe", "focuse")], "nl27k")
    assert list(found) == rows_of("nl27k")
    assert found["transe", "plain"].entries["delta_mrr"] == Entry(paper=0.2)
    assert found["transe", "plain"].entries["delta_mrr"].difference is None
    assert found["ukge-logi", "ukge"].entries["top_mr"] == Entry(paper=299)
    alone = found["transe", "focuse"]
    assert (alone.changes, alone.entries["gain"].mean) == ({}, None)
    assert alone.entries["delta_mrr"].interval is not None


def test_substitute_data_set_and_clean_form_have_no_published_results(make_result):
    substitute = rows(
        [make_result("onet-importance", "complex", kind) for kind in ("plain", "focuse")], "onet-importance"
    )
    clean = rows([make_result("ppi5k")], "ppi5k", clean=True)
    for found in (substitute, clean):
        assert {kind for _, kind in found} == {"plain", "focuse"}
        assert {one.paper for row in found.values() for one in row.entries.values()} == {None}


def test_clean_form_without_clean_triples_is_empty(make_result, make_ranked):
    test = replace(make_ranked(0), clean=np.zeros(len(make_ranked(0)), bool))
    assert rows([make_result(test=test)], "ppi5k", clean=True)["complex", "plain"].entries["top_mrr"] == Entry()


def test_forms_and_overrides_are_never_mixed(make_result):
    quick, changed = make_result(form="quick"), make_result(overrides={"lr": 0.1})
    figure = make_result("nl27k", kind="focuse", overrides={"beta_decay_epochs": 0}, form="figure3")
    every = [quick, changed, figure, make_result(form="appendix"), make_result()]
    for known, form in ((every, "tables"), (every[:4], "appendix"), (every[:3], "quick")):
        found, groups = group_results(known)
        assert found == form
        assert [result.cell.form for group in groups.values() for result in group] == [form]
    assert group_results([changed, figure])[1] == {}


def test_seeds_without_a_value_are_ignored():
    assert entry([]) == Entry()
    assert entry([float("nan")], 0.5) == Entry(paper=0.5)
    assert entry([0.25, float("nan")]) == Entry(0.25, None, 1)


def test_different_test_sets_are_an_error(make_result, make_ranked):
    results = [make_result("cn15k", kind=kind, test=make_ranked(0, n=n)) for kind, n in (("plain", 90), ("focuse", 80))]
    with pytest.raises(FocuseError, match=r"^CN15K: .*different test triples"):
        rows(results, "cn15k")


def verdict(top=None, delta=None, change=None, interval=None):
    """The verdict on a row; the paper has .95 and .46."""
    entries = {"top_mrr": Entry(top, paper=0.95), "delta_mrr": Entry(delta, paper=0.46)}
    changes = {} if change is None else {"delta_mrr": Entry(change, interval=interval)}
    (found,) = verdicts([Row("ppi5k", "transe", "plain", {}), Row("ppi5k", "transe", "focuse", entries, changes)])
    return found


@pytest.mark.parametrize(
    ("top", "delta", "reached"),
    [(0.93, 0.4399, (True, False)), (0.9299, 0.44, (False, True)), (1, 1, (True, True)), (None, None, (None, None))],
)
def test_value_within_two_hundredths_reaches_the_paper(top, delta, reached):
    found = verdict(top, delta)
    assert (found["reaches_top"], found["reaches_delta"]) == reached


@pytest.mark.parametrize(
    ("change", "low", "expected"),
    [
        (0.001, -0.1, (True, False, False)),
        (0.2, 0.1, (True, True, False)),
        (0.0, -0.1, (False, False, False)),
        (-0.01, -0.1, (False, False, False)),
        (-0.02, -0.1, (False, False, True)),
    ],
)
def test_change_of_delta_mrr_widens_or_narrows(change, low, expected):
    found = verdict(0.9, 0.4, change, Interval(low, 0.3))
    assert (found["widens"], found["surely_widens"], found["narrows"]) == expected


def test_quick_form_is_not_compared_with_the_paper(make_result):
    _, groups = group_results([make_result(kind=kind) for kind in ("plain", "focuse")])
    for comparable in (True, False):
        found = next(
            one for one in verdicts(table_rows(groups, "ppi5k"), comparable) if one["title"] == "FocusE ComplEx"
        )
        assert (found["reaches_top"] is not None, found["reaches_delta"] is not None) == (comparable, comparable)
        assert found["widens"]


def test_ablations_have_differences_over_the_seeds_that_both_have(make_result):
    base = [make_result(kind="focuse", seed=seed) for seed in range(3)]
    changed = [make_result(kind="focuse", seed=seed, overrides={"loss": "pairwise-nll"}) for seed in (1, 5)]
    other = make_result("nl27k", overrides={"lr": 0.1, "dim": 8})
    found = ablations([other, *changed, *base, make_result("cn15k")], "tables")
    assert {name: list(variants) for name, variants in found.items()} == {
        "PPI5K FocusE ComplEx": ["nothing", "loss = pairwise-nll"],
        "NL27K ComplEx": ["dim = 8, lr = 0.1"],
    }
    delta = found["PPI5K FocusE ComplEx"]["loss = pairwise-nll"]["delta_mrr"]
    assert delta.mean == pytest.approx(sum(result.test.delta_mrr() for result in changed) / 2)
    assert delta.difference == pytest.approx(changed[0].test.delta_mrr() - base[1].test.delta_mrr())
    assert found["PPI5K FocusE ComplEx"]["nothing"]["delta_mrr"].difference is None
    assert found["NL27K ComplEx"]["dim = 8, lr = 0.1"]["top_mrr"].difference is None


def test_settings_of_the_paper_are_an_ablation_of_the_tables(make_result):
    found = ablations(
        [make_result(form="appendix", overrides={"lr": 0.1}), make_result(form="appendix"), make_result()], "tables"
    )
    assert list(found["PPI5K ComplEx"]) == ["nothing", "the paper's settings", "the paper's settings, lr = 0.1"]


def test_unchanged_figure_and_quick_cells_are_no_ablations(make_result):
    figure = make_result("nl27k", kind="focuse", overrides={"beta_decay_epochs": 0}, form="figure3")
    assert ablations([make_result(), figure], "tables") == {}
    assert ablations([make_result(), make_result(form="quick", overrides={"lr": 0.1})], "tables") == {}
    assert ablations([make_result(form="appendix")], "appendix") == {}
    assert ablations([make_result(form="quick"), make_result(form="quick", overrides={"lr": 0.1})], "quick") != {}


def test_decay_curves_use_the_cells_of_figure_3_only(make_result, make_ranked):
    figure = [
        make_result(
            "nl27k", model, "focuse", seed, {"beta_decay_epochs": at}, "figure3", make_ranked(7 * at + i + seed)
        )
        for i, model in enumerate(MODELS)
        for at in (800, 100, 0)
        for seed in (0, 1)
    ]
    curves = decay_curves([make_result("nl27k", kind="focuse", overrides={"beta_decay_epochs": 5}), *figure])
    assert list(curves) == list(MODELS)
    for model, points in curves.items():
        assert list(points) == [0, 100, 800]
        for at, one in points.items():
            mrr = [
                result.test.metrics("top").mrr
                for result in figure
                if (result.cell.model, result.cell.overrides["beta_decay_epochs"]) == (model, at)
            ]
            assert (one.mean, one.spread) == pytest.approx((np.mean(mrr), np.std(mrr, ddof=1)))


# ---- predicted weights ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weights():
    """Model -> metrics of the weights that a small run predicts."""
    random = np.random.default_rng(3)
    triples = {(f"e{h}", f"r{r}", f"e{t}") for h, r, t in random.integers(0, [20, 2, 20], (300, 3))}
    edges = [(*triple, round(float(random.random()), 3)) for triple in sorted(triples)]
    runs = {
        model: focuse.train(edges, model=model, dim=4, epochs=2, batch_size=32, progress=False)
        for model in ("complex", "ukge-rect", "ukge-logi")
    }
    return {model: json.loads(json.dumps(run.evaluate_weights().to_dict())) for model, run in runs.items()}


def test_weight_rows_agree_with_the_results_and_have_published_values(make_result, weights):
    made = [replace(make_result("nl27k", kind=kind), weights=weights["complex"]) for kind in ("focuse", "plain")]
    for seed in (0, 1):
        own = copy.deepcopy(weights["ukge-rect"])
        own["rows"]["ukge-rect"]["with_negatives"]["mse"] = 0.02 + 0.01 * seed
        made.append(replace(make_result("nl27k", "ukge-rect", "ukge", seed), weights=own))
    made.append(replace(make_result("nl27k", "ukge-logi", "ukge"), weights=weights["ukge-logi"]))
    _, groups = group_results(made)
    found = weight_rows(groups, "nl27k")
    assert list(found) == [
        *("ComplEx, isotonic", "FocusE ComplEx, isotonic"),
        *("UKGE rect", "UKGE rect, isotonic", "UKGE logi", "UKGE logi, isotonic"),
    ]
    numbers = weights["ukge-logi"]["rows"]["ukge-logi"]["with_negatives"]
    assert {name: one.mean for name, one in found["UKGE logi"].items()} == {
        name: pytest.approx(numbers[name]) for name in ("mse", "mae")
    }
    mse = found["UKGE rect"]["mse"]
    assert (mse.mean, mse.seeds, mse.paper) == (pytest.approx(0.025), 2, 0.0236)
    assert found["UKGE rect, isotonic"]["mse"].paper is None
    assert weight_rows(groups, "ppi5k") == {}


def test_every_row_of_ukge_has_published_weights():
    for data in UKGE_DATA:
        assert set(read_configuration("confidence")[data]) == {"ukge-rect", "ukge-logi"}
        assert data in THRESHOLDS
        assert Cell(data, "ukge-rect", "ukge").settings(1000)["model"] == "ukge-rect"
