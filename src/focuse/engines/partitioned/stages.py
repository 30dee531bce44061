"""The stages of an epoch: which partitions are in memory together, and the negatives that are drawn among them.

Every pair of partitions is in memory together at least once per epoch. `slots` of the P partitions are active at once.
Half of them stay while all others are loaded into the remaining slots, one by one. Then those that stayed have been
paired with all others, and the next partitions take their place. The edges between two partitions are divided among all
stages in which both are active, so that the edges of a stage are distributed about evenly over the active partitions.
If all of them were trained in the first such stage (Mohoney et al., 2021), every edge would have one endpoint in the
partition that was just loaded, and the update of a row would depend on its partition. An epoch takes about P² / slots
loads, twice the minimum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.errors import FocuseError
from focuse.objective.negatives import Batch, Negatives, NegativeSampler
from focuse.objective.randomness import StreamKey, draw_integers
from focuse.random_streams import RandomStream

MOST_PARTITIONS = 4096
BITS = 30  # bits per random number


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
