"""Ranking without a model: whoever stood at that place of the relation most often in train comes first.

A model's ranks say something only beside these. Of a question (head, relation, ?) the frequency of a tail is the number
of train's facts by that relation that end in it, and of two alike the one with more facts altogether comes first.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.evaluation.evaluate import Evaluation, evaluate, known_facts
from focuse.graph.graph import Aligned, Graph
from focuse.models import Side

Keys = npt.NDArray[np.int64]
FREQUENCY, LINKED = "frequency in train", "edge back, else frequency"


class FrequencyScorer:
    """Scores an entity by how often train has it at that place of the relation; ids int64 [B] -> [B, E].

    >>> from focuse.graph.graph import from_columns
    >>> train = from_columns(["a", "b", "b"], ["r", "r", "s"], ["c", "c", "a"], [1.0, 1.0, 1.0])
    >>> FrequencyScorer(train).score_all(torch.tensor([0]), torch.tensor([0]), "tail").int().tolist()
    [[0, 0, 2]]
    """

    sided = True  # the same triple has two scores: how frequent its tail is, and how frequent its head

    def __init__(self, train: Graph, device: torch.device | str = "cpu") -> None:
        self.entities, self.device = len(train.entities), torch.device(device)
        degree = np.bincount(np.concatenate([train.head, train.tail]), minlength=self.entities)
        # A share below 1: it decides between equal frequencies alone.
        self.share = torch.from_numpy((degree / (degree.max(initial=0) + 1)).astype(np.float32)).to(self.device)
        relation = train.relation.astype(np.int64) * self.entities
        self.counts = {
            "tail": np.unique(relation + train.tail, return_counts=True),
            "head": np.unique(relation + train.head, return_counts=True),
        }

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """The mean of both places' frequencies [B]."""
        return (self._at(relation, tail, "tail") + self._at(relation, head, "head")) / 2

    def _at(self, relation: Tensor, entity: Tensor, side: Side) -> Tensor:
        keys, counts = self.counts[side]
        asked = relation.cpu().numpy().astype(np.int64) * self.entities + entity.cpu().numpy()
        place = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
        found = np.where(keys[place] == asked, counts[place], 0).astype(np.float32)
        return torch.from_numpy(found).to(self.device) + self.share[entity]

    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        keys, counts = self.counts[side]
        kind = relation.cpu().numpy().astype(np.int64)
        start, end = (np.searchsorted(keys, (kind + step) * self.entities) for step in (0, 1))
        size = end - start
        row = np.repeat(np.arange(len(kind)), size)
        place = np.arange(len(row)) + np.repeat(start - (np.cumsum(size) - size), size)
        scores = self.share.repeat(len(kind), 1)
        entity = keys[place] % self.entities
        scores[self._here(row), self._here(entity)] += self._here(counts[place].astype(np.float32))
        return scores

    def _here(self, values: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(values).to(self.device)


class LinkedScorer(FrequencyScorer):
    """First whoever has an edge back by the same relation in train, then whoever has any edge, each by frequency."""

    def __init__(self, train: Graph, device: torch.device | str = "cpu") -> None:
        super().__init__(train, device)
        self.relations = len(train.relations)
        most = max(int(counts.max(initial=0)) for _, counts in self.counts.values())
        self.scale = 1.0 / (most + 1)  # brings frequencies below 1
        head, relation, tail = (ids.astype(np.int64) for ids in (train.head, train.relation, train.tail))
        pairs = np.concatenate([head * self.entities + tail, tail * self.entities + head])
        self.links = np.unique(pairs)
        # Of a question (given, relation) the entities with an edge back, for tails and for heads.
        self.back = {
            "tail": np.unique((tail * self.relations + relation) * self.entities + head),
            "head": np.unique((head * self.relations + relation) * self.entities + tail),
        }

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        given, kind, other = (ids.cpu().numpy().astype(np.int64) for ids in (head, relation, tail))
        linked = np.isin(given * self.entities + other, self.links).astype(np.float32)
        linked += np.isin((other * self.relations + kind) * self.entities + given, self.back["head"])
        return super().score(head, relation, tail) * self.scale + self._here(linked)

    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        scores = super().score_all(known, relation, side) * self.scale
        given, kind = (ids.cpu().numpy().astype(np.int64) for ids in (known, relation))
        for keys, query in ((self.links, given), (self.back[side], given * self.relations + kind)):
            row, entity = _slices(keys, query, self.entities)
            scores[self._here(row), self._here(entity)] += 1.0
        return scores


def _slices(keys: Keys, query: Keys, entities: int) -> tuple[Keys, Keys]:
    """The entities that sorted keys (query · entities + entity) hold for each query [B]: row and entity of each."""
    start, end = (np.searchsorted(keys, (query + step) * entities) for step in (0, 1))
    size = end - start
    row = np.repeat(np.arange(len(query)), size)
    place = np.arange(len(row)) + np.repeat(start - (np.cumsum(size) - size), size)
    return row, keys[place] % entities


def rank_trivially(
    train: Graph, valid: Graph, test: Aligned, facts: list[Graph], device: torch.device | str = "cpu"
) -> dict[str, Evaluation]:
    """What rankings without a model reach on `test` (in train's ids), by name; `facts` are all that are known."""
    known = known_facts([*facts, test.graph], device)
    scorers = {FREQUENCY: FrequencyScorer(train, device), LINKED: LinkedScorer(train, device)}
    found = {name: evaluate(scorer, test, train, known, valid=valid) for name, scorer in scorers.items()}
    return {name: replace(one, notes=()) for name, one in found.items()}  # said of the model's already
