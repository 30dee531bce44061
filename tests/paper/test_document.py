"""Blocks as Markdown and as HTML."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from focuse.paper.document import Grid, Heading, Picture, Points, Text, to_html, to_markdown

SVG = '<?xml version="1.0"?>\n<svg><path id="p1"/><use href="#p1" clip-path="url(#p1)"/></svg>'
EVIL = '<script>alert("1")</script> & <img src=x>'


def test_grid_is_a_table_in_markdown():
    text = to_markdown([Grid(["data", "MRR"], [["PPI5K", ".950"], ["a|b", "–"]])])
    assert text == "| data  |  MRR |\n| ----- | ---: |\n| PPI5K | .950 |\n| a\\|b  |    – |\n"


def test_blocks_keep_their_order():
    blocks = [Heading(2, "Tables"), Text("two\nlines"), Points(("a", "b")), Picture("f.svg", SVG, "a picture")]
    assert to_markdown(blocks) == "## Tables\n\ntwo lines\n\n- a\n- b\n\n![a picture](f.svg)\n"
    page = to_html("Title", blocks)
    for part in ("<title>Title</title>", "<h2>Tables</h2>", "<ul><li>a</li><li>b</li></ul>", "<figcaption>a picture<"):
        assert part in page


def test_markdown_escapes_tags_and_emphasis():
    assert "<script" not in to_markdown([Text(EVIL)]).replace("\\<", "")
    assert to_markdown([Text("O*NET20K")]) == "O*NET20K\n"
    assert to_markdown([Text("O*NET20K, O*NET importance")]) == "O\\*NET20K, O\\*NET importance\n"
    assert to_markdown([Text("<.01")]) == "<.01\n"


@pytest.mark.parametrize("block", [Heading(1, EVIL), Text(EVIL), Points((EVIL,)), Grid([EVIL, "x"], [[EVIL, EVIL]])])
def test_html_escapes_everything(block):
    page = to_html(EVIL, [block])
    assert "<script" not in page
    assert "<img" not in page
    body = page[page.index("<body>") : page.index("</html>")]
    assert EVIL.split(" & ")[0] in "".join(ElementTree.fromstring(body).itertext())


def test_ids_of_pictures_are_distinct():
    page = to_html("t", [Picture("a.svg", SVG, EVIL), Picture("b.svg", SVG, "b")])
    ids = re.findall(r'id="([^"]+)"', page)
    assert len(ids) == len(set(ids)) == 2
    assert set(re.findall(r'href="#([^"]+)"', page)) == set(re.findall(r"url\(#([^)]+)\)", page)) == set(ids)
    assert "<?xml" not in page
