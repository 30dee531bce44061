"""Corruptions drawn among the partitions in memory as if they were drawn among all of them.

An edge's own two partitions are in memory whenever it is trained, any other only by chance. Were corruptions drawn
evenly among those in memory, an entity would meet those of its own partition too often, the others too rarely, and
learn to which partition everyone belongs instead of what is true. So own partitions are drawn as often as they would be
among all P, and the others that are in memory stand for all others: they are a fair sample of those.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.engines import Batch, Corruptions
from focuse.training.negatives import Place, Sampler, draw
from focuse.training.partitions.plan import Stage
from focuse.training.settings import Settings

BITS = 30  # of a random number


@dataclass(frozen=True)
class ActiveSampler(Sampler):
    """Draws for a stage: the k-th of its c active partitions has `sizes[k]` rows, from row `starts[k]` on.

    `places[s]` is k for slot s, which holds `rows` rows.
    """

    partitions: int = 1
    rows: int = 1
    starts: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.int64))
    sizes: Tensor = field(default_factory=lambda: torch.ones(1, dtype=torch.int64))
    places: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.int64))

    @classmethod
    def of(cls, settings: Settings, stage: Stage, sizes: npt.NDArray[np.int64], rows: int) -> ActiveSampler:
        slots = stage.slot_of(len(sizes))[stage.active]
        places = np.zeros(len(stage.slots), np.int64)
        places[slots] = np.arange(len(slots))
        held = (torch.from_numpy(each) for each in (slots * rows, sizes[stage.active], places))
        there = int(sizes[stage.active].sum())
        return cls(settings.sampling, settings.negatives or 1, there, None, None, len(sizes), rows, *held)

    def __call__(self, batch: Batch, place: Place) -> list[Corruptions]:
        if self.fair:
            return self._evenly(super().__call__(batch, place))
        return self._own(batch, place) if self.kind == "independent" else self._pool(batch, place)

    @property
    def fair(self) -> bool:
        """Whether all are there, or, of two, nobody who could stand for the others: then everyone is drawn alike."""
        return len(self.sizes) in (2, self.partitions)

    def _evenly(self, drawn: list[Corruptions]) -> list[Corruptions]:
        """Numbers drawn below that of all active rows, as those rows; who shares a pool goes on sharing it."""
        ends = self.sizes.cumsum(0)
        found: dict[int, Tensor] = {}
        for group in drawn:
            if group.entities is not None and id(group.entities) not in found:
                part = torch.bucketize(group.entities, ends, right=True)
                found[id(group.entities)] = group.entities + (self.starts - ends + self.sizes)[part]
        return [replace(group, entities=found.get(id(group.entities))) for group in drawn]

    def _homes(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Which active partitions the heads and tails of a batch are of; [B] each."""
        head, tail = (self.places[torch.div(ids, self.rows, rounding_mode="floor")] for ids in (batch.head, batch.tail))
        return head, tail

    def _row(self, part: Tensor, bits: Tensor) -> Tensor:
        """A row of each partition by random bits."""
        return self.starts[part] + (bits * self.sizes[part] >> BITS)

    def _own(self, batch: Batch, place: Place) -> list[Corruptions]:
        """Each positive's own: a coin for the side, a partition, a row of it; [B, N]."""
        coins, which, rows = draw(place, (3, len(batch), self.count), 1 << BITS, batch.head.device).unbind()
        head, tail = (home[:, None] for home in self._homes(batch))
        among, rest = which * self.partitions >> BITS, which * self.partitions & (1 << BITS) - 1
        low, same = torch.minimum(head, tail), head == tail
        part = rest * (len(self.sizes) - 2 + same.long()) >> BITS  # of the others, however many there are
        part = part + (part >= low)
        part = part + ((part >= torch.maximum(head, tail)) & ~same)
        part = torch.where(among == 0, head, torch.where((among == 1) & ~same, tail, part))
        return [Corruptions("both", self._row(part, rows), (coins & 1).bool())]

    def _pool(self, batch: Batch, place: Place) -> list[Corruptions]:
        """One pool for all of a batch; which of it do not count for an edge, see `_counted`."""
        size = math.ceil(self.share)
        bits = draw(place, (len(self.sizes) * size + 1,), 1 << BITS, batch.head.device)
        pool = self._row(torch.arange(len(self.sizes)).repeat_interleave(size), bits[:-1])
        mask = self._counted(batch, size, float(bits[-1]) / (1 << BITS))
        sides = (("tail", batch.tail), ("head", batch.head))
        return [Corruptions(side, pool, None, mask, target) for side, target in sides]  # type: ignore[arg-type]

    @property
    def share(self) -> float:
        """Of a pool for edges between two partitions, how many must be of each other one for `count` in all."""
        return self.count * (self.partitions - 2) / (self.partitions * (len(self.sizes) - 2))

    def _counted(self, batch: Batch, size: int, luck: float) -> Tensor:
        """Which of a pool of `size` of each partition count for an edge, bool [B, c · size]: about `count`.

        Of an edge's own partitions only as many as were drawn of them among all. `luck` in [0, 1) says where what is
        left over of a whole number counts, so that it does on average: of some partitions in each batch, for a batch
        in which all of them had none would have no corruptions at all.
        """
        parts, every = len(self.sizes), self.partitions
        own = self.share * (parts - 2) / (every - 2)
        within = own * (every - 1) / (parts - 1)  # of each other partition, for edges whose ends are of one
        places = torch.arange(parts)
        lucks = (luck + places.double() / parts) % 1  # each is any with the same chance, all together are spread
        first = [torch.arange(size) < (count + lucks[:, None]).floor() for count in (own, self.share, within)]
        table = torch.stack([each.repeat(parts, 1, 1) for each in first[1:]])  # [2, c, c, size]
        table[:, places, places] = first[0]
        table = table.view(2 * parts, parts * size)
        head, tail = self._homes(batch)
        one = parts * (head == tail)
        return table[head + one] & table[tail + one]
