"""Validation during training, and the best tables for early stopping.

Ranking models are validated by the filtered MRR of the validation triples of high weight, as in the paper. Confidence
models are validated by their squared error on all validation triples and as many negatives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from focuse.data.graph import Graph, Weights
from focuse.data.triple_index import TripleIndex, id_tensors
from focuse.data.weights import unit_strength
from focuse.engines.base import ModelScorer
from focuse.evaluation.metrics import rank_metrics
from focuse.evaluation.ranking import rank_graph
from focuse.models.base import confidence
from focuse.objective.negatives import draw_negatives
from focuse.random_streams import RandomStream

MIN_TRIPLES = 50  # below this many triples a mean reciprocal rank is mostly noise
MAX_TRIPLES = 10_000  # ranking more triples takes longer than the higher precision is worth


class Validator(Protocol):
    """Measures a model on validation triples.

    `metric` is the name of the measured value in the history; larger values of `sign` · value are better.
    `description` says which triples are used.
    """

    metric: ClassVar[str]
    sign: ClassVar[int]

    @property
    def description(self) -> str: ...

    def __call__(self, scorer: ModelScorer) -> float: ...


@dataclass(frozen=True)
class RankValidator:
    """Measures the filtered MRR (ties ranked worst) of validation triples of high weight."""

    metric: ClassVar[str] = "valid_mrr"
    sign: ClassVar[int] = 1
    graph: Graph
    known: TripleIndex
    description: str

    def __call__(self, scorer: ModelScorer) -> float:
        return rank_metrics(rank_graph(scorer, self.graph, self.known).filtered.ranks()).mrr


@dataclass(frozen=True)
class ConfidenceValidator:
    """Measures the mean squared error of confidences on validation triples and on as many negatives of weight 0.

    The ids are int64 [n], and the weights [n] are in [0, 1].
    """

    metric: ClassVar[str] = "valid_mse"
    sign: ClassVar[int] = -1
    head: torch.Tensor
    relation: torch.Tensor
    tail: torch.Tensor
    weight: torch.Tensor
    description: str

    def __call__(self, scorer: ModelScorer) -> float:
        found = confidence(scorer.model, scorer.score(self.head, self.relation, self.tail))
        return float((found.double() - self.weight).square().mean())


def confidence_validator(valid: Graph, weight: Weights, known: TripleIndex, seed: int) -> ConfidenceValidator | None:
    """Return a validator of triples with the given weights in [0, 1]; None if there are none."""
    if not len(valid):
        return None
    device = known.keys["tail"].device
    head, relation, tail = (ids.to(device) for ids in id_tensors(valid))
    key = (seed, 0, RandomStream.VALIDATION_NEGATIVES)
    entities, replaces_tail = draw_negatives(key, (len(valid),), known.entities, device)
    heads, tails = torch.where(replaces_tail, head, entities), torch.where(replaces_tail, entities, tail)
    false = ~known.contains(heads, relation, tails)
    return ConfidenceValidator(
        torch.cat([head, heads[false]]),
        torch.cat([relation, relation[false]]),
        torch.cat([tail, tails[false]]),
        torch.cat([torch.from_numpy(weight).to(device), torch.zeros(int(false.sum()), device=device).double()]),
        f"{len(valid):,} validation triples and {int(false.sum()):,} negatives",
    )


def rank_validator(valid: Graph, train: Graph, known: TripleIndex, threshold: float, seed: int) -> RankValidator | None:
    """Return a validator of the triples with weight ≥ `threshold`; None if there are none.

    If fewer than MIN_TRIPLES reach the threshold, the top decile by weight (at least MIN_TRIPLES) is used. If there are
    more than MAX_TRIPLES, a random sample of that size is used.
    """
    if not len(valid):
        return None
    weight = unit_strength(valid, train)
    rows = np.flatnonzero(weight >= threshold)
    description = f"{len(rows):,} validation triples with weight ≥ {threshold:g}"
    if len(rows) < MIN_TRIPLES:
        wanted = min(len(valid), max(MIN_TRIPLES, len(valid) // 10))
        cut = np.sort(weight)[-wanted]
        rows = np.flatnonzero(weight >= cut)
        description = f"{len(rows):,} validation triples of highest weight (≥ {cut:.3g}; too few reach {threshold:g})"
    if len(rows) > MAX_TRIPLES:
        rows = np.sort(np.random.default_rng(seed).choice(rows, MAX_TRIPLES, replace=False))
        description += f", {MAX_TRIPLES:,} of them drawn"
    return RankValidator(valid.select(rows), known, description)


def best_epoch_row(history: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the row of a history with the best validation, None if there was none."""
    for validator in (RankValidator, ConfidenceValidator):
        rows = [row for row in history if row.get(validator.metric) is not None]
        if rows:
            return max(rows, key=lambda row: validator.sign * float(row[validator.metric]))
    return None
