"""One self-contained HTML report on a run. The templates hold the words; this module fills in tables and charts."""

from __future__ import annotations

import math
import platform
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from focuse import __version__
from focuse.data.graph import Graph
from focuse.data.splits import MAX_HELD_OUT
from focuse.errors import counted
from focuse.evaluation.baselines import RELATION_MEAN
from focuse.evaluation.metrics import format_number
from focuse.evaluation.weight_evaluation import PROTOCOLS
from focuse.report import charts
from focuse.report.collect import LINKS_PER_HEAD, MIN_TEST_TRIPLES, Findings, Progress, collect
from focuse.report.page import Table, check_page_path, percent, ranking_table, render, render_page, write_page
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
    "tail MRR": "tail_mrr", "head MRR": "head_mrr", "Hits@10": "hits_at_10", "weight error": "weight_mae",
    "baseline error": "baseline_mae", "coverage": "coverage", "Brier": "brier",
}  # fmt: skip
SHOWN_RELATIONS = 25  # the others are folded
FEW_TRIPLES = 10  # of a relation
HISTOGRAM_BINS = 40
SETTINGS_FILE = "settings.toml"
DEFAULT_FRACTION = 0.1  # of the graph, held out for validation and for test


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
        "version_table": Table([], list(reproduction["versions"].items()), "Versions", 2),
    }  # fmt: skip
    rendered = {title: render(template, **context).strip() for title, template in SECTIONS.items()}
    return render_page(
        "report.html",
        script=True,
        title=f"{run.settings.model} on {Path(run.graph.source).name or 'a graph'}",
        summary=render("summary.html", **context),
        tiles=tiles(found),
        sections={name: text for name, text in rendered.items() if text},
        data={**found.to_dict(), "reproduction": reproduction},
    )


def best_weights(found: Findings) -> dict[str, Any] | None:
    """Return the best predictor of weights of the run, its mean absolute error and that of the relation mean."""
    if found.weights is None or not found.run.graph.weighted:
        return None
    table = found.weights
    errors = {name: row["positives"].errors.mae for name, row in table.rows.items() if "positives" in row}
    own = {name: mae for name, mae in errors.items() if name not in table.baselines and math.isfinite(mae)}
    if not own:
        return None
    name = min(own, key=lambda name: own[name])
    baselines = {baseline: errors[baseline] for baseline in table.baselines if baseline in errors}
    return {"name": name, "mae": own[name], "mean": errors[RELATION_MEAN], "baselines": baselines}


def tiles(found: Findings) -> list[tuple[str, str, str]]:
    """Return (name, value, comparison) of the main metrics that the run has."""
    shown = []
    if (evaluation := found.evaluation) is not None:
        best = max((one.all.mrr for one in found.baselines.values()), default=math.nan)
        shown.append(("MRR", f"{evaluation.all.mrr:.3f}", f"best baseline {best:.3f}" if math.isfinite(best) else ""))
        shown.append(("Hits@10", f"{evaluation.all.hits[10]:.3f}", ""))
        if found.run.graph.weighted and math.isfinite(evaluation.delta_mrr):
            deciles = f"top 10 % {evaluation.top.mrr:.3f}, bottom {evaluation.bottom.mrr:.3f}"
            shown.append(("ΔMRR", f"{evaluation.delta_mrr:.3f}".replace("-", "−"), deciles))
    if (best_one := best_weights(found)) is not None and found.weights is not None:
        shown.append(("Mean weight error", f"{best_one['mae']:.3g}", f"relation mean {best_one['mean']:.3g}"))
        if (intervals := found.weights.intervals) is not None:
            measured = next(iter(intervals.rows.values())).coverage
            shown.append(("Interval coverage", percent(measured, 1), f"target {percent(intervals.coverage)}"))
    if found.probabilities is not None:
        last = list(found.probabilities.rows.values())[-1]
        shown.append(("Brier score", f"{last.brier:.3f}", "of probabilities; 0.25 is chance"))
    return shown


# ---- data and training -----------------------------------------------------------------------------------------------


def data_tables(found: Findings) -> dict[str, Any]:
    """Return the tables and the chart of the section on the data."""
    graph, splits = found.run.graph, found.run.splits
    parts = {
        "train": graph,
        "validation": splits.valid,
        "test": splits.test if found.test is None else found.test.graph,
    }
    parts |= {"inferred": splits.inferred or (), "known negatives": splits.known_negatives or ()}  # type: ignore[dict-item]
    rows = [
        [name, f"{len(part):,}", *(f"{value:.4g}" for value in _weight_range(part))]
        for name, part in parts.items()
        if len(part)
    ]
    half, chart = graph.weight / 2, ""  # halves, because the range of numbers near ±1e308 would overflow
    if graph.weighted and 0 < np.ptp(half) < 1e300:
        counts = np.histogram(half, HISTOGRAM_BINS)[0].tolist()
        chart = charts.histogram("Weights of train", counts, 2 * half.min(), 2 * half.max(), "weight")
    return {
        "split_table": Table(["part", "triples", "lowest weight", "mean weight", "highest weight"], rows, "Splits"),
        "weight_chart": chart,
        "check_table": check_table(found),
        "leakage_table": leakage_table(found),
        "column_table": column_table(found.run),
    }


def _weight_range(graph: Graph) -> tuple[float, float, float]:
    """Return the lowest, the mean and the highest weight; each is divided before the sum, which may overflow."""
    weight = graph.weight
    return float(weight.min()), float((weight / len(weight)).sum()), float(weight.max())


def check_table(found: Findings) -> Table:
    """Return what should be known about a graph before its metrics are interpreted."""
    statistics, graph = found.statistics, found.run.graph

    def part(number: int, total: int) -> str:
        return f"{number:,} of {total:,} ({percent(number / max(total, 1), 1)})"

    degree = np.bincount(np.concatenate([graph.head, graph.tail]), minlength=statistics.entities)
    relations = statistics.per_relation
    few = sum(one.edges < FEW_TRIPLES for one in relations)
    equal = sum(one.weight_min == one.weight_max for one in relations)
    rows = {
        "Rows that repeat a triple": part(statistics.repeated_rows, statistics.edges),
        "Repeated triples with different weights": f"{statistics.repeated_with_other_weight:,}",
        "Rows with an inverse edge": part(statistics.rows_with_inverse, statistics.edges),
        "Rows with an inverse edge of the same relation": f"{statistics.rows_with_same_relation_inverse:,}",
        "Self-loops": f"{statistics.self_loops:,}",
        "Relations whose weights are all equal": part(equal, len(relations)),
        f"Relations with fewer than {FEW_TRIPLES} triples": part(few, len(relations)),
        "Triples of the most frequent relation": percent(relations[0].edges / statistics.edges, 1),
        "Triples per entity": f"median {np.median(degree):g}, at most {degree.max():,}",
        "Entities with a single triple": part(int((degree == 1).sum()), statistics.entities),
    }
    return Table([], list(rows.items()), "Checks of the training graph")


def leakage_table(found: Findings) -> Table | None:
    """Return how many held-out triples can be looked up in train."""
    leakage = found.statistics.leakage
    if not leakage:
        return None
    rows = [[text, *(f"{getattr(part, key):,}" for part in leakage.values())] for text, key in LEAKAGE_ROWS.items()]
    rows.append(["left out: names that train lacks", *(f"{part.unseen.rows:,}" for part in leakage.values())])
    return Table(["", *leakage], rows, "Held-out triples that can be looked up in train")


def column_table(run: Run) -> Table | None:
    """Return the importance of each weight column, if there are several."""
    merger = run.splits.merger
    if merger is None:
        return None
    values = None if run.graph.columns is None else run.graph.columns.values_of(merger.names)
    rows = []
    for place, name in enumerate(merger.names):
        missing = "–" if values is None else percent(float(np.isnan(values[:, place]).mean()), 1)
        explained = "–" if np.isnan(merger.explained[place]) else percent(merger.explained[place])
        direction = "lower is better" if name in merger.lower_is_better else "higher is better"
        rows.append([name, f"{merger.importance[place]:.2f}", explained, missing, direction])
    headings = ["column", "importance", "variance explained by the graph", "missing in train", "direction"]
    return Table(headings, rows, "Importance of each column")


def training_tables(found: Findings) -> dict[str, Any]:
    """Return the charts and the table of the section on training."""
    run, history = found.run, found.run.history
    history_charts = []
    for key, (title, color) in HISTORY_CHARTS.items():
        points = [(row["epoch"], row[key]) for row in history if row.get(key) is not None]
        history_charts.append(charts.line_chart(title, points, "epoch", charts.COLORS[color], dots="valid" in key))
    trials = [
        [f"{trial.label_exponent:g}", f"{trial.top_mrr:.3f}", f"{trial.delta_mrr:.3f}"]
        for trial in run.label_exponent_trials
    ]
    headings = ["label exponent", "top 10 % MRR", "ΔMRR"]
    return {
        "training_charts": [chart for chart in history_charts if chart],
        "training_seconds": sum(row.get("seconds", 0.0) for row in history),
        "best_epoch": (best_epoch_row(history) or {}).get("epoch"),
        "beta_falls": any(row.get("beta") is not None for row in history),
        "trial_table": Table(headings, trials, "Short trainings that selected the label exponent") if trials else None,
    }


# ---- evaluation ------------------------------------------------------------------------------------------------------


def ranking_tables(found: Findings) -> dict[str, Any]:
    """Return the tables and charts of the sections on link prediction and ranking by weight."""
    evaluation, name = found.evaluation, found.run.settings.model
    if evaluation is None:
        return {"ranks": None, "concordance": None, "precision": None}
    shown = {name: evaluation, **found.baselines}
    context: dict[str, Any] = {"ranks": ranking_table(shown), "violins": "", "concordance": None, "precision": None}
    if evaluation.top_share.any():
        description = f"Scores of the top and the bottom decile; their medians differ by {evaluation.delta_median:.3g}"
        context["violins"] = charts.inline_svg(charts.violins({name: evaluation}), "violins", description)
    order, found_precision = evaluation.order, evaluation.suggestions
    if order is not None and order.every.pairs:  # there are none if all weights are equal
        pairs = {"within a relation": order.relation, "within a query": order.query, "in the whole graph": order.every}
        rows = [[pair, format_number(one.share), f"{one.pairs:,}"] for pair, one in pairs.items()]
        context["concordance"] = Table(["pairs", "concordance", "number"], rows, "Concordance of scores and weights")
    if found_precision is not None and found_precision.queries:
        rows = [
            [model, str(one.n), *map(format_number, (one.weight, one.possible, one.precision, one.mean_weight))]
            for model, other in shown.items()
            if other.suggestions is not None
            for one in other.suggestions.first
        ]
        headings = ["", "n", "weight / n", "normalized", "precision", "mean weight of hits"]
        context["precision"] = Table(headings, rows, "Weighted precision@n", grouped=True)
    return context


def weight_tables(found: Findings) -> dict[str, Any]:
    """Return the tables and charts of the sections on weights and probabilities."""
    context: dict[str, Any] = {
        "weights": [], "gains": None, "columns": {}, "intervals": None, "interval_chart": "", "reliability": None,
    }  # fmt: skip
    if found.weights is not None and found.run.graph.weighted:
        context["weights"] = [_weight_error_table(found.weights, one) for one in found.weights.protocols]
        ndcg = found.weights.ndcg.items()
        rows = [[name, *map(format_number, (one.linear, one.exponential))] for name, one in ndcg]
        context["gains"] = Table(["", "linear", "exponential"], rows, "nDCG of known tails among all entities, by gain")
        if found.weights.intervals is not None:
            rows = [
                [name, format_number(row.coverage), f"{row.width:.4g}", f"{row.median_width:.4g}"]
                for name, row in found.weights.intervals.rows.items()
            ]
            headings = ["", "coverage", "mean width", "median width"]
            context["intervals"] = Table(headings, rows, "Prediction intervals on the test triples")
            context["interval_chart"] = charts.reliability_chart(
                "Coverage", {"": found.coverage}, "target", "measured on test"
            )
    context["columns"] = {
        name: _weight_error_table(one, "positives", f"Errors of {name}") for name, one in found.columns.items()
    }
    if found.probabilities is not None:
        rows = [[name, *map(format_number, (row.brier, row.ece))] for name, row in found.probabilities.rows.items()]
        context["reliability"] = Table(["", "Brier", "ECE"], rows, "Errors of the probability")
        bins = {name: row.reliability.bins for name, row in found.probabilities.rows.items()}
        lines = {name: [(one.predicted, one.truth) for one in row if one.count] for name, row in bins.items()}
        counts = [one.count for one in list(bins.values())[-1]]
        context["reliability_charts"] = [
            charts.reliability_chart("Reliability", lines, "predicted probability", "fraction of positives"),
            charts.histogram("Triples by probability", counts, 0.0, 1.0, "predicted probability", 3.3),
        ]
    return context


def _weight_error_table(table: Any, protocol: str, caption: str = "") -> Table:
    """Return the errors of all predictors, baselines last."""
    cells = table.cells(protocol)
    caption = caption or PROTOCOLS[protocol][:1].upper() + PROTOCOLS[protocol][1:]
    row = table.rows[table.baselines[0]]
    if (part := row[protocol].at_threshold) is not None and table.threshold is not None:
        total = row["positives"].errors.n if "positives" in row else part.n
        caption += f"; {part.strong:,} of {total:,} triples are strong (weight above {table.threshold:g})"
    headings = list(next(iter(cells.values())))
    rows = [[name, *(values.get(one, "–") for one in headings)] for name, values in cells.items()]
    return Table(["", *headings], rows, caption)


def link_tables(found: Findings) -> dict[str, Any]:
    """Return the tables of the sections on relations and predicted links."""
    weighted, rows = found.run.graph.weighted, found.relations
    kept = {
        title: key for title, key in RELATION_COLUMNS.items() if any(math.isfinite(getattr(row, key)) for row in rows)
    }
    headings = ["relation", "train", "test", *(["mean weight", "weights"] if weighted else []), *kept]
    cells = [
        [
            row.name, f"{row.train:,}", f"{row.test:,}",
            *([f"{row.weight_mean:.3g}", charts.sparkline(row.histogram)] if weighted else []),
            *((format_optional if "mae" in key else format_number)(getattr(row, key)) for key in kept.values()),
        ]
        for row in rows
    ]  # fmt: skip
    tables = [
        Table(headings, part, caption, sortable=len(part) > 1)
        for part, caption in ((cells[:SHOWN_RELATIONS], "Relations"), (cells[SHOWN_RELATIONS:], "Other relations"))
    ]
    columns = {"probability": "probability", "weight": "weight_mean", "low": "weight_low", "high": "weight_high"}
    columns = {name: key for name, key in columns.items() if any(getattr(one, key) is not None for one in found.links)}
    links = [
        [one.head, one.relation, one.tail, f"{one.score:.3f}",
         *(format_optional(getattr(one, key)) for key in columns.values())]
        for one in found.links
    ]  # fmt: skip
    return {
        "relation_tables": tables, "min_test_triples": MIN_TEST_TRIPLES, "links_per_head": LINKS_PER_HEAD,
        "link_table": Table(["head", "relation", "tail", "score", *columns], links, "New links", text_columns=3),
    }  # fmt: skip


def format_optional(value: float | None) -> str:
    """Return three digits of a number, or a dash for None and NaN."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.3g}"


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
    for name, part in parts.items():
        words += [f"--{name}", part.source or "GRAPH"] if given[name] else []
    total = len(run.graph) + sum(len(part) for name, part in parts.items() if not given[name])
    repeats = int(np.unique(run.graph.keys, return_counts=True)[1].max())
    for name, part in parts.items():
        if not given[name] and not given["valid"]:  # given validation triples leave nothing to hold out
            fraction = None if name == "test" and given["test"] else held_out_fraction(len(part), total, repeats)
            words += [f"--{name}-fraction", fraction] if fraction is not None else []
    if splits.known_negatives is not None and "known-negative" not in (
        settings.negative_weights,
        settings.zero_weights,
    ):
        words += ["--known-negatives", splits.known_negatives.source or "FILE"]
    words += ["--node-attributes", splits.attributes.source] if splits.attributes is not None else []
    return shlex.join([*words, "--config", SETTINGS_FILE, "--out", "again"])


def held_out_fraction(size: int, total: int, repeats: int) -> str | None:
    """Return the shortest fraction that holds out `size` of `total` rows, or None for the default.

    A split ends before a repeated triple that does not fit, so that up to `repeats` − 1 rows may be missing.

    >>> held_out_fraction(30, 300, 1), held_out_fraction(60, 300, 1), held_out_fraction(0, 300, 1)
    (None, '0.2', '0')
    """
    if 0 <= min(int(DEFAULT_FRACTION * total), MAX_HELD_OUT) - size < repeats:
        return None
    for digits in range(1, 16):
        for fraction in (size / total, (size + 0.5) / total if size else 0.0):
            text = f"{fraction:.{digits}f}".rstrip("0").rstrip(".")
            if int(float(text) * total) == size:
                return text
    return f"{(size + 0.5) / total!r}"
