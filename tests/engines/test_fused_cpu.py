"""The fused CPU engine takes the reference's steps: same losses, tables and moments for every model and sampling."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from focuse.config import SETTINGS
from focuse.data.triple_index import TripleIndex
from focuse.engines import fused_cpu
from focuse.engines.autograd import AutogradEngine
from focuse.engines.base import Step
from focuse.engines.factory import make_engine
from focuse.engines.fused_cpu import FusedCpuEngine
from focuse.engines.native import library
from focuse.engines.optimizers import make_optimizer
from focuse.errors import FocuseError
from focuse.models import Model
from focuse.models.bilinear import DistMult
from focuse.models.registry import make_model
from focuse.objective.focuse import FocusELayer
from focuse.objective.losses import LOSSES, FocusedLoss, SoftLabelLoss, SquaredError, make_loss, make_regularizer
from focuse.objective.negatives import Batch, NegativeSampler
from focuse.objective.randomness import draw_integers, stream_seed

SAMPLINGS = [each for each in SETTINGS["negative_sampling"].choices if each != "none"]

pytestmark = pytest.mark.skipif(library() is None, reason="the loops were not built: no C++ compiler")
MODELS = ("complex", "distmult", "transe", "transe-l2")
NONLINEARITIES = (None, "softplus", "shifted-softplus", "linear", "sigmoid", "tanh")
OPTIMIZERS = ("adam", "sparse-adam", "sparse-adagrad")


@dataclass(frozen=True)
class Inverse:
    """A model with inverse relations."""

    model: Model


class Case:
    """Three steps of one engine on a small random graph."""

    def __init__(
        self, model: str | Model | Inverse, optimizer: str, width: int = 10, entities: int = 50, rows: int = 40
    ) -> None:
        self.inverse, self.entities = isinstance(model, Inverse), entities
        model = model.model if isinstance(model, Inverse) else model
        self.model = make_model(model) if isinstance(model, str) else model
        random = torch.Generator().manual_seed(1)
        self.tables = {
            "entity": torch.randn(entities, self.model.widths(width)[0], generator=random) * 0.5,
            "relation": torch.randn(8 if self.inverse else 4, self.model.widths(width)[1], generator=random) * 0.5,
            **self.model.init_parameters(width, random),
        }
        self.optimizer = make_optimizer(optimizer, self.tables, 1e-2)
        ids = [torch.randint(size, (rows,), generator=random) for size in (entities, 4, entities)]
        self.batch = Batch(*ids, torch.rand(rows, generator=random))

    def train(
        self,
        kind: type[AutogradEngine],
        objective: FocusedLoss | SoftLabelLoss | SquaredError,
        sampling: str = "per-triple",
        count: int = 7,
        filtered: bool = False,
        penalty: str = "l3:1e-2",
        scope: str = "rows",
        with_auxiliary: bool = False,
        steps: int = 3,
    ) -> list[float]:
        batch = self.batch
        known = TripleIndex(batch.head, batch.relation, batch.tail, self.entities, 4) if filtered else None
        sampler = NegativeSampler(sampling, count, self.entities, known)
        engine = kind(self.model, self.tables, self.optimizer, inverse_relations=self.inverse)
        auxiliary = None
        if with_auxiliary:
            assert isinstance(objective, SquaredError)
            few = Batch(batch.head[:7], batch.relation[:7], batch.tail[:7].flip(0), batch.weight[:7])
            auxiliary = few
        shape = make_regularizer(penalty, scope)
        return [
            float(engine.step(Step(batch, sampler(batch, (0, 0, step)), objective, 0.3, shape, 0.5, auxiliary, step)))
            for step in range(steps)
        ]


def assert_same(one: Case, other: Case, losses: tuple[list[float], list[float]]) -> None:
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-5)
    for name, table in one.tables.items():
        torch.testing.assert_close(
            other.tables[name], table, rtol=1e-3, atol=2e-4, msg=lambda text, n=name: f"{n}: {text}"
        )
    for name, moment in one.optimizer.state().items():
        torch.testing.assert_close(other.optimizer.state()[name].float(), moment.float(), rtol=2e-3, atol=2e-4)


def compare(
    model: str | Model | Inverse, optimizer: str, objective: FocusedLoss | SoftLabelLoss | SquaredError, **more: object
) -> None:
    size = {name: more.pop(name) for name in ("width", "entities", "rows") if name in more}
    one, other = (Case(model, optimizer, **size) for _ in range(2))  # type: ignore[arg-type]
    losses = one.train(AutogradEngine, objective, **more), other.train(FusedCpuEngine, objective, **more)  # type: ignore[arg-type]
    assert_same(one, other, losses)


def squared_error(model: Model) -> SquaredError:
    head = model.confidence_head
    assert head is not None
    return SquaredError(head, 0.7)


def objective_of(loss: str, bend: str | None) -> FocusedLoss:
    return FocusedLoss(make_loss(loss), FocusELayer(bend) if bend else None)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("model", MODELS)
def test_every_model_and_loss_takes_the_references_steps(model: str, loss: str) -> None:
    """Every loss and model with every sampling, filtered or not; nonlinearities, optimizers and scopes take turns."""
    turns = itertools.product(SAMPLINGS, (False, True))
    for turn, (sampling, filtered) in enumerate(turns):
        place = turn + 7 * list(LOSSES).index(loss) + 3 * MODELS.index(model)
        optimizer = OPTIMIZERS[place % 3]
        scope = "rows" if place % 2 else "tables" if optimizer == "adam" else "touched"
        objective = objective_of(loss, NONLINEARITIES[place % len(NONLINEARITIES)])
        compare(model, optimizer, objective, sampling=sampling, filtered=filtered, scope=scope)


@pytest.mark.parametrize("scope", ["rows", "touched"])
@pytest.mark.parametrize("model", ["complex", "distmult"])
def test_n3_takes_the_references_steps(model: str, scope: str) -> None:
    """n3 of real numbers is l3."""
    compare(model, "sparse-adagrad", objective_of("multiclass-nll", None), penalty="n3:1e-2", scope=scope)


@pytest.mark.parametrize("missing", [0.0, 3.0])
@pytest.mark.parametrize("model", MODELS)
def test_soft_labels_take_the_references_steps(model: str, missing: float) -> None:
    """Some labels are 0 and 1, and some triples are known to be false."""
    for turn, (sampling, filtered) in enumerate(itertools.product(SAMPLINGS, (False, True))):
        cases = [Case(model, OPTIMIZERS[turn % 3]) for _ in range(2)]
        for case in cases:
            case.batch.weight[:5], case.batch.weight[5:9], case.batch.weight[9:13] = 0.0, 1.0, -1.0
        losses = [
            case.train(kind, SoftLabelLoss(missing), sampling, filtered=filtered)
            for case, kind in zip(cases, (AutogradEngine, FusedCpuEngine), strict=True)
        ]
        assert_same(*cases, tuple(losses))


def test_soft_labels_with_a_pool_larger_than_a_chunk_match_the_reference() -> None:
    compare("distmult", "sparse-adam", SoftLabelLoss(1.0), sampling="all", entities=70_000, width=3, rows=5, steps=1)


@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_nonlinearity_and_optimizer_takes_the_references_steps(nonlinearity: str | None, optimizer: str) -> None:
    compare("complex", optimizer, objective_of("multiclass-nll", nonlinearity))


@pytest.mark.parametrize(("power", "scope"), list(itertools.product(("l1", "l2", "l3"), ("tables", "touched", "rows"))))
def test_every_regularizer_takes_the_references_steps(power: str, scope: str) -> None:
    optimizer = "sparse-adam" if scope == "touched" else "adam"
    compare("distmult", optimizer, objective_of("nll", None), penalty=f"{power}:3e-2", scope=scope, entities=200)


@pytest.mark.parametrize("width", [1, 2, 5, 8, 15, 16, 17, 31, 32, 33, 47, 64, 100])
@pytest.mark.parametrize("model", MODELS)
def test_every_width_takes_the_references_steps(model: str, width: int) -> None:
    for sampling in ("per-triple", "shared"):
        objective = objective_of("multiclass-nll", "softplus")
        compare(model, "sparse-adam", objective, width=width, sampling=sampling, steps=1)


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 30, 33, 257, 300])
def test_every_number_of_negatives_takes_the_references_steps(count: int) -> None:
    for sampling in ("per-triple", "shared"):
        objective = objective_of("multiclass-nll", "shifted-softplus")
        compare("transe-l2", "adam", objective, count=count, rows=9, sampling=sampling)


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 63, 65, 200, 450])
@pytest.mark.parametrize("model", MODELS)
def test_every_batch_size_takes_the_references_steps(model: str, rows: int) -> None:
    """Whole blocks and tiles of positives, and incomplete ones."""
    compare(
        model,
        "sparse-adam",
        objective_of("multiclass-nll", "softplus"),
        rows=rows,
        sampling="shared",
        count=70,
        steps=1,
    )


@pytest.mark.parametrize("entities", [1, 2, 3, 5000, 70_000])
def test_small_and_large_tables_take_the_references_steps(entities: int) -> None:
    """With few entities all negatives are the same; with many, most rows are never touched."""
    for optimizer in ("sparse-adam", "adam"):
        compare("distmult", optimizer, objective_of("pairwise-nll", None), entities=entities, width=3)


@pytest.mark.parametrize("model", ["ukge-logi", "ukge-rect"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("with_auxiliary", [False, True])
def test_ukge_takes_the_references_steps(model: str, sampling: str, with_auxiliary: bool) -> None:
    objective = squared_error(make_model(model))
    compare(model, "adam", objective, sampling=sampling, with_auxiliary=with_auxiliary, filtered=with_auxiliary)


@pytest.mark.parametrize("sampling", ["shared", "all"])
@pytest.mark.parametrize("loss", ["multiclass-nll", "self-adversarial", "bce"])
def test_pools_larger_than_a_chunk_take_the_references_steps(
    monkeypatch: pytest.MonkeyPatch, sampling: str, loss: str
) -> None:
    """Also if the positives are divided into several groups."""
    monkeypatch.setattr(fused_cpu, "POOL_PIECE", 11)
    for filtered, groups, model in itertools.product((False, True), (1, 7), ("complex", "transe", "transe-l2")):
        monkeypatch.setattr(fused_cpu, "GROUPS", groups)
        sizes = {"entities": 150, "count": 110, "rows": 30}  # a piece is up to 48 columns
        compare(model, "adam", objective_of(loss, "softplus"), sampling=sampling, filtered=filtered, **sizes)


def test_extreme_scores_stay_finite() -> None:
    one, other = Case("distmult", "adam"), Case("distmult", "adam")
    for case in (one, other):
        case.tables["entity"] *= 60
    objective = objective_of("multiclass-nll", "softplus")
    assert_same(one, other, (one.train(AutogradEngine, objective), other.train(FusedCpuEngine, objective)))


@pytest.mark.parametrize("loss", ["multiclass-nll", "self-adversarial"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_negative_gain_takes_the_references_steps(monkeypatch: pytest.MonkeyPatch, sampling: str, loss: str) -> None:
    """The lowest similarity then has the highest score, also in a pool of several pieces."""
    monkeypatch.setattr(fused_cpu, "POOL_PIECE", 11)
    one, other = (Case("ukge-logi", "sparse-adam", entities=150) for _ in range(2))
    for case in (one, other):
        case.tables["scale"][0] = -200.0
    objective = objective_of(loss, None)
    theirs = one.train(AutogradEngine, objective, sampling, 110)
    np.testing.assert_allclose(other.train(FusedCpuEngine, objective, sampling, 110), theirs, rtol=2e-5)
    torch.testing.assert_close(other.tables["entity"], one.tables["entity"], rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("model", ["complex", "transe"])
def test_same_bits_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch, sampling: str, model: str) -> None:
    monkeypatch.setattr(fused_cpu, "MIN_PARALLEL_SCORES", 0)
    found = []
    for threads in (1, 2, 3, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=threads: count)
        case = Case(model, "sparse-adam", rows=300)
        losses = case.train(FusedCpuEngine, objective_of("multiclass-nll", "softplus"), sampling, 30)
        found.append((losses, case.tables["entity"], case.tables["relation"]))
    for losses, entity, relation in found[1:]:
        assert losses == found[0][0]
        assert torch.equal(entity, found[0][1])
        assert torch.equal(relation, found[0][2])


def test_a_large_pool_gives_the_same_bits_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_cpu, "GROUPS", 16)
    monkeypatch.setattr(fused_cpu, "MAX_POOL_WORKSPACE", 1 << 16)
    found = []
    for threads in (1, 8):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=threads: count)
        case = Case("complex", "sparse-adagrad", entities=300, rows=200)
        case.train(FusedCpuEngine, objective_of("multiclass-nll", "softplus"), "all")
        found.append(case.tables["entity"])
    assert torch.equal(*found)


def test_rows_that_no_batch_touches_keep_their_bits() -> None:
    case = Case("complex", "sparse-adam", entities=5000)
    before = case.tables["entity"].clone()
    case.train(FusedCpuEngine, objective_of("multiclass-nll", "softplus"), scope="touched")
    moved = (case.tables["entity"] != before).any(1)
    assert 100 < int(moved.sum()) < 1000


def test_the_workspace_grows_with_the_batch() -> None:
    found = []
    for rows in (0, 10, 1000):
        case = Case("distmult", "sparse-adagrad", rows=rows)
        engine = FusedCpuEngine(case.model, case.tables, case.optimizer)
        if rows:
            negatives = NegativeSampler("shared", 7, case.entities)(case.batch, (0, 0, 0))
            engine.step(Step(case.batch, negatives, objective_of("multiclass-nll", None), 1.0))
        found.append(sum(buffer.nbytes for buffer in engine._buffers.values()))
    assert found[0] == 0 < found[1] < found[2]


def test_gradients_are_those_of_finite_differences() -> None:
    """One step of plain Adagrad shows the gradient itself: √Σg² = |g| after the first."""
    objective = objective_of("multiclass-nll", "softplus")

    def loss(entity: Tensor) -> float:
        case = Case("complex", "adam")
        case.tables["entity"].copy_(entity)
        return case.train(FusedCpuEngine, objective, penalty="none", steps=1)[0] * 0.5

    case = Case("complex", "sparse-adagrad")
    start = case.tables["entity"].clone()
    case.train(FusedCpuEngine, objective, penalty="none", steps=1)
    size = case.optimizer.state()["entity.sum"].sqrt()
    signed = size * torch.sign(start - case.tables["entity"])
    for row, column in [(0, 0), (3, 11), (17, 4), (41, 19)]:
        up, down = start.clone(), start.clone()
        up[row, column] += 1e-2
        down[row, column] -= 1e-2
        assert signed[row, column].item() == pytest.approx((loss(up) - loss(down)) / 2e-2, rel=2e-2, abs=2e-3)


def test_a_loss_that_is_not_finite_is_an_error_before_any_row_moves() -> None:
    case = Case("distmult", "adam")
    case.tables["entity"][0] = torch.nan
    before = case.tables["relation"].clone()
    with pytest.raises(FloatingPointError):
        case.train(FusedCpuEngine, objective_of("nll", None), sampling="all")
    assert torch.equal(case.tables["relation"], before)


def test_negatives_are_those_that_torch_draws() -> None:
    for entities, shape in ((1, (3, 1)), (4999, (7, 30)), (1 << 29, (5, 5))):
        key = stream_seed(3, 1, 4)
        both = draw_integers(key, shape, 2 * entities, torch.device("cpu"))
        batch = Batch(*(torch.zeros(shape[0], dtype=torch.int64) for _ in range(3)), torch.zeros(shape[0]))
        (group,) = NegativeSampler("per-triple", shape[1], entities)(batch, (3, 1, 4))
        assert group.entities is not None
        assert group.replaces_tail is not None
        assert torch.equal(group.entities, both >> 1)
        assert torch.equal(group.replaces_tail, (both & 1).bool())


def test_objective_without_native_code_is_computed_by_autograd() -> None:
    class SquaredDifferences:
        def __call__(
            self, positive: torch.Tensor, negative: torch.Tensor, weight: object, mask: object, beta: object
        ) -> torch.Tensor:
            return (negative - positive[:, None]).square().sum(1)

    compare("complex", "adam", SquaredDifferences())


def test_a_model_without_a_fused_form_is_left_to_autograd() -> None:
    class Own(DistMult):
        fused = None

    tables = {"entity": torch.randn(5, 4), "relation": torch.randn(2, 4)}
    optimizer = make_optimizer("sparse-adam", tables, 1e-2)
    assert type(make_engine("auto", DistMult(), tables, optimizer)) is FusedCpuEngine
    assert type(make_engine("auto", Own(), tables, optimizer)) is AutogradEngine
    with pytest.raises(FocuseError, match="engine 'native': its kernels cannot compute distmult"):
        make_engine("native", Own(), tables, optimizer)
    with pytest.raises(FocuseError, match="optimizer"):
        make_engine("native", DistMult(), tables, make_optimizer("sgd", tables, 1e-2))


@pytest.mark.parametrize(
    ("optimizer", "scope"), [("adam", "tables"), ("sparse-adam", "touched"), ("sparse-adagrad", "rows")]
)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("width", [1, 10, 37])
def test_moduli_of_complex_numbers_are_those_before_the_step(
    monkeypatch: pytest.MonkeyPatch, optimizer: str, scope: str, sampling: str, width: int
) -> None:
    """n3: the components of a number lie in different blocks of columns, which move one after the other."""
    objective = objective_of("multiclass-nll", None)
    more = {"sampling": sampling, "scope": scope, "penalty": "n3:3e-1", "width": width}
    steps = fused_steps(monkeypatch)
    compare("complex", optimizer, objective, **more)
    compare(Quaternions(), optimizer, objective, **more)
    assert len(steps) == 6


class Quaternions(DistMult):
    components = 4


def test_moduli_of_more_rows_than_are_cached_take_the_references_steps() -> None:
    """A thread keeps the moduli of 8192 rows."""
    compare("complex", "adam", objective_of("nll", None), penalty="n3:3e-1", scope="tables", entities=9000, width=2)


def test_moduli_of_angles_are_left_to_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    class Angles(DistMult):
        components = (1, 0)

    steps = fused_steps(monkeypatch)
    compare(Angles(), "adam", objective_of("nll", None), penalty="n3:3e-1")
    assert not steps


def fused_steps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Losses of the steps that are computed in C++ from now on."""
    losses: list[float] = []
    update = fused_cpu._NativeStep.update

    def counted(step: fused_cpu._NativeStep) -> float:
        losses.append(update(step))
        return losses[-1]

    monkeypatch.setattr(fused_cpu._NativeStep, "update", counted)
    return losses


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("scope", ["touched", "rows"])
def test_few_relations_with_many_positives_take_the_references_steps(sampling: str, scope: str) -> None:
    """Their gradients are summed per part of the batch."""
    compare(
        "complex", "sparse-adam", objective_of("multiclass-nll", "softplus"), sampling=sampling, scope=scope, rows=400
    )
    compare(
        "ukge-logi", "adam", squared_error(make_model("ukge-logi")), sampling=sampling, with_auxiliary=True, rows=400
    )


@pytest.mark.parametrize("loss", ["self-adversarial", "multiclass-nll", "pairwise-nll"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("scale", [30, 1000])
def test_large_scores_keep_their_precision(loss: str, sampling: str, scale: float) -> None:
    """Probabilities of a softmax over large scores sum to 1."""
    one, other = Case("distmult", "adam"), Case("distmult", "adam")
    for case in (one, other):
        case.tables["entity"] *= scale
    objective = objective_of(loss, "softplus")
    theirs = one.train(AutogradEngine, objective, sampling, steps=1)
    np.testing.assert_allclose(other.train(FusedCpuEngine, objective, sampling, steps=1), theirs, rtol=1e-6)


def test_a_negative_temperature_is_an_error() -> None:
    for text in ("self-adversarial:temperature=-2", "self-adversarial:3,-1"):
        with pytest.raises(FocuseError, match="at least 0"):
            make_loss(text)
