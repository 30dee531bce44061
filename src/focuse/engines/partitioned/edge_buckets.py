"""The assignment of entities to partitions, and the training edges in buckets on disk, one per pair of partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.data.graph import Graph
from focuse.data.weights import Normalizer
from focuse.engines.partitioned.stages import Stage
from focuse.objective.focuse import SoftLabels
from focuse.objective.negatives import Batch
from focuse.random_streams import RandomStream
from focuse.storage.tensors import (
    ArraySpec,
    TensorFile,
    check_tensors,
    drop_page_cache,
    map_arrays,
    read_header,
    reading_partition,
    writing,
)
from focuse.system import chunks

CHUNK = 1 << 20  # edges sorted at once
SLICES = 16  # number of slices of a bucket that make up one part of it
COLUMNS = 4  # head, relation, tail, and the bits of the weight
EDGE_BYTES = 4 * COLUMNS
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class PartitionAssignment:
    """The partition of each entity, `part` uint16 [E], its row in it, `row` int32 [E], and the `sizes` [P].

    The entities of a partition are ordered by their ids, so that whole tables are written and read sequentially.
    """

    part: npt.NDArray[np.uint16]
    row: Ints
    sizes: npt.NDArray[np.int64]

    @classmethod
    def random(cls, entities: int, partitions: int, seed: int) -> PartitionAssignment:
        """Assign entities at random, which spreads those of high degree evenly; sizes differ by at most one.

        >>> PartitionAssignment.random(10, 4, 0).sizes.tolist()
        [3, 3, 2, 2]
        """
        part = (np.arange(entities) % partitions).astype(np.uint16)
        if partitions > 1:
            np.random.default_rng([seed, RandomStream.PARTITION_ASSIGNMENT]).shuffle(part)
        return cls.from_parts(part, partitions)

    @classmethod
    def from_parts(cls, part: npt.NDArray[np.uint16], partitions: int) -> PartitionAssignment:
        """Return the assignment of entities to the given partitions, uint16 [E]."""
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


class EdgeBuckets:
    """Training edges on disk, grouped by bucket.

    The edges of a bucket are in random order; with one partition they are in the order of the graph. `counts` [P · P]
    holds the number of edges from partition i to partition j at index i · P + j.
    """

    def __init__(self, path: Path, counts: npt.NDArray[np.int64], assignment: PartitionAssignment) -> None:
        self.path, self.counts, self.assignment = path, counts, assignment
        self.starts = np.cumsum(counts) - counts
        with reading_partition(path):
            self.offset = read_header(path)["edges"][1]

    def __len__(self) -> int:
        return int(self.counts.sum())

    @classmethod
    def open(cls, path: Path) -> EdgeBuckets:
        """Open and check a file that `write_edge_buckets` wrote."""
        with reading_partition(path):
            check_tensors(path, required=True)
            arrays = map_arrays(path)
            counts = np.array(arrays["counts"])
            partitions = round(len(counts) ** 0.5)
            if counts.sum() != len(arrays["edges"]) or partitions**2 != len(counts):
                raise ValueError("its counts do not match its edges")
            assignment = PartitionAssignment.from_parts(np.array(arrays["part"]), partitions)
        return cls(path, counts, assignment)

    def count(self, stage: Stage) -> int:
        """Return the number of edges that a stage trains."""
        starts, stops = self._rows(stage)
        return int((stops - starts).sum())

    def same_partition_probability(self, stage: Stage) -> float:
        """Return the probability that two random endpoints of a stage's edges are in the same partition.

        It is about 1 / P if all partitions are active.
        """
        starts, stops = self._rows(stage)
        edges = (stops - starts).sum(-1)
        ends = edges.sum(0) + edges.sum(1)
        return float(((ends / ends.sum()) ** 2).sum())

    def _rows(self, stage: Stage) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return where the edges that a stage trains begin and end within each bucket, [c, c, SLICES] each.

        A part consists of slices that are spread over the whole bucket. Edges are shuffled only within the chunk that
        was written together, so on a larger scale a bucket still has the order of the graph.
        """
        sizes = self.counts.reshape(self.assignment.partitions, -1)[np.ix_(stage.active, stage.active)][..., None]
        number, parts = stage.number[..., None], stage.parts[..., None]
        slices = number + parts * np.arange(SLICES)
        return sizes * slices // (parts * SLICES), sizes * (slices + 1) // (parts * SLICES)

    def read(self, stage: Stage, rows: int) -> Ints:
        """Return the edges of a stage, [n, 4]; ids are rows of the buffer, in which slot s begins at row s · `rows`."""
        slot = stage.slot_of(self.assignment.partitions)
        edges = np.empty((self.count(stage), COLUMNS), np.int32)
        starts, stops = self._rows(stage)
        active, at = stage.active, 0
        with reading_partition(self.path), self.path.open("rb", buffering=0) as file:
            for one, two, piece in np.argwhere(stops > starts).tolist():
                head, tail = active[one], active[two]
                start, stop = int(starts[one, two, piece]), int(stops[one, two, piece])
                some = edges[at : at + stop - start]
                at += len(some)
                first = int(self.starts[head * self.assignment.partitions + tail]) + start
                file.seek(self.offset + first * EDGE_BYTES)
                if file.readinto(some.reshape(-1).view(np.uint8).data) != some.nbytes:
                    raise ValueError("the file ends before the last edge")
                some[:, 0] += np.int32(slot[head] * rows)
                some[:, 2] += np.int32(slot[tail] * rows)
            drop_page_cache(file)
        return edges


def write_edge_buckets(
    path: Path, graph: Graph, normalizer: Normalizer, assignment: PartitionAssignment, tick: Callable[[], Any]
) -> EdgeBuckets:
    """Write the edges of `graph` to disk by buckets, in two passes: count them, then write each to its bucket."""
    partitions, part = assignment.partitions, assignment.part
    counts = np.zeros(partitions * partitions, np.int64)
    for piece in chunks(len(graph), CHUNK):
        counts += np.bincount(_bucket_of(graph, piece, assignment), minlength=len(counts))
        tick()
    specs = {
        "counts": ArraySpec.of(counts),
        "edges": ArraySpec(np.dtype("<i4"), (len(graph), COLUMNS)),
        "part": ArraySpec.of(part),
    }
    file = TensorFile(path, specs)
    ends = np.cumsum(counts) - counts  # where the next edge of each bucket goes
    with writing(path):
        file.create(allocate=True)
        with file.open():
            file.write("counts", counts)
            file.write("part", part)
            for piece in chunks(len(graph), CHUNK):
                bucket = _bucket_of(graph, piece, assignment)
                order = _shuffled_order(bucket, partitions, piece.start)
                edges = np.empty((len(bucket), COLUMNS), np.int32)
                weight = normalizer.transform(graph.weight[piece], graph.relation[piece]).astype(np.float32)
                edges[:, 0], edges[:, 2] = (assignment.row[ids[piece]][order] for ids in (graph.head, graph.tail))
                edges[:, 1], edges[:, 3] = graph.relation[piece][order], weight[order].view(np.int32)
                sizes = np.bincount(bucket, minlength=len(counts))
                begin = np.cumsum(sizes) - sizes
                for at in np.flatnonzero(sizes).tolist():
                    file.write("edges", edges[begin[at] : begin[at] + sizes[at]], int(ends[at]))
                ends += sizes
                tick()
        file.seal(drop_cache=True)
    return EdgeBuckets(path, counts, assignment)


def _shuffled_order(bucket: npt.NDArray[Any], partitions: int, start: int) -> npt.NDArray[np.int64]:
    """Return the edges sorted by bucket and shuffled within each, so that a part of a bucket is a random sample."""
    if partitions == 1:
        return np.arange(len(bucket))
    shuffled = np.random.default_rng([start, RandomStream.BUCKET_SHUFFLE]).permutation(len(bucket))
    found: npt.NDArray[np.int64] = shuffled[np.argsort(bucket[shuffled], kind="stable")]
    return found


def _bucket_of(graph: Graph, piece: slice, assignment: PartitionAssignment) -> npt.NDArray[Any]:
    heads, tails = (assignment.part[ids[piece]].astype(np.uint32) for ids in (graph.head, graph.tail))
    found = heads * np.uint32(assignment.partitions) + tails
    return found.astype(np.uint16) if assignment.partitions <= 256 else found  # numpy sorts 16 bits in one pass


class PackedEdges:
    """The edges of a stage, from which the trainer takes batches; an edge takes 16 bytes."""

    def __init__(self, edges: Ints, label: SoftLabels | None) -> None:
        self.edges, self.label = torch.from_numpy(edges), label

    def __len__(self) -> int:
        return len(self.edges)

    def take(self, rows: Tensor) -> Batch:
        """Return the edges at `rows`, int64 [B], as a batch."""
        some = self.edges.index_select(0, rows)
        head, relation, tail = (some[:, place].long() for place in range(3))
        weight = some[:, 3].contiguous().view(torch.float32)
        return Batch(head, relation, tail, weight if self.label is None else self.label(weight))
