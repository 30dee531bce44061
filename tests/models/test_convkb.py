"""ConvKB against its equation, and its bounds on memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focuse.models import ConvKB, pieces


def test_score_is_the_weighted_sum_of_all_filters() -> None:
    random = np.random.default_rng(1)
    head, relation, tail = random.normal(size=(3, 5, 4))
    filters, offsets, weights = random.normal(size=(3, 50)), random.normal(size=50), random.normal(size=(4, 50))
    expected = np.zeros(5)
    for row in range(5):
        for at in range(4):
            column = np.array([head[row, at], relation[row, at], tail[row, at]])
            for one in range(50):
                expected[row] += weights[at, one] * max(filters[:, one] @ column + offsets[one], 0.0)
    dense = {"filters": filters, "offsets": offsets, "weights": weights}
    model = ConvKB().with_dense({name: torch.from_numpy(value) for name, value in dense.items()})
    found = model.score(*map(torch.from_numpy, (head, relation, tail)))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_filters_begin_as_a_step_from_head_to_tail() -> None:
    start = ConvKB().dense_start(4, torch.Generator().manual_seed(0))
    torch.testing.assert_close(start["filters"].mean(1), torch.tensor([1.0, 1.0, -1.0]), atol=0.1, rtol=0)


@pytest.mark.parametrize("side", ["head", "tail"])
def test_a_pool_never_holds_more_than_a_piece(monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    model = ConvKB().with_dense(ConvKB().dense_start(4, torch.Generator().manual_seed(0)))
    rows = [torch.randn(count, 4, requires_grad=True) for count in (6, 6, 11)]
    sizes = []
    filtered = ConvKB._all_filters

    def watched(self: ConvKB, *parts: torch.Tensor) -> torch.Tensor:
        sizes.append(torch.broadcast_shapes(*(part.shape for part in parts)).numel() * 50)
        return filtered(self, *parts)

    monkeypatch.setattr(ConvKB, "_all_filters", watched)
    whole = model.shared(model.query(rows[0], rows[1], side), rows[1], rows[2], side)
    wanted = torch.autograd.grad(whole.square().sum(), rows)
    monkeypatch.setattr(pieces, "ON_CPU", 1000)
    sizes.clear()
    found = model.shared(model.query(rows[0], rows[1], side), rows[1], rows[2], side)
    torch.testing.assert_close(found, whole)
    torch.testing.assert_close(torch.autograd.grad(found.square().sum(), rows), wanted)
    assert max(sizes) <= 1000
    assert sum(sizes) == 2 * 6 * 11 * 4 * 50  # all of it, and once more for the gradient
