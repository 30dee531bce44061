"""Trivial rows against loops over train's rows, and the figures that are known of the real graphs."""

import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focuse.evaluation.baselines import Means, fit_doubting, fit_trivial
from focuse.evaluation.confidence import errors
from focuse.graph.datasets import load
from focuse.graph.graph import Graph
from focuse.graph.vocabulary import Vocabulary

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
def test_against_loops(train: list[Edge], asked: list[tuple[int, int, int]]) -> None:
    head, kind, tail = np.array(asked, np.int64).reshape(-1, 3).T
    rows = fit_trivial(graph_of(train))
    assert list(rows) == NAMES
    expected = np.array([[float(value) for value in brute(train, *one)] for one in asked]).reshape(-1, 3)
    for name, column in zip(NAMES, expected.T, strict=True):
        predicted = rows[name](head, kind, tail)
        assert predicted.dtype == np.float64
        np.testing.assert_allclose(predicted, column, atol=1e-12)


@given(train=edges, kind=relation)
def test_elsewhere_is_what_is_said_of_entities_that_train_does_not_link(train: list[Edge], kind: int) -> None:
    linked = {frozenset((h, t)) for h, _, t, _ in train}
    pairs = [(h, t) for h in range(ENTITIES) for t in range(ENTITIES) if frozenset((h, t)) not in linked]
    head, tail = np.array(pairs, np.int64).reshape(-1, 2).T
    kinds = np.full(len(pairs), kind)
    for row in fit_trivial(graph_of(train)).values():
        assert row(head, kinds, tail).tolist() == row.elsewhere(kinds).tolist()


def test_the_order_of_looking_up() -> None:
    """The edge back by the same relation first, then any edge of the pair, then the relation."""
    train = graph_of([(1, 0, 0, 8), (1, 0, 0, 4), (0, 1, 1, 2), (2, 2, 3, 6), (0, 2, 2, 0)])
    copy = fit_trivial(train)["inverse copy"]
    asked = np.array([(0, 0, 1), (1, 0, 0), (1, 1, 0), (0, 2, 1), (0, 2, 3), (0, 0, 3)]).T
    pair = (8 + 4 + 2) / 3 / 8
    assert copy(*asked).tolist() == pytest.approx([0.75, pair, 0.25, pair, 3 / 8, 0.75])


def test_numbers_near_the_end_of_the_scale_do_not_overflow() -> None:
    edge = graph_of([(0, 0, 1, 8)])
    train = Graph(
        *(np.repeat(c, 4) for c in (edge.head, edge.relation, edge.tail)), np.full(4, 1.5e308), *vocabularies()
    )
    for row in fit_trivial(train).values():
        assert row(edge.tail, edge.relation, edge.head).tolist() == [1.5e308]


def vocabularies() -> tuple[Vocabulary, Vocabulary]:
    graph = graph_of([(0, 0, 1, 8)])
    return graph.entities, graph.relations


def test_no_keys_no_means() -> None:
    none = Means.of(np.empty(0, np.int64), np.empty(0))
    assert none.fill(np.array([3, 4]), np.array([0.5, 0.25])).tolist() == [0.5, 0.25]


def test_torch_is_not_loaded() -> None:
    code = (
        "import sys, focuse.evaluation.baselines, focuse.evaluation.confidence, focuse.evaluation.weighing; "
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
def test_known_errors_on_the_real_graphs(name: str, known: list[tuple[float, float]]) -> None:
    data = load(name)
    test = data.test.align(data.train).graph
    for row, (mse, mae) in zip(fit_trivial(data.train).values(), known, strict=True):
        found = errors(row(test.head, test.relation, test.tail), test.weight)
        assert found.mse == pytest.approx(mse, abs=0.51e-4)
        assert found.mae == pytest.approx(mae, abs=0.51e-4 if mae in (0.0544, 0.0220) else 0.51e-3)


def test_the_doubting_row_knows_what_train_links() -> None:
    train = graph_of([(0, 0, 1, 4), (1, 1, 0, 6), (2, 0, 0, 2)])  # eighths
    (row,) = fit_doubting(train).values()
    asked = np.array([(1, 0, 0), (0, 1, 1), (1, 0, 2), (0, 0, 2)])
    # The edge back by the relation; that by the other relation; nothing between 1 and 2; the edge back again.
    assert row(*asked.T).tolist() == [0.5, 0.75, 0.0, 0.25]
    assert row.elsewhere(np.array([0, 1])).tolist() == [0.0, 0.0]
