"""A whole step of the reference engine against the objective written out in NumPy, triple by triple."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scoring import make_scorer
from torch import Tensor

from focuse.config import SETTINGS
from focuse.data.triple_index import TripleIndex
from focuse.engines.autograd import AutogradEngine
from focuse.engines.base import Gradients, Step
from focuse.engines.optimizers import OPTIMIZERS, make_optimizer
from focuse.models.registry import make_model
from focuse.objective.focuse import FocusELayer
from focuse.objective.losses import FocusedLoss, Regularizer, SquaredError, make_loss
from focuse.objective.negatives import Batch, Negatives, NegativeSampler

SAMPLINGS = [each for each in SETTINGS["negative_sampling"].choices if each != "none"]

ENTITIES, RELATIONS, DIM = 6, 2, 2
# A repeated head, a loop, a triple that comes twice; entity 5 is in no positive.
HEADS, KINDS, TAILS, WEIGHTS = [0, 0, 3, 2, 0], [0, 1, 1, 0, 0], [1, 2, 3, 4, 1], [0.9, 0.0, 0.35, 1.0, 0.9]
BETA = 0.3


def np_complex(h: np.ndarray, r: np.ndarray, t: np.ndarray) -> float:
    h, r, t = (row[:DIM] + 1j * row[DIM:] for row in (h, r, t))
    return float(np.real((h * r * np.conj(t)).sum()))


# The score, and the non-linearity that suits it.
Score = Callable[[np.ndarray, np.ndarray, np.ndarray], float]
SCORES: dict[str, tuple[Score, str]] = {
    "complex": (np_complex, "softplus"),
    "distmult": (lambda h, r, t: float((h * r * t).sum()), "softplus"),
    "transe": (lambda h, r, t: float(-np.abs(h + r - t).sum()), "shifted-softplus"),
    "transe-l2": (lambda h, r, t: float(-np.sqrt(((h + r - t) ** 2).sum())), "shifted-softplus"),
}
SHIFTS = {"softplus": 0.0, "shifted-softplus": np.log(9999.0)}


def make_batch(dtype: torch.dtype = torch.float64) -> Batch:
    return Batch(*map(torch.tensor, (HEADS, KINDS, TAILS)), torch.tensor(WEIGHTS, dtype=dtype))


def make_tables(model: str, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    random, made = torch.Generator().manual_seed(4), make_model(model)
    widths = {"entity": (ENTITIES, made.widths(DIM)[0]), "relation": (RELATIONS, made.widths(DIM)[1])}
    return {name: torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for name, shape in widths.items()}


def corrupt(kind: str, filtered: bool = False, place: tuple[int, int, int] = (1, 2, 3)) -> list[Negatives]:
    facts = TripleIndex(*map(torch.tensor, (HEADS, KINDS, TAILS)), ENTITIES, RELATIONS) if filtered else None
    return NegativeSampler(kind, 4, ENTITIES, facts)(make_batch(), place)


def objective(model: str, loss: str = "multiclass-nll") -> FocusedLoss:
    return FocusedLoss(make_loss(loss), FocusELayer(SCORES[model][1]))


def corrupted(groups: list[Negatives], row: int, entities: int = ENTITIES) -> list[list[tuple[int, int, int]]]:
    """The corrupted triples of one positive, a list for each group."""
    h, r, t = HEADS[row], KINDS[row], TAILS[row]
    result = []
    for group in groups:
        own = range(entities) if group.entities is None else group.entities.expand(5, -1)[row].tolist()
        tails = [group.side == "tail"] * len(own) if group.replaces_tail is None else group.replaces_tail[row].tolist()
        mask = group.valid_mask(entities)
        counts = [True] * len(own) if mask is None else mask[row].tolist()
        cells = zip(own, tails, counts, strict=True)
        result.append([(h, r, e) if is_tail else (e, r, t) for e, is_tail, keep in cells if keep])
    return result


def np_objective(model: str, groups: list[Negatives], tables: Mapping[str, np.ndarray]) -> float:
    """Σ −log( e^h⁺ / (e^h⁺ + Σ e^h⁻) ) with h = α·softplus(f), one softmax a positive and group."""
    score, nonlinearity = SCORES[model]

    def g(h: int, r: int, t: int) -> float:
        f = score(tables["entity"][h], tables["relation"][r], tables["entity"][t])
        return float(np.logaddexp(0.0, f + SHIFTS[nonlinearity]))

    total = 0.0
    for row, w in enumerate(WEIGHTS):
        positive = (BETA + (1 - w) * (1 - BETA)) * g(HEADS[row], KINDS[row], TAILS[row])
        for triples in corrupted(groups, row):
            negative = [(BETA + w * (1 - BETA)) * g(*triple) for triple in triples]
            total -= np.log(np.exp(positive) / (np.exp(positive) + np.exp(negative).sum()))
    return float(total)


def differences(
    function: Callable[[Mapping[str, np.ndarray]], float], tables: Mapping[str, Tensor]
) -> dict[str, np.ndarray]:
    """Central differences of a function of the tables, number by number."""
    arrays = {name: table.clone().numpy() for name, table in tables.items()}
    result = {name: np.zeros_like(array) for name, array in arrays.items()}
    for name, array in arrays.items():
        for place in np.ndindex(array.shape):
            middle = array[place]
            array[place] = middle + 1e-6
            above = function(arrays)
            array[place] = middle - 1e-6
            result[name][place] = (above - function(arrays)) / 2e-6
            array[place] = middle
    return result


def sgd_gradient(
    model: str, groups: list[Negatives], penalty: Regularizer | None = None, scale: float = 1.0
) -> tuple[float, dict[str, np.ndarray]]:
    """The loss of a step, and its gradient as what plain descent took off the tables."""
    tables, lr = make_tables(model), 0.5
    before = {name: table.clone() for name, table in tables.items()}
    engine = AutogradEngine(make_model(model), tables, make_optimizer("sgd", tables, lr))
    loss = engine.step(Step(make_batch(), groups, objective(model), BETA, penalty, scale))
    return loss, {name: ((before[name] - tables[name]) / lr).numpy() for name in tables}


# ---- the objective and its gradient ---------------------------------------------------------------------------------


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("kind", SAMPLINGS)
@pytest.mark.parametrize("model", SCORES)
def test_step_descends_the_objective(model: str, kind: str, filtered: bool) -> None:
    groups = corrupt(kind, filtered)
    loss, gradient = sgd_gradient(model, groups)

    def function(tables: Mapping[str, np.ndarray]) -> float:
        return np_objective(model, groups, tables)

    tables = make_tables(model)
    assert loss == pytest.approx(function({name: table.numpy() for name, table in tables.items()}), rel=1e-8)
    for name, expected in differences(function, tables).items():
        assert np.abs(expected).max() > 0.01
        np.testing.assert_allclose(gradient[name], expected, rtol=1e-5, atol=1e-7)


def test_scale_multiplies_the_gradient_not_the_reported_loss() -> None:
    groups = corrupt("per-triple")
    one, gradient = sgd_gradient("complex", groups)
    fifth, smaller = sgd_gradient("complex", groups, scale=0.2)
    assert fifth == pytest.approx(one)
    np.testing.assert_allclose(smaller["entity"], 0.2 * gradient["entity"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize("scope", ["tables", "rows"])
def test_penalty_covers_whole_tables_or_the_rows_of_positives(scope: str, power: int) -> None:
    """Tables: every number once. Rows: those of the batch's positives, as often as they occur, no negatives'."""
    groups = corrupt("per-triple")
    plain, without = sgd_gradient("complex", groups)
    loss, gradient = sgd_gradient("complex", groups, Regularizer(power, 0.07, scope))
    times = {"entity": np.ones(ENTITIES), "relation": np.ones(RELATIONS)}
    if scope == "rows":
        times["entity"] = np.array([(HEADS + TAILS).count(e) for e in range(ENTITIES)])
        times["relation"] = np.array([KINDS.count(r) for r in range(RELATIONS)])
        assert times["entity"][5] == 0
    for name, table in make_tables("complex").items():
        x, often = table.numpy(), times[name][:, None]
        slope = 0.07 * often * power * np.abs(x) ** (power - 1) * np.sign(x)
        np.testing.assert_allclose(gradient[name] - without[name], slope, rtol=1e-7, atol=1e-10)
    assert loss == plain  # what is reported is the loss alone


@pytest.mark.parametrize("model", ["complex", "distmult"])
@pytest.mark.parametrize("scope", ["tables", "rows"])
def test_n3_penalty_uses_moduli_of_complex_numbers(model: str, scope: str) -> None:
    """γ Σ|z|³, of the rows of the batch's triples as Lacroix et al. (2018) take it; without complex numbers l3."""
    groups = corrupt("per-triple")
    without = sgd_gradient(model, groups)[1]
    gradient = sgd_gradient(model, groups, Regularizer(3, 0.07, scope, moduli=True))[1]
    ids = {"entity": HEADS + TAILS, "relation": KINDS}
    for name, table in make_tables(model).items():
        parts = table.numpy().reshape(len(table), -1, DIM)  # [rows, real and imaginary, DIM]
        slope = 0.07 * 3 * np.sqrt((parts**2).sum(1, keepdims=True)) * parts
        often = np.ones(len(table)) if scope == "tables" else np.bincount(ids[name], minlength=len(table))
        expected = often[:, None] * slope.reshape(table.shape)
        np.testing.assert_allclose(gradient[name] - without[name], expected, rtol=1e-7, atol=1e-10)


def test_penalty_is_not_scaled() -> None:
    groups, penalty = corrupt("per-triple"), Regularizer(3, 0.07)
    without = sgd_gradient("complex", groups)[1]
    both = sgd_gradient("complex", groups, penalty, 0.5)[1]
    for name, table in make_tables("complex").items():
        slope = 0.07 * 3 * table.numpy() * np.abs(table.numpy())
        np.testing.assert_allclose(both[name] - 0.5 * without[name], slope, rtol=1e-7, atol=1e-10)


# ---- rows only, or whole tables -------------------------------------------------------------------------------------


@dataclass
class Recorder:
    """An optimizer that keeps the gradients and changes nothing."""

    rows_only: bool
    seen: Gradients | None = None

    def update(self, gradients: Gradients) -> None:
        self.seen = gradients

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None: ...


def recorded(model: str, groups: list[Negatives], rows_only: bool, penalty: Regularizer | None) -> Gradients:
    recorder = Recorder(rows_only)
    AutogradEngine(make_model(model), make_tables(model), recorder).step(
        Step(make_batch(), groups, objective(model), BETA, penalty)
    )
    assert recorder.seen is not None
    return recorder.seen


@pytest.mark.parametrize("penalty", [None, Regularizer(3, 0.1, "rows")])
@pytest.mark.parametrize("kind", SAMPLINGS)
@pytest.mark.parametrize("model", SCORES)
def test_row_gradients_equal_gradients_of_whole_tables(model: str, kind: str, penalty: Regularizer | None) -> None:
    groups = corrupt(kind)
    whole = recorded(model, groups, False, penalty)
    touched: dict[str, set[int]] = {"entity": {*HEADS, *TAILS}, "relation": set(KINDS)}
    for group in groups:
        touched["entity"] |= set(range(ENTITIES) if group.entities is None else group.entities.flatten().tolist())
    for name, (ids, gradient) in recorded(model, groups, True, penalty).items():
        assert whole[name][0] is None
        places = list(range(len(whole[name][1]))) if ids is None else ids.tolist()
        assert places == sorted(touched[name])
        dense = torch.zeros_like(whole[name][1])
        dense[places] = gradient
        torch.testing.assert_close(dense, whole[name][1], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", SAMPLINGS)
def test_row_adagrad_trains_like_adagrad(kind: str) -> None:
    """Adagrad leaves a row without gradient alone, so both must end in the same tables."""
    ends = []
    for name in ("adagrad", "sparse-adagrad"):
        tables = make_tables("distmult")
        engine = AutogradEngine(make_model("distmult"), tables, make_optimizer(name, tables, 0.1))
        for step in range(5):
            engine.step(Step(make_batch(), corrupt(kind, place=(0, 0, step)), objective("distmult"), BETA))
        ends.append(tables)
    for name in ends[0]:
        torch.testing.assert_close(ends[0][name], ends[1][name], rtol=1e-9, atol=1e-12)


# ---- UKGE: dense tensors, squared errors, and what rules infer ------------------------------------------------------

# Entities 6 (a head) and 7 (a tail) and relation 2 are in hints alone; one hint comes twice.
HINTS = ([0, 6, 6, 3, 3], [2, 1, 1, 2, 0], [7, 2, 2, 1, 1], [0.95, 0.9, 0.9, 0.02, 0.6])
SHARE, KNOWN_ENTITIES = 0.7, 8
PHI: dict[str, Callable[[float], float]] = {"ukge-logi": lambda f: 1 / (1 + np.exp(-f)), "ukge-rect": lambda f: f}
UKGE = pytest.mark.parametrize("model", PHI)


def ukge_tables() -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(9)
    shapes = {"entity": (KNOWN_ENTITIES, DIM), "relation": (3, DIM)}
    tables = {name: torch.randn(shape, generator=random, dtype=torch.float64) for name, shape in shapes.items()}
    return {**tables, "scale": torch.tensor([0.8, 0.2], dtype=torch.float64)}


def ukge_step(
    model: str,
    tables: dict[str, Tensor],
    optimizer: Any,
    groups: list[Negatives],
    with_auxiliary: bool = True,
    **more: Any,
) -> float:
    engine = AutogradEngine(make_model(model), tables, optimizer)
    chosen = SquaredError(engine.model.confidence_head, SHARE)
    inferred = Batch(*map(torch.tensor, HINTS[:3]), torch.tensor(HINTS[3], dtype=torch.float64))
    hints = inferred if with_auxiliary else None
    return engine.step(Step(make_batch(), groups, chosen, BETA, auxiliary=hints, **more))


def ukge_gradient(model: str, groups: list[Negatives], **more: Any) -> tuple[float, dict[str, np.ndarray]]:
    tables = ukge_tables()
    loss = ukge_step(model, tables, make_optimizer("sgd", tables, 0.5), groups, **more)
    return loss, {name: ((old - tables[name]) / 0.5).numpy() for name, old in ukge_tables().items()}


def np_ukge(model: str, groups: list[Negatives], tables: Mapping[str, np.ndarray], with_auxiliary: bool) -> float:
    """Σ (φ⁺ − w)² + mean φ⁻² over positives and groups, and for each of these p · mean max(0, s − φ)²."""

    def phi(h: int, r: int, t: int) -> float:
        product = sum(tables["entity"][h] * tables["relation"][r] * tables["entity"][t])
        return PHI[model](tables["scale"][0] * product + tables["scale"][1])

    short = [max(0.0, s - phi(h, r, t)) ** 2 for h, r, t, s in zip(*HINTS, strict=True)]
    assert 0.0 in short  # a hint that is fulfilled pulls no more
    total = 0.0
    for row, w in enumerate(WEIGHTS):
        for triples in corrupted(groups, row, KNOWN_ENTITIES):
            total += (phi(HEADS[row], KINDS[row], TAILS[row]) - w) ** 2
            total += float(np.mean([phi(*triple) ** 2 for triple in triples]))
            total += SHARE * float(np.mean(short)) if with_auxiliary else 0.0
    return total


def ukge_corruptions(kind: str, place: tuple[int, int, int] = (1, 2, 3)) -> list[Negatives]:
    entities = KNOWN_ENTITIES if kind == "all" else ENTITIES
    facts = TripleIndex(*map(torch.tensor, (HEADS, KINDS, TAILS)), entities, 3)
    return NegativeSampler(kind, 4, entities, facts)(make_batch(), place)


@UKGE
@pytest.mark.parametrize("with_auxiliary", [False, True])
@pytest.mark.parametrize("kind", SAMPLINGS)
def test_ukge_step_descends_its_objective(model: str, kind: str, with_auxiliary: bool) -> None:
    """Hints count once a positive and group, so a mean over the batch counts them once."""
    groups = ukge_corruptions(kind)
    loss, gradient = ukge_gradient(model, groups, with_auxiliary=with_auxiliary)
    mean_loss, mean_gradient = ukge_gradient(model, groups, with_auxiliary=with_auxiliary, scale=1 / len(WEIGHTS))

    def function(tables: Mapping[str, np.ndarray]) -> float:
        return np_ukge(model, groups, tables, with_auxiliary)

    tables = ukge_tables()
    assert loss == pytest.approx(function({name: table.numpy() for name, table in tables.items()}), rel=1e-10)
    assert mean_loss == loss
    for name, expected in differences(function, tables).items():
        assert np.abs(expected).max() > 0.01
        np.testing.assert_allclose(gradient[name], expected, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(mean_gradient[name], expected / len(WEIGHTS), rtol=1e-5, atol=1e-7)
    assert bool(gradient["relation"][2].any()) is with_auxiliary


@UKGE
@pytest.mark.parametrize("scope", ["tables", "rows"])
def test_penalty_excludes_dense_tensors_and_inferred_triples(model: str, scope: str) -> None:
    groups = ukge_corruptions("per-triple")
    plain, without = ukge_gradient(model, groups)
    loss, gradient = ukge_gradient(model, groups, regularizer=Regularizer(2, 0.3, scope))
    assert loss == plain
    np.testing.assert_array_equal(gradient["scale"], without["scale"])
    assert np.abs(gradient["entity"] - without["entity"]).max() > 0.1
    if scope == "rows":
        np.testing.assert_array_equal(gradient["entity"][6:], without["entity"][6:])
        np.testing.assert_array_equal(gradient["relation"][2], without["relation"][2])


@UKGE
@pytest.mark.parametrize("kind", SAMPLINGS)
def test_row_adagrad_trains_like_adagrad_with_inferred_triples(model: str, kind: str) -> None:
    ends = []
    for name in ("adagrad", "sparse-adagrad"):
        tables = ukge_tables()
        chosen, penalty = make_optimizer(name, tables, 0.1), Regularizer(2, 0.05, "rows")
        for step in range(4):
            ukge_step(model, tables, chosen, ukge_corruptions(kind, (0, 0, step)), regularizer=penalty)
        ends.append(tables)
    for name, start in ukge_tables().items():
        torch.testing.assert_close(ends[0][name], ends[1][name], rtol=1e-9, atol=1e-12)
        assert (ends[1][name] != start).any(-1).all()


def test_scorer_uses_the_current_dense_tensors() -> None:
    tables = ukge_tables()
    engine = make_scorer(
        make_model("ukge-logi"), tables["entity"], tables["relation"], parameters={"scale": tables["scale"]}
    )
    ids = (torch.tensor([1]), torch.tensor([2]), torch.tensor([3]))
    before = engine.score(*ids)
    tables["scale"].mul_(2)
    torch.testing.assert_close(engine.score(*ids), 2 * before)


# ---- what must hold bit by bit --------------------------------------------------------------------------------------


def train(
    model: str, kind: str, optimizer: str, chosen: Any, beta: float = BETA, steps: int = 3
) -> tuple[list[float], dict[str, Tensor]]:
    tables = make_tables(model, torch.float32)
    engine = AutogradEngine(make_model(model), tables, make_optimizer(optimizer, tables, 0.1))
    losses = [
        engine.step(Step(make_batch(torch.float32), corrupt(kind, place=(0, 0, step)), chosen, beta))
        for step in range(steps)
    ]
    return losses, tables


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", SAMPLINGS)
def test_repeated_training_is_bit_identical(kind: str, optimizer: str) -> None:
    first, again = (train("complex", kind, optimizer, objective("complex")) for _ in range(2))
    assert first[0] == again[0]
    assert all(torch.equal(first[1][name], again[1][name]) for name in first[1])
    assert not torch.equal(first[1]["entity"], make_tables("complex", torch.float32)["entity"])


@pytest.mark.parametrize("loss", ["multiclass-nll", "nll", "self-adversarial"])
@pytest.mark.parametrize("kind", SAMPLINGS)
@pytest.mark.parametrize("model", SCORES)
def test_beta_1_with_linear_layer_equals_the_plain_model(model: str, kind: str, loss: str) -> None:
    plain = train(model, kind, "adagrad", FocusedLoss(make_loss(loss)), 1.0)
    focused = train(model, kind, "adagrad", FocusedLoss(make_loss(loss), FocusELayer("linear")), 1.0)
    assert plain[0] == focused[0]
    assert all(torch.equal(plain[1][name], focused[1][name]) for name in plain[1])
    weighted = train(model, kind, "adagrad", FocusedLoss(make_loss(loss), FocusELayer("linear")), 0.5)
    assert weighted[0] != plain[0]


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "sparse-adam", "sparse-adagrad"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_loss_changes_no_table(optimizer: str, bad: float) -> None:
    tables = make_tables("complex", torch.float32)
    chosen = make_optimizer(optimizer, tables, 0.1)
    engine = AutogradEngine(make_model("complex"), tables, chosen)
    engine.step(Step(make_batch(torch.float32), corrupt("per-triple"), objective("complex"), BETA))
    before = {name: value.clone() for name, value in {**tables, **chosen.state()}.items()}
    with pytest.raises(FloatingPointError, match=f"the loss is {bad}"):
        engine.step(Step(make_batch(torch.float32), corrupt("per-triple"), lambda positive, *_: positive + bad, BETA))
    after = {**tables, **chosen.state()}
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_overflowing_tables_are_detected() -> None:
    tables = make_tables("complex", torch.float32)
    tables["entity"][0] = 1e30
    before = {name: table.clone() for name, table in tables.items()}
    engine = AutogradEngine(make_model("complex"), tables, make_optimizer("sgd", tables, 0.1))
    with pytest.raises(FloatingPointError):
        engine.step(Step(make_batch(torch.float32), corrupt("all"), objective("complex"), BETA, Regularizer(3, 1.0)))
    assert all(torch.equal(tables[name], table) for name, table in before.items())


# ---- reading it -----------------------------------------------------------------------------------------------------


def test_scorer_reads_rows_and_blocks_of_the_tables() -> None:
    tables = make_tables("distmult")
    engine = make_scorer(make_model("distmult"), **tables)
    ids = torch.tensor([[3, 0], [5, 3]])
    assert engine.rows("entity", ids).shape == (2, 2, DIM)
    assert torch.equal(engine.rows("entity", ids)[1, 0], tables["entity"][5])
    assert torch.equal(engine.encoded_tables()["entity"], tables["entity"])
    assert engine.device == tables["entity"].device


def test_scores_carry_no_gradient() -> None:
    tables = {name: table.requires_grad_() for name, table in make_tables("complex").items()}
    engine = make_scorer(make_model("complex"), **tables)
    head, kind, tail = map(torch.tensor, (HEADS, KINDS, TAILS))
    scores, everyone = engine.score(head, kind, tail), engine.score_all(head, kind, "tail")
    assert not scores.requires_grad
    assert not everyone.requires_grad
    torch.testing.assert_close(everyone[torch.arange(5), tail], scores)


def test_negatives_of_both_sides_need_a_side_per_negative() -> None:
    tables = make_tables("complex")
    engine = AutogradEngine(make_model("complex"), tables, make_optimizer("sgd", tables, 0.1))
    with pytest.raises(ValueError, match="side 'both' need entities and replaces_tail"):
        engine.step(Step(make_batch(), [Negatives("both", torch.zeros(5, 2).long())], objective("complex"), BETA))
