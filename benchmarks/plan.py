"""What a sharded training of many entities needs, by the cost model of sharding_costs.py.

    python benchmarks/plan.py --entities 1e9 --edges 3e9 --dim 100 --processes 64 --rate 20000

Memory of a process for its rows, pages of a file with all edges that the processes of one machine share, bytes a step,
seconds a step and hours an epoch. `--rate` is how many triples a second one process
trains by itself, as benchmarks/scaling.py measures it; `--gigabits` is the network of one process.
"""

from __future__ import annotations

import argparse

import smoke
from sharding_costs import Job, Machines, costs, refused


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    whole = {"entities": 1e8, "edges": 3e8, "dim": 100, "batch": 1024, "pool": 256, "own": 0, "relations": 900}
    for name, usual in whole.items():
        note = ", of one process" if name == "batch" else ""
        parser.add_argument(f"--{name}", type=float, default=usual, help=f"[default: {usual:g}{note}]")
    parser.add_argument("--parts", type=int, default=2, help="numbers an embedding's number has; complex ones two")
    parser.add_argument("--processes", default="4,16,64")
    parser.add_argument("--rate", type=float, default=2e4, help="triples a second of one process")
    parser.add_argument("--gigabits", type=float, default=10.0)
    parser.add_argument("--latency", type=float, default=1e-4, help="seconds a round")
    given = smoke.parse(parser)
    print("processes  GB rows  GB edges a machine  rows/step  MB/step  ms/step  of it network  hours/epoch")
    for count in map(int, given.processes.split(",")):
        sizes = {name: int(getattr(given, name)) for name in ("entities", "edges", "pool", "own", "relations")}
        job = Job(width=given.parts * int(given.dim), batch=int(given.batch) * count, **sizes)
        machines = Machines(count, given.gigabits * 1e9 / 8, given.latency, given.rate)
        found = costs(job, machines)
        network = found.seconds - job.batch / count / given.rate
        cells = (
            f"{count:9}  {found.table / 1e9:7.1f}  {found.edges / 1e9:18.1f}",
            f"{found.rows:9,.0f}  {found.sent / 1e6:7.2f}",
            f"{found.seconds * 1e3:7.1f}  {network * 1e3:13.1f}  {found.epoch / 3600:11.2f}",
        )
        print("  ".join(cells))
    if refused(job):
        print("refused by this version: entities² · relations reach 2⁶³, and a triple is looked up as one number")


if __name__ == "__main__":
    main()
