"""HolE against its equation, the circular correlation summed one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focuse.models import HolE


def correlation(head: np.ndarray, tail: np.ndarray) -> np.ndarray:
    size = len(head)
    found = np.zeros(size)
    for k in range(size):
        for i in range(size):
            found[k] += head[i] * tail[(k + i) % size]
    return found


@pytest.mark.parametrize("dim", [1, 2, 5, 8])
@pytest.mark.parametrize("side", ["head", "tail"])
def test_score_weighs_the_circular_correlation(dim: int, side: str) -> None:
    head, relation, tail = np.random.default_rng(dim).normal(size=(3, 6, dim))
    expected = [r @ correlation(h, t) for h, r, t in zip(head, relation, tail, strict=True)]
    scores = HolE().score(*map(torch.from_numpy, (head, relation, tail)), side)
    np.testing.assert_allclose(scores, expected, rtol=1e-10)


def test_direction_counts() -> None:
    head, relation, tail = map(torch.from_numpy, np.random.default_rng(1).normal(size=(3, 6, 5)))
    assert ((HolE().score(head, relation, tail) - HolE().score(tail, relation, head)).abs() > 1e-3).all()
