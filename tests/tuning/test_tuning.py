"""Hyperparameter search: reproducible, resumable, with pruning and a budget."""

from __future__ import annotations

import re
import signal
import sys
from types import SimpleNamespace

import pytest

import focuse
from focuse.data.splits import split
from focuse.errors import FocuseError, Stopped
from focuse.tuning import tuning, worker
from focuse.tuning.space import make_space
from focuse.tuning.tuning import fingerprint, tune

FIXED = {
    "dim": 4,
    "epochs": 3,
    "batch_size": 240,
    "num_negatives": 4,
    "eval_every": 1,
    "eval_start": 0,
    "weight_mode": "focuse",
    "device": "cpu",
}


def space(search=None, **fixed):
    search = (
        {"lr": [0.001, 0.01, 0.05, 0.2], "beta_decay_epochs": [0, 2, 4], "dim": [3, 5]} if search is None else search
    )
    held = {name: value for name, value in (FIXED | fixed).items() if name not in search}
    return make_space(search, held, defaults=False)


def found(result):
    """What a study tried and found, in order; numbers and times aside."""
    return [(tuple(row["searched"].items()), row["state"], row["valid_mrr"]) for row in result.trials]


@pytest.fixture
def go(small, tmp_path):
    """`go("study", …)`: a quiet search of the small graph in a folder of that name."""

    def run(name="study", searched=None, graph=small, **options):
        return tune(graph, searched or space(), tmp_path / name, progress=False, **options)

    return run


@pytest.fixture
def before_trial(monkeypatch):
    """`before_trial(act)`: `act(place)` is called before the training of each trial, counted from 0."""

    def start(act):
        seen = []

        def train(*arguments, **options):
            seen.append(options)
            act(len(seen) - 1)
            return focuse.train(*arguments, **options)

        monkeypatch.setattr(worker, "train", train)
        return seen

    return start


def test_tpe_is_reproducible_and_repeats_no_combination(go):
    first, second = (go(name, trials=14) for name in ("one", "two"))
    assert found(first) == found(second)
    assert len(set(found(first))) == 14
    assert found(go("three", space(seed=1), trials=14)) != found(first)


@pytest.mark.parametrize("sampler", ["tpe", "grid"])
def test_all_combinations_are_tried_once(go, sampler):
    searched = space({"lr": [0.01, 0.05, 0.2], "beta_decay_epochs": [0, 2, 4], "dim": [3, 5]})
    result = go("study", searched, sampler=sampler, pruner="none", trials=None if sampler == "grid" else 99)
    tried = [tuple(row["searched"].values()) for row in result.trials]
    assert sorted(tried) == sorted(tuple(searched.cell(place).values()) for place in range(18))
    assert (result.wanted, result.done, result.running) == (18, 18, 0)
    best = max(result.trials, key=lambda row: row["valid_mrr"])
    assert result.best["valid_mrr"] == best["valid_mrr"]
    assert go("study", searched, sampler=sampler, pruner="none").trials == result.trials  # nothing left to do


def test_trial_equals_training_with_the_same_settings(go, small, tmp_path):
    result = go(trials=4)
    settings = focuse.read_config(tmp_path / "study" / "best.toml")
    assert settings == result.best["settings"]
    run = focuse.train(small, **settings, progress=False)
    looks = {row["epoch"]: row["valid_mrr"] for row in run.history if "valid_mrr" in row}
    assert max(looks.values()) == result.best["valid_mrr"]
    assert looks[result.best["best_epoch"]] == result.best["valid_mrr"]
    header = (tmp_path / "study" / "best.toml").read_text().splitlines()[0]
    best = result.best
    assert header == (
        f"# validation MRR {best['valid_mrr']:.4f} at epoch {best['best_epoch']}: trial {best['trial']} "
        f"of the study {tmp_path / 'study'}"
    )


def test_given_validation_graph_is_used(go, small):
    parts = split(small, 0.2, 0.2, seed=5)
    result = go(graph=parts.train, valid=parts.valid, test=parts.test, trials=2)
    settings = result.best["settings"]
    run = focuse.train(parts.train, valid=parts.valid, test=parts.test, **settings, progress=False)
    assert max(row.get("valid_mrr", 0) for row in run.history) == result.best["valid_mrr"]


@pytest.mark.parametrize("pruner", ["median", "hyperband"])
def test_pruning_stops_weak_trials_and_keeps_the_best(go, pruner):
    searched = space({"lr": [0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 1e-5, 2e-5, 3e-5, 4e-5, 5e-5, 6e-5]}, epochs=9)
    whole = go("whole", searched, sampler="grid", pruner="none")
    pruned = go("pruned", searched, sampler="grid", pruner=pruner)
    assert {row["state"] for row in whole.trials} == {"complete"}
    weak = [row for row in pruned.trials if row["state"] == "pruned"]
    assert weak
    assert all(row["epochs"] < 9 for row in weak)
    if pruner == "median":
        assert pruned.best["searched"] == whole.best["searched"]
    assert pruned.done == 12


def test_longer_training_contains_the_shorter_one(small):
    """Why epochs need no search: with λ given, the looks at validation are the same."""
    common = {
        "dim": 4,
        "weight_mode": "focuse",
        "beta_decay_epochs": 4,
        "eval_every": 1,
        "patience": 99,
        "progress": False,
    }
    short, long = (focuse.train(small, epochs=epochs, **common).history for epochs in (4, 8))
    plain = [[{**row, "seconds": 0} for row in history] for history in (short, long)]
    assert plain[1][:4] == plain[0]


def test_continued_study_equals_an_uninterrupted_one(go):
    whole = go("whole", trials=13)
    assert go("parts", trials=4).done == 4
    assert go("parts", trials=2).done == 4  # fewer than there are: nothing to do
    assert found(go("parts", trials=13)) == found(whole)


@pytest.mark.parametrize("sampler", ["tpe", "grid"])
def test_interrupted_study_resumes_to_the_same_result(go, before_trial, tmp_path, sampler):
    whole = go("whole", trials=13, sampler=sampler)

    def interrupt(place):
        if place in (2, 11):
            signal.raise_signal(signal.SIGINT)

    before_trial(interrupt)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(Stopped, match=r"study: stopped with 2 of 13 trials done, .* tried again; go on with the same"):
        go("study", trials=13, sampler=sampler)
    assert signal.getsignal(signal.SIGINT) is handler
    assert (tmp_path / "study" / "best.toml").exists()
    with pytest.raises(Stopped, match="stopped with 10 of 13"):
        go("study", trials=13, sampler=sampler)
    result = go("study", trials=13, sampler=sampler)
    assert found(result) == found(whole)
    assert result.best["settings"] == whole.best["settings"]
    assert list((tmp_path / "study" / "workers").iterdir()) == []


def test_budget_stops_the_current_trial_and_starts_no_other(go, before_trial, monkeypatch):
    now = [0.0]
    for module in (tuning, worker):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def work(place):
        now[0] += 40.0

    trained = before_trial(work)
    result = go(trials=9, budget=100.0)
    assert (result.done, result.wanted, len(trained)) == (2, 9, 3)
    with pytest.raises(FocuseError, match="no trial came to its end; raise --budget"):
        go("other", budget=30.0)
    assert go(trials=9).done == 9


def test_diverged_or_too_large_trial_does_not_stop_the_study(go, before_trial, tmp_path):
    def fail(place):
        if place == 1:
            raise FocuseError("not enough memory; lower --dim")

    before_trial(fail)
    result = go("study", space({"lr": [0.05, 0.06, 0.07, 1e30, 2e30]}), sampler="grid")
    assert {row["state"] for row in result.trials} == {"complete", "failed"}
    assert result.done == 5
    reasons = [row["reason"] for row in result.trials if row["state"] == "failed"]
    assert any("diverged" in reason for reason in reasons)
    assert any("not enough memory" in reason for reason in reasons)
    with pytest.raises(FocuseError, match=r"none: no trial could be trained to its end; the last: .*diverged"):
        go("none", space({"lr": [1e30, 1e31]}))
    assert not (tmp_path / "none" / "best.toml").exists()


def test_invalid_combination_does_not_stop_the_study(go):
    searched = space({"optimizer": ["sparse-adam", "adam"], "regularizer_scope": ["touched", "rows"]})
    result = go("study", searched, sampler="grid")
    failed = [row for row in result.trials if row["state"] == "failed"]
    assert [row["searched"] for row in failed] == [{"optimizer": "adam", "regularizer_scope": "touched"}]


def test_unexpected_error_is_raised_and_its_trial_is_repeated(go, before_trial):
    def stumble(place):
        if place == 1:
            raise ZeroDivisionError

    before_trial(stumble)
    with pytest.raises(ZeroDivisionError):
        go(trials=3)
    result = go(trials=3)
    assert result.done == 3
    assert result.running == 0


class TestDifferentStudy:
    """A folder is about one search."""

    @pytest.fixture(autouse=True)
    def _begun(self, go):
        go(trials=1)

    @pytest.mark.parametrize(
        ("changed", "options", "says"),
        [
            (
                space({"lr": [0.001, 0.01], "beta_decay_epochs": [0, 2, 4], "dim": [3, 5]}),
                {},
                r"started with lr 0\.001 \| 0\.01 \| 0\.05 \| 0\.2, not 0\.001 \| 0\.01;",
            ),
            (space(epochs=5), {}, "started with epochs 3, not 5"),
            (space(seed=4), {}, "started with "),
            (space(valid_min_weight=0.5), {}, "started with valid_min_weight 0.8, not 0.5"),
            (space(), {"sampler": "grid"}, "started with sampler tpe, not grid"),
            (space(), {"valid_fraction": 0.2}, r"started with graph of 480 \+ 60 \+ 60 triples \(.*\), not of "),
        ],
    )
    def test_different_study_in_the_same_folder_is_refused(self, go, changed, options, says):
        with pytest.raises(FocuseError, match=says) as caught:
            go("study", changed, **options)
        assert "choose another --out" in str(caught.value)

    def test_device_pruner_and_file_name_may_change(self, go, small, tmp_path):
        small.write(tmp_path / "renamed.tsv")
        result = go("study", space(device="auto"), tmp_path / "renamed.tsv", trials=2, pruner="none")
        assert result.done == 2


def test_fingerprint_depends_on_every_column_and_the_split(small):
    from dataclasses import replace

    prints = {fingerprint(split(small, seed=seed)) for seed in range(3)}
    for column in ("head", "relation", "tail", "weight"):
        values = getattr(small, column).copy()
        values[[0, 1]] = values[[1, 0]] if values[0] != values[1] else values[[0, 1]] * 0
        prints.add(fingerprint(split(replace(small, **{column: values}), seed=0)))
    assert len(prints) == 7
    assert fingerprint(split(small, seed=0)) in prints


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"not a journal\n", "line 1 is no JSON"),
        (b"\xff\xfe\x00\n", "line 1 is no JSON"),
        (b'{"op_code": 0}\n', "damaged, "),
        (b"[1, 2]\n", "damaged, "),
        (b'{"op_code": 0, "wor', "line 1 is cut off"),
    ],
)
def test_damaged_journal_is_reported(go, tmp_path, content, says, monkeypatch):
    monkeypatch.setattr("focuse.tuning.ledger.TORN_SECONDS", 0.1)
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "journal.log").write_bytes(content)
    with pytest.raises(FocuseError, match=says) as caught:
        go()
    assert str(caught.value).startswith(f"{tmp_path / 'study' / 'journal.log'}: damaged, ")
    assert (tmp_path / "study" / "journal.log").read_bytes() == content


def test_truncated_journal_line_is_reported(go, tmp_path, monkeypatch):
    monkeypatch.setattr("focuse.tuning.ledger.TORN_SECONDS", 0.1)
    go(trials=2)
    journal = tmp_path / "study" / "journal.log"
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-5])
    with pytest.raises(FocuseError, match=rf"line {whole.count(10)} is cut off"):
        go(trials=3)
    journal.write_bytes(whole)
    assert go(trials=3).done == 3


def test_study_can_be_stored_in_a_database(go, tmp_path):
    url = f"sqlite:///{tmp_path / 'studies.db'}"
    whole = go("whole", trials=3)
    go("study", trials=2, storage=url)
    assert found(go("study", trials=3, storage=url)) == found(whole)
    assert not (tmp_path / "study" / "journal.log").exists()
    assert go("second", trials=1, storage=url).done == 1  # a study of its own in the same data base
    with pytest.raises(FocuseError, match="started with epochs 3, not 5"):
        go("study", space(epochs=5), storage=url)
    for bad in ("nonsense", "sqlite:////no/such/folder/a.db", "nosuch://x"):
        with pytest.raises(FocuseError, match="--storage"):
            go("third", storage=bad)
    with pytest.raises(FocuseError, match="install the driver of that data base"):
        go("third", storage="mysql+aiomysql://x/y")


def test_invalid_searches_are_refused_without_files(go, small, tmp_path, monkeypatch):
    light = focuse.read([(f"e{i % 9}", "r", f"e{i % 7}", 1.0) for i in range(200)])
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis").write_text("years")
    (tmp_path / "file").write_text("mine")
    for name, options, says in (
        ("new", {"valid_fraction": 0.0}, "no validation triples to judge trials by; give --valid"),
        ("new", {"graph": light}, "all weights are equal; search with --weight-mode none"),
        ("new", {"graph": small.select(small.head < 0)}, "no edges to train on"),
        ("new", {"sampler": "gird"}, r"unknown sampler 'gird' \(did you mean grid\?\)"),
        ("new", {"pruner": "maximum"}, "unknown pruner 'maximum'"),
        ("new", {"trials": 0}, "trials 0"),
        ("new", {"searched": space(device="banana")}, "device 'banana' is not available"),
        ("taken", {}, "taken: exists and is not a study"),
        ("file", {}, "file: exists and is not a study"),
        ("file/below", {}, "choose another --out"),
    ):
        with pytest.raises(FocuseError, match=says):
            go(name, **options)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(FocuseError, match=re.escape("pip install focuse[tune]")):
        go("new")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "taken", "thesis"]
    monkeypatch.undo()
    assert go("new", space({"lr": [0.1, 0.2]}, weight_mode="none"), light).done == 2


def test_attributes_are_passed_to_models_that_use_them(go, small, before_trial):
    numbers = [(name, "letters", len(name)) for name in small.entities]
    seen = before_trial(lambda place: None)
    searched = make_space(
        {"model": ["kblrn", "distmult"]}, {"dim": 6, "epochs": 1, "weight_mode": "none"}, defaults=False
    )
    found = go(searched=searched, sampler="grid", node_attributes=numbers)
    assert {row["state"] for row in found.trials} == {"complete"}
    assert sorted((options["model"], "node_attributes" in options) for options in seen) == [
        ("distmult", False),
        ("kblrn", True),
    ]
    with pytest.raises(FocuseError, match="numbers"):
        go(searched=searched, sampler="grid", node_attributes=numbers[1:])
