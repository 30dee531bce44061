"""Inferred triples for training: read from soft-logic files or grounded from rules, and added to the splits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from focuse.config import SQUARED_ERROR, Config
from focuse.data.graph import AlignedGraph, Graph, concatenate
from focuse.data.readers import read
from focuse.data.splits import Splits
from focuse.errors import FocuseError
from focuse.models.registry import MODELS, model_class
from focuse.rules.grammar import as_rules
from focuse.rules.grounding import collect, ground
from focuse.training.callbacks import Reporter


def read_soft_logic(source: Any, train: Graph) -> AlignedGraph:
    """Read inferred triples (head, relation, tail, confidence) and translate them into the ids of `train`.

    `source` is what `focuse.read` accepts: a file, a frame, rows or a graph. Names that train does not have, a missing
    confidence column and confidences outside of [0, 1] are errors.

    >>> train = read([("a", "r", "b", 0.9), ("b", "r", "c", 0.8)])
    >>> len(read_soft_logic([("a", "r", "c", 0.7)], train).graph)
    1
    """
    graph = read(source)
    if not graph.weighted:
        raise FocuseError(f"{graph.source}: no confidences; give a fourth column with numbers in [0, 1]")
    outside = np.flatnonzero((graph.weight < 0.0) | (graph.weight > 1.0))
    if len(outside):
        raise FocuseError(
            f"{graph.source}, row {outside[0] + 1}: the confidence {graph.weight[outside[0]]:g} is outside of [0, 1], "
            f"as are {len(outside):,} of {len(graph):,}; infer them from a graph normalized by 'relation', 'global' or "
            "'quantile'"
        )
    aligned = graph.align(train)
    if aligned.unseen.rows:
        new_entity = train.entities.ids(graph.entities.column) < 0
        new_relation = train.relations.ids(graph.relations.column) < 0
        row = int(np.argmax(new_entity[graph.head] | new_relation[graph.relation] | new_entity[graph.tail]))
        names = [*aligned.unseen.entity_examples[:3], *aligned.unseen.relation_examples[:3]]
        raise FocuseError(
            f"{graph.source}, row {row + 1}: {aligned.unseen.rows:,} of {len(graph):,} rows have names that "
            f"{train.source} does not have, such as {', '.join(map(repr, names))}; infer them over this training graph "
            "or remove these rows"
        )
    return aligned


def with_inferred(splits: Splits, inferred_triples: Any, rules: Any, settings: Config, reporter: Reporter) -> Splits:
    """Return the splits with inferred triples: from a soft-logic file, from rules, or from both."""
    if model_class(settings.model).confidence_head is None:
        names = " or ".join(name for name, model in MODELS.items() if model.defaults.get("loss") == SQUARED_ERROR)
        raise FocuseError(f"soft logic and rules need a model of confidences; train {names}, not {settings.model!r}")
    if settings.loss != SQUARED_ERROR:
        raise FocuseError(f"soft logic and rules need the loss {SQUARED_ERROR!r}, not {settings.loss!r}")
    parts = []
    if inferred_triples is not None:
        parts.append(read_soft_logic(inferred_triples, splits.train).graph)
    if rules is not None:
        weight_scaling = "none" if splits.merger is not None else settings.weight_scaling
        groundings = ground(splits.train, as_rules(rules), weight_scaling=weight_scaling)
        for grounding in groundings:
            if grounding.note:
                reporter.note(grounding.note)
        parts.append(collect(splits.train, groundings))
    inferred = concatenate(parts)
    if not len(inferred):
        raise FocuseError("the rules infer no triple that train does not have; leave them out, or write others")
    reporter.note(f"{len(inferred):,} inferred triples (soft logic)")
    return replace(splits, inferred=inferred)
