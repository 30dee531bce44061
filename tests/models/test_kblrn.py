"""KBLRN against its equation: DistMult, and bumps over differences of numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focuse.engines import ReferenceEngine
from focuse.models import KBLRN, Context, DistMult, Reciprocal
from focuse.models.bumps import BUMPS, bumps_of

DIM, ENTITIES, ATTRIBUTES = 3, 8, 2
EDGES = np.array([0, 1, 2, 3, 5, 6]), np.array([0, 1, 1, 0, 0, 1]), np.array([1, 2, 0, 4, 7, 5])


@pytest.fixture
def world():
    draw = np.random.default_rng(1)
    numbers, present = draw.normal(size=(ENTITIES, ATTRIBUTES)), draw.random((ENTITIES, ATTRIBUTES)) < 0.6
    edges = torch.tensor(EDGES[0]), torch.tensor(EDGES[1]), torch.tensor(EDGES[2])
    context = Context(edges, torch.tensor(numbers), torch.tensor(present))
    model = KBLRN().with_context(context)
    entity, relation = draw.normal(size=(ENTITIES, DIM)), draw.normal(size=(2, model.relation_width(DIM)))
    return model, numbers, present, entity, relation


def bumps(numbers, present, weights, centres, widths, head: int, tail: int) -> float:
    found = 0.0
    for a in range(ATTRIBUTES):
        if present[head, a] and present[tail, a]:
            for k in range(BUMPS):
                x = numbers[head, a] - numbers[tail, a]
                found += weights[a * BUMPS + k] * np.exp(-(((x - centres[a, k]) / widths[a, k]) ** 2))
    return found


def test_the_score_is_the_sum_of_two_experts(world):
    model, numbers, present, entity, relation = world
    engine = ReferenceEngine(model, torch.from_numpy(entity), torch.from_numpy(relation))
    centres, widths = (engine.tables[name].numpy() for name in ("centres", "widths"))
    expected = np.empty((ENTITIES, 2, ENTITIES))
    for h, r, t in np.ndindex(expected.shape):
        latent = (entity[h] * relation[r, :DIM] * entity[t]).sum()
        expected[h, r, t] = latent + bumps(numbers, present, relation[r, DIM:], centres, widths, h, t)
    for r in range(2):
        given, kind = torch.arange(ENTITIES), torch.full((ENTITIES,), r)
        np.testing.assert_allclose(engine.score_all(given, kind, "tail"), expected[:, r], rtol=1e-10)
        np.testing.assert_allclose(engine.score_all(given, kind, "head"), expected[:, r].T, rtol=1e-10)
        np.testing.assert_allclose(engine.score(given, kind, given.flip(0)), np.diag(expected[:, r, ::-1]), rtol=1e-10)
    shares = (expected[:, 0] != (entity * relation[0, :DIM]) @ entity.T).mean()
    assert 0.1 < shares < 0.9  # of pairs: some share a number, some do not


def test_a_missing_number_switches_its_expert_off(world):
    model, _, present, entity, relation = world
    edges, numbers = model.context.edges, model.context.numbers
    without = model.with_context(Context(edges, numbers, torch.zeros(ENTITIES, ATTRIBUTES, dtype=torch.bool)))
    tables = torch.from_numpy(entity), torch.from_numpy(relation)
    ids = torch.arange(ENTITIES), torch.zeros(ENTITIES, dtype=torch.int64)
    plain = ReferenceEngine(DistMult(), tables[0], tables[1][:, :DIM]).score_all(*ids, "tail")
    torch.testing.assert_close(ReferenceEngine(without, *tables).score_all(*ids, "tail"), plain)
    bare = np.flatnonzero(~present.any(1))
    assert len(bare)
    torch.testing.assert_close(ReferenceEngine(model, *tables).score_all(*ids, "tail")[bare], plain[bare])


def test_numbers_tell_nothing_before_training(world):
    model = world[0]
    start = model.table_start("relation", torch.ones(2, model.relation_width(DIM)))
    assert (start[:, :DIM] == 1).all()
    assert (start[:, DIM:] == 0).all()
    assert (model.table_start("entity", torch.ones(2, DIM)) == 1).all()


def test_a_reciprocal_relation_looks_from_tail_to_head(world):
    """Bumps lie as well where a difference is seen from the other end."""
    model, numbers, present, entity, _ = world
    both = Reciprocal(KBLRN()).with_context(model.context)
    width = model.relation_width(DIM)
    relation = torch.randn(2, 2 * width, dtype=torch.float64)
    engine = ReferenceEngine(both, torch.from_numpy(entity), relation)
    centres, widths = (engine.tables[name].numpy() for name in ("centres", "widths"))
    np.testing.assert_allclose(np.sort(centres), np.sort(-centres))
    found = engine.score_all(torch.tensor([4]), torch.tensor([1]), "head")[0]
    back = relation[1, width:].numpy()
    for h in range(ENTITIES):
        latent = (entity[4] * back[:DIM] * entity[h]).sum()
        expected = latent + bumps(numbers, present, back[DIM:], centres, widths, 4, h)
        assert float(found[h]) == pytest.approx(expected)


class TestBumps:
    def test_they_cover_the_differences_along_edges(self):
        draw = np.random.default_rng(3)
        numbers, m = draw.normal(size=(500, 1)), 4000
        head, tail = draw.integers(500, size=(2, m))
        edges = torch.from_numpy(head), torch.zeros(m, dtype=torch.int64), torch.from_numpy(tail)
        centres, widths = bumps_of(Context(edges, torch.from_numpy(numbers), torch.ones(500, 1, dtype=torch.bool)))
        assert centres.shape == widths.shape == (1, BUMPS)
        differences = (numbers[head] - numbers[tail]).ravel()
        expected = np.quantile(np.concatenate([differences, -differences]), (np.arange(BUMPS) + 0.5) / BUMPS)
        np.testing.assert_allclose(centres[0], expected, atol=0.02)
        neighbours = np.diff(centres[0].numpy())
        np.testing.assert_allclose(widths[0, 1:-1], (neighbours[1:] + neighbours[:-1]) / 2, rtol=1e-6)
        np.testing.assert_allclose(widths[0, [0, -1]], neighbours[[0, -1]], rtol=1e-6)

    @pytest.mark.parametrize("values", [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [5.0, 5.0, -5.0]])
    @pytest.mark.parametrize("known", [[True, True, True], [True, False, True], [False, False, False]])
    def test_widths_are_above_0_for_any_numbers(self, values, known):
        edges = torch.tensor([0, 1, 2]), torch.tensor([0, 0, 0]), torch.tensor([1, 2, 0])
        centres, widths = bumps_of(Context(edges, torch.tensor(values)[:, None], torch.tensor(known)[:, None]))
        assert centres.isfinite().all()
        assert (widths > 0.05).all()

    def test_outside_of_a_graph_there_are_none(self):
        assert bumps_of(Context())[0].shape == (0, BUMPS)
