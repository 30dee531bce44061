"""From user input to splits: known negatives, weight columns, node attributes and scaling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from focuse.config import SQUARED_ERROR, Config, takes_weights
from focuse.data.attributes import align_attributes, read_attributes
from focuse.data.graph import AlignedGraph, Graph, Weights, concatenate
from focuse.data.out_of_core import LARGE_GRAPH, count_repeated
from focuse.data.readers import read
from focuse.data.splits import Splits, split, splits_from_graphs
from focuse.data.triple_index import id_tensors
from focuse.data.weights import Normalizer, fit_merger, fit_normalizer, in_unit_range
from focuse.errors import FocuseError, counted
from focuse.models.base import Context, Model
from focuse.models.registry import MODELS, model_class
from focuse.option_strings import parse_memory, parse_named_numbers, parse_names
from focuse.system import chunks, free_memory, used_memory
from focuse.training.callbacks import Reporter


def split_known_negatives(graph: Graph, negative: bool = False, zero: bool = False) -> tuple[Graph, Graph | None]:
    """The facts of a graph, and those of its edges that speak against a link (None without any).

    With `negative` weights below 0 do so, as strongly as they are large beside the largest; with `zero` those of
    exactly 0, at full strength. Of several columns all that an edge has must speak against it. The false triples keep
    the graph's vocabularies; their weight is the strength of the evidence in (0, 1].

    >>> graph = read([("a", "r", "b", 2), ("a", "r", "c", -1), ("b", "r", "c", -4)])
    >>> facts, false = split_known_negatives(graph, negative=True)
    >>> len(facts), false.weight.tolist()
    (1, [0.25, 1.0])
    """
    if not (negative or zero) or not graph.weighted or not len(graph):
        return graph, None
    if graph.lower_is_better:
        raise FocuseError(
            f"{graph.source}: lower is better, so that weights of 0 and below are the strongest; name false triples in "
            "a file of their own (--known-negatives)"
        )
    values = graph.weight[:, None] if graph.columns is None else graph.columns.values
    below, nothing = (values < 0) & negative, (values == 0) & zero
    if graph.columns is not None:  # of a column where lower is better, no number speaks against a link
        turned = np.array([name in graph.columns.lower_is_better for name in graph.columns.names])
        below, nothing = below & ~turned, nothing & ~turned
    rows = (below | nothing | np.isnan(values)).all(axis=1)
    if not rows.any():
        return graph, None
    if rows.all():
        raise FocuseError(f"{graph.source}: every weight speaks against its link; there is no fact to train on")
    largest = np.max(-values, axis=0, where=below, initial=0.0)
    share = np.divide(-values, largest, out=np.ones(values.shape), where=below)
    evidence = np.mean(share[rows], axis=1, where=(below | nothing)[rows])
    return graph.select(~rows), _as_false(graph.select(rows), evidence)


def read_known_negatives(source: Any) -> Graph:
    """Triples known to be false, from whatever `read` takes; a fourth column is the strength of the evidence.

    Its sign does not matter and the largest counts as 1; where there is none, or all are 0, every strength is 1.

    >>> read_known_negatives([("a", "r", "b", 5), ("a", "r", "c", 10)]).weight.tolist()
    [0.5, 1.0]
    """
    graph = read(source)
    evidence = np.abs(graph.weight)
    if not len(graph) or evidence.max() == 0:
        return _as_false(graph, np.ones(len(graph)))
    without = int((evidence == 0).sum())
    if without:
        raise FocuseError(
            f"{graph.source}: {without:,} of {len(graph):,} false triples have evidence of strength 0; give every "
            "one a number above 0, or none any"
        )
    return _as_false(graph, evidence / evidence.max())


def _as_false(graph: Graph, evidence: Weights) -> Graph:
    return replace(graph, weight=evidence, columns=None, lower_is_better=False, weighted=True)


def check_numbers(settings: Config, given: bool) -> None:
    """Raise if numbers are given to a model that has no use for them, or are not to one that needs some."""
    wanted = "attributes" in model_class(settings.model).requires
    if wanted and not given:
        raise FocuseError(
            f"model {settings.model!r} needs numbers of entities: give a file of entity, attribute, value with numbers "
            "(--node-attributes)"
        )
    if given and not wanted:
        names = ", ".join(name for name, model in MODELS.items() if "attributes" in model.requires)
        raise FocuseError(f"model {settings.model!r} has no use for numbers of entities; train one of {names}")


def with_numbers(splits: Splits, source: Any, reporter: Reporter) -> Splits:
    """The splits with their entities' numbers, of whatever `read_attributes` takes; None leaves them as they are."""
    if source is None:
        return splits
    numbers, notes = align_attributes(read_attributes(source), splits.train.entities)
    for note in (*notes, str(numbers)):
        reporter.note(note)
    return replace(splits, attributes=numbers)


def context_of(model: Model, splits: Splits, device: str) -> Context:
    """What the model requires of the graph that it is trained on."""
    edges = attributes = present = None
    if "edges" in model.requires:
        head, relation, tail = (ids.to(device) for ids in id_tensors(splits.train))
        edges = head, relation, tail
    if "attributes" in model.requires and splits.attributes is not None:
        attributes = torch.from_numpy(splits.attributes.values).to(device)
        present = torch.from_numpy(splits.attributes.present).to(device)
    return Context(edges, attributes, present)


def read_whole(graph: Any, reporter: Reporter) -> Graph:
    """A graph with edges; what of its source was left out is told."""
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
    valid_share: float,
    test_share: float,
    settings: Config,
    reporter: Reporter,
    false: Any = None,
) -> Splits:
    """Given splits, or random ones; what had to be merged or left out is reported. `false` are known as such."""
    facts, contrary = positives_of(whole, settings)
    _note_negative(facts, reporter)
    repeated = count_repeated(facts) if len(facts) >= LARGE_GRAPH else facts.num_repeated
    if repeated:
        done = "kept" if settings.duplicates == "keep" else f"merged by {settings.duplicates}"
        reporter.note(f"{facts.source}: {counted(repeated, 'rows', 'repeat')} a (head, relation, tail); {done}")
    facts = facts.merge_repeated(settings.duplicates)
    if valid is None and test is None:
        splits = split(facts, valid_share, test_share, settings.seed)
    else:
        held_valid, held_test = (None if part is None else _held(part, settings, reporter) for part in (valid, test))
        splits = splits_from_graphs(facts, held_valid, held_test, settings.seed, valid_share)
    for warning in splits.warnings():
        reporter.note(warning)
    return _merged(_with_false(splits, facts, contrary, false, settings, reporter), settings, reporter)


def _note_negative(facts: Graph, reporter: Reporter) -> None:
    below = int((facts.weight < 0).sum()) if facts.weighted and facts.columns is None else 0
    if below and not facts.lower_is_better:
        reporter.note(
            f"{facts.source}: {counted(below, 'weights', 'lie')} below 0, counting as the weakest facts; if they speak "
            "against their link, say so with --negative-weights against"
        )


def held_out(source: Any, settings: Config, splits: Splits) -> AlignedGraph:
    """Triples to evaluate a run on, in train's ids and with weights made as train's were, without false ones."""
    aligned = positives_of(read(source), settings, held=True)[0].align(splits.train)
    if splits.known_negatives is not None:
        aligned = replace(
            aligned, graph=aligned.graph.select(~np.isin(aligned.graph.keys, splits.known_negatives.keys))
        )
    return aligned if splits.merger is None else replace(aligned, graph=splits.merger(aligned.graph))


def normalizer_of(settings: Config, splits: Splits) -> Normalizer:
    """The normalizer of train's weights by resolved settings; merged columns are in [0, 1] already."""
    name = "none" if splits.merger is not None else settings.weight_scaling
    train, literal = (
        splits.train,
        model_class(settings.model).confidence_head is not None or takes_weights(settings.loss),
    )
    if name == "none" and literal and not in_unit_range(train.weight):
        raise FocuseError(
            f"{train.source}: the model {settings.model!r} learns weights in [0, 1] as they are, found "
            f"{train.weight.min():g} to {train.weight.max():g}; use weight_scaling 'relation', 'global' or 'quantile' "
            "(--weight-scaling relation)"
        )
    return fit_normalizer(name or "relation", train)


def positives_of(graph: Graph, settings: Config, held: bool = False) -> tuple[Graph, Graph | None]:
    """A graph with its direction, without what speaks against a link; and that by itself."""
    lower = parse_names(settings.lower_is_better)
    if held and graph.columns is not None:  # it may lack some of train's columns
        lower = [name for name in lower if name in ("all", *graph.columns.names)]
    if lower:
        graph = graph.with_lower_is_better(True if lower == ["all"] else lower)
    return split_known_negatives(
        graph, settings.negative_weights == "known-negative", settings.zero_weights == "known-negative"
    )


def _held(part: Any, settings: Config, reporter: Reporter) -> Graph:
    graph, contrary = positives_of(read(part), settings, held=True)
    if contrary is not None:
        reporter.note(f"{graph.source}: {counted(len(contrary), 'rows', 'speak')} against a link, not evaluated")
    return graph


def _with_false(
    splits: Splits, facts: Graph, contrary: Graph | None, false: Any, settings: Config, reporter: Reporter
) -> Splits:
    """The splits with their false triples, each once at its strongest; what is a fact as well is left out."""
    parts = [] if contrary is None else [contrary]
    if false is not None:
        aligned = read_known_negatives(false).align(splits.train)
        if aligned.unseen.rows:
            reporter.note(str(aligned))
        parts.append(aligned.graph)
    if not parts:
        return splits
    # Not in train's direction: these numbers say how strong the evidence is.
    every = replace(concatenate(parts), lower_is_better=False, columns=None).merge_repeated("max")
    doubted = np.isin(every.keys, facts.keys)
    if doubted.any():
        reporter.note(f"{counted(int(doubted.sum()), 'false triples', 'stand')} in {facts.source} as facts, left out")
    every = every.select(~doubted)
    if not len(every):
        raise FocuseError(f"{every.source}: none of its false triples can be used; see the notes, or leave them out")
    if settings.weight_mode == "focuse" or settings.loss not in ("multiclass-nll", SQUARED_ERROR):
        raise FocuseError(
            "false triples need weight_mode 'soft-labels', or weight_mode 'none' with the loss 'multiclass-nll'"
        )
    reporter.note(f"{counted(len(every), 'triples')} known to be false")
    valid, test = (_believed(part, every, reporter) for part in (splits.valid, splits.test))
    return replace(splits, valid=valid, test=test, known_negatives=every)


def _believed(part: AlignedGraph, false: Graph, reporter: Reporter) -> AlignedGraph:
    """A held-out part without what is said to be false."""
    doubted = np.isin(part.graph.keys, false.keys)
    if not doubted.any():
        return part
    reporter.note(f"{part.graph.source}: {counted(int(doubted.sum()), 'rows', 'are')} said to be false, not evaluated")
    return replace(part, graph=part.graph.select(~doubted))


def _merged(splits: Splits, settings: Config, reporter: Reporter) -> Splits:
    """Several columns made one weight in every split, by what train says of them."""
    if splits.train.columns is None:
        named = [
            name for name in ("column_importance", "column_beta_decay_epochs") if getattr(settings, name) is not None
        ]
        if named:
            raise FocuseError(f"{splits.train.source}: one weight an edge, {named[0]} is about several columns")
        return splits
    asked = (
        None
        if settings.column_importance is None
        else parse_named_numbers(settings.column_importance, "column_importance")
    )
    merger = fit_merger(splits.train, settings.weight_scaling, asked, settings.seed)
    for name in parse_named_numbers(settings.column_beta_decay_epochs or "", "column_beta_decay_epochs"):
        splits.train.columns.index(name)
    reporter.note(str(merger))
    valid, test = (replace(part, graph=merger(part.graph)) for part in (splits.valid, splits.test))
    return replace(splits, train=merger(splits.train), valid=valid, test=test, merger=merger)


def check_confidences(splits: Splits, settings: Config, reporter: Reporter) -> None:
    """A model of confidence learns the weights themselves: they must be there, and lie in [0, 1] unless normalized."""
    if not splits.train.weighted:
        reporter.note(f"{splits.train.source}: no weights given, every confidence is taken for 1")
    for part in (splits.valid.graph, splits.test.graph):
        if settings.weight_scaling == "none" and not in_unit_range(part.weight):
            raise FocuseError(
                f"{part.source}: confidences lie in [0, 1], found {part.weight.min():g} to {part.weight.max():g}; use "
                "weight_scaling 'relation', 'global' or 'quantile'"
            )


def _differ(train: Graph, normalizer: Normalizer) -> bool:
    """Whether not all normalized weights are equal; a piece at a time, for the first often tells."""
    first = normalizer.transform(train.weight[:1], train.relation[:1])
    parts = chunks(len(train), 1 << 20)
    return any(bool((normalizer.transform(train.weight[at], train.relation[at]) != first).any()) for at in parts)


def ignore_equal_weights(settings: Config, splits: Splits, normalizer: Normalizer, reporter: Reporter) -> Config:
    """Without differing weights there is nothing to learn from them: weight_mode becomes 'none', with a note."""
    if settings.weight_mode == "none":
        return settings
    if _differ(splits.train, normalizer):
        return settings
    why = (
        "all weights are equal"
        if np.ptp(splits.train.weight) == 0
        else (f"all weights are equal once normalized by {settings.weight_scaling!r} (try weight_scaling 'global')")
    )
    reporter.note(f"{why}: weights are ignored (weight_mode 'none')")
    return replace(settings, weight_mode="none", label_exponent=None)


# ---- memory ---------------------------------------------------------------------------------------------------------

PARTITIONED = "partitioned"
EDGE_BYTES = 28  # ids and weight of an edge, in a training in memory
MOMENTS = {"row-adagrad": 1, "row-adam": 2}  # numbers that an optimizer keeps per parameter


def choose_engine(config: Config, splits: Splits, reporter: Reporter, in_folder: bool) -> Config:
    """The config, with the engine 'partitioned' if it is asked for or if 'auto' does not fit into memory.

    `in_folder`: the run is written to a folder while it trains, which partitions need.
    """
    if config.engine not in ("auto", PARTITIONED):
        return config
    if config.engine == "auto" and config.partitions is None and fits_in_memory(config, splits):
        return config
    from focuse.training.memory_planner import plan_partitions  # which imports this module

    return plan_partitions(config, splits, reporter, in_folder)


def fits_in_memory(config: Config, splits: Splits) -> bool:
    """Whether the tables and edges of a training fit into main memory; a GPU's own memory is not looked at."""
    memory = available_memory(config)
    return memory is None or config.device != "cpu" or needed_memory(config, splits) <= 0.8 * memory


def available_memory(config: Config) -> int | None:
    """Free bytes, or what is left of the `memory_limit` of the config; None if that is unknown."""
    return free_memory() if config.memory_limit is None else max(0, parse_memory(config.memory_limit) - used_memory())


def needed_memory(config: Config, splits: Splits) -> int:
    """Bytes that a training in memory needs: embeddings with the optimizer's state, and edges."""
    model, train = config.make_model(), splits.train
    numbers = len(train.entities) * model.widths(config.dim)[0]
    copies = 1 if len(splits.valid.graph) else 0  # of the best tables so far
    return 4 * numbers * (1 + MOMENTS.get(config.optimizer, 2) + copies) + EDGE_BYTES * len(train)
