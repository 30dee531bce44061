"""Estimated influence of triples, compared with dense solves, refitted rows and retraining."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import focuse
from focuse.inference.influence import Influence, TrainedObjective, conjugate_gradients

SETTINGS = {
    "dim": 8,
    "epochs": 30,
    "progress": False,
    "eval_every": 100,
    "label_exponent": 1.0,
    "seed": 0,
    "device": "cpu",
}


WHOLE = {"valid_fraction": 0.0, "test_fraction": 0.0}


@pytest.fixture(scope="module")
def run(small: focuse.Graph) -> focuse.Run:
    return focuse.train(small, model="distmult", **SETTINGS)


def influence(run: focuse.Run, triple: tuple[int, int, int]) -> Influence:
    trained = TrainedObjective.build(run)
    return Influence(trained, run.scorer, *triple)


def test_estimated_changes_solve_the_linear_system(run: focuse.Run) -> None:
    found = influence(run, (2, 1, 7))
    size = found.theta.numel()
    basis = torch.eye(size).view(size, *found.theta.shape)
    matrix = torch.stack([found.hessian_product(one).flatten() for one in basis]).double()
    assert float((matrix - matrix.T).abs().max()) < 0.02 * float(matrix.abs().max())  # a Hessian
    damping = found.damping()
    matrix = (matrix + matrix.T) / 2 + damping * torch.eye(size, dtype=torch.double)
    assert float(torch.linalg.eigvalsh(matrix)[0]) > 0
    direction = torch.linalg.solve(matrix, found.score_gradient.flatten().double())
    expected = found.triple_gradients().flatten(1).double() @ direction
    rows, change = found.changes()
    places = np.searchsorted(found.rows, rows)
    np.testing.assert_allclose(change, expected.numpy()[places], rtol=0.05, atol=0.02 * np.abs(change).max())


def test_estimated_changes_agree_with_refitted_rows(run: focuse.Run) -> None:
    found = influence(run, (2, 1, 7))
    damping, balance = found.damping(), found.gradient(found.theta)
    rows, change = found.changes()
    few = np.argsort(change)[[0, 1, 2, 3, -4, -3, -2, -1]]  # those that matter most
    rows, change = rows[few], change[few]
    before, refitted = float(found.local.score(found.theta, *found.triple)), []
    for row in rows:
        place = int(np.searchsorted(found.rows, row))
        theta, rate = found.theta.clone(), 0.3 / (10 * damping)
        for _ in range(60):  # what is left of the loss, held in balance as training left it
            each = found.local.gradients(theta)
            pull = each.sum(0) - each[place] + found.local.regularizer_gradient(theta) - balance
            theta = theta - rate * (pull + damping * (theta - found.theta))
        refitted.append(float(found.local.score(theta, *found.triple)) - before)
    assert np.corrcoef(change, refitted)[0, 1] > 0.9
    strong = np.abs(change) > 0.2 * np.abs(change).max()
    assert (np.sign(change[strong]) == np.sign(np.array(refitted)[strong])).all()


def test_negative_curvature_falls_back_to_the_gradient() -> None:
    right = torch.tensor([3.0, 4.0])
    torch.testing.assert_close(conjugate_gradients(lambda x: -2 * x, right, 5), right / 2)
    torch.testing.assert_close(conjugate_gradients(lambda x: 0 * x, right, 5), right)


@pytest.mark.parametrize("below", [0.999, 1.0, 1.5, 40.0])
def test_curvature_equal_to_the_damping_keeps_changes_bounded(
    run: focuse.Run, monkeypatch: pytest.MonkeyPatch, below: float
) -> None:
    found, damping = influence(run, (2, 1, 7)), 0.5
    bends = torch.linspace(0.0, 3.0, found.theta.numel()).view_as(found.theta)
    bends[0, 0] = -below * damping
    monkeypatch.setattr(found, "hessian_product", lambda direction: bends * direction)
    right = torch.ones_like(found.theta)
    solved = found.solve(right, damping, steps=50)
    assert float(solved.norm()) <= float(right.norm()) / (damping / 2)
    assert float((solved * right).sum()) > 0


def score(run: focuse.Run, triple: tuple[int, int, int], gone: np.ndarray, seeds: int) -> float:
    """The mean score in trainings without some rows."""
    left = run.graph.select(np.setdiff1d(np.arange(len(run.graph)), gone))
    made = [focuse.train(left, model="distmult", **SETTINGS | WHOLE | {"seed": seed}) for seed in range(seeds)]
    return float(np.mean([float(one.scorer.score(*(torch.tensor([i]) for i in triple))) for one in made]))


def removal(run: focuse.Run, questions: int, seeds: int) -> tuple[float, float]:
    """The mean change of scores without the five strongest supports, and without five others at the same ends."""
    test, random = run.splits.test, np.random.default_rng(0)
    changes = []
    for place in range(questions):
        triple = int(test.head[place]), int(test.relation[place]), int(test.tail[place])
        rows, change = influence(run, triple).changes()
        order = np.argsort(change)
        others = random.choice(rows[order[5:]], 5, replace=False)
        before = score(run, triple, np.empty(0, int), seeds)
        changes.append([score(run, triple, gone, seeds) - before for gone in (rows[order[:5]], others)])
    return tuple(np.mean(changes, axis=0))  # type: ignore[return-value]


@pytest.mark.slow
def test_score_falls_after_retraining_without_its_supports(run: focuse.Run) -> None:
    strongest, others = removal(run, questions=4, seeds=1)
    assert strongest < 0
    assert strongest < others


@pytest.mark.slow
def test_scores_fall_after_many_retrainings_without_supports(run: focuse.Run) -> None:
    strongest, others = removal(run, questions=16, seeds=4)
    assert strongest < 0
    assert strongest < others - 0.1


def test_repeated_triples_count_as_one(small: focuse.Graph) -> None:
    graph = small.select(np.arange(200))
    twice = focuse.train(graph.select(np.repeat(np.arange(len(graph)), 2)), duplicates="keep", model="distmult",
                         valid_fraction=0.0, test_fraction=0.0, **SETTINGS | {"epochs": 3})  # fmt: skip
    found = influence(twice, (1, 0, 2))
    rows, change = found.changes()
    assert len(rows) * 2 == len(found.rows)
    assert len(np.unique(twice.graph.keys[rows])) == len(rows) == len(change)
