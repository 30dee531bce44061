"""How long does ranking a whole test set take, both sides, filtered, and in how much memory?

    FOCUSE_DATA=folder python benchmarks/ranking.py [ppi5k nl27k …] [--dim 100] [--device cuda]

Ranks by tables of random numbers, the best of several runs once kernels are compiled, and prints a Markdown table.
The floor is what the arithmetic alone takes at the pace of a bare matrix product of the same size in the same run,
which spends one instruction a number: that product itself, or 3 times it for L1 (subtract, make positive, add; 2 on a
GPU, which makes positive for nothing), 2 times it for L2. A query that several triples share is scored but once, in
the floor as well. FOCUSE_NATIVE=off shows what torch does without our loops.

Needs torch and NumPy (triton on a GPU); without pyarrow it reads the files itself.
"""

import argparse
import ctypes
import gzip
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import smoke
import torch

from focuse.data.triple_index import TripleIndex
from focuse.engines.scorer import TableScorer
from focuse.evaluation.ranking import MAX_SCORES, MAX_SCORES_PER_THREAD, Ranking, rank
from focuse.models import Model
from focuse.models.registry import make_model

MODELS = ("complex", "distmult", "transe", "transe-l2")
INSTRUCTIONS = {("dot", "cpu"): 1, ("dot", "cuda"): 1, ("l1", "cpu"): 3}  # a number; 2 for all others
RUNS = 5
ARENA_MAX = -8  # as malloc.h has it


def triples(name: str) -> list[torch.Tensor]:
    """Train, valid and test as ids, int64 [n, 3] each."""
    try:
        data = smoke.load(name)
        graphs = [data.train, data.valid.align(data.train).graph, data.test.align(data.train).graph]
        parts = [np.stack([graph.head, graph.relation, graph.tail], 1).astype(np.int64) for graph in graphs]
    except ImportError:
        folder = Path(os.environ["FOCUSE_DATA"]) / name
        names = [read(folder / f"{part}.tsv.gz") for part in ("train", "valid", "test")]
        every = np.concatenate(names)
        entities = np.unique(every[:, [0, 2]], return_inverse=True)[1].reshape(-1, 2)
        relations = np.unique(every[:, 1], return_inverse=True)[1]
        ids = np.column_stack([entities[:, 0], relations, entities[:, 1]])
        parts = np.split(ids, np.cumsum([len(part) for part in names])[:-1])
    return [torch.from_numpy(part) for part in parts]


def read(path: Path) -> np.ndarray:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return np.array([line.split("\t")[:3] for line in lines])


def best(work: Callable[[], object], device: str) -> float:
    """Seconds of the fastest run, not counting the first."""
    found = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return min(found[1:])


def peak(work: Callable[[], object], device: str) -> float:
    """Bytes that the work holds at most, beyond what was held before."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return torch.cuda.max_memory_allocated() - before
    ctypes.CDLL(None).malloc_trim(0)  # what earlier work has left goes back, and its peak is forgotten
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    work()
    return resident("VmHWM") - before


def resident(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def product(asked: int, rows: torch.Tensor, device: str) -> Callable[[], None]:
    """A bare matrix product of so many queries with all rows, block by block."""
    queries = torch.randn(asked, rows.shape[1], device=device)
    size = (MAX_SCORES_PER_THREAD if device == "cpu" else MAX_SCORES) // len(rows)
    out = torch.empty(size, len(rows), device=device)

    def work() -> None:
        for some in queries.split(size):
            torch.mm(some, rows.mT, out=out[: len(some)])

    return work


def measure(
    model: Model, dim: int, test: list[torch.Tensor], known: TripleIndex, asked: int, device: str
) -> tuple[float, float, float]:
    """Seconds, the floor of them, and bytes."""
    torch.manual_seed(0)
    entity = torch.randn(known.entities, model.widths(dim)[0], device=device)
    relation = torch.randn(known.relations, model.widths(dim)[1], device=device)
    engine = TableScorer(model, {"entity": entity, "relation": relation})

    def work() -> Ranking:
        return rank(engine, *test, known)

    floor = best(product(asked, entity, device), device) * INSTRUCTIONS.get((model.similarity, device), 2)
    return best(work, device), floor, peak(work, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", default=["ppi5k"])
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    chosen = smoke.parse(parser, data=[smoke.GRAPH], dim=4)
    device = chosen.device
    if device == "cpu":
        ctypes.CDLL(None).mallopt(ARENA_MAX, 1)  # else threads keep what they had, and `peak` does not see it
    print("| data | model | device | triples | queries | seconds | scores/s | floor, s | × floor | peak MB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in chosen.data:
        parts = triples(name)
        entities, relations = (int(max(part[:, at].max() for part in parts)) + 1 for at in ([0, 2], 1))
        known = TripleIndex(*torch.cat(parts).to(device).unbind(1), entities, relations)
        test = [column.contiguous() for column in parts[2].to(device).unbind(1)]
        asked = sum(len(torch.unique(known.query_key(given, test[1]))) for given in (test[0], test[2]))
        for kind in chosen.models:
            taken, floor, memory = measure(make_model(kind), chosen.dim, test, known, asked, device)
            pace = 2 * len(test[0]) * entities / taken
            print(
                f"| {name} | {kind} | {device} | {len(test[0]):,} | {asked:,} | {taken:.4f} | {pace:.2e} "
                f"| {floor:.4f} | {taken / floor:.2f} | {memory / 1e6:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
