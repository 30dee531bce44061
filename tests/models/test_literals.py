"""Models with attributes of entities against their equations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scoring import make_scorer

from focuse.engines.autograd import AutogradEngine
from focuse.engines.base import Step
from focuse.engines.optimizers import make_optimizer
from focuse.models import Context, Model
from focuse.models.base import components_of
from focuse.models.bilinear import DistMult
from focuse.models.literals import BASES_PER_ATTRIBUTE, KBLRN, AttributeRegression, TransEA, init_bases
from focuse.models.registry import make_model
from focuse.objective.losses import FocusedLoss, Regularizer, make_loss
from focuse.objective.negatives import Batch, Negatives

# ---- literale -------------------------------------------------------------------------------------------------------

LITERALE_DIM, LITERALE_ENTITIES, LITERALE_ATTRIBUTES = 3, 7, 2


def sigma(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def mixed(e: np.ndarray, number: np.ndarray, gate: np.ndarray, offset: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """g(e, l), the matrices of e and l taken apart as in the paper."""
    z = sigma(gate[:, :LITERALE_DIM] @ e + gate[:, LITERALE_DIM:] @ number + offset)
    h = np.tanh(candidate[:, :LITERALE_DIM] @ e + candidate[:, LITERALE_DIM:] @ number)
    return z * h + (1 - z) * e


@pytest.fixture(params=["literale-distmult", "literale-complex"])
def made(request) -> tuple[Model, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    numbers, present = (
        draw.normal(size=(LITERALE_ENTITIES, LITERALE_ATTRIBUTES)),
        draw.random((LITERALE_ENTITIES, LITERALE_ATTRIBUTES)) < 0.6,
    )
    model = make_model(request.param).bind(context=Context(None, torch.tensor(numbers), torch.tensor(present)))
    start = model.init_parameters(LITERALE_DIM, torch.Generator().manual_seed(1))
    model = model.bind({name: torch.from_numpy(draw.normal(size=part.shape)) for name, part in start.items()})
    entity = draw.normal(size=(LITERALE_ENTITIES, model.widths(LITERALE_DIM)[0]))
    return model, entity, np.where(present, numbers, 0.0)


@pytest.mark.parametrize("optimizer", ["sgd", "sparse-adagrad"])
def test_the_rows_of_triples_are_regularized_before_they_are_encoded(made, optimizer: str) -> None:
    """Each row occurs once in the batch, so that the scopes penalize the same rows."""
    model, entity, _ = made
    ids = torch.arange(LITERALE_ENTITIES)
    relation = torch.ones(LITERALE_ENTITIES, model.widths(LITERALE_DIM)[1], dtype=torch.float64)
    tables = {"entity": torch.from_numpy(entity), "relation": relation, **model.parameters}
    batch = Batch(ids[:3], ids[:3], ids[3:6], torch.ones(3))
    engine = AutogradEngine(model, tables, make_optimizer(optimizer, tables, 1e-3))
    step = Step(batch, [Negatives("tail", ids[:6])], FocusedLoss(make_loss("nll")), 1.0)
    loss, total, _ = engine.compute_loss(replace(step, regularizer=Regularizer(2, 0.1, "rows")))
    assert float((total - loss).detach()) == pytest.approx(0.1 * ((entity[:6] ** 2).sum() + relation[:3].numel()))


def encoded(model: Model, entity: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Every entity's g(e, l), part by part."""
    dense = [model.parameters[name].numpy() for name in ("gate", "gate_offset", "candidate")]
    parts = components_of(model)[0]
    return np.array(
        [
            np.concatenate(
                [
                    mixed(
                        row.reshape(parts, LITERALE_DIM)[part],
                        number,
                        dense[0][part],
                        dense[1][part, 0],
                        dense[2][part],
                    )
                    for part in range(parts)
                ]
            )
            for row, number in zip(entity, numbers, strict=True)
        ]
    )


def test_literale_encoding_matches_the_paper(made):
    model, entity, numbers = made
    columns = model.context.attribute_columns()
    found, _ = model.encoder.encode(model, torch.cat([torch.from_numpy(entity), columns], dim=1), torch.ones(1, 1))
    np.testing.assert_allclose(found, encoded(model, entity, numbers), rtol=1e-12)


def test_literale_scores_are_the_base_models_over_encoded_rows(made):
    model, entity, numbers = made
    relation = np.random.default_rng(2).normal(size=(2, model.widths(LITERALE_DIM)[1]))
    engine = make_scorer(model, torch.from_numpy(entity), torch.from_numpy(relation), parameters=model.parameters)
    rows = encoded(model, entity, numbers)
    if components_of(model)[0] == 2:
        rows, relation = (part[:, :LITERALE_DIM] + 1j * part[:, LITERALE_DIM:] for part in (rows, relation))
    head, kind, tail = np.array([0, 3, 6]), np.array([1, 0, 1]), np.array([2, 3, 1])
    expected = np.real((rows[head] * relation[kind] * np.conj(rows[tail])).sum(1))
    np.testing.assert_allclose(engine.score(*map(torch.from_numpy, (head, kind, tail))), expected, rtol=1e-10)
    against = np.real((rows[head] * relation[kind]) @ np.conj(rows).T)
    np.testing.assert_allclose(engine.score_all(torch.from_numpy(head), torch.from_numpy(kind), "tail"), against)


def test_literale_missing_attribute_counts_as_the_mean(made):
    """Nothing of a value that is not known comes through."""
    model, entity, _ = made
    numbers, present = model.context.attributes, model.context.present
    other = model.bind(context=Context(None, torch.where(present, numbers, 99.0), present))
    tables = torch.from_numpy(entity), torch.ones(1, model.widths(LITERALE_DIM)[1], dtype=torch.float64)
    one, two = (make_scorer(m, *tables, parameters=model.parameters).encoded_tables()["entity"] for m in (model, other))
    assert torch.equal(one, two)


# ---- transea --------------------------------------------------------------------------------------------------------

TRANSEA_DIM, TRANSEA_ENTITIES = 4, 6


@pytest.fixture
def transea_world():
    """Numbers, a model over them and its tables."""
    draw = np.random.default_rng(1)
    numbers, present = draw.normal(size=(TRANSEA_ENTITIES, 2)), draw.random((TRANSEA_ENTITIES, 2)) < 0.6
    context = Context(None, torch.tensor(numbers), torch.tensor(present))
    parts = {
        "entity": (TRANSEA_ENTITIES, TRANSEA_DIM),
        "relation": (2, TRANSEA_DIM),
        "slope": (2, TRANSEA_DIM),
        "offset": (2,),
    }
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


def test_transea_scores_are_those_of_transe(transea_world):
    _, _, context, tables = transea_world
    own = tensors(tables)
    engine = make_scorer(TransEA().bind(context=context), own.pop("entity"), own.pop("relation"), parameters=own)
    found = engine.score_all(torch.from_numpy(HEAD), torch.from_numpy(KIND), "tail")
    asked = tables["entity"][HEAD] + tables["relation"][KIND]
    expected = -np.abs(asked[:, None] - tables["entity"][None]).sum(-1)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_transea_auxiliary_loss_is_the_regression_error(transea_world):
    numbers, present, context, tables = transea_world
    own = tensors(tables)
    model = TransEA().bind(context=context).bind({name: own[name] for name in ("slope", "offset")})
    rows = torch.cat([own["entity"], context.attribute_columns()], dim=1)
    found = model.auxiliary_loss.loss(model, rows[HEAD], own["relation"][KIND], rows[TAIL])
    np.testing.assert_allclose(found, errors(numbers, present, tables), rtol=1e-12)


@pytest.mark.parametrize("optimizer", ["sgd", "sparse-adagrad"])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_transea_step_descends_the_joint_loss(transea_world, share, optimizer):
    """(1 − α) structure + α attributes: its value, and by finite differences its gradient in every table."""
    numbers, present, context, tables = transea_world
    own = tensors(tables)
    model = TransEA().bind(context=context)
    model.auxiliary_loss = AttributeRegression(share)
    negatives = np.array([4, 0])

    def joint(now) -> float:
        asked = now["entity"][HEAD] + now["relation"][KIND]
        scores = -np.abs(asked[:, None] - now["entity"][np.concatenate([negatives])][None]).sum(-1)
        positive = -np.abs(asked - now["entity"][TAIL]).sum(-1)
        every = np.concatenate([positive[:, None], scores], axis=1)
        structure = (np.log(np.exp(every).sum(1)) - positive).sum()
        return (1 - share) * structure + share * errors(numbers, present, now).sum()

    step = make_optimizer(optimizer, own, 1e-3)
    engine = AutogradEngine(model, own, step)
    batch = Batch(*map(torch.from_numpy, (HEAD, KIND, TAIL)), torch.ones(3, dtype=torch.float64))
    corruptions = [Negatives("tail", torch.from_numpy(negatives))]
    loss = engine.step(Step(batch, corruptions, FocusedLoss(make_loss("multiclass-nll"), None), 1.0))
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
            expected = -1e-3 * (slope if optimizer == "sgd" else np.sign(slope) * (abs(slope) > 1e-7))
            assert change == pytest.approx(expected, abs=1e-8), (name, place)


# ---- kblrn ----------------------------------------------------------------------------------------------------------

KBLRN_DIM, KBLRN_ENTITIES, KBLRN_ATTRIBUTES = 3, 8, 2
EDGES = np.array([0, 1, 2, 3, 5, 6]), np.array([0, 1, 1, 0, 0, 1]), np.array([1, 2, 0, 4, 7, 5])


@pytest.fixture
def kblrn_world():
    draw = np.random.default_rng(1)
    numbers, present = (
        draw.normal(size=(KBLRN_ENTITIES, KBLRN_ATTRIBUTES)),
        draw.random((KBLRN_ENTITIES, KBLRN_ATTRIBUTES)) < 0.6,
    )
    edges = torch.tensor(EDGES[0]), torch.tensor(EDGES[1]), torch.tensor(EDGES[2])
    context = Context(edges, torch.tensor(numbers), torch.tensor(present))
    model = KBLRN().bind(context=context)
    entity, relation = draw.normal(size=(KBLRN_ENTITIES, KBLRN_DIM)), draw.normal(size=(2, model.widths(KBLRN_DIM)[1]))
    return model, numbers, present, entity, relation


def bumps(numbers, present, weights, centers, widths, head: int, tail: int) -> float:
    found = 0.0
    for a in range(KBLRN_ATTRIBUTES):
        if present[head, a] and present[tail, a]:
            for k in range(BASES_PER_ATTRIBUTE):
                x = numbers[head, a] - numbers[tail, a]
                found += weights[a * BASES_PER_ATTRIBUTE + k] * np.exp(-(((x - centers[a, k]) / widths[a, k]) ** 2))
    return found


def test_kblrn_score_is_the_sum_of_two_experts(kblrn_world):
    model, numbers, present, entity, relation = kblrn_world
    engine = make_scorer(model, torch.from_numpy(entity), torch.from_numpy(relation))
    centers, widths = (engine.tables[name].numpy() for name in ("centers", "widths"))
    expected = np.empty((KBLRN_ENTITIES, 2, KBLRN_ENTITIES))
    for h, r, t in np.ndindex(expected.shape):
        latent = (entity[h] * relation[r, :KBLRN_DIM] * entity[t]).sum()
        expected[h, r, t] = latent + bumps(numbers, present, relation[r, KBLRN_DIM:], centers, widths, h, t)
    for r in range(2):
        given, kind = torch.arange(KBLRN_ENTITIES), torch.full((KBLRN_ENTITIES,), r)
        np.testing.assert_allclose(engine.score_all(given, kind, "tail"), expected[:, r], rtol=1e-10)
        np.testing.assert_allclose(engine.score_all(given, kind, "head"), expected[:, r].T, rtol=1e-10)
        np.testing.assert_allclose(engine.score(given, kind, given.flip(0)), np.diag(expected[:, r, ::-1]), rtol=1e-10)
    shares = (expected[:, 0] != (entity * relation[0, :KBLRN_DIM]) @ entity.T).mean()
    assert 0.1 < shares < 0.9  # of pairs: some share a number, some do not


def test_kblrn_missing_attribute_disables_its_expert(kblrn_world):
    model, _, present, entity, relation = kblrn_world
    edges, numbers = model.context.edges, model.context.attributes
    without = model.bind(
        context=Context(edges, numbers, torch.zeros(KBLRN_ENTITIES, KBLRN_ATTRIBUTES, dtype=torch.bool))
    )
    tables = torch.from_numpy(entity), torch.from_numpy(relation)
    ids = torch.arange(KBLRN_ENTITIES), torch.zeros(KBLRN_ENTITIES, dtype=torch.int64)
    plain = make_scorer(DistMult(), tables[0], tables[1][:, :KBLRN_DIM]).score_all(*ids, "tail")
    torch.testing.assert_close(make_scorer(without, *tables).score_all(*ids, "tail"), plain)
    bare = np.flatnonzero(~present.any(1))
    assert len(bare)
    torch.testing.assert_close(make_scorer(model, *tables).score_all(*ids, "tail")[bare], plain[bare])


def test_kblrn_attributes_have_no_effect_before_training(kblrn_world):
    model = kblrn_world[0]
    start = model.init_table("relation", torch.ones(2, model.widths(KBLRN_DIM)[1]))
    assert (start[:, :KBLRN_DIM] == 1).all()
    assert (start[:, KBLRN_DIM:] == 0).all()
    assert (model.init_table("entity", torch.ones(2, KBLRN_DIM)) == 1).all()


def test_kblrn_inverse_relation_uses_differences_from_tail_to_head(kblrn_world):
    """Bumps lie as well where a difference is seen from the other end."""
    model, numbers, present, entity, _ = kblrn_world
    relation = torch.randn(4, model.widths(KBLRN_DIM)[1], dtype=torch.float64)
    engine = make_scorer(model, torch.from_numpy(entity), relation, inverse_relations=True)
    centers, widths = (engine.tables[name].numpy() for name in ("centers", "widths"))
    np.testing.assert_allclose(np.sort(centers), np.sort(-centers))
    found = engine.score_all(torch.tensor([4]), torch.tensor([1]), "head")[0]
    back = relation[3].numpy()
    for h in range(KBLRN_ENTITIES):
        latent = (entity[4] * back[:KBLRN_DIM] * entity[h]).sum()
        expected = latent + bumps(numbers, present, back[KBLRN_DIM:], centers, widths, 4, h)
        assert float(found[h]) == pytest.approx(expected)


class TestRadialFunctions:
    def test_radial_functions_cover_the_differences_along_edges(self):
        draw = np.random.default_rng(3)
        numbers, m = draw.normal(size=(500, 1)), 4000
        head, tail = draw.integers(500, size=(2, m))
        edges = torch.from_numpy(head), torch.zeros(m, dtype=torch.int64), torch.from_numpy(tail)
        centers, widths = init_bases(Context(edges, torch.from_numpy(numbers), torch.ones(500, 1, dtype=torch.bool)))
        assert centers.shape == widths.shape == (1, BASES_PER_ATTRIBUTE)
        differences = (numbers[head] - numbers[tail]).ravel()
        expected = np.quantile(
            np.concatenate([differences, -differences]), (np.arange(BASES_PER_ATTRIBUTE) + 0.5) / BASES_PER_ATTRIBUTE
        )
        np.testing.assert_allclose(centers[0], expected, atol=0.02)
        neighbors = np.diff(centers[0].numpy())
        np.testing.assert_allclose(widths[0, 1:-1], (neighbors[1:] + neighbors[:-1]) / 2, rtol=1e-6)
        np.testing.assert_allclose(widths[0, [0, -1]], neighbors[[0, -1]], rtol=1e-6)

    @pytest.mark.parametrize("values", [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [5.0, 5.0, -5.0]])
    @pytest.mark.parametrize("known", [[True, True, True], [True, False, True], [False, False, False]])
    def test_widths_of_radial_functions_are_positive(self, values, known):
        edges = torch.tensor([0, 1, 2]), torch.tensor([0, 0, 0]), torch.tensor([1, 2, 0])
        centers, widths = init_bases(Context(edges, torch.tensor(values)[:, None], torch.tensor(known)[:, None]))
        assert centers.isfinite().all()
        assert (widths > 0.05).all()

    def test_no_graph_gives_no_radial_functions(self):
        assert init_bases(Context())[0].shape == (0, BASES_PER_ATTRIBUTE)
