"""Which partitions are in memory together, and in which order: every pair of them meets once an epoch.

Of P partitions `slots` are active at once. Most of them stay while the last slot goes through all the others; then what
stayed has met everyone, and the next few take its place (Mohoney et al., 2021). Each load brings as many new pairs as
there are others in memory, so an epoch takes about P² / 2(slots − 1) loads, near the fewest possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from focuse.errors import FocuseError

PLAN = 0x91A7  # place of the random stream that orders the partitions


@dataclass(frozen=True)
class Stage:
    """Partitions that are active together, by slot, and the buckets (of heads, of tails) that are trained now.

    `slots[s]` is the partition in slot s, -1 for the one slot that is free; there the next stage's newcomer comes. Of
    each bucket it is the i-th of k parts, `part` (i, k), counted from 0.
    """

    slots: tuple[int, ...]
    buckets: tuple[tuple[int, int], ...]
    part: tuple[int, int] = 0, 1

    @property
    def active(self) -> list[int]:
        """Active partitions in ascending order: who is drawn as a negative does not depend on where it lies."""
        return sorted(part for part in self.slots if part >= 0)

    def slot_of(self, partitions: int) -> npt.NDArray[np.int64]:
        """The slot of each partition, -1 where it is not active; [P]."""
        found = np.full(partitions, -1, np.int64)
        for slot, part in enumerate(self.slots):
            if part >= 0:
                found[part] = slot
        return found


def stages_of(partitions: int, slots: int, seed: int, epoch: int, rounds: int = 1) -> list[Stage]:
    """The stages of an epoch, a pure function of what is given; each part of a bucket comes once.

    In each of several `rounds` every pair meets, and a part of the edges between them is trained: the more rounds, the
    more an epoch is like one in random order, and the more is read and written.

    >>> plan = stages_of(6, 3, 0, 0)
    >>> len(plan), sum(len(stage.buckets) for stage in plan)
    (8, 36)
    """
    check_partitions(partitions, slots)
    if slots >= partitions:  # nothing is gained by another order, and nothing needs to be loaded again
        every = tuple((one, two) for one in range(partitions) for two in range(partitions))
        return [Stage(tuple(range(partitions)), every)]
    random = np.random.default_rng([seed, epoch, PLAN])
    found: list[Stage] = []
    held = [-1] * (slots + 1)
    for number in range(rounds):
        found += _round(random.permutation(partitions).tolist(), held, slots, (number, rounds))
        held = list(found[-1].slots)
    return found


def _round(order: list[int], held: list[int], slots: int, part: tuple[int, int]) -> list[Stage]:
    """Stages in which every pair meets; partitions in memory at their beginning come first."""
    there = [one for one in order if one in held]
    order = there + [one for one in order if one not in there]
    done: set[tuple[int, int]] = set()
    found = []
    for active in _rotation(order, slots):
        held = _placed(held, active)
        buckets = tuple((one, two) for one in active for two in active if (one, two) not in done)
        done.update(buckets)
        if buckets:
            found.append(Stage(tuple(held), buckets, part))
    return found


def _rotation(order: list[int], slots: int) -> Iterator[list[int]]:
    """The active partitions, one changed at a time."""
    rest, active = list(order), order[:slots]
    yield active
    while len(rest) > slots:
        staying = active[:-1] if slots > 1 else []
        for newcomer in [part for part in rest if part not in active]:
            active = [*staying, newcomer]
            yield active
        rest = [part for part in rest if part not in staying]
        # Those that stayed leave one by one for the next few; the last newcomer stays on.
        waiting = [part for part in rest if part not in active]
        if slots == 1:
            return
        for leaver in staying:
            if not waiting:
                return
            active = [part for part in active if part != leaver] + [waiting.pop(0)]
            yield active


def _placed(held: list[int], active: list[int]) -> list[int]:
    """The slots with `active` in them: who was there stays, a newcomer takes a free slot, and who left frees one."""
    new = [part for part in active if part not in held]
    free = [slot for slot, part in enumerate(held) if part < 0]
    result = [part if part in active else -1 for part in held]
    free += [slot for slot, part in enumerate(result) if part < 0 and slot not in free]
    for part, slot in zip(new, free, strict=False):
        result[slot] = part
    return result


def check_partitions(partitions: int, slots: int) -> None:
    """Raise unless every two of so many partitions can be in memory together."""
    if not 1 <= partitions <= 4096 or not 1 <= slots <= partitions:
        raise FocuseError(f"partitions {partitions}:{slots}: give at most 4096, and of those how many at once")
    if slots == 1 and partitions > 1:
        raise FocuseError(f"partitions {partitions}:{slots}: two at once are the fewest, for an edge joins two")


def loads_of(stages: list[Stage]) -> int:
    """How many partitions an epoch reads from disk, if it begins with none in memory."""
    held: set[int] = set()
    loads = 0
    for stage in stages:
        active = set(stage.active)
        loads += len(active - held)
        held = active
    return loads
