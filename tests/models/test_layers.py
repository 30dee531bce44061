"""The pieces of neural models, and that these train whatever the weights and corruptions mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

import focuse
from focuse.errors import FocuseError
from focuse.models import ConvE
from focuse.models.layers import attend, check_rectangle, dropped, height_of, normalised, softmax_within

NEURAL = {"conve": {"dim": 8}, "convkb": {"dim": 4}, "kbgat": {"dim": 8}}


def test_dropout_is_a_pure_function_of_its_key() -> None:
    values = torch.rand(200, 50) + 1
    first, again = (dropped(values, 0.3, 7, 0) for _ in range(2))
    assert torch.equal(first, again)
    for other in (dropped(values, 0.3, 8, 0), dropped(values, 0.3, 7, 1)):
        assert not torch.equal(first == 0, other == 0)
    assert dropped(values, 0.3, None, 0) is values
    gone = first == 0
    assert gone.float().mean().item() == pytest.approx(0.3, abs=0.02)
    torch.testing.assert_close(first[~gone], values[~gone] / 0.7)


def test_whole_maps_are_dropped_together() -> None:
    found = dropped(torch.ones(60, 32, 4, 3), 0.2, 3, 1, rank=2)
    each = (found != 0).flatten(2).float().mean(2)
    assert set(each.flatten().tolist()) == {0.0, 1.0}
    assert each.mean().item() == pytest.approx(0.8, abs=0.04)


def test_softmax_within_groups() -> None:
    random = np.random.default_rng(0)
    logit, group = random.normal(size=30) * 50, random.integers(0, 6, 30)
    expected = np.empty(30)
    for one in range(6):
        mine = group == one
        powers = np.exp(logit[mine] - logit[mine].max()) if mine.any() else np.empty(0)
        expected[mine] = powers / powers.sum()
    found = softmax_within(torch.from_numpy(logit), torch.from_numpy(group), 8)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_gradients_of_attention_match_finite_differences() -> None:
    random = torch.Generator().manual_seed(1)
    shapes = ((5, 3), (2, 3), (3, 3, 4), (4,))
    parts = [torch.randn(shape, generator=random, dtype=torch.float64, requires_grad=True) for shape in shapes]
    edges = torch.tensor([0, 0, 1, 3, 3, 3]), torch.tensor([0, 1, 1, 0, 0, 1]), torch.tensor([1, 2, 0, 4, 3, 1])

    def heard(entity, relation, mix, look):
        return attend(entity, relation, edges, mix, look, lambda share: share)

    assert gradcheck(heard, parts)
    assert torch.equal(heard(*parts)[[2, 4]], torch.zeros(2, 4))  # nothing leads there


def test_rectangles() -> None:
    assert [height_of(dim) for dim in (8, 64, 100, 200, 210)] == [2, 8, 10, 10, 14]
    for dim, near in ((7, 8), (4, 6), (1, 6), (101, 102)):
        with pytest.raises(FocuseError, match=rf"'conve' needs a dim that makes a rectangle, not {dim}; try {near}$"):
            check_rectangle(ConvE(), dim)
    for dim in (6, 8, 9, 64, 100, 200):
        check_rectangle(ConvE(), dim)


def test_batch_normalisation_learns_the_mean_and_ranks_by_it() -> None:
    dense = ConvE().dense_start(8, torch.Generator())
    model = ConvE().with_dense(dense)
    values = torch.randn(400, 8, generator=torch.Generator().manual_seed(3)) * 3 + 5
    trained = normalised(model.in_training(1), "hidden", values)
    torch.testing.assert_close(trained, (values - values.mean(0)) / values.std(0, correction=0), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(dense["seen_hidden"][0], 0.1 * values.mean(0))
    torch.testing.assert_close(dense["seen_hidden"][1], 0.9 + 0.1 * values.var(0))
    for _ in range(100):
        normalised(model.in_training(1), "hidden", values)
    kept = dense["seen_hidden"].clone()
    torch.testing.assert_close(normalised(model, "hidden", values[:3]), trained[:3], atol=0.02, rtol=0.02)
    normalised(model.in_training(1), "hidden", values[:1])  # of one row there is no variance
    assert torch.equal(dense["seen_hidden"], kept)


@pytest.mark.parametrize("name", NEURAL)
@pytest.mark.parametrize(
    "more", [{"sampling": "shared"}, {"sampling": "all"}, {"sampling": "independent", "focus": "paper"}]
)
def test_neural_models_train(small: focuse.Graph, name: str, more: dict[str, str]) -> None:
    asked = {
        "model": name,
        "epochs": 6,
        "lr": 0.01,
        "negatives": 20,
        "sharpness": None if "focus" in more else 1.0,
        **more,
    }
    run = focuse.train(small, **NEURAL[name], **asked, batch_size=97, progress=False)
    losses = [row["loss"] for row in run.history]
    assert losses[-1] < losses[0] or "focus" in more
    assert np.isfinite(run.evaluate().all.mrr)
