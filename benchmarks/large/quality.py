"""Training by partitions beside training in memory: the same settings, three seeds each.

    FOCUSE_DATA=folder python benchmarks/large/quality.py [nl27k cn15k ppi5k] [--partitions 8:4] [--epochs 30]
    python benchmarks/large/quality.py 200000:2000000 --partitions 32:8 --epochs 4

On real graphs, or on one that graph.py generates of so many entities and edges.

Prints MRR and ΔMRR of the test triples, mean and standard error over the seeds, and how many standard errors of their
difference lie between the two ways.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import smoke
from graph import Recipe

import focuse

WAYS = ("memory", "partitioned")
FIGURES = ("MRR", "ΔMRR")
HEADINGS = ("graph", "figure", "in memory", "by partitions", "difference", "in standard errors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="*", default=["nl27k", "cn15k", "ppi5k"])
    parser.add_argument("--partitions", default="8:4")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch-size", type=int)
    given = smoke.parse(parser, graphs=[smoke.GRAPH], epochs=1, dim=4, seeds=1)
    print(f"| {' | '.join(HEADINGS)} |\n{'| --- ' * len(HEADINGS)}|")
    for name in given.graphs:
        found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for seed in range(given.seeds):
            for way in WAYS:
                found[way].append(measured(name, way, seed, given))
                print(json.dumps({"graph": name, "way": way, "seed": seed, "found": found[way][-1]}), flush=True)
        for place, figure in enumerate(FIGURES):
            one, other = ([each[place] for each in found[way]] for way in WAYS)
            print(row(name, figure, one, other), flush=True)


def measured(name: str, way: str, seed: int, given: argparse.Namespace) -> tuple[float, float]:
    """MRR and ΔMRR of one training."""
    with tempfile.TemporaryDirectory() as folder:
        graph, parts = graph_of(name, Path(folder))
        more: dict[str, Any] = {"batch_size": given.batch_size}
        if way == "partitioned":
            more |= {"engine": way, "partitions": given.partitions, "out": Path(folder) / "run"}
        run = focuse.train(
            graph,
            seed=seed,
            dim=given.dim,
            epochs=given.epochs,
            label_exponent=2.0,
            device="cpu",
            progress=False,
            **parts,
            **more,
        )
        evaluation = run.evaluate()
    return evaluation.all.mrr, evaluation.delta_mrr


def graph_of(name: str, folder: Path) -> tuple[focuse.Graph, dict[str, Any]]:
    """What to train on, and what is held out of it: a data set has its own."""
    if ":" not in name:
        data = smoke.load(name)
        return data.train, {"valid": data.valid, "test": data.test}
    entities, edges = map(int, name.split(":"))
    Recipe(entities, edges).write(folder / "graph.parquet")
    return focuse.read(folder / "graph.parquet"), {}


def row(name: str, figure: str, one: list[float], other: list[float]) -> str:
    cells = [f"{statistics.mean(values):.4f} ± {error(values):.4f}" for values in (one, other)]
    gap = statistics.mean(other) - statistics.mean(one)
    apart = math.hypot(error(one), error(other))
    return f"| {name} | {figure} | {cells[0]} | {cells[1]} | {gap:+.4f} | {gap / apart if apart else 0:+.1f} |"


def error(values: list[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


if __name__ == "__main__":
    main()
