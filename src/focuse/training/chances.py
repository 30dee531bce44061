"""Corruptions that are not all alike: entities by type or by degree, sides by where a corruption is rather false.

    type       another entity that train has on this side of the relation (Krompaß, Baier and Tresp, 2015), all alike
    degree     any entity, by (number of its edges)^¾ (Mikolov et al., 2013)
    bernoulli  the head is replaced with probability tph / (tph + hpt), tails per head and heads per tail of the
               relation, else the tail (Wang et al., 2014)

Chances are whole numbers made once on the CPU, so that every device draws the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.engines.base import Batch
from focuse.errors import FocuseError, choose

CORRUPTS, COINS = ("uniform", "type", "degree"), ("fair", "bernoulli")
POWER = 0.75
RANGE = 31  # bits of a random number


def check_chances(sampling: str, corrupt: str, coin: str) -> None:
    """Raise on corruptions that a kind of negatives cannot have.

    >>> check_chances("all", "degree", "fair")
    Traceback (most recent call last):
    focuse.errors.FocuseError: corrupt 'degree' chooses entities, and sampling 'all' takes every one; use sampling \
'independent' or 'shared'
    """
    choose("corrupt", corrupt, CORRUPTS)
    choose("coin", coin, COINS)
    if sampling == "all" and corrupt != "uniform":
        others = "'independent'" if corrupt == "type" else "'independent' or 'shared'"
        raise FocuseError(
            f"corrupt {corrupt!r} chooses entities, and sampling 'all' takes every one; use sampling {others}"
        )
    if sampling == "shared" and corrupt == "type":
        raise FocuseError(
            "corrupt 'type' is by relation, and the pool of sampling 'shared' serves all relations; use sampling "
            "'independent', or corrupt 'degree'"
        )
    if sampling != "independent" and coin != "fair":
        raise FocuseError(
            f"coin {coin!r} chooses a side, and sampling {sampling!r} replaces both; use sampling 'independent'"
        )


def scaled(bits: Tensor, below: Tensor | int) -> Tensor:
    """Random bits, whole numbers in [0, 2³¹), as whole numbers in [0, below)."""
    return bits * below >> RANGE


@dataclass(frozen=True)
class Degrees:
    """Entities by degree^¾, as an alias table (Walker, 1977): two look-ups a draw, however many entities there are.

    A random number falls into one of E columns: below `own[e]` of 2³¹ it stands for entity e, else for `alias[e]`;
    int64 [E] each.
    """

    own: Tensor
    alias: Tensor

    @classmethod
    def of(cls, facts: Batch, entities: int) -> Degrees:
        """By the edges of train; an entity without any is never drawn."""
        degree = torch.bincount(torch.cat([facts.head, facts.tail]).cpu(), minlength=entities).double()
        device = facts.head.device
        own, alias = _alias_table(degree.numpy() ** POWER)
        return cls(torch.from_numpy(own).to(device), torch.from_numpy(alias).to(device))

    def __call__(self, bits: Tensor) -> Tensor:
        """Entities for random bits: [...] -> [...]."""
        spread = bits * len(self.own)
        column = spread >> RANGE
        return torch.where(spread & ((1 << RANGE) - 1) < self.own[column], column, self.alias[column])


def _alias_table(weight: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """What each column of 2³¹ keeps for its own entity, and who has the rest of it: float [E] -> int64 [E], [E].

    What light entities lack and what heavy ones have to give are laid side by side along one line. A light one is
    filled by the heavy one at which its part begins; one that gives too much by this is filled by the next.
    """
    size, full = len(weight), 1 << RANGE
    total = np.cumsum(weight)
    # All there is goes up to the last that has any, to the unit.
    share = np.where(total < total[-1], np.round(total * (size * full / total[-1])), size * full).astype(np.int64)
    own, alias = np.diff(share, prepend=0), np.arange(size, dtype=np.int64)
    light, heavy = np.flatnonzero(own < full), np.flatnonzero(own >= full)
    lacks, gives = np.cumsum(full - own[light]), np.cumsum(own[heavy] - full)
    begins = np.append(0, lacks)
    alias[light] = heavy[np.searchsorted(gives, begins[:-1], side="right")]
    served = np.searchsorted(begins[:-1], gives, side="left")  # light ones that begin before a heavy one ends
    own[heavy] = full - np.maximum(begins[served] - gives, 0)
    alias[heavy[:-1]] = heavy[1:]
    return own, alias


@dataclass(frozen=True)
class Types:
    """The entities that train has on each side of each relation.

    `keys` are the distinct numbers (group · E + entity), ascending, int64 [m], `members` the entities alone and one
    more place, [m + 2], and `starts` int64 [2R + 1] where each group begins; relation r's heads are group r, its tails
    group R + r.
    """

    keys: Tensor
    members: Tensor
    starts: Tensor
    entities: int

    @classmethod
    def of(cls, facts: Batch, entities: int, relations: int) -> Types:
        head, relation, tail = (column.cpu() for column in (facts.head, facts.relation, facts.tail))
        keys = torch.unique(torch.cat([relation * entities + head, (relations + relation) * entities + tail]))
        starts = torch.searchsorted(keys, torch.arange(2 * relations + 1) * entities)
        device = facts.head.device
        return cls(keys.to(device), F.pad(keys % entities, (0, 2)).to(device), starts.to(device), entities)

    @property
    def relations(self) -> int:
        return len(self.starts) // 2

    def sizes(self, relation: Tensor) -> tuple[Tensor, Tensor]:
        """How many entities train has as heads and as tails of relations: [B] -> [B], [B]."""
        heads, tails = relation, relation + self.relations
        return self.starts[heads + 1] - self.starts[heads], self.starts[tails + 1] - self.starts[tails]

    def sides(self, bits: Tensor, relation: Tensor) -> Tensor:
        """Which of random bits [B, N] replace the tail: bool [B, N].

        Both tph and hpt are facts divided by entities of one side, so only the numbers of entities are left: the tail
        is replaced with probability hpt / (tph + hpt) = heads / (heads + tails).
        """
        heads, tails = self.sizes(relation)
        return scaled(bits, (heads + tails)[:, None]) < heads[:, None]

    def others(self, group: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Where a group's entities begin, how many there are beside `target`, and where that stands: [B] each.

        A target that is not among them, as of a false triple, stands behind all.
        """
        first, behind, key = self.starts[group], self.starts[group + 1], group * self.entities + target
        place = torch.searchsorted(self.keys, key)
        there = (place < behind) & (self.members[place] == target)
        return first, behind - first - there.long(), torch.where(there, place, len(self.keys))

    def __call__(self, bits: Tensor, tails: Tensor, batch: Batch) -> Tensor:
        """Entities for random bits [B, N], tails where `tails` [B, N] says so: int64 [B, N].

        Where train has no other entity on that side, any one.
        """
        heads = self.others(batch.relation, batch.head)
        ends = self.others(batch.relation + self.relations, batch.tail)
        first, count, own = (torch.where(tails, e[:, None], h[:, None]) for h, e in zip(heads, ends, strict=True))
        place = first + scaled(bits, count)
        place += place >= own  # passes over the entity that stands there in truth
        return torch.where(count > 0, self.members[place], scaled(bits, self.entities))

    def rivals(self, batch: Batch) -> Tensor:
        """How many corruptions of both sides there are of each triple: int64 [B]."""
        sides = (batch.relation, batch.head), (batch.relation + self.relations, batch.tail)
        counts = torch.stack([self.others(group, target)[1] for group, target in sides])
        return torch.where(counts > 0, counts, self.entities - 1).sum(0)


@dataclass(frozen=True)
class Chances:
    """Who is drawn, `corrupt` of CORRUPTS, and on which side, `coin` of COINS; made by `make_chances`.

    `degrees` and `types` are there where one of the two needs them.
    """

    corrupt: str
    coin: str
    entities: int
    degrees: Degrees | None = None
    types: Types | None = None

    def own(self, coins: Tensor, bits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Entities int64 [B, N], and whether each replaces the tail, bool, for random bits [B, N] of both."""
        unfair = self.types if self.coin == "bernoulli" else None
        tails = scaled(coins, 2) > 0 if unfair is None else unfair.sides(coins, batch.relation)
        seen = self.types if self.corrupt == "type" else None
        return self.pool(bits) if seen is None else seen(bits, tails, batch), tails

    def pool(self, bits: Tensor) -> Tensor:
        """Entities for random bits, whatever they replace: [...] -> [...]."""
        return scaled(bits, self.entities) if self.degrees is None else self.degrees(bits)


def make_chances(corrupt: str, coin: str, facts: Batch, entities: int, relations: int) -> Chances | None:
    """The chances by the `facts` of train; None for a uniform entity and a fair coin, which need none.

    >>> facts = Batch(*torch.tensor([[0, 0, 0], [0, 0, 0], [1, 2, 3]]), torch.ones(3))
    >>> make_chances("type", "bernoulli", facts, 9, 1).types.sizes(torch.tensor([0]))
    (tensor([1]), tensor([3]))
    """
    if (corrupt, coin) == (CORRUPTS[0], COINS[0]):
        return None
    degrees = Degrees.of(facts, entities) if corrupt == "degree" else None
    types = Types.of(facts, entities, relations) if corrupt == "type" or coin == "bernoulli" else None
    return Chances(corrupt, coin, entities, degrees, types)
