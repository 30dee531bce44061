"""Links out: any result that has a table, as text, Parquet or RDF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from focuse.data.graph import BASE_IRI
from focuse.data.writers import link_suffixes, write_links

__all__ = ["link_suffixes", "write", "write_links"]


def write(result: Any, path: str | Path, base: str = BASE_IRI, asserted: bool = False) -> Path:
    """Write predictions, weighed triples, discoveries or a table of head, relation, tail and numbers; its path.

    In RDF, names that are no IRIs are minted from `base`, and links that are not `asserted` are spoken of, not stated.
    """
    return write_links(result, path, base, asserted)
