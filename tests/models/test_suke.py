"""SUKE: two evaluators of one score, in value, in training and in the loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import focuse
from focuse.engines import ReferenceEngine
from focuse.engines.base import Batch, Corruptions, Hints
from focuse.graph import Graph
from focuse.models import DistMult, Suke, UkgeLogi
from focuse.training.losses import TwoEvaluators
from focuse.training.optimisers import make_optimiser

EVALUATORS = np.array([[1.3, 0.2], [0.6, -0.5]])


def logistic(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def bound() -> Suke:
    return Suke().with_dense({"evaluators": torch.from_numpy(EVALUATORS)})


def test_the_confidence_is_the_product_of_both() -> None:
    f = np.linspace(-5, 5, 21)
    structure, uncertainty = (logistic(w * f + b) for w, b in EVALUATORS)
    np.testing.assert_allclose(bound().structure(torch.from_numpy(f)), structure, rtol=1e-12)
    np.testing.assert_allclose(bound().confidence(torch.from_numpy(f)), structure * uncertainty, rtol=1e-12)
    rows = tuple(torch.randn(4, 6) for _ in range(3))
    assert torch.equal(Suke().score(*rows), DistMult().score(*rows))


def test_other_models_have_no_structure() -> None:
    with pytest.raises(NotImplementedError, match="ukge-logi"):
        UkgeLogi().structure(torch.zeros(1))


def test_the_objective_is_its_formula() -> None:
    random = np.random.default_rng(5)
    positive, negative, weight = random.normal(size=4), random.normal(size=(4, 3)), random.random(4)
    mask = np.array([[True, True, False], [True] * 3, [False] * 3, [True, False, True]])
    objective = TwoEvaluators(torch.sigmoid, torch.sigmoid).over(bound())
    expected = []
    for p, row, w, kept in zip(positive, negative, weight, mask, strict=True):
        others = row[kept]
        total = 0.0
        for of, label in ((lambda f: logistic(EVALUATORS[0, 0] * f + EVALUATORS[0, 1]), 1.0), (phi, w)):
            total += (of(p) - label) ** 2 + (np.mean(of(others) ** 2) if len(others) else 0.0)
        expected.append(total)
    found = objective(*map(torch.from_numpy, (positive, negative, weight, mask)), 1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def phi(f: np.ndarray) -> np.ndarray:
    first, second = (logistic(w * f + b) for w, b in EVALUATORS)
    return first * second


@pytest.mark.parametrize("with_hints", [False, True])
def test_a_step_moves_both_evaluators_by_their_gradient(with_hints: bool) -> None:
    """Plain descent by one step, beside finite differences of the whole loss."""
    random = torch.Generator().manual_seed(6)
    tables = {name: torch.randn(n, 4, generator=random) * 0.5 for name, n in (("entity", 5), ("relation", 2))}
    tables["evaluators"] = torch.tensor(EVALUATORS, dtype=torch.float32)
    first = {name: table.double().numpy().copy() for name, table in tables.items()}
    rate = 1e-3
    engine = ReferenceEngine(
        Suke(), tables["entity"], tables["relation"], make_optimiser("sgd", tables, rate),
        {"evaluators": tables["evaluators"]},
    )  # fmt: skip
    batch = Batch(torch.tensor([0, 1]), torch.tensor([0, 1]), torch.tensor([2, 3]), torch.tensor([0.9, 0.3]))
    corruptions = [Corruptions("tail", torch.tensor([[4, 1], [0, 2]]))]
    hints = Hints(Batch(*(torch.tensor([i]) for i in (3, 0, 4)), torch.tensor([1.0])), lambda s, w: s.sum() * 1e6)
    objective = TwoEvaluators(Suke().trained, Suke().structure, share=0.3)
    engine.step(batch, corruptions, objective, 1.0, hints=hints if with_hints else None)
    moved = (first["evaluators"] - engine.tables["evaluators"].double().numpy()) / rate

    def loss(evaluators: np.ndarray) -> float:
        def product(h: int, r: int, t: int) -> float:
            return float((first["entity"][h] * first["relation"][r] * first["entity"][t]).sum())

        def both(f: float) -> tuple[float, float]:
            structure, uncertainty = (logistic(w * f + b) for w, b in evaluators)
            return float(structure), float(structure * uncertainty)

        total = 0.0
        for h, r, t, w, others in ((0, 0, 2, 0.9, (4, 1)), (1, 1, 3, 0.3, (0, 2))):
            s, c = both(product(h, r, t))
            total += (s - 1) ** 2 + (c - w) ** 2
            total += sum(sum(x**2 for x in both(product(h, r, other))) for other in others) / 2
        if with_hints:
            total += 2 * 0.3 * max(0.0, 1.0 - both(product(3, 0, 4))[1]) ** 2
        return total

    for place in np.ndindex(2, 2):
        tiny = np.zeros((2, 2))
        tiny[place] = 1e-5
        slope = (loss(EVALUATORS.astype(np.float32) + tiny) - loss(EVALUATORS.astype(np.float32) - tiny)) / 2e-5
        assert moved[place] == pytest.approx(slope, rel=2e-3, abs=2e-4)


@pytest.mark.parametrize("sampling", ["independent", "shared", "all"])
def test_trains_and_tells_weights(small: Graph, sampling: str) -> None:
    quick = {"dim": 8, "epochs": 6, "lr": 2e-2, "negatives": 8, "burn_in": 0, "progress": False}
    run = focuse.train(small, model="suke", sampling=sampling, **quick)
    assert run.history[-1]["loss"] < run.history[0]["loss"]
    assert not torch.equal(run.engine.tables["evaluators"], Suke.dense["evaluators"])
    assert run.predict(head=run.graph.entities[0], relation=run.graph.relations[0], top=2)[0].confidence <= 1
