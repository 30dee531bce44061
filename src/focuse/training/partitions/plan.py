"""Which partitions are in memory together, and in which order: every pair of them meets in an epoch.

Of P partitions `slots` are active at once. Half of them stay while all the others go through the rest of the slots, one
by one; then what stayed has met everyone, and the next few take its place. The edges between two partitions are spread
over all the stages in which both are there, so that a stage's edges are about evenly of everyone in memory: were all of
them trained when the two first meet (Mohoney et al., 2021), each would have the newcomer at one end, and what a step
does to a row would depend on where it lies. An epoch takes about P² / slots loads, twice the fewest possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from focuse.errors import FocuseError

PLAN = 0x91A7  # place of the random stream that orders the partitions


@dataclass(frozen=True, eq=False)
class Stage:
    """Partitions that are active together, by slot, and which parts of the edges between them are trained now.

    `slots[s]` is the partition in slot s, -1 for the one slot that is free; there the next stage's newcomer comes. Of
    the edges from `active[i]` to `active[j]` it is part `number[i, j]`, counted from 0, of `parts[i, j]` equal ones.
    """

    slots: tuple[int, ...]
    number: npt.NDArray[np.int64]
    parts: npt.NDArray[np.int64]

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


def stages_of(partitions: int, slots: int, seed: int, epoch: int, rounds: int = 1) -> Iterator[Stage]:
    """The stages of an epoch, a pure function of what is given; each part of the edges of each pair comes once.

    In each of several `rounds` every pair meets: the more rounds, the more an epoch is like one in random order, and
    the more is read and written.

    >>> [stage.slots for stage in stages_of(3, 2, 0, 0)]
    [(2, 1, -1), (2, -1, 0), (-1, 1, 0)]
    """
    check_partitions(partitions, slots)
    order = _order(partitions, slots, seed, epoch, rounds)
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


def _order(partitions: int, slots: int, seed: int, epoch: int, rounds: int) -> list[tuple[int, ...]]:
    """Who is in which slot, stage after stage."""
    if slots >= partitions:  # nothing is gained by another order, and nothing needs to be loaded again
        return [tuple(range(partitions))]
    random = np.random.default_rng([seed, epoch, PLAN])
    held = [-1] * (slots + 1)
    found = []
    for _ in range(rounds):
        order = random.permutation(partitions).tolist()
        there = [one for one in order if one in held]  # partitions in memory already come first
        for active in _rotation(there + [one for one in order if one not in there], slots):
            held = _placed(held, active)
            found.append(tuple(held))
    return found


def _rotation(order: list[int], slots: int) -> Iterator[list[int]]:
    """The active partitions, one changed at a time."""
    half = -(-slots // 2)
    rest, active = list(order), order[:slots]
    yield active
    while len(rest) > slots:
        staying, passing = active[:half], active[half:]
        for newcomer in [part for part in rest if part not in active]:
            passing = [*passing[1:], newcomer]
            yield [*staying, *passing]
        rest = [part for part in rest if part not in staying]
        # Those that stayed leave one by one for the next few; who was passing through last stays on.
        waiting = [part for part in rest if part not in passing][:half]
        for come in range(1, len(waiting) + 1):
            active = [*passing, *waiting[:come]]
            yield [*active, *staying[come:]]


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


def loads_of(stages: Iterable[Stage]) -> int:
    """How many partitions an epoch reads from disk, if it begins with none in memory."""
    held: set[int] = set()
    loads = 0
    for stage in stages:
        active = set(stage.active)
        loads += len(active - held)
        held = active
    return loads
