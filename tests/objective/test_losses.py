"""Every loss against its formula in NumPy, with and without a mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from focuse.errors import FocuseError
from focuse.models.base import ConfidenceHead
from focuse.models.bilinear import DistMult
from focuse.models.registry import make_model
from focuse.objective.focuse import FocusELayer
from focuse.objective.losses import LOSSES, FocusedLoss, SoftLabelLoss, SquaredError, make_loss

SCORES = st.floats(-50, 50)


def log_logistic(x: np.ndarray | float) -> np.ndarray | float:
    return -np.logaddexp(0.0, -np.asarray(x))


def np_multiclass(p: float, n: np.ndarray) -> float:
    scores = np.array([p, *n])
    top = scores.max()
    return float(-(p - top - np.log(np.exp(scores - top).sum())))


def np_adversarial(p: float, n: np.ndarray, margin: float, temperature: float) -> float:
    share = np.exp(temperature * (n - n.max(initial=-np.inf)))
    share = share / share.sum() if len(n) else share
    return float(-log_logistic(margin + p) - (share * log_logistic(-n - margin)).sum())


# One positive p and the negatives n that count -> its loss.
FORMULAS: dict[str, Callable[[float, np.ndarray], float]] = {
    "multiclass-nll": np_multiclass,
    "pairwise-nll": lambda p, n: sum(np_multiclass(p, np.array([one])) for one in n),
    "nll": lambda p, n: -log_logistic(p) - sum(log_logistic(-one) for one in n),
    "bce": lambda p, n: -np.mean([log_logistic(p), *(log_logistic(-one) for one in n)]),
    "margin": lambda p, n: sum(max(0.0, 1.0 + one - p) for one in n),
    "margin:2": lambda p, n: sum(max(0.0, 2.0 + one - p) for one in n),
    "self-adversarial": lambda p, n: np_adversarial(p, n, 3.0, 0.5),
    "self-adversarial:margin=6,temperature=0.7": lambda p, n: np_adversarial(p, n, 6.0, 0.7),
}


def test_every_loss_is_checked_here() -> None:
    assert set(LOSSES) == {text.partition(":")[0] for text in FORMULAS}


@pytest.mark.parametrize("text", FORMULAS)
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_loss_matches_its_formula(text: str, data: st.DataObject) -> None:
    batch, count = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    cells = data.draw(st.lists(SCORES, min_size=batch * (count + 1), max_size=batch * (count + 1)))
    scores = np.array(cells).reshape(batch, count + 1)
    masked = data.draw(st.booleans())
    flags = st.lists(st.booleans(), min_size=batch * count, max_size=batch * count)
    mask = np.array(data.draw(flags) if masked else [True] * (batch * count)).reshape(batch, count)
    positive, negative = torch.from_numpy(scores[:, 0].copy()), torch.from_numpy(scores[:, 1:].copy())
    values = make_loss(text)(positive, negative, torch.from_numpy(mask) if masked else None)
    expected = [FORMULAS[text](row[0], row[1:][kept]) for row, kept in zip(scores, mask, strict=True)]
    assert values.shape == (batch,)
    np.testing.assert_allclose(values, expected, rtol=1e-8, atol=1e-7)  # torch's softplus is x above 20


def sample(batch: int = 3, count: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(5)
    positive = torch.randn(batch, generator=random, dtype=torch.float64)
    negative = torch.randn(batch, count, generator=random, dtype=torch.float64)
    return positive.requires_grad_(), negative.requires_grad_(), torch.rand(batch, count, generator=random) < 0.6


@pytest.mark.parametrize("text", [text for text in FORMULAS if "adversarial" not in text])
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_match_finite_differences(text: str, masked: bool) -> None:
    positive, negative, mask = sample()
    loss = make_loss(text)
    assert gradcheck(lambda p, n: loss(p, n, mask if masked else None), (positive, negative))


@pytest.mark.parametrize("masked", [False, True])
def test_self_adversarial_weights_have_no_gradient(masked: bool) -> None:
    """Its gradient is that of the same loss with the shares put in as numbers."""
    positive, negative, mask = sample()
    used = mask.numpy() if masked else np.ones(mask.shape, dtype=bool)
    raw = np.where(used, np.exp(0.5 * negative.detach().numpy()), 0.0)
    share = torch.from_numpy(raw / raw.sum(1, keepdims=True))

    def constant(p: Tensor, n: Tensor) -> Tensor:
        return -torch.log(torch.sigmoid(3 + p)) - (share * torch.log(torch.sigmoid(-n - 3))).sum(1)

    assert gradcheck(constant, (positive, negative))
    expected = torch.autograd.grad(constant(positive, negative).sum(), (positive, negative))
    loss = make_loss("self-adversarial")(positive, negative, mask if masked else None)
    for got, wanted in zip(torch.autograd.grad(loss.sum(), (positive, negative)), expected, strict=True):
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("junk", [7.0, 1e4, -1e4, float("inf")])
def test_masked_negatives_have_no_influence(text: str, junk: float) -> None:
    positive, negative, mask = sample()
    loss = make_loss(text)
    other = torch.where(mask, negative.detach(), torch.full_like(negative, junk)).requires_grad_()
    value, changed = loss(positive, negative, mask), loss(positive, other, mask)
    assert torch.equal(value, changed)
    value.sum().backward()
    assert positive.grad is not None
    first, positive.grad = positive.grad, None
    changed.sum().backward()
    assert negative.grad is not None
    assert other.grad is not None
    assert torch.equal(first, positive.grad)
    assert torch.equal(negative.grad, other.grad)
    assert (other.grad[~mask] == 0).all()


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("masked", [False, True])
def test_extreme_scores_stay_finite(text: str, masked: bool) -> None:
    corners = torch.tensor([[a, b, c] for a in (1e4, -1e4) for b in (1e4, -1e4) for c in (1e4, -1e4)])
    positive, negative = corners[:, 0].clone().requires_grad_(), corners[:, 1:].clone().requires_grad_()
    mask = torch.tensor([[True, False]] * len(corners)) if masked else None
    values = make_loss(text)(positive, negative, mask)
    values.sum().backward()
    assert values.isfinite().all()
    for part in (positive, negative):
        assert part.grad is not None
        assert part.grad.isfinite().all()


def test_small_losses_keep_their_precision() -> None:
    """ln(1 + 3·e⁻³⁰) in float32: a difference of two numbers near 50 would be 0, or off by far."""
    positive, negative = torch.tensor([50.0], requires_grad=True), torch.full((1, 3), 20.0)
    value = make_loss("multiclass-nll")(positive, negative, None)
    value.sum().backward()
    assert positive.grad is not None
    assert value.item() == pytest.approx(3 * np.exp(-30.0), rel=1e-4)
    assert positive.grad.item() == pytest.approx(-3 * np.exp(-30.0), rel=1e-4)


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("count", [0, 3])
def test_a_positive_without_negatives_is_finite(text: str, count: int) -> None:
    positive = torch.tensor([1.5, -0.5], dtype=torch.float64, requires_grad=True)
    negative = torch.ones(2, count, dtype=torch.float64, requires_grad=True)
    values = make_loss(text)(positive, negative, torch.zeros(2, count, dtype=torch.bool))
    values.sum().backward()
    expected = [FORMULAS[text](p, np.array([])) for p in (1.5, -0.5)]
    np.testing.assert_allclose(values.detach(), expected, rtol=1e-12, atol=1e-15)
    assert positive.grad is None or positive.grad.isfinite().all()
    assert negative.grad is None or (negative.grad == 0).all()


# ---- how it is written ----------------------------------------------------------------------------------------------


def test_positional_and_named_parameters_are_equivalent() -> None:
    positive, negative, _ = sample()
    for one, other in (
        ("margin:2", "margin:margin=2"),
        ("margin", "margin:1"),
        ("self-adversarial:6,0.7", "self-adversarial:temperature=0.7,margin=6"),
        ("self-adversarial:6", "self-adversarial:margin=6,temperature=0.5"),
    ):
        assert torch.equal(make_loss(one)(positive, negative, None), make_loss(other)(positive, negative, None))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("margn", "did you mean margin"),
        ("", "unknown loss"),
        ("margin:two", "not a number"),
        ("margin:nan", "not a number"),
        ("margin:gamma=2", "takes margin"),
        ("margin:1,2", "takes margin"),
        ("self-adversarial:margin=6,heat=1", "takes margin, temperature"),
        ("nll:3", "takes no numbers"),
        ("bce:margin=3", "takes no numbers"),
        ("squared-error:3", "takes no numbers"),
        ("margin:2,margin=3", "margin is given twice"),
        ("mse", "confidence-margin, squared-error"),
    ],
)
def test_wrong_loss_options_are_errors(text: str, word: str) -> None:
    with pytest.raises(FocuseError, match=word):
        make_loss(text)


# ---- layer, then loss -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", FORMULAS)
def test_objective_applies_focus_before_the_loss(text: str) -> None:
    positive, negative, mask = (part.detach() for part in sample())
    weight, beta = torch.tensor([0.0, 0.4, 1.0], dtype=torch.float64), 0.3
    values = FocusedLoss(make_loss(text), FocusELayer("softplus"))(positive, negative, weight, mask, beta)
    for row in range(3):
        w = float(weight[row])
        h_positive = (beta + (1 - w) * (1 - beta)) * np.logaddexp(0, positive[row].numpy())
        h_negative = (beta + w * (1 - beta)) * np.logaddexp(0, negative[row].numpy())
        expected = FORMULAS[text](float(h_positive), h_negative[mask[row].numpy()])
        np.testing.assert_allclose(values[row], expected, rtol=1e-9)


def test_without_focus_the_weight_is_ignored() -> None:
    positive, negative, mask = sample()
    plain = FocusedLoss(make_loss("nll"))
    heavy, light = torch.ones(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    expected = make_loss("nll")(positive, negative, mask)
    assert torch.equal(plain(positive, negative, heavy, mask, 0.0), expected)
    assert torch.equal(plain(positive, negative, light, mask, 0.7), expected)


@pytest.mark.parametrize("layer", [None, FocusELayer()])
@pytest.mark.parametrize(
    ("positive", "negative", "mask"),
    [((3,), (3, 4), (3, 3)), ((3,), (3, 4), (3, 1)), ((1,), (3, 4), None), ((3, 1), (3, 4), None), ((3,), (3,), None)],
)
def test_wrong_shapes_are_errors(
    layer: FocusELayer | None, positive: tuple[int, ...], negative: tuple[int, ...], mask: tuple[int, ...] | None
) -> None:
    hidden = None if mask is None else torch.ones(mask, dtype=torch.bool)
    with pytest.raises(ValueError, match="fit"):
        FocusedLoss(make_loss("pairwise-nll"), layer)(
            torch.zeros(positive), torch.zeros(negative), torch.zeros(positive), hidden, 0.5
        )


# ---- UKGE's squared error -------------------------------------------------------------------------------------------

PHI = {"ukge-logi": lambda f: 1 / (1 + np.exp(-f)), "ukge-rect": lambda f: f}
NAMES = pytest.mark.parametrize("name", PHI)


def squared_error(name: str, share: float = 0.2) -> SquaredError:
    return SquaredError(make_model(name).confidence_head, share)


@NAMES
@pytest.mark.parametrize("masked", [False, True])
def test_squared_error_matches_its_formula(name: str, masked: bool) -> None:
    positive, negative, mask = (part.detach() for part in sample())
    mask[1] = False  # a positive without any negative
    weight = torch.tensor([0.0, 0.4, 1.0], dtype=torch.float64)
    values = squared_error(name)(positive, negative, weight, mask if masked else None, 0.3)
    assert values.shape == (3,)
    for row in range(3):
        others = negative[row].numpy()[mask[row].numpy()] if masked else negative[row].numpy()
        expected = (PHI[name](float(positive[row])) - float(weight[row])) ** 2
        expected += np.mean(PHI[name](others) ** 2) if len(others) else 0.0
        assert float(values[row]) == pytest.approx(expected, rel=1e-12)
    assert torch.equal(values, squared_error(name)(positive, negative, weight, mask if masked else None, 1.0))


@NAMES
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_of_the_squared_error(name: str, masked: bool) -> None:
    positive, negative, mask = sample()
    weight = torch.rand(3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    objective = squared_error(name)
    assert gradcheck(lambda p, n: objective(p, n, weight, mask if masked else None, 0.0), (positive, negative))
    objective(positive, negative, weight, mask, 0.0).sum().backward()
    assert negative.grad is not None
    assert ((negative.grad != 0) == mask).all()  # rect: nor does a bound stop it


@NAMES
@pytest.mark.parametrize("share", [0.2, 1.5, 0.0])
def test_rule_loss_counts_only_confidence_below_the_bound(name: str, share: float) -> None:
    random = np.random.default_rng(3)
    scores, bounds = random.normal(size=9), random.random(9)
    missing = np.maximum(0.0, bounds - PHI[name](scores))
    assert 0 < (missing > 0).sum() < 9
    f = torch.from_numpy(scores).requires_grad_()
    value = squared_error(name, share).rule_loss(f, torch.from_numpy(bounds))
    assert value.shape == ()
    assert float(value.detach()) == pytest.approx(share * np.mean(missing**2), rel=1e-12)
    assert gradcheck(lambda x: squared_error(name, share).rule_loss(x, torch.from_numpy(bounds)), (f,))
    value.backward()
    assert ((f.grad.numpy() != 0) == ((missing > 0) & (share > 0))).all()


def test_rule_weight_defaults_to_a_fifth() -> None:
    assert SquaredError(ConfidenceHead()).rule_weight == 0.2


@pytest.mark.parametrize(("negative", "mask"), [((3,), None), ((2, 4), None), ((3, 4), (3, 1)), ((3, 4), (3,))])
def test_wrong_shapes_of_the_squared_error_are_errors(negative: tuple[int, ...], mask: tuple[int, ...] | None) -> None:
    hidden = None if mask is None else torch.ones(mask, dtype=torch.bool)
    with pytest.raises(ValueError, match="fit"):
        squared_error("ukge-logi")(torch.zeros(3), torch.zeros(negative), torch.zeros(3), hidden, 0.5)


class TestSoftLabel:
    """−[q ln p + (1 − q) ln(1 − p)], p the share of the positive in a softmax."""

    @settings(deadline=None, max_examples=60)
    @given(data=st.data())
    def test_soft_label_loss_matches_its_formula(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, 4))
        narrow = st.floats(-8, 8)  # beyond, 1 − p below is rounded to 0
        positive, missing = data.draw(narrow), data.draw(st.floats(0, 5))
        negative = np.array(data.draw(st.lists(narrow, min_size=count, max_size=count)))
        kept = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
        label = data.draw(st.floats(0, 1))
        rivals = np.exp(negative[kept]).sum() * np.exp(missing)
        p = np.exp(positive) / (np.exp(positive) + rivals)
        expected = -(label * np.log(p) + (1 - label) * np.log1p(-p)) if kept.any() else 0.0
        tensors = (torch.tensor([positive], dtype=torch.float64), torch.from_numpy(negative)[None])
        found = SoftLabelLoss(missing)(
            *tensors, torch.tensor([label], dtype=torch.float64), torch.tensor(kept)[None], 1.0
        )
        np.testing.assert_allclose(found, [expected], rtol=1e-6, atol=1e-9)

    @pytest.mark.parametrize("masked", [False, True])
    def test_false_triples_are_compared_with_the_mean_negative(self, masked: bool) -> None:
        positive, negative, _ = sample()
        mask = torch.rand(negative.shape, generator=torch.Generator().manual_seed(3)) < 0.5 if masked else None
        found = SoftLabelLoss(2.0)(positive, negative, -torch.ones(3).double(), mask, 1.0).detach()
        for row in range(3):
            rivals = np.exp(negative.detach().numpy()[row])
            rivals = rivals if mask is None else rivals[mask[row].numpy()]
            expected = np.logaddexp(0, float(positive[row].detach()) - np.log(rivals.mean())) if len(rivals) else 0.0
            assert float(found[row]) == pytest.approx(expected, rel=1e-9)

    def test_soft_label_gradient_is_probability_minus_label(self) -> None:
        positive, negative, _ = sample()
        label = torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64)
        SoftLabelLoss()(positive, negative, label, None, 1.0).sum().backward()
        share = torch.softmax(torch.cat([positive[:, None], negative], 1), 1)[:, 0]
        torch.testing.assert_close(positive.grad, (share - label).detach())

    def test_gradients_match_finite_differences_without_negatives_too(self) -> None:
        positive, negative, mask = sample()
        mask[1] = False
        label = torch.rand(3, dtype=torch.float64)
        assert gradcheck(lambda p, n: SoftLabelLoss(0.7)(p, n, label, mask, 1.0), (positive, negative))

    def test_soft_label_1_gives_the_plain_softmax_loss(self) -> None:
        positive, negative, mask = sample()
        plain = make_loss("multiclass-nll")(positive, negative, mask)
        assert torch.equal(SoftLabelLoss()(positive, negative, torch.ones(3, dtype=torch.float64), mask, 0.2), plain)

    @pytest.mark.parametrize("scale", [1e4, -1e4])
    def test_soft_label_loss_of_large_scores_is_finite(self, scale: float) -> None:
        score = torch.tensor([scale], requires_grad=True)
        value = SoftLabelLoss()(score, torch.zeros(1, 3), torch.tensor([0.5]), None, 1.0)
        value.sum().backward()
        assert torch.isfinite(value).all()
        assert torch.isfinite(score.grad).all()

    def test_log_correction_estimates_the_loss_among_all_entities(self) -> None:
        """ln of how many more there are stands for the rivals that were not drawn."""
        random = torch.Generator().manual_seed(0)
        every = torch.randn(1, 20_000, generator=random, dtype=torch.float64)
        positive, label = torch.tensor([9.0], dtype=torch.float64), torch.tensor([0.4], dtype=torch.float64)
        few = every[:, torch.randint(20_000, (2_000,), generator=random)]
        whole = SoftLabelLoss()(positive, every, label, None, 1.0)
        estimate = SoftLabelLoss(float(np.log(20_000 / 2_000)))(positive, few, label, None, 1.0)
        assert abs(float(estimate - whole)) < 0.05
        assert abs(float(SoftLabelLoss()(positive, few, label, None, 1.0) - whole)) > 0.1


def test_confidence_uses_the_current_parameters_of_the_model() -> None:
    class BentHead(ConfidenceHead):
        def unclipped(self, score: torch.Tensor, parameters: Mapping[str, torch.Tensor]) -> torch.Tensor:
            return torch.sigmoid(parameters["bend"] * score)

    class Bent(DistMult):
        name, confidence_head = "bent", BentHead("bent")

    bend = torch.tensor(2.0, requires_grad=True)
    objective = SquaredError(Bent.confidence_head).for_model(Bent().bind({"bend": bend}))
    one = torch.ones(1)
    objective(one, one[:, None], one, None, 1.0).sum().backward()
    assert bend.grad is not None
    assert bend.grad != 0
