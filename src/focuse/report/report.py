"""One self-contained HTML page on a run: a list of sections, each of which may have nothing to say."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from html import escape, unescape
from pathlib import Path
from typing import Any

from focuse.errors import FocuseError
from focuse.evaluation.baselines import RELATION_MEAN
from focuse.report import atlas, data, ranking, relations, repeat, training, weights
from focuse.report.gathered import Gathered, Reported, Say, gather, graph_name, silent, title_of
from focuse.report.page import download, heading, isolated, page, paragraph, percent
from focuse.report.style import SCRIPT, STYLE
from focuse.report.weights import best_weights
from focuse.storage.atomic import replace_file

# A section gets the run and its figures and gives HTML, or '' where it has nothing to say. Figures of its own that a
# reader may want as numbers it adds to `figures.data`.
Section = Callable[[Reported, Gathered], str]

WHAT_WAS_TRAINED: list[Section] = [data.data, training.columns, training.training, training.label_exponent]
RANKS: list[Section] = [ranking.ranking, ranking.order, ranking.suggestions, ranking.scores]
WEIGHTS: list[Section] = [weights.weights, weights.columns, weights.intervals, weights.probabilities]
REST: list[Section] = [relations.relations, relations.links, atlas.atlas, repeat.repeat]
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
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


# ---- the head of a report: what matters in one paragraph and a few numbers, and a table of contents ------------------


def head(run: Reported, figures: Gathered) -> str:
    """Title, summary and the figures that somebody asks for first."""
    said = " ".join([*_trained(run), *_ranked(run, figures), *_weight_sentences(run, figures), *_probable(figures)])
    shown = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(beside)}</small></dd></div>"
        for name, value, beside in tiles(run, figures)
    )
    return "".join([
        "<header>", paragraph("focuse report", "over"), heading(title_of(run), 1), paragraph(said, "lead"),
        f'<dl class="tiles">{shown}</dl>' if shown else "", "</header>\n",
    ])  # fmt: skip


def contents(body: str) -> str:
    """Links to every part of the page that can be linked to."""
    found = re.findall(r'<h2 id="([^"]+)">(.*?)</h2>', body)
    items = "".join(f'<li><a href="#{place}">{escape(unescape(text))}</a></li>' for place, text in found)
    return f'<nav aria-label="Contents"><ol>{items}</ol></nav>\n' if items else ""


def _trained(run: Reported) -> list[str]:
    graph, settings = run.graph, run.settings
    source = isolated(graph_name(graph.source) or "a graph")
    kind = "weighted facts" if graph.weighted else "facts without weights"
    counted_relations = f"{len(graph.relations):,} relation{'s' if len(graph.relations) != 1 else ''}"
    return [
        f"The model {settings.model} of dimension {settings.dim} was trained on {source}: {len(graph):,} {kind} about "
        f"{len(graph.entities):,} entities by {counted_relations}."
    ]


def _ranked(run: Reported, figures: Gathered) -> list[str]:
    found = figures.evaluation
    if found is None:
        refused = figures.notes and len(run.splits.test)
        return [
            "It could not be judged by its test; a note says why." if refused else "There is no test to judge it by."
        ]
    lines = [
        f"On {found.all.n:,} facts that it has not seen, the right entity is the first suggestion in "
        f"{percent(found.all.hits[1])} of the questions and among the first ten in {percent(found.all.hits[10])} (MRR "
        f"{found.all.mrr:.3f})."
    ]
    if figures.baselines:
        name, best = max(figures.baselines.items(), key=lambda item: item[1].all.mrr)
        verb = "more" if found.all.mrr > best.all.mrr else "not more"
        lines.append(f"That is {verb} than the best ranking without a model reaches ({name}: {best.all.mrr:.3f}).")
    if run.graph.weighted and math.isfinite(found.delta_mrr):
        way = "before" if found.delta_mrr > 0 else "behind"
        lines.append(
            f"The heaviest tenth stands {way} the lightest: an MRR of {found.top.mrr:.3f} to {found.bottom.mrr:.3f}."
        )
    return lines


def _weight_sentences(run: Reported, figures: Gathered) -> list[str]:
    found = figures.weights
    best = None if found is None or not run.graph.weighted else best_weights(found)
    if found is None or best is None:
        return []
    mean = found.table.rows[RELATION_MEAN]["positives"].errors.mae
    lines = [f"Predicted weights are off by {best[1]:.3g} on average, the relation's mean by {mean:.3g}."]
    if found.intervals is not None:
        held = next(iter(found.intervals.rows.values())).coverage
        lines.append(
            f"Intervals that promise {percent(found.intervals.coverage)} hold {percent(held, 1)} of the weights."
        )
    return lines


def _probable(figures: Gathered) -> list[str]:
    if figures.probabilities is None:
        return []
    last = list(figures.probabilities.rows.values())[-1]
    return [f"Probabilities of links are off by {percent(last.ece, 1)} on average (ECE)."]


def tiles(run: Reported, figures: Gathered) -> list[tuple[str, str, str]]:
    """(name, value, what stands beside it) of the main figures that the run has."""
    found, shown = figures.evaluation, []
    if found is not None:
        best = max((one.all.mrr for one in figures.baselines.values()), default=math.nan)
        beside = f"without a model {best:.3f}" if math.isfinite(best) else ""
        shown += [("MRR", f"{found.all.mrr:.3f}", beside), ("Hits@10", f"{found.all.hits[10]:.3f}", "")]
        if run.graph.weighted and math.isfinite(found.delta_mrr):
            tenths = f"top 10 % {found.top.mrr:.3f}, bottom {found.bottom.mrr:.3f}"
            shown.append(("ΔMRR", f"{found.delta_mrr:.3f}".replace("-", "−"), tenths))
    weighed = figures.weights
    best_one = None if weighed is None or not run.graph.weighted else best_weights(weighed)
    if weighed is not None and best_one is not None:
        mean = weighed.table.rows[RELATION_MEAN]["positives"].errors.mae
        shown.append(("Weights off by", f"{best_one[1]:.3g}", f"relation mean {mean:.3g}"))
        if weighed.intervals is not None:
            held = next(iter(weighed.intervals.rows.values())).coverage
            shown.append(
                (f"{percent(weighed.intervals.coverage)} intervals", percent(held, 1), "of test's weights held")
            )
    if figures.probabilities is not None:
        last = list(figures.probabilities.rows.values())[-1]
        shown.append(("Brier score", f"{last.brier:.3f}", "of probabilities; a coin has 0.25"))
    return shown
