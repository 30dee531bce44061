"""Initialize a training with the embeddings of another run, matched by name.

If the other model has an encoder, its encoded tables are used. So one model can pretrain another, such as TransE or
KBGAT's attention for ConvKB. Shared parameters (filters, matrices) are still initialized at random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from focuse.config import Config
from focuse.data.splits import Splits
from focuse.data.triple_index import build_triple_index, id_tensors
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError
from focuse.models.base import Model, join_inverse_relations, split_inverse_relations
from focuse.storage.run_folder import RunFolder
from focuse.storage.tables import check_tables
from focuse.storage.tensors import Tables


def copy_embeddings(
    tables: Tables,
    folder: str,
    splits: Splits,
    build_model: Callable[[Config, Splits], Model],
    note: Callable[[str], None],
) -> Tables:
    """Return initial `tables` for a training on `splits`, with the rows of the run in `folder` for the same names.

    Names that the other run does not have keep their initial values. `build_model` builds the model of the other run.
    """
    store = RunFolder.open(Path(folder))
    settings, other, _ = store.metadata()
    found = store.model("cpu")[0]
    model = build_model(replace(settings, device="cpu"), other)  # the tables are on the CPU
    check_tables(found, settings, model, other.train, Path(folder))
    if model.encoder is not None:
        found = dict(TableScorer(model, found, settings.reciprocal).encoded_tables())
    made, copied = dict(tables), []
    for name, plural in (("entity", "entities"), ("relation", "relations")):
        wanted, known = getattr(splits.train, plural), getattr(other.train, plural)
        # A relation and its inverse are one row here, because the other run may have no inverse relations.
        inverse = len(tables[name]) > len(wanted)
        rows = join_inverse_relations(tables[name]) if inverse else tables[name].clone()
        source = found[name] if len(found[name]) == len(known) else join_inverse_relations(found[name])
        if rows.shape[1] != source.shape[1]:
            raise FocuseError(
                f"init_from {folder}: a row of its {name} table ({settings.model}, dim {settings.dim}) has "
                f"{source.shape[1]} values, but this training needs {rows.shape[1]}; choose a model and a dim of the "
                "same width"
            )
        place = torch.from_numpy(known.ids(wanted.column)).long()
        rows[place >= 0] = source[place[place >= 0]].to(rows)
        made[name] = split_inverse_relations(rows) if inverse else rows
        copied.append(int((place >= 0).sum()))
    if not copied[0]:
        raise FocuseError(f"init_from {folder}: it has none of this graph's entities; give a run with the same names")
    note(
        f"init_from {folder}: {copied[0]:,} of {len(splits.train.entities):,} entities and {copied[1]:,} of "
        f"{len(splits.train.relations):,} relations start from its {settings.model} embeddings"
    )
    trained = build_triple_index([other.train.align(splits.train).graph])
    for part, name in ((splits.valid, "validation"), (splits.test, "test")):
        seen = int(trained.contains(*id_tensors(part)).sum()) if len(part) else 0
        if seen:
            note(
                f"init_from {folder}: leakage: it was trained on {seen:,} of the {len(part):,} {name} triples, so "
                "metrics will be too high; use the same split (--seed, or --valid and --test)"
            )
    return made
