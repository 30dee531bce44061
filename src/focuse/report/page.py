"""Self-contained HTML pages from the Jinja2 templates of this package, which escape every text, and their tables.

Pages load nothing: their style, script, charts and data are inside, and their content security policy allows nothing
else to run, even if a name in a graph looks like code.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from focuse.errors import FocuseError, printable
from focuse.evaluation.evaluate import Evaluation
from focuse.evaluation.metrics import HITS
from focuse.inference.explain import Explanation
from focuse.report.charts import inline_svg, violins
from focuse.storage.atomic import check_writable, replace_file

PAGE_SUFFIXES = (".html", ".htm")
# Control characters that HTML does not allow; they are shown like '\x07'.
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")


@dataclass(frozen=True)
class Table:
    """A table of texts, which a template shows by its name, as in `{{ table }}`.

    The columns numbered in `text_columns` are aligned left and the others right. The rows of a `sortable` table can be
    sorted by a click on a heading; in a `grouped` table a repeated first cell is hidden from view.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    text_columns: Collection[int] = (0,)
    sortable: bool = False
    grouped: bool = False

    def __html__(self) -> str:
        return render("table.html", table=self)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("focuse.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(percent=percent, isolate=isolate, slug=slug, json_url=json_url)
    return environment


def _source(name: str) -> str:
    return PackageLoader("focuse.report").get_source(_environment(), name)[0]


def render(template: str, **context: Any) -> Markup:
    """Return a template of this package filled with values; all but `Markup` and tables is escaped."""
    return Markup(_environment().get_template(template).render(**context))


def render_page(template: str, script: bool = False, **context: Any) -> str:
    """Return a page from a template that is or extends page.html; with `script`, its tables can be sorted."""
    code = _source("script.js") if script else ""
    hashed = f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'" if script else "'none'"
    context |= {"style": Markup(_source("style.css")), "script": Markup(code), "script_source": Markup(hashed)}
    text = render(template, **context)
    return FORBIDDEN.sub(lambda found: ascii(found[0])[1:-1], text)


def check_page_path(path: Path) -> None:
    """Raise FocuseError if a page cannot be written to this path."""
    check_writable(path)
    if path.suffix.lower() not in PAGE_SUFFIXES:
        raise FocuseError(f"{path}: cannot write {path.suffix or 'a file without suffix'}; use .html")


def write_page(text: str, path: Path) -> Path:
    """Write a page, as a whole or not at all, and return its path."""
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def percent(fraction: float, digits: int = 0) -> str:
    """Return a fraction as a percentage that is not broken over two lines.

    >>> percent(0.123, 1)
    '12.3\\xa0%'
    """
    return f"{100 * fraction:.{digits}f}\u00a0%"


def isolate(name: str) -> str:
    """Return a name for use in a sentence, whose direction it does not change if it is written from right to left."""
    return f"\u2068{name}\u2069"


def slug(text: str) -> str:
    """Return the letters and digits of a text, joined by hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "part"


def json_url(data: Mapping[str, Any]) -> str:
    """Return data as a URL that contains it as JSON."""
    text = json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False)
    return f"data:application/json;base64,{base64.b64encode(text.encode()).decode()}"


# ---- pages other than the report of a run ----------------------------------------------------------------------------


def ranking_table(evaluations: Mapping[str, Evaluation], caption: str = "Ranks of the test triples") -> Table:
    """Return three rows per evaluation: all triples, and the top and bottom decile by weight."""
    rows = []
    for name, evaluation in evaluations.items():
        deltas = [f"{evaluation.delta_mrr:.3f}", f"{evaluation.delta_median:.3f}"]
        for part, row in list(evaluation.parts.items())[:3]:
            numbers = [f"{row.n:,}", f"{row.mr:.1f}", f"{row.mrr:.3f}", *(f"{row.hits[k]:.3f}" for k in HITS)]
            numbers += deltas if part == "all" else ["", ""]
            rows.append([name, part, *(cell.replace("nan", "–") for cell in numbers)])
    headings = ["", "part", "n", "MR", "MRR", *(f"Hits@{k}" for k in HITS), "ΔMRR", "ΔM"]
    return Table(headings, rows, caption, text_columns=(0, 1), grouped=True)


def comparison_page(
    title: str,
    summary: str,
    evaluations: Mapping[str, Evaluation],
    links: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]],
) -> str:
    """Return a page that compares several models: metrics, score distributions, predicted links and settings."""
    tables = {
        name: Table([], [[key, str(value)] for key, value in values.items()], f"Settings of {name}", (0, 1))
        for name, values in settings.items()
    }
    chart = inline_svg(violins(evaluations), "violins", "Scores of the top and the bottom decile by weight")
    return render_page(
        "comparison.html", title=title, summary=summary, table=ranking_table(evaluations), chart=chart, links=links,
        settings=tables,
    )  # fmt: skip


def explanation_page(explanation: Explanation) -> str:
    """Return an explanation as a page with its summary and tables."""
    influences = sorted([*explanation.supporting, *explanation.opposing], key=lambda row: -abs(row.change))
    cells = {title: table.cells() for title, table in explanation.tables.items()}
    return render_page(
        "explanation.html",
        title="Why " + printable(" ".join(explanation.triple)),
        explanation=explanation,
        bars=[(row, 100 * abs(row.change / influences[0].change)) for row in influences],
        tables=[
            Table(headings, rows, title, np.flatnonzero(is_text).tolist())
            for title, (headings, rows, is_text) in cells.items()
        ],
    )


def write_explanation(explanation: Explanation, path: str | Path) -> Path:
    """Write an explanation as an HTML page and return its path."""
    check_page_path(Path(path))
    return write_page(explanation_page(explanation), Path(path))
