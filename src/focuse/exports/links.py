"""Links out: any result that has a table, as text, Parquet or RDF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from focuse.graph.iris import BASE
from focuse.graph.links import SUFFIXES, write_links

__all__ = ["SUFFIXES", "write", "write_links"]


def write(result: Any, path: str | Path, base: str = BASE, asserted: bool = False) -> Path:
    """Write predictions, weighed triples, discoveries or a table of head, relation, tail and numbers; its path.

    In RDF, names that are no IRIs are minted from `base`, and links that are not `asserted` are spoken of, not stated.
    """
    return write_links(result, path, base, asserted)
