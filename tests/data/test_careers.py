"""The careers graph: its size, its kinds, and that its weights follow the planted fit."""

from collections import Counter

import numpy as np
import pytest

from focuse.data import careers
from focuse.data.careers import CareerEdges, generate

KINDS = {
    "requires skill": ("job", "skill"),
    "performs task": ("job", "task"),
    "uses tool": ("job", "tool"),
    "needs skill": ("task", "skill"),
    "supports task": ("tool", "task"),
    "leads to": ("job", "job"),
    "builds on": ("skill", "skill"),
}


@pytest.fixture(scope="module")
def edges() -> CareerEdges:
    return generate()


@pytest.fixture(scope="module")
def world() -> careers._World:
    return careers._latent(np.random.default_rng(2021))


def _of(edges: CareerEdges, relation: str) -> tuple[list[str], list[str], np.ndarray]:
    places = [place for place, name in enumerate(edges.relation) if name == relation]
    return [edges.head[p] for p in places], [edges.tail[p] for p in places], edges.weight[places]


def test_same_seed_gives_same_edges(edges: CareerEdges) -> None:
    again = generate(2021)
    assert (again.head, again.relation, again.tail) == (edges.head, edges.relation, edges.tail)
    np.testing.assert_array_equal(again.weight, edges.weight)


def test_different_seeds_give_different_edges(edges: CareerEdges) -> None:
    other = generate(7)
    ours = set(zip(edges.head, edges.relation, edges.tail, strict=True))
    theirs = set(zip(other.head, other.relation, other.tail, strict=True))
    assert len(ours & theirs) < 0.7 * len(ours)
    assert not np.array_equal(other.weight, edges.weight) or other.head != edges.head


def test_graph_has_the_documented_number_of_edges_and_entities(edges: CareerEdges) -> None:
    assert 9_500 <= len(edges.head) <= 10_500
    assert len(edges.head) == len(edges.relation) == len(edges.tail) == len(edges.weight)
    counts = Counter(edges.relation)
    assert set(counts) == set(KINDS)
    assert counts.most_common(1) == [("requires skill", 3000)]


def test_names_are_distinct_and_clean(world: careers._World) -> None:
    assert {kind: len(names) for kind, names in world.names.items()} == {
        "job": 160,
        "skill": 90,
        "task": 160,
        "tool": 80,
    }
    names = [name for kind in world.names.values() for name in kind]
    assert len({name.casefold() for name in names}) == len(names)
    assert all(name == " ".join(name.split()) and "@" not in name for name in names)
    assert {"Pâtissier", "CAD/CAM", "Façade Designer"} <= set(names)
    for member in world.member.values():
        assert set(np.count_nonzero(member, axis=1)) == {1, 2}
        np.testing.assert_allclose(member.sum(axis=1), 1.0)


@pytest.mark.parametrize("seed", [0, 1, 2021])
def test_no_repeats_no_loops_and_every_entity_occurs(seed: int, world: careers._World) -> None:
    edges = generate(seed)
    assert len(set(zip(edges.head, edges.relation, edges.tail, strict=True))) == len(edges.head)
    assert all(head != tail for head, tail in zip(edges.head, edges.tail, strict=True))
    occurs = Counter(edges.head) + Counter(edges.tail)
    assert set(occurs) == {name for kind in world.names.values() for name in kind}
    assert min(occurs.values()) >= 3


@pytest.mark.parametrize("relation", KINDS)
def test_heads_and_tails_have_the_right_kind_and_weights_the_right_range(
    relation: str, edges: CareerEdges, world: careers._World
) -> None:
    head_kind, tail_kind = KINDS[relation]
    heads, tails, weight = _of(edges, relation)
    assert set(heads) <= set(world.names[head_kind])
    assert set(tails) <= set(world.names[tail_kind])
    if head_kind != tail_kind:
        for names, column in ((world.names[head_kind], heads), (world.names[tail_kind], tails)):
            counts = Counter(column)
            assert min(counts[name] for name in names) >= 2
    assert weight.dtype == np.float64
    assert 0 <= weight.min() < 0.05
    assert 0.8 < weight.max() <= 1
    # Skewed towards the low end, and without blocks of equal weights.
    assert np.median(weight) < weight.mean() < 0.5
    assert Counter(weight.tolist()).most_common(1)[0][1] <= max(3, 0.01 * len(weight))


@pytest.mark.parametrize("relation", careers._RELATIONS, ids=lambda relation: relation.name)
def test_weights_follow_fit_but_recording_does_not(
    relation: careers._Relation, edges: CareerEdges, world: careers._World
) -> None:
    heads, tails, weight = _of(edges, relation.name)
    rows = [world.names[relation.head].index(name) for name in heads]
    columns = [world.names[relation.tail].index(name) for name in tails]
    fit = careers._fit(world, relation)
    assert 0.83 < np.corrcoef(fit[rows, columns], weight)[0, 1] < 0.92

    recorded = np.zeros_like(fit)
    recorded[rows, columns] = 1.0
    related = careers._related(world.member[relation.head], world.member[relation.tail])
    assert recorded[related].sum() >= 0.95 * len(weight)
    if relation.head == relation.tail:
        np.fill_diagonal(related, False)
    assert abs(np.corrcoef(recorded[related], fit[related])[0, 1]) < 0.08


def test_directed_relations_distinguish_directions(world: careers._World) -> None:
    for relation in careers._RELATIONS:
        if relation.head == relation.tail:
            fit = careers._fit(world, relation)
            assert np.abs(fit - fit.T).max() > 0.5 * fit.std()
