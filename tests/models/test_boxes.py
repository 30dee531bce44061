"""Gumbel boxes against formulas written number by number, and against draws of their corners."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from focuse.models.boxes import GAMMA, box, first_boxes, first_maps, intersection, log_volume

BETA = 0.05


def boxes(count: int, d: int = 3, seed: int = 0) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, 2 * d, generator=random, dtype=torch.float64)
    maps = torch.randn(count, 2 * d, generator=random, dtype=torch.float64) + 0.5
    return box(rows, maps)


def test_a_box_is_shifted_and_stretched() -> None:
    rows, mapping = torch.tensor([[1.0, 2.0, 0.0, math.log(3)]]), torch.tensor([[0.5, -1.0, 2.0, -4.0]])
    # low corners 1 and 2 move by .5 and −1; extents 1 and 3 become 2 and, as no stretch is below 0, 0
    torch.testing.assert_close(box(rows, mapping), torch.tensor([[1.5, 1.0, 3.5, 1.0]]))


def test_intersections_and_volumes_are_their_formulas() -> None:
    one, other = boxes(20), boxes(20, seed=1)
    shared = intersection(one, other, BETA)
    for a, b, both in zip(one.tolist(), other.tolist(), shared.tolist(), strict=True):
        for i in range(3):
            low = BETA * np.logaddexp(a[i] / BETA, b[i] / BETA)
            high = -BETA * np.logaddexp(-a[i + 3] / BETA, -b[i + 3] / BETA)
            assert (both[i], both[i + 3]) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))
        volume = math.prod(math.log1p(math.exp(both[i + 3] - both[i] - 2 * GAMMA * BETA)) for i in range(3))
        assert log_volume(torch.tensor([both], dtype=torch.float64), BETA).item() == pytest.approx(math.log(volume))


def test_corners_are_means_of_the_largest_of_gumbel_variables() -> None:
    """max of two Gumbel variables of means a and b is one of mean β ln(e^(a/β) + e^(b/β)); smallest ones alike."""
    random, beta = np.random.default_rng(3), 0.4
    one, other = np.array([0.1, 1.0]), np.array([0.3, 0.7])  # a low and a high corner each
    lows = [mean - GAMMA * beta + beta * random.gumbel(size=400_000) for mean in (one[0], other[0])]
    highs = [mean + GAMMA * beta - beta * random.gumbel(size=400_000) for mean in (one[1], other[1])]
    found = intersection(torch.from_numpy(one)[None], torch.from_numpy(other)[None], beta)[0]
    assert found[0].item() == pytest.approx(np.maximum(*lows).mean(), abs=5e-3)
    assert found[1].item() == pytest.approx(np.minimum(*highs).mean(), abs=5e-3)


@pytest.mark.parametrize("apart", [0.0, 14.9, 15.1, 200.0, 1e5])
def test_boxes_far_apart_have_a_volume_and_a_slope_in_float32(apart: float) -> None:
    boxes = torch.tensor([[apart, 0.0]], requires_grad=True)  # high − low = −apart
    value = log_volume(boxes, 0.01)
    extent = -apart - 2 * GAMMA * 0.01
    exact = math.log(math.log1p(math.exp(extent))) if extent > -700 else extent
    assert value.item() == pytest.approx(exact, rel=1e-5)
    value.sum().backward()
    assert boxes.grad is not None
    slope = 1 / (1 + math.exp(-extent)) / math.log1p(math.exp(extent)) if apart < 100 else 1.0
    assert boxes.grad[0, 1].item() == pytest.approx(slope, rel=1e-5)


def test_first_boxes_and_maps_are_those_of_the_authors_code() -> None:
    values = torch.randn(200, 40, generator=torch.Generator().manual_seed(2))
    low, extent = first_boxes(values).chunk(2, -1)
    assert 1e-4 <= low.min() < 3e-4
    assert 9.8e-3 < low.max() <= 1e-2
    assert -0.1 <= extent.min() < -0.099
    assert -0.002 < extent.max() <= -0.001
    for shift, stretch in (part.chunk(2, -1) for part in first_maps(values).chunk(2, -1)):
        assert shift.std().item() == pytest.approx(1e-4, rel=0.1)
        assert stretch.mean().item() == pytest.approx(1.0, abs=0.02)
        assert stretch.std().item() == pytest.approx(0.2, rel=0.1)
