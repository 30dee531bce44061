"""The fused GPU engine takes the reference's steps: on a GPU if there is one, else in Triton's interpreter."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec

import pytest
import torch

from focuse.data.triple_index import TripleIndex
from focuse.engines.autograd import AutogradEngine
from focuse.engines.base import Step
from focuse.engines.gpu import CudaGraphEngine, FusedGpuEngine
from focuse.engines.optimizers import make_optimizer
from focuse.models.registry import make_model
from focuse.objective.focuse import FocusELayer, default_nonlinearity
from focuse.objective.losses import (
    LOSSES,
    FocusedLoss,
    ObjectiveFunction,
    Regularizer,
    SoftLabelLoss,
    SquaredError,
    make_loss,
)
from focuse.objective.negatives import Batch, Negatives, NegativeSampler, make_negative_distribution
from focuse.objective.randomness import draw_integers, stream_seed

PLAIN = ("complex", "distmult", "transe", "transe-l2", "ukge-logi", "ukge-rect")

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
TRITON = find_spec("triton") is not None
if TRITON and not GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are first imported
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patch_with_index(tensor, scope) -> None:
        """NumPy 2.4 no longer converts an array of one number to a number, which the interpreter's loops need."""
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch_with_index
pytestmark = pytest.mark.skipif(not TRITON, reason="needs triton: pip install -e '.[kernels]'")
needs_gpu = pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU")
ENTITIES, RELATIONS, ROWS = 7, 2, 4
OPTIMIZERS = ("adam", "sparse-adam", "sparse-adagrad")
NONLINEARITIES = ("softplus", "linear", "sigmoid", "tanh", "shifted-softplus:4")


@dataclass(frozen=True)
class Case:
    """One training of a few steps."""

    model: str = "complex"
    dim: int = 3
    kind: str = "per-triple"
    count: int = 5
    loss: str = "multiclass-nll"
    nonlinearity: str | None = "softplus"
    optimizer: str = "adam"
    penalty: Regularizer | None = None
    filtered: bool = False
    rows: int = ROWS
    steps: int = 2
    entities: int = ENTITIES

    def tables(self) -> dict[str, torch.Tensor]:
        made, random = make_model(self.model), torch.Generator().manual_seed(5)
        shapes = {
            "entity": (self.entities, made.widths(self.dim)[0]),
            "relation": (RELATIONS, made.widths(self.dim)[1]),
        }
        tables = {name: torch.randn(shape, generator=random) * 0.5 for name, shape in shapes.items()}
        return {
            name: table.to(DEVICE) for name, table in {**tables, **made.init_parameters(1, torch.Generator())}.items()
        }

    def batch(self, seed: int, rows: int = 0) -> Batch:
        random = torch.Generator().manual_seed(seed)
        sizes = (self.entities, RELATIONS, self.entities)
        ids = [torch.randint(size, (rows or self.rows,), generator=random) for size in sizes]
        weight = torch.rand(rows or self.rows, generator=random)
        if self.loss == "soft-label":
            weight[::4] = -1.0  # known to be false
        return Batch(*(part.to(DEVICE) for part in (*ids, weight)))

    def sampler(self) -> NegativeSampler:
        batch, known = self.batch(0, 9), None
        if self.filtered:
            known = TripleIndex(batch.head, batch.relation, batch.tail, self.entities, RELATIONS)
        return NegativeSampler(self.kind, self.count, self.entities, known)

    def objective(self) -> FocusedLoss | SoftLabelLoss | SquaredError:
        if self.loss == "soft-label":
            return SoftLabelLoss(0.5)
        if self.loss == "squared-error":
            return SquaredError(make_model(self.model).confidence_head, 0.7)
        return FocusedLoss(make_loss(self.loss), FocusELayer(self.nonlinearity) if self.nonlinearity else None)

    def engine(self, kind, tables: dict[str, torch.Tensor]):
        made = make_model(self.model)
        optimizer = make_optimizer(self.optimizer, tables, 1e-2)
        return kind(made, tables, optimizer)


def trained(case: Case, kind, recorded: bool = False):
    """Losses, tables and the optimizer's state after training."""
    tables, sampler, objective = case.tables(), case.sampler(), case.objective()
    engine, batch = case.engine(kind, tables), case.batch(3, 64)

    def compute(rows: torch.Tensor, beta: float | torch.Tensor, key: int | torch.Tensor) -> torch.Tensor:
        some = batch.take(rows)
        return engine.step(Step(some, sampler(some, key), objective, beta, case.penalty, 0.5))

    steps = engine.make_batch_runner(compute)
    losses = []
    for number in range(case.steps):
        rows = draw_integers((1, 2, number), (case.rows,), 64, torch.device(DEVICE))
        beta, key = 1 - 0.3 * (number % 4), stream_seed(0, 0, number)
        losses.append(steps([rows], beta, [key]) if recorded else compute(rows, beta, key))
    if kind is FusedGpuEngine:  # computed by kernels, not by autograd; only lists of known triples cannot be captured
        assert engine.capturable or (case.filtered and case.kind == "all")
    return [float(loss) for loss in losses], tables, engine.optimizer.state()


def assert_alike(case: Case, recorded: bool = False) -> None:
    theirs, ours = trained(case, AutogradEngine), trained(case, FusedGpuEngine, recorded)
    assert ours[0] == pytest.approx(theirs[0], rel=2e-5)
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        assert mine.keys() == other.keys()
        for name in mine:
            # Adam turns tiny differences of tiny gradients into steps: see `assert_same_first_step`.
            torch.testing.assert_close(mine[name], other[name], rtol=1e-3, atol=2e-5, check_dtype=False)


@pytest.fixture(autouse=True)
def exact_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrix products in full float32, so that tolerances can be narrow."""
    from focuse.engines.triton import step as step_kernels

    if GPU:
        monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", "ieee")
        monkeypatch.setattr(step_kernels, "PRODUCT_PRECISION", "ieee")


def penalty_of(number: int, optimizer: str) -> Regularizer | None:
    """None and every power over every scope, one after the other."""
    scopes = ("tables" if optimizer == "adam" else "touched", "rows")
    return None if number % 7 == 6 else Regularizer(number % 3 + 1, 0.1, scopes[number % 2])


def covering(models: tuple[str, ...], kinds: tuple[str, ...], counts: tuple[int, ...]) -> list[Case]:
    """28 cases in which the models meet the losses, and the other choices go round at paces of their own."""
    cases = []
    for i in range(28):
        model = models[i % len(models)]
        loss = [*LOSSES, "squared-error"][(i + i // len(models)) % 7]
        if loss == "squared-error" and make_model(model).confidence_head is None:
            loss = "multiclass-nll"
        optimizer = OPTIMIZERS[(i + i // 3) % 3]
        cases.append(
            Case(
                model=model,
                dim=(2, 1, 5)[(i + i // 6) % 3],
                kind=kinds[(i + i // 6) % len(kinds)],
                count=counts[i % len(counts)],
                loss=loss,
                nonlinearity=(*NONLINEARITIES, None, default_nonlinearity(make_model(model)))[i % 7],
                optimizer=optimizer,
                penalty=penalty_of(i, optimizer),
                filtered=i % 4 == 3,
            )
        )
    return cases


@pytest.mark.parametrize("case", covering(PLAIN, ("per-triple",), (5, 1, 7, 30, 33)), ids=str)
def test_steps_with_per_triple_negatives_are_the_references(case: Case) -> None:
    assert_alike(case)


@pytest.mark.parametrize("case", covering(PLAIN, ("shared", "all"), (6, 1, 9)), ids=str)
def test_steps_with_shared_negatives_are_the_references(case: Case) -> None:
    assert_alike(case)


@pytest.mark.parametrize("kind", ["per-triple", "shared", "all"])
@pytest.mark.parametrize("model", ["complex", "transe-l2"])
def test_steps_with_soft_labels_are_the_references(model: str, kind: str) -> None:
    """Known triples are filtered if the model is ComplEx.

    L1 would not do: its slopes of ±1 cancel in a batch this small, and Adam turns what rounding leaves into steps.
    """
    assert_alike(Case(model=model, kind=kind, loss="soft-label", filtered=model == "complex"))


def test_soft_labels_with_more_negatives_than_a_block_match_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    from focuse.engines.triton import step as step_kernels

    monkeypatch.setattr(step_kernels, "BLOCK_SCORES", 1)
    assert_alike(Case(model="distmult", kind="all", loss="soft-label", entities=300, rows=2, steps=1))
    assert_alike(Case(model="distmult", count=100, rows=2, loss="soft-label", filtered=True, steps=1))


@pytest.mark.parametrize("model", ["complex", "transe-l2"])
def test_more_negatives_than_a_program_holds_match_the_reference(model: str) -> None:
    """Three blocks of 32 negatives and a rest."""
    assert_alike(Case(model=model, count=100, rows=2, filtered=True, steps=1))


@pytest.mark.parametrize("model", ["transe", "distmult"])
def test_pools_of_more_entities_than_a_block_match_the_reference(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The softmax goes over all blocks."""
    from focuse.engines.triton import step as step_kernels

    monkeypatch.setattr(step_kernels, "BLOCK_SCORES", 1)
    assert_alike(Case(model=model, kind="all", entities=300, rows=2, steps=1, filtered=model == "distmult"))


@pytest.mark.parametrize("model", ["complex", "transe"])
def test_entities_with_very_many_entries_match_the_reference(model: str) -> None:
    """Two entities and two relations for all entries: segments much longer than a chunk."""
    assert_alike(Case(model=model, dim=2, entities=2, rows=20, count=20, steps=1, optimizer="sparse-adam"))


@pytest.mark.parametrize("kind", ["per-triple", "all"])
@pytest.mark.parametrize("model", ["transe", "transe-l2"])
def test_a_distance_of_zero_has_no_gradient(model: str, kind: str) -> None:
    """As in torch."""
    moved = []
    for engine in (AutogradEngine, FusedGpuEngine):
        case = Case(model=model, kind=kind, nonlinearity=None)
        tables = {name: table * 0 for name, table in case.tables().items()}
        batch = case.batch(0)
        case.engine(engine, tables).step(Step(batch, case.sampler()(batch, (0, 0, 0)), case.objective(), 1.0))
        moved.append(max(float(table.abs().max()) for table in tables.values()))
    assert moved == [0.0, 0.0]


@pytest.mark.parametrize("loss", [*LOSSES, "squared-error", "soft-label"])
def test_positives_with_all_negatives_masked_match_the_reference(loss: str) -> None:
    """An offset of all scores does not change a softmax, so soft labels use a model without one."""
    results = []
    for kind in (AutogradEngine, FusedGpuEngine):
        case = Case(model="complex" if loss == "soft-label" else "ukge-logi", loss=loss, rows=2)
        tables, batch = case.tables(), case.batch(0)
        group = case.sampler()(batch, (0, 0, 0))[0]
        mask = torch.tensor([[True] * 5, [False] * 5], device=DEVICE)
        group = Negatives("both", group.entities, group.replaces_tail, mask)
        loss_of = case.engine(kind, tables).step(Step(batch, [group], case.objective(), 0.3))
        results.append((float(loss_of), tables))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-5)
    for name, table in results[0][1].items():
        torch.testing.assert_close(results[1][1][name], table, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_large_scores_stay_finite(scale: float) -> None:
    for loss in ("multiclass-nll", "nll"):
        results = []
        for kind in (AutogradEngine, FusedGpuEngine):
            case = Case(loss=loss, rows=2, optimizer="sparse-adagrad")
            tables, batch = {name: table * scale for name, table in case.tables().items()}, case.batch(0)
            found = case.engine(kind, tables).step(Step(batch, case.sampler()(batch, (0, 0, 0)), case.objective(), 0.3))
            results.append((float(found), tables["entity"]))
        assert results[1][0] == pytest.approx(results[0][0], rel=1e-5)
        assert torch.isfinite(results[1][1]).all()


@pytest.mark.parametrize("kind", ["per-triple", "shared"])
def test_repeated_training_is_bit_identical(kind: str) -> None:
    case = Case(kind=kind, entities=3)
    first, second = (trained(case, FusedGpuEngine) for _ in range(2))
    assert first[0] == second[0]
    assert all(torch.equal(table, second[1][name]) for name, table in first[1].items())


def test_an_objective_without_kernels_is_computed_by_autograd() -> None:
    class Strange:
        def __call__(self, positive, negative, weight, mask, beta):
            return negative.sum(1) - positive

    assert_computed_by_autograd(Case(), Strange())


def test_auxiliary_triples_are_computed_by_autograd() -> None:
    case = Case(model="ukge-logi", loss="squared-error")
    assert_computed_by_autograd(case, auxiliary=case.batch(4, 5))


def assert_computed_by_autograd(
    case: Case, objective: ObjectiveFunction | None = None, auxiliary: Batch | None = None
) -> None:
    """The fused engine takes the very step of the engine that it is derived from."""
    results = []
    for kind in (CudaGraphEngine, FusedGpuEngine):
        tables, batch = case.tables(), case.batch(0)
        negatives = case.sampler()(batch, (0, 0, 0))
        step = Step(batch, negatives, objective or case.objective(), 0.5, auxiliary=auxiliary)
        case.engine(kind, tables).step(step)
        results.append(tables["entity"])
    assert torch.equal(*results)


def test_kernels_draw_the_numbers_that_a_cpu_draws() -> None:
    from focuse.engines.triton import random_kernels as kernels

    device, key = torch.device(DEVICE), stream_seed(3, 1, 2)
    for size, below in ((1, 5), (2049, 4999), (70, 2**31 - 1), (70, 2**31)):
        expected = draw_integers(key, (size,), below, torch.device("cpu"))
        assert torch.equal(kernels.draw(key, size, below, device).cpu(), expected)
        held = torch.tensor(key, device=device)
        assert torch.equal(kernels.draw(held, size, below, device).cpu(), expected)
    both = draw_integers(key, (70, 30), 2 * 4999, torch.device("cpu"))
    entities, replaces_tail = kernels.draw_negatives(key, (70, 30), 4999, device)
    assert torch.equal(entities.cpu(), both >> 1)
    assert torch.equal(replaces_tail.cpu(), (both & 1).bool())
    rows = draw_integers(key, (300,), 64, torch.device("cpu")).to(device)
    batch = Case().batch(0, 64)
    columns = (batch.head, batch.relation, batch.tail, batch.weight)
    assert all(torch.equal(a, b[rows]) for a, b in zip(kernels.take(columns, rows), columns, strict=True))


@needs_gpu
@pytest.mark.parametrize(
    ("negative_distribution", "corrupt_side"), [("type", "uniform"), ("degree", "uniform"), ("uniform", "bernoulli")]
)
def test_negative_distributions_draw_the_same_on_every_device(negative_distribution: str, corrupt_side: str) -> None:
    batch = Case().batch(0, 64)
    here = Batch(*(part.cpu() for part in (batch.head, batch.relation, batch.tail, batch.weight)))
    found = []
    for facts in (batch, here):
        chances = make_negative_distribution(negative_distribution, corrupt_side, facts, ENTITIES, RELATIONS)
        (group,) = NegativeSampler("per-triple", 30, ENTITIES, distribution=chances)(facts, (3, 1, 4))
        assert group.entities is not None
        assert group.replaces_tail is not None
        assert group.entities.device == facts.head.device
        found.append((group.entities.cpu(), group.replaces_tail.cpu()))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_unsupported_trainings_are_given_a_reason() -> None:
    tables = Case().tables()
    cpu, adam = torch.device("cpu"), make_optimizer("adam", tables, 0.1)
    assert "NVIDIA GPU" in FusedGpuEngine.unsupported_reason(make_model("complex"), cpu, adam)
    cuda, sgd = torch.device("cuda"), make_optimizer("sgd", tables, 0.1)
    assert FusedGpuEngine.unsupported_reason(make_model("complex"), cuda, adam) == ""
    assert "optimizer" in FusedGpuEngine.unsupported_reason(make_model("complex"), cuda, sgd)


@needs_gpu
@pytest.mark.parametrize("kind", ["per-triple", "shared", "all"])
@pytest.mark.parametrize("model", PLAIN)
def test_replayed_steps_are_the_references(model: str, kind: str) -> None:
    """Rows, β and random numbers of every batch reach the captured graph."""
    loss = "squared-error" if make_model(model).confidence_head is not None else "multiclass-nll"
    for optimizer in OPTIMIZERS:
        case = Case(model=model, kind=kind, steps=8, loss=loss, optimizer=optimizer)
        assert_alike(case, recorded=True)


@needs_gpu
def test_garbage_collection_does_not_disturb_the_capture_of_a_graph() -> None:
    """Graphs of an older training are not freed while a graph is captured."""
    engine = Case().engine(FusedGpuEngine, Case().tables())
    replayed = engine.make_batch_runner(lambda rows, beta, key: rows.sum().double())
    rows, others = [torch.arange(5, device=DEVICE)] * 4, []
    for _ in range(3):
        assert float(replayed(rows, 1.0, [1, 2, 3, 4])) == 40.0
    older = list(replayed.graphs.values())
    assert older

    def compute(rows: torch.Tensor, beta: float | torch.Tensor, key: int | torch.Tensor) -> torch.Tensor:
        if older:
            loop = [older.pop()]
            loop.append(loop)
        others.extend([] for _ in range(100_000))  # the collector runs after some hundreds
        return rows.sum().double()

    replayed.graphs.clear()
    replayed.train_batch = compute
    assert float(replayed(rows, 1.0, [1, 2, 3, 4])) == 40.0


def assert_same_first_step(case: Case) -> None:
    """The fused engine's first Adam step: its gradients are the reference's, and its tables follow from its gradients.

    Tables are not compared with the reference's. After one step Adam moves an element by lr · g / (|g| + 1e-8), so that
    near g = 0 a difference of gradients is multiplied by up to lr / 1e-8 = 10⁶. In tables of 16,000 elements some
    gradients are that small by chance: their terms of about 0.1 cancel to 7e-8, ten times the rounding error of one
    term, and the last digits of the sum decide about 4 % of the step. Both engines are right there, up to rounding.
    What can be compared to the rounding error is the gradient, which the first moment holds: (1 − β₁) g. Its error
    follows from that of the scores: distances of 400 columns are about 300, with a rounding error of 3e-5, which is
    the relative error of the probabilities in a softmax.
    """
    lr, beta1, beta2, eps = 1e-2, 0.9, 0.999, 1e-8
    start = case.tables()
    (loss,), _tables, reference = trained(case, AutogradEngine)
    (found,), tables, state = trained(case, FusedGpuEngine)
    assert found == pytest.approx(loss, rel=2e-5)
    for name in ("entity", "relation"):
        expected = reference[f"{name}.exp_avg"] / (1 - beta1)
        gradient = state[f"{name}.exp_avg"] / (1 - beta1)
        largest = float(expected.abs().max())
        assert largest > 1e-6  # else there is nothing to compare
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=5e-5 * largest)
        torch.testing.assert_close(state[f"{name}.exp_avg_sq"], (1 - beta2) * gradient**2, rtol=1e-4, atol=1e-12)
        moved = start[name] - lr * gradient / (gradient.abs() + eps)
        torch.testing.assert_close(tables[name], moved, rtol=1e-6, atol=1e-6)


@needs_gpu
@pytest.mark.parametrize("count", [1, 7, 30, 33, 100])
@pytest.mark.parametrize("dim", [1, 2, 10, 200, 400])
def test_any_number_of_columns_and_negatives_gives_the_same_first_step(dim: int, count: int) -> None:
    for model in ("complex", "distmult", "transe", "transe-l2"):
        # Distances grow with the dimension, so that softplus alone would have gradients of 0.
        nonlinearity = "softplus" if model in ("complex", "distmult") else "linear"
        assert_same_first_step(
            Case(model=model, dim=dim, count=count, nonlinearity=nonlinearity, rows=50, entities=40, steps=1)
        )
    assert_same_first_step(Case(dim=dim, kind="all", entities=700, rows=50, steps=1))


@needs_gpu
def test_products_of_tf32_inputs_are_close_to_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    from focuse.engines.triton import step as step_kernels

    monkeypatch.setattr(step_kernels, "PRODUCT_PRECISION", "tf32")
    case = Case(dim=200, kind="all", entities=700, rows=50, steps=1)
    theirs, ours = trained(case, AutogradEngine), trained(case, FusedGpuEngine)
    assert ours[0] == pytest.approx(theirs[0], rel=1e-3)
    assert torch.backends.cuda.matmul.fp32_precision != "tf32"
