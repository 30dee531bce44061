"""Settings from TOML files, and changes of the settings of a run."""

from __future__ import annotations

import pytest

import focuse
from focuse.config import Config, merge_settings
from focuse.errors import FocuseError
from focuse.storage.metadata import read_config, read_toml, to_toml


def test_settings_may_be_at_top_level_or_in_a_settings_table(tmp_path):
    file = tmp_path / "one.toml"
    file.write_text('# why\nmodel = "transe"\ndim = 8\nlr = 1e-2\nfilter_negatives = true\ndevice = "cpu"\n')
    expected = {"model": "transe", "dim": 8, "lr": 0.01, "filter_negatives": True, "device": "cpu"}
    assert read_config(file) == expected
    file.write_text("[settings]\n" + file.read_text() + '\n[notes]\nby = "me"\n')
    assert read_config(str(file)) == expected
    file.write_text("")
    assert read_config(file) == {}


def test_training_from_run_toml_gives_the_same_losses(small, tmp_path):
    run = focuse.train(small, dim=4, epochs=2, checkpoint_every=1, progress=False, out=tmp_path / "run")
    settings = focuse.read_config(tmp_path / "run" / "run.toml")
    assert settings == {"dim": 4, "epochs": 2, "checkpoint_every": "1"}
    again = focuse.train(small, **settings, progress=False)
    assert again.settings == run.settings
    seen = [[row["loss"] for row in one.history] for one in (run, again)]
    assert seen[0] == seen[1]
    assert focuse.load(tmp_path / "run").settings.provenance == run.settings.provenance


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("dim = 8\nlr = = 3\n", r"bad\.toml, line 2: "),
        ("dim = [1, 2", r"bad\.toml, (line 1|at its end): "),
        ("dimm = 8\n", r"bad\.toml: unknown setting 'dimm' \(did you mean dim\?\): choose from model, reciprocal, dim"),
        ("dim = 0\n", r"bad\.toml: dim 0: give a whole number"),
        ("dim = '8'\n", r"bad\.toml: dim '8': give a whole number"),
        ("[settings]\ndimm = 8\n", r"bad\.toml: unknown setting 'dimm'"),
        ("[model]\nname = 'complex'\n", r"bad\.toml: model \{.*\}: give the name of a model or a class"),
        ("settings = 3\n", r"bad\.toml: settings is not a table"),
        (f"lr = 1{'0' * 400}\n", r"bad\.toml: lr: too large; give a number"),
        (f"checkpoint_every = '9{'0' * 400}'\n", r"bad\.toml: checkpoint_every '90+': give epochs"),
        ("negatives = 3\n[settings]\ndim = 8\n", r"bad\.toml: negatives is outside of \[settings\]"),
        ("format = 2\n[settings]\nfocus = 'off'\nweight_mode = 'none'\n", "weight_mode is given twice"),
        (
            "lr = 0.1\nbeta_decay_epochs = 3\n[settings]\ndim = 8\n",
            r"bad\.toml: beta_decay_epochs, lr is outside of \[settings\]",
        ),
    ],
)
def test_wrong_setting_in_a_file_is_one_line_naming_the_file(tmp_path, text, says):
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(FocuseError, match=says) as caught:
        read_config(tmp_path / "bad.toml")
    assert "\n" not in str(caught.value)


def test_missing_and_binary_files_are_refused(tmp_path):
    with pytest.raises(FocuseError, match=r"none\.toml: No such file or directory; give the path"):
        read_config(tmp_path / "none.toml")
    (tmp_path / "image.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FocuseError, match="not UTF-8 text; give a TOML file"):
        read_config(tmp_path / "image.toml")


# Usual defaults, own ones, reciprocal relations, a pool, a loss with weights, a batch size, a share of attributes.
@pytest.mark.parametrize(
    "model", ["complex", "rotate", "cp", "passleaf-complex", "gtranse", "kbgat", "transea", "conve"]
)
def test_changing_one_setting_of_a_run_equals_a_new_configuration(small, tmp_path, model):
    """Whatever the model, the optimizer, the sampling or the epochs become, dependent settings are derived again."""
    chosen = {"model": model, "dim": 12, "epochs": 40}
    run = Config.from_kwargs(**chosen).resolve(small, "cpu")
    known = {name: value for name, value in run.to_dict().items() if value is not None}
    text = to_toml({"format": 4, "settings": known, "provenance": run.names_by_provenance()})
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    found = read_config(tmp_path / "run.toml")
    assert found == chosen
    for change in (
        {"model": "complex"},
        {"model": "pairre"},
        {"model": "cp"},
        {"model": "transe"},
        {"model": "ukge-rect"},
        {"model": "gtranse"},
        {"optimizer": "adam"},
        {"negative_sampling": "per-triple"},
        {"epochs": 7},
    ):
        again = Config.from_kwargs(**merge_settings(found, change)).resolve(small, "cpu")
        assert again == Config.from_kwargs(**{**chosen, **change}).resolve(small, "cpu"), change


def test_a_run_without_provenance_keeps_all_settings_that_have_an_effect(small, tmp_path):
    run = Config.from_kwargs(dim=9, lower_is_better=["p"], label_exponent=2.0).resolve(small, "cpu")
    stored = {name: value for name, value in run.to_dict().items() if value is not None}
    stored |= {"optimizer": "row-adagrad", "lower_is_better": "p"}  # as older versions wrote them
    (tmp_path / "run.toml").write_text(to_toml({"format": 4, "settings": stored}), encoding="utf-8")
    found = read_config(tmp_path / "run.toml")
    assert (found["optimizer"], found["lr"], found["dim"]) == ("sparse-adagrad", 0.1, 9)
    assert not {"beta_decay_epochs", "beta_min", "nonlinearity", "rule_batch_size"} & found.keys()
    assert Config.from_kwargs(**found).resolve(small, "cpu") == run


def test_given_settings_override_those_of_a_file():
    found = {"weight_mode": "focuse", "beta": 0.5, "lr": 0.3, "optimizer": "adam"}
    assert merge_settings(found, {"lr": 2.0}) == found | {"lr": 2.0}
    assert merge_settings(found, {"weight_mode": "none"}) == {"weight_mode": "none", "lr": 0.3, "optimizer": "adam"}
    both = merge_settings(found, {"weight_mode": "none", "beta": 0.1})  # a given one is not left out silently
    with pytest.raises(FocuseError, match="beta requires weight_mode 'focuse'"):
        Config.from_kwargs(**both)


def test_more_epochs_of_a_resumed_run_count_as_given(small, tmp_path):
    focuse.train(small, dim=4, epochs=1, label_exponent=1, progress=False, out=tmp_path / "run")
    focuse.resume(tmp_path / "run", epochs=2, progress=False)
    assert read_config(tmp_path / "run" / "run.toml") == {"dim": 4, "epochs": 2, "label_exponent": 1.0}
    assert read_toml(tmp_path / "run" / "run.toml")["provenance"]["given"] == ["dim", "label_exponent", "epochs"]


@pytest.mark.parametrize("text", ["dim = " + "[" * 5_000, "dim = " + "9" * 5_000, "a." * 3_000 + "b = 1"])
def test_deeply_nested_or_long_toml_is_an_error_of_one_line(tmp_path, text):
    path = tmp_path / "settings.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FocuseError) as caught:
        read_config(path)
    assert str(path) in str(caught.value)
