"""Translational models against their equations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

import focuse
from focuse import FocuseError
from focuse.config import Config
from focuse.data.graph import Graph
from focuse.models.base import moduli, score_triples
from focuse.models.translational import GTransE, PairRE, RotatE, TransE, TransEL2
from focuse.objective.losses import FocusedLoss, make_loss
from focuse.training.problem import init_tables

# ---- transe ---------------------------------------------------------------------------------------------------------

NORMS = {TransE: 1, TransEL2: 2}


@pytest.mark.parametrize("model_class", NORMS)
def test_transe_score_is_the_negative_distance(model_class: type[TransE]) -> None:
    head, relation, tail = np.random.default_rng(0).normal(size=(3, 6, 5))
    power = NORMS[model_class]
    expected = -((np.abs(head + relation - tail) ** power).sum(axis=1) ** (1 / power))
    scores = score_triples(model_class(), *map(torch.from_numpy, (head, relation, tail)))
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


@pytest.mark.parametrize("model_class", NORMS)
def test_transe_exact_translation_scores_zero(model_class: type[TransE]) -> None:
    head, relation = torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5, 4.0]])
    assert score_triples(model_class(), head, relation, head + relation).item() == 0.0


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.floats(1e-3, 1e3))
def test_transe_scores_are_never_above_zero(seed: int, size: float) -> None:
    rows = torch.from_numpy(np.random.default_rng(seed).normal(scale=size, size=(4, 3, 2)).astype(np.float32))
    for model_class in NORMS:
        assert (score_triples(model_class(), rows[0], rows[1], rows[2]) <= 0).all()
        assert (
            model_class().score_pool(model_class().query(rows[0], rows[1], "head"), rows[1], rows[3], "head") <= 0
        ).all()


def test_transe_scores_of_close_rows_keep_their_precision() -> None:
    """The usual shortcut ‖a‖² + ‖b‖² − 2ab cannot tell 1000 from 1000.001 in float32; ranks are decided there."""
    query, near = torch.full((1, 4), 1000.0), torch.full((30, 4), 1000.0)
    near[:, 0] += torch.arange(30) * 1e-3
    expected = -np.abs(near[:, 0].double().numpy() - 1000.0)
    for model_class in NORMS:
        scores = model_class().score_pool(query, torch.zeros(1, 4), near, "tail")
        np.testing.assert_allclose(scores[0], expected, rtol=1e-6)


# ---- gtranse --------------------------------------------------------------------------------------------------------


def formula(positive: np.ndarray, negative: np.ndarray, weight: np.ndarray, margin: float, power: float) -> list[float]:
    """Σ [ d(h, r, t) − d(h', r, t') + s^α M ]₊ with d = −f."""
    return [
        sum(max(0.0, -p - (-n) + w**power * margin) for n in row)
        for p, row, w in zip(positive, negative, weight, strict=True)
    ]


def test_gtranse_score_is_that_of_transe() -> None:
    head, relation, tail = (torch.randn(4, 6) for _ in range(3))
    assert torch.equal(score_triples(GTransE(), head, relation, tail), score_triples(TransE(), head, relation, tail))


@pytest.mark.parametrize(
    ("text", "margin", "power"),
    [("confidence-margin", 1.0, 1.0), ("confidence-margin:4,2", 4.0, 2.0), ("confidence-margin:power=0", 1.0, 0.0)],
)
def test_gtranse_loss_matches_its_formula(text: str, margin: float, power: float) -> None:
    random = np.random.default_rng(3)
    positive, negative, weight = random.normal(size=5), random.normal(size=(5, 4)), random.random(5)
    weight[0] = 0.0
    mask = random.random((5, 4)) < 0.6
    objective = FocusedLoss(make_loss(text))
    given = torch.from_numpy(positive), torch.from_numpy(negative), torch.from_numpy(weight)
    expected = formula(positive, negative, weight, margin, power)
    np.testing.assert_allclose(objective(*given, None, 1.0), expected, rtol=1e-12)
    rows = [row[kept] for row, kept in zip(negative, mask, strict=True)]
    masked = [sum(formula([p], [row], [w], margin, power)) for p, row, w in zip(positive, rows, weight, strict=True)]
    np.testing.assert_allclose(objective(*given, torch.from_numpy(mask), 1.0), masked, rtol=1e-12)
    leaves = given[0].requires_grad_(), given[1].requires_grad_()
    assert gradcheck(lambda p, n: objective(p, n, given[2], None, 1.0), leaves)
    assert objective.fused is None


def test_gtranse_with_power_0_is_the_plain_margin_loss() -> None:
    random = torch.Generator().manual_seed(1)
    positive, negative, weight = (torch.rand(*shape, generator=random) for shape in ((6,), (6, 3), (6,)))
    plain = FocusedLoss(make_loss("margin:2"))(positive, negative, weight, None, 1.0)
    torch.testing.assert_close(
        FocusedLoss(make_loss("confidence-margin:2,0"))(positive, negative, weight, None, 1.0), plain
    )


def test_gtranse_weights_change_the_result(small: Graph) -> None:
    quick = {"model": "gtranse", "dim": 8, "epochs": 3, "lr": 1e-2, "progress": False}
    with_weights, without = (focuse.train(small, loss=f"confidence-margin:power={power}", **quick) for power in (2, 0))
    assert not torch.equal(with_weights.scorer.tables["entity"], without.scorer.tables["entity"])
    assert with_weights.history[-1]["loss"] < with_weights.history[0]["loss"]
    assert with_weights.settings.weight_mode == "none"
    assert 0 < with_weights.evaluate().all.mrr <= 1


@pytest.mark.parametrize("model", ["transe", "complex"])
def test_gtranse_loss_can_be_used_by_other_models(small: Graph, model: str) -> None:
    run = focuse.train(
        small, model=model, loss="confidence-margin:2", weight_mode="none", dim=8, epochs=2, lr=1e-2, progress=False
    )
    assert run.settings.weight_mode == "none"
    assert run.history[-1]["loss"] < run.history[0]["loss"]


@pytest.mark.parametrize("weight_mode", ["soft-labels", "focuse"])
def test_gtranse_loss_refuses_focus(weight_mode: str) -> None:
    with pytest.raises(FocuseError, match="loss 'confidence-margin' uses the weights itself and requires weight_mode"):
        Config.from_kwargs(model="gtranse", weight_mode=weight_mode)
    found = Config.from_kwargs(model="gtranse", weight_mode=weight_mode, loss="multiclass-nll")
    assert (found.weight_mode, found.loss) == (weight_mode, "multiclass-nll")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"loss": "confidence-margin", "weight_mode": "focuse"},
            "uses the weights itself and requires weight_mode 'none'",
        ),
        ({"loss": "confidence-margin:power=-1"}, "give numbers of at least 0"),
        ({"loss": "confidence-margin:weight=1"}, "it takes margin, power"),
        ({"loss": "confidence-margin", "model": "ukge-logi"}, "by the loss 'squared-error'"),
    ],
)
def test_gtranse_invalid_options_are_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(FocuseError, match=says):
        Config.from_kwargs(**given)


# ---- rotate ---------------------------------------------------------------------------------------------------------

SIZE, ROTATE_DIM = 6, 4


def draw(seed: int) -> tuple[list[np.ndarray], list[torch.Tensor]]:
    """Heads, angles and tails as NumPy's numbers, and the same as rows of real parts, then imaginary parts."""
    random = np.random.default_rng(seed)
    head, tail = random.normal(size=(2, SIZE, ROTATE_DIM)) + 1j * random.normal(size=(2, SIZE, ROTATE_DIM))
    angle = random.uniform(-np.pi, np.pi, size=(SIZE, ROTATE_DIM))
    rows = [torch.from_numpy(np.concatenate([part.real, part.imag], axis=-1)) for part in (head, tail)]
    return [head, angle, tail], [rows[0], torch.from_numpy(angle), rows[1]]


@pytest.mark.parametrize("side", ["head", "tail"])
def test_rotate_score_is_the_negative_distance_after_rotation(side: str) -> None:
    (head, angle, tail), rows = draw(2)
    expected = -np.abs(head * np.exp(1j * angle) - tail).sum(-1)
    np.testing.assert_allclose(score_triples(RotatE(), *rows, side), expected, rtol=1e-12)


def test_rotate_exact_rotation_scores_zero() -> None:
    (head, angle, _), (h, r, _) = draw(3)
    turned = head * np.exp(1j * angle)
    tail = torch.from_numpy(np.concatenate([turned.real, turned.imag], axis=-1))
    np.testing.assert_allclose(score_triples(RotatE(), h, r, tail), 0.0, atol=1e-13)


def test_rotate_by_180_degrees_is_symmetric_and_by_90_is_not() -> None:
    _, (h, r, t) = draw(4)
    half, quarter = torch.full_like(r, np.pi), torch.full_like(r, np.pi / 2)
    torch.testing.assert_close(score_triples(RotatE(), h, half, t), score_triples(RotatE(), t, half, h))
    assert ((score_triples(RotatE(), h, quarter, t) - score_triples(RotatE(), t, quarter, h)).abs() > 1e-3).all()


def test_rotate_moduli_are_those_of_entities_only() -> None:
    """A penalty on sizes must leave angles alone: |e^(iθ)| is 1."""
    (head, angle, _), (h, r, _) = draw(5)
    np.testing.assert_allclose(moduli(RotatE(), "entity", h), np.abs(head), rtol=1e-12)
    np.testing.assert_allclose(moduli(RotatE(), "relation", r), np.abs(np.exp(1j * angle)), rtol=1e-12)
    r.requires_grad_()
    assert not moduli(RotatE(), "relation", r).requires_grad


@pytest.mark.parametrize("spread", [None, 0.01, 3.0])
def test_rotate_initial_angles_are_uniform(spread: float | None) -> None:
    settings = Config.from_kwargs(model="rotate", dim=200, init_std=spread)
    tables = init_tables(settings, RotatE(), entities=3, relations=20)
    assert tables["entity"].shape == (3, 400)
    angle = tables["relation"].flatten().sort().values
    assert angle.abs().max() <= np.pi
    even = torch.linspace(-np.pi, np.pi, angle.numel())
    assert (angle - even).abs().max() < 0.15  # Kolmogorov's distance of 4,000 draws: 0.15 / 2π, p < 0.02
    again = init_tables(settings, RotatE(), entities=3, relations=20)
    assert torch.equal(again["relation"], tables["relation"])


# ---- pairre ---------------------------------------------------------------------------------------------------------

PAIRRE_DIM = 4


@pytest.mark.parametrize("side", ["head", "tail"])
def test_pairre_score_is_the_distance_of_weighted_unit_vectors(side: str) -> None:
    random = np.random.default_rng(1)
    head, tail, relation = *random.normal(size=(2, 6, PAIRRE_DIM)), random.normal(size=(6, 2, PAIRRE_DIM))
    expected = []
    for h, r, t in zip(head, relation, tail, strict=True):
        h, t = h / np.sqrt((h**2).sum()), t / np.sqrt((t**2).sum())
        expected.append(-sum(abs(h[i] * r[0, i] - t[i] * r[1, i]) for i in range(PAIRRE_DIM)))
    rows = (torch.from_numpy(part).flatten(1) for part in (head, relation, tail))
    np.testing.assert_allclose(score_triples(PairRE(), *rows, side), expected, rtol=1e-12)


def test_pairre_score_is_independent_of_entity_length() -> None:
    head, tail, relation = *torch.randn(2, 6, PAIRRE_DIM), torch.randn(6, 2 * PAIRRE_DIM)
    torch.testing.assert_close(
        score_triples(PairRE(), 3 * head, relation, tail / 7), score_triples(PairRE(), head, relation, tail)
    )
