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

from focuse.errors import FocuseError, did_you_mean
from focuse.graph.nearest import key, nearest_names

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
        self.beside: tuple[str, Vocabulary] | None = None  # of a graph: what else a name may be, and those names

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

    def find(self, name: str) -> int:
        """The id of one name, −1 if it is unknown: a look at the column, where `ids` first hashes all of it."""
        try:
            return int(pc.index(self.column, pa.scalar(name, self.column.type)).as_py())
        except UnicodeEncodeError:  # a shell passes on bytes that are no text
            return -1

    def id(self, name: str, kind: str = "name", otherwise: str = "") -> int:
        """The id of one name; an unknown one is an error that offers the nearest.

        `otherwise` is what to do with a name of the other kind, like "give it with --relation".
        """
        found = self.find(name)
        if found < 0:
            raise FocuseError(f"the graph has no {kind} {name!r}{self._advice(name, kind, otherwise)}")
        return found

    def nearest(self, name: str, most: int = 3) -> list[str]:
        """The names most like a mistyped one, the nearest first; quick among millions.

        >>> Vocabulary(["Python", "SQL", "café"]).nearest("pyhton"), Vocabulary(["café"]).nearest("CAFE")
        (['Python'], ['café'])
        """
        return nearest_names(name, self.column, most)

    def _advice(self, name: str, kind: str, otherwise: str) -> str:
        """What may have been meant: a name of the other kind, the nearest ones, or any if there are few."""
        offered = self.nearest(name)
        if self.beside is not None and not (offered and key(offered[0]) == key(name)):
            other, names = self.beside
            alike = [each for each in names.nearest(name, 1) if key(each) == key(name)]
            if alike:
                said = "that is" if alike[0] == name else f"{alike[0]!r} is"
                return f": {said} {_article(other)}, not {_article(kind)}{f'; {otherwise}' if otherwise else ''}"
        few = 0 < len(self) <= LISTED
        return did_you_mean(offered) or (f"; it has {', '.join(self)}" if few else "")

    def take(self, ids: npt.NDArray[Any]) -> pa.Array:
        """The names of `ids`, as an Arrow column [n]."""
        return self.column.take(pa.array(ids))

    def write(self, path: Path) -> None:
        """One Parquet column, so that any tool can open it."""
        pq.write_table(pa.table({"name": self.column}), path, compression="zstd")

    @classmethod
    def read(cls, path: Path) -> Vocabulary:
        """What `write` wrote; raises ValueError for what are no names."""
        column = pq.read_table(path)["name"].combine_chunks()
        if not pa.types.is_string(column.type) or column.null_count:
            raise ValueError(f"names are {column.type}, some of them missing")
        column.validate(full=True)  # that they are UTF-8, too
        return cls(column)


def _article(kind: str) -> str:
    return f"an {kind}" if kind[:1] in "aeiou" else f"a {kind}"
