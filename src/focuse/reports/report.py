"""One self-contained HTML page on a run: a list of sections, each of which may have nothing to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from focuse.errors import FocuseError
from focuse.graph.writing import replacing
from focuse.reports import links, ranking, training, weights
from focuse.reports.gathered import Gathered, Reported, gather, title_of
from focuse.reports.page import download, heading, page

WIDE = """
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; } table { display: block; overflow-x: auto; }
"""
# A section gets the run and its figures and gives HTML, or '' where it has nothing to say. Figures of its own that a
# reader may want as numbers it adds to `figures.data`.
Section = Callable[[Reported, Gathered], str]

WHAT_WAS_TRAINED: list[Section] = [training.data, training.columns, training.training, training.sharpness]
RANKS: list[Section] = [ranking.ranking, ranking.order, ranking.suggestions, ranking.scores]
WEIGHTS: list[Section] = [weights.weights, weights.columns, weights.intervals, weights.probabilities]
LINKS: list[Section] = [links.links]
SECTIONS: list[Section] = [*WHAT_WAS_TRAINED, *RANKS, *WEIGHTS, *LINKS]


def html_of(run: Reported, test: Any = None, sections: Sequence[Section] = SECTIONS) -> str:
    """The page: it loads nothing, and every name in it is escaped."""
    figures, title = gather(run, test), title_of(run)
    body = "\n".join([heading(title, 1), *(text for section in sections if (text := section(run, figures)))])
    return page(title, body + download("figures.json", figures.data), WIDE)


def write_report(run: Reported, path: Path, test: Any = None) -> Path:
    """Write the page, whole or not at all; its path.

    >>> import focuse, tempfile
    >>> run = focuse.train([("a", "r", str(i), i) for i in range(20)], epochs=1, dim=4, progress=False)
    >>> write_report(run, Path(tempfile.mkdtemp()) / "page.html").name
    'page.html'
    """
    if path.is_dir():
        raise FocuseError(f"{path}: is a folder; give the page a name (--out page.html)")
    if not path.parent.is_dir():  # before the figures, which may take a while
        raise FocuseError(f"{path}: no folder {path.parent}; choose one that exists")
    text = html_of(run, test)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path
