"""FocusE must gain from the weights themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import focuse
from focuse.data.splits import Splits, split
from focuse.demo import FOCUSED, PLAIN

QUICK = {"dim": 8, "epochs": 4, "eval_start": 1, "lr": 1e-2, "num_negatives": 5, "eval_every": 2}


# One seed shows it; `make check-all` takes the mean of two.
SEEDS = pytest.mark.parametrize("seeds", [(0,), pytest.param((0, 1), marks=pytest.mark.slow)])


def shuffled(splits: Splits, seed: int) -> Splits:
    """The same splits with the training weights dealt out anew among the edges of each relation."""
    train, random = splits.train, np.random.default_rng(seed)
    weight = train.weight.copy()
    for kind in range(len(train.relations)):
        rows = np.flatnonzero(train.relation == kind)
        weight[rows] = random.permutation(weight[rows])
    return replace(splits, train=replace(train, weight=weight))


def train(splits: Splits, **settings) -> focuse.Run:
    return focuse.train(splits.train, valid=splits.valid, test=splits.test, progress=False, **settings)


def same(one: focuse.Run, other: focuse.Run) -> bool:
    return all(torch.equal(one.scorer.tables[name], other.scorer.tables[name]) for name in ("entity", "relation"))


@SEEDS
def test_shuffled_weights_at_least_halve_the_gain_in_delta_mrr(careers, seeds):
    gains: dict[str, list[float]] = {"true": [], "shuffled": []}
    for seed in seeds:
        splits = split(careers, seed=seed)
        plain = train(splits, seed=seed, **PLAIN).evaluate().delta_mrr
        for name, parts in (("true", splits), ("shuffled", shuffled(splits, seed))):
            gains[name].append(train(parts, seed=seed, **FOCUSED).evaluate().delta_mrr - plain)
    true, by_chance = np.mean(gains["true"]), np.mean(gains["shuffled"])
    assert true > 0.05, gains
    assert by_chance <= true / 2, gains


@SEEDS
def test_soft_labels_gain_delta_mrr_from_true_weights_only(careers, seeds):
    """The default weight mode: a wider ΔMRR at no lower a top, gone once weights are shuffled."""
    settings = {"dim": 50, "label_exponent": 2.0, "epochs": 20}
    found: dict[str, list[tuple[float, float]]] = {"plain": [], "true": [], "shuffled": []}
    for seed in seeds:
        splits = split(careers, seed=seed)
        runs = {
            "plain": train(splits, seed=seed, **{**settings, "weight_mode": "none", "label_exponent": None}),
            "true": train(splits, seed=seed, **settings),
            "shuffled": train(shuffled(splits, seed), seed=seed, **settings),
        }
        for name, run in runs.items():
            figures = run.evaluate()
            found[name].append((figures.top.mrr, figures.delta_mrr))
    (plain_top, plain), (top, true), (_, by_chance) = (np.mean(rows, axis=0) for rows in found.values())
    assert true - plain > 0.05, found
    assert by_chance - plain <= (true - plain) / 2, found
    assert top > plain_top - 0.01, found


@pytest.mark.parametrize("factor", [1, 1000])
def test_noise_has_no_delta_mrr_whatever_the_unit_of_a_relation(factor):
    """An easy relation of few tails beside a hard one, with random weights that the training does not use."""
    random = np.random.default_rng(3)

    def rows(n):
        easy = [(f"a{i}", "easy", f"b{i % 5}", factor * random.random()) for i in random.integers(300, size=n)]
        hard = [(f"a{i}", "hard", f"c{random.integers(300)}", random.random()) for i in random.integers(300, size=n)]
        return easy + hard

    settings = {"weight_mode": "none", "epochs": 12, "dim": 16, "valid_min_weight": 0, "seed": 3}
    run, test = focuse.train(rows(1500), progress=False, **settings), rows(1500)
    found = run.evaluate(test)
    assert abs(found.delta_mrr) < 0.1
    if factor > 1:
        assert found.settings["deciles"] == "within each relation"
        assert run.evaluate(test, deciles="global").delta_mrr > 0.3


class TestEffectOfWeights:
    """The quick form, and proof that it catches a layer whose β never moves."""

    def test_with_beta_decay_other_weights_change_the_tables(self, small):
        splits = split(small)
        assert not same(
            *(
                train(parts, weight_mode="focuse", beta_decay_epochs=3, **QUICK)
                for parts in (splits, shuffled(splits, 1))
            )
        )

    def test_with_beta_fixed_at_1_weights_have_no_effect(self, small):
        splits = split(small)
        frozen = [train(parts, weight_mode="focuse", beta=1.0, **QUICK) for parts in (splits, shuffled(splits, 1))]
        assert same(*frozen)
        assert {row["beta"] for run in frozen for row in run.history} == {1.0}

    def test_without_focus_weights_have_no_effect(self, small):
        splits = split(small)
        assert same(*(train(parts, weight_mode="none", **QUICK) for parts in (splits, shuffled(splits, 1))))

    def test_shuffle_permutes_weights_and_keeps_triples(self, small):
        splits = split(small)
        other = shuffled(splits, 1).train
        assert (other.weight != splits.train.weight).mean() > 0.5
        np.testing.assert_array_equal(np.sort(other.weight), np.sort(splits.train.weight))
        np.testing.assert_array_equal(other.keys, splits.train.keys)
