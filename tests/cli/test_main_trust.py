"""`focuse --trust`: custom models in files."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

SMALL = ["--dim", "4", "--epochs", "1", "--weight-mode", "none", "--quiet"]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in with two modules of models; nobody has said to trust them."""
    monkeypatch.setenv("FOCUSE_TRUST", "")
    monkeypatch.chdir(tmp_path)
    for name in ("mine_here", "also_here"):
        text = f"""
            from focuse.models.bilinear import DistMult

            class Mine(DistMult):
                \"\"\"As DistMult, by another name.\"\"\"
                name = "{name}"
        """
        (tmp_path / f"{name}.py").write_text(dedent(text), encoding="utf-8")
    yield tmp_path
    _forget()


def _forget() -> None:
    """As in another process."""
    for name in ("mine_here", "also_here"):
        sys.modules.pop(name, None)


def test_suggested_command_after_training_works(inside, refused_inside, own, graph_file):
    shown = inside("train", graph_file, "--model", "mine_here:Mine", "--out", "my run", *SMALL)
    following = shown.splitlines()[-1]
    typed = shlex.split(following)
    assert typed[:4] == ["next:", "focuse", "--trust", "mine_here"]
    _forget()
    assert "--trust mine_here" in refused_inside("evaluate", "my run")
    assert inside(*typed[2:])
    assert "MRR" in inside("--trust", "mine_here", "evaluate", "my run")


def test_several_trust_options_are_combined(inside, own, graph_file):
    for name in ("mine_here", "also_here"):
        inside("train", graph_file, "--model", f"{name}:Mine", "--out", f"runs/{name}", *SMALL)
    _forget()
    inside("--trust", "mine_here", "--trust", "also_here", "evaluate", "runs/mine_here")
    assert os.environ["FOCUSE_TRUST"] == "mine_here,also_here"
    assert "MRR" in inside("evaluate", "runs/also_here")


@pytest.mark.parametrize("name", ["evaluate", "train"])
def test_trust_after_the_command_is_refused_with_advice(refused, name):
    shown = refused(name, "runs/mine", "--trust", "mine_here")
    assert shown == f"focuse: --trust must precede the command: focuse --trust MODULE {name} …"


def test_model_of_a_config_file_that_is_overridden_needs_no_trust(inside, refused_inside, own, graph_file):
    Path("mine.toml").write_text('model = "mine_here:Mine"\ndim = 3\n', encoding="utf-8")
    asked = [
        "train",
        graph_file,
        "--config",
        "mine.toml",
        "--epochs",
        "1",
        "--weight-mode",
        "none",
        "--quiet",
        "--json",
    ]
    assert "--trust mine_here" in refused_inside(*asked, "--out", "run")
    assert not Path("run").exists()
    shown = inside(*asked, "--model", "complex", "--out", "run")
    assert '"model": "complex"' in shown
    assert '"dim": 3' in shown
    assert "mine_here" not in sys.modules
    assert '"model": "mine_here:Mine"' in inside(*asked, "--model", "mine_here:Mine", "--out", "own")
