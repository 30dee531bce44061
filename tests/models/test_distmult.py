"""DistMult against its equation."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.models import DistMult


def test_score_is_the_triple_product() -> None:
    head, relation, tail = np.random.default_rng(1).normal(size=(3, 6, 5))
    expected = [sum(h[i] * r[i] * t[i] for i in range(5)) for h, r, t in zip(head, relation, tail, strict=True)]
    scores = DistMult().score(*map(torch.from_numpy, (head, relation, tail)))
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_both_directions_score_alike(seed: int) -> None:
    head, relation, tail = map(torch.from_numpy, np.random.default_rng(seed).normal(size=(3, 4, 3)))
    torch.testing.assert_close(DistMult().score(head, relation, tail), DistMult().score(tail, relation, head))
