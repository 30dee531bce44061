"""What a column counts: as much as the graph's structure tells of it."""

from __future__ import annotations

import numpy as np
import pytest

from focuse.graph.graph import Graph, from_columns
from focuse.graph.importance import MOST_ROWS, explained_share, learn_importance, shrunken_means
from focuse.graph.merging import fit_merger
from focuse.graph.reading import read


def random_graph(rows: int, seed: int, entities: int = 60, relations: int = 3) -> Graph:
    random = np.random.default_rng(seed)
    head, tail = random.integers(0, entities, (2, rows))
    kind = random.integers(0, relations, rows)
    return from_columns([f"e{i}" for i in head], [f"r{i}" for i in kind], [f"e{i}" for i in tail], np.ones(rows))


@pytest.mark.parametrize("seed", range(6))
def test_a_column_of_noise_is_found_out(seed: int) -> None:
    graph = random_graph(2000, seed)
    random = np.random.default_rng([seed, 1])
    told = random.random(60)[graph.head] + random.random(60)[graph.tail] + random.random(len(graph)) / 2
    noise = random.random(len(graph))
    importance, explained = learn_importance([(graph, told / told.max()), (graph, noise)], seed)
    assert importance[1] < 0.05
    assert importance.sum() == pytest.approx(1)
    assert explained[0] > 0.5


@pytest.mark.parametrize("effect", ["relation", "head", "tail", "head and relation", "relation and tail", "pair"])
def test_every_effect_is_seen(effect: str) -> None:
    graph = random_graph(4000, 3, entities=15)
    random = np.random.default_rng(5)
    by_relation, by_entity, by_both = random.random(3), random.random(15), random.random((3, 15))
    by_pair = random.random((15, 15))
    low, high = np.minimum(graph.head, graph.tail), np.maximum(graph.head, graph.tail)
    share = {
        "relation": by_relation[graph.relation],
        "head": by_entity[graph.head],
        "tail": by_entity[graph.tail],
        "head and relation": by_both[graph.relation, graph.head],
        "relation and tail": by_both[graph.relation, graph.tail],
        "pair": by_pair[low, high],  # the edge back has the same
    }[effect]
    assert explained_share(graph, share) > 0.9


def test_nothing_is_told_by_a_triple_of_its_own_fold() -> None:
    """Every triple stands there twice with the same noise: a look at its twin would tell all of it."""
    graph = random_graph(500, 0, entities=200)
    twice = graph.select(np.tile(np.arange(500), 2))
    assert explained_share(twice, np.tile(np.random.default_rng(0).random(500), 2)) < 0.05


def test_if_all_are_noise_all_count_the_same() -> None:
    graph = random_graph(1000, 0)
    random = np.random.default_rng(0)
    importance, explained = learn_importance([(graph, random.random(1000)) for _ in range(4)])
    assert importance.tolist() == [0.25] * 4
    assert explained.tolist() == [0.0] * 4


def test_columns_of_which_little_is_told_count_the_same() -> None:
    graph = random_graph(4000, 0)
    random = np.random.default_rng(0)
    effect = random.random(len(graph.entities))[graph.head]
    little = effect * 0.2 + random.random(4000)
    importance, explained = learn_importance([(graph, little / little.max()), (graph, random.random(4000))])
    assert 0 < explained[0] < 0.05
    assert importance.tolist() == [0.5, 0.5]


def test_chance_in_a_small_graph_is_not_taken_for_structure() -> None:
    told = [
        explained_share(random_graph(150, seed), np.random.default_rng(seed).random(150), seed) for seed in range(60)
    ]
    assert sum(share > 0 for share in told) <= 2


def test_it_depends_on_nothing_but_the_seed() -> None:
    graph = random_graph(800, 2)
    random = np.random.default_rng(1)
    share = random.random(60)[graph.head] + random.random(800) / 4
    assert explained_share(graph, share, 7) == explained_share(graph, share, 7) != explained_share(graph, share, 8)


def test_constant_and_tiny_columns_tell_nothing() -> None:
    graph = random_graph(100, 0)
    assert explained_share(graph, np.ones(100)) == 0.0
    assert explained_share(graph.select(np.arange(9)), np.arange(9) / 9) == 0.0


def test_a_large_graph_is_looked_at_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(3000, 0)
    random = np.random.default_rng(1)
    share = random.random(60)[graph.head] + random.random(3000) / 4
    whole = explained_share(graph, share)
    monkeypatch.setattr("focuse.graph.importance.MOST_ROWS", 1000)
    part = explained_share(graph, share)
    assert whole != part > 0.8
    assert MOST_ROWS >= 100_000


def test_shrunken_means_by_hand() -> None:
    random = np.random.default_rng(0)
    group = np.repeat(np.arange(20), 30)
    values = random.normal(0, 2, 20)[group] + random.normal(0, 1, 600)
    found = shrunken_means(values, group, 21)
    means = values.reshape(20, 30).mean(axis=1)
    within = values.reshape(20, 30).var(axis=1, ddof=1).mean()
    between = means.var(ddof=1) - within / 30
    np.testing.assert_allclose(found[:20], means * 30 * between / (30 * between + within))
    assert found[20] == 0
    assert np.abs(shrunken_means(random.normal(size=600), group, 21)).max() < 0.2
    assert not shrunken_means(np.arange(5.0), np.arange(5), 5).any()  # every group has one: nothing to compare


def test_a_missing_number_is_no_number() -> None:
    rows = [(f"h{i % 20}", "r", f"t{i // 20}", (i % 20) / 19 if i % 3 else None, i % 7) for i in range(400)]
    merger = fit_merger(read(rows))
    assert merger.explained[0] > 0.9
    assert merger.importance[0] > 0.9
