"""Baselines without a model, with which a trained model is compared.

Weight baselines predict the weight of an edge from training weights (`fit_weight_baselines`). They are means over true
triples, so none of them can distinguish a true triple from a negative, except the one of `fit_zero_baseline`.

Ranking baselines are scorers: `FrequencyScorer` and `LinkedScorer` score entities by their frequency and their edges in
train, and `WeightBaselineScorer` by the weight that a weight baseline predicts. Weight baselines do not import torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from focuse.data.graph import Graph
from focuse.evaluation.metrics import FloatArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from focuse.models.base import Side

AnyIds = npt.NDArray[Any]
Keys = npt.NDArray[np.int64]
# A predictor maps heads, relations and tails (ids [n]) to weights in the user's units [n].
Predictor = Callable[[AnyIds, AnyIds, AnyIds], FloatArray]

GLOBAL_MEAN, RELATION_MEAN, INVERSE_COPY = "global mean", "relation mean", "inverse copy"
INVERSE_COPY_OR_ZERO = "inverse copy, else 0"
FREQUENCY, LINKED = "frequency in train", "edge back, else frequency"


# ---- weights ------------------------------------------------------------------------------------------------------


class WeightBaseline(ABC):
    """A predictor that looks up training weights: `baseline(head, relation, tail)`, ids [n] -> weights [n]."""

    @abstractmethod
    def unlinked(self, relation: AnyIds) -> FloatArray:
        """Return the weights [n] of edges with `relation` [n] between entities without any edge in train."""

    def __call__(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        return self.unlinked(relation)


def fit_weight_baselines(train: Graph) -> dict[str, WeightBaseline]:
    """Fit the three weight baselines, in the user's own units: global mean, relation mean, inverse copy.

    >>> from focuse.data.graph import from_columns
    >>> train = from_columns(["a", "b", "a"], ["r", "r", "s"], ["b", "c", "b"], [0.2, 0.6, 1.0])
    >>> edge = np.array([1]), np.array([0]), np.array([0])
    >>> {name: round(float(baseline(*edge)[0]), 3) for name, baseline in fit_weight_baselines(train).items()}
    {'global mean': 0.6, 'relation mean': 0.4, 'inverse copy': 0.2}
    """
    relation_mean = _fit_relation_mean(train)
    return {
        GLOBAL_MEAN: GlobalMean(_overall_mean(train)),
        RELATION_MEAN: relation_mean,
        INVERSE_COPY: _fit_inverse_copy(train, relation_mean),
    }


def fit_zero_baseline(train: Graph) -> dict[str, WeightBaseline]:
    """Fit the weight baseline that assumes most triples to be false, for protocols with negatives."""
    return {INVERSE_COPY_OR_ZERO: InverseCopyOrZero(_fit_inverse_copy(train, _fit_relation_mean(train)))}


@dataclass(frozen=True)
class GlobalMean(WeightBaseline):
    """The baseline that predicts the mean training weight for every edge."""

    value: float

    def unlinked(self, relation: AnyIds) -> FloatArray:
        return np.full(len(relation), self.value)


@dataclass(frozen=True, eq=False)
class RelationMean(WeightBaseline):
    """The baseline that predicts the mean training weight of the relation, `values` [R], or else the global mean."""

    values: FloatArray

    def unlinked(self, relation: AnyIds) -> FloatArray:
        means: FloatArray = self.values[relation]
        return means


@dataclass(frozen=True, eq=False)
class InverseCopy(WeightBaseline):
    """The mean weight of the inverse edge with the same relation, else of the entity pair, else of the relation.

    The mean of a pair covers all edges between both entities, in both directions. An edge that is in train is therefore
    looked up too, and a loop, which is its own inverse, has its own weight.
    """

    train: Graph
    inverse: KeyedMeans
    pair: KeyedMeans
    relation_mean: RelationMean

    def unlinked(self, relation: AnyIds) -> FloatArray:
        return self.relation_mean.unlinked(relation)

    def __call__(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        return self.copy_or(self.unlinked(relation), head, relation, tail)

    def copy_or(self, default: FloatArray, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        """Return the copied weights of triples [n], or `default` [n] if no training edge links the entities."""
        pair = self.pair.lookup(_pair_keys(self.train, head, tail), default)
        return self.inverse.lookup(self.train.keys_of(tail, relation, head), pair)


@dataclass(frozen=True, eq=False)
class InverseCopyOrZero(WeightBaseline):
    """The inverse copy if a training edge links the entities, else 0, because other triples are assumed false."""

    copy: InverseCopy

    def unlinked(self, relation: AnyIds) -> FloatArray:
        return np.zeros(len(relation))

    def __call__(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        return self.copy.copy_or(self.unlinked(relation), head, relation, tail)


@dataclass(frozen=True, eq=False)
class KeyedMeans:
    """The mean weight of each key: sorted `keys` int64 [k] and `values` [k]."""

    keys: Keys
    values: FloatArray

    @classmethod
    def fit(cls, keys: Keys, weight: FloatArray) -> KeyedMeans:
        """Average the weights [n] of equal keys [n]."""
        distinct, group, count = np.unique(keys, return_inverse=True, return_counts=True)
        return cls(distinct, grouped_mean(group, weight, count))

    def lookup(self, keys: Keys, default: FloatArray) -> FloatArray:
        """Return the means of `keys` [n], or `default` [n] for unknown keys."""
        if not len(self.keys):
            return default
        position = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[position] == keys, self.values[position], default)


def grouped_mean(group: AnyIds, weight: FloatArray, count: AnyIds) -> FloatArray:
    """Return the mean of `weight` [n] in each `group` [n], given the group sizes [k]; 0 for an empty group."""
    # Weights are divided before they are added, because sums of numbers near 1e308 would overflow.
    means = np.bincount(group, weights=weight / count[group], minlength=len(count))
    return np.asarray(means, np.float64)


def _overall_mean(train: Graph) -> float:
    return float(grouped_mean(np.zeros(len(train), np.int64), train.weight, np.array([len(train)]))[0])


def _fit_relation_mean(train: Graph) -> RelationMean:
    count = np.bincount(train.relation, minlength=len(train.relations))
    return RelationMean(np.where(count > 0, grouped_mean(train.relation, train.weight, count), _overall_mean(train)))


def _fit_inverse_copy(train: Graph, relation_mean: RelationMean) -> InverseCopy:
    return InverseCopy(
        train,
        inverse=KeyedMeans.fit(train.keys, train.weight),
        pair=KeyedMeans.fit(_pair_keys(train, train.head, train.tail), train.weight),
        relation_mean=relation_mean,
    )


def _pair_keys(train: Graph, head: AnyIds, tail: AnyIds) -> Keys:
    """Return one number per pair of entities, independent of their order; int64 [n]."""
    first, second = np.minimum(head, tail).astype(np.int64), np.maximum(head, tail)
    return first * len(train.entities) + second


# ---- ranking ------------------------------------------------------------------------------------------------------


class BaselineScorer(ABC):
    """A baseline as a `focuse.engines.base.Scorer`, with scores on `device`."""

    expensive_to_rank = False
    side_dependent = False

    def __init__(self, entities: int, device: torch.device | str) -> None:
        import torch  # imported here, because weight baselines do not need it

        self.entities, self.device = entities, torch.device(device)

    @abstractmethod
    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Return one score per triple: ids int64 [B] -> [B]."""

    @abstractmethod
    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Return the scores of every entity on `side`: ids int64 [B] -> [B, E]."""

    def score_some(self, known: Tensor, relation: Tensor, entities: Tensor, side: Side) -> Tensor:
        """Return the scores of given entities on `side`: ids int64 [B], [B], [B, N] -> [B, N]."""
        return self.score_all(known, relation, side).gather(1, entities)

    def _tensor(self, values: npt.NDArray[Any]) -> Tensor:
        import torch

        return torch.from_numpy(values).to(self.device)

    def _members(self, keys: Keys, query: Keys) -> tuple[Keys, Keys, Keys]:
        """Find the entities of each query [B] in sorted keys, which are query · E + entity.

        Return the row of `query`, the entity, and the position in `keys` of each entity found.
        """
        start, end = (np.searchsorted(keys, (query + step) * self.entities) for step in (0, 1))
        count = end - start
        row = np.repeat(np.arange(len(query)), count)
        position = np.arange(len(row)) + np.repeat(start - (np.cumsum(count) - count), count)
        return row, keys[position] % self.entities, position


class FrequencyScorer(BaselineScorer):
    """A scorer by the number of training edges that have the entity on that side of the relation.

    Among equally frequent entities, the one with more edges in total scores higher.

    >>> import torch
    >>> from focuse.data.graph import from_columns
    >>> train = from_columns(["a", "b", "b"], ["r", "r", "s"], ["c", "c", "a"], [1.0, 1.0, 1.0])
    >>> FrequencyScorer(train).score_all(torch.tensor([0]), torch.tensor([0]), "tail").int().tolist()
    [[0, 0, 2]]
    """

    side_dependent = True  # a triple has two scores, the frequencies of its tail and of its head

    def __init__(self, train: Graph, device: torch.device | str = "cpu") -> None:
        super().__init__(len(train.entities), device)
        degree = np.bincount(np.concatenate([train.head, train.tail]), minlength=self.entities)
        # The share is below 1, so that it decides only between equal frequencies.
        self.degree_share = self._tensor((degree / (degree.max(initial=0) + 1)).astype(np.float32))
        relation = train.relation.astype(np.int64) * self.entities
        self.counts = {
            "tail": np.unique(relation + train.tail, return_counts=True),
            "head": np.unique(relation + train.head, return_counts=True),
        }

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Return the mean of the frequencies of both sides: ids int64 [B] -> [B]."""
        return (self._frequency(relation, tail, "tail") + self._frequency(relation, head, "head")) / 2

    def _frequency(self, relation: Tensor, entity: Tensor, side: Side) -> Tensor:
        keys, counts = self.counts[side]
        key = relation.cpu().numpy().astype(np.int64) * self.entities + entity.cpu().numpy()
        position = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        count = np.where(keys[position] == key, counts[position], 0).astype(np.float32)
        return self._tensor(count) + self.degree_share[entity]

    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        keys, counts = self.counts[side]
        row, entity, position = self._members(keys, relation.cpu().numpy().astype(np.int64))
        scores = self.degree_share.repeat(len(relation), 1)
        scores[self._tensor(row), self._tensor(entity)] += self._tensor(counts[position].astype(np.float32))
        return scores


class LinkedScorer(FrequencyScorer):
    """A scorer that prefers entities with an inverse training edge of the same relation, then those with any edge.

    Entities of each group, and all others, are ordered by frequency.
    """

    def __init__(self, train: Graph, device: torch.device | str = "cpu") -> None:
        super().__init__(train, device)
        self.relations = len(train.relations)
        max_count = max(int(counts.max(initial=0)) for _, counts in self.counts.values())
        self.scale = 1.0 / (max_count + 1)  # scaled frequencies are below 1
        head, relation, tail = (ids.astype(np.int64) for ids in (train.head, train.relation, train.tail))
        self.links = _link_keys(train)
        # Keys of the entities with an inverse edge, for queries (given, relation) of tails and of heads.
        self.inverse_keys = {
            "tail": np.unique((tail * self.relations + relation) * self.entities + head),
            "head": np.unique((head * self.relations + relation) * self.entities + tail),
        }

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        heads, relations, tails = (ids.cpu().numpy().astype(np.int64) for ids in (head, relation, tail))
        linked = np.isin(heads * self.entities + tails, self.links).astype(np.float32)
        linked += np.isin((tails * self.relations + relations) * self.entities + heads, self.inverse_keys["head"])
        return super().score(head, relation, tail) * self.scale + self._tensor(linked)

    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        scores = super().score_all(known, relation, side) * self.scale
        given, relations = (ids.cpu().numpy().astype(np.int64) for ids in (known, relation))
        for keys, query in ((self.links, given), (self.inverse_keys[side], given * self.relations + relations)):
            row, entity, _ = self._members(keys, query)
            scores[self._tensor(row), self._tensor(entity)] += 1.0
        return scores


class WeightBaselineScorer(BaselineScorer):
    """A scorer by the weight that a weight baseline predicts.

    A baseline predicts the same for all entities without a training edge to the query's entity, so only neighbors are
    looked up.

    Parameters
    ----------
    unlinked
        The score of entities without a training edge to the query's entity, by default the baseline's prediction, which
        assumes every triple to be true.
    """

    def __init__(
        self,
        baseline: WeightBaseline,
        train: Graph,
        unlinked: float | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(len(train.entities), device)
        self.baseline, self.unlinked = baseline, unlinked
        self.links = _link_keys(train)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        heads, relations, tails = (ids.cpu().numpy() for ids in (head, relation, tail))
        linked = np.isin(heads * self.entities + tails, self.links)
        predicted = self.baseline(heads, relations, tails)
        return self._tensor(np.where(linked, predicted, self._unlinked_scores(relations)))

    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        given, relations = known.cpu().numpy(), relation.cpu().numpy()
        scores = self._tensor(self._unlinked_scores(relations))[:, None].repeat(1, self.entities)
        row, entity, _ = self._members(self.links, given)
        head, tail = (given[row], entity) if side == "tail" else (entity, given[row])
        scores[self._tensor(row), self._tensor(entity)] = self._tensor(self.baseline(head, relations[row], tail))
        return scores

    def _unlinked_scores(self, relation: Keys) -> FloatArray:
        return self.baseline.unlinked(relation) if self.unlinked is None else np.full(len(relation), self.unlinked)


def _link_keys(train: Graph) -> Keys:
    """Return head · E + tail of all edges in both directions, sorted."""
    head, tail, entities = train.head.astype(np.int64), train.tail.astype(np.int64), len(train.entities)
    return np.unique(np.concatenate([head * entities + tail, tail * entities + head]))
