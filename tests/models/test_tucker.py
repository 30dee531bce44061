"""TuckER against its equation, one product a mode."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focuse.models import TuckER

DIM = 4


def by_modes(core: np.ndarray, head: np.ndarray, relation: np.ndarray, tail: np.ndarray) -> float:
    """W ×₁ h ×₂ r ×₃ t, number by number."""
    total = 0.0
    for i, h in enumerate(head):
        for j, r in enumerate(relation):
            for k, t in enumerate(tail):
                total += core[i, j, k] * h * r * t
    return total


@pytest.mark.parametrize("side", ["head", "tail"])
def test_score_is_the_core_times_all_three(side: str) -> None:
    random = np.random.default_rng(1)
    core, rows = random.normal(size=(DIM, DIM, DIM)), random.normal(size=(3, 6, DIM))
    expected = [by_modes(core, *triple) for triple in zip(*rows, strict=True)]
    model = TuckER().with_dense({"core": torch.from_numpy(core)})
    np.testing.assert_allclose(model.score(*map(torch.from_numpy, rows), side), expected, rtol=1e-10)


def test_a_core_of_ones_along_the_diagonal_is_distmult() -> None:
    core = torch.zeros(DIM, DIM, DIM)
    for i in range(DIM):
        core[i, i, i] = 1.0
    head, relation, tail = torch.randn(3, 5, DIM)
    scores = TuckER().with_dense({"core": core}).score(head, relation, tail)
    torch.testing.assert_close(scores, (head * relation * tail).sum(-1))


def test_the_first_core_is_uniform_and_follows_the_generator() -> None:
    first, again, other = (TuckER().dense_start(20, torch.Generator().manual_seed(seed))["core"] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == (20, 20, 20)
    assert first.abs().max() <= 1
    assert abs(first.mean()) < 0.03
    assert first.std().item() == pytest.approx(1 / 3**0.5, abs=0.02)
