"""Color on terminals only, unless the environment says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

import pytest

from focuse.cli.output import warn

CODE = "\x1b["
QUIET = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),
        ({"NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False),
    ],
)
def test_color_of_errors_follows_the_environment(changes, expected, monkeypatch, capsys):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"TERM": "xterm"} | changes).items():
        monkeypatch.setenv(name, value)
    long = "no such file; " * 20
    warn(f"{long}[bold] :smile: 12")
    shown = capsys.readouterr().err
    assert (f"{CODE}1;31m" in shown) is expected
    assert shown.endswith(f" {long}[bold] :smile: 12\n")


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["train", "--help"],
        ["predict", "RUN", "--head", "e1", "--relation", "r0"],
        ["evaluate", "RUN"],
        ["describe", "GRAPH"],
        ["nothing"],
        ["predict", "RUN", "--head", "e99999", "--relation", "r0"],
    ],
    ids=" ".join,
)
def test_output_in_a_pipe_has_no_color_codes(words, trained, graph_file, monkeypatch, capsys):
    from focuse.cli import main

    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    places = {"RUN": str(trained.folder), "GRAPH": str(graph_file)}
    monkeypatch.setattr("sys.argv", ["focuse", *(places.get(word, word) for word in words)])
    with suppress(SystemExit):
        main.run()
    shown = capsys.readouterr()
    assert shown.out + shown.err
    assert CODE not in shown.out + shown.err


def test_training_in_a_pipe_has_no_color_codes(trained):
    assert CODE not in trained.errors


def in_terminal(*words: str, **changes: str) -> str:
    """What the command shows in a terminal of its own."""
    pty = pytest.importorskip("pty")
    here, there = pty.openpty()
    environment = QUIET | {"TERM": "xterm", "COLUMNS": "100"} | changes
    process = subprocess.Popen([sys.executable, "-m", "focuse", *words], stdout=there, stderr=there, env=environment)
    os.close(there)
    seen = b""
    while True:
        try:
            part = os.read(here, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(here)
    process.wait(60)
    return seen.decode()


def test_errors_are_red_on_a_terminal():
    assert in_terminal("nothing").startswith(f"{CODE}1;31mfocuse:{CODE}0m ")


@pytest.mark.slow
def test_a_dumb_terminal_gets_lines_and_no_codes(graph_file, tmp_path):
    options = ["--out", str(tmp_path / "run"), "--dim", "4", "--epochs", "2", "--label-exponent", "1"]
    shown = in_terminal("train", str(graph_file), *options, TERM="dumb")
    assert "epoch 2/2" in shown
    assert "\x1b" not in shown
