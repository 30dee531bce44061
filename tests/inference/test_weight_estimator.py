"""Estimated weights of unseen edges of a graph with planted weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from focuse.data.graph import Graph, from_columns
from focuse.data.splits import ValidationParts, split, split_validation
from focuse.inference import weight_estimator as estimate
from focuse.inference.weight_estimator import Estimator, conformal_rows, fit_estimator


def planted(rows: int = 3000, seed: int = 0) -> Graph:
    """A weight is what its head and its tail bring along, and some noise."""
    random = np.random.default_rng(seed)
    head, tail = random.integers(0, 60, (2, rows))
    kind = random.integers(0, 2, rows)
    worth = random.random((2, 60))
    noise = random.normal(0, np.where(kind == 0, 0.01, 0.1))
    weight = np.clip((worth[0][head] + worth[1][tail]) / 2 + noise, 0, 1)
    return from_columns([f"e{i}" for i in head], [f"r{i}" for i in kind], [f"e{i}" for i in tail], weight, "planted")


def nothing_of(graph: Graph) -> Graph:
    return graph.select(np.empty(0, np.int64))


@pytest.fixture(scope="module")
def parts() -> tuple[Graph, ValidationParts, Graph]:
    splits = split(planted(6000), valid_fraction=0.3, test_fraction=0.2, seed=1)
    return splits.train, split_validation(splits.valid, 0.5, 1), splits.test


@pytest.fixture(scope="module")
def made(parts: tuple[Graph, ValidationParts, Graph]) -> Estimator:
    return fit_estimator(parts[0], parts[1])


@pytest.mark.slow
def test_beats_the_relation_mean_by_far(made: Estimator, parts: tuple[Graph, ValidationParts, Graph]) -> None:
    train, _, test = parts
    found = made(test.head, test.relation, test.tail)
    means = np.array([train.weight[train.relation == kind].mean() for kind in range(2)])
    trivial = np.mean((means[test.relation] - test.weight) ** 2)
    for name in ("mean", "median"):
        assert np.mean((getattr(found, name) - test.weight) ** 2) < 0.3 * trivial
    assert made.notes == ()


def test_spreads_are_smaller_for_predictable_edges(
    made: Estimator, parts: tuple[Graph, ValidationParts, Graph]
) -> None:
    test = parts[2]
    found = made(test.head, test.relation, test.tail)
    assert found.scale[test.relation == 0].mean() < 0.6 * found.scale[test.relation == 1].mean()
    low, high = made.conformal.interval(found.mean, found.scale, test.relation, 0.9)
    assert np.mean((low <= test.weight) & (test.weight <= high)) == pytest.approx(0.9, abs=0.04)


@pytest.mark.slow
def test_conformal_part_affects_only_intervals(made: Estimator, parts: tuple[Graph, ValidationParts, Graph]) -> None:
    """Other weights in the conformal part change no prediction, only the intervals."""
    train, held, test = parts
    odd = replace(held.conformal, weight=1 - held.conformal.weight)
    other = fit_estimator(train, replace(held, conformal=odd))
    one, two = (which(test.head, test.relation, test.tail) for which in (made, other))
    np.testing.assert_array_equal(one.mean, two.mean)
    np.testing.assert_array_equal(one.scale, two.scale)
    bounds = [each.conformal.interval(one.mean, one.scale, test.relation, 0.9) for each in (made, other)]
    usual, wide = (np.mean(high - low) for low, high in bounds)
    assert wide > 2 * usual


def test_chunk_size_does_not_change_estimates(
    made: Estimator, parts: tuple[Graph, ValidationParts, Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    test = parts[2].select(np.arange(50))
    whole = made(test.head, test.relation, test.tail)
    monkeypatch.setattr(estimate, "TRIPLES_AT_ONCE", 8)
    again = made(test.head, test.relation, test.tail)
    np.testing.assert_allclose(again.mean, whole.mean, rtol=1e-12)
    assert again.link is not None
    assert whole.link is not None
    np.testing.assert_allclose(again.link, whole.link, rtol=1e-12)


def test_tiny_graph_falls_back_to_the_calibration_curve(parts: tuple[Graph, ValidationParts, Graph]) -> None:
    small = planted(400)
    held = ValidationParts(nothing_of(small), small.select(np.arange(50)), small.select(np.arange(50, 100)))
    made = fit_estimator(small, held, curve=lambda head, relation, tail: np.full(len(head), 0.3))
    assert made.trees == {}
    assert "too few to learn weights" in made.notes[0]
    found = made(small.head, small.relation, small.tail)
    assert set(found.mean) == {0.3}
    low, high = made.conformal.interval(found.mean, found.scale, small.relation, 0.5)
    np.testing.assert_allclose((high - low)[low > 0], (high - low)[low > 0][0])


def test_uninformative_neighborhood_leaves_the_simple_estimate() -> None:
    random = np.random.default_rng(0)
    noise = replace(planted(1500), weight=random.permutation(planted(1500).weight))
    order = random.permutation(1500)
    train = noise.select(order[:1100])
    held = ValidationParts(noise.select(order[1100:1300]), noise.select(order[1300:1400]), noise.select(order[1400:]))
    made = fit_estimator(train, held)
    assert made.trees == {}
    assert "simple estimates are used" in made.notes[0]


def test_calibration_rows_measure_intervals_only_if_not_fitted(
    made: Estimator, parts: tuple[Graph, ValidationParts, Graph]
) -> None:
    """Rows of the calibration part join where nothing was fitted to them: no correction, no curve, no bounds."""
    held = parts[1]
    few = replace(held, calibration=held.calibration.select(np.arange(20)))
    full = replace(held, calibration=planted(600))
    unstopped = replace(few, stopping=nothing_of(held.stopping))
    for mix, rows, joined in (
        ([1.0, 0.0, 0.0], few, 20),
        ([0.5, 0.0, 0.5], few, 20),
        ([0.9, 0.1, 0.0], few, 0),
        ([1.0, 0.0, 0.0], full, 0),
        ([1.0, 0.0, 0.0], unstopped, 0),
    ):
        assert len(conformal_rows(replace(made, mix=np.array(mix)), rows)) == len(rows.conformal) + joined


def test_mixture_of_estimates_agrees_with_a_grid_search() -> None:
    random = np.random.default_rng(1)
    steps = np.linspace(0, 1, 41)
    grid = np.array([(a, b, 1 - a - b) for a in steps for b in steps if a + b <= 1 + 1e-9])
    for case in range(5):
        guesses = random.random((60, 3))
        truth = guesses @ random.dirichlet([1, 1, 1]) + random.normal(0, 0.2, 60) * (case + 1)
        shares = estimate._fit_shares(guesses, truth, (0, 1, 2))
        assert (shares >= 0).all()
        assert shares.sum() == pytest.approx(1)
        errors = np.mean((guesses @ grid.T - truth[:, None]) ** 2, axis=0)
        assert estimate._squared_error(guesses, truth, shares) <= errors.min() + 1e-12
        assert estimate._fit_shares(guesses, truth, (1,)).tolist() == [0, 1, 0]


def test_better_calibration_curve_improves_the_estimate(
    made: Estimator, parts: tuple[Graph, ValidationParts, Graph]
) -> None:
    train, held, test = parts
    every = (train, test, held.stopping, held.calibration, held.conformal)
    whole = {key: weight for part in every for key, weight in zip(part.keys, part.weight, strict=True)}
    random = np.random.default_rng(2)

    def knowing(head, relation, tail):
        return np.array([whole[key] for key in train.keys_of(head, relation, tail)]) + random.normal(0, 0.05, len(head))

    helped = fit_estimator(train, held, curve=knowing)
    assert made.mix[1] == 0  # the relation's mean stands in for a curve, and adds nothing
    assert helped.mix[1] > 0.1
    errors = [np.mean((one(test.head, test.relation, test.tail).mean - test.weight) ** 2) for one in (made, helped)]
    assert errors[1] < errors[0]


def test_repeated_triples_are_held_out_together() -> None:
    graph = planted(2000)
    twice = graph.select(np.concatenate([np.arange(2000), np.arange(0, 2000, 2)]))
    folds = estimate._folds(twice, 0)
    assert sorted(np.concatenate(folds)) == list(range(3000))
    of = np.empty(3000, np.int64)
    for number, fold in enumerate(folds):
        of[fold] = number
    np.testing.assert_array_equal(of[2000:], of[:2000:2])
    assert min(map(len, folds)) > 200
    again = replace(twice, weight=np.arange(3000) / 3000)  # the same triples with other weights are other edges
    of_again = np.empty(3000, np.int64)
    for number, fold in enumerate(estimate._folds(again, 0)):
        of_again[fold] = number
    assert (of_again[2000:] != of_again[:2000:2]).mean() > 0.8


def test_outlier_in_validation_does_not_spoil_estimates(
    made: Estimator, parts: tuple[Graph, ValidationParts, Graph]
) -> None:
    train, held, test = parts
    far = held.stopping.weight.copy()
    far[0] = 1e5
    other = fit_estimator(train, replace(held, stopping=replace(held.stopping, weight=far)))
    ids = test.head, test.relation, test.tail
    errors = [np.mean((one(*ids).mean - test.weight) ** 2) for one in (made, other)]
    assert errors[1] < 1.1 * errors[0]
    assert other(*ids).scale.mean() < 2 * made(*ids).scale.mean()
