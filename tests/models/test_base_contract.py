"""The contract of every model: its uses agree on both sides, in value and gradient."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from scoring import make_scorer
from torch import Tensor
from torch.autograd import gradcheck

from focuse.errors import FocuseError
from focuse.integrations.pykeen_models import PREFIX, interactions
from focuse.models import Context, Model, Side
from focuse.models.base import components_of, confidence, moduli, score_triples
from focuse.models.registry import MODELS, make_model, model_class
from focuse.objective.focuse import default_nonlinearity

BATCH, NEGATIVES, POOL, DIM, ENTITIES = 5, 4, 7, 8, 6


class Projected(Model):
    """A model with a similarity of its own whose candidates depend on the relation: f = −Σ(h·r − t·r)⁴."""

    name = "projected"
    similarity = None
    defaults = {"nonlinearity": "shifted-softplus"}  # noqa: RUF012

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known * relation

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        return rows * relation

    def similarity_of(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        return -(query - candidates).pow(4).sum(-1)


def _models() -> list[Any]:
    """Every built-in model, one of our own, and PyKEEN's, which take minutes."""
    slow = [pytest.param(model_class(name), id=name, marks=pytest.mark.slow) for name in _of_pykeen()]
    return [*(pytest.param(made, id=made.name) for made in (*MODELS.values(), Projected)), *slow]


def _of_pykeen() -> list[str]:
    """All interactions of PyKEEN if it is installed; of the largest a smaller form."""
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


@pytest.fixture(params=_models())
def model(request: pytest.FixtureRequest) -> Model:
    """A model whose parameters are not at their initial values, so that none is without effect."""
    made: Model = request.param()
    made = made.bind(context=make_context(made))
    start = made.init_parameters(DIM, torch.Generator().manual_seed(3))
    return made.bind({name: 0.7 * value.double() + 0.3 for name, value in start.items()})


def make_context(model: Model) -> Context:
    """A graph of ENTITIES with two numbers each, some of them missing, for a model that looks at such things."""
    random = torch.Generator().manual_seed(5)
    edges = torch.tensor([[0, 1, 2, 3, 5, 0, 4], [0, 1, 1, 0, 0, 1, 1], [1, 2, 0, 4, 3, 5, 1]]).unbind()
    attributes = torch.randn(ENTITIES, 2, generator=random, dtype=torch.float64)
    present = torch.rand(ENTITIES, 2, generator=random) > 0.3
    given: dict[str, Any] = {"edges": edges} if "edges" in model.requires else {}
    given |= {"attributes": attributes, "present": present} if "attributes" in model.requires else {}
    return Context(**given)


def sides_of(model: Model) -> tuple[Side, ...]:
    """The sides that a model can be asked for."""
    return ("tail",) if "inverse relations" in model.requires else ("tail", "head")


@pytest.fixture
def rows(model: Model) -> Callable[..., Tensor]:
    """Random rows of entities, or of relations, of any shape."""
    random = torch.Generator().manual_seed(7)

    def draw(*shape: int, relation: bool = False) -> Tensor:
        width = model.widths(DIM)[1] if relation else model.widths(DIM)[0]
        found = torch.randn(*shape, width, generator=random, dtype=torch.float64)
        columns = model.context.attribute_columns()
        if relation or columns is None or model.encoder is not None:  # rows that are encoded already
            return found
        which = torch.randint(ENTITIES, shape, generator=random)
        return torch.cat([found, columns[which]], dim=-1)

    return draw


def one_by_one(model: Model, head: Tensor, relation: Tensor, tail: Tensor, side: Side = "tail") -> Tensor:
    """Scores of single triples, each scored alone; the rows may have any common shape."""
    shape = head.shape[:-1]
    triples = zip(*(part.reshape(-1, 1, part.shape[-1]) for part in (head, relation, tail)), strict=True)
    return torch.cat([score_triples(model, *triple, side) for triple in triples]).reshape(shape)


def test_score_gives_one_number_per_triple(model: Model, rows: Callable[..., Tensor]) -> None:
    head, relation, tail = rows(BATCH), rows(BATCH, relation=True), rows(BATCH)
    scores = score_triples(model, head, relation, tail)
    assert scores.shape == (BATCH,)
    torch.testing.assert_close(scores, one_by_one(model, head, relation, tail))


def test_a_triple_has_the_same_score_on_both_sides(model: Model, rows: Callable[..., Tensor]) -> None:
    head, relation, tail = rows(BATCH), rows(BATCH, relation=True), rows(BATCH)
    of_tail = score_triples(model, head, relation, tail)
    for side in sides_of(model):
        torch.testing.assert_close(score_triples(model, head, relation, tail, side), of_tail)


def test_scores_of_negatives_are_those_of_single_triples(model: Model, rows: Callable[..., Tensor]) -> None:
    for side in sides_of(model):
        known, relation, others = rows(BATCH), rows(BATCH, relation=True), rows(BATCH, NEGATIVES)
        scores = model.score_negatives(model.query(known, relation, side), relation, others, side)
        assert scores.shape == (BATCH, NEGATIVES)
        given, relations = known[:, None].expand_as(others), relation[:, None].expand(-1, NEGATIVES, -1)
        head, tail = (given, others) if side == "tail" else (others, given)
        torch.testing.assert_close(scores, one_by_one(model, head, relations, tail, side))


@pytest.mark.parametrize("batch", [1, BATCH, POOL])  # as long as the pool too: lengths must not decide what is meant
def test_scores_of_a_pool_are_those_of_single_triples(model: Model, rows: Callable[..., Tensor], batch: int) -> None:
    for side in sides_of(model):
        known, relation, pool = rows(batch), rows(batch, relation=True), rows(POOL)
        scores = model.score_pool(model.query(known, relation, side), relation, pool, side)
        assert scores.shape == (batch, POOL)
        given, others = known[:, None].expand(-1, POOL, -1), pool[None].expand(batch, -1, -1)
        head, tail = (given, others) if side == "tail" else (others, given)
        torch.testing.assert_close(scores, one_by_one(model, head, relation[:, None].expand(-1, POOL, -1), tail, side))


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("side", ["head", "tail"])
def test_a_scorer_ranks_every_entity_by_the_scores_of_single_triples(model: Model, side: Side, inverse: bool) -> None:
    if side not in sides_of(model) and not inverse:
        return
    random = torch.Generator().manual_seed(9)
    tables = [
        torch.randn(rows, width, generator=random, dtype=torch.float64)
        for rows, width in zip((ENTITIES, 4 if inverse else 2), model.widths(DIM), strict=True)
    ]
    scorer = make_scorer(model, *tables, parameters=model.parameters, inverse_relations=inverse)
    known, relation = torch.tensor([0, 3, 5, 3]), torch.tensor([0, 1, 1, 0])
    scores = scorer.score_all(known, relation, side)
    assert scores.shape == (4, ENTITIES)
    for place, (given, r) in enumerate(zip(known.tolist(), relation.tolist(), strict=True)):
        asked: Side = "tail" if inverse else side
        row = scorer.rows("relation", torch.tensor([r + 2 if inverse and side == "head" else r]))
        for other in range(ENTITIES):
            head, tail = (given, other) if asked == "tail" else (other, given)
            h, t = (scorer.rows("entity", torch.tensor([end])) for end in (head, tail))
            torch.testing.assert_close(scores[place, other], score_triples(model, h, row, t, asked)[0])


def test_gradients_match_finite_differences(model: Model, rows: Callable[..., Tensor]) -> None:
    head, relation, tail = rows(2), rows(2, relation=True), rows(2)
    others, pool = rows(2, 3), rows(3)
    for part in (head, relation, tail, others, pool):
        part.requires_grad_()
    for side in sides_of(model):
        for use, chosen in ((model.score, tail), (model.score_negatives, others), (model.score_pool, pool)):
            assert gradcheck(
                lambda k, r, p, side=side, use=use: use(model.query(k, r, side), r, p, side), (head, relation, chosen)
            )


def seen(model: Model, score: Tensor) -> Tensor:
    """A score as training sees it."""
    head = model.confidence_head
    return score if head is None else head.unclipped(score, model.parameters)


def taken(model: Model, seed: int = 11) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of 2 triples and of 3 others for each, as an engine takes them from tables that the model has encoded."""
    random = torch.Generator().manual_seed(seed)
    widths = {ENTITIES: model.widths(DIM)[0], 2: model.widths(DIM)[1]}
    entity, relation = (torch.randn(*shape, generator=random, dtype=torch.float64) for shape in widths.items())
    columns = model.context.attribute_columns()
    entity = entity if columns is None else torch.cat([entity, columns], dim=1)
    if model.encoder is not None:
        entity, relation = model.encoder.encode(model, entity, relation)
    head, tail, others = torch.tensor([0, 3]), torch.tensor([5, 1]), torch.tensor([[1, 2, 4], [0, 4, 2]])
    return entity[head], relation, entity[tail], entity[others]


def test_gradients_of_parameters_match_finite_differences(model: Model) -> None:
    """Each of them influences every use, or the auxiliary loss, and is bound by `bind` alone."""
    start = model.init_parameters(DIM, torch.Generator().manual_seed(3))
    assert set(start) == set(model.parameters)

    def score(m: Model) -> Tensor:
        return seen(m, score_triples(m, *taken(m)[:3]))

    def negatives(m: Model) -> Tensor:
        head, relation, _, others = taken(m)
        return seen(m, m.score_negatives(m.query(head, relation, "tail"), relation, others, "tail"))

    def pool(m: Model) -> Tensor:
        head, relation, tail, _ = taken(m)
        return seen(m, m.score_pool(m.query(head, relation, "tail"), relation, tail, "tail"))

    def auxiliary(m: Model) -> Tensor:
        return torch.zeros(2) if m.auxiliary_loss is None else m.auxiliary_loss.loss(m, *taken(m)[:3])

    for name, value in model.parameters.items():
        assert name not in ("entity", "relation")
        assert value.shape == start[name].shape
        if name in model.buffers:
            continue
        leaf = value.clone().requires_grad_()

        def bound(x: Tensor, name: str = name) -> Model:
            return model.bind({**model.parameters, name: x})

        aside = auxiliary(bound(leaf)).requires_grad
        for use in (auxiliary,) if aside else (score, negatives, pool):
            assert torch.autograd.grad(use(bound(leaf)).sum(), leaf)[0].abs().max() > 0
            many = leaf.numel() > 200  # then along a random direction, not number by number
            assert gradcheck(lambda x, use=use, bound=bound: use(bound(x)), (leaf,), fast_mode=many)


def test_a_rowwise_encoder_encodes_each_row_by_itself(model: Model) -> None:
    if model.encoder is None or not model.encoder.rowwise:
        return
    columns = model.context.attribute_columns()
    table = torch.randn(ENTITIES, model.widths(DIM)[0], dtype=torch.float64)
    table = table if columns is None else torch.cat([table, columns], dim=1)
    relations, some = torch.randn(3, model.widths(DIM)[1], dtype=torch.float64), torch.tensor([4, 1])
    entity, relation = model.encoder.encode(model, table, relations)
    rows, chosen = model.encoder.encode(model, table[some], relations[1:2])
    torch.testing.assert_close(rows, entity[some])
    torch.testing.assert_close(chosen, relation[1:2])


def test_a_confidence_lies_in_the_unit_interval_and_rises_with_the_score(model: Model) -> None:
    scores = torch.linspace(-30, 30, 601)
    if model.confidence_head is None:
        with pytest.raises(FocuseError, match="no confidence head"):
            confidence(model, scores)
        return
    found, learnt = confidence(model, scores), seen(model, scores)
    assert ((found >= 0) & (found <= 1)).all()
    assert (found.diff() >= 0).all()
    assert found[-1] - found[0] > 0.99
    assert torch.equal(found, learnt.clamp(0, 1))


def test_a_distance_is_never_above_zero(model: Model, rows: Callable[..., Tensor]) -> None:
    """Such models have the shifted softplus by default."""
    if default_nonlinearity(model) != "shifted-softplus":
        return
    head, relation, tail = rows(50), rows(50, relation=True), rows(50)
    assert (score_triples(model, head, relation, tail) <= 0).all()
    assert (model.score_pool(model.query(head, relation, "tail"), relation, tail, "tail") <= 0).all()


def test_gradients_stay_finite_where_rows_coincide(model: Model) -> None:
    """Zero rows: a distance of 0 has a kink, which must not become NaN in any use."""
    entity = torch.zeros(3, model.widths(DIM)[0], dtype=torch.float64, requires_grad=True)
    relation = torch.zeros(3, model.widths(DIM)[1], dtype=torch.float64, requires_grad=True)
    columns = model.context.attribute_columns()
    rows = (
        entity
        if columns is None or model.encoder is not None
        else torch.cat([entity, torch.zeros_like(columns[:3])], dim=1)
    )
    query = model.query(rows, relation, "tail")
    total = score_triples(model, rows, relation, rows).sum() + model.score_pool(query, relation, rows, "tail").sum()
    total = total + model.score_negatives(query, relation, rows[:, None], "tail").sum()
    total.backward()
    for part in (entity, relation):
        assert part.grad is not None
        assert part.grad.isfinite().all()


def test_moduli_are_those_of_complex_numbers_and_quaternions(model: Model, rows: Callable[..., Tensor]) -> None:
    """They stay the same if every number is rotated or mirrored."""
    components = components_of(model)[0]
    if components == 1:
        return
    found = torch.randn(2, model.widths(DIM)[0], dtype=torch.float64)
    sizes = moduli(model, "entity", found)
    assert sizes.shape == (2, model.widths(DIM)[0] // components)
    torch.testing.assert_close(sizes.square().sum(), found.square().sum())
    first, *others = found.chunk(components, -1)
    torch.testing.assert_close(moduli(model, "entity", torch.cat([-others[0], first, *others[1:]], -1)), sizes)


@pytest.mark.parametrize("name", MODELS)
def test_every_name_resolves_to_its_class(name: str) -> None:
    model = make_model(name)
    assert type(model) is MODELS[name]
    assert model.name == name


@pytest.mark.parametrize(
    ("wrong", "right"), [("complx", "complex"), ("dist-mult", "distmult"), ("transe_l2", "transe-l2")]
)
def test_unknown_name_suggests_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(FocuseError, match=rf"unknown model '{wrong}' \(did you mean {right}") as error:
        make_model(wrong)
    assert all(name in str(error.value) for name in MODELS)


def test_model_without_similarity_is_an_error() -> None:
    class Half(Projected):
        similarity_of = Model.similarity_of

    with pytest.raises(NotImplementedError, match="projected"):
        score_triples(Half(), torch.ones(1, 2), torch.ones(1, 2), torch.ones(1, 2))
