"""Options of commands: layouts of files, settings, panels of the help, and completion by Typer."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import typer

from focuse.cli import graphs, main
from focuse.cli.options import Layout
from focuse.config import GROUPS, SETTINGS

COMMANDS = typer.main.get_command(main.app).commands


def completions(line: str) -> list[str]:
    """The words that bash offers at the end of a line, from the command itself."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_FOCUSE_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-m", "focuse"], env={**os.environ, **words}, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_layout_options_reach_the_reader(tmp_path):
    path = tmp_path / "g.txt"
    path.write_text("a|0.5|r|b\nc|0.7|r|d\n")
    graph = Layout(columns="1,3,4,2", delimiter="|", header=False).read(path)
    assert graph.to_arrow().to_pylist()[1] == {"head": "c", "relation": "r", "tail": "d", "weight": 0.7}
    path.write_text("to,from,why\nb,a,r\n")
    graph = Layout(columns="from,why,to", header=True).read(path)
    assert graph.to_arrow().to_pylist() == [{"head": "a", "relation": "r", "tail": "b", "weight": 1.0}]


def test_relation_weights_are_read_from_a_file(tmp_path):
    (tmp_path / "g.tsv").write_text("a\tr\tb\nb\ts\tc\n")
    (tmp_path / "w.tsv").write_text("r\t3\ns\t5\n")
    graph = Layout().read(tmp_path / "g.tsv", tmp_path / "w.tsv")
    assert graph.weight.tolist() == [3.0, 5.0]


def test_train_has_one_option_per_setting_with_its_help_and_default():
    options = {option.name: option for option in COMMANDS["train"].params}
    for name, declared in SETTINGS.items():
        option = options[name]
        assert f"--{name.replace('_', '-')}" in option.opts
        assert option.help.startswith(declared.help)
        assert option.help.endswith(f"Default: {declared.default_text}.")
        assert all(choice in option.help for choice in declared.choices)
        assert (option.rich_help_panel, option.default) == (declared.group, None)
    assert {"model", "weight_mode", "seed", "device"} == {each.name for each in COMMANDS["tune"].params} & {*SETTINGS}


def test_help_lists_options_and_commands_in_panels(command):
    shown = command("train", "--help", check=True).stdout
    headings = [line.rstrip(":") for line in shown.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings == ["Arguments", "Input", *GROUPS, "Options"]
    shown = command("--help", check=True).stdout
    headings = [line.rstrip(":") for line in shown.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings == ["Options", "Start", "Explore", "Data", "Experiments"]
    assert shown.index("  describe ") < shown.index("  train ") < shown.index("  evaluate ") < shown.index("  predict ")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("focuse pred", ["predict", "predict-weights"]),
        ("focuse rules ", ["ground", "mine"]),
        ("focuse predict run --re", ["--relation"]),
        ("focuse train g.tsv --model trans", ["transe", "transe-l2", "transea"]),
        ("focuse train --weight-mode ", ["separate", "soft-labels", "focuse", "none"]),
        ("focuse train --loss bc", ["bce"]),
        ("focuse train --epochs ", []),
        ("focuse tune g.tsv --sampler g", ["grid"]),
        ("focuse datasets path onet", ["onet20k", "onet-importance"]),
    ],
)
def test_words_are_completed(line, expected):
    assert completions(line) == expected


def test_completion_can_be_shown_and_installed(command):
    shown = command("--help", check=True).stdout
    assert "--install-completion" in shown
    assert "--show-completion" in shown


def test_names_of_datasets_are_those_of_the_catalog():
    from focuse import datasets
    from focuse.rules.mining import SHAPES

    assert list(graphs.NAMES) == datasets.names()
    assert tuple(graphs.SHAPES) == tuple(SHAPES)
