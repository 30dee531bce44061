"""The finished rows of a run with the names they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from focuse.engines import ReferenceEngine
from focuse.errors import choose
from focuse.graph.graph import Graph

WHAT = ("entities", "relations", "both")
CHUNK_NUMBERS = 1 << 20  # numbers that are text at a time
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of numbers [n, d] and their names [n]; `kind` is entities or relations."""

    kind: str
    names: pa.Array
    vectors: Vectors

    def __len__(self) -> int:
        return len(self.names)

    @property
    def width(self) -> int:
        return int(self.vectors.shape[1])

    def parts(self) -> Iterator[tuple[pa.Array, Vectors]]:
        """Names and rows, a bounded number at a time."""
        step = max(1, CHUNK_NUMBERS // max(self.width, 1))
        for start in range(0, len(self), step):
            yield self.names.slice(start, step), self.vectors[start : start + step]


def finished_tables(engine: ReferenceEngine, graph: Graph, what: str) -> list[Table]:
    """The tables asked for, as the model takes them: encoded, with the numbers of entities where it looks at them."""
    choose("export", what, WHAT)
    found = engine.finished()
    both = {
        "entities": (graph.entities.column, found["entity"]),
        "relations": (graph.relations.column, found["relation"]),
    }
    return [Table(kind, names, as_numpy(rows)) for kind, (names, rows) in both.items() if what in (kind, "both")]


def as_numpy(rows: torch.Tensor) -> Vectors:
    """A table as float32 in the computer's memory, without a copy where it is there already."""
    found: Any = rows.detach().to("cpu", torch.float32).flatten(1).numpy()
    return found  # type: ignore[no-any-return]
