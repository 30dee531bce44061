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
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from focuse.data.graph import Graph, lookup_sorted, ranges_to_indices
from focuse.evaluation.metrics import FloatArray, Keys

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from focuse.models.base import Side

AnyIds = npt.NDArray[Any]
# A predictor maps heads, relations and tails (ids [n]) to weights in the user's units [n].
Predictor = Callable[[AnyIds, AnyIds, AnyIds], FloatArray]

GLOBAL_MEAN, RELATION_MEAN, INVERSE_COPY = "global mean", "relation mean", "inverse copy"
INVERSE_COPY_OR_ZERO = "inverse copy, else 0"
FREQUENCY, LINKED = "frequency in train", "edge back, else frequency"


# ---- weights ------------------------------------------------------------------------------------------------------


class KeyedWeights:
    """Statistics of the weights of equal keys: count, mean, min, median and max of sorted `keys` [k].

    The median of an even number of weights is the lower one of the two in the middle.

    >>> weights = KeyedWeights(np.array([7, 5, 7]), np.array([1.0, 0.0, 0.5]))
    >>> weights.lookup("mean", np.array([7, 6]), default=-1.0)
    array([ 0.75, -1.  ])
    """

    def __init__(self, keys: Keys, weight: FloatArray) -> None:
        self.keys, self._group, count = np.unique(keys, return_inverse=True, return_counts=True)
        self.count, self._weight = count.astype(np.float64), weight

    @cached_property
    def mean(self) -> FloatArray:
        with np.errstate(over="ignore"):
            sums = np.bincount(self._group, weights=self._weight, minlength=len(self.keys))
        if np.isfinite(sums).all():
            return np.asarray(sums / self.count, np.float64)
        # Weights near 1e308 are divided before they are added, because their sums overflow.
        parts = self._weight / self.count[self._group]
        return np.asarray(np.bincount(self._group, weights=parts, minlength=len(self.keys)), np.float64)

    @cached_property
    def order_statistics(self) -> dict[str, FloatArray]:
        """The lowest, the median and the highest weight of each key."""
        weight = self._weight[np.lexsort((self._weight, self._group))]
        end = np.cumsum(self.count).astype(np.int64)
        first, last = end - self.count.astype(np.int64), end - 1
        return {"min": weight[first], "median": weight[(first + last) // 2], "max": weight[last]}

    def lookup(self, statistic: str, keys: Keys, default: float | FloatArray) -> FloatArray:
        """Return a statistic (count, mean, min, median, max) of `keys` [n], or `default` for unknown keys."""
        values = getattr(self, statistic) if statistic in ("count", "mean") else self.order_statistics[statistic]
        return lookup_sorted(self.keys, values, keys, default)


@dataclass(frozen=True, eq=False)
class WeightBaseline:
    """A predictor that looks up training weights: `baseline(head, relation, tail)`, ids [n] -> weights [n].

    If training edges link the two entities, and the baseline has `links`, the prediction is the mean weight of the
    inverse edge with the same relation, else that of all edges between both entities. An edge that is in train is
    therefore looked up too, and a loop, which is its own inverse, has its own weight. All other predictions are
    `by_relation` [R].
    """

    by_relation: FloatArray
    links: _Links | None = None

    def __call__(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        weights: FloatArray = self.by_relation[relation]
        return weights if self.links is None else self.links.copy_or(weights, head, relation, tail)


class _Links:
    """Mean training weights per triple, and per pair of entities in either direction."""

    def __init__(self, train: Graph) -> None:
        self.train = train
        self.triples = KeyedWeights(train.keys, train.weight)
        self.pairs = KeyedWeights(self._pair_keys(train.head, train.tail), train.weight)

    def _pair_keys(self, head: AnyIds, tail: AnyIds) -> Keys:
        """Return one number per pair of entities, independent of their order; int64 [n]."""
        first, second = np.minimum(head, tail).astype(np.int64), np.maximum(head, tail)
        return first * len(self.train.entities) + second

    def copy_or(self, default: FloatArray, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        """Return the copied weights of triples [n], or `default` [n] if no training edge links the entities."""
        pair = self.pairs.lookup("mean", self._pair_keys(head, tail), default)
        return self.triples.lookup("mean", self.train.keys_of(tail, relation, head), pair)


def relation_means(train: Graph) -> WeightBaseline:
    """Fit the baseline that predicts the mean training weight of the relation, or else the global mean."""
    weights = KeyedWeights(train.relation.astype(np.int64), train.weight)
    return WeightBaseline(weights.lookup("mean", np.arange(len(train.relations)), _global_mean(train)))


def _global_mean(train: Graph) -> float:
    """Return the mean training weight, or 0 without edges."""
    return float(KeyedWeights(np.zeros(len(train), np.int64), train.weight).mean.sum())


def fit_weight_baselines(train: Graph) -> dict[str, WeightBaseline]:
    """Fit the three weight baselines, in the user's own units: global mean, relation mean, inverse copy.

    >>> from focuse.data.graph import from_columns
    >>> train = from_columns(["a", "b", "a"], ["r", "r", "s"], ["b", "c", "b"], [0.2, 0.6, 1.0])
    >>> edge = np.array([1]), np.array([0]), np.array([0])
    >>> {name: round(float(baseline(*edge)[0]), 3) for name, baseline in fit_weight_baselines(train).items()}
    {'global mean': 0.6, 'relation mean': 0.4, 'inverse copy': 0.2}
    """
    means = relation_means(train)
    return {
        GLOBAL_MEAN: WeightBaseline(np.full(len(train.relations), _global_mean(train))),
        RELATION_MEAN: means,
        INVERSE_COPY: WeightBaseline(means.by_relation, _Links(train)),
    }


def fit_zero_baseline(train: Graph) -> dict[str, WeightBaseline]:
    """Fit the baseline for protocols with negatives: 0 without a training edge between the entities, else a copy."""
    return {INVERSE_COPY_OR_ZERO: WeightBaseline(np.zeros(len(train.relations)), _Links(train))}


# ---- ranking ------------------------------------------------------------------------------------------------------


class BaselineScorer(ABC):
    """A baseline as a `focuse.engines.base.Scorer`, with scores on `device`."""

    expensive_to_rank = False
    side_dependent = False

    def __init__(self, entities: int, device: torch.device | str) -> None:
        import torch  # imported here, because weight baselines do not need it

        self.entities, self.device = entities, torch.device(device)

    @abstractmethod
    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Return the scores of every entity on `side`: ids int64 [B] -> [B, E]."""

    def score_some(self, known: Tensor, relation: Tensor, entities: Tensor, side: Side) -> Tensor:
        """Return the scores of given entities on `side`: ids int64 [B], [B], [B, N] -> [B, N]."""
        return self.score_all(known, relation, side).gather(1, entities)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Return one score per triple, the mean of its scores on both sides: ids int64 [B] -> [B]."""
        as_tail = self.score_some(head, relation, tail[:, None], "tail")
        as_head = self.score_some(tail, relation, head[:, None], "head")
        return (as_tail + as_head)[:, 0] / 2

    def _tensor(self, values: npt.NDArray[Any]) -> Tensor:
        import torch

        return torch.from_numpy(values).to(self.device)

    def _members(self, keys: Keys, query: Keys) -> tuple[Keys, Keys, Keys]:
        """Find the entities of each query [B] in sorted keys, which are query · E + entity.

        Return the row of `query`, the entity, and the position in `keys` of each entity found.
        """
        start, stop = (np.searchsorted(keys, (query + step) * self.entities) for step in (0, 1))
        row, position = ranges_to_indices(start, stop)
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
        ends = {"tail": train.tail, "head": train.head}
        self.counts = {side: np.unique(relation + ids, return_counts=True) for side, ids in ends.items()}

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
    """

    def __init__(self, baseline: WeightBaseline, train: Graph, device: torch.device | str = "cpu") -> None:
        super().__init__(len(train.entities), device)
        self.baseline, self.links = baseline, _link_keys(train)

    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        given, relations = known.cpu().numpy(), relation.cpu().numpy()
        scores = self._tensor(self.baseline.by_relation[relations])[:, None].repeat(1, self.entities)
        row, entity, _ = self._members(self.links, given)
        head, tail = (given[row], entity) if side == "tail" else (entity, given[row])
        scores[self._tensor(row), self._tensor(entity)] = self._tensor(self.baseline(head, relations[row], tail))
        return scores


def _link_keys(train: Graph) -> Keys:
    """Return head · E + tail of all edges in both directions, sorted."""
    head, tail, entities = train.head.astype(np.int64), train.tail.astype(np.int64), len(train.entities)
    return np.unique(np.concatenate([head * entities + tail, tail * entities + head]))
