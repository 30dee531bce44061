"""Early stopping: filtered MRR of the heavy validation triples, the best weights kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from focuse.evaluation.evaluate import rank_graph
from focuse.evaluation.known import Known
from focuse.evaluation.metrics import figures
from focuse.evaluation.ranking import Scorer
from focuse.graph.graph import Graph
from focuse.graph.weights import comparable

FEWEST = 50  # below this many triples a mean reciprocal rank says little
MOST = 10_000  # above this many, ranking costs more than it tells


@dataclass(frozen=True)
class Judge:
    """Measures a model on the heavy validation triples."""

    graph: Graph
    known: Known
    describes: str

    def __call__(self, scorer: Scorer) -> float:
        """Filtered MRR, ties worst."""
        return figures(rank_graph(scorer, self.graph, self.known).filtered.ranks()).mrr


def make_judge(valid: Graph, train: Graph, known: Known, threshold: float, seed: int) -> Judge | None:
    """A judge of the validation triples with weight ≥ `threshold`; None if there is nothing to judge by.

    Where fewer than 50 reach it, the heaviest tenth (at least 50) serves. At most 10,000 are drawn.
    """
    if not len(valid):
        return None
    weight = comparable(valid.weight, train.weight)
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
    return Judge(valid.select(rows), known, described)


@dataclass
class Best:
    """The best weights so far and how long ago that was."""

    mrr: float = -1.0
    epoch: int = 0
    checks_since: int = 0
    tables: dict[str, torch.Tensor] | None = None

    def look(self, mrr: float, epoch: int, tables: dict[str, torch.Tensor]) -> None:
        """Take note of one check; a better one is copied."""
        self.checks_since += 1
        if mrr > self.mrr:
            self.mrr, self.epoch, self.checks_since = mrr, epoch, 0
            self.tables = {name: table.detach().clone() for name, table in tables.items()}
