"""Models with a confidence head against their equations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scoring import make_scorer

import focuse
from focuse.config import Config
from focuse.data.graph import Graph
from focuse.data.triple_index import TripleIndex
from focuse.engines.autograd import AutogradEngine
from focuse.engines.base import Step
from focuse.engines.optimizers import make_optimizer
from focuse.errors import FocuseError
from focuse.evaluation.ranking import rank
from focuse.models import Model
from focuse.models.base import FusedForm, confidence, moduli, score_triples
from focuse.models.bilinear import DistMult
from focuse.models.registry import make_model
from focuse.models.uncertain import (
    EULER_GAMMA,
    GUMBEL_BETA,
    Beurre,
    PassleafComplEx,
    PassleafRotatE,
    Suke,
    UkgeLogi,
    UkgeRect,
    box,
    initial_boxes,
    initial_maps,
    intersection,
    log_volume,
)
from focuse.objective.losses import SquaredError
from focuse.objective.negatives import Batch, Negatives
from focuse.training.problem import init_tables

# ---- ukge -----------------------------------------------------------------------------------------------------------

KINDS = [UkgeLogi, UkgeRect]
UKGE_SCALE = {"scale": torch.tensor([-1.7, 0.4], dtype=torch.float64)}


def ukge_phi(model_class: type[Model], f: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-f)) if model_class is UkgeLogi else np.minimum(np.maximum(f, 0.0), 1.0)


@pytest.mark.parametrize("model_class", KINDS)
def test_ukge_score_is_linear_in_the_triple_product(model_class: type[Model]) -> None:
    head, relation, tail = np.random.default_rng(1).normal(size=(3, 6, 5))
    expected = [-1.7 * sum(h * r * t) + 0.4 for h, r, t in zip(head, relation, tail, strict=True)]
    rows = tuple(map(torch.from_numpy, (head, relation, tail)))
    np.testing.assert_allclose(score_triples(model_class().bind(UKGE_SCALE), *rows), expected, rtol=1e-12)
    torch.testing.assert_close(
        score_triples(model_class(), *rows), score_triples(DistMult(), *rows)
    )  # w = 1 and b = 0 at first


@pytest.mark.parametrize("model_class", KINDS)
def test_ukge_confidence_is_the_mapped_score(model_class: type[Model]) -> None:
    f = np.linspace(-4, 4, 41)
    np.testing.assert_allclose(confidence(model_class(), torch.from_numpy(f)), ukge_phi(model_class, f), rtol=1e-12)
    learnt = f if model_class is UkgeRect else ukge_phi(model_class, f)  # the rectifier is trained without its bounds
    np.testing.assert_allclose(model_class.confidence_head.unclipped(torch.from_numpy(f), {}), learnt, rtol=1e-12)
    far = confidence(model_class(), torch.tensor([-1e4, 1e4]))
    assert far.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("model_class", KINDS)
@given(st.lists(st.floats(-3, 3), min_size=2, max_size=20, unique=True))
def test_ukge_scores_and_confidences_have_the_same_order(model_class: type[Model], scores: list[float]) -> None:
    f = torch.tensor(sorted(scores), dtype=torch.float64)
    found = confidence(model_class(), f)
    assert (found.diff() >= 0).all()
    inside = (found > 0) & (found < 1)
    apart = f[inside].diff() > 1e-9
    assert (found[inside].diff()[apart] > 0).all()


@pytest.mark.parametrize("name", ["ukge-logi", "ukge-rect"])
def test_ukge_ranks_by_score_without_ties_at_confidence_bounds(name: str) -> None:
    """All tails have confidence 1 in float32, yet each has a rank of its own, ties counting worst."""
    tails = torch.tensor([20.0, 50.0, 30.0, 40.0])
    engine = make_scorer(make_model(name), torch.cat([torch.ones(1), tails])[:, None], torch.ones(1, 1))
    f = engine.score_all(torch.tensor([0]), torch.tensor([0]), "tail")
    assert confidence(engine.model, f)[0, 1:].tolist() == [1.0] * 4
    head, kind, tail = torch.zeros(4).long(), torch.zeros(4).long(), torch.arange(1, 5)
    nothing = torch.empty(0, dtype=torch.int64)
    ranks = rank(engine, head, kind, tail, TripleIndex(nothing, nothing, nothing, 5, 1)).raw.ranks("worst")
    assert ranks[:, 0].tolist() == [4, 1, 3, 2]


def test_ukge_dense_tensors_are_not_shared_between_models() -> None:
    first = UkgeLogi().init_parameters(1, torch.Generator())
    first["scale"] += 7
    assert UkgeLogi().init_parameters(1, torch.Generator())["scale"].tolist() == [1.0, 0.0]
    plain = UkgeLogi()
    bound = plain.bind(UKGE_SCALE)
    assert bound.parameters is UKGE_SCALE
    assert plain.parameters["scale"].tolist() == UkgeLogi.parameters["scale"].tolist() == [1.0, 0.0]
    assert DistMult().init_parameters(1, torch.Generator()) == {}


def test_ukge_other_models_have_no_confidence() -> None:
    assert DistMult.confidence_head is None
    with pytest.raises(FocuseError, match="model 'distmult' has no confidence head"):
        confidence(DistMult(), torch.zeros(1))


# ---- passleaf -------------------------------------------------------------------------------------------------------

K = 5
PASSLEAF_SCALE = {"scale": torch.tensor([1.7, -0.4], dtype=torch.float64)}


def numbers(rows: np.ndarray) -> np.ndarray:
    """Rows of real and then imaginary parts as complex numbers."""
    return rows[..., :K] + 1j * rows[..., K:]


def complex_score(h: np.ndarray, r: np.ndarray, t: np.ndarray) -> float:
    return float((numbers(h) * numbers(r) * numbers(t).conj()).sum().real)


def rotate_score(h: np.ndarray, r: np.ndarray, t: np.ndarray) -> float:
    return float(2 - np.mean(np.abs(numbers(h) * np.exp(1j * r) - numbers(t)) ** 2))


@pytest.mark.parametrize(("model_class", "formula"), [(PassleafComplEx, complex_score), (PassleafRotatE, rotate_score)])
@pytest.mark.parametrize("side", ["head", "tail"])
def test_passleaf_confidence_is_the_logistic_of_a_linear_map(model_class: type[Model], formula, side) -> None:  # type: ignore[no-untyped-def]
    random, model = np.random.default_rng(1), model_class().bind(PASSLEAF_SCALE)
    head, tail = random.normal(size=(2, 6, model.widths(K)[0]))
    relation = random.normal(size=(6, model.widths(K)[1]))
    lines = [1.7 * formula(*rows) - 0.4 for rows in zip(head, relation, tail, strict=True)]
    score = score_triples(model, *map(torch.from_numpy, (head, relation, tail)), side)
    np.testing.assert_allclose(score, lines, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(confidence(model, score), 1 / (1 + np.exp(-np.array(lines))), rtol=1e-10)


def test_passleaf_rotated_head_gets_the_highest_score() -> None:
    """A tail that is the turned head has the highest score there is, 2, and no other has."""
    model, random = PassleafRotatE(), torch.Generator().manual_seed(2)
    head, angle = torch.randn(1, 2 * K, generator=random), torch.randn(1, K, generator=random)
    turned = torch.view_as_real(torch.complex(*head.chunk(2, -1)) * torch.polar(torch.ones(1, K), angle))
    tail = torch.cat([turned[..., 0], turned[..., 1]], -1)
    assert score_triples(model, head, angle, tail).item() == pytest.approx(2, abs=1e-5)
    assert score_triples(model, head, angle + 2 * math.pi, tail).item() == pytest.approx(2, abs=1e-4)
    assert (score_triples(model, head, angle, tail + 0.1 * torch.randn(1, 2 * K, generator=random)) < 2).all()


def test_passleaf_initial_angles_are_uniform() -> None:
    settings = Config.from_kwargs(model="passleaf-rotate", dim=50)
    tables = init_tables(settings, settings.make_model(), 300, 40)
    angles = tables["relation"]
    assert angles.shape == (40, 50)
    assert -math.pi <= angles.min() < -0.98 * math.pi
    assert 0.98 * math.pi < angles.max() <= math.pi
    assert angles.std().item() == pytest.approx(math.pi / math.sqrt(3), rel=0.05)
    assert tables["entity"].std().item() == pytest.approx(0.3, rel=0.05)


def test_passleaf_complex_is_fused_and_rotate_is_not() -> None:
    assert PassleafComplEx.fused == FusedForm(query="complex")
    assert PassleafRotatE.fused is None


def test_passleaf_entities_with_equal_rows_tie_exactly() -> None:
    rows = torch.randn(7, 2 * K, generator=torch.Generator().manual_seed(4))
    rows = torch.cat([rows, rows])
    engine = make_scorer(PassleafRotatE(), rows, torch.randn(2, K))
    scores = engine.score_all(torch.arange(14), torch.tensor([0, 1] * 7), "tail")
    assert torch.equal(scores[:, :7], scores[:, 7:])


def test_passleaf_n3_uses_moduli_and_ignores_angles() -> None:
    model = PassleafRotatE()
    np.testing.assert_allclose(moduli(model, "entity", torch.tensor([[3.0, 0.0, 4.0, 2.0]])), [[5.0, 2.0]])
    np.testing.assert_allclose(moduli(model, "relation", torch.tensor([[3.0, -1.0]])), [[1.0, 1.0]])


# ---- suke -----------------------------------------------------------------------------------------------------------

EVALUATORS = np.array([[1.3, 0.2], [0.6, -0.5]])


def logistic(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def bound() -> Suke:
    return Suke().bind({"evaluators": torch.from_numpy(EVALUATORS)})


def test_suke_confidence_is_the_product_of_both_evaluators() -> None:
    f = np.linspace(-5, 5, 21)
    structure, uncertainty = (logistic(w * f + b) for w, b in EVALUATORS)
    np.testing.assert_allclose(
        bound().confidence_head.plausibility(torch.from_numpy(f), bound().parameters), structure, rtol=1e-12
    )
    np.testing.assert_allclose(confidence(bound(), torch.from_numpy(f)), structure * uncertainty, rtol=1e-12)
    rows = tuple(torch.randn(4, 6) for _ in range(3))
    assert torch.equal(score_triples(Suke(), *rows), score_triples(DistMult(), *rows))


def test_suke_other_models_have_no_plausibility() -> None:
    assert not UkgeLogi.confidence_head.has_plausibility
    with pytest.raises(NotImplementedError, match="no plausibility"):
        UkgeLogi.confidence_head.plausibility(torch.zeros(1), {})


def test_suke_objective_matches_its_formula() -> None:
    random = np.random.default_rng(5)
    positive, negative, weight = random.normal(size=4), random.normal(size=(4, 3)), random.random(4)
    mask = np.array([[True, True, False], [True] * 3, [False] * 3, [True, False, True]])
    objective = SquaredError(Suke.confidence_head).for_model(bound())
    expected = []
    for p, row, w, kept in zip(positive, negative, weight, mask, strict=True):
        others = row[kept]
        total = 0.0
        for of, label in ((lambda f: logistic(EVALUATORS[0, 0] * f + EVALUATORS[0, 1]), 1.0), (suke_phi, w)):
            total += (of(p) - label) ** 2 + (np.mean(of(others) ** 2) if len(others) else 0.0)
        expected.append(total)
    found = objective(*map(torch.from_numpy, (positive, negative, weight, mask)), 1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def suke_phi(f: np.ndarray) -> np.ndarray:
    first, second = (logistic(w * f + b) for w, b in EVALUATORS)
    return first * second


@pytest.mark.parametrize("with_hints", [False, True])
def test_suke_a_step_moves_both_evaluators_by_their_gradient(with_hints: bool) -> None:
    """Plain descent by one step, beside finite differences of the whole loss."""
    random = torch.Generator().manual_seed(6)
    tables = {name: torch.randn(n, 4, generator=random) * 0.5 for name, n in (("entity", 5), ("relation", 2))}
    tables["evaluators"] = torch.tensor(EVALUATORS, dtype=torch.float32)
    first = {name: table.double().numpy().copy() for name, table in tables.items()}
    rate = 1e-3
    engine = AutogradEngine(Suke(), tables, make_optimizer("sgd", tables, rate))
    batch = Batch(torch.tensor([0, 1]), torch.tensor([0, 1]), torch.tensor([2, 3]), torch.tensor([0.9, 0.3]))
    corruptions = [Negatives("tail", torch.tensor([[4, 1], [0, 2]]))]
    hints = Batch(*(torch.tensor([i]) for i in (3, 0, 4)), torch.tensor([1.0]))
    objective = SquaredError(Suke.confidence_head, rule_weight=0.3)
    engine.step(Step(batch, corruptions, objective, 1.0, auxiliary=hints if with_hints else None))
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


@pytest.mark.parametrize("sampling", ["per-triple", "shared", "all"])
def test_suke_learns_to_predict_weights(small: Graph, sampling: str) -> None:
    quick = {"dim": 8, "epochs": 6, "lr": 2e-2, "eval_start": 0, "progress": False}
    quick["num_negatives"] = None if sampling == "all" else 8
    run = focuse.train(small, model="suke", negative_sampling=sampling, **quick)
    assert run.history[-1]["loss"] < run.history[0]["loss"]
    assert not torch.equal(run.scorer.tables["evaluators"], Suke.parameters["evaluators"])
    assert run.predict(head=run.graph.entities[0], relation=run.graph.relations[0], top=2)[0].confidence <= 1


# ---- boxes ----------------------------------------------------------------------------------------------------------

SOFTNESS = 0.05


def boxes(count: int, d: int = 3, seed: int = 0) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, 2 * d, generator=random, dtype=torch.float64)
    maps = torch.randn(count, 2 * d, generator=random, dtype=torch.float64) + 0.5
    return box(rows, maps)


def test_boxes_are_translated_and_scaled_by_relations() -> None:
    rows, mapping = torch.tensor([[1.0, 2.0, 0.0, math.log(3)]]), torch.tensor([[0.5, -1.0, 2.0, -4.0]])
    # low corners 1 and 2 move by .5 and −1; extents 1 and 3 become 2 and, as no stretch is below 0, 0
    torch.testing.assert_close(box(rows, mapping), torch.tensor([[1.5, 1.0, 3.5, 1.0]]))


def test_boxes_intersections_and_volumes_match_their_formulas() -> None:
    one, other = boxes(20), boxes(20, seed=1)
    shared = intersection(one, other, SOFTNESS)
    for a, b, both in zip(one.tolist(), other.tolist(), shared.tolist(), strict=True):
        for i in range(3):
            low = SOFTNESS * np.logaddexp(a[i] / SOFTNESS, b[i] / SOFTNESS)
            high = -SOFTNESS * np.logaddexp(-a[i + 3] / SOFTNESS, -b[i + 3] / SOFTNESS)
            assert (both[i], both[i + 3]) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))
        volume = math.prod(math.log1p(math.exp(both[i + 3] - both[i] - 2 * EULER_GAMMA * SOFTNESS)) for i in range(3))
        assert log_volume(torch.tensor([both], dtype=torch.float64), SOFTNESS).item() == pytest.approx(math.log(volume))


def test_boxes_intersection_corners_match_means_of_gumbel_maxima() -> None:
    """max of two Gumbel variables of means a and b is one of mean β ln(e^(a/β) + e^(b/β)); smallest ones alike."""
    random, beta = np.random.default_rng(3), 0.4
    one, other = np.array([0.1, 1.0]), np.array([0.3, 0.7])  # a low and a high corner each
    lows = [mean - EULER_GAMMA * beta + beta * random.gumbel(size=400_000) for mean in (one[0], other[0])]
    highs = [mean + EULER_GAMMA * beta - beta * random.gumbel(size=400_000) for mean in (one[1], other[1])]
    found = intersection(torch.from_numpy(one)[None], torch.from_numpy(other)[None], beta)[0]
    assert found[0].item() == pytest.approx(np.maximum(*lows).mean(), abs=5e-3)
    assert found[1].item() == pytest.approx(np.minimum(*highs).mean(), abs=5e-3)


@pytest.mark.parametrize("apart", [0.0, 14.9, 15.1, 200.0, 1e5])
def test_boxes_far_apart_have_volume_and_gradient_in_float32(apart: float) -> None:
    boxes = torch.tensor([[apart, 0.0]], requires_grad=True)  # high − low = −apart
    value = log_volume(boxes, 0.01)
    extent = -apart - 2 * EULER_GAMMA * 0.01
    exact = math.log(math.log1p(math.exp(extent))) if extent > -700 else extent
    assert value.item() == pytest.approx(exact, rel=1e-5)
    value.sum().backward()
    assert boxes.grad is not None
    slope = 1 / (1 + math.exp(-extent)) / math.log1p(math.exp(extent)) if apart < 100 else 1.0
    assert boxes.grad[0, 1].item() == pytest.approx(slope, rel=1e-5)


def test_boxes_initial_boxes_and_maps_are_those_of_the_authors_code() -> None:
    values = torch.randn(200, 40, generator=torch.Generator().manual_seed(2))
    low, extent = initial_boxes(values).chunk(2, -1)
    assert 1e-4 <= low.min() < 3e-4
    assert 9.8e-3 < low.max() <= 1e-2
    assert -0.1 <= extent.min() < -0.099
    assert -0.002 < extent.max() <= -0.001
    for shift, stretch in (part.chunk(2, -1) for part in initial_maps(values).chunk(2, -1)):
        assert shift.std().item() == pytest.approx(1e-4, rel=0.1)
        assert stretch.mean().item() == pytest.approx(1.0, abs=0.02)
        assert stretch.std().item() == pytest.approx(0.2, rel=0.1)


# ---- beurre ---------------------------------------------------------------------------------------------------------

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
        low = GUMBEL_BETA * np.logaddexp(head_low / GUMBEL_BETA, tail_low / GUMBEL_BETA)
        high = -GUMBEL_BETA * np.logaddexp(-head_high / GUMBEL_BETA, -tail_high / GUMBEL_BETA)
        shared *= math.log1p(math.exp(high - low - 2 * EULER_GAMMA * GUMBEL_BETA))
        alone *= math.log1p(math.exp(tail_high - tail_low - 2 * EULER_GAMMA * GUMBEL_BETA))
    return shared / alone


@pytest.mark.parametrize("side", ["head", "tail"])
def test_beurre_confidence_is_the_covered_share_of_the_tails_box(side) -> None:  # type: ignore[no-untyped-def]
    random, model = np.random.default_rng(4), Beurre()
    head, tail = random.normal(size=(2, 12, 2 * D))
    relation = random.normal(size=(12, 4 * D))
    score = score_triples(model, *map(torch.from_numpy, (head, relation, tail)), side)
    expected = [brute(*rows) for rows in zip(head, relation, tail, strict=True)]
    np.testing.assert_allclose(confidence(model, score), expected, rtol=1e-9)
    assert (score <= 0).all()
    assert torch.equal(model.confidence_head.unclipped(score, {}), score.exp())


def test_beurre_confidence_of_a_contained_box_is_not_symmetric() -> None:
    identity = torch.cat([torch.zeros(1, D), torch.ones(1, D)] * 2, -1)
    large = torch.cat([torch.full((1, D), -5.0), torch.full((1, D), math.log(20.0))], -1)
    small = torch.cat([torch.zeros(1, D), torch.zeros(1, D)], -1)
    model = Beurre()
    assert confidence(model, score_triples(model, large, identity, small)).item() == pytest.approx(1.0, abs=1e-5)
    assert confidence(model, score_triples(model, small, identity, large)).item() < 0.01


@pytest.mark.parametrize("sampling", ["per-triple", "shared", "all"])
def test_beurre_learns_to_predict_weights(small: Graph, sampling: str) -> None:
    quick = {"dim": 8, "epochs": 5, "lr": 2e-2, "eval_start": 0, "progress": False}
    quick["num_negatives"] = None if sampling == "all" else 6
    run = focuse.train(small, model="beurre", negative_sampling=sampling, **quick)
    assert run.history[-1]["loss"] < run.history[0]["loss"]
    links = run.predict(head=run.graph.entities[0], relation=run.graph.relations[0], top=3)
    assert all(0 <= link.confidence <= 1 for link in links)
