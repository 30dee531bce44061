"""`python -m reproduction`: its help, its errors and a small training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_datasets import load_small

from reproduction import __main__ as command
from reproduction import scheduling

ROOT = Path(__file__).parent.parent.parent
OPTIONS = "--out --data --model --kind --seeds --part --override --quick --time-limit --device --workers --json"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, "-m", "reproduction", *words], cwd=ROOT, env=environment, capture_output=True, text=True
    )


def test_help_names_every_option_and_errors_are_one_line() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    assert "Usage: python -m reproduction [OPTIONS]" in shown.stdout
    assert all(f"  {option} " in shown.stdout for option in OPTIONS.split())
    for words, told in ((["--data", "ppi"], "unknown data set 'ppi'"), (["--sedes"], "python -m reproduction --help")):
        refused = run(*words)
        assert (refused.returncode, refused.stdout) == (2, "")
        (line,) = refused.stderr.splitlines()
        assert line.startswith("focuse: ")
        assert told in line


def test_cells_are_trained_and_a_failed_one_is_an_error(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(
        scheduling.reproduce, "__kwdefaults__", {**scheduling.reproduce.__kwdefaults__, "load": load_small}
    )
    override = "dim=4 epochs=2 num_negatives=8 batch_size=64"
    words = ["--data", "ppi5k", "--kind", "plain", "--quick", "--quiet", "--json", "--out", str(tmp_path)]
    command.app([*words, "--override", override], standalone_mode=False)
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert cell["cell"]["data"] == "ppi5k"
    with pytest.raises(command.FocuseError, match=r"lr=1e.*diverged"):
        command.app([*words, "--override", f"{override} lr=1e30"], standalone_mode=False)
