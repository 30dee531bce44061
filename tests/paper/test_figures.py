"""Figures 3 and 4: their numbers, and that drawing is deterministic."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from focuse.paper.figures import LINES, decay_curves, draw_curves, draw_violins
from focuse.paper.tables import Runs
from focuse.report.charts import BOTTOM_COLOR, TOP_COLOR


def decays(make_result, make_ranked, models=("transe", "distmult", "complex"), seeds=2, values=(0, 100, 800)):
    return [
        make_result(
            "nl27k", m, "focuse", seed, {"beta_decay_epochs": at}, "figure3", make_ranked(7 * at + 3 * i + seed)
        )
        for i, m in enumerate(models)
        for at in reversed(values)
        for seed in range(seeds)
    ]


def test_curves_agree_with_hand_computed_values(make_result, make_ranked):
    results = decays(make_result, make_ranked)
    curves = decay_curves([make_result("nl27k", kind="focuse"), *results])
    assert list(curves) == ["transe", "distmult", "complex"]
    for model, points in curves.items():
        assert list(points) == [0, 100, 800]
        for at, one in points.items():
            chosen = [r for r in results if r.cell["model"] == model and r.cell["changes"] == {"beta_decay_epochs": at}]
            mrr = [r.test.metrics("top").mrr for r in chosen]
            assert (one.ours, one.spread) == pytest.approx((np.mean(mrr), np.std(mrr, ddof=1)))


def test_figure_3_uses_only_its_own_cells(make_result):
    assert (
        decay_curves([make_result("nl27k", kind="focuse", changes={"beta_decay_epochs": 5}), make_result(form="quick")])
        == {}
    )


def test_lines_of_models_differ_without_color(make_result, make_ranked):
    curves = decay_curves(decays(make_result, make_ranked))
    picture = draw_curves(curves)
    assert ElementTree.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
    assert picture == draw_curves(curves)
    for colour, _, _ in LINES.values():
        assert f"stroke: {colour}" in picture
    assert len({marker for _, marker, _ in LINES.values()}) == len({dashes for *_, dashes in LINES.values()}) == 3
    assert picture.count("opacity: 0.15") == 3  # a band each


def test_single_seed_has_no_band_and_single_point_is_drawn(make_result, make_ranked):
    curves = decay_curves(decays(make_result, make_ranked, models=("distmult",), seeds=1, values=(400,)))
    picture = draw_curves(curves)
    ElementTree.fromstring(picture)
    assert "opacity: 0.15" not in picture
    assert LINES["distmult"][0] in picture
    assert LINES["complex"][0] not in picture


def test_every_data_set_has_violins(make_result):
    results = [make_result(d, "complex", k, s) for d in ("nl27k", "ppi5k") for k in ("plain", "focuse") for s in (0, 1)]
    drawn = draw_violins(Runs.of([*results, make_result("cn15k", "transe")]))
    assert [one.data for one in drawn] == ["ppi5k", "nl27k"]
    for one in drawn:
        ElementTree.fromstring(one.svg)
        assert re.findall(r'id="axes_(\d)"', one.svg) == ["1", "2"]
        assert one.svg.count(f"fill: {TOP_COLOR}") == one.svg.count(f"fill: {BOTTOM_COLOR}") > 0
        assert one.seeds == {"plain": 0, "focuse": 0}
        for kind in ("plain", "focuse"):
            medians = [r.test.delta_median for r in results if (r.cell["data"], r.cell["kind"]) == (one.data, kind)]
            assert one.delta_median[kind].ours == pytest.approx(np.mean(medians))
    assert drawn[0].svg == draw_violins(Runs.of(results))[0].svg


def test_violins_use_the_first_common_seed(make_result):
    results = [make_result(kind="plain", seed=0), make_result(kind="plain", seed=2), make_result(kind="focuse", seed=2)]
    assert draw_violins(Runs.of(results))[0].seeds == {"plain": 2, "focuse": 2}
    assert draw_violins(Runs.of([results[0], results[2]]))[0].seeds == {"plain": 0, "focuse": 2}


def test_single_kind_is_drawn_alone(make_result):
    (one,) = draw_violins(Runs.of([make_result(kind="focuse")]))
    assert re.findall(r'id="axes_(\d)"', one.svg) == ["1"]
    assert list(one.delta_median) == ["focuse"]
