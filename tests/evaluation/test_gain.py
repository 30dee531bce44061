"""nDCG against a loop over queries, tails and entities."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from focuse.errors import FocuseError
from focuse.evaluation.baselines import fit_trivial
from focuse.evaluation.gain import TrivialScorer, ndcg, queries_of
from focuse.graph.graph import Graph
from focuse.graph.vocabulary import Vocabulary
from focuse.models import Side

ENTITIES, RELATIONS = 6, 2
Edge = tuple[int, int, int, int]


def graph_of(edges: list[Edge], entities: int = ENTITIES, scale: float = 1 / 8) -> Graph:
    head, relation, tail, weight = np.array(edges, np.int32).reshape(-1, 4).T
    names = [Vocabulary([f"{kind}{i}" for i in range(n)]) for kind, n in (("e", entities), ("r", RELATIONS))]
    return Graph(head, relation, tail, weight * scale, *names)


entity, relation = st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1)
edges = st.lists(st.tuples(entity, relation, entity, st.integers(0, 8)), max_size=25)
tables = st.lists(st.integers(-2, 2), min_size=72, max_size=72).map(lambda flat: np.array(flat).reshape(6, 2, 6))


class Table:
    """Scores by a table [head, relation, tail]; remembers the shapes it was asked for."""

    device = torch.device("cpu")

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = torch.from_numpy(scores.astype(np.float32))
        self.asked: list[int] = []

    def score(self, head: torch.Tensor, relation: torch.Tensor, tail: torch.Tensor) -> torch.Tensor:
        return self.scores[head, relation, tail]

    def score_all(self, known: torch.Tensor, relation: torch.Tensor, side: Side) -> torch.Tensor:
        assert side == "tail"
        self.asked.append(len(known))
        return self.scores[known, relation]


def brute(scores: np.ndarray, rows: list[Edge], ties: str) -> tuple[int, float, float]:
    queries: dict[tuple[int, int], dict[int, float]] = {}
    for h, r, t, eighths in rows:
        tails = queries.setdefault((h, r), {})
        tails[t] = max(tails.get(t, 0.0), eighths / 8)
    found: dict[str, list[float]] = {"linear": [], "exponential": []}
    for (h, r), tails in queries.items():
        if not any(tails.values()):
            continue
        for kind, gain in (("linear", lambda w: w), ("exponential", lambda w: 2**w - 1)):
            reached = 0.0
            for t, w in tails.items():
                others = [scores[h, r, e] for e in range(scores.shape[2]) if e != t]
                higher = sum(s > scores[h, r, t] for s in others)
                same = sum(s == scores[h, r, t] for s in others)
                rank = 1 + higher + {"worst": same, "mean": same / 2, "best": 0}[ties]
                reached += gain(w) / math.log2(rank + 1)
            best = sorted(tails.values(), reverse=True)
            found[kind].append(reached / sum(gain(w) / math.log2(i + 2) for i, w in enumerate(best)))
    means = [float(np.mean(values)) if values else math.nan for values in found.values()]
    return len(found["linear"]), means[0], means[1]


@given(scores=tables, rows=edges, ties=st.sampled_from(["worst", "mean", "best"]), at_once=st.integers(1, 60))
def test_against_loops(scores: np.ndarray, rows: list[Edge], ties: str, at_once: int) -> None:
    scorer = Table(scores)
    found = ndcg(scorer, graph_of(rows), ties, at_once)
    queries, linear, exponential = brute(scores, rows, ties)
    assert found.queries == queries
    assert found.linear == pytest.approx(linear, nan_ok=True)
    assert found.exponential == pytest.approx(exponential, nan_ok=True)
    # Each query is asked once, and no more scores are held than allowed.
    assert sum(scorer.asked) == len({(h, r) for h, r, *_ in rows})
    assert all(n * ENTITIES <= at_once or n == 1 for n in scorer.asked)


def test_the_right_order_gains_everything() -> None:
    rows = [(0, 0, 3, 8), (0, 0, 1, 4), (0, 0, 5, 2)]
    scores = np.zeros((6, 2, 6))
    scores[0, 0, [3, 1, 5]] = 3, 2, 1
    found = ndcg(Table(scores), graph_of(rows))
    assert (found.linear, found.exponential) == (1, 1)
    scores[0, 0, [3, 1, 5]] = 1, 2, 3  # the heaviest last
    upside_down = ndcg(Table(scores), graph_of(rows))
    # By hand: 1/log2(4) + .5/log2(3) + .25 over 1 + .5/log2(3) + .25/log2(4).
    assert upside_down.linear == pytest.approx((0.5 + 0.5 / math.log2(3) + 0.25) / (1 + 0.5 / math.log2(3) + 0.125))
    assert upside_down.exponential < upside_down.linear < 1


@pytest.mark.parametrize("entities", [6, 500])
def test_a_constant_model_gains_nothing_unless_ties_are_ranked_first(entities: int) -> None:
    """The error of the original: all scores alike is rank 1 for every tail, which beats even the perfect order."""
    rows = [(0, 0, t, 8) for t in (1, 2, 4)]
    constant = Table(np.zeros((1, 1, entities)))
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    worst = ndcg(constant, graph_of(rows, entities))
    assert worst.linear == pytest.approx(3 / math.log2(entities + 1) / ideal)
    original = ndcg(constant, graph_of(rows, entities), ties="best")
    assert original.linear == original.exponential == pytest.approx(3 / ideal)
    assert original.linear > 1.4
    assert original.to_dict() == {
        "queries": 1,
        "linear": original.linear,
        "exponential": original.exponential,
        "ties": "best",
    }


def test_other_units_are_brought_to_one() -> None:
    rows = [(0, 0, 3, 8), (0, 0, 1, 4), (1, 1, 2, 0), (1, 1, 4, 6)]
    scores = np.random.default_rng(0).normal(size=(6, 2, 6))
    usual, large = (ndcg(Table(scores), graph_of(rows, scale=scale)) for scale in (1 / 8, 1e6))
    assert large == usual


def test_nothing_asked_nothing_gained() -> None:
    for rows in ([], [(0, 0, 1, 0), (0, 1, 2, 0)]):
        found = ndcg(Table(np.zeros((6, 2, 6))), graph_of(rows))
        assert found.to_dict() == {"queries": 0, "linear": None, "exponential": None, "ties": "worst"}


def test_what_is_refused() -> None:
    with pytest.raises(FocuseError, match="did you mean worst"):
        ndcg(Table(np.zeros((6, 2, 6))), graph_of([]), "wurst")
    with pytest.raises(FocuseError, match="not finite"):
        ndcg(Table(np.full((6, 2, 6), np.nan)), graph_of([(0, 0, 1, 8)]))


@given(test=edges, others=st.lists(edges, max_size=2))
def test_queries_hold_all_known_tails_of_the_test(test: list[Edge], others: list[list[Edge]]) -> None:
    found = queries_of(graph_of(test), [graph_of(rows) for rows in others])
    asked = {(h, r) for h, r, *_ in test}
    expected: dict[tuple[int, int, int], float] = {}
    for h, r, t, eighths in [*test, *(row for rows in others for row in rows)]:
        if (h, r) in asked:
            expected[h, r, t] = max(expected.get((h, r, t), 0), eighths / 8)
    triples = zip(found.head.tolist(), found.relation.tolist(), found.tail.tolist(), strict=True)
    assert dict(zip(triples, found.weight.tolist(), strict=True)) == expected
    assert len(found) == len(expected)


@given(train=edges.filter(len), absent=st.sampled_from([None, 0.0, -3.0]))
def test_a_trivial_scorer_says_what_the_predictor_says(train: list[Edge], absent: float | None) -> None:
    graph = graph_of(train)
    linked = {frozenset((h, t)) for h, _, t, _ in train}
    ids = np.array([(a, r, b) for a in range(ENTITIES) for r in range(RELATIONS) for b in range(ENTITIES)]).T
    for trivial in fit_trivial(graph).values():
        scorer = TrivialScorer(trivial, graph, absent)
        expected = trivial(*ids)
        if absent is not None:
            far = [frozenset((int(a), int(b))) not in linked for a, _, b in ids.T]
            expected = np.where(far, absent, expected)
        assert scorer.score(*torch.from_numpy(ids)).tolist() == expected.tolist()
        cube = expected.reshape(ENTITIES, RELATIONS, ENTITIES)
        given_ids, kinds = torch.arange(ENTITIES), torch.ones(ENTITIES, dtype=torch.int64)
        np.testing.assert_array_equal(scorer.score_all(given_ids, kinds, "tail").numpy(), cube[:, 1, :])
        np.testing.assert_array_equal(scorer.score_all(given_ids, kinds, "head").numpy(), cube[:, 1, :].T)


@given(edges, tables)
def test_where_lower_is_better_the_small_weights_gain_most(rows: list[Edge], scores: np.ndarray) -> None:
    turned = graph_of([(h, r, t, 8 - eighths) for h, r, t, eighths in rows])
    found = ndcg(Table(scores), turned.directed(True))
    plain = ndcg(Table(scores), graph_of(rows))
    assert found.queries == plain.queries
    np.testing.assert_allclose([found.linear, found.exponential], [plain.linear, plain.exponential])
