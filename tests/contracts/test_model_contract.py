"""What every model promises: its four uses agree, on both sides, in value and in gradient."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from focuse.engines import ReferenceEngine
from focuse.errors import FocuseError
from focuse.models import MODELS, Context, Model, Reciprocal, Side, kind_of, make_model
from focuse.models.base import Form
from focuse.models.pykeen import PREFIX, interactions

BATCH, OWN, POOL, DIM, ENTITIES = 5, 4, 7, 8, 6


class Projected(Model):
    """A model of another form whose candidates depend on the relation: f = −Σ(h·r − t·r)⁴."""

    name = "projected"
    form: Form = "other"
    distance = True

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known * relation

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        return rows * relation

    def compare(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        return -(query - candidates).pow(4).sum(-1)


SORTS = (Projected, MODELS["complex"], MODELS["pairre"], MODELS["ukge-logi"], MODELS["kbgat"])


def _makers() -> list[Any]:
    """Every model as it is, one of our own, and some of each sort with reciprocal relations; PyKEEN's take minutes."""
    kinds: list[type[Model]] = [*MODELS.values(), Projected]
    alone = [(kind.name, kind) for kind in kinds if not kind.defaults.get("reciprocal")]
    turned = [kind for kind in kinds if kind.defaults.get("reciprocal") or kind in SORTS]
    both = [*alone, *((f"{kind.name}-reciprocal", partial(_reciprocal, kind)) for kind in turned)]
    slow = [pytest.param(kind_of(name), id=name, marks=pytest.mark.slow) for name in _of_pykeen()]
    return [*(pytest.param(make, id=name) for name, make in both), *slow]


def _of_pykeen() -> list[str]:
    """All that PyKEEN scores with, where it is installed; of the largest a smaller form."""
    if find_spec("pykeen") is None:
        return []
    smaller = {
        "AutoSF": "coefficients=((0, 0, 0, 1), (1, 1, 1, 1), (0, 1, 1, -1))",
        "ConvE": "output_channels=2",
        "ConvKB": "num_filters=2",
        "MultiLinearTucker": "e=2,f=3",
        "NTN": "k=2",
        "TransR": "e=3",
        "Transformer": "num_layers=1,num_heads=2,dim_feedforward=2",
    }
    return [f"{PREFIX}{name}:{smaller.get(name, '')}" for name in interactions()]


def _reciprocal(kind: type[Model]) -> Model:
    return Reciprocal(kind())


@pytest.fixture(params=_makers())
def model(request: pytest.FixtureRequest) -> Model:
    """Its dense tensors, where it has some, are no longer at their first values: none is without effect."""
    made: Model = request.param()
    made = made.with_context(context_of(made))
    start = made.dense_start(DIM, torch.Generator().manual_seed(3))
    return made.with_dense({name: 0.7 * value.double() + 0.3 for name, value in start.items()})


def context_of(model: Model) -> Context:
    """A graph of ENTITIES with two numbers each, some of them missing, for a model that looks at such things."""
    random = torch.Generator().manual_seed(5)
    edges = torch.tensor([[0, 1, 2, 3, 5, 0, 4], [0, 1, 1, 0, 0, 1, 1], [1, 2, 0, 4, 3, 5, 1]]).unbind()
    numbers = torch.randn(ENTITIES, 2, generator=random, dtype=torch.float64)
    present = torch.rand(ENTITIES, 2, generator=random) > 0.3
    asked = {"edges": edges} if "edges" in model.wants else {}
    asked |= {"numbers": numbers, "present": present} if "numbers" in model.wants else {}
    return Context(**asked)


@pytest.fixture
def rows(model: Model) -> Callable[..., Tensor]:
    """Random rows of entities, or of relations, of any shape."""
    random = torch.Generator().manual_seed(7)

    def draw(*shape: int, relation: bool = False) -> Tensor:
        width = model.relation_width(DIM) if relation else model.entity_width(DIM)
        found = torch.randn(*shape, width, generator=random, dtype=torch.float64)
        columns = model.context.columns()
        if relation or columns is None or model.encodes:  # those are rows that it has made already
            return found
        which = torch.randint(ENTITIES, shape, generator=random)
        return torch.cat([found, columns[which]], dim=-1)

    return draw


def one_by_one(model: Model, head: Tensor, relation: Tensor, tail: Tensor, side: Side = "tail") -> Tensor:
    """Scores of single triples, each scored alone; the rows may have any common shape."""
    shape = head.shape[:-1]
    triples = zip(*(part.reshape(-1, 1, part.shape[-1]) for part in (head, relation, tail)), strict=True)
    return torch.cat([model.score(*triple, side) for triple in triples]).reshape(shape)


def test_score_gives_one_number_a_triple(model: Model, rows: Callable[..., Tensor]) -> None:
    head, relation, tail = rows(BATCH), rows(BATCH, relation=True), rows(BATCH)
    scores = model.score(head, relation, tail)
    assert scores.shape == (BATCH,)
    torch.testing.assert_close(scores, one_by_one(model, head, relation, tail))


def test_asking_for_the_head_scores_like_asking_for_the_tail(model: Model, rows: Callable[..., Tensor]) -> None:
    head, relation, tail = rows(BATCH), rows(BATCH, relation=True), rows(BATCH)
    assert model.query(tail, relation, "head").shape == model.query(head, relation, "tail").shape
    of_tail, of_head = (model.score(head, relation, tail, side) for side in ("tail", "head"))
    if model.sided:
        assert not torch.allclose(of_head, of_tail)
    else:
        torch.testing.assert_close(of_head, of_tail)


def test_both_sides_are_asked_as_each_by_itself(model: Model, rows: Callable[..., Tensor]) -> None:
    head, relation, tail = rows(BATCH), rows(BATCH, relation=True), rows(BATCH)
    found = model.queries(head, relation, tail)
    torch.testing.assert_close(found["tail"], model.query(head, relation, "tail"))
    torch.testing.assert_close(found["head"], model.query(tail, relation, "head"))


@pytest.mark.parametrize("side", ["head", "tail"])
def test_own_others_agree_with_single_triples(model: Model, rows: Callable[..., Tensor], side: Side) -> None:
    known, relation, others = rows(BATCH), rows(BATCH, relation=True), rows(BATCH, OWN)
    scores = model.own(model.query(known, relation, side), relation, others, side)
    assert scores.shape == (BATCH, OWN)
    given, kinds = known[:, None].expand_as(others), relation[:, None].expand(-1, OWN, -1)
    head, tail = (given, others) if side == "tail" else (others, given)
    torch.testing.assert_close(scores, one_by_one(model, head, kinds, tail, side))


@pytest.mark.parametrize("batch", [1, BATCH, POOL])  # as long as the pool too: lengths must not decide what is meant
@pytest.mark.parametrize("side", ["head", "tail"])
def test_shared_pool_agrees_with_single_triples(
    model: Model, rows: Callable[..., Tensor], side: Side, batch: int
) -> None:
    known, relation, pool = rows(batch), rows(batch, relation=True), rows(POOL)
    scores = model.shared(model.query(known, relation, side), relation, pool, side)
    assert scores.shape == (batch, POOL)
    given, others = known[:, None].expand(-1, POOL, -1), pool[None].expand(batch, -1, -1)
    head, tail = (given, others) if side == "tail" else (others, given)
    torch.testing.assert_close(scores, one_by_one(model, head, relation[:, None].expand(-1, POOL, -1), tail, side))


@pytest.mark.parametrize("side", ["head", "tail"])
def test_every_entity_agrees_with_single_triples(model: Model, side: Side) -> None:
    random = torch.Generator().manual_seed(9)
    widths = {ENTITIES: model.entity_width(DIM), 2: model.relation_width(DIM)}
    tables = [torch.randn(*shape, generator=random, dtype=torch.float64) for shape in widths.items()]
    engine = ReferenceEngine(model, *tables, dense=model.dense)
    known, relation = torch.tensor([0, 3, 5, 3]), torch.tensor([0, 1, 1, 0])
    scores = engine.score_all(known, relation, side)
    assert scores.shape == (4, ENTITIES)
    for place, (given, kind) in enumerate(zip(known.tolist(), relation.tolist(), strict=True)):
        for other in range(ENTITIES):
            head, tail = (given, other) if side == "tail" else (other, given)
            ends = (engine.rows("entity", torch.tensor([end])) for end in (head, tail))
            h, t = ends
            alone = model.score(h, engine.rows("relation", torch.tensor([kind])), t, side)
            torch.testing.assert_close(scores[place, other], alone[0])


def test_gradients_match_finite_differences(model: Model, rows: Callable[..., Tensor]) -> None:
    head, relation, tail = rows(2), rows(2, relation=True), rows(2)
    others, pool = rows(2, 3), rows(3)
    for part in (head, relation, tail, others, pool):
        part.requires_grad_()
    for side in ("head", "tail"):
        assert gradcheck(lambda h, r, t, side=side: model.score(h, r, t, side), (head, relation, tail))
        for use, rivals in ((model.own, others), (model.shared, pool)):
            assert gradcheck(
                lambda k, r, p, side=side, use=use: use(model.query(k, r, side), r, p, side), (head, relation, rivals)
            )


def seen(model: Model, score: Tensor) -> Tensor:
    """What training sees of a score."""
    return model.trained(score) if model.confident else score


def taken(model: Model, seed: int = 11) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of 2 triples and of 3 others for each, as an engine takes them from tables that the model has encoded."""
    random = torch.Generator().manual_seed(seed)
    widths = {ENTITIES: model.entity_width(DIM), 2: model.relation_width(DIM)}
    entity, relation = (torch.randn(*shape, generator=random, dtype=torch.float64) for shape in widths.items())
    columns = model.context.columns()
    entity = entity if columns is None else torch.cat([entity, columns], dim=1)
    entity, relation = model.encode(entity, relation) if model.encodes else (entity, relation)
    head, tail, others = torch.tensor([0, 3]), torch.tensor([5, 1]), torch.tensor([[1, 2, 4], [0, 4, 2]])
    return entity[head], relation, entity[tail], entity[others]


def test_gradients_of_dense_tensors_match_finite_differences(model: Model) -> None:
    """Each of them bears on every use, or on a loss of the model's own, and is reached by `with_dense` alone."""
    start = model.dense_start(DIM, torch.Generator().manual_seed(3))
    assert set(start) == set(model.dense)

    def score(m: Model) -> Tensor:
        return seen(m, m.score(*taken(m)[:3]))

    def own(m: Model) -> Tensor:
        head, relation, _, others = taken(m)
        return seen(m, m.own(m.query(head, relation, "tail"), relation, others, "tail"))

    def shared(m: Model) -> Tensor:
        head, relation, tail, _ = taken(m)
        return seen(m, m.shared(m.query(head, relation, "tail"), relation, tail, "tail"))

    def extra(m: Model) -> Tensor:
        found = m.extra(*taken(m)[:3])
        return torch.zeros(2) if found is None else found

    for name, value in model.dense.items():
        assert name not in ("entity", "relation")
        assert value.shape == start[name].shape
        if name in model.kept:
            continue
        leaf = value.clone().requires_grad_()

        def bound(x: Tensor, name: str = name) -> Model:
            return model.with_dense({**model.dense, name: x})

        aside = extra(bound(leaf)).requires_grad
        for use in (extra,) if aside else (score, own, shared):
            assert torch.autograd.grad(use(bound(leaf)).sum(), leaf)[0].abs().max() > 0
            many = leaf.numel() > 200  # then along a random direction, not number by number
            assert gradcheck(lambda x, use=use, bound=bound: use(bound(x)), (leaf,), fast_mode=many)


def test_an_encoder_of_rows_looks_at_one_at_a_time(model: Model) -> None:
    if not model.rowwise:
        return
    assert model.encodes
    columns = model.context.columns()
    table = torch.randn(ENTITIES, model.entity_width(DIM), dtype=torch.float64)
    table = table if columns is None else torch.cat([table, columns], dim=1)
    kinds, some = torch.randn(3, model.relation_width(DIM), dtype=torch.float64), torch.tensor([4, 1])
    (entity, relation), (rows, chosen) = model.encode(table, kinds), model.encode(table[some], kinds[1:2])
    torch.testing.assert_close(rows, entity[some])
    torch.testing.assert_close(chosen, relation[1:2])


def test_a_pool_is_compared_then_finished_number_by_number(model: Model, rows: Callable[..., Tensor]) -> None:
    known, relation, pool = rows(BATCH), rows(BATCH, relation=True), rows(POOL)
    query = model.query(known, relation, "tail")
    compared, scores = model.pooled(query, relation, pool, "tail"), model.shared(query, relation, pool, "tail")
    alone = torch.stack([model.finish(cell) for cell in compared.flatten()]).reshape(BATCH, POOL)
    torch.testing.assert_close(scores, alone, rtol=0, atol=0)


def test_a_confidence_lies_in_the_unit_interval_and_rises_with_the_score(model: Model) -> None:
    scores = torch.linspace(-30, 30, 601)
    if not model.confident:
        with pytest.raises(NotImplementedError, match=re.escape(model.name)):
            model.confidence(scores)
        return
    found, learnt = model.confidence(scores), model.trained(scores)
    assert ((found >= 0) & (found <= 1)).all()
    assert (found.diff() >= 0).all()
    assert found[-1] - found[0] > 0.99
    assert torch.equal(found, learnt.clamp(0, 1))


def test_a_distance_is_never_above_zero(model: Model, rows: Callable[..., Tensor]) -> None:
    """Who says so gets the shifted softplus, as the forms l1 and l2 do."""
    if not model.distance and model.form not in ("l1", "l2"):
        return
    head, relation, tail = rows(50), rows(50, relation=True), rows(50)
    assert (model.score(head, relation, tail) <= 0).all()
    assert (model.shared(model.query(head, relation, "head"), relation, tail, "head") <= 0).all()


def test_gradients_stay_finite_where_rows_coincide(model: Model) -> None:
    """Zero rows: a distance of 0 has a kink, which must not become NaN in any use."""
    entity = torch.zeros(3, model.entity_width(DIM), dtype=torch.float64, requires_grad=True)
    relation = torch.zeros(3, model.relation_width(DIM), dtype=torch.float64, requires_grad=True)
    columns = model.context.columns()
    rows = entity if columns is None or model.encodes else torch.cat([entity, torch.zeros_like(columns[:3])], dim=1)
    query = model.query(rows, relation, "tail")
    total = model.score(rows, relation, rows).sum() + model.shared(query, relation, rows, "tail").sum()
    total = total + model.own(query, relation, rows[:, None], "tail").sum()
    total.backward()
    for part in (entity, relation):
        assert part.grad is not None
        assert part.grad.isfinite().all()


def test_wrong_lengths_raise(model: Model, rows: Callable[..., Tensor]) -> None:
    one, two, kinds = rows(1), rows(2), rows(2, relation=True)
    for head, relation, tail in ((one, kinds, two), (two, kinds[:1], two), (two, kinds, one)):
        with pytest.raises(ValueError, match="different lengths"):
            model.score(head, relation, tail)
    query = model.query(two, kinds, "tail")
    with pytest.raises(ValueError, match="different lengths"):
        model.own(query, kinds, rows(1, 4), "tail")
    with pytest.raises(ValueError, match="different lengths"):
        model.shared(query, kinds[:1], rows(4), "tail")


def test_numbers_have_sizes(model: Model, rows: Callable[..., Tensor]) -> None:
    """What a penalty on moduli sees: with every part of a row turned or mirrored it stays the same."""
    if model.parts == 1:
        return
    found = torch.randn(2, model.entity_width(DIM), dtype=torch.float64)
    sizes = model.moduli("entity", found)
    assert sizes.shape == (2, model.entity_width(DIM) // model.parts)
    torch.testing.assert_close(sizes.square().sum(), found.square().sum())
    first, *others = found.chunk(model.parts, -1)
    torch.testing.assert_close(model.moduli("entity", torch.cat([-others[0], first, *others[1:]], -1)), sizes)


@pytest.mark.parametrize(("multiple", "dim", "near"), [(2, 7, 8), (4, 1, 4), (4, 50, 48), (4, 99, 100)])
def test_a_dimension_that_does_not_divide_is_one_line_with_a_way_out(multiple: int, dim: int, near: int) -> None:
    class Divided(Projected):
        pass

    Divided.multiple = multiple
    for model in (Divided(), Reciprocal(Divided())):
        model.check(near)
        with pytest.raises(FocuseError) as error:
            model.check(dim)
        assert str(error.value) == f"model 'projected' needs a dim that {multiple} divides, not {dim}; try {near}"


@pytest.mark.parametrize("name", MODELS)
def test_name_resolves(name: str) -> None:
    model = make_model(name)
    assert type(model) is MODELS[name]
    assert model.name == name
    assert model.form in ("dot", "l1", "l2", "other")


@pytest.mark.parametrize(
    ("wrong", "right"), [("complx", "complex"), ("dist-mult", "distmult"), ("transe_l2", "transe-l2")]
)
def test_unknown_name_offers_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(FocuseError, match=rf"unknown model '{wrong}' \(did you mean {right}") as error:
        make_model(wrong)
    assert all(name in str(error.value) for name in MODELS)


def test_a_form_without_comparison_says_so() -> None:
    class Half(Projected):
        compare = Model.compare

    with pytest.raises(NotImplementedError, match="projected"):
        Half().score(torch.ones(1, 2), torch.ones(1, 2), torch.ones(1, 2))


@pytest.mark.parametrize("kind", MODELS.values(), ids=lambda kind: kind.name)
def test_a_model_is_a_page(kind: type[Model]) -> None:
    assert len(Path(inspect.getfile(kind)).read_text(encoding="utf-8").splitlines()) < 60
