"""Settings from TOML files, and changes of the settings of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

import focuse
from focuse.config import Config, merged, read_config
from focuse.errors import FocuseError


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
    assert focuse.Config.from_kwargs(**settings) == run.settings
    again = focuse.train(small, **settings, progress=False)
    seen = [[row["loss"] for row in one.history] for one in (run, again)]
    assert seen[0] == seen[1]


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
def test_changing_one_resolved_setting_equals_a_new_configuration(small, model):
    """Whatever the model, the optimizer, the sampling or the epochs become."""
    chosen = {"dim": 12, "epochs": 40}
    run = Config.from_kwargs(model=model, **chosen).resolve(small, "cpu").to_dict() | {"batch_size": None}
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
        {"beta_decay_epochs": 4},
    ):
        again = Config.from_kwargs(**merged(run, change)).resolve(small, "cpu")
        fresh = Config.from_kwargs(**{"model": model, **chosen, **change}).resolve(small, "cpu")
        assert replace(again, batch_size=None) == replace(fresh, batch_size=None), change


def test_changing_a_setting_drops_the_values_derived_from_it():
    run = Config.from_kwargs(optimizer="row-adagrad", negative_sampling="shared", num_negatives=256, lr=0.1, dim=9)
    changed = merged(run.to_dict(), {"optimizer": "row-adam", "negative_sampling": "per-triple"})
    assert {"lr", "num_negatives"} & changed.keys() == set()
    assert (changed["dim"], changed["optimizer"]) == (9, "row-adam")
    same = {"optimizer": "row-adagrad", "dim": 3}
    assert merged(run.to_dict(), same) == run.to_dict() | same
    assert merged({"optimizer": "adam", "lr": 1.0}, {"optimizer": "sgd", "lr": 2.0}) == {"optimizer": "sgd", "lr": 2.0}


@pytest.mark.parametrize("text", ["dim = " + "[" * 5_000, "dim = " + "9" * 5_000, "a." * 3_000 + "b = 1"])
def test_deeply_nested_or_long_toml_is_an_error_of_one_line(tmp_path, text):
    path = tmp_path / "settings.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FocuseError) as caught:
        read_config(path)
    assert str(path) in str(caught.value)
