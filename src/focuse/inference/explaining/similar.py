"""Known facts that are like an asked triple: same relation, both ends close in the embedding space."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812

from focuse.engines import ReferenceEngine
from focuse.graph.graph import Graph

Places = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@torch.no_grad()
def closeness(engine: ReferenceEngine, entity: int) -> Floats:
    """The cosine of every entity's row with that of one; float64 [E]."""
    found = [F.cosine_similarity(block, engine.rows("entity", _one(entity, engine))) for _, block in engine.blocks()]
    whole = torch.cat(found).double().cpu().numpy()
    whole[entity] = 1.0
    return np.asarray(whole, np.float64)


def _one(entity: int, engine: ReferenceEngine) -> torch.Tensor:
    return torch.tensor([entity], device=engine.device)


def similar_facts(
    graph: Graph, engine: ReferenceEngine, head: int, relation: int, tail: int, top: int
) -> tuple[Places, Floats]:
    """Rows of `graph` of the same relation, the most alike first, and how alike: the mean of both ends' cosines.

    The asked triple itself is left out; a repeated one comes once.
    """
    rows = np.flatnonzero(graph.relation == relation)
    rows = rows[(graph.head[rows] != head) | (graph.tail[rows] != tail)]
    alike = (closeness(engine, head)[graph.head[rows]] + closeness(engine, tail)[graph.tail[rows]]) / 2
    order = np.argsort(-alike, kind="stable")
    kept = first_of_each(graph, rows[order])[:top]
    return rows[order][kept], alike[order][kept]


def same_end(graph: Graph, head: int, relation: int, tail: int, end: str, top: int) -> Places:
    """Rows with the same relation and the same 'head' or 'tail' as the asked triple, without it; heaviest first."""
    rows = np.flatnonzero((graph.relation == relation) & (getattr(graph, end) == (head if end == "head" else tail)))
    rows = rows[(graph.head[rows] != head) | (graph.tail[rows] != tail)]
    weight = graph.weight[rows] if graph.lower_is_better else -graph.weight[rows]
    rows = rows[np.argsort(weight, kind="stable")]
    found: Places = rows[first_of_each(graph, rows)][:top]
    return found


def first_of_each(graph: Graph, rows: Places) -> Places:
    """Places in `rows` at which a triple occurs first, in their order."""
    keys = graph.keys_of(graph.head[rows], graph.relation[rows], graph.tail[rows])
    return np.sort(np.unique(keys, return_index=True)[1]).astype(np.int64)
