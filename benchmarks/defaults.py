"""Why the defaults are what they are: each beside what it was chosen over, on real graphs.

    FOCUSE_DATA=folder python benchmarks/defaults.py ppi5k nl27k cn15k

Trains every row once with seed 0 and prints, on test: the MRR of all triples, of the heaviest and of the lightest
tenth, and ΔMRR. The last row trains on weights that were shuffled: what FocusE gains by them must fall away.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
import smoke

import focuse

FORMER = {"negative_sampling": "per-triple", "optimizer": "sparse-adam", "epochs": 100}
ROWS: dict[str, dict[str, Any]] = {
    "default, but for the paper's layer": {},
    "own negatives": {"negative_sampling": "per-triple"},
    "own negatives, Adam, 100 epochs": FORMER,
    "Adam": {"optimizer": "sparse-adam"},
    "Adam, lr 0.005": {"optimizer": "sparse-adam", "lr": 0.005},
    "lr 0.05": {"lr": 0.05},
    "lr 0.2": {"lr": 0.2},
    "a pool of 512": {"num_negatives": 512},
    "batches of 512": {"batch_size": 512},
    "batches of 4,096": {"batch_size": 4096},
    "100 epochs": {"epochs": 100},
    "FocusE off": {"weight_mode": "none"},
    "default: labels": {"weight_mode": "soft-labels"},
    "DistMult": {"model": "distmult"},
    "DistMult, own negatives, Adam, 100 epochs": {"model": "distmult", **FORMER},
    "TransE": {"model": "transe"},
    "weights shuffled": {},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", default=["ppi5k", "nl27k", "cn15k"])
    parser.add_argument("--device", default="auto")
    chosen = smoke.parse(parser, data=[smoke.GRAPH])
    less = {"dim": 4, "epochs": 1} if chosen.smoke else {}
    print("| data | settings | MRR | top | bottom | ΔMRR |\n| --- | --- | --- | --- | --- | --- |")
    for name in chosen.data:
        data = smoke.load(name)
        for label, settings in ROWS.items():
            train = data.train
            if label == "weights shuffled":
                train = replace(train, weight=np.random.default_rng(0).permutation(train.weight))
            run = focuse.train(
                train,
                valid=data.valid,
                test=data.test,
                progress=False,
                device=chosen.device,
                **{"weight_mode": "focuse", **settings, **less},
            )
            found = run.evaluate()
            figures = (found.all.mrr, found.top.mrr, found.bottom.mrr, found.delta_mrr)
            print(f"| {name} | {label} | {' | '.join(f'{figure:.3f}' for figure in figures)} |", flush=True)


if __name__ == "__main__":
    main()
