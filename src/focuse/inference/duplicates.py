"""Entities that may be the same: pairs with nearly equal embeddings and nearly the same edges."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.data.graph import Graph
from focuse.data.weights import WeightScaler
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError
from focuse.inference.link_search import Ids, TopLinks, check_count
from focuse.inference.similarity import comparable_rows
from focuse.results import ResultTable

BLOCK_COSINES = 1 << 22  # 16 MB
PAIRS_AT_ONCE = 1 << 14
RANDOM_PAIRS = 20_000  # random pairs that determine the default thresholds
DEVIATIONS = 6.0  # of a default threshold above the mean of random pairs
SIMILARITY_RANGE = (0.5, 0.98)  # of the default thresholds
OVERLAP_RANGE = (0.1, 0.5)
COMPARED_PER_RESULT = 20  # pairs that are compared by their edges, per pair that is returned
Floats = npt.NDArray[np.float64]


@torch.no_grad()
def find_duplicates(
    scorer: TableScorer,
    graph: Graph,
    min_similarity: float | None = None,
    min_overlap: float | None = None,
    top: int = 100,
    compare_names: bool = False,
    seed: int = 0,
) -> ResultTable:
    """Return pairs of entities that may be the same; see `Run.duplicates`.

    The cosines of all pairs are computed in blocks; the most similar 20 · `top` pairs are compared by their edges.
    """
    check_count("top", top)
    for name, value in (("min_similarity", min_similarity), ("min_overlap", min_overlap)):
        if value is not None and not 0 <= value <= 1:
            raise FocuseError(f"{name} {value!r}: give a number in [0, 1]")
    rows, edges = comparable_rows(scorer), _edge_matrix(graph)
    drawn = np.random.default_rng(seed).integers(0, max(len(rows), 1), (2, RANDOM_PAIRS))
    drawn = drawn[:, drawn[0] != drawn[1]]
    if min_similarity is None:
        one, other = (rows[torch.from_numpy(ids).to(rows.device)] for ids in drawn)
        min_similarity = _threshold((one * other).sum(1).cpu().numpy(), SIMILARITY_RANGE)
    if min_overlap is None:
        min_overlap = _threshold(_overlap(edges, *drawn)[0], OVERLAP_RANGE)
    first, second, cosine = _closest_pairs(rows, min_similarity, COMPARED_PER_RESULT * top)
    overlap, shared = _overlap(edges, first, second)
    keep = np.flatnonzero(overlap >= min_overlap)
    keep = keep[np.lexsort((second[keep], first[keep], -(cosine * overlap)[keep]))][:top]
    columns: dict[str, Any] = {
        "first": graph.entities.take(first[keep]),
        "second": graph.entities.take(second[keep]),
        "similarity": cosine[keep],
        "overlap": overlap[keep],
        "shared_edges": shared[keep],
    }
    if compare_names:
        names = zip(columns["first"].to_pylist(), columns["second"].to_pylist(), strict=True)
        columns["name_similarity"] = np.array([name_similarity(*pair) for pair in names], np.float64)
    columns["group"] = _groups(first[keep], second[keep])
    bounds = f"similarity of at least {min_similarity:.2f} and overlap of at least {min_overlap:.2f}"
    return ResultTable(
        columns,
        notes=[f"pairs with a {bounds}"] if len(keep) else [],
        info={"min_similarity": float(min_similarity), "min_overlap": float(min_overlap)},
        empty=f"no pairs of entities with a {bounds}",
    )


def name_similarity(first: str, second: str) -> float:
    """Return how similar two names are, in [0, 1], ignoring case.

    >>> round(name_similarity("New York", "new york city"), 2)
    0.76
    """
    return SequenceMatcher(None, first.casefold(), second.casefold(), autojunk=False).ratio()


def _threshold(values: Floats, bounds: tuple[float, float]) -> float:
    """Return a value far above those of random pairs, within bounds."""
    return float(np.clip(values.mean() + DEVIATIONS * values.std(), *bounds)) if len(values) else bounds[0]


def _closest_pairs(rows: Tensor, min_similarity: float, count: int) -> tuple[Ids, Ids, Floats]:
    """Return the closest pairs of rows of length 1 with at least this cosine: both row numbers, and the cosine."""
    entities, top = len(rows), TopLinks(count)
    min_similarity -= 1e-6  # the cosine of equal rows is 1 up to rounding
    size = max(1, BLOCK_COSINES // max(entities, 1))
    for start in range(0, entities, size):
        block = rows[start : start + size] @ rows[start:].T
        row, column = torch.nonzero(block >= max(min_similarity, top.threshold), as_tuple=True)
        later = column > row  # each pair once, and no entity with itself
        row, column = row[later], column[later]
        top.add(block[row, column], (row + start) * entities + column + start)
    cosine, keys = (part.cpu().numpy() for part in top.best())
    return keys // max(entities, 1), keys % max(entities, 1), np.clip(cosine.astype(np.float64), -1.0, 1.0)


def _edge_matrix(graph: Graph) -> Any:
    """Return a sparse matrix of entities by (relation, direction, other entity).

    An edge counts (1 + w) / 2, where w is its weight scaled to [0, 1].
    """
    from scipy import sparse  # type: ignore[import-untyped, unused-ignore]

    once = graph.merge_repeated("max")
    weight = np.clip(WeightScaler.fit(graph).to_unit(once.weight, once.relation), 0.0, 1.0)
    head, relation, tail = (ids.astype(np.int64) for ids in (once.head, once.relation, once.tail))
    entities = max(len(graph.entities), 1)
    keys = np.concatenate([2 * relation * entities + tail, (2 * relation + 1) * entities + head])
    distinct, column = np.unique(keys, return_inverse=True)
    entries = np.tile((1 + weight) / 2, 2), (np.concatenate([head, tail]), column)
    return sparse.csr_matrix(entries, shape=(entities, len(distinct)))


def _overlap(edges: Any, first: Ids, second: Ids) -> tuple[Floats, Ids]:
    """Return Σ min / Σ max of the rows of pairs [n], and the number of entries that both have [n]."""
    overlaps, counts = [np.empty(0)], [np.empty(0, np.int64)]
    total = np.asarray(edges.sum(1)).ravel()
    for start in range(0, len(first), PAIRS_AT_ONCE):
        one, other = first[start : start + PAIRS_AT_ONCE], second[start : start + PAIRS_AT_ONCE]
        common = edges[one].minimum(edges[other])
        smaller = np.asarray(common.sum(1)).ravel()
        larger = total[one] + total[other] - smaller
        overlaps.append(np.divide(smaller, larger, out=np.zeros(len(one)), where=larger > 0))
        counts.append(np.diff(common.tocsr().indptr).astype(np.int64))
    return np.concatenate(overlaps), np.concatenate(counts)


def _groups(first: Ids, second: Ids) -> Ids:
    """Return the group of each pair [n], counted from 1 for the largest; pairs that share an entity are in one."""
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped, unused-ignore]

    ids, index = np.unique(np.concatenate([first, second]), return_inverse=True)
    ends = index[: len(first)], index[len(first) :]
    links = sparse.csr_matrix((np.ones(len(first)), ends), shape=(len(ids), len(ids)))
    label = connected_components(links, directed=False)[1] if len(ids) else np.empty(0, np.int64)
    number = np.argsort(np.argsort(-np.bincount(label), kind="stable")) + 1
    return np.asarray(number[label[ends[0]]], np.int64)
