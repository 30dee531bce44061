"""One training, two questions: likely and strong links of one run, next to a twin that is trained without weights.

    FOCUSE_DATA=FOLDER python benchmarks/likely_strong.py --seeds 3                 # all graphs and models
    python benchmarks/likely_strong.py --graphs careers --models complex --seeds 1  # the embedded graph

A run with a separate weight model and its twin with weight_mode 'none' have the same settings and splits. The run is
evaluated at 'likely', at its default and at 'strong'; the exponents of the latter two are chosen on validation triples,
and all figures are of the test triples, filtered, both sides, as means over seeds ± two standard errors. 'time' is that
of the training, and of the run also as a ratio to the twin's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import smoke

import focuse
from focuse.data import datasets

ONE_VS_ALL: dict[str, Any] = {
    "dim": 200, "negative_sampling": "all", "regularizer": "n3:3e-2", "regularizer_scope": "rows", "epochs": 60,
    "batch_size": 1024,
}  # fmt: skip
# Chosen by the validation MRR of all triples, without weights: the default, or 1-vs-all with N3 of 1e-2, 3e-2 or 1e-1.
SETTINGS: dict[tuple[str, str], dict[str, Any]] = {("cn15k", "complex"): ONE_VS_ALL}
GRAPHS, MODELS = ("ppi5k", "nl27k", "cn15k", "careers", "onet-importance"), ("complex", "distmult", "transe")
FIGURES = ("mrr", "mrr_top", "mrr_bottom", "delta_mrr", "concordance", "concordance_all", "precision", "seconds")


def measure(graph: str, model: str, seed: int, device: str, epochs: int | None) -> list[dict[str, Any]]:
    """Return one row per ranking: the twin, and the run at likely, default and strong."""
    data = None if graph == "careers" else datasets.load(graph)
    parts = {} if data is None else {"valid": data.valid, "test": data.test}
    train = datasets.careers() if data is None else data.train
    chosen = {"model": model, "seed": seed, "device": device, **SETTINGS.get((graph, model), {})}
    chosen |= {} if epochs is None else {"epochs": epochs}
    rows = []
    for mode in ("none", "separate"):
        started = time.perf_counter()
        run = focuse.train(train, **parts, **chosen, weight_mode=mode, valid_min_weight=0.0, progress=False)
        seconds = time.perf_counter() - started
        found = run.evaluate().compared
        for name in ["model"] if mode == "none" else ["likely", "default", "strong", "frequency in train"]:
            one = found[name]
            figures = one.summary()
            figures["concordance_all"] = one.order.every.share
            figures["precision"] = figures.pop("weighted_precision@10")
            exponent = {"default": run.preference.exponent(), "strong": run.preference.strong}.get(name, 0.0)
            key = {"graph": graph, "model": model, "seed": seed, "ranking": "twin" if mode == "none" else name}
            rows.append({**key, "exponent": exponent, **figures, "seconds": seconds, "epochs": len(run.history)})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return means over seeds ± two standard errors as a Markdown table."""
    lines = ["| graph | model | ranking | " + " | ".join(FIGURES) + " | exponents |", "|---" * (len(FIGURES) + 4) + "|"]
    for key in dict.fromkeys((row["graph"], row["model"], row["ranking"]) for row in rows):
        some = [row for row in rows if (row["graph"], row["model"], row["ranking"]) == key]
        cells = []
        for name in FIGURES:
            values = [row[name] for row in some]
            error = 2 * statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.3f} ± {error:.3f}")
        exponents = ", ".join(f"{row['exponent']:g}" for row in some)
        lines.append(f"| {' | '.join(key)} | {' | '.join(cells)} | {exponents} |")
    return "\n".join(lines)


def main() -> None:
    """Train all runs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default=",".join(GRAPHS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="file to which each row is appended as a line of JSON")
    given = smoke.parse(parser, graphs="careers", models="complex", seeds=1, epochs=1, device="cpu")
    rows = []
    for graph in given.graphs.split(","):
        for model in given.models.split(","):
            measure(graph, model, 0, given.device, 1)  # compiles kernels
            for seed in range(given.seeds):
                rows += measure(graph, model, seed, given.device, given.epochs)
                print(json.dumps(rows[-4:]), flush=True)
                if given.out is not None:
                    with given.out.open("a", encoding="utf-8") as file:
                        file.writelines(json.dumps(row) + "\n" for row in rows[-5:])
    print(table(rows))


if __name__ == "__main__":
    main()
