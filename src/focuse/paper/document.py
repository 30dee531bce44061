"""A report as a list of blocks, written as Markdown or as one self-contained HTML page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from focuse.report.charts import inline_svg
from focuse.report.page import page

WIDE = """
body { max-width: 76rem; }
h3 { font-size: 1rem; margin-bottom: .3rem; } p, li { max-width: 54rem; }
div.wide { overflow-x: auto; } div.wide th, div.wide td { padding: .2rem .6rem; white-space: nowrap; }
div.wide td.t { white-space: normal; } div.wide th.n { text-align: right; }
figure { margin: 1rem 0; } figcaption { color: #555; max-width: 54rem; }
"""


@dataclass(frozen=True)
class Heading:
    level: int
    text: str


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Points:
    items: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """Rows of text; the first `words` columns and those with long words stand left, numbers right."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


@dataclass(frozen=True)
class Picture:
    """An SVG that lies beside the Markdown as `file` and inside the page."""

    file: str
    svg: str
    caption: str


Block = Heading | Text | Points | Grid | Picture


def to_markdown(blocks: Sequence[Block]) -> str:
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"{'#' * level} {_safe(text)}"
        case Text(text):
            return _safe(text)
        case Points(items):
            return "\n".join(f"- {_safe(item)}" for item in items)
        case Picture(file, _, caption):
            return f"![{_safe(caption)}]({file})"
        case Grid(heads, rows, words):
            return _markdown_grid(heads, rows, words)


def _markdown_grid(heads: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """Columns are padded, so that the source is a table too."""
    lines = [[_safe(cell).replace("|", "\\|") for cell in row] for row in (heads, *rows)]
    widths = [max(3, *(len(line[place]) for line in lines)) for place in range(len(heads))]
    rule = ["-" * width if place < words else "-" * (width - 1) + ":" for place, width in enumerate(widths)]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if place < words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    return "\n".join([line(lines[0]), line(rule), *(line(cells) for cells in lines[1:])])


def _safe(text: str) -> str:
    """One line in which nothing is a tag, and stars (O*NET) are no emphasis."""
    text = re.sub(r"<(?=[A-Za-z/!?])", r"\\<", " ".join(text.split()))
    return text.replace("*", "\\*") if text.count("*") > 1 else text


def to_html(title: str, blocks: Sequence[Block]) -> str:
    """The page loads nothing; every text in it is escaped."""
    return page(title, "\n".join(_html(block) for block in blocks), WIDE)


def _html(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Text(text):
            return f"<p>{escape(text)}</p>"
        case Points(items):
            return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"
        case Picture(file, svg, caption):
            return f"<figure>{inline_svg(svg, file, caption)}<figcaption>{escape(caption)}</figcaption></figure>"
        case Grid(heads, rows, words):
            kinds = ["t" if place < words else "n" for place in range(len(heads))]
            top = "".join(f'<th class="{kind}">{escape(head)}</th>' for kind, head in zip(kinds, heads, strict=True))
            body = "".join(f"<tr>{_cells(row, kinds)}</tr>\n" for row in rows)
            return f'<div class="wide"><table>\n<tr>{top}</tr>\n{body}</table></div>'


def _cells(row: Sequence[str], kinds: Sequence[str]) -> str:
    return "".join(f'<td class="{kind}">{escape(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))
