"""Semi-supervised training with PASSLEAF's sample pool (Chen, Yeh and Kuo, 2021).

Not all negatives are false, so the model also learns from its own estimates. From epoch `start` on, each batch draws
one negative per positive, which enters a ring buffer of `size` samples with the confidence that the model gives it;
the oldest samples are overwritten. `wait` epochs later, training on the pool begins: in epoch e it replaces a fraction
m = min(`share`, `growth` · (e − start − wait)) of the negatives with confidence 0.

The original takes m·N samples and (1 − m)·N negatives per positive, each with the factor 1/N. Here, there are m samples
per positive with the factor 1, and a fraction 1 − m of the positives keep all their N negatives. The expected gradient
is the same, for less work. The draws are a pure function of the seed of the batch, and a checkpoint stores the pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from focuse.errors import FocuseError
from focuse.models.base import confidence
from focuse.objective.negatives import Batch, Negatives, draw_negatives
from focuse.objective.randomness import draw_integers
from focuse.option_strings import choose, parse_option_string
from focuse.random_streams import RandomStream

if TYPE_CHECKING:
    from focuse.engines.base import ModelScorer

COLUMNS = ("head", "relation", "tail", "weight")
MAX_SAMPLES = 1 << 32  # 64 GB


@dataclass(frozen=True)
class PoolSchedule:
    """When the pool is filled, and which fraction of the negatives it replaces; epochs are counted from 1."""

    start: int = 20
    wait: int = 10
    growth: float = 0.02
    share: float = 0.8
    size: int = 1_000_000

    def fraction_at(self, epoch: int) -> float:
        """Return the fraction of an epoch's negatives that the pool replaces.

        >>> [PoolSchedule().fraction_at(epoch) for epoch in (20, 30, 31, 100)]
        [0.0, 0.0, 0.02, 0.8]
        """
        return min(self.share, self.growth * max(0, epoch - self.start - self.wait))


def make_pool_schedule(text: str) -> PoolSchedule | None:
    """Return the schedule that is written as 'pool' or 'pool:start=5,share=0.5', or None for 'none'.

    >>> make_pool_schedule("pool:start=5")
    PoolSchedule(start=5, wait=10, growth=0.02, share=0.8, size=1000000)
    """
    name, positional, named = parse_option_string(text, "semi_supervised")
    choose("semi-supervised learning", name, ["none", "pool"])
    types: dict[str, Any] = {field.name: type(field.default) for field in fields(PoolSchedule)}
    if positional or not set(named) <= set(types) or (name == "none" and named):
        raise FocuseError(
            f"semi_supervised {text!r}: write 'none', or 'pool' with any of {', '.join(types)}, like "
            "'pool:start=5,share=0.5'"
        )
    if name == "none":
        return None
    for option, value in named.items():
        if value < 0 or (types[option] is int and value != int(value)):
            number = "a whole number" if types[option] is int else "a number"
            raise FocuseError(f"semi_supervised {option}={value:g}: give {number} of at least 0")
    schedule = PoolSchedule(**{option: types[option](value) for option, value in named.items()})
    if not 1 <= schedule.size <= MAX_SAMPLES or schedule.share > 1:
        raise FocuseError(f"semi_supervised {text!r}: the size must be 1 to {MAX_SAMPLES:,} and the share at most 1")
    return schedule


class SamplePool:
    """A ring buffer of triples with estimated confidences; `count` is the number of samples that were ever added."""

    def __init__(self, schedule: PoolSchedule, device: str = "cpu", state: Mapping[str, Tensor] | None = None) -> None:
        self.schedule = schedule
        dtypes = {name: torch.float32 if name == "weight" else torch.int32 for name in COLUMNS}
        self.columns = {name: torch.zeros(schedule.size, dtype=dtype, device=device) for name, dtype in dtypes.items()}
        self.count = 0
        if state:
            self.count = int(state["count"])
            for name, column in self.columns.items():
                column[: len(self)] = state[name].to(device)

    def __len__(self) -> int:
        return min(self.count, self.schedule.size)

    def state(self) -> dict[str, Tensor]:
        """Return the state of the pool for a checkpoint."""
        filled = {name: column[: len(self)] for name, column in self.columns.items()}
        return {**filled, "count": torch.tensor([self.count])}

    def __call__(
        self, batch: Batch, negatives: list[Negatives], epoch: int, seed: int, scorer: ModelScorer
    ) -> tuple[Batch, list[Negatives]]:
        """Add samples to the pool, and replace some of the negatives by samples that are appended to the positives.

        Parameters
        ----------
        epoch
            The epoch, counted from 1.
        seed
            The seed of the batch.
        scorer
            Scorer that gives new samples their confidence.
        """
        if epoch >= self.schedule.start:
            self._add(batch, seed ^ RandomStream.POOL_NEGATIVES, scorer)
        count = int(self.schedule.fraction_at(epoch) * len(batch))
        if not count or not len(self):
            return batch, negatives
        rows = draw_integers(seed ^ RandomStream.POOL_SAMPLES, (count,), len(self), batch.head.device)
        head, relation, tail = (self.columns[name][rows].long() for name in COLUMNS[:3])
        samples = Batch(head, relation, tail, self.columns["weight"][rows])
        pairs = ((getattr(batch, name), getattr(samples, name)) for name in COLUMNS)
        longer = [_append_samples(group, samples, len(batch), scorer.entities) for group in negatives]
        return Batch(*map(torch.cat, pairs)), longer

    def _add(self, batch: Batch, seed: int, scorer: ModelScorer) -> None:
        """Add one negative per positive, with the model's current confidence in it."""
        entities, replaces_tail = draw_negatives(seed, (len(batch),), scorer.entities, batch.head.device)
        head = torch.where(replaces_tail, batch.head, entities)
        tail = torch.where(replaces_tail, entities, batch.tail)
        confidences = confidence(scorer.model, scorer.score(head, batch.relation, tail))
        last = min(len(batch), self.schedule.size)  # a batch may be larger than the ring buffer
        position = torch.arange(self.count + len(batch) - last, self.count + len(batch), device=head.device)
        for name, values in zip(COLUMNS, (head, batch.relation, tail, confidences), strict=True):
            column = self.columns[name]
            column[position % self.schedule.size] = values[-last:].to(column.dtype)
        self.count += len(batch)


def _append_samples(group: Negatives, samples: Batch, positives: int, num_entities: int) -> Negatives:
    """Return the negatives of the longer batch: the samples and as many of the first positives have no negatives."""
    count, entities = len(samples), group.entities
    width = num_entities if entities is None else entities.shape[-1]
    mask = torch.zeros(positives + count, width, dtype=torch.bool, device=samples.head.device)
    mask[count:positives] = True if group.mask is None else group.mask[count:]
    group = replace(group, mask=mask)
    if group.target is not None:
        group = replace(group, target=torch.cat([group.target, samples.tail if group.side == "tail" else samples.head]))
    if entities is not None and entities.dim() == 2 and group.replaces_tail is not None:
        # The placeholders are masked; with the head of the sample itself, they add no row to the step.
        placeholder = samples.head[:, None].expand(-1, width)
        replaces_tail = torch.cat([group.replaces_tail, torch.zeros_like(placeholder, dtype=torch.bool)])
        group = replace(group, entities=torch.cat([entities, placeholder]), replaces_tail=replaces_tail)
    return group
