"""GTransE: TransE's score, and a loss whose margin grows with the weight."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

import focuse
from focuse import FocuseError
from focuse.graph import Graph
from focuse.models import GTransE, TransE
from focuse.training.losses import Objective, make_loss
from focuse.training.settings import Settings


def formula(positive: np.ndarray, negative: np.ndarray, weight: np.ndarray, margin: float, power: float) -> list[float]:
    """Σ [ d(h, r, t) − d(h', r, t') + s^α M ]₊ with d = −f."""
    return [
        sum(max(0.0, -p - (-n) + w**power * margin) for n in row)
        for p, row, w in zip(positive, negative, weight, strict=True)
    ]


def test_the_score_is_transes() -> None:
    head, relation, tail = (torch.randn(4, 6) for _ in range(3))
    assert torch.equal(GTransE().score(head, relation, tail), TransE().score(head, relation, tail))


@pytest.mark.parametrize(
    ("text", "margin", "power"),
    [("confidence-margin", 1.0, 1.0), ("confidence-margin:4,2", 4.0, 2.0), ("confidence-margin:power=0", 1.0, 0.0)],
)
def test_the_loss_is_its_formula(text: str, margin: float, power: float) -> None:
    random = np.random.default_rng(3)
    positive, negative, weight = random.normal(size=5), random.normal(size=(5, 4)), random.random(5)
    weight[0] = 0.0
    mask = random.random((5, 4)) < 0.6
    objective = Objective(make_loss(text))
    given = torch.from_numpy(positive), torch.from_numpy(negative), torch.from_numpy(weight)
    expected = formula(positive, negative, weight, margin, power)
    np.testing.assert_allclose(objective(*given, None, 1.0), expected, rtol=1e-12)
    rows = [row[kept] for row, kept in zip(negative, mask, strict=True)]
    masked = [sum(formula([p], [row], [w], margin, power)) for p, row, w in zip(positive, rows, weight, strict=True)]
    np.testing.assert_allclose(objective(*given, torch.from_numpy(mask), 1.0), masked, rtol=1e-12)
    leaves = given[0].requires_grad_(), given[1].requires_grad_()
    assert gradcheck(lambda p, n: objective(p, n, given[2], None, 1.0), leaves)
    assert objective.recipe is None


def test_a_power_of_0_is_the_plain_margin() -> None:
    random = torch.Generator().manual_seed(1)
    positive, negative, weight = (torch.rand(*shape, generator=random) for shape in ((6,), (6, 3), (6,)))
    plain = Objective(make_loss("margin:2"))(positive, negative, weight, None, 1.0)
    torch.testing.assert_close(
        Objective(make_loss("confidence-margin:2,0"))(positive, negative, weight, None, 1.0), plain
    )


def test_weights_reach_the_training(small: Graph) -> None:
    quick = {"model": "gtranse", "dim": 8, "epochs": 3, "lr": 1e-2, "progress": False}
    with_weights, without = (focuse.train(small, loss=f"confidence-margin:power={power}", **quick) for power in (2, 0))
    assert not torch.equal(with_weights.engine.tables["entity"], without.engine.tables["entity"])
    assert with_weights.history[-1]["loss"] < with_weights.history[0]["loss"]
    assert with_weights.settings.focus == "off"
    assert 0 < with_weights.evaluate().all.mrr <= 1


@pytest.mark.parametrize("model", ["transe", "complex"])
def test_any_model_of_scores_takes_the_loss(small: Graph, model: str) -> None:
    run = focuse.train(small, model=model, loss="confidence-margin:2", dim=8, epochs=2, lr=1e-2, progress=False)
    assert run.settings.focus == "off"
    assert run.history[-1]["loss"] < run.history[0]["loss"]


@pytest.mark.parametrize("focus", ["label", "paper"])
def test_its_loss_leaves_nothing_to_focus_on(focus: str) -> None:
    with pytest.raises(FocuseError, match="model 'gtranse' has the weights in its loss; its focus is 'off'"):
        Settings.of(model="gtranse", focus=focus)
    found = Settings.of(model="gtranse", focus=focus, loss="multiclass-nll")
    assert (found.focus, found.loss) == (focus, "multiclass-nll")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"loss": "confidence-margin", "focus": "paper"}, "takes the weights itself; its focus is 'off'"),
        ({"loss": "confidence-margin:power=-1"}, "give numbers of at least 0"),
        ({"loss": "confidence-margin:weight=1"}, "it takes margin, power"),
        ({"loss": "confidence-margin", "model": "ukge-logi"}, "by the loss 'squared-error'"),
    ],
)
def test_what_makes_no_sense_is_one_line(given: dict[str, str], says: str) -> None:
    with pytest.raises(FocuseError, match=says):
        Settings.of(**given)
