"""How long does it take to look at every missing link of a graph, beside asking query by query?

    FOCUSE_DATA=folder python benchmarks/discover.py [ppi5k] [--dim 100] [--device cuda] [--run RUN]

On a CPU all times are seconds that one core works (CPU time of one thread): they stay the same on a busy machine.

Scores every (head, relation, tail) of the graph, known facts left out, and keeps the 2,000 best of each relation, by
tables of random numbers. Prints a Markdown table with, for each model:

- blocks: `focuse.inference.discovery`, all pairs of entities by all relations (--anywhere), every fact masked;
- one by one: each query (head, relation) scored against all entities by itself, its known answers dropped and the rest
  sorted, as a loop over a prediction call does; timed on a sample of queries and multiplied out;
- floor: the arithmetic alone, at the pace of a bare matrix product of the same block in the same run. An instruction a
  number for dot products (2 products where both sides are scored), 3 for L1 on a CPU (2 on a GPU).

With --run the whole of `run.discover` of a trained run is timed as well, once what it needs is fitted. --neighbours N
measures the approximate index (focuse[ann]) against exact search among N entities in clusters.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import smoke
import torch
from focuse.inference.discovery.likeness import nearest_rows, open_index, search
from focuse.inference.discovery.scope import Scope
from focuse.inference.discovery.sweep import SCORES_AT_ONCE, SCORES_IN_CACHE, sweep
from focuse.inference.discovery.watching import watched

import focuse
from focuse.data.graph import Graph
from focuse.data.triple_index import build_triple_index
from focuse.engines.scorer import TableScorer, make_scorer
from focuse.models.registry import make_model

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
    return make_scorer(model, entity, relation, inverse_relations=inverse)


def blocks(engine: TableScorer, graphs: list[Graph]) -> Callable[[], object]:
    train = graphs[0]
    known = build_triple_index(graphs, engine.device)

    def work() -> object:
        scope = Scope(train, np.arange(len(train.relations)), anywhere=True)
        with watched("", scope.pairs) as watch:
            return sweep(engine, scope, known, KEPT, watch)

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
    rows = max(1, (SCORES_AT_ONCE if device == "cuda" else SCORES_IN_CACHE) // entities)
    table, query = engine.tables["entity"], torch.randn(rows, width, device=device)
    one = best(lambda: [query @ table.T for _ in range(10)], device, 5) / 10
    times = 2 if engine.side_dependent else 1
    if engine.model.similarity == "l1":
        times *= 2 if device == "cuda" else 3
    return one * times * entities / rows * len(graph.relations)


def index(entities: int, dim: int) -> None:
    """Recall and time of the approximate index among entities in clusters."""
    random = np.random.default_rng(0)
    middles = random.normal(size=(max(entities // 50, 1), dim))
    rows = middles[random.integers(0, len(middles), entities)] + random.normal(size=(entities, dim)) * 0.5
    table = torch.nn.functional.normalize(torch.from_numpy(rows.astype(np.float32)), dim=1)
    start = time.process_time()
    made = open_index(table, "cosine")
    built = time.process_time() - start
    asked = table[torch.from_numpy(random.permutation(entities)[:500])]
    exact = nearest_rows(asked, table, 10)[1].numpy()
    found = search(made, asked, 10, "cosine")[1]
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(exact.tolist(), found.tolist(), strict=True)])
    slow = best(lambda: nearest_rows(asked[:1], table, 10), "cpu", 20)
    fast = best(lambda: search(made, asked[:1], 10, "cosine"), "cpu", 20)
    print("\n| entities | recall@10 | exact, a query | index, a query | index made in |\n|---|---|---|---|---|")
    print(f"| {entities:,} | {recall:.3f} | {slow * 1e3:.2f} ms | {fast * 1e3:.2f} ms | {built:.1f} s |")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("graph", nargs="?", default="ppi5k")
    options.add_argument("--dim", type=int, default=100)
    options.add_argument("--device", default="cpu")
    options.add_argument("--run", help="a trained run of any graph")
    options.add_argument("--neighbours", type=int, help="measure the index among so many entities")
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
        for anywhere in (False, True):
            start = time.process_time()
            found = run.discover(top=1000, anywhere=anywhere)
            spent = time.process_time() - start
            run._fitted["estimator"]._memory.clear()  # what it remembers of these links would make the next one quick
            where = "anywhere" if anywhere else "where train has the entities"
            print(f"\n`run.discover(top=1000)`, {where}: {spent:.1f} s, {found.scored:,} links scored, "
                  f"{found.weighed:,} weighed")  # fmt: skip
    if asked.neighbours:
        index(asked.neighbours, asked.dim)


if __name__ == "__main__":
    main()
