"""Charts: values are drawn where they belong, names stay text, and the same numbers give the same SVG."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.evaluation.evaluate import Evaluation
from focuse.evaluation.metrics import RankMetrics
from focuse.report.charts import (
    BOTTOM_COLOR,
    COLORS,
    TOP_COLOR,
    histogram,
    inline_svg,
    line_chart,
    reliability_chart,
    sparkline,
    violin_stats,
    violins,
)

QUARTERS = [0.25, 0.5, 0.75]


def evaluation_of(scores: np.ndarray, top: np.ndarray, bottom: np.ndarray) -> Evaluation:
    figures = RankMetrics(2.0, 0.5, {1: 0.1, 3: 0.2, 10: 0.3}, len(scores))
    shares = {"top_share": top, "bottom_share": bottom}
    return Evaluation(figures, figures, figures, figures, 0.25, 1.5, {}, scores=scores.astype(np.float32), **shares)


def random_evaluation(seed: int = 0) -> Evaluation:
    rng = np.random.default_rng(seed)
    return evaluation_of(rng.normal(size=60), rng.choice([0, 0.4, 1.0], 60), rng.choice([0, 0.7], 60))


def brute_quantile(scores: list[float], share: list[float], at: float) -> float:
    """Each row is in the middle of its part of [0, 1]; between two rows the quantile is linear."""
    rows = sorted((v, s) for v, s in zip(scores, share, strict=True) if s > 0)
    total = sum(s for _, s in rows)
    ends = list(accumulate(s for _, s in rows))
    knots = [((end - s / 2) / total, v) for end, (v, s) in zip(ends, rows, strict=True)]
    if at <= knots[0][0]:
        return knots[0][1]
    for (x0, y0), (x1, y1) in pairwise(knots):
        if at <= x1:
            return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
    return knots[-1][1]


@given(
    rows=st.lists(
        st.tuples(st.integers(-50, 50), st.integers(0, 6)), min_size=1, max_size=40, unique_by=lambda row: row[0]
    )
)
@settings(max_examples=50, deadline=None)
def test_quartiles_respect_fractional_weights(rows: list[tuple[int, int]]) -> None:
    scores, share = [float(v) for v, _ in rows], [s / 6 for _, s in rows]
    share[0] = share[0] or 0.5
    stats = violin_stats(np.array(scores), np.array(share))
    counted = [(v, s) for v, s in zip(scores, share, strict=True) if s > 0]
    expected = [brute_quantile(scores, share, at) for at in QUARTERS]
    np.testing.assert_allclose(stats["quantiles"], expected, atol=1e-6)
    assert stats["quantiles"] == sorted(stats["quantiles"])
    assert stats["median"] == stats["quantiles"][1]
    assert (stats["min"], stats["max"]) == (min(v for v, _ in counted), max(v for v, _ in counted))
    assert stats["mean"] == pytest.approx(sum(v * s for v, s in counted) / sum(s for _, s in counted), abs=1e-9)


@pytest.mark.parametrize("n", [2, 7, 100, 1001])
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_quartiles_with_equal_weights_are_plain_quartiles(n: int, share: float) -> None:
    scores = np.random.default_rng(n).normal(size=n)
    found = violin_stats(scores, np.full(n, share))["quantiles"]
    np.testing.assert_allclose(found, np.quantile(scores, QUARTERS, method="hazen"))
    np.testing.assert_allclose(found[1], np.median(scores))
    np.testing.assert_allclose(found, np.quantile(scores, QUARTERS), atol=2 / n)


def test_integer_weights_count_as_repeats() -> None:
    """Many rows: whole shares give the quartiles and the shape of as many repeats."""
    rng = np.random.default_rng(0)
    scores, times = rng.normal(size=3_000), rng.integers(0, 4, 3_000)
    found = violin_stats(scores, times / 3)
    np.testing.assert_allclose(found["quantiles"], np.quantile(np.repeat(scores, times), QUARTERS), atol=0.01)


@pytest.mark.parametrize("n", [5, 50, 400])
def test_density_agrees_with_the_scores(n: int) -> None:
    rng = np.random.default_rng(n)
    scores, share = rng.normal(3, 2, n), rng.choice([0.2, 1.0], n)
    stats = violin_stats(scores, share, points=400)
    grid, density = stats["coords"], stats["vals"]
    assert (density > 0).all()
    whole = np.trapezoid(density, grid)
    spread = np.sqrt(np.cov(scores, aweights=share, ddof=0))
    # A bell of this width a row; a little of the outermost is cut off.
    assert whole == pytest.approx(np.sqrt(2 * np.pi) * spread * n**-0.2, rel=0.05)
    assert np.trapezoid(density * grid, grid) / whole == pytest.approx(stats["mean"], abs=0.1 * spread)
    assert grid[0] < scores.min() < scores.max() < grid[-1]


def test_two_groups_have_two_modes() -> None:
    scores = np.concatenate([np.linspace(-5.2, -4.8, 30), np.linspace(4.8, 5.2, 60)])
    stats = violin_stats(scores, np.ones(90))
    at = [float(np.interp(place, stats["coords"], stats["vals"])) for place in (-5, 0, 5)]
    assert at[1] < at[0] < at[2]
    assert at[2] == pytest.approx(2 * at[0], rel=0.2)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e6, 3e8])
def test_equal_scores_are_drawn(value: float) -> None:
    stats = violin_stats(np.full(9, value), np.full(9, 0.3))
    assert stats["quantiles"] == pytest.approx([value] * 3)
    assert np.isfinite(stats["vals"]).all()
    evaluation = evaluation_of(np.full(9, value), np.full(9, 0.3), np.full(9, 0.1))
    ElementTree.fromstring(violins({"flat": evaluation}))


def test_picture_is_valid_xml_and_deterministic() -> None:
    both = {"plain": random_evaluation(), "focused": random_evaluation(1)}
    picture = violins(both)
    assert ElementTree.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
    assert picture == violins(both)
    assert picture != violins({"plain": random_evaluation(), "focused": random_evaluation(2)})
    assert picture.count(TOP_COLOR) == picture.count(BOTTOM_COLOR) > 0  # as many violins of the one kind as the other


def test_names_are_neither_markup_nor_mathematics() -> None:
    for name in ("$\\frac$", "costs $5 or $6", "a<b & --> <script>x</script>", "", "two\nlines"):
        picture = violins({name: random_evaluation()})
        assert "<script" not in picture
        ElementTree.fromstring(picture)


def test_title_is_drawn_above_the_panels() -> None:
    panels = {"plain": random_evaluation()}
    picture = violins(panels, "costs $5 <b>")
    ElementTree.fromstring(picture)
    assert picture != violins(panels)
    assert picture == violins(panels, "costs $5 <b>")
    assert "<b>" not in picture


def test_a_single_triple_has_no_violins() -> None:
    picture = violins({"one": evaluation_of(np.ones(1), np.zeros(1), np.zeros(1))})
    ElementTree.fromstring(picture)
    assert TOP_COLOR not in picture


def test_matplotlib_backend_of_the_user_is_unchanged() -> None:
    import matplotlib

    with matplotlib.rc_context({"backend": "svg"}):
        violins({"plain": random_evaluation()})
        assert matplotlib.rcParams["backend"] == "svg"


def line_points(svg: str, color: str) -> list[list[float]]:
    """Return the coordinates of the line of a color, which pages know as a CSS variable."""
    path, *_ = re.findall(rf'<path d="([^"]+)"[^>]*style="fill: none; [^"]*stroke: var\(--{color}\)', svg)
    return [[float(number) for number in point.split()] for point in re.split("[ML]", path)[1:]]


def test_line_chart_draws_values_at_their_positions() -> None:
    svg = line_chart("Loss", [(1, 2.0), (2, 1.0), (4, 0.0)], "epoch", COLORS["c2"])
    (x0, y0), (x1, y1), (x2, y2) = line_points(svg, "c2")
    assert (x2 - x0) == pytest.approx(3 * (x1 - x0), rel=1e-3)
    assert (y2 - y0) == pytest.approx(2 * (y1 - y0), rel=1e-3)  # the vertical axis of SVG points down
    assert y1 > y0
    assert 'role="img" aria-label="Loss from 2 to 0"' in svg
    assert ">Loss</text>" in svg


def test_line_chart_leaves_out_values_that_are_not_finite() -> None:
    whole = line_chart("Loss", [(1, 2.0), (2, 1.0)], "epoch", COLORS["c2"])
    assert line_chart("Loss", [(1, 2.0), (2, 1.0), (3, float("nan"))], "epoch", COLORS["c2"]) == whole
    assert line_chart("Loss", [(1, float("inf"))], "epoch", COLORS["c2"]) == ""
    assert "<use" in line_chart("Loss", [(1, 2.0)], "epoch", COLORS["c2"])  # a single value is a dot


def test_histogram_bars_are_proportional_to_counts() -> None:
    svg = histogram("w", [1, 4, 0], 0.0, 3.0, "weight")
    bars = re.findall(r'<path d="([^"]+)"[^>]*style="fill: var\(--c2\)', svg)
    corners = [[float(y) for y in re.findall(r"[ML] ?[\d.]+ ([\d.]+)", bar)] for bar in bars]
    heights = [max(ys) - min(ys) for ys in corners]
    assert heights[1] == pytest.approx(4 * heights[0], rel=0.01)
    assert heights[2] == pytest.approx(0, abs=1e-6)
    assert "w, from 0 to 3: 1, 4, 0" in svg
    assert "<svg" in histogram("w", [3], 1.0, 1.0, "weight")
    assert re.findall(r'height="([\d.]+)"/>', sparkline([1, 2, 0])) == ["9.0", "18.0"]


def test_reliability_chart_has_a_diagonal_and_a_legend() -> None:
    svg = reliability_chart("P", {"<a>": [(0.1, 0.2), (0.9, 0.8)], "b": []}, "x", "y")
    assert "&lt;a&gt; 0.1 is 0.2, 0.9 is 0.8; b " in svg
    assert ">&lt;a&gt;</text>" in svg
    (x0, y0), (x1, y1) = line_points(svg, "rest")
    (a, b), (c, d) = line_points(svg, "c2")
    assert (c - a) / (x1 - x0) == pytest.approx(0.8, rel=1e-3)
    assert (d - b) / (y1 - y0) == pytest.approx(0.6, rel=1e-3)


def test_inline_pictures_have_distinct_ids_and_the_colors_of_the_page() -> None:
    svg = '<?xml version="1.0"?><svg><metadata>x</metadata><g id="a"/><use href="#a"/><path clip-path="url(#a)"/></svg>'
    first, second = inline_svg(svg, "one", "<d>"), inline_svg(svg, "Two 2")
    head = '<svg role="img" aria-label="&lt;d&gt;">'
    assert first == head + '<g id="one-a"/><use href="#one-a"/><path clip-path="url(#one-a)"/></svg>'
    assert second == first.replace("one-a", "two-2-a").replace("&lt;d&gt;", "Two 2")
    drawn = inline_svg(violins({"plain": random_evaluation()}), "violins")
    assert "var(--c1)" in drawn
    assert "var(--paper)" in drawn
    assert not [color for color in COLORS.values() if color in drawn]
