"""Whether several processes learn what one does: test MRR and ΔMRR of both, on a real graph, over seeds.

    FOCUSE_DATA=folder python benchmarks/same_mrr.py --dataset ppi5k --processes 2 --seeds 3 --epochs 5

One process takes the reference's steps, the others those of the engine 'sharded'. What differs is rounding; what the
seeds differ by is the noise to hold it against.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import smoke

import focuse
from focuse.data.datasets import fetch


def train(folder: Path, out: Path, processes: int, engine: str, settings: list[str]) -> dict[str, Any]:
    """The figures of one training."""
    parts = {name: next(folder.glob(f"{name}.tsv*")) for name in ("train", "valid", "test")}
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes else []
    command = [sys.executable, *launch, "-m", "focuse", "train", str(parts["train"]), "--out", str(out)]
    command += ["--valid", str(parts["valid"]), "--test", str(parts["test"]), "--engine", engine, "--quiet", *settings]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    found = focuse.load(out).evaluate()
    return {"mrr": found.all.mrr, "top_mrr": found.top.mrr, "delta_mrr": found.delta_mrr}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="ppi5k", help="a data set of focuse.datasets")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--dim", type=int, default=50)
    parser.add_argument("--engine", default="sharded")
    parser.add_argument("--out", type=Path, help="JSON file")
    given = smoke.parse(parser, dataset=smoke.GRAPH, processes=0, engine="torch", seeds=1, epochs=1, dim=4)
    rows = []
    print(f"seed  MRR one  MRR {given.processes}    top one  top {given.processes}    ΔMRR one  ΔMRR {given.processes}")
    for seed in range(given.seeds):
        settings = [
            "--seed",
            str(seed),
            "--epochs",
            str(given.epochs),
            "--dim",
            str(given.dim),
            "--label-exponent",
            "1",
        ]
        settings += ["--eval-every", str(given.epochs), "--batch-size", "1024"]
        with tempfile.TemporaryDirectory() as place:
            if given.dataset == smoke.GRAPH:
                smoke.write(folder := Path(place))
            else:
                folder = fetch(given.dataset)
            one = train(folder, Path(place) / "one", 0, "torch", settings)
            many = train(folder, Path(place) / "many", given.processes, given.engine, settings)
        rows.append({"seed": seed, "one": one, "many": many})
        cells = (f"{one[name]:7.4f}  {many[name]:7.4f}" for name in ("mrr", "top_mrr", "delta_mrr"))
        print(f"{seed:4}  {'   '.join(cells)}", flush=True)
    apart = [abs(row["one"]["mrr"] - row["many"]["mrr"]) for row in rows]
    noise = stdev(row["one"]["mrr"] for row in rows) if len(rows) > 1 else float("nan")
    print(f"MRR differs by {mean(apart):.5f} on average, {max(apart):.5f} at most; seeds by {noise:.5f} (deviation)")
    if given.out:
        given.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
