"""Gradients of the rows of two entities, compared with those of training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import focuse
from focuse.engines.autograd import AutogradEngine
from focuse.engines.base import Step
from focuse.engines.optimizers import make_optimizer
from focuse.inference.influence import NEGATIVES_STREAM, LocalLoss, TrainedObjective

CASES: dict[str, dict[str, Any]] = {
    "labels": {"model": "complex"},
    "focuse": {"model": "distmult", "weight_mode": "focuse", "beta_decay_epochs": 3},
    "plain, per-triple negatives": {
        "model": "transe",
        "weight_mode": "none",
        "negative_sampling": "per-triple",
        "num_negatives": 7,
    },
    "reciprocal": {"model": "complex", "reciprocal": True, "negative_sampling": "per-triple", "num_negatives": 5},
    "confidence": {"model": "ukge-rect"},
    "dense": {"model": "tucker"},
}


def run_of(graph: focuse.Graph, **settings: Any) -> focuse.Run:
    given = {"dim": 8, "epochs": 4, "progress": False, "eval_every": 100, "reduction": "mean", "seed": 1}
    given |= {"device": "cpu"} | settings
    if "weight_mode" not in given and given["model"] != "ukge-rect":
        given["label_exponent"] = 2.0
    return focuse.train(graph, **given)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_training(small: focuse.Graph, name: str) -> None:
    """Two entities get extra rows for their triples; the gradient of a real step by these is the sum."""
    run = run_of(small, **CASES[name])
    trained = TrainedObjective.build(run)
    free = [3, 5]
    rows = torch.from_numpy(trained.triples_at(free))
    local = LocalLoss(trained, run.scorer, free, rows)
    found = local.gradients(local.start).sum(0)

    tables = dict(run.scorer.tables)
    entities = len(tables["entity"])
    tables["entity"] = torch.cat([tables["entity"], tables["entity"][free]])
    optimizer = make_optimizer("adam", tables, 0.1)
    inverse = run.settings.reciprocal
    engine = AutogradEngine(run.scorer.model, tables, optimizer, inverse)
    batch = trained.batch.take(rows)
    negatives = trained.problem.negative_sampler(batch, NEGATIVES_STREAM)
    own = {entity: entities + place for place, entity in enumerate(free)}
    head, tail = (torch.tensor([own.get(one, one) for one in ids.tolist()]) for ids in (batch.head, batch.tail))
    expected = torch.zeros_like(found)
    for weight, beta in trained.snapshots:
        moved = replace(batch, head=head, tail=tail, weight=weight[rows])
        step = Step(moved, negatives, trained.problem.objective, beta, scale=trained.scale, seed=None)
        _, total, views = engine.compute_loss(step)
        total.backward()
        expected += views["entity"].gradient()[entities:] / len(trained.snapshots)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)


def test_each_triple_has_gradients_only_for_its_rows(small: focuse.Graph) -> None:
    run = run_of(small, model="complex")
    trained = TrainedObjective.build(run)
    rows = trained.triples_at([3, 5])
    found = LocalLoss(trained, run.scorer, [3, 5], torch.from_numpy(rows)).gradients(
        run.scorer.tables["entity"][[3, 5]]
    )
    for place, entity in enumerate((3, 5)):
        touches = (trained.graph.head[rows] == entity) | (trained.graph.tail[rows] == entity)
        assert (found[:, place].norm(dim=1).numpy() > 0).tolist() == touches.tolist()


def test_penalties_have_gradients_towards_zero(small: focuse.Graph) -> None:
    run = run_of(small, model="complex", regularizer="l2:0.01", regularizer_scope="tables", optimizer="adam")
    trained = TrainedObjective.build(run)
    local = LocalLoss(trained, run.scorer, [3], torch.from_numpy(trained.triples_at([3])))
    torch.testing.assert_close(local.regularizer_gradient(local.start), 2 * 0.01 * trained.steps * local.start)
