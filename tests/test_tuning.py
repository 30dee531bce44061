"""`tune`: reproducible, resumable, with pruning and a time limit; it searches what `train` would run."""

from __future__ import annotations

import multiprocessing
import os
import signal

import numpy as np
import pytest

import focuse
from focuse import tuning
from focuse.data.splits import split
from focuse.errors import FocuseError, Stopped
from focuse.tuning import tune

FIX = {
    "epochs": 3,
    "batch_size": 240,
    "num_negatives": 4,
    "eval_every": 1,
    "eval_start": 0,
    "weight_mode": "focuse",
    "regularizer": "l3:1e-3",
    "device": "cpu",
}
SEARCH = {"lr": [0.001, 0.01, 0.05, 0.2], "beta_decay_epochs": [0, 2, 4], "dim": [3, 5]}


@pytest.fixture
def go(small, tmp_path):
    """`go("study", …)`: a quiet search of the small graph in a folder of that name."""

    def run(name="study", values=None, graph=small, fix=None, **options):
        values = SEARCH if values is None else values
        fixed = FIX | {"dim": 4, "lr": 0.1, "beta_decay_epochs": 2} | (fix or {})
        fixed = {name: value for name, value in fixed.items() if name not in values}
        return tune(graph, tmp_path / name, search=values, fix=fixed, progress=False, **options)

    return run


def found(result, *names):
    """What a study tried and found, in order; numbers and times aside."""
    names = ("lr", "beta_decay_epochs", "dim", "state", "valid_mrr")
    return [tuple(row[name] for name in names) for row in result.to_dicts()]


def stop_before(monkeypatch, *places):
    """Raise Ctrl-C before the trainings with these places, counted from 0."""
    seen = []

    def train(*arguments, **options):
        seen.append(options)
        if len(seen) - 1 in places:
            signal.raise_signal(signal.SIGINT)
        return focuse.train(*arguments, **options)

    monkeypatch.setattr(tuning, "train", train)
    return seen


def test_search_without_changes_trains_as_train_does(small, tmp_path):
    """The first trial has the settings of `focuse.train`, and best.toml trains exactly that run."""
    fix = {"epochs": 2, "dim": 4, "device": "cpu"}
    tuned = tune(small, tmp_path / "study", fix=fix, trials=1, progress=False)
    assert tuned.best["trial"] == 0
    settings = focuse.read_config(tmp_path / "study" / "best.toml")
    assert settings == tuned.best["settings"]
    assert settings["weight_mode"] == "separate"
    ours, theirs = focuse.train(small, **settings, progress=False), focuse.train(small, **fix, progress=False)
    assert ours.last is not None
    assert theirs.last is not None
    for name, table in theirs.last.final().items():
        assert (ours.last.final()[name] == table).all()
    assert max(row.get("valid_mrr", 0) for row in theirs.history) == tuned.best["valid_mrr"]


def test_tpe_is_reproducible_and_repeats_no_combination(go):
    first, second = (go(name, trials=14) for name in ("one", "two"))
    assert found(first) == found(second)
    assert len({row[:3] for row in found(first)}) == 14
    assert found(go("three", fix={"seed": 1}, trials=14)) != found(first)


@pytest.mark.parametrize("sampler", ["tpe", "grid"])
def test_all_combinations_are_tried_once(go, sampler):
    values = {"lr": [0.01, 0.05, 0.2], "beta_decay_epochs": [0, 2, 4], "dim": [3, 5]}
    result = go("study", values, sampler=sampler, pruner="none", trials=None if sampler == "grid" else 99)
    assert sorted(row[:3] for row in found(result)) == sorted(
        (lr, decay, dim) for lr in values["lr"] for decay in values["beta_decay_epochs"] for dim in values["dim"]
    )
    assert result.trials == len(result) == 18
    assert result.best["valid_mrr"] == max(result["valid_mrr"])
    assert go("study", values, sampler=sampler, pruner="none").to_dicts() == result.to_dicts()  # nothing left to do


def test_given_validation_graph_is_used(go, small):
    parts = split(small, 0.2, 0.2, seed=5)
    result = go(graph=parts.train, valid=parts.valid, test=parts.test, trials=2)
    run = focuse.train(parts.train, valid=parts.valid, test=parts.test, **result.best["settings"], progress=False)
    assert max(row.get("valid_mrr", 0) for row in run.history) == result.best["valid_mrr"]


def test_confidence_models_are_compared_by_their_own_metric(go):
    values = {"lr": [1e-3, 1e-2, 5e-2]}
    fix = {"model": "ukge-logi", "weight_mode": "none", "regularizer": "none"}
    result = go("study", values, fix=fix | {"beta_decay_epochs": None}, sampler="grid", pruner="none")
    assert result.best["valid_mse"] == min(result["valid_mse"])


def test_pruning_stops_weak_trials_and_keeps_the_best(go):
    values = {"lr": [0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 1e-5, 2e-5, 3e-5, 4e-5, 5e-5, 6e-5]}
    whole = go("whole", values, fix={"epochs": 9}, sampler="grid", pruner="none")
    pruned = go("pruned", values, fix={"epochs": 9}, sampler="grid")
    assert set(whole["state"]) == {"complete"}
    assert "pruned" in set(pruned["state"])
    assert pruned.best["lr"] >= 0.3
    values_of = {row["lr"]: row["valid_mrr"] for row in whole.to_dicts()}
    assert all(row["valid_mrr"] == values_of[row["lr"]] for row in pruned.to_dicts() if row["state"] == "complete")
    assert len(pruned) == 12


def test_continued_study_equals_an_uninterrupted_one(go):
    whole = go("whole", trials=13)
    assert len(go("parts", trials=4)) == 4
    assert len(go("parts", trials=2)) == 4  # fewer than there are: nothing to do
    assert found(go("parts", trials=13)) == found(whole)


def test_interrupted_study_resumes_to_the_same_result(go, monkeypatch, tmp_path):
    whole = go("whole", trials=13)
    stop_before(monkeypatch, 2, 11)
    with pytest.raises(Stopped, match="study: stopped; 2 of 13 trials done; continue with the same command"):
        go("study", trials=13)
    assert (tmp_path / "study" / "best.toml").exists()
    with pytest.raises(Stopped, match="stopped; 10 of 13"):
        go("study", trials=13)
    result = go("study", trials=13)
    assert found(result) == found(whole)
    assert result.best["settings"] == whole.best["settings"]


def test_interruption_before_the_first_trial_stops_the_study(go, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(tuning.optuna.Study, "optimize", lambda *arguments, **options: signal.raise_signal(signal.SIGINT))
        with pytest.raises(Stopped, match="0 of 3 trials done"):
            go(trials=3)
    assert len(go(trials=3)) == 3


def test_interrupted_grid_tries_every_combination(go, monkeypatch):
    values = {"lr": [0.01, 0.05, 0.2], "dim": [3, 5]}
    stop_before(monkeypatch, 2)
    with pytest.raises(Stopped):
        go("study", values, sampler="grid")
    result = go("study", values, sampler="grid")
    assert len({(row["lr"], row["dim"]) for row in result.to_dicts()}) == len(result) == 6


def test_time_limit_ends_the_current_trial(go):
    endless = {"epochs": 10**6, "patience": 10**6}
    with pytest.raises(FocuseError, match="no trial was completed; raise time_limit"):
        go("study", fix=endless, time_limit=1.0, trials=3)
    with pytest.raises(FocuseError, match="duration '30'"):
        go("other", time_limit="30")


def test_diverged_trial_does_not_stop_the_study(go, tmp_path):
    result = go("study", {"lr": [0.05, 0.06, 0.07, 1e30, 2e30]}, sampler="grid", pruner="none")
    states = {row["lr"]: row["state"] for row in result.to_dicts()}
    assert states == {0.05: "complete", 0.06: "complete", 0.07: "complete", 1e30: "failed", 2e30: "failed"}
    assert all("diverged" in row["reason"] for row in result.to_dicts() if row["state"] == "failed")
    with pytest.raises(FocuseError, match=r"none: no trial was completed; the last error: .*diverged"):
        go("none", {"lr": [1e30, 1e31]})
    assert not (tmp_path / "none" / "best.toml").exists()


def test_unexpected_error_is_raised_and_its_trial_is_repeated(go, monkeypatch):
    def fail(*arguments, **options):
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(tuning, "train", fail)
        with pytest.raises(ZeroDivisionError):
            go(trials=3)
    assert len(go(trials=3)) == 3


def run_and_die(graph, out):
    """Start a study in another process that is killed in its second trial."""
    calls = []

    def train(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return focuse.train(*arguments, **options)

    tuning.train, tuning.HEARTBEAT_SECONDS, tuning.GRACE_SECONDS = train, 1, 2
    tune(graph, out, search={"lr": [0.01, 0.05, 0.2]}, fix=FIX | {"dim": 4}, sampler="grid", progress=False)


@pytest.mark.slow
def test_trial_of_a_killed_process_is_repeated(small, tmp_path, monkeypatch):
    small.write(tmp_path / "graph.tsv")
    process = multiprocessing.get_context("spawn").Process(
        target=run_and_die, args=(tmp_path / "graph.tsv", tmp_path / "s")
    )
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    monkeypatch.setattr(tuning, "HEARTBEAT_SECONDS", 1)
    monkeypatch.setattr(tuning, "GRACE_SECONDS", 2)
    options = {"search": {"lr": [0.01, 0.05, 0.2]}, "fix": FIX | {"dim": 4}, "sampler": "grid", "progress": False}
    result = tune(tmp_path / "graph.tsv", tmp_path / "s", **options)
    assert sorted(set(result["lr"])) == [0.01, 0.05, 0.2]
    assert len(result) == result.trials


class TestDifferentStudy:
    """A folder has one search."""

    @pytest.fixture(autouse=True)
    def _started(self, go):
        go(trials=1)

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"values": SEARCH | {"lr": [0.001, 0.01]}}, r"lr 0\.001 \| 0\.01 \| 0\.05 \| 0\.2.*, not "),
            ({"fix": {"epochs": 5}}, "epochs 3.*, not .*epochs 5"),
            ({"fix": {"valid_min_weight": 0.5}}, "valid_min_weight 0.5"),
            ({"sampler": "grid"}, "tpe; .*, not .*grid;"),
            ({"valid_fraction": 0.2}, r"480 \+ 60 \+ 60 triples \(.*\).*, not "),
        ],
    )
    def test_different_study_in_the_same_folder_is_refused(self, go, options, says):
        with pytest.raises(FocuseError, match=f"this study was started with .*{says}") as caught:
            go("study", **options)
        assert "choose another folder" in str(caught.value)

    def test_device_pruner_and_file_name_may_change(self, go, small, tmp_path):
        small.write(tmp_path / "renamed.tsv")
        result = go("study", graph=tmp_path / "renamed.tsv", fix={"device": "auto"}, trials=2, pruner="none")
        assert len(result) == 2


def test_study_can_be_stored_in_a_database(go, tmp_path):
    url = f"sqlite:///{tmp_path / 'studies.db'}"
    whole = go("whole", trials=3)
    go("study", trials=2, storage=url)
    assert found(go("study", trials=3, storage=url)) == found(whole)
    assert not (tmp_path / "study" / "study.db").exists()
    assert len(go("second", trials=1, storage=url)) == 1  # another study in the same database
    for bad in ("nonsense", "sqlite:////no/such/folder/a.db", "nosuch://x", "mysql+aiomysql://x/y"):
        with pytest.raises(FocuseError, match="a storage like"):
            go("third", storage=bad)


def test_damaged_database_is_reported(go, tmp_path):
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.db").write_bytes(b"not a database" * 100)
    with pytest.raises(FocuseError, match=r"study: .*not a database; choose another folder"):
        go()


def test_invalid_searches_are_refused_without_files(go, small, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis").write_text("years")
    (tmp_path / "file").write_text("mine")
    for name, options, says in (
        ("new", {"valid_fraction": 0.0}, "none to validate; raise valid_fraction"),
        ("new", {"graph": small.select(small.head < 0)}, "no triples to train on"),
        ("new", {"sampler": "gird"}, r"unknown sampler 'gird' \(did you mean grid\?\)"),
        ("new", {"pruner": "maximum"}, "unknown pruner 'maximum'"),
        ("new", {"trials": 0}, "trials 0"),
        ("new", {"trials": "3"}, "trials '3': give a whole number"),
        ("new", {"time_limit": 0}, "duration '0s': give a number above 0"),
        ("new", {"values": {"zero_weights": ["low", "known-negative"]}}, "zero_weights cannot be searched"),
        ("new", {"fix": {"device": "banana"}}, "device 'banana' is not available"),
        (
            "new",
            {"values": {"dim": list(range(1, 1002)), "num_negatives": list(range(1, 1002))}, "sampler": "grid"},
            "1,002,001",
        ),
        ("taken", {}, "taken: exists and is not a study"),
        ("file", {}, "file: exists and is not a study"),
        ("file/below", {}, "choose another folder"),
    ):
        with pytest.raises(FocuseError, match=says):
            go(name, **options)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "taken", "thesis"]


def test_equal_weights_are_searched_like_they_are_trained(tmp_path):
    graph = focuse.read([(f"e{i % 9}", "r", f"e{i % 7}", 1.0) for i in range(200)])
    result = tune(
        graph, tmp_path / "study", search={"lr": [0.1, 0.2]}, fix={"epochs": 2, "dim": 4}, trials=2, progress=False
    )
    assert len(result) == 2
    assert np.isfinite(result["valid_mrr"]).all()


def test_node_attributes_are_passed_to_trials(small, tmp_path):
    numbers = [(name, "letters", len(name)) for name in small.entities]
    fix = {"model": "kblrn", "dim": 6, "epochs": 1}
    values = {"lr": [0.01, 0.1]}
    result = tune(small, tmp_path / "study", search=values, fix=fix, node_attributes=numbers, trials=2, progress=False)
    assert set(result["state"]) == {"complete"}
    with pytest.raises(FocuseError, match="needs node_attributes"):
        tune(small, tmp_path / "other", search=values, fix=fix, progress=False)
