"""Explanations as pages and pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
from focuse.report.explanation import explanation_page, write_explanation

import focuse
from focuse.errors import FocuseError

ROWS = [("<b>a</b>", "r&s", f"t{number}", number / 10) for number in range(1, 9)] + [("b", "r&s", "t1", 0.5)]


@pytest.fixture(scope="module")
def found() -> focuse.inference.explaining.explanation.Explanation:
    run = focuse.train(ROWS, dim=4, epochs=2, valid_fraction=0.0, test_fraction=0.0, label_exponent=1.0, progress=False)
    return run.explain("<b>a</b>", "r&s", "t3")


def test_page_contains_text_picture_and_tables(found: focuse.inference.explaining.explanation.Explanation) -> None:
    page = explanation_page(found)
    assert "<b>a</b>" not in page
    assert "&lt;b&gt;a&lt;/b&gt; r&amp;s t3" in page
    assert page.count("<svg") == 1
    assert 'id="explanation-title"' in page
    assert 'aria-labelledby="explanation-title explanation-desc"' in page
    assert "Facts that support it" in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")


def test_explanation_is_written_as_svg_or_html(
    found: focuse.inference.explaining.explanation.Explanation, tmp_path: Path
) -> None:
    assert write_explanation(found, tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<svg")
    assert write_explanation(found, tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    with pytest.raises(FocuseError, match=r"cannot write .png; use .html or .svg"):
        write_explanation(found, tmp_path / "a.png")
    with pytest.raises(FocuseError, match="there is no folder"):
        write_explanation(found, tmp_path / "none" / "a.svg")
