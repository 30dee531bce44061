"""PairRE against its equation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focuse.models import PairRE

DIM = 4


@pytest.mark.parametrize("side", ["head", "tail"])
def test_score_is_the_distance_of_weighed_unit_vectors(side: str) -> None:
    random = np.random.default_rng(1)
    head, tail, relation = *random.normal(size=(2, 6, DIM)), random.normal(size=(6, 2, DIM))
    expected = []
    for h, r, t in zip(head, relation, tail, strict=True):
        h, t = h / np.sqrt((h**2).sum()), t / np.sqrt((t**2).sum())
        expected.append(-sum(abs(h[i] * r[0, i] - t[i] * r[1, i]) for i in range(DIM)))
    rows = (torch.from_numpy(part).flatten(1) for part in (head, relation, tail))
    np.testing.assert_allclose(PairRE().score(*rows, side), expected, rtol=1e-12)


def test_an_entitys_length_counts_for_nothing() -> None:
    head, tail, relation = *torch.randn(2, 6, DIM), torch.randn(6, 2 * DIM)
    torch.testing.assert_close(PairRE().score(3 * head, relation, tail / 7), PairRE().score(head, relation, tail))
