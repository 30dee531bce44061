"""From what the user gives to splits that training can use: directions, false triples, merged columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from focuse.errors import FocuseError, counted
from focuse.evaluation.weighing import join
from focuse.graph import Aligned, Graph, read
from focuse.graph.arrays import chunks
from focuse.graph.contrary import read_false, take_apart
from focuse.graph.holding import LARGE
from focuse.graph.holding import repeated as count_repeated
from focuse.graph.merging import fit_merger
from focuse.graph.splits import Splits, given, split
from focuse.graph.weights import Normaliser, fit_normaliser, in_unit_range
from focuse.models import kind_of
from focuse.training.progress import Reporter
from focuse.training.settings import SQUARED_ERROR, Settings, takes_weights
from focuse.training.specs import parse_named, parse_names


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
    settings: Settings,
    reporter: Reporter,
    false: Any = None,
) -> Splits:
    """Given splits, or random ones; what had to be merged or left out is reported. `false` are known as such."""
    facts, contrary = facts_of(whole, settings)
    _note_negative(facts, reporter)
    repeated = count_repeated(facts) if len(facts) >= LARGE else facts.repeated
    if repeated:
        done = "kept" if settings.duplicates == "keep" else f"merged by {settings.duplicates}"
        reporter.note(f"{facts.source}: {counted(repeated, 'rows', 'repeat')} a (head, relation, tail); {done}")
    facts = facts.merge_repeated(settings.duplicates)
    if valid is None and test is None:
        splits = split(facts, valid_share, test_share, settings.seed)
    else:
        held_valid, held_test = (None if part is None else _held(part, settings, reporter) for part in (valid, test))
        splits = given(facts, held_valid, held_test, settings.seed, valid_share)
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


def held_out(source: Any, settings: Settings, splits: Splits) -> Aligned:
    """Triples to evaluate a run on, in train's ids and with weights made as train's were, without false ones."""
    aligned = facts_of(read(source), settings, held=True)[0].align(splits.train)
    if splits.false is not None:
        aligned = replace(aligned, graph=aligned.graph.select(~np.isin(aligned.graph.keys, splits.false.keys)))
    return aligned if splits.merger is None else replace(aligned, graph=splits.merger(aligned.graph))


def normaliser_of(settings: Settings, splits: Splits) -> Normaliser:
    """The normaliser of train's weights by resolved settings; merged columns are in [0, 1] already."""
    name = "none" if splits.merger is not None else settings.normalize
    train, literal = splits.train, kind_of(settings.model).confident or takes_weights(settings.loss)
    if name == "none" and literal and not in_unit_range(train.weight):
        raise FocuseError(
            f"{train.source}: the model {settings.model!r} learns weights in [0, 1] as they are, found "
            f"{train.weight.min():g} to {train.weight.max():g}; normalize them by 'relation', 'global' or 'quantile' "
            "(--normalize relation)"
        )
    return fit_normaliser(name or "relation", train)


def facts_of(graph: Graph, settings: Settings, held: bool = False) -> tuple[Graph, Graph | None]:
    """A graph with its direction, without what speaks against a link; and that by itself."""
    lower = parse_names(settings.lower_is_better)
    if held and graph.columns is not None:  # it may lack some of train's columns
        lower = [name for name in lower if name in ("all", *graph.columns.names)]
    if lower:
        graph = graph.directed(True if lower == ["all"] else lower)
    return take_apart(graph, settings.negative_weights == "against", settings.zero_weights == "negatives")


def _held(part: Any, settings: Settings, reporter: Reporter) -> Graph:
    graph, contrary = facts_of(read(part), settings, held=True)
    if contrary is not None:
        reporter.note(f"{graph.source}: {counted(len(contrary), 'rows', 'speak')} against a link, not evaluated")
    return graph


def _with_false(
    splits: Splits, facts: Graph, contrary: Graph | None, false: Any, settings: Settings, reporter: Reporter
) -> Splits:
    """The splits with their false triples, each once at its strongest; what is a fact as well is left out."""
    parts = [] if contrary is None else [contrary]
    if false is not None:
        aligned = read_false(false).align(splits.train)
        if aligned.unseen.rows:
            reporter.note(str(aligned))
        parts.append(aligned.graph)
    if not parts:
        return splits
    # Not in train's direction: these numbers say how strong the evidence is.
    every = replace(join(parts), lower_is_better=False, columns=None).merge_repeated("max")
    doubted = np.isin(every.keys, facts.keys)
    if doubted.any():
        reporter.note(f"{counted(int(doubted.sum()), 'false triples', 'stand')} in {facts.source} as facts, left out")
    every = every.select(~doubted)
    if not len(every):
        raise FocuseError(f"{every.source}: none of its false triples can be used; see the notes, or leave them out")
    if settings.focus == "paper" or settings.loss not in ("multiclass-nll", SQUARED_ERROR):
        raise FocuseError("false triples need the focus 'label', or 'off' with the loss multiclass-nll")
    reporter.note(f"{counted(len(every), 'triples')} known to be false")
    valid, test = (_believed(part, every, reporter) for part in (splits.valid, splits.test))
    return replace(splits, valid=valid, test=test, false=every)


def _believed(part: Aligned, false: Graph, reporter: Reporter) -> Aligned:
    """A held-out part without what is said to be false."""
    doubted = np.isin(part.graph.keys, false.keys)
    if not doubted.any():
        return part
    reporter.note(f"{part.graph.source}: {counted(int(doubted.sum()), 'rows', 'are')} said to be false, not evaluated")
    return replace(part, graph=part.graph.select(~doubted))


def _merged(splits: Splits, settings: Settings, reporter: Reporter) -> Splits:
    """Several columns made one weight in every split, by what train says of them."""
    if splits.train.columns is None:
        named = [name for name in ("importance", "decays") if getattr(settings, name) is not None]
        if named:
            raise FocuseError(f"{splits.train.source}: one weight an edge, {named[0]} is about several columns")
        return splits
    asked = None if settings.importance is None else parse_named(settings.importance, "importance")
    merger = fit_merger(splits.train, settings.normalize, asked, settings.seed)
    for name in parse_named(settings.decays or "", "decays"):
        splits.train.columns.place(name)
    reporter.note(str(merger))
    valid, test = (replace(part, graph=merger(part.graph)) for part in (splits.valid, splits.test))
    return replace(splits, train=merger(splits.train), valid=valid, test=test, merger=merger)


def check_confidences(splits: Splits, settings: Settings, reporter: Reporter) -> None:
    """A model of confidence learns the weights themselves: they must be there, and lie in [0, 1] unless normalised."""
    if not splits.train.weighted:
        reporter.note(f"{splits.train.source}: no weights given, every confidence is taken for 1")
    for part in (splits.valid.graph, splits.test.graph):
        if settings.normalize == "none" and not in_unit_range(part.weight):
            raise FocuseError(
                f"{part.source}: confidences lie in [0, 1], found {part.weight.min():g} to {part.weight.max():g}; use "
                "normalize 'relation', 'global' or 'quantile'"
            )


def _differ(train: Graph, normaliser: Normaliser) -> bool:
    """Whether not all normalised weights are equal; a piece at a time, for the first often tells."""
    first = normaliser.transform(train.weight[:1], train.relation[:1])
    parts = chunks(len(train), 1 << 20)
    return any(bool((normaliser.transform(train.weight[at], train.relation[at]) != first).any()) for at in parts)


def focus_or_off(settings: Settings, splits: Splits, normaliser: Normaliser, reporter: Reporter) -> Settings:
    """Without differing weights there is nothing to focus on: the layer is off, and says so."""
    if settings.focus == "off":
        return settings
    if _differ(splits.train, normaliser):
        return settings
    why = (
        "all weights are equal"
        if np.ptp(splits.train.weight) == 0
        else (f"all weights are equal once normalised by {settings.normalize!r} (try normalize 'global')")
    )
    reporter.note(f"{why}: nothing to focus on, the focus layer is off")
    return replace(settings, focus="off", sharpness=None)
