"""The head of the report: summary and table of contents."""

from dataclasses import replace
from typing import Any

import pytest
from focuse.report.gathered import Gathered, gather

import focuse
from focuse.report.page import heading
from focuse.report.report import contents, head, tiles


@pytest.fixture(scope="module")
def run(small: focuse.Graph) -> focuse.Run:
    return focuse.train(small, dim=6, epochs=4, eval_every=2, label_exponent=1.0, progress=False)


def test_summary_agrees_with_the_metrics(run: focuse.Run, read_page: Any) -> None:
    figures = gather(run)
    found = figures.evaluation
    assert found is not None
    said = " ".join(read_page(head(run, figures)).texts)
    assert f"(MRR {found.all.mrr:.3f})" in said
    best = max(one.all.mrr for one in figures.baselines.values())
    verb = "That is more than" if found.all.mrr > best else "That is not more than"
    assert verb in said
    shown = {name: value for name, value, _ in tiles(run, figures)}
    assert shown["MRR"] == f"{found.all.mrr:.3f}"
    assert shown["ΔMRR"] == f"{found.delta_mrr:.3f}".replace("-", "−")
    worse = replace(figures, evaluation=replace(found, delta_mrr=-0.1, all=replace(found.all, mrr=0.0)))
    said = " ".join(read_page(head(run, worse)).texts)
    assert "not more than" in said
    assert "stands behind the lightest" in said


def test_run_without_test_has_a_short_summary(run: focuse.Run) -> None:
    nothing = Gathered(None, None, None, {}, [])
    assert "There is no test to judge it by." in head(run, nothing)
    assert tiles(run, nothing) == []
    noted = replace(nothing, notes=["the model gives scores that are not finite"])
    assert "It could not be judged by its test; a note says why." in head(run, noted)


def test_table_of_contents_links_to_every_section() -> None:
    body = heading("A <b>") + heading("small", 3) + heading("C & D")
    assert contents(body).count("<li>") == 2
    assert '<a href="#a-b">A &lt;b&gt;</a>' in contents(body)
    assert contents("<p>x</p>") == ""
