"""Memory an edge of a sharded training: what each process holds for itself, the pages of files not counted.

    python benchmarks/edges.py                                  # two processes, 5 and 10 million edges
    python benchmarks/edges.py --options "--filter-negatives"
    python benchmarks/edges.py --prepare 20e6,40e6,80e6         # what the first process of a machine does before

Graphs of two sizes with the same entities are generated and trained by torchrun. RssAnon and RssFile of every process
are looked at several times a second from outside; what differs between the sizes, divided by the edges that differ, is
an edge's share, and what Python, torch and tables take falls out. "training" is what a process mostly holds once the
run's folder is there and "highest" the most from then on; "most" is that of any time, reading and splitting included;
"mapped" are pages of files, which processes share. The first process prepares the graph for the others, so it is listed
apart from them; `--prepare` measures that by itself, in this process, on edges that come in blocks. `--source` measures
another checkout.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as arrow_csv
import smoke

RELATIONS = 20
KEYS = ("training", "highest", "most", "mapped")
Figures = dict[str, dict[str, float]]
# What is freed goes back to the system at once, or what reading took would still be counted while a process trains.
GIVEN_BACK = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}
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


def measure(graph: Path, folder: Path, processes: int, options: list[str], source: Path) -> Figures:
    """Bytes of the first process and of the one of the others that holds most, by KEYS."""
    out = folder / f"run-{graph.stem}"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command += ["-m", "focuse", "train", str(graph), "--out", str(out), "--engine", "sharded"]
    command += [
        "--weight-mode",
        "soft-labels",
        "--optimizer",
        "sparse-adam",
        *options,
    ]  # without TorchRec, whose own memory would be counted
    environment = {**os.environ, "FOCUSE_CACHE": str(folder), "PYTHONPATH": str(source)}
    environment |= GIVEN_BACK
    environment["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
    found: Samples = {}
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
    first, *others = (_figures(found[child]) for child in sorted(found))
    return {"first": first, "others": {key: max(each[key] for each in others or [first]) for key in KEYS}}


def _figures(rows: list[tuple[bool, float, float]]) -> dict[str, float]:
    training = [row for row in rows if row[0]]
    return {
        "training": statistics.median(row[1] for row in training),
        "highest": max(row[1] for row in training),
        "most": max(row[1] for row in rows),
        "mapped": statistics.median(row[2] for row in training),
    }


def prepare(edges: int, entities: int) -> None:
    """Encode, split and weigh so many edges, and print the most that each took."""
    from focuse.config import Config
    from focuse.data.out_of_core import encode_blocks, scratch_folder
    from focuse.training.callbacks import Reporter
    from focuse.training.preparation import fit_training_normalizer, ignore_equal_weights, make_splits

    random = np.random.default_rng(0)
    names, kinds = (pa.array(list(map(str, range(count)))) for count in (entities, RELATIONS))

    def blocks() -> Iterator[list[pa.Array]]:
        for start in range(0, edges, 1 << 18):
            size = min(1 << 18, edges - start)
            ids = [random.integers(0, len(words), size, np.int32) for words in (names, kinds, names)]
            named = zip(ids, (names, kinds, names), strict=True)
            columns = [pa.DictionaryArray.from_arrays(pa.array(part), words) for part, words in named]
            yield [*columns, pa.array(random.random(size))]

    with highest() as encoded:
        graph = encode_blocks(blocks(), "edges", True, scratch_folder())
    with highest() as prepared:
        settings = Config.from_kwargs(engine="sharded", label_exponent=1.0, device="cpu")
        splits = make_splits(graph, None, None, 0.1, 0.1, settings, Reporter())
        resolved = settings.resolve(splits.train, "cpu")
        ignore_equal_weights(resolved, splits, fit_training_normalizer(resolved, splits), Reporter())
    print(
        f"{edges:,} edges: {encoded[-1] / 1e6:,.0f} MB to encode, {prepared[-1] / 1e6:,.0f} MB to split and weigh",
        flush=True,
    )


@contextmanager
def highest() -> Iterator[list[float]]:
    """The most bytes that this process takes for itself within, beyond what it had."""
    looked = look(os.getpid())
    found, over = [0.0], threading.Event()
    before = looked[0] if looked else 0.0

    def watch() -> None:
        while not over.wait(0.02):
            now = look(os.getpid())
            found[-1] = max(found[-1], now[0] - before if now else 0.0)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


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
    found = [re.search(rf"{name}:\s+(\d+) kB", text) for name in ("RssAnon", "RssFile", "RssShmem")]
    anonymous, *files = (int(one[1]) * 1024 if one else 0 for one in found)
    return float(anonymous), float(sum(files))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", default="5e6,10e6", help="two sizes [default: 5e6,10e6]")
    parser.add_argument("--entities", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--options", default="", help="further options of focuse train")
    parser.add_argument("--source", type=Path, default=Path(__file__).resolve().parents[1] / "src")
    parser.add_argument("--folder", type=Path, help="where graphs and runs are put [default: a temporary one]")
    parser.add_argument("--prepare", metavar="EDGES,…", help="only what comes before a training, by itself")
    given = smoke.parse(parser, entities=200)
    if given.smoke:
        prepare(4000, given.entities)
        with tempfile.TemporaryDirectory() as name:
            generate(Path(name) / "edges.tsv", 4000, given.entities)
        smoke.missing("the processes of torchrun, which a smoke run does not start")
    if given.prepare:
        if GIVEN_BACK.items() - os.environ.items():  # the system's library looks at it when a program starts
            os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **GIVEN_BACK})
        for count in given.prepare.split(","):
            prepare(int(float(count)), given.entities)
        return
    few, many = (int(float(word)) for word in given.edges.split(","))
    options = "--dim 4 --epochs 1 --eval-every 1 --label-exponent 1 --batch-size 65536 --device cpu --quiet"
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder, figures = Path(name), {}
        for edges in (few, many):
            path = folder / f"edges-{edges}.tsv"
            generate(path, edges, given.entities)
            asked = [*shlex.split(options), *shlex.split(given.options)]
            figures[edges] = measure(path, folder, given.processes, asked, given.source)
            path.unlink()
            print(f"{edges:,} edges", file=sys.stderr, flush=True)
    print(f"{'':22}" + "".join(f"{key:>10}" for key in KEYS))
    for who in ("first", "others"):
        for edges, found in figures.items():
            print(f"{who:7} MB, {edges:10,}" + "".join(f"{found[who][key] / 1e6:10,.0f}" for key in KEYS))
        slope = {key: (figures[many][who][key] - figures[few][who][key]) / (many - few) for key in KEYS}
        print(f"{who:7} bytes an edge  " + "".join(f"{slope[key]:10.1f}" for key in KEYS))


if __name__ == "__main__":
    main()
