"""Clusters, compared with planted ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scoring import make_scorer

from focuse.data.graph import from_columns
from focuse.engines.autograd import AutogradEngine
from focuse.errors import FocuseError
from focuse.inference.similarity import find_clusters
from focuse.models.registry import MODELS


def engine_of(rows: np.ndarray, relations: int = 1) -> AutogradEngine:
    entity = torch.from_numpy(rows.astype(np.float32))
    return make_scorer(MODELS["distmult"](), entity, torch.ones(relations, entity.shape[1]))


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


def test_planted_clusters_are_found_and_described(tmp_path: Path) -> None:
    graph, rows, kinds = grouped()
    found = find_clusters(engine_of(rows, 2), graph, n_clusters=4)
    kind_of = dict(zip(graph.entities, kinds, strict=True))
    pairs = {(kind_of[row.entity], row.cluster) for row in found}
    summary = found.summary
    assert len(pairs) == 4 == len(summary)
    assert summary["size"].tolist() == sorted(summary["size"].tolist(), reverse=True)
    assert summary["size"].sum() == len(found)
    number = {row.entity: row.cluster for row in found}
    cooks = summary[number["cook1"] - 1]
    assert all(name.startswith("cook") for name in cooks.central.split(", "))
    assert cooks.relations == "head of uses (100%)"
    assert all(text.startswith("→ uses pan") for text in cooks.neighbors.split(", "))
    assert cooks.cohesion > 0.9
    assert {row.entity for row in found if row.cluster == number["nurse1"]} <= {f"nurse{i}" for i in range(9)}
    scales = summary[number["scale0"] - 1]
    assert scales.relations == "tail of reads (100%)"
    assert all(text.startswith("← reads nurse") for text in scales.neighbors.split(", "))
    found.write(tmp_path / "clusters.tsv")
    assert len((tmp_path / "clusters.tsv").read_text(encoding="utf-8").splitlines()) == len(kinds) + 1
    members = [row for row in found if row.cluster == 1]
    assert [row.similarity for row in members] == sorted((row.similarity for row in members), reverse=True)
    assert summary[0].cohesion == pytest.approx(np.mean([row.similarity for row in members]))
    assert found.silhouette > 0.5
    assert "poorly separated" not in str(summary)


def test_number_of_clusters_is_chosen_by_silhouette() -> None:
    graph, rows, _ = grouped()
    found = find_clusters(engine_of(rows, 2), graph)
    assert len(found.summary) in (3, 5)  # of those that are tried, the nearest to four
    assert "silhouette" in str(found.summary)
    few = from_columns(["a"], ["r"], ["b"], [1.0])
    assert find_clusters(engine_of(np.eye(2)), few)["cluster"].tolist() == [1, 1]
    same = find_clusters(engine_of(np.ones((2, 2))), few, n_clusters=2)
    assert same.summary["size"].sum() == 2
    with pytest.raises(FocuseError, match="seed -1: give a whole number, at least 0"):
        find_clusters(engine_of(np.eye(2)), few, seed=-1)


def test_poorly_separated_clusters_are_noted() -> None:
    graph, rows, _ = grouped()
    found = find_clusters(engine_of(np.random.default_rng(0).normal(size=rows.shape), 2), graph, n_clusters=3)
    assert found.silhouette is not None
    assert found.silhouette < 0.1
    assert str(found.summary).endswith(f"poorly separated (silhouette {found.silhouette:.2f})")
    assert found.to_json()["notes"] == list(found.notes)
    assert find_clusters(engine_of(rows, 2), graph, n_clusters=1).silhouette is None
