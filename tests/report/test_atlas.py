"""The map of entities: groups stay together, labels do not overlap, drawing is deterministic."""

import sys
from typing import Any

import numpy as np
import pytest
from focuse.report.atlas import (
    HEIGHT,
    LABELS,
    LONGEST,
    WIDTH,
    _candidates,
    atlas,
    check_method,
    coordinates,
    labelled,
    neighbours,
    roles,
)
from focuse.report.gathered import Gathered

import focuse
from focuse.errors import FocuseError


@pytest.mark.parametrize("method", ["tsne", "pca"])
def test_planted_groups_stay_together_on_the_map(method: str) -> None:
    random = np.random.default_rng(0)
    group = np.repeat(np.arange(3), 20)
    vectors = np.eye(3)[group] + 0.05 * random.normal(size=(60, 3))
    places = coordinates(vectors, method, seed=3)
    assert places.shape == (60, 2)
    nearest = neighbours(places)
    assert (group[nearest] == group[:, None]).mean() > 0.95
    assert np.array_equal(places, coordinates(vectors, method, seed=3))


def test_few_rows_and_single_columns_are_drawn() -> None:
    assert coordinates(np.eye(3), "tsne").shape == (3, 2)
    assert coordinates(np.arange(9.0)[:, None], "pca").shape == (9, 2)


def test_umap_is_used_only_if_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(FocuseError, match=r"needs focuse\[map\]: pip install 'focuse\[map\]'"):
        check_method("umap")


def test_role_of_an_entity_is_its_most_frequent_position(small: focuse.Graph) -> None:
    role, names = roles(small)
    for entity in range(len(small.entities)):
        count = {}
        for place, name in enumerate(small.relations):
            count[f"head of {name}"] = int(((small.head == entity) & (small.relation == place)).sum())
            count[f"tail of {name}"] = int(((small.tail == entity) & (small.relation == place)).sum())
        assert count[names[role[entity]]] == max(count.values())


def test_labels_do_not_overlap() -> None:
    random = np.random.default_rng(1)
    places = random.uniform([0, 0], [WIDTH, HEIGHT], size=(200, 2))
    found = labelled([f"a name of {i}" if i % 2 else "x" * 99 for i in range(200)], places)
    assert 20 < len(found) < 200
    boxes = [(x, y - 11, x + 6.7 * len(text), y + 4) for text, x, y in found]
    assert max(len(text) for text, _, _ in found) == LONGEST
    for i, (a, b, c, d) in enumerate(boxes):
        assert a >= 0
        assert b >= 0
        assert c <= WIDTH
        assert d <= HEIGHT
        assert not any(a <= g and e <= c and b <= h and f <= d for e, f, g, h in boxes[:i])
    kind = np.array([1] * 100 + [2] * 100)
    first = _candidates(kind)
    assert len(first) == LABELS
    assert first[:4].tolist() == [0, 100, 1, 101]


def test_section_shows_the_map_with_escaped_names(small: focuse.Graph, read_page: Any) -> None:
    rows = [(f"<h{r['head']}>", r["relation"], r["tail"], r["weight"]) for r in small.to_arrow().to_pylist()]
    run = focuse.train(rows, valid_fraction=0, test_fraction=0, dim=6, epochs=3, progress=False)
    figures = Gathered(None, None, None, {}, [], drawn_by="pca")
    text = atlas(run, figures)
    read = read_page(text)
    drawn = figures.data["map"]
    assert len(drawn["entities"]) == len(run.graph.entities)
    names = {name for name, *_ in drawn["entities"]}
    assert names == set(run.graph.entities)
    assert names <= set(read.texts)  # each dot has a title
    assert "principal components" in text
    assert atlas(run, Gathered(None, None, None, {}, [], drawn_by="none")) == ""
    run.scorer.tables["entity"].fill_(float("nan"))
    assert atlas(run, figures) == ""
