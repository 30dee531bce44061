"""nDCG against a loop over queries, tails and entities."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from focuse.data.graph import Graph, Vocabulary
from focuse.engines.base import Scorer
from focuse.errors import FocuseError
from focuse.evaluation.evaluate import ndcg, ndcg_queries
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


class Table(Scorer):
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
def test_ndcg_matches_loops_and_bounds_memory(scores: np.ndarray, rows: list[Edge], ties: str, at_once: int) -> None:
    scorer = Table(scores)
    found = ndcg(scorer, graph_of(rows), ties, at_once)
    queries, linear, exponential = brute(scores, rows, ties)
    assert found.queries == queries
    assert found.linear == pytest.approx(linear, nan_ok=True)
    assert found.exponential == pytest.approx(exponential, nan_ok=True)
    # Each query is asked once, and no more scores are held than allowed.
    assert sum(scorer.asked) == len({(h, r) for h, r, *_ in rows})
    assert all(n * ENTITIES <= at_once or n == 1 for n in scorer.asked)


def test_ideal_order_has_ndcg_1() -> None:
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
def test_constant_scores_have_low_ndcg_unless_ties_are_ranked_best(entities: int) -> None:
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


def test_other_units_are_scaled_to_unit_weights() -> None:
    rows = [(0, 0, 3, 8), (0, 0, 1, 4), (1, 0, 2, 0), (1, 0, 4, 6)]
    scores = np.random.default_rng(0).normal(size=(6, 2, 6))
    usual, large = (ndcg(Table(scores), graph_of(rows, scale=scale)) for scale in (1 / 8, 1e6))
    assert large == usual


def test_the_unit_of_a_relation_does_not_change_ndcg() -> None:
    rows = [(0, 0, 3, 8), (0, 0, 1, 4), (0, 0, 5, 6), (1, 1, 2, 0), (1, 1, 4, 6)]
    graph, scores = graph_of(rows, scale=1.0), np.random.default_rng(0).normal(size=(6, 2, 6))
    large = replace(graph, weight=np.where(graph.relation == 1, 1000.0, 1.0) * graph.weight)
    assert ndcg(Table(scores), large) == ndcg(Table(scores), graph)
    assert ndcg(Table(scores), large, rule="global") != ndcg(Table(scores), graph, rule="global")


def test_no_queries_give_nan() -> None:
    for rows in ([], [(0, 0, 1, 0), (0, 1, 2, 0)]):
        found = ndcg(Table(np.zeros((6, 2, 6))), graph_of(rows))
        assert found.to_dict() == {"queries": 0, "linear": None, "exponential": None, "ties": "worst"}


def test_unknown_tie_rule_and_non_finite_scores_are_errors() -> None:
    with pytest.raises(FocuseError, match="did you mean worst"):
        ndcg(Table(np.zeros((6, 2, 6))), graph_of([]), "wurst")
    with pytest.raises(FocuseError, match="not finite"):
        ndcg(Table(np.full((6, 2, 6), np.nan)), graph_of([(0, 0, 1, 8)]))


@given(test=edges, others=st.lists(edges, max_size=2))
def test_ndcg_queries_have_all_known_tails_of_test(test: list[Edge], others: list[list[Edge]]) -> None:
    found = ndcg_queries(graph_of(test), [graph_of(rows) for rows in others])
    asked = {(h, r) for h, r, *_ in test}
    expected: dict[tuple[int, int, int], float] = {}
    for h, r, t, eighths in [*test, *(row for rows in others for row in rows)]:
        if (h, r) in asked:
            expected[h, r, t] = max(expected.get((h, r, t), 0), eighths / 8)
    triples = zip(found.head.tolist(), found.relation.tolist(), found.tail.tolist(), strict=True)
    assert dict(zip(triples, found.weight.tolist(), strict=True)) == expected
    assert len(found) == len(expected)


@given(edges, tables)
def test_smallest_weights_gain_most_where_lower_is_better(rows: list[Edge], scores: np.ndarray) -> None:
    turned = graph_of([(h, r, t, 8 - eighths) for h, r, t, eighths in rows])
    found = ndcg(Table(scores), turned.with_lower_is_better(True))
    plain = ndcg(Table(scores), graph_of(rows))
    assert found.queries == plain.queries
    np.testing.assert_allclose([found.linear, found.exponential], [plain.linear, plain.exponential])
