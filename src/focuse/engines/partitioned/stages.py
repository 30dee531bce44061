"""The stages of an epoch: which partitions are in memory together, and the negatives that are drawn among them.

Every pair of partitions is in memory together at least once per epoch. Of P partitions `slots` are active at once. Half
of them stay while all others pass through the remaining slots, one by one; then those that stayed have met all others,
and the next few take their place. The edges between two partitions are spread over all stages in which both are active,
so that the edges of a stage are spread about evenly over all active partitions. Were all of them trained when the two
first meet (Mohoney et al., 2021), every edge would have one end in the partition that was just loaded, and what a step
does to a row would depend on where it lies. An epoch takes about P² / slots loads, twice the fewest possible.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
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
BITS = 30  # of a random number


@dataclass(frozen=True, eq=False)
class Stage:
    """Partitions that are active together, and which parts of the edges between them are trained.

    `slots[s]` is the partition in slot s, -1 for the one slot that is free, into which the next stage's new partition
    is loaded. The edges from `active[i]` to `active[j]` are divided into `parts[i, j]` equal parts, one per stage in
    which both are active; this stage trains part `number[i, j]`, counted from 0.
    """

    slots: tuple[int, ...]
    number: npt.NDArray[np.int64]
    parts: npt.NDArray[np.int64]

    @property
    def active(self) -> list[int]:
        """Active partitions in ascending order, so that negatives do not depend on the slots."""
        return sorted(part for part in self.slots if part >= 0)

    def slot_of(self, partitions: int) -> npt.NDArray[np.int64]:
        """The slot of each partition, -1 if it is not active; [P]."""
        found = np.full(partitions, -1, np.int64)
        for slot, part in enumerate(self.slots):
            if part >= 0:
                found[part] = slot
        return found


def epoch_stages(partitions: int, slots: int, seed: int, epoch: int, rounds: int = 1) -> Iterator[Stage]:
    """The stages of an epoch, as a pure function of the arguments; each part of the edges of each pair comes once.

    Every pair meets in each of several `rounds`. The more rounds, the more an epoch is like one in random order, and
    the more is read and written.

    >>> [stage.slots for stage in epoch_stages(3, 2, 0, 0)]
    [(2, 1, -1), (2, -1, 0), (-1, 1, 0)]
    """
    check_partitions(partitions, slots)
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
    """The partition in each slot, stage after stage."""
    if slots >= partitions:  # another order would change nothing, and nothing needs to be loaded again
        return [tuple(range(partitions))]
    random = np.random.default_rng([seed, epoch, RandomStream.PARTITION_SCHEDULE])
    loaded = [-1] * (slots + 1)
    found = []
    for _ in range(rounds):
        order = random.permutation(partitions).tolist()
        there = [part for part in order if part in loaded]  # partitions in memory already come first
        for active in _rotation(there + [part for part in order if part not in there], slots):
            loaded = _next_slots(loaded, active)
            found.append(tuple(loaded))
    return found


def _rotation(order: list[int], slots: int) -> Iterator[list[int]]:
    """The active partitions, one changed at a time."""
    half = -(-slots // 2)
    rest, active = list(order), order[:slots]
    yield active
    while len(rest) > slots:
        staying, passing = active[:half], active[half:]
        for part in [part for part in rest if part not in active]:
            passing = [*passing[1:], part]
            yield [*staying, *passing]
        rest = [part for part in rest if part not in staying]
        # Those that stayed leave one by one for the next few; those that passed through last stay from now on.
        waiting = [part for part in rest if part not in passing][:half]
        for count in range(1, len(waiting) + 1):
            active = [*passing, *waiting[:count]]
            yield [*active, *staying[count:]]


def _next_slots(loaded: list[int], active: list[int]) -> list[int]:
    """The slots with `active` in them: a partition stays where it is, and a new one takes a free slot."""
    new = [part for part in active if part not in loaded]
    free = [slot for slot, part in enumerate(loaded) if part < 0]
    result = [part if part in active else -1 for part in loaded]
    free += [slot for slot, part in enumerate(result) if part < 0 and slot not in free]
    for part, slot in zip(new, free, strict=False):
        result[slot] = part
    return result


def check_partitions(partitions: int, slots: int) -> None:
    """Raise unless every two of so many partitions can be in memory together."""
    if not 1 <= partitions <= MOST_PARTITIONS or not 1 <= slots <= partitions:
        raise FocuseError(
            f"partitions {partitions}:{slots}: give at most {MOST_PARTITIONS}, and of those how many at once"
        )
    if slots == 1 and partitions > 1:
        raise FocuseError(f"partitions {partitions}:{slots}: two at once are the fewest, for an edge joins two")


def count_loads(stages: Iterable[Stage]) -> int:
    """How many partitions an epoch reads from disk, if it begins with none in memory."""
    loaded: set[int] = set()
    loads = 0
    for stage in stages:
        active = set(stage.active)
        loads += len(active - loaded)
        loaded = active
    return loads


@dataclass(frozen=True)
class PartitionedNegativeSampler(NegativeSampler):
    """Draws negatives among the active partitions as if they were drawn among all partitions.

    The two partitions of an edge are in memory whenever it is trained, any other only by chance. Were negatives drawn
    evenly among those in memory, an entity would meet those of its own partition too often and the others too rarely,
    and would learn which partition an entity is in instead of what is true. So the edge's own partitions are drawn as
    often as they would be among all P, and the others in memory, a fair sample of all others, stand for them.

    The k-th of the c active partitions has `sizes[k]` rows, from row `starts[k]` on. `places[s]` is k for slot s, which
    has `rows` rows.
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
        """The sampler of a stage; `sizes` [P] are those of all partitions, `rows` the rows of a slot."""
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
        """Whether all active rows are drawn alike: all partitions are active, or no others that could stand for all."""
        return len(self.sizes) in (2, self.partitions)

    def _to_active_rows(self, drawn: list[Negatives]) -> list[Negatives]:
        """Map numbers below the count of all active rows to those rows; groups that share a pool go on sharing it."""
        ends = self.sizes.cumsum(0)
        found: dict[int, Tensor] = {}
        for group in drawn:
            if group.entities is not None and id(group.entities) not in found:
                part = torch.bucketize(group.entities, ends, right=True)
                found[id(group.entities)] = group.entities + (self.starts - ends + self.sizes)[part]
        return [replace(group, entities=found.get(id(group.entities))) for group in drawn]

    def _own_partitions(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The active partitions, as numbers k, of the heads and tails of a batch; [B] each."""
        head, tail = (self.places[torch.div(ids, self.rows, rounding_mode="floor")] for ids in (batch.head, batch.tail))
        return head, tail

    def _row(self, part: Tensor, bits: Tensor) -> Tensor:
        """A row of each partition from random bits."""
        return self.starts[part] + (bits * self.sizes[part] >> BITS)

    def _draw_per_triple(self, batch: Batch, place: StreamKey) -> list[Negatives]:
        """Negatives per positive [B, N]: draw a side, a partition, and a row of it."""
        sides, which, rows = draw_integers(place, (3, len(batch), self.count), 1 << BITS, batch.head.device).unbind()
        head, tail = (part[:, None] for part in self._own_partitions(batch))
        among, rest = which * self.partitions >> BITS, which * self.partitions & (1 << BITS) - 1
        low, same = torch.minimum(head, tail), head == tail
        part = rest * (len(self.sizes) - 2 + same.long()) >> BITS  # one of the others, which may be one more
        part = part + (part >= low)
        part = part + ((part >= torch.maximum(head, tail)) & ~same)
        part = torch.where(among == 0, head, torch.where((among == 1) & ~same, tail, part))
        return [Negatives("both", self._row(part, rows), (sides & 1).bool())]

    def _draw_pool(self, batch: Batch, place: StreamKey) -> list[Negatives]:
        """One pool for a whole batch; `_pool_mask` says which of it count for each edge."""
        size = math.ceil(self.share)
        bits = draw_integers(place, (len(self.sizes) * size + 1,), 1 << BITS, batch.head.device)
        pool = self._row(torch.arange(len(self.sizes)).repeat_interleave(size), bits[:-1])
        mask = self._pool_mask(batch, size, float(bits[-1]) / (1 << BITS))
        sides = (("tail", batch.tail), ("head", batch.head))
        return [Negatives(side, pool, None, mask, target) for side, target in sides]  # type: ignore[arg-type]

    @property
    def share(self) -> float:
        """How many negatives of each other partition an edge between two partitions needs, for `count` in all."""
        return self.count * (self.partitions - 2) / (self.partitions * (len(self.sizes) - 2))

    def _pool_mask(self, batch: Batch, size: int, luck: float) -> Tensor:
        """Which of a pool with `size` entities per partition count for each edge, bool [B, c · size]: about `count`.

        Of an edge's own partitions only as many count as were drawn of them among all. The numbers are not whole;
        `luck` in [0, 1) decides for each partition whether the fraction counts, so that it does on average. It does for
        some partitions in each batch, since a batch in which it did for none could have no negatives at all.
        """
        active, every = len(self.sizes), self.partitions
        own = self.share * (active - 2) / (every - 2)
        within = own * (every - 1) / (active - 1)  # of each other partition, for edges whose ends are in the same one
        places = torch.arange(active)
        lucks = (luck + places.double() / active) % 1  # each is uniform, together they are evenly spread
        first = [torch.arange(size) < (count + lucks[:, None]).floor() for count in (own, self.share, within)]
        table = torch.stack([each.repeat(active, 1, 1) for each in first[1:]])  # [2, c, c, size]
        table[:, places, places] = first[0]
        table = table.view(2 * active, active * size)
        head, tail = self._own_partitions(batch)
        same = active * (head == tail)
        return table[head + same] & table[tail + same]
