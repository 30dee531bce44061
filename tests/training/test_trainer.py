"""The training loop: β, seeds, early stopping, objectives and errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import focuse
from focuse import FocuseError
from focuse.config import SETTINGS, Config, merge_settings
from focuse.engines.fused_cpu import FusedCpuEngine
from focuse.engines.optimizers import OPTIMIZERS
from focuse.objective.losses import LOSSES, FocusedLoss, SquaredError
from focuse.objective.randomness import epoch_order
from focuse.training import trainer
from focuse.training.problem import init_tables, make_objective

SAMPLINGS = [each for each in SETTINGS["negative_sampling"].choices if each != "none"]

QUICK = {
    "batch_size": 128,
    "dim": 8,
    "epochs": 6,
    "weight_mode": "focuse",
    "beta_decay_epochs": 4,
    "eval_start": 2,
    "optimizer": "sparse-adam",
    "lr": 1e-2,
    "negative_sampling": "per-triple",
    "num_negatives": 5,
    "eval_every": 2,
}


def train(graph, **options):
    """Train with QUICK, as far as it has an effect with the given settings."""
    settings = {name: value for name, value in options.items() if name in SETTINGS}
    others = {name: value for name, value in options.items() if name not in SETTINGS}
    return focuse.train(graph, **{"progress": False, **others}, **merge_settings(QUICK, settings))


def same(one, other):
    return all(torch.equal(one.scorer.tables[name], other.scorer.tables[name]) for name in one.scorer.tables)


@pytest.fixture(scope="module")
def focused(small):
    return train(small)


class TestBeta:
    def test_beta_falls_linearly_from_1_to_0_over_decay_epochs(self, focused):
        assert [row["beta"] for row in focused.history] == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
        assert [row["epoch"] for row in focused.history] == [1, 2, 3, 4, 5, 6]

    def test_beta_of_the_history_is_passed_to_the_focuse_layer(self, small, monkeypatch):
        seen = []
        monkeypatch.setattr(
            "focuse.objective.focuse.FocusELayer.__call__",
            lambda self, positive, negative, weight, beta: seen.append(beta) or (positive, negative),
        )
        run = train(small, batch_size=10_000, engine="torch")
        assert seen == [row["beta"] for row in run.history]

    def test_decaying_beta_changes_the_result(self, small, focused):
        fixed = train(small, beta=1.0)
        assert [row["beta"] for row in fixed.history] == [1.0] * 6
        assert not same(focused, fixed)
        # β is 1 in the first epoch of both: they part only when it moves.
        assert focused.history[0]["loss"] == fixed.history[0]["loss"]
        assert focused.history[1]["loss"] != fixed.history[1]["loss"]

    def test_beta_respects_its_floor_and_immediate_decay(self, small):
        assert [row["beta"] for row in train(small, beta_min=0.5).history] == [1.0, 0.75, 0.5, 0.5, 0.5, 0.5]
        assert {row["beta"] for row in train(small, beta_decay_epochs=0, epochs=2).history} == {0.0}

    def test_beta_is_none_without_the_focuse_layer(self, small):
        assert {row["beta"] for row in train(small, weight_mode="none", epochs=2).history} == {None}

    def test_beta_1_with_linear_layer_equals_the_plain_model(self, small):
        assert same(train(small, beta=1.0, nonlinearity="linear"), train(small, weight_mode="none"))


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_label_exponent_zero_equals_the_plain_model(small, sampling):
    asked = {"negative_sampling": sampling, "eval_start": 0, "epochs": 3}
    assert same(
        train(small, weight_mode="soft-labels", label_exponent=0.0, **asked), train(small, weight_mode="none", **asked)
    )


def test_loss_falls_during_training(small):
    losses = [row["loss"] for row in train(small, weight_mode="none", epochs=30, patience=99).history]
    assert losses[-1] < 0.8 * losses[0]


def test_trained_model_ranks_far_better_than_an_untrained_one(small):
    before = train(small, epochs=1, lr=1e-9, weight_mode="none").evaluate().all.mrr
    after = train(small, epochs=40, weight_mode="none", negative_sampling="all").evaluate().all.mrr
    assert after > 1.5 * before


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("weight_mode", ["focuse", "none"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_every_sampling_trains_with_and_without_weights(small, sampling, weight_mode, filtered):
    run = train(
        small,
        negative_sampling=sampling,
        weight_mode=weight_mode,
        filter_negatives=filtered,
        epochs=4,
        **({"beta_decay_epochs": 1000} if weight_mode == "focuse" else {}),
    )
    losses = [row["loss"] for row in run.history]
    assert losses[-1] < losses[0]
    assert run.settings.weight_mode == weight_mode


@pytest.mark.parametrize("model", ["transe", "transe-l2", "distmult", "complex"])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_trains_every_model(small, loss, model):
    run = train(small, loss=loss, model=model, epochs=3, beta_decay_epochs=1000)
    losses = [row["loss"] for row in run.history]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_trains(small, optimizer, reduction):
    # Only plain descent takes steps in proportion to the loss; the others measure it themselves.
    rate = {"sum": 1e-2, "mean": 1.0}[reduction] if optimizer == "sgd" else 3e-2
    plain = {"regularizer": "none", "epochs": 5, "weight_mode": "none"}
    run = train(small, optimizer=optimizer, reduction=reduction, lr=rate, **plain)
    assert run.history[-1]["loss"] < run.history[0]["loss"]


class TestSeeds:
    def test_same_seed_gives_identical_tables(self, small, focused):
        again = train(small)
        assert same(focused, again)
        assert [row["loss"] for row in again.history] == [row["loss"] for row in focused.history]

    def test_different_seed_gives_different_tables(self, small, focused):
        assert not same(focused, train(small, seed=1))

    def test_global_random_generators_have_no_effect(self, small, focused):
        torch.manual_seed(123)
        np.random.seed(123)
        state = torch.get_rng_state()
        assert same(focused, train(small))
        assert torch.equal(state, torch.get_rng_state())

    def test_initial_embeddings_are_xavier_normal(self):
        settings = Config(model="complex", dim=100, seed=3)
        tables = init_tables(settings, settings.make_model(), 3000, 5)
        assert {name: tuple(table.shape) for name, table in tables.items()} == {
            "entity": (3000, 200),
            "relation": (5, 200),
        }
        assert tables["entity"].std().item() == pytest.approx((2 / 3200) ** 0.5, rel=0.01)
        other = init_tables(replace(settings, seed=4), settings.make_model(), 3000, 5)
        assert not torch.equal(tables["entity"], other["entity"])


# A rate this high overfits at once, so validation turns before the epochs are over.
HASTY = {"epochs": 60, "beta_decay_epochs": 4, "lr": 0.1, "eval_every": 1, "patience": 3, "regularizer": "none"}


@pytest.fixture(scope="module")
def stopped(small):
    return train(small, **HASTY)


class TestEarlyStopping:
    def test_early_stopping_waits_for_patience_checks_without_improvement(self, stopped):
        checked = [row for row in stopped.history if "valid_mrr" in row]
        best = max(checked, key=lambda row: row["valid_mrr"])
        assert len(stopped.history) < 60
        assert stopped.last.progress.finished == "stopped early"
        assert stopped.history[-1]["epoch"] == best["epoch"] + 3
        at = stopped.last.progress
        assert (at.best_epoch, at.best_value) == (best["epoch"], best["valid_mrr"])

    def test_early_stopping_restores_the_best_tables(self, small, stopped):
        best = stopped.last.progress.best_epoch
        until_then = train(small, **{**HASTY, "epochs": best, "eval_start": stopped.settings.eval_start})
        assert same(stopped, until_then)
        assert not torch.equal(stopped.scorer.tables["entity"], stopped.last.tables["entity"])

    def test_validation_starts_after_burn_in_and_runs_every_check_interval(self, small):
        run = train(small, epochs=11, eval_start=5, eval_every=2, patience=99)
        assert [row["epoch"] for row in run.history if "valid_mrr" in row] == [6, 8, 10, 11]

    def test_burn_in_defaults_to_half_of_decay(self, small):
        run = train(small, epochs=8, beta_decay_epochs=6, eval_every=1, eval_start=None, patience=99)
        assert [row["epoch"] for row in run.history if "valid_mrr" in row] == [3, 4, 5, 6, 7, 8]

    def test_without_validation_the_last_tables_are_used(self, small):
        run = train(small, valid_fraction=0.0)
        assert run.last.best is None
        assert not any("valid_mrr" in row for row in run.history)
        assert torch.equal(run.scorer.tables["entity"], run.last.tables["entity"])


class TestEqualWeights:
    @pytest.mark.parametrize("weights", ["equal", "none"])
    def test_equal_weights_turn_the_layer_off_with_a_note(self, small, listen, weights):
        columns = small.to_arrow()
        triples = list(zip(*(columns[name].to_pylist() for name in ("head", "relation", "tail")), strict=True))
        graph = focuse.read([(*triple, 0.3) for triple in triples] if weights == "equal" else triples)
        recorder = listen()
        run = train(graph)
        assert "all weights are equal: weights are ignored (weight_mode 'none')" in recorder.notes
        assert run.settings.weight_mode == "none"
        assert {row["beta"] for row in run.history} == {None}
        assert same(run, train(graph, weight_mode="none"))

    def test_relation_weights_are_normalized_globally_and_keep_the_layer_on(self, small, listen):
        weighed = focuse.read(small, relation_weights={"r0": 10.0, "r1": 40.0, "r2": 90.0})
        recorder = listen()
        run = train(weighed)
        assert (run.settings.weight_scaling, run.settings.weight_mode) == ("global", "focuse")
        assert not any("weights are ignored" in note for note in recorder.notes)
        assert not same(run, train(weighed, weight_mode="none"))
        expected = {10.0: 0.0, 40.0: 0.375, 90.0: 1.0}
        got = run.normalizer.transform(run.graph.weight, run.graph.relation)
        np.testing.assert_allclose(got, [expected[weight] for weight in run.graph.weight])

    def test_relation_weights_normalized_per_relation_give_a_suggestion(self, small, listen):
        recorder = listen()
        weighed = focuse.read(small, relation_weights={"r0": 1.0, "r1": 2.0, "r2": 3.0})
        assert train(weighed, weight_scaling="relation").settings.weight_mode == "none"
        assert any("try weight_scaling 'global'" in note for note in recorder.notes)

    def test_no_note_about_the_layer_if_focus_is_off(self, small, listen):
        recorder = listen()
        train(small.select(np.arange(100)), weight_mode="none", epochs=1)
        assert not any("FocusE" in note for note in recorder.notes)


@pytest.mark.parametrize(("optimizer", "lr"), [("adam", 1e30), ("sgd", 1e6)])
def test_diverging_training_is_one_line_with_advice(small, listen, optimizer, lr):
    recorder = listen()
    with pytest.raises(FocuseError, match=r"training diverged in epoch \d+: .*lower the learning rate") as error:
        train(small, optimizer=optimizer, lr=lr, loss="nll", epochs=50)
    assert "\n" not in str(error.value)
    assert recorder.stopped == 1  # a bar must not stay on the terminal


@pytest.mark.parametrize(("policy", "done"), [("keep", "kept"), ("max", "merged by 'max'")])
def test_repeated_triples_are_counted_and_reported(small, listen, policy, done):
    columns = small.to_arrow().to_pylist()
    rows = [(row["head"], row["relation"], row["tail"], row["weight"]) for row in columns]
    graph = focuse.read(rows + [(h, r, t, w / 2) for h, r, t, w in rows[:7]])
    recorder = listen()
    run = train(graph, duplicates=policy, epochs=1)
    [note] = [note for note in recorder.notes if "repeat" in note]
    assert "7 rows repeat a (head, relation, tail), 7 triples with differing weights" in note
    assert done in note
    others = [name for name in ("keep", "max", "mean", "sum", "last", "noisy-or") if name != policy]
    assert f"(--duplicates {', '.join(others)})" in note
    total = len(run.splits.train) + len(run.splits.valid) + len(run.splits.test)
    assert total == len(rows) + (7 if policy == "keep" else 0)


def test_batches_cover_every_row_once_per_epoch(small, monkeypatch):
    seen = []
    step = FusedCpuEngine.step

    def spy(self, given):
        seen.append(torch.stack([given.positives.head, given.positives.relation, given.positives.tail], 1))
        return step(self, given)

    monkeypatch.setattr(FusedCpuEngine, "step", spy)
    run = train(small, epochs=2, batch_size=50, engine="native")
    per_epoch = -(-len(run.graph) // 50)
    assert len(seen) == 2 * per_epoch
    expected = sorted(zip(run.graph.head, run.graph.relation, run.graph.tail, strict=True))
    for epoch in (seen[:per_epoch], seen[per_epoch:]):
        assert sorted(map(tuple, torch.cat(epoch).tolist())) == expected
    assert not torch.equal(seen[0], seen[per_epoch])  # shuffled anew


def test_the_order_of_an_epoch_is_drawn_once_on_a_cpu(small, monkeypatch):
    drawn = []
    monkeypatch.setattr(trainer, "epoch_order", lambda *given: drawn.append(1) or epoch_order(*given))
    train(small, epochs=3, device="cpu")
    assert len(drawn) == 3


def test_objective_follows_the_settings(small):
    chosen = make_objective(Config.from_kwargs(model="ukge-rect", rule_loss_weight=0.7), None)
    assert isinstance(chosen, SquaredError)
    assert chosen.rule_weight == 0.7
    f = torch.linspace(-2, 2, 5)
    assert torch.equal(chosen.phi(f), f)
    logi = make_objective(Config.from_kwargs(model="ukge-logi"), None)
    assert isinstance(logi, SquaredError)
    assert torch.equal(logi.phi(f), torch.sigmoid(f))
    assert isinstance(make_objective(Config.from_kwargs(), None), FocusedLoss)


def test_initial_tables_of_ukge_have_their_shapes_and_deviation():
    settings = Config.from_kwargs(model="ukge-logi", seed=3)
    tables = init_tables(settings, settings.make_model(), 3000, 50)
    assert {name: tuple(table.shape) for name, table in tables.items()} == {
        "entity": (3000, 128),
        "relation": (50, 128),
        "scale": (2,),
    }
    for name in ("entity", "relation"):
        assert tables[name].std().item() == pytest.approx(0.3, rel=0.02)
    assert tables["scale"].tolist() == [1.0, 0.0]
    tables["scale"].zero_()
    assert init_tables(settings, settings.make_model(), 30, 5)["scale"].tolist() == [1.0, 0.0]
