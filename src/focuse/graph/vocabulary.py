"""Names and their ids: the id of a name is its place in the list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from focuse.errors import FocuseError, nearest

# Comparing a misspelt name with every known one is slow; past this many only the first are offered.
SUGGESTIONS_FROM = 50_000
LISTED = 12  # so few names are all shown


class Vocabulary:
    """An ordered set of names, held as one Arrow column: no Python object a name.

    >>> skills = Vocabulary(["python", "sql"])
    >>> skills.ids(["sql", "cobol"]).tolist(), skills[0]
    ([1, -1], 'python')
    """

    def __init__(self, names: Iterable[str] | pa.Array) -> None:
        column = names if isinstance(names, pa.Array) else pa.array(list(names), pa.string())
        self.column: pa.Array = column

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, index: int) -> str:
        return str(self.column[int(index)].as_py())

    def __iter__(self) -> Iterator[str]:
        return iter(self.column.to_pylist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and bool(self.column.equals(other.column))

    __hash__ = None  # type: ignore[assignment]

    def ids(self, names: Sequence[str] | pa.Array) -> npt.NDArray[np.int32]:
        """The id of each name, −1 where it is unknown; int32 [n]."""
        column = names if isinstance(names, pa.Array) else pa.array(names, pa.string())
        found = pc.index_in(column, value_set=self.column)
        result: npt.NDArray[np.int32] = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int32)
        return result

    def id(self, name: str, kind: str = "name") -> int:
        """The id of one name; an unknown one is an error that offers the nearest."""
        try:
            found = int(self.ids([name])[0])
        except UnicodeEncodeError:  # a shell passes on bytes that are no text
            found = -1
        if found < 0:
            known = self.column.slice(0, SUGGESTIONS_FROM).to_pylist()
            offered = nearest(name, known)
            if not offered and len(self) <= LISTED:
                offered = f"; it has {', '.join(known)}"
            raise FocuseError(f"the graph has no {kind} {name!r}{offered}")
        return found

    def take(self, ids: npt.NDArray[Any]) -> pa.Array:
        """The names of `ids`, as an Arrow column [n]."""
        return self.column.take(pa.array(ids))

    def write(self, path: Path) -> None:
        """One Parquet column, so that any tool can open it."""
        pq.write_table(pa.table({"name": self.column}), path, compression="zstd")

    @classmethod
    def read(cls, path: Path) -> Vocabulary:
        return cls(pq.read_table(path)["name"].combine_chunks())
