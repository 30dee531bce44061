"""RESCAL against its equation over matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focuse.models import Rescal

DIM = 5


@pytest.mark.parametrize("side", ["head", "tail"])
def test_score_is_the_bilinear_form_of_the_relations_matrix(side: str) -> None:
    random = np.random.default_rng(1)
    head, tail, matrix = *random.normal(size=(2, 6, DIM)), random.normal(size=(6, DIM, DIM))
    expected = np.einsum("bi,bij,bj->b", head, matrix, tail)
    relation = torch.from_numpy(matrix.reshape(6, Rescal().relation_width(DIM)))
    scores = Rescal().score(torch.from_numpy(head), relation, torch.from_numpy(tail), side)
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
    swapped = Rescal().score(torch.from_numpy(tail), relation, torch.from_numpy(head), side)
    np.testing.assert_allclose(swapped, np.einsum("bi,bij,bj->b", tail, matrix, head), rtol=1e-12)
