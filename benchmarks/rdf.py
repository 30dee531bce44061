"""How fast is RDF read and written, and in how much memory?

    python benchmarks/rdf.py [TRIPLES]

Writes seeded N-Triples to a temporary folder: facts alone, and the same facts with a weight noted on each (RDF 1.2,
three statements an edge). Each is read in a fresh process without the cache, beside a bare loop of pyoxigraph's parser
over the same file. Prints seconds, processor seconds, statements a second and peak memory; imports are not counted.
On a busy machine look at processor time.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import smoke

PROGRAM = """
import json, resource, sys, time
import pyoxigraph
from pathlib import Path
from focuse.data.readers import read
start, busy = time.perf_counter(), time.process_time()
{body}
seconds, busy = time.perf_counter() - start, time.process_time() - busy
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({{"seconds": seconds, "processor": busy, "peak_bytes": peak}}))
"""
BARE = """
for statement in pyoxigraph.parse(path=sys.argv[1], format=pyoxigraph.RdfFormat.N_TRIPLES):
    pass
"""
OURS = "graph = read(sys.argv[1])"


def write_graphs(folder: Path, triples: int, entities: int = 100_000, relations: int = 50) -> None:
    from focuse.data.graph import from_columns

    random = np.random.default_rng(0)
    head, tail = (random.integers(0, entities, triples) for _ in range(2))
    names = [np.char.add("http://example.org/entity/", ids.astype(str)).tolist() for ids in (head, tail)]
    kinds = np.char.add("http://example.org/relation/", random.integers(0, relations, triples).astype(str)).tolist()
    from_columns(names[0], kinds, names[1]).write(folder / "facts.nt")
    noted = from_columns(names[0], kinds, names[1], random.random(triples))
    start, busy = time.perf_counter(), time.process_time()
    noted.write(folder / "weights.nt")
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    (folder / "written.json").write_text(
        json.dumps({"seconds": seconds, "processor": busy, "peak_bytes": peak}), encoding="utf-8"
    )


def measure(body: str, path: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=body), str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    return dict(json.loads(done.stdout))


def main() -> None:
    if sys.argv[1:2] == ["--write"]:
        return write_graphs(Path(sys.argv[2]), int(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("triples", metavar="TRIPLES", type=int, nargs="?", default=1_000_000)
    triples = smoke.parse(parser, triples=5_000).triples
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, __file__, "--write", name, str(triples)], check=True)
        found = {"weights, written": (3 * triples, json.loads((folder / "written.json").read_text(encoding="utf-8")))}
        for file, statements in (("facts", triples), ("weights", 3 * triples)):
            for what, body in (("bare parse", BARE), ("read", OURS)):
                found[f"{file}, {what}"] = statements, measure(body, folder / f"{file}.nt")
        sizes = [(folder / f"{file}.nt").stat().st_size / 1e6 for file in ("facts", "weights")]
    print(f"{triples:,} facts, {sizes[0]:.0f} MB of N-Triples; with weights {sizes[1]:.0f} MB")
    for label, (statements, row) in found.items():
        print(
            f"{label:20} {row['seconds']:8.2f} s  {row['processor']:8.2f} s of processor  "
            f"{statements / row['processor'] / 1e6:6.2f} million statements a processor second  "
            f"peak {row['peak_bytes'] / 1e9:.2f} GB"
        )


if __name__ == "__main__":
    main()
