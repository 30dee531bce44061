"""Ablations are listed below the cell they change, with the difference."""

from __future__ import annotations

import pytest

from focuse.paper.ablations import ablations
from focuse.paper.tables import Runs


def made(results):
    return ablations(results, Runs.of(results))


def test_ablations_are_grouped_with_differences(make_result):
    base = [make_result(kind="focuse", seed=seed) for seed in range(3)]
    changed = [
        make_result(kind="focuse", seed=seed, changes={"loss": "pairwise-nll"}, best_epoch=50) for seed in (1, 5)
    ]
    other = make_result("nl27k", changes={"lr": 0.1, "dim": 8})
    groups = made([other, *changed, *base, make_result("cn15k")])
    assert [[(one.data, one.is_base) for one in group] for group in groups] == [
        [("ppi5k", True), ("ppi5k", False)],
        [("nl27k", False)],
    ]
    first, second = groups[0]
    assert (first.seeds, second.seeds) == ((0, 1, 2), (1, 5))
    assert second.best_epochs == (50, 50)
    assert second.entries["delta_mrr"].ours == pytest.approx(sum(r.test.delta_mrr() for r in changed) / 2)
    # Seed 1 is the only one that both have.
    assert second.differences["top_mrr"] == pytest.approx(
        changed[0].test.metrics("top").mrr - base[1].test.metrics("top").mrr
    )
    assert second.differences["delta_mrr"] == pytest.approx(changed[0].test.delta_mrr() - base[1].test.delta_mrr())
    assert set(first.differences.values()) == {None}
    assert set(groups[1][0].differences.values()) == {None}
    assert groups[1][0].changes == {"lr": 0.1, "dim": 8}


def test_appendix_is_both_a_change_and_a_base(make_result):
    paper, appendix = make_result(), make_result(form="appendix")
    changed = make_result(form="appendix", changes={"lr": 0.1})
    first, second = made([changed, appendix, paper])
    assert [(one.form, one.is_base, one.changes) for one in first] == [("paper", True, {}), ("appendix", False, {})]
    assert first[1].differences["top_mrr"] == pytest.approx(
        appendix.test.metrics("top").mrr - paper.test.metrics("top").mrr
    )
    assert [(one.form, one.is_base, one.changes) for one in second] == [
        ("appendix", True, {}),
        ("appendix", False, {"lr": 0.1}),
    ]
    assert second[1].differences["delta_mrr"] == pytest.approx(changed.test.delta_mrr() - appendix.test.delta_mrr())


def test_tables_figures_and_quick_cells_are_no_ablations(make_result):
    assert (
        made([make_result(), make_result("nl27k", kind="focuse", changes={"beta_decay_epochs": 0}, form="figure3")])
        == []
    )
    assert made([make_result(), make_result(form="quick"), make_result(form="quick", changes={"lr": 0.1})]) == []
    assert made([make_result(form="appendix")]) == []
    assert len(made([make_result(form="quick"), make_result(form="quick", changes={"lr": 0.1})])[0]) == 2
