"""The command itself: help, usage errors, and what it imports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import focuse

COMMANDS = {
    "tune": "--out --valid --test --model --weight-mode --search --fix --sampler --trials --time-limit --storage "
    "--json",
    "train": "--valid --test --model --dim --epochs --batch-size --num-negatives --negative-sampling --weight-mode "
    "--beta-decay-epochs --loss --lr --regularizer --weight-scaling --inferred-triples --rules --rule-loss-weight "
    "--rule-batch-size --stop-metric --seed "
    "--device --checkpoint-every --out --resume --json",
    "evaluate": "--prefer --ties --protocol --unfiltered --sample-candidates --weights --negatives-file --ndcg-queries "
    "--strong-above --device --json",
    "predict": "--head --relation --tail --top --prefer --any-type --json",
    "discover": "--relation --top --prefer --any-type --json",
    "calibrate": "--method --base-rate --device --json",
    "describe": "--valid --test --json",
    "demo": "--out --seed --json",
}
GROUPS = ("rules", "datasets")  # their commands have their own tests


@pytest.mark.parametrize("name", COMMANDS)
def test_help_describes_every_documented_flag(command, name):
    shown = command(name, "--help", check=True).stdout
    assert re.match(rf"Usage: .*focuse {name} \[OPTIONS\]", shown)
    flags = re.findall(r"^  (?:-h, )?(--[\w-]+)(.*(?:\n {10,}.*)*)", shown, re.MULTILINE)
    described = {flag: " ".join(rest.split()) for flag, rest in flags}
    assert set(COMMANDS[name].split()) <= set(described)
    for flag, text in described.items():
        words = re.sub(r"^(/ --[\w-]+)? *(<\w+>)?", "", text).strip()
        assert len(words.split()) >= 2, f"{flag} has no help"
        assert "None" not in words
    assert max(map(len, shown.splitlines())) <= 80
    summary = shown.split("\n\n")[1].strip()
    assert summary[0].isupper()
    assert summary.endswith((".", "words, and writes an HTML report."))


def test_the_console_script_and_the_module_are_the_same_command(command):
    script = Path(sys.executable).with_name("focuse")
    shown = subprocess.run([script, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert all(re.search(rf"^  {name} +\S", shown, re.MULTILINE) for name in (*COMMANDS, *GROUPS))
    assert command("--version", check=True).stdout == f"focuse {focuse.__version__}\n"


def test_command_without_arguments_shows_help(command):
    done = command()
    assert done.returncode == 2
    assert done.stdout.startswith("Usage: ")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["trian"], "No such command 'trian'"),
        (["train", "g.tsv", "--epoch", "3"], "--epochs"),
        (["train", "g.tsv", "--dim", "ten"], "Invalid value for '--dim'"),
        (["evaluate"], "(see focuse evaluate --help)"),
        (["--trust"], "(see focuse --help)"),
    ],
)
def test_a_usage_error_is_one_line(refused, arguments, says):
    assert says in refused(*arguments)


def test_closed_pipe_causes_no_error_message(command, graph_file):
    reading, writing = os.pipe()
    os.close(reading)
    for arguments in (["describe", graph_file], ["train", "--help"]):
        done = command(*arguments, capture_output=False, stdout=writing, stderr=subprocess.PIPE)
        assert done.stderr == ""
        assert done.returncode == 1
    os.close(writing)


def test_help_and_completion_import_no_heavy_modules_and_start_at_once():
    """Help and completion must come at once."""
    loaded = (
        "import sys, focuse.cli.main; print([name for name in ('numpy', 'pyarrow', 'torch') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_defaults_of_rules_are_those_of_the_library():
    from focuse.cli import graphs
    from focuse.rules import grounding, mining

    assert (graphs.MINIMUM, graphs.MOST_GROUNDINGS) == (grounding.DEFAULT_MINIMUM, grounding.DEFAULT_LIMIT)
    found = mining.DEFAULT_SUPPORT, mining.DEFAULT_CONFIDENCE, mining.DEFAULT_LIMIT
    assert found == (graphs.SUPPORT, graphs.CONFIDENCE, graphs.MOST_PATHS)
