"""Add edges to the graph of a run, or remove some: known names keep their ids, and new names get the ids after them.

Weights keep their meaning: the normalizer of the run is unchanged, and only new relations get a range of their own.
Held-out edges stay held out.
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
from focuse.data.graph import DUPLICATE_POLICIES, Graph, Vocabulary, concatenate, find_sorted, isin_sorted
from focuse.data.readers import read
from focuse.data.splits import Splits
from focuse.data.weights import Normalizer, with_more_relations
from focuse.errors import FocuseError, counted
from focuse.option_strings import choose
from focuse.random_streams import RandomStream
from focuse.training.preparation import check_node_attributes, positives_of

Note = Callable[[str], None]
Mask = npt.NDArray[np.bool_]
# Weights that are larger or smaller by this factor than those of the run seem to have another unit.
UNIT_MISMATCH_FACTOR = 5.0
MAX_SAMPLED_WEIGHTS = 100_000  # training weights that are sampled to detect another unit


@dataclass(frozen=True)
class RequestedChange:
    """The requested change of a graph: `edges` to add and triples to `remove`, either of which may be None.

    `duplicates` is the weight of a new edge that repeats a training triple: last (the new weight), max, mean, or keep
    (both rows are kept). `valid_fraction` and `test_fraction` of the new edges are held out. `numbers` are the
    attributes of new entities.
    """

    edges: Any = None
    remove: Any = None
    duplicates: str = "last"
    valid_fraction: float = 0.0
    test_fraction: float = 0.0
    numbers: Any = None


@dataclass(frozen=True)
class GraphUpdate:
    """Splits over the extended vocabularies, their normalizer, and counts of the changes.

    The first `entities` entities and the first `relations` relations are the known ones.
    """

    splits: Splits
    normalizer: Normalizer
    entities: int
    relations: int
    counts: dict[str, int]

    def involves_new(self, graph: Graph) -> Mask:
        """Return which edges contain a new entity or a new relation; bool [n]."""
        return (graph.head >= self.entities) | (graph.tail >= self.entities) | (graph.relation >= self.relations)


def grow(settings: Config, splits: Splits, normalizer: Normalizer, change: RequestedChange, note: Note) -> GraphUpdate:
    """Apply a change to the splits of a run."""
    choose("policy for repeated triples", change.duplicates, DUPLICATE_POLICIES)
    if change.numbers is not None:
        check_node_attributes(settings, given=True)
    old, before = splits.train, len(splits.train)
    facts, known_negatives = _read_new_edges(settings, change, splits, note)
    splits = _reindex(
        splits, _extend_vocabulary(old.entities, facts, "entity"), _extend_vocabulary(old.relations, facts, "relation")
    )
    counts = {"removed": 0}
    if change.remove is not None:
        splits, counts["removed"] = _remove_triples(splits, change.remove, note)
    facts = facts.align(splits.train).graph
    splits, normalizer = _extend_normalizer(splits, normalizer, facts, len(old.relations))
    if splits.merger is not None:
        facts = splits.merger(facts)
    facts = _without_held_out(facts, splits, note)
    train, fresh, counts["updated"] = _merge_into_train(splits.train, facts, change.duplicates, note)
    held = hold_out(fresh, change, len(old.entities), len(old.relations), settings.seed)
    valid, test = concatenate([splits.valid, held.valid]), concatenate([splits.test, held.test])
    train = concatenate([train, held.train])
    counts |= {"added": len(held.train), "valid": len(held.valid), "test": len(held.test)}
    counts |= {"entities": len(train.entities) - len(old.entities)}
    counts |= {"relations": len(train.relations) - len(old.relations), "edges_before": before, "edges": len(train)}
    if not any(counts[name] for name in ("removed", "updated", "added", "valid", "test")):
        if change.edges is None:
            raise FocuseError("none of the triples to remove is in the run; there is nothing to change")
        raise FocuseError(f"{facts.source}: all edges are known already; there is nothing to add to the run")
    _warn_about_weights(facts, old, normalizer, splits, note)
    made = replace(splits, train=train, valid=valid, test=test)
    made = _with_known_negatives(made, known_negatives, note)
    made = replace(made, attributes=_extend_attributes(made, change.numbers, len(old.entities), note))
    return GraphUpdate(made, normalizer, len(old.entities), len(old.relations), counts)


def _read_new_edges(
    settings: Config, change: RequestedChange, splits: Splits, note: Note
) -> tuple[Graph, Graph | None]:
    """Return the edges to add, over their own vocabularies and without duplicates, and the known negatives of them."""
    if change.edges is None and change.remove is None:
        raise FocuseError("nothing to change in the run: give edges to add, or triples to remove")
    given = splits.train.select(np.empty(0, np.int64)) if change.edges is None else read(change.edges)
    if change.edges is not None and not len(given):
        raise FocuseError(f"{given.source}: no edges to add")
    if splits.merger is None and given.columns is not None:
        names = ", ".join(given.columns.names)
        raise FocuseError(
            f"{given.source}: several weights per edge ({names}); the run has one: choose one (--columns)"
        )
    facts, known_negatives = positives_of(given, settings, held=True)
    repeated = facts.num_repeated
    if repeated and change.duplicates != "keep":
        note(f"{facts.source}: {repeated:,} rows repeat a (head, relation, tail); merged by {change.duplicates!r}")
    return _with_default_weights(facts.merge_repeated(change.duplicates), splits.train, note), known_negatives


def _with_default_weights(facts: Graph, train: Graph, note: Note) -> Graph:
    """Give edges without weights the median weights of the run's graph, or drop their weights if it has none."""
    if facts.weighted == train.weighted or not len(facts):
        return facts
    if not train.weighted:
        note(f"{facts.source}: the run's graph has no weights, so the weights of the new edges are ignored")
        return replace(facts, weight=np.ones(len(facts)), weighted=False)
    usual = _median_weights(train)
    place = train.relations.ids(facts.relations.column)
    weight = np.where(place >= 0, usual[place], np.median(train.weight))[facts.relation]
    note(f"{facts.source}: no weights; each new edge gets the median weight of its relation in the run's graph")
    return replace(facts, weight=weight, weighted=True)


def _median_weights(train: Graph) -> npt.NDArray[np.float64]:
    """Return the median weight per relation, or of all edges for a relation without edges; float64 [R]."""
    order = np.lexsort((train.weight, train.relation))
    count = np.bincount(train.relation, minlength=len(train.relations))
    middle = np.cumsum(count) - count + count // 2
    usual = train.weight[order][np.minimum(middle, len(order) - 1)]
    return np.where(count > 0, usual, np.median(train.weight))


def _extend_vocabulary(known: Vocabulary, facts: Graph, kind: str) -> Vocabulary:
    """Return the vocabulary with the new names of the edges appended, in the order of their ids."""
    used = np.unique(np.concatenate([facts.head, facts.tail]) if kind == "entity" else facts.relation)
    names = (facts.entities if kind == "entity" else facts.relations).take(used)
    lacking = names.filter(pa.array(known.ids(names) < 0))
    return Vocabulary(pa.concat_arrays([known.column, lacking.cast(known.column.type)])) if len(lacking) else known


def _reindex(splits: Splits, entities: Vocabulary, relations: Vocabulary) -> Splits:
    """Return the splits over extended vocabularies, in which every known name keeps its id."""

    def reindex(graph: Graph) -> Graph:
        return replace(graph, entities=entities, relations=relations)

    valid, test = reindex(splits.valid), reindex(splits.test)
    inferred, false = (None if graph is None else reindex(graph) for graph in (splits.inferred, splits.known_negatives))
    return replace(
        splits, train=reindex(splits.train), valid=valid, test=test, inferred=inferred, known_negatives=false
    )


def _remove_triples(splits: Splits, remove: Any, note: Note) -> tuple[Splits, int]:
    """Return the splits without the given triples, and the number of removed rows."""
    given = read(remove)
    keys = np.unique(given.align(splits.train).graph.keys)
    train = splits.train.select(~among(splits.train, keys))
    gone = len(splits.train) - len(train)
    if not len(train):
        raise FocuseError(f"{given.source}: it would remove every edge of train; keep at least one")
    valid, test = (part.select(~among(part, keys)) for part in (splits.valid, splits.test))
    gone += sum(len(a) - len(b) for a, b in ((splits.valid, valid), (splits.test, test)))
    inferred = None if splits.inferred is None else splits.inferred.select(~among(splits.inferred, keys))
    known = np.unique(np.concatenate([splits.train.keys, splits.valid.keys, splits.test.keys]))
    unknown = len(given) - int(np.isin(given.align(splits.train).graph.keys, known).sum())
    if unknown:
        note(f"{given.source}: {unknown:,} of {len(given):,} triples to remove are not in the run; skipped")
    return replace(splits, train=train, valid=valid, test=test, inferred=inferred), gone


def among(graph: Graph, keys: npt.NDArray[np.int64]) -> Mask:
    """Return which rows have one of the sorted, distinct keys, bool [n], by one binary search per row."""
    return isin_sorted(graph.keys, keys)


def _extend_normalizer(splits: Splits, normalizer: Normalizer, facts: Graph, known: int) -> tuple[Splits, Normalizer]:
    """Return the splits and the normalizer, with normalizers that cover the new relations."""
    merger = splits.merger
    if merger is None:
        return splits, with_more_relations(normalizer, facts, known)
    if facts.columns is None:  # the merger raises an error for it later
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


def _without_held_out(facts: Graph, splits: Splits, note: Note) -> Graph:
    """Return the new edges without those of the run's validation and test splits, which are not changed."""
    for name, part in (("validation", splits.valid), ("test", splits.test)):
        held = among(facts, np.unique(part.keys))
        if held.any():
            note(
                f"{facts.source}: {counted(int(held.sum()), 'edges', 'are')} in the run's {name} split and not trained "
                "on; the old weights are kept"
            )
            facts = facts.select(~held)
    return facts


def _merge_into_train(train: Graph, new: Graph, policy: str, note: Note) -> tuple[Graph, Graph, int]:
    """Merge new edges that repeat triples of train; return train, the other edges, and the number of new weights."""
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
            f"{new.source}: {counted(changed, 'edges', 'change')} the weight of a training triple; merged by {policy!r}"
        )
    if changed < len(both):
        note(f"{new.source}: {counted(len(both) - changed, 'edges', 'are')} known already with the same weight")
    return concatenate([train.select(~met), both]), new.select(~again), changed


def hold_out(new: Graph, change: RequestedChange, entities: int, relations: int, seed: int) -> Splits:
    """Hold out fractions of the new edges for valid and test; each new name keeps at least one edge in train."""
    shares = change.valid_fraction, change.test_fraction
    for name, share in zip(("valid", "test"), shares, strict=True):
        if not 0 <= share < 1 or sum(shares) >= 1:
            raise FocuseError(f"{name} share {share:g} of the new edges is out of range; valid + test must be below 1")
    distinct, group = np.unique(new.keys, return_inverse=True)  # repeats of a triple stay together
    first = np.unique(group, return_index=True)[1]
    order = np.random.default_rng([seed, RandomStream.NEW_EDGES_SPLIT]).permutation(len(distinct))
    needed = np.zeros(len(order), bool)
    head, kind, tail = (column[first][order] for column in (new.head, new.relation, new.tail))
    for column, known in ((head, entities), (tail, entities), (kind, relations)):
        names, place = np.unique(column, return_index=True)
        needed[place[names >= known]] = True
    free, part = order[~needed], np.zeros(len(order), np.int8)
    test, valid = (min(int(share * len(order)), len(free)) for share in shares[::-1])
    part[free[:test]], part[free[test : test + valid]] = 2, 1
    train, held_valid, held_test = (new.select(part[group] == number) for number in range(3))
    return Splits(train, held_valid, held_test)


def _warn_about_weights(facts: Graph, train: Graph, normalizer: Normalizer, splits: Splits, note: Note) -> None:
    """Report weights outside of the range of the run, and weights that seem to have another unit."""
    old = facts.select(facts.relation < len(train.relations))
    if not len(old) or not old.weighted or splits.merger is not None:
        return
    back = normalizer.inverse(normalizer.transform(old.weight, old.relation), old.relation)
    size = float(np.abs(train.weight).max()) or 1.0
    beyond = int((np.abs(back - old.weight) > 1e-6 * np.maximum(np.abs(old.weight), size)).sum())
    if beyond:
        note(
            f"{facts.source}: {beyond:,} of {len(old):,} weights are outside of the range of their relation in train; "
            "training clips them to that range"
        )
    sample = np.abs(train.weight[:: max(1, len(train) // MAX_SAMPLED_WEIGHTS)])
    largest = float(np.abs(old.weight).max())
    small = largest * UNIT_MISMATCH_FACTOR < size and largest <= float(np.quantile(sample, 0.05))
    if largest > size * UNIT_MISMATCH_FACTOR or small:
        note(
            f"{facts.source}: weights from {old.weight.min():g} to {old.weight.max():g}, but in the run's graph from "
            f"{train.weight.min():g} to {train.weight.max():g}; if the units differ, convert the weights first"
        )


def _with_known_negatives(splits: Splits, known_negatives: Graph | None, note: Note) -> Splits:
    """Return the splits with the known negatives of the new edges added, and without those that are now positives."""
    parts = [] if splits.known_negatives is None else [splits.known_negatives]
    if known_negatives is not None:
        aligned = known_negatives.align(splits.train)
        if aligned.unseen.rows:
            note(str(aligned))
        parts.append(replace(aligned.graph, lower_is_better=False, columns=None))
    if not parts:
        return splits
    every = concatenate(parts).merge_repeated("max")
    facts = among(every, np.unique(splits.train.select(among(splits.train, np.unique(every.keys))).keys))
    if facts.any():
        note(f"{counted(int(facts.sum()), 'known negatives', 'are')} also in train and left out")
    every = every.select(~facts)
    valid, test = (part.select(~among(part, np.unique(every.keys))) for part in (splits.valid, splits.test))
    return replace(splits, known_negatives=every if len(every) else None, valid=valid, test=test)


def _extend_attributes(splits: Splits, given: Any, known: int, note: Note) -> NodeAttributes | None:
    """Return the attributes of all entities; those of new entities are standardized like those of the known ones."""
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
            note(f"{found.source}: {int((~rows).sum()):,} of {len(rows):,} rows have known or unused names; left out")
        spread = np.where(numbers.deviation > 0, numbers.deviation, 1.0)[kind[rows]]
        share = np.where(
            numbers.deviation[kind[rows]] > 0, (found.value[rows] - numbers.mean[kind[rows]]) / spread, 0.0
        )
        values[place[rows], kind[rows]], present[place[rows], kind[rows]] = share, True
    without = more - int(present[known:].any(axis=1).sum())
    if without:
        note(f"{without:,} of {more:,} new entities have no numbers (--node-attributes); they count as missing")
    return replace(numbers, values=values, present=present)
