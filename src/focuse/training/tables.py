"""Whether the tables of a run are those of its model."""

from __future__ import annotations

from pathlib import Path

import torch

from focuse.errors import FocuseError
from focuse.graph import Graph
from focuse.models import MODELS, Model
from focuse.training.checkpoints import Tables
from focuse.training.settings import Settings


def check_tables(
    tables: Tables, settings: Settings, model: Model, train: Graph, folder: Path, rows: slice = slice(None)
) -> None:
    """Tables must fit the settings and the names of their run; of the entities, `rows` are there."""
    dense = model.dense_start(settings.dim, torch.Generator())
    expected = {
        "entity": (len(range(len(train.entities))[rows]), model.entity_width(settings.dim)),
        "relation": (len(train.relations), model.relation_width(settings.dim)),
        **{name: tuple(value.shape) for name, value in dense.items()},
    }
    for name, shape in expected.items():
        found = tuple(tables[name].shape) if name in tables else None
        if found != shape:
            fault = "damaged run" if settings.model in MODELS else f"damaged run, or not of {settings.model}"
            raise FocuseError(f"{folder}: {fault}: table {name!r} is {found} instead of {shape}")
