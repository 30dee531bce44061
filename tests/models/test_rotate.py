"""RotatE against its equation in complex numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focuse.models import RotatE
from focuse.training.loop import initial_tables
from focuse.training.settings import Settings

SIZE, DIM = 6, 4


def draw(seed: int) -> tuple[list[np.ndarray], list[torch.Tensor]]:
    """Heads, angles and tails as NumPy's numbers, and the same as rows of real parts, then imaginary parts."""
    random = np.random.default_rng(seed)
    head, tail = random.normal(size=(2, SIZE, DIM)) + 1j * random.normal(size=(2, SIZE, DIM))
    angle = random.uniform(-np.pi, np.pi, size=(SIZE, DIM))
    rows = [torch.from_numpy(np.concatenate([part.real, part.imag], axis=-1)) for part in (head, tail)]
    return [head, angle, tail], [rows[0], torch.from_numpy(angle), rows[1]]


@pytest.mark.parametrize("side", ["head", "tail"])
def test_score_is_the_distance_after_turning(side: str) -> None:
    (head, angle, tail), rows = draw(2)
    expected = -np.abs(head * np.exp(1j * angle) - tail).sum(-1)
    np.testing.assert_allclose(RotatE().score(*rows, side), expected, rtol=1e-12)


def test_a_perfect_turn_scores_zero() -> None:
    (head, angle, _), (h, r, _) = draw(3)
    turned = head * np.exp(1j * angle)
    tail = torch.from_numpy(np.concatenate([turned.real, turned.imag], axis=-1))
    np.testing.assert_allclose(RotatE().score(h, r, tail), 0.0, atol=1e-13)


def test_half_a_turn_is_symmetric_and_a_quarter_is_not() -> None:
    _, (h, r, t) = draw(4)
    half, quarter = torch.full_like(r, np.pi), torch.full_like(r, np.pi / 2)
    torch.testing.assert_close(RotatE().score(h, half, t), RotatE().score(t, half, h))
    assert ((RotatE().score(h, quarter, t) - RotatE().score(t, quarter, h)).abs() > 1e-3).all()


def test_only_entities_have_sizes() -> None:
    """A penalty on sizes must leave angles alone: |e^(iθ)| is 1."""
    (head, angle, _), (h, r, _) = draw(5)
    np.testing.assert_allclose(RotatE().moduli("entity", h), np.abs(head), rtol=1e-12)
    np.testing.assert_allclose(RotatE().moduli("relation", r), np.abs(np.exp(1j * angle)), rtol=1e-12)
    r.requires_grad_()
    assert not RotatE().moduli("relation", r).requires_grad


@pytest.mark.parametrize("spread", [None, 0.01, 3.0])
def test_first_angles_go_all_around(spread: float | None) -> None:
    settings = Settings.of(model="rotate", dim=200, spread=spread)
    tables = initial_tables(settings, RotatE(), entities=3, relations=20)
    assert tables["entity"].shape == (3, 400)
    angle = tables["relation"].flatten().sort().values
    assert angle.abs().max() <= np.pi
    even = torch.linspace(-np.pi, np.pi, angle.numel())
    assert (angle - even).abs().max() < 0.15  # Kolmogorov's distance of 4,000 draws: 0.15 / 2π, p < 0.02
    again = initial_tables(settings, RotatE(), entities=3, relations=20)
    assert torch.equal(again["relation"], tables["relation"])
