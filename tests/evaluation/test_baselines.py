"""Baselines, compared with loops over the rows of train, and their known errors on the real graphs."""

import os
import subprocess
import sys
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import focuse
from focuse.data.datasets import load
from focuse.data.graph import AlignedGraph, Graph, Vocabulary, from_columns
from focuse.data.splits import split
from focuse.evaluation.baselines import (
    FREQUENCY,
    LINKED,
    FrequencyScorer,
    KeyedWeights,
    LinkedScorer,
    WeightBaselineScorer,
    fit_weight_baselines,
    fit_zero_baseline,
)
from focuse.evaluation.evaluate import evaluate_baselines
from focuse.evaluation.weight_evaluation import errors

REAL = os.environ.get("FOCUSE_DATA", "")
NAMES = ["global mean", "relation mean", "inverse copy"]
Edge = tuple[int, int, int, int]
ENTITIES, RELATIONS = 4, 3


def graph_of(edges: list[Edge]) -> Graph:
    """Edges with weights in eighths, over 4 entities and 3 relations."""
    head, relation, tail, eighths = np.array(edges, np.int32).reshape(-1, 4).T
    entities, relations = ([f"{kind}{i}" for i in range(n)] for kind, n in (("e", ENTITIES), ("r", RELATIONS)))
    return Graph(head, relation, tail, eighths / 8, Vocabulary(entities), Vocabulary(relations))


entity = st.integers(0, ENTITIES - 1)
relation = st.integers(0, RELATIONS - 1)
edges = st.lists(st.tuples(entity, relation, entity, st.integers(-8, 8)), min_size=1, max_size=25)


def brute(train: list[Edge], head: int, kind: int, tail: int) -> list[Fraction]:
    def mean(rows: list[Edge]) -> Fraction | None:
        return Fraction(sum(w for *_, w in rows), 8 * len(rows)) if rows else None

    overall = mean(train)
    of_relation = mean([row for row in train if row[1] == kind])
    back = mean([row for row in train if row[:3] == (tail, kind, head)])
    pair = mean([row for row in train if {row[0], row[2]} == {head, tail}])
    assert overall is not None
    second = overall if of_relation is None else of_relation
    return [overall, second, next(value for value in (back, pair, second) if value is not None)]


@given(train=edges, asked=st.lists(st.tuples(entity, relation, entity), max_size=10))
def test_weight_baselines_match_loops_over_train(train: list[Edge], asked: list[tuple[int, int, int]]) -> None:
    head, kind, tail = np.array(asked, np.int64).reshape(-1, 3).T
    rows = fit_weight_baselines(graph_of(train))
    assert list(rows) == NAMES
    expected = np.array([[float(value) for value in brute(train, *one)] for one in asked]).reshape(-1, 3)
    for name, column in zip(NAMES, expected.T, strict=True):
        predicted = rows[name](head, kind, tail)
        assert predicted.dtype == np.float64
        np.testing.assert_allclose(predicted, column, atol=1e-12)


@given(train=edges, kind=relation)
def test_entities_that_train_does_not_link_are_predicted_by_relation(train: list[Edge], kind: int) -> None:
    linked = {frozenset((h, t)) for h, _, t, _ in train}
    pairs = [(h, t) for h in range(ENTITIES) for t in range(ENTITIES) if frozenset((h, t)) not in linked]
    head, tail = np.array(pairs, np.int64).reshape(-1, 2).T
    kinds = np.full(len(pairs), kind)
    for row in fit_weight_baselines(graph_of(train)).values():
        assert row(head, kinds, tail).tolist() == row.by_relation[kinds].tolist()


def test_inverse_copy_looks_up_the_inverse_then_the_pair_then_the_relation() -> None:
    """The edge back by the same relation first, then any edge of the pair, then the relation."""
    train = graph_of([(1, 0, 0, 8), (1, 0, 0, 4), (0, 1, 1, 2), (2, 2, 3, 6), (0, 2, 2, 0)])
    copy = fit_weight_baselines(train)["inverse copy"]
    asked = np.array([(0, 0, 1), (1, 0, 0), (1, 1, 0), (0, 2, 1), (0, 2, 3), (0, 0, 3)]).T
    pair = (8 + 4 + 2) / 3 / 8
    assert copy(*asked).tolist() == pytest.approx([0.75, pair, 0.25, pair, 3 / 8, 0.75])


def test_means_of_huge_weights_do_not_overflow() -> None:
    edge = graph_of([(0, 0, 1, 8)])
    train = Graph(
        *(np.repeat(c, 4) for c in (edge.head, edge.relation, edge.tail)), np.full(4, 1.5e308), *vocabularies()
    )
    for row in fit_weight_baselines(train).values():
        assert row(edge.tail, edge.relation, edge.head).tolist() == [1.5e308]


def vocabularies() -> tuple[Vocabulary, Vocabulary]:
    graph = graph_of([(0, 0, 1, 8)])
    return graph.entities, graph.relations


def test_means_without_keys_return_the_default() -> None:
    none = KeyedWeights(np.empty(0, np.int64), np.empty(0))
    assert none.lookup("mean", np.array([3, 4]), np.array([0.5, 0.25])).tolist() == [0.5, 0.25]


def test_weight_baselines_and_metrics_do_not_load_torch() -> None:
    code = (
        "import sys, focuse.evaluation.baselines, focuse.evaluation.weight_evaluation; "
        "print('torch' in sys.modules, 'sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False False\n"


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="FOCUSE_DATA names no folder with the data sets")
@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("cn15k", [(0.0545, 0.190), (0.0413, 0.169), (0.0501, 0.174)]),
        ("nl27k", [(0.0564, 0.215), (0.0492, 0.192), (0.0155, 0.0544)]),
        ("ppi5k", [(0.0448, 0.168), (0.0365, 0.146), (0.0042, 0.0220)]),
        ("onet-importance", [(0.0598, 0.193), (0.0474, 0.182), (0.0474, 0.182)]),
    ],
)
def test_baselines_on_the_real_graphs_have_their_known_errors(name: str, known: list[tuple[float, float]]) -> None:
    data = load(name)
    test = data.test.align(data.train).graph
    for row, (mse, mae) in zip(fit_weight_baselines(data.train).values(), known, strict=True):
        found = errors(row(test.head, test.relation, test.tail), test.weight)
        assert found.mse == pytest.approx(mse, abs=0.51e-4)
        assert found.mae == pytest.approx(mae, abs=0.51e-4 if mae in (0.0544, 0.0220) else 0.51e-3)


def test_zero_baseline_predicts_zero_for_unlinked_entities() -> None:
    train = graph_of([(0, 0, 1, 4), (1, 1, 0, 6), (2, 0, 0, 2)])  # eighths
    (row,) = fit_zero_baseline(train).values()
    asked = np.array([(1, 0, 0), (0, 1, 1), (1, 0, 2), (0, 0, 2)])
    # The edge back by the relation; that by the other relation; nothing between 1 and 2; the edge back again.
    assert row(*asked.T).tolist() == [0.5, 0.75, 0.0, 0.25]
    assert row.by_relation.tolist() == [0.0] * RELATIONS


# ---- Rankings without a model, each against a count by hand ----


def positives_of(graph: focuse.Graph) -> list[tuple[int, int, int]]:
    return list(zip(graph.head.tolist(), graph.relation.tolist(), graph.tail.tolist(), strict=True))


def test_frequency_counts_the_side_of_the_relation(small: focuse.Graph) -> None:
    facts, size = positives_of(small), len(small.entities)
    degree = Counter(h for h, _, _ in facts) + Counter(t for _, _, t in facts)
    scorer = FrequencyScorer(small)
    given, relation = torch.arange(size), torch.arange(size) % len(small.relations)
    for side, place in (("tail", 2), ("head", 0)):
        found = scorer.score_all(given, relation, side).numpy()  # type: ignore[arg-type]
        count = Counter((fact[1], fact[place]) for fact in facts)
        for row, kind in enumerate(relation.tolist()):
            expected = [count[kind, e] + degree[e] / (max(degree.values()) + 1) for e in range(size)]
            assert np.allclose(found[row], expected)


def test_linked_scorer_ranks_inverse_edges_then_any_edge_then_frequency(small: focuse.Graph) -> None:
    facts = set(positives_of(small))
    pairs = {(h, t) for h, _, t in facts} | {(t, h) for h, _, t in facts}
    scorer = LinkedScorer(small)
    size = len(small.entities)
    given, relation = torch.arange(size), torch.arange(size) % len(small.relations)
    for side in ("tail", "head"):
        found = scorer.score_all(given, relation, side)  # type: ignore[arg-type]
        for row, kind in enumerate(relation.tolist()):
            for entity in range(size):
                back = (entity, kind, row) if side == "tail" else (row, kind, entity)
                level = ((row, entity) in pairs) + (back in facts)
                assert level <= float(found[row, entity]) < level + 1
    head, tail = given, given.flip(0)
    both = torch.stack([
        scorer.score_all(head, relation, "tail").gather(1, tail[:, None])[:, 0],
        scorer.score_all(tail, relation, "head").gather(1, head[:, None])[:, 0],
    ])  # fmt: skip
    assert torch.allclose(scorer.score(head, relation, tail).floor(), both.mean(0).floor())
    assert torch.allclose(scorer.score(head, relation, tail), both.mean(0), atol=1e-6)


@given(train=edges)
def test_weight_baseline_scorer_scores_what_the_baseline_predicts(train: list[Edge]) -> None:
    graph = graph_of(train)
    ids = np.array([(a, r, b) for a in range(ENTITIES) for r in range(RELATIONS) for b in range(ENTITIES)]).T
    for baseline in {**fit_weight_baselines(graph), **fit_zero_baseline(graph)}.values():
        scorer = WeightBaselineScorer(baseline, graph)
        expected = baseline(*ids)
        assert scorer.score(*torch.from_numpy(ids)).tolist() == expected.tolist()
        cube = expected.reshape(ENTITIES, RELATIONS, ENTITIES)
        given_ids, kinds = torch.arange(ENTITIES), torch.ones(ENTITIES, dtype=torch.int64)
        np.testing.assert_array_equal(scorer.score_all(given_ids, kinds, "tail").numpy(), cube[:, 1, :])
        np.testing.assert_array_equal(scorer.score_all(given_ids, kinds, "head").numpy(), cube[:, 1, :].T)


def test_baseline_ranks_of_a_small_graph_match_hand_computed_ones() -> None:
    # b stands at the tail of r three times, c once; all questions of test ask for tails and heads by r.
    train = from_columns(["a", "d", "e", "a"], ["r"] * 4, ["b", "b", "b", "c"], [1.0, 0.5, 0.2, 0.1])
    test = from_columns(["d", "e"], ["r", "r"], ["c", "c"], [0.9, 0.1]).align(train)
    nothing = train.select(np.empty(0, np.int64))
    found = evaluate_baselines(train, nothing, test, [train])
    assert list(found) == [FREQUENCY, LINKED]
    # b is known for both heads, so c is the first tail; a is known to have c, so d and e are next but for each other.
    assert found[FREQUENCY].ranks[:, 0].tolist() == [1.0, 1.0]
    assert found[FREQUENCY].ranks[:, 1].tolist() == [1.0, 1.0]
    assert found[FREQUENCY].notes == ()


def test_linked_scorer_beats_frequency_on_a_symmetric_graph() -> None:
    rows = [(f"e{i}", "r", f"e{(i * 7 + 3) % 50}", 0.5) for i in range(50)]
    both = focuse.read([(t, r, h, w) for h, r, t, w in rows] + rows, undirected=False)
    parts = split(both, valid_fraction=0.0, test_fraction=0.2, seed=1)
    nothing = parts.train.select(np.empty(0, np.int64))
    found = evaluate_baselines(parts.train, nothing, AlignedGraph(parts.test), [parts.train])
    assert found[LINKED].all.mrr > 2 * found[FREQUENCY].all.mrr
