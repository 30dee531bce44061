"""Models whose queries torch computes, and models with inverse relations, take autograd's steps in the C++ loops."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.engines.test_fused_cpu import (
    NONLINEARITIES,
    OPTIMIZERS,
    Case,
    Inverse,
    assert_same,
    compare,
    fused_steps,
    objective_of,
    squared_error,
)
from torch import Tensor

from focuse.config import SETTINGS
from focuse.engines import fused_cpu
from focuse.engines.autograd import AutogradEngine
from focuse.engines.base import Step
from focuse.engines.fused_cpu import AutogradQueries, FusedCpuEngine
from focuse.engines.native import library
from focuse.models import Model, Side
from focuse.models.base import FusedForm, Similarity
from focuse.models.bilinear import ComplEx, DistMult
from focuse.models.registry import MODELS as REGISTERED
from focuse.models.registry import make_model
from focuse.models.translational import TransE, TransEL2
from focuse.models.uncertain import UkgeLogi
from focuse.objective.losses import LOSSES, SoftLabelLoss

SAMPLINGS = [each for each in SETTINGS["negative_sampling"].choices if each != "none"]

pytestmark = pytest.mark.skipif(library() is None, reason="the loops were not built: no C++ compiler")


class Doubled(DistMult):
    """Its query is not DistMult's, and no kernel knows it."""

    fused = FusedForm()

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return 2 * known * relation


class Bilinear(Model):
    """RESCAL: a relation is a matrix, its row much wider than an entity's."""

    name = "bilinear"
    similarity = "dot"
    fused = FusedForm()

    def widths(self, dim: int) -> tuple[int, int]:
        return dim, dim * dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        matrix = relation.unflatten(-1, (known.shape[-1], known.shape[-1]))
        return torch.einsum("bi,bij->bj" if side == "tail" else "bj,bij->bi", known, matrix)


class Core(Model):
    """A core, as TuckER's; one buffer, and coordinates that are dropped by the seed of the step."""

    name = "core"
    similarity: Similarity = "dot"
    fused = FusedForm()
    buffers = frozenset({"mean"})

    def widths(self, dim: int) -> tuple[int, int]:
        return dim, 3

    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return {"core": torch.randn(3, dim, dim, generator=random) * 0.5, "mean": torch.full((dim,), 0.7)}

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        seed = self.context.seed
        if seed is not None:
            known = known * (torch.rand(known.shape, generator=torch.Generator().manual_seed(seed)) < 0.8)
        core = self.parameters["core"] if side == "tail" else self.parameters["core"].mT
        return torch.einsum("bi,bk,kij->bj", known, relation, core) + self.parameters["mean"]


class DistanceCore(Core):
    similarity: Similarity = "l2"


class Still(DistMult):
    """Its query is the known row itself, and no relation has a gradient."""

    name = "still"
    fused = FusedForm()

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known


class Turned(TransE):
    """The translation is rolled first."""

    fused = FusedForm()

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known + relation.roll(1, -1) if side == "tail" else known - relation.roll(1, -1)


MODELS: dict[str, Model | Inverse] = {
    "doubled": Doubled(),
    "bilinear": Bilinear(),
    "core": Core(),
    "still": Still(),
    "turned": Turned(),
    "complex-inverse": Inverse(ComplEx()),
    "distmult-inverse": Inverse(DistMult()),
    "transe-inverse": Inverse(TransE()),
    "transe-l2-inverse": Inverse(TransEL2()),
    "core-inverse": Inverse(DistanceCore()),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_and_loss_takes_the_references_steps(monkeypatch: pytest.MonkeyPatch, name: str, loss: str) -> None:
    """Every loss and model with every sampling, filtered or not; nonlinearities, optimizers and scopes take turns."""
    steps = fused_steps(monkeypatch)
    for turn, (sampling, filtered) in enumerate(itertools.product(SAMPLINGS, (False, True))):
        place = turn + 7 * list(LOSSES).index(loss) + 3 * list(MODELS).index(name)
        optimizer = OPTIMIZERS[place % 3]
        scope = "rows" if place % 2 else "tables" if optimizer == "adam" else "touched"
        objective = objective_of(loss, NONLINEARITIES[place % len(NONLINEARITIES)])
        compare(MODELS[name], optimizer, objective, sampling=sampling, filtered=filtered, scope=scope)
    assert len(steps) == 18


@pytest.mark.parametrize("name", MODELS)
def test_soft_labels_take_the_references_steps(name: str) -> None:
    for turn, (sampling, filtered) in enumerate(itertools.product(SAMPLINGS, (False, True))):
        cases = [Case(MODELS[name], OPTIMIZERS[turn % 3]) for _ in range(2)]
        for case in cases:
            case.batch.weight[:5], case.batch.weight[5:9], case.batch.weight[9:13] = 0.0, 1.0, -1.0
        losses = [
            case.train(kind, SoftLabelLoss(1.0), sampling, filtered=filtered)
            for case, kind in zip(cases, (AutogradEngine, FusedCpuEngine), strict=True)
        ]
        assert_same(*cases, tuple(losses))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("with_auxiliary", [False, True])
def test_confidence_models_take_the_references_steps(
    monkeypatch: pytest.MonkeyPatch, sampling: str, with_auxiliary: bool
) -> None:
    """The scale is trained as well; with inverse relations, triples that rules infer are left to autograd."""
    model, steps = UkgeLogi(), fused_steps(monkeypatch)
    objective = squared_error(model)
    for optimizer in ("adam", "sparse-adam"):
        compare(
            Inverse(model),
            optimizer,
            objective,
            sampling=sampling,
            with_auxiliary=with_auxiliary,
            filtered=with_auxiliary,
        )
        assert len(steps) == (0 if with_auxiliary else 3)
        compare(Core(), optimizer, objective, sampling=sampling, with_auxiliary=with_auxiliary)
        steps.clear()


@pytest.mark.parametrize(("power", "scope"), list(itertools.product(("l1", "n3"), ("tables", "touched", "rows"))))
@pytest.mark.parametrize("name", ["bilinear", "core", "complex-inverse"])
def test_every_regularizer_takes_the_references_steps(name: str, power: str, scope: str) -> None:
    """Also over relations that are wider than entities, or hold two rows of complex numbers."""
    optimizer = "sparse-adam" if scope == "touched" else "adam"
    compare(MODELS[name], optimizer, objective_of("nll", None), penalty=f"{power}:3e-1", scope=scope, entities=200)


@pytest.mark.parametrize("width", [1, 2, 8, 17, 33, 100])
@pytest.mark.parametrize("sampling", ["per-triple", "shared"])
def test_every_width_takes_the_references_steps(width: int, sampling: str) -> None:
    for model in (Doubled(), Turned(), Inverse(TransEL2())):
        objective = objective_of("multiclass-nll", "softplus")
        compare(model, "sparse-adam", objective, width=width, sampling=sampling, steps=1)


@pytest.mark.parametrize("rows", [1, 65, 450])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_every_batch_size_takes_the_references_steps(rows: int, sampling: str) -> None:
    for model in (Bilinear(), Inverse(ComplEx())):
        compare(model, "sparse-adam", objective_of("bce", "softplus"), rows=rows, sampling=sampling, steps=2)


@pytest.mark.parametrize("sampling", ["shared", "all"])
def test_pools_larger_than_a_chunk_take_the_references_steps(monkeypatch: pytest.MonkeyPatch, sampling: str) -> None:
    monkeypatch.setattr(fused_cpu, "POOL_PIECE", 11)
    for groups, model in itertools.product((1, 7), (Core(), Inverse(TransEL2()))):
        monkeypatch.setattr(fused_cpu, "GROUPS", groups)
        sizes = {"entities": 150, "count": 110, "rows": 30}
        compare(model, "adam", objective_of("multiclass-nll", "softplus"), sampling=sampling, filtered=True, **sizes)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", ["core", "complex-inverse"])
def test_same_bits_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch, sampling: str, name: str) -> None:
    """Of the loops; torch's own threads stay as they are."""
    monkeypatch.setattr(fused_cpu, "MIN_PARALLEL_SCORES", 0)
    found = []
    for threads in (1, 2, 3, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=threads: count)
        case = Case(MODELS[name], "sparse-adam", rows=300)
        objective = objective_of("multiclass-nll", "softplus")
        losses = case.train(FusedCpuEngine, objective, sampling, 30, penalty="n3:1e-2", scope="touched")
        found.append((losses, case.tables))
    for losses, tables in found[1:]:
        assert losses == found[0][0]
        for name, table in tables.items():
            assert torch.equal(table, found[0][1][name])


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", ["core", "complex-inverse", "bilinear"])
def test_gradients_are_those_of_finite_differences(name: str, sampling: str) -> None:
    """One step of plain Adagrad shows the gradient itself: √Σg² = |g| after the first."""
    objective = objective_of("multiclass-nll", "softplus")

    def loss(table: str, values: Tensor) -> float:
        case = Case(MODELS[name], "adam")
        case.tables[table].copy_(values)
        return case.train(FusedCpuEngine, objective, sampling, penalty="none", steps=1)[0] * 0.5

    case = Case(MODELS[name], "sparse-adagrad")
    start = {table: values.clone() for table, values in case.tables.items()}
    case.train(FusedCpuEngine, objective, sampling, penalty="none", steps=1)
    for table in ("entity", "relation", *(["core"] if name == "core" else [])):
        size = case.optimizer.state()[f"{table}.sum"].sqrt()
        signed = (size * torch.sign(start[table] - case.tables[table])).flatten()
        for place in (0, 2, len(signed) // 2, len(signed) - 1):
            up, down = start[table].clone(), start[table].clone()
            up.view(-1)[place] += 1e-2
            down.view(-1)[place] -= 1e-2
            found = (loss(table, up) - loss(table, down)) / 2e-2
            assert signed[place].item() == pytest.approx(found, rel=2e-2, abs=3e-3)


def test_buffers_and_untouched_rows_stay_as_they_are() -> None:
    for optimizer in ("adam", "sparse-adam"):
        case = Case(Core(), optimizer, entities=5000)
        before = {name: table.clone() for name, table in case.tables.items()}
        case.train(FusedCpuEngine, objective_of("nll", None), penalty="none")
        assert torch.equal(case.tables["mean"], before["mean"])
        assert not torch.equal(case.tables["core"], before["core"])
        moved = (case.tables["entity"] != before["entity"]).any(1)
        assert 100 < int(moved.sum()) < 1000


def test_dropout_follows_the_seed_of_the_step() -> None:
    batch = Case(Core(), "adam").batch
    tables = Case(Core(), "adam").tables
    model = Core().bind({"core": tables["core"], "mean": tables["mean"]})
    steps = [Step(batch, [], objective_of("nll", None), 1.0, seed=seed) for seed in (3, 3, 4)]
    one, again, other = (AutogradQueries(model, tables, step).values for step in steps)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_queries_of_another_width_are_an_error() -> None:
    class Short(Doubled):
        def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
            return known[:, :1]

    case = Case(Short(), "adam")
    with pytest.raises(ValueError, match="queries"):
        case.train(FusedCpuEngine, objective_of("nll", None))


def test_a_loss_that_is_not_finite_is_an_error_before_any_row_moves() -> None:
    case = Case(Core(), "adam")
    case.tables["entity"][0] = torch.nan
    before = case.tables["core"].clone()
    with pytest.raises(FloatingPointError):
        case.train(FusedCpuEngine, objective_of("nll", None), sampling="all")
    assert torch.equal(case.tables["core"], before)


@pytest.mark.parametrize("name", [name for name in REGISTERED if REGISTERED[name].confidence_head is None])
def test_every_supported_model_of_the_registry_takes_the_references_steps(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whichever the loops serve, with its own way of asking for heads."""
    model: Model | Inverse = make_model(name)
    case = Case(model, "sparse-adam", width=12)
    if FusedCpuEngine.unsupported_reason(make_model(name), torch.device("cpu"), case.optimizer):
        pytest.skip("left to autograd")
    model = Inverse(make_model(name)) if REGISTERED[name].defaults.get("reciprocal") else model
    steps = fused_steps(monkeypatch)
    for sampling in ("per-triple", "shared"):
        compare(
            model, "sparse-adam", objective_of("multiclass-nll", None), width=12, sampling=sampling, penalty="n3:1e-2"
        )
    assert len(steps) == 6
