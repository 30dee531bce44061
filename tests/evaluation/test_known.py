"""Known facts against Python sets."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.errors import FocuseError
from focuse.evaluation.known import Known

Triple = tuple[int, int, int]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, int, list[Triple]]:
    """Numbers of entities and relations, and triples of them, repeats included."""
    entities, relations = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    triple = st.tuples(st.integers(0, entities - 1), st.integers(0, relations - 1), st.integers(0, entities - 1))
    return entities, relations, draw(st.lists(triple, max_size=25))


def known_of(entities: int, relations: int, triples: list[Triple]) -> Known:
    columns = torch.tensor(triples, dtype=torch.int64).reshape(-1, 3).unbind(1)
    return Known(*columns, entities, relations)


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
def test_others_are_every_known_answer_once(graph: tuple[int, int, list[Triple]], data: st.DataObject) -> None:
    entities, relations, triples = graph
    query = st.tuples(st.integers(0, entities - 1), st.integers(0, relations - 1))
    queries = data.draw(st.lists(query, max_size=5))
    given_ids, kinds = torch.tensor(queries, dtype=torch.int64).reshape(-1, 2).unbind(1)
    tails = {(row, t) for row, (e, r) in enumerate(queries) for h, s, t in triples if (h, s) == (e, r)}
    heads = {(row, h) for row, (e, r) in enumerate(queries) for h, s, t in triples if (t, s) == (e, r)}
    for side, expected in (("tail", tails), ("head", heads)):
        rows, others = known_of(*graph).others(given_ids, kinds, side)
        pairs = list(zip(rows.tolist(), others.tolist(), strict=True))
        assert set(pairs) == expected
        assert len(pairs) == len(expected)


def test_keys_that_do_not_fit_64_bits_are_an_error() -> None:
    none = torch.empty(0, dtype=torch.int64)
    with pytest.raises(FocuseError, match="64-bit"):
        Known(none, none, none, 2**31, 2)
    most = 2**31 - 1  # entities² · relations is just below 2⁶³
    last = torch.tensor([most - 1])
    known = Known(last, torch.tensor([1]), last, most, 2)
    assert known.contains(last, torch.tensor([1]), last).item()
    assert not known.contains(last, torch.tensor([0]), last).item()
    for side in ("head", "tail"):
        assert [part.tolist() for part in known.others(last, torch.tensor([1]), side)] == [[0], [most - 1]]
