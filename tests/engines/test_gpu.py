"""The GPU engine against the reference, step by step: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec

import pytest
import torch

from focuse.engines.base import Batch, Corruptions, Hints
from focuse.engines.gpu import GpuEngine
from focuse.engines.reference import ReferenceEngine
from focuse.evaluation.known import Known
from focuse.focus import Focus, default_nonlinearity
from focuse.models import make_model
from focuse.training.chances import make_chances
from focuse.training.losses import LOSSES, Objective, SoftLabel, SquaredError, make_loss
from focuse.training.negatives import Sampler, draw, key_of
from focuse.training.optimisers import make_optimiser
from focuse.training.regularisers import Regulariser

PLAIN = ("complex", "distmult", "transe", "transe-l2", "ukge-logi", "ukge-rect")

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
TRITON = find_spec("triton") is not None
if TRITON and not GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are first imported
    from triton.runtime import interpreter

    plainly = interpreter._patch_lang_tensor

    def with_loops(tensor, scope) -> None:
        """NumPy 2.4 no longer takes an array of one number for a number, which the interpreter's loops need."""
        plainly(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = with_loops
pytestmark = pytest.mark.skipif(not TRITON, reason="needs triton: pip install -e '.[kernels]'")
needs_gpu = pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU")
ENTITIES, RELATIONS, ROWS = 7, 2, 4
OPTIMISERS = ("adam", "row-adam", "row-adagrad")
NONLINEARITIES = ("softplus", "linear", "sigmoid", "tanh", "shifted-softplus:4")


@dataclass(frozen=True)
class Case:
    """One training of a few steps."""

    model: str = "complex"
    dim: int = 3
    kind: str = "independent"
    count: int = 5
    loss: str = "multiclass-nll"
    nonlinearity: str | None = "softplus"
    optimizer: str = "adam"
    penalty: Regulariser | None = None
    filtered: bool = False
    hinted: bool = False
    rows: int = ROWS
    steps: int = 2
    entities: int = ENTITIES

    def tables(self) -> dict[str, torch.Tensor]:
        made, random = make_model(self.model), torch.Generator().manual_seed(5)
        shapes = {
            "entity": (self.entities, made.entity_width(self.dim)),
            "relation": (RELATIONS, made.relation_width(self.dim)),
        }
        tables = {name: torch.randn(shape, generator=random) * 0.5 for name, shape in shapes.items()}
        return {name: table.to(DEVICE) for name, table in {**tables, **made.dense_start(1, torch.Generator())}.items()}

    def batch(self, seed: int, rows: int = 0) -> Batch:
        random = torch.Generator().manual_seed(seed)
        sizes = (self.entities, RELATIONS, self.entities)
        ids = [torch.randint(size, (rows or self.rows,), generator=random) for size in sizes]
        weight = torch.rand(rows or self.rows, generator=random)
        if self.loss == "soft-label":
            weight[::4] = -1.0  # known to be false
        return Batch(*(part.to(DEVICE) for part in (*ids, weight)))

    def sampler(self) -> Sampler:
        batch, known = self.batch(0, 9), None
        if self.filtered:
            known = Known(batch.head, batch.relation, batch.tail, self.entities, RELATIONS)
        return Sampler(self.kind, self.count, self.entities, known)

    def objective(self) -> Objective | SoftLabel | SquaredError:
        if self.loss == "soft-label":
            return SoftLabel(0.5)
        if self.loss == "squared-error":
            made = make_model(self.model)
            return SquaredError(made.trained, 0.7, made.curve)
        return Objective(make_loss(self.loss), Focus(self.nonlinearity) if self.nonlinearity else None)

    def engine(self, kind, tables: dict[str, torch.Tensor]):
        made = make_model(self.model)
        optimiser = make_optimiser(self.optimizer, tables, 1e-2)
        return kind(made, tables["entity"], tables["relation"], optimiser, {name: tables[name] for name in made.dense})


def trained(case: Case, kind, recorded: bool = False):
    """Losses, tables and the optimiser's state after training."""
    tables, sampler, objective = case.tables(), case.sampler(), case.objective()
    engine, batch = case.engine(kind, tables), case.batch(3, 64)
    more = case.batch(4, 5)
    hints = Hints(more, objective.shortfall) if case.hinted else None

    def compute(rows: torch.Tensor, beta: float | torch.Tensor, key: int | torch.Tensor) -> torch.Tensor:
        some = batch.take(rows)
        return engine.step(some, sampler(some, key), objective, beta, case.penalty, 0.5, hints)

    steps = engine.prepare(compute)
    losses = []
    for number in range(case.steps):
        rows = draw((1, 2, number), (case.rows,), 64, torch.device(DEVICE))
        beta, key = 1 - 0.3 * (number % 4), key_of(0, 0, number)
        losses.append(steps([rows], beta, [key]) if recorded else compute(rows, beta, key))
    if kind is GpuEngine:  # kernels did it, the reference did not help out; only lists of facts cannot be recorded
        assert engine.recordable or (case.filtered and case.kind == "all")
    return [float(loss) for loss in losses], tables, engine.optimiser.state()


def assert_alike(case: Case, recorded: bool = False) -> None:
    theirs, ours = trained(case, ReferenceEngine), trained(case, GpuEngine, recorded)
    assert ours[0] == pytest.approx(theirs[0], rel=2e-5)
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        assert mine.keys() == other.keys()
        for name in mine:
            # Adam turns tiny differences of tiny gradients into steps: as close as float32 lets them be.
            torch.testing.assert_close(mine[name], other[name], rtol=1e-3, atol=2e-5, check_dtype=False)


@pytest.fixture(autouse=True)
def exact_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrix products in full float32, so that tolerances can be narrow."""
    from focuse.engines.triton import pools

    if GPU:
        monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", "ieee")
        monkeypatch.setattr(pools, "FAST", "ieee")


def penalty_of(number: int, optimizer: str) -> Regulariser | None:
    """None and every power over every scope, one after the other."""
    scopes = ("tables" if optimizer == "adam" else "touched", "rows")
    return None if number % 7 == 6 else Regulariser(number % 3 + 1, 0.1, scopes[number % 2])


def covering(kinds: tuple[str, ...], counts: tuple[int, ...], number: int) -> list[Case]:
    """`number` cases in which every model meets every loss, and the other choices go round at paces of their own."""
    cases = []
    for i in range(number):
        model = PLAIN[i % 6]
        loss = [*LOSSES, "squared-error"][(i + i // 6) % 7]
        if loss == "squared-error" and not make_model(model).confident:
            loss = "multiclass-nll"
        optimizer = OPTIMISERS[(i + i // 3) % 3]
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
                hinted=loss == "squared-error" and i % 2 == 0,
            )
        )
    return cases


@pytest.mark.parametrize("case", covering(("independent",), (5, 1, 7, 30, 33), 28), ids=str)
def test_own_corruptions(case: Case) -> None:
    assert_alike(case)


@pytest.mark.parametrize("case", covering(("shared", "all"), (6, 1, 9), 24), ids=str)
def test_pools(case: Case) -> None:
    assert_alike(case)


@pytest.mark.parametrize("kind", ["independent", "shared", "all"])
@pytest.mark.parametrize("model", ["complex", "transe-l2"])
def test_labels(model: str, kind: str) -> None:
    """Weights as labels; filtered where the model is ComplEx.

    L1 would not do: its slopes of ±1 cancel in a batch this small, and Adam makes steps of what rounding leaves.
    """
    assert_alike(Case(model=model, kind=kind, loss="soft-label", filtered=model == "complex"))


def test_labels_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    from focuse.engines.triton import pools

    monkeypatch.setattr(pools, "CELLS", 1)
    assert_alike(Case(model="distmult", kind="all", loss="soft-label", entities=300, rows=2, steps=1))
    assert_alike(Case(model="distmult", count=100, rows=2, loss="soft-label", filtered=True, steps=1))


@pytest.mark.parametrize("model", ["complex", "transe-l2"])
def test_very_many_corruptions(model: str) -> None:
    """More than a program holds: three blocks of 32 and a rest."""
    assert_alike(Case(model=model, count=100, rows=2, filtered=True, steps=1))


@pytest.mark.parametrize("model", ["transe", "distmult"])
def test_pools_in_blocks(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More columns than are held at once: the softmax goes over all of them."""
    from focuse.engines.triton import pools

    monkeypatch.setattr(pools, "CELLS", 1)
    assert_alike(Case(model=model, kind="all", entities=300, rows=2, steps=1, filtered=model == "distmult"))


@pytest.mark.parametrize("model", ["complex", "transe"])
def test_hubs(model: str) -> None:
    """Two entities and two relations for all entries: segments much longer than a chunk."""
    assert_alike(Case(model=model, dim=2, entities=2, rows=20, count=20, steps=1, optimizer="row-adam"))


@pytest.mark.parametrize("kind", ["independent", "all"])
@pytest.mark.parametrize("model", ["transe", "transe-l2"])
def test_equal_rows_pull_nowhere(model: str, kind: str) -> None:
    """A distance of 0 has no direction; torch says its gradient is 0, and so must the kernels."""
    moved = []
    for engine in (ReferenceEngine, GpuEngine):
        case = Case(model=model, kind=kind, nonlinearity=None)
        tables = {name: table * 0 for name, table in case.tables().items()}
        batch = case.batch(0)
        case.engine(engine, tables).step(batch, case.sampler()(batch, (0, 0, 0)), case.objective(), 1.0)
        moved.append(max(float(table.abs().max()) for table in tables.values()))
    assert moved == [0.0, 0.0]


@pytest.mark.parametrize("loss", [*LOSSES, "squared-error", "soft-label"])
def test_positives_without_corruptions(loss: str) -> None:
    """All of one positive's are masked. An offset of all scores says nothing to a softmax, so labels go without."""
    results = []
    for kind in (ReferenceEngine, GpuEngine):
        case = Case(model="complex" if loss == "soft-label" else "ukge-logi", loss=loss, rows=2)
        tables, batch = case.tables(), case.batch(0)
        group = case.sampler()(batch, (0, 0, 0))[0]
        mask = torch.tensor([[True] * 5, [False] * 5], device=DEVICE)
        group = Corruptions("both", group.entities, group.tails, mask)
        loss_of = case.engine(kind, tables).step(batch, [group], case.objective(), 0.3)
        results.append((float(loss_of), tables))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-5)
    for name, table in results[0][1].items():
        torch.testing.assert_close(results[1][1][name], table, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_large_scores_stay_finite(scale: float) -> None:
    for loss in ("multiclass-nll", "nll"):
        results = []
        for kind in (ReferenceEngine, GpuEngine):
            case = Case(loss=loss, rows=2, optimizer="row-adagrad")
            tables, batch = {name: table * scale for name, table in case.tables().items()}, case.batch(0)
            found = case.engine(kind, tables).step(batch, case.sampler()(batch, (0, 0, 0)), case.objective(), 0.3)
            results.append((float(found), tables["entity"]))
        assert results[1][0] == pytest.approx(results[0][0], rel=1e-5)
        assert torch.isfinite(results[1][1]).all()


@pytest.mark.parametrize("kind", ["independent", "shared"])
def test_two_runs_end_in_the_same_bits(kind: str) -> None:
    case = Case(kind=kind, entities=3)
    first, second = (trained(case, GpuEngine) for _ in range(2))
    assert first[0] == second[0]
    assert all(torch.equal(table, second[1][name]) for name, table in first[1].items())


def test_an_unknown_objective_goes_the_references_way() -> None:
    class Strange:
        def __call__(self, positive, negative, weight, mask, beta):
            return negative.sum(1) - positive

    results = []
    for kind in (ReferenceEngine, GpuEngine):
        case = Case()
        tables, batch = case.tables(), case.batch(0)
        case.engine(kind, tables).step(batch, case.sampler()(batch, (0, 0, 0)), Strange(), 0.5)
        results.append(tables["entity"])
    assert torch.equal(*results)


def test_random_numbers_are_those_of_every_device() -> None:
    from focuse.engines.triton import draw as kernels

    device, key = torch.device(DEVICE), key_of(3, 1, 2)
    for size, below in ((1, 5), (2049, 4999), (70, 2**31 - 1), (70, 2**31)):
        expected = draw(key, (size,), below, torch.device("cpu"))
        assert torch.equal(kernels.draw(key, size, below, device).cpu(), expected)
        held = torch.tensor(key, device=device)
        assert torch.equal(kernels.draw(held, size, below, device).cpu(), expected)
    both = draw(key, (70, 30), 2 * 4999, torch.device("cpu"))
    entities, tails = kernels.corruptions(key, (70, 30), 4999, device)
    assert torch.equal(entities.cpu(), both >> 1)
    assert torch.equal(tails.cpu(), (both & 1).bool())
    rows = draw(key, (300,), 64, torch.device("cpu")).to(device)
    batch = Case().batch(0, 64)
    columns = (batch.head, batch.relation, batch.tail, batch.weight)
    assert all(torch.equal(a, b[rows]) for a, b in zip(kernels.take(columns, rows), columns, strict=True))


@needs_gpu
@pytest.mark.parametrize(("corrupt", "coin"), [("type", "fair"), ("degree", "fair"), ("uniform", "bernoulli")])
def test_chances_are_those_of_every_device(corrupt: str, coin: str) -> None:
    batch = Case().batch(0, 64)
    here = Batch(*(part.cpu() for part in (batch.head, batch.relation, batch.tail, batch.weight)))
    found = []
    for facts in (batch, here):
        chances = make_chances(corrupt, coin, facts, ENTITIES, RELATIONS)
        (group,) = Sampler("independent", 30, ENTITIES, chances=chances)(facts, (3, 1, 4))
        assert group.entities is not None
        assert group.tails is not None
        assert group.entities.device == facts.head.device
        found.append((group.entities.cpu(), group.tails.cpu()))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_what_it_lacks() -> None:
    tables = Case().tables()
    cpu, adam = torch.device("cpu"), make_optimiser("adam", tables, 0.1)
    assert "NVIDIA GPU" in GpuEngine.lacks(make_model("complex"), cpu, adam)
    cuda, sgd = torch.device("cuda"), make_optimiser("sgd", tables, 0.1)
    assert GpuEngine.lacks(make_model("complex"), cuda, adam) == ""
    assert "optimizer" in GpuEngine.lacks(make_model("complex"), cuda, sgd)


@needs_gpu
@pytest.mark.parametrize("kind", ["independent", "shared", "all"])
@pytest.mark.parametrize("model", PLAIN)
def test_replayed(model: str, kind: str) -> None:
    """Graphs included: rows, β and random numbers of every batch reach the recorded step."""
    loss = "squared-error" if make_model(model).confident else "multiclass-nll"
    for optimizer in OPTIMISERS:
        case = Case(model=model, kind=kind, steps=8, loss=loss, optimizer=optimizer, hinted=loss == "squared-error")
        assert_alike(case, recorded=True)


@needs_gpu
def test_garbage_spoils_no_recording() -> None:
    """An older training's graphs that wait for the collector are not freed while a graph is recorded."""
    engine = Case().engine(GpuEngine, Case().tables())
    replayed = engine.prepare(lambda rows, beta, key: rows.sum().double())
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
    replayed.compute = compute
    assert float(replayed(rows, 1.0, [1, 2, 3, 4])) == 40.0


@needs_gpu
@pytest.mark.parametrize("count", [1, 7, 30, 33, 100])
@pytest.mark.parametrize("dim", [1, 2, 10, 200, 400])
def test_shapes(dim: int, count: int) -> None:
    for model in ("complex", "distmult", "transe", "transe-l2"):
        assert_alike(Case(model=model, dim=dim, count=count, rows=50, entities=40, steps=1))
    assert_alike(Case(dim=dim, kind="all", entities=700, rows=50, steps=1))


@needs_gpu
def test_fast_products_come_close(monkeypatch: pytest.MonkeyPatch) -> None:
    from focuse.engines.triton import pools

    monkeypatch.setattr(pools, "FAST", "tf32")
    case = Case(dim=200, kind="all", entities=700, rows=50, steps=1)
    theirs, ours = trained(case, ReferenceEngine), trained(case, GpuEngine)
    assert ours[0] == pytest.approx(theirs[0], rel=1e-3)
    assert torch.backends.cuda.matmul.fp32_precision != "tf32"
