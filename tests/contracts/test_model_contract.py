"""What every model promises: its four uses agree, on both sides, in value and in gradient."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from focuse.engines import ReferenceEngine
from focuse.errors import FocuseError
from focuse.models import MODELS, Model, Side, make_model
from focuse.models.base import Form

BATCH, OWN, POOL, DIM = 5, 4, 7, 3


class Projected(Model):
    """A model of another form whose candidates depend on the relation: f = −Σ(h·r − t·r)⁴."""

    name = "projected"
    form: Form = "other"

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known * relation

    def candidates(self, rows: Tensor, relation: Tensor) -> Tensor:
        return rows * relation

    def compare(self, query: Tensor, candidates: Tensor) -> Tensor:
        return -(query - candidates).pow(4).sum(-1)


@pytest.fixture(params=[*MODELS.values(), Projected], ids=lambda kind: kind.name)
def model(request: pytest.FixtureRequest) -> Model:
    """Its dense tensors, where it has some, are no longer at their first values: none is without effect."""
    made: Model = request.param()
    return made.with_dense({name: 0.7 * value.double() + 0.3 for name, value in made.dense_start().items()})


@pytest.fixture
def rows(model: Model) -> Callable[..., Tensor]:
    """Random rows of entities, or of relations, of any shape."""
    random = torch.Generator().manual_seed(7)

    def draw(*shape: int, relation: bool = False) -> Tensor:
        width = model.relation_width(DIM) if relation else model.entity_width(DIM)
        return torch.randn(*shape, width, generator=random, dtype=torch.float64)

    return draw


def one_by_one(model: Model, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    """Scores of single triples, each scored alone; the rows may have any common shape."""
    shape = head.shape[:-1]
    triples = zip(*(part.reshape(-1, 1, part.shape[-1]) for part in (head, relation, tail)), strict=True)
    return torch.cat([model.score(*triple) for triple in triples]).reshape(shape)


def test_score_gives_one_number_a_triple(model: Model, rows: Callable[..., Tensor]) -> None:
    head, relation, tail = rows(BATCH), rows(BATCH, relation=True), rows(BATCH)
    scores = model.score(head, relation, tail)
    assert scores.shape == (BATCH,)
    torch.testing.assert_close(scores, one_by_one(model, head, relation, tail))


def test_head_query_scores_like_tail_query(model: Model, rows: Callable[..., Tensor]) -> None:
    head, relation, tail = rows(BATCH), rows(BATCH, relation=True), rows(BATCH)
    of_head = model.query(tail, relation, "head")
    assert of_head.shape == model.query(head, relation, "tail").shape == head.shape
    from_head = model.finish(model.compare(of_head, model.candidates(head, relation)))
    torch.testing.assert_close(from_head, model.score(head, relation, tail))


@pytest.mark.parametrize("queries", [1, 2])
def test_own_others_agree_with_single_triples(model: Model, rows: Callable[..., Tensor], queries: int) -> None:
    head, relation, tail, others = rows(BATCH), rows(BATCH, relation=True), rows(BATCH), rows(BATCH, OWN)
    asked = torch.stack([model.query(head, relation, "tail"), model.query(tail, relation, "head")], 1)[:, :queries]
    scores = model.own(asked, relation, others)
    assert scores.shape == (BATCH, queries, OWN)
    kinds = relation[:, None].expand(-1, OWN, -1)
    torch.testing.assert_close(scores[:, 0], one_by_one(model, head[:, None].expand_as(others), kinds, others))
    if queries == 2:
        torch.testing.assert_close(scores[:, 1], one_by_one(model, others, kinds, tail[:, None].expand_as(others)))


@pytest.mark.parametrize("batch", [1, BATCH, POOL])  # as long as the pool too: lengths must not decide what is meant
@pytest.mark.parametrize("side", ["head", "tail"])
def test_shared_pool_agrees_with_single_triples(
    model: Model, rows: Callable[..., Tensor], side: Side, batch: int
) -> None:
    known, relation, pool = rows(batch), rows(batch, relation=True), rows(POOL)
    scores = model.shared(model.query(known, relation, side), relation, pool)
    assert scores.shape == (batch, POOL)
    given, others = known[:, None].expand(-1, POOL, -1), pool[None].expand(batch, -1, -1)
    head, tail = (given, others) if side == "tail" else (others, given)
    torch.testing.assert_close(scores, one_by_one(model, head, relation[:, None].expand(-1, POOL, -1), tail))


@pytest.mark.parametrize("side", ["head", "tail"])
def test_every_entity_agrees_with_single_triples(model: Model, rows: Callable[..., Tensor], side: Side) -> None:
    engine = ReferenceEngine(model, rows(6), rows(2, relation=True), dense=model.dense)
    known, relation = torch.tensor([0, 3, 5, 3]), torch.tensor([0, 1, 1, 0])
    scores = engine.score_all(known, relation, side)
    assert scores.shape == (4, 6)
    for place, (given, kind) in enumerate(zip(known.tolist(), relation.tolist(), strict=True)):
        for other in range(6):
            head, tail = (given, other) if side == "tail" else (other, given)
            alone = engine.score(torch.tensor([head]), torch.tensor([kind]), torch.tensor([tail]))
            torch.testing.assert_close(scores[place, other], alone[0])


def test_gradients_match_finite_differences(model: Model, rows: Callable[..., Tensor]) -> None:
    head, relation, tail = rows(2), rows(2, relation=True), rows(2)
    queries, others, pool = rows(2, 2), rows(2, 3), rows(3)
    for part in (head, relation, tail, queries, others, pool):
        part.requires_grad_()
    assert gradcheck(model.score, (head, relation, tail))
    assert gradcheck(model.own, (queries, relation, others))
    for side in ("head", "tail"):
        assert gradcheck(lambda k, r, p, side=side: model.shared(model.query(k, r, side), r, p), (head, relation, pool))


def test_gradients_of_dense_tensors_match_finite_differences(model: Model, rows: Callable[..., Tensor]) -> None:
    """Each of them bears on every use, and is reached by `with_dense` alone."""
    head, relation, tail, queries, others = rows(2), rows(2, relation=True), rows(2), rows(2, 2), rows(2, 3)
    for name, value in model.dense.items():
        assert name not in ("entity", "relation")
        assert value.shape == model.dense_start()[name].shape
        leaf = value.clone().requires_grad_()
        for use in (
            lambda bound: bound.score(head, relation, tail),
            lambda bound: bound.own(queries, relation, others),
            lambda bound: bound.shared(head, relation, tail),
        ):
            scores = use(model.with_dense({**model.dense, name: leaf}))
            assert torch.autograd.grad(scores.sum(), leaf)[0].abs().min() > 0
            assert gradcheck(lambda x, use=use, name=name: use(model.with_dense({**model.dense, name: x})), (leaf,))


def test_a_pool_is_compared_then_finished_number_by_number(model: Model, rows: Callable[..., Tensor]) -> None:
    query, relation, pool = rows(BATCH), rows(BATCH, relation=True), rows(POOL)
    compared, scores = model.pooled(query, relation, pool), model.shared(query, relation, pool)
    alone = torch.stack([model.finish(cell) for cell in compared.flatten()]).reshape(BATCH, POOL)
    torch.testing.assert_close(scores, alone, rtol=0, atol=0)


def test_a_confidence_lies_in_the_unit_interval_and_rises_with_the_score(model: Model) -> None:
    scores = torch.linspace(-30, 30, 601)
    if not model.confident:
        with pytest.raises(NotImplementedError, match=model.name):
            model.confidence(scores)
        return
    found, learnt = model.confidence(scores), model.trained(scores)
    assert ((found >= 0) & (found <= 1)).all()
    assert (found.diff() >= 0).all()
    assert found[-1] - found[0] > 0.99
    assert torch.equal(found, learnt.clamp(0, 1))


def test_gradients_stay_finite_where_rows_coincide(model: Model) -> None:
    """Zero rows: a distance of 0 has a kink, which must not become NaN in any use."""
    entity = torch.zeros(3, model.entity_width(DIM), requires_grad=True)
    relation = torch.zeros(3, model.relation_width(DIM), requires_grad=True)
    query = model.query(entity, relation, "tail")
    total = model.score(entity, relation, entity).sum() + model.shared(query, relation, entity).sum()
    total = total + model.own(query[:, None], relation, entity[:, None]).sum()
    total.backward()
    for part in (entity, relation):
        assert part.grad is not None
        assert part.grad.isfinite().all()


def test_wrong_lengths_raise(model: Model, rows: Callable[..., Tensor]) -> None:
    one, two, kinds = rows(1), rows(2), rows(2, relation=True)
    for head, relation, tail in ((one, kinds, two), (two, kinds[:1], two), (two, kinds, one)):
        with pytest.raises(ValueError, match="different lengths"):
            model.score(head, relation, tail)
    with pytest.raises(ValueError, match="different lengths"):
        model.own(two[:, None], kinds, rows(1, 4))
    with pytest.raises(ValueError, match="different lengths"):
        model.shared(two, kinds[:1], rows(4))


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
