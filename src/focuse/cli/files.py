"""How the files of one command are laid out, as its options say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from focuse.graph import Graph, read


@dataclass(frozen=True)
class Layout:
    """--columns, --delimiter, --header and --weight-columns."""

    columns: str | None
    delimiter: str | None
    header: bool | None
    weights: str | None = None

    def read(self, path: Path, relation_weights: Path | None = None) -> Graph:
        chosen = self.columns.split(",") if self.columns else None
        return read(
            path,
            columns=chosen,
            weights=self.weights.split(",") if self.weights else None,
            delimiter=self.delimiter,
            header=self.header,
            relation_weights=relation_weights,
        )
