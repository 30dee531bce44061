"""How long does it take to look at every missing link of a graph, beside asking query by query?

    FOCUSE_DATA=folder python benchmarks/discover.py [ppi5k] [--dim 100] [--device cuda] [--run RUN]

On a CPU all times are seconds that one core works (CPU time of one thread): they stay the same on a busy machine.

Scores every (head, relation, tail) of the graph, known facts left out, and keeps the 2,000 best of each relation, by
tables of random numbers. Prints a Markdown table with, for each model:

- blocks: `search_all`, all pairs of entities by all relations (--any-type), known triples excluded;
- one by one: each query (head, relation) scored against all entities by itself, its known answers dropped and the rest
  sorted, as a loop over a prediction call does; timed on a sample of queries and multiplied out;
- floor: the arithmetic alone, at the pace of a bare matrix product of the same block in the same run. An instruction a
  number for dot products (2 products where both sides are scored), 3 for L1 on a CPU (2 on a GPU).

With --run, `run.discover` of a trained run is timed as well, after its estimators are fitted.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import smoke
import torch

import focuse
from focuse.data.graph import Graph
from focuse.data.triple_index import build_triple_index
from focuse.engines.scorer import TableScorer
from focuse.inference.link_search import CPU_BLOCK_SCORES, GPU_BLOCK_SCORES, CandidateSpace, search_all
from focuse.models.registry import make_model
from focuse.training.callbacks import track_progress

MODELS = ("complex", "complex, reciprocal", "transe")
KEPT = 2_000
SAMPLE = 100  # queries that are timed one by one
RUNS = 2


def best(work: Callable[[], object], device: str, runs: int = RUNS) -> float:
    """Seconds of the fastest run."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    found = []
    for _ in range(runs):
        start = clock()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        found.append(clock() - start)
    return min(found)


def engine_of(name: str, graph: Graph, dim: int, device: str) -> TableScorer:
    model = make_model(name.split(",")[0])
    inverse = "reciprocal" in name
    draw = torch.Generator().manual_seed(0)
    entity = torch.randn(len(graph.entities), model.widths(dim)[0], generator=draw).to(device)
    relation = torch.randn(len(graph.relations) * (2 if inverse else 1), model.widths(dim)[1], generator=draw).to(
        device
    )
    return TableScorer(model, {"entity": entity, "relation": relation}, inverse)


def blocks(engine: TableScorer, graphs: list[Graph]) -> Callable[[], object]:
    train = graphs[0]
    known = build_triple_index(graphs, engine.device)

    def work() -> object:
        space = CandidateSpace(train, np.arange(len(train.relations)), any_type=True)
        with track_progress("", space.num_pairs) as progress:
            return search_all(engine, space, known, KEPT, progress, None)

    return work


def one_by_one(engine: TableScorer, graphs: list[Graph], device: str) -> float:
    """Seconds that all queries would take, by a sample of them."""
    train = graphs[0]
    answers: dict[tuple[int, int], list[int]] = {}
    for graph in graphs:
        for h, r, t in zip(graph.head.tolist(), graph.relation.tolist(), graph.tail.tolist(), strict=True):
            answers.setdefault((h, r), []).append(t)
    random = np.random.default_rng(0)
    entities, relations = len(train.entities), len(train.relations)
    asked = random.integers(0, (entities, relations), (SAMPLE, 2)).tolist()

    def work() -> None:
        for h, r in asked:
            given, kind = torch.tensor([h], device=device), torch.tensor([r], device=device)
            scores = engine.score_all(given, kind, "tail")[0]
            if engine.side_dependent:  # the other side's score of each answer
                every = torch.arange(entities, device=device)
                scores = engine.score(given.expand(entities), kind.expand(entities), every)
            scores = scores.cpu().numpy()
            scores[answers.get((h, r), [])] = -np.inf
            np.argsort(-scores, kind="stable")[:KEPT]

    return best(work, device) / SAMPLE * entities * relations


def floor(engine: TableScorer, graph: Graph, device: str) -> float:
    """Seconds of the arithmetic alone."""
    entities, width = engine.tables["entity"].shape
    rows = max(1, (GPU_BLOCK_SCORES if device == "cuda" else CPU_BLOCK_SCORES) // entities)
    table, query = engine.tables["entity"], torch.randn(rows, width, device=device)
    one = best(lambda: [query @ table.T for _ in range(10)], device, 5) / 10
    times = 2 if engine.side_dependent else 1
    if engine.model.similarity == "l1":
        times *= 2 if device == "cuda" else 3
    return one * times * entities / rows * len(graph.relations)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("graph", nargs="?", default="ppi5k")
    options.add_argument("--dim", type=int, default=100)
    options.add_argument("--device", default="cpu")
    options.add_argument("--run", help="a trained run of any graph")
    asked = smoke.parse(options, graph=smoke.GRAPH, dim=4)
    if asked.device == "cpu":
        torch.set_num_threads(1)
    data = smoke.load(asked.graph)
    graphs = [data.train, data.valid.align(data.train).graph, data.test.align(data.train).graph]
    links = len(data.train.entities) ** 2 * len(data.train.relations)
    print(f"{asked.graph}: {links:,} links, dim {asked.dim}, {asked.device}\n", flush=True)
    print("| model | blocks | one by one | ratio | floor | of the floor |\n|---|---|---|---|---|---|")
    for name in MODELS:
        engine = engine_of(name, data.train, asked.dim, asked.device)
        ours = best(blocks(engine, graphs), asked.device)
        naive, least = one_by_one(engine, graphs, asked.device), floor(engine, data.train, asked.device)
        print(
            f"| {name} | {ours:.2f} s | {naive:.0f} s | {naive / ours:.0f} | {least:.2f} s | {ours / least:.1f} |",
            flush=True,
        )
    if asked.run or asked.smoke:
        run = focuse.load(asked.run, asked.device) if asked.run else smoke.train()
        run.weight_predictor(full=True)
        for any_type in (False, True):
            start = time.process_time()
            found = run.discover(top=1000, any_type=any_type)
            spent = time.process_time() - start
            where = "all entities" if any_type else "entities where train has them"
            print(f"\n`run.discover(top=1000)`, {where}: {spent:.1f} s, {found.scored:,} links scored, "
                  f"{found.reranked:,} compared by probability")  # fmt: skip


if __name__ == "__main__":
    main()
