"""Columns made one weight: each normalised by itself on train, then by importance."""

from __future__ import annotations

import numpy as np
import pytest

from focuse.errors import FocuseError
from focuse.graph import read
from focuse.graph.columns import NEUTRAL
from focuse.graph.merging import Merger, fit_merger

TRAIN = read(
    [
        ("a", "r", "b", 10, 0.2, 5),
        ("b", "r", "c", 20, None, 5),
        ("a", "s", "c", None, 0.9, 8),
        ("c", "s", "b", 7, 0.1, 8),
        ("c", "s", "a", 3, 0.5, 8),
    ]
)
IMPORTANCE = {"w1": 2, "w2": 1, "w3": 1}


def test_by_hand() -> None:
    merged = fit_merger(TRAIN, importance=IMPORTANCE)(TRAIN)
    # w1: r 10 to 20, s 3 to 7; w2: r 0.2 alone gets 1, s 0.1 to 0.9; w3 has one number a relation, so over all 5 to 8
    shares = [[0, 1, 0], [1, None, 0], [None, 1, 1], [1, 0, 1], [0, 0.5, 1]]
    expected = []
    for row in shares:
        seen = [(weight, share) for weight, share in zip((2, 1, 1), row, strict=True) if share is not None]
        expected.append(sum(w * s for w, s in seen) / sum(w for w, _ in seen))
    np.testing.assert_allclose(merged.weight, expected)


def test_where_lower_is_better_the_small_ones_are_strong() -> None:
    merger = fit_merger(TRAIN.directed(["w1"]), importance=IMPORTANCE)
    plain, _ = fit_merger(TRAIN, importance=IMPORTANCE).shares(TRAIN)
    turned, present = merger.shares(TRAIN)
    np.testing.assert_allclose(turned[present[:, 0], 0], 1 - plain[present[:, 0], 0])
    np.testing.assert_array_equal(turned[:, 1:], plain[:, 1:])


def test_what_was_never_seen_is_clipped_and_names_may_stand_anywhere() -> None:
    merger = fit_merger(TRAIN, importance=IMPORTANCE)
    other = read([("c", "s", "b", 99, -5)], columns=[1, 2, 3, 5, 4]).align(TRAIN).graph
    assert other.columns is not None
    assert other.columns.names == ("w2", "w1")
    shares, present = merger.shares(other)
    assert present.tolist() == [[True, True, False]]
    assert shares[0, :2].tolist() == [1.0, 0.0]


def test_only_what_counts_for_nothing_is_neutral() -> None:
    merger = fit_merger(TRAIN, importance={"w1": 1})
    assert merger(TRAIN).weight[2] == NEUTRAL


@pytest.mark.parametrize("lower", [[], ["w1", "w3"]])
@pytest.mark.parametrize("normalize", [None, "global", "quantile"])
def test_stored_and_back(normalize: str | None, lower: list[str]) -> None:
    train = TRAIN.directed(lower)
    merger = fit_merger(train, normalize)
    again = Merger.stored(merger.to_dict(), merger.arrays())
    np.testing.assert_array_equal(again(train).weight, merger(train).weight)
    assert (again.names, again.lower, str(again)) == (merger.names, merger.lower, str(merger))


def test_it_says_what_counts() -> None:
    assert "all count the same" in str(fit_merger(TRAIN))
    assert str(fit_merger(TRAIN, importance=IMPORTANCE)) == "weight columns by importance: w1 0.50, w2 0.25, w3 0.25"


@pytest.mark.parametrize(
    ("importance", "says"),
    [
        ({"w4": 1}, "no weight column 'w4'"),
        ({"w1": 0}, "no column has any"),
        ({"w1": -1}, "at least 0"),
        ({"w1": float("nan")}, "at least 0"),
    ],
)
def test_refused_importance(importance: dict[str, float], says: str) -> None:
    with pytest.raises(FocuseError, match=says):
        fit_merger(TRAIN, importance=importance)


def test_other_graphs_need_the_same_columns() -> None:
    merger = fit_merger(TRAIN, importance=IMPORTANCE)
    with pytest.raises(FocuseError, match="one weight an edge, train has w1, w2, w3"):
        merger(read([("a", "r", "b", 1)]).align(TRAIN).graph)
    with pytest.raises(FocuseError, match="there is nothing to merge"):
        fit_merger(read([("a", "r", "b", 1)]))
    plain = read([("a", "r", "b")]).align(TRAIN).graph
    assert merger(plain).weight.tolist() == [1.0]  # no numbers at all, as ever
