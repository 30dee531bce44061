"""A run as PyTorch Geometric takes graphs: rows of nodes, edges, their types and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from focuse.engines import ReferenceEngine
from focuse.errors import FocuseError, choose
from focuse.exports.tables import as_numpy
from focuse.graph.splits import Splits

PARTS = ("train", "valid", "test")


def plain_tensors(engine: ReferenceEngine, splits: Splits, parts: Sequence[str] = ("train",)) -> dict[str, Any]:
    """Tensors and lists of text, of which a `Data` is made.

    x [E, d], edge_index int64 [2, m], edge_type int64 [m], edge_attr [m, C] (weights in the graph's units, NaN where
    one is missing), edge_part int64 [m] (0 train, 1 valid, 2 test), relation_x [R, k]; names, relation_names and
    weight_names are lists.
    """
    if isinstance(parts, str):
        parts = [parts]
    if not parts:
        raise FocuseError(f"parts: none given; choose of {', '.join(PARTS)}")
    graphs = {"train": splits.train, "valid": splits.valid.graph, "test": splits.test.graph}
    chosen = [graphs[choose("part of a run", part, PARTS)] for part in parts]
    head, relation, tail = (
        np.concatenate([getattr(graph, name) for graph in chosen]).astype(np.int64)
        for name in ("head", "relation", "tail")
    )
    columns = splits.train.columns
    several = columns is not None and all(graph.columns is not None for graph in chosen)
    if several and columns is not None:
        weights = np.concatenate([graph.columns.by_name(columns.names) for graph in chosen if graph.columns])
    else:
        weights = np.concatenate([graph.weight for graph in chosen])[:, None]
    found = engine.finished()
    place = [np.full(len(graphs[part]), PARTS.index(part), np.int64) for part in parts]
    return {
        "x": torch.from_numpy(as_numpy(found["entity"])).clone(),
        "edge_index": torch.from_numpy(np.stack([head, tail])),
        "edge_type": torch.from_numpy(relation),
        "edge_attr": torch.from_numpy(weights.astype(np.float32)),
        "edge_part": torch.from_numpy(np.concatenate(place)),
        "relation_x": torch.from_numpy(as_numpy(found["relation"])).clone(),
        "names": splits.train.entities.column.to_pylist(),
        "relation_names": splits.train.relations.column.to_pylist(),
        "weight_names": list(columns.names) if several and columns is not None else ["weight"],
    }


def to_pyg(engine: ReferenceEngine, splits: Splits, parts: Sequence[str] = ("train",)) -> Any:
    """A `torch_geometric.data.Data` of these tensors."""
    try:
        from torch_geometric.data import Data
    except ImportError:
        raise FocuseError("this needs PyTorch Geometric: pip install torch_geometric") from None
    return Data(**plain_tensors(engine, splits, parts))
