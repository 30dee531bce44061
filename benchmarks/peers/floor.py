"""How fast an epoch could be on this machine: what it must read and multiply, at the rates measured here.

    python benchmarks/peers/floor.py --entities 4999 --width 200 --threads 2

measures the rates alone. With each positive's own η negatives an epoch of n triples uses (η + 3) rows a triple: head,
relation, tail and the negatives; each is read once for the scores and once for the gradients. It multiplies 6 · d
numbers a negative: scores, the queries' gradient, the negatives' gradient, a product and a sum each. With a pool of P
negatives that a batch shares, it multiplies 6 · d · P on each of the two sides, and reads the pool once a batch and
use. Optimizer, random numbers and everything else count nothing, so no program reaches the floor.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import smoke

REPETITIONS = 7
ROUNDS = 4  # calls a repetition, so that a repetition is long enough to time


def measure(entities: int, width: int, threads: int, size: int = 2048) -> dict[str, float]:
    """The best of some repetitions: fp32 multiply-adds in a matrix product, and bytes a second of random rows."""
    import torch

    torch.set_num_threads(threads)
    chance = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, size, generator=chance) for _ in range(2))
    product = torch.empty(size, size)
    flops = 2.0 * size**3 / _best(lambda: torch.mm(left, right, out=product))
    table = torch.randn(entities, width, generator=chance)
    places = torch.randint(entities, (4096, 32), generator=chance)
    # Sums of rows: every row is read, hardly anything is written.
    summed = _best(lambda: torch.nn.functional.embedding_bag(places, table, mode="sum"))
    few = places.flatten()[:1024]
    room = torch.empty(len(few), width)
    copied = _best(lambda: torch.index_select(table, 0, few, out=room)) * places.numel() / len(few)
    return {"flops": flops, "bytes": places.numel() * width * 4.0 / min(summed, copied)}


def _best(work: Callable[[], object]) -> float:
    """Seconds of one call, at its best."""
    work()
    found = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        for _ in range(ROUNDS):
            work()
        found.append((time.perf_counter() - start) / ROUNDS)
    return min(found)


def own_negatives(rates: dict[str, float], rows: int, negatives: int, width: int) -> dict[str, float]:
    """The floor of an epoch in seconds, and what was counted."""
    read = 2.0 * rows * (negatives + 3) * width * 4
    multiplied = 6.0 * rows * negatives * width
    return _floor(rates, read, multiplied)


def shared_pool(rates: dict[str, float], rows: int, pool: int, width: int, batch: int) -> dict[str, float]:
    """The same with `pool` negatives for a whole batch, on both sides."""
    batches = -(-rows // batch)
    read = 2.0 * (3 * rows + 2 * batches * pool) * width * 4
    return _floor(rates, read, 2 * 6.0 * rows * pool * width)


def _floor(rates: dict[str, float], read: float, multiplied: float) -> dict[str, float]:
    seconds = max(read / rates["bytes"], multiplied / rates["flops"])
    return {"seconds": seconds, "bytes": read, "flops": multiplied}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, required=True)
    parser.add_argument("--width", type=int, required=True, help="numbers a row: twice the dimension for ComplEx")
    parser.add_argument("--threads", type=int, default=2)
    chosen = smoke.parse(parser, entities=100, width=8, threads=1)
    os.environ["OMP_NUM_THREADS"] = str(chosen.threads)
    size = 64 if chosen.smoke else 2048
    print(json.dumps(measure(chosen.entities, chosen.width, chosen.threads, size)))


if __name__ == "__main__":
    main()
