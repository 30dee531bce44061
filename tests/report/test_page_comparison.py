"""The page that compares models: complete, offline, and safe with any name."""

import re
from typing import Any

import numpy as np
import pytest

from focuse.evaluation.evaluate import Evaluation
from focuse.evaluation.metrics import RankMetrics
from focuse.report.page import comparison_page

HOSTILE = "<script>alert(1)</script>"
EVIL = [HOSTILE, '"><img src=x onerror=alert(2)>', "--><script>alert(3)</script>", "]]><b>&amp;", "$\\alpha$ 'q' & co"]
HTML = {"html", "head", "body", "h1", "h2", "p", "table", "tr", "td", "th", "ol", "li", "details", "summary", "script"}


def evaluation_of(seed: int) -> Evaluation:
    """Figures that are all different, so that each can be looked for."""
    rng = np.random.default_rng(seed)

    def figures(n: int) -> RankMetrics:
        return RankMetrics(*(rng.uniform(1, 50), rng.random()), dict(zip((1, 3, 10), rng.random(3), strict=True)), n)

    return Evaluation(
        all=figures(1_234 + seed),
        top=figures(123 + seed),
        bottom=figures(77 + seed),
        weighted=figures(9),
        delta_mrr=rng.random(),
        delta_median=rng.random(),
        settings={"ties": "worst"},
        scores=rng.normal(size=30).astype(np.float32),
        top_share=rng.random(30),
        bottom_share=rng.random(30),
    )


def report(name: str = "FocusE", sentence: str = "a should know b", value: object = 3) -> str:
    evaluations = {"plain": evaluation_of(0), name: evaluation_of(1)}
    return comparison_page(name, f"sum {name}", evaluations, [sentence, "two"], {name: {name: value, "lr": 1e-3}})


@pytest.mark.parametrize("evil", EVIL)
def test_hostile_names_are_escaped(evil: str, read_page: Any) -> None:
    page = report(evil, f"x {evil} y", evil)
    read, harmless = read_page(page), read_page(report())
    assert read.open == []
    assert {tag: read.tags.count(tag) for tag in ("script", "img", "b")} == {"script": 0, "img": 0, "b": 0}
    # Whatever lies outside the picture (whose title is drawn) has the same tags as with a harmless name.
    assert [tag for tag in read.tags if tag in HTML] == [tag for tag in harmless.tags if tag in HTML]
    assert not any(key.startswith("on") for key, _ in read.attributes)
    # Title, heading, row of the table, settings (name, value) hold it word for word, once decoded.
    assert sum(text == evil for text in read.texts) >= 5
    assert f"x {evil} y" in read.texts
    assert f"sum {evil}" in read.texts
    assert f"Settings of {evil}" in read.texts
    assert "<script" not in page.lower()
    assert "<img" not in page.lower()


def test_page_loads_no_external_resources(read_page: Any) -> None:
    page = report()
    read = read_page(page)
    for key, value in read.attributes:
        if key in ("src", "href", "xlink:href", "srcset", "data", "action"):
            assert value.startswith("#"), (key, value)
        assert not re.search(r"url\((?!#)", value)
    assert not {"link", "script", "iframe", "object", "embed", "base"} & set(read.tags)
    assert "@import" not in page
    assert "<?xml" not in page
    assert page.startswith("<!DOCTYPE html>")
    assert page.lower().count("<!doctype") == 1


def test_page_contains_every_number(read_page: Any) -> None:
    read = read_page(report())
    for evaluation in (evaluation_of(0), evaluation_of(1)):
        for part in (evaluation.all, evaluation.top, evaluation.bottom):
            numbers = [f"{part.n:,}", f"{part.mr:.1f}", f"{part.mrr:.3f}", *(f"{h:.3f}" for h in part.hits.values())]
            places = [i for i, text in enumerate(read.texts) if text == numbers[0]]
            assert any(read.texts[i : i + 6] == numbers for i in places)
        assert f"{evaluation.delta_mrr:.3f}" in read.texts
        assert f"{evaluation.delta_median:.3f}" in read.texts
    assert {"lr", "0.001", "a should know b", "two"} <= set(read.texts)
    assert read.tags.count("svg") == 1


def test_rows_have_a_cell_for_each_heading() -> None:
    page = report()
    table = page[page.index("<table>") : page.index("</table>")]
    rows = table.split("<tr>")[1:]
    assert len(rows) == 1 + 2 * 3
    assert {len(re.findall("<t[hd][ >]", row)) for row in rows} == {10}


def test_same_input_gives_the_same_page() -> None:
    assert report() == report()
