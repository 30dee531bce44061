"""Weak and strong scaling of the sharded engine: seconds, bytes and memory a step, measured and as the model says.

    python benchmarks/scaling.py --out scaling.json                    # 1, 2 and 4 processes on this machine
    python benchmarks/scaling.py --processes 1,2 --engine sharded:plain

Weak: every process brings its own share of entities and of the batch. Strong: both stay the same. A table and triples
are drawn by chance, for time does not depend on what they mean. Bytes are what the loopback device of a network of
their own counts, TCP's headers and acknowledgements included; without root they are not measured. Where processes
share cores, as on a machine with fewer cores than processes, nothing can get faster: what is seen is the overhead.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import smoke


@dataclass(frozen=True)
class Size:
    """One training to measure."""

    kind: str
    processes: int
    entities: int
    batch: int
    dim: int
    pool: int
    steps: int
    engine: str


# ---- one process of a measured training --------------------------------------------------------------------------


def worker(size: Size) -> None:
    """Steps on triples drawn by chance; the first process prints what it has measured."""
    import torch

    from focuse.engines.base import Step
    from focuse.engines.factory import make_engine
    from focuse.engines.optimizers import make_optimizer
    from focuse.engines.process_group import init_group
    from focuse.models.registry import make_model
    from focuse.objective.losses import SoftLabelLoss, make_regularizer
    from focuse.objective.negatives import Batch, NegativeSampler
    from focuse.objective.randomness import draw_integers, stream_seed
    from focuse.training.problem import normal_rows

    group = init_group("auto")
    model, relations = make_model("complex"), 100
    random = torch.Generator().manual_seed(0)
    shape = (size.entities, model.widths(size.dim)[0])
    tables = {
        "entity": normal_rows(shape, random, group.shard(size.entities)).to(group.device) * 0.1,
        "relation": torch.randn(relations, model.widths(size.dim)[1], generator=random).to(group.device) * 0.1,
    }
    optimizer = make_optimizer("sparse-adagrad", tables, 0.1)
    engine = make_engine(size.engine, model, tables, optimizer, size.entities)
    sampler, penalty = NegativeSampler("shared", size.pool, size.entities), make_regularizer("l3:1e-3", "touched")
    objective = SoftLabelLoss(5.0)

    def step(number: int) -> None:
        keys = [stream_seed(1, number, place) for place in range(4)]
        ids = [
            draw_integers(key, (size.batch,), below, group.device)
            for key, below in zip(keys, (size.entities, relations, size.entities), strict=False)
        ]
        batch = Batch(*ids, torch.ones(size.batch, device=group.device))
        engine.step(Step(batch, sampler(batch, keys[3]), objective, 1.0, penalty))
        group.any_rank(False)  # as the loop asks after each

    for number in range(3):
        step(number)
    group.barrier()
    before, start = loopback(), time.perf_counter()
    for number in range(size.steps):
        step(3 + number)
    group.barrier()
    seconds, after = (time.perf_counter() - start) / size.steps, loopback()
    held = group.all_reduce(torch.tensor([float(peak())], device=group.device)).item() / group.size
    if group.is_main:
        sent = None if "FOCUSE_ALONE" not in os.environ else (after - before) / size.steps
        print(json.dumps({"seconds": seconds, "bytes": sent, "memory": held, "by": engine.exchange.title}))


def loopback() -> int:
    """Bytes that this network's loopback device has sent."""
    lines = Path("/proc/self/net/dev").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[9]) for line in lines if line.strip().startswith("lo:"))


def peak() -> int:
    """The most memory that this process has held, in bytes."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# ---- all of them -----------------------------------------------------------------------------------------------------


def measure(size: Size) -> dict[str, Any]:
    """The figures of one training, and what the cost model says of it."""
    from sharding_costs import Job, Machines, costs

    values = [str(value) for value in vars(size).values()]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size.processes)]
    command += [str(Path(__file__).resolve()), "--worker", *values]
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    if alone():  # a network namespace of its own: nobody else's bytes are counted
        words = " ".join(f"'{word}'" for word in command)
        command = ["unshare", "--net", "sh", "-c", f"ip link set lo up && exec {words}"]
        environment["FOCUSE_ALONE"] = "1"
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment)
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    job = Job(size.entities, 2 * size.dim, 0, relations=100, batch=size.batch, pool=size.pool, kept=0)
    told = costs(job, Machines(size.processes))
    figures = {"kind": size.kind, "processes": size.processes, "entities": size.entities, "batch": size.batch, **found}
    figures |= {"triples_a_second": size.batch / found["seconds"], "predicted_bytes": told.sent * size.processes}
    return figures | {"predicted_table": told.table}


def alone() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0 and subprocess.run(["unshare", "--net", "true"]).returncode == 0


def text(rows: list[dict[str, Any]]) -> str:
    """A table for people."""
    lines = ["kind    processes  entities   batch  ms/step  triples/s  MB/step  predicted  MB held  of it table"]
    for row in rows:
        sent = "–" if row["bytes"] is None else f"{row['bytes'] / 1e6:.3f}"
        cells = (
            f"{row['kind']:6}  {row['processes']:9}  {row['entities']:8,}  {row['batch']:6,}",
            f"{row['seconds'] * 1e3:7.1f}  {row['triples_a_second']:9,.0f}",
            f"{sent:>7}  {row['predicted_bytes'] / 1e6:9.3f}",
            f"{row['memory'] / 1e6:7.0f}  {row['predicted_table'] / 1e6:11.0f}",
        )
        lines.append("  ".join(cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", default="1,2,4")
    parser.add_argument("--entities", type=int, default=100_000, help="of one process (weak), of all (strong)")
    parser.add_argument("--batch", type=int, default=1024, help="of one process (weak), of all (strong)")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--pool", type=int, default=256)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--engine", default="sharded")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker", nargs=8, help=argparse.SUPPRESS)
    given = smoke.parse(parser, entities=1000, batch=64, dim=4, steps=2, engine="sharded:plain")
    if given.worker:
        kind, *numbers, engine = given.worker
        return worker(Size(kind, *map(int, numbers), engine))
    if given.smoke:  # one process, without torchrun
        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        return worker(Size("weak", 1, given.entities, given.batch, given.dim, given.pool, given.steps, given.engine))
    rows = []
    for kind in ("weak", "strong"):
        for count in map(int, given.processes.split(",")):
            times = count if kind == "weak" else 1
            more = (given.dim, given.pool, given.steps, given.engine)
            rows.append(measure(Size(kind, count, given.entities * times, given.batch * times, *more)))
            print(f"{kind}, {count} processes: {rows[-1]['seconds'] * 1e3:.1f} ms a step", file=sys.stderr, flush=True)
    print(text(rows))
    if given.out:
        given.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
