"""Pages and tables, with hostile texts in each part, and the page of an explanation."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

import focuse
from focuse.errors import FocuseError
from focuse.inference.explain import Explanation
from focuse.report.page import Table, explanation_page, render, render_page, slug, write_explanation
from focuse.rules.grammar import parse_rules

EVIL = "\"><script>alert(1)</script>&amp; 'q'"
ROWS = [("<b>a</b>", "r&s", f"t{number}", number / 10) for number in range(1, 9)]
ROWS += [("b", "r&s", "t1", 0.5), ("t3", "<i>of</i>", "<b>a</b>", 0.9)]


def html(table: Table) -> str:
    return table.__html__()


@pytest.mark.parametrize(
    "piece",
    [
        html(Table(["x"], [[EVIL]])),
        html(Table(["x", "y"], [["1", EVIL]])),
        html(Table([EVIL], [["x"]])),
        html(Table([], [["x"]], EVIL)),
        render_page("page.html", title=EVIL, body="x"),
    ],
)
def test_texts_are_escaped(piece: str, read_page: Any) -> None:
    read = read_page(piece)
    assert EVIL in read.texts
    assert "script" not in read.tags
    assert read.open == []


def test_numbers_are_aligned_right_and_text_left() -> None:
    found = html(Table(["a", "b", "c"], [["x", "1", "y"]], text_columns=(0, 2)))
    assert re.findall("<t[dh] ?[^>]*>", found.split("<tbody>")[1]) == ['<th scope="row">', '<td class="n">', "<td>"]
    assert re.findall("<th ?[^>]*>", found.split("<tbody>")[0])[-2] == '<th scope="col" class="n">'


def test_tables_have_accessible_names(read_page: Any) -> None:
    read = read_page(html(Table(["a"], [["x"]], EVIL, sortable=True)))
    assert EVIL in read.texts
    assert ("aria-label", EVIL) in read.attributes
    assert ("class", "sortable") in read.attributes
    assert "thead" not in read_page(html(Table([], [["x"]]))).tags


def test_repeated_name_of_a_group_is_hidden_from_view_only(read_page: Any) -> None:
    read = read_page(html(Table(["", "n"], [["<b>", "1"], ["<b>", "2"], ["c", "3"]], grouped=True)))
    assert read.texts.count("<b>") == 2
    assert read.tags.count("span") == 1


def test_only_markup_is_not_escaped(read_page: Any) -> None:
    read = read_page(html(Table(["a", "b"], [["<i>x</i>", Markup("<i>y</i>")]])))
    assert read.tags.count("i") == 1
    assert "<i>x</i>" in read.texts
    assert slug("What – is it?") == "what-is-it"


def test_data_to_save_is_inside_the_page(read_page: Any) -> None:
    data = {EVIL: [1, None, "é"], "n": 0.1}
    shown = {"title": "t", "header": "", "sections": {}, "style": ""}
    text = render("report.html", **shown, script="", script_source="", data=data)
    url = next(value for key, value in read_page(text).attributes if key == "href")
    kind, packed = url.split(",")
    assert kind == "data:application/json;base64"
    assert json.loads(base64.b64decode(packed)) == data
    with pytest.raises(ValueError, match="JSON"):
        render("report.html", **shown, script="", script_source="", data={"a": float("nan")})


def test_forbidden_control_characters_are_shown_escaped() -> None:
    made = render_page("page.html", title="bell\x07", body="nul\x00, escape\x1b, next\x85, line\nend, שלום")
    assert "<title>bell\\x07</title>" in made
    assert "nul\\x00, escape\\x1b, next\\x85, line\nend, שלום" in made


# ---- the page of an explanation --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    run = focuse.train(ROWS, dim=4, epochs=2, valid_fraction=0.0, test_fraction=0.0, label_exponent=1.0, progress=False)
    return run.explain("<b>a</b>", "r&s", "t3", rules=parse_rules('"<i>of</i>"(y, x) -> "r&s"(x, y) : 0.9'))


def test_explanation_page_has_summary_bars_and_tables(explanation: Explanation, read_page: Any) -> None:
    text = explanation_page(explanation)
    read = read_page(text)
    assert read.open == []
    assert "b" not in read.tags
    assert "Why <b>a</b> r&s t3" in read.texts
    assert any(explanation.summary() in one for one in read.texts)
    assert text.count('class="bar ') == len(explanation.supporting) + len(explanation.opposing) > 0
    assert read.tags.count("table") == len(explanation.tables)
    assert "t3 <i>of</i> <b>a</b> (1)" in read.texts  # the body of the rule, with a weight in [0, 1]
    assert f"{explanation.supporting[0].change:+.3f}" in text
    assert "http" not in text.replace("Content-Security-Policy", "").replace("http-equiv", "")


def test_explanation_is_written_as_html(explanation: Explanation, tmp_path: Path) -> None:
    assert write_explanation(explanation, tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    with pytest.raises(FocuseError, match=r"cannot write \.png; use \.html"):
        write_explanation(explanation, tmp_path / "a.png")
    with pytest.raises(FocuseError, match="there is no folder"):
        write_explanation(explanation, tmp_path / "none" / "a.html")
