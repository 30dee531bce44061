"""An explanation as a small SVG: self-contained, every name escaped, colours that all eyes can tell apart."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from focuse.errors import printable
from focuse.inference.explaining import layout
from focuse.inference.explaining.layout import Box, Edge

if TYPE_CHECKING:
    from focuse.inference.explaining.explanation import Explanation

# Okabe and Ito's colours; lines also differ in kind, for print in grey.
COLOURS = {"asked": "#000000", "for": "#0072B2", "against": "#D55E00", "rule": "#009E73"}
DASHES = {"asked": "8 5", "against": "2 4"}
WORDS = {
    "asked": "the asked triple",
    "for": "supports it",
    "against": "speaks against it",
    "rule": "in the body of a rule",
}
LEGEND, LEGEND_LINE = 34, 18  # height of what stands below the picture, and of its second line
THIN, THICK = 1.2, 6.5  # of lines, for weights at the lower and upper end of their range


def drawn(explanation: Explanation) -> str:
    """The picture, as text of an SVG file."""
    found = layout.arrange(explanation)
    words = escape(printable(explanation.words()))
    title = escape(printable("Why " + " ".join(explanation.triple)))
    kinds = [kind for kind in COLOURS if any(edge.kind == kind for edge in found.edges)]
    legend = _legend(kinds, found.height, _figures(explanation))
    width, height = max(found.width, legend.width), found.height + legend.height
    body = [*map(_edge, found.edges), *map(_box, found.boxes), legend.text]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="100%" '
        f'style="max-width: {width:g}px" role="img" aria-labelledby="title desc" font-family="system-ui, sans-serif">'
        f'<title id="title">{title}</title><desc id="desc">{words}</desc>'
        f"<defs>{''.join(map(_arrow, kinds))}</defs>"
        f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>{"".join(body)}</svg>\n'
    )


def _arrow(kind: str) -> str:
    return (
        f'<marker id="arrow-{kind}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="11" markerHeight="11" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="{COLOURS[kind]}"/></marker>'
    )


def _edge(edge: Edge) -> str:
    """A curve from the near side of one box to that of the other."""
    rightward = edge.start.x <= edge.end.x
    x1 = edge.start.x + (edge.start.width if rightward else 0)
    x2 = edge.end.x + (0 if rightward else edge.end.width)
    if edge.start.column == edge.end.column:  # one above the other: out at the right and back in
        x1 = x2 = edge.start.x + edge.start.width
        bend1 = bend2 = x1 + layout.GAP * 0.8
    else:
        bend1, bend2 = x1 + (x2 - x1) * 0.5, x1 + (x2 - x1) * 0.5
    path = f"M{x1:g} {edge.start.middle:g} C{bend1:g} {edge.start.middle:g} {bend2:g} {edge.end.middle:g} {x2:g} "
    path += f"{edge.end.middle:g}"
    dash = f' stroke-dasharray="{DASHES[edge.kind]}"' if edge.kind in DASHES else ""
    marker = f' marker-end="url(#arrow-{edge.kind})"' if edge.pointed else ""
    size = THIN + (THICK - THIN) * min(max(edge.share, 0.0), 1.0)
    return (
        f'<path d="{path}" fill="none" stroke="{COLOURS[edge.kind]}" stroke-width="{size:.2f}" '
        f'stroke-opacity="0.85"{dash}{marker}><title>{escape(printable(edge.title))}</title></path>'
    )


def _box(box: Box) -> str:
    """A rounded box with a name and lines below it; whole names as a tooltip."""
    strong = box.kind in ("head", "tail")
    fill = "#fff4cc" if strong else "#ffffff" if box.kind == "asked" else "#f4f4f4"
    dash = ' stroke-dasharray="5 4"' if box.kind == "asked" else ""
    rim = f'stroke="{"#000000" if strong or box.kind == "asked" else "#8a8a8a"}" stroke-width="{1.6 if strong else 1}"'
    x, y = box.x + box.width / 2, box.y + layout.PAD + 12
    texts = []
    if box.name:
        name = escape(layout.shortened(box.name, layout.NAME_LETTERS))
        texts.append(f'<text x="{x:g}" y="{y:g}" font-size="13" font-weight="600">{name}</text>')
        y += layout.LINE
    for line in box.lines:
        told = escape(layout.shortened(line, layout.LINE_LETTERS))
        texts.append(f'<text x="{x:g}" y="{y:g}" font-size="11" fill="#333333">{told}</text>')
        y += layout.LINE
    whole = escape(printable("\n".join(part for part in (box.name, *box.lines) if part)))
    round_ = box.height / 2 if box.kind in ("asked", "direct") else 6
    return (
        f'<g text-anchor="middle"><title>{whole}</title><rect x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" '
        f'height="{box.height:g}" rx="{min(round_, 16):g}" fill="{fill}" {rim}{dash}/>{"".join(texts)}</g>'
    )


class Legend(NamedTuple):
    text: str
    width: float
    height: float


def _figures(explanation: Explanation) -> str:
    """What the numbers of a fact mean, by the first one that is shown."""
    for one in (*explanation.supporting, *explanation.against):
        figures = f"{one.weight:.3g} ({one.change:+.2f})".replace("-", "−")
        return f"{figures}: the weight of a fact, and the change of the score without it"
    return ""


def _legend(kinds: list[str], top: float, figures: str) -> Legend:
    """What lines and numbers mean, below the picture."""
    parts, x, y = [], float(layout.MARGIN), top + LEGEND / 2
    for kind in kinds:
        dash = f' stroke-dasharray="{DASHES[kind]}"' if kind in DASHES else ""
        parts.append(
            f'<path d="M{x:g} {y:g} h28" stroke="{COLOURS[kind]}" stroke-width="3"{dash}/>'
            f'<text x="{x + 34:g}" y="{y + 4:g}" font-size="11" fill="#333333">{WORDS[kind]}</text>'
        )
        x += 48 + layout.LINE_LETTER * len(WORDS[kind])
    if not figures:
        return Legend("".join(parts), x, LEGEND)
    y += LEGEND_LINE
    parts.append(f'<text x="{layout.MARGIN:g}" y="{y + 4:g}" font-size="11" fill="#333333">{escape(figures)}</text>')
    width = max(x, 2 * layout.MARGIN + layout.LINE_LETTER * len(figures))
    return Legend("".join(parts), width, LEGEND + LEGEND_LINE)
