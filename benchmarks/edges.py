"""Memory an edge of a sharded training: what each process holds for itself, the pages of files not counted.

    python benchmarks/edges.py                                  # two processes, 5 and 10 million edges
    python benchmarks/edges.py --options "--filter-negatives"

Graphs of two sizes with the same entities are generated and trained by torchrun. RssAnon and RssFile of every process
are looked at several times a second from outside; what differs between the sizes, divided by the edges that differ, is
an edge's share, and what Python, torch and tables take falls out. "training" is what a process mostly holds once the
run's folder is there and "highest" the most from then on; "most" is that of any time, reading and splitting included;
"mapped" are pages of files, which processes share. `--source` measures another checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as arrow_csv

RELATIONS = 20
KEYS = ("training", "highest", "most", "mapped")
EVERY = 0.1  # seconds between looks
NAME = "an-entity-with-a-long-name-{}"  # text of more than 256 MB is encoded on disk, as that of large graphs is
Samples = dict[int, list[tuple[bool, float, float]]]


def generate(path: Path, edges: int, entities: int) -> None:
    """Edges by chance, as text; every entity has some."""
    random = np.random.default_rng(0)
    names = pa.array([NAME.format(number) for number in range(entities)])
    kinds = pa.array([f"relation-{number}" for number in range(RELATIONS)])
    with arrow_csv.CSVWriter(
        path,
        pa.schema([("head", pa.string()), ("relation", pa.string()), ("tail", pa.string()), ("weight", pa.float64())]),
        write_options=arrow_csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none"),
    ) as file:
        for start in range(0, edges, 1 << 20):
            size = min(1 << 20, edges - start)
            head, tail = (pa.array(_ids(random, start, size, entities)) for _ in range(2))
            weight = np.round(random.random(size), 4)
            columns = [names.take(head), kinds.take(pa.array(random.integers(0, RELATIONS, size))), names.take(tail)]
            file.write_batch(pa.record_batch([*columns, pa.array(weight)], ["head", "relation", "tail", "weight"]))


def _ids(random: np.random.Generator, start: int, size: int, entities: int) -> npt.NDArray[np.int64]:
    ids = random.integers(0, entities, size)
    if not start:
        ids[:entities] = np.arange(min(size, entities))
    return ids


def measure(graph: Path, folder: Path, processes: int, options: list[str], source: Path) -> dict[str, float]:
    """Bytes of the process that holds most, by KEYS; and seconds."""
    out = folder / f"run-{graph.stem}"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command += ["-m", "focuse", "train", str(graph), "--out", str(out), "--engine", "sharded:plain", *options]
    environment = {**os.environ, "FOCUSE_CACHE": str(folder), "FOCUSE_GRAPH_CACHE": "off", "PYTHONPATH": str(source)}
    environment["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
    found: Samples = {}
    started = time.monotonic()
    with (folder / "said.txt").open("w", encoding="utf-8") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
        while process.poll() is None:
            for child in children_of(process.pid):
                looked = look(child)
                if looked is not None:
                    found.setdefault(child, []).append((out.exists(), *looked))
            time.sleep(EVERY)
    if process.returncode:
        raise SystemExit((folder / "said.txt").read_text(encoding="utf-8"))
    training = {child: [row[1:] for row in rows if row[0]] for child, rows in found.items()}
    return {
        "training": max(statistics.median(row[0] for row in rows) for rows in training.values() if rows),
        "highest": max(row[0] for rows in training.values() for row in rows),
        "most": max(row[1] for rows in found.values() for row in rows),
        "mapped": max(statistics.median(row[1] for row in rows) for rows in training.values() if rows),
        "seconds": time.monotonic() - started,
    }


def children_of(parent: int) -> list[int]:
    """Processes that a process has started."""
    path = Path(f"/proc/{parent}/task/{parent}/children")
    try:
        return [int(number) for number in path.read_text(encoding="ascii").split()]
    except OSError:
        return []


def look(process: int) -> tuple[float, float] | None:
    """Bytes of its own and of mapped files; None where it is gone."""
    try:
        text = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except OSError:
        return None
    told = [re.search(rf"{name}:\s+(\d+) kB", text) for name in ("RssAnon", "RssFile", "RssShmem")]
    anonymous, *files = (int(one[1]) * 1024 if one else 0 for one in told)
    return float(anonymous), float(sum(files))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", default="5e6,10e6", help="two sizes [default: 5e6,10e6]")
    parser.add_argument("--entities", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--options", default="", help="further options of focuse train")
    parser.add_argument("--source", type=Path, default=Path(__file__).resolve().parents[1] / "src")
    parser.add_argument("--folder", type=Path, help="where graphs and runs are put [default: a temporary one]")
    given = parser.parse_args()
    few, many = (int(float(word)) for word in given.edges.split(","))
    options = "--dim 4 --epochs 1 --check-every 1 --sharpness 1 --batch-size 65536 --device cpu --quiet"
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder, figures = Path(name), {}
        for edges in (few, many):
            path = folder / f"edges-{edges}.tsv"
            generate(path, edges, given.entities)
            asked = [*shlex.split(options), *shlex.split(given.options)]
            figures[edges] = measure(path, folder, given.processes, asked, given.source)
            path.unlink()
            shown = ", ".join(f"{key} {figures[edges][key] / 1e6:,.0f} MB" for key in KEYS)
            print(f"{edges:,} edges: {shown}, {figures[edges]['seconds']:.0f} s", flush=True)
    slope = {key: (figures[many][key] - figures[few][key]) / (many - few) for key in KEYS}
    print(", ".join(f"{key} {value:.1f}" for key, value in slope.items()), "bytes an edge a process")
    print(json.dumps({"figures": figures, "bytes_an_edge": slope}))


if __name__ == "__main__":
    main()
