"""The layer against the paper's equations, written out in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

import focuse
from focuse.config import Config
from focuse.errors import FocuseError
from focuse.models.registry import make_model, model_class
from focuse.objective.focuse import NONLINEARITIES, FocusELayer, SoftLabels, default_nonlinearity, make_nonlinearity

FORMULAS = {
    "softplus": lambda x: np.logaddexp(0.0, x),
    # ln(1 + 9999·eˣ), stable: the logarithm of a sum of e⁰ and e^(x + ln 9999).
    "shifted-softplus": lambda x: np.logaddexp(0.0, x + np.log(9999.0)),
    "linear": lambda x: x,
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "tanh": np.tanh,
}
SMOOTH = st.floats(-30, 30)
UNIT = st.floats(0, 1)


def test_every_nonlinearity_is_checked_here() -> None:
    assert set(FORMULAS) == set(NONLINEARITIES)


@pytest.mark.parametrize("name", FORMULAS)
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_layer_matches_the_papers_equations(name: str, data: st.DataObject) -> None:
    batch, negatives = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    numbers = data.draw(st.lists(SMOOTH, min_size=batch * (negatives + 1), max_size=batch * (negatives + 1)))
    scores = np.array(numbers).reshape(batch, negatives + 1)
    weight = np.array(data.draw(st.lists(UNIT, min_size=batch, max_size=batch)))
    beta = data.draw(UNIT)
    arrays = map(torch.from_numpy, (scores[:, 0].copy(), scores[:, 1:].copy(), weight))
    positive, negative = FocusELayer(name)(*arrays, beta)
    assert positive.shape == (batch,)
    assert negative.shape == (batch, negatives)
    for row in range(batch):
        w = weight[row]
        alpha_positive, alpha_negative = beta + (1 - w) * (1 - beta), beta + w * (1 - beta)
        expected = FORMULAS[name](scores[row])
        np.testing.assert_allclose(positive[row], alpha_positive * expected[0], rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(negative[row], alpha_negative * expected[1:], rtol=1e-8, atol=1e-12)


def test_alpha_of_a_positive_and_negative_by_hand() -> None:
    """β = 0.25, w = 0.8: α⁺ = 0.25 + 0.2·0.75 = 0.4 and α⁻ = 0.25 + 0.8·0.75 = 0.85."""
    one = torch.ones(1, dtype=torch.float64)
    positive, negative = FocusELayer("linear")(one, one[:, None], 0.8 * one, 0.25)
    assert positive.item() == pytest.approx(0.4, abs=1e-15)
    assert negative.item() == pytest.approx(0.85, abs=1e-15)


@settings(deadline=None, max_examples=50)
@given(st.floats(-600, 600))
def test_shifted_softplus_matches_the_authors_code(x: float) -> None:
    expected = math.log1p(9999.0 * math.exp(x))
    value = NONLINEARITIES["shifted-softplus"](torch.tensor(x, dtype=torch.float64)).item()
    assert value == pytest.approx(expected, rel=1e-8, abs=1e-300)


@pytest.mark.parametrize("name", FORMULAS)
def test_gradients_match_finite_differences(name: str) -> None:
    random = torch.Generator().manual_seed(3)
    positive = torch.randn(3, generator=random, dtype=torch.float64, requires_grad=True)
    negative = torch.randn(3, 4, generator=random, dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64)
    assert gradcheck(lambda p, n: FocusELayer(name)(p, n, weight, 0.4), (positive, negative))


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_extreme_scores_stay_finite(name: str, beta: float) -> None:
    positive = torch.tensor([1e4, -1e4, 1e4, -1e4, 0.0], requires_grad=True)
    negative = torch.tensor([[1e4, -1e4]] * 5, requires_grad=True)
    weight = torch.tensor([0.0, 0.0, 1.0, 1.0, 0.5])
    focused = torch.cat([part.flatten() for part in FocusELayer(name)(positive, negative, weight, beta)])
    focused.sum().backward()
    assert focused.isfinite().all()
    for part in (positive, negative):
        assert part.grad is not None
        assert part.grad.isfinite().all()


def test_beta_1_with_linear_layer_equals_the_plain_model() -> None:
    random = torch.Generator().manual_seed(11)
    scores = torch.randn(6, 5, generator=random)
    weight, slope = torch.rand(6, generator=random), torch.randn(6, 5, generator=random)
    positive, negative = scores[:, 0].clone().requires_grad_(), scores[:, 1:].clone().requires_grad_()
    h_positive, h_negative = FocusELayer("linear")(positive, negative, weight, 1.0)
    assert torch.equal(h_positive, positive)
    assert torch.equal(h_negative, negative)
    ((h_positive * slope[:, 0]).sum() + (h_negative * slope[:, 1:]).sum()).backward()
    assert positive.grad is not None
    assert negative.grad is not None
    assert torch.equal(positive.grad, slope[:, 0])
    assert torch.equal(negative.grad, slope[:, 1:])


def test_positive_of_weight_1_has_no_gradient_at_beta_0() -> None:
    """w = 1, β = 0: α⁺ = 0 and α⁻ = 1; w = 0 the other way round."""
    positive = torch.tensor([2.0, 2.0], requires_grad=True)
    negative = torch.tensor([[1.0], [1.0]], requires_grad=True)
    h_positive, h_negative = FocusELayer()(positive, negative, torch.tensor([1.0, 0.0]), 0.0)
    (h_positive.sum() + h_negative.sum()).backward()
    assert positive.grad is not None
    assert negative.grad is not None
    assert h_positive[0] == 0
    assert positive.grad[0] == 0
    assert positive.grad[1] > 0.5
    assert h_negative[1] == 0
    assert negative.grad[1] == 0
    assert negative.grad[0] > 0.5


# ---- β's schedule ---------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(decay=st.integers(1, 1000), epoch=st.integers(0, 2000), floor=UNIT)
def test_beta_falls_linearly_to_its_floor(decay: int, epoch: int, floor: float) -> None:
    expected = max((decay - epoch) / decay, 0.0)
    assert FocusELayer(beta_decay_epochs=decay).beta(epoch) == pytest.approx(expected, abs=1e-12)
    assert FocusELayer(beta_decay_epochs=decay, beta_min=floor).beta(epoch) == pytest.approx(
        max(expected, floor), abs=1e-12
    )


def test_beta_starts_at_one_and_ends_at_zero() -> None:
    layer = FocusELayer(beta_decay_epochs=800)
    assert layer.beta(0) == 1.0
    assert layer.beta(200) == 0.75
    assert layer.beta(800) == layer.beta(4000) == 0.0


def test_no_decay_means_zero_from_the_start() -> None:
    assert [FocusELayer(beta_decay_epochs=0).beta(epoch) for epoch in (0, 1, 50)] == [0.0, 0.0, 0.0]
    assert FocusELayer(beta_decay_epochs=0, beta_min=0.001).beta(0) == 0.001


@settings(deadline=None, max_examples=50)
@given(fixed=UNIT, epoch=st.integers(0, 500))
def test_fixed_beta_ignores_the_schedule(fixed: float, epoch: int) -> None:
    assert FocusELayer(beta_decay_epochs=10, beta_min=0.5, fixed_beta=fixed).beta(epoch) == fixed


# ---- what it refuses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"nonlinearity": "softpluss"}, "did you mean"),
        ({"beta_decay_epochs": -1}, "negative"),
        ({"beta_min": -0.1}, "beta_min"),
        ({"beta_min": 1.1}, "beta_min"),
        ({"beta_min": math.nan}, "beta_min"),
        ({"fixed_beta": -0.1}, "beta"),
        ({"fixed_beta": 1.5}, "beta"),
        ({"fixed_beta": math.nan}, "beta"),
    ],
)
def test_options_out_of_range_are_errors(options: dict[str, Any], word: str) -> None:
    with pytest.raises(FocuseError, match=word):
        FocusELayer(**options)


@pytest.mark.parametrize(
    ("positive", "negative", "weight"),
    [
        ((3,), (3, 2), (2,)),
        ((3,), (3, 2), (1,)),
        ((3,), (3, 2), ()),
        ((1,), (3, 2), (1,)),
        ((3,), (2, 2), (3,)),
        ((3,), (3,), (3,)),
        ((3,), (3, 2, 2), (3,)),
        ((3, 1), (3, 2), (3, 1)),
    ],
)
def test_wrong_shapes_are_errors(positive: tuple[int, ...], negative: tuple[int, ...], weight: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="shapes do not fit"):
        FocusELayer()(torch.zeros(positive), torch.zeros(negative), torch.zeros(weight), 0.5)


def test_distance_models_get_the_shifted_softplus() -> None:
    """Also those that measure a distance in their own way, and through the settings."""
    for name in ("transe", "transe-l2", "rotate", "pairre"):
        assert default_nonlinearity(model_class(name)) == "shifted-softplus"
        assert default_nonlinearity(make_model(name)) == "shifted-softplus"
        run = focuse.train([("a", "r", "b", 1.0), ("b", "r", "c", 0.5)], model=name, dim=2, epochs=1,
                           weight_mode="focuse", valid_fraction=0.0, test_fraction=0.0, progress=False)  # fmt: skip
        assert run.settings.nonlinearity == "shifted-softplus"
    for name in ("complex", "quate", "hole", "simple", "cp", "rescal", "tucker"):
        assert default_nonlinearity(model_class(name)) == "softplus"


@pytest.mark.parametrize("margin", ["24", "9.5", "-1", "0"])
def test_shift_can_be_given(margin: str) -> None:
    scores = torch.linspace(-40, 10, 11, dtype=torch.float64)
    expected = np.logaddexp(0.0, scores.numpy() + float(margin))
    np.testing.assert_allclose(make_nonlinearity(f"shifted-softplus:{margin}")(scores).numpy(), expected, rtol=1e-9)
    layer = FocusELayer(f"shifted-softplus:{margin}")
    positive, _ = layer(scores, scores[:, None], torch.ones(11, dtype=torch.float64), 0.5)
    np.testing.assert_allclose(positive.numpy(), 0.5 * expected, rtol=1e-9)


@pytest.mark.parametrize(
    "text", ["softplus:3", "shifted-softplus:x", "shifted-softplus:nan", "shifted-softplus:", "tan:1"]
)
def test_wrong_shift_is_an_error(text: str) -> None:
    with pytest.raises(FocuseError, match="nonlinearity"):
        FocusELayer(text)
    with pytest.raises(FocuseError, match="nonlinearity"):
        Config.from_kwargs(weight_mode="focuse", nonlinearity=text)


class TestSoftLabels:
    @pytest.mark.parametrize("exponent", [0.0, 1.0, 2.5, 16.0])
    def test_soft_label_is_a_power_of_the_weight(self, exponent):
        weight = torch.linspace(0, 1, 11)
        np.testing.assert_allclose(SoftLabels(exponent)(weight), weight.numpy() ** exponent, rtol=1e-6)

    def test_exponent_0_labels_every_triple_1_but_false_ones(self):
        assert SoftLabels(0.0)(torch.tensor([0.0, 0.3, 1.0, -1.0])).tolist() == [1.0, 1.0, 1.0, -1.0]

    def test_false_triples_keep_a_negative_label(self):
        assert (SoftLabels(3.0)(torch.tensor([-1.0, -0.2])) < 0).all()
