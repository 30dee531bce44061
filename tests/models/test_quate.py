"""QuatE against its equation, quaternions multiplied by the table of i, j and k."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focuse.models import QuatE

SIZE, DIM = 6, 3
# Row times column: which unit comes out (1, i, j, k are 0 to 3), and its sign.
UNIT = np.array([[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]])
SIGN = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, -1, -1, 1], [1, 1, -1, -1]])


def times(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Hamilton's product of two quaternions [4]."""
    found = np.zeros(4)
    for i in range(4):
        for j in range(4):
            found[UNIT[i, j]] += SIGN[i, j] * one[i] * other[j]
    return found


def draw(seed: int) -> tuple[np.ndarray, list[torch.Tensor]]:
    """Quaternions [3, SIZE, DIM, 4], and the same as three rows of four parts."""
    numbers = np.random.default_rng(seed).normal(size=(3, SIZE, DIM, 4))
    return numbers, [torch.from_numpy(part.transpose(0, 2, 1).reshape(SIZE, 4 * DIM)) for part in numbers]


def test_the_table_is_hamiltons() -> None:
    """i² = j² = k² = ijk = −1."""
    i, j, k = np.eye(4)[1:]
    minus = -np.eye(4)[0]
    for product in (times(i, i), times(j, j), times(k, k), times(times(i, j), k)):
        np.testing.assert_array_equal(product, minus)


@pytest.mark.parametrize("side", ["head", "tail"])
def test_score_holds_the_turned_head_against_the_tail(side: str) -> None:
    (head, relation, tail), rows = draw(1)
    unit = relation / np.sqrt((relation**2).sum(-1, keepdims=True))
    expected = [sum(times(head[b, i], unit[b, i]) @ tail[b, i] for i in range(DIM)) for b in range(SIZE)]
    np.testing.assert_allclose(QuatE().score(*rows, side), expected, rtol=1e-10)


def test_a_relations_length_counts_for_nothing_and_its_direction_does() -> None:
    _, (h, r, t) = draw(2)
    torch.testing.assert_close(QuatE().score(h, 5 * r, t), QuatE().score(h, r, t))
    assert ((QuatE().score(h, r, t) - QuatE().score(t, r, h)).abs() > 1e-3).all()


def test_rows_hold_four_numbers_a_dimension() -> None:
    assert QuatE().entity_width(5) == QuatE().relation_width(5) == 20
    (head, _, _), (h, _, _) = draw(3)
    np.testing.assert_allclose(QuatE().moduli("entity", h), np.sqrt((head**2).sum(-1)), rtol=1e-12)
