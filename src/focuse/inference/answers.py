"""Answers about weights, triple by triple, with their names."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

import numpy as np
import pyarrow as pa

from focuse.data.graph import Graph
from focuse.data.writers import TABLE_SUFFIXES, link_suffixes, write_links
from focuse.errors import FocuseError, printable
from focuse.evaluation.baselines import AnyIds
from focuse.evaluation.metrics import FloatArray
from focuse.storage.atomic import refuse_overwrite

if TYPE_CHECKING:  # which imports this module
    from focuse.inference.weight_predictor import WeightPredictor

NUMBERS = ("expected", "typical", "low", "high", "probability")


@dataclass(frozen=True)
class Weighed:
    """What one triple would weigh if it is a fact, in the graph's units, and how probable it is that it is one.

    `expected` is the mean (least squared error), `typical` the median (least absolute error); the weight lies between
    `low` and `high` as often as the coverage that was asked for says, None where no rows were left to measure that on.
    `probability` is None where the run has nothing to calibrate it on. A `known` fact of train is not guessed: its
    weights are its own.
    """

    head: str
    relation: str
    tail: str
    expected: float
    typical: float
    low: float | None
    high: float | None
    probability: float | None
    known: bool = False

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Triple(Protocol):
    """A row that names a triple."""

    @property
    def head(self) -> str: ...

    @property
    def relation(self) -> str: ...

    @property
    def tail(self) -> str: ...


T = TypeVar("T", bound=Triple)


class Rows(Sequence[T]):
    """Answers held in columns: a row is made when asked for. `print` shows the first, `write` makes a file of all."""

    shown = 50  # rows that `print` shows
    nothing: str | None = None  # what it says where there are none
    notes: tuple[str, ...] = ()

    @abstractmethod
    def row(self, place: int) -> T:
        """The row at a place, counted from 0."""

    @abstractmethod
    def line(self, row: T, names: str) -> str:
        """A row as text; `names` are the three of its triple, in columns."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """All rows as a table."""

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            return [self.row(number) for number in range(*place.indices(len(self)))]
        return self.row(range(len(self))[place])

    def __iter__(self) -> Iterator[T]:
        return map(self.row, range(len(self)))

    def write(self, path: str | Path) -> None:
        """Write to .tsv, .csv (with a header), .parquet or RDF (.ttl, .nt, …), whole or not at all."""
        write_table(self.to_arrow(), Path(path))

    def __str__(self) -> str:
        rows = self[: self.shown]
        names = [[printable(part) for part in (row.head, row.relation, row.tail)] for row in rows]
        widths = [max(map(len, column)) for column in zip(*names, strict=True)] if names else []
        lines = [] if rows or self.nothing is None else [self.nothing]
        for row, parts in zip(rows, names, strict=True):
            cells = "  ".join(f"{part:{width}}" for part, width in zip(parts, widths, strict=True))
            lines.append(self.line(row, cells).rstrip())
        if len(self) > self.shown:
            lines.append(f"… {len(self) - self.shown:,} more (--out FILE has all)")
        return "\n".join([*lines, *self.notes])


class Weighings(Rows[Weighed]):
    """Many answers in columns: `expected`, `typical`, `low`, `high` and `probability` are float64 [n], NaN for None.

    `known` [n] is 1 for facts of train, else 0.
    """

    def __init__(
        self, names: Graph, ids: tuple[AnyIds, AnyIds, AnyIds], columns: dict[str, FloatArray], coverage: float
    ) -> None:
        self.names, self.ids, self.columns, self.coverage = names, ids, columns, coverage
        self.truth: FloatArray | None = None

    def __getattr__(self, name: str) -> FloatArray:
        if name in (*NUMBERS, "known"):
            return self.__dict__["columns"][name]  # type: ignore[no-any-return]
        raise AttributeError(name)

    def __len__(self) -> int:
        return len(self.ids[0])

    def row(self, place: int) -> Weighed:
        head, relation, tail = (int(ids[place]) for ids in self.ids)
        numbers = {name: float(self.columns[name][place]) for name in NUMBERS}
        told: dict[str, Any] = {name: value if np.isfinite(value) else None for name, value in numbers.items()}
        names = self.names
        known = bool(self.columns["known"][place])
        return Weighed(names.entities[head], names.relations[relation], names.entities[tail], **told, known=known)

    def to_dict(self) -> dict[str, Any]:
        return {"coverage": self.coverage, "triples": [row.to_dict() for row in self], "notes": list(self.notes)}

    def to_arrow(self) -> pa.Table:
        """head, relation, tail, the weight if one was given, the five numbers, and whether train has it."""
        head, relation, tail = self.ids
        columns: dict[str, Any] = {
            "head": self.names.entities.take(head),
            "relation": self.names.relations.take(relation),
            "tail": self.names.entities.take(tail),
        }
        if self.truth is not None:
            columns["weight"] = self.truth
        columns |= {name: pa.array(self.columns[name], from_pandas=True) for name in NUMBERS}
        return pa.table(columns | {"known": self.columns["known"].astype(bool)})

    def line(self, row: Weighed, names: str) -> str:
        sure = "" if row.probability is None else f"  probability {row.probability:.3f}"
        return f"{names}  {self._told(row)}{sure}"

    def _told(self, row: Weighed) -> str:
        if row.known:
            return f"weight = {row.expected:<8.3g} known from train"
        found = f"weight ≈ {row.expected:<8.3g} typically {row.typical:<8.3g}"
        if row.low is None or row.high is None:
            return found
        return f"{found}  {self.coverage:.0%} in {row.low:.3g} to {row.high:.3g}"


def check_target(path: Path, suffixes: tuple[str, ...] = (".tsv", ".csv", ".parquet")) -> Path:
    """A file that can be written in one of these forms; raise for others, before any work is done."""
    if path.suffix not in suffixes:
        forms = " or ".join(part for part in (", ".join(suffixes[:-1]), suffixes[-1]) if part)
        raise FocuseError(f"{path}: cannot write {path.suffix or 'a file without suffix'}; use {forms}")
    if not path.absolute().parent.is_dir():
        raise FocuseError(f"{path}: there is no folder {path.parent}; make it first")
    refuse_overwrite(path)
    return path


def write_table(table: pa.Table, path: Path) -> None:
    """Write to .tsv, .csv (with a header) or .parquet, links also as RDF; whole or not at all."""
    links = {"head", "relation", "tail"} <= set(table.column_names)
    write_links(table, check_target(path, link_suffixes() if links else TABLE_SUFFIXES))


def answers(predictor: WeightPredictor, head: AnyIds, relation: AnyIds, tail: AnyIds, coverage: float) -> Weighings:
    """Everything a run says of triples, ids [n] each."""
    if predictor.estimator is None:
        raise FocuseError("the run has no validation triples to calibrate on; train with some (--valid-fraction)")
    columns = predictor.tell(head, relation, tail, coverage)
    found = Weighings(predictor.splits.train, (head, relation, tail), columns, coverage)
    found.notes = predictor.caveats()
    return found
