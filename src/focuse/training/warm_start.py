"""Initialize a training with the embeddings of another run, matched by name.

If the other model has an encoder, its encoded tables are used. So one model can pretrain another, such as TransE or
KBGAT's attention for ConvKB. Shared parameters (filters, matrices) are still initialized at random.
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
    """Return initial `tables` for a training on `mine`, with the rows of the run in `folder` for the same names.

    Names that the other run does not have keep their initial values. `build_model` builds the model of the other run.
    """
    store = RunFolder.open(Path(folder))
    settings, splits, _ = store.metadata()
    found = store.model("cpu")[0]
    model = build_model(replace(settings, device="cpu"), splits)  # the tables are on the CPU
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
        matched, counts[name] = _copy_matching_rows(mine_rows, wanted, rows, known)
        made[name] = matched if mine_rows is tables[name] else split_inverse_relations(matched)
    if not counts["entity"]:
        raise FocuseError(f"init_from {folder}: it has none of this graph's entities; give a run with the same names")
    entities, relations = (f"{counts[name]:,} of {len(names[name][0]):,}" for name in ("entity", "relation"))
    copied = f"{entities} entities and {relations} relations"
    note(f"init_from {folder}: {copied} start from its {settings.model} embeddings")
    for leak in _leakage(mine, splits):
        note(
            f"init_from {folder}: leakage: it was trained on {leak}, so metrics will be too high; use the same split "
            "(--seed, or --valid and --test)"
        )
    return made


def _leakage(mine: Splits, theirs: Splits) -> Iterator[str]:
    """Yield a description of the validation and test triples on which the other run was trained."""
    learnt = build_triple_index([theirs.train.align(mine.train).graph])
    for part, name in ((mine.valid, "validation"), (mine.test, "test")):
        seen = int(learnt.contains(*id_tensors(part)).sum()) if len(part) else 0
        if seen:
            yield f"{seen:,} of the {len(part):,} {name} triples"


def _named_rows(table: torch.Tensor, names: Vocabulary) -> torch.Tensor:
    """Return a table with one row per name, in which a relation is followed by its inverse."""
    return table if len(table) == len(names) else join_inverse_relations(table)


def _check_widths(name: str, table: torch.Tensor, found: torch.Tensor, folder: str, other: Config) -> None:
    if table.shape[1] != found.shape[1]:
        raise FocuseError(
            f"init_from {folder}: a row of its {name} table ({other.model}, dim {other.dim}) has {found.shape[1]} "
            f"values, but this training needs {table.shape[1]}; choose a model and a dim of the same width"
        )


def _copy_matching_rows(
    table: torch.Tensor, wanted: Vocabulary, found: torch.Tensor, known: Vocabulary
) -> tuple[torch.Tensor, int]:
    """Return `table` [n, d] with the rows of `found` [m, d] for the same names, and the number of these rows."""
    place = torch.from_numpy(known.ids(wanted.column)).long()
    there = place >= 0
    made = table.clone()
    made[there] = found[place[there]].to(table)
    return made, int(there.sum())
