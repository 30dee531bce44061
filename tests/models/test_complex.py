"""ComplEx against its equation in complex numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focuse.models import ComplEx

SIZE, DIM = 6, 4


def draw(seed: int) -> tuple[np.ndarray, list[torch.Tensor]]:
    """Complex numbers [3, SIZE, DIM], and the same as three rows of real parts, then imaginary parts."""
    real, imaginary = np.random.default_rng(seed).normal(size=(2, 3, SIZE, DIM))
    rows = [torch.from_numpy(part) for part in np.concatenate([real, imaginary], axis=-1)]
    return real + 1j * imaginary, rows


def test_score_is_the_real_part_of_the_hermitian_product() -> None:
    (head, relation, tail), rows = draw(2)
    expected = np.real((head * relation * np.conj(tail)).sum(-1))
    np.testing.assert_allclose(ComplEx().score(*rows), expected, rtol=1e-12)


def test_direction_counts() -> None:
    """f(t, r, h) is the same product with r conjugated: real relations are symmetric, imaginary ones antisymmetric."""
    (head, relation, tail), (h, r, t) = draw(3)
    there, back = ComplEx().score(h, r, t), ComplEx().score(t, r, h)
    assert ((there - back).abs() > 1e-3).all()
    np.testing.assert_allclose(back, np.real((head * np.conj(relation) * np.conj(tail)).sum(-1)), rtol=1e-12)
    real, imaginary = r.clone(), r.clone()
    real[:, DIM:], imaginary[:, :DIM] = 0, 0
    torch.testing.assert_close(ComplEx().score(h, real, t), ComplEx().score(t, real, h))
    torch.testing.assert_close(ComplEx().score(h, imaginary, t), -ComplEx().score(t, imaginary, h))


@pytest.mark.parametrize("dim", [1, 100])
def test_rows_hold_two_numbers_a_dimension(dim: int) -> None:
    assert ComplEx().entity_width(dim) == ComplEx().relation_width(dim) == 2 * dim
