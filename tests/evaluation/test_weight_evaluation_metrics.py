"""Metrics of predicted weights, each compared with an independent computation."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focuse.data.graph import from_columns
from focuse.errors import FocuseError
from focuse.evaluation.metrics import spearman
from focuse.evaluation.weight_evaluation import (
    THRESHOLDS,
    IntervalTable,
    ProbabilityTable,
    classify,
    classify_at,
    classify_fitted,
    coverage_by_relation,
    errors,
    interval_coverage,
    probability_metrics,
    reliability,
)

# Few distinct numbers, so that ties and the edges of bins abound.
numbers = st.one_of(st.integers(0, 10).map(lambda tenth: tenth / 10), st.floats(-0.5, 1.5))
pairs = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30)


def columns(rows: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.array(rows, np.float64).reshape(-1, 2).T
    return first, second


def close(one: float, other: float) -> bool:
    return (math.isnan(one) and math.isnan(other)) or one == pytest.approx(other, abs=1e-9)


@given(rows=pairs)
def test_errors_are_means(rows: list[tuple[float, float]]) -> None:
    found = errors(*columns(rows))
    assert found.n == len(rows)
    assert close(found.mse, sum((p - w) ** 2 for p, w in rows) / len(rows))
    assert close(found.mae, sum(abs(p - w) for p, w in rows) / len(rows))


def test_errors_without_rows_or_beyond_the_scale() -> None:
    assert errors(np.empty(0), np.empty(0)).to_dict() == {"n": 0, "mse": None, "mae": None}
    huge = errors(np.array([1e300]), np.array([-1e300]))
    assert (huge.mse, huge.mae) == (math.inf, 2e300)
    assert huge.to_dict() == {"n": 1, "mse": None, "mae": 2e300}


def pearson_of_average_ranks(rows: list[tuple[float, float]]) -> float:
    def ranks(values: list[float]) -> list[float]:
        return [sum(b < a for b in values) + (sum(b == a for b in values) + 1) / 2 for a in values]

    first, second = (ranks([row[i] for row in rows]) for i in range(2))
    middle = (len(rows) + 1) / 2
    both = sum((a - middle) * (b - middle) for a, b in zip(first, second, strict=True))
    squares = [sum((a - middle) ** 2 for a in values) for values in (first, second)]
    return both / math.sqrt(squares[0] * squares[1]) if squares[0] and squares[1] else math.nan


@given(rows=pairs)
def test_spearman_is_the_correlation_of_average_ranks(rows: list[tuple[float, float]]) -> None:
    assert close(spearman(*columns(rows)), pearson_of_average_ranks(rows))


def test_spearman_depends_on_the_order_only() -> None:
    truth = np.array([0.1, 0.5, 0.2, 0.9])
    assert spearman(np.exp(9 * truth), truth) == 1
    assert spearman(-(truth**3), truth) == -1
    assert math.isnan(spearman(np.full(4, 0.3), truth))
    # By hand: ranks 1.5 1.5 3 against 1 2 3; covariance 1.5, variances 1.5 and 2.
    assert spearman(np.array([5.0, 5, 7]), np.array([1.0, 2, 3])) == pytest.approx(1.5 / math.sqrt(1.5 * 2))


@given(rows=pairs, bins=st.integers(1, 13))
def test_reliability_counts_each_prediction_once(rows: list[tuple[float, float]], bins: int) -> None:
    found = reliability(*columns(rows), bins)
    gap = 0.0
    assert len(found.bins) == bins
    for i, one in enumerate(found.bins):
        low = -math.inf if i == 0 else i / bins
        high = math.inf if i == bins - 1 else (i + 1) / bins
        inside = [(p, w) for p, w in rows if low <= p < high]
        assert (one.low, one.high, one.count) == (i / bins, (i + 1) / bins, len(inside))
        if inside:
            means = [sum(row[k] for row in inside) / len(inside) for k in range(2)]
            assert close(one.predicted, means[0])
            assert close(one.truth, means[1])
            gap += len(inside) / len(rows) * abs(means[0] - means[1])
        else:
            assert one.to_dict()["predicted"] is one.to_dict()["truth"] is None
    assert close(found.ece, gap)


def test_a_constant_mean_is_calibrated_without_correlation() -> None:
    truth = np.array([0.1, 0.2, 0.9, 1.0])
    assert reliability(np.full(4, truth.mean()), truth).ece == pytest.approx(0)
    assert errors(np.full(4, truth.mean()), truth).mse > 0.1
    assert reliability(np.empty(0), np.empty(0)).to_dict()["ece"] is None
    with pytest.raises(FocuseError, match="at least one bin"):
        reliability(truth, truth, 0)


@given(rows=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=20))
def test_classification_metrics_follow_from_counts(rows: list[tuple[bool, bool]]) -> None:
    called, strong = np.array(rows, bool).reshape(-1, 2).T
    found = classify(called, strong)
    true = sum(c and s for c, s in rows)
    calls, facts = sum(c for c, _ in rows), sum(s for _, s in rows)
    assert (found.n, found.strong) == (len(rows), facts)
    assert close(found.accuracy, sum(c == s for c, s in rows) / len(rows) if rows else math.nan)
    assert close(found.precision, true / calls if calls else math.nan)
    assert close(found.recall, true / facts if facts else math.nan)
    if true:
        precision, recall = true / calls, true / facts
        assert close(found.f1, 2 * precision * recall / (precision + recall))
    else:
        assert close(found.f1, 0.0 if calls or facts else math.nan)


def test_at_the_threshold_both_sides_are_strict() -> None:
    found = classify_at(np.array([0.85, 0.86, 0.9, 0.1]), np.array([0.9, 0.85, 0.99, 0.0]), 0.85)
    assert (found.strong, found.accuracy, found.precision, found.recall) == (2, 0.5, 0.5, 0.5)
    assert found.to_dict()["rule"] == "predicted > 0.85"
    assert THRESHOLDS == {"cn15k": 0.85, "nl27k": 0.85, "ppi5k": 0.70}


def logistic_border(predicted: np.ndarray, strong: np.ndarray) -> float:
    """Where Newton's method on ½a² + Σ log(1 + exp(−y(ax + b))) puts the border −b/a; scikit-learn's default, C = 1."""
    middle, spread = predicted.mean(), predicted.std()
    x = np.stack([(predicted - middle) / spread, np.ones(len(predicted))], axis=1)
    theta, ridge = np.zeros(2), np.diag([1.0, 0.0])
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ theta))
        gradient = x.T @ (p - strong) + ridge @ theta
        theta -= np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + ridge, gradient)
    return float(middle - spread * theta[1] / theta[0])


@pytest.mark.parametrize("seed", range(5))
def test_the_fitted_line_is_that_of_a_logistic_regression(seed: int) -> None:
    """A model whose numbers are in order but far too small: useless at the threshold, good with a fitted line."""
    random = np.random.default_rng(seed)
    truth = random.random(2000)
    predicted = 0.3 * truth + random.normal(0, 0.02, 2000)
    border = logistic_border(predicted[:1000], truth[:1000] > 0.7)
    found = classify_fitted(predicted[1000:], truth[1000:], 0.7, predicted[:1000], truth[:1000])
    # lbfgs stops a little short of Newton: rows within 1e-3 of the border may fall on either side.
    near = int((np.abs(predicted[1000:] - border) < 1e-3).sum())
    by_hand = classify(predicted[1000:] > border, truth[1000:] > 0.7)
    assert abs(found.accuracy - by_hand.accuracy) <= near / 1000
    assert found.strong == by_hand.strong
    assert found.f1 > 0.7
    assert classify_at(predicted[1000:], truth[1000:], 0.7).f1 == 0


def test_the_fitted_line_does_not_depend_on_the_scale() -> None:
    random = np.random.default_rng(1)
    truth = random.random(80)
    predicted = truth + random.normal(0, 0.1, 80)
    found = [
        classify_fitted(a * predicted[40:] + b, truth[40:], 0.6, a * predicted[:40] + b, truth[:40])
        for a, b in ((1, 0), (0.001, 0), (50, -3))
    ]
    assert found[0] == found[1] == found[2]
    assert found[0].f1 > 0.7


def test_a_constant_prediction_is_classified_as_the_majority() -> None:
    half, others = np.full(3, 0.5), np.full(5, 0.5)
    for truth, called in (([0.9, 0.9, 0.9, 0.1, 0.1], 1), ([0.9, 0.1, 0.1, 0.1, 0.1], 0)):
        found = classify_fitted(half, np.array([0.9, 0.8, 0.1]), 0.7, others, np.array(truth))
        assert found.recall == called


def test_a_fit_on_one_class_predicts_that_class() -> None:
    predicted, truth = np.array([0.2, 0.8, 0.9]), np.array([0.1, 0.9, 0.3])
    others = np.array([0.5, 0.6])
    assert classify_fitted(predicted, truth, 0.85, others, np.array([0.9, 1.0])).recall == 1
    assert classify_fitted(predicted, truth, 0.85, others, np.array([0.1, 0.2])).f1 == 0
    assert classify_fitted(np.empty(0), np.empty(0), 0.85, others, np.array([0.1, 0.9])).n == 0
    with pytest.raises(FocuseError, match="no validation triples"):
        classify_fitted(predicted, truth, 0.85, np.empty(0), np.empty(0))


# ---- Coverage and width by hand ----


LOW, HIGH = np.array([0.0, 0.2, 0.5, 0.5]), np.array([0.4, 0.6, 0.6, 1.0])
TRUTH, KIND = np.array([0.4, 0.7, 0.5, 0.2]), np.array([2, 0, 2, 2])


def test_interval_coverage_by_hand() -> None:
    found = interval_coverage(LOW, HIGH, TRUTH)
    assert (found.n, found.coverage) == (4, 0.5)
    np.testing.assert_allclose([found.width, found.median_width], [1.4 / 4, 0.4])
    assert math.isnan(interval_coverage(*[np.empty(0)] * 3).coverage)


def test_coverage_by_relation_lists_the_most_frequent_first() -> None:
    found = coverage_by_relation(LOW, HIGH, TRUTH, KIND, ["a", "b", "c"], np.array([False, False, True]))
    assert [(row.relation, row.calibrated, row.coverage.n, row.coverage.coverage) for row in found] == [
        ("c", True, 3, 2 / 3),
        ("a", False, 1, 0.0),
    ]


def test_interval_table_prints_and_converts_to_json() -> None:
    kinds = coverage_by_relation(LOW, HIGH, TRUTH, KIND, ["a", "b", "c"], np.array([False, False, True]))
    table = IntervalTable(0.9, 40, {"ours": interval_coverage(LOW, HIGH, TRUTH)}, kinds)
    told = json.loads(json.dumps(table.to_dict(), allow_nan=False))
    assert told["rows"]["ours"]["coverage"] == 0.5
    assert [row["relation"] for row in told["relations"]] == ["c", "a"]
    shown = str(table)
    assert "90% intervals (4 test triples, 40 conformal rows)" in shown
    assert "1 of 2 have intervals of their own" in shown


# ---- Brier score by hand ----


PROBABILITY, FACT = np.array([0.9, 0.6, 0.2, 0.1]), np.array([1.0, 0.0, 1.0, 0.0])


def table() -> ProbabilityTable:
    rows = {"before": probability_metrics(np.full(4, 0.75), FACT), "after": probability_metrics(PROBABILITY, FACT)}
    triples = from_columns(list("abcd"), ["r"] * 4, list("bcda"), FACT)
    return ProbabilityTable(rows, 2, 2, 0.5, triples, PROBABILITY, FACT, ("a note",))


def test_brier_by_hand() -> None:
    assert probability_metrics(PROBABILITY, FACT).brier == pytest.approx((0.01 + 0.36 + 0.64 + 0.01) / 4)
    assert np.isnan(probability_metrics(np.empty(0), np.empty(0)).brier)


def test_ece_by_hand() -> None:
    assert table().rows["before"].ece == pytest.approx(0.25)
    assert table().rows["after"].ece == pytest.approx((0.1 + 0.6 + 0.8 + 0.1) / 4)


def test_probability_table_prints_and_converts_to_json() -> None:
    told = json.loads(json.dumps(table().to_dict(), allow_nan=True))
    assert told["rows"]["before"]["brier"] == pytest.approx(0.3125)
    assert told["base_rate"] == 0.5
    shown = str(table())
    assert "2 true triples and 2 negatives (base rate 0.5)" in shown
    assert shown.endswith("a note")
    assert table().to_dicts() == [
        {"method": "before", "brier": pytest.approx(0.3125), "ece": pytest.approx(0.25)},
        {"method": "after", "brier": pytest.approx(0.255), "ece": pytest.approx(0.4)},
    ]
    assert "<td>after</td>" in table()._repr_html_()
