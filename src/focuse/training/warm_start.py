"""A training that begins where another run ended: its embeddings become the first ones, matched by name.

Of a model that encodes its tables these are the encoded ones. So one model prepares another: TransE for ConvKB, and
KBGAT's attention for ConvKB, its decoder. What all triples share (filters, matrices) begins by chance as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch

from focuse.config import Config
from focuse.data.graph import Vocabulary
from focuse.data.splits import Splits
from focuse.data.triple_index import build_triple_index, id_tensors
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError
from focuse.models.base import Model, join_inverse_relations, split_inverse_relations
from focuse.storage.run_folder import RunFolder
from focuse.storage.tables import check_tables
from focuse.storage.tensors import Tables


def started(
    tables: Tables,
    folder: str,
    mine: Splits,
    build_model: Callable[[Config, Splits], Model],
    note: Callable[[str], None],
) -> Tables:
    """First `tables` of a training on `mine`, with the rows that the run in `folder` has for the same names.

    Names that it does not know keep their first values. `build_model` puts a run's model in its graph.
    """
    store = RunFolder.open(Path(folder))
    settings, splits, _ = store.metadata()
    found = store.model("cpu")[0]
    model = build_model(replace(settings, device="cpu"), splits)  # where its tables are
    check_tables(found, settings, model, splits.train, Path(folder))
    if model.encoder is not None:
        found = dict(TableScorer(model, found, settings.reciprocal).encoded_tables())
    names = {
        "entity": (mine.train.entities, splits.train.entities),
        "relation": (mine.train.relations, splits.train.relations),
    }
    made, counts = dict(tables), {}
    for name, (wanted, known) in names.items():
        mine_rows, rows = _named_rows(tables[name], wanted), _named_rows(found[name], known)
        _check_widths(name, mine_rows, rows, folder, settings)
        matched, counts[name] = _matched(mine_rows, wanted, rows, known)
        made[name] = matched if mine_rows is tables[name] else split_inverse_relations(matched)
    if not counts["entity"]:
        raise FocuseError(f"start {folder}: it knows none of this graph's entities; give a run on the same names")
    entities, relations = (f"{counts[name]:,} of {len(names[name][0]):,}" for name in ("entity", "relation"))
    note(f"start {folder}: {entities} entities and {relations} relations begin with its {settings.model} embeddings")
    for leak in _leaks(mine, splits):
        note(f"start {folder}: it was trained on {leak}: their figures will be too good; split both alike (--seed)")
    return made


def _leaks(mine: Splits, theirs: Splits) -> Iterator[str]:
    """What of this training's validation and test the other run has learnt."""
    learnt = build_triple_index([theirs.train.align(mine.train).graph])
    for part, name in ((mine.valid.graph, "validation"), (mine.test.graph, "test")):
        seen = int(learnt.contains(*id_tensors(part)).sum()) if len(part) else 0
        if seen:
            yield f"{seen:,} of the {len(part):,} {name} triples"


def _named_rows(table: torch.Tensor, names: Vocabulary) -> torch.Tensor:
    """A table with one row per name: inverse relations come behind their relations."""
    return table if len(table) == len(names) else join_inverse_relations(table)


def _check_widths(name: str, table: torch.Tensor, found: torch.Tensor, folder: str, other: Config) -> None:
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
