"""Facts that bear on some triples serve their ranks as all facts do."""

import numpy as np
import pytest
import torch

from focuse.engines import ReferenceEngine
from focuse.evaluation import asked
from focuse.evaluation.asked import facts_about, is_in, stand_in
from focuse.evaluation.evaluate import known_facts, rank_graph
from focuse.graph.graph import Graph, from_columns
from focuse.models import make_model


def graph(count: int = 900) -> Graph:
    random = np.random.default_rng(2)
    names = [[f"e{id}" for id in random.integers(0, 40, count)] for _ in range(2)]
    return from_columns(names[0], [f"r{id}" for id in random.integers(0, 4, count)], names[1], random.random(count))


@pytest.mark.parametrize("candidates", [None, 15])
def test_ranks_are_those_filtered_by_all(monkeypatch: pytest.MonkeyPatch, candidates: int | None) -> None:
    monkeypatch.setattr(asked, "CHUNK", 77)
    whole = graph()
    some = whole.select(np.arange(5, 40))
    random = torch.Generator().manual_seed(0)
    engine = ReferenceEngine(
        make_model("complex"), torch.randn(40, 8, generator=random), torch.randn(4, 8, generator=random)
    )
    few, all_ = facts_about([whole, some], some), known_facts([whole, some])
    assert len(few.by_side["tail"]) < len(all_.by_side["tail"])
    for one, other in zip(
        *(rank_graph(engine, some, known, candidates).filtered.ranks() for known in (few, all_)), strict=True
    ):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("large", [1, 10**9])
def test_who_stands_in_another_graph(monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    monkeypatch.setattr(asked, "LARGE", large)
    monkeypatch.setattr(asked, "CHUNK", 50)
    whole = graph()
    half = whole.select(np.arange(0, 900, 2))
    assert np.array_equal(stand_in(whole, half), np.isin(whole.keys, half.keys))
    nothing = whole.select(np.empty(0, np.int64))
    assert not stand_in(whole, nothing).any()
    assert stand_in(nothing, whole).shape == (0,)


def test_values_among_ascending_ones() -> None:
    assert is_in(np.array([1, 5, 9]), np.array([0, 5])).tolist() == [False, True, False]
    assert is_in(np.array([1]), np.empty(0, np.int64)).tolist() == [False]
