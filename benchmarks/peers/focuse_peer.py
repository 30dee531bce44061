"""focuse itself with the same flags and the same line of JSON as the peers; runs where focuse is installed."""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import common

POOL = 512


def main() -> None:
    chosen = common.arguments(__doc__, focus="on")
    import numpy as np
    import torch
    from ranker import Splits

    import focuse
    from focuse.config import Config

    torch.set_num_threads(chosen.threads)
    splits = Splits.read(chosen.train, chosen.valid, chosen.test)
    chance = np.random.default_rng(chosen.seed)
    ranked = splits.test.select(chance.permutation(len(splits.test))[: chosen.rank])
    names = (np.asarray(list(of), dtype=str) for of in (splits.train.entities, splits.train.relations))
    data = SimpleNamespace(ranked=ranked, **dict(zip(("entities", "relations"), names, strict=True)))
    settings = settings_of(chosen)
    if chosen.defaults:
        chosen.epochs = chosen.epochs or Config.from_kwargs(**settings).epochs
    clock = common.Clock(chosen)
    nothing = splits.valid.select(np.empty(0, np.int64))  # so that no look at validation falls into the epochs
    with tempfile.TemporaryDirectory() as folder:
        run = focuse.train(
            splits.train,
            valid=nothing,
            out=Path(folder) / "run",
            progress=Follower(clock, Path(folder) / "run", data),
            # Embeddings are taken out of the checkpoints, which are written between the epochs.
            checkpoint_every="1" if clock.at - {chosen.epochs} else "0",
            **settings,
        )
        if chosen.epochs in clock.at:
            clock.save(*(run.scorer.tables[name].cpu() for name in ("entity", "relation")), data)
    resolved = run.settings.to_dict()
    more: dict[str, Any] = {"settings": resolved}
    if chosen.rank:
        more |= rank(run, splits, ranked)
    packages = {"torch": torch.__version__, "numpy": np.__version__}
    rows = len(splits.train)
    common.report("focuse", focuse.__version__, chosen, data, clock, rows, packages=packages, **more)


def settings_of(chosen: argparse.Namespace) -> dict[str, Any]:
    """As asked for, or whatever focuse does by itself."""
    settings = {"model": chosen.model, "seed": chosen.seed, "engine": chosen.engine, "device": "cpu"}
    settings["weight_mode"] = "none" if chosen.focus == "off" else "focuse"  # the peers' layer, if they have one
    if chosen.defaults:
        return settings | ({"epochs": chosen.epochs} if chosen.epochs else {})
    # The peers' optimizer is Adam; a pool has a size of its own.
    settings |= {
        "dim": chosen.dim,
        "epochs": chosen.epochs,
        "negative_sampling": chosen.sampling,
        "optimizer": "sparse-adam",
    }
    settings |= {"lr": chosen.lr} if chosen.lr else {}
    settings["num_negatives"] = POOL if chosen.sampling == "shared" else chosen.negatives
    return settings | ({"batch_size": chosen.batch_size} if chosen.batch_size else {})


@dataclass
class Follower:
    """Hands the seconds of each epoch on, and saves the embeddings that the newest checkpoint holds."""

    clock: common.Clock
    folder: Path
    data: Any

    def note(self, text: str) -> None:
        print(text, flush=True)

    def start(self, settings: object, epochs_done: int) -> None: ...

    def step(self, epoch: int, share: float) -> None: ...

    def stop(self) -> None: ...

    def epoch(self, row: dict[str, Any]) -> None:
        from safetensors.torch import load_file

        # The checkpoint is the one of the epoch before: this epoch's is written after this call.
        path = self.folder / "checkpoint.safetensors"
        if len(self.clock.seconds) in self.clock.at and path.exists():
            tables = load_file(path)
            self.clock.save(tables["table/entity"], tables["table/relation"], self.data)
        self.clock.seconds.append(row["seconds"])
        print(f"epoch {row['epoch']}: {row['seconds']:.2f} s", flush=True)


def rank(run: Any, splits: Any, ranked: Any) -> dict[str, float]:
    """Seconds to rank, the building of the filter included as in the peers, and the MRR."""
    from focuse.data.graph import AlignedGraph
    from focuse.data.triple_index import build_triple_index
    from focuse.evaluation.evaluate import evaluate

    start = time.perf_counter()
    known = build_triple_index([splits.train, splits.valid, splits.test])
    found = evaluate(run.scorer, AlignedGraph(replace(ranked)), splits.train, known)
    return {"ranking_seconds": round(time.perf_counter() - start, 4), "mrr": found.all.mrr}


if __name__ == "__main__":
    main()
