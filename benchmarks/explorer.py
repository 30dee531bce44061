"""The explorer on a graph of a million entities: start, memory, and how long a visitor waits.

python benchmarks/explorer.py                      # 1,000,000 entities, 2,000,000 edges
python benchmarks/explorer.py --entities 100000 --edges 300000
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import smoke

import focuse
from focuse.data.graph import from_columns

SYLLABLES = ["ba", "ken", "lo", "mir", "ta", "ros", "vi", "sha", "gu", "del", "pho", "nar", "qui", "zem", "ot", "ly"]


def name(number: int) -> str:
    """Two words and the number, so that searches find a few or very many: 'Bakenlo miros 123'."""
    digits = [(number * 2654435761 >> shift) & 15 for shift in (0, 4, 8, 12, 16)]
    parts = [SYLLABLES[digit] for digit in digits]
    return f"{''.join(parts[:3]).capitalize()} {''.join(parts[3:])} {number}"


def graph(entities: int, edges: int, seed: int = 0) -> focuse.Graph:
    """Heads evenly, tails with a few hubs (Zipf), weights in [0, 1]."""
    random = np.random.default_rng(seed)
    names = np.array([name(number) for number in range(entities)], object)
    head = np.concatenate([np.arange(entities), random.integers(0, entities, max(0, edges - entities))])[:edges]
    tail = np.minimum(random.zipf(1.3, edges), entities) - 1
    tail = (tail * 7919) % entities
    kinds = np.array([f"relation {number}" for number in range(12)], object)
    relation = random.integers(0, len(kinds), edges)
    return from_columns(names[head], kinds[relation], names[tail], np.round(random.random(edges), 3), "synthetic")


def memory(process: int) -> float:
    """Resident gigabytes, now and at most."""
    text = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS"))) / 2**20


class Visitor:
    """Asks, and keeps how long each answer took."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, **parameters: Any) -> Any:
        address = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=600) as answer:
            return json.load(answer)

    def time(self, path: str, questions: list[dict[str, Any]]) -> tuple[float, float]:
        """Median and 95th percentile in milliseconds."""
        took = []
        for question in questions:
            started = time.perf_counter()
            self.ask(path, **question)
            took.append(1000 * (time.perf_counter() - started))
        return float(np.percentile(took, 50)), float(np.percentile(took, 95))


def measure(folder: Path, entities: int, hub: str, patience: float) -> list[tuple[str, str]]:
    rows = []
    started = time.perf_counter()
    command = [sys.executable, "-m", "focuse", "serve", str(folder), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            text += process.stdout.readline()
        visitor = Visitor(json.loads(text)["url"])
        visitor.ask("api/health")
        rows.append(("start until the first answer", f"{time.perf_counter() - started:.1f} s"))
        while (
            warming := visitor.ask("api/health")["status"] == "warming"
        ) and time.perf_counter() - started < patience:
            time.sleep(1)
        waited = f"{time.perf_counter() - started:.1f} s"
        rows.append(("start until weights are fitted", f"more than {waited}" if warming else waited))
        random = np.random.default_rng(1)
        some = [name(int(number)) for number in random.integers(0, entities, 50)]
        asked: dict[str, tuple[str, list[dict[str, Any]]]] = {
            "search, a whole name": ("api/entities", [{"q": one} for one in some]),
            "search, its first 4 letters": ("api/entities", [{"q": one[:4]} for one in some]),
            "search, 2 letters (a tenth of all names)": ("api/entities", [{"q": one[1:3]} for one in some]),
            "search, misspelled": ("api/entities", [{"q": one[:3] + "x" + one[4:]} for one in some]),
            "neighborhood, 1 step": ("api/neighborhood", [{"entity": one} for one in some]),
            "neighborhood, 2 steps": ("api/neighborhood", [{"entity": one, "depth": 2, "limit": 36} for one in some]),
            "neighborhood of the largest hub": ("api/neighborhood", [{"entity": hub}] * 10),
            "what is missing here": ("api/missing", [{"entity": one, "top": 20} for one in some[:10]]),
        }
        if warming:
            del asked["what is missing here"]
        for title, (path, questions) in asked.items():
            middle, late = visitor.time(path, questions)
            rows.append((title, f"{middle:.0f} ms, {late:.0f} ms"))
        rows.append(("memory of the server", f"{memory(process.pid):.1f} GB"))
        process.send_signal(signal.SIGINT)
        process.wait(30)
    return rows


def page_weight() -> str:
    from focuse.explorer import app

    files = [path for path in (Path(app.__file__).parent / "static").iterdir() if not path.name.startswith("docs")]
    return f"{sum(path.stat().st_size for path in files) / 1000:.0f} kB in {len(files)} files"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=2_000_000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--patience", type=float, default=3600, help="seconds to wait for the run's weights")
    parser.add_argument("--run", type=Path, help="keep the run here, and take it from here the next time")
    options = smoke.parse(parser, entities=200, edges=600, dim=4, patience=0.0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.run or Path(temporary) / "run"
        made = graph(options.entities, options.edges)
        if not folder.exists():
            focuse.train(
                made,
                model="distmult",
                dim=options.dim,
                epochs=1,
                num_negatives=8,
                batch_size=20_000,
                weight_mode="none",
                out=folder,
                progress=False,
            )
        counts = np.bincount(made.tail, minlength=options.entities) + np.bincount(made.head, minlength=options.entities)
        hub = made.entities[int(counts.argmax())]
        rows = [
            ("entities, edges", f"{len(made.entities):,}, {len(made):,}"),
            ("triples of the largest hub", f"{counts.max():,}"),
        ]
        rows += measure(folder, options.entities, hub, options.patience)
        rows.append(("page", page_weight()))
    print(f"{os.cpu_count()} cores\n")
    print("| | median, 95th percentile |\n| --- | ---: |")
    for title, told in rows:
        print(f"| {title} | {told} |")


if __name__ == "__main__":
    main()
