"""Training with partitions: which are in memory together, their edges, their rows, and the negatives among them.

Every pair of partitions is in memory together at least once per epoch. `slots` of the P partitions are active at once.
Half of them stay while all others are loaded into the remaining slots, one by one. Then those that stayed have been
paired with all others, and the next partitions take their place. The edges between two partitions are divided among all
stages in which both are active, so that the edges of a stage are distributed about evenly over the active partitions.
If all of them were trained in the first such stage (Mohoney et al., 2021), every edge would have one endpoint in the
partition that was just loaded, and the update of a row would depend on its partition. An epoch takes about P² / slots
loads, twice the minimum.

The edges are on disk in buckets, one per pair of partitions. The buffer is one table that is divided into slots; a
thread loads and writes back partitions while others are trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.data.graph import Graph
from focuse.data.weights import Normalizer
from focuse.errors import FocuseError
from focuse.objective.focuse import SoftLabels
from focuse.objective.negatives import Batch, Negatives, NegativeSampler
from focuse.objective.randomness import StreamKey, draw_integers
from focuse.random_streams import RandomStream
from focuse.storage.tensors import (
    Array,
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

if TYPE_CHECKING:
    from focuse.storage.tables import PartitionFiles

MOST_PARTITIONS = 4096
BITS = 30  # bits per random number
CHUNK = 1 << 20  # edges sorted at once
SLICES = 16  # number of slices of a bucket that make up one part of it
COLUMNS = 4  # head, relation, tail, and the bits of the weight
EDGE_BYTES = 4 * COLUMNS
Ints = npt.NDArray[np.int32]


# ---- stages of an epoch ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Stage:
    """Partitions that are active together, and which parts of the edges between them are trained.

    `slots[s]` is the partition in slot s, or -1 for the free slot into which the next stage's new partition is loaded.
    The edges from `active[i]` to `active[j]` are divided into `parts[i, j]` equal parts, one per stage in which both
    are active; this stage trains part `number[i, j]`, counted from 0.
    """

    slots: tuple[int, ...]
    number: npt.NDArray[np.int64]
    parts: npt.NDArray[np.int64]

    @property
    def active(self) -> list[int]:
        """The active partitions in ascending order, so that negatives do not depend on the slots."""
        return sorted(part for part in self.slots if part >= 0)

    def slot_of(self, partitions: int) -> npt.NDArray[np.int64]:
        """Return the slot of each partition [P], -1 for a partition that is not active."""
        found = np.full(partitions, -1, np.int64)
        for slot, part in enumerate(self.slots):
            if part >= 0:
                found[part] = slot
        return found


def epoch_stages(partitions: int, slots: int, seed: int, epoch: int, rounds: int = 1) -> Iterator[Stage]:
    """Yield the stages of an epoch, a pure function of the arguments; each part of a bucket is trained once.

    Every pair of partitions is active together in each of the `rounds`. More rounds make the order of an epoch more
    random, but more data is read and written.

    >>> [stage.slots for stage in epoch_stages(3, 2, 0, 0)]
    [(2, 1, -1), (2, -1, 0), (-1, 1, 0)]
    """
    order = _slots_of_stages(partitions, slots, seed, epoch, rounds)
    meetings = np.zeros((partitions, partitions), np.int64)
    for each in order:
        active = sorted(part for part in each if part >= 0)
        meetings[np.ix_(active, active)] += 1
    so_far = np.zeros_like(meetings)
    for each in order:
        active = sorted(part for part in each if part >= 0)
        pairs = np.ix_(active, active)
        yield Stage(each, so_far[pairs], meetings[pairs])
        so_far[pairs] += 1


def _slots_of_stages(partitions: int, slots: int, seed: int, epoch: int, rounds: int) -> list[tuple[int, ...]]:
    """Return the partition in each slot, per stage."""
    if slots >= partitions:  # all partitions stay in memory, so there is one stage
        return [tuple(range(partitions))]
    random = np.random.default_rng([seed, epoch, RandomStream.PARTITION_SCHEDULE])
    loaded = [-1] * (slots + 1)
    found = []
    for _ in range(rounds):
        order = random.permutation(partitions).tolist()
        there = [part for part in order if part in loaded]  # partitions that are in memory already come first
        for active in _rotation(there + [part for part in order if part not in there], slots):
            loaded = _next_slots(loaded, active)
            found.append(tuple(loaded))
    return found


def _rotation(order: list[int], slots: int) -> Iterator[list[int]]:
    """Yield the active partitions of each stage; consecutive stages differ in one partition."""
    half = -(-slots // 2)
    rest, active = list(order), order[:slots]
    yield active
    while len(rest) > slots:
        staying, passing = active[:half], active[half:]
        for part in [part for part in rest if part not in active]:
            passing = [*passing[1:], part]
            yield [*staying, *passing]
        rest = [part for part in rest if part not in staying]
        # The partitions that stayed are replaced one by one; those that were loaded last stay in the next rotation.
        waiting = [part for part in rest if part not in passing][:half]
        for count in range(1, len(waiting) + 1):
            active = [*passing, *waiting[:count]]
            yield [*active, *staying[count:]]


def _next_slots(loaded: list[int], active: list[int]) -> list[int]:
    """Return the slots with the partitions `active`: loaded ones keep their slot, and a new one takes a free slot."""
    new = [part for part in active if part not in loaded]
    free = [slot for slot, part in enumerate(loaded) if part < 0]
    result = [part if part in active else -1 for part in loaded]
    free += [slot for slot, part in enumerate(result) if part < 0 and slot not in free]
    for part, slot in zip(new, free, strict=False):
        result[slot] = part
    return result


def check_partitions(partitions: int, slots: int) -> None:
    """Raise FocuseError unless every two partitions can be in memory together."""
    if not 1 <= partitions <= MOST_PARTITIONS or not 1 <= slots <= partitions:
        raise FocuseError(
            f"partitions {partitions}:{slots}: give 1 to {MOST_PARTITIONS} partitions, and how many of them are in "
            "memory at once"
        )
    if slots == 1 and partitions > 1:
        raise FocuseError(
            f"partitions {partitions}:{slots}: at least two must be in memory at once, because an edge connects two"
        )


# ---- edges -----------------------------------------------------------------------------------------------------------


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
    path: Path, graph: Graph, normalizer: Normalizer, assignment: PartitionAssignment
) -> EdgeBuckets:
    """Write the edges of `graph` to disk by buckets, in two passes: count them, then write each to its bucket."""
    partitions, part = assignment.partitions, assignment.part
    counts = np.zeros(partitions * partitions, np.int64)
    for piece in chunks(len(graph), CHUNK):
        counts += np.bincount(_bucket_of(graph, piece, assignment), minlength=len(counts))
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


# ---- rows in memory --------------------------------------------------------------------------------------------------


class PartitionBuffer:
    """Tables [slots · rows, width] of embeddings and optimizer state, divided into slots of `rows` rows each.

    While a stage is trained, a thread writes the partition that was evicted and reads the next one into its slot.
    """

    def __init__(self, files: PartitionFiles, tables: Mapping[str, Tensor], sizes: npt.NDArray[np.int64]) -> None:
        self.files, self.sizes = files, sizes
        self.tables = {name: table.numpy() for name, table in tables.items()}
        self.rows = int(sizes.max())
        self.held = [-1] * (len(next(iter(self.tables.values()))) // self.rows)
        self.changed: set[int] = set()  # partitions that differ from their newest file
        self.active: set[int] = set()
        self.worker = ThreadPoolExecutor(1)
        self.work: Future[None] | None = None

    def load_stage(self, stage: Stage, following: Stage | None) -> None:
        """Load a stage's partitions into their slots, and start to load those of the following stage."""
        self.wait()
        self._load(stage, [slot for slot, part in enumerate(stage.slots) if part >= 0])
        self.active = set(stage.active)
        if following is not None:
            # Active partitions stay in their slots. The following stage may have one in another slot if stages without
            # edges were skipped in between.
            active = self.active
            free = [slot for slot, part in enumerate(stage.slots) if part < 0 and following.slots[slot] not in active]
            self.work = self.worker.submit(self._load, following, free)

    def mark_changed(self) -> None:
        """Mark the active partitions as changed, because a step was taken; they then differ from their files."""
        self.changed |= self.active

    def wait(self) -> None:
        """Wait until the thread has finished its work, and raise its errors."""
        work, self.work = self.work, None
        if work is not None:
            work.result()

    def _load(self, stage: Stage, slots: list[int]) -> None:
        """Load the partitions of a stage into these slots, after evicting the partitions that are in the way."""
        wrong = [slot for slot in slots if self.held[slot] != stage.slots[slot]]
        wanted = {stage.slots[slot] for slot in wrong}
        for slot, part in enumerate(self.held):
            if slot in wrong or part in wanted:
                self._write(slot)
                self.held[slot] = -1
        for slot in wrong:
            if (part := stage.slots[slot]) >= 0:
                self.files.read(part, self.rows_of(slot, part))
                self.held[slot] = part

    def _write(self, slot: int) -> None:
        """Write the partition in a slot to disk if it has changed."""
        part = self.held[slot]
        if part in self.changed:
            self.files.write(part, self.rows_of(slot, part))
            self.changed.discard(part)

    def flush(self) -> None:
        """Write all changed partitions to disk; they stay in memory."""
        self.wait()
        for slot in range(len(self.held)):
            self._write(slot)

    def rows_of(self, slot: int, part: int) -> dict[str, Array]:
        """Return the rows of a partition in its slot, as one view per table."""
        rows = slice(slot * self.rows, slot * self.rows + int(self.sizes[part]))
        return {name: table[rows] for name, table in self.tables.items()}

    def close(self) -> None:
        """Stop the thread."""
        self.worker.shutdown(cancel_futures=True)


# ---- negatives -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartitionedNegativeSampler(NegativeSampler):
    """Draws negatives from the active partitions with the same probabilities as from all partitions.

    The two partitions of an edge are always in memory when it is trained; every other partition is only sometimes. If
    negatives were drawn uniformly from the partitions in memory, an entity would be compared too often with entities of
    its own partition and too rarely with all others, and the embeddings would encode the partition of an entity.
    Therefore the partitions of the edge are drawn with the probability that they have among all P partitions, and the
    other active partitions, a uniform sample of the remaining ones, are drawn in their place.

    The k-th of the c active partitions has `sizes[k]` rows, from row `starts[k]` on. `places[s]` is the k of slot s; a
    slot has `rows` rows.
    """

    partitions: int = 1
    rows: int = 1
    starts: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.int64))
    sizes: Tensor = field(default_factory=lambda: torch.ones(1, dtype=torch.int64))
    places: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.int64))

    @classmethod
    def for_stage(
        cls, sampling: str, count: int, stage: Stage, sizes: npt.NDArray[np.int64], rows: int
    ) -> PartitionedNegativeSampler:
        """Return the sampler of a stage; `sizes` [P] are the sizes of all partitions, `rows` is the size of a slot."""
        slots = stage.slot_of(len(sizes))[stage.active]
        places = np.zeros(len(stage.slots), np.int64)
        places[slots] = np.arange(len(slots))
        tensors = (torch.from_numpy(each) for each in (slots * rows, sizes[stage.active], places))
        entities = int(sizes[stage.active].sum())
        return cls(sampling, count, entities, None, None, len(sizes), rows, *tensors)

    def __call__(self, batch: Batch, place: StreamKey) -> list[Negatives]:
        if self.sampling == "none":
            return super().__call__(batch, place)
        if self.draws_uniformly:
            return self._to_active_rows(super().__call__(batch, place))
        return self._draw_per_triple(batch, place) if self.sampling == "per-triple" else self._draw_pool(batch, place)

    @property
    def draws_uniformly(self) -> bool:
        """Whether all active rows have the same probability: all partitions are active, or only two of them."""
        return len(self.sizes) in (2, self.partitions)

    def _to_active_rows(self, drawn: list[Negatives]) -> list[Negatives]:
        """Map numbers below the number of active rows to these rows; groups that share a pool still share it."""
        ends = self.sizes.cumsum(0)
        found: dict[int, Tensor] = {}
        for group in drawn:
            if group.entities is not None and id(group.entities) not in found:
                part = torch.bucketize(group.entities, ends, right=True)
                found[id(group.entities)] = group.entities + (self.starts - ends + self.sizes)[part]
        return [replace(group, entities=found.get(id(group.entities))) for group in drawn]

    def _own_partitions(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the indices k of the active partitions of the heads and of the tails of a batch, [B] each."""
        head, tail = (self.places[torch.div(ids, self.rows, rounding_mode="floor")] for ids in (batch.head, batch.tail))
        return head, tail

    def _row(self, part: Tensor, bits: Tensor) -> Tensor:
        """Return a random row of each partition from random bits."""
        return self.starts[part] + (bits * self.sizes[part] >> BITS)

    def _draw_per_triple(self, batch: Batch, place: StreamKey) -> list[Negatives]:
        """Return per-triple negatives [B, N]; each draws a side, a partition and a row of the partition."""
        sides, which, rows = draw_integers(place, (3, len(batch), self.count), 1 << BITS, batch.head.device).unbind()
        head, tail = (part[:, None] for part in self._own_partitions(batch))
        among, rest = which * self.partitions >> BITS, which * self.partitions & (1 << BITS) - 1
        low, same = torch.minimum(head, tail), head == tail
        part = rest * (len(self.sizes) - 2 + same.long()) >> BITS  # one of the c − 2 other partitions, or of c − 1
        part = part + (part >= low)
        part = part + ((part >= torch.maximum(head, tail)) & ~same)
        part = torch.where(among == 0, head, torch.where((among == 1) & ~same, tail, part))
        return [Negatives("both", self._row(part, rows), (sides & 1).bool())]

    def _draw_pool(self, batch: Batch, place: StreamKey) -> list[Negatives]:
        """Return one pool for the whole batch; `_pool_mask` says which of its entities count for each edge."""
        size = math.ceil(self.share)
        bits = draw_integers(place, (len(self.sizes) * size + 1,), 1 << BITS, batch.head.device)
        pool = self._row(torch.arange(len(self.sizes)).repeat_interleave(size), bits[:-1])
        mask = self._pool_mask(batch, size, float(bits[-1]) / (1 << BITS))
        sides = (("tail", batch.tail), ("head", batch.head))
        return [Negatives(side, pool, None, mask, target) for side, target in sides]  # type: ignore[arg-type]

    @property
    def share(self) -> float:
        """Number of negatives from each other partition for an edge between two partitions, for `count` in total."""
        return self.count * (self.partitions - 2) / (self.partitions * (len(self.sizes) - 2))

    def _pool_mask(self, batch: Batch, size: int, offset: float) -> Tensor:
        """Return which entities of a pool count for each edge, bool [B, c · size]: about `count` of them per edge.

        The pool has `size` entities per partition. From the partitions of the edge, only as many count as a uniform
        draw from all partitions would give. These numbers are fractional: `offset` in [0, 1) decides per partition
        whether to round up, so that the expected number is exact. The offsets of the partitions are spread evenly, so
        that some partitions round up in every batch; otherwise a batch could have no negatives at all.
        """
        active, every = len(self.sizes), self.partitions
        own = self.share * (active - 2) / (every - 2)
        within = own * (every - 1) / (active - 1)  # per other partition, for edges within one partition
        places = torch.arange(active)
        offsets = (offset + places.double() / active) % 1  # each is uniform, and together they are evenly spread
        first = [torch.arange(size) < (count + offsets[:, None]).floor() for count in (own, self.share, within)]
        table = torch.stack([each.repeat(active, 1, 1) for each in first[1:]])  # [2, c, c, size]
        table[:, places, places] = first[0]
        table = table.view(2 * active, active * size)
        head, tail = self._own_partitions(batch)
        same = active * (head == tail)
        return table[head + same] & table[tail + same]
