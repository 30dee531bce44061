"""UKGE against its equations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from focuse.engines import ReferenceEngine
from focuse.evaluation.known import Known
from focuse.evaluation.ranking import rank
from focuse.models import DistMult, Model, UkgeLogi, UkgeRect, make_model

KINDS = [UkgeLogi, UkgeRect]
SCALE = {"scale": torch.tensor([-1.7, 0.4], dtype=torch.float64)}


def phi(kind: type[Model], f: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-f)) if kind is UkgeLogi else np.minimum(np.maximum(f, 0.0), 1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_score_is_a_line_over_the_triple_product(kind: type[Model]) -> None:
    head, relation, tail = np.random.default_rng(1).normal(size=(3, 6, 5))
    expected = [-1.7 * sum(h * r * t) + 0.4 for h, r, t in zip(head, relation, tail, strict=True)]
    rows = tuple(map(torch.from_numpy, (head, relation, tail)))
    np.testing.assert_allclose(kind().with_dense(SCALE).score(*rows), expected, rtol=1e-12)
    torch.testing.assert_close(kind().score(*rows), DistMult().score(*rows))  # w = 1 and b = 0 at first


@pytest.mark.parametrize("kind", KINDS)
def test_confidence_is_its_map(kind: type[Model]) -> None:
    f = np.linspace(-4, 4, 41)
    np.testing.assert_allclose(kind().confidence(torch.from_numpy(f)), phi(kind, f), rtol=1e-12)
    learnt = f if kind is UkgeRect else phi(kind, f)  # the rectifier is trained without its bounds
    np.testing.assert_allclose(kind().trained(torch.from_numpy(f)), learnt, rtol=1e-12)
    far = kind().confidence(torch.tensor([-1e4, 1e4]))
    assert far.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(st.floats(-3, 3), min_size=2, max_size=20, unique=True))
def test_scores_order_as_confidences_do(kind: type[Model], scores: list[float]) -> None:
    f = torch.tensor(sorted(scores), dtype=torch.float64)
    found = kind().confidence(f)
    assert (found.diff() >= 0).all()
    inside = (found > 0) & (found < 1)
    apart = f[inside].diff() > 1e-9
    assert (found[inside].diff()[apart] > 0).all()


@pytest.mark.parametrize("name", ["ukge-logi", "ukge-rect"])
def test_ranks_go_by_the_score_and_know_no_ties_at_the_bounds(name: str) -> None:
    """All tails have confidence 1 in float32, yet each has a rank of its own, ties counting worst."""
    tails = torch.tensor([20.0, 50.0, 30.0, 40.0])
    engine = ReferenceEngine(make_model(name), torch.cat([torch.ones(1), tails])[:, None], torch.ones(1, 1))
    f = engine.score_all(torch.tensor([0]), torch.tensor([0]), "tail")
    assert engine.model.confidence(f)[0, 1:].tolist() == [1.0] * 4
    head, kind, tail = torch.zeros(4).long(), torch.zeros(4).long(), torch.arange(1, 5)
    nothing = torch.empty(0, dtype=torch.int64)
    ranks = rank(engine, head, kind, tail, Known(nothing, nothing, nothing, 5, 1)).raw.ranks("worst")
    assert ranks[:, 0].tolist() == [4, 1, 3, 2]


def test_dense_tensors_are_each_models_own() -> None:
    first = UkgeLogi().dense_start(1, torch.Generator())
    first["scale"] += 7
    assert UkgeLogi().dense_start(1, torch.Generator())["scale"].tolist() == [1.0, 0.0]
    plain = UkgeLogi()
    bound = plain.with_dense(SCALE)
    assert bound.dense is SCALE
    assert plain.dense["scale"].tolist() == UkgeLogi.dense["scale"].tolist() == [1.0, 0.0]
    assert DistMult().dense_start(1, torch.Generator()) == {}


def test_other_models_have_no_confidence() -> None:
    for use in (DistMult().confidence, DistMult().trained):
        with pytest.raises(NotImplementedError, match="distmult: its scores mean no probability"):
            use(torch.zeros(1))
    assert not DistMult.confident
    assert UkgeLogi.confident
    assert UkgeRect.confident
