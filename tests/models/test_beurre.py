"""BEUrRE: the conditional probability of boxes, brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import focuse
from focuse.graph import Graph
from focuse.models.beurre import BETA, Beurre
from focuse.models.boxes import GAMMA

D = 4


def brute(head: np.ndarray, relation: np.ndarray, tail: np.ndarray) -> float:
    """φ one coordinate at a time, with plain sums of exponentials."""
    shared = alone = 1.0
    for i in range(D):
        ends = []
        for row, mapping in ((head, relation[: 2 * D]), (tail, relation[2 * D :])):
            low = row[i] + mapping[i]
            ends.append((low, low + math.exp(row[D + i]) * max(0.0, mapping[D + i])))
        (head_low, head_high), (tail_low, tail_high) = ends
        low = BETA * np.logaddexp(head_low / BETA, tail_low / BETA)
        high = -BETA * np.logaddexp(-head_high / BETA, -tail_high / BETA)
        shared *= math.log1p(math.exp(high - low - 2 * GAMMA * BETA))
        alone *= math.log1p(math.exp(tail_high - tail_low - 2 * GAMMA * BETA))
    return shared / alone


@pytest.mark.parametrize("side", ["head", "tail"])
def test_confidence_is_the_share_of_the_tails_box(side) -> None:  # type: ignore[no-untyped-def]
    random, model = np.random.default_rng(4), Beurre()
    head, tail = random.normal(size=(2, 12, 2 * D))
    relation = random.normal(size=(12, 4 * D))
    score = model.score(*map(torch.from_numpy, (head, relation, tail)), side)
    expected = [brute(*rows) for rows in zip(head, relation, tail, strict=True)]
    np.testing.assert_allclose(model.confidence(score), expected, rtol=1e-9)
    assert (score <= 0).all()
    assert torch.equal(model.trained(score), score.exp())


def test_a_box_within_another_is_surely_in_it_and_not_the_other_way_round() -> None:
    identity = torch.cat([torch.zeros(1, D), torch.ones(1, D)] * 2, -1)
    large = torch.cat([torch.full((1, D), -5.0), torch.full((1, D), math.log(20.0))], -1)
    small = torch.cat([torch.zeros(1, D), torch.zeros(1, D)], -1)
    model = Beurre()
    assert model.confidence(model.score(large, identity, small)).item() == pytest.approx(1.0, abs=1e-5)
    assert model.confidence(model.score(small, identity, large)).item() < 0.01


@pytest.mark.parametrize("sampling", ["independent", "shared", "all"])
def test_trains_and_tells_weights(small: Graph, sampling: str) -> None:
    quick = {"dim": 8, "epochs": 5, "lr": 2e-2, "negatives": 6, "burn_in": 0, "progress": False}
    run = focuse.train(small, model="beurre", sampling=sampling, **quick)
    assert run.history[-1]["loss"] < run.history[0]["loss"]
    links = run.predict(head=run.graph.entities[0], relation=run.graph.relations[0], top=3)
    assert all(0 <= link.confidence <= 1 for link in links)
