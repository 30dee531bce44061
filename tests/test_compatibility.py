"""Runs of every released format load, give the same answers, and can be resumed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from kept_answers import answers, contents, differences
from older import older
from safetensors.numpy import load_file

import focuse
from focuse import FocuseError
from focuse.config import SETTINGS, Config
from focuse.inference.fitted import CALIBRATION_FILE, ESTIMATOR_FILE, PROBABILITY_FILE
from focuse.storage.metadata import FORMAT
from focuse.storage.old_names import OLD_SETTING_NAMES, OLD_SETTING_VALUES, REMOVED_SETTINGS

KEPT = Path(__file__).parent / "fixtures" / "runs"
RUNS = sorted(path.parent.relative_to(KEPT).as_posix() for path in KEPT.glob("format-*/*/run.toml"))
# Settings and values that have had other names since.
RENAMED = {
    "sharpness": "label_exponent",
    "corrupt": "negative_distribution",
    "coin": "corrupt_side",
    "spread": "init_std",
    "judge": "stop_metric",
    "regularize": "regularizer_scope",
    "focus": "weight_mode",
    "sampling": "negative_sampling",
    "negatives": "num_negatives",
    "decay": "beta_decay_epochs",
    "beta_floor": "beta_min",
    "normalize": "weight_scaling",
    "importance": "column_importance",
    "check_every": "eval_every",
    "burn_in": "eval_start",
    "threshold": "valid_min_weight",
    "stopping_share": "stop_fraction",
    "attribute_share": "attribute_loss_weight",
    "soft_logic_weight": "rule_loss_weight",
    "soft_logic_size": "rule_batch_size",
    "start": "init_from",
    "memory": "memory_limit",
}
VALUES = {
    ("coin", "fair"): "uniform",
    ("focus", "label"): "soft-labels",
    ("focus", "paper"): "focuse",
    ("focus", "off"): "none",
    ("sampling", "independent"): "per-triple",
    ("negative_weights", "light"): "low",
    ("negative_weights", "against"): "known-negative",
    ("zero_weights", "light"): "low",
    ("zero_weights", "negatives"): "known-negative",
    ("optimizer", "row-adam"): "sparse-adam",
    ("optimizer", "row-adagrad"): "sparse-adagrad",
    ("engine", "reference"): "torch",
    ("engine", "fused"): "native",
    ("lower_is_better", ""): False,
}
# Columns of predicted weights that have had other names since.
COLUMNS = {"expected": "weight_mean", "typical": "weight_median", "low": "weight_low", "high": "weight_high"}
COLUMNS |= {"known": "in_train"}
FITTED = (CALIBRATION_FILE, ESTIMATOR_FILE)
SCORES = 1e-5  # float32 on another processor
TRAINED = 1e-3  # the same after some epochs


@pytest.fixture
def kept(tmp_path):
    """`kept(name)`: a copy of a kept run and what it answered when it was made."""

    def copy(name):
        shutil.copytree(KEPT / name, tmp_path / "run")
        before = json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))
        before["explanation"].pop("method", None)  # is no longer part of an explanation
        for row in (before["explanation"], *before["tails"], *before["heads"], *before["weights"]["triples"]):
            row.pop("probability", None)  # has since been defined by `focuse.inference.link_probability`
            row.pop("chance", None)
        before["settings"] = {
            RENAMED.get(key, key): VALUES.get((key, value), value)
            for key, value in before["settings"].items()
            if key not in REMOVED_SETTINGS
        }
        before["evaluation"]["settings"]["protocol"] = "per-side"  # which was called "sides"
        before["evaluation"]["order"] = {"concordance": before["evaluation"]["order"]["concordance"]}
        rows = [{COLUMNS.get(key, key): value for key, value in row.items()} for row in before["weights"]["triples"]]
        before["weights"] = {"coverage": before["weights"]["coverage"], "rows": rows}
        return tmp_path / "run", before

    return copy


def test_fixtures_exist_for_the_current_and_every_earlier_format():
    formats = {int(path.name.removeprefix("format-")) for path in KEPT.glob("format-*")}
    assert formats == set(range(2, FORMAT + 1))  # 1 was of the first days, before anyone could have kept a run
    assert len(RUNS) >= 9


@pytest.mark.parametrize("name", RUNS)
def test_stored_run_answers_as_when_it_was_made(name, kept):
    folder, before = kept(name)
    files, fitted = contents(folder), {file: load_file(folder / file) for file in FITTED if (folder / file).is_file()}
    assert differences(answers(focuse.load(folder, device="cpu")), before, SCORES) == []
    # Only the probability of links, which is newer than these runs, was fitted and written, and nothing else anew.
    now = contents(folder)
    assert {file for file in now if now[file] != files.get(file)} <= {*FITTED, PROBABILITY_FILE}
    for file, arrays in fitted.items():
        assert load_file(folder / file).keys() == arrays.keys()
        assert all(np.array_equal(array, arrays[key]) for key, array in load_file(folder / file).items())
    assert differences(answers(focuse.load(folder, device="cpu")), before, SCORES) == []
    assert contents(folder) == now


@pytest.mark.parametrize("name", [name for name in RUNS if name.endswith("/unfinished")])
def test_stored_unfinished_run_can_be_resumed(name, kept):
    folder, before = kept(name)
    run = focuse.resume(folder, progress=False)
    assert [row["epoch"] for row in run.history] == list(range(1, before["settings"]["epochs"] + 1))
    assert [row["epoch"] for row in run.history][: len(before["epochs"])] == before["epochs"]
    losses = json.loads((KEPT / f"{name}.losses.json").read_text(encoding="utf-8"))
    assert [row["loss"] for row in run.history] == pytest.approx(losses, rel=TRAINED)
    assert focuse.load(folder, device="cpu").evaluate().to_dict() == run.evaluate().to_dict()


@pytest.mark.parametrize("name", [name for name in RUNS if name.endswith(("/paper", "/columns", "/tucker"))])
def test_stored_run_can_be_trained_for_more_epochs(name, kept):
    folder, before = kept(name)
    done = before["settings"]["epochs"]
    assert len(focuse.resume(folder, epochs=done + 1, progress=False).history) == done + 1


def test_stored_run_with_inverse_relations_resumes_with_its_optimizer_state(kept):
    folder, _ = kept("format-2/reciprocal")
    losses = json.loads((KEPT / "format-2" / "reciprocal.losses.json").read_text(encoding="utf-8"))
    run = focuse.resume(folder, epochs=len(losses), progress=False)
    assert [row["loss"] for row in run.history] == pytest.approx(losses, rel=TRAINED)


@pytest.mark.parametrize("name", RUNS)
def test_a_kept_run_can_be_trained_again_from_its_settings(name):
    before = json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))["settings"]
    found = focuse.read_config(KEPT / name / "run.toml")
    if "weight_mode" in before:  # format 4 and later
        assert found["weight_mode"] == before["weight_mode"]
        assert found["num_negatives"] == before["num_negatives"]
    else:
        assert found["weight_mode"] == VALUES["focus", before["focus"]]
        assert found["num_negatives"] == before["negatives"]
    assert not RENAMED.keys() & found.keys()


def test_a_name_or_value_of_today_is_never_an_old_one():
    assert not RENAMED.keys() & SETTINGS.keys()
    assert RENAMED == OLD_SETTING_NAMES
    for (name, value), today in OLD_SETTING_VALUES.items():
        assert (name, today) not in OLD_SETTING_VALUES
        with pytest.raises(FocuseError):
            Config.from_kwargs(**{name: value})


@pytest.mark.parametrize("name", sorted(REMOVED_SETTINGS))
def test_a_removed_setting_is_an_error_only_if_a_run_used_it(name, kept):
    path = older(kept("format-4/columns")[0]) / "run.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("[settings]", f'[settings]\n{name} = ""'), encoding="utf-8")
    focuse.load(path.parent)
    path.write_text(text.replace("[settings]", f'[settings]\n{name} = "fit=1"'), encoding="utf-8")
    for read in (focuse.load, lambda folder: focuse.read_config(folder / "run.toml")):
        with pytest.raises(FocuseError, match=f"run.toml: {name} = 'fit=1' was removed from focuse; train with one"):
            read(path.parent)


def test_comparison_detects_differences():
    """The comparison can fail: in a number, an order, a length, a name that is gone; additions are none."""
    before = {"a": [1.0, {"b": 2.0}], "c": "x", "n": None}
    assert differences({"a": [1.0 + 1e-7, {"b": 2.0}], "c": "x", "n": None, "new": 1}, before, SCORES) == []
    assert differences({"a": [1.1, {"b": 2.0}], "c": "x", "n": None}, before, SCORES) == [".a[0]: 1.1 instead of 1.0"]
    assert differences({"a": [1.0], "c": "y"}, before, SCORES) == [
        ".n: gone",
        ".a: 1 instead of 2",
        ".c: 'y' instead of 'x'",
    ]


def test_changed_tables_of_a_stored_run_change_its_answers(kept):
    """So the comparison is of what the files hold: other tables give other answers."""
    folder, before = kept("format-2/complex")
    shutil.copy(KEPT / "format-2" / "unfinished" / "checkpoint.safetensors", folder)
    (folder / "model.safetensors").unlink()
    assert differences(answers(focuse.load(folder, device="cpu")), before, SCORES)


@pytest.mark.parametrize(("version", "advice"), [(FORMAT + 1, "update focuse"), (1, "train it again")])
def test_unsupported_format_is_one_line_with_advice(version, advice, kept):
    folder, _ = kept("format-2/complex")
    text = (folder / "run.toml").read_text(encoding="utf-8")
    (folder / "run.toml").write_text(text.replace("format = 2", f"format = {version}"), encoding="utf-8")
    with pytest.raises(FocuseError, match=advice) as told:
        focuse.load(folder)
    assert "\n" not in str(told.value)
    assert str(version) in str(told.value)
