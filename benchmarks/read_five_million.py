"""How fast is a large text file read and encoded, and in how much memory?

    python benchmarks/read_five_million.py [ROWS]

Writes a seeded TSV of URL-like names to a temporary folder, reads it in a fresh process, and prints seconds, peak
memory and the ratio to Arrow's bare CSV parse of the same file in the same run.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

READ = """
import json, resource, sys, time
import pyarrow.csv as csv
start = time.perf_counter()
{body}
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({{"seconds": time.perf_counter() - start, "peak_bytes": peak}}))
"""
OURS = "from focuse.graph import read; graph = read(sys.argv[1]); assert graph.head.max() < len(graph.entities)"
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
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    if sys.argv[1:2] == ["--write"]:
        return write_graph(Path(sys.argv[2]), int(sys.argv[3]))
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.tsv"
        # In a process of its own: a child's peak memory starts at its parent's.
        subprocess.run([sys.executable, __file__, "--write", str(path), str(rows)], check=True)
        ours, bare = measure(OURS, path), measure(BARE, path)
        size = path.stat().st_size
    print(f"{rows:,} rows, {size / 1e6:.0f} MB of text")
    print(f"focuse.read   {ours['seconds']:6.2f} s   peak {ours['peak_bytes'] / 1e9:.2f} GB")
    print(f"bare parse    {bare['seconds']:6.2f} s   peak {bare['peak_bytes'] / 1e9:.2f} GB")
    print(f"ratio         {ours['seconds'] / bare['seconds']:6.2f}")


if __name__ == "__main__":
    main()
