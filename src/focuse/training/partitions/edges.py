"""Entities dealt out to partitions, and edges sorted on disk by the partitions of their two ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.engines.base import Batch
from focuse.focus import Label
from focuse.graph.arrays import Shape, chunks, forgotten, header_of, map_arrays, read_header, synced
from focuse.graph.checksums import KEY, UNKNOWN, check_tensors, seal_tensors
from focuse.graph.graph import Graph
from focuse.graph.weights import Normaliser
from focuse.training.files import writing
from focuse.training.partitions.files import reading
from focuse.training.partitions.plan import Stage

DEAL = 0xDEA1  # place of the random stream that deals entities out
MIX = 0x317  # and of that which mixes edges
CHUNK = 1 << 20  # edges sorted at once
SLICES = 16  # of a bucket, that make up a part of it
COLUMNS = 4  # head, relation, tail, and the bits of the weight
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Dealt:
    """Which partition each entity is of, `part` uint16 [E], and its row there, `row` int32 [E].

    Entities of a partition lie in the order of their ids: a table in that order is written and read front to back.
    """

    part: npt.NDArray[np.uint16]
    row: Ints
    sizes: npt.NDArray[np.int64]

    @classmethod
    def of(cls, entities: int, partitions: int, seed: int) -> Dealt:
        """By chance, so that popular ones spread; as even as can be.

        >>> Dealt.of(10, 4, 0).sizes.tolist()
        [3, 3, 2, 2]
        """
        part = (np.arange(entities) % partitions).astype(np.uint16)
        if partitions > 1:
            np.random.default_rng([seed, DEAL]).shuffle(part)
        return cls.read(part, partitions)

    @classmethod
    def read(cls, part: npt.NDArray[np.uint16], partitions: int) -> Dealt:
        sizes = np.bincount(part, minlength=partitions)
        order = np.argsort(part, kind="stable")
        row = np.empty(len(part), np.int32)
        starts = np.cumsum(sizes) - sizes
        for piece in chunks(len(part), CHUNK):
            found = part[order[piece]]
            row[order[piece]] = np.arange(piece.start, piece.stop) - starts[found]
        return cls(part, row, sizes)

    @property
    def partitions(self) -> int:
        return len(self.sizes)


class EdgeFile:
    """Training edges on disk, bucket after bucket; within a bucket in random order, a single one in the graph's."""

    def __init__(self, path: Path, counts: npt.NDArray[np.int64], dealt: Dealt) -> None:
        self.path, self.counts, self.dealt = path, counts, dealt
        self.starts = np.cumsum(counts) - counts
        with reading(path):
            self.place = read_header(path)[0]["edges"][1]

    def __len__(self) -> int:
        return int(self.counts.sum())

    @classmethod
    def open(cls, path: Path) -> EdgeFile:
        with reading(path):
            check_tensors(path, required=True)
            arrays = map_arrays(path)
            counts = np.array(arrays["counts"])
            partitions = round(len(counts) ** 0.5)
            if counts.sum() != len(arrays["edges"]) or partitions**2 != len(counts):
                raise ValueError("counts that are not of its edges")
            dealt = Dealt.read(np.array(arrays["part"]), partitions)
        return cls(path, counts, dealt)

    def count(self, stage: Stage) -> int:
        """Edges that a stage trains."""
        starts, stops = self._rows(stage)
        return int((stops - starts).sum())

    def crowding(self, stage: Stage) -> float:
        """The chance that two ends of a stage's edges are of one partition; 1 / P where all are trained at once."""
        starts, stops = self._rows(stage)
        edges = (stops - starts).sum(-1)
        ends = edges.sum(0) + edges.sum(1)
        return float(((ends / ends.sum()) ** 2).sum())

    def _rows(self, stage: Stage) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where the edges that a stage trains begin and end within each bucket, [c, c, SLICES].

        A part is made of slices from all over a bucket, for the graph's own order is left in it from far.
        """
        sizes = self.counts.reshape(self.dealt.partitions, -1)[np.ix_(stage.active, stage.active)][..., None]
        number, parts = stage.number[..., None], stage.parts[..., None]
        slices = number + parts * np.arange(SLICES)
        return sizes * slices // (parts * SLICES), sizes * (slices + 1) // (parts * SLICES)

    def read(self, stage: Stage, rows: int) -> Ints:
        """The edges of a stage, [n, 4]: ids are places in memory, where slot s begins at row s · `rows`."""
        slot = stage.slot_of(self.dealt.partitions)
        edges = np.empty((self.count(stage), COLUMNS), np.int32)
        starts, stops = self._rows(stage)
        active, at = stage.active, 0
        with reading(self.path), self.path.open("rb", buffering=0) as file:
            for one, two, piece in np.argwhere(stops > starts).tolist():
                head, tail = active[one], active[two]
                start, stop = int(starts[one, two, piece]), int(stops[one, two, piece])
                some = edges[at : at + stop - start]
                at += len(some)
                first = int(self.starts[head * self.dealt.partitions + tail]) + start
                file.seek(self.place + first * 4 * COLUMNS)
                if file.readinto(some.reshape(-1).view(np.uint8).data) != some.nbytes:
                    raise ValueError("the edges are cut short")
                some[:, 0] += np.int32(slot[head] * rows)
                some[:, 2] += np.int32(slot[tail] * rows)
            forgotten(file)
        return edges


def sort_edges(path: Path, graph: Graph, normaliser: Normaliser, dealt: Dealt, tick: Callable[[], Any]) -> EdgeFile:
    """Write the edges of `graph` to disk by buckets, in two walks over them: counting, then placing."""
    partitions, part = dealt.partitions, dealt.part
    counts = np.zeros(partitions * partitions, np.int64)
    for piece in chunks(len(graph), CHUNK):
        counts += np.bincount(_buckets(graph, piece, dealt), minlength=len(counts))
        tick()
    shapes = {
        "counts": Shape(counts.dtype, counts.shape),
        "edges": Shape(np.dtype("<i4"), (len(graph), COLUMNS)),
        "part": Shape(part.dtype, part.shape),
    }
    first, places = header_of(shapes, {KEY: UNKNOWN})
    ends = np.cumsum(counts) - counts  # where the next edge of each bucket goes
    with writing(path), path.open("wb") as file:
        file.write(first)
        file.seek(places["counts"])
        file.write(counts.data)
        file.seek(places["part"])
        file.write(part.data)
        for piece in chunks(len(graph), CHUNK):
            bucket = _buckets(graph, piece, dealt)
            order = _mixed(bucket, partitions, piece.start)
            edges = np.empty((len(bucket), COLUMNS), np.int32)
            weight = normaliser.transform(graph.weight[piece], graph.relation[piece]).astype(np.float32)
            edges[:, 0], edges[:, 2] = (dealt.row[ids[piece]][order] for ids in (graph.head, graph.tail))
            edges[:, 1], edges[:, 3] = graph.relation[piece][order], weight[order].view(np.int32)
            sizes = np.bincount(bucket, minlength=len(counts))
            begin = np.cumsum(sizes) - sizes
            for at in np.flatnonzero(sizes).tolist():
                file.seek(places["edges"] + int(ends[at]) * 4 * COLUMNS)
                file.write(edges[begin[at] : begin[at] + sizes[at]].data)
            ends += sizes
            tick()
    seal_tensors(path)
    with path.open("r+b") as file:
        synced(file)
        forgotten(file)
    return EdgeFile(path, counts, dealt)


def _mixed(bucket: npt.NDArray[Any], partitions: int, start: int) -> npt.NDArray[np.int64]:
    """Places by bucket; within one by chance, so that a part of it is like the whole, however the file was sorted."""
    if partitions == 1:
        return np.arange(len(bucket))
    mixed = np.random.default_rng([start, MIX]).permutation(len(bucket))
    found: npt.NDArray[np.int64] = mixed[np.argsort(bucket[mixed], kind="stable")]
    return found


def _buckets(graph: Graph, piece: slice, dealt: Dealt) -> npt.NDArray[Any]:
    heads, tails = (dealt.part[ids[piece]].astype(np.uint32) for ids in (graph.head, graph.tail))
    found = heads * np.uint32(dealt.partitions) + tails
    return found.astype(np.uint16) if dealt.partitions <= 256 else found  # of 16 bits numpy sorts in one walk


class StageEdges:
    """Edges in memory as a trainer takes batches of them; ids in 16 bytes an edge until a batch is taken."""

    def __init__(self, edges: Ints, label: Label | None) -> None:
        self.edges, self.label = torch.from_numpy(edges), label

    def __len__(self) -> int:
        return len(self.edges)

    def take(self, rows: Tensor) -> Batch:
        """The rows int64 [B] of it."""
        some = self.edges.index_select(0, rows)
        head, relation, tail = (some[:, place].long() for place in range(3))
        weight = some[:, 3].contiguous().view(torch.float32)
        return Batch(head, relation, tail, weight if self.label is None else self.label(weight))
