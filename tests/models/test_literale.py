"""LiteralE against its equations, entity by entity."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focuse.engines import ReferenceEngine
from focuse.models import Context, Model, make_model

DIM, ENTITIES, ATTRIBUTES = 3, 7, 2


def sigma(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def mixed(e: np.ndarray, number: np.ndarray, gate: np.ndarray, offset: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """g(e, l), the matrices of e and l taken apart as in the paper."""
    z = sigma(gate[:, :DIM] @ e + gate[:, DIM:] @ number + offset)
    h = np.tanh(candidate[:, :DIM] @ e + candidate[:, DIM:] @ number)
    return z * h + (1 - z) * e


@pytest.fixture(params=["literale-distmult", "literale-complex"])
def made(request) -> tuple[Model, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    numbers, present = draw.normal(size=(ENTITIES, ATTRIBUTES)), draw.random((ENTITIES, ATTRIBUTES)) < 0.6
    model = make_model(request.param).with_context(Context(None, torch.tensor(numbers), torch.tensor(present)))
    start = model.dense_start(DIM, torch.Generator().manual_seed(1))
    model = model.with_dense({name: torch.from_numpy(draw.normal(size=part.shape)) for name, part in start.items()})
    entity = draw.normal(size=(ENTITIES, model.entity_width(DIM)))
    return model, entity, np.where(present, numbers, 0.0)


def encoded(model: Model, entity: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Every entity's g(e, l), part by part."""
    dense = [model.dense[name].numpy() for name in ("gate", "gate_offset", "candidate")]
    parts = model.parts
    return np.array(
        [
            np.concatenate(
                [
                    mixed(row.reshape(parts, DIM)[part], number, dense[0][part], dense[1][part, 0], dense[2][part])
                    for part in range(parts)
                ]
            )
            for row, number in zip(entity, numbers, strict=True)
        ]
    )


def test_rows_are_mixed_as_the_paper_says(made):
    model, entity, numbers = made
    columns = model.context.columns()
    found, _ = model.encode(torch.cat([torch.from_numpy(entity), columns], dim=1), torch.ones(1, 1))
    np.testing.assert_allclose(found, encoded(model, entity, numbers), rtol=1e-12)


def test_scores_are_those_of_the_model_beneath_over_mixed_rows(made):
    model, entity, numbers = made
    relation = np.random.default_rng(2).normal(size=(2, model.relation_width(DIM)))
    engine = ReferenceEngine(model, torch.from_numpy(entity), torch.from_numpy(relation), dense=model.dense)
    rows = encoded(model, entity, numbers)
    if model.parts == 2:
        rows, relation = (part[:, :DIM] + 1j * part[:, DIM:] for part in (rows, relation))
    head, kind, tail = np.array([0, 3, 6]), np.array([1, 0, 1]), np.array([2, 3, 1])
    expected = np.real((rows[head] * relation[kind] * np.conj(rows[tail])).sum(1))
    np.testing.assert_allclose(engine.score(*map(torch.from_numpy, (head, kind, tail))), expected, rtol=1e-10)
    against = np.real((rows[head] * relation[kind]) @ np.conj(rows).T)
    np.testing.assert_allclose(engine.score_all(torch.from_numpy(head), torch.from_numpy(kind), "tail"), against)


def test_a_missing_number_counts_as_the_mean(made):
    """Nothing of a value that is not known comes through."""
    model, entity, _ = made
    numbers, present = model.context.numbers, model.context.present
    other = model.with_context(Context(None, torch.where(present, numbers, 99.0), present))
    tables = torch.from_numpy(entity), torch.ones(1, model.relation_width(DIM), dtype=torch.float64)
    one, two = (ReferenceEngine(m, *tables, dense=model.dense).finished()["entity"] for m in (model, other))
    assert torch.equal(one, two)
