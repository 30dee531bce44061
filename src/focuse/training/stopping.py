"""Early stopping: a look at validation now and then, the best weights kept.

Models that rank are judged by the filtered MRR of the heavy validation triples, as in the paper; models of a
confidence by their squared error on all validation triples and as many corruptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from focuse.engines import ReferenceEngine
from focuse.evaluation.evaluate import ids_of, rank_graph
from focuse.evaluation.known import Known
from focuse.evaluation.metrics import figures
from focuse.graph.graph import Graph, Weights
from focuse.graph.weights import strength
from focuse.training.negatives import draw

FEWEST = 50  # below this many triples a mean reciprocal rank says little
CORRUPTIONS = 1 << 42  # place of their random stream
MOST = 10_000  # above this many, ranking costs more than it tells


class Judge(Protocol):
    """Measures a model on validation. `figure` names what it finds; it is better where `sign` · found is larger."""

    figure: ClassVar[str]
    sign: ClassVar[int]

    @property
    def describes(self) -> str: ...

    def __call__(self, engine: ReferenceEngine) -> float: ...


@dataclass(frozen=True)
class RankJudge:
    """Measures a model on the heavy validation triples."""

    figure: ClassVar[str] = "valid_mrr"
    sign: ClassVar[int] = 1
    graph: Graph
    known: Known
    describes: str

    def __call__(self, engine: ReferenceEngine) -> float:
        """Filtered MRR, ties worst."""
        return figures(rank_graph(engine, self.graph, self.known).filtered.ranks()).mrr


@dataclass(frozen=True)
class ConfidenceJudge:
    """Measures a confidence on validation triples and on as many corruptions, which have weight 0.

    Ids int64 [n] and weights in [0, 1] [n].
    """

    figure: ClassVar[str] = "valid_mse"
    sign: ClassVar[int] = -1
    head: torch.Tensor
    relation: torch.Tensor
    tail: torch.Tensor
    weight: torch.Tensor
    describes: str

    def __call__(self, engine: ReferenceEngine) -> float:
        """Mean squared error."""
        found = engine.model.confidence(engine.score(self.head, self.relation, self.tail))
        return float((found.double() - self.weight).square().mean())


def confidence_judge(valid: Graph, weight: Weights, known: Known, seed: int) -> ConfidenceJudge | None:
    """A judge of the validation triples with these weights in [0, 1]; None if there is nothing to judge by."""
    if not len(valid):
        return None
    device = known.by_side["tail"].device
    head, relation, tail = (ids.to(device) for ids in ids_of(valid))
    both = draw((seed, 0, CORRUPTIONS), (len(valid),), 2 * known.entities, device)
    entities, tails = both >> 1, (both & 1).bool()
    heads, others = torch.where(tails, head, entities), torch.where(tails, entities, tail)
    false = ~known.contains(heads, relation, others)
    return ConfidenceJudge(
        torch.cat([head, heads[false]]),
        torch.cat([relation, relation[false]]),
        torch.cat([tail, others[false]]),
        torch.cat([torch.from_numpy(weight).to(device), torch.zeros(int(false.sum()), device=device).double()]),
        f"{len(valid):,} validation triples and {int(false.sum()):,} corruptions",
    )


def make_judge(valid: Graph, train: Graph, known: Known, threshold: float, seed: int) -> RankJudge | None:
    """A judge of the validation triples with weight ≥ `threshold`; None if there is nothing to judge by.

    Where fewer than 50 reach it, the heaviest tenth (at least 50) serves. At most 10,000 are drawn.
    """
    if not len(valid):
        return None
    weight = strength(valid, train)
    rows = np.flatnonzero(weight >= threshold)
    described = f"{len(rows):,} validation triples with weight ≥ {threshold:g}"
    if len(rows) < FEWEST:
        wanted = min(len(valid), max(FEWEST, len(valid) // 10))
        cut = np.sort(weight)[-wanted]
        rows = np.flatnonzero(weight >= cut)
        described = f"{len(rows):,} heaviest validation triples (weight ≥ {cut:.3g}; too few reach {threshold:g})"
    if len(rows) > MOST:
        rows = np.sort(np.random.default_rng(seed).choice(rows, MOST, replace=False))
        described += f", {MOST:,} of them drawn"
    return RankJudge(valid.select(rows), known, described)


@dataclass
class Best:
    """The best weights so far and how long ago that was."""

    value: float = float("-inf")
    epoch: int = 0
    checks_since: int = 0
    tables: dict[str, torch.Tensor] | None = None

    def look(self, value: float, epoch: int, tables: dict[str, torch.Tensor]) -> None:
        """Take note of one check, the higher the better; a better one is copied."""
        self.checks_since += 1
        if value > self.value:
            self.value, self.epoch, self.checks_since = value, epoch, 0
            self.tables = {name: table.detach().clone() for name, table in tables.items()}


def best_look(history: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The row of a history whose look at validation was best, None without any."""
    for judge in (RankJudge, ConfidenceJudge):
        rows = [row for row in history if row.get(judge.figure) is not None]
        if rows:
            return max(rows, key=lambda row: judge.sign * float(row[judge.figure]))
    return None
