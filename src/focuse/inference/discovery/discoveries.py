"""Links that a graph lacks, best first: columns with names, a table, files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa

from focuse.errors import printable
from focuse.evaluation.baselines import Floats
from focuse.graph.graph import Graph
from focuse.inference.answers import write_table
from focuse.inference.discovery.scope import Ids

SHOWN = 100  # rows that `print` shows
NUMBERS = ("score", "probability", "expected_weight", "low", "high")


@dataclass(frozen=True)
class Discovery:
    """A link that the graph lacks.

    `score` is the model's, `probability` that it is a fact, `expected_weight` what it would weigh if it is one, in the
    relation's units, with a 90 % interval from `low` to `high`. None where the run cannot tell.
    """

    rank: int
    head: str
    relation: str
    tail: str
    score: float
    probability: float | None = None
    expected_weight: float | None = None
    low: float | None = None
    high: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Discoveries(Sequence[Discovery]):
    """Missing links, best first, in columns: `columns` are float64 [n] each, NaN for None.

    `scored` says how many links the model has scored, `weighed` how many of them were compared by probability, `order`
    what they are ordered by. `print` shows a table, `write` makes a file.
    """

    def __init__(self, names: Graph, ids: tuple[Ids, Ids, Ids], columns: dict[str, Floats]) -> None:
        self.names, self.ids, self.columns = names, ids, columns
        self.scored, self.weighed, self.order, self.strategy = 0, 0, "probability", "exhaustive"
        self.notes: tuple[str, ...] = ()
        self.stopped = False

    def __len__(self) -> int:
        return len(self.ids[0])

    @overload
    def __getitem__(self, place: int) -> Discovery: ...
    @overload
    def __getitem__(self, place: slice) -> list[Discovery]: ...
    def __getitem__(self, place: int | slice) -> Discovery | list[Discovery]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        number = range(len(self))[place]
        head, relation, tail = (int(ids[number]) for ids in self.ids)
        told = {name: float(self.columns[name][number]) for name in NUMBERS}
        score = told.pop("score")
        known = {name: value if np.isfinite(value) else None for name, value in told.items()}
        entities, relations = self.names.entities, self.names.relations
        return Discovery(number + 1, entities[head], relations[relation], entities[tail], score, **known)

    def __iter__(self) -> Iterator[Discovery]:
        return (self[place] for place in range(len(self)))

    def to_dict(self) -> dict[str, Any]:
        return {
            "discoveries": [row.to_dict() for row in self],
            "order": self.order,
            "strategy": self.strategy,
            "scored": self.scored,
            "weighed": self.weighed,
            "stopped": self.stopped,
            "notes": list(self.notes),
        }

    def to_arrow(self) -> pa.Table:
        """rank, head, relation, tail, score, probability, expected_weight, low and high."""
        head, relation, tail = self.ids
        columns: dict[str, Any] = {
            "rank": np.arange(1, len(self) + 1),
            "head": self.names.entities.take(head),
            "relation": self.names.relations.take(relation),
            "tail": self.names.entities.take(tail),
        }
        return pa.table(columns | {name: pa.array(self.columns[name], from_pandas=True) for name in NUMBERS})

    def write(self, path: str | Path) -> None:
        """Write to .tsv, .csv (with a header) or .parquet, whole or not at all."""
        write_table(self.to_arrow(), Path(path))

    def __str__(self) -> str:
        rows = self[:SHOWN]
        names = [[printable(part) for part in (row.head, row.relation, row.tail)] for row in rows]
        widths = [max(map(len, column)) for column in zip(*names, strict=True)] if names else []
        lines = [] if rows else ["no missing link found"]
        for row, parts in zip(rows, names, strict=True):
            cells = "  ".join(f"{part:{width}}" for part, width in zip(parts, widths, strict=True))
            lines.append(f"{row.rank:>4}  {cells}  {row.score:9.3f}{_told(row)}".rstrip())
        if len(self) > SHOWN:
            lines.append(f"… {len(self) - SHOWN:,} more (--out FILE has all)")
        return "\n".join([*lines, *self.notes])


def _told(row: Discovery) -> str:
    text = "" if row.probability is None else f"  probability {row.probability:.3f}"
    if row.expected_weight is not None:
        text += f"  weight ≈ {row.expected_weight:<8.3g}"
    if row.low is not None and row.high is not None:
        text += f" ({row.low:.3g} to {row.high:.3g})"
    return text
