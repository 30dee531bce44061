"""Scalings of heavy-tailed weights: min-max within the relation against ranks and logarithms.

    python benchmarks/weight_scaling.py --seeds 3                          # graphs that the script generates
    python benchmarks/weight_scaling.py --data FOLDER --epochs 30          # and the public tables in a folder

Every graph is trained with each scaling on the same splits. Validation decides: the MRR of its top decile by weight
(the strong triples, which are the same for every scaling), and the concordance of scores with the order of weights.
Figures are means over seeds ± two standard errors, on validation and on test; then the Spearman correlation of the
weights that are predicted for test, and their mean absolute error in factors of ten.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import smoke

import focuse
from focuse.data.graph import Graph
from focuse.data.splits import split
from focuse.evaluation.metrics import spearman

SCALINGS = ("relation", "quantile", "log")
TABLES: dict[str, dict[str, Any]] = {
    "affinities": {
        "file": "bindings-drugbank-gene.tsv.gz", "head": "drugbank_name", "tail": "gene_symbol",
        "weight": "affinity_nM", "lower_is_better": True,
    },
}  # fmt: skip
GENERATED = ("plays", "citations")
FIGURES = ("valid_top", "valid_all", "valid_order", "test_top", "test_all", "test_order", "spearman", "log10_mae")


def play_counts(users: int, seed: int = 0) -> Graph:
    """Listeners, the 50 artists that each likes best, and how often he played them.

    Taste and style are mixtures of 60 genres, the popularity of artists is exponential, and counts are log-normal: some
    listeners play ten times as much as others.
    """
    random, dimensions = np.random.default_rng(seed), 12
    artists = round(9.3 * users)
    genres = 1.6 * random.normal(size=(60, dimensions))
    taste, style = (
        genres[random.integers(0, 60, size)] + 0.7 * random.normal(size=(size, dimensions)) for size in (users, artists)
    )
    popular, active = 1.5 * random.standard_exponential(artists), random.normal(5.65, 0.9, users)
    rows: list[tuple[str, str, str, float]] = []
    for user in range(users):
        appeal = 2.2 * (style @ taste[user]) / (1.5 * dimensions) + popular + random.gumbel(size=artists)
        best = np.argsort(-appeal)[:50]
        log_count = active[user] + 0.45 * (appeal[best] - appeal[best].mean()) + random.normal(0, 0.55, 50)
        plays = np.maximum(np.exp(log_count), 1).round()
        rows += [(f"user {user}", "plays", f"artist {a}", float(w)) for a, w in zip(best, plays, strict=True)]
    return focuse.read(rows)


def citation_counts(fields: int = 40, papers: int = 1500, seed: int = 0) -> Graph:
    """Journals and how often each cites another: few fields, sizes by a power law, counts by Poisson."""
    random = np.random.default_rng(seed)
    field, size = random.integers(0, fields, papers), random.pareto(1.1, papers) + 0.3
    near = random.random((fields, fields)) ** 6 * 0.3 + np.eye(fields) * 3
    head, tail = random.integers(0, papers, (2, 600_000))
    mean = 0.2 * size[head] ** 0.8 * size[tail] * near[field[head], field[tail]]
    count = random.poisson(np.minimum(mean, 1e6))
    kept = (count > 0) & (head != tail)
    edges = zip(head[kept][:40_000], tail[kept][:40_000], count[kept][:40_000], strict=True)
    graph = focuse.read([(f"journal {h}", "cites", f"journal {t}", float(w)) for h, t, w in edges])
    return graph.merge_repeated("max")


def graphs(options: argparse.Namespace) -> dict[str, Graph]:
    """The graphs by name: the generated ones, and those whose file is in the folder."""
    if options.smoke:
        small = smoke.graph()
        return {"smoke": replace(small, weight=np.exp(8 * small.weight))}
    made = {"plays": lambda: play_counts(options.users), "citations": citation_counts}
    found = {name: make() for name, make in made.items() if not options.graphs or name in options.graphs}
    for name, table in TABLES.items():
        path = Path(options.data or "") / table["file"]
        if options.data and path.exists() and (not options.graphs or name in options.graphs):
            columns = {key: table[key] for key in ("head", "tail", "weight")}
            graph = focuse.read(path, **columns).with_lower_is_better(table.get("lower_is_better", False))
            found[name] = graph
    return found


def figures(graph: Graph, scaling: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train with one scaling and measure it on validation and test."""
    started = time.perf_counter()
    parts = split(graph.merge_repeated("max"), seed=seed)
    settings = {"weight_scaling": scaling, "seed": seed, "device": options.device, "epochs": options.epochs}
    settings["weight_mode"] = "soft-labels"
    if options.label_exponent is not None:
        settings["label_exponent"] = options.label_exponent
    lower = {"lower_is_better": True} if graph.lower_is_better else {}
    run = focuse.train(parts.train, valid=parts.valid, test=parts.test, progress=False, **settings, **lower)
    on_valid, on_test = run.evaluate(parts.valid), run.evaluate()
    truth = parts.test.weight
    predicted = run.predict_weights(parts.test)["weight_mean"]
    positive = np.abs(truth[truth > 0]).min()
    ratio = np.log10(np.maximum(predicted, positive)) - np.log10(np.maximum(truth, positive))
    return {
        "scaling": scaling,
        "seed": seed,
        "label_exponent": run.settings.label_exponent,
        "valid_top": on_valid.top.mrr,
        "valid_all": on_valid.all.mrr,
        "valid_order": on_valid.order.relation.share,
        "test_top": on_test.top.mrr,
        "test_all": on_test.all.mrr,
        "test_order": on_test.order.relation.share,
        "spearman": spearman(predicted, truth),
        "log10_mae": float(np.abs(ratio).mean()),
        "seconds": time.perf_counter() - started,
    }


def table(name: str, rows: list[dict[str, Any]]) -> list[str]:
    """Return one line per scaling: means over seeds ± two standard errors."""
    lines = []
    for scaling in dict.fromkeys(row["scaling"] for row in rows):
        own = [row for row in rows if row["scaling"] == scaling]
        cells = [_mean_and_error([row[figure] for row in own]) for figure in FIGURES]
        exponents = ", ".join(f"{row['label_exponent']:g}" for row in own)
        lines.append(f"| {name} | {scaling} | {' | '.join(cells)} | {exponents} |")
    return lines


def _mean_and_error(values: list[float]) -> str:
    error = 2 * statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.3f} ± {error:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=(*GENERATED, *TABLES), help="default: all that are at hand")
    parser.add_argument("--data", default=os.environ.get("FOCUSE_DATA"), help="folder of the public tables")
    parser.add_argument("--scalings", nargs="+", default=SCALINGS)
    parser.add_argument("--users", type=int, default=1892, help="of the generated play counts")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--label-exponent", type=float, help="default: selected on validation")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="file to append the figures to, one line of JSON per training")
    options = smoke.parse(parser, seeds=1, epochs=2, label_exponent=1.0, device="cpu")
    headings = ["graph", "scaling", *FIGURES, "label exponents"]
    print(f"| {' | '.join(headings)} |\n{'| --- ' * len(headings)}|", flush=True)
    for name, graph in graphs(options).items():
        rows = []
        for scaling in options.scalings:
            for seed in range(options.seeds):
                rows.append(figures(graph, scaling, seed, options))
                if options.out:
                    with options.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps({"graph": name, **rows[-1]}) + "\n")
        print("\n".join(table(name, rows)), flush=True)


if __name__ == "__main__":
    main()
