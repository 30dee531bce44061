"""What the programs around the peers share: flags, data, clocks, saved embeddings and the one line of JSON.

Each of those programs runs in an environment of its own, so this file needs NumPy and pandas and nothing of focuse.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import smoke

MODELS = ("complex", "distmult", "transe")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def arguments(description: str, **changed: Any) -> argparse.Namespace:
    """The flags that every system takes; `changed` are defaults of the one at hand. Threads are set at once."""
    parser = argparse.ArgumentParser(description=description)
    for part in ("train", "valid", "test"):
        parser.add_argument(f"--{part}", required=True, type=Path, help="four columns, tab-separated, no header")
    parser.add_argument("--model", choices=MODELS, default="complex")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--negatives", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=0, help="0: 64 batches an epoch")
    parser.add_argument("--epochs", type=int, default=0, help="0: 3, or with --defaults focuse's own number")
    parser.add_argument("--lr", type=float, default=0.0, help="0: the system's own choice")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--focus", choices=("on", "off"), default="off")
    parser.add_argument("--sampling", choices=("per-triple", "shared"), default="per-triple", help="focuse only")
    parser.add_argument("--engine", default="auto", help="focuse only")
    parser.add_argument("--defaults", action="store_true", help="focuse only: its default settings")
    parser.add_argument("--recipe", choices=("published", "default"), default="published", help="PyKEEN only")
    parser.add_argument("--rank", type=int, default=0, help="test triples that the system ranks itself")
    parser.add_argument("--save", type=Path, help="folder for the embeddings")
    parser.add_argument("--save-at", type=_epochs, default=(), help="epochs to save after, as 1,2,5, beside the last")
    parser.set_defaults(**changed)
    chosen = smoke.parse(parser)
    if chosen.smoke:
        with tempfile.TemporaryDirectory() as folder:
            vars(chosen).update(smoke.write(Path(folder)))
            read = len(Data(chosen).train)
        smoke.missing(f"{read:,} training triples were read; benchmarks/peers.py trains on such files")
    if not chosen.defaults:
        chosen.epochs = chosen.epochs or 3
    for name in THREAD_VARIABLES:  # before NumPy or a peer is imported: they look only then
        os.environ[name] = str(chosen.threads)
    return chosen


def _epochs(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


class Data:
    """The three parts as tables of names and weights; valid and test without rows whose names train lacks."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        import numpy as np
        import pandas as pd

        kinds = {"head": str, "relation": str, "tail": str, "weight": np.float32}
        parts = [
            pd.read_csv(path, sep="\t", header=None, names=list(kinds), dtype=kinds, keep_default_na=False, quoting=3)
            for path in (chosen.train, chosen.valid, chosen.test)
        ]
        train = parts[0]
        self.entities = pd.unique(pd.concat([train["head"], train["tail"]]))
        self.relations = pd.unique(train["relation"])
        entities, relations = set(self.entities), set(self.relations)
        self.train, self.valid, self.test = (
            part[part["head"].isin(entities) & part["tail"].isin(entities) & part["relation"].isin(relations)]
            for part in parts
        )
        # The same triples for every system.
        chance = np.random.default_rng(chosen.seed)
        self.ranked = self.test.iloc[chance.permutation(len(self.test))[: chosen.rank]]

    def batch_size(self, chosen: argparse.Namespace) -> int:
        """As asked for, or 64 batches an epoch as in the experiments of the paper."""
        return int(chosen.batch_size) or max(1, -(-len(self.train) // 64))


def triples(part: Any) -> Any:
    """The names of a part: [n, 3] of str."""
    return part[["head", "relation", "tail"]].to_numpy(dtype=object).astype(str)


class Clock:
    """Seconds of each epoch; what is saved in between does not count."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen, self.seconds = chosen, []
        self.at = {*chosen.save_at, chosen.epochs} if chosen.save else set()
        self.last = time.perf_counter()

    def start(self) -> None:
        self.last = time.perf_counter()

    def stop(self) -> bool:
        """An epoch ends; whether its embeddings are to be saved (then call `start` again afterwards)."""
        self.seconds.append(time.perf_counter() - self.last)
        print(f"epoch {len(self.seconds)}: {self.seconds[-1]:.2f} s", flush=True)
        self.start()
        return len(self.seconds) in self.at

    def per_epoch(self) -> float:
        """The median without the first epoch, which warms up."""
        return statistics.median(self.seconds[1:] or self.seconds)

    def save(self, entity: Any, relation: Any, data: Data) -> None:
        """Write the tables [E, d], [R, d] in the order of the data's names, laid out as focuse has them."""
        import numpy as np

        self.chosen.save.mkdir(parents=True, exist_ok=True)
        (self.chosen.save / "settings.json").write_text(json.dumps(asked(self.chosen)))
        target = self.chosen.save / f"epoch-{len(self.seconds):04}.npz"
        half = target.with_suffix(".part")
        with half.open("wb") as file:
            np.savez(
                file,
                entity=np.asarray(entity, np.float32),
                relation=np.asarray(relation, np.float32),
                entities=np.asarray(data.entities, dtype=str),
                relations=np.asarray(data.relations, dtype=str),
                model=self.chosen.model,
                seconds=np.asarray(self.seconds),
            )
        half.replace(target)  # whoever looks on meets whole files only
        self.start()


def peak_memory() -> int:
    """The most memory that this process has held, in MiB."""
    try:
        # Not getrusage: after a fork it may still tell of the parent.
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) // 1024
    except OSError:
        pass
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def report(
    system: str, version: str, chosen: argparse.Namespace, data: Data, clock: Clock, rows: int, **more: Any
) -> None:
    """The last line of a program: everything it found, as JSON. `rows` are the triples of an epoch."""
    found = {
        "system": system,
        "version": version,
        "model": chosen.model,
        "focus": chosen.focus,
        "rows": rows,
        "entities": len(data.entities),
        "relations": len(data.relations),
        "epoch_seconds": [round(one, 4) for one in clock.seconds],
        "seconds_per_epoch": round(clock.per_epoch(), 4),
        "ranked": len(data.ranked),
        "ranking_seconds": None,
        "mrr": None,
        "peak_memory_mib": peak_memory(),
        "threads": chosen.threads,
        "load_average": round(os.getloadavg()[0], 2),
    }
    found |= more
    found["settings"] = asked(chosen) | more.get("settings", {})
    print(json.dumps(found))


def asked(chosen: argparse.Namespace) -> dict[str, Any]:
    """The flags without the names of files."""
    return {name: value for name, value in vars(chosen).items() if name not in ("train", "valid", "test", "save")}
