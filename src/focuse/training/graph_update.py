"""A run's graph with more edges, or fewer: old names keep their places, new ones stand behind them.

Weights mean what they meant to the run: its normalizer stays as it is, and only relations that it has never seen get a
range of their own. What was held out stays held out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from focuse.config import Config
from focuse.data.attributes import NodeAttributes, read_attributes
from focuse.data.graph import DUPLICATE_POLICIES, AlignedGraph, Graph, Vocabulary, concatenate, find_sorted, isin_sorted
from focuse.data.readers import read
from focuse.data.splits import Splits
from focuse.data.weights import Normalizer, with_more_relations
from focuse.errors import FocuseError, counted
from focuse.option_strings import choose
from focuse.random_streams import RandomStream
from focuse.training.preparation import check_numbers, positives_of

Note = Callable[[str], None]
Mask = npt.NDArray[np.bool_]
OTHER_UNIT = 5.0  # times larger or smaller than all that the run knows: weights look like another unit
LOOKED_AT = 100_000  # weights of train that are enough to tell its unit


@dataclass(frozen=True)
class RequestedChange:
    """What is to change in a graph: `edges` to add (None: none), triples to `remove`, and how.

    `duplicates` says what a triple weighs that train has already: last (the new weight), max, mean, or keep (both rows
    stay). `valid_share` and `test_share` of the new edges are held out. `numbers` are those of new entities.
    """

    edges: Any = None
    remove: Any = None
    duplicates: str = "last"
    valid_share: float = 0.0
    test_share: float = 0.0
    numbers: Any = None


@dataclass(frozen=True)
class GraphUpdate:
    """Splits over the grown vocabularies, their normalizer, and what changed; the first so many names are the old."""

    splits: Splits
    normalizer: Normalizer
    entities: int
    relations: int
    counts: dict[str, int]

    def touching(self, graph: Graph) -> Mask:
        """Which edges name a new entity or a new relation; bool [n]."""
        return (graph.head >= self.entities) | (graph.tail >= self.entities) | (graph.relation >= self.relations)


def grow(settings: Config, splits: Splits, normalizer: Normalizer, change: RequestedChange, note: Note) -> GraphUpdate:
    """The splits of a run with a change made to them."""
    choose("policy for repeated triples", change.duplicates, DUPLICATE_POLICIES)
    if change.numbers is not None:
        check_numbers(settings, given=True)
    old, before = splits.train, len(splits.train)
    facts, contrary = _facts(settings, change, splits, note)
    splits = _seated(splits, _with_names(old.entities, facts, "entity"), _with_names(old.relations, facts, "relation"))
    counts = {"removed": 0}
    if change.remove is not None:
        splits, counts["removed"] = _without(splits, change.remove, note)
    facts = facts.align(splits.train).graph
    splits, normalizer = _more_relations(splits, normalizer, facts, len(old.relations))
    if splits.merger is not None:
        facts = splits.merger(facts)
    facts = _not_held_out(facts, splits, note)
    train, fresh, counts["updated"] = _merged(splits.train, facts, change.duplicates, note)
    held = hold_out(fresh, change, len(old.entities), len(old.relations), settings.seed)
    valid, test = (
        replace(part, graph=concatenate([part.graph, more.graph]))
        for part, more in ((splits.valid, held.valid), (splits.test, held.test))
    )
    train = concatenate([train, held.train])
    counts |= {"added": len(held.train), "valid": len(held.valid.graph), "test": len(held.test.graph)}
    counts |= {"entities": len(train.entities) - len(old.entities)}
    counts |= {"relations": len(train.relations) - len(old.relations), "edges_before": before, "edges": len(train)}
    if not any(counts[name] for name in ("removed", "updated", "added", "valid", "test")):
        if change.edges is None:
            raise FocuseError("none of the triples to remove is a fact of the run; there is nothing to change")
        raise FocuseError(f"{facts.source}: every edge of it is known already; there is nothing to extend the run by")
    _note_weights(facts, old, normalizer, splits, note)
    made = replace(splits, train=train, valid=valid, test=test)
    made = _with_false(made, contrary, note)
    made = replace(made, attributes=_more_numbers(made, change.numbers, len(old.entities), note))
    return GraphUpdate(made, normalizer, len(old.entities), len(old.relations), counts)


def _facts(settings: Config, change: RequestedChange, splits: Splits, note: Note) -> tuple[Graph, Graph | None]:
    """The edges to add, by names of their own, each triple once; and what of them speaks against a link."""
    if change.edges is None and change.remove is None:
        raise FocuseError("nothing to extend the run by: give edges to add, or triples to remove")
    given = splits.train.select(np.empty(0, np.int64)) if change.edges is None else read(change.edges)
    if change.edges is not None and not len(given):
        raise FocuseError(f"{given.source}: no edges to add")
    if splits.merger is None and given.columns is not None:
        names = ", ".join(given.columns.names)
        raise FocuseError(f"{given.source}: several weights an edge ({names}), the run has one; choose one (--columns)")
    facts, contrary = positives_of(given, settings, held=True)
    repeated = facts.num_repeated
    if repeated and change.duplicates != "keep":
        note(f"{facts.source}: {repeated:,} rows repeat a (head, relation, tail); merged by {change.duplicates}")
    return _weighed(facts.merge_repeated(change.duplicates), splits.train, note), contrary


def _weighed(facts: Graph, train: Graph, note: Note) -> Graph:
    """Edges without numbers get the usual weight of the run's graph; a graph without numbers takes none."""
    if facts.weighted == train.weighted or not len(facts):
        return facts
    if not train.weighted:
        note(f"{facts.source}: the run's graph has no weights, so those of the new edges count for nothing")
        return replace(facts, weight=np.ones(len(facts)), weighted=False)
    usual = _usual_weights(train)
    place = train.relations.ids(facts.relations.column)
    weight = np.where(place >= 0, usual[place], np.median(train.weight))[facts.relation]
    note(f"{facts.source}: no weights; each new edge gets the median weight of its relation in the run's graph")
    return replace(facts, weight=weight, weighted=True)


def _usual_weights(train: Graph) -> npt.NDArray[np.float64]:
    """The median weight of each relation, of all edges where it has none; float64 [R]."""
    order = np.lexsort((train.weight, train.relation))
    count = np.bincount(train.relation, minlength=len(train.relations))
    middle = np.cumsum(count) - count + count // 2
    usual = train.weight[order][np.minimum(middle, len(order) - 1)]
    return np.where(count > 0, usual, np.median(train.weight))


def _with_names(known: Vocabulary, facts: Graph, kind: str) -> Vocabulary:
    """The vocabulary with the names behind it that the edges use and it lacks, in the order they appear."""
    used = np.unique(np.concatenate([facts.head, facts.tail]) if kind == "entity" else facts.relation)
    names = (facts.entities if kind == "entity" else facts.relations).take(used)
    lacking = names.filter(pa.array(known.ids(names) < 0))
    return Vocabulary(pa.concat_arrays([known.column, lacking.cast(known.column.type)])) if len(lacking) else known


def _seated(splits: Splits, entities: Vocabulary, relations: Vocabulary) -> Splits:
    """The same splits over longer vocabularies, in which every old name has its old place."""

    def seat(graph: Graph) -> Graph:
        return replace(graph, entities=entities, relations=relations)

    valid, test = (replace(part, graph=seat(part.graph)) for part in (splits.valid, splits.test))
    inferred, false = (None if graph is None else seat(graph) for graph in (splits.inferred, splits.known_negatives))
    return replace(splits, train=seat(splits.train), valid=valid, test=test, inferred=inferred, known_negatives=false)


def _without(splits: Splits, remove: Any, note: Note) -> tuple[Splits, int]:
    """The splits without these triples, wherever they stand, and how many rows that were."""
    given = read(remove)
    keys = np.unique(given.align(splits.train).graph.keys)
    train = splits.train.select(~among(splits.train, keys))
    gone = len(splits.train) - len(train)
    if not len(train):
        raise FocuseError(f"{given.source}: it removes every edge of train; nothing would be left")
    valid, test = (
        replace(part, graph=part.graph.select(~among(part.graph, keys))) for part in (splits.valid, splits.test)
    )
    gone += sum(len(a.graph) - len(b.graph) for a, b in ((splits.valid, valid), (splits.test, test)))
    inferred = None if splits.inferred is None else splits.inferred.select(~among(splits.inferred, keys))
    known = np.unique(np.concatenate([splits.train.keys, splits.valid.graph.keys, splits.test.graph.keys]))
    unknown = len(given) - int(np.isin(given.align(splits.train).graph.keys, known).sum())
    if unknown:
        note(
            f"{given.source}: {unknown:,} of {len(given):,} triples to remove are none of the run's facts; passed over"
        )
    return replace(splits, train=train, valid=valid, test=test, inferred=inferred), gone


def among(graph: Graph, keys: npt.NDArray[np.int64]) -> Mask:
    """Which rows have one of a few sorted, distinct keys; bool [n]. One search a row, and nothing is sorted."""
    return isin_sorted(graph.keys, keys)


def _more_relations(splits: Splits, normalizer: Normalizer, facts: Graph, known: int) -> tuple[Splits, Normalizer]:
    """Maps of weights that know new relations too."""
    merger = splits.merger
    if merger is None:
        return splits, with_more_relations(normalizer, facts, known)
    if facts.columns is None:  # it says so itself, in one line
        return splits, normalizer
    named = replace(
        facts.columns,
        names=merger.names,
        values=facts.columns.values_of(merger.names),
        lower_is_better=merger.lower_is_better,
    )
    seated = replace(facts, columns=named)
    each = zip(merger.names, merger.normalizers, strict=True)
    more = tuple(with_more_relations(one, seated.column(name), known) for name, one in each)
    return replace(splits, merger=replace(merger, normalizers=more)), normalizer


def _not_held_out(facts: Graph, splits: Splits, note: Note) -> Graph:
    """The new edges without those of the run's own validation and test: they stay there, as they are."""
    for name, part in (("validation", splits.valid.graph), ("test", splits.test.graph)):
        held = among(facts, np.unique(part.keys))
        if held.any():
            note(
                f"{facts.source}: {counted(int(held.sum()), 'edges', 'stand')} in the run's {name} split, to stay "
                "there with the weight of old; nothing is learnt from that"
            )
            facts = facts.select(~held)
    return facts


def _merged(train: Graph, new: Graph, policy: str, note: Note) -> tuple[Graph, Graph, int]:
    """Train with what new edges say of its own triples, those of them that are new, and how many weights changed."""
    met = among(train, np.unique(new.keys))
    olds = train.select(met)
    again = among(new, np.unique(olds.keys))
    if not again.any() or policy == "keep":
        if again.any():
            note(f"{new.source}: {counted(int(again.sum()), 'edges', 'repeat')} a triple of train; both rows are kept")
        return train, new, 0
    both = concatenate([olds, new.select(again)]).merge_repeated(policy)
    first = olds.merge_repeated("last")
    order = np.argsort(first.keys)
    before = first.weight[order][find_sorted(first.keys[order], both.keys)[0]]
    changed = int((before != both.weight).sum())
    if changed:
        note(
            f"{new.source}: {counted(changed, 'edges', 'give')} a triple of train another weight; merged by {policy!r}"
        )
    if changed < len(both):
        note(f"{new.source}: {counted(len(both) - changed, 'edges', 'are')} known already with the same weight")
    return concatenate([train.select(~met), both]), new.select(~again), changed


def hold_out(new: Graph, change: RequestedChange, entities: int, relations: int, seed: int) -> Splits:
    """Shares of the new edges for valid and test; each new name keeps one for train, the first in a random order."""
    shares = change.valid_share, change.test_share
    for name, share in zip(("valid", "test"), shares, strict=True):
        if not 0 <= share < 1 or sum(shares) >= 1:
            raise FocuseError(f"{name} share {share:g} of the new edges is out of range; valid + test must be below 1")
    distinct, group = np.unique(new.keys, return_inverse=True)  # repeats of a triple stay together
    first = np.unique(group, return_index=True)[1]
    order = np.random.default_rng([seed, RandomStream.NEW_EDGES_HELD_OUT]).permutation(len(distinct))
    needed = np.zeros(len(order), bool)
    head, kind, tail = (column[first][order] for column in (new.head, new.relation, new.tail))
    for column, known in ((head, entities), (tail, entities), (kind, relations)):
        names, place = np.unique(column, return_index=True)
        needed[place[names >= known]] = True
    free, part = order[~needed], np.zeros(len(order), np.int8)
    test, valid = (min(int(share * len(order)), len(free)) for share in shares[::-1])
    part[free[:test]], part[free[test : test + valid]] = 2, 1
    train, held_valid, held_test = (new.select(part[group] == number) for number in range(3))
    return Splits(train, AlignedGraph(held_valid), AlignedGraph(held_test))


def _note_weights(facts: Graph, train: Graph, normalizer: Normalizer, splits: Splits, note: Note) -> None:
    """Weights beyond what the run knows, and weights that look like another unit."""
    old = facts.select(facts.relation < len(train.relations))
    if not len(old) or not old.weighted or splits.merger is not None:
        return
    back = normalizer.inverse(normalizer.transform(old.weight, old.relation), old.relation)
    size = float(np.abs(train.weight).max()) or 1.0
    beyond = int((np.abs(back - old.weight) > 1e-6 * np.maximum(np.abs(old.weight), size)).sum())
    if beyond:
        note(
            f"{facts.source}: {beyond:,} of {len(old):,} weights lie beyond what train has for their relation; "
            "training takes them for the nearest that it has"
        )
    sample = np.abs(train.weight[:: max(1, len(train) // LOOKED_AT)])
    largest = float(np.abs(old.weight).max())
    small = largest * OTHER_UNIT < size and largest <= float(np.quantile(sample, 0.05))
    if largest > size * OTHER_UNIT or small:
        note(
            f"{facts.source}: weights from {old.weight.min():g} to {old.weight.max():g}, in the run's graph from "
            f"{train.weight.min():g} to {train.weight.max():g}: is that one unit? If not, convert them first"
        )


def _with_false(splits: Splits, contrary: Graph | None, note: Note) -> Splits:
    """New edges that speak against a link beside the old ones; what is a fact now is false no longer."""
    parts = [] if splits.known_negatives is None else [splits.known_negatives]
    if contrary is not None:
        aligned = contrary.align(splits.train)
        if aligned.unseen.rows:
            note(str(aligned))
        parts.append(replace(aligned.graph, lower_is_better=False, columns=None))
    if not parts:
        return splits
    every = concatenate(parts).merge_repeated("max")
    facts = among(every, np.unique(splits.train.select(among(splits.train, np.unique(every.keys))).keys))
    if facts.any():
        note(f"{counted(int(facts.sum()), 'false triples', 'stand')} in train as facts, left out")
    every = every.select(~facts)
    valid, test = (
        AlignedGraph(part.graph.select(~among(part.graph, np.unique(every.keys))), part.unseen)
        for part in (splits.valid, splits.test)
    )
    return replace(splits, known_negatives=every if len(every) else None, valid=valid, test=test)


def _more_numbers(splits: Splits, given: Any, known: int, note: Note) -> NodeAttributes | None:
    """Numbers of the grown graph's entities, new ones on the scale that the old ones had; those stay as they are."""
    numbers = splits.attributes
    if numbers is None:
        return None
    entities = splits.train.entities
    more = len(entities) - known
    values = np.concatenate([numbers.values, np.zeros((more, len(numbers.names)), np.float32)])
    present = np.concatenate([numbers.present, np.zeros((more, len(numbers.names)), bool)])
    if given is not None:
        found = read_attributes(given)
        place, kind = entities.ids(found.entity), Vocabulary(list(numbers.names)).ids(found.attribute)
        rows = (place >= known) & (kind >= 0) & ~np.isnan(found.value)
        if rows.sum() < len(rows):
            note(f"{found.source}: {int((~rows).sum()):,} of {len(rows):,} rows are of old or unknown names; left out")
        spread = np.where(numbers.deviation > 0, numbers.deviation, 1.0)[kind[rows]]
        share = np.where(
            numbers.deviation[kind[rows]] > 0, (found.value[rows] - numbers.mean[kind[rows]]) / spread, 0.0
        )
        values[place[rows], kind[rows]], present[place[rows], kind[rows]] = share, True
    without = more - int(present[known:].any(axis=1).sum())
    if without:
        note(f"{without:,} of {more:,} new entities have no numbers (--node-attributes); they count as missing")
    return replace(numbers, values=values, present=present)
