"""Distances and counts of competitors: C++, torch and plain loops agree."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scoring import make_scorer
from torch import Tensor

from focuse.data.triple_index import expand_ranges
from focuse.engines import scorer as native
from focuse.engines.native import library
from focuse.engines.scorer import Targets, count_competitors, distances
from focuse.models import Side
from focuse.models.registry import make_model
from focuse.models.translational import TransE

PLAIN = ("complex", "distmult", "transe", "transe-l2", "ukge-logi", "ukge-rect")

built = pytest.mark.skipif(library() is None, reason="needs the C++ loops: python setup.py build_ext --inplace")
SHAPES = [(1, 1, 1), (2, 15, 3), (5, 17, 200), (7, 48, 16), (13, 1000, 3), (40, 33, 7), (0, 5, 2), (3, 5, 0)]
Row = list[int]
# What was built for lesser processors runs on this one, too.
LEVELS = ("default", "avx2", "avx512")
CAPABILITY = torch.backends.cpu.get_cpu_capability().lower()
USABLE = LEVELS[: LEVELS.index(CAPABILITY) + 1] if CAPABILITY in LEVELS else LEVELS[:1]


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """So many threads, however little there is to do."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    monkeypatch.setattr(native, "MIN_PARALLEL_WORK", 0)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture(params=USABLE)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The loops as each kind of processor would run them."""
    found = [
        path
        for path in (Path(native.__file__).parent / "native").glob(f"{request.param}.*")
        if path.suffix in (".so", ".pyd")
    ]
    if not found:
        pytest.skip("not built")
    monkeypatch.setattr(native, "library", lambda: ctypes.CDLL(str(found[0])))
    return str(request.param)


def table(rows: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


# ---- distances -------------------------------------------------------------------------------------------------------


@built
@pytest.mark.parametrize("form", ["l1", "l2"])
@pytest.mark.parametrize(("queries", "rows", "width"), SHAPES)
def test_distances_match_float64(form: str, queries: int, rows: int, width: int, threads: int, level: str) -> None:
    asked, others = table(queries, width), table(rows, width, 1)
    apart = np.abs(asked.double().numpy()[:, None] - others.double().numpy())
    expected = apart.sum(-1) if form == "l1" else np.sqrt((apart**2).sum(-1))
    found = distances(asked, others, form)
    assert found is not None
    assert found.shape == (queries, rows)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)
    negative = distances(asked, others, form, sign=-1.0)
    assert negative is not None
    assert torch.equal(negative, -found)


@built
@pytest.mark.parametrize("form", ["l1", "l2"])
@pytest.mark.parametrize("rows", [2, 17, 258, 1001])
def test_equal_rows_have_equal_distances(form: str, rows: int, threads: int, level: str) -> None:
    """To the last bit, wherever they stand; and so are equal queries."""
    kind = torch.randint(0, 3, (rows,), generator=torch.Generator().manual_seed(rows))
    asked = table(11, 200)[torch.arange(22) % 11]
    found = distances(asked, table(3, 200, 1)[kind], form)
    assert found is not None
    assert torch.equal(found[:11], found[11:])
    for one in range(3):
        equal = found[:, kind == one]
        assert bool((equal == equal[:, :1]).all())


@built
@pytest.mark.parametrize("form", ["l1", "l2"])
def test_small_distances_are_computed_without_cancellation(form: str) -> None:
    """By differences, not by |q|² − 2qr + |r|², which would leave nothing but rounding."""
    row = table(1, 50) + 100
    near = row.clone()
    near[0, 7] += 2.0**-10
    found = distances(row, torch.cat([row, near]), form)
    assert found is not None
    assert found.tolist() == [[0.0, 2.0**-10]]


@built
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_distances_to_non_finite_rows_are_not_finite(bad: float) -> None:
    others = table(20, 9)
    others[13, 4] = bad
    for form in ("l1", "l2"):
        found = distances(table(7, 9, 1), others, form)
        assert found is not None
        assert (~torch.isfinite(found)).nonzero()[:, 1].unique().tolist() == [13]


@built
def test_strided_rows_work_and_wrong_shapes_are_errors() -> None:
    wide = table(8, 12)
    found = distances(wide[::2, ::3], wide[1::2, 1:5], "l1")
    assert found is not None
    expected = distances(wide[::2, ::3].contiguous(), wide[1::2, 1:5].contiguous(), "l1")
    assert expected is not None
    assert torch.equal(found, expected)
    with pytest.raises(ValueError, match=r"queries \(8, 12\) and rows \(8, 11\) do not fit"):
        distances(wide, wide[:, 1:], "l1")


def test_other_dtypes_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert distances(table(2, 3).double(), table(2, 3).double(), "l1") is None
    monkeypatch.setattr(native, "library", lambda: None)
    assert distances(table(2, 3), table(2, 3), "l1") is None


class Halved(TransE):
    """A model that measures in its own way; the engine must not do it another."""

    name = "halved"

    fused = None

    def similarity_of(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        return super().similarity_of(query, candidates, side) / 2


@pytest.mark.parametrize("side", ["head", "tail"])
def test_scorer_matches_the_model(side: str) -> None:
    entity, relation = table(30, 10), table(2, 10, 1)
    ids, kinds = torch.tensor([3, 29, 3]), torch.tensor([0, 1, 1])
    for model in (*(make_model(name) for name in PLAIN), Halved()):
        engine = make_scorer(model, entity, relation)
        query = model.query(entity[ids], relation[kinds], side)  # type: ignore[arg-type]
        expected = engine.model.score_pool(query, relation[kinds], entity, side)
        found = engine.score_all(ids, kinds, side)  # type: ignore[arg-type]
        torch.testing.assert_close(found, expected)


# ---- counting --------------------------------------------------------------------------------------------------------


@st.composite
def asked(draw: st.DrawFn) -> tuple[Tensor, ...]:
    """Scores with many ties, queries with several targets or none, facts that may hold the target."""
    queries, entities = draw(st.integers(1, 9)), draw(st.sampled_from([1, 2, 15, 17, 40]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = random.integers(-2, 3, (queries, entities)).astype(np.float32)
    times = random.integers(0, 4, queries)
    first = np.concatenate([[0], times.cumsum()])
    target = random.integers(0, entities, first[-1])
    offset = draw(st.integers(0, 5)) * entities  # of other queries, before these
    facts = np.unique(random.integers(0, offset + (queries + 2) * entities, draw(st.integers(0, 3 * queries))))
    start, stop = (np.searchsorted(facts, offset + (np.arange(queries) + step) * entities) for step in (0, 1))
    return tuple(map(torch.from_numpy, (scores, first, target, start, stop, facts)))


def _compared(row: list[float], t: int, others: list[int]) -> tuple[list[bool], list[bool]]:
    return [row[e] > row[t] for e in others], [row[e] == row[t] for e in others]


def by_hand(scores: Tensor, first: Tensor, target: Tensor, start: Tensor, stop: Tensor, facts: Tensor) -> list[Row]:
    counts = []
    for q, row in enumerate(scores.tolist()):
        known = {key % len(row) for key in facts[start[q] : stop[q]].tolist()}
        for t in target[first[q] : first[q + 1]].tolist():
            others = [e for e in range(len(row)) if e != t]
            new = [e for e in others if e not in known]
            counts.append([sum(better) for some in (others, new) for better in _compared(row, t, some)])
    return counts


@pytest.mark.parametrize("how", ["native", "torch", "double"])
@given(asked=asked())
def test_competitors_match_a_loop(how: str, asked: tuple[Tensor, ...]) -> None:
    scores, *rest = asked
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "MIN_PARALLEL_WORK", 0)
        if how == "torch":
            patch.setattr(native, "library", lambda: None)
        scores = scores.double() if how == "double" else scores
        assert count_competitors(scores, Targets(*rest)).tolist() == by_hand(*asked)


@built
@pytest.mark.parametrize("entities", [1, 15, 17, 1000])
def test_targets_of_one_query_are_shared_by_threads(entities: int, threads: int, level: str) -> None:
    """One query has nearly all of them."""
    scores = table(5, entities).round(decimals=1)
    first = torch.tensor([0, 1, 30, 31, 31, 33])
    target = torch.arange(33) * 7 % entities
    facts = torch.arange(0, 5 * entities, 3)
    start, stop = (torch.searchsorted(facts, (torch.arange(5) + step) * entities) for step in (0, 1))
    question = (scores, first, target, start, stop, facts)
    assert count_competitors(scores, Targets(*question[1:])).tolist() == by_hand(*question)


@pytest.mark.parametrize("how", ["native", "torch"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", [0, 18, 36])
def test_queries_with_non_finite_scores_are_marked(
    how: str, bad: float, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "torch":
        monkeypatch.setattr(native, "library", lambda: None)
    scores = table(3, 37)
    scores[1, place] = bad
    none = torch.zeros(3, dtype=torch.int64)
    found = count_competitors(
        scores, Targets(torch.tensor([0, 1, 3, 4]), torch.tensor([5, 6, 7, 8]), none, none, none[:0])
    )
    assert (found < 0).tolist() == [[False] * 4, [True] * 4, [True] * 4, [False] * 4]


def test_largest_float32_scores_are_counted() -> None:
    most = torch.finfo(torch.float32).max
    scores = torch.tensor([[most, -most, 0.0, 1e-45]])
    none = torch.tensor([0])
    found = count_competitors(scores, Targets(torch.tensor([0, 4]), torch.arange(4), none, none, none[:0]))
    assert found[:, 0].tolist() == [0, 3, 2, 1]


def test_expand_ranges_lists_the_numbers_of_each_range() -> None:
    which, number = expand_ranges(torch.tensor([3, 9, 0, 5]), torch.tensor([5, 9, 1, 8]))
    assert which.tolist() == [0, 0, 2, 3, 3, 3]
    assert number.tolist() == [3, 4, 0, 5, 6, 7]
