"""Pieces of a self-contained HTML page that works offline. Every text is escaped here, hostile names too."""

from __future__ import annotations

import base64
import hashlib
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


# Control letters that HTML may not hold, not even escaped: names that do are shown with \x07 and the like.
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")


class Markup(str):
    """HTML already: a cell of a table that is one is not escaped."""


def page(title: str, body: str, style: str = "", base: str = STYLE, script: str = "") -> str:
    """The whole page; `body` is HTML already, `style` comes after `base`. No code runs on it but `script` itself."""
    code = f"<script>{script}</script>\n" if script else ""
    own = f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" if script else "'none'"
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {own}; base-uri 'none'"
    text = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)}</title><style>{base}{style}</style></head><body>
{body}
{code}</body></html>
"""
    return FORBIDDEN.sub(lambda found: ascii(found[0])[1:-1], text)


def heading(text: str, level: int = 2) -> str:
    """A heading; one of level 2 can be linked to.

    >>> heading("Does it work?")
    '<h2 id="does-it-work">Does it work?</h2>\\n'
    """
    place = f' id="{slug(text)}"' if level == 2 else ""
    return f"<h{level}{place}>{escape(text)}</h{level}>\n"


def slug(text: str) -> str:
    """Letters and digits of a text, joined by hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "part"


def paragraph(text: str, kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f"<p{mark}>{escape(text)}</p>\n"


def isolated(name: str) -> str:
    """A name in the middle of a sentence: one written from right to left does not turn what stands beside it."""
    return f"\u2068{name}\u2069"


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1, caption: str = "", sortable: bool = False
) -> str:
    """Rows of text below `heads`; the first `words` columns stand left, numbers right.

    The first cell of a row is its heading. A wide table scrolls by itself, and a `sortable` one can be sorted by click.

    >>> table(["name", "n"], [["<b>", "1"]]).splitlines()[1]
    '<thead><tr><th scope="col">name</th><th scope="col" class="n">n</th></tr></thead>'
    """
    kind = ' class="sortable"' if sortable else ""
    told = f"<caption>{escape(caption)}</caption>" if caption else ""
    region = f' role="region" aria-label="{escape(caption)}"' if caption else ""
    top = "".join(f'<th scope="col"{_side(place, words)}>{_text(head)}</th>' for place, head in enumerate(heads))
    top = f"<thead><tr>{top}</tr></thead>" if heads else ""
    body = "\n".join(f"<tr>{_cells(row, words)}</tr>" for row in rows)
    return f'<div class="scroll" tabindex="0"{region}><table{kind}>{told}\n{top}\n<tbody>{body}</tbody></table></div>\n'


def _side(place: int, words: int) -> str:
    return "" if place < words else ' class="n"'


def _text(cell: str) -> str:
    return cell if isinstance(cell, Markup) else escape(cell)


def _cells(row: Sequence[str], words: int) -> str:
    first = f'<th scope="row">{_text(row[0])}</th>' if row else ""
    rest = (f"<td{_side(place, words)}>{_text(cell)}</td>" for place, cell in enumerate(row[1:], 1))
    return first + "".join(rest)


def grouped(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The same rows; where a first cell is that of the row above it is heard, but not seen."""
    cells, last = [], None
    for row in rows:
        first = Markup(f'<span class="again">{escape(row[0])}</span>') if row[0] == last else row[0]
        cells.append([first, *row[1:]])
        last = row[0]
    return cells


def percent(share: float, digits: int = 0) -> str:
    """A share in hundredths, its sign never on a line of its own.

    >>> percent(0.123, 1)
    '12.3\\xa0%'
    """
    return f"{100 * share:.{digits}f}\u00a0%"


def numbered(items: Sequence[str]) -> str:
    return f"<ol>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ol>\n"


def bullets(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>\n" if items else ""


def code(text: str, label: str) -> str:
    """Text to copy, as it is; where scripts run, a button does it. A long one of short lines stands in columns."""
    lines = text.splitlines()
    many = ' class="many"' if len(lines) > 15 and max(map(len, lines)) < 80 else ""
    return f'<div class="code"><pre{many} aria-label="{escape(label)}" tabindex="0">{escape(text)}</pre></div>\n'


def figure(pictures: Sequence[str], caption: str = "") -> str:
    """Pictures side by side, below each other where it is narrow, and what they show."""
    told = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure><div class="panels">{"".join(pictures)}</div>{told}</figure>\n'


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


def folded(summary: str, inside: str) -> str:
    """HTML to unfold."""
    return f"<details><summary>{escape(summary)}</summary>\n{inside}</details>\n"


def download(file: str, data: Mapping[str, Any]) -> str:
    """A link that saves `data`, which lies in the page itself, as a JSON file."""
    text = json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False)
    packed = base64.b64encode(text.encode()).decode()
    link = f'<a download="{escape(file)}" href="data:application/json;base64,{packed}">{escape(file)}</a>'
    return f"<p>All figures of this page: {link}</p>\n"
