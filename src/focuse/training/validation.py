"""Validation during training, and the best tables for early stopping.

Ranking models are validated by the filtered MRR of the validation triples of high weight, as in the paper. Confidence
models are validated by their squared error on all validation triples and as many negatives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from focuse.data.graph import Graph, Weights
from focuse.data.triple_index import TripleIndex, id_tensors, relevant_triple_index
from focuse.data.weights import strength
from focuse.engines.base import ModelScorer
from focuse.evaluation.metrics import rank_metrics
from focuse.evaluation.ranking import rank_graph
from focuse.models.base import confidence
from focuse.objective.negatives import Batch, draw_negatives
from focuse.random_streams import RandomStream

MIN_TRIPLES = 50  # below this many triples a mean reciprocal rank is mostly noise
MAX_TRIPLES = 10_000  # ranking more triples takes longer than the higher precision is worth


@dataclass(frozen=True)
class RankValidator:
    """Measures the filtered MRR (ties ranked worst) of validation triples of high weight.

    `metric` is the name of the measured value in the history; larger values of `sign` · value are better.
    """

    metric: ClassVar[str] = "valid_mrr"
    sign: ClassVar[int] = 1
    graph: Graph
    known: TripleIndex

    def __call__(self, scorer: ModelScorer) -> float:
        return rank_metrics(rank_graph(scorer, self.graph, self.known).filtered.ranks()).mrr


@dataclass(frozen=True)
class ConfidenceValidator:
    """Measures the mean squared error of confidences on validation triples and, if any, on negatives of weight 0.

    The weights of the triples are in [0, 1].
    """

    metric: ClassVar[str] = "valid_mse"
    sign: ClassVar[int] = -1
    triples: Batch

    def __call__(self, scorer: ModelScorer) -> float:
        triples = self.triples
        found = confidence(scorer.model, scorer.score(triples.head, triples.relation, triples.tail))
        return float((found.double() - triples.weight).square().mean())


Validator = RankValidator | ConfidenceValidator


def confidence_validator(
    valid: Graph, weight: Weights, known: TripleIndex, seed: int, with_negatives: bool = True
) -> ConfidenceValidator | None:
    """Return a validator of triples with the given weights in [0, 1]; None if there are none."""
    if not len(valid):
        return None
    device = known.keys["tail"].device
    head, relation, tail = (ids.to(device) for ids in id_tensors(valid))
    if not with_negatives:
        return ConfidenceValidator(Batch(head, relation, tail, torch.from_numpy(weight).to(device)))
    key = (seed, 0, RandomStream.VALIDATION_NEGATIVES)
    entities, replaces_tail = draw_negatives(key, (len(valid),), known.entities, device)
    heads, tails = torch.where(replaces_tail, head, entities), torch.where(replaces_tail, entities, tail)
    false = ~known.contains(heads, relation, tails)
    weights = torch.zeros(len(valid) + int(false.sum()), dtype=torch.float64, device=device)
    weights[: len(valid)] = torch.from_numpy(weight)
    heads, tails = torch.cat([head, heads[false]]), torch.cat([tail, tails[false]])
    return ConfidenceValidator(Batch(heads, torch.cat([relation, relation[false]]), tails, weights))


def rank_validator(
    valid: Graph, train: Graph, known: Sequence[Graph], threshold: float, seed: int, device: str = "cpu"
) -> RankValidator | None:
    """Return a validator of the triples of strength ≥ `threshold`, filtered by `known`; None if there are none.

    Where relations differ in their units, the strength is the fraction of the relation's weights that are not stronger.
    If fewer than MIN_TRIPLES reach the threshold, the top decile by weight (at least MIN_TRIPLES) is used. If there are
    more than MAX_TRIPLES, a random sample of that size is used.
    """
    if not len(valid):
        return None
    weight = strength(valid, train).high
    rows = np.flatnonzero(weight >= threshold)
    if len(rows) < MIN_TRIPLES:
        wanted = min(len(valid), max(MIN_TRIPLES, len(valid) // 10))
        rows = np.flatnonzero(weight >= np.sort(weight)[-wanted])
    if len(rows) > MAX_TRIPLES:
        rows = np.sort(np.random.default_rng(seed).choice(rows, MAX_TRIPLES, replace=False))
    graph = valid.select(rows)
    return RankValidator(graph, relevant_triple_index(known, graph, device))


def best_epoch_row(history: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the row of a history with the best validation, None if there was none."""
    for validator in (RankValidator, ConfidenceValidator):
        rows = [row for row in history if row.get(validator.metric) is not None]
        if rows:
            return max(rows, key=lambda row: validator.sign * float(row[validator.metric]))
    return None
