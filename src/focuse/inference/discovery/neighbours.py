"""Entities whose embeddings are alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from focuse.data.graph import Graph
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError, printable
from focuse.inference.answers import write_table
from focuse.inference.discovery.likeness import (
    INDEX,
    check_measure,
    entity_rows,
    nearest_rows,
    open_index,
    search,
    unit_rows,
)
from focuse.inference.discovery.scope import Ids


@dataclass(frozen=True)
class Neighbour:
    """`neighbour` is the `rank`-th most like `entity`; `similarity` is a cosine, or minus a distance."""

    entity: str
    rank: int
    neighbour: str
    similarity: float


class Neighbours(list[Neighbour]):
    """Neighbours, entity by entity, best first; `print` shows a table."""

    def __str__(self) -> str:
        if not self:
            return "no neighbours"
        several = len({row.entity for row in self}) > 1
        width = max(len(printable(row.neighbour)) for row in self)
        lines: list[str] = []
        for row in self:
            if several and row.rank == 1:
                lines.append(printable(row.entity))
            lines.append(f"{row.rank:>4}  {printable(row.neighbour):{width}}  {row.similarity:7.4f}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return {"neighbours": [asdict(row) for row in self]}

    def to_arrow(self) -> pa.Table:
        names = ("entity", "rank", "neighbour", "similarity")
        kinds = (pa.string(), pa.int64(), pa.string(), pa.float64())
        columns = [
            pa.array([getattr(row, name) for row in self], kind) for name, kind in zip(names, kinds, strict=True)
        ]
        return pa.table(dict(zip(names, columns, strict=True)))

    def write(self, path: str | Path) -> None:
        """Write to .tsv, .csv (with a header) or .parquet, whole or not at all."""
        write_table(self.to_arrow(), Path(path))


def find_neighbours(
    scorer: TableScorer,
    names: Graph,
    entities: Sequence[str],
    top: int = 10,
    among: Ids | None = None,
    measure: str = "cosine",
    together: bool = False,
    index: Any = None,
) -> Neighbours:
    """The nearest of each of `entities`, or of all of them `together` (of their mean), among some ids or all.

    An entity is no neighbour of itself; with `together`, none of those asked for is one.
    """
    check_measure(measure)
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise FocuseError(f"top {top!r}: give at least 1")
    if not entities:
        raise FocuseError("neighbours: give at least one entity")
    asked = np.array([names.entities.id(name, "entity") for name in entities])
    rows = unit_rows(scorer) if measure == "cosine" else entity_rows(scorer)
    queries = rows[torch.from_numpy(asked).to(rows.device)]
    if together:
        queries = queries.mean(0, keepdim=True)
        queries = torch.nn.functional.normalize(queries, dim=1) if measure == "cosine" else queries
    own = len(asked) if together else 1
    if index is not None and among is None:
        value, place = search(index, queries, top + own, measure)
    else:
        some = rows if among is None else rows[torch.from_numpy(among).to(rows.device)]
        found, where = nearest_rows(queries, some, top + own, measure)
        value, place = found.cpu().numpy(), where.cpu().numpy()
        place = place if among is None else among[place]
    labels = [" + ".join(entities)] if together else list(entities)
    made = Neighbours()
    for row, label in enumerate(labels):
        mine = asked if together else asked[row : row + 1]
        keep = (place[row] >= 0) & ~np.isin(place[row], mine)
        for rank, at in enumerate(np.flatnonzero(keep)[:top], 1):
            made.append(Neighbour(label, rank, names.entities[place[row, at]], float(value[row, at])))
    return made


def index_of(scorer: TableScorer, measure: str, folder: Path | None, tables: str) -> Any:
    """The run's index for approximate search, kept in its folder for as long as its tables stay the same."""
    rows = unit_rows(scorer) if measure == "cosine" else entity_rows(scorer)
    path = None
    if folder is not None and tables:
        stem, suffix = INDEX.split(".")
        path = folder / f"{stem}-{measure}-{tables[:12]}.{suffix}"
        for old in folder.glob(f"{stem}-{measure}-*.{suffix}"):
            if old != path:
                old.unlink(missing_ok=True)
    return open_index(rows, measure, path)
