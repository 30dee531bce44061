"""Gradients by the rows of two entities, against the engine that trains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import focuse
from focuse.engines import ReferenceEngine
from focuse.inference.explaining.local import PLACE, Learnt, LocalLoss
from focuse.training.optimisers import make_optimiser

CASES: dict[str, dict[str, Any]] = {
    "labels": {"model": "complex"},
    "paper": {"model": "distmult", "focus": "paper", "decay": 3},
    "plain, own corruptions": {"model": "transe", "focus": "off", "sampling": "independent", "negatives": 7},
    "reciprocal": {"model": "complex", "reciprocal": True, "sampling": "independent", "negatives": 5},
    "confidence": {"model": "ukge-rect"},
    "dense": {"model": "tucker"},
}


def run_of(graph: focuse.Graph, **settings: Any) -> focuse.Run:
    given = {"dim": 8, "epochs": 4, "progress": False, "check_every": 100, "reduction": "mean", "seed": 1}
    given |= {"device": "cpu"} | settings
    if "focus" not in given and given["model"] != "ukge-rect":
        given["sharpness"] = 2.0
    return focuse.train(graph, **given)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_training(small: focuse.Graph, name: str) -> None:
    """Facts at two entities get rows of their own behind the table; a real step's gradient of these is the sum."""
    run = run_of(small, **CASES[name])
    learnt = Learnt.of(run.settings, run.splits, run.normaliser, len(run.history), run.engine)
    free = [3, 5]
    rows = torch.from_numpy(learnt.touching(free))
    local = LocalLoss(learnt, run.engine, free, rows)
    found = local.gradients(local.start).sum(0)

    tables = dict(run.engine.tables)
    entities = len(tables["entity"])
    tables["entity"] = torch.cat([tables["entity"], tables["entity"][free]])
    dense = {key: value for key, value in tables.items() if key not in ("entity", "relation")}
    optimiser = make_optimiser("adam", tables, 0.1)
    engine = ReferenceEngine(run.engine.model, tables["entity"], tables["relation"], optimiser, dense)
    batch = learnt.batch.take(rows)
    corruptions = learnt.sampler(batch, PLACE)
    own = {entity: entities + place for place, entity in enumerate(free)}
    head, tail = (torch.tensor([own.get(one, one) for one in ids.tolist()]) for ids in (batch.head, batch.tail))
    expected = torch.zeros_like(found)
    for weight, beta in learnt.moments:
        moved = replace(batch, head=head, tail=tail, weight=weight[rows])
        _, total, places = engine.minimised(moved, corruptions, learnt.objective, beta, None, learnt.scale, None, None)
        total.backward()
        expected += places["entity"].gradient()[entities:] / len(learnt.moments)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)


def test_each_fact_pulls_only_the_rows_that_it_touches(small: focuse.Graph) -> None:
    run = run_of(small, model="complex")
    learnt = Learnt.of(run.settings, run.splits, run.normaliser, len(run.history), run.engine)
    rows = learnt.touching([3, 5])
    found = LocalLoss(learnt, run.engine, [3, 5], torch.from_numpy(rows)).gradients(run.engine.tables["entity"][[3, 5]])
    for place, entity in enumerate((3, 5)):
        touches = (learnt.graph.head[rows] == entity) | (learnt.graph.tail[rows] == entity)
        assert (found[:, place].norm(dim=1).numpy() > 0).tolist() == touches.tolist()


def test_penalties_pull_towards_zero(small: focuse.Graph) -> None:
    run = run_of(small, model="complex", regularizer="l2:0.01", regularize="tables", optimizer="adam")
    learnt = Learnt.of(run.settings, run.splits, run.normaliser, len(run.history), run.engine)
    local = LocalLoss(learnt, run.engine, [3], torch.from_numpy(learnt.touching([3])))
    torch.testing.assert_close(local.pull(local.start), 2 * 0.01 * learnt.steps * local.start)
