"""How well a run that was extended serves entities that its training has never seen.

    FOCUSE_DATA=folder python benchmarks/extend.py [careers ppi5k nl27k cn15k] [--given 1 2 5 10 20] [--seeds 1]

Of every graph 2 % of the entities are set apart with all their edges, and a run is trained without them. Then each
gets k of its edges, by `focuse.extend`, and the rest of its edges (the same whatever k is) are ranked among all
entities, both sides. Beside it stand: a full training on everything that the extended run has (what extending saves),
the mean of entities with the same edges without any training, rows by chance, and the number of edges that an entity
has on that side of the relation. Weights: mean absolute error and how often the 90 % interval holds the weight.
Prints a line a figure; `--out` adds a line of JSON each.

    python benchmarks/extend.py --table docs/results/extend.jsonl

prints the table of the manual from such lines.

    python benchmarks/extend.py --sizes 10000 100000 1000000

extends runs on generated graphs of so many entities, two edges each, by 100 edges of 20 new entities: seconds of
a processor in `focuse.extend`, in memory, without loading and saving.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa
import smoke
import torch

import focuse
from focuse.data.datasets import careers
from focuse.data.graph import concatenate
from focuse.data.triple_index import build_triple_index
from focuse.data.weights import fit_normalizer
from focuse.engines.scorer import TableScorer
from focuse.evaluation.evaluate import evaluate
from focuse.training.problem import init_tables

SHARE = 0.02  # of the entities are unseen
FEWEST = 4  # edges that an unseen entity has
MOST_KNOWN = 1000  # validation edges between known entities that are ranked
JUDGED = 10  # of its edges at most are ranked
WAYS = ("new", "all", "mean", "chance", "popularity", "full")
LEARNT = ("new", "all", "full")
SETTINGS: dict[str, Any] = {"model": "complex", "dim": 50, "label_exponent": 1.0, "progress": False}


@dataclass(frozen=True)
class Task:
    """A graph without its unseen entities, and the edges of these: in the order they are given, and to judge by."""

    known: focuse.Graph
    given: focuse.Graph
    turn: np.ndarray
    judged: focuse.Graph


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="*", default=["careers", "ppi5k", "nl27k", "cn15k"])
    parser.add_argument("--given", type=int, nargs="+", default=[1, 2, 5, 10, 20])
    parser.add_argument("--full", type=int, nargs="*", default=[1, 5, 20], help="of these, train on everything, too")
    parser.add_argument("--all", type=int, nargs="*", default=[1, 5, 20], help="of these, train known names, too")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--model", default="complex")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--weights", action="store_true", help="errors of weights and coverage of intervals, too")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--bases", type=Path, help="keep the runs to extend in this folder, or take them from there")
    parser.add_argument("--sizes", type=int, nargs="+", help="how long it takes, by the number of entities")
    parser.add_argument("--table", type=Path, help="print what is in such a file as a Markdown table")
    parser.add_argument("--out", type=Path)
    return smoke.parse(parser, graphs=[smoke.GRAPH], given=[2], full=[2], all=[2], epochs=1)


def whole(name: str) -> focuse.Graph:
    """All edges of a graph."""
    if name in ("careers", smoke.GRAPH):
        return careers() if name == "careers" else smoke.graph()
    found = focuse.datasets.load(name)
    held = [part.align(found.train).graph for part in (found.valid, found.test)]
    return concatenate([found.train, *held])


def make_task(graph: focuse.Graph, seed: int) -> Task:
    random = np.random.default_rng(seed)
    degree = np.bincount(np.concatenate([graph.head, graph.tail]), minlength=len(graph.entities))
    able = np.flatnonzero(degree >= FEWEST)
    chosen = random.choice(able, max(5, round(SHARE * len(graph.entities))), replace=False)
    unseen = np.zeros(len(graph.entities), bool)
    unseen[chosen] = True
    ends = unseen[graph.head].astype(int) + unseen[graph.tail]
    edges = graph.select(ends == 1)  # between two of them there is nothing to hold on to
    edges = edges.select(random.permutation(len(edges)))
    mine = np.where(unseen[edges.head], edges.head, edges.tail)
    order = np.argsort(mine, kind="stable")
    edges, mine = edges.select(order), mine[order]
    _, first, count = np.unique(mine, return_index=True, return_counts=True)
    place, size = np.arange(len(edges)) - np.repeat(first, count), np.repeat(count, count)
    judged = (place >= size // 2) & (place < size // 2 + JUDGED)
    return Task(again(graph.select(ends == 0)), edges.select(place < size // 2), place[place < size // 2],
                edges.select(judged))  # fmt: skip


def again(graph: focuse.Graph) -> focuse.Graph:
    """The graph with only the names that it uses."""
    return focuse.read(graph.to_arrow())


def figures(run: focuse.Run, task: Task, weights: bool) -> dict[str, Any]:
    found = run.evaluate(task.judged, ties="mean")
    row = {"mrr": found.all.mrr, "hits10": found.all.hits[10], "delta_mrr": found.delta_mrr, "rows": found.all.n}
    if weights:
        said = run.predict_weights(task.judged)
        truth, low, high = said["weight"], said["weight_low"], said["weight_high"]
        row["mae"] = float(np.abs(said["weight_mean"] - truth).mean())
        row["coverage"] = float(((truth >= low) & (truth <= high)).mean())
    return row


def by_chance(run: focuse.Run, known: int, seed: int) -> focuse.Run:
    """The extended run with rows that nothing was done for."""
    table = run.scorer.tables["entity"]
    chance = init_tables(run.settings, run.scorer.model, len(table), len(run.graph.relations))
    table[known:] = chance["entity"][known:]
    run.scorer.invalidate()
    return run


class Popularity:
    """Scores an entity by how many edges of the relation it has on that side; enough of a scorer to be ranked."""

    device, expensive_to_rank, side_dependent = torch.device("cpu"), False, True

    def __init__(self, graph: focuse.Graph) -> None:
        shape = len(graph.relations), len(graph.entities)
        self.counts = {}
        for side in ("head", "tail"):
            self.counts[side] = torch.zeros(shape)
            at = torch.from_numpy(graph.relation.astype(np.int64) * shape[1] + getattr(graph, side))
            self.counts[side].view(-1).index_add_(0, at, torch.ones(len(at)))

    def score(self, head: torch.Tensor, relation: torch.Tensor, tail: torch.Tensor) -> torch.Tensor:
        return self.counts["tail"][relation, tail]

    def score_all(self, known: torch.Tensor, relation: torch.Tensor, side: str) -> torch.Tensor:
        return self.counts[side][relation]


def of_known(run: focuse.Run, task: Task, known: focuse.Graph) -> float:
    """MRR of edges that the run knew nothing of before either, between known entities: do newcomers push them down?

    What is true of newcomers is left out, whether the run has been given it or not.
    """
    graphs = [run.splits.train, run.splits.valid]
    graphs += [part.align(run.graph).graph for part in (task.given, task.judged)]
    facts = build_triple_index(graphs, run.scorer.device)
    return evaluate(run.scorer, known.align(run.graph), run.graph, facts, "mean").all.mrr


def popular(run: focuse.Run, task: Task) -> dict[str, Any]:
    aligned = task.judged.align(run.graph)
    known = build_triple_index([run.splits.train, run.splits.valid, run.splits.test, aligned.graph])
    found = evaluate(Popularity(run.graph), aligned, run.graph, known, "mean")
    return {"mrr": found.all.mrr, "hits10": found.all.hits[10], "delta_mrr": found.delta_mrr, "rows": found.all.n}


def make_base(task: Task, folder: Path | None, asked: dict[str, Any]) -> focuse.Run:
    """The run without the unseen entities, or what was kept of it."""
    if folder is not None and folder.exists():
        return focuse.load(folder)
    return focuse.train(task.known, valid_fraction=0.05, test_fraction=0.0, out=folder, **asked)


def rows(name: str, seed: int, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    task = make_task(whole(name), seed)
    asked = {**SETTINGS, "model": options.model, "epochs": options.epochs, "seed": seed}
    base = make_base(task, options.bases and options.bases / f"base-{name}-{seed}", asked)
    about = {"graph": name, "seed": seed, "model": options.model, "unseen": int((task.turn == 0).sum())}
    about |= {"entities": len(base.graph.entities), "edges": len(base.graph)}
    for k in options.given:
        given = task.given.select(task.turn < k)
        for way in options.ways:
            if (way == "full" and k not in options.full) or (way == "all" and k not in options.all):
                continue
            started, worked = time.perf_counter(), time.process_time()
            if way == "full":
                parts = base.splits
                everything = focuse.read(join_names(parts.train, given))
                run = focuse.train(everything, valid=parts.valid, **asked)
            else:
                few = None if way in ("new", "all") else 0
                run = focuse.extend(base, given, train_known=way == "all", epochs=few, progress=False)
            seconds, worked = time.perf_counter() - started, time.process_time() - worked
            if way == "chance":
                run = by_chance(run, len(base.graph.entities), seed)
            weights = options.weights and way in LEARNT
            old = base.splits.valid.select(np.arange(min(MOST_KNOWN, len(base.splits.valid))))
            row = popular(run, task) if way == "popularity" else figures(run, task, weights)
            if way in LEARNT:
                row |= {"mrr_known": of_known(run, task, old), "mrr_known_before": of_known(base, task, old)}
            yield {**about, "way": way, "k": k, "mean_given": round(len(given) / about["unseen"], 2),
                   **row, "seconds": seconds, "processor_seconds": worked}  # fmt: skip


def join_names(known: focuse.Graph, given: focuse.Graph) -> Any:
    return pa.concat_tables([known.to_arrow(), given.to_arrow()])


def timed(entities: int) -> dict[str, Any]:
    """How long 100 new edges take beside so many entities."""
    random = np.random.default_rng(0)
    names = pa.array(np.char.add("e", np.arange(entities).astype(str)).tolist())
    ends = [names.take(pa.array(random.integers(entities, size=2 * entities))) for _ in range(2)]
    kinds = pa.array(["r"] * (2 * entities))
    graph = focuse.read(
        pa.table({"head": ends[0], "relation": kinds, "tail": ends[1], "weight": random.random(2 * entities)})
    )
    # What the rows hold makes no difference to the time, so nothing is trained.
    settings, splits = (
        focuse.Config.from_kwargs(dim=16, label_exponent=1.0).resolve(graph, "cpu"),
        focuse.split(graph, 0.001, 0.0),
    )
    model = settings.make_model()
    tables = init_tables(settings, model, len(graph.entities), len(graph.relations))
    run = focuse.Run(settings, splits, fit_normalizer("relation", splits.train), TableScorer(model, tables), [])
    tails = run.graph.entities.take(random.integers(entities // 2, size=100)).to_pylist()
    new = [(f"new {place % 20}", "r", tail, 0.5) for place, tail in enumerate(tails)]
    took = []
    for _ in range(3):
        started = time.process_time()
        focuse.extend(run, new, progress=False)
        took.append(time.process_time() - started)
    return {"way": "seconds of 100 edges", "entities": len(run.graph.entities), "edges": len(run.graph),
            "processor_seconds": round(min(took), 3)}  # fmt: skip


def table(path: Path) -> str:
    """MRR by graph, edges given and way, means over seeds; that of known edges before and after."""
    found: dict[tuple[str, int], dict[str, list[float]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "mrr" in row:
            cell = found.setdefault((row["graph"], row["k"]), {})
            cell.setdefault(row["way"], []).append(row["mrr"])
            if row["way"] in LEARNT:
                cell.setdefault("known before", []).append(row["mrr_known_before"])
                cell.setdefault(f"known, {row['way']}", []).append(row["mrr_known"])
    headings = (*WAYS, "known before", *(f"known, {way}" for way in LEARNT))
    lines = [f"| graph | edges given | {' | '.join(headings)} |", "| --- |" + " ---: |" * (len(headings) + 1)]
    for (graph, given), ways in sorted(found.items()):
        cells = (f"{np.mean(ways[way]):.3f}" if way in ways else "" for way in headings)
        lines.append(f"| {graph} | {given} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    options = arguments()
    if options.table is not None:
        print(table(options.table))
        return
    for size in options.sizes or ():
        row = timed(size)
        print(row)
        if options.out is not None:
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    if options.sizes:
        return
    for name in options.graphs:
        for seed in range(options.seeds):
            for row in rows(name, seed, options):
                row = {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}
                print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
                if options.out is not None:
                    with options.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    sys.exit(main())
