"""The drawn history: what is there is drawn, what is missing or not finite is passed over."""

import re

import pytest

from focuse.reports.training import curves


def paths(svg: str) -> list[int]:
    """Points of each drawn curve (a line of the axes, not a tick)."""
    return [len(re.findall("[ML] ", path)) for path in re.findall(r'<g id="line2d_\d+">\s*<path d="([^"]+)"', svg)]


@pytest.mark.parametrize("key", ["valid_mrr", "valid_mse", None])
def test_curves(key: str | None) -> None:
    history = [{"epoch": i, "loss": 1 / i} for i in range(1, 8)]
    if key:
        for row in history[1::2]:
            row[key] = 0.1 * row["epoch"] + (0.3 if row["epoch"] == 4 else 0)
    drawn = paths(curves(history))
    assert 7 in drawn
    assert (3 in drawn) == (key is not None)
    assert curves(history) == curves(history)


def test_a_loss_that_is_not_finite_is_left_out() -> None:
    history = [{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.0}, {"epoch": 3, "loss": 1.5}]
    wild = [*history, {"epoch": 4, "loss": float("nan")}, {"epoch": 5, "loss": float("inf")}]
    assert curves(wild) == curves(history)
