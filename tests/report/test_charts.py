"""Charts: values are drawn at their positions, and unusual ones cause no errors."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focuse.report.charts import Frame, Scale, bars, curve, legend, promise, spark, ticks, violin_chart


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_are_few_round_and_inside(low: float, size: float) -> None:
    high = low + size
    found = ticks(low, high)
    if high > low and size > abs(low) * 1e-6:
        assert 1 <= len(found) <= 6
        assert all(low - 1e-6 * size <= value <= high + 1e-6 * size for value in found)


def test_scale_and_frame_map_values_to_positions() -> None:
    scale = Scale(10, 20, 100, 0)
    assert [scale(value) for value in (10, 15, 20)] == [100, 50, 0]
    frame = Frame.of((0, 10), (0, 1))
    line = frame.line([(0, 0), (10, 1)], "1")
    assert line == f'<path class="line s1" d="M{frame.x.start:.1f} {frame.y.start:.1f}L{frame.x.end:.1f} 26.0"/>'
    assert "<circle" in frame.line([(5, 0.5)], "1")  # one point would be no line
    assert frame.line([], "1") == ""


def test_curve_leaves_out_non_finite_values() -> None:
    whole = curve("Loss", [(1, 2.0), (2, 1.0)], "2")
    assert curve("Loss", [(1, 2.0), (2, 1.0), (3, float("nan"))], "2") == whole
    assert curve("Loss", [(1, float("inf"))], "2") == ""
    assert "Loss from 2 in epoch 1 to 1 in 2" in whole


def test_bar_heights_are_proportional_to_counts() -> None:
    svg = bars("w", [1, 4, 0], 0.0, 3.0)
    heights = [float(height) for height in re.findall(r'<rect [^>]*height="([\d.]+)"', svg)]
    assert heights[1] == pytest.approx(4 * heights[0], rel=0.01)
    assert heights[2] == 0
    assert "<title>1 to 2: 4</title>" in svg
    assert "<svg" in bars("w", [3], 1.0, 1.0)
    assert re.findall(r'height="([\d.]+)"/>', spark([1, 2, 0])) == ["9.0", "18.0"]


def test_reliability_and_violin_charts_are_described() -> None:
    svg = promise("P", {"a": [(0.1, 0.2), (0.9, 0.8)], "b": []}, "x", "y")
    assert "a: 0.1 is 0.2, 0.9 is 0.8" in svg
    scores = np.linspace(-1, 1, 100).astype(np.float32)
    top, bottom = (scores > 0.8).astype(float), (scores < -0.8).astype(float)
    panel = SimpleNamespace(scores=scores, top_share=top, bottom_share=bottom, delta_median=1.8)
    drawn = violin_chart("<m>", panel)
    assert drawn.count('class="violin') == 2
    assert drawn.count('class="quartile"') == 6
    assert "&lt;m&gt;" in drawn
    assert "median 0.909 of the top 10 %, -0.909 of the bottom 10 %" in drawn
    assert legend({"1": "<b>"}).count("&lt;b&gt;") == 1
