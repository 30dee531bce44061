"""Links that a graph lacks, best first: columns with names, a table, files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from focuse.data.graph import Graph
from focuse.evaluation.metrics import FloatArray
from focuse.inference.answers import Rows
from focuse.inference.discovery.scope import Ids

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


class Discoveries(Rows[Discovery]):
    """Missing links, best first, in columns: `columns` are float64 [n] each, NaN for None.

    `scored` says how many links the model has scored, `weighed` how many of them were compared by probability, `order`
    what they are ordered by. `print` shows a table, `write` makes a file.
    """

    shown, nothing = 100, "no missing link found"

    def __init__(self, names: Graph, ids: tuple[Ids, Ids, Ids], columns: dict[str, FloatArray]) -> None:
        self.names, self.ids, self.columns = names, ids, columns
        self.scored, self.weighed, self.order, self.strategy = 0, 0, "probability", "exhaustive"
        self.stopped = False

    def __len__(self) -> int:
        return len(self.ids[0])

    def row(self, place: int) -> Discovery:
        head, relation, tail = (int(ids[place]) for ids in self.ids)
        told = {name: float(self.columns[name][place]) for name in NUMBERS}
        score = told.pop("score")
        known = {name: value if np.isfinite(value) else None for name, value in told.items()}
        entities, relations = self.names.entities, self.names.relations
        return Discovery(place + 1, entities[head], relations[relation], entities[tail], score, **known)

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

    def line(self, row: Discovery, names: str) -> str:
        return f"{row.rank:>4}  {names}  {row.score:9.3f}{_told(row)}"


def _told(row: Discovery) -> str:
    text = "" if row.probability is None else f"  probability {row.probability:.3f}"
    if row.expected_weight is not None:
        text += f"  weight ≈ {row.expected_weight:<8.3g}"
    if row.low is not None and row.high is not None:
        text += f" ({row.low:.3g} to {row.high:.3g})"
    return text
