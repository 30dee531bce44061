"""Batches of triples, and negative sampling: the choice of entities that replace the head or the tail of a positive.

A negative is a positive triple whose head or tail is replaced by an entity that is drawn. A per-triple negative may
repeat its positive (unless it is drawn by type), as in the authors' code; the others leave the positive's own entity
out. Negatives are a pure function of (seed, epoch, batch), so that engines can be compared and a resumed run draws the
same ones. There are four ways to sample:

    per-triple   N negatives per positive (the paper's), each with its own corrupted side and entity
    shared       one pool of entities per batch, which replaces both sides of every positive
    all          every entity on both sides (1-vs-all)
    none         no negatives, for a loss of the weights of triples that are true

Entities are drawn uniformly and sides with equal probability, or by a `NegativeDistribution`:

    type         uniformly, one of the other entities that the training triples have on this side of the relation
                 (Krompaß, Baier and Tresp, 2015)
    degree       any entity, in proportion to (number of its edges)^¾ (Mikolov et al., 2013)
    bernoulli    the head is replaced with probability tph / (tph + hpt), otherwise the tail, where tph and hpt are the
                 relation's tails per head and heads per tail (Wang et al., 2014)

The probabilities are integers that are computed once on the CPU, so that every device draws the same entities.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.data.graph import Graph
from focuse.data.triple_index import TripleIndex
from focuse.models.base import Side
from focuse.objective.randomness import StreamKey, as_seed, draw_integers, run_kernel


@dataclass(frozen=True)
class Batch:
    """Triples of a training step: ids int64 [B], and a number per triple that the objective uses, float [B].

    With FocusE, `weight` holds normalized weights in [0, 1]. By default it holds soft labels, which are powers of the
    weights, and −1 marks a known negative.
    """

    head: Tensor
    relation: Tensor
    tail: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.head)

    def take(self, rows: Tensor) -> Batch:
        """Return the triples at `rows`, int64 [B]."""
        columns = (self.head, self.relation, self.tail, self.weight)
        selected = run_kernel("take", rows.device, columns, rows)
        return Batch(*(selected or (column.index_select(0, rows) for column in columns)))

    def first(self, count: int) -> Batch:
        """Return the first `count` triples."""
        return Batch(self.head[:count], self.relation[:count], self.tail[:count], self.weight[:count])


@dataclass(frozen=True)
class Negatives:
    """The entities that replace one side of each positive, and thereby form its negatives.

    Parameters
    ----------
    side
        The side that the entities replace. For "both", `replaces_tail` gives the side of each of them.
    entities
        int64 [B, N] for per-triple negatives, int64 [P] for one pool that all positives share, None for every entity.
    replaces_tail
        bool [B, N], True where an entity replaces the tail, False where it replaces the head.
    mask
        bool [B, N] or [B, P], False where a negative does not count.
    target
        int64 [B], the entity that the positive itself has on that side, which is not counted as a negative.
    known
        Rows and entities, int64 [m] each, of negatives that are known triples and therefore do not count.
    """

    side: Literal["head", "tail", "both"]
    entities: Tensor | None
    replaces_tail: Tensor | None = None
    mask: Tensor | None = None
    target: Tensor | None = None
    known: tuple[Tensor, Tensor] | None = None

    def per_triple(self) -> tuple[Tensor, Tensor]:
        """Return `entities` and `replaces_tail` of negatives with side 'both'."""
        if self.entities is None or self.replaces_tail is None:
            raise ValueError("negatives with side 'both' need entities and replaces_tail")
        return self.entities, self.replaces_tail

    def valid_mask(self, num_entities: int) -> Tensor | None:
        """Return a mask of the negatives that count, bool [B, N], [B, P] or [B, E], or None if all of them count."""
        if self.target is None:
            return self.mask
        pool = torch.arange(num_entities, device=self.target.device) if self.entities is None else self.entities
        valid = pool != self.target[:, None]
        if self.known is not None:
            valid[self.known] = False
        return valid if self.mask is None else valid & self.mask


@dataclass(frozen=True)
class NegativeSampler:
    """A sampler of the negatives of a batch.

    Parameters
    ----------
    sampling
        'per-triple', 'shared', 'all' or 'none'.
    count
        The number of negatives per positive, or of entities in the shared pool.
    entities
        The number of entities of the graph.
    known
        Known triples that do not count as negatives; None keeps false negatives, as the paper does.
    distribution
        The distribution of entities and sides; None means that both are uniform.
    """

    sampling: str
    count: int
    entities: int
    known: TripleIndex | None = None
    distribution: NegativeDistribution | None = None

    def __call__(self, batch: Batch, key: StreamKey) -> list[Negatives]:
        """Return the negatives of `batch`, which are a pure function of the stream key."""
        if self.sampling == "none":
            nothing = batch.head.new_empty(len(batch), 0)
            return [Negatives("both", nothing, nothing.bool())]
        if self.sampling == "per-triple":
            return self._per_triple(batch, key)
        return self._shared(batch, key) if self.sampling == "shared" else self._all(batch)

    def _per_triple(self, batch: Batch, key: StreamKey) -> list[Negatives]:
        """Draw a side and an entity, which may be the positive's own, for each negative: [B, N]."""
        shape, device = (len(batch), self.count), batch.head.device
        if self.distribution is None:
            entities, replaces_tail = draw_negatives(key, shape, self.entities, device)
        else:
            side_bits, entity_bits = draw_integers(key, (2, *shape), 1 << RANDOM_BITS, device).unbind()
            entities, replaces_tail = self.distribution.per_triple(side_bits, entity_bits, batch)
        mask = self.per_triple_mask(batch, entities, replaces_tail)
        return [Negatives("both", entities, replaces_tail, mask)]

    def per_triple_mask(self, batch: Batch, entities: Tensor, replaces_tail: Tensor) -> Tensor | None:
        """Return a mask of the per-triple negatives [B, N] that are no known triples; None if known triples count."""
        if self.known is None:
            return None
        head = torch.where(replaces_tail, batch.head[:, None], entities)
        tail = torch.where(replaces_tail, entities, batch.tail[:, None])
        return ~self.known.contains(head, batch.relation[:, None].expand_as(entities), tail)

    def _shared(self, batch: Batch, key: StreamKey) -> list[Negatives]:
        """Draw one pool [P] for both sides of every positive; a positive drawn as its own negative does not count."""
        bound = self.entities if self.distribution is None else 1 << RANDOM_BITS
        pool = draw_integers(key, (self.count,), bound, batch.head.device)
        pool = pool if self.distribution is None else self.distribution.shared(pool)
        shape = (len(batch), self.count)
        result = []
        for side, given, target in _sides(batch):
            mask = None
            if self.known is not None:
                ends = (given[:, None].expand(shape), pool.expand(shape))
                head, tail = ends if side == "tail" else ends[::-1]
                mask = ~self.known.contains(head, batch.relation[:, None].expand(shape), tail)
            result.append(Negatives(side, pool, None, mask, target))
        return result

    def _all(self, batch: Batch) -> list[Negatives]:
        """Return every entity but the positive's own as negatives of both sides: [B, E]."""
        result = []
        for side, given, target in _sides(batch):
            known = None if self.known is None else self.known.known_answers(given, batch.relation, side)
            result.append(Negatives(side, None, target=target, known=known))
        return result


def draw_negatives(
    key: StreamKey, shape: tuple[int, ...], entities: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Draw uniform entities, int64, and whether each replaces the tail, bool; both have the shape `shape`.

    One random number gives both: its lowest bit is the side, and the other bits are the entity.
    """
    drawn: tuple[Tensor, Tensor] | None = run_kernel("draw_negatives", device, as_seed(key), shape, entities, device)
    if drawn is not None:
        return drawn
    integers = draw_integers(key, shape, 2 * entities, device)
    return integers >> 1, (integers & 1).bool()


def _sides(batch: Batch) -> list[tuple[Side, Tensor, Tensor]]:
    """Return each side to corrupt, with the entities that stay and the entities that are replaced."""
    return [("tail", batch.head, batch.tail), ("head", batch.tail, batch.head)]


# ---- distributions ------------------------------------------------------------------------------------------------

ENTITY_DISTRIBUTIONS, SIDE_DISTRIBUTIONS = ("uniform", "type", "degree"), ("uniform", "bernoulli")
DEGREE_POWER = 0.75
RANDOM_BITS = 31


def scale_bits(bits: Tensor, bound: Tensor | int) -> Tensor:
    """Map random numbers in [0, 2³¹) to integers in [0, bound)."""
    return bits * bound >> RANDOM_BITS


@dataclass(frozen=True)
class NegativeDistribution:
    """The distributions of negative entities and of the corrupted side; see `make_negative_distribution`.

    `entity_distribution` is one of ENTITY_DISTRIBUTIONS and `side_distribution` is one of SIDE_DISTRIBUTIONS.
    `by_degree` and `by_relation` are None unless one of the two needs them.
    """

    entity_distribution: str
    side_distribution: str
    entities: int
    by_degree: DegreeDistribution | None = None
    by_relation: RelationEntities | None = None

    def per_triple(self, side_bits: Tensor, entity_bits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return entities, int64, and whether each replaces the tail, bool, for random bits; all [B, N]."""
        if self.side_distribution == "bernoulli" and self.by_relation is not None:
            replaces_tail = self.by_relation.sides(side_bits, batch.relation)
        else:
            replaces_tail = scale_bits(side_bits, 2) > 0
        if self.entity_distribution == "type" and self.by_relation is not None:
            return self.by_relation(entity_bits, replaces_tail, batch), replaces_tail
        return self.shared(entity_bits), replaces_tail

    def shared(self, bits: Tensor) -> Tensor:
        """Return entities for random bits, independently of the side they replace: [...] -> [...]."""
        return scale_bits(bits, self.entities) if self.by_degree is None else self.by_degree(bits)


def make_negative_distribution(
    entity_distribution: str, side_distribution: str, positives: Batch, entities: int, relations: int
) -> NegativeDistribution | None:
    """Fit distributions to the training triples; return None for uniform entities and sides, which need no fit.

    >>> positives = Batch(*torch.tensor([[0, 0, 0], [0, 0, 0], [1, 2, 3]]), torch.ones(3))
    >>> fitted = make_negative_distribution("type", "bernoulli", positives, entities=9, relations=1)
    >>> fitted.by_relation.sizes(torch.tensor([0]))
    (tensor([1]), tensor([3]))
    """
    if (entity_distribution, side_distribution) == (ENTITY_DISTRIBUTIONS[0], SIDE_DISTRIBUTIONS[0]):
        return None
    by_degree = by_relation = None
    if entity_distribution == "degree":
        by_degree = DegreeDistribution.fit(positives, entities)
    if entity_distribution == "type" or side_distribution == "bernoulli":
        by_relation = RelationEntities.fit(positives, entities, relations)
    return NegativeDistribution(entity_distribution, side_distribution, entities, by_degree, by_relation)


@dataclass(frozen=True)
class DegreeDistribution:
    """A distribution of entities in proportion to degree^¾, as an alias table (Walker, 1977): two look-ups per draw.

    A random number falls into one of E columns of height 2³¹. Column e yields entity e below `threshold[e]`, and
    `alias[e]` above it; both are int64 [E].
    """

    threshold: Tensor
    alias: Tensor

    @classmethod
    def fit(cls, positives: Batch, entities: int) -> DegreeDistribution:
        """Count the edges of each entity in the training triples; an entity without edges is never drawn."""
        degree = torch.bincount(torch.cat([positives.head, positives.tail]).cpu(), minlength=entities).double()
        device = positives.head.device
        threshold, alias = _alias_table(degree.numpy() ** DEGREE_POWER)
        return cls(torch.from_numpy(threshold).to(device), torch.from_numpy(alias).to(device))

    def __call__(self, bits: Tensor) -> Tensor:
        """Return entities for random bits: [...] -> [...]."""
        scaled = bits * len(self.threshold)
        column, height = scaled >> RANDOM_BITS, scaled & ((1 << RANDOM_BITS) - 1)
        return torch.where(height < self.threshold[column], column, self.alias[column])


def _alias_table(weight: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the threshold of each column and the entity above it: float [E] -> int64 [E], [E].

    A small entity fills less than its column and a large one more. The gaps of the small entities and the surpluses of
    the large ones are arranged along one line. A small column is filled by the large entity at whose surplus its gap
    begins. A large entity that thereby gives away more than its surplus is filled by the next large entity.
    """
    size, full = len(weight), 1 << RANDOM_BITS
    total = np.cumsum(weight)
    # Cumulative sums are rounded, so that the heights add up to exactly E full columns.
    height = np.where(total < total[-1], np.round(total * (size * full / total[-1])), size * full).astype(np.int64)
    threshold, alias = np.diff(height, prepend=0), np.arange(size, dtype=np.int64)
    small, large = np.flatnonzero(threshold < full), np.flatnonzero(threshold >= full)
    gap_ends, surplus_ends = np.cumsum(full - threshold[small]), np.cumsum(threshold[large] - full)
    gap_starts = np.append(0, gap_ends)
    alias[small] = large[np.searchsorted(surplus_ends, gap_starts[:-1], side="right")]
    filled = np.searchsorted(gap_starts[:-1], surplus_ends, side="left")  # gaps that start before a surplus ends
    threshold[large] = full - np.maximum(gap_starts[filled] - surplus_ends, 0)
    alias[large[:-1]] = large[1:]
    return threshold, alias


@dataclass(frozen=True)
class RelationEntities:
    """The entities that occur as heads and as tails of each relation in the training triples.

    Group r holds the heads of relation r, and group R + r its tails. `keys` are the distinct numbers
    group · E + entity, ascending, int64 [m]. `members` are their entities and two entries of padding, int64 [m + 2].
    `starts`, int64 [2R + 1], holds the position at which each group begins.
    """

    keys: Tensor
    members: Tensor
    starts: Tensor
    entities: int

    @classmethod
    def fit(cls, positives: Batch, entities: int, relations: int) -> RelationEntities:
        """Collect the entities of each relation from the training triples."""
        head, relation, tail = (column.cpu() for column in (positives.head, positives.relation, positives.tail))
        keys = torch.unique(torch.cat([relation * entities + head, (relations + relation) * entities + tail]))
        starts = torch.searchsorted(keys, torch.arange(2 * relations + 1) * entities)
        device = positives.head.device
        return cls(keys.to(device), F.pad(keys % entities, (0, 2)).to(device), starts.to(device), entities)

    @property
    def relations(self) -> int:
        """The number of relations R."""
        return len(self.starts) // 2

    def sizes(self, relation: Tensor) -> tuple[Tensor, Tensor]:
        """Return the numbers of heads and of tails of relations: [B] -> [B], [B]."""
        heads, tails = relation, relation + self.relations
        return self.starts[heads + 1] - self.starts[heads], self.starts[tails + 1] - self.starts[tails]

    def sides(self, bits: Tensor, relation: Tensor) -> Tensor:
        """Return True where the tail is replaced, for random bits [B, N]: bool [B, N] (Wang et al., 2014).

        Tails per head (tph) and heads per tail (hpt) are the relation's edges divided by its heads and by its tails.
        The tail is therefore replaced with probability hpt / (tph + hpt) = heads / (heads + tails).
        """
        heads, tails = self.sizes(relation)
        return scale_bits(bits, (heads + tails)[:, None]) < heads[:, None]

    def candidates(self, group: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the group's start, its number of candidates without `target`, and the target's position; [B] each.

        The position of a target that is not in the group, as in a known negative, is after all groups.
        """
        first, end, key = self.starts[group], self.starts[group + 1], group * self.entities + target
        position = torch.searchsorted(self.keys, key)
        present = (position < end) & (self.members[position] == target)
        return first, end - first - present.long(), torch.where(present, position, len(self.keys))

    def __call__(self, bits: Tensor, replaces_tail: Tensor, batch: Batch) -> Tensor:
        """Return a tail of the relation where `replaces_tail` is True, else a head, for random bits: int64 [B, N].

        If the relation has no other entity on that side, any entity is drawn.
        """
        heads = self.candidates(batch.relation, batch.head)
        tails = self.candidates(batch.relation + self.relations, batch.tail)
        first, count, target = (
            torch.where(replaces_tail, tail[:, None], head[:, None]) for head, tail in zip(heads, tails, strict=True)
        )
        position = first + scale_bits(bits, count)
        position += position >= target  # skips the positive's own entity
        return torch.where(count > 0, self.members[position], scale_bits(bits, self.entities))

    def num_candidates(self, batch: Batch) -> Tensor:
        """Return the number of possible negatives of each triple, both sides together: int64 [B]."""
        sides = (batch.relation, batch.head), (batch.relation + self.relations, batch.tail)
        counts = torch.stack([self.candidates(group, target)[1] for group, target in sides])
        return torch.where(counts > 0, counts, self.entities - 1).sum(0)


MAX_TRIES = 100  # draws per row to find a negative that is not a known triple


def corrupt_graph(
    test: Graph, known_keys: npt.NDArray[np.int64], seed: int = 0, popular: npt.NDArray[np.int32] | None = None
) -> Graph:
    """Draw one negative of weight 0 for each row of `test`: a random side and then a uniform entity.

    If `popular` entities [m] (with repeats) are given, every other row draws from them instead. These negatives are
    harder to distinguish from true triples, and a file of negatives may contain many of them.
    No negative is in `known_keys` (for example `Graph.keys` of the training graph) or in `test`. A row is left out if
    MAX_TRIES draws yield only known triples.
    """
    random = np.random.default_rng(seed)
    known = np.unique(np.concatenate([known_keys, test.keys]))
    head, tail = test.head.copy(), test.tail.copy()
    remaining = np.arange(len(test))
    for _ in range(MAX_TRIES):
        replaces_tail = random.random(len(remaining)) < 0.5
        entity = random.integers(0, max(len(test.entities), 1), len(remaining), dtype=np.int32)
        if popular is not None:
            entity = np.where(remaining % 2, popular[random.integers(0, len(popular), len(remaining))], entity)
        head[remaining] = np.where(replaces_tail, test.head[remaining], entity)
        tail[remaining] = np.where(replaces_tail, entity, test.tail[remaining])
        keys = test.keys_of(head[remaining], test.relation[remaining], tail[remaining])
        remaining = remaining[np.isin(keys, known)]
        if not len(remaining):
            break
    drawn = replace(test, head=head, tail=tail, weight=np.zeros(len(test)))
    return drawn.select(np.setdiff1d(np.arange(len(test)), remaining))
