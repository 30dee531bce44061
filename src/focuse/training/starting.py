"""A training that begins where another run ended: its embeddings become the first ones, matched by name.

Of a model that encodes its tables these are the encoded ones. So one model prepares another: TransE for ConvKB, and
KBGAT's attention for ConvKB, its decoder. What all triples share (filters, matrices) begins by chance as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch

from focuse.engines import ReferenceEngine
from focuse.errors import FocuseError
from focuse.evaluation.evaluate import ids_of, known_facts
from focuse.graph.splits import Splits
from focuse.graph.vocabulary import Vocabulary
from focuse.models import Model
from focuse.training.checkpoints import Store, Tables
from focuse.training.settings import Settings
from focuse.training.tables import check_tables


def started(
    tables: Tables,
    folder: str,
    mine: Splits,
    model_in: Callable[[Settings, Splits], Model],
    note: Callable[[str], None],
) -> Tables:
    """First `tables` of a training on `mine`, with the rows that the run in `folder` has for the same names.

    Names that it does not know keep their first values. `model_in` puts a run's model in its graph.
    """
    store = Store.open(Path(folder))
    settings, splits, _ = store.fixed()
    found = store.model("cpu")[0]
    model = model_in(replace(settings, device="cpu"), splits)  # where its tables are
    check_tables(found, settings, model, splits.train, Path(folder))
    if model.encodes:
        dense = {name: table for name, table in found.items() if name not in ("entity", "relation")}
        found = ReferenceEngine(model, found["entity"], found["relation"], dense=dense).finished()
    names = {
        "entity": (mine.train.entities, splits.train.entities),
        "relation": (mine.train.relations, splits.train.relations),
    }
    made, counts = dict(tables), {}
    for name, (wanted, known) in names.items():
        _check_widths(name, tables[name], found[name], folder, settings)
        made[name], counts[name] = _matched(tables[name], wanted, found[name], known)
    if not counts["entity"]:
        raise FocuseError(f"start {folder}: it knows none of this graph's entities; give a run on the same names")
    entities, relations = (f"{counts[name]:,} of {len(names[name][0]):,}" for name in ("entity", "relation"))
    note(f"start {folder}: {entities} entities and {relations} relations begin with its {settings.model} embeddings")
    for leak in _leaks(mine, splits):
        note(f"start {folder}: it was trained on {leak}: their figures will be too good; split both alike (--seed)")
    return made


def _leaks(mine: Splits, theirs: Splits) -> Iterator[str]:
    """What of this training's validation and test the other run has learnt."""
    learnt = known_facts([theirs.train.align(mine.train).graph])
    for part, name in ((mine.valid.graph, "validation"), (mine.test.graph, "test")):
        seen = int(learnt.contains(*ids_of(part)).sum()) if len(part) else 0
        if seen:
            yield f"{seen:,} of the {len(part):,} {name} triples"


def _check_widths(name: str, table: torch.Tensor, found: torch.Tensor, folder: str, other: Settings) -> None:
    if table.shape[1] != found.shape[1]:
        raise FocuseError(
            f"start {folder}: a row of its {name} table ({other.model}, dim {other.dim}) holds {found.shape[1]} "
            f"numbers, this training's {table.shape[1]}; choose a dim and a model with rows as wide"
        )


def _matched(
    table: torch.Tensor, wanted: Vocabulary, found: torch.Tensor, known: Vocabulary
) -> tuple[torch.Tensor, int]:
    """`table` [n, d] with the rows of `found` [m, d] whose names are wanted, and how many those are."""
    place = torch.from_numpy(known.ids(wanted.column)).long()
    there = place >= 0
    made = table.clone()
    made[there] = found[place[there]].to(table)
    return made, int(there.sum())
