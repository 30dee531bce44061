"""Weights as labels beside the plain model and the paper's layer: top-10 % MRR / ΔMRR on the real graphs.

python benchmarks/focus.py --results docs/results/focus.jsonl           # the table of what that file holds
python benchmarks/focus.py --results more.jsonl --train --workers 8     # trains what it lacks, then the table

Every cell is trained with one weight mode and seed; the label exponent is chosen on validation by each cell for itself.
Settings are the defaults (shared pool, or own corruptions) with k = 200, and for every entity as a rival a regularizer
chosen on validation among two.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import smoke

PUBLISHED = Path(__file__).parent.parent / "reproduction" / "configurations" / "published.toml"
GRAPHS = ("ppi5k", "nl27k", "cn15k", "onet-importance")
MODELS = ("transe", "distmult", "complex")
SAMPLINGS = ("shared", "per-triple", "all")
WEIGHT_MODES = ("none", "focuse", "soft-labels")
EVERY_ENTITY = {"ppi5k": "l3:2e-3", "nl27k": "l3:1e-2", "cn15k": "l3:1e-2", "onet-importance": "l3:1e-2"}
NAMES = {"none": "plain", "focuse": "paper's", "soft-labels": "label"}


def settings_of(graph: str, model: str, sampling: str, regularizer: str | None = None) -> dict[str, Any]:
    """What a cell is trained with, but for weight mode and seed."""
    settings: dict[str, Any] = {"model": model, "negative_sampling": sampling, "dim": 200}
    if graph == "cn15k":
        settings["weight_scaling"] = "none"  # as in the paper's experiments
    if sampling == "all":
        every = {"regularizer_scope": "rows", "regularizer": EVERY_ENTITY[graph], "batch_size": 1024, "epochs": 30}
        settings |= every
    else:
        settings["epochs"] = 60 if model == "transe" else 50
    return settings | ({} if regularizer is None else {"regularizer": regularizer})


def cells(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every cell that is asked for; TransE against all entities is left out, an epoch of it takes minutes."""
    for seed in range(options.seeds):
        for graph in options.graphs:
            for model in options.models:
                for sampling in options.samplings:
                    for weight_mode in options.weight_modes:
                        if model == "transe" and sampling == "all":
                            continue
                        settings = settings_of(graph, model, sampling, options.regularizer)
                        yield {"graph": graph, "weight_mode": weight_mode, "seed": seed, "settings": settings}


def trained(cell: dict[str, Any]) -> dict[str, Any]:
    """The figures of one cell."""
    import torch

    import focuse

    torch.set_num_threads(1)
    started = time.perf_counter()
    data = smoke.load(cell["graph"])
    asked = {**cell["settings"], "weight_mode": cell["weight_mode"], "seed": cell["seed"]}
    run = focuse.train(data.train, valid=data.valid, test=data.test, progress=False, **asked)
    found = run.evaluate()
    order = found.order.to_dict()
    return {
        **cell,
        "label_exponent": run.settings.label_exponent,
        "looks": [
            [look.label_exponent, round(look.top_mrr, 4), round(look.delta_mrr, 4)]
            for look in run.label_exponent_trials
        ],
        "top": round(found.top.mrr, 4),
        "bottom": round(found.bottom.mrr, 4),
        "delta": round(found.delta_mrr, 4),
        "all": round(found.all.mrr, 4),
        "concordance": round(order["concordance"]["relation"]["share"], 4),
        "seconds": round(time.perf_counter() - started, 1),
    }


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(rows: list[dict[str, Any]]) -> str:
    """One line per graph, model, sampling and regularizer: top-10 % MRR / ΔMRR by weight mode, the label exponent."""
    groups: dict[tuple[str, ...], dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        settings = row["settings"]
        key = (row["graph"], settings["model"], settings["negative_sampling"], settings.get("regularizer", "l3:1e-3"))
        groups.setdefault(key, {}).setdefault(row["weight_mode"], []).append(row)
    published = tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))
    lines = [
        f"| graph | model | sampling, L3 | {' | '.join(NAMES.values())} | published | label exponent | concordance |",
        "| --- " * 9 + "|",
    ]
    for key in sorted(groups):
        found = groups[key]
        shown = [_shown(found.get(mode, [])) for mode in WEIGHT_MODES]
        chosen = ", ".join(f"{row['label_exponent']:g}" for row in found.get("soft-labels", []))
        pairs = [_mean(found.get(mode, []), "concordance")[0] for mode in ("none", "soft-labels")]
        paper = published.get(key[0], {}).get(key[1], {}).get("focuse", {})
        told = f"{_short(paper['top'][1], 2)} / {_short(paper['delta'], 2)}" if paper else "–"
        name = f"{key[0]} | {key[1]} | {key[2]}, {key[3].removeprefix('l3:')}"
        order = f"{_short(pairs[0], 2)} → {_short(pairs[1], 2)}"
        lines.append(f"| {name} | {' | '.join(shown)} | {told} | {chosen} | {order} |")
    return "\n".join(lines)


def _shown(rows: list[dict[str, Any]]) -> str:
    """'.978 ± .001 / .954 ± .001': means and their standard errors over seeds, without errors of a single one."""
    parts = []
    for name in ("top", "delta") if rows else ():
        mean, error = _mean(rows, name)
        parts.append(_short(mean) + (f" ± {_short(error)}" if len(rows) > 1 else ""))
    return " / ".join(parts) or "–"


def _short(value: float, digits: int = 3) -> str:
    """A number below 1 as tables have it, without the 0 before its point."""
    return "–" if value != value else f"{value:.{digits}f}".replace("0.", ".", 1)


def _mean(rows: list[dict[str, Any]], name: str) -> tuple[float, float]:
    values = [row[name] for row in rows]
    if not values:
        return float("nan"), float("nan")
    return statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="file of finished cells, which training adds to")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--regularizer")
    for name, values in (
        ("graphs", GRAPHS), ("models", MODELS), ("samplings", SAMPLINGS), ("weight_modes", WEIGHT_MODES),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", nargs="+", default=values, choices=values)
    options = smoke.parse(parser)
    if options.smoke:
        settings = {"model": "complex", "negative_sampling": "shared", "dim": 4, "epochs": 1}
        cell = {"graph": smoke.GRAPH, "seed": 0, "settings": settings}
        print(table([trained({**cell, "weight_mode": mode}) for mode in WEIGHT_MODES]))
        return
    rows = read(options.results)
    if options.train:
        done = [{name: row[name] for name in ("graph", "weight_mode", "seed", "settings")} for row in rows]
        wanted = [cell for cell in cells(options) if cell not in done]
        with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
            for row in pool.imap_unordered(trained, wanted):
                rows.append(row)
                with options.results.open("a") as file:
                    print(json.dumps(row), file=file)
    print(table(rows))


if __name__ == "__main__":
    main()
