"""A large weighted graph by chance, the same for the same seed, written piece by piece.

Degrees follow a power law. Every entity belongs to a hidden group; a relation leads from a group to another one, and
most edges follow it: those are heavy. The others join any two entities and are light. So both can be learnt.

    python benchmarks/large/graph.py --entities 1000000 --edges 10000000 --out graph.tsv
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

import smoke

CHUNK = 1 << 20
GROUPS = 64
FOLLOWING = 0.8  # share of edges that follow their relation
STEEPNESS = (
    3.0  # rank^(-2/3) is how often an entity is met: the most popular of ten million in some hundred thousand edges
)
MULTIPLIER = 2_654_435_761  # odd: names tell nothing of ranks

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Recipe:
    """Sizes and seed of a graph."""

    entities: int
    edges: int
    relations: int = 100
    seed: int = 0

    def pieces(self) -> Iterator[tuple[Ids, Ids, Ids, npt.NDArray[np.float64]]]:
        """Heads, relations, tails and weights, about a million at a time. Every entity is the head of an edge."""
        for number, start in enumerate(range(0, self.edges, CHUNK)):
            count = min(CHUNK, self.edges - start)
            random = np.random.default_rng([self.seed, number])
            head = self._popular(random.random(count), self.entities)
            # Each entity in turn, spread over the whole file, so that none is missing.
            first, last = (self.entities * at // self.edges for at in (start, start + count))
            head[random.choice(count, last - first, replace=False)] = np.arange(first, last)
            relation = random.integers(0, self.relations, count)
            follows = random.random(count) < FOLLOWING
            group = (head + 7 * relation + 1) % GROUPS
            within = self._popular(random.random(count), self.entities // GROUPS) * GROUPS + group
            tail = np.where(follows, within, random.integers(0, self.entities, count))
            weight = np.where(follows, 0.5 + 0.5 * random.random(count), 0.5 * random.random(count))
            yield head, relation, tail, np.round(weight, 3)

    def _popular(self, share: npt.NDArray[np.float64], below: int) -> Ids:
        """Places by their rank: shares in [0, 1) [n] -> ids in [0, below) [n]."""
        return np.minimum((below * share**STEEPNESS).astype(np.int64), below - 1)

    def table(self, head: Ids, relation: Ids, tail: Ids, weight: npt.NDArray[np.float64]) -> pa.Table:
        """Names instead of ids."""
        return pa.table(
            {"head": self._names(head), "relation": _named("r", relation), "tail": self._names(tail), "weight": weight}
        )

    def _names(self, ids: Ids) -> pa.Array:
        bits = 1 << max(1, (self.entities - 1).bit_length())
        return _named("e", ids * MULTIPLIER % bits)

    def write(self, path: Path) -> None:
        """To .tsv or .parquet."""
        schema = pa.schema({name: pa.string() for name in ("head", "relation", "tail")} | {"weight": pa.float64()})  # type: ignore[arg-type]
        with _writer(path, schema) as writer:
            for piece in self.pieces():
                writer.write_table(self.table(*piece))


def _named(letter: str, ids: Ids) -> pa.Array:
    return pc.binary_join_element_wise(letter, pa.array(ids).cast(pa.string()), "")


def _writer(path: Path, schema: pa.Schema) -> Any:
    if path.suffix == ".parquet":
        return pq.ParquetWriter(path, schema)
    plain = arrow_csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    return arrow_csv.CSVWriter(path, schema, write_options=plain)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, default=10_000_000)
    parser.add_argument("--edges", type=int, default=100_000_000)
    parser.add_argument("--relations", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = smoke.parse(parser, entities=100, edges=1000, relations=5)
    recipe = Recipe(given.entities, given.edges, given.relations, given.seed)
    if given.smoke:
        with tempfile.TemporaryDirectory() as folder:
            recipe.write(Path(folder) / "graph.tsv")
            print(f"{(Path(folder) / 'graph.tsv').stat().st_size:,} bytes written")
    else:
        recipe.write(given.out)


if __name__ == "__main__":
    main()
