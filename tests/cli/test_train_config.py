"""`focuse train --config`: settings from a file, overridden from the shell."""

from __future__ import annotations

import json
import sys

import pytest

from focuse.cli.main import run


@pytest.fixture
def trained_with(command, graph_file, tmp_path):
    def train(text, *options):
        (tmp_path / "mine.toml").write_text(text)
        arguments = ["--out", tmp_path / "run", "--config", tmp_path / "mine.toml", "--json", "--quiet", *options]
        return json.loads(command("train", graph_file, *arguments, check=True).stdout)

    return train


@pytest.fixture
def refused_here(monkeypatch, capsys):
    """As `refused`, in this process: the line of a command that exits with 2."""

    def run_command(*arguments):
        monkeypatch.setattr(sys, "argv", ["focuse", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_code:
            run()
        shown = capsys.readouterr()
        assert (exit_code.value.code, shown.out) == (2, "")
        (line,) = shown.err.splitlines()
        assert line.startswith("focuse: ")
        return line

    return run_command


def test_options_override_the_file(trained_with):
    text = 'model = "transe"\ndim = 4\nepochs = 2\nlr = 0.5\nfilter_negatives = true\n'
    settings = trained_with(text, "--dim", "3", "--no-filter-negatives")["settings"]
    expected = {"model": "transe", "dim": 3, "epochs": 2, "lr": 0.5, "filter_negatives": False}
    assert expected.items() <= settings.items()


def test_training_from_run_toml_gives_the_same_run(command, trained, graph_file, tmp_path):
    config = trained.folder / "run.toml"
    done = command("train", graph_file, "--out", tmp_path / "run", "--config", config, "--json", "--quiet", check=True)
    again = json.loads(done.stdout)
    assert again["settings"] == trained.data["settings"]
    assert (again["valid_mrr"], again["best_epoch"]) == (trained.data["valid_mrr"], trained.data["best_epoch"])
    model = "model.safetensors"
    assert (tmp_path / "run" / model).read_bytes() == (trained.folder / model).read_bytes()


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("dim = 4\nlr = = 3\n", [], "mine.toml, line 2: "),
        ("dimm = 4\n", [], "mine.toml: unknown setting 'dimm' (did you mean dim?): choose from "),
        ("dim = 4\n", ["--lr", "0"], "focuse: lr 0: give a number above 0"),
        (None, [], "mine.toml: No such file or directory; give the path of a TOML file"),
    ],
)
def test_invalid_config_files_are_refused_in_one_line(refused_here, graph_file, tmp_path, text, options, says):
    if text is not None:
        (tmp_path / "mine.toml").write_text(text)
    shown = refused_here("train", graph_file, "--out", tmp_path / "run", "--config", tmp_path / "mine.toml", *options)
    assert says in shown
    assert not (tmp_path / "run").exists()


def test_config_with_resume_is_refused(refused_here, trained, tmp_path):
    (tmp_path / "mine.toml").write_text("dim = 4\n")
    shown = refused_here("train", "--resume", trained.folder, "--config", tmp_path / "mine.toml")
    assert "--resume takes its settings from the run; remove config" in shown
