"""Ranks against a double loop over triples and entities, one score at a time."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scoring import make_scorer

from focuse.data.triple_index import TripleIndex
from focuse.engines import scorer as native
from focuse.engines.autograd import AutogradEngine
from focuse.engines.base import Scorer
from focuse.errors import FocuseError
from focuse.evaluation.metrics import rank_metrics
from focuse.evaluation.ranking import Ranking, rank
from focuse.models import Side
from focuse.models.registry import MODELS

PLAIN = ("complex", "distmult", "transe", "transe-l2", "ukge-logi", "ukge-rect")

Triple = tuple[int, int, int]
Row = list[int]


@pytest.fixture(autouse=True, scope="module", params=["native", "torch"])
def by(request: pytest.FixtureRequest) -> Iterator[str]:
    """All of it with the C++ loops, where they were built, and without."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "torch":
            patch.setattr(native, "library", lambda: None)
        yield request.param


def _complex(h: Row, r: Row, t: Row) -> int:
    k = len(h) // 2
    parts = [[complex(x[i], x[k + i]) for i in range(k)] for x in (h, r, t)]
    return int(sum((a * b * c.conjugate()).real for a, b, c in zip(*parts, strict=True)))


# Whole numbers, so exact. The L2 norm is left squared: its order and its ties are the same.
FORMULAS: dict[str, Callable[[Row, Row, Row], int]] = {
    "transe": lambda h, r, t: -sum(abs(a + b - c) for a, b, c in zip(h, r, t, strict=True)),
    "transe-l2": lambda h, r, t: -sum((a + b - c) ** 2 for a, b, c in zip(h, r, t, strict=True)),
    "distmult": lambda h, r, t: sum(a * b * c for a, b, c in zip(h, r, t, strict=True)),
    "complex": _complex,
}
# Untrained, UKGE's scale is 1 and its offset 0: DistMult.
FORMULAS |= dict.fromkeys(("ukge-rect", "ukge-logi"), FORMULAS["distmult"])


@dataclass(frozen=True)
class World:
    """Small tables of whole numbers, test triples and known facts."""

    entity: list[Row]
    relation: list[Row]
    test: list[Triple]
    facts: list[Triple]

    def engine(self, model: str) -> AutogradEngine:
        tables = (torch.tensor(rows, dtype=torch.float32) for rows in (self.entity, self.relation))
        return make_scorer(MODELS[model](), *tables)

    def ranking(self, model: str, at_once: int = 1 << 25) -> Ranking:
        known = known_of(self.facts, len(self.entity), len(self.relation))
        return rank(self.engine(model), *columns(self.test), known, at_once)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Few numbers and repeated rows, so that ties abound; tests repeat, loop and may be facts."""
    half = draw(st.integers(1, 2))
    row = st.lists(st.integers(-2, 2), min_size=2 * half, max_size=2 * half)
    entity = draw(st.lists(row, min_size=1, max_size=7))
    entity += draw(st.lists(st.sampled_from(entity), max_size=4))
    relation = draw(st.lists(row, min_size=1, max_size=3))
    one = st.integers(0, len(entity) - 1)
    triple = st.tuples(one, st.integers(0, len(relation) - 1), one)
    test = draw(st.lists(triple, min_size=1, max_size=6))
    facts = draw(st.lists(st.one_of(triple, st.sampled_from(test)), max_size=25))
    return World(entity, relation, test, facts)


def columns(triples: list[Triple]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    head, relation, tail = torch.tensor(triples, dtype=torch.int64).reshape(-1, 3).unbind(1)
    return head, relation, tail


def known_of(facts: list[Triple], entities: int, relations: int = 1) -> TripleIndex:
    return TripleIndex(*columns(facts), entities, relations)


def brute_counts(world: World, model: str, filtered: bool) -> tuple[np.ndarray, np.ndarray]:
    """Higher and same rivals, [n, 2] each, by looking at every corruption by itself."""
    facts = set(world.facts) if filtered else set()

    def score(triple: Triple) -> int:
        h, r, t = triple
        return FORMULAS[model](world.entity[h], world.relation[r], world.entity[t])

    higher, same = [], []
    for h, r, t in world.test:
        own = score((h, r, t))
        sides = ([(h, r, e) for e in range(len(world.entity))], [(e, r, t) for e in range(len(world.entity))])
        rivals = [[c for c in side if c != (h, r, t) and c not in facts] for side in sides]
        higher.append([sum(score(c) > own for c in side) for side in rivals])
        same.append([sum(score(c) == own for c in side) for side in rivals])
    return np.array(higher), np.array(same)


@pytest.mark.parametrize("model", PLAIN)
@given(world=worlds())
@settings(max_examples=40, deadline=None)
def test_ranks_match_a_double_loop(model: str, world: World) -> None:
    ranking = world.ranking(model)
    for rivals, filtered in ((ranking.raw, False), (ranking.filtered, True)):
        higher, same = brute_counts(world, model, filtered)
        for ties, share in (("worst", 1.0), ("mean", 0.5), ("best", 0.0)):
            np.testing.assert_array_equal(rivals.ranks(ties, "per-side"), 1 + higher + share * same)
            joint = 1 + higher.sum(1) + share * same.sum(1)
            np.testing.assert_array_equal(rivals.ranks(ties, "combined"), joint[:, None])
    np.testing.assert_array_equal(ranking.raw.ranks(), ranking.raw.ranks("worst", "per-side"))


@pytest.mark.parametrize("model", PLAIN)
@given(world=worlds())
@settings(max_examples=20, deadline=None)
def test_scores_are_those_of_the_model(model: str, world: World) -> None:
    expected = [FORMULAS[model](world.entity[h], world.relation[r], world.entity[t]) for h, r, t in world.test]
    if model == "transe-l2":
        expected = [-math.sqrt(-square) for square in expected]
    np.testing.assert_allclose(world.ranking(model).score, expected, rtol=1e-6)


@given(world=worlds(), at_once=st.integers(1, 40), model=st.sampled_from(PLAIN))
@settings(max_examples=40, deadline=None)
def test_block_size_changes_no_count(world: World, at_once: int, model: str) -> None:
    whole, pieces = world.ranking(model), world.ranking(model, at_once)
    for one, other in ((whole.raw, pieces.raw), (whole.filtered, pieces.filtered)):
        np.testing.assert_array_equal(one.higher, other.higher)
        np.testing.assert_array_equal(one.equal, other.equal)


def twins(model: str, entities: int, kinds: int, dim: int = 200) -> tuple[AutogradEngine, np.ndarray]:
    """An engine whose entities have one of `kinds` random float32 rows, and which entity has which."""
    draw = torch.Generator().manual_seed(entities)
    chosen = MODELS[model]()
    rows = torch.randn(kinds, chosen.widths(dim)[0], generator=draw)
    kind = torch.randint(0, kinds, (entities,), generator=draw)
    relation = torch.randn(2, chosen.widths(dim)[1], generator=draw)
    return make_scorer(chosen, rows[kind], relation), kind.numpy()


@pytest.mark.parametrize("model", PLAIN)
@pytest.mark.parametrize("entities", [2, 37, 258, 1001])
@pytest.mark.parametrize("batch", [1, 5, 64])
def test_equal_rows_tie_exactly(model: str, entities: int, batch: int) -> None:
    """Also in the last columns of a product, which BLAS may round in another order than the rest."""
    engine, kind = twins(model, entities, kinds=3)
    draw = torch.Generator().manual_seed(batch)
    given_ids = torch.randint(0, entities, (batch,), generator=draw)
    relation = torch.randint(0, 2, (batch,), generator=draw)
    sides: tuple[Side, Side] = ("tail", "head")
    for side in sides:
        scores = engine.score_all(given_ids, relation, side).numpy()
        for one in range(3):
            equal = scores[:, kind == one]
            assert (equal == equal[:, :1]).all()
        alone = engine.score if side == "tail" else lambda a, r, b: engine.score(b, r, a)
        last = torch.full_like(given_ids, entities - 1)
        np.testing.assert_allclose(scores[:, -1], alone(given_ids, relation, last), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("model", ["distmult", "complex", "transe"])
@pytest.mark.parametrize("entities", [101, 1001])
def test_block_size_changes_no_tie_among_equal_rows(model: str, entities: int) -> None:
    """Five distinct rows at dimension 200: ranks follow from five scores in float64 and the sizes of the groups."""
    engine, kind = twins(model, entities, kinds=5)
    rng = np.random.default_rng(0)
    # The last entity stands in the column that a product treats apart.
    test = [(int(h), int(r), int(t)) for h, r, t in rng.integers(0, (entities, 2, entities), (9, 3))]
    test += [(entities - 1, 0, 0), (0, 1, entities - 1), (entities - 1, 1, entities - 1)]
    facts = [(int(h), int(r), int(t)) for h, r, t in rng.integers(0, (entities, 2, entities), (400, 3))]
    facts += [(h, r, e) for h, r, _ in test for e in range(0, entities, 7)]
    exact = make_scorer(engine.model, engine.tables["entity"].double(), engine.tables["relation"].double())
    first = [int(np.flatnonzero(kind == k)[0]) for k in range(5)]

    def brute(h: int, r: int, t: int, side: str) -> tuple[int, int, int]:
        own, target = kind[t if side == "tail" else h], t if side == "tail" else h
        score = [float(exact.score(*columns([(h, r, e) if side == "tail" else (e, r, t)]))) for e in first]
        rivals = [e for e in range(entities) if e != target]
        kept = [e for e in rivals if ((h, r, e) if side == "tail" else (e, r, t)) not in set_of_facts]
        better = {k for k in range(5) if k != own and score[k] > score[own]}
        return (
            sum(kind[e] == own for e in rivals),
            sum(kind[e] in better for e in kept),
            sum(kind[e] == own for e in kept),
        )

    set_of_facts = set(facts)
    expected = np.array([[brute(h, r, t, side) for side in ("tail", "head")] for h, r, t in test])
    for at_once in (1, 7 * entities, 1 << 40):
        ranking = rank(engine, *columns(test), known_of(facts, entities, 2), at_once)
        np.testing.assert_array_equal(ranking.raw.equal, expected[..., 0])
        np.testing.assert_array_equal(ranking.filtered.higher, expected[..., 1])
        np.testing.assert_array_equal(ranking.filtered.equal, expected[..., 2])


def test_permuted_rows_are_not_taken_for_duplicates() -> None:
    """Rows that hold the same numbers in another order only look alike."""
    rows = torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [2.0, 1.0], [3.0, 0.0]])
    engine = make_scorer(MODELS["distmult"](), rows, torch.tensor([[1.0, 10.0]]))
    assert engine.score_all(torch.tensor([0]), torch.tensor([0]), "tail").tolist() == [[41, 22, 41, 22, 3]]


@pytest.mark.parametrize("model", PLAIN)
@pytest.mark.parametrize("entities", [2, 33, 500])
def test_a_constant_model_ranks_last(model: str, entities: int) -> None:
    """The error of earlier evaluations: all scores alike must not be rank 1."""
    engine, _ = twins(model, entities, kinds=1, dim=50)
    last = entities - 1
    test = [(0, 0, last), (last, 1, 0), (0, 0, 0)]
    # Three facts beside the target for the tails of (0, 0, ?), where there are so many entities.
    facts = [(0, 0, e) for e in range(1, min(entities - 1, 4))]
    for at_once in (1, 1 << 25):
        ranking = rank(engine, *columns(test), known_of(facts, entities, 2), at_once)
        assert (ranking.raw.ranks("worst") == entities).all()
        assert (ranking.raw.ranks("best") == 1).all()
        assert (ranking.raw.ranks("mean") == (entities + 1) / 2).all()
        assert (ranking.raw.ranks("worst", "combined") == 2 * entities - 1).all()
        tails = ranking.filtered.ranks("worst")[:, 0]
        assert tails.tolist() == [entities - len(facts), entities, entities - len(facts)]


class Constant(Scorer):
    """A model that scores everything alike."""

    device = torch.device("cpu")

    def __init__(self, entities: int) -> None:
        self.entities = entities

    def score(self, head: torch.Tensor, relation: torch.Tensor, tail: torch.Tensor) -> torch.Tensor:
        return torch.full((len(head),), 0.5)

    def score_all(self, known: torch.Tensor, relation: torch.Tensor, side: Side) -> torch.Tensor:
        return torch.full((len(known), self.entities), 0.5)


@pytest.mark.parametrize("entities", [2, 100, 4999])
def test_constant_model_is_perfect_only_with_ties_ranked_best(entities: int) -> None:
    """Ranks by `score > own` alone (ties first) make a model that knows nothing a perfect one; here it stands last."""
    test = [(0, 0, 1), (1, 0, 0), (entities - 1, 0, 0)]
    ranking = rank(Constant(entities), *columns(test), known_of([], entities))
    fair, original = rank_metrics(ranking.raw.ranks()), rank_metrics(ranking.raw.ranks("best"))
    assert (ranking.raw.ranks() == entities).all()
    assert (fair.mr, fair.mrr) == (entities, pytest.approx(1 / entities))
    assert (ranking.raw.ranks("best") == 1).all()
    assert (original.mr, original.mrr, original.hits) == (1.0, 1.0, {1: 1.0, 3: 1.0, 10: 1.0})


def test_test_triples_do_not_filter_themselves() -> None:
    """A repeated test triple that is also a fact leaves itself in, and its twin in test takes nothing away."""
    world = World([[0, 0], [1, 0], [2, 0], [3, 0]], [[1, 0]], [(0, 0, 1), (0, 0, 1)], [(0, 0, 1), (0, 0, 1)])
    ranks = world.ranking("transe").filtered.ranks()
    assert ranks.tolist() == [[1, 1], [1, 1]]
    more = World(world.entity, world.relation, [(0, 0, 3)], [(0, 0, 1), (0, 0, 1), (0, 0, 2), (0, 0, 3)])
    # As tails 1 and 2 stand before 3, but are facts; 0 does too and is none. As heads all others are nearer than 0.
    assert more.ranking("transe").raw.ranks().tolist() == [[4, 4]]
    assert more.ranking("transe").filtered.ranks().tolist() == [[2, 4]]


class Recorder(Scorer):
    """Scores by a table and notes the shapes that it was asked for."""

    device = torch.device("cpu")

    def __init__(self, entities: int, bad: float | None = None) -> None:
        self.entities, self.bad = entities, bad
        self.shapes: list[tuple[int, int]] = []

    def score(self, head: torch.Tensor, relation: torch.Tensor, tail: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(head))

    def score_all(self, known: torch.Tensor, relation: torch.Tensor, side: Side) -> torch.Tensor:
        self.shapes.append((len(known), self.entities))
        scores = torch.arange(self.entities, dtype=torch.float32).repeat(len(known), 1)
        if self.bad is not None:
            scores[-1, 0] = self.bad
        return scores


@given(n=st.integers(0, 30), entities=st.integers(1, 20), at_once=st.integers(1, 500))
@settings(max_examples=40, deadline=None)
def test_memory_is_bounded(n: int, entities: int, at_once: int) -> None:
    scorer = Recorder(entities)
    test = [(i % entities, 0, (3 * i) % entities) for i in range(n)]
    ranking = rank(scorer, *columns(test), known_of([], entities), at_once)
    assert all(rows * width <= at_once or rows == 1 for rows, width in scorer.shapes)
    # Each question once, however many triples ask it, and in no more calls than the bound asks for.
    questions = [len({h for h, _, _ in test}), len({t for _, _, t in test})]
    assert sum(rows for rows, _ in scorer.shapes) == sum(questions)
    size = max(1, at_once // entities)
    assert len(scorer.shapes) == sum(math.ceil(asked / size) for asked in questions)
    expected = [[entities - t, entities - h] for h, _, t in test]
    assert ranking.filtered.ranks().tolist() == expected


@pytest.mark.parametrize(("entities", "calls"), [(1000, 2), (1 << 20, 4)])
def test_memory_is_bounded_by_default(entities: int, calls: int) -> None:
    """Two million scores at once: all three questions of a small graph, two of a large one's."""
    scorer = Recorder(entities)
    rank(scorer, *columns([(0, 0, 1), (1, 0, 2), (2, 0, 0)]), known_of([], entities))
    assert len(scorer.shapes) == calls


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    assert torch.get_num_threads() == count
    torch.set_num_threads(before)


@pytest.mark.parametrize("model", ["complex", "transe"])
def test_threads_change_no_count(model: str) -> None:
    engine, _ = twins(model, entities=101, kinds=30, dim=20)
    draw = np.random.default_rng(0)
    test = [(int(h), int(r), int(t)) for h, r, t in draw.integers(0, (101, 2, 101), (90, 3))]
    alone = rank(engine, *columns(test), known_of(test, 101, 2), max_scores=2 * 101)
    with threads(3):
        shared = rank(engine, *columns(test), known_of(test, 101, 2), max_scores=6 * 101)
    for one, other in ((alone.raw, shared.raw), (alone.filtered, shared.filtered)):
        np.testing.assert_array_equal(one.higher, other.higher)
        np.testing.assert_array_equal(one.equal, other.equal)
    np.testing.assert_array_equal(alone.score, shared.score)


def test_threads_share_the_memory_bound_and_raise_errors() -> None:
    scorer = Recorder(10)
    test = [(i, 0, i) for i in range(10)]
    with threads(3):
        rank(scorer, *columns(test), known_of([], 10), max_scores=60)
        assert {rows for rows, _ in scorer.shapes} == {2}
        with pytest.raises(FocuseError, match="not finite"):
            rank(Recorder(10, math.nan), *columns(test), known_of([], 10), max_scores=60)
        with pytest.raises(IndexError):
            rank(Recorder(9), *columns(test), known_of([], 10), max_scores=60)


def test_counts_keep_the_order_of_triples() -> None:
    """Triples are grouped by what they ask; the counts come back in their order."""
    draw = np.random.default_rng(0)
    test = [(int(h), int(r), int(t)) for h, r, t in draw.integers(0, (6, 2, 6), (60, 3))]
    rows = torch.from_numpy(draw.normal(size=(6, 4))).float()
    engine = make_scorer(MODELS["complex"](), rows, torch.from_numpy(draw.normal(size=(2, 4))).float())
    whole = rank(engine, *columns(test), known_of(test, 6, 2))
    for i, triple in enumerate(test):
        alone = rank(engine, *columns([triple]), known_of(test, 6, 2))
        assert alone.filtered.ranks().tolist() == whole.filtered.ranks()[i : i + 1].tolist()
        assert alone.raw.ranks().tolist() == whole.raw.ranks()[i : i + 1].tolist()
        np.testing.assert_allclose(alone.score, whole.score[i : i + 1], rtol=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_an_error(bad: float) -> None:
    """One bad score of one rival is enough, in whichever block it stands."""
    with pytest.raises(FocuseError, match="not finite"):
        rank(Recorder(5, bad), *columns([(1, 0, 2), (3, 0, 4)]), known_of([], 5), max_scores=1)
    with pytest.raises(FocuseError, match="not finite"):
        rank(Recorder(5, bad), *columns([(1, 0, 2), (3, 0, 4)]), known_of([], 5))


def test_no_triples_give_no_ranks() -> None:
    ranking = rank(Recorder(3), *columns([]), known_of([], 3))
    assert ranking.filtered.ranks().shape == (0, 2)
    assert ranking.raw.ranks(protocol="combined").shape == (0, 1)
    assert ranking.score.shape == (0,)


def test_unknown_tie_rule_and_protocol_are_errors() -> None:
    rivals = rank(Recorder(3), *columns([(0, 0, 1)]), known_of([], 3)).raw
    with pytest.raises(FocuseError, match=r"wurst.*did you mean worst"):
        rivals.ranks("wurst")
    with pytest.raises(FocuseError, match=r"side.*per-side, combined"):
        rivals.ranks("worst", "side")
