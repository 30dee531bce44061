"""The section on training: curves and tables, without non-finite values."""

import re

import pytest
from focuse.report.gathered import gather
from focuse.report.training import columns, curves, label_exponent

import focuse
from focuse.training.label_exponent import LabelExponentTrial


def points(charts: list[str]) -> dict[str, int]:
    """Title of each chart and the points of its line."""
    titles = [re.findall(r'<text class="title"[^>]*>([^<]+)', chart)[0] for chart in charts]
    lines = [len(re.findall("[ML]", re.findall(r'<path class="line [^"]+" d="([^"]+)"', chart)[0])) for chart in charts]
    return dict(zip(titles, lines, strict=True))


@pytest.mark.parametrize("key", ["valid_mrr", "valid_mse", None])
def test_curves_show_loss_and_validation(key: str | None) -> None:
    history = [{"epoch": i, "loss": 1 / i} for i in range(1, 8)]
    if key:
        for row in history[1::2]:
            row[key] = 0.1 * row["epoch"] + (0.3 if row["epoch"] == 4 else 0)
    drawn = points(curves(history))
    name = {"valid_mrr": "Validation MRR", "valid_mse": "Validation MSE"}.get(key or "")
    assert drawn == {"Loss": 7} | ({name: 3} if name else {})
    for epoch, row in enumerate(history):
        row["beta"] = 1 - epoch / 6
    assert points(curves(history)) == drawn | {"β": 7}
    assert curves(history) == curves(history)


def test_non_finite_loss_is_left_out() -> None:
    history = [{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.0}, {"epoch": 3, "loss": 1.5}]
    wild = [*history, {"epoch": 4, "loss": float("nan")}, {"epoch": 5, "loss": float("inf")}]
    assert curves(wild) == curves(history)


def test_columns_and_label_exponents_have_tables() -> None:
    rows = [(f"e{i % 12}", "r", f"e{(i * 5 + 1) % 12}", (i % 12) / 12, None if i % 4 else 0.5) for i in range(60)]
    run = focuse.train(rows, model="distmult", dim=4, epochs=2, label_exponent=1.0, progress=False)
    run.label_exponent_trials = [LabelExponentTrial(0.0, 0.5, 0.1), LabelExponentTrial(1.0, 0.51, 0.4)]
    figures = gather(run)
    text = columns(run, figures) + label_exponent(run, figures)
    assert "75.0%" in text  # of the second column is missing
    assert "0.510" in text
    assert figures.data["columns"]["names"] == ["w1", "w2"]
    assert len(figures.data["label_exponent"]) == 2


def test_single_weight_and_given_label_exponent_have_no_tables(small: focuse.Graph) -> None:
    run = focuse.train(small, dim=4, epochs=1, label_exponent=1.0, progress=False)
    figures = gather(run)
    assert columns(run, figures) == label_exponent(run, figures) == ""
