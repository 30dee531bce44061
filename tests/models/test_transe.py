"""TransE against its equation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.models import TransE, TransEL2

NORMS = {TransE: 1, TransEL2: 2}


@pytest.mark.parametrize("kind", NORMS)
def test_score_is_the_negative_distance(kind: type[TransE]) -> None:
    head, relation, tail = np.random.default_rng(0).normal(size=(3, 6, 5))
    power = NORMS[kind]
    expected = -((np.abs(head + relation - tail) ** power).sum(axis=1) ** (1 / power))
    scores = kind().score(*map(torch.from_numpy, (head, relation, tail)))
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


@pytest.mark.parametrize("kind", NORMS)
def test_a_perfect_step_scores_zero(kind: type[TransE]) -> None:
    head, relation = torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5, 4.0]])
    assert kind().score(head, relation, head + relation).item() == 0.0


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.floats(1e-3, 1e3))
def test_scores_are_never_above_zero(seed: int, size: float) -> None:
    rows = torch.from_numpy(np.random.default_rng(seed).normal(scale=size, size=(4, 3, 2)).astype(np.float32))
    for kind in NORMS:
        assert (kind().score(rows[0], rows[1], rows[2]) <= 0).all()
        assert (kind().shared(kind().query(rows[0], rows[1], "head"), rows[1], rows[3], "head") <= 0).all()


def test_close_rows_keep_their_digits() -> None:
    """The usual shortcut ‖a‖² + ‖b‖² − 2ab cannot tell 1000 from 1000.001 in float32; ranks are decided there."""
    query, near = torch.full((1, 4), 1000.0), torch.full((30, 4), 1000.0)
    near[:, 0] += torch.arange(30) * 1e-3
    expected = -np.abs(near[:, 0].double().numpy() - 1000.0)
    for kind in NORMS:
        scores = kind().shared(query, torch.zeros(1, 4), near, "tail")
        np.testing.assert_allclose(scores[0], expected, rtol=1e-6)
