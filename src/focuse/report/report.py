"""One self-contained HTML report on a run. The templates hold the words; this module fills in tables and charts."""

from __future__ import annotations

import math
import platform
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from markupsafe import Markup

from focuse import __version__
from focuse.data.graph import Graph
from focuse.errors import counted
from focuse.evaluation.baselines import RELATION_MEAN
from focuse.evaluation.metrics import format_number
from focuse.evaluation.weight_evaluation import PROTOCOLS, WeightEvaluation
from focuse.report import charts
from focuse.report.collect import LINKS_PER_HEAD, MIN_TEST_TRIPLES, Findings, Progress, collect
from focuse.report.page import Table, check_page_path, ranking_table, render, render_page, write_page
from focuse.storage.metadata import read_toml, to_toml
from focuse.training.validation import best_epoch_row

if TYPE_CHECKING:
    from focuse.api import Run

# A section is left out if its template gives nothing.
SECTIONS = {
    "Data": "data.html",
    "Training": "training.html",
    "Link prediction": "ranking.html",
    "Ranking by weight": "concordance.html",
    "Weight prediction": "weights.html",
    "Link probabilities": "probabilities.html",
    "Results per relation": "relations.html",
    "Top predicted links": "links.html",
    "Reproduce this run": "reproduce.html",
}
HISTORY_CHARTS = {  # column of the history -> title and color
    "loss": ("Loss", "c2"), "valid_mrr": ("Validation MRR", "c1"), "valid_mse": ("Validation MSE", "c1"),
    "beta": ("β", "c3"),
}  # fmt: skip
CHECKS = {
    "Rows that repeat a triple": "repeated_rows",
    "Repeated triples with different weights": "repeated_with_other_weight",
    "Rows with an inverse edge": "rows_with_inverse",
    "Rows with an inverse edge of the same relation": "rows_with_same_relation_inverse",
    "Self-loops": "self_loops",
}
LEAKAGE_ROWS = {
    "triples": "rows",
    "same triple in train": "same_triple",
    "same triple with the same weight": "same_triple_and_weight",
    "inverse edge, any relation": "inverse_edge",
    "inverse edge, same relation": "inverse_of_same_relation",
    "same pair, other relation": "same_pair_other_relation",
    "neither the same triple nor an inverse edge": "neither_duplicate_nor_inverse",
}
RELATION_COLUMNS = {
    "train": "train",
    "test": "test",
    "mean weight": "weight_mean",
    "weights": "histogram",
    "tail MRR": "tail_mrr",
    "head MRR": "head_mrr",
    "Hits@10": "hits_at_10",
    "weight error": "weight_mae",
    "baseline error": "baseline_mae",
    "coverage": "coverage",
    "Brier": "brier",
}
LINK_NUMBERS = {
    "score": "score",
    "probability": "probability",
    "weight": "weight_mean",
    "low": "weight_low",
    "high": "weight_high",
}
SHOWN_RELATIONS = 25  # the others are folded
HISTOGRAM_BINS = 40
SETTINGS_FILE = "settings.toml"


def write_report(run: Run, path: Path, test: Any, progress: Progress) -> Path:
    """Write the report as a whole or not at all, and return its path; `progress` gets a line per step."""
    check_page_path(path)
    return write_page(render_report(run, test, progress), path)


def render_report(run: Run, test: Any = None, progress: Progress = lambda text: None) -> str:
    """Return the report as HTML; paths and options are checked before anything is computed."""
    charts.require_matplotlib()
    return render_findings(collect(run, test, progress))


def render_findings(found: Findings) -> str:
    """Return the page: a summary, links to the sections, the sections, and all numbers as JSON to save."""
    run, reproduction = found.run, reproduce(found.run)
    context = {
        "found": found, "run": run, "graph": run.graph, "settings": run.settings, "counted": counted,
        "best_weights": best_weights(found), **data_tables(found), **training_tables(found), **ranking_tables(found),
        **weight_tables(found), **link_tables(found), "reproduction": reproduction,
        "version_table": Table([], list(reproduction["versions"].items()), "Versions", (0, 1)),
    }  # fmt: skip
    rendered = {title: render(template, **context).strip() for title, template in SECTIONS.items()}
    return render_page(
        "report.html",
        script=True,
        title=f"{run.settings.model} on {Path(run.graph.source).name or 'a graph'}",
        header=render("summary.html", **context),
        sections={name: text for name, text in rendered.items() if text},
        data={**found.to_dict(), "reproduction": reproduction},
    )


def best_weights(found: Findings) -> dict[str, Any] | None:
    """Return the best predictor of weights of the run, its mean absolute error and that of the relation mean."""
    if found.weights is None or not found.run.graph.weighted:
        return None
    errors = {name: metrics.errors.mae for name, metrics in found.weights.metrics_of("positives").items()}
    baselines = {name: errors.pop(name) for name in found.weights.baselines if name in errors}
    own = [(mae, name) for name, mae in errors.items() if math.isfinite(mae)]
    if not own:
        return None
    mae, name = min(own)
    return {"name": name, "mae": mae, "mean": baselines[RELATION_MEAN], "baselines": baselines}


# ---- data and training -----------------------------------------------------------------------------------------------


def data_tables(found: Findings) -> dict[str, Any]:
    """Return the tables and the chart of the section on the data."""
    graph, splits = found.run.graph, found.run.splits
    test = splits.test if found.test is None else found.test.graph
    parts: dict[str, Graph | None] = {"train": graph, "validation": splits.valid, "test": test}
    parts |= {"inferred": splits.inferred, "known negatives": splits.known_negatives}
    rows = []
    for name, part in parts.items():
        if part is not None and len(part):
            # Each weight is divided before they are added, because a sum may overflow.
            values = part.weight.min(), (part.weight / len(part)).sum(), part.weight.max()
            rows.append([name, f"{len(part):,}", *(f"{value:.4g}" for value in values)])
    chart, half = Markup(""), graph.weight / 2  # the difference of weights near ±1e308 would overflow
    if graph.weighted and 0 < np.ptp(half) < 1e300:
        counts = np.histogram(half, HISTOGRAM_BINS)[0].tolist()
        chart = charts.histogram("Weights of train", counts, 2 * half.min(), 2 * half.max(), "weight")
    checks = [[text, f"{getattr(found.statistics, key):,}"] for text, key in CHECKS.items()]
    leakage = found.statistics.leakage
    leaked = [[text, *(f"{getattr(part, key):,}" for part in leakage.values())] for text, key in LEAKAGE_ROWS.items()]
    leaked.append(["left out: names that train lacks", *(f"{part.unseen.rows:,}" for part in leakage.values())])
    return {
        "split_table": Table(["part", "triples", "lowest weight", "mean weight", "highest weight"], rows, "Splits"),
        "weight_chart": chart,
        "check_table": Table([], checks, "Checks of the training graph"),
        "leakage_table": Table(["", *leakage], leaked, "Held-out triples that can be looked up in train"),
    }


def training_tables(found: Findings) -> dict[str, Any]:
    """Return the charts and the table of the section on training."""
    run, history = found.run, found.run.history
    history_charts = []
    for key, (title, color) in HISTORY_CHARTS.items():
        points = [(row["epoch"], row[key]) for row in history if row.get(key) is not None]
        history_charts.append(charts.line_chart(title, points, "epoch", charts.COLORS[color], dots="valid" in key))
    trials = [(f"{trial.label_exponent:g}", trial) for trial in run.label_exponent_trials]
    columns = {"top 10 % MRR": "top_mrr", "ΔMRR": "delta_mrr"}
    table = metrics_table("Short trainings that selected the label exponent", columns, trials, "label exponent")
    return {
        "training_charts": [chart for chart in history_charts if chart],
        "training_seconds": sum(row.get("seconds", 0.0) for row in history),
        "best_epoch": (best_epoch_row(history) or {}).get("epoch"),
        "beta_falls": any(row.get("beta") is not None for row in history),
        "trial_table": table if trials else None,
    }


# ---- evaluation ------------------------------------------------------------------------------------------------------


def metrics_table(
    caption: str, columns: Mapping[str, str], rows: Iterable[tuple[str, Any]], first: str = "", grouped: bool = False
) -> Table:
    """Return a table of metrics: `columns` are attributes by heading, `rows` are named objects that have them."""
    cells = [[name, *(format_value(getattr(row, key)) for key in columns.values())] for name, row in rows]
    return Table([first, *columns], cells, caption, grouped=grouped)


def format_value(value: Any) -> str:
    """Return a count with thousands separators, a number as `format_number` does, and a text unchanged."""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else format_number(value)


def ranking_tables(found: Findings) -> dict[str, Any]:
    """Return the tables and charts of the sections on link prediction and ranking by weight."""
    evaluation, name = found.evaluation, found.run.settings.model
    if evaluation is None:
        return {}
    shown = {name: evaluation, **found.baselines}
    context: dict[str, Any] = {"ranks": ranking_table(shown)}
    if evaluation.top_share.any():
        description = f"Scores of the top and the bottom decile; their medians differ by {evaluation.delta_median:.3g}"
        context["violins"] = charts.inline_svg(charts.violins({name: evaluation}), "violins", description)
    if (order := evaluation.order) is not None and order.every.pairs:  # there are none if all weights are equal
        pairs = {"within a relation": order.relation, "within a query": order.query, "in the whole graph": order.every}
        columns = {"concordance": "share", "number": "pairs"}
        context["concordance"] = metrics_table("Concordance of scores and weights", columns, pairs.items(), "pairs")
    if evaluation.suggestions is not None and evaluation.suggestions.queries:
        columns = {"n": "n", "weight / n": "weight", "normalized": "possible", "precision": "precision"}
        columns |= {"mean weight of hits": "mean_weight"}
        rows = [(model, one) for model, other in shown.items() if other.suggestions for one in other.suggestions.first]
        context["precision"] = metrics_table("Weighted precision@n", columns, rows, grouped=True)
    return context


def weight_tables(found: Findings) -> dict[str, Any]:
    """Return the tables and charts of the sections on weights and probabilities."""
    context: dict[str, Any] = {}
    if (weights := found.weights) is not None and found.run.graph.weighted:
        context["weights"] = [error_table(weights, protocol) for protocol in weights.protocols]
        gains = {"linear": "linear", "exponential": "exponential"}
        caption = "nDCG of known tails among all entities, by gain"
        context["gains"] = metrics_table(caption, gains, weights.ndcg.items())
        if weights.intervals is not None:
            columns = {"coverage": "coverage", "mean width": "width", "median width": "median_width"}
            caption = "Prediction intervals on the test triples"
            context["intervals"] = metrics_table(caption, columns, weights.intervals.rows.items())
            context["interval_chart"] = charts.reliability_chart(
                "Coverage", {"": found.coverage}, "target", "measured on test"
            )
    if found.probabilities is not None:
        methods = found.probabilities.rows
        context["reliability"] = metrics_table(
            "Errors of the probability", {"Brier": "brier", "ECE": "ece"}, methods.items()
        )
        bins = {name: row.reliability.bins for name, row in methods.items()}
        lines = {name: [(one.predicted, one.truth) for one in row if one.count] for name, row in bins.items()}
        counts = [one.count for one in list(bins.values())[-1]]
        context["reliability_charts"] = [
            charts.reliability_chart("Reliability", lines, "predicted probability", "fraction of positives"),
            charts.histogram("Triples by probability", counts, 0.0, 1.0, "predicted probability", 3.3),
        ]
    return context


def error_table(weights: WeightEvaluation, protocol: str) -> Table:
    """Return the errors of all predictors, baselines last."""
    cells = weights.cells(protocol)
    caption = PROTOCOLS[protocol][:1].upper() + PROTOCOLS[protocol][1:]
    baseline = weights.rows[weights.baselines[0]]
    if (part := baseline[protocol].at_threshold) is not None:
        total = baseline["positives"].errors.n
        caption += f"; {part.strong:,} of {total:,} triples are strong (weight above {weights.threshold:g})"
    headings = list(next(iter(cells.values())))
    rows = [[name, *(values.get(one, "–") for one in headings)] for name, values in cells.items()]
    return Table(["", *headings], rows, caption)


def link_tables(found: Findings) -> dict[str, Any]:
    """Return the tables of the sections on relations and predicted links."""
    rows = [{**row, "histogram": charts.sparkline(row["histogram"])} for row in found.relations]
    cells = [[format_value(row.get(key)) for key in RELATION_COLUMNS.values()] for row in rows]
    left_out = set() if found.run.graph.weighted else {"mean weight", "weights"}
    shown = [
        place
        for place, title in enumerate(RELATION_COLUMNS)
        if title not in left_out and any(line[place] != "–" for line in cells)
    ]
    headings = ["relation", *(list(RELATION_COLUMNS)[place] for place in shown)]
    cells = [[row["name"], *(line[place] for place in shown)] for row, line in zip(rows, cells, strict=True)]
    tables = [
        Table(headings, part, caption, sortable=len(part) > 1)
        for part, caption in ((cells[:SHOWN_RELATIONS], "Relations"), (cells[SHOWN_RELATIONS:], "Other relations"))
    ]
    kept = [name for name, key in LINK_NUMBERS.items() if any(getattr(one, key) is not None for one in found.links)]
    links = [
        [one.head, one.relation, one.tail, *(format_number(getattr(one, LINK_NUMBERS[name])) for name in kept)]
        for one in found.links
    ]
    return {
        "relation_tables": tables,
        "min_test_triples": MIN_TEST_TRIPLES,
        "links_per_head": LINKS_PER_HEAD,
        "link_table": Table(["head", "relation", "tail", *kept], links, "New links", text_columns=range(3)),
    }


# ---- reproduction ----------------------------------------------------------------------------------------------------


def reproduce(run: Run) -> dict[str, Any]:
    """Return the command, the settings and the versions that reproduce a training."""
    stored: dict[str, Any] = {} if run.folder is None else read_toml(run.folder / "run.toml")
    return {
        "command": train_command(run),
        "settings_file": SETTINGS_FILE,
        "settings": to_toml(run.settings.to_kwargs()),
        "versions": {
            "focuse": str(stored.get("focuse", __version__)),
            "PyTorch": str(stored.get("torch", torch.__version__)),
            "Python (this report)": platform.python_version(),
            "machine (this report)": f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} thread(s)",
        },
    }


def train_command(run: Run) -> str:
    """Return the `focuse train` command of a run, as far as the run knows its files and fractions."""
    splits, settings = run.splits, run.settings
    words = ["focuse", "train", run.graph.source or "GRAPH"]
    parts = {"valid": splits.valid, "test": splits.test}
    given = {name: len(part) > 0 and part.source != run.graph.source for name, part in parts.items()}
    total = len(run.graph) + sum(len(part) for name, part in parts.items() if not given[name])
    for name, part in parts.items():
        if given[name]:
            words += [f"--{name}", part.source or "GRAPH"]
        elif not given["valid"]:  # given validation triples leave nothing to hold out
            words += [f"--{name}-fraction", held_out_fraction(len(part), total)]
    drawn_from_weights = "known-negative" in (settings.negative_weights, settings.zero_weights)
    if splits.known_negatives is not None and not drawn_from_weights:
        words += ["--known-negatives", splits.known_negatives.source or "FILE"]
    words += ["--node-attributes", splits.attributes.source] if splits.attributes is not None else []
    return shlex.join([*words, "--config", SETTINGS_FILE, "--out", "again"])


def held_out_fraction(size: int, total: int) -> str:
    """Return the shortest fraction that holds out `size` of `total` rows.

    >>> held_out_fraction(60, 300), held_out_fraction(0, 300)
    ('0.2', '0')
    """
    texts = (f"{(size + 0.5) / total:.{digits}g}" for digits in range(1, 18))
    return next(text for text in texts if int(float(text) * total) == size) if size else "0"
