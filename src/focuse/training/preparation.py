"""Prepare splits from user input: known negatives, weight columns, node attributes and normalization."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from focuse.config import CONFIDENCE_LOSSES, DEFAULTS, Config
from focuse.data.attributes import align_attributes, read_attributes
from focuse.data.graph import DUPLICATE_POLICIES, AlignedGraph, Graph, Weights, concatenate
from focuse.data.out_of_core import LARGE_GRAPH, count_repeated
from focuse.data.readers import read
from focuse.data.splits import HELD_OUT_FRACTION, Splits, split, splits_from_graphs
from focuse.data.triple_index import id_tensors
from focuse.data.undirected import resolve_undirected, with_both_directions
from focuse.data.weight_check import check_weights
from focuse.data.weights import Normalizer, fit_merger, fit_normalizer, in_unit_range
from focuse.errors import FocuseError, counted
from focuse.models.base import Context, Model
from focuse.models.registry import MODELS, model_class
from focuse.objective.losses import takes_weights
from focuse.option_strings import parse_named_numbers
from focuse.system import chunks, format_size, free_memory
from focuse.training.callbacks import Reporter

SPLIT_BYTES = 150  # bytes per edge while a graph is split in memory


def split_known_negatives(graph: Graph, negative: bool = False, zero: bool = False) -> tuple[Graph, Graph | None]:
    """Split a graph into positives and known negatives; the second result is None if there are no known negatives.

    With `negative`, edges with weights below 0 are known negatives; the strength of the evidence is the absolute weight
    divided by the largest one. With `zero`, edges with a weight of exactly 0 are known negatives with strength 1. If an
    edge has several weight columns, all of its values must be negative (or zero). The known negatives keep the
    vocabularies of the graph, and their weights are the strengths in (0, 1].

    >>> graph = read([("a", "r", "b", 2), ("a", "r", "c", -1), ("b", "r", "c", -4)])
    >>> positives, false = split_known_negatives(graph, negative=True)
    >>> len(positives), false.weight.tolist()
    (1, [0.25, 1.0])
    """
    if not (negative or zero) or not graph.weighted or not len(graph):
        return graph, None
    if graph.lower_is_better:
        raise FocuseError(
            f"{graph.source}: lower is better, so that weights of 0 and below are the strongest; name known negatives "
            "in a file of their own (known_negatives)"
        )
    values = graph.weight[:, None] if graph.columns is None else graph.columns.values
    below, nothing = (values < 0) & negative, (values == 0) & zero
    if graph.columns is not None:  # a column in which lower is better never marks a known negative
        turned = np.array([name in graph.columns.lower_is_better for name in graph.columns.names])
        below, nothing = below & ~turned, nothing & ~turned
    rows = (below | nothing | np.isnan(values)).all(axis=1)
    if not rows.any():
        return graph, None
    if rows.all():
        raise FocuseError(f"{graph.source}: all weights mark known negatives; there is no positive to train on")
    largest = np.max(-values, axis=0, where=below, initial=0.0)
    share = np.divide(-values, largest, out=np.ones(values.shape), where=below)
    evidence = np.mean(share[rows], axis=1, where=(below | nothing)[rows])
    return graph.select(~rows), _as_known_negatives(graph.select(rows), evidence)


def read_known_negatives(source: Any) -> Graph:
    """Read known negatives from any source that `read` accepts; a fourth column is the strength of the evidence.

    The sign of the strength is ignored, and the largest one is scaled to 1. Without that column, or if all its values
    are 0, every strength is 1.

    >>> read_known_negatives([("a", "r", "b", 5), ("a", "r", "c", 10)]).weight.tolist()
    [0.5, 1.0]
    """
    graph = read(source)
    evidence = np.abs(graph.weight)
    if not len(graph) or evidence.max() == 0:
        return _as_known_negatives(graph, np.ones(len(graph)))
    without = int((evidence == 0).sum())
    if without:
        raise FocuseError(
            f"{graph.source}: {without:,} of {len(graph):,} known negatives have evidence of strength 0; give all "
            "of them a strength above 0, or remove the column"
        )
    return _as_known_negatives(graph, evidence / evidence.max())


def _as_known_negatives(graph: Graph, evidence: Weights) -> Graph:
    return replace(graph, weight=evidence, columns=None, lower_is_better=False, weighted=True)


def check_node_attributes(settings: Config, given: bool) -> None:
    """Raise FocuseError if a model needs attributes that are not given, or if it cannot use the given ones."""
    wanted = "attributes" in model_class(settings.model).requires
    if wanted and not given:
        raise FocuseError(
            f"model {settings.model!r} needs node_attributes: give a file with the columns entity, attribute, value"
        )
    if given and not wanted:
        names = ", ".join(name for name, model in MODELS.items() if "attributes" in model.requires)
        raise FocuseError(f"model {settings.model!r} does not use node attributes; train one of {names}")


def check_rule_settings(settings: Config, given: bool) -> None:
    """Raise FocuseError if settings for inferred triples are given without rules or inferred triples.

    A rule_loss_weight of 0 is allowed, because it trains without them on purpose.
    """
    names = [name for name in ("rule_loss_weight", "rule_batch_size") if settings.provenance.get(name) == "given"]
    names = [name for name in names if getattr(settings, name) not in (0, DEFAULTS[name])]
    if names and not given and settings.rule_loss_weight:
        raise FocuseError(f"{names[0]} requires rules or inferred_triples")


def report_settings(settings: Config, reporter: Reporter) -> None:
    """Report in three lines the model, how it uses weights and negatives, and where the values come from."""
    exponent = "selected on validation" if settings.label_exponent is None else f"{settings.label_exponent:g}"
    decay = f"β falls to {settings.beta_min:g} in {settings.beta_decay_epochs} epochs"
    weights = {
        "separate": "separate weight model",
        "soft-labels": f"soft-labels, label exponent {exponent}",
        "focuse": f"focuse, {decay if settings.beta is None else f'β {settings.beta:g}'}",
        "none": "none",
    }
    negatives = {"shared": "shared per batch", "per-triple": "per triple", "all": "all entities", "none": "none"}
    count = "" if settings.negative_sampling in ("all", "none") else f"{settings.num_negatives} "
    names = settings.names_by_provenance()
    given, own = (", ".join(names[kind]) for kind in ("given", "model"))
    derived = [f"{name} {getattr(settings, name)}" for name in names["derived"] if not settings.unmet(name)]
    reporter.note(
        f"model: {settings.model}, dim {settings.dim}, {counted(settings.epochs, 'epochs')}, "
        f"batch size {settings.batch_size}, {settings.optimizer}, lr {settings.lr:g}"
    )
    reporter.note(
        f"weights: {weights[settings.weight_mode]}; loss: {settings.loss}; "
        f"negatives: {count}{negatives[settings.negative_sampling]}"
    )
    own = f"; defaults of {settings.model}: {own}" if own else ""
    reporter.note(f"given: {given or 'nothing'}{own}; derived: {', '.join(derived) or 'nothing'}")


def with_node_attributes(splits: Splits, source: Any, reporter: Reporter) -> Splits:
    """Return the splits with node attributes from any source that `read_attributes` accepts; None changes nothing."""
    if source is None:
        return splits
    numbers, notes = align_attributes(read_attributes(source), splits.train.entities)
    for note in (*notes, str(numbers)):
        reporter.note(note)
    return replace(splits, attributes=numbers)


def make_context(model: Model, splits: Splits, device: str) -> Context:
    """Return the context with the edges and node attributes that the model requires."""
    edges = attributes = present = None
    if "edges" in model.requires:
        head, relation, tail = (ids.to(device) for ids in id_tensors(splits.train))
        edges = head, relation, tail
    if "attributes" in model.requires and splits.attributes is not None:
        attributes = torch.from_numpy(splits.attributes.values).to(device)
        present = torch.from_numpy(splits.attributes.present).to(device)
    return Context(edges, attributes, present)


def read_training_graph(graph: Any, reporter: Reporter) -> Graph:
    """Read a graph with at least one edge, and report the rows that were left out."""
    whole = read(graph)
    for note in whole.notes:
        reporter.note(note)
    if not len(whole):
        raise FocuseError(f"{whole.source}: no edges to train on")
    return whole


def make_splits(
    whole: Graph,
    valid: Any,
    test: Any,
    valid_fraction: float | None,
    test_fraction: float | None,
    settings: Config,
    reporter: Reporter,
    false: Any = None,
) -> Splits:
    """Return given or random splits, and report the rows that were merged or left out.

    `false` is a source of known negatives.
    """
    if valid_fraction is not None and valid is not None:
        raise FocuseError("valid_fraction has no effect with a validation graph; leave one of the two out")
    if test_fraction is not None and (valid is not None or test is not None):
        raise FocuseError("test_fraction has no effect with a validation or test graph; leave it out")
    share = HELD_OUT_FRACTION if valid_fraction is None else valid_fraction
    _check_memory_for_splits(whole, settings)
    facts, known_negatives = positives_of(whole, settings)
    if valid is not None or test is not None:  # the parts were made by others; only what is stated applies
        facts = replace(facts, undirected=facts.undirected or False)
    facts, recognized = resolve_undirected(facts)
    if recognized:
        reporter.note(recognized)
    facts = _merge_repeated(facts, settings.duplicates, reporter)
    if valid is None and test is None:
        splits = split(facts, share, HELD_OUT_FRACTION if test_fraction is None else test_fraction, settings.seed)
    else:
        held_valid, held_test = (
            None if part is None else _read_held_out(part, settings, reporter) for part in (valid, test)
        )
        splits = splits_from_graphs(facts, held_valid, held_test, settings.seed, share)
    for note in (*splits.warnings(), *check_weights(splits.train, settings.weight_scaling)):
        reporter.note(str(note))
    return _merge_weight_columns(
        _with_known_negatives(splits, facts, known_negatives, false, settings, reporter), settings, reporter
    )


def _merge_repeated(facts: Graph, policy: str, reporter: Reporter) -> Graph:
    """Merge repeated triples, and report how many there are and what is done."""
    rows = count_repeated(facts) if len(facts) >= LARGE_GRAPH else facts.num_repeated
    if rows:
        counts = counted(rows, "rows", "repeat") + " a (head, relation, tail)"
        if len(facts) < LARGE_GRAPH:
            counts += f", {counted(facts.repeated()[2], 'triples')} with differing weights"
        others = ", ".join(other for other in DUPLICATE_POLICIES if other != policy)
        done = "all rows are kept" if policy == "keep" else f"merged by {policy!r}"
        reporter.note(f"{facts.source}: {counts}; {done} (--duplicates {others})")
    return facts.merge_repeated(policy)


def _check_memory_for_splits(whole: Graph, settings: Config) -> None:
    """Raise FocuseError if a graph that is split in memory would exceed the memory limit."""
    needed, free = SPLIT_BYTES * len(whole), free_memory()
    if settings.memory_limit is not None and len(whole) < LARGE_GRAPH and needed > free:
        raise FocuseError(
            f"{whole.source}: splitting {len(whole):,} edges takes about {format_size(needed)}, and "
            f"{format_size(free)} are free of memory_limit {settings.memory_limit}; raise it"
        )


def read_test_graph(source: Any, settings: Config, splits: Splits) -> AlignedGraph:
    """Read triples to evaluate a run on, aligned to the ids and weight columns of train, without known negatives."""
    aligned = positives_of(read(source), settings, held=True)[0].align(splits.train)
    aligned = replace(aligned, graph=with_both_directions(aligned.graph))
    if splits.known_negatives is not None:
        aligned = replace(
            aligned, graph=aligned.graph.select(~np.isin(aligned.graph.keys, splits.known_negatives.keys))
        )
    return aligned if splits.merger is None else replace(aligned, graph=splits.merger(aligned.graph))


def fit_training_normalizer(settings: Config, splits: Splits) -> Normalizer:
    """Return the normalizer of the training weights; merged weight columns are in [0, 1] already."""
    name = "none" if splits.merger is not None else settings.weight_scaling
    train, literal = (
        splits.train,
        model_class(settings.model).confidence_head is not None or takes_weights(settings.loss),
    )
    if name == "none" and literal and not in_unit_range(train.weight):
        raise FocuseError(
            f"{train.source}: the model {settings.model!r} learns weights in [0, 1] as they are, found "
            f"{train.weight.min():g} to {train.weight.max():g}; use weight_scaling 'relation', 'global' or 'quantile'"
        )
    return fit_normalizer(name or "relation", train)


def positives_of(graph: Graph, settings: Config, held: bool = False) -> tuple[Graph, Graph | None]:
    """Apply `lower_is_better` to a graph, and split it into positives and known negatives."""
    lower = settings.lower_is_better
    if held and graph.columns is not None and not isinstance(lower, bool):  # it may lack some of train's columns
        lower = tuple(name for name in lower if name in graph.columns.names)
    if lower:
        graph = graph.with_lower_is_better(lower if isinstance(lower, bool) else list(lower))
    return split_known_negatives(
        graph, settings.negative_weights == "known-negative", settings.zero_weights == "known-negative"
    )


def _read_held_out(part: Any, settings: Config, reporter: Reporter) -> Graph:
    given = read(part)
    for note in given.notes:
        reporter.note(note)
    graph, known_negatives = positives_of(given, settings, held=True)
    if known_negatives is not None:
        reporter.note(f"{graph.source}: {counted(len(known_negatives), 'known negatives', 'are')} not evaluated")
    return graph


def _with_known_negatives(
    splits: Splits, facts: Graph, known_negatives: Graph | None, false: Any, settings: Config, reporter: Reporter
) -> Splits:
    """Return the splits with known negatives; duplicates keep the strongest evidence, and positives are left out."""
    parts = [] if known_negatives is None else [known_negatives]
    if false is not None:
        aligned = read_known_negatives(false).align(splits.train)
        if aligned.unseen.rows:
            reporter.note(str(aligned))
        parts.append(aligned.graph)
    if not parts:
        return splits
    # `lower_is_better` does not apply to known negatives, because their weights are strengths of evidence.
    source = " and ".join(part.source for part in parts)
    every = replace(concatenate(parts), lower_is_better=False, columns=None, source=source)
    every = with_both_directions(replace(every, undirected=splits.train.undirected)).merge_repeated("max")
    doubted = np.isin(every.keys, facts.keys)
    if doubted.any():
        reporter.note(f"{counted(int(doubted.sum()), 'known negatives', 'are')} also in {facts.source} and left out")
    every = every.select(~doubted)
    if not len(every):
        raise FocuseError(f"{every.source}: none of its known negatives can be used; see the notes, or remove them")
    if settings.weight_mode == "focuse" or settings.loss not in ("multiclass-nll", *CONFIDENCE_LOSSES):
        raise FocuseError("known negatives need the loss 'multiclass-nll', and a weight_mode other than 'focuse'")
    reporter.note(counted(len(every), "known negatives"))
    valid, test = (_without_known_negatives(part, every, reporter) for part in (splits.valid, splits.test))
    return replace(splits, valid=valid, test=test, known_negatives=every)


def _without_known_negatives(part: Graph, false: Graph, reporter: Reporter) -> Graph:
    """Return a held-out split without known negatives."""
    doubted = np.isin(part.keys, false.keys)
    if not doubted.any():
        return part
    reporter.note(f"{part.source}: {counted(int(doubted.sum()), 'known negatives', 'are')} not evaluated")
    return part.select(~doubted)


def _merge_weight_columns(splits: Splits, settings: Config, reporter: Reporter) -> Splits:
    """Merge several weight columns into one weight in every split, with a merger that is fitted to train."""
    if splits.train.columns is None:
        if settings.column_importance is not None:
            raise FocuseError(f"{splits.train.source}: has one weight per edge, but column_importance needs several")
        return splits
    asked = (
        None
        if settings.column_importance is None
        else parse_named_numbers(settings.column_importance, "column_importance")
    )
    merger = fit_merger(splits.train, settings.weight_scaling, asked, settings.seed)
    reporter.note(str(merger))
    valid, test = merger(splits.valid), merger(splits.test)
    return replace(splits, train=merger(splits.train), valid=valid, test=test, merger=merger)


def check_confidences(splits: Splits, settings: Config, reporter: Reporter) -> None:
    """Check the weights for a confidence model, which learns the weights themselves.

    Missing weights are reported; weights outside of [0, 1] that are not normalized raise FocuseError.
    """
    if not splits.train.weighted:
        reporter.note(f"{splits.train.source}: has no weights, so every confidence is 1")
    for part in (splits.valid, splits.test):
        if settings.weight_scaling == "none" and not in_unit_range(part.weight):
            raise FocuseError(
                f"{part.source}: confidences must be in [0, 1], found {part.weight.min():g} to {part.weight.max():g}; "
                "use weight_scaling 'relation', 'global' or 'quantile'"
            )


def _weights_differ(train: Graph, normalizer: Normalizer) -> bool:
    """Return whether the normalized weights differ; they are compared in chunks, and the first often decides."""
    first = normalizer.transform(train.weight[:1], train.relation[:1])
    parts = chunks(len(train), 1 << 20)
    return any(bool((normalizer.transform(train.weight[at], train.relation[at]) != first).any()) for at in parts)


def ignore_equal_weights(settings: Config, splits: Splits, normalizer: Normalizer, reporter: Reporter) -> Config:
    """Return the settings with weight_mode 'none' if all weights are equal, and report it."""
    if settings.weight_mode == "none":
        return settings
    if _weights_differ(splits.train, normalizer):
        return settings
    why = (
        "all weights are equal"
        if np.ptp(splits.train.weight) == 0
        else (f"all weights are equal once normalized by {settings.weight_scaling!r} (try weight_scaling 'global')")
    )
    reporter.note(f"{why}: weights are ignored (weight_mode 'none')")
    return settings.derive(weight_mode="none", label_exponent=None)
