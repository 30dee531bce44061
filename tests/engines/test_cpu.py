"""The CPU engine takes the reference's steps: same losses, tables and moments, for every model, loss and sampling."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from focuse.engines import Batch, CpuEngine, Hints, ReferenceEngine, cpu, make_engine
from focuse.engines.native import library
from focuse.errors import FocuseError
from focuse.evaluation.known import Known
from focuse.focus import Focus
from focuse.models import DistMult, Model, Reciprocal, make_model
from focuse.training.losses import LOSSES, Objective, SoftLabel, SquaredError, make_loss
from focuse.training.negatives import SAMPLINGS, Sampler, draw, key_of
from focuse.training.optimisers import make_optimiser
from focuse.training.regularisers import make_regulariser

pytestmark = pytest.mark.skipif(library() is None, reason="the loops were not built: no C++ compiler")
MODELS = ("complex", "distmult", "transe", "transe-l2")
BENDS = (None, "softplus", "shifted-softplus", "linear", "sigmoid", "tanh")
OPTIMISERS = ("adam", "row-adam", "row-adagrad")


class Case:
    """Three steps of one engine on a small random graph."""

    def __init__(self, model: str | Model, optimiser: str, width: int = 10, entities: int = 50, rows: int = 40) -> None:
        self.model, self.entities = make_model(model) if isinstance(model, str) else model, entities
        random = torch.Generator().manual_seed(1)
        self.tables = {
            "entity": torch.randn(entities, self.model.entity_width(width), generator=random) * 0.5,
            "relation": torch.randn(4, self.model.relation_width(width), generator=random) * 0.5,
            **self.model.dense_start(width, random),
        }
        self.optimiser = make_optimiser(optimiser, self.tables, 1e-2)
        ids = [torch.randint(size, (rows,), generator=random) for size in (entities, 4, entities)]
        self.batch = Batch(*ids, torch.rand(rows, generator=random))

    def train(
        self,
        kind: type[ReferenceEngine],
        objective: Objective | SoftLabel | SquaredError,
        sampling: str = "independent",
        count: int = 7,
        filtered: bool = False,
        penalty: str = "l3:1e-2",
        scope: str = "rows",
        hinted: bool = False,
        steps: int = 3,
    ) -> list[float]:
        batch = self.batch
        known = Known(batch.head, batch.relation, batch.tail, self.entities, 4) if filtered else None
        sampler = Sampler(sampling, count, self.entities, known)
        dense = {name: table for name, table in self.tables.items() if name not in ("entity", "relation")}
        engine = kind(self.model, self.tables["entity"], self.tables["relation"], self.optimiser, dense)
        hints = None
        if hinted:
            assert isinstance(objective, SquaredError)
            few = Batch(batch.head[:7], batch.relation[:7], batch.tail[:7].flip(0), batch.weight[:7])
            hints = Hints(few, objective.shortfall)
        shape = make_regulariser(penalty, scope)
        return [
            float(engine.step(batch, sampler(batch, (0, 0, step)), objective, 0.3, shape, 0.5, hints, step))
            for step in range(steps)
        ]


def assert_same(one: Case, other: Case, losses: tuple[list[float], list[float]]) -> None:
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-5)
    for name, table in one.tables.items():
        torch.testing.assert_close(
            other.tables[name], table, rtol=1e-3, atol=2e-4, msg=lambda text, n=name: f"{n}: {text}"
        )
    for name, moment in one.optimiser.state().items():
        torch.testing.assert_close(other.optimiser.state()[name].float(), moment.float(), rtol=2e-3, atol=2e-4)


def compare(
    model: str | Model, optimiser: str, objective: Objective | SoftLabel | SquaredError, **more: object
) -> None:
    size = {name: more.pop(name) for name in ("width", "entities", "rows") if name in more}
    one, other = (Case(model, optimiser, **size) for _ in range(2))  # type: ignore[arg-type]
    losses = one.train(ReferenceEngine, objective, **more), other.train(CpuEngine, objective, **more)  # type: ignore[arg-type]
    assert_same(one, other, losses)


def objective_of(loss: str, bend: str | None) -> Objective:
    return Objective(make_loss(loss), Focus(bend) if bend else None)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("model", MODELS)
def test_steps_of_the_reference(model: str, loss: str) -> None:
    """Every loss and model with every sampling, filtered or not; bends, optimisers and scopes take turns."""
    turns = itertools.product(SAMPLINGS, (False, True))
    for turn, (sampling, filtered) in enumerate(turns):
        place = turn + 7 * list(LOSSES).index(loss) + 3 * MODELS.index(model)
        optimiser = OPTIMISERS[place % 3]
        scope = "rows" if place % 2 else "tables" if optimiser == "adam" else "touched"
        objective = objective_of(loss, BENDS[place % len(BENDS)])
        compare(model, optimiser, objective, sampling=sampling, filtered=filtered, scope=scope)


@pytest.mark.parametrize("scope", ["rows", "touched"])
@pytest.mark.parametrize("model", ["complex", "distmult"])
def test_n3(model: str, scope: str) -> None:
    """Of complex numbers and of others, for which it is l3."""
    compare(model, "row-adagrad", objective_of("multiclass-nll", None), penalty="n3:1e-2", scope=scope)


@pytest.mark.parametrize("missing", [0.0, 3.0])
@pytest.mark.parametrize("model", MODELS)
def test_labels(model: str, missing: float) -> None:
    """Weights as labels, of which some are 0 and 1, with every sampling."""
    for turn, (sampling, filtered) in enumerate(itertools.product(SAMPLINGS, (False, True))):
        cases = [Case(model, OPTIMISERS[turn % 3]) for _ in range(2)]
        for case in cases:
            case.batch.weight[:5], case.batch.weight[5:9], case.batch.weight[9:13] = 0.0, 1.0, -1.0
        losses = [
            case.train(kind, SoftLabel(missing), sampling, filtered=filtered)
            for case, kind in zip(cases, (ReferenceEngine, CpuEngine), strict=True)
        ]
        assert_same(*cases, tuple(losses))


def test_labels_of_a_pool_in_pieces() -> None:
    compare("distmult", "row-adam", SoftLabel(1.0), sampling="all", entities=70_000, width=3, rows=5, steps=1)


@pytest.mark.parametrize("bend", BENDS)
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_every_bend_with_every_optimiser(bend: str | None, optimiser: str) -> None:
    compare("complex", optimiser, objective_of("multiclass-nll", bend))


@pytest.mark.parametrize(("power", "scope"), list(itertools.product(("l1", "l2", "l3"), ("tables", "touched", "rows"))))
def test_every_penalty(power: str, scope: str) -> None:
    optimiser = "row-adam" if scope == "touched" else "adam"
    compare("distmult", optimiser, objective_of("nll", None), penalty=f"{power}:3e-2", scope=scope, entities=200)


@pytest.mark.parametrize("width", [1, 2, 5, 8, 15, 16, 17, 31, 32, 33, 47, 64, 100])
@pytest.mark.parametrize("model", MODELS)
def test_every_width(model: str, width: int) -> None:
    for sampling in ("independent", "shared"):
        objective = objective_of("multiclass-nll", "softplus")
        compare(model, "row-adam", objective, width=width, sampling=sampling, steps=1)


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 30, 33, 257, 300])
def test_every_number_of_corruptions(count: int) -> None:
    for sampling in ("independent", "shared"):
        objective = objective_of("multiclass-nll", "shifted-softplus")
        compare("transe-l2", "adam", objective, count=count, rows=9, sampling=sampling)


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 63, 65, 200, 450])
@pytest.mark.parametrize("model", MODELS)
def test_every_number_of_positives(model: str, rows: int) -> None:
    """Blocks of positives, tiles of blocks, and what is left over of each."""
    compare(
        model, "row-adam", objective_of("multiclass-nll", "softplus"), rows=rows, sampling="shared", count=70, steps=1
    )


@pytest.mark.parametrize("entities", [1, 2, 3, 5000, 70_000])
def test_tables_small_and_large(entities: int) -> None:
    """With few entities all corruptions are the same ones; with many most rows are never touched."""
    for optimiser in ("row-adam", "adam"):
        compare("distmult", optimiser, objective_of("pairwise-nll", None), entities=entities, width=3)


@pytest.mark.parametrize("model", ["ukge-logi", "ukge-rect"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("hinted", [False, True])
def test_ukge(model: str, sampling: str, hinted: bool) -> None:
    kind = make_model(model)
    objective = SquaredError(kind.trained, 0.7, kind.curve)
    compare(model, "adam", objective, sampling=sampling, hinted=hinted, filtered=hinted)


@pytest.mark.parametrize("sampling", ["shared", "all"])
@pytest.mark.parametrize("loss", ["multiclass-nll", "self-adversarial", "bce"])
def test_pools_in_pieces(monkeypatch: pytest.MonkeyPatch, sampling: str, loss: str) -> None:
    """A pool larger than a block comes in pieces, positives in groups of blocks, and nothing changes."""
    monkeypatch.setattr(cpu, "PIECE", 11)
    for filtered, groups, model in itertools.product((False, True), (1, 7), ("complex", "transe", "transe-l2")):
        monkeypatch.setattr(cpu, "GROUPS", groups)
        sizes = {"entities": 150, "count": 110, "rows": 30}  # a piece is up to 48 columns
        compare(model, "adam", objective_of(loss, "softplus"), sampling=sampling, filtered=filtered, **sizes)


def test_extreme_scores_stay_finite() -> None:
    one, other = Case("distmult", "adam"), Case("distmult", "adam")
    for case in (one, other):
        case.tables["entity"] *= 60
    objective = objective_of("multiclass-nll", "softplus")
    assert_same(one, other, (one.train(ReferenceEngine, objective), other.train(CpuEngine, objective)))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("model", ["complex", "transe"])
def test_same_bits_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch, sampling: str, model: str) -> None:
    monkeypatch.setattr(cpu, "ALONE", 0)
    found = []
    for threads in (1, 2, 3, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=threads: count)
        case = Case(model, "row-adam", rows=300)
        losses = case.train(CpuEngine, objective_of("multiclass-nll", "softplus"), sampling, 30)
        found.append((losses, case.tables["entity"], case.tables["relation"]))
    for losses, entity, relation in found[1:]:
        assert losses == found[0][0]
        assert torch.equal(entity, found[0][1])
        assert torch.equal(relation, found[0][2])


def test_groups_are_fewer_where_a_pool_is_large_whatever_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "GROUPS", 16)
    monkeypatch.setattr(cpu, "POOL_ROOM", 1 << 16)
    found = []
    for threads in (1, 8):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=threads: count)
        case = Case("complex", "row-adagrad", entities=300, rows=200)
        case.train(CpuEngine, objective_of("multiclass-nll", "softplus"), "all")
        found.append(case.tables["entity"])
    assert torch.equal(*found)


def test_rows_that_no_batch_touches_keep_their_bits() -> None:
    case = Case("complex", "row-adam", entities=5000)
    before = case.tables["entity"].clone()
    case.train(CpuEngine, objective_of("multiclass-nll", "softplus"), scope="touched")
    moved = (case.tables["entity"] != before).any(1)
    assert 100 < int(moved.sum()) < 1000


def test_a_gradient_by_finite_differences() -> None:
    """One step of plain Adagrad shows the gradient itself: √Σg² = |g| after the first."""
    objective = objective_of("multiclass-nll", "softplus")

    def loss(entity: Tensor) -> float:
        case = Case("complex", "adam")
        case.tables["entity"].copy_(entity)
        return case.train(CpuEngine, objective, penalty="none", steps=1)[0] * 0.5

    case = Case("complex", "row-adagrad")
    start = case.tables["entity"].clone()
    case.train(CpuEngine, objective, penalty="none", steps=1)
    size = case.optimiser.state()["entity.sum"].sqrt()
    signed = size * torch.sign(start - case.tables["entity"])
    for row, column in [(0, 0), (3, 11), (17, 4), (41, 19)]:
        up, down = start.clone(), start.clone()
        up[row, column] += 1e-2
        down[row, column] -= 1e-2
        assert signed[row, column].item() == pytest.approx((loss(up) - loss(down)) / 2e-2, rel=2e-2, abs=2e-3)


def test_not_finite_is_noticed_before_anything_moves() -> None:
    case = Case("distmult", "adam")
    case.tables["entity"][0] = torch.nan
    before = case.tables["relation"].clone()
    with pytest.raises(FloatingPointError):
        case.train(CpuEngine, objective_of("nll", None), sampling="all")
    assert torch.equal(case.tables["relation"], before)


def test_draws_what_torch_draws() -> None:
    for entities, shape in ((1, (3, 1)), (4999, (7, 30)), (1 << 29, (5, 5))):
        key = key_of(3, 1, 4)
        both = draw(key, shape, 2 * entities, torch.device("cpu"))
        batch = Batch(*(torch.zeros(shape[0], dtype=torch.int64) for _ in range(3)), torch.zeros(shape[0]))
        (group,) = Sampler("independent", shape[1], entities)(batch, (3, 1, 4))
        assert group.entities is not None
        assert group.tails is not None
        assert torch.equal(group.entities, both >> 1)
        assert torch.equal(group.tails, (both & 1).bool())


def test_an_unknown_objective_goes_the_reference_s_way() -> None:
    plain = Objective(lambda positive, negative, mask: (negative - positive[:, None]).square().sum(1))
    compare("complex", "adam", plain)


def test_a_model_of_its_own_way_is_left_to_the_reference() -> None:
    class Bent(DistMult):
        def finish(self, product: Tensor) -> Tensor:
            return product.tanh()

    class Encoded(DistMult):
        encodes = True

    class Adding(DistMult):
        def extra(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
            return head.square().sum(-1)

    tables = {"entity": torch.randn(5, 4), "relation": torch.randn(2, 4)}
    optimiser = make_optimiser("row-adam", tables, 1e-2)
    assert type(make_engine("auto", DistMult(), tables, optimiser)) is CpuEngine
    for model in (Bent(), Encoded(), Adding(), Reciprocal(Adding())):
        assert type(make_engine("auto", model, tables, optimiser)) is ReferenceEngine
        with pytest.raises(FocuseError, match="engine 'fused': it cannot compare"):
            make_engine("fused", model, tables, optimiser)
    with pytest.raises(FocuseError, match="optimizer"):
        make_engine("fused", DistMult(), tables, make_optimiser("sgd", tables, 1e-2))


@pytest.mark.parametrize(("optimiser", "scope"), [("adam", "tables"), ("row-adam", "touched"), ("row-adagrad", "rows")])
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("width", [1, 10, 37])
def test_sizes_of_complex_numbers(
    monkeypatch: pytest.MonkeyPatch, optimiser: str, scope: str, sampling: str, width: int
) -> None:
    """n3: parts of a number lie in different blocks of columns, and count as they were before either moved."""
    objective = objective_of("multiclass-nll", None)
    more = {"sampling": sampling, "scope": scope, "penalty": "n3:3e-1", "width": width}
    steps = fused_steps(monkeypatch)
    compare("complex", optimiser, objective, **more)
    compare(Quaternions(), optimiser, objective, **more)
    assert len(steps) == 6


class Quaternions(DistMult):
    parts = 4

    def entity_width(self, dim: int) -> int:
        return 4 * dim

    relation_width = entity_width


def test_sizes_of_many_rows() -> None:
    """More than a thread keeps sizes of at a time."""
    compare("complex", "adam", objective_of("nll", None), penalty="n3:3e-1", scope="tables", entities=9000, width=2)


def test_sizes_of_one_s_own_go_the_reference_s_way(monkeypatch: pytest.MonkeyPatch) -> None:
    class Halved(Quaternions):
        def moduli(self, table: str, rows: Tensor) -> Tensor:
            return rows / 2

    steps = fused_steps(monkeypatch)
    compare(Halved(), "adam", objective_of("nll", None), penalty="n3:3e-1")
    assert not steps


def fused_steps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Losses of the steps that the loops take from now on."""
    losses: list[float] = []
    update = cpu._Step.update

    def counted(step: cpu._Step) -> float:
        losses.append(update(step))
        return losses[-1]

    monkeypatch.setattr(cpu._Step, "update", counted)
    return losses


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("scope", ["touched", "rows"])
def test_few_relations_of_many_positives(sampling: str, scope: str) -> None:
    """Their gradients are summed while they are made."""
    compare("complex", "row-adam", objective_of("multiclass-nll", "softplus"), sampling=sampling, scope=scope, rows=400)
    kind = make_model("ukge-logi")
    more = SquaredError(kind.trained, 0.7, kind.curve)
    compare("ukge-logi", "adam", more, sampling=sampling, hinted=True, rows=400)


@pytest.mark.parametrize("loss", ["self-adversarial", "multiclass-nll", "pairwise-nll"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("scale", [30, 1000])
def test_large_scores_keep_their_digits(loss: str, sampling: str, scale: float) -> None:
    """Shares of a softmax over large scores still sum to 1."""
    one, other = Case("distmult", "adam"), Case("distmult", "adam")
    for case in (one, other):
        case.tables["entity"] *= scale
    objective = objective_of(loss, "softplus")
    theirs = one.train(ReferenceEngine, objective, sampling, steps=1)
    np.testing.assert_allclose(other.train(CpuEngine, objective, sampling, steps=1), theirs, rtol=1e-6)


def test_a_negative_temperature_is_refused() -> None:
    for text in ("self-adversarial:temperature=-2", "self-adversarial:3,-1"):
        with pytest.raises(FocuseError, match="at least 0"):
            make_loss(text)
