"""PASSLEAF's pool (Chen, Yeh and Kuo, 2021): corruptions are not all false, so a model learns from its own estimates.

From epoch `start` on, each batch corrupts each of its positives once, and the corruption goes into a ring of `size`
samples with the confidence that the model gives it; the oldest make room. `wait` epochs later the ring is learnt from:
in epoch e a share m = min(`share`, `growth` · (e − start − wait)) of what was random corruptions of confidence 0.

The original takes m·N samples and (1 − m)·N corruptions a positive, each counting 1/N. Here m samples a positive count
1 each, and a share 1 − m of the positives keep all their N corruptions: the same gradient on average, for less work.
What is drawn is a pure function of the batch's key; the ring itself is part of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from focuse.engines.base import Batch, Corruptions
from focuse.engines.reference import ReferenceEngine
from focuse.errors import FocuseError, choose
from focuse.training.negatives import draw
from focuse.training.specs import parse_spec

# They turn a batch's key into those of its corruptions for the ring, and of what it takes from there.
FRESH, TAKEN = 0x2545F4914F6CDD1D, 0x1B03738712FAD5C9
COLUMNS = ("head", "relation", "tail", "weight")
MOST = 1 << 32  # samples, 64 GB of them


@dataclass(frozen=True)
class Schedule:
    """When the pool is filled and how much of it is learnt from; epochs count from 1."""

    start: int = 20
    wait: int = 10
    growth: float = 0.02
    share: float = 0.8
    size: int = 1_000_000

    def share_at(self, epoch: int) -> float:
        """The share of an epoch's corruptions that comes from the pool.

        >>> [Schedule().share_at(epoch) for epoch in (20, 30, 31, 100)]
        [0.0, 0.0, 0.02, 0.8]
        """
        return min(self.share, self.growth * max(0, epoch - self.start - self.wait))


def make_schedule(text: str) -> Schedule | None:
    """The schedule written as 'pool' or 'pool:start=5,share=0.5', None for 'none'.

    >>> make_schedule("pool:start=5")
    Schedule(start=5, wait=10, growth=0.02, share=0.8, size=1000000)
    """
    name, plain, named = parse_spec(text, "semi_supervised")
    choose("semi-supervised learning", name, ["none", "pool"])
    known: dict[str, Any] = {field.name: type(field.default) for field in fields(Schedule)}
    if plain or not set(named) <= set(known) or (name == "none" and named):
        raise FocuseError(f"semi_supervised {text!r}: write 'none', or 'pool' with any of {', '.join(known)}=NUMBER")
    if name == "none":
        return None
    for option, value in named.items():
        if value < 0 or (known[option] is int and value != int(value)):
            kind = "a whole number" if known[option] is int else "a number"
            raise FocuseError(f"semi_supervised {option}={value:g}: give {kind} of at least 0")
    schedule = Schedule(**{option: known[option](value) for option, value in named.items()})
    if not 1 <= schedule.size <= MOST or schedule.share > 1:
        raise FocuseError(f"semi_supervised {text!r}: the size is 1 to {MOST:,} and the share at most 1")
    return schedule


class Pool:
    """A ring of triples with estimated confidences; `count` is how many have ever entered it."""

    def __init__(self, schedule: Schedule, device: str = "cpu", state: Mapping[str, Tensor] | None = None) -> None:
        self.schedule = schedule
        kinds = {name: torch.float32 if name == "weight" else torch.int32 for name in COLUMNS}
        self.columns = {name: torch.zeros(schedule.size, dtype=kind, device=device) for name, kind in kinds.items()}
        self.count = 0
        if state:
            self.count = int(state["count"])
            for name, column in self.columns.items():
                column[: len(self)] = state[name].to(device)

    def __len__(self) -> int:
        return min(self.count, self.schedule.size)

    def state(self) -> dict[str, Tensor]:
        """All that it needs to go on."""
        held = {name: column[: len(self)] for name, column in self.columns.items()}
        return {**held, "count": torch.tensor([self.count])}

    def __call__(
        self, batch: Batch, corruptions: list[Corruptions], epoch: int, key: int, engine: ReferenceEngine
    ) -> tuple[Batch, list[Corruptions]]:
        """A batch, and its corruptions, with some of them replaced by samples that stand behind its positives."""
        if epoch >= self.schedule.start:
            self._add(batch, key ^ FRESH, engine)
        taken = int(self.schedule.share_at(epoch) * len(batch))
        if not taken or not len(self):
            return batch, corruptions
        rows = draw(key ^ TAKEN, (taken,), len(self), batch.head.device)
        head, relation, tail = (self.columns[name][rows].long() for name in COLUMNS[:3])
        samples = Batch(head, relation, tail, self.columns["weight"][rows])
        pairs = ((getattr(batch, name), getattr(samples, name)) for name in COLUMNS)
        entities = engine.entities
        return Batch(*map(torch.cat, pairs)), [_with(group, samples, len(batch), entities) for group in corruptions]

    def _add(self, batch: Batch, key: int, engine: ReferenceEngine) -> None:
        """One corruption a positive, with the model's confidence in it as it is now."""
        both = draw(key, (len(batch),), 2 * engine.entities, batch.head.device)
        other, tails = both >> 1, (both & 1).bool()
        head, tail = torch.where(tails, batch.head, other), torch.where(tails, other, batch.tail)
        found = engine.model.confidence(engine.score(head, batch.relation, tail))
        last = min(len(batch), self.schedule.size)  # of a batch larger than the ring
        place = torch.arange(self.count + len(batch) - last, self.count + len(batch), device=head.device)
        for name, values in zip(COLUMNS, (head, batch.relation, tail, found), strict=True):
            column = self.columns[name]
            column[place % self.schedule.size] = values[-last:].to(column.dtype)
        self.count += len(batch)


def _with(group: Corruptions, samples: Batch, positives: int, entities: int) -> Corruptions:
    """Corruptions for a longer batch: samples have none, nor have as many of the positives; they are in no order."""
    taken, own = len(samples), group.entities
    width = entities if own is None else own.shape[-1]
    counts = torch.zeros(positives + taken, width, dtype=torch.bool, device=samples.head.device)
    counts[taken:positives] = True if group.mask is None else group.mask[taken:]
    group = replace(group, mask=counts)
    if group.target is not None:
        group = replace(group, target=torch.cat([group.target, samples.tail if group.side == "tail" else samples.head]))
    if own is not None and own.dim() == 2 and group.tails is not None:
        # What stands in for their corruptions is masked; an entity of their own touches no further row.
        stand_in = samples.head[:, None].expand(-1, width)
        tails = torch.cat([group.tails, torch.zeros_like(stand_in, dtype=torch.bool)])
        group = replace(group, entities=torch.cat([own, stand_in]), tails=tails)
    return group
