"""Near-duplicates, compared with NumPy and with planted ones."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from scoring import make_scorer

from focuse.data.graph import from_columns
from focuse.engines.autograd import AutogradEngine
from focuse.inference import similarity
from focuse.inference.similarity import find_duplicates
from focuse.models.registry import MODELS


def engine_of(rows: np.ndarray, relations: int = 1) -> AutogradEngine:
    entity = torch.from_numpy(rows.astype(np.float32))
    return make_scorer(MODELS["distmult"](), entity, torch.ones(relations, entity.shape[1]))


def cosines(rows: np.ndarray) -> np.ndarray:
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return rows @ rows.T


def doubled(seed: int = 0) -> tuple[Any, np.ndarray]:
    """'copy' has the edges and nearly the embedding of e7, 'other' those of e9 but another embedding."""
    random = np.random.default_rng(seed)
    steps = [(i, (i * step + 3) % 60) for i in range(60) for step in (1, 7, 11)]
    rows = [(f"e{i}", f"r{i % 2}", f"e{j}", 0.1 + (i % 5) / 5) for i, j in steps]
    for twin, of in (("copy", "e7"), ("other", "e9")):
        rows += [(twin, r, t, w) for h, r, t, w in rows if h == of]
        rows += [(h, r, twin, w) for h, r, t, w in rows if t == of and h not in ("copy", "other")]
    graph = from_columns(*zip(*rows, strict=True))
    vectors = random.normal(size=(len(graph.entities), 40))
    names = [str(name) for name in graph.entities]
    vectors[names.index("copy")] = vectors[names.index("e7")] + random.normal(size=40) * 0.05
    vectors[names.index("e20")] = vectors[names.index("e21")] * 3  # alike without edges in common
    return graph, vectors


def test_planted_duplicates_are_found_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, vectors = doubled()
    found = find_duplicates(engine_of(vectors, 2), graph)
    assert [{row.first, row.second} for row in found] == [{"e7", "copy"}]
    assert found[0].similarity > 0.98
    assert found[0].overlap > 0.5
    assert found[0].group == 1
    assert "e7" in str(found)
    monkeypatch.setattr(similarity, "BLOCK_COSINES", 100)
    monkeypatch.setattr(similarity, "PAIRS_AT_ONCE", 999)
    again = find_duplicates(engine_of(vectors, 2), graph)
    assert [(row.first, row.second, row.overlap) for row in again] == [("e7", "copy", found[0].overlap)]
    assert (again.min_similarity, again.min_overlap) == (found.min_similarity, found.min_overlap)


def test_similar_pairs_agree_with_numpy() -> None:
    graph, vectors = doubled(1)
    names, alike = [str(name) for name in graph.entities], cosines(vectors)
    low, high = dict.fromkeys(range(2), 1000000000.0), dict.fromkeys(range(2), -1000000000.0)
    for r, w in zip(graph.relation.tolist(), graph.weight.tolist(), strict=True):
        low[r], high[r] = min(low[r], w), max(high[r], w)
    inside = graph.weight.min() >= 0 and graph.weight.max() <= 1
    edges: dict[int, dict[tuple[int, str, int], float]] = {place: {} for place in range(len(names))}
    for h, r, t, w in zip(*(c.tolist() for c in (graph.head, graph.relation, graph.tail, graph.weight)), strict=True):
        share = w if inside else (w - low[r]) / (high[r] - low[r])
        for end, key in ((h, (r, "to", t)), (t, (r, "from", h))):
            edges[end][key] = max(edges[end].get(key, 0.0), (1 + share) / 2)
    expected = {}
    for a, b in combinations(range(len(names)), 2):
        keys = set(edges[a]) | set(edges[b])
        least = sum(min(edges[a].get(k, 0), edges[b].get(k, 0)) for k in keys)
        most = sum(max(edges[a].get(k, 0), edges[b].get(k, 0)) for k in keys)
        if alike[a, b] >= 0.1 and least / most >= 0.05:
            expected[names[a], names[b]] = alike[a, b], least / most, len(set(edges[a]) & set(edges[b]))
    found = find_duplicates(engine_of(vectors, 2), graph, 0.1, 0.05, top=10_000)
    assert {(row.first, row.second) for row in found} == set(expected)
    for row in found:
        cosine, overlap, shared = expected[row.first, row.second]
        assert (row.similarity, row.overlap) == (pytest.approx(cosine, abs=1e-5), pytest.approx(overlap))
        assert row.shared_edges == shared
    products = [row.similarity * row.overlap for row in found]
    assert products == sorted(products, reverse=True)
    groups = [
        {name for row in found if row.group == group for name in row[:2]} for group in sorted(set(found["group"]))
    ]
    assert sum(map(len, groups)) == len(set.union(*groups))  # an entity is in one group only
    assert [len(group) for group in groups] == sorted(map(len, groups), reverse=True)


def test_graph_without_duplicates_gives_none() -> None:
    graph = from_columns(["a"], ["r"], ["b"], [1.0])
    found = find_duplicates(engine_of(np.array([[1.0, 0.0], [0.0, 1.0]])), graph)
    assert list(found) == []
    assert str(found).startswith("no pairs of entities with a similarity of at least")
    assert found.to_arrow().schema.field("group").type == "int64"
