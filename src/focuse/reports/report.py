"""One self-contained HTML page on a run: a list of sections, each of which may have nothing to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from focuse.errors import FocuseError
from focuse.graph.writing import replacing
from focuse.reports import atlas, data, links, ranking, relations, repeat, training, weights
from focuse.reports.gathered import Gathered, Reported, Say, gather, silent, title_of
from focuse.reports.head import contents, head
from focuse.reports.page import download, page
from focuse.reports.style import SCRIPT, STYLE

# A section gets the run and its figures and gives HTML, or '' where it has nothing to say. Figures of its own that a
# reader may want as numbers it adds to `figures.data`.
Section = Callable[[Reported, Gathered], str]

WHAT_WAS_TRAINED: list[Section] = [data.data, training.columns, training.training, training.sharpness]
RANKS: list[Section] = [ranking.ranking, ranking.order, ranking.suggestions, ranking.scores]
WEIGHTS: list[Section] = [weights.weights, weights.columns, weights.intervals, weights.probabilities]
REST: list[Section] = [relations.relations, links.links, atlas.atlas, repeat.repeat]
SUFFIXES = (".html", ".htm")
SECTIONS: list[Section] = [*WHAT_WAS_TRAINED, *RANKS, *WEIGHTS, *REST]


def html_of(
    run: Reported, test: Any = None, sections: Sequence[Section] = SECTIONS, map: str = "tsne", say: Say = silent
) -> str:
    """The page: it loads nothing, and every name in it is escaped."""
    atlas.check_method(map)
    figures = gather(run, test, say, map)
    body = "\n".join(f"<section>{text}</section>" for section in sections if (text := section(run, figures)))
    inside = f"{head(run, figures)}{contents(body)}<main>\n{body}\n</main>\n"
    return page(title_of(run), f"{inside}<footer>{download('figures.json', figures.data)}</footer>", STYLE, "", SCRIPT)


def write_report(run: Reported, path: Path, test: Any = None, map: str = "tsne", say: Say = silent) -> Path:
    """Write the page, whole or not at all; its path.

    >>> import focuse, tempfile
    >>> run = focuse.train([("a", "r", str(i), i) for i in range(20)], epochs=1, dim=4, progress=False)
    >>> write_report(run, Path(tempfile.mkdtemp()) / "page.html").name
    'page.html'
    """
    if path.is_dir():
        raise FocuseError(f"{path}: is a folder; give the page a name (--out page.html)")
    if path.suffix.lower() not in SUFFIXES:
        raise FocuseError(f"{path}: the page is HTML; give it a name that ends in .html")
    if not path.parent.is_dir():  # before the figures, which may take a while
        raise FocuseError(f"{path}: no folder {path.parent}; choose one that exists")
    text = html_of(run, test, map=map, say=say)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path
