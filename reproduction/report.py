"""The report of a reproduction: report.md, report.json and the figures, from finished cells alone."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from focuse.errors import FocuseError
from focuse.report.charts import chart_style, figure_svg, violins
from focuse.storage.atomic import replace_file
from reproduction.grid import DATA, KINDS, departure_notes, model_title, published_results, reason_for_ours, title
from reproduction.results import BOOTSTRAP_SEED, LEVEL, RESAMPLES, Interval, Result, lacks_inferred_triples
from reproduction.summary import (
    MAIN_METRICS,
    MIN_GAIN_BASE,
    Entry,
    Groups,
    ablations,
    decay_curves,
    group_results,
    table_rows,
    verdicts,
    weight_rows,
)

# Colors of Okabe and Ito, with markers and dashes that distinguish the lines without color.
LINES = {"transe": ("#0072b2", "o", "-"), "distmult": ("#d55e00", "s", "--"), "complex": ("#009e73", "^", "-.")}


def write_report(results: Sequence[Result], folder: Path, about: Mapping[str, Any]) -> None:
    """Write report.md, report.json, figure3.svg and figure4-DATA.svg; `about` is shown at the top of the report.

    Each file is replaced as a whole; figures of earlier reports that this one does not have are deleted.
    """
    results = sorted(results, key=lambda result: result.cell.order)
    form, groups = group_results(results)
    data = [name for name in DATA if any(key[0] == name for key in groups)]
    rows = [row for name in data for row in table_rows(groups, name)]
    found, curves = verdicts(rows, comparable=form != "quick"), decay_curves(results)
    seconds = sum(float(result.info["seconds"]) for result in results)
    devices = {key: ", ".join(sorted({str(one.info[key]) for one in results})) for key in ("device", "torch")}
    about = {**about, **devices, "cells": len(results), "hours": round(seconds / 3600, 3)}
    pictures = {"figure3.svg": draw_decay_curves(curves)} if curves else {}
    drawn = {name: picture for name in data if (picture := draw_violins(groups, name))}
    pictures |= {f"figure4-{name}.svg": picture for name, picture in drawn.items()}
    tests = {key[0]: group[0].test for key, group in groups.items()}
    counts = {name: sum(name in result.info["departures"] for result in results) for name in departure_notes()}
    text = _template().render(
        results=results, form=form, about=about, data_sets=data, rows=rows, verdicts=found, curves=curves,
        missing=[title(name) for name in DATA if name not in data],
        lacking=[result.cell.title for result in results if lacks_inferred_triples(result)],
        weights={name: lines for name in data if (lines := weight_rows(groups, name))},
        decays=sorted({decay for points in curves.values() for decay in points}),
        violins=list(drawn),
        clean_rows=[row for name in data for row in table_rows(groups, name, clean=True)],
        clean_sizes={name: (int(tests[name].clean.sum()), len(tests[name])) for name in data},
        ablations=ablations(results, form),
        departures={name: (departure_notes()[name], count) for name, count in counts.items() if count},
        reasons={
            result.cell.title: reason
            for result in results
            if result.cell.form == "tables" and not result.cell.overrides and (reason := reason_for_ours(result.cell))
        },
    )  # fmt: skip
    content = {
        "about": about,
        "form": form,
        "bootstrap": {"resamples": RESAMPLES, "level": LEVEL, "seed": BOOTSTRAP_SEED},
        "verdicts": [{**one, "interval": one["interval"] and asdict(one["interval"])} for one in found],
        "rows": [asdict(row) for row in rows],
        "figure3": {model: {at: asdict(one) for at, one in points.items()} for model, points in curves.items()},
        "cells": [result.to_dict() for result in results],
    }
    texts = {**pictures, "report.md": re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"}
    texts["report.json"] = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content_text in texts.items():
            with replace_file(folder / name) as temporary:
                temporary.write_text(content_text, encoding="utf-8")
        for path in [folder / "figure3.svg", *folder.glob("figure4-*.svg")]:
            if path.name not in texts:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise FocuseError(f"{folder}: {error.strerror or error}; choose a folder that can be written") from None


def _template() -> Any:
    """Return the template of report.md with its filters and constants."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(undefined=StrictUndefined, autoescape=False)  # the report is Markdown, not HTML
    environment.filters |= {
        "text": escape_markdown,
        "decimal": decimal,
        "signed": lambda value, digits=3: decimal(value, digits, sign=True),
        "mean": lambda one, digits=3: (
            decimal(one.mean, digits) + ("" if one.spread is None else f" ± {decimal(one.spread, digits)}")
        ),
        "interval": lambda one: with_interval(one.mean, one.interval),
        "change": lambda one: with_interval(one["change"], one["interval"]),
    }
    environment.tests["endswith"] = str.endswith
    environment.globals |= {
        "title": title,
        "model_title": model_title,
        "published": published,
        "in_paper": lambda data: bool(published_results(data, "complex", "plain")),
        "main_metrics": MAIN_METRICS,
        "level": LEVEL,
        "resamples": RESAMPLES,
    }
    return environment.from_string((files("reproduction") / "report.md.j2").read_text(encoding="utf-8"))


def escape_markdown(value: object) -> str:
    """Return a text as one line without HTML tags and column separators; asterisks (O*NET) are no emphasis.

    >>> escape_markdown("a|b <script>")
    'a\\\\|b \\\\<script>'
    """
    text = re.sub(r"<(?=[A-Za-z/!?])", r"\\<", " ".join(str(value).split())).replace("|", "\\|")
    return text.replace("*", "\\*") if text.count("*") > 1 else text


def decimal(value: float | None, digits: int = 3, sign: bool = False) -> str:
    """Return a number without a leading zero, and – for None or NaN.

    >>> decimal(0.97), decimal(-0.0021), decimal(0.01, sign=True), decimal(None), decimal(1)
    ('.970', '−.002', '+.010', '–', '1.000')
    """
    if value is None or math.isnan(value):
        return "–"
    text = f"{abs(value):,.{digits}f}"
    mark = "" if not text.strip("0.,") else "−" if value < 0 else "+" if sign else ""
    return mark + (text[1:] if text.startswith("0.") else text)


def with_interval(value: float | None, interval: Interval | None) -> str:
    """Return a difference with its interval, like '+.307 [+.298, +.316]'."""
    bounds = "" if interval is None else f" [{decimal(interval.low, sign=True)}, {decimal(interval.high, sign=True)}]"
    return decimal(value, sign=True) + bounds


def published(metric: str, value: float | None) -> str:
    """Return a number as the paper has it: with two digits, ranks and gains without any, and '<.01'."""
    return "<.01" if value == MIN_GAIN_BASE else decimal(value, 0 if metric in ("top_mr", "gain") else 2)


# ---- figures --------------------------------------------------------------------------------------------------------


def draw_decay_curves(curves: Mapping[str, Mapping[int, Entry]]) -> str:
    """Draw figure 3 as SVG: MRR of the top 10 % against λ; a band is one standard deviation over the seeds."""
    from matplotlib.figure import Figure

    with chart_style():
        figure = Figure(figsize=(6.4, 4), layout="constrained")
        axis = figure.subplots()
        for model, points in curves.items():
            color, marker, dashes = LINES[model]
            means = np.array([one.mean for one in points.values()], dtype=np.float64)
            spread = np.array([one.spread or 0.0 for one in points.values()])
            label = model_title(model, "focuse")
            axis.plot(list(points), means, color=color, marker=marker, linestyle=dashes, label=label)
            if spread.any():
                axis.fill_between(list(points), means - spread, means + spread, color=color, alpha=0.15, linewidth=0)
        axis.set(xlabel="decay λ in epochs", ylabel="MRR of the top 10 %", title=title("nl27k"))
        axis.legend(frameon=False)
    return figure_svg(figure)


def draw_violins(groups: Groups, data: str) -> str:
    """Draw figure 4 of a data set as SVG: ComplEx, plain and with FocusE, of the first seed that both have."""
    tests = {
        kind: {result.cell.seed: result.test for result in groups[data, "complex", kind]}
        for kind in KINDS
        if (data, "complex", kind) in groups
    }
    if not tests:
        return ""
    shared = set.intersection(*map(set, tests.values()))
    panels = {model_title("complex", kind): found[min(shared or found)] for kind, found in tests.items()}
    return violins(panels, title(data))
