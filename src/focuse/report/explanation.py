"""An explanation as one self-contained page, or as its picture alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from focuse.errors import printable
from focuse.inference.answers import check_target
from focuse.inference.explaining.explanation import Explanation, Implied, Like, Step, Support
from focuse.report.page import download, heading, page, paragraph, picture, table
from focuse.storage.atomic import replace_file

FORMS = (".html", ".svg")
WIDE = """
body { max-width: 72rem; } h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
table { display: block; overflow-x: auto; } td { overflow-wrap: anywhere; }
"""
NAMES = ["head", "relation", "tail", "weight"]


def write_explanation(explanation: Explanation, path: Path) -> Path:
    """Write a page (.html) or a picture (.svg), whole or not at all; its path."""
    check_target(path, FORMS)
    text = explanation.svg() if path.suffix == ".svg" else explanation_page(explanation)
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def explanation_page(explanation: Explanation) -> str:
    """Words, picture and tables on one page that loads nothing; every name in it is escaped."""
    title = "Why " + printable(" ".join(explanation.triple))
    parts = [heading(title, 1), paragraph(explanation.words()), picture(_named(explanation.svg()), "explanation")]
    if explanation.itself is not None:
        parts.append(paragraph(f"Without the fact itself the score would change by {explanation.itself:+.3f}."))
    parts += [
        _supports("Facts that support it", explanation.supporting),
        _supports("Facts that speak against it", explanation.against),
        _rules(explanation.rules),
        _likes("Similar facts", "mean cosine of both ends", explanation.similar),
        _likes("Same head, other tails", "cosine with the asked tail", explanation.same_head),
        _likes("Same tail, other heads", "cosine with the asked head", explanation.same_tail),
        *(paragraph(f"Note: {note}") for note in explanation.notes),
        download("explanation.json", explanation.to_dict()),
    ]
    return page(title, "".join(parts), WIDE)


def _named(svg: str) -> str:
    """The picture for use within a page, where what names it must have the page's ids."""
    return svg.replace('aria-labelledby="title desc"', 'aria-labelledby="explanation-title explanation-desc"')


def _supports(title: str, rows: Sequence[Support]) -> str:
    cells = [[*_triple(one), f"{one.weight:.4g}", f"{one.change:+.3f}"] for one in rows]
    return _titled(title, table([*NAMES, "change of the score without it"], cells, words=3), rows)


def _likes(title: str, measure: str, rows: Sequence[Like]) -> str:
    cells = [[*_triple(one), f"{one.weight:.4g}", f"{one.similarity:.3f}"] for one in rows]
    return _titled(title, table([*NAMES, measure], cells, words=3), rows)


def _rules(rows: Sequence[Implied]) -> str:
    heads = ["rule", "by", "confidence", "soft", "body", "implied", "ways"]
    cells = [
        [
            printable(one.rule),
            "; ".join(_step(step) for step in one.facts),
            f"{one.confidence:.3f}",
            "–" if one.soft is None else f"{one.soft:.3f}",
            f"{one.body:.3f}",
            f"{one.implied:.3f}",
            f"{one.groundings:,}",
        ]
        for one in rows
    ]
    return _titled("Rules that imply it", table(heads, cells, words=2), rows)


def _step(step: Step) -> str:
    told = " ".join(_triple(step))
    return f"{'not ' * step.negated}{told}{'' if step.weight is None else f' ({step.weight:.3g})'}"


def _triple(one: Support | Like | Step) -> list[str]:
    return [printable(one.head), printable(one.relation), printable(one.tail)]


def _titled(title: str, text: str, rows: Sequence[object]) -> str:
    return heading(title) + text if rows else ""
