"""Inferred triples for training: read from soft-logic files or grounded from rules, and added to the splits."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from focuse.config import Config
from focuse.data.graph import AlignedGraph, Graph, concatenate
from focuse.data.readers import open_decompressed, read
from focuse.data.splits import Splits
from focuse.errors import FocuseError, counted
from focuse.models.registry import MODELS, model_class
from focuse.rules.grammar import Rule, read_rules
from focuse.rules.grounding import collect, ground
from focuse.training.callbacks import Reporter

DELIMITERS = "\t,;| "


def read_soft_logic(source: Any, train: Graph) -> AlignedGraph:
    """Read inferred triples (head, relation, tail, confidence) and translate them into the ids of `train`.

    `source` is what `focuse.read` accepts: a file, a frame, rows or a graph. Names that train does not have, a missing
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
            f"{_location(graph, int(outside[0]), path)}: the confidence {graph.weight[outside[0]]:g} is outside of "
            f"[0, 1], as are {len(outside):,} of {len(graph):,}; infer them from a graph normalized by 'relation', "
            "'global' or 'quantile'"
        )
    aligned = graph.align(train)
    if aligned.unseen.rows:
        raise _unknown_names_error(graph, train, aligned, path)
    return aligned


def _unknown_names_error(graph: Graph, train: Graph, aligned: AlignedGraph, path: Path | None) -> FocuseError:
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
        f"{_location(graph, first, path)}: {unseen.rows:,} of {len(graph):,} rows name {' and '.join(parts)} that "
        f"{train.source} does not have; infer them over this training graph or remove these rows"
    )


def _location(graph: Graph, row: int, path: Path | None) -> str:
    """Return 'file, line 3' if the line can be found again, else 'source, row 3'."""
    names = {graph.entities[graph.head[row]], graph.relations[graph.relation[row]], graph.entities[graph.tail[row]]}
    try:
        with open_decompressed(path) if path else io.BytesIO() as stream:
            for number, line in enumerate(io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace"), 1):
                # A row is on the line of its number or, if a header and blank lines come before it, further down.
                if number > row and any(names <= _fields(line, delimiter) for delimiter in DELIMITERS):
                    return f"{graph.source}, line {number}"
    except (OSError, pa.ArrowException):
        pass
    return f"{graph.source}, row {row + 1}"


def _fields(line: str, delimiter: str) -> set[str]:
    return {field.strip('"') for field in line.rstrip("\r\n").split(delimiter)}


def with_inferred(splits: Splits, inferred_triples: Any, rules: Any, settings: Config, reporter: Reporter) -> Splits:
    """Return the splits with inferred triples: from a soft-logic file, from rules, or from both."""
    if model_class(settings.model).confidence_head is None:
        names = " or ".join(name for name, model in MODELS.items() if model.confidence_head is not None)
        raise FocuseError(f"soft logic and rules need a model of confidences; train {names}, not {settings.model!r}")
    parts = []
    if inferred_triples is not None:
        parts.append(read_soft_logic(inferred_triples, splits.train).graph)
    if rules is not None:
        weight_scaling = "none" if splits.merger is not None else settings.weight_scaling
        groundings = ground(splits.train, _as_rules(rules), weight_scaling=weight_scaling)
        for grounding in groundings:
            if grounding.note:
                reporter.note(grounding.note)
        parts.append(collect(splits.train, groundings))
    inferred = concatenate(parts)
    if not len(inferred):
        raise FocuseError("the rules infer no triple that train does not have; leave them out, or write others")
    reporter.note(f"{len(inferred):,} inferred triples (soft logic)")
    return replace(splits, inferred=inferred)


def _as_rules(given: Any) -> list[Rule]:
    """Return rules from a file, or as they are."""
    if isinstance(given, str | PathLike):
        return read_rules(Path(given))
    rules = [given] if isinstance(given, Rule) or not isinstance(given, Iterable) else list(given)
    if not all(isinstance(rule, Rule) for rule in rules):
        raise FocuseError("rules: give a file of them, or what focuse.rules.grammar.parse_rules makes of a text")
    return rules
