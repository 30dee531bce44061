"""What a training of several processes does otherwise: who holds which rows, and one folder that all write to.

The folder must be one that every process sees. Its files are those of any run: each process writes its own rows of the
entities into one file, so that it loads on any number of processes, or without.
"""

from __future__ import annotations

from itertools import pairwise

import torch

from focuse.engines.company import joined
from focuse.engines.sharded import SHARDED
from focuse.models import Model, Reciprocal
from focuse.training.settings import Settings

AT_ONCE = 1 << 24  # random numbers, 64 MB


def own_rows(settings: Settings, entities: int) -> slice:
    """The rows of entities that this process holds; all, unless the engine is a sharded one."""
    return joined().part(entities) if settings.engine in SHARDED else slice(None)


def home_of(settings: Settings, table: str) -> str:
    """Where a table lies: with what computes, or rows of entities in main memory if that was asked for."""
    return "cpu" if settings.engine == "sharded:host" and table == "entity" else settings.device


def alike(model: Model) -> bool:
    """Whether a model's first rows are made one by one, so that some can be made without the others."""
    inner = model.inner if isinstance(model, Reciprocal) else model
    return type(inner).table_start is Model.table_start


def normal_rows(shape: tuple[int, int], random: torch.Generator, rows: slice = slice(None)) -> torch.Tensor:
    """The rows of torch.randn(shape), bit for bit, without holding the others.

    >>> made = normal_rows((100, 3), torch.Generator().manual_seed(1), slice(40, 60))
    >>> bool((made == torch.randn(100, 3, generator=torch.Generator().manual_seed(1))[40:60]).all())
    True
    """
    count, width = shape
    start, stop, _ = rows.indices(count)
    # torch draws 16 numbers at a time, and the last few anew: pieces of 16 rows go on where the last one ended.
    size = max(16, AT_ONCE // max(width, 1) // 16 * 16)
    cuts = [*range(0, max(count - 15, 1), size), count]
    kept = []
    for begin, end in pairwise(cuts):
        piece = torch.randn((end - begin, width), generator=random)
        kept.append(piece[max(start - begin, 0) : max(stop - begin, 0)].clone())
    return torch.cat(kept)
