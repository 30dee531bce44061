"""nDCG as UKGE measures it: do a query's heavy facts stand before its light ones, and both before everything else?

A query (head, relation, ?) has tails known anywhere in the graph, with weights. Each is ranked among all entities,
the query's other tails included (nothing is filtered):

    nDCG = Σ gain(w) / log2(rank + 1)  /  Σ gain(w) / log2(i + 1)   over the tails, i = 1, 2, … by falling weight

with the gain w (linear) or 2^w − 1 (exponential), and the mean taken over queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.errors import FocuseError, choose
from focuse.evaluation.baselines import Floats, Trivial
from focuse.evaluation.confidence import finite_or_none
from focuse.evaluation.ranking import DIVERGED, SCORES_AT_ONCE, TIES, Rivals, Scorer
from focuse.evaluation.weighing import join
from focuse.graph.graph import Graph
from focuse.graph.weights import strength
from focuse.models import Side

# Sorting holds each score four times over: twice as float32, once as an int64 place.
SORTED_AT_ONCE = SCORES_AT_ONCE // 4


@dataclass(frozen=True)
class Gain:
    """Mean nDCG over `queries`, with linear and with exponential gain. `ties` says how equal scores were ranked."""

    queries: int
    linear: float
    exponential: float
    ties: str = "worst"

    def to_dict(self) -> dict[str, Any]:
        return {
            "queries": self.queries,
            "linear": finite_or_none(self.linear),
            "exponential": finite_or_none(self.exponential),
            "ties": self.ties,
        }


def queries_of(test: Graph, graphs: Iterable[Graph]) -> Graph:
    """Queries for a graph without a file of them: every (head, relation) of `test`, with its tails in all `graphs`.

    All in one vocabulary (train's ids); test's own tails are always among them. Repeated facts count once, at their
    heaviest.
    """
    everything = join([test, *graphs])
    asked = np.isin(query_keys(everything), query_keys(test))
    return everything.select(asked).merge_repeated("max")


def ndcg(scorer: Scorer, queries: Graph, ties: str = "worst", at_once: int = SORTED_AT_ONCE) -> Gain:
    """The mean nDCG of a model over `queries`: edges in train's ids, those of one (head, relation) being a query.

    Weights outside [0, 1] are brought there by their global min–max. Queries whose weights are all 0 have nothing
    to gain and are left out. `ties='best'` is the rule of the original, under which a model that scores everything
    alike stands first everywhere. Memory is bounded by `at_once` scores.
    """
    choose("tie rule", ties, TIES)
    facts = queries.merge_repeated("max")
    if not len(facts):
        return Gain(0, math.nan, math.nan, ties)
    weight = strength(facts, facts)
    # By query, the heaviest first: then a fact's place in its query is its ideal rank.
    order = np.lexsort((-weight, query_keys(facts)))
    facts, weight = facts.select(order), weight[order]
    first, count = np.unique(query_keys(facts), return_index=True, return_counts=True)[1:]
    ideal: Floats = np.arange(1.0, len(facts) + 1) - np.repeat(first, count)
    ranks = _ranks(scorer, facts, first, count, ties, at_once)
    return Gain(
        queries=int((np.maximum.reduceat(weight, first) > 0).sum()),
        linear=mean_gain(weight, ranks, weight, ideal, first),
        exponential=mean_gain(np.exp2(weight) - 1.0, ranks, np.exp2(weight) - 1.0, ideal, first),
        ties=ties,
    )


def mean_gain(gain: Floats, ranks: Floats, best: Floats, ideal: Floats, first: npt.NDArray[np.intp]) -> float:
    """Mean nDCG of facts [n] with `gain` at `ranks`, where `best` at `ideal` is possible; queries begin at `first` [q].

    Queries with nothing to gain are left out.
    """
    reached = np.add.reduceat(gain / np.log2(ranks + 1), first)
    possible = np.add.reduceat(best / np.log2(ideal + 1), first)
    counts = possible > 0
    return float(np.mean(reached[counts] / possible[counts])) if counts.any() else math.nan


@torch.no_grad()
def _ranks(
    scorer: Scorer, facts: Graph, first: npt.NDArray[np.intp], count: npt.NDArray[np.intp], ties: str, at_once: int
) -> Floats:
    """The rank of each fact's tail among all entities, [n]; a few queries at a time."""
    size = max(1, at_once // max(len(facts.entities), 1))
    head, relation, tail = (
        torch.from_numpy(column.astype(np.int64)) for column in (facts.head, facts.relation, facts.tail)
    )
    ranks = []
    for start in range(0, len(first), size):
        counts = count[start : start + size]
        begin, end = int(first[start]), int(first[start]) + int(counts.sum())
        row = np.repeat(np.arange(len(counts)), counts)
        column = np.arange(end - begin) - np.repeat(np.cumsum(counts) - counts, counts)
        # Tails as a table [queries, most tails], empty places at entity 0 and not read again.
        tails = torch.zeros(len(counts), int(counts.max()), dtype=torch.int64)
        tails[row, column] = tail[begin:end]
        asked = torch.from_numpy(first[start : start + size])
        scores = scorer.score_all(head[asked].to(scorer.device), relation[asked].to(scorer.device), "tail")
        rivals = _rivals(scores, tails.to(scores.device))
        ranks.append(rivals.ranks(ties)[row, column])
    return np.concatenate(ranks)


def _rivals(scores: Tensor, tails: Tensor) -> Rivals:
    """How many entities score higher than, and the same as, each of `tails` [Q, m] by `scores` [Q, E]; [Q, m]."""
    if not torch.isfinite(scores).all():
        raise FocuseError(DIVERGED)
    own = scores.gather(1, tails)
    ascending = scores.sort(dim=1).values
    below = torch.searchsorted(ascending, own)
    up_to = torch.searchsorted(ascending, own, right=True)
    higher, same = scores.shape[1] - up_to, up_to - below - 1
    return Rivals(higher.cpu().numpy(), same.cpu().numpy())


def query_keys(graph: Graph, side: Side = "tail") -> npt.NDArray[np.int64]:
    """One number for each query (head, relation, ?), or (?, relation, tail) where the head is asked for; int64 [n]."""
    given = graph.head if side == "tail" else graph.tail
    return given.astype(np.int64) * max(len(graph.relations), 1) + graph.relation


class TrivialScorer:
    """A trivial predictor as a model that ranking and nDCG can ask.

    Where train does not link two entities it says the same of all, so only the neighbours of a query are looked up.
    `absent` is a score for all entities that train does not link to the query's (None: the trivial predictor's own
    guess, which takes every triple for a fact). Scores come on `device`; a GPU sorts them far faster.
    """

    def __init__(
        self, trivial: Trivial, train: Graph, absent: float | None = None, device: torch.device | str = "cpu"
    ) -> None:
        self.trivial, self.entities, self.absent = trivial, len(train.entities), absent
        self.device = torch.device(device)
        head, tail = train.head.astype(np.int64), train.tail.astype(np.int64)
        self.links = np.unique(np.concatenate([head * self.entities + tail, tail * self.entities + head]))

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Weights of triples, ids int64 [B] -> [B]."""
        given, kind, other = (ids.cpu().numpy() for ids in (head, relation, tail))
        linked = np.isin(given * self.entities + other, self.links)
        return self._here(np.where(linked, self.trivial(given, kind, other), self._elsewhere(kind)))

    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Weights with every entity on the other side, ids int64 [B] -> [B, E]."""
        given, kind = known.cpu().numpy(), relation.cpu().numpy()
        scores = self._here(self._elsewhere(kind))[:, None].repeat(1, self.entities)
        start, end = (np.searchsorted(self.links, (given + step) * self.entities) for step in (0, 1))
        count = end - start
        row = np.repeat(np.arange(len(given)), count)
        place = np.arange(len(row)) + np.repeat(start - (np.cumsum(count) - count), count)
        other = self.links[place] % self.entities
        triple = (given[row], kind[row], other) if side == "tail" else (other, kind[row], given[row])
        scores[self._here(row), self._here(other)] = self._here(self.trivial(*triple))
        return scores

    def _here(self, values: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self.device)

    def _elsewhere(self, relation: npt.NDArray[np.int64]) -> Floats:
        return self.trivial.elsewhere(relation) if self.absent is None else np.full(len(relation), self.absent)
