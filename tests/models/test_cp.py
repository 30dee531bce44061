"""CP against its equation, entities in two roles."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focuse.models import CP

DIM = 4


@pytest.mark.parametrize("side", ["head", "tail"])
def test_score_takes_the_heads_head_and_the_tails_tail(side: str) -> None:
    random = np.random.default_rng(1)
    head, tail, relation = *random.normal(size=(2, 6, 2, DIM)), random.normal(size=(6, DIM))
    expected = [h[0] @ np.diag(r) @ t[1] for h, r, t in zip(head, relation, tail, strict=True)]
    rows = (torch.from_numpy(part).flatten(1) for part in (head, relation, tail))
    np.testing.assert_allclose(CP().score(*rows, side), expected, rtol=1e-12)


def test_the_other_role_has_no_part_in_a_score() -> None:
    head, tail = (torch.randn(5, 2 * DIM) for _ in range(2))
    relation, before = torch.randn(5, DIM), head.clone()
    score = CP().score(head, relation, tail)
    head[:, DIM:] += 1.0
    tail[:, :DIM] -= 1.0
    assert torch.equal(CP().score(head, relation, tail), score)
    assert not torch.equal(head, before)
