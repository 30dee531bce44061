"""Models whose queries torch computes take the reference's steps in the CPU engine's loops, too."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.engines.test_cpu import BENDS, OPTIMISERS, Case, assert_same, compare, fused_steps, objective_of
from torch import Tensor

from focuse.engines import CpuEngine, ReferenceEngine, cpu
from focuse.engines.native import library
from focuse.engines.queries import Queries
from focuse.models import MODELS as REGISTERED
from focuse.models import ComplEx, DistMult, Form, Model, Reciprocal, Side, TransE, TransEL2, UkgeLogi, make_model
from focuse.training.losses import LOSSES, SoftLabel, SquaredError
from focuse.training.negatives import SAMPLINGS

pytestmark = pytest.mark.skipif(library() is None, reason="the loops were not built: no C++ compiler")


class Doubled(DistMult):
    """DistMult's turn no longer says what it does."""

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return 2 * known * relation


class Bilinear(Model):
    """RESCAL: a relation is a matrix, its row much wider than an entity's."""

    name = "bilinear"
    form = "dot"

    def relation_width(self, dim: int) -> int:
        return dim * dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        matrix = relation.unflatten(-1, (known.shape[-1], known.shape[-1]))
        return torch.einsum("bi,bij->bj" if side == "tail" else "bj,bij->bi", known, matrix)


class Core(Model):
    """A dense core, as TuckER's; one tensor that is kept, and coordinates that are dropped by the step's key."""

    name = "core"
    form: Form = "dot"
    kept = frozenset({"mean"})
    dense = {"core": torch.zeros(0), "mean": torch.zeros(0)}  # noqa: RUF012

    def relation_width(self, dim: int) -> int:
        return 3

    def dense_start(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return {"core": torch.randn(3, dim, dim, generator=random) * 0.5, "mean": torch.full((dim,), 0.7)}

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        if self.key is not None:
            known = known * (torch.rand(known.shape, generator=torch.Generator().manual_seed(self.key)) < 0.8)
        core = self.dense["core"] if side == "tail" else self.dense["core"].mT
        return torch.einsum("bi,bk,kij->bj", known, relation, core) + self.dense["mean"]


class SidedCore(Core):
    """What is dropped makes two functions of the two sides."""

    name = "sided-core"
    form: Form = "l2"
    sided = True


class Scale(Doubled):
    """A dense tensor called as UKGE's, which does something else."""

    name = "scale"
    dense = {"scale": torch.tensor([1.5, -0.5])}  # noqa: RUF012

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known * relation * self.dense["scale"].sum()


class Still(DistMult):
    """Its query is the known row itself, and no relation has a gradient."""

    name = "still"

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known


class Turned(TransE):
    """The step of a relation is turned about first."""

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known + relation.roll(1, -1) if side == "tail" else known - relation.roll(1, -1)


MODELS: dict[str, Model] = {
    "doubled": Doubled(),
    "bilinear": Bilinear(),
    "core": Core(),
    "scale": Scale(),
    "still": Still(),
    "turned": Turned(),
    "complex-reciprocal": Reciprocal(ComplEx()),
    "transe-reciprocal": Reciprocal(TransE()),
    "transe-l2-reciprocal": Reciprocal(TransEL2()),
    "sided-core": SidedCore(),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", MODELS)
def test_steps_of_the_reference(monkeypatch: pytest.MonkeyPatch, name: str, loss: str) -> None:
    """Every loss and model with every sampling, filtered or not; bends, optimisers and scopes take turns."""
    steps = fused_steps(monkeypatch)
    for turn, (sampling, filtered) in enumerate(itertools.product(SAMPLINGS, (False, True))):
        place = turn + 7 * list(LOSSES).index(loss) + 3 * list(MODELS).index(name)
        optimiser = OPTIMISERS[place % 3]
        scope = "rows" if place % 2 else "tables" if optimiser == "adam" else "touched"
        objective = objective_of(loss, BENDS[place % len(BENDS)])
        compare(MODELS[name], optimiser, objective, sampling=sampling, filtered=filtered, scope=scope)
    assert len(steps) == 18


@pytest.mark.parametrize("name", MODELS)
def test_labels(name: str) -> None:
    for turn, (sampling, filtered) in enumerate(itertools.product(SAMPLINGS, (False, True))):
        cases = [Case(MODELS[name], OPTIMISERS[turn % 3]) for _ in range(2)]
        for case in cases:
            case.batch.weight[:5], case.batch.weight[5:9], case.batch.weight[9:13] = 0.0, 1.0, -1.0
        losses = [
            case.train(kind, SoftLabel(1.0), sampling, filtered=filtered)
            for case, kind in zip(cases, (ReferenceEngine, CpuEngine), strict=True)
        ]
        assert_same(*cases, tuple(losses))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("hinted", [False, True])
def test_confidences(monkeypatch: pytest.MonkeyPatch, sampling: str, hinted: bool) -> None:
    """The scale is trained beside; what rules infer is left to the reference where a triple has two scores."""
    kind, steps = UkgeLogi(), fused_steps(monkeypatch)
    objective = SquaredError(kind.trained, 0.7, kind.curve)
    for optimiser in ("adam", "row-adam"):
        compare(Reciprocal(kind), optimiser, objective, sampling=sampling, hinted=hinted, filtered=hinted)
        assert len(steps) == (0 if hinted else 3)
        compare(Core(), optimiser, objective, sampling=sampling, hinted=hinted)
        steps.clear()


@pytest.mark.parametrize(("power", "scope"), list(itertools.product(("l1", "n3"), ("tables", "touched", "rows"))))
@pytest.mark.parametrize("name", ["bilinear", "core", "complex-reciprocal"])
def test_every_penalty(name: str, power: str, scope: str) -> None:
    """Also over relations that are wider than entities, or hold two rows of complex numbers."""
    optimiser = "row-adam" if scope == "touched" else "adam"
    compare(MODELS[name], optimiser, objective_of("nll", None), penalty=f"{power}:3e-1", scope=scope, entities=200)


@pytest.mark.parametrize("width", [1, 2, 8, 17, 33, 100])
@pytest.mark.parametrize("sampling", ["independent", "shared"])
def test_every_width(width: int, sampling: str) -> None:
    for model in (Doubled(), Turned(), Reciprocal(TransEL2())):
        objective = objective_of("multiclass-nll", "softplus")
        compare(model, "row-adam", objective, width=width, sampling=sampling, steps=1)


@pytest.mark.parametrize("rows", [1, 65, 450])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_every_number_of_positives(rows: int, sampling: str) -> None:
    for model in (Bilinear(), Reciprocal(ComplEx())):
        compare(model, "row-adam", objective_of("bce", "softplus"), rows=rows, sampling=sampling, steps=2)


@pytest.mark.parametrize("sampling", ["shared", "all"])
def test_pools_in_pieces(monkeypatch: pytest.MonkeyPatch, sampling: str) -> None:
    monkeypatch.setattr(cpu, "PIECE", 11)
    for groups, model in itertools.product((1, 7), (Core(), Reciprocal(TransEL2()))):
        monkeypatch.setattr(cpu, "GROUPS", groups)
        sizes = {"entities": 150, "count": 110, "rows": 30}
        compare(model, "adam", objective_of("multiclass-nll", "softplus"), sampling=sampling, filtered=True, **sizes)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", ["core", "complex-reciprocal"])
def test_same_bits_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch, sampling: str, name: str) -> None:
    """Of the loops; torch's own threads stay as they are."""
    monkeypatch.setattr(cpu, "ALONE", 0)
    found = []
    for threads in (1, 2, 3, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=threads: count)
        case = Case(MODELS[name], "row-adam", rows=300)
        objective = objective_of("multiclass-nll", "softplus")
        losses = case.train(CpuEngine, objective, sampling, 30, penalty="n3:1e-2", scope="touched")
        found.append((losses, case.tables))
    for losses, tables in found[1:]:
        assert losses == found[0][0]
        for name, table in tables.items():
            assert torch.equal(table, found[0][1][name])


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", ["core", "complex-reciprocal", "bilinear"])
def test_gradients_by_finite_differences(name: str, sampling: str) -> None:
    """One step of plain Adagrad shows the gradient itself: √Σg² = |g| after the first."""
    objective = objective_of("multiclass-nll", "softplus")

    def loss(table: str, values: Tensor) -> float:
        case = Case(MODELS[name], "adam")
        case.tables[table].copy_(values)
        return case.train(CpuEngine, objective, sampling, penalty="none", steps=1)[0] * 0.5

    case = Case(MODELS[name], "row-adagrad")
    start = {table: values.clone() for table, values in case.tables.items()}
    case.train(CpuEngine, objective, sampling, penalty="none", steps=1)
    for table in ("entity", "relation", *(["core"] if name == "core" else [])):
        size = case.optimiser.state()[f"{table}.sum"].sqrt()
        signed = (size * torch.sign(start[table] - case.tables[table])).flatten()
        for place in (0, 2, len(signed) // 2, len(signed) - 1):
            up, down = start[table].clone(), start[table].clone()
            up.view(-1)[place] += 1e-2
            down.view(-1)[place] -= 1e-2
            found = (loss(table, up) - loss(table, down)) / 2e-2
            assert signed[place].item() == pytest.approx(found, rel=2e-2, abs=3e-3)


def test_what_is_kept_and_what_no_batch_touches_stay_as_they_are() -> None:
    for optimiser in ("adam", "row-adam"):
        case = Case(Core(), optimiser, entities=5000)
        before = {name: table.clone() for name, table in case.tables.items()}
        case.train(CpuEngine, objective_of("nll", None), penalty="none")
        assert torch.equal(case.tables["mean"], before["mean"])
        assert not torch.equal(case.tables["core"], before["core"])
        moved = (case.tables["entity"] != before["entity"]).any(1)
        assert 100 < int(moved.sum()) < 1000


def test_what_is_dropped_goes_by_the_key() -> None:
    batch = Case(Core(), "adam").batch
    tables = Case(Core(), "adam").tables
    model = Core().with_dense({"core": tables["core"], "mean": tables["mean"]})
    one, again, other = (Queries(model, tables, batch, None, key).values for key in (3, 3, 4))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_queries_of_another_width_are_refused() -> None:
    class Short(Doubled):
        def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
            return known[:, :1]

    case = Case(Short(), "adam")
    with pytest.raises(ValueError, match="queries"):
        case.train(CpuEngine, objective_of("nll", None))


def test_not_finite_is_noticed_before_anything_moves() -> None:
    case = Case(Core(), "adam")
    case.tables["entity"][0] = torch.nan
    before = case.tables["core"].clone()
    with pytest.raises(FloatingPointError):
        case.train(CpuEngine, objective_of("nll", None), sampling="all")
    assert torch.equal(case.tables["core"], before)


@pytest.mark.parametrize("name", [name for name in REGISTERED if not REGISTERED[name].confident])
def test_models_of_the_library(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Whichever the loops serve, with its own way of asking for heads."""
    model = make_model(name, reciprocal=bool(REGISTERED[name].defaults.get("reciprocal")))
    case = Case(model, "row-adam", width=12)
    if CpuEngine.lacks(model, torch.device("cpu"), case.optimiser):
        pytest.skip("left to the reference")
    steps = fused_steps(monkeypatch)
    for sampling in ("independent", "shared"):
        compare(model, "row-adam", objective_of("multiclass-nll", None), width=12, sampling=sampling, penalty="n3:1e-2")
    assert len(steps) == 6
