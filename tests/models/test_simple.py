"""SimplE against its equation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focuse.models import SimplE

DIM = 4


@pytest.mark.parametrize("side", ["head", "tail"])
def test_score_is_the_mean_of_both_directions(side: str) -> None:
    head, relation, tail = np.random.default_rng(1).normal(size=(3, 6, 2 * DIM))
    expected = []
    for h, r, t in zip(head, relation, tail, strict=True):
        forth = sum(h[i] * r[i] * t[DIM + i] for i in range(DIM))
        back = sum(t[i] * r[DIM + i] * h[DIM + i] for i in range(DIM))
        expected.append((forth + back) / 2)
    scores = SimplE().score(*map(torch.from_numpy, (head, relation, tail)), side)
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


def test_the_inverse_of_a_relation_scores_the_edge_back() -> None:
    head, relation, tail = map(torch.from_numpy, np.random.default_rng(2).normal(size=(3, 6, 2 * DIM)))
    inverse = torch.cat([relation[:, DIM:], relation[:, :DIM]], dim=1)
    torch.testing.assert_close(SimplE().score(tail, inverse, head), SimplE().score(head, relation, tail))
    assert ((SimplE().score(tail, relation, head) - SimplE().score(head, relation, tail)).abs() > 1e-3).all()
