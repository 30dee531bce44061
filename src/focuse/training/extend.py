"""Extend a run: new edges and names in its graph, rows for the new names, and a checkpoint to continue from.

Known names keep their ids, and new names get the ids after them. Weights keep their meaning: the normalizer of the run
is unchanged, and only new relations get a range of their own. Held-out edges stay held out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from focuse import __version__
from focuse.config import Config
from focuse.data.attributes import NodeAttributes, read_attributes
from focuse.data.graph import Graph, Mask, Vocabulary, WeightColumns, concatenate, find_sorted
from focuse.data.readers import read
from focuse.data.splits import Splits
from focuse.data.triple_index import contained_in
from focuse.data.undirected import with_both_directions
from focuse.data.weights import Normalizer, with_more_relations
from focuse.errors import FocuseError, counted, did_you_mean
from focuse.models.base import join_inverse_relations, split_inverse_relations
from focuse.option_strings import check_count
from focuse.storage.run_folder import RunFolder
from focuse.storage.tables import Checkpoint, Progress
from focuse.storage.tensors import Tables, read_records, write_records
from focuse.training.callbacks import Reporter
from focuse.training.cold_start import DEFAULT_EPOCHS, train_new_rows
from focuse.training.preparation import check_node_attributes, positives_of

if TYPE_CHECKING:
    from focuse.api import Run

FILE = "extended.json"
EPOCHS_DIVISOR = 5  # by default, all rows are trained for the epochs of the run divided by this number

Note = Callable[[str], None]


@dataclass(frozen=True)
class RequestedChange:
    """The requested change of a graph: `edges` to add and triples to `remove`, either of which may be None.

    A new edge that repeats a training triple replaces its weight. `attributes` are those of new entities.
    """

    edges: Any = None
    remove: Any = None
    attributes: Any = None


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


@dataclass(frozen=True)
class Extension:
    """The parts of the extended run; `checkpoint` is finished if only new rows were trained."""

    settings: Config
    splits: Splits
    normalizer: Normalizer
    checkpoint: Checkpoint
    extended: list[dict[str, Any]]


def build_extension(
    run: Run, change: RequestedChange, train_known: bool, epochs: int | None, reporter: Reporter
) -> Extension:
    """Update the graph, train rows for the new names, and return the extended run.

    If `train_known` is True, its checkpoint is the start of further training of all rows, for `epochs` epochs.
    """
    if epochs is not None:
        epochs = check_count("epochs", epochs, 1 if train_known else 0)
    settings, last = run.settings, run.last
    if settings.engine in ("partitioned", "sharded"):  # a run is always extended in memory
        settings = replace(settings, engine="auto", partitions=None)
    if last is None and run.folder is not None:
        last = RunFolder.open(run.folder).load_checkpoint()
    done = max((row["epoch"] for row in run.history), default=settings.epochs)
    reached = (last.progress.best_epoch if last is not None else 0) or done  # the epoch of the run's tables
    update = update_graph(settings, run.splits, run.normalizer, change, reporter.note)
    if not train_known:
        _report_limits(update, reporter.note)
    train = update.splits.train
    any_new = (len(train.entities), len(train.relations)) != (update.entities, update.relations)
    if epochs and not train_known and not any_new:
        raise FocuseError("epochs requires new entities or relations, or train_known; otherwise nothing is trained")
    new_epochs = None if train_known else epochs
    tables = train_new_rows(settings, update, dict(run.scorer.tables), new_epochs, reached, reporter)
    if train_known:
        # Early stopping may have ended an extension before the requested epochs, so these cannot simply be summed.
        original = next((row.get("before", done) for row in run.extended if row["train_known"]), done)
        trained = math.ceil(max(original, 1) / EPOCHS_DIVISOR) if epochs is None else epochs
        settings = replace(settings, epochs=done + trained)
        layer = settings.make_focuse_layer()
        if layer is not None:  # β stays at its current value, so that its decay does not restart
            settings = replace(settings, beta=layer.beta(max(reached - 1, 0)))
    else:
        trained = (DEFAULT_EPOCHS if epochs is None else epochs) if any_new else 0
        settings = replace(settings, epochs=max(done, 1))
    record = {
        "from": "a run in memory" if run.folder is None else str(run.folder),
        "train_known": train_known,
        "epochs": trained,
        "before": done,
        **update.counts,
        "focuse": __version__,
    }
    state = {} if last is None else _extend_optimizer_state(last.optimizer, tables, settings.reciprocal)
    progress = Progress(epoch=done, finished="" if train_known else "all epochs")
    checkpoint = Checkpoint(progress, tables, state, None, list(run.history))
    return Extension(settings, update.splits, update.normalizer, checkpoint, [*run.extended, record])


def _report_limits(update: GraphUpdate, note: Note) -> None:
    """Report what the embeddings of known names do not reflect."""
    counts = update.counts
    between = counts["added"] + counts["updated"] - int(update.involves_new(update.splits.train).sum())
    if between > 0:
        note(
            f"{counted(between, 'edges', 'are')} between known names: stored as known triples, but not trained on, "
            "because the embeddings of known names stay as they are (use train_known to train them)"
        )
    if counts["removed"]:
        gone = counted(counts["removed"], "triples", "are")
        note(f"{gone} removed from the graph, but the embeddings still reflect them (use train_known to train them)")


def _extend_optimizer_state(state: Mapping[str, Tensor], tables: Tables, inverse_relations: bool) -> Tables:
    """Return the optimizer state with rows for the new names: mean values for squared gradients, 0 for other moments.

    With squared gradients of 0, the first steps would move the new rows far away from their trained values.
    """
    made = {}
    for key, value in state.items():
        name, _, part = key.rpartition(".")
        lacking = len(tables[name]) - len(value) if name in tables and value.dim() else 0
        joined = inverse_relations and name == "relation" and lacking > 0
        if joined:  # new rows are appended to the relations and to their inverses
            value, lacking = join_inverse_relations(value), lacking // 2
        if lacking > 0:
            usual = value.mean(0, keepdim=True) if part in ("sum", "square", "exp_avg_sq") else value.new_zeros(1)
            value = torch.cat([value, usual.expand(lacking, *value.shape[1:])])
        made[key] = split_inverse_relations(value) if joined else value.clone()
    return made


def write_extended(folder: RunFolder, records: list[dict[str, Any]]) -> None:
    """Write the records of a run's extensions to its folder, oldest first."""
    write_records(folder.file_path(FILE), records)


def read_extended(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the records of the extensions of the run in a folder, oldest first."""
    return read_records(folder.file_path(FILE), _read_record)


def _read_record(record: dict[str, Any]) -> dict[str, Any]:
    if isinstance(record.get("frozen"), bool):  # its name in earlier versions
        record["train_known"] = not record.pop("frozen")
    if not isinstance(record["train_known"], bool) or not isinstance(record["epochs"], int):
        raise ValueError("a record of an extension lacks its epochs or whether known names were trained")
    return record


# ---- the graph ------------------------------------------------------------------------------------------------------


def update_graph(
    settings: Config, splits: Splits, normalizer: Normalizer, change: RequestedChange, note: Note
) -> GraphUpdate:
    """Apply a change to the splits of a run."""
    if change.attributes is not None:
        check_node_attributes(settings, given=True)
    old = splits.train
    facts = _read_new_edges(settings, change, splits, note)
    _check_entities(facts, old)
    entities = _extend_vocabulary(old.entities, facts.entities, np.concatenate([facts.head, facts.tail]))
    relations = _extend_vocabulary(old.relations, facts.relations, facts.relation)
    splits = _map_graphs(splits, lambda graph: replace(graph, entities=entities, relations=relations))
    splits, removed = _remove_triples(splits, change.remove, note)
    facts = facts.align(splits.train).graph
    splits, normalizer = _extend_normalizer(splits, normalizer, facts, len(old.relations))
    if splits.merger is not None:
        facts = splits.merger(facts)
    facts = _without_held_out(facts, splits, note)
    train, fresh, updated = _replace_weights(splits.train, facts, note)
    if not (removed or updated or len(fresh)):
        if change.edges is None:
            raise FocuseError("none of the triples to remove is in the run; there is nothing to change")
        raise FocuseError(f"{facts.source}: all edges are known already; there is nothing to add to the run")
    _warn_about_weights(facts, old, normalizer, splits, note)
    splits = replace(splits, train=concatenate([train, fresh]))
    if splits.known_negatives is not None:
        false = splits.known_negatives.select(~contained_in(splits.known_negatives, splits.train))
        splits = replace(splits, known_negatives=false if len(false) else None)
    splits = replace(splits, attributes=_extend_attributes(splits, change.attributes, len(old.entities), note))
    counts = {"removed": removed, "updated": updated, "added": len(fresh)}
    counts |= {"entities": len(entities) - len(old.entities), "relations": len(relations) - len(old.relations)}
    counts |= {"edges_before": len(old), "edges": len(splits.train)}
    return GraphUpdate(splits, normalizer, len(old.entities), len(old.relations), counts)


def _read_new_edges(settings: Config, change: RequestedChange, splits: Splits, note: Note) -> Graph:
    """Return the edges to add, over their own vocabularies and without duplicates."""
    if change.edges is None and change.remove is None:
        raise FocuseError("nothing to change in the run: give edges to add, or triples to remove")
    given = splits.train.select(np.empty(0, np.int64)) if change.edges is None else read(change.edges)
    if change.edges is not None and not len(given):
        raise FocuseError(f"{given.source}: no edges to add")
    given = given.with_relation_of(splits.train)
    for line in given.notes if change.edges is not None else ():
        note(line)
    if splits.merger is None and given.columns is not None:
        names = ", ".join(given.columns.names)
        raise FocuseError(
            f"{given.source}: several weights per edge ({names}); the run has one: choose one with columns"
        )
    facts, known_negatives = positives_of(given, settings, held=True)
    if known_negatives is not None:
        count = counted(len(known_negatives), "known negatives", "are")
        note(f"{facts.source}: {count} left out; an extension only adds positives")
    undirected = facts.relations.ids(list(compress(splits.train.relations, splits.train.is_undirected)))
    facts = with_both_directions(replace(facts, undirected=tuple(undirected[undirected >= 0].tolist())))
    repeated = facts.num_repeated
    if repeated:
        note(f"{facts.source}: {counted(repeated, 'rows', 'repeat')} a (head, relation, tail); the last one is used")
    return _with_default_weights(facts.merge_repeated("last"), splits.train, note)


def _check_entities(facts: Graph, old: Graph) -> None:
    """Raise FocuseError if no entity of the new edges is in the run: they would be a graph of their own."""
    names = facts.entities.take(np.unique(np.concatenate([facts.head, facts.tail])))
    if not len(names) or (old.entities.ids(names) >= 0).any():
        return
    shown = ", ".join(map(repr, names[:2].to_pylist())) + (", …" if len(names) > 2 else "")
    missing = f"{facts.source}: the run has none of its {counted(len(names), 'entities')} ({shown})"
    known, given = _words(old.entities.column), _words(names)
    if known and given and known != given:
        if known == [""]:
            raise FocuseError(f"{missing}, but numbers without words; give --same-ids (same_ids=True)")
        example, headings = (" and ".join(repr(word + more) for word in known) for more in (" 1", ""))
        raise FocuseError(
            f"{missing}, but names like {example}; give the columns of numbers the headings {headings}, and "
            "--separate-ids (same_ids=False) if they are still not kept apart"
        )
    near = did_you_mean(old.entities.nearest(names[0].as_py()))
    raise FocuseError(f"{missing}{near}; at least one edge needs a known entity, such as {old.entities[0]!r}")


def _words(names: pa.Array) -> list[str]:
    """Return the words before the numbers that all names end with, [''] for numbers alone; else []."""
    numbered = pc.match_substring_regex(names, r"^([^\d].* )?\d+$")
    if not pc.all(numbered).as_py():
        return []
    words = pc.unique(pc.replace_substring_regex(names, r" ?\d+$", ""))
    return words.to_pylist() if len(words) <= 2 else []


def _with_default_weights(facts: Graph, train: Graph, note: Note) -> Graph:
    """Give edges without weights the median weights of the run's graph, or drop their weights if it has none."""
    if facts.weighted == train.weighted or not len(facts):
        return facts
    if not train.weighted:
        note(f"{facts.source}: the run's graph has no weights, so the weights of the new edges are ignored")
        return replace(facts, weight=np.ones(len(facts)), weighted=False)
    weight, ids = np.full(len(facts), np.median(train.weight)), train.relations.ids(facts.relations.column)
    for relation in np.unique(facts.relation):
        known = train.weight[train.relation == ids[relation]]
        if len(known):
            weight[facts.relation == relation] = np.median(known)
    note(f"{facts.source}: no weights; each new edge gets the median weight of its relation in the run's graph")
    return replace(facts, weight=weight, weighted=True)


def _extend_vocabulary(known: Vocabulary, names: Vocabulary, used: npt.NDArray[Any]) -> Vocabulary:
    """Return the vocabulary with the new names among the `used` ids appended, in the order of their ids."""
    candidates = names.take(np.unique(used))
    lacking = candidates.filter(pa.array(known.ids(candidates) < 0))
    return Vocabulary(pa.concat_arrays([known.column, lacking.cast(known.column.type)])) if len(lacking) else known


def _map_graphs(splits: Splits, change: Callable[[Graph], Graph]) -> Splits:
    """Return the splits with every graph changed."""
    names = ("train", "valid", "test", "inferred", "known_negatives")
    graphs = {name: getattr(splits, name) for name in names}
    changed: dict[str, Any] = {name: change(graph) for name, graph in graphs.items() if graph is not None}
    return replace(splits, **changed)


def _remove_triples(splits: Splits, remove: Any, note: Note) -> tuple[Splits, int]:
    """Return the splits without the given triples, and the number of removed rows."""
    if remove is None:
        return splits, 0
    given = read(remove)
    for line in given.notes:
        note(line)
    wanted = given.align(splits.train).graph
    held = splits.train, splits.valid, splits.test
    unknown = len(given) - int(np.any([contained_in(wanted, part) for part in held], axis=0).sum())
    if unknown:
        note(f"{given.source}: {unknown:,} of {len(given):,} triples to remove are not in the run; skipped")
    wanted = with_both_directions(wanted)
    left = _map_graphs(replace(splits, known_negatives=None), lambda graph: graph.select(~contained_in(graph, wanted)))
    if not len(left.train):
        raise FocuseError(f"{given.source}: it would remove every edge of train; keep at least one")
    gone = sum(map(len, held)) - len(left.train) - len(left.valid) - len(left.test)
    return replace(left, known_negatives=splits.known_negatives), gone


def _extend_normalizer(splits: Splits, normalizer: Normalizer, facts: Graph, known: int) -> tuple[Splits, Normalizer]:
    """Return the splits and the normalizer, with normalizers that cover the new relations."""
    merger = splits.merger
    if merger is None:
        return splits, with_more_relations(normalizer, facts, known)
    if facts.columns is None:  # the merger raises an error for it later
        return splits, normalizer
    columns = WeightColumns(merger.names, facts.columns.values_of(merger.names), merger.lower_is_better)
    named = replace(facts, columns=columns)
    each = zip(merger.names, merger.normalizers, strict=True)
    more = tuple(with_more_relations(one, named.column(name), known) for name, one in each)
    return replace(splits, merger=replace(merger, normalizers=more)), normalizer


def _without_held_out(facts: Graph, splits: Splits, note: Note) -> Graph:
    """Return the new edges without those of the run's validation and test splits, which are not changed."""
    for name, part in (("validation", splits.valid), ("test", splits.test)):
        held = contained_in(facts, part)
        if held.any():
            count = counted(int(held.sum()), "edges", "are")
            note(f"{facts.source}: {count} in the run's {name} split and not trained on; the old weights are kept")
            facts = facts.select(~held)
    return facts


def _replace_weights(train: Graph, new: Graph, note: Note) -> tuple[Graph, Graph, int]:
    """Give triples of train the weights of new edges; return train, the other edges, and the number of new weights."""
    repeated = contained_in(train, new)
    if not repeated.any():
        return train, new, 0
    old = train.select(repeated).merge_repeated("last")
    is_known = contained_in(new, old)
    again, order = new.select(is_known), np.argsort(old.keys)
    before = old.weight[order][find_sorted(old.keys[order], again.keys)[0]]
    changed = int((before != again.weight).sum())
    if changed:
        note(f"{new.source}: {counted(changed, 'edges', 'change')} the weight of a training triple")
    return concatenate([train.select(~repeated), again]), new.select(~is_known), changed


def _warn_about_weights(facts: Graph, train: Graph, normalizer: Normalizer, splits: Splits, note: Note) -> None:
    """Report weights outside of the range of the run, which may have another unit."""
    old = facts.select(facts.relation < len(train.relations))
    if not len(old) or not old.weighted or splits.merger is not None:
        return
    back = normalizer.inverse(normalizer.transform(old.weight, old.relation), old.relation)
    size = float(np.abs(train.weight).max()) or 1.0
    beyond = int((np.abs(back - old.weight) > 1e-6 * np.maximum(np.abs(old.weight), size)).sum())
    if beyond:
        note(
            f"{facts.source}: {beyond:,} of {len(old):,} weights are outside of the range of their relation in train "
            "and are clipped to it; if the units differ, convert the weights first"
        )


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
        if not rows.all():
            note(f"{found.source}: {int((~rows).sum()):,} of {len(rows):,} rows have known or unused names; left out")
        place, kind = place[rows], kind[rows]
        spread = numbers.deviation[kind]
        distance = found.value[rows] - numbers.mean[kind]
        values[place, kind] = np.divide(distance, spread, out=np.zeros_like(distance), where=spread > 0)
        present[place, kind] = True
    without = more - int(present[known:].any(axis=1).sum())
    if without:
        note(f"{without:,} of {more:,} new entities have no node_attributes; they count as missing")
    return replace(numbers, values=values, present=present)
