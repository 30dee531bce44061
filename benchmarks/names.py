"""How long a misspelt name takes among many: python benchmarks/names.py [NAMES]."""

from __future__ import annotations

import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from focuse.graph import Vocabulary


def names(count: int) -> Vocabulary:
    """Names of two words and a number, and one to look for."""
    random = np.random.default_rng(0)
    words = pa.array(
        ["".join(row).capitalize() for row in random.choice(list("abcdefghijklmnopqrstuvwxyz"), (5000, 7))]
    )
    first, second = (words.take(pa.array(random.integers(0, 5000, count))) for _ in range(2))
    numbered = pc.binary_join_element_wise(first, second, pa.array(np.arange(count)).cast(pa.string()), " ")
    return Vocabulary(pa.concat_arrays([numbered, pa.array(["Machine Learning"])]))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    known = names(count)
    for typed in ("machine_learning", "machin lerning", "Learning Machine", known[count // 2][:-1], "zzzzqqq"):
        wall, processor = time.perf_counter(), time.process_time()
        found = known.nearest(typed)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        print(f"{count:,} names  {typed!r:24} {wall:.2f} s ({processor:.2f} s of a processor)  {found}")


if __name__ == "__main__":
    main()
