"""Soft-logic files: confidences that rules inferred for triples outside the training graph."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from focuse.errors import FocuseError, counted
from focuse.graph import Aligned, Graph, read
from focuse.graph.opening import open_bytes

DELIMITERS = "\t,;| "


def read_soft_logic(source: Any, train: Graph) -> Aligned:
    """Read inferred triples (head, relation, tail, confidence) and bring them into the ids of `train`.

    `source` is what `focuse.read` takes: a file, a frame, rows or a graph. Names that train does not have, a missing
    confidence column and confidences outside of [0, 1] are errors.

    >>> train = read([("a", "r", "b", 0.9), ("b", "r", "c", 0.8)])
    >>> len(read_soft_logic([("a", "r", "c", 0.7)], train).graph)
    1
    """
    graph = read(source)
    path = Path(source) if isinstance(source, str | os.PathLike) else None
    if not graph.weighted:
        raise FocuseError(f"{graph.source}: no confidences; give a fourth column with numbers in [0, 1]")
    outside = np.flatnonzero((graph.weight < 0.0) | (graph.weight > 1.0))
    if len(outside):
        raise FocuseError(
            f"{_where(graph, int(outside[0]), path)}: the confidence {graph.weight[outside[0]]:g} lies outside of "
            f"[0, 1], as do {len(outside):,} of {len(graph):,}; infer them from a graph normalized by 'relation', "
            "'global' or 'quantile'"
        )
    aligned = graph.align(train)
    if aligned.unseen.rows:
        raise _unknown(graph, train, aligned, path)
    return aligned


def _unknown(graph: Graph, train: Graph, aligned: Aligned, path: Path | None) -> FocuseError:
    entity = train.entities.ids(graph.entities.column) < 0
    relation = train.relations.ids(graph.relations.column) < 0
    first = int(np.argmax(entity[graph.head] | relation[graph.relation] | entity[graph.tail]))
    unseen, parts = aligned.unseen, []
    for kind, count, names in (
        ("entities", unseen.entities, unseen.entity_examples),
        ("relations", unseen.relations, unseen.relation_examples),
    ):
        if count:
            parts.append(f"{counted(count, kind)} ({', '.join(map(repr, names[:3]))}{', …' if count > 3 else ''})")
    return FocuseError(
        f"{_where(graph, first, path)}: {unseen.rows:,} of {len(graph):,} rows name {' and '.join(parts)} that "
        f"{train.source} does not have; infer them over this training graph or remove these rows"
    )


def _where(graph: Graph, row: int, path: Path | None) -> str:
    """'file, line 3' where the line can be found again, else 'source, row 3'."""
    names = {graph.entities[graph.head[row]], graph.relations[graph.relation[row]], graph.entities[graph.tail[row]]}
    try:
        with open_bytes(path) if path else io.BytesIO() as stream:
            for number, line in enumerate(io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace"), 1):
                # A row stands at its number or, where headings and blank lines come before it, further down.
                if number > row and any(names <= _fields(line, mark) for mark in DELIMITERS):
                    return f"{graph.source}, line {number}"
    except (OSError, pa.ArrowException):
        pass
    return f"{graph.source}, row {row + 1}"


def _fields(line: str, delimiter: str) -> set[str]:
    return {field.strip('"') for field in line.rstrip("\r\n").split(delimiter)}
