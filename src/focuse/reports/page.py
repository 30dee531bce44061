"""Pieces of a self-contained HTML page that works offline. Every text is escaped here, hostile names too."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
table { border-collapse: collapse; } th, td { padding: .25rem .8rem; border-bottom: 1px solid #ddd; }
th { text-align: left; font-weight: 600; } td.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { max-width: 100%; height: auto; } details { margin-top: 1rem; }
@media print { details { display: none; } }
"""


def page(title: str, body: str, style: str = "") -> str:
    """The whole page; `body` is HTML already."""
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body>
{body}
</body></html>
"""


def heading(text: str, level: int = 2) -> str:
    return f"<h{level}>{escape(text)}</h{level}>\n"


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>\n"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Rows of text below `heads`; the first `words` columns stand left, numbers right.

    >>> table(["name", "n"], [["<b>", "1"]])
    '<table><tr><th>name</th><th>n</th></tr><tr><td>&lt;b&gt;</td><td class="n">1</td></tr></table>\\n'
    """
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = "".join(f"<tr>{_cells(row, words)}</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>\n"


def _cells(row: Sequence[str], words: int) -> str:
    kinds = ("" if place < words else ' class="n"' for place in range(len(row)))
    return "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True))


def numbered(items: Sequence[str]) -> str:
    return f"<ol>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ol>\n"


def picture(svg: str, name: str) -> str:
    """An SVG without its XML head, its ids made different from those of the page's other pictures by `name`."""
    name = re.sub(r"[^a-z0-9]+", "-", name.lower())
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)


def settings_details(name: str, values: Mapping[str, Any]) -> str:
    """Settings to unfold."""
    rows = "".join(f"<tr>{_cells([key, str(value)], 2)}</tr>" for key, value in values.items())
    return f"<details><summary>Settings of {escape(name)}</summary><table>{rows}</table></details>"


def download(file: str, data: Mapping[str, Any]) -> str:
    """A link that saves `data`, which lies in the page itself, as a JSON file."""
    text = json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False)
    packed = base64.b64encode(text.encode()).decode()
    link = f'<a download="{escape(file)}" href="data:application/json;base64,{packed}">{escape(file)}</a>'
    return f"<p>All figures of this page: {link}</p>\n"
