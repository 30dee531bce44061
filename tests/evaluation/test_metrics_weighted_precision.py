"""Weighted precision, compared with lists that are written out and sorted."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from focuse.data.graph import AlignedGraph, Graph, Vocabulary
from focuse.data.triple_index import build_triple_index
from focuse.engines.base import Scorer
from focuse.evaluation.evaluate import evaluate
from focuse.evaluation.metrics import LIST_LENGTHS, WeightedPrecision
from focuse.models import Side

ENTITIES, RELATIONS = 6, 2
Edge = tuple[int, int, int]
Weights = dict[Edge, int]
edge = st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1))
some = st.dictionaries(edge, st.integers(0, 4), max_size=25)
tables = st.lists(st.integers(-2, 2), min_size=72, max_size=72).map(lambda flat: np.array(flat).reshape(6, 2, 6))


def graph_of(weights: Weights) -> Graph:
    head, relation, tail = np.array(list(weights), np.int32).reshape(-1, 3).T
    names = [Vocabulary([f"{kind}{i}" for i in range(n)]) for kind, n in (("e", ENTITIES), ("r", RELATIONS))]
    return Graph(head, relation, tail, np.array(list(weights.values()), np.float64) / 4, *names)


class Table(Scorer):
    """Scores by a table [head, relation, tail]."""

    device = torch.device("cpu")

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = torch.from_numpy(scores.astype(np.float32))

    def score(self, head: torch.Tensor, relation: torch.Tensor, tail: torch.Tensor) -> torch.Tensor:
        return self.scores[head, relation, tail]

    def score_all(self, known: torch.Tensor, relation: torch.Tensor, side: Side) -> torch.Tensor:
        return self.scores[known, relation] if side == "tail" else self.scores[:, relation, known].T


def suggested(scores: np.ndarray, train: Weights, valid: Weights, test: Weights) -> WeightedPrecision:
    first, second, third = graph_of(train), graph_of(valid), graph_of(test)
    known = build_triple_index([first, second, third])
    result = evaluate(Table(scores), AlignedGraph(third), first, known, valid=second).suggestions
    assert result is not None
    return result


def brute(scores: np.ndarray, left_out: set[Edge], test: Weights) -> dict[int, list[float]]:
    """n -> weight / n, of the possible, precision, mean weight found."""
    lists = []
    for side, given_place in (("tail", 0), ("head", 2)):
        for given_entity, r in {(triple[given_place], triple[1]) for triple in test if triple not in left_out}:
            answers = []
            for e in range(ENTITIES):
                triple = (given_entity, r, e) if side == "tail" else (e, r, given_entity)
                if triple not in left_out:
                    # Worst among equals: what is no fact comes first, then the lightest.
                    answers.append((-scores[triple], test.get(triple, -1)))
            lists.append([weight for _, weight in sorted(answers)])
    told = {}
    for n in LIST_LENGTHS:
        by_weight, possible, precision, hits = [], [], [], []
        for answers in lists:
            facts = [weight / 4 for weight in answers[:n] if weight >= 0]
            most = sum(sorted((weight / 4 for weight in answers if weight >= 0), reverse=True)[:n])
            by_weight.append(sum(facts) / n)
            precision.append(len(facts) / n)
            possible += [sum(facts) / most] if most else []
            hits += facts
        told[n] = [float(np.mean(v)) if v else math.nan for v in (by_weight, possible, precision, hits)]
    return told


@given(scores=tables, train=some, valid=some, test=some.filter(len))
def test_weighted_precision_matches_sorted_lists(
    scores: np.ndarray, train: Weights, valid: Weights, test: Weights
) -> None:
    train = train or {(0, 0, 0): 1}
    left_out = set(train) | set(valid)
    found, expected = suggested(scores, train, valid, test), brute(scores, left_out, test)
    new = [triple for triple in test if triple not in left_out]
    assert found.queries == len({t[:2] for t in new}) + len({t[1:] for t in new})
    for one in found.first:
        told = [one.weight, one.possible, one.precision, one.mean_weight]
        assert told == pytest.approx(expected[one.n], nan_ok=True)


TEST: Weights = {(0, 0, 1): 4, (0, 0, 2): 2, (0, 0, 3): 1, (4, 1, 1): 3, (4, 1, 5): 1}
TRAIN: Weights = {(5, 0, 5): 1}


def table_of(weights: Weights, sign: float) -> np.ndarray:
    scores = np.zeros((ENTITIES, RELATIONS, ENTITIES))
    for triple, weight in weights.items():
        scores[triple] = sign * weight
    return scores


def test_ideal_order_finds_all_possible_weight() -> None:
    for one in suggested(table_of(TEST, 1), TRAIN, {}, TEST).first:
        assert one.possible == pytest.approx(1)
        assert one.weight > 0


@pytest.mark.parametrize("sign", [0, -1])
def test_constant_and_reversed_scores_find_nothing_first(sign: float) -> None:
    nothing = suggested(table_of(TEST, sign), TRAIN, {}, TEST).first[0]
    assert (nothing.weight, nothing.possible, nothing.precision) == (0, 0, 0)
    assert math.isnan(nothing.mean_weight)
    assert nothing.to_dict()["mean_weight"] is None


def test_of_equal_scores_the_lowest_weight_comes_first() -> None:
    scores = table_of(dict.fromkeys(TEST, 1), 1)
    one = suggested(scores, TRAIN, {}, TEST).first[0]
    # Tails of (0, 0, ?) and (4, 1, ?) are tied: .25 of 1 and .25 of .75 are found; each of the five heads stands alone.
    assert one.precision == 1
    assert one.possible == pytest.approx((0.25 / 1 + 0.25 / 0.75 + 5) / 7)


def test_repeated_triples_count_once_with_their_highest_weight() -> None:
    once = graph_of(TEST)
    twice = graph_of(TEST).select(np.r_[0:5, 0:5])
    lighter = Graph(
        *(twice.head, twice.relation, twice.tail), np.r_[once.weight, once.weight / 2], once.entities, once.relations
    )
    told = []
    for test in (once, lighter):
        known = build_triple_index([graph_of(TRAIN), test])
        found = evaluate(Table(table_of(TEST, 1)), AlignedGraph(test), graph_of(TRAIN), known)
        told.append((found.order, found.suggestions))
    assert told[0] == told[1]


NUMBERS = ("weight", "possible", "precision", "mean_weight")


def test_known_triples_are_left_out_of_suggestions() -> None:
    found = suggested(table_of(TEST, 1), TEST, {}, TEST)
    assert found.to_dict() == {
        "queries": 0,
        **{f"first@{n}": {"n": n, **dict.fromkeys(NUMBERS)} for n in LIST_LENGTHS},
    }
    assert "nan" not in str(found)


def test_weighted_precision_prints_a_table() -> None:
    found = suggested(table_of(TEST, 1), TRAIN, {}, TEST)
    lines = str(found).splitlines()
    assert "weighted precision@n  normalized" in lines[0]
    assert [line.split()[:3] for line in lines[1:-1]] == [["n", "=", str(n)] for n in LIST_LENGTHS]
    assert len({len(line) for line in lines[:-1]}) == 1
    assert lines[-1] == "(7 queries)"
    assert f"{found.first[1].weight:.3f}" in lines[2]
