"""How the files of one command are laid out, as its options say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from focuse.data.graph import Graph

Query = Annotated[
    str | None,
    typer.Option(help="Rows of a data base (sqlite:///…, duckdb:///…, postgresql://…), like 'SELECT * FROM edges'."),
]


def shown(source: str) -> str:
    """A graph as the user named it, without a password."""
    from focuse.data.readers import is_url

    if not is_url(source):
        return source
    from focuse.integrations.sql import parse_url

    return parse_url(source).shown


@dataclass(frozen=True)
class Layout:
    """--columns, --delimiter, --header, --weight-columns and --query."""

    columns: str | None
    delimiter: str | None
    header: bool | None
    weights: str | None = None
    query: str | None = None

    def read(self, path: str | Path, relation_weights: Path | None = None) -> Graph:
        from focuse.data.readers import read

        chosen = self.columns.split(",") if self.columns else None
        return read(
            path,
            columns=chosen,
            weights=self.weights.split(",") if self.weights else None,
            delimiter=self.delimiter,
            header=self.header,
            relation_weights=relation_weights,
            query=self.query,
        )
