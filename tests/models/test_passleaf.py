"""PASSLEAF's confidences against their formulas, with complex numbers as NumPy has them."""

from __future__ import annotations

import math
import os
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from focuse.engines import ReferenceEngine
from focuse.models import Model, PassleafComplEx, PassleafRotatE
from focuse.training.loop import initial_tables
from focuse.training.settings import Settings

K = 5
SCALE = {"scale": torch.tensor([1.7, -0.4], dtype=torch.float64)}


def numbers(rows: np.ndarray) -> np.ndarray:
    """Rows of real and then imaginary parts as complex numbers."""
    return rows[..., :K] + 1j * rows[..., K:]


def complex_score(h: np.ndarray, r: np.ndarray, t: np.ndarray) -> float:
    return float((numbers(h) * numbers(r) * numbers(t).conj()).sum().real)


def rotate_score(h: np.ndarray, r: np.ndarray, t: np.ndarray) -> float:
    return float(2 - np.mean(np.abs(numbers(h) * np.exp(1j * r) - numbers(t)) ** 2))


@pytest.mark.parametrize(("kind", "formula"), [(PassleafComplEx, complex_score), (PassleafRotatE, rotate_score)])
@pytest.mark.parametrize("side", ["head", "tail"])
def test_confidence_is_the_logistic_of_a_line_over_the_score(kind: type[Model], formula, side) -> None:  # type: ignore[no-untyped-def]
    random, model = np.random.default_rng(1), kind().with_dense(SCALE)
    head, tail = random.normal(size=(2, 6, model.entity_width(K)))
    relation = random.normal(size=(6, model.relation_width(K)))
    lines = [1.7 * formula(*rows) - 0.4 for rows in zip(head, relation, tail, strict=True)]
    score = model.score(*map(torch.from_numpy, (head, relation, tail)), side)
    np.testing.assert_allclose(score, lines, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(model.confidence(score), 1 / (1 + np.exp(-np.array(lines))), rtol=1e-10)


def test_a_turn_keeps_its_angle_and_a_head_is_found_by_turning_back() -> None:
    """A tail that is the turned head has the highest score there is, 2, and no other has."""
    model, random = PassleafRotatE(), torch.Generator().manual_seed(2)
    head, angle = torch.randn(1, 2 * K, generator=random), torch.randn(1, K, generator=random)
    turned = torch.view_as_real(torch.complex(*head.chunk(2, -1)) * torch.polar(torch.ones(1, K), angle))
    tail = torch.cat([turned[..., 0], turned[..., 1]], -1)
    assert model.score(head, angle, tail).item() == pytest.approx(2, abs=1e-5)
    assert model.score(head, angle + 2 * math.pi, tail).item() == pytest.approx(2, abs=1e-4)
    assert (model.score(head, angle, tail + 0.1 * torch.randn(1, 2 * K, generator=random)) < 2).all()


def test_first_angles_are_everywhere() -> None:
    settings = Settings.of(model="passleaf-rotate", dim=50)
    tables = initial_tables(settings, settings.make_model(), 300, 40)
    angles = tables["relation"]
    assert angles.shape == (40, 50)
    assert -math.pi <= angles.min() < -0.98 * math.pi
    assert 0.98 * math.pi < angles.max() <= math.pi
    assert angles.std().item() == pytest.approx(math.pi / math.sqrt(3), rel=0.05)
    assert tables["entity"].std().item() == pytest.approx(0.3, rel=0.05)


def test_complex_is_served_by_fused_loops_and_rotate_is_not() -> None:
    assert PassleafComplEx().plain()
    assert not PassleafRotatE().plain()


def test_entities_with_equal_rows_tie_though_products_round() -> None:
    rows = torch.randn(7, 2 * K, generator=torch.Generator().manual_seed(4))
    rows = torch.cat([rows, rows])
    engine = ReferenceEngine(PassleafRotatE(), rows, torch.randn(2, K))
    scores = engine.score_all(torch.arange(14), torch.tensor([0, 1] * 7), "tail")
    assert torch.equal(scores[:, :7], scores[:, 7:])


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("FOCUSE_DATA"), reason="FOCUSE_DATA names no folder with the data sets")
def test_nl27k_is_learnt_about_as_published() -> None:
    """unKR has an MRR of tails of .662; UKGE an MSE of .0236 where every other triple is false (means: .34)."""
    path = Path(__file__).parents[2] / "benchmarks" / "uncertain.py"
    found = runpy.run_path(str(path))["trained"]("nl27k", "passleaf-complex", 0, {})
    assert found["mrr"] > 0.65
    assert found["ukge"][0] < 0.035
    assert found["facts"][0] < 0.05


def test_n3_counts_the_sizes_of_complex_numbers_and_no_angles() -> None:
    model = PassleafRotatE()
    np.testing.assert_allclose(model.moduli("entity", torch.tensor([[3.0, 0.0, 4.0, 2.0]])), [[5.0, 2.0]])
    np.testing.assert_allclose(model.moduli("relation", torch.tensor([[3.0, -1.0]])), [[1.0, 1.0]])
