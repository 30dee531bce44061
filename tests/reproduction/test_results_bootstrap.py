"""Bootstrap intervals, compared with a slow loop and with known truth."""

from __future__ import annotations

import numpy as np
import pytest

from focuse.errors import FocuseError
from reproduction import results as module
from reproduction.results import Interval, bootstrap, resampled


def slow(values, top, bottom, resamples, seed):
    """Resample after resample, triple after triple; triples of neither part are drawn as one."""
    rng, n = np.random.default_rng(seed), len(values)
    inside = [i for i in range(n) if top[i] > 0 or bottom[i] > 0]
    chances = [1 / n] * len(inside) + [max(0.0, 1 - len(inside) / n)]
    found = []
    for _ in range(resamples):
        counts = rng.multinomial(n, chances)
        means = []
        for share in (top, bottom):
            total = sum(float(counts[j]) * share[i] for j, i in enumerate(inside))
            reached = sum(float(counts[j]) * share[i] * values[i] for j, i in enumerate(inside))
            means.append(reached / total if total else float("nan"))
        found.append([*means, means[0] - means[1]])
    return np.array(found).T


def parts(n, seed=0):
    random = np.random.default_rng(seed)
    top = random.choice([0, 0, 0, 0.25, 1], n)
    bottom = np.where(top > 0, 0, random.choice([0, 0, 0.6, 1], n))
    return random.random((3, n)), top, bottom


@pytest.mark.parametrize("n", [3, 40, 150])
def test_intervals_agree_with_a_slow_loop(n):
    values, top, bottom = parts(n, seed=n)
    found = resampled(values, top, bottom, resamples=60, seed=4)
    for row in range(3):
        np.testing.assert_allclose(found[row], slow(values[row], top, bottom, 60, 4), atol=1e-12)


def test_memory_is_bounded_and_chunks_do_not_matter(monkeypatch):
    values, top, bottom = parts(80)
    whole = resampled(values, top, bottom, 50)
    monkeypatch.setattr(module, "COUNTS_AT_ONCE", 170)
    np.testing.assert_allclose(resampled(values, top, bottom, 50), whole, atol=1e-12)


def test_counts_are_those_of_drawing_with_replacement():
    """With one triple in a part, its count is binomial; here all n triples lie in either part."""
    n = 40
    top = np.zeros(n)
    top[:20] = 1
    values = np.arange(n, dtype=float)[None]
    draws = resampled(values, top, 1 - top, 20_000, seed=1)[0]
    random = np.random.default_rng(2)
    drawn = [random.integers(0, n, n) for _ in range(20_000)]
    expected = [sample[sample < 20].mean() for sample in drawn]
    assert draws[0].mean() == pytest.approx(np.mean(expected), abs=0.05)
    assert draws[0].std() == pytest.approx(np.std(expected), rel=0.05)


def test_equal_models_have_a_difference_of_exactly_zero(make_ranked):
    one = make_ranked(1)
    _, differences = bootstrap({"a": [one], "b": [one]}, [("a", "b")])
    assert differences["a", "b"] == dict.fromkeys(("top_mrr", "bottom_mrr", "delta_mrr"), Interval(0.0, 0.0))


def test_seeds_are_averaged_for_each_triple(make_ranked):
    tests = {"plain": [make_ranked(1), make_ranked(2)], "focuse": [make_ranked(3, gap=0.5)]}
    single, differences = bootstrap(tests, [("plain", "focuse")], resamples=300, seed=5)
    mean = (1 / tests["plain"][0].ranks()).mean(1) / 2 + (1 / tests["plain"][1].ranks()).mean(1) / 2
    other = (1 / tests["focuse"][0].ranks()).mean(1)
    shares = tests["plain"][0].shares
    for values, found in ((mean, single["plain"]), (other - mean, differences["plain", "focuse"])):
        expected = np.quantile(slow(values, shares["top"], shares["bottom"], 300, 5), [0.025, 0.975], axis=1)
        for place, measure in enumerate(("top_mrr", "bottom_mrr", "delta_mrr")):
            assert (found[measure].low, found[measure].high) == pytest.approx(tuple(expected[:, place]))


def test_interval_contains_its_value_and_is_independent_of_other_models(make_ranked):
    one = make_ranked(1, gap=0.5)
    alone, _ = bootstrap({"a": [one]})
    together, _ = bootstrap({"b": [make_ranked(2)], "a": [one]})
    for measure, figure in zip(
        ("top_mrr", "bottom_mrr", "delta_mrr"),
        (one.metrics("top").mrr, one.metrics("bottom").mrr, one.delta_mrr()),
        strict=True,
    ):
        assert alone["a"][measure].low < figure < alone["a"][measure].high
        assert together["a"][measure].low == pytest.approx(alone["a"][measure].low, abs=1e-12)


def test_intervals_have_their_coverage_on_synthetic_data():
    """Of many samples of a known population, about 95 % have the truth in their interval."""
    random, hits, rounds, n = np.random.default_rng(0), 0, 200, 200
    top, bottom = np.repeat([1.0, 0.0], n // 2), np.repeat([0.0, 1.0], n // 2)
    for round_ in range(rounds):
        values = np.where(top > 0, random.beta(4, 2, n), random.beta(2, 4, n))[None]
        low, high = np.quantile(resampled(values, top, bottom, 200, seed=round_)[0, 2], [0.025, 0.975])
        hits += low <= 4 / 6 - 2 / 6 <= high
    assert 0.9 <= hits / rounds <= 0.98


def test_pairing_narrows_the_interval_of_a_difference():
    """Two models that find the same triples hard."""
    random = np.random.default_rng(0)
    hard = random.random(400)
    plain, focused = hard + random.normal(0, 0.02, 400), hard + 0.1 + random.normal(0, 0.02, 400)
    top, bottom = np.repeat([1.0, 0.0], 200), np.repeat([0.0, 1.0], 200)
    paired = resampled((focused - plain)[None], top, bottom)[0]
    apart = resampled(focused[None], top, bottom, seed=1)[0] - resampled(plain[None], top, bottom, seed=2)[0]
    for place in range(3):
        assert np.ptp(np.quantile(paired[place], [0.025, 0.975])) < 0.3 * np.ptp(
            np.quantile(apart[place], [0.025, 0.975])
        )
    assert np.median(paired[0]) == pytest.approx(0.1, abs=0.01)


def test_empty_data_has_no_interval(make_ranked):
    assert bootstrap({}) == ({}, {})
    single, _ = bootstrap({"a": [make_ranked(0, n=1)]})
    assert single["a"] == {"top_mrr": None, "bottom_mrr": None, "delta_mrr": None}


def test_resamples_without_one_part_are_skipped(make_ranked):
    """Half of the resamples hold one of them only; the others make the interval."""
    single, _ = bootstrap({"a": [make_ranked(0, n=2, weights=50)]})
    assert single["a"]["delta_mrr"].low == single["a"]["delta_mrr"].high == make_ranked(0, n=2, weights=50).delta_mrr()


def test_different_triples_are_refused(make_ranked):
    with pytest.raises(FocuseError, match="different test triples"):
        bootstrap({"a": [make_ranked(0)], "b": [make_ranked(0, n=100)]})
