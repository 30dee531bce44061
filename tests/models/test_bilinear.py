"""Bilinear models against their equations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.models.base import moduli, score_triples
from focuse.models.bilinear import CP, ComplEx, DistMult, HolE, QuatE, Rescal, SimplE, TuckER

# ---- distmult -------------------------------------------------------------------------------------------------------


def test_distmult_score_is_the_triple_product() -> None:
    head, relation, tail = np.random.default_rng(1).normal(size=(3, 6, 5))
    expected = [sum(h[i] * r[i] * t[i] for i in range(5)) for h, r, t in zip(head, relation, tail, strict=True)]
    scores = score_triples(DistMult(), *map(torch.from_numpy, (head, relation, tail)))
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_distmult_is_symmetric(seed: int) -> None:
    head, relation, tail = map(torch.from_numpy, np.random.default_rng(seed).normal(size=(3, 4, 3)))
    torch.testing.assert_close(
        score_triples(DistMult(), head, relation, tail), score_triples(DistMult(), tail, relation, head)
    )


# ---- complex --------------------------------------------------------------------------------------------------------

COMPLEX_SIZE, COMPLEX_DIM = 6, 4


def complex_draw(seed: int) -> tuple[np.ndarray, list[torch.Tensor]]:
    """Complex numbers, and the same as three rows of real parts, then imaginary parts."""
    real, imaginary = np.random.default_rng(seed).normal(size=(2, 3, COMPLEX_SIZE, COMPLEX_DIM))
    rows = [torch.from_numpy(part) for part in np.concatenate([real, imaginary], axis=-1)]
    return real + 1j * imaginary, rows


def test_complex_score_is_the_real_part_of_the_hermitian_product() -> None:
    (head, relation, tail), rows = complex_draw(2)
    expected = np.real((head * relation * np.conj(tail)).sum(-1))
    np.testing.assert_allclose(score_triples(ComplEx(), *rows), expected, rtol=1e-12)


def test_complex_is_not_symmetric() -> None:
    """f(t, r, h) is the product with r conjugated: real relations are symmetric, imaginary ones antisymmetric."""
    (head, relation, tail), (h, r, t) = complex_draw(3)
    there, back = score_triples(ComplEx(), h, r, t), score_triples(ComplEx(), t, r, h)
    assert ((there - back).abs() > 1e-3).all()
    np.testing.assert_allclose(back, np.real((head * np.conj(relation) * np.conj(tail)).sum(-1)), rtol=1e-12)
    real, imaginary = r.clone(), r.clone()
    real[:, COMPLEX_DIM:], imaginary[:, :COMPLEX_DIM] = 0, 0
    torch.testing.assert_close(score_triples(ComplEx(), h, real, t), score_triples(ComplEx(), t, real, h))
    torch.testing.assert_close(score_triples(ComplEx(), h, imaginary, t), -score_triples(ComplEx(), t, imaginary, h))


@pytest.mark.parametrize("dim", [1, 100])
def test_complex_rows_hold_two_numbers_per_dimension(dim: int) -> None:
    assert ComplEx().widths(dim)[0] == ComplEx().widths(dim)[1] == 2 * dim


# ---- cp -------------------------------------------------------------------------------------------------------------

CP_DIM = 4


@pytest.mark.parametrize("side", ["head", "tail"])
def test_cp_score_uses_head_role_of_head_and_tail_role_of_tail(side: str) -> None:
    random = np.random.default_rng(1)
    head, tail, relation = *random.normal(size=(2, 6, 2, CP_DIM)), random.normal(size=(6, CP_DIM))
    expected = [h[0] @ np.diag(r) @ t[1] for h, r, t in zip(head, relation, tail, strict=True)]
    rows = (torch.from_numpy(part).flatten(1) for part in (head, relation, tail))
    np.testing.assert_allclose(score_triples(CP(), *rows, side), expected, rtol=1e-12)


def test_cp_other_role_has_no_effect_on_a_score() -> None:
    head, tail = (torch.randn(5, 2 * CP_DIM) for _ in range(2))
    relation, before = torch.randn(5, CP_DIM), head.clone()
    score = score_triples(CP(), head, relation, tail)
    head[:, CP_DIM:] += 1.0
    tail[:, :CP_DIM] -= 1.0
    assert torch.equal(score_triples(CP(), head, relation, tail), score)
    assert not torch.equal(head, before)


# ---- simple ---------------------------------------------------------------------------------------------------------

SIMPLE_DIM = 4


@pytest.mark.parametrize("side", ["head", "tail"])
def test_simple_score_is_the_mean_of_both_directions(side: str) -> None:
    head, relation, tail = np.random.default_rng(1).normal(size=(3, 6, 2 * SIMPLE_DIM))
    expected = []
    for h, r, t in zip(head, relation, tail, strict=True):
        forth = sum(h[i] * r[i] * t[SIMPLE_DIM + i] for i in range(SIMPLE_DIM))
        back = sum(t[i] * r[SIMPLE_DIM + i] * h[SIMPLE_DIM + i] for i in range(SIMPLE_DIM))
        expected.append((forth + back) / 2)
    scores = score_triples(SimplE(), *map(torch.from_numpy, (head, relation, tail)), side)
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


def test_simple_inverse_of_a_relation_scores_the_reversed_triple() -> None:
    head, relation, tail = map(torch.from_numpy, np.random.default_rng(2).normal(size=(3, 6, 2 * SIMPLE_DIM)))
    inverse = torch.cat([relation[:, SIMPLE_DIM:], relation[:, :SIMPLE_DIM]], dim=1)
    torch.testing.assert_close(
        score_triples(SimplE(), tail, inverse, head), score_triples(SimplE(), head, relation, tail)
    )
    assert (
        (score_triples(SimplE(), tail, relation, head) - score_triples(SimplE(), head, relation, tail)).abs() > 1e-3
    ).all()


# ---- hole -----------------------------------------------------------------------------------------------------------


def correlation(head: np.ndarray, tail: np.ndarray) -> np.ndarray:
    size = len(head)
    found = np.zeros(size)
    for k in range(size):
        for i in range(size):
            found[k] += head[i] * tail[(k + i) % size]
    return found


@pytest.mark.parametrize("dim", [1, 2, 5, 8])
@pytest.mark.parametrize("side", ["head", "tail"])
def test_hole_score_is_the_weighted_circular_correlation(dim: int, side: str) -> None:
    head, relation, tail = np.random.default_rng(dim).normal(size=(3, 6, dim))
    expected = [r @ correlation(h, t) for h, r, t in zip(head, relation, tail, strict=True)]
    scores = score_triples(HolE(), *map(torch.from_numpy, (head, relation, tail)), side)
    np.testing.assert_allclose(scores, expected, rtol=1e-10)


def test_hole_is_not_symmetric() -> None:
    head, relation, tail = map(torch.from_numpy, np.random.default_rng(1).normal(size=(3, 6, 5)))
    assert (
        (score_triples(HolE(), head, relation, tail) - score_triples(HolE(), tail, relation, head)).abs() > 1e-3
    ).all()


# ---- quate ----------------------------------------------------------------------------------------------------------

QUATE_SIZE, QUATE_DIM = 6, 3
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


def quate_draw(seed: int) -> tuple[np.ndarray, list[torch.Tensor]]:
    """Quaternions [3, QUATE_SIZE, QUATE_DIM, 4], and the same as three rows of four parts."""
    numbers = np.random.default_rng(seed).normal(size=(3, QUATE_SIZE, QUATE_DIM, 4))
    return numbers, [torch.from_numpy(part.transpose(0, 2, 1).reshape(QUATE_SIZE, 4 * QUATE_DIM)) for part in numbers]


def test_quaternion_product_satisfies_hamiltons_rules() -> None:
    """i² = j² = k² = ijk = −1."""
    i, j, k = np.eye(4)[1:]
    minus = -np.eye(4)[0]
    for product in (times(i, i), times(j, j), times(k, k), times(times(i, j), k)):
        np.testing.assert_array_equal(product, minus)


@pytest.mark.parametrize("side", ["head", "tail"])
def test_quate_score_is_the_product_of_rotated_head_and_tail(side: str) -> None:
    (head, relation, tail), rows = quate_draw(1)
    unit = relation / np.sqrt((relation**2).sum(-1, keepdims=True))
    expected = [sum(times(head[b, i], unit[b, i]) @ tail[b, i] for i in range(QUATE_DIM)) for b in range(QUATE_SIZE)]
    np.testing.assert_allclose(score_triples(QuatE(), *rows, side), expected, rtol=1e-10)


def test_quate_score_depends_on_relation_direction_not_length() -> None:
    _, (h, r, t) = quate_draw(2)
    torch.testing.assert_close(score_triples(QuatE(), h, 5 * r, t), score_triples(QuatE(), h, r, t))
    assert ((score_triples(QuatE(), h, r, t) - score_triples(QuatE(), t, r, h)).abs() > 1e-3).all()


def test_quate_rows_hold_four_numbers_per_dimension() -> None:
    assert QuatE().widths(5)[0] == QuatE().widths(5)[1] == 20
    (head, _, _), (h, _, _) = quate_draw(3)
    np.testing.assert_allclose(moduli(QuatE(), "entity", h), np.sqrt((head**2).sum(-1)), rtol=1e-12)


# ---- rescal ---------------------------------------------------------------------------------------------------------

RESCAL_DIM = 5


@pytest.mark.parametrize("side", ["head", "tail"])
def test_rescal_score_is_the_bilinear_form_of_the_relations_matrix(side: str) -> None:
    random = np.random.default_rng(1)
    head, tail, matrix = *random.normal(size=(2, 6, RESCAL_DIM)), random.normal(size=(6, RESCAL_DIM, RESCAL_DIM))
    expected = np.einsum("bi,bij,bj->b", head, matrix, tail)
    relation = torch.from_numpy(matrix.reshape(6, Rescal().widths(RESCAL_DIM)[1]))
    scores = score_triples(Rescal(), torch.from_numpy(head), relation, torch.from_numpy(tail), side)
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
    swapped = score_triples(Rescal(), torch.from_numpy(tail), relation, torch.from_numpy(head), side)
    np.testing.assert_allclose(swapped, np.einsum("bi,bij,bj->b", tail, matrix, head), rtol=1e-12)


# ---- tucker ---------------------------------------------------------------------------------------------------------

TUCKER_DIM = 4


def by_modes(core: np.ndarray, head: np.ndarray, relation: np.ndarray, tail: np.ndarray) -> float:
    """W ×₁ h ×₂ r ×₃ t, number by number."""
    total = 0.0
    for i, h in enumerate(head):
        for j, r in enumerate(relation):
            for k, t in enumerate(tail):
                total += core[i, j, k] * h * r * t
    return total


@pytest.mark.parametrize("side", ["head", "tail"])
def test_tucker_score_is_the_core_times_all_three(side: str) -> None:
    random = np.random.default_rng(1)
    core, rows = random.normal(size=(TUCKER_DIM, TUCKER_DIM, TUCKER_DIM)), random.normal(size=(3, 6, TUCKER_DIM))
    expected = [by_modes(core, *triple) for triple in zip(*rows, strict=True)]
    model = TuckER().bind({"core": torch.from_numpy(core)})
    np.testing.assert_allclose(score_triples(model, *map(torch.from_numpy, rows), side), expected, rtol=1e-10)


def test_tucker_with_an_identity_core_is_distmult() -> None:
    core = torch.zeros(TUCKER_DIM, TUCKER_DIM, TUCKER_DIM)
    for i in range(TUCKER_DIM):
        core[i, i, i] = 1.0
    head, relation, tail = torch.randn(3, 5, TUCKER_DIM)
    scores = score_triples(TuckER().bind({"core": core}), head, relation, tail)
    torch.testing.assert_close(scores, (head * relation * tail).sum(-1))


def test_tucker_initial_core_is_uniform_and_follows_the_generator() -> None:
    first, again, other = (
        TuckER().init_parameters(20, torch.Generator().manual_seed(seed))["core"] for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == (20, 20, 20)
    assert first.abs().max() <= 1
    assert abs(first.mean()) < 0.03
    assert first.std().item() == pytest.approx(1 / 3**0.5, abs=0.02)
