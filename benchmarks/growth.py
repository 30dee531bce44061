"""How focuse grows: seconds and memory against entities, triples, dimensions and negatives, one at a time.

    python benchmarks/growth.py [--quick] [--device cuda] [--picture growth.svg]

Every point is a generated graph, trained for a few epochs in a process of its own: nothing of one is left for the
next. Prints a Markdown table and draws the curves. Time is in seconds for a million triples once through (an epoch's
seconds over its triples), so a flat line means that the time is in proportion to the triples.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import smoke

sys.path.insert(0, str(Path(__file__).parent / "peers"))

import machine
from common import THREAD_VARIABLES, peak_memory

RELATIONS = 20


@dataclass(frozen=True)
class Point:
    """One graph and one model."""

    entities: int
    triples: int
    dim: int
    negatives: int


BASE = Point(entities=20_000, triples=1_000_000, dim=100, negatives=30)
FACTORS: dict[str, tuple[int, ...]] = {
    "entities": (5_000, 20_000, 100_000, 300_000, 1_000_000),
    "triples": (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000),
    "dim": (50, 100, 200, 400),
    "negatives": (10, 30, 50, 100),
}
QUICK_BASE = Point(entities=1_000, triples=20_000, dim=20, negatives=5)
QUICK_FACTORS: dict[str, tuple[int, ...]] = {
    "entities": (500, 1_000, 5_000),
    "triples": (10_000, 20_000, 40_000),
    "dim": (10, 20, 40),
    "negatives": (2, 5, 10),
}
LABELS = {"entities": "entities", "triples": "triples", "dim": "dimensions k", "negatives": "negatives η"}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small points, to see that it works")
    parser.add_argument("--only", choices=tuple(FACTORS), help="one of the factors")
    parser.add_argument("--model", default="complex")
    parser.add_argument("--sampling", default="per-triple", help="per-triple or shared (negatives: the pool's size)")
    parser.add_argument("--optimizer", default="sparse-adam")
    parser.add_argument("--batch-size", type=int, default=8192, help="the same for all points")
    parser.add_argument("--epochs", type=int, default=3, help="the first one warms up and is not timed")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--picture", type=Path, help="an SVG of the curves")
    parser.add_argument("--json", type=Path, help="write everything there, too")
    parser.add_argument("--point", help=argparse.SUPPRESS)  # one point's own process
    return smoke.parse(parser, quick=True, epochs=1)


def main() -> None:
    chosen = arguments()
    if chosen.point:
        print(json.dumps(measure(Point(**json.loads(chosen.point)), chosen)))
        return
    load = machine.busy()
    base, factors = (QUICK_BASE, QUICK_FACTORS) if chosen.quick else (BASE, FACTORS)
    if chosen.smoke:
        factors = {"dim": (base.dim,)}
    where = f"device {chosen.device}" + (f", {chosen.threads} threads" if chosen.device == "cpu" else "")
    print(f"{machine.sentence(machine.describe())}; {where}{load}\n")
    print(
        f"{chosen.model}, {chosen.sampling} negatives, {chosen.optimizer}, batch {chosen.batch_size:,}; where not said "
        f"{base.entities:,} entities, {base.triples:,} triples, k = {base.dim}, {base.negatives} negatives\n"
    )
    print("| grows | to | s/epoch | s a million triples | peak memory, MiB | tables with Adam's moments, MiB |")
    print("| --- | --- | --- | --- | --- | --- |")
    known: dict[Point, dict[str, Any]] = {}
    found = []
    for factor in [chosen.only] if chosen.only else list(factors):
        for value in factors[factor]:
            point = replace(base, **{factor: value})
            if point not in known:  # the base belongs to every curve
                known[point] = measure(point, chosen) if chosen.smoke else apart(point, chosen)
            one = {"factor": factor, "value": value, **asdict(point), **known[point]}
            found.append(one)
            print(row(one), flush=True)
    if chosen.json:
        settings = {name: value for name, value in vars(chosen).items() if name not in ("picture", "json", "point")}
        written = {"machine": machine.describe(), "load": load, "settings": settings, "points": found}
        chosen.json.write_text(json.dumps(written, indent=1) + "\n")
    if chosen.picture:
        draw(found, chosen.picture)


def row(one: dict[str, Any]) -> str:
    head = f"| {LABELS[one['factor']]} | {one['value']:,} "
    if one.get("failed"):
        return head + f"| failed: {one['failed']} | | | |"
    memory = f"{one['memory_mib']:,.0f} | {one['tables_mib']:,.0f}"
    return head + f"| {one['seconds_per_epoch']:.3f} | {one['seconds_per_million']:.3f} | {memory} |"


# ---- one point ------------------------------------------------------------------------------------------------------


def apart(point: Point, chosen: argparse.Namespace) -> dict[str, Any]:
    """`measure` in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--point", json.dumps(asdict(point))]
    for name in ("model", "sampling", "optimizer", "batch_size", "epochs", "device", "threads"):
        command += [f"--{name.replace('_', '-')}", str(getattr(chosen, name))]
    environment = os.environ | {name: str(chosen.threads) for name in THREAD_VARIABLES}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"failed": said[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(point: Point, chosen: argparse.Namespace) -> dict[str, Any]:
    """Train on a generated graph; seconds without the first epoch, memory with everything."""
    import torch

    import focuse
    from focuse.models.registry import make_model

    torch.set_num_threads(chosen.threads)
    graph = generate(point)
    run = focuse.train(
        graph,
        valid=graph.select(np.empty(0, np.int64)),  # so that no look at validation falls into the epochs
        model=chosen.model,
        dim=point.dim,
        num_negatives=point.negatives,
        negative_sampling=chosen.sampling,
        weight_mode="focuse",
        optimizer=chosen.optimizer,
        batch_size=chosen.batch_size,
        epochs=chosen.epochs,
        device=chosen.device,
        progress=False,
    )
    seconds = [line["seconds"] for line in run.history]
    pace = statistics.median(seconds[1:] or seconds)
    on_gpu = chosen.device.startswith("cuda")
    model = make_model(chosen.model)
    numbers = point.entities * model.widths(point.dim)[0] + RELATIONS * model.widths(point.dim)[1]
    return {
        "epoch_seconds": seconds,
        "seconds_per_epoch": pace,
        "seconds_per_million": pace / point.triples * 1e6,
        "memory_mib": torch.cuda.max_memory_allocated() / 2**20 if on_gpu else peak_memory(),
        "tables_mib": numbers * 4 * 3 / 2**20,  # Adam keeps two more numbers for each
    }


def generate(point: Point, seed: int = 0) -> Any:
    """A graph by chance, encoded at once; a few entities are in many triples, as in life."""
    import pyarrow as pa

    from focuse.data.graph import Graph, Vocabulary

    chance = np.random.default_rng(seed)
    ends = [np.floor(point.entities * chance.random(point.triples) ** 2).astype(np.int32) for _ in range(2)]
    names = pa.array(np.arange(point.entities)).cast(pa.string())
    return Graph(
        ends[0],
        chance.integers(RELATIONS, size=point.triples).astype(np.int32),
        ends[1],
        chance.random(point.triples),
        Vocabulary(names),
        Vocabulary([f"relation {number}" for number in range(RELATIONS)]),
        "generated",
    )


# ---- the picture ----------------------------------------------------------------------------------------------------


def draw(found: list[dict[str, Any]], target: Path) -> None:
    """Time above, memory below, one column a factor."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "focuse"  # the same picture is the same file
    from matplotlib import pyplot

    factors = list(dict.fromkeys(one["factor"] for one in found))
    figure, panels = pyplot.subplots(2, len(factors), figsize=(3.4 * len(factors), 5.6), squeeze=False, sharey="row")
    shown = (("seconds_per_million", "s a million triples"), ("memory_mib", "peak memory, MiB"))
    for column, factor in enumerate(factors):
        points = [one for one in found if one["factor"] == factor and not one.get("failed")]
        for panel, (name, label) in zip(panels[:, column], shown, strict=True):
            panel.plot([one["value"] for one in points], [one[name] for one in points], marker="o", color="#1b9e77")
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.grid(alpha=0.3, which="both")
            if column == 0:
                panel.set_ylabel(label)
        panels[1, column].set_xlabel(LABELS[factor])
    figure.tight_layout()
    figure.savefig(target, format="svg", metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    main()
