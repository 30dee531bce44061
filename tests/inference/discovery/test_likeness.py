"""Neighbors, duplicates, clusters and analogies, compared with NumPy and with planted ones."""

import sys
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import focuse
from focuse.data.graph import from_columns
from focuse.engines.autograd import AutogradEngine
from focuse.engines.scorer import make_scorer
from focuse.errors import FocuseError
from focuse.inference.discovery import duplicates as duplicates_room
from focuse.inference.discovery.clusters import find_clusters
from focuse.inference.discovery.duplicates import find_duplicates
from focuse.inference.discovery.likeness import entity_rows
from focuse.inference.discovery.neighbours import find_neighbours
from focuse.models.registry import MODELS


@pytest.fixture(scope="module")
def run(small: focuse.Graph) -> focuse.Run:
    return focuse.train(small, dim=8, epochs=3, progress=False)


def engine_of(rows: np.ndarray, relations: int = 1) -> AutogradEngine:
    entity = torch.from_numpy(rows.astype(np.float32))
    return make_scorer(MODELS["distmult"](), entity, torch.ones(relations, entity.shape[1]))


def cosines(rows: np.ndarray) -> np.ndarray:
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return rows @ rows.T


@pytest.mark.parametrize("measure", ["cosine", "euclidean"])
def test_neighbors_agree_with_numpy(run: focuse.Run, measure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("focuse.inference.discovery.likeness.AT_ONCE", 100)
    rows = run.scorer.tables["entity"].double().cpu().numpy()
    alike = cosines(rows) if measure == "cosine" else -np.linalg.norm(rows[:, None] - rows[None], axis=2)
    np.fill_diagonal(alike, -np.inf)
    names = [str(name) for name in run.graph.entities]
    found = run.similar(names[:7], top=5, measure=measure)
    for place, name in enumerate(names[:7]):
        mine = [row for row in found if row.entity == name]
        order = np.argsort(-alike[place])[:5]
        assert [row.neighbour for row in mine] == [names[at] for at in order]
        assert np.allclose([row.similarity for row in mine], alike[place, order], atol=1e-5)
        assert [row.rank for row in mine] == [1, 2, 3, 4, 5]
    every = run.similar(names[0], top=1000, measure=measure)
    assert len(every) == len(names) - 1


def test_neighbors_of_several_entities_agree_with_numpy(run: focuse.Run) -> None:
    names = [str(name) for name in run.graph.entities]
    rows = run.scorer.tables["entity"].double().cpu().numpy()
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    middle = unit[[1, 4, 6]].mean(0)
    alike = unit @ (middle / np.linalg.norm(middle))
    alike[[1, 4, 6]] = -np.inf
    found = run.similar([names[1], names[4], names[6]], top=4, together=True)
    assert [row.neighbour for row in found] == [names[at] for at in np.argsort(-alike)[:4]]
    some = names[3:7]
    between = run.similar(some, among=some)
    assert {(row.entity, row.neighbour) for row in between} == set(product(some, some)) - {(n, n) for n in some}
    alike = cosines(rows)
    for row in between:
        assert row.similarity == pytest.approx(alike[names.index(row.entity), names.index(row.neighbour)], abs=1e-5)


def test_approximate_index_finds_the_same_and_is_stored(small: focuse.Graph, tmp_path: Path) -> None:
    pytest.importorskip("usearch")
    focuse.train(small, dim=8, epochs=1, progress=False, out=tmp_path / "run")
    run = focuse.load(tmp_path / "run")
    (tmp_path / "run" / "neighbours-cosine-000000000000.usearch").write_bytes(b"old")
    for measure in ("cosine", "euclidean"):
        exact = run.similar("e1", top=8, measure=measure)
        for again in (run, focuse.load(tmp_path / "run")):
            found = again.similar("e1", top=8, measure=measure, approximate=True)
            assert [row.neighbour for row in found] == [row.neighbour for row in exact]
            assert np.allclose([r.similarity for r in found], [r.similarity for r in exact], atol=1e-4)
    kept = sorted((tmp_path / "run").glob("*.usearch"))
    assert len(kept) == 2
    kept[0].write_bytes(b"damaged")
    assert focuse.load(tmp_path / "run").similar("e1", top=8, approximate=True)[0].rank == 1


def test_missing_usearch_names_the_extra_to_install(run: focuse.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    run.fitted.similarity_indexes.pop("cosine", None)
    with pytest.raises(FocuseError, match=r"focuse\[ann\]"):
        run.similar("e1", approximate=True)


def test_non_finite_embeddings_are_refused() -> None:
    engine = engine_of(np.array([[1.0, np.nan], [1.0, 0.0]]))
    names = from_columns(["a"], ["r"], ["b"], [1.0])
    with pytest.raises(FocuseError, match="diverged"):
        find_neighbours(engine, names, ["a"])
    with pytest.raises(FocuseError, match="at least one entity"):
        find_neighbours(engine, names, [])


def test_models_with_encoders_and_attributes_have_entity_rows(small: focuse.Graph) -> None:
    numbers = [(str(name), "size", float(place)) for place, name in enumerate(small.entities)]
    for model, more in (
        ("literale-distmult", {"node_attributes": numbers}),
        ("kblrn", {"node_attributes": numbers}),
        ("kbgat", {}),
    ):
        run = focuse.train(small, model=model, dim=8, epochs=1, progress=False, **more)
        rows = entity_rows(run.scorer)
        assert rows.shape[0] == len(small.entities)
        assert len(run.similar("e1", top=3)) == 3
        assert len(run.discover(top=3)) == 3


# ---- near-duplicates --------------------------------------------------------------------------------------------


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
    found = find_duplicates(engine_of(vectors, 2), graph, compare_names=True)
    assert [{row.first, row.second} for row in found] == [{"e7", "copy"}]
    assert found[0].similarity > 0.98
    assert found[0].overlap > 0.5
    assert found.groups == [sorted(["e7", "copy"], key=[str(n) for n in graph.entities].index)]
    assert found[0].names is not None
    assert "e7" in str(found)
    monkeypatch.setattr(duplicates_room, "AT_ONCE", 100)
    monkeypatch.setattr(duplicates_room, "PAIRS_AT_ONCE", 999)
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
        assert row.shared == shared
    products = [row.similarity * row.overlap for row in found]
    assert products == sorted(products, reverse=True)
    table = found.to_arrow()
    assert set(table["group"].to_pylist()) == set(range(1, len(found.groups) + 1))


def test_graph_without_duplicates_gives_none() -> None:
    graph = from_columns(["a"], ["r"], ["b"], [1.0])
    found = find_duplicates(engine_of(np.array([[1.0, 0.0], [0.0, 1.0]])), graph)
    assert (list(found), found.groups) == ([], [])
    assert str(found).startswith("no near-duplicates")
    assert len(found.to_arrow()) == 0


# ---- clusters ---------------------------------------------------------------------------------------------------


def grouped() -> tuple[Any, np.ndarray, list[str]]:
    """Cooks use pans, nurses use scales: four directions, each entity near one of them."""
    random = np.random.default_rng(3)
    rows = [(f"cook{i}", "uses", f"pan{j}", 1.0) for i in range(12) for j in range(4) if (i + j) % 3]
    rows += [(f"nurse{i}", "reads", f"scale{j}", 1.0) for i in range(9) for j in range(5) if (i + j) % 3]
    graph = from_columns(*zip(*rows, strict=True))
    names = [str(name) for name in graph.entities]
    kinds = [name.rstrip("0123456789") for name in names]
    middles = {kind: random.normal(size=30) for kind in sorted(set(kinds))}
    return graph, np.stack([middles[kind] * 3 + random.normal(size=30) * 0.3 for kind in kinds]), kinds


@pytest.mark.parametrize("asked", [{"count": 4}, {"method": "hdbscan", "smallest": 3}])
def test_planted_clusters_are_found_and_described(asked: dict[str, Any], tmp_path: Path) -> None:
    graph, rows, kinds = grouped()
    found = find_clusters(engine_of(rows, 2), graph, **asked)
    pairs = {(kind, label) for kind, label in zip(kinds, found.labels.tolist(), strict=True) if label}
    assert len(pairs) == 4 == len(found)
    assert [group.size for group in found] == sorted((group.size for group in found), reverse=True)
    cooks = found[found.of("cook1") - 1]
    assert all(name.startswith("cook") for name in cooks.central)
    assert cooks.relations == (("uses", "head", 1.0),)
    assert all((row[:2], row[2][:3]) == (("uses", "to"), "pan") for row in cooks.neighbours)
    assert all(row[3] <= 12 for row in cooks.neighbours)
    assert cooks.cohesion > 0.9
    assert set(found.members(found.of("nurse1"))) <= {f"nurse{i}" for i in range(9)}
    scales = found[found.of("scale0") - 1]
    assert scales.relations[0][:2] == ("reads", "tail")
    assert {row[1] for row in scales.neighbours} <= {"from"}
    found.write(tmp_path / "clusters.tsv")
    assert len((tmp_path / "clusters.tsv").read_text(encoding="utf-8").splitlines()) == len(kinds) + 1
    assert "cohesion" in str(found)
    assert found.silhouette is not None
    assert found.silhouette > 0.5
    assert "hardly apart" not in str(found)


def test_number_of_clusters_is_chosen_by_silhouette() -> None:
    graph, rows, _ = grouped()
    found = find_clusters(engine_of(rows, 2), graph)
    assert len(found) in (3, 5)  # of those that are tried, the nearest to four
    assert "silhouette" in str(found)
    few = from_columns(["a"], ["r"], ["b"], [1.0])
    assert len(find_clusters(engine_of(np.eye(2)), few)) == 1
    same = find_clusters(engine_of(np.ones((2, 2))), few, count=2)
    assert sum(group.size for group in same) == 2


def test_poorly_separated_clusters_are_noted() -> None:
    graph, rows, _ = grouped()
    found = find_clusters(engine_of(np.random.default_rng(0).normal(size=rows.shape), 2), graph, count=3)
    assert found.silhouette is not None
    assert found.silhouette < 0.1
    assert str(found).endswith(f"hardly apart (silhouette {found.silhouette:.2f}): their bounds say little")
    assert found.to_dict()["notes"] == list(found.notes)
    assert find_clusters(engine_of(rows, 2), graph, count=1).notes == ()


# ---- analogies --------------------------------------------------------------------------------------------------


def test_analogy_uses_the_known_relation(run: focuse.Run) -> None:
    graph = run.graph
    a, kind, b = graph.entities[graph.head[0]], graph.relations[graph.relation[0]], graph.entities[graph.tail[0]]
    pair = (graph.head == graph.head[0]) & (graph.tail == graph.tail[0])
    c = next(str(name) for name in graph.entities if name not in (a, b))
    found = run.analogies(a, b, c, top=6)
    known = {link[0] for link in found.links if link[1] == "forward"}
    assert known == {graph.relations[r] for r in graph.relation[pair]}
    assert all(link[3] for link in found.links)
    assert [row.rank for row in found] == list(range(1, len(found) + 1))
    strengths = [row.strength for row in found]
    assert strengths == sorted(strengths, reverse=True)
    assert not {a, c} & {row.answer for row in found}
    for row in found:
        ends = (c, row.answer) if row.direction == "forward" else (row.answer, c)
        told = run.predict_weight(ends[0], str(row.relation), ends[1])
        assert row.probability == pytest.approx(told.probability)
    if len(found.links) == 1 and found.links[0][1] == "forward":
        usual = set(graph.entities.take(graph.tail[graph.relation == graph.relations.id(kind)]).to_pylist())
        assert {row.answer for row in found} <= usual


def test_analogies_by_offset_agree_with_numpy(run: focuse.Run) -> None:
    rows = run.scorer.tables["entity"].double().cpu().numpy()
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    names = [str(name) for name in run.graph.entities]
    query = unit[2] - unit[1] + unit[5]
    alike = unit @ (query / np.linalg.norm(query))
    alike[[1, 2, 5]] = -np.inf
    found = run.analogies(names[1], names[2], names[5], top=4, method="offset")
    assert [row.answer for row in found] == [names[at] for at in np.argsort(-alike)[:4]]
    assert [row.strength for row in found] == pytest.approx(np.sort(alike)[::-1][:4].tolist(), abs=1e-5)
    assert {row.relation for row in found} == {None}


def test_analogies_without_validation_have_no_probabilities(small: focuse.Graph) -> None:
    run = focuse.train(small, dim=4, epochs=1, progress=False, valid_fraction=0.0)
    found = run.analogies("e1", "e2", "e3", top=3)
    assert len(found) == 3
    assert {row.probability for row in found} == {None}
