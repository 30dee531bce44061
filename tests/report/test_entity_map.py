"""The entity map: similar entities stay together, labels do not overlap, drawing is deterministic."""

import sys

import numpy as np
import pytest

import focuse
from focuse.errors import FocuseError
from focuse.report.entity_map import (
    CLUSTERS,
    HEIGHT,
    MAX_LETTERS,
    WIDTH,
    check_projection,
    map_entities,
    place_labels,
    project,
)


@pytest.mark.parametrize("projection", ["tsne", "pca"])
def test_planted_groups_stay_together(projection: str) -> None:
    random = np.random.default_rng(0)
    group = np.repeat(np.arange(3), 20)
    vectors = np.eye(3)[group] + 0.05 * random.normal(size=(60, 3))
    positions = project(vectors, projection, seed=3)
    assert positions.shape == (60, 2)
    distance = np.linalg.norm(positions[:, None] - positions, axis=2)
    nearest = np.argsort(distance, axis=1)[:, 1:11]
    assert (group[nearest] == group[:, None]).mean() > 0.95
    assert np.array_equal(positions, project(vectors, projection, seed=3))


def test_few_rows_and_single_columns_are_projected() -> None:
    assert project(np.eye(3), "tsne").shape == (3, 2)
    assert project(np.arange(9.0)[:, None], "pca").shape == (9, 2)


def test_unknown_and_missing_projections_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(FocuseError, match="umap-learn is not installed; install it: pip install umap-learn"):
        check_projection("umap")
    with pytest.raises(FocuseError, match=r"unknown projection 'tsn' \(did you mean tsne"):
        check_projection("tsn")


def test_labels_do_not_overlap() -> None:
    random = np.random.default_rng(1)
    positions = random.uniform([0, 0], [WIDTH, HEIGHT], size=(200, 2))
    found = place_labels([f"a name of {i}" if i % 2 else "x" * 99 for i in range(200)], positions)
    assert 20 < len(found) < 200
    assert max(len(text) for text, _, _ in found) == MAX_LETTERS
    boxes = [(x, y - 11, x + 6.7 * len(text), y + 4) for text, x, y in found]
    for i, (a, b, c, d) in enumerate(boxes):
        assert min(a, b) >= 0
        assert c <= WIDTH
        assert d <= HEIGHT
        assert not any(a <= g and e <= c and b <= h and f <= d for e, f, g, h in boxes[:i])


def test_map_has_every_entity_and_its_cluster(small: focuse.Graph) -> None:
    run = focuse.train(small, valid_fraction=0, test_fraction=0, dim=6, epochs=3, label_exponent=1.0, progress=False)
    found = map_entities(run.graph, run.scorer, "pca", seed=0)
    assert found is not None
    assert {name for name, *_ in found.dots} == set(run.graph.entities)
    degree = np.bincount(np.concatenate([run.graph.head, run.graph.tail]))
    radius = {name: size for name, _, _, size, _ in found.dots}
    assert max(radius, key=lambda name: radius[name]) == run.graph.entities[int(degree.argmax())]
    sizes = np.bincount([cluster for *_, cluster in found.dots])[1:]
    assert len(sizes) == len(found.clusters) <= CLUSTERS
    assert sizes.tolist() == sorted(sizes.tolist(), reverse=True)
    assert found.clusters[0].startswith(next(name for name, *_, cluster in found.dots if cluster == 1))
    assert map_entities(run.graph, run.scorer, "none", seed=0) is None
    run.scorer.tables["entity"].fill_(float("nan"))
    assert map_entities(run.graph, run.scorer, "pca", seed=0) is None
