"""A look at validation while the tables are on disk: ranks among a sample of entities, whose rows are fetched once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.engines import ReferenceEngine
from focuse.evaluation.asked import facts_about
from focuse.evaluation.evaluate import rank_graph
from focuse.evaluation.known import Known
from focuse.evaluation.metrics import figures
from focuse.graph.graph import Graph
from focuse.graph.splits import Splits, hold
from focuse.training.settings import Settings
from focuse.training.stopping import make_judge

RIVALS = 20_000  # drawn by chance; a graph of no more entities is ranked as ever
DRAW = 0x5A3E  # place of their random stream

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SampleJudge:
    """Filtered MRR of validation triples among `entities` (ids int64 [S], ascending), in whose places the others are.

    `fetch` gives the rows of entities, [S] -> [S, width].
    """

    figure: ClassVar[str] = "valid_mrr"
    sign: ClassVar[int] = 1
    graph: Graph
    known: Known
    entities: Rows
    fetch: Callable[[Rows], Tensor]
    describes: str

    def __call__(self, engine: ReferenceEngine) -> float:
        """Filtered MRR, ties worst."""
        dense = {name: table for name, table in engine.tables.items() if name not in ("entity", "relation")}
        scorer = ReferenceEngine(engine.model, self.fetch(self.entities), engine.tables["relation"], dense=dense)
        return figures(rank_graph(scorer, self.graph, self.known).filtered.ranks()).mrr


def sample_judge(settings: Settings, splits: Splits, fetch: Callable[[Rows], Tensor]) -> SampleJudge | None:
    """A judge of the triples that a training in memory would look at; None if there is nothing to judge by."""
    valid = hold(splits.valid.graph, settings.stopping_share, settings.seed).stopping
    nobody = torch.empty(0, dtype=torch.int64)
    nothing = Known(nobody, nobody, nobody, len(valid.entities), len(valid.relations))
    usual = make_judge(valid, splits.train, nothing, settings.threshold, settings.seed)
    if usual is None:
        return None
    graph, total = usual.graph, len(valid.entities)
    drawn = np.arange(total)
    if total > RIVALS:
        drawn = np.random.default_rng([settings.seed, DRAW]).integers(0, total, RIVALS)
    entities = np.unique(np.concatenate([drawn, graph.head, graph.tail])).astype(np.int64)
    facts = facts_about([splits.train, splits.valid.graph, splits.test.graph], graph)
    known = _within(facts, entities)
    places = [np.searchsorted(entities, ids).astype(np.int32) for ids in (graph.head, graph.tail)]
    graph = replace(graph, head=places[0], tail=places[1])
    return SampleJudge(graph, known, entities, fetch, usual.describes)


def _within(facts: Known, entities: Rows) -> Known:
    """Facts whose two ends are among some entities, in the places that they have there."""
    keys = facts.by_side["tail"].numpy()
    query, tail = np.divmod(keys, facts.entities)
    head, relation = np.divmod(query, facts.relations)
    last = len(entities) - 1
    places = [np.minimum(np.searchsorted(entities, ids), last) for ids in (head, tail)]
    both = (entities[places[0]] == head) & (entities[places[1]] == tail)
    heads, kinds, tails = (torch.from_numpy(part[both]) for part in (places[0], relation, places[1]))
    return Known(heads, kinds, tails, len(entities), facts.relations)
