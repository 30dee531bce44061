"""First embeddings written to their partitions, and final ones to one table: front to back, never whole in memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from focuse.errors import FocuseError
from focuse.graph.arrays import Array, Shape, chunks, forgotten, header_of, pieces, put_checksum, shape_of, synced
from focuse.graph.checksums import KEY, UNKNOWN, seal_tensors
from focuse.models import Model
from focuse.training.files import writing
from focuse.training.loop import INITIAL, initial_tables
from focuse.training.negatives import generator
from focuse.training.partitions.edges import Dealt
from focuse.training.partitions.files import PartitionFiles
from focuse.training.settings import Settings

FLOAT = np.dtype("<f4")
CHUNK = 1 << 16  # rows at a time; torch draws the same numbers in pieces as at once where a piece has 16 n of them


def write_first(
    files: PartitionFiles, dealt: Dealt, settings: Settings, model: Model, relations: int
) -> dict[str, torch.Tensor]:
    """First versions of all partitions, the numbers that a training in memory begins with; and the other tables."""
    width, entities = model.entity_width(settings.dim), len(dealt.part)
    firsts = [header_of({"entity": Shape(FLOAT, (size, width))}, {KEY: UNKNOWN})[0] for size in dealt.sizes.tolist()]
    sums = [zlib.crc32(first) for first in firsts]  # of what each file holds so far
    for part, first in enumerate(firsts):
        with writing(files.path(part, 0)) as path:
            path.write_bytes(first)
    random = generator(settings.seed, 0, INITIAL)
    spread = settings.spread or model.spread or (2.0 / (entities + width)) ** 0.5
    for piece in _row_pieces(entities):
        values = torch.randn((piece.stop - piece.start, width), generator=random) * spread
        rows = model.table_start("entity", values).numpy()
        for part, places in _by_part(dealt.part[piece]):
            with writing(files.path(part, 0)) as path, path.open("ab") as file:
                some = np.ascontiguousarray(rows[places]).data
                file.write(some)
            sums[part] = zlib.crc32(some, sums[part])
    for part, total in enumerate(sums):
        with writing(files.path(part, 0)) as path, path.open("r+b") as file:
            put_checksum(file, total, firsts[part])
            synced(file)
            forgotten(file)
    # The generator stands where it would after a whole table of entities: none are left to draw here.
    others = initial_tables(settings, model, 0, relations, random=random)
    return {name: table for name, table in others.items() if name != "entity"}


def _row_pieces(rows: int) -> Iterator[slice]:
    """Pieces of `CHUNK` rows; a short rest goes with the last one, for torch draws fewer than 16 numbers otherwise."""
    for piece in chunks(rows, CHUNK):
        if rows - piece.stop < 16 and piece.stop < rows:
            yield slice(piece.start, rows)
            return
        yield piece


def _by_part(part: npt.NDArray[np.uint16]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """For each partition among [n], the places of its entities, ascending."""
    order = np.argsort(part, kind="stable")
    sizes = np.bincount(part)
    ends = np.cumsum(sizes)
    for number in np.flatnonzero(sizes).tolist():
        yield number, order[ends[number] - sizes[number] : ends[number]]


def write_whole(
    path: Path, files: PartitionFiles, versions: list[int], dealt: Dealt, others: Mapping[str, Array]
) -> None:
    """All tables as one file: that of entities in the order of their ids, then the others."""
    maps = files.maps(versions, "entity")
    shapes = {"entity": Shape(FLOAT, (len(dealt.part), maps[0].shape[1]))}
    shapes |= {name: shape_of(values) for name, values in others.items()}
    first, _ = header_of(shapes, {KEY: UNKNOWN})
    with path.open("wb") as file:
        file.write(first)
        for piece in chunks(len(dealt.part), CHUNK):
            rows = np.empty((piece.stop - piece.start, maps[0].shape[1]), np.float32)
            for part, places in _by_part(dealt.part[piece]):
                begin = int(dealt.row[piece.start + places[0]])
                rows[places] = maps[part][begin : begin + len(places)]
            if not np.isfinite(rows).all():
                raise FocuseError("training diverged in its last step; lower the learning rate (--lr)")
            file.write(rows.data)
        for values in others.values():
            for some in pieces(values):
                file.write(some)
    seal_tensors(path)
    with path.open("r+b") as file:
        synced(file)
        forgotten(file)
