"""How fast is a large text file read and encoded, and in how much memory?

    python benchmarks/read_five_million.py [ROWS]

Writes a seeded TSV of URL-like names to a temporary folder and reads it in a fresh process. Prints seconds, rows per
second, peak memory and the ratio to Arrow's bare CSV parse of the same file in the same run. Imports are not counted;
on a busy machine the ratio and the processor time are more reliable than the seconds.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import smoke

READ = """
import json, resource, sys, time
import pyarrow.csv as csv
from focuse.data.readers import read
start, busy = time.perf_counter(), time.process_time()
{body}
seconds, busy = time.perf_counter() - start, time.process_time() - busy
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({{"seconds": seconds, "processor": busy, "peak_bytes": peak}}))
"""
OURS = "graph = read(sys.argv[1])"
BARE = """
table = csv.read_csv(sys.argv[1], read_options=csv.ReadOptions(autogenerate_column_names=True),
                     parse_options=csv.ParseOptions(delimiter="\\t", quote_char=False))
"""


def write_graph(path: Path, rows: int, entities: int = 500_000, relations: int = 50) -> None:
    random = np.random.default_rng(0)
    columns = {
        "head": np.char.add("http://example.org/entity/", (random.zipf(1.3, rows) % entities).astype(str)),
        "relation": np.char.add("relation_", random.integers(0, relations, rows).astype(str)),
        "tail": np.char.add("http://example.org/entity/", random.integers(0, entities, rows).astype(str)),
        "weight": random.random(rows).round(4),
    }
    options = pa.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    pa.csv.write_csv(pa.table(columns), path, options)


def measure(body: str, path: Path) -> dict[str, float]:
    program = READ.format(body=body)
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def main() -> None:
    if sys.argv[1:2] == ["--write"]:
        return write_graph(Path(sys.argv[2]), int(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", metavar="ROWS", type=int, nargs="?", default=5_000_000)
    rows = smoke.parse(parser, rows=10_000).rows
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.tsv"
        # In a process of its own: a child's peak memory starts at its parent's.
        subprocess.run([sys.executable, __file__, "--write", str(path), str(rows)], check=True)
        programs = {"bare parse": BARE, "focuse.read": OURS}
        found = {name: measure(body, path) for name, body in programs.items()}
        size = path.stat().st_size
    print(f"{rows:,} rows, {size / 1e6:.0f} MB of text")
    for name, row in found.items():
        print(
            f"{name:14} {row['seconds']:8.3f} s  {row['processor']:8.3f} s of processor  "
            f"{rows / row['seconds'] / 1e6:8.2f} million rows/s  peak {row['peak_bytes'] / 1e9:.2f} GB"
        )
    bare, ours = (row["seconds"] for row in found.values())
    print(f"focuse.read / bare parse    {ours / bare:10.2f}")


if __name__ == "__main__":
    main()
