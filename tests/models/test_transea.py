"""TransEA against its equations: TransE's score, and a regression of numbers in the loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focuse.engines import Batch, Corruptions, ReferenceEngine
from focuse.models import Context, DistMult, Reciprocal, TransEA
from focuse.training.losses import Objective, make_loss
from focuse.training.optimisers import make_optimiser

DIM, ENTITIES = 4, 6


@pytest.fixture
def world():
    """Numbers, a model over them and its tables."""
    draw = np.random.default_rng(1)
    numbers, present = draw.normal(size=(ENTITIES, 2)), draw.random((ENTITIES, 2)) < 0.6
    context = Context(None, torch.tensor(numbers), torch.tensor(present))
    parts = {"entity": (ENTITIES, DIM), "relation": (2, DIM), "slope": (2, DIM), "offset": (2,)}
    return numbers, present, context, {name: draw.normal(size=shape) for name, shape in parts.items()}


HEAD, KIND, TAIL = np.array([0, 3, 3]), np.array([1, 0, 1]), np.array([2, 5, 1])


def errors(numbers, present, tables) -> np.ndarray:
    """Σ |a · e + b − v| over the known numbers of both ends of each triple, one number at a time."""
    found = np.zeros(3)
    for place, ends in enumerate(zip(HEAD, TAIL, strict=True)):
        for e in ends:
            for a in range(2):
                if present[e, a]:
                    told = tables["slope"][a] @ tables["entity"][e] + tables["offset"][a]
                    found[place] += abs(told - numbers[e, a])
    return found


def tensors(tables):
    return {name: torch.from_numpy(table.copy()) for name, table in tables.items()}


def test_it_ranks_as_transe_does(world):
    _, _, context, tables = world
    own = tensors(tables)
    engine = ReferenceEngine(TransEA().with_context(context), own.pop("entity"), own.pop("relation"), dense=own)
    found = engine.score_all(torch.from_numpy(HEAD), torch.from_numpy(KIND), "tail")
    asked = tables["entity"][HEAD] + tables["relation"][KIND]
    expected = -np.abs(asked[:, None] - tables["entity"][None]).sum(-1)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_its_own_loss_is_the_error_of_a_regression(world):
    numbers, present, context, tables = world
    own = tensors(tables)
    model = TransEA().with_context(context).with_dense({name: own[name] for name in ("slope", "offset")})
    rows = torch.cat([own["entity"], context.columns()], dim=1)
    found = model.extra(rows[HEAD], own["relation"][KIND], rows[TAIL])
    np.testing.assert_allclose(found, errors(numbers, present, tables), rtol=1e-12)
    both = torch.cat([own["relation"]] * 2, dim=1)
    assert torch.equal(Reciprocal(model).extra(rows[HEAD], both[KIND], rows[TAIL]), found)
    told = tables["entity"] @ tables["slope"].T + tables["offset"]
    np.testing.assert_allclose(model.regressed(rows), told, rtol=1e-12)


@pytest.mark.parametrize("optimiser", ["sgd", "row-adagrad"])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_a_step_goes_down_the_joint_loss(world, share, optimiser):
    """(1 − α) structure + α attributes: its value, and by finite differences its gradient in every table."""
    numbers, present, context, tables = world
    own = tensors(tables)
    model = TransEA().with_context(context)
    model.share = share
    rivals = np.array([4, 0])

    def joint(now) -> float:
        asked = now["entity"][HEAD] + now["relation"][KIND]
        scores = -np.abs(asked[:, None] - now["entity"][np.concatenate([rivals])][None]).sum(-1)
        positive = -np.abs(asked - now["entity"][TAIL]).sum(-1)
        every = np.concatenate([positive[:, None], scores], axis=1)
        structure = (np.log(np.exp(every).sum(1)) - positive).sum()
        return (1 - share) * structure + share * errors(numbers, present, now).sum()

    dense = {name: own[name] for name in ("slope", "offset")}
    step = make_optimiser(optimiser, own, 1e-3)
    engine = ReferenceEngine(model, own["entity"], own["relation"], step, dense)
    batch = Batch(*map(torch.from_numpy, (HEAD, KIND, TAIL)), torch.ones(3, dtype=torch.float64))
    corruptions = [Corruptions("tail", torch.from_numpy(rivals))]
    loss = engine.step(batch, corruptions, Objective(make_loss("multiclass-nll"), None), 1.0)
    assert loss == pytest.approx(joint(tables), rel=1e-9)
    for name, table in tables.items():
        for place in np.ndindex(table.shape):
            around = []
            for shift in (1e-6, -1e-6):
                moved = {**tables, name: table.copy()}
                moved[name][place] += shift
                around.append(joint(moved))
            slope = (around[0] - around[1]) / 2e-6
            change = float(own[name][place] - table[place])
            expected = -1e-3 * (slope if optimiser == "sgd" else np.sign(slope) * (abs(slope) > 1e-7))
            assert change == pytest.approx(expected, abs=1e-8), (name, place)


def test_a_loss_of_its_own_keeps_a_model_from_engines_that_know_none():
    class Both(DistMult):
        def extra(self, head, relation, tail):
            return head.sum(1)

    assert DistMult().plain()
    assert not Both().plain()
