"""Parts of a page, with hostile texts in each."""

import base64
import json
import re
from typing import Any

import pytest

from focuse.report.page import (
    Markup,
    bullets,
    code,
    download,
    figure,
    folded,
    grouped,
    heading,
    numbered,
    page,
    paragraph,
    picture,
    settings_details,
    table,
)

EVIL = "\"><script>alert(1)</script>&amp; 'q'"


@pytest.mark.parametrize(
    "piece",
    [
        heading(EVIL),
        paragraph(EVIL),
        numbered([EVIL]),
        bullets([EVIL]),
        code(EVIL, "x"),
        figure([], EVIL),
        folded(EVIL, ""),
        table(["x"], [[EVIL]]),
        table([EVIL], [["x"]]),
        settings_details("x", {EVIL: 1}),
        settings_details("x", {"a": EVIL}),
        page(EVIL, "<p>x</p>"),
    ],
)
def test_texts_are_escaped(piece: str, read_page: Any) -> None:
    read = read_page(piece)
    assert EVIL in read.texts
    assert "script" not in read.tags
    assert read.open == []


def test_numbers_are_aligned_right_and_text_left() -> None:
    found = table(["a", "b", "c"], [["x", "y", "1"]], words=2)
    assert re.findall("<t[dh] ?[^>]*>", found.split("<tbody>")[1]) == ['<th scope="row">', "<td>", '<td class="n">']
    assert re.findall("<th ?[^>]*>", found.split("<tbody>")[0])[-1] == '<th scope="col" class="n">'


def test_tables_have_accessible_names(read_page: Any) -> None:
    found = table(["a"], [["x"]], caption=EVIL, sortable=True)
    read = read_page(found)
    assert EVIL in read.texts
    assert ("aria-label", EVIL) in read.attributes
    assert ("class", "sortable") in read.attributes
    assert "thead" not in read_page(table([], [["x"]])).tags


def test_repeated_name_is_hidden_visually_only(read_page: Any) -> None:
    cells = grouped([["<b>", "1"], ["<b>", "2"], ["c", "3"]])
    read = read_page(table(["", "n"], cells))
    assert read.texts.count("<b>") == 2
    assert read.tags.count("span") == 1


def test_only_markup_objects_are_not_escaped(read_page: Any) -> None:
    read = read_page(table(["a", "b"], [["<i>x</i>", Markup("<i>y</i>")]]))
    assert read.tags.count("i") == 1
    assert "<i>x</i>" in read.texts


def test_headings_have_anchors() -> None:
    assert heading("What – is it?") == '<h2 id="what-is-it">What – is it?</h2>\n'
    assert "id=" not in heading("What", 3)


def test_ids_of_pictures_are_distinct() -> None:
    svg = '<?xml version="1.0"?><svg><g id="a"/><use href="#a"/><path clip-path="url(#a)"/></svg>'
    first, second = picture(svg, "one"), picture(svg, "Two 2")
    assert first == '<svg><g id="one-a"/><use href="#one-a"/><path clip-path="url(#one-a)"/></svg>'
    assert second == first.replace("one-a", "two-2-a")


def test_download_contains_the_data(read_page: Any) -> None:
    data = {EVIL: [1, None, "é"], "n": 0.1}
    read = read_page(download("figures.json", data))
    attributes = dict(read.attributes)
    assert attributes["download"] == "figures.json"
    kind, packed = attributes["href"].split(",")
    assert kind == "data:application/json;base64"
    assert json.loads(base64.b64decode(packed)) == data
    with pytest.raises(ValueError, match="JSON"):
        download("x", {"a": float("nan")})


def test_forbidden_control_characters_are_shown_escaped() -> None:
    made = page("bell\x07", paragraph("nul\x00, escape\x1b, next\x85, line\nend, שלום"))
    assert "<title>bell\\x07</title>" in made
    assert "nul\\x00, escape\\x1b, next\\x85, line\nend, שלום" in made
