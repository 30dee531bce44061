"""The index of known triples, compared with Python sets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scoring import make_scorer

from focuse.data import triple_index
from focuse.data.graph import Graph, from_columns, isin_sorted
from focuse.data.triple_index import TripleIndex, build_triple_index, contained_in, relevant_triple_index
from focuse.errors import FocuseError
from focuse.evaluation.ranking import rank_graph
from focuse.models.registry import make_model

Triple = tuple[int, int, int]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, int, list[Triple]]:
    """Numbers of entities and relations, and triples of them, repeats included."""
    entities, relations = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    triple = st.tuples(st.integers(0, entities - 1), st.integers(0, relations - 1), st.integers(0, entities - 1))
    return entities, relations, draw(st.lists(triple, max_size=25))


def known_of(entities: int, relations: int, triples: list[Triple]) -> TripleIndex:
    columns = torch.tensor(triples, dtype=torch.int64).reshape(-1, 3).unbind(1)
    return TripleIndex(*columns, entities, relations)


@settings(deadline=None)
@given(graphs())
def test_contains_is_membership(graph: tuple[int, int, list[Triple]]) -> None:
    entities, relations, triples = graph
    cube = torch.meshgrid(torch.arange(entities), torch.arange(relations), torch.arange(entities), indexing="ij")
    found = known_of(*graph).contains(*cube)
    assert found.shape == (entities, relations, entities)
    assert {tuple(place) for place in found.nonzero().tolist()} == set(triples)


@settings(deadline=None)
@given(graphs(), st.data())
def test_known_answers_lists_each_answer_once(graph: tuple[int, int, list[Triple]], data: st.DataObject) -> None:
    entities, relations, triples = graph
    query = st.tuples(st.integers(0, entities - 1), st.integers(0, relations - 1))
    queries = data.draw(st.lists(query, max_size=5))
    given_ids, kinds = torch.tensor(queries, dtype=torch.int64).reshape(-1, 2).unbind(1)
    tails = {(row, t) for row, (e, r) in enumerate(queries) for h, s, t in triples if (h, s) == (e, r)}
    heads = {(row, h) for row, (e, r) in enumerate(queries) for h, s, t in triples if (t, s) == (e, r)}
    for side, expected in (("tail", tails), ("head", heads)):
        rows, others = known_of(*graph).known_answers(given_ids, kinds, side)
        pairs = list(zip(rows.tolist(), others.tolist(), strict=True))
        assert set(pairs) == expected
        assert len(pairs) == len(expected)


def test_keys_that_do_not_fit_64_bits_are_an_error() -> None:
    none = torch.empty(0, dtype=torch.int64)
    with pytest.raises(FocuseError, match="64-bit"):
        TripleIndex(none, none, none, 2**31, 2)
    most = 2**31 - 1  # entities² · relations is just below 2⁶³
    last = torch.tensor([most - 1])
    known = TripleIndex(last, torch.tensor([1]), last, most, 2)
    assert known.contains(last, torch.tensor([1]), last).item()
    assert not known.contains(last, torch.tensor([0]), last).item()
    for side in ("head", "tail"):
        assert [part.tolist() for part in known.known_answers(last, torch.tensor([1]), side)] == [[0], [most - 1]]


def graph(count: int = 900) -> Graph:
    random = np.random.default_rng(2)
    names = [[f"e{id}" for id in random.integers(0, 40, count)] for _ in range(2)]
    return from_columns(names[0], [f"r{id}" for id in random.integers(0, 4, count)], names[1], random.random(count))


@pytest.mark.parametrize("candidates", [None, 15])
def test_ranks_filtered_by_relevant_triples_equal_those_filtered_by_all(
    monkeypatch: pytest.MonkeyPatch, candidates: int | None
) -> None:
    monkeypatch.setattr(triple_index, "CHUNK_EDGES", 77)
    whole = graph()
    some = whole.select(np.arange(5, 40))
    random = torch.Generator().manual_seed(0)
    engine = make_scorer(
        make_model("complex"), torch.randn(40, 8, generator=random), torch.randn(4, 8, generator=random)
    )
    few, all_ = relevant_triple_index([whole, some], some), build_triple_index([whole, some])
    assert len(few.keys["tail"]) < len(all_.keys["tail"])
    for one, other in zip(
        *(rank_graph(engine, some, known, candidates).filtered.ranks() for known in (few, all_)), strict=True
    ):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("large", [1, 10**9])
def test_contained_in_agrees_with_sets(monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    monkeypatch.setattr(triple_index, "LARGE_GRAPH", large)
    monkeypatch.setattr(triple_index, "CHUNK_EDGES", 50)
    whole = graph()
    half = whole.select(np.arange(0, 900, 2))
    assert np.array_equal(contained_in(whole, half), np.isin(whole.keys, half.keys))
    nothing = whole.select(np.empty(0, np.int64))
    assert not contained_in(whole, nothing).any()
    assert contained_in(nothing, whole).shape == (0,)


def test_isin_sorted_agrees_with_isin() -> None:
    assert isin_sorted(np.array([1, 5, 9]), np.array([0, 5])).tolist() == [False, True, False]
    assert isin_sorted(np.array([1]), np.empty(0, np.int64)).tolist() == [False]
