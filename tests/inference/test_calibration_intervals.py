"""Conformal intervals: quantiles, and coverage on unseen rows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from focuse.errors import FocuseError
from focuse.inference.calibration import (
    MIN_QUANTILE_ROWS,
    MIN_SCALE,
    Conformal,
    check_coverage,
    conformal_quantile,
    measure_errors,
)


def within(off: np.ndarray, relation: np.ndarray, relations: int) -> Conformal:
    """Rows whose truth lies within their relation's range."""
    return Conformal(off, relation, relations, np.full(len(off), 0.5))


@pytest.mark.parametrize(("n", "coverage", "place"), [(9, 0.9, 9), (10, 0.9, 10), (19, 0.9, 18), (99, 0.5, 50)])
def test_conformal_quantile_has_the_finite_sample_rank(n: int, coverage: float, place: int) -> None:
    off = np.random.default_rng(0).permutation(np.arange(1.0, n + 1))
    assert conformal_quantile(off, coverage) == place


def test_too_few_rows_give_the_whole_range() -> None:
    assert conformal_quantile(np.arange(8.0), 0.9) == math.inf
    assert conformal_quantile(np.empty(0), 0.5) == math.inf
    low, high = within(np.arange(8.0), np.zeros(8, np.int64), 1).interval(*[np.array([0.4])] * 2, np.array([0]), 0.9)
    assert (low[0], high[0]) == (0, 1)


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
def test_coverage_holds_for_wrong_spreads(coverage: float) -> None:
    """Spreads that are wrong by half, weights in clumps at both ends: neither under nor far over."""
    random = np.random.default_rng(1)
    middle, width = random.random(40_000), random.choice([0.02, 0.3], 40_000)
    truth = np.clip(middle + random.normal(0, width), 0, 1).round(2)
    kind = random.integers(0, 3, 40_000)
    spread = width * (1 + 0.5 * kind)
    fit, test = slice(0, 5000), slice(5000, None)
    made = measure_errors(truth[fit], middle[fit], spread[fit], kind[fit], 3)
    low, high = made.interval(middle[test], spread[test], kind[test], coverage)
    inside = (low <= truth[test]) & (truth[test] <= high)
    assert inside.mean() == pytest.approx(coverage, abs=0.015)
    for relation in range(3):
        assert inside[kind[test] == relation].mean() == pytest.approx(coverage, abs=0.03)


def test_few_rows_of_a_relation_share_the_global_quantile() -> None:
    off = np.concatenate([np.full(MIN_QUANTILE_ROWS, 1.0), np.full(MIN_QUANTILE_ROWS - 1, 5.0)])
    kind = np.repeat([0, 1], [MIN_QUANTILE_ROWS, MIN_QUANTILE_ROWS - 1])
    half, own, cut = within(off, kind, 3).quantiles(0.9)
    assert own.tolist() == [True, False, False]
    assert half.tolist() == [1.0, 5.0, 5.0]
    assert cut.all()


def test_coverage_too_high_for_a_relation_uses_the_global_quantile() -> None:
    kind = np.repeat([0, 1], [MIN_QUANTILE_ROWS, 200])
    half, own, _ = within(np.arange(230.0), kind, 2).quantiles(0.99)
    assert own.tolist() == [False, True]
    assert half[0] == conformal_quantile(np.arange(230.0), 0.99) == 228


def test_intervals_match_hand_computed_ones() -> None:
    made = within(np.full(40, 2.0), np.zeros(40, np.int64), 1)
    low, high = made.interval(np.array([0.5, 0.9]), np.array([0.1, 0.1]), np.array([0, 0]), 0.9)
    np.testing.assert_allclose(low, [0.5 - 2 * (0.1 + MIN_SCALE), 0.9 - 2 * (0.1 + MIN_SCALE)])
    np.testing.assert_allclose(high, [0.5 + 2 * (0.1 + MIN_SCALE), 1.0])


@pytest.mark.parametrize("coverage", [0, 1, 1.5, -0.1, True, "0.9", None])
def test_coverage_outside_the_unit_interval_is_refused(coverage: object) -> None:
    with pytest.raises(FocuseError, match="give a fraction above 0 and below 1"):
        check_coverage(coverage)  # type: ignore[arg-type]


def test_weights_beyond_the_range_are_covered() -> None:
    random = np.random.default_rng(4)
    truth, middle = random.normal(0.5, 0.6, 4000), np.full(4000, 0.5)
    kind = np.zeros(4000, np.int64)
    made = measure_errors(truth[:2000], middle[:2000], np.zeros(2000), kind[:2000], 1)
    assert np.mean((made.truth < 0) | (made.truth > 1)) > 0.3
    low, high = made.interval(middle[2000:], np.zeros(2000), kind[2000:], 0.9)
    assert np.mean((low <= truth[2000:]) & (truth[2000:] <= high)) == pytest.approx(0.9, abs=0.03)
    inside = measure_errors(np.clip(truth, 0, 1), middle, np.zeros(4000), kind, 1)
    assert max(bound.max() for bound in inside.interval(middle, np.zeros(4000), kind, 0.99)) <= 1


def test_few_rows_give_intervals_over_all_observed_weights() -> None:
    made = measure_errors(np.array([-0.5, 0.2, 1.7]), np.full(3, 0.5), np.zeros(3), np.zeros(3, np.int64), 1)
    low, high = made.interval(np.array([0.5]), np.zeros(1), np.zeros(1, np.int64), 0.9)
    assert (low.tolist(), high.tolist()) == ([-0.5], [1.7])


@pytest.mark.parametrize("share", [0.02, 0.06])
def test_intervals_widen_for_the_rows_missed_beyond_the_range(share: float) -> None:
    """Intervals end with the range, so they miss what lies beyond: the others are as much wider."""
    random = np.random.default_rng(5)
    middle = random.random(60_000)
    truth = np.clip(middle + random.normal(0, 0.1, 60_000), 0, 1)
    truth = np.where(random.random(60_000) < share, 1.3, truth)
    kind, spread, fit, test = np.zeros(60_000, np.int64), np.zeros(60_000), slice(0, 5000), slice(5000, None)
    made = measure_errors(truth[fit], middle[fit], spread[fit], kind[fit], 1)
    low, high = made.interval(middle[test], spread[test], kind[test], 0.9)
    assert 0 <= low.min() <= high.max() <= 1
    assert np.mean((low <= truth[test]) & (truth[test] <= high)) == pytest.approx(0.9, abs=0.015)
    assert made.quantiles(0.9).cut.all()
    assert not made.quantiles(0.99).cut.any()  # so much cannot be promised within it


def test_single_row_beyond_the_range_does_not_extend_intervals() -> None:
    truth, middle, kind = np.full(12, 0.5), np.full(12, 0.4), np.zeros(12, np.int64)
    for many, ends in ((0, True), (1, True), (2, False)):
        truth[:many] = 1.2
        made = measure_errors(truth, middle, np.zeros(12), kind, 1)
        assert made.quantiles(0.9).cut.tolist() == [ends]
        low, high = made.interval(middle, np.zeros(12), kind, 0.9)
        assert (high <= 1).all() == ends
        assert ((low <= 0.5) & (high >= 0.5)).all()


def test_few_rows_give_each_relation_its_observed_range() -> None:
    truth, kind = np.array([0.5, 1.7, -0.2]), np.array([0, 1, 1])
    made = measure_errors(truth, np.full(3, 0.5), np.zeros(3), kind, 3)
    low, high = made.interval(np.full(3, 0.5), np.zeros(3), np.arange(3), 0.9)
    assert (low.tolist(), high.tolist()) == ([0, -0.2, 0], [1, 1.7, 1])
