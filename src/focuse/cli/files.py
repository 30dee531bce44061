"""How the files of one command are laid out, as its options say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from focuse.graph import Graph, read


@dataclass(frozen=True)
class Layout:
    """--columns, --delimiter and --header."""

    columns: str | None
    delimiter: str | None
    header: bool | None

    def read(self, path: Path, relation_weights: Path | None = None) -> Graph:
        chosen = self.columns.split(",") if self.columns else None
        return read(
            path,
            columns=chosen,
            delimiter=self.delimiter,
            header=self.header,
            relation_weights=relation_weights,
        )
